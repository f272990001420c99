"""Privacy odometers: running bounds on the privacy loss.

The costs of mechanisms may depend on the answers so far. For one order a, let R be the sum of the
Renyi divergences so far: e^((a-1) (loss - R)) is a supermartingale. So it ever exceeds m/delta with
probability at most delta/m (Ville's inequality), and at all times and for all of m public orders
together,

    loss <= R(a) + log(m/delta) / (a - 1),   except with probability delta.

The mechanisms' own deltas are exceptions, as in ``filters``, whose probability is bounded until
their sum exceeds the part of delta that is reserved for them.
"""

from __future__ import annotations

from math import inf, log, pi, sqrt

from dpjax import checks
from dpjax.accounting.composition import Composition
from dpjax.accounting.filters import Sums
from dpjax.accounting.guarantee import Guarantee


class PrivacyOdometer:
    """A running bound on the privacy loss of adaptive mechanisms.

    Each may be chosen after seeing all previous answers. With probability ``1 - delta`` over the
    answers, the privacy loss is at most :attr:`epsilon` at all times. If mechanisms have deltas,
    this is the loss of their distributions conditioned on the events that these deltas refer to.

    With ``delta = 0`` :attr:`epsilon` is the sum of epsilons. Otherwise there are filters with
    budgets rho_f = rho_0 2^f and delta_f = 6 delta / (pi^2 (f+1)^2), f = 0, 1, 2, ..., and the
    first one that is not exhausted gives the bound rho_f + 2 sqrt(rho_f log(1/delta_f)), on the
    loss itself and not only on its (epsilon, delta). With ``orders``, it is the smallest of the
    bounds of all orders and the sum of epsilons.

    Args:
        delta: in [0, 1).
        neighbors: the neighbor relation of all guarantees.
        first: rho_0, the smallest zCDP budget of a filter; public.
        mechanism_delta: the part of ``delta`` that is reserved for the mechanisms' own deltas, at
            most ``delta``. Once their sum exceeds it, :attr:`epsilon` is infinite.
        orders: public orders of Renyi divergences, above 1; if empty, zCDP is charged.

    References:
        Rogers, Roth, Ullman and Vadhan (2016), for odometers; Lecuyer (2021), Section 4, for the
        doubled filters; Whitehouse et al. (2023), Theorem 3, for a bound at all times.

    >>> odometer = PrivacyOdometer(1e-6, "add_remove")
    >>> for _ in range(10):
    ...     odometer.charge(Guarantee(0.1, 0.1, "add_remove"))
    >>> round(odometer.epsilon, 3)
    1.062
    """

    # Not a dataclass, for the reason given in PrivacyFilter.
    def __init__(
        self,
        delta: float,
        neighbors: str,
        first: float = 2.0**-10,
        mechanism_delta: float = 0.0,
        orders: tuple[float, ...] = (),
    ) -> None:
        self._sums = Sums("odometer", delta, neighbors, mechanism_delta, orders)
        self.delta, self.mechanism_delta, self.orders = (
            self._sums.delta,
            self._sums.mechanism_delta,
            self._sums.orders,
        )
        self.neighbors, self.first = neighbors, checks.concrete_positive("first", first)

    def __repr__(self) -> str:
        names = ("delta", "neighbors", "first", "mechanism_delta", "orders")
        return f"PrivacyOdometer({', '.join(f'{name}={getattr(self, name)!r}' for name in names)})"

    def charge(self, guarantee: Guarantee | Composition) -> None:
        """Add the cost of a mechanism.

        Raises:
            ValueError: the relation or unit differs, or the guarantee lacks a promise of the kind
                charged.
        """
        with self._sums.lock:
            self._sums.add(self._sums.costs(guarantee, most=1e300), guarantee.unit)

    @property
    def rho(self) -> float:
        """The sum of zCDP so far.

        With orders, of divergence over order, at the order with the smallest sum.
        """
        return min(self._sums.totals()[2])

    @property
    def epsilon(self) -> float:
        """The bound on the privacy loss so far; 0 before the first charge."""
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
