"""Budgets for pipelines whose next cost may depend on the answers so far: a filter refuses what would pass its budget.

In this fully adaptive setting a sum of costs is itself random, and composition theorems need not hold for it. They do for pure DP
(Rogers et al. 2016), and for the Renyi divergence of one order, and so for zCDP (Feldman and Zrnic 2021), if the sum is stopped at
a budget that was fixed before. Several such rules may run side by side, and any of them admit. Proof, for a delta of delta_0 for
the mechanisms' own deltas and delta_i for each rule i of Renyi divergences:

* A mechanism that is (epsilon_j, delta_j)-DP draws, except with probability delta_j, from two distributions that are epsilon_j-DP
  (Kairouz, Oh and Viswanath 2015, Theorem 3.1). On every transcript the delta_j add up to at most delta_0, which no rule may pass,
  so the probability of any exception is at most delta_0 (Whitehouse et al. 2023). There is none from here on.
* Let A be the transcripts whose epsilons add up to at most epsilon. There the loss is at most epsilon: A adds nothing to the delta.
* Every other transcript ends within the budget of a rule; let B_i be those whose first one is i. Sums only grow, so none of B_i
  ever passed the budget i, and each has the probability that it has in the pipeline that rule i alone stops, whose delta at epsilon
  is at most delta_i. So B_i adds at most delta_i.

The rules need shares of delta, since what is left of them may depend on the answers; A needs none.

Gaussian DP is such a rule: while the squares of mu add up to at most mu_0^2, all is mu_0-GDP, however the mechanisms are chosen
(Smith and Thakurta 2022). It admits more than zCDP. What is charged first is chosen before there is an answer, so that the shares
may depend on it: if it is Gaussian DP, that rule has 7/8 of the delta and zCDP, for what else may follow, 1/8; otherwise zCDP has
all of it.

Concurrent composition. A mechanism may itself be interactive: charge it when it starts, with what it promises to every adversary
that talks to it alone. Questions to all that have started may then be interleaved in any order: pure, (epsilon, delta), Renyi and
Gaussian DP compose concurrently as they do one after the other (Vadhan and Wang 2021; Lyu 2022; Vadhan and Zhang 2023), also with
filters and odometers whose costs depend on the answers (Haney, Shoemate, Tian, Vadhan, Vyrros, Xu and Zhang 2023).
"""

from __future__ import annotations

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
    """A mechanism was refused: running it would pass the budget. Nothing was charged."""


class Lock:
    """A lock whose copy is a new one, which is free."""

    def __init__(self) -> None:
        self._lock = threading.Lock()

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()

    def __reduce__(self) -> tuple[type[Lock], tuple[()]]:
        return Lock, ()


class Unit:
    """The unit, such as a person, of all guarantees charged to a budget or its sessions: once one states it, all others agree."""

    def __init__(self) -> None:
        self.name, self._lock = "", Lock()

    def agree(self, unit: str) -> None:
        """Take the unit of a guarantee, or raise where it is another one."""
        with self._lock:
            self.name = one_unit((self.name, unit))


