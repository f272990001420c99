"""Budgets for pipelines whose next cost may depend on the answers so far: a filter, which refuses, and an odometer, which reports.

In this fully adaptive setting a sum of costs is itself random, and composition theorems need not hold for it. They do for pure DP
(Rogers et al. 2016), and for Renyi DP of every order and so for zCDP (Feldman and Zrnic 2021), if the sum is stopped at a budget
that was fixed before.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import fsum, inf, log, pi, sqrt

import numpy as np

from dpjax.accounting import formulas
from dpjax.accounting.guarantees import Composition, Guarantee


class BudgetExceeded(RuntimeError):
    """A mechanism was refused: running it would pass the budget. Nothing was charged."""


@dataclass
class PrivacyFilter:
    """A budget that mechanisms are charged to, in any order, each chosen after seeing all answers before.

    With ``delta = 0`` epsilons are summed, and the whole is epsilon-DP. With ``delta`` above 0 the budget is the zCDP that
    implies (epsilon, delta)-DP, and each mechanism is charged the smallest rho that its guarantee implies.

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
    _charged: list[float] = field(default_factory=list, init=False, repr=False)

    def __post_init__(self) -> None:
        if not 0 < self.epsilon < inf:
            raise ValueError(f"epsilon must be finite and positive, got {self.epsilon}.")
        if not 0 <= self.delta < 1:
            raise ValueError(f"delta must be at least 0 and below 1, got {self.delta}.")

    @property
    def budget(self) -> float:
        """What may be charged: epsilon, or the rho of zCDP."""
        return self.epsilon if self.delta == 0 else _rho_of(self.epsilon, self.delta)

    @property
    def spent(self) -> float:
        """What was charged so far."""
        return fsum(self._charged)

    @property
    def remaining(self) -> float:
        """What is left; as ``epsilon`` or as rho."""
        return max(self.budget - self.spent, 0.0)

    def allows(self, guarantee: Guarantee | Composition) -> bool:
        """Whether there is room for it. The answer depends on costs, not on data.

        Raises:
            ValueError: another relation, or a promise that this budget cannot charge.
        """
        return self._after(self._cost(guarantee)) <= self.budget

    def charge(self, guarantee: Guarantee | Composition) -> None:
        """Charge a mechanism, before it runs.

        Raises:
            BudgetExceeded: there is no room for it; nothing was charged.
            ValueError: as :meth:`allows`.
        """
        cost = self._cost(guarantee)
        if not self._after(cost) <= self.budget:
            raise BudgetExceeded(f"a cost of {cost:g} passes what is left of the budget, {self.remaining:g} of {self.budget:g}.")
        self._charged.append(cost)

    def _after(self, cost: float) -> float:
        try:
            return fsum([*self._charged, cost])
        except OverflowError:
            return inf

    def _cost(self, guarantee: Guarantee | Composition) -> float:
        if guarantee.neighbors != self.neighbors:
            raise ValueError(f"this budget is under {self.neighbors} neighbors, the guarantee under {guarantee.neighbors}.")
        cost = guarantee.epsilon if self.delta == 0 else guarantee.rho
        if _with_delta(guarantee, pure=self.delta == 0) or cost == inf:
            kind = "pure DP" if self.delta == 0 else "zCDP"
            raise ValueError(f"this budget charges {kind}, which the guarantee does not promise: {guarantee}.")
        return cost


def _with_delta(guarantee: Guarantee | Composition, *, pure: bool) -> bool:
    """Whether the promise that is charged holds but for an event of positive probability."""
    parts = guarantee.parts if isinstance(guarantee, Composition) else ((guarantee, 1),)
    return any(part.delta > 0 and (pure or part.zcdp == inf) for part, _ in parts)


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
    _charged: list[float] = field(default_factory=list, init=False, repr=False)

    def __post_init__(self) -> None:
        if not 0 < self.delta < 1:
            raise ValueError(f"delta must be strictly between 0 and 1, got {self.delta}.")
        if not 0 < self.first < inf:
            raise ValueError(f"first must be finite and positive, got {self.first}.")

    def charge(self, guarantee: Guarantee | Composition) -> None:
        """Add a mechanism; nothing is refused.

        Raises:
            ValueError: another relation, or no zCDP.
        """
        if guarantee.neighbors != self.neighbors:
            raise ValueError(f"this odometer is under {self.neighbors} neighbors, the guarantee under {guarantee.neighbors}.")
        if not guarantee.rho < 1e300 or _with_delta(guarantee, pure=False):
            raise ValueError(f"an odometer needs zCDP, which the guarantee does not promise: {guarantee}.")
        self._charged.append(guarantee.rho)

    @property
    def rho(self) -> float:
        """The sum of zCDP so far."""
        return fsum(self._charged)

    @property
    def epsilon(self) -> float:
        """The bound on the privacy loss so far; 0 before anything was charged."""
        if not self._charged:
            return 0.0
        number, budget = 0, self.first
        while self.rho > budget:
            number, budget = number + 1, 2 * budget
        nats = -log(6 * self.delta / (pi * (number + 1)) ** 2)
        return budget + 2 * sqrt(budget * nats)


def _rho_of(epsilon: float, delta: float) -> float:
    """The zCDP that implies (epsilon, delta)-DP, at the best order, from below."""
    nats = -log(delta)

    def minus_rho(order: np.ndarray, log_above: np.ndarray) -> np.ndarray:
        return (formulas.epsilon_at_order(0.0, order, log_above, nats, np) - epsilon) / order

    return -float(minus_rho(*formulas.best_order(minus_rho, (), np.float64, np)))
