"""Conversions between notions of privacy, for numbers and arrays on the host, in float64.

    rdp_of_*       Renyi DP of an order, of pure DP, bounded range or Laplace noise
    epsilon_of_rdp, delta_of_rdp   the epsilon at a delta of a curve, such as rho * order of zCDP
    zcdp_of        the rho of zero-concentrated DP that implies an (epsilon, delta)
    epsilon_before_sampling, sampling_efficiency   pure DP on Poisson samples

Arguments are concrete numbers, or arrays ``(...)`` that broadcast against each other; every result
has the broadcast shape. Unless stated otherwise, ``epsilon`` (or the range) and ``zcdp`` (rho) are
positive, ``order`` (a) is above 1, ``delta`` is in (0, 1), and ``probability`` (p) in (0, 1]; a
number out of range raises ``ValueError``.

The conversions are exact in the worst case of each notion, up to the search for the best order,
where every order gives a valid bound, and up to rounding by some units in the last place. Renyi
divergences are those of three families of worst-case pairs, without cancellation:

* epsilon-DP: randomized response, losses +-epsilon;
* bounded range epsilon: losses t and t - epsilon, for the worst t in [0, epsilon];
* Laplace noise of scale 1/epsilon, one unit apart.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from dpjax import checks
from dpjax.checks.numbers import ABOVE_ONE, NONNEGATIVE, POSITIVE, PROBABILITY, PROPORTION, Interval

Array = np.ndarray
Curve = Callable[[Array], Any]

AT_LEAST_0 = Interval("at least 0", 0, np.inf, "[]")
_TINY, _ROOT_OF_LARGEST = 2.0**-52, 1e154
_ROUNDED_UP = 1 + 2.0**-48  # above the rounding error of the formulas
_FRACTIONS, _ROUNDS = np.linspace(-1, 1, 65), 7
_LOWEST, _HIGHEST = -8.0, 32.0  # the initial interval of log(order - 1)


@np.errstate(over="ignore", invalid="ignore")
def rdp_of_pure(epsilon: Any, *, order: Any) -> Any:
    """Return the smallest r such that epsilon-DP implies (order, r)-Renyi DP.

    Randomized response attains it.
    r = log(cosh((a - 1/2) epsilon) / cosh(epsilon/2)) / (a - 1), which never overflows.

    References:
        Steinke, "Tight RDP & zCDP Bounds from Pure DP" (2024); Bun and Steinke (2016), Proposition
        3.3.

    >>> round(float(rdp_of_pure(1.0, order=2.0)), 5)
    0.73533
    """
    epsilon, order = _at_orders(epsilon, order)
    half = epsilon / 2
    excess = 2 * np.sinh(order * half) * np.sinh((order - 1) * half) / np.cosh(half)
    below = np.log1p(np.exp(-epsilon)) - np.log1p(np.exp(-(2 * order - 1) * epsilon))
    near = order * epsilon < 30
    return np.where(near, np.log1p(excess) / (order - 1), epsilon - below / (order - 1))[()]


@np.errstate(over="ignore", invalid="ignore")
def rdp_of_bounded_range(epsilon: Any, *, order: Any) -> Any:
    """Return the smallest r such that bounded range epsilon implies (order, r)-Renyi DP.

    It is below order * epsilon^2/8. r = (a L(a) - (a-1) L(a-1) - L(1)) / (a-1), where
    L(y) = log(sinh(y epsilon/2) / (y epsilon/2)): the supremum over the pairs with losses
    (t, t - epsilon), whose worst t has a closed form.

    References:
        Dong, Durfee and Rogers (2020), Lemma 3.2, for the worst pairs.

    >>> round(float(rdp_of_bounded_range(1.0, order=2.0)), 5)
    0.24023
    """
    epsilon, order = _at_orders(epsilon, order)
    # Close to order 1 and at large orders differences cancel or overflow. The divergence increases
    # with the order, and is at most eps, so that the order is raised, or eps returned.
    far = (order > 0.1 / _TINY**0.5) | (epsilon > _ROOT_OF_LARGEST / order)
    a = np.maximum(order, 1 + _TINY ** (1 / 3))
    top, below, one = (_log_sinhc(y * epsilon / 2) for y in (a, a - 1, 1.0))
    # Rounded up by the error of the difference
    found = (a * top - (a - 1) * below - one + 4 * _TINY * a * top) / (a - 1)
    most = np.minimum(epsilon, order * epsilon * epsilon / 8)
    return np.minimum(np.where(far, epsilon, found), most)


@np.errstate(over="ignore", invalid="ignore")
def rdp_of_laplace(epsilon: Any, *, order: Any) -> Any:
    """Return the Renyi divergence of Laplace noise of scale sensitivity/epsilon.

    It is smaller than that of any epsilon-DP.

    References:
        Mironov (2017), Proposition 6.

    >>> round(float(rdp_of_laplace(1.0, order=2.0)), 5)
    0.61912
    """
    epsilon, order = _at_orders(epsilon, order)
    above, twice = order - 1, 2 * order - 1
    # The terms of first order in eps cancel, and are left out of both exponentials.
    excess = order * second_order(above * epsilon) + above * second_order(-order * epsilon)
    beyond = np.log1p(above / order * np.exp(-twice * epsilon)) - np.log1p(above / order)
    near = order * epsilon < 1
    return np.where(near, np.log1p(excess / twice) / above, epsilon + beyond / above)[()]


def epsilon_of_rdp(curve: Curve, *, delta: Any) -> Any:
    """Return the epsilon, at least 0, of a curve of Renyi divergences at a delta.

    The best order is used.

    Args:
        curve: a function of orders, float64 ``(..., points)``, that returns r ``(..., points)``
            such that (order, r)-Renyi DP holds: for rho of zCDP, rho times the order. The curve of
            a composition is the sum of its curves.
        delta: in (0, 1), ``(...)``.

    References:
        Canonne, Kamath and Steinke (2020), Proposition 12 and, for zCDP, Corollary 13; Mironov
        (2017), for Renyi DP.

    >>> curve = lambda order: 10 * rdp_of_bounded_range(0.5, order=order)
    >>> round(float(epsilon_of_rdp(curve, delta=1e-6)), 3)
    3.632
    >>> round(float(epsilon_of_rdp(lambda order: 0.5 * order, delta=1e-6)), 4)  # 0.5-zCDP
    5.2215
    """
    nats = -np.log(public(PROBABILITY, "delta", delta))[..., None]
    least = _at_best_order(lambda order, above: _epsilon_at(curve(order), order, above, nats))
    return np.where(least > 0, (least + 1e-15) * _ROUNDED_UP, 0.0)[()]


def delta_of_rdp(curve: Curve, *, epsilon: Any) -> Any:
    """Return the delta of a curve of Renyi divergences at an epsilon, by the best order.

    The inverse of :func:`epsilon_of_rdp`, with the same references.

    Args:
        curve: as for :func:`epsilon_of_rdp`.
        epsilon: at least 0, ``(...)``.

    Returns:
        Float64 of the broadcast shape, at most 1, and at least the smallest normal number, since a
        delta of 0 would state pure DP.

    >>> from dpjax.accounting import rdp_of_pure
    >>> float(delta_of_rdp(lambda order: 2 * rdp_of_pure(0.5, order=order), epsilon=0.9)) < 0.1
    True
    """
    target = public(NONNEGATIVE, "epsilon", epsilon)[..., None] / _ROUNDED_UP

    def log_delta(order: Array, log_above: Array) -> Array:  # the inverse of _epsilon_at
        share = order * np.log1p(np.exp(-log_above))
        return (order - 1) * (curve(order) * _ROUNDED_UP - target) - share - log_above

    least = np.exp(np.minimum(_at_best_order(log_delta) + 1e-13, 0.0))
    return np.maximum(least, np.finfo(np.float64).tiny)


def zcdp_of(epsilon: Any, *, delta: Any) -> Any:
    """Return a rho such that rho-zCDP implies (epsilon, delta)-DP.

    It is the largest at the best order of the Renyi divergence, where delta = e^((a-1)(a rho -
    epsilon)) (1 - 1/a)^a / (a - 1), and never below the classical rho of epsilon = rho + 2 sqrt(rho
    log(1/delta)).

    Args:
        epsilon: positive, ``(...)``.
        delta: in (0, 1), ``(...)``.

    References:
        Bun and Steinke (2016), Proposition 1.3; Canonne, Kamath and Steinke (2020), Corollary 13.

    >>> round(float((2 * zcdp_of(1.0, delta=1e-3)) ** 0.5), 4)
    0.3446
    """
    budget = public(POSITIVE, "epsilon", epsilon)
    nats = -np.log(public(PROBABILITY, "delta", delta))
    classical = np.square(budget / (np.sqrt(nats + budget) + np.sqrt(nats)))

    def minus_rho(order: Array, log_above: Array) -> Array:
        beyond = _epsilon_at(0.0, order, log_above, nats[..., None]) - budget[..., None]
        return beyond / order

    return np.maximum(classical, -_at_best_order(minus_rho))


def epsilon_before_sampling(epsilon: Any, *, probability: Any) -> Any:
    """Return the largest epsilon of a mechanism that is epsilon-DP on a Poisson subsample.

    It is log(1 + (e^epsilon - 1)/p), under add/remove neighbors, as :func:`poisson_subsample`.

    References:
        Steinke, "Limits of Privacy Amplification by Subsampling" (2025), Equation 3.

    >>> round(float(epsilon_before_sampling(1.0, probability=0.1)), 6)
    2.900477
    """
    share = public(PROPORTION, "probability", probability)
    return mixed(public(POSITIVE, "epsilon", epsilon), 1 / share)


def sampling_efficiency(epsilon: Any, *, probability: Any) -> Any:
    """Return p epsilon_p / epsilon, where epsilon_p is :func:`epsilon_before_sampling`.

    This is the noise of a mean without subsampling relative to that with subsampling at the same
    epsilon. At its largest value, 1, subsampling costs no accuracy but the sampling error. It is at
    least p/(p + epsilon), and well below 1 unless epsilon is much smaller than p: there subsampling
    multiplies the noise.

    References:
        Steinke, "Limits of Privacy Amplification by Subsampling" (2025), Equations 6 and 7.

    >>> round(float(sampling_efficiency(1.0, probability=0.01)), 4)
    0.0515
    """
    before = epsilon_before_sampling(epsilon, probability=probability)
    return np.multiply(probability, before) / epsilon


@np.errstate(over="ignore", divide="ignore", invalid="ignore")
def mixed(epsilon: Any, factor: Any) -> Any:
    """Return log(1 + factor (e^epsilon - 1)), for an epsilon of either sign."""
    near = np.log1p(factor * np.expm1(epsilon))
    far = epsilon + np.log(factor) + np.log1p(-np.exp(-np.maximum(epsilon, 0.0)))
    return np.where(near == np.inf, far, near)[()]


def second_order(x: Any) -> Any:
    """Return e^x - 1 - x; at -eps it is the zCDP of Laplace noise.

    References:
        Harrison and Manurangsi (2025).
    """
    small = np.clip(x, -0.5, 0.5)
    series = 1.0
    for k in range(16, 2, -1):
        series = 1 + small / k * series
    return np.where(np.abs(x) < 0.5, small * small / 2 * series, np.expm1(x) - x)[()]


def _log_sinhc(x: Any) -> Any:
    """Return log(sinh(x) / x) for x >= 0, to a few ulps, also near 0, where it is about x^2/6."""
    large, square = np.maximum(x, 1.0), np.minimum(x, 1.0) ** 2
    series = 1.0
    for k in range(8, 1, -1):
        series = 1 + square / (2 * k * (2 * k + 1)) * series
    far = large - np.log(2 * large) + np.log1p(-np.exp(-2 * large))
    return np.where(x < 1, np.log1p(square / 6 * series), far)


def _epsilon_at(rdp: Any, order: Array, log_above: Array, nats: Any) -> Array:
    """Return the epsilon that (order, rdp)-RDP implies at delta = e^-nats.

    Canonne, Kamath and Steinke (2020), Proposition 12; ``log_above`` is log(order - 1).
    """
    share = np.log1p(np.exp(-log_above))  # log(a / (a - 1))
    return rdp * _ROUNDED_UP + (nats - log_above - share) / (order - 1) - share


@np.errstate(over="ignore", invalid="ignore")
def _at_best_order(objective: Callable[[Array, Array], Array]) -> Any:
    """Return about the least value of a function of orders a and log(a - 1).

    By seven grids, each narrower around the best point of the previous one. Every order gives a
    valid bound, so a local minimum costs tightness but not privacy. Infinite where the function is
    NaN at all orders.
    """
    center, reach = np.full(1, (_LOWEST + _HIGHEST) / 2), (_HIGHEST - _LOWEST) / 2
    for _ in range(_ROUNDS):
        log_above = center + reach * _FRACTIONS
        value = objective(1 + np.exp(log_above), log_above)
        value = np.where(np.isnan(value), np.inf, value)
        best = np.argmin(value, axis=-1, keepdims=True)
        center = np.take_along_axis(np.broadcast_to(log_above, value.shape), best, axis=-1)
        reach *= 4 / _FRACTIONS.size
    return np.min(value, axis=-1)


def _at_orders(epsilon: Any, order: Any) -> tuple[Any, Any]:
    return public(AT_LEAST_0, "epsilon", epsilon), public(ABOVE_ONE, "order", order)


def public(interval: Interval, name: str, value: Any) -> Any:
    """Return public numbers in float64; raise ``ValueError`` unless all are in the interval."""
    if checks.is_traced(value):
        raise TypeError(f"{name} must be concrete numbers, not a traced value.")
    numbers = checks.host_floats(name, None if isinstance(value, bool) else value)
    numbers = numbers.astype(np.float64)
    if not np.all(interval.holds(numbers)):
        raise ValueError(f"{name} must be {interval.must}, got {value}.")
    return numbers[()]
