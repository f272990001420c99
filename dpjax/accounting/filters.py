"""Privacy filters: budgets for mechanisms whose costs may depend on the answers so far.

In this fully adaptive setting the sum of costs is itself random, and composition theorems need not
hold for it. They do for pure DP (Rogers et al. 2016), for the Renyi divergence of one order, and so
for zCDP (Feldman and Zrnic 2021), if mechanisms are refused beyond a budget that was fixed in
advance. Several such rules may be used at once, where a mechanism is admitted if any rule admits
it. Proof, with delta = delta_0 (for the mechanisms' own deltas) + the sum of delta_i over the rules
i of Renyi divergences:

* An (epsilon_j, delta_j)-DP mechanism draws, except with probability delta_j, from two
  distributions that are epsilon_j-DP (Kairouz, Oh and Viswanath 2015, Theorem 3.1). The filter
  keeps the sum of the delta_j on every transcript within delta_0, so the probability of any such
  exception is at most delta_0 (Whitehouse et al. 2023). Below, there is none.
* Let A be the transcripts whose epsilons add up to at most epsilon. On these the loss is at most
  epsilon: A adds nothing to delta.
* Every other transcript ends within the budget of some rule; let B_i be those for which the first
  such rule is i. Sums only grow, so transcripts in B_i never exceeded the budget of rule i, and
  have the same probability as if rule i alone were used, whose delta at epsilon is at most delta_i.
  So B_i adds at most delta_i.

The rules of Renyi divergences need shares of delta that add up, since it may depend on the answers
which of them applies in the end; A needs none.

Gaussian DP is such a rule, too: while the sum of the squares of mu is at most mu_0^2, all
mechanisms together are mu_0-GDP, even if chosen adaptively (Smith and Thakurta 2022). It admits
more than zCDP. The first mechanism is chosen before there is any answer, so the shares may depend
on it: if it has Gaussian DP, that rule gets 7/8 of delta, and zCDP, for other mechanisms that may
follow, gets 1/8; otherwise zCDP gets all of it.

Concurrent composition. A mechanism may itself be interactive: charge it when it starts, with its
guarantee against an adversary that interacts with it alone. Queries to all mechanisms that have
started may then be interleaved in any order: pure, (epsilon, delta), Renyi and Gaussian DP compose
concurrently as they do sequentially (Vadhan and Wang 2021; Lyu 2022; Vadhan and Zhang 2023), also
with filters and odometers whose costs depend on the answers (Haney, Shoemate, Tian, Vadhan, Vyrros,
Xu and Zhang 2023).
"""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from fractions import Fraction
from functools import cached_property
from math import inf, log
from typing import Any

import numpy as np

from dpjax import checks
from dpjax.accounting import formulas
from dpjax.accounting._gaussian_dp import gdp_of
from dpjax.accounting.composition import Composition
from dpjax.accounting.guarantee import Guarantee, exact_total, one_unit


class BudgetExceeded(RuntimeError):
    """Raised when a mechanism would exceed a budget.

    The mechanism was refused and nothing was charged.

    Example:
        >>> try:
        ...     PrivacyFilter(1.0, 0.0, "swap").charge(Guarantee(2.0, 2.0, "swap"))
        ... except BudgetExceeded as error:
        ...     print(error)
        a cost of epsilon 2 exceeds the remaining epsilon 1 of 1.
    """


class Lock:
    """A mutual-exclusion lock that can be copied and pickled: the copy is a new lock, not held."""

    def __init__(self) -> None:
        self._lock = threading.Lock()

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()

    def __reduce__(self) -> tuple[type[Lock], tuple[()]]:
        return Lock, ()


