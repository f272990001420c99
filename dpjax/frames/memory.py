"""Tables in memory: the group of each row as an index, and counts of positions."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any, NamedTuple

import numpy as np

from dpjax.frames.columns import (
    TIMES,
    Columns,
    Labels,
    is_numbers,
)
from dpjax.frames.labels import as_decimal, joined
from dpjax.frames.persons import Persons, in_few_groups, rows_of, together
from dpjax.release import Count, Counts, DistinctCount, Mode, Statistic
from dpjax.release.grid import Multiples


class Groups(NamedTuple):
    """The groups of a result.

    Attributes:
        names: the label of each group in the columns' dtypes, a tuple for several columns.
        shown: for each column of groups, its labels as they are shown.
        some: whether a table may have rows of other groups, which are left out.
    """

    names: list[Any]
    shown: dict[Any, list[Any]]
    some: bool = True

    def only(self, kept: Sequence[int], some: bool) -> Groups:
        """Return the groups with these indices."""
        return Groups(
            [self.names[k] for k in kept],
            {by: [part[k] for k in kept] for by, part in self.shown.items()},
            some,
        )


class Tally(NamedTuple):
    """The number of records at each position in each group.

    Attributes:
        group: integers ``(rows,)``, from 0 on; -1 for none of the groups.
        position: integers ``(rows,)``, -1 where the value is missing.
        weight: int64 ``(rows,)``, the number of records, or None for one each.
    """

    group: np.ndarray
    position: np.ndarray
    weight: np.ndarray | None

    def counts(self, statistic: Statistic, groups: int, neighbors: str) -> Counts:
        """Count the records at each position in each group."""
        group, position = self.group, self.position
        # A missing record counts as the lower bound
        if neighbors == "swap" and not isinstance(statistic, Mode | DistinctCount):
            position = np.maximum(position, 0)
        elif (missing := position < 0).any():
            group, position = np.where(missing, -1, group), np.maximum(position, 0)
        if self.weight is None:
            return Counts.of_groups(group, position, groups)
        return Counts.of_rows(group, position, self.weight, groups=groups)

    def numbers(self, groups: int, which: np.ndarray | None = None) -> np.ndarray:
        """Return the number of records of each group, int64, where ``which`` is true."""
        counted = self.group >= 0 if which is None else which & (self.group >= 0)
        group = self.group[counted]
        if self.weight is None:
            return np.bincount(group, minlength=groups)
        found = np.zeros(groups, np.int64)
        np.add.at(found, group, self.weight[counted])
        return found


class Memory:
    """The records of a table in memory.

    Args:
        columns: the columns of the table.
        by: the names of the columns of groups.
        persons: how rows are combined to persons; None if each row is a record.
        counts: the column with the number of records of each row; None for one each.
    """

    def __init__(
        self, columns: Columns, by: Sequence[Any], persons: Persons | None, counts: Any = None
    ) -> None:
        self._columns, self._by, self._persons = columns, tuple(by), persons
        self._count = (
            None if counts is None else np.asarray(columns.numbers(counts)).astype(np.int64)
        )
        self._labels = [columns.labels(name) for name in by]
        # The distinct combinations of label codes, ascending, and the index of each row's
        # combination, -1 for none.
        self._different, self._order = _together(self._labels)
        self._unit = None if persons is None else columns.labels(persons.unit).codes

    def check(self, name: Any, statistic: Statistic | None) -> None:
        """Raise ``TypeError`` if the statistic of a column cannot be computed, by dtype."""
        if isinstance(statistic, DistinctCount) or self._is_by_labels(name, statistic):
            self._columns.check_labels(name)

    def _is_by_labels(self, name: Any, statistic: Statistic | None) -> bool:
        """Return whether the values of a column are counted that are not missing as labels."""
        kind = self._columns.kind(name)
        return isinstance(statistic, Count) and not is_numbers(kind) and kind not in TIMES

    def there(self, bounded: bool) -> tuple[Groups, np.ndarray]:
        """Return all groups that have rows, sorted by label, and their sizes.

        A size is the number of rows or persons. With ``bounded`` a person counts in at most
        ``max_groups`` groups, and groups without a person are left out.
        """
        group, count = self._order, self._count
        if self._unit is not None:
            persons, group, (_, _, rows) = self._sorted(group)
            group, count = (
                group[self._in_few_groups(persons, group, rows)] if bounded else group,
                None,
            )
        elif (group < 0).any():
            group, count = group[group >= 0], None if count is None else count[group >= 0]
        sizes = np.zeros(len(self._different), np.int64)
        if count is None:
            sizes += np.bincount(group, minlength=len(sizes))
        else:
            np.add.at(sizes, group, count)
        found = np.flatnonzero(sizes)
        parts = [
            [labels.names[k] for k in codes.tolist()]
            for labels, codes in zip(self._labels, self._different[found].T, strict=True)
        ]
        return Groups(joined(parts), dict(zip(self._by, parts, strict=True))), sizes[found]

    def crowded(self, groups: Groups) -> tuple[int, int]:
        """Return the number of persons in more than ``max_groups`` of these groups, and of all.

        A person is in a group if it has rows there.
        """
        known: Any = self._persons
        persons, _, _ = self._sorted(
            np.where(self._group(groups, len(self._order)) >= 0, self._order, -1)
        )
        numbers = np.bincount(persons)
        return int(np.count_nonzero(numbers > known.max_groups)), int(np.count_nonzero(numbers))

    def _group(self, groups: Groups, rows: int) -> np.ndarray:
        """Return the index of each row's group, -1 for none of these."""
        if not self._by:
            return np.zeros(rows, np.int32)
        places = [{name: code for code, name in enumerate(labels.names)} for labels in self._labels]
        several = len(places) > 1
        place = (
            {tuple(codes): index for index, codes in enumerate(self._different.tolist())}
            if several
            else {}
        )
        # The last entry is for rows of no group
        number = np.full(len(self._different) + 1, -1, np.int32)
        decimals = [
            any(isinstance(name, Decimal) for name in labels.names) for labels in self._labels
        ]
        for group, name in enumerate(groups.names):
            each = zip(places, name if several else (name,), decimals, strict=True)
            parts = tuple(
                at.get(as_decimal(part) if exact else part, -1) for at, part, exact in each
            )
            number[place.get(parts, -1) if several else parts[0]] = group
        number[-1] = -1
        return number[self._order]

    def tally(self, column: Any, statistic: Statistic, groups: Groups, neighbors: str) -> Tally:
        """Count the records of a column in these groups."""
        grid = getattr(statistic, "records_grid", None)
        if isinstance(statistic, DistinctCount):
            values = self._columns.labels(column).codes
            present = values >= 0
        elif self._is_by_labels(column, statistic):
            present = self._columns.labels(column).codes >= 0
            values = np.zeros(len(present), np.int32)
        elif self._persons is not None and isinstance(grid, Multiples):
            numbers, present = _present(self._columns.numbers(column))
            values = rows_of(grid, self._persons.rule(statistic)).integers(
                np.where(present, numbers, 0).astype(np.float64)
            )
        elif self._persons is not None and not isinstance(statistic, Count):
            # one value per person is kept, and read later
            values, present = _present(self._columns.numbers(column))
        else:
            values, present = statistic.read(self._columns.numbers(column))
        group = self._group(groups, len(values))
        if self._unit is None or self._persons is None:
            return Tally(
                group, values if present.all() else np.where(present, values, -1), self._count
            )
        rule = self._persons.rule(statistic)
        on_grid = (
            grid
            if isinstance(grid, Multiples) and not isinstance(statistic, DistinctCount)
            else None
        )
        kept = (
            None
            if on_grid is not None or isinstance(statistic, Count | DistinctCount)
            else statistic.read
        )
        return self._of_persons(values, present, group, on_grid, rule, neighbors, kept)

    def _of_persons(
        self,
        values: Any,
        present: Any,
        group: Any,
        grid: Any,
        rule: Any,
        neighbors: str,
        read: Callable[..., Any] | None,
    ) -> Tally:
        """Return one record per person and group.

        ``read`` gives the position of a value that is kept.
        """
        order = self._order if self._by else np.zeros(len(values), np.int64)
        persons, ordered, (row_order, starts, rows) = self._sorted(
            np.where((group >= 0) & present, order, -1)
        )
        position = (
            together(values[row_order], starts, rows, grid, rule)
            if len(starts)
            else np.zeros(0, np.int64)
        )
        if read is not None and len(starts):
            found, known = read(position)
            position = np.where(known, found, -1)
        stays = self._in_few_groups(persons, ordered, rows)
        found, position = group[row_order[starts]][stays], position[stays]
        if neighbors == "swap":  # a person counts, whatever the values are
            unit: Any = self._unit
            absent = len(np.unique(unit[unit >= 0])) - len(position)
            found, position = (
                np.pad(found, (0, absent)),
                np.pad(position, (0, absent), constant_values=-1),
            )
        return Tally(found, position, None)

    def _sorted(
        self, order: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, tuple[np.ndarray, np.ndarray, np.ndarray]]:
        """Return the person and group of each record, and its rows.

        The rows are sorted, with the start and the number of rows for each record.
        """
        unit: Any = self._unit
        rows = np.flatnonzero((unit >= 0) & (order >= 0))
        width = int(order.max(initial=0)) + 1
        if (int(unit.max(initial=0)) + 1) * width < 2**62:
            key = unit[rows].astype(np.int64) * width + order[rows]
            rows = rows[np.argsort(key, kind="stable")]
        else:
            rows = rows[np.lexsort((order[rows], unit[rows]))]
        new = np.diff(unit[rows], prepend=-1) != 0
        new |= np.diff(order[rows], prepend=-1) != 0
        starts = np.flatnonzero(new)
        return (
            unit[rows][starts],
            order[rows][starts],
            (rows, starts, np.diff(starts, append=len(rows))),
        )

    def _in_few_groups(
        self, persons: np.ndarray, group: np.ndarray, rows: np.ndarray
    ) -> np.ndarray:
        known: Any = self._persons
        return in_few_groups(persons, group, rows, known.max_groups)

    def positions(self, column: Any, groups: Groups) -> Tally:
        """Return a column of positions; -1 for missing values."""
        position = np.asarray(self._columns.numbers(column)).astype(np.int64)
        return Tally(self._group(groups, len(position)), position, self._count)

    def records(self, column: Any, groups: Groups) -> tuple[np.ndarray, np.ndarray]:
        """Return the records of a column without a public grid, float64, and the group of each."""
        values = np.asarray(self._columns.numbers(column), np.float64)
        return values, self._group(groups, len(values))


