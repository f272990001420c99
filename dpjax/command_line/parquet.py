"""Parquet files, by Polars or PyArrow, some records at a time, and as frames from there on."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from dpjax.command_line.errors import UserError
from dpjax.command_line.files import Source
from dpjax.command_line.kept import Keeper, Table
from dpjax.command_line.table import Keep
from dpjax.frames.grouping import natural_order
from dpjax.frames.tables import read_frame

_ROWS = 2**20  # records at a time


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


def read(
    source: Source, columns: Sequence[str] | None, by: Sequence[str], groups: Sequence[tuple[str, ...]] | None, keep: Keep
) -> Table:
    """Read columns of numbers; labels of groups become text, and a record without one is in no group."""
    frame, there = scanned(source, [*(columns or ()), *by])
    if columns is None:
        if len(there) > 1:
            raise UserError(f"{source.name} has {len(there)} columns, choose some with --column: {', '.join(there)}.")
        columns = there
    keeper = Keeper(columns, keep(columns))
    index: dict[Any, int] = {}  # from labels as they are
    for part in _parts(frame, list(dict.fromkeys([*columns, *by]))):
        try:
            table = read_frame(part, columns, by or None, None, "add_remove")
        except TypeError as error:  # a column that holds no numbers
            raise UserError(f"{source.name}: {error}") from error
        number = [index.setdefault(label, len(index)) for label in table.grouping.labels]
        if groups is not None:
            texts = [tuple(map(str, label)) for label in table.grouping.labels]
            number = [groups.index(label) if label in groups else -1 for label in texts]
        keeper.add([table.columns[column] for column in columns], np.array([*number, -1], np.int32)[table.grouping.codes])
    if groups is not None:
        return keeper.table(groups)
    labels = [tuple(map(str, label)) for label in index]
    order = sorted(range(len(labels)), key=lambda k: [natural_order(part) for part in labels[k]])
    return keeper.table(labels).only(np.array(order, np.int64))


def _parts(frame: Any, names: list[str]) -> Iterator[Any]:
    """Some records at a time; of a file without one, a frame of none."""
    if hasattr(frame, "collect_schema"):  # Polars
        polars = importlib.import_module("polars")
        size = frame.select(polars.len()).collect().item()
        for start in range(0, max(size, 1), _ROWS):
            yield frame.select(names).slice(start, _ROWS)
        return
    pyarrow = importlib.import_module("pyarrow")
    yield frame.schema_arrow.empty_table().select(names)
    for batch in frame.iter_batches(_ROWS, columns=names):
        yield pyarrow.Table.from_batches([batch])
