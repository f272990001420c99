"""Privacy filters: budgets for mechanisms whose costs may depend on the answers so far.

In this fully adaptive setting the sum of costs is itself random, and composition theorems need not
hold for it. They do for pure DP (Rogers et al. 2016) and for zCDP (Feldman and Zrnic 2021), if
mechanisms are refused beyond a budget that was fixed in advance. Both rules are used at once, and a
mechanism is admitted if either admits it. Proof, with delta = delta_0 (for the mechanisms' own
deltas) + delta_1 (for zCDP):

* An (epsilon_j, delta_j)-DP mechanism draws, except with probability delta_j, from two
  distributions that are epsilon_j-DP (Kairouz, Oh and Viswanath 2015, Theorem 3.1). The filter
  keeps the sum of the delta_j on every transcript within delta_0, so the probability of any such
  exception is at most delta_0 (Whitehouse et al. 2023). Below, there is none.
* Let A be the transcripts whose epsilons add up to at most epsilon. On these the loss is at most
  epsilon: A adds nothing to delta.
* Sums only grow, so every other transcript never exceeded the budget of zCDP. It has the same
  probability as if that rule alone were used, whose delta at epsilon is at most delta_1.

Parts. Two neighbors differ in one part. A mechanism on another part has the same output
distribution on both, and costs nothing, however it was chosen. So only the costs of the mechanisms
that see the differing part count: those of everyone, and its own. The budget bounds them for every
part, also if costs and parts are chosen after seeing all previous answers (parallel composition,
McSherry 2009; a filter for each part, Lecuyer et al. 2019).

Concurrent composition. A mechanism may itself be interactive: charge it when it starts, with its
guarantee against an adversary that interacts with it alone. Queries to all mechanisms that have
started may then be interleaved in any order: pure, (epsilon, delta) and Renyi DP compose
concurrently as they do sequentially (Vadhan and Wang 2021; Lyu 2022), also with filters and
odometers whose costs depend on the answers (Haney, Shoemate, Tian, Vadhan, Vyrros, Xu and Zhang
2023).

Odometers. The costs may depend on the answers, and there is no budget. For one order a, let R be
the sum of the Renyi divergences so far: e^((a-1) (loss - R)) is a supermartingale, so it ever
exceeds 1/delta with probability at most delta (Ville's inequality).
"""

from __future__ import annotations

import copy
import json
import threading
from bisect import bisect_left
from collections.abc import Mapping
from fractions import Fraction
from math import inf, log, pi, sqrt
from typing import Any, Literal, NamedTuple, Self

from dpjax import checks
from dpjax.accounting.conversions import zcdp_of
from dpjax.accounting.groups import check_membership
from dpjax.accounting.guarantee import Cost
from dpjax.accounting.sums import exact_total, one_of_all

Described = Mapping[str, Any] | None
# Held while a cost is compared with a budget and added. Interrupts cannot leave it held, since
# ``with`` acquires and releases it in one instruction each.
_LOCK = threading.Lock()


class Costs(NamedTuple):
    """The costs of mechanisms: exact sums of epsilon, of rho of zCDP, and of their own deltas."""

    epsilon: Any = Fraction(0)
    rho: Any = Fraction(0)
    delta: Any = Fraction(0)

    def plus(self, *others: Costs) -> Costs:
        """Return exact sums, infinite where a cost is."""
        kinds = zip(self, *others, strict=True)
        return Costs(*(exact_total((each, 1) for each in kind) for kind in kinds))

    def nearest(self) -> Costs:
        """Return the nearest floats."""
        return Costs(*map(checks.nearest_float, self))


_NOTHING = Costs()
# Their names in texts: with a delta, a mechanism fits by its epsilon or by its rho
_CALLED = {"epsilon": "epsilon", "rho": "or zCDP rho", "delta": "and delta of mechanisms"}


class BudgetExceeded(RuntimeError):
    """Raised when a mechanism would exceed a budget.

    The mechanism was refused and nothing was charged.

    Example:
        >>> from dpjax.accounting import Guarantee
        >>> try:
        ...     PrivacyFilter(1.0, 0.0, "swap").charge(Guarantee(2.0, 2.0, "swap"))
        ... except BudgetExceeded as error:
        ...     print(error)
        a cost of epsilon 2 exceeds the remaining epsilon 1 of 1.
    """


