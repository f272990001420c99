"""Parquet files, by Polars or PyArrow, and as frames from there on."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Sequence
from typing import Any

import numpy as np

from dpjax.command_line.errors import UserError
from dpjax.command_line.files import Source, Table
from dpjax.frames.tables import read_frame
from dpjax.statistics.grouping import Grouping


def scanned(source: Source, names: Sequence[str] | None) -> tuple[Any, list[str]]:
    """Return a file's frame, of which no record is read yet, and its columns, with a check that it has ``names``."""
    found = [name for name in ("polars", "pyarrow", "narwhals") if importlib.util.find_spec(name)]
    if "narwhals" not in found or len(found) < 2:
        raise UserError("Parquet needs narwhals, and Polars or PyArrow: pip install narwhals polars.")
    try:
        if found[0] == "polars":
            frame: Any = importlib.import_module("polars").scan_parquet(source.path)
            there = frame.collect_schema().names()
        else:
            frame = importlib.import_module("pyarrow.parquet").ParquetFile(source.path)
            there = frame.schema_arrow.names
    except Exception as error:  # each library has its own
        raise UserError(f"cannot read {source.name}: {' '.join(str(error).split())}.") from error
    for name in names or ():
        if name not in there:
            raise UserError(f"{source.name} has no column {name!r}; its columns are {', '.join(there)}.")
    return frame, there


def read(source: Source, columns: Sequence[str] | None, by: Sequence[str], groups: Sequence[tuple[str, ...]] | None) -> Table:
    """Read columns of numbers; labels of groups become text, and a record without one is in no group."""
    frame, there = scanned(source, [*(columns or ()), *by])
    if columns is None:
        if len(there) > 1:
            raise UserError(f"{source.name} has {len(there)} columns, choose some with --column: {', '.join(there)}.")
        columns = there
    if not hasattr(frame, "collect_schema"):
        frame = frame.read(columns=list(dict.fromkeys([*columns, *by])))
    try:
        table = read_frame(frame, columns, by or None, None, "add_remove")
    except TypeError as error:  # a column that holds no numbers
        raise UserError(f"{source.name}: {error}") from error
    labels = [tuple(str(part) for part in label) for label in table.grouping.labels]
    if groups is None:
        return Table(table.columns, Grouping(table.grouping.codes, labels))
    number = np.full(len(labels) + 1, -1, np.int32)
    for k, label in enumerate(labels):
        number[k] = groups.index(label) if label in groups else -1
    return Table(table.columns, Grouping(number[table.grouping.codes], groups))