class Sums:
    """The costs of mechanisms: epsilon, delta, and rho, or the Renyi divergence of each order over it; and their exact sums.

    Attributes:
        orders: finite and above 1.
        share: the delta that the mechanisms' own deltas leave for the rules of Renyi divergences.
        lock: it is held from the look at the sums to the addition that it allows.
        unit: that of the guarantees so far, which a session shares with the budget that it is of.
    """

    def __init__(self, name: str, delta: float, neighbors: str, mechanism_delta: float, orders: tuple[float, ...]) -> None:
        checks.one_of("neighbors", neighbors, checks.RELATIONS)
        # As Python's floats: NumPy and JAX would compare with a float32 in float32.
        delta, mechanism_delta = (
            checks.concrete_fraction("delta", delta),
            checks.concrete_fraction("mechanism_delta", mechanism_delta),
        )
        if mechanism_delta > delta:
            raise ValueError(f"mechanism_delta must be at most delta, got {mechanism_delta} and {delta}.")
        self.orders = tuple(float(order) for order in orders)
        if not all(1 < order < inf for order in self.orders):
            raise ValueError(f"orders must be finite and above 1, got {orders}.")
        self.share = (delta - mechanism_delta) * (1 - 2.0**-52 if mechanism_delta else 1)
        self.delta, self.mechanism_delta, self._name, self._neighbors = delta, mechanism_delta, name, neighbors
        self._exact: list[Any] = [Fraction(0)] * (3 + max(len(self.orders), 1))
        self.lock, self.unit = Lock(), Unit()
        self._began: bool | None = None  # whether the first mechanism promises Gaussian DP, once there is one

    def costs(self, spent: Guarantee | Composition, most: float = inf) -> list[Any]:
        """Return what is charged for a mechanism, exactly; infinite where it promises nothing.

        Raises:
            TypeError: neither of the two; a metric guarantee has the method ``guarantee``.
            ValueError: another relation or unit, or no cost below ``most`` of the kind that is charged.
        """
        if not isinstance(spent, Guarantee | Composition):
            raise TypeError(f"this {self._name} charges a Guarantee or a Composition, got {type(spent).__name__}.")
        if spent.neighbors != self._neighbors:
            raise ValueError(f"this {self._name} is under {self._neighbors} neighbors, the guarantee under {spent.neighbors}.")
        one_unit((self.unit.name, spent.unit))
        whole = 1 * spent
        epsilon = exact_total((min(part.epsilon, part.bounded_range), count) for part, count in whole.parts)
        delta = exact_total((part.delta, count) for part, count in whole.parts)
        with np.errstate(over="ignore"):
            rhos: list[Any] = (whole.rdp(self.orders) / np.array(self.orders)).tolist()
        if not self.orders:
            rhos = [exact_total((part.rho, count) for part, count in whole.parts)]
        if delta and not self.mechanism_delta:
            raise ValueError(
                f"this {self._name} has no part for the deltas of mechanisms, and without its delta the guarantee does not promise "
                f"anything: {spent}; set mechanism_delta."
            )
        kind = ("Renyi DP at its orders" if self.orders else "zCDP") if self.share else "pure DP"
        if not min(rhos if self.share else [epsilon]) < most:
            raise ValueError(f"this {self._name} charges {kind}, which the guarantee does not promise: {spent}.")
        gaussian = Fraction(0) if whole.gdp < inf else inf
        if whole.gdp < inf:
            gaussian = sum((Fraction(part.gdp) ** 2 / 2 * count for part, count in whole.parts), gaussian)
        return [epsilon, delta, gaussian, *rhos]

    def add(self, costs: list[Any], unit: str) -> None:
        """Add the costs of one mechanism, which is charged for this unit."""
        self.unit.agree(unit)
        self._began = self.gaussian(costs)
        self._exact = self._with(costs)

    def gaussian(self, costs: list[Any] | None = None) -> bool:
        """Return whether the first mechanism promises Gaussian DP, where costs that are not added yet may be of it."""
        return bool(costs and costs[2] < inf) if self._began is None else self._began

    def totals(self, costs: list[Any] | None = None) -> tuple[float, float, list[float]]:
        """Return the sums of epsilon, of delta and of the rest, as nearest floats, after costs that are not added yet."""
        epsilon, delta, _, *rhos = (checks.nearest_float(total) for total in (self._with(costs) if costs else self._exact))
        return epsilon, delta, rhos

    def gaussian_rho(self, costs: list[Any] | None = None) -> float:
        """Return half of the sum of squares of mu, infinite if one mechanism does not promise any, after such costs."""
        return checks.nearest_float((self._with(costs) if costs else self._exact)[2])

    def _with(self, costs: list[Any]) -> list[Any]:
        return [total + (cost if cost == inf else Fraction(cost)) for total, cost in zip(self._exact, costs, strict=True)]


