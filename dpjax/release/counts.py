"""The number of occurrences of each value of a public grid in each group.

A release uses nothing else of the records.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

# Larger counts of one value are clamped to this, so that no sum of 2^30 counts exceeds 64 bits
MOST = 2**32


class Grouped:
    """Entries of all groups in flat arrays, of which group g has the slice of two ``starts``."""

    starts: np.ndarray

    @property
    def groups(self) -> int:
        """The number of groups."""
        return len(self.starts) - 1

    @cached_property
    def group(self) -> np.ndarray:
        """The group of each entry, int64."""
        return np.repeat(np.arange(self.groups), np.diff(self.starts))


@dataclass(frozen=True, eq=False)
class Counts(Grouped):
    """The distinct values of each group, ascending, and their counts, as flat arrays.

    Attributes:
        starts: int64 ``(groups + 1,)``: group g has the entries from ``starts[g]`` to
            ``starts[g + 1]``.
        values: int64 ``(entries,)``, positions on a public grid, at least 0.
        counts: int64 ``(entries,)``, the number of records with each value, positive.

    >>> counts = Counts.of_rows([0, 0, 2, 0], [5, 3, 1, 5], [1, 2, 1, 1], groups=3)
    >>> counts.starts.tolist(), counts.values.tolist(), counts.counts.tolist()
    ([0, 2, 2, 3], [3, 5, 1], [2, 2, 1])
    """

    starts: np.ndarray
    values: np.ndarray
    counts: np.ndarray

    @staticmethod
    def of_rows(group: Any, value: Any, count: Any, *, groups: int) -> Counts:
        """Return the counts of rows (group, value, count) in any order.

        Counts of equal values are added.

        Args:
            group: integers ``(rows,)`` from 0 to ``groups - 1``; rows of other groups are left out.
            value: integers ``(rows,)``, from 0 to 2^31.
            count: integers ``(rows,)``; rows with a count of 0 or less are left out.
            groups: the number of groups.
        """
        group, value = np.asarray(group), np.asarray(value)
        count = np.minimum(count, np.int64(MOST)).astype(np.int64)  # also of unsigned integers
        used = (group >= 0) & (group < groups) & (count > 0)
        if not used.all():
            group, value, count = group[used], value[used], count[used]
        bits = int(value.max(initial=0)).bit_length()
        key = group.astype(np.int64) << bits | value.astype(np.int64)
        if np.any(key[1:] <= key[:-1]):  # Otherwise no value occurs twice, and all is in order
            order = np.argsort(key, kind="stable")
            key, count = key[order], count[order]
            first = np.flatnonzero(np.diff(key, prepend=-1))
            count = np.minimum(sums_of(count, np.append(first, len(key))), MOST)
            key = key[first]
        starts = np.searchsorted(key, np.arange(groups + 1) << bits)
        return Counts(starts, key & ((1 << bits) - 1), count)

    @property
    def totals(self) -> np.ndarray:
        """The number of records of each group, int64 ``(groups,)``."""
        return sums_of(self.counts, self.starts)

    def some(self, start: int, stop: int) -> Counts:
        """Return the counts of groups ``start`` to ``stop - 1``."""
        starts = self.starts[start : stop + 1]
        own = slice(starts[0], starts[-1])
        return Counts(starts - starts[0], self.values[own], self.counts[own])


def running_sums(numbers: np.ndarray, starts: np.ndarray) -> np.ndarray:
    """Return the running sums of integers within each segment.

    They are exact even if the total overflows, since the start of the segment is subtracted modulo
    2^64.
    """
    sums = np.cumsum(numbers)
    before = np.append(0, sums)[starts[:-1]]
    return sums - np.repeat(before, np.diff(starts))


def sums_of(numbers: np.ndarray, starts: np.ndarray) -> np.ndarray:
    """Return the sum of each segment, which may be empty; for integers it is exact."""
    kind = numbers.dtype if numbers.dtype.kind in "fO" else np.dtype(np.int64)
    found = np.zeros(len(starts) - 1, kind)
    filled = np.flatnonzero(np.diff(starts))
    if filled.size:
        found[filled] = np.add.reduceat(numbers, starts[filled], dtype=kind)
    return found
