"""From a file to a table that frames take: a mapping of columns of text files, or what Polars or PyArrow make of Parquet."""

from __future__ import annotations

import argparse
import csv
import datetime
import importlib
import importlib.util
import os
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from dpjax.command_line.csv_columns import Labels
from dpjax.command_line.csv_files import check_columns, read_columns
from dpjax.command_line.csv_text import Source
from dpjax.command_line.errors import UserError


def source_of(asked: argparse.Namespace) -> Source:
    """Return the file of a command line; its output must be another one."""
    if (
        asked.output is not None
        and asked.file != "-"
        and os.path.exists(asked.output)
        and os.path.samefile(asked.file, asked.output)
    ):
        raise UserError(f"--output {asked.output} is the file that is read: its records would be lost.")
    names = tuple(asked.missing), asked.decimal, asked.thousands, asked.records
    return Source(asked.file, asked.encoding, asked.delimiter, not asked.no_header, *names)


def table_of(source: Source, numbers: Sequence[str] | None, labels: Sequence[str]) -> tuple[Any, list[str], dict[str, int]]:
    """Return the table of a file, its columns of numbers, and how many cells of each are no numbers, where that is known.

    Without ``numbers`` the file must have a single column.
    """
    if source.is_parquet:
        frame = _scanned(source)
        names = list(frame.collect_schema() if hasattr(frame, "collect_schema") else getattr(frame, "columns", ()))
        names = getattr(frame, "column_names", names)
        if numbers is None and len(names) > 1:
            raise UserError(f"{source.name} has {len(names)} columns, choose some with --column: {', '.join(names)}.")
        return frame, list(numbers or names), {}
    _check_apart(numbers or (), labels)
    found = read_columns(source, numbers, list(dict.fromkeys(labels)))
    return {**found.numbers, **found.labels}, list(found.numbers), found.not_numbers


def _check_apart(numbers: Sequence[str], labels: Sequence[str]) -> None:
    if both := [name for name in numbers if name in labels]:
        raise UserError(f"the column {both[0]!r} cannot hold both numbers and labels.")


def empty_table(source: Source, numbers: Sequence[str], labels: Sequence[str]) -> Any:
    """Return a table of no record with the columns of a file, of which only what is public is looked at."""
    if source.is_parquet:
        return _scanned(source)
    _check_apart(numbers, labels)
    check_columns(source, [*numbers, *labels])
    nothing = Labels(np.zeros(0, np.int32), [])
    return {**dict.fromkeys(numbers, np.zeros(0)), **dict.fromkeys(labels, nothing)}


def _scanned(source: Source) -> Any:
    """A file of Parquet as a frame of which no record is read yet, or as a table of PyArrow."""
    try:
        if importlib.util.find_spec("polars"):
            return importlib.import_module("polars").scan_parquet(source.path)
        if importlib.util.find_spec("duckdb"):
            return importlib.import_module("duckdb").from_parquet(source.path)
        if importlib.util.find_spec("pyarrow"):
            return importlib.import_module("pyarrow.parquet").read_table(source.path)
    except Exception as error:  # each library has its own
        raise UserError(f"cannot read {source.name}: {' '.join(str(error).split())}.") from error
    raise UserError("Parquet needs Polars, DuckDB or PyArrow: pip install polars.")


def labels_of(groups: Sequence[str], by: Sequence[str], kinds: Callable[[str], str]) -> list[Any]:
    """Return the labels that are named in words: read as CSV, and as what the columns hold.

    >>> labels_of(["1", "2.0"], ["year"], lambda name: "number")
    [1, 2]
    >>> labels_of(["north,f", '"a,b",m'], ["region", "sex"], lambda name: "String")
    [('north', 'f'), ('a,b', 'm')]
    """
    found = []
    for text in groups:
        parts = next(csv.reader([text]), [""])
        if len(parts) != len(by):
            if len(by) == 1:
                said = f"{text!r} is one label with a comma, and --groups takes labels with blanks between them"
                raise UserError(f"""{said}: to mean that label, quote it as '"{text}"'.""")
            raise UserError(f"a group by {len(by)} columns is named by {len(by)} labels with commas, got {text}.")
        label = tuple(_label(part.strip(), kinds(name), name) for part, name in zip(parts, by, strict=True))
        found.append(label if len(by) > 1 else label[0])
    return list(dict.fromkeys(found))


def _label(text: str, kind: str, column: str) -> Any:
    """One label as the column holds it."""
    try:
        if kind == "number" or kind.startswith("Float"):
            number = float(text)
            return int(number) if number.is_integer() else number
        if kind == "Boolean":
            return {"true": True, "false": False}[text.lower()]
        if kind in ("Date", "Datetime"):
            return {"Date": datetime.date, "Datetime": datetime.datetime}[kind].fromisoformat(text)
    except (ValueError, KeyError):
        raise UserError(f"column {column!r} holds {kind.lower()} labels, so no group is {text!r}.") from None
    return text