class Spent:
    """The exact sums of the costs charged so far.

    Attributes:
        sums: the costs of the mechanisms that see only a part, by its name; ``""`` is everyone.
        people: whom they protect: their common ``"unit"``, such as a person, and the ``"column"``
            that identifies the persons, as JSON; ``""`` if none is stated.
    """

    def __init__(self) -> None:
        self.sums, self.people = {"": _NOTHING}, {"unit": "", "column": ""}

    def joined(self, unit: str, column: str) -> dict[str, str]:
        """Return whom all protect after a guarantee; raise ``ValueError`` if one differs."""
        before = self.people["column"]
        if column and before and column != before:
            raise ValueError(
                f"this budget has guarantees for the persons of column {before}, and this one is "
                f"for those of column {column}: together they hold for neither, as several persons "
                "of one column may belong to one of the other. Use a budget or a ledger of its own "
                "for each kind of person; if the persons are the same, rename the column."
            )
        return {"unit": one_of_all("unit", (self.people["unit"], unit)), "column": column or before}

    def add(self, part: str, costs: Costs, unit: str, column: str) -> None:
        """Add the costs of a mechanism."""
        self.people.update(self.joined(unit, column))
        self.sums = self.sums | {part: self.sums.get(part, _NOTHING).plus(costs)}

    def used(self, part: str, costs: Costs = _NOTHING) -> Costs:
        """Return what a part has lost, with ``costs`` added; of everyone, what any part has."""
        own = [sums for name, sums in self.sums.items() if name and part in ("", name)]
        largest = Costs(*map(max, zip(_NOTHING, *own, strict=True)))
        return self.sums[""].plus(largest, costs).nearest()


class Totals:
    """The base of filters, ledgers and odometers: public totals, read-only, and charges."""

    # Not a dataclass, as dataclasses.replace would return a budget without the costs charged so
    # far.
    def __init__(self, delta: float, neighbors: str, mechanism_delta: float = 0.0) -> None:
        # As Python floats, since NumPy and JAX would compare with a float32 in float32.
        self.delta = checks.concrete_fraction("delta", delta)
        self.neighbors = checks.one_of("neighbors", neighbors, checks.RELATIONS)
        self.mechanism_delta = checks.concrete_fraction("mechanism_delta", mechanism_delta)
        if self.mechanism_delta > self.delta:
            raise ValueError(
                f"mechanism_delta must be at most delta, got mechanism_delta={mechanism_delta} and "
                f"delta={delta}."
            )
        self._share = (self.delta - self.mechanism_delta) * (1 - 2.0**-52)
        self._spent = Spent()

    def __setattr__(self, name: str, value: Any) -> None:
        if name in vars(self):
            raise AttributeError(f"{name} of a budget is read-only: make a new budget.")
        super().__setattr__(name, value)

    def __repr__(self) -> str:
        totals = (f"{name}={value!r}" for name, value in vars(self).items() if name[0] != "_")
        return f"{type(self).__name__}({', '.join(totals)})"

    def _costs(self, spent: Cost) -> Costs:
        """Return the exact costs of a mechanism; infinite where it promises nothing.

        Raises:
            TypeError: ``spent`` is neither a guarantee nor a composition. (A metric guarantee can
                be converted by its method ``guarantee``.)
            ValueError: the relation differs, or the kind that is charged is not promised.
        """
        if not isinstance(spent, Cost):
            raise TypeError(
                f"this budget charges a Guarantee or a Composition, got {type(spent).__name__}."
            )
        if spent.neighbors != self.neighbors:
            raise ValueError(
                f"this budget is under {self.neighbors} neighbors, the guarantee under "
                f"{spent.neighbors}."
            )
        costs = Costs(*map((1 * spent).exact_sum, ("epsilon", "zcdp", "delta")))
        if costs.delta and not self.mechanism_delta:
            raise ValueError(
                "this budget reserves no delta for the mechanisms' own deltas, but the guarantee "
                f"has one: {spent}. Make a new one with delta= of at least twice that, half of "
                "which is kept for them: by a Ledger by itself, else as mechanism_delta."
            )
        kind, charged = ("zCDP", costs.rho) if self._share else ("pure DP", costs.epsilon)
        if charged == inf:
            raise ValueError(
                f"this budget charges {kind}, which the guarantee does not promise: {spent}."
            )
        return costs


