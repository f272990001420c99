"""Shifted inverse sensitivity (Fang, Dong and Yi 2022), for monotone functions.

An additional person can raise such a function without bound, whereas removals have a bounded
effect. So the mechanism aims below f(x), at h(tau) = min{f(z): z a subset of x with at most tau
people removed}. On finitely many values it is the exponential mechanism with the cost of the post's
footnote 4, max(l - tau, tau - lbar). On the real line it is piecewise Laplace between the values
h(tau - s) above and h(tau + s) below; that interpolation is not in the papers.

Privacy: l and lbar change by at most 1 between neighbors (Proposition 3), and so do tau - lbar, l -
tau and their maximum. On the real line the values at level s lie within the neighbor's at level s+1
(:meth:`dpjax.sensitivity.down.DownSensitivity.shift`): by Corollary 3.1 the cost changes by at most
1. tau must be chosen without the data.
"""

from __future__ import annotations

from collections.abc import Callable
from math import ceil, log
from typing import Protocol, overload

import jax.numpy as jnp
from jax.typing import ArrayLike

from dpjax import checks
from dpjax.accounting.guarantee import Guarantee
from dpjax.accounting.mechanism import with_guarantee
from dpjax.distributions import Finite, PiecewiseExponential, Rounded
from dpjax.mechanisms._piecewise_laplace import piecewise_laplace
from dpjax.mechanisms.candidates import Candidates, finite_range, num_candidates_over, removals
from dpjax.mechanisms.from_profile import Support, is_given
from dpjax.mechanisms.relations import pure
from dpjax.sensitivity.down import DownSensitivity


def guarantee(down: DownSensitivity | str, epsilon: float) -> Guarantee:
    """Return the guarantee of one draw of :func:`shifted_inverse`.

    >>> print(shifted_inverse.guarantee("add_remove", 0.5))
    0.5-DP and 0.5-bounded-range under add_remove neighbors
    """
    return pure(down, epsilon)


class _ShiftedInverse(Protocol):
    """The overloaded signatures of :func:`shifted_inverse`."""

    guarantee: Callable[..., Guarantee]

    @overload
    def __call__(
        self,
        down: DownSensitivity,
        epsilon: ArrayLike,
        *,
        tau: int,
        rho: ArrayLike = 0.0,
        support: Support = "restricted",
    ) -> PiecewiseExponential | Rounded: ...

    @overload
    def __call__(
        self, down: DownSensitivity, epsilon: ArrayLike, *, tau: int, candidates: Candidates
    ) -> Finite: ...


@with_guarantee(guarantee, signatures=_ShiftedInverse)
def shifted_inverse(
    down: DownSensitivity,
    epsilon: ArrayLike,
    *,
    tau: int,
    candidates: Candidates | None = None,
    rho: ArrayLike = 0.0,
    support: Support = "restricted",
) -> PiecewiseExponential | Rounded | Finite:
    """Return the distribution of shifted inverse sensitivity, on the real line or on candidates.

    On the real line, it is piecewise Laplace on ``down.shift(tau)``: the cost is s+1 at h(tau - s)
    above h(tau) and at h(tau + s) below it, linear in between. On candidates, l(y) and lbar(y) are
    the numbers of people to remove until f <= y and until f < y (infinite if not even f(empty) is).

    Args:
        down: the down sensitivity of a monotone statistic, batch shape ``(...)``.
        epsilon: positive.
        tau: static, at least 1, chosen without the data, for example by :func:`dpjax.shift_for`. On
            the real line, use ``upper`` over a public resolution as the number of candidates; for a
            small mean error use ``failure = resolution / upper``, since outputs above f(x) may
            extend up to the bound.
        candidates: None for the real line; or the public finite range, increasing, ``(k,)``. The
            utility theorem needs every value of the statistic among them: records or amounts in
            multiples of the range's step. Otherwise only the utility is unproven.
        rho: on the real line only, as in :func:`dpjax.piecewise_laplace`, like ``support``.
            Candidates need no smoothing for ties.

    Returns:
        A :class:`PiecewiseExponential` on the real line, or a :class:`Rounded` if the statistic has
        a resolution; a :class:`Finite` on candidates; of the broadcast batch shape.

    Privacy:
        epsilon-DP and epsilon-bounded-range for one person more or less, and for one person
        replaced. Public: epsilon, tau, rho, the candidates, and what the statistic documents as
        public. Float draws on the real line are simulations.

    References:
        Steinke (2023), "Beyond Local Sensitivity via Down Sensitivity", Theorem 4 and footnote 4
        (the last term of the last display in the proof of Lemma 2 should be l(x', y) + dist(x,
        x')); Fang, Dong and Yi (2022); Durfee (2025), Theorem 1. Theorem 6 (a shift of 2^O(log*)
        for approximate DP) is not implemented.

    >>> import jax.numpy as jnp
    >>> from dpjax.statistics.monotone import maximum
    >>> down = maximum(jnp.arange(100.0), lower=0, upper=1000)
    >>> distribution = shifted_inverse(down, 2.0, tau=10)
    >>> 80 < float(distribution.quantile(0.5)) < 95
    True
    >>> found = shifted_inverse(down, 1.0, tau=10, candidates=jnp.arange(1000.0))
    >>> found.cost[jnp.array([80, 89, 99, 999])].tolist()
    [9.0, 0.0, 9.0, 10.0]
    """
    checks.instance(
        "shifted_inverse",
        down,
        DownSensitivity,
        "from a monotone statistic of data, such as dpjax.maximum(x, ...)",
    )
    if candidates is None:
        return piecewise_laplace(down.shift(tau), epsilon, rho=rho, support=support)
    if is_given(rho):
        raise ValueError(
            "rho must be left at 0 with candidates: it smooths distributions on the real line."
        )
    checks.shift(tau)
    values = finite_range(candidates, down.dtype)
    to_at_most, to_below = removals(down, values)
    rate = checks.positive("epsilon", epsilon, down.dtype) / 2
    return Finite(values, jnp.maximum(to_at_most - tau, tau - to_below), rate)


def shift_for(epsilon: float, *, num_candidates: int, failure: float) -> int:
    """Return the least shift for which Theorem 4 holds.

    It is ceil(2/epsilon * log(num_candidates/failure)).

    With it, the distribution on candidates is within ``[h(2 tau), f(x)]`` with probability at least
    ``1 - failure``. For the real line, see :func:`shifted_inverse`.

    Args:
        epsilon: positive.
        num_candidates: the size of the finite range, at least 1.
        failure: beta, strictly between 0 and 1.

    Returns:
        A Python integer, at least 1.

    Privacy:
        No privacy is spent, because only public numbers are read.

    References:
        Steinke (2023), "Beyond Local Sensitivity via Down Sensitivity", Theorem 4.

    >>> shift_for(1.0, num_candidates=1000, failure=0.05)
    20
    """
    return max(
        1,
        ceil(
            2 / checks.concrete_epsilon(epsilon) * log(num_candidates_over(failure, num_candidates))
        ),
    )
