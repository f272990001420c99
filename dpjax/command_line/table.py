"""From a file to the numbers of its columns and the group of each record."""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from importlib import import_module
from itertools import chain, repeat

import numpy as np

from dpjax.command_line.cells import Block, cells_of, split_by_line, split_strictly
from dpjax.command_line.errors import UserError
from dpjax.command_line.files import Source, not_text, texts
from dpjax.command_line.kept import Keeper, Table
from dpjax.command_line.parser import DELIMITERS

MISSING = ("", "na", "nan")
LARGEST = 50_000_000  # draws of an answer
Keep = Callable[[Sequence[str]], Keeper]  # where the records of columns of these names go


def source_of(asked: argparse.Namespace) -> Source:
    """Return the file of a command line."""
    return Source(asked.file, asked.encoding, asked.delimiter, not asked.no_header, tuple(asked.missing), asked.decimal)


def read_table(source: Source, *, columns: Sequence[str] | None, by: Sequence[str] = (), keep: Keep) -> Table:
    """Read a file strictly, for a simulation: what keeps it from being read is named, with its line.

    Empty lines are skipped. An empty cell, ``NA``, ``nan`` and the words of ``source.missing`` are missing, in any case. Without
    ``columns`` the file must have only one. ``keep`` is asked where records go before one is read.
    """
    if source.is_parquet:
        return import_module("dpjax.command_line.parquet").read(source, columns, by, None, keep)
    blocks = texts(source, strict=True)
    names, line, rest = _first_line(source, blocks)
    for repeated in names:
        if names.count(repeated) > 1:
            raise UserError(f"{source.name} names the column {repeated!r} twice in its header.")
    if columns is None:
        if len(names) > 1:
            raise UserError(f"{source.name} has {len(names)} columns, choose some with --column: {', '.join(names)}.")
        columns = names
    split = split_strictly(rest, source.delimiter, _places(source, names, [*columns, *by]), len(names), line, source.name)

    def numbers(cells: list[str], column: str, lines: Sequence[int]) -> np.ndarray:
        found, wrong = numbers_of(cells, source.missing, source.decimal)
        if wrong:
            where, cell = f"{source.name}, line {lines[wrong[0]]}, column {column!r}", cells[wrong[0]]
            comma = source.decimal == "." and _is_number(cell.replace(",", ".", 1))
            hint = "give --decimal comma" if comma else "if it means a missing value, give --missing"
            raise UserError(f"{where}: {cell[:40]!r} is not a number; {hint}.")
        return found

    table = _table(split, columns, len(by), numbers, None, keep)
    if not np.any(table.sizes):
        raise UserError(f"{source.name} has a header and no records.")
    return in_order(table)


def read_records(
    source: Source, *, columns: Sequence[str], by: Sequence[str], groups: Sequence[tuple[str, ...]] | None, keep: Keep
) -> Table:
    """Read a file by lines, for a release: no record raises.

    Every line is a record of its own, blank or not, so that none can change how another is read: a quoted cell cannot go on in the
    next line. What is no number, or not there, is NaN; a record of no group that is asked for counts nowhere. Without ``groups``
    all are read whose label is not empty.

    Raises:
        UserError: a file that cannot be opened, or a column that its first line does not name.
    """
    if source.is_parquet:
        return import_module("dpjax.command_line.parquet").read(source, columns, by, groups, keep)
    places, rest = _header(source, [*columns, *by])
    split = split_by_line(rest, source.delimiter, places)
    table = _table(split, columns, len(by), lambda cells, *_: numbers_of(cells, source.missing, source.decimal)[0], groups, keep)
    if groups is not None:
        return table
    named = [k for k, label in enumerate(table.labels) if all(label)]
    return table.only(np.array(sorted(named, key=lambda k: table.labels[k]), np.int64))


def in_order(table: Table) -> Table:
    """Return a table with its groups in the order of their labels: numbers first and by value."""
    if len(table.labels) < 2:
        return table

    def key(label: tuple[str, ...]) -> list[tuple[bool, float, str]]:
        values = [float(part) if _is_number(part) else math.nan for part in label]
        return [(value != value, value if value == value else 0.0, part) for value, part in zip(values, label, strict=True)]

    return table.only(np.array(sorted(range(len(table.labels)), key=lambda k: key(table.labels[k])), np.int64))


def check_public(source: Source, names: Sequence[str]) -> None:
    """Look at what is public of a file: that it can be read, and its columns."""
    if source.is_parquet:
        import_module("dpjax.command_line.parquet").scanned(source, names)
    else:
        _header(source, names)


