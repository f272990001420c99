"""Roots of monotone functions and limits of binomial probabilities, on the host by SciPy.

Results are rounded to the side where the inequality that they solve holds as computed. SciPy is
imported on first use, as this takes a tenth of a second.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

Array = np.ndarray
_ULP = 2.0**-52


def root(
    excess: Callable[[float], float], low: float, high: float, tolerance: float = 2.0**-49
) -> float:
    """Return a root of a monotone function, rounded to the side where it is at most 0.

    Args:
        excess: positive at one end of the interval and at most 0 at the other, perhaps infinite.
        low: the lower end, at least 0.
        high: the upper end.
        tolerance: the relative error of the root.

    >>> root(lambda x: 2 - x * x, 1.0, 4.0, 1e-3) >= 2**0.5 >= root(lambda x: x * x - 2, 1.0, 4.0)
    True
    """
    from scipy.optimize import brentq

    excess = cache(excess)
    # The root may be smaller than the upper end by any factor
    limits = {"xtol": 1e-300, "rtol": tolerance, "maxiter": 10_000}
    found = brentq(lambda x: min(max(excess(x), -50.0), 50.0), low, high, **limits)
    step = tolerance if excess(high) <= 0 else -tolerance
    return float(_outwards(lambda x: excess(float(x)) <= 0, found, step))


def upper_tail(successes: ArrayLike, *, trials: ArrayLike, probability: ArrayLike) -> Array:
    """Return P[Binomial(n, p) >= k] = I_p(k, n - k + 1), float64 of the broadcast shape.

    Where it does not underflow, the relative error of SciPy's ``betainc`` is below 1e-12 up to 10^4
    trials and below 1e-9 up to 10^7, and for p >= 1/2 below 1e-11 (that of ``bdtrc`` is up to
    2e-4).

    >>> round(float(upper_tail(2, trials=3, probability=0.5)), 12)
    0.5
    """
    from scipy.special import betainc

    k, n = np.asarray(successes, np.float64), np.asarray(trials, np.float64)
    inside = (k > 0) & (k <= n)
    tail = betainc(np.where(inside, k, 1.0), np.where(inside, n - k + 1, 1.0), probability)
    return np.where(inside, tail, k <= 0)


def lower_limit(successes: ArrayLike, *, trials: ArrayLike, error: ArrayLike) -> Array:
    """Return the Clopper-Pearson lower limit.

    It is the largest p with ``P[Binomial(trials, p) >= successes] <= error``, rounded down. The
    true probability is below the limit with probability at most ``error``.

    Args:
        successes: integers ``(...)`` in 0..trials.
        trials: positive integers that broadcast against ``successes``.
        error: floats in (0, 1) that broadcast against them.

    Returns:
        Float64 of the broadcast shape; 0 for no success.

    References:
        Clopper and Pearson (1934).

    >>> bool(np.isclose(lower_limit(10, trials=10, error=0.05), 0.05 ** (1 / 10)))
    True
    """
    from scipy.special import betainc, betaincinv

    a = np.maximum(successes, 1.0)
    b = np.asarray(trials, np.float64) - a + 1
    limit = _outwards(lambda p: betainc(a, b, p) <= error, betaincinv(a, b, error), -_ULP)
    return np.where(np.asarray(successes) > 0, limit, 0.0)


def upper_limit(successes: ArrayLike, *, trials: ArrayLike, error: ArrayLike) -> Array:
    """Return the Clopper-Pearson upper limit.

    It is the smallest p with ``P[Binomial(trials, p) <= successes] <= error``, rounded up. The true
    probability is above the limit with probability at most ``error``. It is 1 if all trials are
    successes. Arguments are those of :func:`lower_limit`.

    >>> bool(np.isclose(upper_limit(0, trials=100, error=0.05), 1 - 0.05 ** (1 / 100)))
    True
    """
    from scipy.special import betaincc, betainccinv

    b = np.maximum(np.subtract(trials, successes), 1.0)
    a = np.asarray(trials, np.float64) - b + 1
    limit = _outwards(
        lambda p: (p >= 1) | (betaincc(a, b, np.minimum(p, 1)) <= error),
        betainccinv(a, b, error),
        _ULP,
    )
    return np.where(np.less(successes, trials), np.minimum(limit, 1), 1.0)


def _outwards(passes: Callable[[Array], Any], found: Array, step: float) -> Array:
    """Move ``found`` by a relative step, which doubles each time, until the test passes."""
    while not np.all(good := passes(found)):
        found = np.where(good, found, found * (1 + step))
        step *= 2
    return found
