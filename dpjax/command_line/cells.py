"""The cells of blocks of lines: split by NumPy where a line is nothing but its cells, and by the csv module where it is more.

Two readings. Strict: quoted cells may go on in the next line, empty lines are skipped, and all lines must have as many cells as the
first one. By line, for a release: every line is a record of its own whatever it holds, so that none can change how another is
read; a cell that is not there is empty.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice
from typing import Any, NamedTuple

import numpy as np

from dpjax.command_line.errors import UserError

Cell = str | bytes  # bytes of UTF-8
_WIDE = 64  # bytes of a cell from which on it is copied alone
_ROWS = 2**16
csv.field_size_limit(2**31 - 1)  # so that a line is read alike whether the csv module splits it or not


class Block(NamedTuple):
    """The cells of some lines, by column.

    Attributes:
        columns: one list for each column that is asked for.
        lines: the number of the line of each entry, from 1 on.
    """

    columns: list[list[Cell]]
    lines: Sequence[int]


def split_strictly(
    texts: Iterable[str], delimiter: str, places: Sequence[int], width: int, start: int, name: str
) -> Iterator[Block]:
    """Yield the cells of the columns at ``places``, from line ``start`` on, of lines that must have ``width`` cells."""
    blocks = iter(texts)
    for text in blocks:
        raw = _plain(text, delimiter)
        if raw is None:
            lines = chain.from_iterable(map(_lines, chain([text], blocks)))
            yield from _by_reader(lines, delimiter, places, width, start, name)
            return
        starts, sizes, cells = _separated(raw, delimiter)
        number = start + np.arange(sizes.size)
        filled = (sizes > 0) | (cells[starts + 1] - cells[starts] > 1)  # not empty lines
        wrong = np.flatnonzero(filled & (sizes + 1 != width))
        if wrong.size:
            raise _wrong_width(name, int(number[wrong[0]]), int(sizes[wrong[0]]) + 1, width)
        yield Block([_column(raw, cells, starts[filled] + place) for place in places], number[filled])
        start += sizes.size


def split_by_line(texts: Iterable[str], delimiter: str, places: Sequence[int]) -> Iterator[Block]:
    """Yield the cells of the columns at ``places`` of every line."""
    start = 1
    for text in texts:
        raw = _plain(text, delimiter)
        if raw is None:
            rows = [cells_of(line, delimiter) for line in _lines(text)]
            yield Block(
                [[row[place] if place < len(row) else "" for row in rows] for place in places], range(start, start + len(rows))
            )
            start += len(rows)
            continue
        starts, sizes, cells = _separated(raw, delimiter)
        columns: list[list[Cell]] = []
        for place in places:
            there = sizes >= place
            if np.all(there):
                columns.append(_column(raw, cells, starts + place))
                continue
            found = np.full(sizes.size, b"", object)
            found[there] = _column(raw, cells, starts[there] + place)
            columns.append(found.tolist())
        yield Block(columns, range(start, start + sizes.size))
        start += sizes.size


def cells_of(line: str, delimiter: str) -> list[str]:
    """The cells of one line; none of a line that cannot be split."""
    if delimiter == " ":
        return line.split()
    row = line.rstrip("\n").split(delimiter)
    if '"' in line:
        try:
            row = next(csv.reader([line.rstrip("\n")], delimiter=delimiter, skipinitialspace=True), [])
        except csv.Error:
            return []
    return [cell.strip() for cell in row]


def _lines(text: str) -> list[str]:
    """Split at newlines only, which :meth:`str.splitlines` does not."""
    return [f"{line}\n" for line in text.removesuffix("\n").split("\n")]


def _plain(text: str, delimiter: str) -> bytes | None:
    """The bytes of lines whose cells are what is between delimiters, but for quotes around whole cells; None of other lines."""
    if delimiter == " " or not delimiter.isascii() or "\0" in text:
        return None
    raw = text.encode(errors="replace")
    if '"' not in text:
        return raw
    data = np.frombuffer(raw, np.uint8)
    quotes, marks = np.flatnonzero(data == ord('"')), (data == ord(delimiter)) | (data == ord("\n"))
    if quotes.size % 2:
        return None
    first, last, passed = quotes[::2], quotes[1::2], np.cumsum(marks)
    line_before, line_after = (first == 0) | (data[first - 1] == ord("\n")), data[last + 1] == ord("\n")
    whole = (line_before | marks[first - 1]) & marks[last + 1] & (passed[first] == passed[last])
    empty = line_before & line_after & (last == first + 1)  # a line of one empty cell, which is no empty line
    return data[data != ord('"')].tobytes() if np.all(whole & ~empty) else None


def _by_reader(lines: Iterator[str], delimiter: str, places: Sequence[int], width: int, start: int, name: str) -> Iterator[Block]:
    rows = _rows_of(lines, delimiter, start, name)
    while block := list(islice(rows, _ROWS)):
        for number, row in block:
            if len(row) != width:
                raise _wrong_width(name, number, len(row), width)
        yield Block([[row[place] for _, row in block] for place in places], [number for number, _ in block])


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
                yield start - 1 + reader.line_num, [cell.strip() for cell in row]
    except csv.Error as error:
        raise UserError(f"{name}, line {start - 1 + reader.line_num}: {error}.") from error


def _wrong_width(name: str, line: int, found: int, width: int) -> UserError:
    return UserError(f"{name}, line {line}: {found} fields where the first line has {width}.")


def _separated(raw: bytes, delimiter: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Where lines and cells end: cell i of a line is raw[ends[s + i] + 1 : ends[s + i + 1]], with s its start.

    Returns:
        The starts s of the lines, how many delimiters each has, and the ends.
    """
    data = np.frombuffer(raw, np.uint8)
    marks = np.flatnonzero((data == ord("\n")) | (data == ord(delimiter)))
    last = np.flatnonzero(data[marks] == ord("\n"))
    starts = np.concatenate([[0], last[:-1] + 1])
    return starts, last - starts, np.concatenate([[-1], marks])


def _column(raw: bytes, ends: np.ndarray, at: np.ndarray) -> list[Any]:
    """The cells that begin after the ends ``at``, as bytes."""
    start, stop = ends[at] + 1, ends[at + 1]
    widest = int(np.max(stop - start, initial=1))
    if widest > _WIDE:
        return [raw[a:b] for a, b in zip(start.tolist(), stop.tolist(), strict=True)]
    place = np.arange(widest)
    found = np.frombuffer(raw, np.uint8).take(start[:, None] + place, mode="clip")
    found[place >= (stop - start)[:, None]] = 0
    cells: list[Any] = found.view(f"S{widest}").ravel().tolist()
    return cells
