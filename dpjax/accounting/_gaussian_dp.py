"""Gaussian differential privacy (GDP): the exact cost of Gaussian noise, in float64.

A mechanism is mu-GDP if telling neighbors apart by its output is no easier than telling N(0, 1)
from N(mu, 1). Gaussian noise of standard deviation sigma on a statistic of (L2) sensitivity Delta
attains mu = Delta/sigma, adaptive mechanisms compose to sqrt(mu_1^2 + mu_2^2 + ...) (Dong, Roth and
Su 2022, Theorem 4 and Corollary 3.3), and mu-GDP is mu^2/2-zCDP. At any epsilon,

    delta = Phi(-a) - e^epsilon Phi(-a - mu),    a = epsilon/mu - mu/2.

Since e^epsilon phi(a + mu) = phi(a), this is phi(a) (R(a) - R(a + mu)) with Mills' ratio R(x) =
Phi(-x) / phi(x), in which nothing overflows or underflows. Results are rounded conservatively: a is
rounded down, which is the same curve at a smaller epsilon, and delta is rounded up by more than the
error of SciPy's functions.
"""

from __future__ import annotations

from collections.abc import Callable
from math import exp, inf, log, pi, sqrt
from sys import float_info

from dpjax import checks
from dpjax.numerics.solve import root

_FEW_ULPS = 2.0**-50


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
    target = checks.concrete_nonnegative("epsilon", epsilon)
    return min(max(exp(_log_delta(mu, target)) * (1 + _FEW_ULPS), float_info.min), 1.0)


def epsilon_of_gdp(gdp: float, *, delta: float) -> float:
    """Return the smallest epsilon such that gdp-GDP implies (epsilon, delta)-DP.

    The inverse of :func:`delta_of_gdp`, rounded up, with the same references.

    Args:
        gdp: mu, positive.
        delta: in (0, 1).

    >>> round(epsilon_of_gdp(1.0, delta=1e-6), 4)  # 5.2215 if converted by way of zCDP
    4.8866
    """
    mu, target = checks.concrete_positive("gdp", gdp), _log_target(delta)
    if _log_delta(mu, 0.0) <= target:
        return 0.0
    # At the upper end a = sqrt(2 log(1/delta)), so that delta is at most Phi(-a) <= e^(-a^2/2) / 2.
    high = mu * (mu / 2 + sqrt(-2 * target))
    if high == inf:
        return inf
    return _crossing(lambda epsilon: _log_delta(mu, epsilon) - target, 0.0, high)


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
    budget, target = checks.concrete_epsilon(epsilon), _log_target(delta)
    # The mu where mu^2/2 + mu sqrt(2 log(1/delta)) is epsilon.
    low = budget / (sqrt(budget / 2 - target / 2) + sqrt(-target / 2))
    low *= 1 - _FEW_ULPS
    return _crossing(lambda mu: _log_delta(mu, budget) - target, low, 2 * low)


def _log_delta(mu: float, epsilon: float) -> float:
    """Return the logarithm of delta, rounded up."""
    from scipy.special import erfcx, ndtr

    slope = epsilon / mu
    if slope > 1e150:
        return -inf
    a = slope - mu / 2 - _FEW_ULPS * (slope + mu / 2)
    density = exp(-a * a / 2) / sqrt(2 * pi)
    beyond = sqrt(pi / 2) * float(erfcx((a + mu) / sqrt(2)))
    if a < -1:  # then mu is above 2, and the difference below does not cancel
        return min(log(float(ndtr(-a)) - density * beyond) + 16 * _FEW_ULPS, 0.0)
    ratio = sqrt(pi / 2) * float(erfcx(a / sqrt(2)))
    return (
        log(ratio - beyond + 16 * _FEW_ULPS * ratio)
        - log(2 * pi) / 2
        - a * a / 2 * (1 - _FEW_ULPS)
        + _FEW_ULPS
    )


def _log_target(delta: float) -> float:
    """Return log(delta), rounded down."""
    return log(checks.concrete_delta(delta)) * (1 + _FEW_ULPS) - _FEW_ULPS


def _crossing(excess: Callable[[float], float], low: float, high: float) -> float:
    """Return a root of ``excess`` above ``low``, rounded to the side where it is at most 0.

    ``high`` is doubled first until it is beyond the root.
    """
    while (excess(high) > 0) == (excess(low) > 0):
        low, high = high, 2 * high
    return root(excess, low, high)
