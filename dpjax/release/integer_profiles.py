"""From records on the grid to the integer values that a statistic can take after 0, 1, 2, ... individuals change, on the host.

The same statistics as in ``dpjax.statistics``, in integers: their values interleave between neighbours (Corollary 3.1), and integer
interleaving is all that either distribution on the grid needs.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from dpjax.release.grid import as_array, is_integer, without_axes
from dpjax.several_quantiles.ranks import Ranks


class IntegerProfile(NamedTuple):
    """Integer values going outwards from the statistic, which comes first.

    Attributes:
        lower: int32 ``(..., D+1)``, nonincreasing, the last one the end of the range.
        upper: int32 ``(..., U+1)``, nondecreasing, the last one the end of the range.
    """

    lower: np.ndarray
    upper: np.ndarray


def order_statistic(
    cells: np.ndarray, present: np.ndarray, ranks: Ranks, *, high: int, count_is_public: bool, most: int | None = None
) -> IntegerProfile:
    """Return the profile of an order statistic or a quantile, in refined cells, from cells ``(..., n)`` between 0 and ``high``.

    If ``count_is_public`` (swap), all rows have n records, whatever ``present`` says. After ``most`` changes, a public number, the
    profile is taken to be at the ends of the range.
    """
    n_max = cells.shape[-1]
    refined = ranks.refinement
    if ranks.denominator >= 2**31:  # whatever the number of records, which may be private: ranks are 64-bit integers
        raise ValueError(
            f"q has the denominator {ranks.denominator}, too large for exact ranks: give a short decimal or a Fraction such as "
            "Fraction(1, 3)."
        )
    if high * refined >= 2**31:
        instead = "" if refined <= 2 else ", or a q with a smaller denominator, such as Fraction(1, 3) for 0.3333"
        raise ValueError(f"{high} cells refined by {refined} are more than 2^31 - 1: take a coarser grid{instead}.")
    ordered = np.sort(np.where(present, cells, np.int32(high)).astype(np.int32), axis=-1)
    edge = np.zeros((*cells.shape[:-1], 1), np.int32)
    x = np.concatenate([edge, ordered, edge + np.int32(high)], axis=-1)
    n = np.full(edge.shape, n_max) if count_is_public else np.sum(present, axis=-1, keepdims=True, dtype=np.int64)
    all_down, all_up = ranks.levels(n_max)
    down, up = (all_down, all_up) if most is None else (min(all_down, most), min(all_up, most))
    numerator = n * ranks.per_record + ranks.constant + np.arange(-down, up + 1) * ranks.step

    def read(rank: np.ndarray) -> np.ndarray:
        return np.take_along_axis(x, np.clip(rank, 0, n_max + 1), axis=-1).astype(np.int64)

    if ranks.definition == "lower":
        values = read(-(-numerator // ranks.denominator))
    else:
        whole, part = np.divmod(numerator, ranks.denominator)
        values = ranks.denominator * read(whole) + part * (read(whole + 1) - read(whole))
    lower, upper, end = np.flip(values[..., : down + 1], -1), values[..., down:], edge.astype(np.int64)
    if down < all_down:
        lower = np.concatenate([lower, end], axis=-1)
    if up < all_up:
        upper = np.concatenate([upper, end + high * refined], axis=-1)
    return _profile(lower, upper)


def sum_of_records(cells: np.ndarray, *, high: int) -> IntegerProfile:
    """Return the profile of the sum of n records from 0 to ``high``, under swap: each change takes the smallest to the top."""
    n = cells.shape[-1]
    if n * high >= 2**31:
        raise ValueError(f"the sum of {n} records of up to {high} steps passes 2^31 - 1: take a coarser grid.")
    ordered = np.sort(cells.astype(np.int64), axis=-1)
    total = ordered.sum(axis=-1, keepdims=True)
    gained, lost = np.cumsum(high - ordered, axis=-1), np.cumsum(np.flip(ordered, -1), axis=-1)
    return _profile(*(np.concatenate([total, total + change], axis=-1) for change in (-lost, gained)))


def maximum(cells: np.ndarray, present: np.ndarray, *, tau: int, high: int) -> IntegerProfile:
    """Return the profile around the (tau+1)-th largest record: shifted inverse sensitivity of the maximum."""
    return _shifted(np.concatenate([_descending(cells, present), np.zeros((*cells.shape[:-1], 1), np.int64)], axis=-1), tau, high)


def nonnegative_sum(cells: np.ndarray, present: np.ndarray, *, tau: int, high: int) -> IntegerProfile:
    """Return the profile around the sum without its tau largest records: shifted inverse sensitivity of a sum up to ``high``."""
    largest = _descending(cells, present)
    total = largest.sum(axis=-1, keepdims=True)
    return _shifted(np.concatenate([total, total - np.cumsum(largest, axis=-1)], axis=-1), tau, high)


def distinct_count(codes: np.ndarray, present: np.ndarray, *, tau: int, high: int) -> IntegerProfile:
    """Return the profile around the number of different codes that remain when tau people leave, the rarest codes first."""
    n = codes.shape[-1]
    remaining = np.zeros((*codes.shape[:-1], n + 1), np.int64)
    for row in np.ndindex(codes.shape[:-1]):
        gone = np.cumsum(np.sort(np.unique(codes[row][present[row]], return_counts=True)[1]))
        remaining[row] = gone.size - np.searchsorted(gone, np.arange(n + 1), side="right")
    return _shifted(remaining, tau, high)


def _descending(cells: np.ndarray, present: np.ndarray) -> np.ndarray:
    return -np.sort(np.where(present, -cells.astype(np.int64), 0), axis=-1)


def _shifted(values: np.ndarray, tau: int, high: int) -> IntegerProfile:
    """From the values after 0, 1, ... people leave, ``(..., K)``, to the profile around the tau-th of them (Steinke 2023)."""
    missing = max(tau + 1 - values.shape[-1], 0)
    values = np.minimum(np.concatenate([values, np.repeat(values[..., -1:], missing, axis=-1)], axis=-1), high)
    top = np.full_like(values[..., :1], high)
    return _profile(values[..., tau:], np.concatenate([np.flip(values[..., : tau + 1], -1), top], axis=-1))


def _profile(lower: np.ndarray, upper: np.ndarray) -> IntegerProfile:
    return IntegerProfile(lower.astype(np.int32), upper.astype(np.int32))


def codes_of(ids: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return integers that are equal where the ids are, int64, and which ids there are, both of the shape of ``ids``.

    An object is an id if it is an integer or a text; it never raises.
    """
    array = as_array(ids)
    if array.dtype.kind == "O":
        known: dict[Any, int] = {}
        texts = [int(v) if is_integer(v) else str(v) if isinstance(v, str) else None for v in map(without_axes, array.flat)]
        found = np.array([-1 if v is None else known.setdefault(v, len(known)) for v in texts], np.int64).reshape(array.shape)
    elif array.dtype.kind in "iuUSb":
        found = np.unique(array, return_inverse=True)[1].reshape(array.shape).astype(np.int64)
    else:
        raise TypeError(f"ids must be integers or text, got dtype {array.dtype}.")
    return found, found >= 0


def totals_of_persons(cells: np.ndarray, present: np.ndarray, persons: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the total of each person, int64 ``(..., n)`` with zeros after the last of them, and that all are present.

    A total of 0 changes no sum, so it need not be told from an absent person.
    """
    totals = np.zeros(cells.shape, np.int64)
    for row in np.ndindex(cells.shape[:-1]):
        _, person = np.unique(persons[row][present[row]], return_inverse=True)
        np.add.at(totals[row], person, cells[row][present[row]])
    return totals, np.ones(cells.shape, bool)
