"""Binomial tails and Clopper-Pearson limits, exact but for rounding, in float64 on the host.

A probability is Loader's saddle-point form (2000), whose terms are small wherever the probability is not: a difference of
log-factorials loses 3e-8 of it at 10^7 trials. A tail is its first probability times 1 + r_1 + r_1 r_2 + ..., summed away from the
mode, where the ratios r are below 1 and nothing cancels. Relative error: below 1e-12 up to 10^4 trials, below 1e-10 up to 10^7,
where the result does not underflow.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import factorial, log, pi

import numpy as np
from numpy.typing import ArrayLike

Array = np.ndarray

_TABLE = np.array([0.0, *(log(factorial(n)) + n - 0.5 * log(2 * pi * n) - n * log(n) for n in range(1, 16))])
_CHUNK = 2**21  # terms of the sum at a time
_ITERATIONS = 64  # halvings of 765 nats of log-odds: down to the spacing of floats
_LOG_ODDS = (-720.0, 45.0)


def mass(successes: ArrayLike, *, trials: ArrayLike, probability: ArrayLike, complement: ArrayLike | None = None) -> Array:
    """Return P[Binomial(trials, probability) = successes].

    Args:
        successes: integers ``(...)``; outside 0..trials the result is 0.
        trials: integers that broadcast against them.
        probability: floats in [0, 1] that broadcast against them.
        complement: 1 - ``probability`` at full precision; None computes it.

    Returns:
        float64 of the broadcast shape.

    >>> round(float(mass(1, trials=2, probability=0.5)), 12)
    0.5
    """
    k, n, p, q = _arrays(successes, trials, probability, complement)
    inside = (k >= 0) & (k <= n)
    return np.where(inside, np.exp(_log_mass(np.clip(k, 0, n), n, p, q)), 0.0)


def log_mass(successes: ArrayLike, *, trials: ArrayLike, probability: ArrayLike, complement: ArrayLike | None = None) -> Array:
    """Return the logarithm of :func:`mass` for successes in 0..trials; it does not underflow.

    >>> round(float(log_mass(5000, trials=10_000, probability=1e-9)), 3)
    -96689.688
    """
    return _log_mass(*_arrays(successes, trials, probability, complement))


def upper_tail(successes: ArrayLike, *, trials: ArrayLike, probability: ArrayLike, complement: ArrayLike | None = None) -> Array:
    """Return P[Binomial(trials, probability) >= successes].

    Args:
        successes: integers ``(...)``, any.
        trials: integers that broadcast against them.
        probability: floats in [0, 1] that broadcast against them.
        complement: 1 - ``probability`` at full precision; None computes it.

    Returns:
        float64 of the broadcast shape.

    References:
        Loader (2000), "Fast and accurate computation of binomial probabilities".

    >>> round(float(upper_tail(2, trials=3, probability=0.5)), 12)
    0.5
    """
    k, n, p, q = _arrays(successes, trials, probability, complement)
    inside = np.clip(k, 1, np.maximum(n, 1))
    size = np.maximum(n, 1)
    above = inside > size * p  # then sum upwards from k, else downwards from k - 1, mirrored
    start = np.where(above, inside, size - inside + 1)
    tail = _tail_beyond_the_mode(start, size, np.where(above, p, q), np.where(above, q, p))
    return np.where(k <= 0, 1.0, np.where(k > n, 0.0, np.where(above, tail, 1 - tail)))


def lower_tail(successes: ArrayLike, *, trials: ArrayLike, probability: ArrayLike, complement: ArrayLike | None = None) -> Array:
    """Return P[Binomial(trials, probability) <= successes]; see :func:`upper_tail`.

    >>> round(float(lower_tail(0, trials=3, probability=0.5)), 12)
    0.125
    """
    k, n, p, q = _arrays(successes, trials, probability, complement)
    return upper_tail(n - k, trials=n, probability=q, complement=p)


def lower_limit(successes: ArrayLike, *, trials: ArrayLike, error: ArrayLike) -> Array:
    """Return the Clopper-Pearson lower limit: the largest p with ``P[Binomial(trials, p) >= successes] <= error``.

    The true probability is below it with probability at most ``error``, whatever it is. The limit is a number that passes that
    test, so it is rounded to the safe side.

    Args:
        successes: integers ``(...)`` in 0..trials.
        trials: positive integers that broadcast against them.
        error: floats strictly between 0 and 1 that broadcast against them.

    Returns:
        float64 of the broadcast shape; 0 for no success.

    References:
        Clopper and Pearson (1934).

    >>> bool(np.isclose(lower_limit(10, trials=10, error=0.05), 0.05 ** (1 / 10)))
    True
    """
    return _sigmoid(_limit_log_odds(successes, trials, error))


def upper_limit(successes: ArrayLike, *, trials: ArrayLike, error: ArrayLike) -> Array:
    """Return the Clopper-Pearson upper limit: the smallest p with ``P[Binomial(trials, p) <= successes] <= error``.

    The true probability is above it with probability at most ``error``. Arguments as :func:`lower_limit`.

    >>> bool(np.isclose(upper_limit(0, trials=100, error=0.05), 1 - 0.05 ** (1 / 100)))
    True
    """
    return _sigmoid(-_limit_log_odds(np.asarray(trials) - np.asarray(successes), trials, error))


def _limit_log_odds(successes: ArrayLike, trials: ArrayLike, error: ArrayLike) -> Array:
    """The log-odds of the lower limit, -inf at no success. Every distinct question is answered once."""
    given = np.broadcast_arrays(np.asarray(successes, np.float64), np.asarray(trials, np.float64), np.asarray(error, np.float64))
    questions, back = np.unique(np.stack([np.ravel(a) for a in given]), axis=1, return_inverse=True)
    k, n, most = questions
    low, high = (np.full(k.shape, end) for end in _LOG_ODDS)
    for _ in range(_ITERATIONS):
        middle = (low + high) / 2
        passes = upper_tail(k, trials=n, probability=_sigmoid(middle), complement=_sigmoid(-middle)) <= most
        low, high = np.where(passes, middle, low), np.where(passes, high, middle)
    return np.where(k <= 0, -np.inf, low)[back.reshape(-1)].reshape(given[0].shape)


def _arrays(successes: ArrayLike, trials: ArrayLike, probability: ArrayLike, complement: ArrayLike | None) -> Sequence[Array]:
    p = np.asarray(probability, np.float64)
    q = 1 - p if complement is None else np.asarray(complement, np.float64)
    return np.broadcast_arrays(np.asarray(successes, np.float64), np.asarray(trials, np.float64), p, q)


def _sigmoid(x: Array) -> Array:
    decay = np.exp(-np.abs(x))
    return np.where(x >= 0, 1.0, decay) / (1 + decay)


def _log_mass(k: Array, n: Array, p: Array, q: Array) -> Array:
    """Loader's form for 0 < k < n; the two ends are powers."""
    with np.errstate(divide="ignore", invalid="ignore"):
        log_p = np.where(p < 0.5, np.log(p), np.log1p(-q))
        log_q = np.where(q < 0.5, np.log(q), np.log1p(-p))
        inner = (
            _stirling_error(n)
            - _stirling_error(k)
            - _stirling_error(n - k)
            - _deviance(k, n * p)
            - _deviance(n - k, n * q)
            - 0.5 * np.log(2 * pi * k * ((n - k) / n))
        )
        ends = np.where(k > 0, n * log_p, n * log_q)
    ends = np.where(n > 0, ends, 0.0)
    return np.where((k > 0) & (k < n), inner, ends)


