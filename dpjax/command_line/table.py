"""From a delimited file to padded groups of records."""

from __future__ import annotations

import csv
import io
import itertools
import math
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from dpjax.command_line.text import UserError

MISSING = ("", "na", "nan")
LARGEST = 50_000_000  # cells of a padded table, and draws of an answer: 3 to 7 GB at the peak


@dataclass(frozen=True)
class Table:
    """The numeric columns of a file, cut into groups and padded to the largest group.

    Attributes:
        columns: the names, one for each entry on the first axis of ``records``.
        groups: the labels, sorted, one for each entry on the second axis; ``(None,)`` without grouping.
        records: float64 ``(columns, groups, n)``; NaN where a cell is missing and in the padding.
        count: int32 ``(groups,)``, how many leading records of each group are there.
    """

    columns: tuple[str, ...]
    groups: tuple[str | None, ...]
    records: np.ndarray
    count: np.ndarray

    @property
    def missing(self) -> np.ndarray:
        """How many records of each group have no value, int ``(columns, groups)``."""
        return self.count - np.sum(~np.isnan(self.records), axis=-1)


def name_of(path: str) -> str:
    """Return what messages call a file."""
    return "standard input" if path == "-" else path


def content_of(path: str) -> bytes:
    """Return the bytes of a file, of standard input for ``"-"``; a :class:`UserError` if it cannot be read."""
    try:
        return sys.stdin.buffer.read() if path == "-" else Path(path).read_bytes()
    except (OSError, ValueError) as error:
        raise UserError(f"cannot read {name_of(path)}: {getattr(error, 'strerror', None) or error}.") from error


def read_table(path: str, *, columns: Sequence[str] | None, by: str | None, delimiter: str = ",", header: bool = True) -> Table:
    """Read a file of delimited text in UTF-8.

    Empty lines are skipped. An empty cell, ``NA`` and ``nan`` are missing, in upper or lower case.

    Args:
        path: the file, or ``"-"`` for standard input.
        columns: the names to read, numeric; None if the file has only one.
        by: the column whose text names each record's group, or None for one group.
        delimiter: one character; a blank stands for any run of blanks.
        header: whether the first line names the columns. Without it they are called 1, 2, 3, ...

    Raises:
        UserError: anything that keeps the file from being read as numbers, with its line.
    """
    name = name_of(path)
    try:
        text = content_of(path).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UserError(f"{name} is not UTF-8 text (byte {error.start + 1}).") from error
    lines = _split(text, delimiter, name)
    first = next(lines, None)
    if first is None:
        raise UserError(f"{name} is empty.")
    names = first[1] if header else [str(i) for i in range(1, len(first[1]) + 1)]
    if not header:
        lines = itertools.chain([first], lines)
    for repeated in names:
        if names.count(repeated) > 1:
            raise UserError(f"{name} names the column {repeated!r} twice in its header.")
    if columns is None:
        if len(names) > 1:
            raise UserError(f"{name} has {len(names)} columns, choose some with --column: {', '.join(names)}.")
        columns = names
    for column in [*columns, *([] if by is None else [by])]:
        if column not in names:
            raise UserError(f"{name} has no column {column!r}; its columns are {', '.join(names)}.")
    places = [names.index(column) for column in columns]
    place_by = None if by is None else names.index(by)
    groups: dict[str | None, list[list[float]]] = {}
    for number, cells in lines:
        if len(cells) != len(names):
            raise UserError(f"{name}, line {number}: {len(cells)} fields where the first line has {len(names)}.")
        record = [_number(cells[place], names[place], number, name) for place in places]
        groups.setdefault(None if place_by is None else cells[place_by], []).append(record)
    if not groups:
        raise UserError(f"{name} has a header and no records.")
    labels = sorted(groups, key=_order)
    count = np.array([len(groups[label]) for label in labels], np.int32)
    if len(columns) * len(labels) * int(count.max()) > LARGEST:
        raise UserError(
            f"{len(labels)} groups padded to the largest, {count.max()} records, are too many: group by something coarser."
        )
    records = padded([groups[label] for label in labels], len(columns))
    return Table(tuple(columns), tuple(labels), records, count)


def _split(text: str, delimiter: str, name: str) -> Iterator[tuple[int, list[str]]]:
    """The lines that are not empty, as their number and their cells."""
    if delimiter == " ":
        for number, line in enumerate(io.StringIO(text, newline=None), start=1):
            if cells := line.split():
                yield number, cells
        return
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, skipinitialspace=True)
    try:
        for fields in reader:
            if fields:
                yield reader.line_num, [field.strip() for field in fields]
    except csv.Error as error:
        raise UserError(f"{name}, line {reader.line_num}: {error}.") from error


def _number(cell: str, column: str, line: int, name: str) -> float:
    try:
        return math.nan if cell.lower() in MISSING else number(cell)
    except ValueError:
        raise UserError(f"{name}, line {line}, column {column!r}: {cell[:40]!r} is not a number.") from None


def number(cell: str) -> float:
    """Read a number; a ``ValueError`` for what is none, also for 1_000, which Python's float takes."""
    if "_" in cell:
        raise ValueError
    return float(cell)


def padded(groups: Sequence[Sequence[Sequence[float]]], columns: int) -> np.ndarray:
    """Return records ``(columns, groups, n)`` from the records of each group, padded with NaN to the largest."""
    records = np.full((columns, len(groups), max(map(len, groups))), np.nan)
    for i, group in enumerate(groups):
        records[:, i, : len(group)] = np.reshape(group, (len(group), columns)).T
    return records


def _order(label: str | None) -> tuple[bool, float, str]:
    """Numbers first and by value, then text.

    >>> sorted(["10", "b", "9", "a"], key=_order)
    ['9', '10', 'a', 'b']
    """
    text = label or ""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    return math.isnan(value), 0.0 if math.isnan(value) else value, text
