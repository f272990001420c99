"""Conversion of a file to a table for ``dpjax.frames``.

It has columns of text, or is a frame of a Parquet file.
"""

from __future__ import annotations

import argparse
import csv
import datetime
import glob
import importlib
import importlib.util
import os
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from dpjax.accounting.filters import BudgetExceeded
from dpjax.command_line.csv_columns import Labels, missing_words
from dpjax.command_line.csv_files import check_columns, read_columns
from dpjax.command_line.csv_text import Source, check, is_parquet
from dpjax.command_line.errors import UserError
from dpjax.command_line.text import in_options
from dpjax.frames.columns import TIMES
from dpjax.frames.tables import kinds_of

_OF_TEXT = {
    "delimiter": ",",
    "decimal": ".",
    "thousands": "",
    "records": "csv",
    "encoding": "utf-8",
    "missing": [],
    "no_header": False,
}
# Integers below these are exact floats, and fit into a column, respectively
_EXACT, _BEYOND = 2**53, 2**64
# Engines whose messages may show records.
_ENGINES = ("polars", "duckdb", "_duckdb", "pyarrow", "narwhals", "pyo3_runtime")


def source_of(asked: argparse.Namespace) -> Source:
    """Return the file of a command line.

    Raise :class:`UserError` if the output cannot be written.
    """
    names = tuple(asked.missing), asked.decimal, asked.thousands, asked.records
    source = Source(asked.file, asked.encoding, asked.delimiter, not asked.no_header, *names)
    check(source)
    if asked.output is not None:
        _check_output(asked)
    if is_parquet(asked.file):
        for name, default in _OF_TEXT.items():
            if getattr(asked, name) != default:
                raise UserError(
                    f"--{name.replace('_', '-')} is for delimited text, and {asked.file} is a "
                    "Parquet file."
                )
    return source


def _check_output(asked: argparse.Namespace) -> None:
    """Raise :class:`UserError` if the output cannot be written or is an input.

    This happens before anything is spent.
    """
    folder = os.path.dirname(os.path.abspath(asked.output))
    if os.path.isdir(asked.output):
        raise UserError(f"cannot write {asked.output}: it is a folder.")
    if "\0" in asked.output or not os.path.isdir(folder):
        raise UserError(f"cannot write {asked.output}: there is no such folder.")
    if not os.access(asked.output if os.path.exists(asked.output) else folder, os.W_OK):
        raise UserError(f"cannot write {asked.output}: permission denied.")
    if _same(asked.file, asked.output):
        raise UserError(f"--output {asked.output} is the input file, whose records would be lost.")
    ledger = getattr(asked, "ledger", None)
    if ledger is not None and (
        _same(ledger, asked.output) or os.path.realpath(ledger) == os.path.realpath(asked.output)
    ):
        raise UserError(f"--output {asked.output} is the ledger, whose charges would be lost.")


def _same(path: str, other: str) -> bool:
    """Return whether two paths refer to one file, also through links; - is standard input."""
    try:
        return os.path.samestat(
            os.fstat(sys.stdin.fileno()) if path == "-" else os.stat(path), os.stat(other)
        )
    except (OSError, ValueError):  # one of them does not exist
        return False


@contextmanager
def mistakes(source: Source) -> Iterator[None]:
    """Convert errors of this package and of other libraries to :class:`UserError`.

    Messages of dpjax contain public parameters, names and dtypes only. All errors of Parquet
    readers, whose messages may contain records, become one message.
    """
    try:
        yield
    except UserError:
        raise
    except BaseException as error:
        of_file = type(error).__module__.partition(".")[0] in _ENGINES or (
            isinstance(error, OSError) and error.errno is None
        )
        if of_file:
            raise UserError(
                f"cannot read {source.name}: it is a broken Parquet file, or has unsupported "
                "contents."
            ) from None
        if isinstance(error, OSError):
            raise UserError(f"cannot open {error.filename}: {error.strerror}.") from error
        if isinstance(error, ValueError | TypeError | ImportError | BudgetExceeded):
            raise UserError(in_options(str(error))) from error
        raise


def table_of(
    source: Source, numbers: Sequence[str] | None, labels: Sequence[str], times: Mapping[str, bool]
) -> tuple[Any, list[str], dict[str, int]]:
    """Return the table of a file, its columns of numbers, and counts of invalid cells.

    The counts are those of the columns of text. Without ``numbers`` the file must have a single
    column. Columns in ``times`` hold dates where it is True, and times where it is False.
    """
    _check_apart(numbers or (), labels)
    if source.is_parquet:
        frame, names = _scanned(source, numbers or (), labels, times)
        if numbers is None and len(names) > 1:
            raise UserError(
                f"{source.name} has {len(names)} columns, choose some with --column: "
                f"{', '.join(names)}."
            )
        _check_apart(numbers or names, labels)
        return frame, list(numbers or names), {}
    plain = None if numbers is None else [name for name in numbers if name not in times]
    found = read_columns(source, plain, list(dict.fromkeys([*labels, *times])))
    _check_apart(list(found.numbers), labels)
    table, unread = {**found.numbers, **found.labels}, dict(found.not_numbers)
    for name, dates in times.items():
        table[name], unread[name] = _times_of(found.labels[name], dates, missing_words(source))
    return table, list(numbers or found.numbers), unread


