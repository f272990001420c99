"""A budget for each part of the data: mechanisms on different parts do not add up.

Fix two neighbours; they differ in one part. A mechanism on another part draws from the same distribution for both, and costs
nothing, whatever it was chosen by. So the costs of the mechanisms that see that part are all that counts, and they pass its filter;
what happens on other parts is randomness that the adversary might as well have of its own. This holds for every part, and for
costs and parts chosen by all answers before (parallel composition, McSherry 2009; a filter for each part, Lecuyer et al. 2019).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Literal

from dpjax import checks
from dpjax.accounting.composition import Composition
from dpjax.accounting.filters import BudgetExceeded, Lock, PrivacyFilter
from dpjax.accounting.groups import check_membership
from dpjax.accounting.guarantee import Guarantee, one_unit


class PartitionFilter:
    """One (epsilon, delta) budget for all data, where a mechanism is charged to the parts that it sees.

    Args:
        parts: public names of the parts; every record belongs to one. Chosen without the data.
        epsilon: of the whole, positive.
        delta: of the whole, in [0, 1).
        neighbors: the relation.
        membership: ``"by_value"`` or ``"by_position"``, as for :func:`parallel`, which refuses swap neighbours by value, too.
        mechanism_delta: as for :class:`PrivacyFilter`, like ``orders``.

    References:
        The top of this file.

    >>> budget = PartitionFilter(("north", "south"), 1.0, 0.0, "add_remove", membership="by_value")
    >>> half = Guarantee(0.5, 0.5, "add_remove")
    >>> budget.charge(half)  # all data
    >>> budget.charge(half, ["north"])
    >>> budget.allows(half, ["north"]), budget.allows(half, ["south"])
    (False, True)
    """

    # No dataclass, as PrivacyFilter.
    def __init__(
        self,
        parts: Iterable[Hashable],
        epsilon: float,
        delta: float,
        neighbors: str,
        *,
        membership: Literal["by_value", "by_position"],
        mechanism_delta: float = 0.0,
        orders: tuple[float, ...] = (),
    ) -> None:
        self.parts, self.membership, self._lock = tuple(parts), membership, Lock()
        if not self.parts or len(set(self.parts)) < len(self.parts):
            raise ValueError(f"parts must be names, at least one and each once, got {self.parts}.")
        check_membership(membership, checks.one_of("neighbors", neighbors, checks.RELATIONS))
        self.filters = {part: PrivacyFilter(epsilon, delta, neighbors, mechanism_delta, orders) for part in self.parts}

    def __repr__(self) -> str:
        return f"PartitionFilter({self.parts}, {next(iter(self.filters.values()))}, membership={self.membership!r})"

    def allows(self, guarantee: Guarantee | Composition, parts: Iterable[Hashable] | None = None) -> bool:
        """Whether there is room for it in all parts that it sees; ``None`` for all data."""
        return all(budget.allows(guarantee) for budget in self._seen(parts))

    def charge(self, guarantee: Guarantee | Composition, parts: Iterable[Hashable] | None = None) -> None:
        """Charge a mechanism to the parts that it sees, before it runs; ``None`` for all data.

        Raises:
            BudgetExceeded: there is no room for it in one of them; nothing was charged.
            ValueError: as for :class:`PrivacyFilter`; all parts are for one unit.
        """
        seen = self._seen(parts)
        with self._lock:
            one_unit((guarantee.unit, *(budget.unit for budget in self.filters.values())))
            for budget in seen:
                if not budget.allows(guarantee):
                    raise BudgetExceeded(f"this passes the remaining budget of a part, {budget.remaining:g} of {budget.budget:g}.")
            for budget in seen:
                budget.charge(guarantee)

    def _seen(self, parts: Iterable[Hashable] | None) -> list[PrivacyFilter]:
        names = list(dict.fromkeys(self.parts if parts is None else parts))
        unknown = [name for name in names if name not in self.filters]
        if unknown or not names or isinstance(parts, str):
            raise ValueError(f"parts must be a list of some of {self.parts}, got {parts!r}.")
        return [self.filters[name] for name in names]