def _stirling_error(n: Array) -> Array:
    """log(n!) minus Stirling's formula; the series is off by 2e-16 from 16 on."""
    large = np.maximum(n, 16.0)
    square = large * large
    series = (1 / 12 - (1 / 360 - (1 / 1260 - (1 / 1680 - 1 / 1188 / square) / square) / square) / square) / large
    return np.where(n < 16, _TABLE[np.minimum(n, 15).astype(int)], series)


def _deviance(k: Array, expected: Array) -> Array:
    """Return k log(k / expected) + expected - k; the excess keeps few digits of an expected number far below k."""
    excess = (expected - k) / k
    return k * (excess - np.where(np.abs(excess) < 0.5, np.log1p(excess), np.log(expected / k)))


def _tail_beyond_the_mode(start: Array, n: Array, p: Array, q: Array) -> Array:
    """P[Binomial(n, p) >= start] for ``start`` above n p: consecutive probabilities fall, by ratios that fall."""
    shape = start.shape
    start, n, p, q = (np.ravel(a) for a in (start, n, p, q))
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        odds = np.where(start < n, p / q, 0.0)
    total, last = np.ones(start.shape), np.ones(start.shape)
    rows, done, size = np.arange(start.size), 0, 64
    while rows.size:
        at, left = start[rows, None], (n - start)[rows, None]
        step = np.arange(done, done + size, dtype=np.float64)
        ratio = np.maximum(left - step, 0.0) / (at + step + 1) * odds[rows, None]
        terms = last[rows, None] * np.cumprod(ratio, axis=1)
        total[rows] += terms.sum(axis=1)
        last[rows] = terms[:, -1]
        done, size = done + size, max(64, min(2 * size, _CHUNK // rows.size))
        # What is left is below a geometric series.
        rows = rows[terms[:, -1] > 1e-17 * total[rows] * (1 - ratio[:, -1])]
    return (np.exp(_log_mass(start, n, p, q)) * total).reshape(shape)