class Unit:
    """The unit, such as a person, of all guarantees charged to a budget and its sessions.

    Attributes:
        name: their unit, or ``""`` if none states one.
        columns: the columns that identify the persons, as JSON. There is more than one only in the
            file of a ledger of an earlier version.
    """

    def __init__(self) -> None:
        self.name, self.columns, self._lock = "", frozenset[str](), Lock()

    def agree(self, unit: str, columns: frozenset[str], charged: bool = True) -> None:
        """Record the unit of a guarantee, and the columns that identify its persons.

        Raise ``ValueError`` if one differs from what is recorded; the columns only if ``charged``.
        """
        with self._lock:
            name = one_unit((self.name, unit))
            if charged:
                self.refuse_others(columns)
            self.name, self.columns = name, self.columns | columns

    def refuse_others(self, columns: frozenset[str]) -> None:
        """Raise ``ValueError`` if other columns than these are recorded, unless there are none."""
        if columns and self.columns - columns:
            raise ValueError(
                "this budget has guarantees for the persons of column "
                f"{' and '.join(sorted(self.columns))}, and this one is for those of column "
                f"{' and '.join(columns)}: together they hold for neither, as several persons of "
                "one column may belong to one of the other. Use a budget or a ledger of its own "
                "for each kind of person; if the persons are the same, rename the column."
            )


class Sums:
    """The exact sums of the costs charged so far.

    They are epsilon, delta, mu^2/2, and rho of zCDP or Renyi divergences.

    Attributes:
        orders: of the Renyi divergences, finite and above 1; divergences are summed over their
            order.
        share: the part of delta that is left for Renyi divergences after the mechanisms' own
            deltas.
        lock: held while a cost is compared with the budget and added.
        unit: what the guarantees so far protect; a session shares it with its parent budget.
    """

    def __init__(
        self,
        name: str,
        delta: float,
        neighbors: str,
        mechanism_delta: float,
        orders: tuple[float, ...],
    ) -> None:
        checks.one_of("neighbors", neighbors, checks.RELATIONS)
        # As Python floats, since NumPy and JAX would compare with a float32 in float32.
        delta, mechanism_delta = (
            checks.concrete_fraction("delta", delta),
            checks.concrete_fraction("mechanism_delta", mechanism_delta),
        )
        if mechanism_delta > delta:
            raise ValueError(
                f"mechanism_delta must be at most delta, got mechanism_delta={mechanism_delta} and "
                f"delta={delta}."
            )
        self.orders = tuple(float(order) for order in orders)
        if not all(1 < order < inf for order in self.orders):
            raise ValueError(f"orders must be finite and above 1, got {orders}.")
        self.share = (delta - mechanism_delta) * (1 - 2.0**-52 if mechanism_delta else 1)
        self.delta, self.mechanism_delta, self._name, self._neighbors = (
            delta,
            mechanism_delta,
            name,
            neighbors,
        )
        self._exact: list[Any] = [Fraction(0)] * (3 + max(len(self.orders), 1))
        self.lock, self.unit = Lock(), Unit()
        # True if the first mechanism promises Gaussian DP; None before there is one.
        self._began: bool | None = None

    def costs(self, spent: Guarantee | Composition, most: float = inf) -> list[Any]:
        """Return the exact costs of a mechanism; infinite where it promises nothing.

        Raises:
            TypeError: ``spent`` is neither a guarantee nor a composition. (A metric guarantee can
                be converted by its method ``guarantee``.)
            ValueError: the relation or unit differs, or no cost of the kind that is charged is
                below ``most``.
        """
        if not isinstance(spent, Guarantee | Composition):
            raise TypeError(
                f"this {self._name} charges a Guarantee or a Composition, got "
                f"{type(spent).__name__}."
            )
        if spent.neighbors != self._neighbors:
            raise ValueError(
                f"this {self._name} is under {self._neighbors} neighbors, the guarantee under "
                f"{spent.neighbors}."
            )
        one_unit((self.unit.name, spent.unit))
        composition = 1 * spent
        epsilon = exact_total(
            (min(part.epsilon, part.bounded_range), count) for part, count in composition.parts
        )
        delta = exact_total((part.delta, count) for part, count in composition.parts)
        with np.errstate(over="ignore"):
            rhos: list[Any] = (composition.rdp(self.orders) / np.array(self.orders)).tolist()
        if not self.orders:
            rhos = [exact_total((part.rho, count) for part, count in composition.parts)]
        if delta and not self.mechanism_delta:
            raise ValueError(
                f"this {self._name} reserves no delta for the mechanisms' own deltas, but the "
                f"guarantee has one: {spent}; set mechanism_delta when it is made."
            )
        kind = ("Renyi DP at its orders" if self.orders else "zCDP") if self.share else "pure DP"
        if not min(rhos if self.share else [epsilon]) < most:
            raise ValueError(
                f"this {self._name} charges {kind}, which the guarantee does not promise: {spent}."
            )
        gaussian = Fraction(0) if composition.gdp < inf else inf
        if composition.gdp < inf:
            gaussian = sum(
                (Fraction(part.gdp) ** 2 / 2 * count for part, count in composition.parts), gaussian
            )
        return [epsilon, delta, gaussian, *rhos]

    def add(
        self,
        costs: list[Any],
        unit: str,
        columns: frozenset[str] = frozenset(),
        charged: bool = True,
    ) -> None:
        """Add the costs of one mechanism; see :meth:`Unit.agree`."""
        self.unit.agree(unit, columns, charged)
        self._began = self.gaussian(costs)
        self._exact = self._with(costs)

    def gaussian(self, costs: list[Any] | None = None) -> bool:
        """Return whether the first mechanism charged has Gaussian DP.

        It is the one with ``costs`` if none was charged before.
        """
        return bool(costs and costs[2] < inf) if self._began is None else self._began

    def totals(self, costs: list[Any] | None = None) -> tuple[float, float, list[float]]:
        """Return the sums of epsilon, of delta and of rho or divergences, with ``costs`` added.

        They are rounded to the nearest floats.
        """
        epsilon, delta, _, *rhos = (
            checks.nearest_float(total) for total in (self._with(costs) if costs else self._exact)
        )
        return epsilon, delta, rhos

    def gaussian_rho(self, costs: list[Any] | None = None) -> float:
        """Return half the sum of squares of mu, with ``costs`` added.

        Infinite if a mechanism has no mu.
        """
        return checks.nearest_float((self._with(costs) if costs else self._exact)[2])

    def _with(self, costs: list[Any]) -> list[Any]:
        return [
            total + (cost if cost == inf else Fraction(cost))
            for total, cost in zip(self._exact, costs, strict=True)
        ]


