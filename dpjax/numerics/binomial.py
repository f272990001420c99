"""Binomial tails and Clopper-Pearson limits, by the incomplete beta function.

P[Binomial(n, p) >= k] = I_p(k, n - k + 1). Where the result does not underflow, the relative error
of SciPy's ``betainc`` is below 1e-12 up to 10^4 trials and below 1e-9 up to 10^7, and for p >= 1/2
below 1e-11 (that of ``bdtrc`` is up to 2e-4). ``scipy.special`` is imported on first use, as this
takes a tenth of a second.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike

Array = np.ndarray
_ULP = 2.0**-52


def upper_tail(successes: ArrayLike, *, trials: ArrayLike, probability: ArrayLike) -> Array:
    """Return P[Binomial(trials, probability) >= successes], float64 of the broadcast shape.

    >>> round(float(upper_tail(2, trials=3, probability=0.5)), 12)
    0.5
    """
    from scipy.special import betainc

    return _tail(
        betainc, np.asarray(successes, np.float64), np.asarray(trials, np.float64), probability, 1.0
    )


def lower_tail(successes: ArrayLike, *, trials: ArrayLike, probability: ArrayLike) -> Array:
    """Return P[Binomial(trials, probability) <= successes], float64 of the broadcast shape.

    >>> round(float(lower_tail(0, trials=3, probability=0.5)), 12)
    0.125
    """
    from scipy.special import betaincc

    return _tail(
        betaincc,
        np.asarray(successes, np.float64) + 1,
        np.asarray(trials, np.float64),
        probability,
        0.0,
    )


def _tail(
    function: Callable[..., Array], k: Array, n: Array, probability: ArrayLike, at_zero: float
) -> Array:
    """Return the incomplete beta function of (k, n - k + 1), or its complement.

    For k up to 0 it is ``at_zero``, and for k above n ``1 - at_zero``.
    """
    inside = (k > 0) & (k <= n)
    tail = function(np.where(inside, k, 1.0), np.where(inside, n - k + 1, 1.0), probability)
    return np.where(inside, tail, np.where(k <= 0, at_zero, 1 - at_zero))


def lower_limit(successes: ArrayLike, *, trials: ArrayLike, error: ArrayLike) -> Array:
    """Return the Clopper-Pearson lower limit.

    It is the largest p with ``P[Binomial(trials, p) >= successes] <= error``. The true probability
    is below the limit with probability at most ``error``. The limit satisfies the inequality as
    computed, so that it is rounded down.

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
    from scipy.special import betaincinv

    k, n = np.maximum(successes, 1.0), np.asarray(trials, np.float64)
    limit = _until(
        lambda p: upper_tail(k, trials=n, probability=p) <= error,
        betaincinv(k, n - k + 1, error),
        -_ULP,
    )
    return np.where(np.asarray(successes) > 0, limit, 0.0)


def upper_limit(successes: ArrayLike, *, trials: ArrayLike, error: ArrayLike) -> Array:
    """Return the Clopper-Pearson upper limit.

    It is the smallest p with ``P[Binomial(trials, p) <= successes] <= error``. The true probability
    is above the limit with probability at most ``error``. It is 1 if all trials are successes.
    Arguments are those of :func:`lower_limit`.

    >>> bool(np.isclose(upper_limit(0, trials=100, error=0.05), 1 - 0.05 ** (1 / 100)))
    True
    """
    from scipy.special import betainccinv

    n = np.asarray(trials, np.float64)
    k = np.minimum(successes, n - 1)
    limit = _until(
        lambda p: lower_tail(k, trials=n, probability=p) <= error,
        betainccinv(k + 1, n - k, error),
        _ULP,
    )
    return np.where(np.asarray(successes) < n, limit, 1.0)


def _until(passes: Callable[[Array], Array], found: Array, step: float) -> Array:
    """Move ``found`` by a relative step, which doubles each time, until the test passes."""
    while not np.all(good := passes(found) | (found >= 1)):
        found = np.where(good, found, np.minimum(found * (1 + step), 1.0))
        step *= 2
    return found
