"""The cells of blocks of lines.

Two readings. Strict: quoted cells may go on in the next line, empty lines are skipped, and all lines must have as many cells as the
first one. By line, for a release: every line is a record of its own whatever it holds, so that none can change how another is
read; a cell that is not there is empty.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from operator import itemgetter
from typing import Any, NamedTuple

from dpjax.command_line.errors import UserError

_ROWS = 2**16
csv.field_size_limit(2**31 - 1)  # so that a line is read alike whether the csv module splits it or not


class Block(NamedTuple):
    """The cells of some lines, by column.

    Attributes:
        columns: one list for each column that is asked for.
        lines: the number of the line of each entry, from 1 on.
    """

    columns: list[list[str]]
    lines: Sequence[int]


def split_strictly(
    texts: Iterable[str], delimiter: str, places: Sequence[int], width: int, start: int, name: str
) -> Iterator[Block]:
    """Yield the cells of the columns at ``places``, from line ``start`` on, of lines that must have ``width`` cells."""
    pick, numbers, cells = itemgetter(*places), [], []
    for number, row in _rows_of(chain.from_iterable(map(_lines, texts)), delimiter, start, name):
        if len(row) != width:
            raise UserError(f"{name}, line {number}: {len(row)} fields where the first line has {width}.")
        numbers.append(number)
        cells.append(pick(row))  # and let go of the row: many lists are slow to keep
        if len(cells) == _ROWS:
            yield Block(_columns(cells, places), numbers)
            numbers, cells = [], []
    if cells:
        yield Block(_columns(cells, places), numbers)


def split_by_line(texts: Iterable[str], delimiter: str, places: Sequence[int]) -> Iterator[Block]:
    """Yield the cells of the columns at ``places`` of every line."""
    start, last, pick = 1, max(places), itemgetter(*places)
    for text in texts:
        rows = (_split(line, delimiter) for line in text.removesuffix("\n").split("\n"))
        cells = [pick(row if len(row) > last else row + [""] * (last + 1 - len(row))) for row in rows]
        yield Block(_columns(cells, places), range(start, start + len(cells)))
        start += len(cells)


def _columns(cells: list[Any], places: Sequence[int]) -> list[list[str]]:
    """The cells of each column, from those of each line: of one column as they are, of several in tuples."""
    return [list(map(str.strip, column)) for column in ([cells] if len(places) == 1 else zip(*cells, strict=True))]


def cells_of(line: str, delimiter: str) -> list[str]:
    """Return the cells of one line; none of a line that cannot be split."""
    return [cell.strip() for cell in _split(line.rstrip("\n"), delimiter)]


def _split(line: str, delimiter: str) -> list[str]:
    if delimiter == " ":
        return line.split()
    if '"' not in line:
        return line.split(delimiter)
    try:
        return next(csv.reader([line], delimiter=delimiter, skipinitialspace=True), [])
    except csv.Error:
        return []


def _lines(text: str) -> list[str]:
    """Split at newlines only, which :meth:`str.splitlines` does not."""
    return [f"{line}\n" for line in text.removesuffix("\n").split("\n")]


def _rows_of(lines: Iterator[str], delimiter: str, start: int, name: str) -> Iterator[tuple[int, list[str]]]:
    """The lines that are not empty, as their number and their cells."""
    if delimiter == " ":
        for number, line in enumerate(lines, start):
            if cells := line.split():
                yield number, cells
        return
    reader = csv.reader(lines, delimiter=delimiter, skipinitialspace=True)
    try:
        for row in reader:
            if row:
                yield start - 1 + reader.line_num, row
    except csv.Error as error:
        raise UserError(f"{name}, line {start - 1 + reader.line_num}: {error}.") from error