class PrivacyFilter:
    """A budget that mechanisms are charged to, in any order, each chosen after seeing all answers before.

    With ``delta = 0`` epsilons are summed, and the whole is epsilon-DP. With ``delta`` above 0 the budget is the zCDP that
    implies (epsilon, delta)-DP, and each mechanism is charged the smallest rho that its guarantee implies; what keeps the sum of
    epsilons within epsilon is admitted, too. A bounded range counts as an epsilon, and by its own Renyi divergences. Where the
    first mechanism promises Gaussian DP, so is what keeps all together within the mu that implies (epsilon, 7/8 delta)-DP.

    Threads may share it: a charge looks and adds at once. ``copy.copy`` returns the same budget under another name; a deep or a
    pickled copy has what was spent so far, and is a budget of its own from then on. For several processes there is
    :class:`dpjax.accounting.Ledger`.

    Args:
        epsilon: of the whole, positive.
        delta: of the whole, in [0, 1).
        neighbors: the relation.
        mechanism_delta: at most ``delta``: the part of it that the mechanisms' own deltas may add up to.
        orders: public, above 1. Without any, zCDP is charged; otherwise the Renyi divergence of each order, against a budget of
            its own with an even share of delta: for mechanisms that promise a curve, as on subsamples. One of them must hold.

    References:
        Rogers, Roth, Ullman and Vadhan (2016), Theorem 3.1; Feldman and Zrnic (2021), Theorem 4.3; Whitehouse, Ramdas, Rogers and
        Wu (2023), Theorem 1; the top of this file, for rules side by side and for interactive mechanisms.

    >>> budget = PrivacyFilter(1.0, 0.0, "swap")
    >>> for _ in range(3):
    ...     budget.charge(Guarantee(0.3, 0.3, "swap"))
    >>> budget.allows(Guarantee(0.2, 0.2, "swap"))
    False
    >>> budget = PrivacyFilter(1.0, 1e-6, "swap", mechanism_delta=5e-7)
    >>> budget.charge(Guarantee(0.3, 0.6, "swap", delta=1e-7))
    """

    # No dataclass: dataclasses.replace would make a budget that has forgotten what was spent.
    def __init__(
        self, epsilon: float, delta: float, neighbors: str, mechanism_delta: float = 0.0, orders: tuple[float, ...] = ()
    ) -> None:
        self._sums = Sums("budget", delta, neighbors, mechanism_delta, orders)
        self.epsilon, self.neighbors = checks.concrete_epsilon(epsilon), neighbors
        self.delta, self.mechanism_delta, epsilon = self._sums.delta, self._sums.mechanism_delta, self.epsilon
        self.orders, share = self._sums.orders, self._sums.share
        if share == 0:
            self._budgets = []
        elif not self.orders:
            self._budgets = [_zcdp_budget(epsilon, share)]
        else:
            self._budgets = [_order_budget(epsilon, share / len(self.orders), order) for order in self.orders]

    def __repr__(self) -> str:
        orders = f", orders={self.orders}" if self.orders else ""
        total = f"epsilon={self.epsilon}, delta={self.delta}, neighbors={self.neighbors!r}"
        return f"PrivacyFilter({total}, mechanism_delta={self.mechanism_delta}{orders})"

    @property
    def budget(self) -> float:
        """Return what may be charged: epsilon, or the rho of zCDP; with orders, divergence over order where the most is left."""
        return self._best()[1]

    @property
    def spent(self) -> float:
        """Return what was charged so far; above a budget of zCDP where the epsilons alone were within theirs."""
        return self._best()[2]

    @property
    def remaining(self) -> float:
        """The remaining budget, as ``epsilon`` or as rho."""
        return max(self._best()[0], 0.0)

    @property
    def unit(self) -> str:
        """The unit of the guarantees so far, those of sessions too, or ``""`` where none states one."""
        return self._sums.unit.name

    def allows(self, guarantee: Guarantee | Composition) -> bool:
        """Return whether there is room for it. The answer depends on costs, not on data."""
        return self._has_room(self._sums.costs(guarantee))

    def charge(self, guarantee: Guarantee | Composition, what: Mapping[str, Any] | None = None) -> None:
        """Charge a mechanism, before it runs; an interactive one, before its first answer.

        Args:
            guarantee: what it costs.
            what: not kept: a filter is called as a :class:`dpjax.accounting.Ledger` is, which writes it down.

        Raises:
            BudgetExceeded: there is no room for it; nothing was charged.
            ValueError: as :meth:`allows`: another relation or unit, or a promise that this budget cannot charge.
        """
        with self._sums.lock:
            costs = self._sums.costs(guarantee)
            if not self._has_room(costs):
                cost, delta = float(min(costs[3:]) if self._budgets else costs[0]), float(costs[1])
                raise BudgetExceeded(
                    f"a cost of {cost:g}{f' and a delta of {delta:g}' if delta else ''} passes the remaining budget, "
                    f"{self.remaining:g} of {self.budget:g}."
                )
            self._sums.add(costs, guarantee.unit)

    def session(
        self, epsilon: float, delta: float = 0.0, mechanism_delta: float = 0.0, orders: tuple[float, ...] = ()
    ) -> PrivacyFilter:
        """Return a budget of its own, for an analyst or a part of the work, that this one is charged for now.

        What the session does is one interactive mechanism to this budget, whose other mechanisms may run in between. It is charged
        in full, whether it is used or not.

        Args:
            epsilon: of the session, positive.
            delta: of the session; it counts as a mechanism's own delta here.
            mechanism_delta: of the session, as for a :class:`PrivacyFilter`.
            orders: of the session, in the same way.

        Raises:
            BudgetExceeded: there is no room for it; nothing was charged.

        References:
            Haney et al. (2023), "Concurrent Composition for Interactive Differential Privacy with Adaptive Privacy-Loss
            Parameters"; Vadhan and Wang (2021).

        >>> whole = PrivacyFilter(1.0, 0.0, "swap")
        >>> part = whole.session(0.75)
        >>> part.charge(Guarantee(0.5, 0.5, "swap"))
        >>> whole.remaining, part.remaining
        (0.25, 0.25)
        """
        opened = PrivacyFilter(epsilon, delta, self.neighbors, mechanism_delta, orders)
        opened._sums.unit = self._sums.unit  # the same: what is charged here and there is for one unit
        self.charge(Guarantee(opened.epsilon, inf, self.neighbors, delta=opened.delta, unit=self.unit))
        return opened

    def _has_room(self, costs: list[Any]) -> bool:
        epsilon, delta, rhos = self._sums.totals(costs)
        within = any(spent <= budget for budget, spent in self._rules(costs, rhos))
        return delta <= self.mechanism_delta and (epsilon <= self.epsilon or within)

    def _rules(self, costs: list[Any] | None, rhos: list[float]) -> list[tuple[float, float]]:
        """Return the budget of each rule with a share of delta and what it comes to, after costs that are not added yet."""
        if not self.orders and self._budgets and self._sums.gaussian(costs):
            gaussian, beside = self._gaussian_budgets
            return [(beside, rhos[0]), (gaussian, self._sums.gaussian_rho(costs))]
        return list(zip(self._budgets, rhos, strict=False))

    @cached_property
    def _gaussian_budgets(self) -> tuple[float, float]:
        """Half of the square of mu at 7/8 of delta, and the zCDP of the rest of it."""
        share = self._sums.share
        return gdp_of(self.epsilon, delta=share * 7 / 8) ** 2 / 2 * (1 - 2.0**-50), _zcdp_budget(self.epsilon, share / 8)

    def _best(self) -> tuple[float, float, float]:
        """What is left, the budget and what was spent, of the rule with the most left."""
        epsilon, _, rhos = self._sums.totals()
        return max((budget - used, budget, used) for budget, used in self._rules(None, rhos) or [(self.epsilon, epsilon)])


def _zcdp_budget(epsilon: float, delta: float) -> float:
    """The zCDP that implies (epsilon, delta)-DP, at the best order, from below."""
    return -formulas.smallest_on_host(formulas.minus_rho_at_order, np.zeros_like, epsilon, -log(delta))


def _order_budget(epsilon: float, delta: float, order: float) -> float:
    """The Renyi divergence of that order that implies (epsilon, delta)-DP, over the order, from below."""
    conversion = float(formulas.epsilon_at_order(0.0, order, log(order - 1), -log(delta), np))
    budget = (epsilon - conversion - 1e-12 * (epsilon + abs(conversion))) / order
    if budget <= 0:
        raise ValueError(f"nothing fits at order {order:g}: with its share of delta it promises no epsilon below {conversion:g}.")
    return budget