def _header(source: Source, asked: Sequence[str]) -> tuple[list[int], Iterator[str]]:
    """Where the first line has the columns, and the text after it; no record is looked at."""
    blocks = texts(source, strict=False)
    if not source.header:
        for column in asked:
            if not column.isdecimal() or int(column) < 1:
                raise UserError(f"with --no-header columns are called 1, 2, 3, ...; got {column!r}.")
        return [int(column) - 1 for column in asked], blocks
    first = next(blocks, "")
    if not first:
        raise UserError(f"{source.name} is empty.")
    line, _, rest = first.partition("\n")
    names = cells_of(line, source.delimiter)
    if "\N{REPLACEMENT CHARACTER}" in line and not set(asked) <= set(names):
        raise not_text(source, "in its first line")
    return _places(source, names, asked), chain([rest] if rest else [], blocks)


def _places(source: Source, names: list[str], asked: Sequence[str]) -> list[int]:
    for column in asked:
        if column not in names:
            # Another delimiter that the first line has, where it has only one column.
            other = [name for name, mark in DELIMITERS.items() if len(names) == 1 and mark != source.delimiter and mark in names[0]]
            hint = f" Its first line is {names[0][:60]!r}: is the --delimiter {other[0]}?" if other else ""
            raise UserError(f"{source.name} has no column {column!r}; its columns are {', '.join(names)}.{hint}")
        if names.count(column) > 1:
            raise UserError(f"the first line of {source.name} names {column!r} twice.")
    return [names.index(column) for column in asked]


def _first_line(source: Source, blocks: Iterator[str]) -> tuple[list[str], int, Iterator[str]]:
    """The names of the columns, the number of the first line of records, and the text from there on."""
    line = 1
    for text in blocks:
        kept = text.lstrip("\n") if source.delimiter != " " else text.lstrip()
        line += text[: len(text) - len(kept)].count("\n")
        if not kept:
            continue
        first, _, rest = kept.partition("\n")
        names = cells_of(first, source.delimiter)
        if not source.header:
            return [str(i) for i in range(1, len(names) + 1)], line, chain([kept], blocks)
        return names, line + 1, chain([rest] if rest else [], blocks)
    raise UserError(f"{source.name} is empty.")


Numbers = Callable[[list[str], str, Sequence[int]], np.ndarray]


def _table(
    blocks: Iterable[Block],
    columns: Sequence[str],
    keys: int,
    numbers: Numbers,
    groups: Sequence[tuple[str, ...]] | None,
    keep: Keep,
) -> Table:
    """Keep the records of blocks, whose last columns are those of the groups."""
    keeper = keep(columns)
    index: dict[tuple[str, ...], int] = {label: number for number, label in enumerate(groups or ())}
    for block in blocks:
        codes = np.zeros(len(block.lines), np.int32)
        if keys:
            labels = list(zip(*block.columns[len(columns) :], strict=True))
            for label in dict.fromkeys(labels) if groups is None else ():
                index.setdefault(label, len(index))
            codes = np.fromiter(map(index.get, labels, repeat(-1)), np.int32, len(labels))
        keeper.add([numbers(block.columns[k], column, block.lines) for k, column in enumerate(columns)], codes)
    return keeper.table(list(index) if keys else [()])


def numbers_of(cells: list[str], missing: Sequence[str] = (), decimal: str = ".") -> tuple[np.ndarray, list[int]]:
    """Read cells as numbers, float64, NaN for missing ones and for those that are none, whose places come second.

    >>> numbers_of(["1.5", "2e1", "NA", "1_000", "x"])
    (array([ 1.5, 20. ,  nan,  nan,  nan]), [3, 4])
    >>> numbers_of(["1,5", "1.500,5"], decimal=",")
    (array([1.5, nan]), [1])
    """
    if decimal == ",":  # a point, which would separate thousands, makes it no number
        table = str.maketrans(",.", "._")
        cells, missing = [cell.translate(table) for cell in cells], [word.translate(table) for word in missing]
    words = {*MISSING, *(word.strip().lower() for word in missing)}
    if not any(_is_number(word) for word in words - {"nan"}) and "_" not in "".join(cells):
        spelled = {form: "nan" for word in words for form in (word, word.upper())}
        try:
            return np.array(list(map(float, map(spelled.get, cells, cells))), np.float64), []
        except ValueError:
            pass
    found, wrong = np.full(len(cells), math.nan), []
    for i, cell in enumerate(cells):
        if cell.lower() not in words:
            if _is_number(cell):
                found[i] = float(cell)
            else:
                wrong.append(i)
    return found, wrong


def _is_number(text: str) -> bool:
    """Whether it is a number; 1_000 is none, which Python's float takes."""
    if "_" in text:
        return False
    try:
        float(text)
    except ValueError:
        return False
    return True
