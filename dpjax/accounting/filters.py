"""Budgets for pipelines whose next cost may depend on the answers so far: a filter, which refuses, and an odometer, which reports.

In this fully adaptive setting a sum of costs is itself random, and composition theorems need not hold for it. They do for pure DP
(Rogers et al. 2016), and for Renyi DP of every order and so for zCDP (Feldman and Zrnic 2021), if the sum is stopped at a budget
that was fixed before.

Both filters may run side by side, and either of them admit. Let A be the transcripts whose epsilons sum to at most epsilon, and B
the others, whose zCDP sums to at most the budget. On A the loss is at most epsilon, so A adds nothing to the delta at epsilon. No
transcript of B ever passed the budget of zCDP, so it has the same probability in the pipeline that the filter of zCDP stops, where
B adds at most delta.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import fsum, inf, log, pi, sqrt
from typing import Any

import numpy as np

from dpjax import checks
from dpjax.accounting import formulas
from dpjax.accounting.composition import Composition
from dpjax.accounting.guarantee import Guarantee


class BudgetExceeded(RuntimeError):
    """A mechanism was refused: running it would pass the budget. Nothing was charged."""


@dataclass
class PrivacyFilter:
    """A budget that mechanisms are charged to, in any order, each chosen after seeing all answers before.

    With ``delta = 0`` epsilons are summed, and the whole is epsilon-DP. With ``delta`` above 0 the budget is the zCDP that
    implies (epsilon, delta)-DP, and each mechanism is charged the smallest rho that its guarantee implies; what keeps the sum of
    epsilons within epsilon is admitted, too.

    Attributes:
        epsilon: of the whole, positive.
        delta: of the whole, in [0, 1).
        neighbors: the relation.

    References:
        Rogers, Roth, Ullman and Vadhan (2016), Theorem 3.1; Feldman and Zrnic (2021), Theorem 4.3; Whitehouse et al. (2023).

    >>> budget = PrivacyFilter(1.0, 0.0, "swap")
    >>> for _ in range(3):
    ...     budget.charge(Guarantee(0.3, 0.3, "swap"))
    >>> budget.allows(Guarantee(0.2, 0.2, "swap"))
    False
    """

    epsilon: float
    delta: float
    neighbors: str
    _epsilons: list[float] = field(default_factory=list, init=False, repr=False)
    _rhos: list[float] = field(default_factory=list, init=False, repr=False)

    def __post_init__(self) -> None:
        checks.concrete_epsilon(self.epsilon)
        checks.concrete_fraction("delta", self.delta)
        checks.one_of("neighbors", self.neighbors, checks.RELATIONS)

    @property
    def budget(self) -> float:
        """What may be charged: epsilon, or the rho of zCDP."""
        return self.epsilon if self.delta == 0 else _rho_of(self.epsilon, self.delta)

    @property
    def spent(self) -> float:
        """What was charged so far; above a budget of zCDP where the epsilons alone were within theirs."""
        return fsum(self._epsilons if self.delta == 0 else self._rhos)

    @property
    def remaining(self) -> float:
        """The remaining budget, as ``epsilon`` or as rho."""
        return max(self.budget - self.spent, 0.0)

    def allows(self, guarantee: Guarantee | Composition) -> bool:
        """Whether there is room for it. The answer depends on costs, not on data.

        Raises:
            ValueError: another relation, or a promise that this budget cannot charge.
        """
        epsilon, rho = self._costs(guarantee)
        within_pure = _total(self._epsilons, epsilon) <= self.epsilon
        return within_pure or (self.delta > 0 and _total(self._rhos, rho) <= self.budget)

    def charge(self, guarantee: Guarantee | Composition) -> None:
        """Charge a mechanism, before it runs.

        Raises:
            BudgetExceeded: there is no room for it; nothing was charged.
            ValueError: as :meth:`allows`.
        """
        epsilon, rho = self._costs(guarantee)
        if not self.allows(guarantee):
            cost = rho if self.delta else epsilon
            raise BudgetExceeded(f"a cost of {cost:g} passes the remaining budget, {self.remaining:g} of {self.budget:g}.")
        self._epsilons.append(epsilon)
        self._rhos.append(rho)

    def _costs(self, guarantee: Guarantee | Composition) -> tuple[float, float]:
        """Its epsilon and its rho, each infinite if it is not promised outright."""
        _check_relation("budget", self.neighbors, guarantee)
        epsilon, rho = _pure_epsilon(guarantee), _rho(guarantee)
        if (rho if self.delta else epsilon) == inf:
            kind = "zCDP" if self.delta else "pure DP"
            raise ValueError(f"this budget charges {kind}, which the guarantee does not promise: {guarantee}.")
        return epsilon, rho


@dataclass
class PrivacyOdometer:
    """What was spent so far, at any time, while mechanisms are chosen by the answers before.

    At all times together, with probability ``1 - delta`` over the answers, the privacy loss is at most :attr:`epsilon`. It runs
    filters at budgets rho_0 2^f with delta_f = 6 delta / (pi^2 (f+1)^2), f = 0, 1, 2, ..., and reports the first that is not
    used up: rho_f + 2 sqrt(rho_f log(1/delta_f)), which bounds the loss itself and not only its (epsilon, delta).

    Attributes:
        delta: in (0, 1).
        neighbors: the relation.
        first: rho_0, the smallest zCDP that is told apart; public.

    References:
        Lecuyer (2021), Section 4, for the doubled filters; Whitehouse et al. (2023), Theorem 3, for a bound at all times.

    >>> odometer = PrivacyOdometer(1e-6, "add_remove")
    >>> for _ in range(10):
    ...     odometer.charge(Guarantee(0.1, 0.1, "add_remove"))
    >>> round(odometer.epsilon, 3)
    1.062
    """

    delta: float
    neighbors: str
    first: float = 2.0**-10
    _rhos: list[float] = field(default_factory=list, init=False, repr=False)

    def __post_init__(self) -> None:
        checks.concrete_delta(self.delta)
        checks.one_of("neighbors", self.neighbors, checks.RELATIONS)
        if not 0 < self.first < inf:
            raise ValueError(f"first must be finite and positive, got {self.first}.")

    def charge(self, guarantee: Guarantee | Composition) -> None:
        """Add a mechanism; nothing is refused.

        Raises:
            ValueError: another relation, or no zCDP.
        """
        _check_relation("odometer", self.neighbors, guarantee)
        rho = _rho(guarantee)
        if not rho < 1e300:
            raise ValueError(f"an odometer needs zCDP, which the guarantee does not promise: {guarantee}.")
        self._rhos.append(rho)

    @property
    def rho(self) -> float:
        """The sum of zCDP so far."""
        return fsum(self._rhos)

    @property
    def epsilon(self) -> float:
        """The bound on the privacy loss so far; 0 before anything was charged."""
        if not self._rhos:
            return 0.0
        number, budget = 0, self.first
        while self.rho > budget:
            number, budget = number + 1, 2 * budget
        nats = -log(6 * self.delta / (pi * (number + 1)) ** 2)
        return budget + 2 * sqrt(budget * nats)


def _check_relation(what: str, neighbors: str, guarantee: Guarantee | Composition) -> None:
    if guarantee.neighbors != neighbors:
        raise ValueError(f"this {what} is under {neighbors} neighbors, the guarantee under {guarantee.neighbors}.")


def _pure_epsilon(guarantee: Guarantee | Composition) -> float:
    return inf if guarantee.delta else guarantee.epsilon


def _rho(guarantee: Guarantee | Composition) -> float:
    return inf if (1 * guarantee).slack else guarantee.rho


def _total(charged: list[float], cost: float) -> float:
    try:
        return fsum([*charged, cost])
    except OverflowError:
        return inf


def _rho_of(epsilon: float, delta: float) -> float:
    """The zCDP that implies (epsilon, delta)-DP, at the best order, from below."""

    def minus_rho(order: Any, log_above: Any) -> Any:
        return formulas.minus_rho_at_order(order, log_above, epsilon, -log(delta), np)

    return -formulas.smallest_on_host(minus_rho)