class PrivacyFilter(Totals):
    """An (epsilon, delta) budget for adaptive mechanisms.

    Each may be chosen after seeing all previous answers. With ``delta = 0`` epsilons are summed,
    and all mechanisms together are epsilon-DP. With ``delta`` above 0 the budget is the zCDP that
    implies (epsilon, delta)-DP, and each mechanism is charged the smallest rho that its guarantee
    implies; a mechanism is also admitted if the sum of the epsilons stays within epsilon. A bounded
    range counts as an epsilon, and is converted to zCDP by its own, smaller divergences.

    Threads may share a filter: each charge compares with the budget and adds its cost atomically.
    ``copy.copy`` returns the same budget under another name; a deep copy or a pickled one starts
    with the costs charged so far and is independent from then on. Several processes can share a
    :class:`dpjax.accounting.Ledger`.

    Args:
        epsilon: of all mechanisms together, positive.
        delta: of all mechanisms together, in [0, 1).
        neighbors: the neighbor relation of all guarantees.
        mechanism_delta: the part of ``delta`` that is reserved for the mechanisms' own deltas, at
            most ``delta``.

    References:
        Rogers, Roth, Ullman and Vadhan (2016), Theorem 3.1; Feldman and Zrnic (2021), Theorem 4.3;
        Whitehouse, Ramdas, Rogers and Wu (2023), Theorem 1; the module docstring, for the use of
        two rules, for parts and for interactive mechanisms.

    >>> from dpjax.accounting import Guarantee
    >>> budget = PrivacyFilter(1.0, 0.0, "swap")
    >>> for _ in range(3):
    ...     budget.charge(Guarantee(0.3, 0.3, "swap"))
    >>> budget.fits(Guarantee(0.2, 0.2, "swap"))
    False
    >>> budget = PrivacyFilter(1.0, 1e-6, "swap", mechanism_delta=5e-7)
    >>> budget.charge(Guarantee(0.3, 0.6, "swap", delta=1e-7))
    >>> print(budget)
    remaining epsilon 0.7 of 1, or zCDP rho 0 of 0.0229374, and delta of mechanisms 4e-07 of 5e-07
    """

    def __init__(
        self, epsilon: float, delta: float, neighbors: str, mechanism_delta: float = 0.0
    ) -> None:
        self.epsilon = checks.concrete_epsilon(epsilon)
        super().__init__(delta, neighbors, mechanism_delta)
        rho = 0.0
        if self._share:
            # Its epsilon is a difference of numbers that may be much larger
            rho = float(zcdp_of(self.epsilon, delta=self._share)) * (1 - 2.0**-40)
        self._limits = Costs(self.epsilon, rho, self.mechanism_delta)
        self._kind, self._part = "rho" if rho else "epsilon", ""

    def charge(self, guarantee: Cost, what: Described = None) -> None:
        """Charge a mechanism, before it runs; an interactive one, before its first answer.

        Args:
            guarantee: the cost of the mechanism.
            what: a public description. Of it, the budget keeps the column that identifies the
                persons (``what["unit"]``, as :func:`dpjax.frames.release` states it), since a
                promise for riders and one for drivers do not add up.

        Raises:
            BudgetExceeded: the cost exceeds the remaining budget; nothing was charged.
            ValueError: the relation or unit differs, the persons are those of another column, or
                the guarantee lacks a promise of the kind that is charged.
        """
        with _LOCK:
            self._admit(self._spent, guarantee, what)

    def _now(self) -> Spent:
        """Return what is spent so far."""
        return self._spent

    def __str__(self) -> str:
        return f"remaining {self._left_text(self._now())}"

    @property
    def totals(self) -> dict[str, Any]:
        """The public totals by name: epsilon, delta, neighbors, mechanism_delta."""
        names = "epsilon", "delta", "neighbors", "mechanism_delta"
        return {name: getattr(self, name) for name in names}

    @property
    def budget(self) -> float:
        """The total budget: epsilon, or with a delta the rho of zCDP that implies the totals."""
        return getattr(self._limits, self._kind)

    @property
    def spent(self) -> float:
        """The cost charged so far, in the unit of :attr:`budget`; of parts, the largest.

        It exceeds a budget of zCDP where mechanisms were admitted by the sum of their epsilons.
        """
        return getattr(self._now().used(self._part), self._kind)

    @property
    def remaining(self) -> float:
        """The remaining budget, in the unit of :attr:`budget`; at least 0."""
        return self.left[self._kind]

    @property
    def left(self) -> dict[str, float]:
        """What is left by name, at least 0: a mechanism fits if its epsilon or its rho does.

        The names are ``"epsilon"``, and with a delta ``"rho"`` of zCDP and ``"delta"``, of the part
        that is reserved for the mechanisms' own deltas.

        >>> PrivacyFilter(1.0, 0.0, "swap").left
        {'epsilon': 1.0}
        """
        return self._left(self._now())

    def fits(self, guarantee: Cost, what: Described = None) -> bool:
        """Return whether a guarantee fits into the remaining budget; see ``charge``.

        The answer depends on costs, not on data.
        """
        spent = self._now()
        spent.joined(guarantee.unit, column_of(guarantee, what))
        return self._has_room(spent, self._costs(guarantee))

    def times(self, guarantee: Cost) -> int:
        """Return how often a guarantee fits into the remaining budget, at most 2^20 times.

        >>> from dpjax.accounting import Guarantee
        >>> PrivacyFilter(1.0, 0.0, "swap").times(Guarantee(0.3, 0.3, "swap"))
        3
        """
        spent, costs = self._now(), self._costs(guarantee)

        def exceeds(count: int) -> bool:
            return not self._has_room(spent, Costs(*(count * cost for cost in costs)))

        return bisect_left(range(1, 2**20 + 1), True, key=exceeds)

    def part(
        self, name: str, *, membership: Literal["by_value", "by_position"] = "by_value"
    ) -> Self:
        """Return the budget of the people of one part, such as one hospital.

        Mechanisms that see only this part are charged to it, and cost the others nothing. Each part
        has the whole budget, less what was charged for everyone.

        Args:
            name: of the part, public. A person, or a record, is in at most one part: parts that
                overlap would understate the cost.
            membership: ``"by_value"`` or ``"by_position"``, as for :func:`parallel`; ``"by_value"``
                is refused under swap neighbors.

        Raises:
            ValueError: the name is no text or empty, this is a part already, or ``membership`` is
                refused.

        References:
            McSherry (2009) and Lecuyer et al. (2019), as the module docstring explains.

        >>> from dpjax.accounting import Guarantee
        >>> budget, half = PrivacyFilter(1.0, 0.0, "add_remove"), Guarantee(0.5, 0.5, "add_remove")
        >>> budget.charge(half)  # everyone
        >>> budget.part("north").charge(half)
        >>> budget.part("north").fits(half), budget.part("south").fits(half), budget.fits(half)
        (False, True, False)
        """
        if not name or not isinstance(name, str):
            raise ValueError(f"name must be the text that names a part, got {name!r}.")
        if self._part:
            raise ValueError(f"the part {self._part!r} has no parts: name parts of everyone.")
        check_membership(membership, self.neighbors)
        return self._with("_part", name)

    def _with(self, name: str, value: Any) -> Self:
        """Return the same budget under another name, with another attribute."""
        same = copy.copy(self)
        vars(same)[name] = value
        return same

    def _admit(self, spent: Spent, guarantee: Cost, what: Described) -> None:
        """Add the cost of a mechanism to what is spent, or raise."""
        costs = self._costs(guarantee)
        if not self._has_room(spent, costs):
            asked = costs.nearest()._asdict()
            named = ", ".join(f"{_CALLED[name]} {asked[name]:g}" for name in self._left(spent))
            raise BudgetExceeded(
                f"a cost of {named} exceeds the remaining {self._left_text(spent)}."
            )
        spent.add(self._part, costs, guarantee.unit, column_of(guarantee, what))

    def _has_room(self, spent: Spent, costs: Costs) -> bool:
        # The float 0.1 three times is more than the float 0.3, and is meant to fit
        most = Costs(*(total * (1 + 2.0**-51) for total in self._limits))
        used = spent.used(self._part, costs)
        return used.delta <= most.delta and (used.epsilon <= most.epsilon or used.rho <= most.rho)

    def _left(self, spent: Spent) -> dict[str, float]:
        rest = zip(Costs._fields, self._limits, spent.used(self._part), strict=True)
        return {name: max(most - used, 0.0) for name, most, used in rest if most}

    def _left_text(self, spent: Spent) -> str:
        left, limits = self._left(spent).items(), self._limits._asdict()
        return ", ".join(f"{_CALLED[name]} {rest:g} of {limits[name]:g}" for name, rest in left)


