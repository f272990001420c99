"""From records on the grid to the integer values that a statistic can take after 0, 1, 2, ... individuals change, on the host.

The same statistics as in ``dpjax.statistics``, in integers: their values interleave between neighbours (Corollary 3.1), and integer
interleaving is all that either law on the grid needs.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dpjax.statistics.quantiles import Ranks


class Knots(NamedTuple):
    """Integer values going outwards from the statistic, which comes first.

    Attributes:
        lower: int32 ``(..., D+1)``, nonincreasing, the last one the end of the range.
        upper: int32 ``(..., U+1)``, nondecreasing, the last one the end of the range.
    """

    lower: np.ndarray
    upper: np.ndarray


def order_knots(cells: np.ndarray, there: np.ndarray, ranks: Ranks, *, high: int, count_is_public: bool) -> Knots:
    """Return the knots of an order statistic, in cells, or of an interpolated quantile, in cells divided by ``ranks.denominator``.

    Args:
        cells: int32 ``(..., n)``, from 0 to ``high``.
        there: bool ``(..., n)``, which records are present.
        ranks: where to read, as in ``dpjax.statistics``.
        high: the largest value; 0 is the smallest.
        count_is_public: whether all rows have n records, whatever ``there`` says (swap).

    Raises:
        ValueError: a refined range beyond 2^31 - 1, or a denominator too large for exact ranks.
    """
    n_max = cells.shape[-1]
    refined = 1 if ranks.definition == "lower" else ranks.denominator
    if ranks.denominator * (n_max + 2) >= 2**31:
        raise ValueError(
            f"q has the denominator {ranks.denominator}, too large for exact ranks of {n_max} records; "
            "give a short decimal or a Fraction such as Fraction(1, 3)."
        )
    if high * refined >= 2**31:
        instead = "" if refined <= 2 else ", or a q with a smaller denominator, such as Fraction(1, 3) for 0.3333"
        raise ValueError(f"{high} cells refined by {refined} are more than 2^31 - 1: take a coarser grid{instead}.")
    ordered = np.sort(np.where(there, cells, high).astype(np.int64), axis=-1)
    edge = np.zeros((*cells.shape[:-1], 1), np.int64)
    x = np.concatenate([edge, ordered, edge + high], axis=-1)
    n = np.full(edge.shape, n_max) if count_is_public else np.sum(there, axis=-1, keepdims=True, dtype=np.int64)
    down, up = ranks.levels(n_max)
    level = np.arange(-down, up + 1)
    numerator = n * ranks.per_record + ranks.constant + level * ranks.step

    def read(rank: np.ndarray) -> np.ndarray:
        return np.take_along_axis(x, np.clip(rank, 0, n_max + 1), axis=-1)

    if ranks.definition == "lower":
        values = read(-(-numerator // ranks.denominator))
    else:
        whole = numerator // ranks.denominator
        part = numerator - whole * ranks.denominator
        values = ranks.denominator * read(whole) + part * (read(whole + 1) - read(whole))
    values = values.astype(np.int32)
    return Knots(np.flip(values[..., : down + 1], -1), values[..., down:])


def sum_knots(cells: np.ndarray, *, high: int) -> Knots:
    """Return the knots of the sum of n records from 0 to ``high``, under swap: each change takes the smallest to the top.

    Raises:
        ValueError: sums beyond 2^31 - 1.
    """
    n = cells.shape[-1]
    if n * high >= 2**31:
        raise ValueError(f"the sum of {n} records of up to {high} steps passes 2^31 - 1: take a coarser grid.")
    ordered = np.sort(cells.astype(np.int64), axis=-1)
    total = ordered.sum(axis=-1, keepdims=True)
    gained, lost = np.cumsum(high - ordered, axis=-1), np.cumsum(np.flip(ordered, -1), axis=-1)
    upper, lower = (np.concatenate([total, total + change], axis=-1).astype(np.int32) for change in (gained, -lost))
    return Knots(lower, upper)


def maximum_knots(cells: np.ndarray, there: np.ndarray, *, tau: int, high: int) -> Knots:
    """Return the knots around the (tau+1)-th largest record: shifted inverse sensitivity of the maximum."""
    largest = -np.sort(np.where(there, -cells.astype(np.int64), 0), axis=-1)
    return _shifted(np.concatenate([largest, np.zeros((*largest.shape[:-1], 1), np.int64)], axis=-1), tau, high)


def total_knots(cells: np.ndarray, there: np.ndarray, *, tau: int, high: int) -> Knots:
    """Return the knots around the sum without its tau largest records: shifted inverse sensitivity of a sum from 0 to ``high``."""
    largest = -np.sort(np.where(there, -cells.astype(np.int64), 0), axis=-1)
    total = largest.sum(axis=-1, keepdims=True)
    left = np.concatenate([total, total - np.cumsum(largest, axis=-1)], axis=-1)
    return _shifted(np.minimum(left, high), tau, high)


def distinct_knots(codes: np.ndarray, there: np.ndarray, *, tau: int, high: int) -> Knots:
    """Return the knots around the number of different codes that are left when tau people leave, the rarest codes first."""
    n = codes.shape[-1]
    left = np.zeros((*codes.shape[:-1], n + 1), np.int64)
    for row in np.ndindex(codes.shape[:-1]):
        gone = np.cumsum(np.sort(np.unique(codes[row][there[row]], return_counts=True)[1]))
        left[row] = gone.size - np.searchsorted(gone, np.arange(n + 1), side="right")
    return _shifted(np.minimum(left, high), tau, high)


def _shifted(values: np.ndarray, tau: int, high: int) -> Knots:
    """From what is left after 0, 1, ... people leave, ``(..., K)``, to the profile around the tau-th of them (Steinke 2023)."""
    missing = max(tau + 1 - values.shape[-1], 0)
    values = np.concatenate([values, np.repeat(values[..., -1:], missing, axis=-1)], axis=-1)
    top = np.full_like(values[..., :1], high)
    upper = np.concatenate([np.flip(values[..., : tau + 1], -1), top], axis=-1)
    return Knots(values[..., tau:].astype(np.int32), upper.astype(np.int32))