def _times_of(labels: Labels, dates: bool, missing: Collection[str]) -> tuple[np.ndarray, int]:
    """Parse cells as ISO 8601 dates or times without a zone.

    Return them and the count of invalid cells.
    """
    values = [*(_time_of(name, dates) for name in labels.names), None]
    found = np.array(values, "datetime64[D]" if dates else "datetime64[us]")[labels.codes]
    wrong = np.array([*(name.lower() not in missing for name in labels.names), False])[labels.codes]
    return found, int(np.count_nonzero(np.isnat(found) & wrong))


def _time_of(text: str, dates: bool) -> datetime.date | None:
    try:
        found = (datetime.date if dates else datetime.datetime).fromisoformat(text)
    except ValueError:
        return None
    return None if isinstance(found, datetime.datetime) and found.tzinfo is not None else found


def _check_apart(numbers: Sequence[str], labels: Sequence[str]) -> None:
    if both := [name for name in numbers if name in labels]:
        raise UserError(f"the column {both[0]!r} cannot hold both numbers and labels.")


def empty_table(
    source: Source, numbers: Sequence[str], labels: Sequence[str], times: Mapping[str, bool]
) -> Any:
    """Return a table without records that has the columns and public properties of a file."""
    _check_apart(numbers, labels)
    if source.is_parquet:
        return _scanned(source, numbers, labels, times)[0]
    check_columns(source, [*numbers, *labels])
    nothing = Labels(np.zeros(0, np.int32), [])
    kinds = {name: "datetime64[D]" if dates else "datetime64[us]" for name, dates in times.items()}
    return {
        **{name: np.zeros(0, kinds.get(name, "f8")) for name in numbers},
        **dict.fromkeys(labels, nothing),
    }


def _scanned(
    source: Source, numbers: Sequence[str], labels: Sequence[str], times: Mapping[str, bool]
) -> tuple[Any, list[str]]:
    """Return a Parquet file as a lazy frame or PyArrow table, and its column names."""
    try:
        with open(source.path, "rb") as file:
            start = file.read(4)
    except OSError as error:
        raise UserError(f"cannot read {source.name}: {error.strerror}.") from error
    if start != b"PAR1":
        raise UserError(f"{source.name} is not a Parquet file.")
    frame: Any
    with mistakes(source):
        if importlib.util.find_spec("polars"):
            frame = importlib.import_module("polars").scan_parquet(source.path, glob=False)
            names = list(frame.collect_schema())
        elif importlib.util.find_spec("duckdb"):
            frame = importlib.import_module("duckdb").from_parquet(glob.escape(source.path))
            names = list(frame.columns)
        elif importlib.util.find_spec("pyarrow"):
            frame = importlib.import_module("pyarrow.parquet").read_table(source.path)
            names = list(frame.column_names)
        else:
            raise UserError("Parquet needs Polars, DuckDB or PyArrow: pip install polars.")
        for name in (*numbers, *labels):
            if name not in names:
                raise UserError(
                    f"{source.name} has no column {name!r}; its columns are {', '.join(names)}."
                )
        for name in numbers:
            if name not in times and kinds_of(frame)(name) in TIMES:
                raise UserError(
                    f"column {name!r} has dates or times: --lower and --upper must be such, and "
                    "--resolution a duration such as 1d."
                )
    return frame, names


def labels_of(groups: Sequence[str], by: Sequence[str], kinds: Callable[[str], str]) -> list[Any]:
    """Parse the labels of groups, as CSV and by the kinds of the columns.

    >>> labels_of(["1", "2.0"], ["year"], lambda name: "number")
    [1, 2]
    >>> labels_of(["north,f", '"a,b",m'], ["region", "sex"], lambda name: "String")
    [('north', 'f'), ('a,b', 'm')]
    """
    found = []
    for text in groups:
        parts = _parts(text)
        if len(parts) != len(by):
            if len(by) == 1:
                said = f"--groups takes labels separated by blanks, and {text!r} has a comma"
                raise UserError(f"""{said}: if this is one label, quote it as '"{text}"'.""")
            raise UserError(
                f"--groups must have {len(by)} labels separated by commas for {len(by)} columns, "
                f"got {text}."
            )
        label = tuple(
            _label(part.strip(), kinds(name), name) for part, name in zip(parts, by, strict=True)
        )
        found.append(label if len(by) > 1 else label[0])
    return list(dict.fromkeys(found))


def _parts(text: str) -> list[str]:
    """Return the cells of one line of CSV."""
    try:
        return next(csv.reader([text]), []) or [""]
    except csv.Error:  # a line break outside of quotes
        return text.split(",")


def _label(text: str, kind: str, column: str) -> Any:
    """Parse one label by the kind of its column."""
    if not text:
        raise UserError("--groups must not have an empty label, as missing labels are in no group.")
    try:
        if kind == "number":
            return _integer(text)
        if kind.startswith("Float"):
            number = float(text)
            return int(number) if abs(number) < _EXACT and number.is_integer() else number
        if kind == "Boolean":
            return {"true": True, "false": False}[text.lower()]
        if kind in ("Date", "Datetime"):
            return {"Date": datetime.date, "Datetime": datetime.datetime}[kind].fromisoformat(text)
    except (ValueError, KeyError):
        holds = "number" if kind.startswith("Float") else kind.lower()
        raise UserError(
            f"column {column!r} holds {holds} labels, so no group is {text!r}."
        ) from None
    return text


def _integer(text: str) -> int:
    """Parse a label of an integer column; raise ``ValueError`` if no such column can hold it."""
    try:
        number = int(text)
    except ValueError:
        number = int(float(text)) if float(text).is_integer() else _BEYOND
    if abs(number) >= _BEYOND:
        raise ValueError(f"no column of integers holds {text}")
    return number