class PrivacyOdometer(Totals):
    """A running bound on the privacy loss of adaptive mechanisms.

    Each may be chosen after seeing all previous answers. With probability ``1 - delta`` over the
    answers, the privacy loss is at most :attr:`epsilon` at all times. If mechanisms have deltas,
    this is the loss of their distributions conditioned on the events that these deltas refer to.

    With ``delta = 0`` :attr:`epsilon` is the sum of epsilons. Otherwise there are filters with
    budgets rho_f = 2^(f-10) and delta_f = 6 delta / (pi^2 (f+1)^2), f = 0, 1, 2, ..., and the
    first one that is not exhausted gives the bound rho_f + 2 sqrt(rho_f log(1/delta_f)), on the
    loss itself and not only on its (epsilon, delta).

    Args:
        delta: in [0, 1).
        neighbors: the neighbor relation of all guarantees.
        mechanism_delta: the part of ``delta`` that is reserved for the mechanisms' own deltas, at
            most ``delta``. Once their sum exceeds it, :attr:`epsilon` is infinite.

    References:
        Rogers, Roth, Ullman and Vadhan (2016), for odometers; Lecuyer (2021), Section 4, for the
        doubled filters; Whitehouse et al. (2023), Theorem 3, for a bound at all times.

    >>> from dpjax.accounting import Guarantee
    >>> odometer = PrivacyOdometer(1e-6, "add_remove")
    >>> for _ in range(10):
    ...     odometer.charge(Guarantee(0.1, 0.1, "add_remove"))
    >>> round(odometer.epsilon, 3)
    1.062
    """

    def charge(self, guarantee: Cost) -> None:
        """Add the cost of a mechanism.

        Raises:
            ValueError: the relation or unit differs, or the guarantee lacks a promise of the kind
                charged.
        """
        with _LOCK:
            self._spent.add("", self._costs(guarantee), guarantee.unit, "")

    @property
    def epsilon(self) -> float:
        """The bound on the privacy loss so far; 0 before the first charge."""
        epsilon, rho, delta = self._spent.used("")
        if delta > self.mechanism_delta:
            return inf
        if not self._share or epsilon == rho == 0:
            return epsilon
        number, budget = 0, 2.0**-10
        while rho > budget:
            number, budget = number + 1, 2 * budget
        nats = -log(6 * self._share / (pi * (number + 1)) ** 2)
        return budget + 2 * sqrt(budget * nats)


def charge(budget: PrivacyFilter | None, guarantee: Cost, what: Mapping[str, Any]) -> None:
    """Charge a budget, if it is not None. Call this after all checks and before any draw.

    Raises:
        BudgetExceeded: the cost exceeds the remaining budget; nothing was charged.
        TypeError: ``budget`` is neither a filter nor a ledger.
    """
    if budget is None:
        return
    checks.instance("budget=", budget, PrivacyFilter, "or a Ledger(path, ...), of dpjax.accounting")
    budget.charge(guarantee, what)


def column_of(guarantee: Cost, what: Described) -> str:
    """Return the column that identifies the persons of a guarantee, as JSON; "" if none does."""
    column = (what or {}).get("unit")
    if guarantee.unit != "person" or column is None:
        return ""
    return json.dumps(column, default=str)
