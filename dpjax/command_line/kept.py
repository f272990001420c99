"""What is kept of a file while it is read: of a column on a public grid how many records each number has, otherwise its records.

The numbers of a grid take 16 bytes for each that occurs in a group, whatever the number of lines (a few times that while they are
joined: a grid on which no two records agree saves nothing), and up to 8 MiB for each column while the file is read; records take 4
bytes (of float64 8), and one or more for their group, twice while they are put in order. Either gives the records of a group back,
all of them or, for one quantile, those near it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np

from dpjax.checks import Neighbors
from dpjax.frames.grouping import power
from dpjax.release.grid import Multiples
from dpjax.several_quantiles.ranks import Ranks

_SMALL = 2**20  # numbers below it are counted each in its place
_LEAST = 2**19  # that are found before they are joined with those found before
_AT_A_TIME = 2**22  # records that are compared


class Near(NamedTuple):
    """What is read of records for one quantile.

    Attributes:
        ranks: where its profile reads.
        levels: how many it has at most.
    """

    ranks: Ranks
    levels: int


@dataclass(frozen=True)
class Table:
    """What was read of a file.

    Attributes:
        columns: their names.
        labels: of the groups: tuples of text, one for each column of groups.
        groups: their numbers in ``kept``.
        sizes: int64 ``(groups,)``, how many records each has.
        missing: int64 ``(columns, groups)``, how many of them have no value.
        infinite: int64 ``(columns, groups)``, how many have an infinite one.
        kept: the records.
    """

    columns: list[str]
    labels: list[tuple[str, ...]]
    groups: np.ndarray
    sizes: np.ndarray
    missing: np.ndarray
    infinite: np.ndarray
    kept: Any

    def only(self, some: np.ndarray) -> Table:
        """Return the groups at these places, in this order."""
        parts = self.groups[some], self.sizes[some], self.missing[:, some], self.infinite[:, some]
        return Table(self.columns, [self.labels[k] for k in some], *parts, self.kept)

    def present(self, column: int) -> np.ndarray:
        """How many records of a column each group has, int64: under swap also those that are missing."""
        return self.sizes if self.kept.neighbors == "swap" else self.sizes - self.missing[column]

    def padded(
        self, column: int, some: np.ndarray, shape: tuple[int, int], near: Near | None, dtype: Any
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return records of some groups as rows padded with NaN, and int32 ``(rows,)`` how many there are; ``shape`` holds all.

        If ``near`` is a quantile whose profile is all that will be read, there are fewer records and places, and the profile is the
        same.
        """
        rows, places = shape
        if near is not None:
            places = min(places, power(near.ranks.enough(near.levels) + near.ranks.denominator))
        found, count = np.full((rows, places), np.nan, dtype), np.zeros(rows, np.int32)
        for row, (group, n) in enumerate(zip(self.groups[some], self.present(column)[some].tolist(), strict=True)):
            records = self.kept.records(column, group, (0, 0) if near is None else near.ranks.unread(n, near.levels))
            count[row] = records.size
            found[row, : records.size] = records
        return found, count


class Keeper:
    """Keeps blocks of records, and counts them.

    Args:
        columns: their names.
        kept: where records go.
    """

    def __init__(self, columns: Sequence[str], kept: Counted | Listed) -> None:
        self._columns, self._kept = list(columns), kept
        self._counts = np.zeros((1 + 2 * len(self._columns), 1), np.int64)

    def add(self, columns: Sequence[np.ndarray], codes: np.ndarray) -> None:
        """Take in records, float64 ``(n,)`` each, and their groups, int32 ``(n,)``; -1 for records that count nowhere."""
        if np.any(codes < 0):
            there = codes >= 0
            columns, codes = [values[there] for values in columns], codes[there]
        new = int(np.max(codes, initial=-1)) + 1 - self._counts.shape[1]
        if new > 0:
            self._counts = np.pad(self._counts, [(0, 0), (0, power(new + self._counts.shape[1]))])
        number = len(columns)
        np.add.at(self._counts[0], codes, 1)
        for k, values in enumerate(columns):
            np.add.at(self._counts[1 + k], codes[np.isnan(values)], 1)
            np.add.at(self._counts[1 + number + k], codes[np.isinf(values)], 1)
        self._kept.add(columns, codes)

    def table(self, labels: Sequence[tuple[str, ...]]) -> Table:
        """Return what was read, with the labels of all groups."""
        number, groups = len(self._columns), len(labels)
        counts = np.pad(self._counts, [(0, 0), (0, max(groups - self._counts.shape[1], 0))])[:, :groups]
        self._kept.close(counts[0])
        parts = counts[0], counts[1 : 1 + number], counts[1 + number :]
        return Table(self._columns, list(labels), np.arange(groups), *parts, self._kept)