def _present(numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return numbers and which of them are present; large integers with gaps as integers."""
    if numbers.dtype.kind == "f":
        return numbers, ~np.isnan(numbers)  # a comparison may warn of a signaling NaN
    present = numbers == numbers
    if numbers.dtype.kind == "O":
        filled = np.where(present, numbers, 0)
        numbers = filled.astype(np.uint64 if filled.max() >= 2**63 else np.int64)
    return numbers, present


def _together(columns: Sequence[Labels]) -> tuple[np.ndarray, np.ndarray]:
    """Return the distinct combinations of label codes, ascending, and each row's combination.

    -1 if missing.
    """
    if not columns:
        return np.zeros((1, 0), np.int64), np.zeros(0, np.int64)
    if len(columns) == 1:
        return np.arange(len(columns[0].names))[:, None], columns[0].codes
    codes = np.stack([labels.codes for labels in columns])
    complete = np.all(codes >= 0, axis=0)
    sizes = [max(len(labels.names), 1) for labels in columns]
    if math.prod(sizes) < 2**62:
        key, inverse = np.unique(
            np.ravel_multi_index(list(codes[:, complete]), sizes), return_inverse=True
        )
        different = np.stack(np.unravel_index(key, sizes), axis=-1)
    else:
        different, inverse = np.unique(codes[:, complete].T, axis=0, return_inverse=True)
    order = np.full(len(complete), -1, np.int64)
    order[complete] = inverse.reshape(-1)
    return different, order
