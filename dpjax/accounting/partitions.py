"""A budget for each part of the data, as the costs of mechanisms on disjoint parts do not add up.

Two neighbors differ in one part. A mechanism on another part has the same output distribution on
both, and costs nothing, however it was chosen: to the adversary, its output is independent
randomness. So only the costs of the mechanisms that see the differing part count, and the filter of
that part bounds them. This holds for every part, and for costs and parts that are chosen after
seeing all previous answers (parallel composition, McSherry 2009; a filter for each part, Lecuyer et
al. 2019).
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
    """An (epsilon, delta) budget for all data, charged only to the parts that a mechanism sees.

    Args:
        parts: public names of the parts, chosen without the data; every record belongs to one part.
        epsilon: of all mechanisms together, positive.
        delta: of all mechanisms together, in [0, 1).
        neighbors: the neighbor relation of all guarantees.
        membership: ``"by_value"`` or ``"by_position"``, as for :func:`parallel`; ``"by_value"`` is
            refused under swap neighbors.
        mechanism_delta: as for :class:`PrivacyFilter`.
        orders: as for :class:`PrivacyFilter`.

    References:
        McSherry (2009) and Lecuyer et al. (2019), as the module docstring explains.

    >>> budget = PartitionFilter(("north", "south"), 1.0, 0.0, "add_remove", membership="by_value")
    >>> half = Guarantee(0.5, 0.5, "add_remove")
    >>> budget.charge(half)  # all data
    >>> budget.charge(half, ["north"])
    >>> budget.allows(half, ["north"]), budget.allows(half, ["south"])
    (False, True)
    """

    # Not a dataclass, for the reason given in PrivacyFilter.
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
            raise ValueError(f"parts must be distinct names, at least one, got {self.parts}.")
        check_membership(membership, checks.one_of("neighbors", neighbors, checks.RELATIONS))
        self.filters = {
            part: PrivacyFilter(epsilon, delta, neighbors, mechanism_delta, orders)
            for part in self.parts
        }

    def __repr__(self) -> str:
        each = next(iter(self.filters.values()))
        return f"PartitionFilter({self.parts}, {each}, membership={self.membership!r})"

    def allows(
        self, guarantee: Guarantee | Composition, parts: Iterable[Hashable] | None = None
    ) -> bool:
        """Return whether a guarantee fits into the remaining budget of all parts that it sees.

        ``None`` for all.
        """
        return all(budget.allows(guarantee) for budget in self._seen(parts))

    def charge(
        self, guarantee: Guarantee | Composition, parts: Iterable[Hashable] | None = None
    ) -> None:
        """Charge a mechanism to the parts that it sees, before it runs; ``None`` for all parts.

        Raises:
            BudgetExceeded: the cost exceeds the remaining budget of one of them; nothing was
                charged.
            ValueError: as for :meth:`PrivacyFilter.charge`; all parts share one unit.
        """
        seen = self._seen(parts)
        with self._lock:
            one_unit((guarantee.unit, *(budget.unit for budget in self.filters.values())))
            for budget in seen:
                if not budget.allows(guarantee):
                    raise BudgetExceeded(
                        f"the cost exceeds the remaining budget of a part, {budget.remaining:g} of "
                        f"{budget.budget:g}."
                    )
            for budget in seen:
                budget.charge(guarantee)

    def _seen(self, parts: Iterable[Hashable] | None) -> list[PrivacyFilter]:
        names = list(dict.fromkeys(self.parts if parts is None else parts))
        unknown = [name for name in names if name not in self.filters]
        if unknown or not names or isinstance(parts, str):
            raise ValueError(f"parts must be a list of names among {self.parts}, got {parts!r}.")
        return [self.filters[name] for name in names]