class PrivacyFilter:
    """An (epsilon, delta) budget for adaptive mechanisms.

    Each may be chosen after seeing all previous answers. With ``delta = 0`` epsilons are summed,
    and all mechanisms together are epsilon-DP. With ``delta`` above 0 the budget is the zCDP that
    implies (epsilon, delta)-DP, and each mechanism is charged the smallest rho that its guarantee
    implies; a mechanism is also admitted if the sum of the epsilons stays within epsilon. If the
    first mechanism has Gaussian DP, a mechanism is also admitted if all together stay within the mu
    that implies (epsilon, 7/8 delta)-DP. A bounded range counts as an epsilon, and is converted to
    zCDP or Renyi DP by its own, smaller divergences.

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
        orders: public orders of Renyi divergences, above 1. If empty, zCDP is charged. Otherwise
            the Renyi divergence of each order has a separate budget with an equal share of delta,
            and a mechanism is admitted if one of them suffices; use this for guarantees with a
            Renyi curve, as on subsamples.

    References:
        Rogers, Roth, Ullman and Vadhan (2016), Theorem 3.1; Feldman and Zrnic (2021), Theorem 4.3;
        Whitehouse, Ramdas, Rogers and Wu (2023), Theorem 1; the module docstring, for the use of
        several rules and for interactive mechanisms.

    >>> budget = PrivacyFilter(1.0, 0.0, "swap")
    >>> for _ in range(3):
    ...     budget.charge(Guarantee(0.3, 0.3, "swap"))
    >>> budget.allows(Guarantee(0.2, 0.2, "swap"))
    False
    >>> budget = PrivacyFilter(1.0, 1e-6, "swap", mechanism_delta=5e-7)
    >>> budget.charge(Guarantee(0.3, 0.6, "swap", delta=1e-7))
    """

    # Not a dataclass, as dataclasses.replace would return a budget without the costs charged so
    # far.
    def __init__(
        self,
        epsilon: float,
        delta: float,
        neighbors: str,
        mechanism_delta: float = 0.0,
        orders: tuple[float, ...] = (),
    ) -> None:
        self._sums = Sums("budget", delta, neighbors, mechanism_delta, orders)
        self.epsilon, self.neighbors = checks.concrete_epsilon(epsilon), neighbors
        self.delta, self.mechanism_delta, epsilon = (
            self._sums.delta,
            self._sums.mechanism_delta,
            self.epsilon,
        )
        self.orders, share = self._sums.orders, self._sums.share
        if share == 0:
            self._budgets = []
        elif not self.orders:
            self._budgets = [_zcdp_budget(epsilon, share)]
        else:
            self._budgets = [
                _order_budget(epsilon, share / len(self.orders), order) for order in self.orders
            ]

    def __repr__(self) -> str:
        orders = f", orders={self.orders}" if self.orders else ""
        total = f"epsilon={self.epsilon}, delta={self.delta}, neighbors={self.neighbors!r}"
        return f"PrivacyFilter({total}, mechanism_delta={self.mechanism_delta}{orders})"

    @property
    def budget(self) -> float:
        """The total budget: epsilon, or rho of zCDP.

        With orders, divergence over order, of the order with most left.
        """
        return self._best()[1]

    @property
    def spent(self) -> float:
        """The cost charged so far, in the unit of :attr:`budget`.

        It exceeds a budget of zCDP where mechanisms were admitted by the sum of their epsilons.
        """
        return self._best()[2]

    @property
    def remaining(self) -> float:
        """The remaining budget, in the unit of :attr:`budget`; at least 0."""
        return max(self._best()[0], 0.0)

    @property
    def unit(self) -> str:
        """The unit of the guarantees charged so far, or ``""`` if none states one.

        Sessions are included.
        """
        return self._sums.unit.name

    def allows(
        self, guarantee: Guarantee | Composition, what: Mapping[str, Any] | None = None
    ) -> bool:
        """Return whether a guarantee fits into the remaining budget; see :meth:`charge`.

        The answer depends on costs, not on data.
        """
        self._sums.unit.refuse_others(columns_of(guarantee, what))
        return self._has_room(self._sums.costs(guarantee))

    def charge(
        self, guarantee: Guarantee | Composition, what: Mapping[str, Any] | None = None
    ) -> None:
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
        columns = columns_of(guarantee, what)
        with self._sums.lock:
            self._sums.unit.refuse_others(columns)
            costs = self._sums.costs(guarantee)
            if not self._has_room(costs):
                raise BudgetExceeded(
                    f"a cost of {self._cost_text(costs)} exceeds the "
                    f"{remaining_text(self)}{self._delta_text(costs)}."
                )
            self._sums.add(costs, guarantee.unit, columns)

    def session(
        self,
        epsilon: float,
        delta: float = 0.0,
        mechanism_delta: float = 0.0,
        orders: tuple[float, ...] = (),
    ) -> PrivacyFilter:
        """Return a new budget, for example for one analyst, whose total is charged to this one now.

        To this budget, the session is one interactive mechanism: other
        mechanisms may run in between. It is charged in full, whether it is used or not.

        Args:
            epsilon: of the session, positive.
            delta: of the session; this budget charges it as a mechanism's own delta.
            mechanism_delta: of the session, as for a :class:`PrivacyFilter`.
            orders: of the session, as for a :class:`PrivacyFilter`.

        Raises:
            BudgetExceeded: the session exceeds the remaining budget; nothing was charged.

        References:
            Haney et al. (2023), "Concurrent Composition for Interactive Differential Privacy with
            Adaptive Privacy-Loss Parameters"; Vadhan and Wang (2021).

        >>> whole = PrivacyFilter(1.0, 0.0, "swap")
        >>> part = whole.session(0.75)
        >>> part.charge(Guarantee(0.5, 0.5, "swap"))
        >>> whole.remaining, part.remaining
        (0.25, 0.25)
        """
        opened = PrivacyFilter(epsilon, delta, self.neighbors, mechanism_delta, orders)
        opened._sums.unit = self._sums.unit  # shared, so that all guarantees are for one unit
        self.charge(
            Guarantee(opened.epsilon, inf, self.neighbors, delta=opened.delta, unit=self.unit)
        )
        return opened

    def _cost_text(self, costs: list[Any]) -> str:
        kinds = ("epsilon", costs[0]), ("divergence" if self.orders else "rho", min(costs[3:]))
        parts = [
            f"{kind} {float(cost):g}"
            for kind, cost in (kinds if self._budgets else kinds[:1])
            if cost < inf
        ]
        return " or ".join(parts) + (f" and delta {float(costs[1]):g}" if costs[1] else "")

    def _delta_text(self, costs: list[Any]) -> str:
        left = self.mechanism_delta - self._sums.totals()[1]
        return (
            f", and delta {left:g} of {self.mechanism_delta:g} for mechanisms"
            if costs[1] > left
            else ""
        )

    def _has_room(self, costs: list[Any]) -> bool:
        epsilon, delta, rhos = self._sums.totals(costs)
        within = any(spent <= budget for budget, spent in self._rules(costs, rhos))
        return delta <= self.mechanism_delta and (epsilon <= self.epsilon or within)

    def _rules(self, costs: list[Any] | None, rhos: list[float]) -> list[tuple[float, float]]:
        """Return pairs of the budget and the cost of each rule that has a share of delta.

        ``costs`` are added.
        """
        if not self.orders and self._budgets and self._sums.gaussian(costs):
            gaussian, zcdp_budget = self._gaussian_budgets
            return [(zcdp_budget, rhos[0]), (gaussian, self._sums.gaussian_rho(costs))]
        return list(zip(self._budgets, rhos, strict=False))

    @cached_property
    def _gaussian_budgets(self) -> tuple[float, float]:
        """Half the square of mu at 7/8 of delta, and the rho of zCDP at the rest of it."""
        share = self._sums.share
        return gdp_of(self.epsilon, delta=share * 7 / 8) ** 2 / 2 * (1 - 2.0**-50), _zcdp_budget(
            self.epsilon, share / 8
        )

    def _best(self) -> tuple[float, float, float]:
        """Return the remaining budget, the budget and the cost of the rule with most left."""
        epsilon, _, rhos = self._sums.totals()
        return max(
            (budget - used, budget, used)
            for budget, used in self._rules(None, rhos) or [(self.epsilon, epsilon)]
        )


