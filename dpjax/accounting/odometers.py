"""What was spent so far, at any time, by a pipeline whose next cost may depend on the answers so far.

For one order a, e^((a-1) (loss - R)) with R the sum of the Renyi divergences so far has an expectation that never grows. So it
passes m/delta at any time with probability at most delta/m (Ville's inequality), and at all times and for all of m public orders
together,

    loss <= R(a) + log(m/delta) / (a - 1),   except with probability delta.

Deltas of mechanisms are exceptions, as in ``filters.py``, of a probability that is bounded until they pass their part.
"""

from __future__ import annotations

from math import inf, log, pi, sqrt

from dpjax import checks
from dpjax.accounting.composition import Composition
from dpjax.accounting.filters import Sums
from dpjax.accounting.guarantee import Guarantee


class PrivacyOdometer:
    """What was spent so far, at any time, while mechanisms are chosen by the answers before.

    At all times together, with probability ``1 - delta`` over the answers, the privacy loss is at most :attr:`epsilon`; where
    mechanisms have deltas of their own, that of the distributions conditioned on the events that their promises speak of. With
    ``delta = 0`` that is the sum of epsilons. Otherwise it runs filters at budgets rho_0 2^f with delta_f = 6 delta /
    (pi^2 (f+1)^2), f = 0, 1, 2, ..., and reports the first that is not used up: rho_f + 2 sqrt(rho_f log(1/delta_f)), which bounds
    the loss itself and not only its (epsilon, delta). With orders it is the smallest bound of theirs and the sum of epsilons.

    Args:
        delta: in [0, 1).
        neighbors: the relation.
        first: rho_0, the smallest zCDP that is told apart; public.
        mechanism_delta: at most ``delta``: its part for the mechanisms' own deltas; once they pass it, the reading is infinite.
        orders: public, above 1; without any, zCDP is charged.

    References:
        Rogers, Roth, Ullman and Vadhan (2016), for odometers; Lecuyer (2021), Section 4, for the doubled filters; Whitehouse et al.
        (2023), Theorem 3, for a bound at all times.

    >>> odometer = PrivacyOdometer(1e-6, "add_remove")
    >>> for _ in range(10):
    ...     odometer.charge(Guarantee(0.1, 0.1, "add_remove"))
    >>> round(odometer.epsilon, 3)
    1.062
    """

    # No dataclass, as PrivacyFilter.
    def __init__(
        self, delta: float, neighbors: str, first: float = 2.0**-10, mechanism_delta: float = 0.0, orders: tuple[float, ...] = ()
    ) -> None:
        self._sums = Sums("odometer", delta, neighbors, mechanism_delta, orders)
        self.delta, self.mechanism_delta, self.orders = self._sums.delta, self._sums.mechanism_delta, self._sums.orders
        self.neighbors, self.first = neighbors, checks.concrete_positive("first", first)

    def __repr__(self) -> str:
        names = ("delta", "neighbors", "first", "mechanism_delta", "orders")
        return f"PrivacyOdometer({', '.join(f'{name}={getattr(self, name)!r}' for name in names)})"

    def charge(self, guarantee: Guarantee | Composition) -> None:
        """Add a mechanism; no budget is passed, but it needs a promise that this odometer reads."""
        with self._sums.lock:
            self._sums.add(self._sums.costs(guarantee, most=1e300), guarantee.unit)

    @property
    def rho(self) -> float:
        """The sum of zCDP so far, or of divergence over order, at the order where it is least."""
        return min(self._sums.totals()[2])

    @property
    def epsilon(self) -> float:
        """The bound on the privacy loss so far; 0 before anything was charged."""
        (epsilon, delta, rhos), share = self._sums.totals(), self._sums.share
        if delta > self.mechanism_delta:
            return inf
        if not share or epsilon == max(rhos) == 0:
            return epsilon
        if self.orders:
            nats = log(len(self.orders)) - log(share)
            bounds = [rho * a + nats / (a - 1) for rho, a in zip(rhos, self.orders, strict=True)]
            return min([epsilon, *(bound * (1 + 1e-12) for bound in bounds)])
        number, budget = 0, self.first
        while self.rho > budget:
            number, budget = number + 1, 2 * budget
        nats = -log(6 * share / (pi * (number + 1)) ** 2)
        return budget + 2 * sqrt(budget * nats)
