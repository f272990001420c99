"""Reading of columns of numbers and labels from delimited text.

There are two modes. In the mode ``csv`` a file must be well-formed by RFC 4180, so that all readers
agree on its records. Any other file is refused before a column is returned, with one message that
does not depend on what is wrong. In the mode ``lines`` each line is a record whatever it contains,
and no record raises. In both, a cell that is not a number counts as missing, and no record changes
how another is read. So a byte order mark is dropped before the header; without a header it is
dropped at the start of every line, as any record may be the first one.

A file is read in blocks of complete records. Array operations on bytes find delimiters, line ends
and quotes, so that Python code parses only unusual cells and lines.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import closing
from itertools import chain
from typing import NamedTuple

import numpy as np

from dpjax.command_line.csv_columns import Cells, LabelColumn, Labels, NumberColumn
from dpjax.command_line.csv_text import Source, check, utf8_blocks
from dpjax.command_line.errors import UserError
from dpjax.command_line.parser import DELIMITERS

_LF, _CR, _QUOTE, _TAB, _BLANK = b'\n\r"\t '
# The second one if blanks separate cells
_BLANK_LINES = re.compile(rb"(?:\r?\n)*"), re.compile(rb"(?:[ \t]*\r?\n)*")
_MARK = "\N{ZERO WIDTH NO-BREAK SPACE}".encode()  # the byte order mark
_PADDING = bytes(8)  # for reads of eight bytes from any cell's start
csv.field_size_limit(2**31 - 1)  # so that the csv module has no smaller limit than this module


class Columns(NamedTuple):
    """Columns of a file, with one entry per record.

    Attributes:
        numbers: columns of numbers by name, float64 ``(n,)``, NaN where missing or not a number.
        labels: columns of labels by name; a column can be both here and in ``numbers``.
        not_numbers: for each name in ``numbers``, the number of cells that are neither missing nor
            numbers. This is private.
    """

    numbers: dict[str, np.ndarray]
    labels: dict[str, Labels]
    not_numbers: dict[str, int]


def header_of(source: Source) -> list[str]:
    """Return the names of the columns, from the first record.

    Without a header they are 1, 2, 3, ..., one for each cell of the first record; their number is
    private then.
    """
    check(source)
    with closing(_records(source)) as blocks:
        return _header(source, blocks)[0]


def check_columns(source: Source, names: Sequence[str]) -> None:
    """Check public properties of a file, for a dry run.

    It must be readable, and its header must have these columns.

    Raises:
        UserError: the file is not readable, or lacks a column.
    """
    check(source)
    _places(source, header_of(source) if source.header else [], names)
    if not source.header:
        with closing(utf8_blocks(source)) as blocks:
            next(blocks)


def read_columns(
    source: Source, numbers: Sequence[str] | None, labels: Sequence[str] = ()
) -> Columns:
    """Read columns of a file.

    Args:
        source: the file and its format.
        numbers: names of columns of numbers; None for the only column of the file, in a simulation.
        labels: names of columns of text.

    Raises:
        UserError: the file cannot be read, its header lacks a column, or it is not well-formed CSV,
            unless ``source.records`` is ``"lines"``. Records of a well-formed file never raise.
    """
    check(source)
    with closing(_records(source)) as blocks:
        names: list[str] = []
        rest: Iterator[bytes] = blocks
        if source.header or numbers is None:
            names, rest = _header(source, blocks)
        if numbers is None:
            if len(names) > 1:
                raise UserError(
                    f"{source.name} has {len(names)} columns, choose some with --column: "
                    f"{', '.join(names)}."
                )
            numbers = names
        places = dict(
            zip([*numbers, *labels], _places(source, names, [*numbers, *labels]), strict=True)
        )
        number_columns = {name: NumberColumn(source) for name in numbers}
        label_columns = {name: LabelColumn() for name in labels}
        width = len(names) if source.header else None
        for block in rest:
            table = _split(block, source)
            if source.records == "csv":
                table = _rectangular(table, width, source)
                if width is None and table.counts.size:
                    width = int(table.counts[0])
            for name, number_column in number_columns.items():
                number_column.add(table.column(places[name]))
            for name, label_column in label_columns.items():
                label_column.add(table.column(places[name]))
    return Columns(
        {name: column.numbers() for name, column in number_columns.items()},
        {name: column.labels() for name, column in label_columns.items()},
        {name: column.wrong for name, column in number_columns.items()},
    )


def _malformed(source: Source) -> UserError:
    """Return the error for a file that is not well-formed, whatever is wrong."""
    return UserError(
        f"{source.name} is not well-formed CSV (RFC 4180) in this encoding, with as many cells in "
        "each record as in the first: correct it, or give --records lines, which reads each line "
        "as a record."
    )


def _header(source: Source, blocks: Iterator[bytes]) -> tuple[list[str], Iterator[bytes]]:
    """Return the names of the columns, and the blocks of records after the header."""
    for block in blocks:
        if source.records == "csv" and (
            blank := _BLANK_LINES[source.delimiter == " "].match(block)
        ):
            block = block[blank.end() :]
        if not block:
            continue
        end = block.index(b"\n") + 1
        if source.records == "csv":
            while _has_quotes(source) and block.count(b'"', 0, end) % 2 and end < len(block):
                end = block.index(b"\n", end) + 1
            if source.header and b"\0" in block[:end]:
                raise _not_text(source)
        table = _split(block[:end], source)
        if not source.header:
            return [str(place + 1) for place in range(table.counts[0])], chain([block], blocks)
        names = [table.column(place).texts()[0] for place in range(table.counts[0])]
        return names, chain([block[end:]] if end < len(block) else [], blocks)
    raise UserError(f"{source.name} is empty.")


def _places(source: Source, names: list[str], asked: Sequence[str]) -> list[int]:
    """Return the indices of columns; without a header they do not depend on the records."""
    for column in asked:
        if not source.header:
            if not (column.isascii() and column.isdecimal()) or int(column) < 1:
                raise UserError(f"with --no-header columns are named 1, 2, 3, ...; got {column!r}.")
        elif column not in names:
            if "\N{REPLACEMENT CHARACTER}" in "".join(names):
                raise _not_text(source)
            # If the first line is a single column, look for another delimiter in it.
            other = [
                name
                for name, mark in DELIMITERS.items()
                if len(names) == 1 and mark != source.delimiter and mark in names[0]
            ]
            hint = (
                f" Its first line is {names[0][:60]!r}: is the --delimiter {other[0]}?"
                if other
                else ""
            )
            raise UserError(
                f"{source.name} has no column {column!r}; its columns are {', '.join(names)}.{hint}"
            )
        elif names.count(column) > 1:
            raise UserError(f"the first line of {source.name} names {column!r} twice.")
    return [names.index(column) if source.header else int(column) - 1 for column in asked]


def _not_text(source: Source) -> UserError:
    return UserError(
        f"{source.name} is not {source.encoding.upper()} text (in its first line): give its "
        "--encoding, such as latin-1 or utf-16."
    )


def _has_quotes(source: Source) -> bool:
    return source.delimiter != " "


def _records(source: Source) -> Generator[bytes, None, None]:
    """Yield the text in blocks of complete records, each terminated by a line feed."""
    by_line = source.records == "lines"
    rest, parts, size = b"", [], 0
    texts: Iterator[bytes] = utf8_blocks(source)
    texts = _lines(texts) if by_line else texts
    for text in texts if source.header else _without_marks(texts):
        parts.append(text)
        size += len(text)
        if size < len(rest):  # a long record is searched again only when the text has doubled
            continue
        block = b"".join([rest, *parts])
        end = block.rfind(b"\n") + 1
        if not by_line and _has_quotes(source) and block.count(b'"', 0, end) % 2:
            end = _last_end(block)
        rest, parts, size = block[end:], [], 0
        if end:
            yield block[:end]
    if rest := b"".join([rest, *parts]):
        if rest.endswith(b"\r"):
            raise _malformed(source)
        yield rest if rest.endswith(b"\n") else rest + b"\n"


def _lines(texts: Iterable[bytes]) -> Iterator[bytes]:
    """Replace line ends by line feeds, and each NUL by the replacement character."""
    held = b""
    for text in texts:
        text = held + text
        held = text[-1:] if text.endswith(b"\r") else b""  # a line feed may follow
        text = text.removesuffix(b"\r")
        if b"\r" in text:
            text = text.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        yield text.replace(b"\0", "\N{REPLACEMENT CHARACTER}".encode()) if b"\0" in text else text
    if held:
        yield b"\n"


def _without_marks(texts: Iterable[bytes]) -> Iterator[bytes]:
    """Drop one byte order mark at the start of each line.

    Without a header any record may be the first one, whose mark must not be read as another one's.
    """
    starts = True  # whether a line starts here
    for text in texts:
        if text:
            shown = text.removeprefix(_MARK) if starts else text
            starts = text.endswith(b"\n")
            yield shown if shown.isascii() else shown.replace(b"\n" + _MARK, b"\n")


def _last_end(block: bytes) -> int:
    """Return the end of the last record.

    It is after a line feed with an even number of quotes before it.
    """
    data = np.frombuffer(block, np.uint8)
    ends = np.flatnonzero(data == _LF)
    ends = ends[np.searchsorted(np.flatnonzero(data == _QUOTE), ends) % 2 == 0]
    return int(ends[-1]) + 1 if ends.size else 0


class _Table(NamedTuple):
    """The positions of the cells of a block of records.

    Attributes:
        cells: all cells, in the order of the file, but for lines that the csv module split.
        first: int64 ``(records,)``, the index of each record's first cell.
        counts: int64 ``(records,)``, the number of cells of each record, which are consecutive.
    """

    cells: Cells
    first: np.ndarray
    counts: np.ndarray

    def column(self, place: int) -> Cells:
        """Return the cell with this index of each record; empty where there is none."""
        exists = self.counts > place
        if np.all(exists):
            rows = self.first + place
            return self.cells._replace(starts=self.cells.starts[rows], stops=self.cells.stops[rows])
        starts, stops = np.zeros(len(exists), np.int64), np.zeros(len(exists), np.int64)
        rows = self.first[exists] + place
        starts[exists], stops[exists] = self.cells.starts[rows], self.cells.stops[rows]
        return self.cells._replace(starts=starts, stops=stops)


def _rectangular(table: _Table, width: int | None, source: Source) -> _Table:
    """Drop blank lines, and check that all records have ``width`` cells.

    By default that is the number of cells of the first record.
    """
    if source.delimiter == " ":
        blank = table.counts == 0
    else:
        start, stop = table.cells.starts[table.first], table.cells.stops[table.first]
        blank = (table.counts == 1) & (start == stop) & (table.cells.data[stop] != _QUOTE)
    if np.any(blank):
        table = table._replace(first=table.first[~blank], counts=table.counts[~blank])
    if table.counts.size and np.any(table.counts != (table.counts[0] if width is None else width)):
        raise _malformed(source)
    return table


def _split(block: bytes, source: Source) -> _Table:
    """Find the cells of complete records.

    Raises:
        UserError: the block is not well-formed, unless ``source.records`` is ``"lines"``.
    """
    if source.records == "csv" and b"\0" in block:
        raise _malformed(source)
    data = np.frombuffer(block + _PADDING, np.uint8)
    if not _has_quotes(source):
        return _split_at_blanks(block, data, source)
    delimiter = ord(source.delimiter)
    ends = np.flatnonzero(data == _LF)
    separates = (data == _LF) | (data == delimiter)
    quoted, bad = b'"' in block, np.zeros(0, np.int64)
    outside = None
    if quoted:
        quotes = np.flatnonzero(data == _QUOTE)
        if source.records == "lines":
            quotes, bad = _whole_lines(data, quotes, ends, delimiter)
        elif len(quotes) % 2 or np.any(_misplaced(data, quotes[::2], quotes[1::2], delimiter)):
            raise _malformed(source)
        flips = np.zeros(len(data), np.uint8)
        flips[quotes] = 1
        outside = np.cumsum(flips, dtype=np.uint8) % 2 == 0
        separates &= outside
    stops = np.flatnonzero(separates)
    starts = np.concatenate([[0], stops[:-1] + 1])
    last = np.flatnonzero(data[stops] == _LF)
    if source.records == "csv" and b"\r" in block:
        returns = data == _CR if outside is None else (data == _CR) & outside
        if np.any(data[np.flatnonzero(returns) + 1] != _LF):
            raise _malformed(source)
        stops[last] -= returns[stops[last] - 1]  # before the first byte is padding
    counts = np.diff(last, prepend=-1)
    first = last - counts + 1
    if quoted:
        cut = (data[starts] == _QUOTE) & (stops > starts)
        starts, stops = starts + cut, stops - cut
    table = _Table(Cells(data, starts, stops, literal=False), first, counts)
    return _with_split_lines(block, table, ends, bad, source.delimiter) if bad.size else table


def _split_at_blanks(block: bytes, data: np.ndarray, source: Source) -> _Table:
    """Find the cells between blanks, where blanks separate cells."""
    if (
        source.records == "csv"
        and b"\r" in block
        and np.any(data[np.flatnonzero(data == _CR) + 1] != _LF)
    ):
        raise _malformed(source)
    blank = (data == _BLANK) | (data == _TAB) | (data == _LF) | (data == _CR) | (data == 0)
    changes = np.flatnonzero(np.diff(blank, prepend=True))
    starts, stops = changes[::2], changes[1::2]
    behind = np.searchsorted(starts, np.flatnonzero(data == _LF))
    counts = np.diff(behind, prepend=0)
    return _Table(Cells(data, starts, stops, literal=True), behind - counts, counts)


def _misplaced(
    data: np.ndarray, opening: np.ndarray, closing: np.ndarray, delimiter: int
) -> np.ndarray:
    """Return for each pair of quotes whether it is misplaced.

    A misplaced pair is neither around a cell nor a doubled quote within one.
    """
    before, after = data[opening - 1], data[closing + 1]  # before the first byte is padding
    starts = (before == delimiter) | (before == _LF) | (before == _QUOTE) | (opening == 0)
    stops = (after == delimiter) | (after == _LF) | (after == _QUOTE) | (after == _CR)
    return ~(starts & stops)


def _whole_lines(
    data: np.ndarray, quotes: np.ndarray, ends: np.ndarray, delimiter: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return the quotes of well-formed lines, and the indices of other lines with quotes."""
    lines = np.searchsorted(ends, quotes)
    odd = np.bincount(lines, minlength=len(ends)) % 2 == 1
    wrong, whole = odd.copy(), ~odd[lines]
    opening, closing = quotes[whole][::2], quotes[whole][1::2]
    wrong[lines[whole][::2][_misplaced(data, opening, closing, delimiter)]] = True
    return quotes[~wrong[lines]], np.flatnonzero(wrong)


def _with_split_lines(
    block: bytes, table: _Table, ends: np.ndarray, bad: np.ndarray, delimiter: str
) -> _Table:
    """Append the cells of these lines, split by the csv module, to those of the block."""
    first, counts = table.first.copy(), table.counts.copy()
    texts: list[bytes] = []
    for line in bad.tolist():
        start = int(ends[line - 1]) + 1 if line else 0
        try:
            cells = next(
                csv.reader(
                    [block[start : int(ends[line])].decode()],
                    delimiter=delimiter,
                    skipinitialspace=True,
                ),
                [],
            )
        except csv.Error:
            cells = []
        first[line], counts[line] = len(table.cells.starts) + len(texts), len(cells)
        texts += [cell.replace('"', '""').encode() for cell in cells]
    stops = len(block) + np.cumsum([0, *map(len, texts)], dtype=np.int64)
    data = np.frombuffer(b"".join([block, *texts, _PADDING]), np.uint8)
    starts = np.concatenate([table.cells.starts, stops[:-1]])
    stops = np.concatenate([table.cells.stops, stops[1:]])
    return _Table(Cells(data, starts, stops, literal=False), first, counts)
