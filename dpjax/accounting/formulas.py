"""Renyi divergences of worst-case pairs, without cancellation, and the search for the best order.

Each function takes ``xp``, which is numpy (float64, for guarantees of Python numbers) or jax.numpy
(arrays, jit, gradients). The other arguments are float arrays of one dtype that broadcast against
each other; orders are above 1.

Three families of worst-case pairs:

* epsilon-DP: randomized response, losses +-epsilon;
* bounded range epsilon: losses t and t - epsilon, for the worst t in [0, epsilon] (Dong, Durfee and
  Rogers 2020);
* Laplace noise of scale 1/epsilon, one unit apart.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf, isnan
from types import ModuleType
from typing import Any

import numpy as np

_POINTS, _ROUNDS = 65, 7
_LOWEST, _HIGHEST = -8.0, 32.0  # the initial interval of log(order - 1)


def log_sinhc(x: Any, xp: ModuleType) -> Any:
    """Return log(sinh(x) / x) for x >= 0, to a few ulps, also near 0, where it is about x^2/6."""
    near = x < 1
    small = xp.where(near, x, xp.zeros_like(x))
    large = xp.where(near, xp.ones_like(x), x)
    square, series = small * small, xp.ones_like(x)
    for k in (8, 7, 6, 5, 4, 3, 2):
        series = 1 + square / (2 * k * (2 * k + 1)) * series
    return xp.where(
        near,
        xp.log1p(square / 6 * series),
        large - xp.log(2 * large) + xp.log1p(-xp.exp(-2 * large)),
    )


def _second_order(x: Any, xp: ModuleType) -> Any:
    """Return e^x - 1 - x."""
    near = xp.abs(x) < 0.5
    small = xp.where(near, x, xp.zeros_like(x))
    series = xp.ones_like(x)
    for k in range(16, 2, -1):
        series = 1 + small / k * series
    return xp.where(near, small * small / 2 * series, xp.expm1(x) - x)


def rdp_of_pure(epsilon: Any, order: Any, xp: ModuleType) -> Any:
    """Return the Renyi divergence of randomized response.

    It is log(cosh((a - 1/2) eps) / cosh(eps/2)) / (a - 1).
    """
    above = order - 1
    near = order * epsilon < 30
    bounded, a = (
        xp.where(near, epsilon, xp.ones_like(epsilon)),
        xp.where(near, order, 2 * xp.ones_like(order)),
    )
    excess = 2 * xp.sinh(a * bounded / 2) * xp.sinh((a - 1) * bounded / 2) / xp.cosh(bounded / 2)
    far = (
        epsilon
        - (xp.log1p(xp.exp(-epsilon)) - xp.log1p(xp.exp(-(2 * order - 1) * epsilon))) / above
    )
    return xp.where(near, xp.log1p(excess) / above, far)


def rdp_of_bounded_range(epsilon: Any, order: Any, xp: ModuleType) -> Any:
    """Return the largest Renyi divergence of a pair with losses t and t - eps.

    It is (a L(a) - (a-1) L(a-1) - L(1)) / (a-1), where L(y) = log_sinhc(y eps/2). The worst t
    solves e^t = ((a-1)/a) (1 - e^(-a eps)) / (e^(-eps) - e^(-a eps)); with it, all exponentials
    combine to hyperbolic sines.
    """
    tiny, huge = float(np.finfo(epsilon.dtype).eps), float(np.finfo(epsilon.dtype).max)
    # Close to order 1 and at large orders differences cancel or overflow. The divergence increases
    # with the order, and is at most eps, so that the order is raised, or eps returned.
    far = (order > 0.1 / tiny**0.5) | (epsilon > huge**0.5 / order)
    a = xp.where(far, 2 * xp.ones_like(order), xp.maximum(order, 1 + tiny ** (1 / 3)))
    half = xp.where(far, xp.ones_like(epsilon), epsilon) / 2
    top, below, one = (log_sinhc(y * half, xp) for y in (a, a - 1, xp.ones_like(a)))
    # Rounded up by the error of the difference
    found = (a * top - (a - 1) * below - one + 4 * tiny * a * top) / (a - 1)
    return xp.minimum(
        xp.where(far, epsilon, found), xp.minimum(epsilon, order * epsilon * epsilon / 8)
    )


def rdp_of_laplace(epsilon: Any, order: Any, xp: ModuleType) -> Any:
    """Return the Renyi divergence of Laplace noise.

    It is log(a/(2a-1) e^((a-1) eps) + (a-1)/(2a-1) e^(-a eps)) / (a-1).
    """
    above, twice = order - 1, 2 * order - 1
    near = order * epsilon < 1
    rate, a = (
        xp.where(near, epsilon, xp.ones_like(epsilon)),
        xp.where(near, order, 2 * xp.ones_like(order)),
    )
    # The terms of first order in eps cancel, and are left out of both exponentials.
    excess = (a * _second_order((a - 1) * rate, xp) + (a - 1) * _second_order(-a * rate, xp)) / (
        2 * a - 1
    )
    far = (
        epsilon
        + (xp.log1p(above / order * xp.exp(-twice * epsilon)) - xp.log1p(above / order)) / above
    )
    return xp.where(near, xp.log1p(excess) / above, far)


def zcdp_of_laplace(epsilon: float) -> float:
    """Return the rho of zCDP of Laplace noise, eps + e^-eps - 1 (Harrison and Manurangsi 2025).

    This is the divergence of order 1.
    """
    return float(_second_order(np.float64(-epsilon), np))


def epsilon_at_order(rdp: Any, order: Any, log_above: Any, nats: Any, xp: ModuleType) -> Any:
    """Return the epsilon that (order, rdp)-RDP implies at delta = e^-nats.

    Canonne, Kamath and Steinke (2020), Proposition 12; ``log_above`` is log(order - 1).
    """
    share = xp.log1p(xp.exp(-log_above))  # log(a / (a - 1))
    return rdp + (nats - log_above - share) / (order - 1) - share


def log_delta_at_order(rdp: Any, order: Any, log_above: Any, epsilon: Any, xp: ModuleType) -> Any:
    """Return the log(delta) that (order, rdp)-RDP implies at epsilon.

    This is the inverse of :func:`epsilon_at_order`.
    """
    return (order - 1) * (rdp - epsilon) - order * xp.log1p(xp.exp(-log_above)) - log_above


def minus_rho_at_order(
    rdp: Any, order: Any, log_above: Any, epsilon: Any, nats: Any, xp: ModuleType
) -> Any:
    """Return minus the largest rho that implies (epsilon, e^-nats)-DP.

    (order, rdp + order * rho)-RDP implies it. The best order minimizes it.
    """
    return (epsilon_at_order(rdp, order, log_above, nats, xp) - epsilon) / order


def best_order(
    objective: Callable[[Any, Any], Any], shape: tuple[int, ...], dtype: Any, xp: ModuleType
) -> tuple[Any, Any]:
    """Return approximately the order a that minimizes an objective, and log(a - 1).

    Both have the shape ``shape``. By seven grids, each narrower around the best point of the
    previous one. Every order gives a valid bound, so a local minimum costs tightness but not
    privacy.

    Args:
        objective: a function of orders and log(order - 1), ``(*shape, points)``, that returns an
            array of that shape.
        shape: the batch shape.
        dtype: of the orders.
        xp: numpy or jax.numpy.
    """
    fractions = xp.asarray(np.linspace(-1, 1, _POINTS), dtype).reshape((1,) * len(shape) + (-1,))
    center, reach = xp.full((*shape, 1), (_LOWEST + _HIGHEST) / 2, dtype), (_HIGHEST - _LOWEST) / 2
    for _ in range(_ROUNDS):
        log_above = center + reach * fractions
        value = objective(1 + xp.exp(log_above), log_above)
        best = xp.argmin(xp.where(xp.isnan(value), xp.inf, value), axis=-1)[..., None]
        center, reach = xp.take_along_axis(log_above, best, axis=-1), reach * 4 / _POINTS
    return 1 + xp.exp(center[..., 0]), center[..., 0]


def smallest_on_host(
    objective: Callable[..., Any], curve: Callable[[np.ndarray], np.ndarray], *numbers: float
) -> float:
    """Return ``objective(curve(order), order, log(order - 1), *numbers)`` at its best order.

    Infinity if the objective is NaN at every order.
    """

    def at(order: np.ndarray, log_above: np.ndarray) -> np.ndarray:
        return objective(curve(order), order, log_above, *numbers, np)

    with np.errstate(over="ignore", invalid="ignore"):
        found = float(at(*best_order(at, (), np.float64, np)))
    return inf if isnan(found) else found
