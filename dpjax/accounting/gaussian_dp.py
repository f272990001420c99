"""Gaussian differential privacy (GDP): the exact cost of Gaussian noise, in float64.

A mechanism is mu-GDP if telling neighbors apart by its output is no easier than telling N(0, 1)
from N(mu, 1). Gaussian noise of standard deviation sigma on a statistic of (L2) sensitivity Delta
attains mu = Delta/sigma, adaptive mechanisms compose to sqrt(mu_1^2 + mu_2^2 + ...) (Dong, Roth and
Su 2022, Theorem 4 and Corollary 3.3), and mu-GDP is mu^2/2-zCDP. At any epsilon,

    delta = Phi(-a) - e^epsilon Phi(-a - mu),    a = epsilon/mu - mu/2.

Since e^epsilon phi(a + mu) = phi(a), this is phi(a) (R(a) - R(a + mu)) with Mills' ratio R(x) =
Phi(-x) / phi(x), in which nothing overflows. Results are rounded conservatively: a is rounded down,
which is the same curve at a smaller epsilon, and delta is rounded up by more than the error of
SciPy's functions.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import inf, log, sqrt
from sys import float_info
from typing import Any

import numpy as np

from dpjax import checks
from dpjax.numerics.solve import root

_FEW_ULPS, _FAR = 2.0**-50, 1e150
_LEAST = 1e-300  # of delta, below which its curve is not inverted


def delta_of_gdp(gdp: float, *, epsilon: float) -> float:
    """Return the smallest delta such that gdp-GDP implies (epsilon, delta)-DP.

    Args:
        gdp: mu, positive.
        epsilon: at least 0.

    Returns:
        A float of at most 1, and at least the smallest normal float, since a delta of 0 would state
        pure DP.

    References:
        Balle and Wang (2018), Theorem 8; Dong, Roth and Su (2022), Corollary 2.13.

    >>> round(delta_of_gdp(1.0, epsilon=1.0), 8)
    0.12693674
    """
    mu = checks.concrete_positive("gdp", gdp)
    found = float(curve(mu, checks.concrete_nonnegative("epsilon", epsilon)))
    return min(max(found, float_info.min), 1.0)


def epsilon_of_gdp(gdp: float, *, delta: float) -> float:
    """Return the smallest epsilon such that gdp-GDP implies (epsilon, delta)-DP.

    The inverse of :func:`delta_of_gdp`, rounded up, with the same references.

    Args:
        gdp: mu, positive.
        delta: in (0, 1).

    >>> round(epsilon_of_gdp(1.0, delta=1e-6), 4)  # 5.2215 if converted by way of zCDP
    4.8866
    """
    mu, nats = checks.concrete_positive("gdp", gdp), _nats(delta)
    # There a = sqrt(2 log(1/delta)), so that delta is at most Phi(-a) <= e^(-a^2/2) / 2.
    high = mu * (mu / 2 + sqrt(2 * nats)) * (1 + _FEW_ULPS)
    return high if delta < _LEAST else smallest(partial(curve, mu), high, delta)


def smallest(curve: Callable[[float], float], most: float, delta: float) -> float:
    """Return the smallest epsilon in [0, most] with this delta on a curve, rounded up."""
    target = checks.concrete_fraction("delta", delta)
    if target == 0 or most == inf or curve(most) > target:  # there it is 0, up to rounding
        return most
    if curve(0.0) <= target:
        return 0.0
    return root(lambda epsilon: curve(epsilon) - target, 0.0, most)


def gdp_of(epsilon: float, *, delta: float) -> float:
    """Return the largest mu such that mu-GDP implies (epsilon, delta)-DP, rounded down.

    The least Gaussian noise that meets a budget has the standard deviation
    ``sensitivity / gdp_of(epsilon, delta=delta)``, and sqrt(k) times as much for each of k
    statistics.

    Args:
        epsilon: positive.
        delta: in (0, 1).

    References:
        Balle and Wang (2018), Algorithm 1.

    >>> round(1 / gdp_of(1.0, delta=1e-6), 4)
    4.2247
    """
    budget, nats = checks.concrete_epsilon(epsilon), _nats(delta)
    # The mu where mu^2/2 + mu sqrt(2 log(1/delta)) is epsilon.
    low = budget / (sqrt(budget / 2 + nats / 2) + sqrt(nats / 2)) * (1 - 2 * _FEW_ULPS)
    high = 2 * low
    if delta < _LEAST:
        return low
    while curve(high, budget) <= delta:
        high *= 2
    return root(lambda mu: float(curve(mu, budget)) - float(delta), low, high)


@np.errstate(over="ignore", under="ignore")
def curve(mu: float, epsilon: Any) -> Any:
    """Return delta at epsilons of at least 0, rounded up."""
    from scipy.special import erfcx, ndtr

    slope = np.minimum(np.divide(epsilon, mu), _FAR)
    a = slope - mu / 2 - _FEW_ULPS * (slope + mu / 2)
    density = np.exp(-a * a / 2) / 2
    tail = np.where(a < -1, ndtr(-a), density * erfcx(np.maximum(a, -1.0) / sqrt(2)))
    return tail * (1 + 16 * _FEW_ULPS) - density * erfcx((a + mu) / sqrt(2))


def _nats(delta: float) -> float:
    """Return log(1/delta), rounded up."""
    return -log(checks.concrete_delta(delta)) * (1 + _FEW_ULPS) + _FEW_ULPS
