"""From a file to the numbers of its columns and the group of each record."""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from importlib import import_module
from itertools import chain
from typing import Any

import numpy as np

from dpjax.command_line.cells import Block, Cell, cells_of, split_by_line, split_strictly
from dpjax.command_line.errors import UserError
from dpjax.command_line.files import Source, not_text, texts
from dpjax.command_line.kept import Counted, Keeper, Listed, Near, Table
from dpjax.command_line.parser import DELIMITERS
from dpjax.frames.grouping import codes_of, natural_order
from dpjax.several_quantiles.ranks import levels_needed, ranks_of_quantile

MISSING = ("", "na", "nan")
LARGEST = 50_000_000  # draws of an answer
Keep = Callable[[Sequence[str]], Counted | Listed]  # where the records of columns of these names go


def source_of(asked: argparse.Namespace) -> Source:
    """Return the file of a command line."""
    return Source(asked.file, asked.encoding, asked.delimiter, not asked.no_header, tuple(asked.missing), asked.decimal)


def near_of(asked: argparse.Namespace) -> Near | None:
    """Return what a single quantile reads of records; None for several, which read all."""
    if len(asked.quantile) > 1:
        return None
    ranks = ranks_of_quantile(asked.quantile[0], definition=asked.definition, neighbors=asked.neighbors)
    return Near(ranks, levels_needed(min(asked.epsilon)))


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

    def numbers(cells: list[Cell], column: str, lines: Sequence[int]) -> np.ndarray:
        found, wrong = numbers_of(cells, source.missing, source.decimal)
        if wrong:
            where, cell = f"{source.name}, line {lines[wrong[0]]}, column {column!r}", _text(cells[wrong[0]])
            comma = source.decimal == "." and _is_number(cell.replace(",", ".", 1))
            hint = "give --decimal comma" if comma else "if it means a missing value, give --missing"
            raise UserError(f"{where}: {cell[:40]!r} is not a number; {hint}.")
        return found

    table = _table(split, columns, len(by), numbers, None, keep)
    if not np.any(table.sizes):
        raise UserError(f"{source.name} has a header and no records.")
    order = sorted(range(len(table.labels)), key=lambda k: [natural_order(part) for part in table.labels[k]])
    return table.only(np.array(order, np.int64))


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


Numbers = Callable[[list[Cell], str, Sequence[int]], np.ndarray]


def _table(
    blocks: Iterable[Block],
    columns: Sequence[str],
    keys: int,
    numbers: Numbers,
    groups: Sequence[tuple[str, ...]] | None,
    keep: Keep,
) -> Table:
    """Keep the records of blocks, whose last columns are those of the groups."""
    keeper = Keeper(columns, keep(columns))
    index = {} if groups is None else {label: number for number, label in enumerate(groups)}
    cells_seen: dict[Any, int] = {}  # from cells as they are, which may have blanks around them
    for block in blocks:
        cells: list[Any] = list(zip(*block.columns[len(columns) :], strict=True)) if keys > 1 else block.columns[-1]
        for parts in dict.fromkeys(cells) if keys else ():
            label = tuple(_text(part) for part in (parts if keys > 1 else (parts,)))
            if parts not in cells_seen:
                cells_seen[parts] = index.setdefault(label, len(index)) if groups is None else index.get(label, -1)
        codes = codes_of(cells, cells_seen, grow=False) if keys else np.zeros(len(block.lines), np.int32)
        keeper.add([numbers(block.columns[k], column, block.lines) for k, column in enumerate(columns)], codes)
    return keeper.table(list(index) if keys else [()])


def numbers_of(cells: list[Cell], missing: Sequence[str] = (), decimal: str = ".") -> tuple[np.ndarray, list[int]]:
    """Read cells as numbers, float64, NaN for missing ones and for those that are none, whose places come second.

    >>> numbers_of(["1.5", " 2e1", "NA", "1_000", "x"])
    (array([ 1.5, 20. ,  nan,  nan,  nan]), [3, 4])
    >>> numbers_of(["1,5", "1.500,5"], decimal=",")
    (array([1.5, nan]), [1])
    """
    if decimal == ",":
        cells, missing = [_with_point(cell) for cell in cells], [str(_with_point(word)) for word in missing]
    words = {*MISSING, *(word.strip().lower() for word in missing)}
    if not any(_is_number(word) for word in words - {"nan"}) and not _has_underscore(cells):
        spelled: dict[Any, Any] = {
            form: "nan" for word in words for form in (word, word.upper(), word.encode(), word.upper().encode())
        }
        try:
            return np.array(list(map(float, map(spelled.get, cells, cells))), np.float64), []
        except ValueError:
            pass
    found, wrong = np.full(len(cells), math.nan), []
    for i, cell in enumerate(cells):
        text = _text(cell)
        if text.lower() not in words:
            if _is_number(text):
                found[i] = float(text)
            else:
                wrong.append(i)
    return found, wrong


def _with_point(cell: Cell) -> Cell:
    """A cell with a decimal point for a comma; a point, which would separate thousands, makes it no number."""
    return cell.translate(bytes.maketrans(b",.", b"._")) if isinstance(cell, bytes) else cell.translate(str.maketrans(",.", "._"))


def _has_underscore(cells: list[Cell]) -> bool:
    if cells and isinstance(cells[0], bytes):
        return b"_" in b"".join(cells)  # type: ignore[arg-type]  # all of a block are
    return "_" in "".join(cells)  # type: ignore[arg-type]


def _is_number(text: str) -> bool:
    """Whether it is a number; 1_000 is none, which Python's float takes."""
    if "_" in text:
        return False
    try:
        float(text)
    except ValueError:
        return False
    return True


def _text(cell: Cell) -> str:
    return (cell.decode() if isinstance(cell, bytes) else cell).strip()