def remaining_text(budget: PrivacyFilter) -> str:
    """Return a text of the remaining budget, by each of its rules."""
    if not budget._budgets:
        return f"remaining epsilon {budget.remaining:g} of {budget.budget:g}"
    left = max(budget.epsilon - budget._sums.totals()[0], 0.0)
    other = f"{'divergence' if budget.orders else 'rho'} {budget.remaining:g} of {budget.budget:g}"
    return f"remaining epsilon {left:g} of {budget.epsilon:g} by their sum, or {other}"


def columns_of(guarantee: Any, what: Mapping[str, Any] | None) -> frozenset[str]:
    """Return the column that identifies the persons of a guarantee, as JSON.

    Empty if none is stated.
    """
    column = what.get("unit") if isinstance(what, Mapping) else None
    if getattr(guarantee, "unit", "") != "person" or column is None:
        return frozenset()
    return frozenset([json.dumps(column, default=str)])


def _zcdp_budget(epsilon: float, delta: float) -> float:
    """Return the rho of zCDP that implies (epsilon, delta)-DP, at the best order, rounded down."""
    found = -formulas.smallest_on_host(
        formulas.minus_rho_at_order, np.zeros_like, epsilon, -log(delta)
    )
    # Its epsilon is a difference of numbers that may be much larger
    return found * (1 - 2.0**-40)


def _order_budget(epsilon: float, delta: float, order: float) -> float:
    """Return the Renyi divergence that implies (epsilon, delta)-DP, over its order.

    It is rounded down.
    """
    conversion = float(formulas.epsilon_at_order(0.0, order, log(order - 1), -log(delta), np))
    budget = (epsilon - conversion - 1e-12 * (epsilon + abs(conversion))) / order
    if budget <= 0:
        raise ValueError(
            f"orders has {order:g}, at which nothing fits: with its share of delta epsilon cannot "
            f"be below {conversion:g}."
        )
    return budget
