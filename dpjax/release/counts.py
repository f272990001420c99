"""The release of counts: of all records, or of those in each bin, with discrete Laplace noise, drawn exactly."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np

from dpjax import checks
from dpjax.release.candidates import counts_of, increasing, reals
from dpjax.release.discrete_laplace import draw_discrete_laplace
from dpjax.release.records import Records
from dpjax.release.result import EVALUATE, Release, cost_of
from dpjax.release.tables import exact_epsilon


def count(x: Any, *, epsilon: float, mask: Any = None, draws: int = 1) -> Release:
    """Release the number of records of every row, drawn exactly: what ``dpjax.laplace(dpjax.count(x), epsilon)`` simulates.

    Args:
        x: numbers ``(..., n)``, of which NaN are absent; this and the rest as for :func:`median`.
        epsilon: from 2^-30 to 64 for each draw.
        mask: which records count.
        draws: how many from each row.

    Returns:
        A :class:`Release` of integers ``(draws, ...)``, which may be negative: to clamp them costs nothing.

    Privacy:
        Under add/remove, epsilon-DP for each draw, exactly. Public: the shape of ``x``. Not covered: as :func:`median`.

    References:
        Ghosh, Roughgarden and Sundararajan (2009).

    >>> found = count([31, 70, 28, 81], epsilon=32.0)
    >>> found.values.tolist(), print(found.guarantee)
    32-DP and 64-bounded-range under add_remove neighbors
    ([4.0], None)
    """
    records = Records(x, None, "add_remove", mask, read=reals)
    values, present = records.read(slice(None))
    return _release(np.sum(_between(values, -np.inf, None) & present, axis=-1).reshape(records.batch), epsilon, draws)


def histogram(x: Any, *, epsilon: float, edges: Any = None, candidates: Any = None, mask: Any = None, draws: int = 1) -> Release:
    """Release the number of records in each bin, or of those equal to each candidate: :func:`count` for all of them together.

    Args:
        x: numbers ``(..., n)``; this and the rest as for :func:`count`.
        epsilon: for each draw of all bins.
        edges: ``(bins + 1,)``, public, increasing: each bin holds its lower edge, the last one its upper, too.
        candidates: ``(bins,)``, public, finite and increasing: instead of ``edges``.
        mask: which records count.
        draws: how many of all bins.

    Returns:
        A :class:`Release` of integers ``(draws, ..., bins)``.

    Raises:
        ValueError: not one of ``edges`` and ``candidates``, or ones that do not increase.

    Privacy:
        That of :func:`count`, for all bins together: a record is in one of them only. Public: the bins and the shape of ``x``.

    References:
        Ghosh, Roughgarden and Sundararajan (2009); McSherry (2009), Theorem 4.

    >>> histogram([31, 70, 28, 81], edges=[0, 30, 60, 90], epsilon=32.0).values.tolist()
    [[1.0, 1.0, 2.0]]
    """
    if (edges is None) == (candidates is None):
        raise ValueError("a histogram needs edges or candidates: exactly one of them.")
    public = increasing("edges", edges, 2) if candidates is None else increasing("candidates", candidates, 1)
    records = Records(x, None, "add_remove", mask, read=reals)
    values, present = records.read(slice(None))
    if candidates is not None:
        found = counts_of(values, present, public.tolist())
    else:
        ends = zip(public[:-1], [*public[1:-1], np.nextafter(public[-1], np.inf)], strict=True)
        found = np.stack([np.sum(_between(values, *end) & present, axis=-1) for end in ends], axis=-1)
    return _release(found.reshape(*records.batch, -1), epsilon, draws)


def _between(values: np.ndarray, low: float, high: float | None) -> np.ndarray:
    """Which values lie in [low, high), bool; NaN does not."""
    with np.errstate(invalid="ignore"):  # a signaling NaN
        return (values >= low).astype(bool) & (True if high is None else (values < high).astype(bool))


def _release(numbers: np.ndarray, epsilon: float, draws: int) -> Release:
    """Add noise to counts of any shape, which one record more or less changes by 1 in one place."""
    if draws is EVALUATE:
        raise ValueError("exact_distribution is for statistics with a profile; dpjax.laplace has the distribution of a count.")
    number, rate = checks.static_integer("draws", draws, 1), exact_epsilon(epsilon)
    noise = draw_discrete_laplace([rate], math.prod(numbers.shape), number).reshape(number, *numbers.shape)
    multiples = numbers.astype(np.int64) + noise
    return Release(multiples.astype(np.float64), multiples, Fraction(1), cost_of(rate, number, "add_remove", ranges=2))