class Counted:
    """How many records there are at each number of a grid.

    Args:
        grids: of each column.
        neighbors: a missing record is absent under add/remove, and the lower bound under swap.
    """

    def __init__(self, grids: Sequence[Multiples], neighbors: Neighbors) -> None:
        self.grids, self.neighbors = list(grids), neighbors
        self._found = [_Distinct() for _ in self.grids]

    def add(self, columns: Sequence[np.ndarray], codes: np.ndarray) -> None:
        """Take in records and their groups."""
        for found, grid, values in zip(self._found, self.grids, columns, strict=True):
            cells, present = grid.numbers_of(values)
            keys = codes * np.int64(grid.size) + cells
            found.add(keys if self.neighbors == "swap" or np.all(present) else keys[present])

    def close(self, sizes: np.ndarray) -> None:
        """All are there."""
        for found in self._found:
            found.close()

    def records(self, column: int, group: int, unread: tuple[int, int] = (0, 0)) -> np.ndarray:
        """The rounded records of a group, float64, ascending, but for so many of the smallest and of the largest."""
        cells, counts = self._of(column, group)
        ends = np.cumsum(counts)
        last = int(ends[-1]) if ends.size else 0
        numbers = np.repeat(cells, np.diff(np.clip(ends, unread[0], last - unread[1]), prepend=unread[0]))
        return self.grids[column].values_of(numbers)

    def ties(self, column: int, group: int, values: np.ndarray) -> np.ndarray:
        """How many records of a group equal each of some values ``(k,)``, int64, in the precision of those."""
        cells, counts = self._of(column, group)
        same = self.grids[column].values_of(cells).astype(values.dtype) == values[:, None]
        return np.sum(np.where(same, counts, 0), axis=-1)

    def _of(self, column: int, group: int) -> tuple[np.ndarray, np.ndarray]:
        keys, counts = self._found[column].keys, self._found[column].counts
        start = group * self.grids[column].size
        some = slice(*np.searchsorted(keys, [start, start + self.grids[column].size]))
        return keys[some] - start, counts[some]


class _Distinct:
    """Different integers from 0 on, ascending, and how often each occurs, once it is closed."""

    def __init__(self) -> None:
        self.keys = self.counts = np.zeros(0, np.int64)
        self._new: list[tuple[np.ndarray, np.ndarray]] = []
        self._size = 0

    def add(self, keys: np.ndarray) -> None:
        if np.max(keys, initial=0) < _SMALL:
            counts = np.bincount(keys)
            found = np.flatnonzero(counts)
            self._new.append((found, counts[found]))
        else:
            self._new.append(np.unique(keys, return_counts=True))
        self._size += self._new[-1][0].size
        if self._size >= max(self.keys.size, _LEAST):  # so that each is moved a few times only
            self.close()

    def close(self) -> None:
        keys, counts = (np.concatenate(parts) for parts in zip((self.keys, self.counts), *self._new, strict=True))
        order = np.argsort(keys, kind="stable")  # which merges what is sorted
        keys, counts = keys[order], counts[order]
        first = np.flatnonzero(np.diff(keys, prepend=-1))
        self.keys, self.counts = keys[first], np.add.reduceat(counts, first)
        self._new, self._size = [], 0


class Listed:
    """The records themselves.

    Args:
        bounds: of each column, to which records are clamped: in float64, so that none overflows.
        neighbors: a missing record is absent under add/remove, and the lower bound under swap.
        dtype: of what is kept.
        resolution: to which records are rounded where ties are counted.
    """

    def __init__(
        self, bounds: Sequence[tuple[float, float]], neighbors: Neighbors, dtype: Any, resolution: Fraction | None = None
    ) -> None:
        self.neighbors, self._bounds, self._dtype, self._resolution = neighbors, list(bounds), dtype, resolution
        self._blocks: list[tuple[np.ndarray, list[np.ndarray]]] = []
        self._columns: list[np.ndarray] = []
        self._starts = np.zeros(1, np.int64)

    def add(self, columns: Sequence[np.ndarray], codes: np.ndarray) -> None:
        """Take in records and their groups."""
        kept = []
        for values, (low, high) in zip(columns, self._bounds, strict=True):
            inside = np.where(np.isnan(values), low, values) if self.neighbors == "swap" else values
            kept.append(np.clip(inside, low, high).astype(self._dtype))
        self._blocks.append((codes.astype(np.min_scalar_type(int(np.max(codes, initial=0)))), kept))

    def close(self, sizes: np.ndarray) -> None:
        """All are there: order them by group, and let go of each block."""
        self._starts = np.concatenate([[0], np.cumsum(sizes)])
        self._columns = [np.empty(self._starts[-1], self._dtype) for _ in self._bounds]
        free, blocks = self._starts[:-1].copy(), self._blocks[::-1]
        self._blocks = []
        while blocks:
            codes, kept = blocks.pop()
            order = np.argsort(codes, kind="stable")
            groups, first, number = np.unique(codes[order], return_index=True, return_counts=True)
            places = np.repeat(free[groups] - first, number) + np.arange(codes.size)
            free[groups] += number
            for column, values in zip(self._columns, kept, strict=True):
                column[places] = values[order]

    def records(self, column: int, group: int, unread: tuple[int, int] = (0, 0)) -> np.ndarray:
        """The records of a group, clamped, but for so many of the smallest and of the largest."""
        found = self._of(column, group)
        if not any(unread):
            return found[~np.isnan(found)]
        end = found.size - int(np.count_nonzero(np.isnan(found))) - unread[1]
        found.partition([max(unread[0], 0), max(end - 1, 0)])  # in place; NaN comes last
        return found[unread[0] : end]

    def ties(self, column: int, group: int, values: np.ndarray) -> np.ndarray:
        """How many records of a group equal each of some values ``(k,)``, int64, in the precision of those."""
        found, step = np.zeros(values.shape, np.int64), self._resolution
        for some in np.array_split(self._of(column, group), max(self._of(column, group).size // _AT_A_TIME, 1)):
            if step is not None:
                some = np.rint(some * step.denominator / step.numerator) * step.numerator / step.denominator
            found += np.array([np.count_nonzero(some.astype(values.dtype) == value) for value in values])
        return found

    def _of(self, column: int, group: int) -> np.ndarray:
        return self._columns[column][self._starts[group] : self._starts[group + 1]]
