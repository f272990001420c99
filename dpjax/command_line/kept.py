"""What is kept of a file while it is read: of a column on a public grid how many records each value has, otherwise its records.

The values of a grid take 16 bytes for each that occurs in a group, whatever the number of lines (a few times that while they are
joined: a grid on which no two records agree saves nothing), and up to 8 MiB for each column while the file is read; records take 8
bytes, and 4 for their group.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dpjax.release.counts import Counts
from dpjax.release.grid import Multiples

_SMALL = 2**20  # numbers below it are counted each in its place
_LEAST = 2**19  # that are found before they are joined with those found before


@dataclass(frozen=True)
class Table:
    """What was read of a file.

    Attributes:
        columns: their names.
        labels: of the groups: tuples of text, one for each column of groups.
        sizes: int64 ``(groups,)``, how many records each has.
        missing: int64 ``(columns, groups)``, how many of them have no value.
        infinite: int64 ``(columns, groups)``, how many have an infinite one.
        beyond: int64 ``(columns, groups)``, how many are at or beyond a bound.
        kept: of each column on a grid its :class:`Counts`, otherwise its records, float64 ``(n,)``.
        codes: int32 ``(n,)``, the group of each record, -1 for none, where records are kept.
    """

    columns: list[str]
    labels: list[tuple[str, ...]]
    sizes: np.ndarray
    missing: np.ndarray
    infinite: np.ndarray
    beyond: np.ndarray
    kept: list[Any]
    codes: np.ndarray | None

    def only(self, some: np.ndarray) -> Table:
        """Return the groups at these places, in this order."""
        place = np.full(len(self.labels) + 1, -1, np.int32)  # the last one is that of the records of no group
        place[some] = np.arange(len(some))
        kept, codes = self.kept, None if self.codes is None else place[self.codes]
        if codes is None:
            kept = [Counts.of_rows(place[one.group], one.values, one.counts, groups=len(some)) for one in kept]
        parts = {name: getattr(self, name)[..., some] for name in ("sizes", "missing", "infinite", "beyond")}
        return replace(self, labels=[self.labels[k] for k in some], kept=kept, codes=codes, **parts)


class Keeper:
    """Keeps blocks of records, and counts them.

    Args:
        columns: their names.
        bounds: of each column: records at or beyond one are counted.
        grids: of each column, to keep only how many records each value has; None to keep the records.
        swap: whether a missing record is the lower bound, as under swap; otherwise it is absent.
    """

    def __init__(
        self, columns: Sequence[str], bounds: Sequence[tuple[float, float]], grids: Sequence[Multiples] | None, *, swap: bool
    ) -> None:
        self._columns, self._bounds, self._grids, self._swap = list(columns), list(bounds), grids, swap
        self._numbers = [np.zeros(0, np.int64) for _ in range(1 + 3 * len(self._columns))]
        self._distinct = [_Distinct() for _ in grids or ()]
        self._blocks: list[tuple[np.ndarray, ...]] = []

    def add(self, columns: Sequence[np.ndarray], codes: np.ndarray) -> None:
        """Take in records, float64 ``(n,)`` each, and their groups, int32 ``(n,)``; -1 for records that count nowhere."""
        if np.any(codes < 0):
            there = codes >= 0
            columns, codes = [values[there] for values in columns], codes[there]
        counted = [codes]
        for values, (low, high) in zip(columns, self._bounds, strict=True):
            counted += [codes[some] for some in (np.isnan(values), np.isinf(values), (values <= low) | (values >= high))]
        for place, some in enumerate(counted):
            self._numbers[place] = _sum(np.bincount(some), self._numbers[place])
        if self._grids is None:
            self._blocks.append((codes, *columns))
            return
        for found, grid, values in zip(self._distinct, self._grids, columns, strict=True):
            cells, present = grid.numbers_of(values)
            keys = codes * np.int64(grid.size) + cells
            found.add(keys if self._swap or np.all(present) else keys[present])

    def table(self, labels: Sequence[tuple[str, ...]]) -> Table:
        """Return what was read, with the labels of all groups."""
        groups, codes = len(labels), None
        kept: list[Any] = []
        for found, grid in zip(self._distinct, self._grids or (), strict=True):
            found.close()
            code, cells = np.divmod(found.keys, grid.size)
            kept.append(Counts.of_rows(code, cells, found.counts, groups=groups))
        if self._grids is None:
            nothing = np.zeros(0, np.int32), *(np.zeros(0) for _ in self._columns)
            codes, *kept = (np.concatenate(parts) for parts in zip(nothing, *self._blocks, strict=True))
        sizes, *others = (_sum(np.zeros(groups, np.int64), numbers) for numbers in self._numbers)
        missing, infinite, beyond = (np.stack(others[part::3]) for part in range(3))
        return Table(self._columns, list(labels), sizes, missing, infinite, beyond, kept, codes)


def _sum(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """The sum of two arrays, of which the shorter one goes on with zeros."""
    short, long = sorted((one, other), key=len)
    found = long.astype(np.int64)
    found[: len(short)] += short
    return found


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
