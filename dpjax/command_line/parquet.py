"""Parquet files, by Polars or PyArrow, some records at a time."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from dpjax.command_line.errors import UserError
from dpjax.command_line.files import Source
from dpjax.command_line.kept import Table
from dpjax.command_line.table import Keep, in_order
from dpjax.release.records import as_floats

_ROWS = 2**20  # records at a time


def scanned(source: Source, names: Sequence[str] | None) -> tuple[Any, list[str]]:
    """Return a file's frame, of which no record is read yet, and its columns, with a check that it has ``names``."""
    found = [name for name in ("polars", "pyarrow") if importlib.util.find_spec(name)]
    if not found:
        raise UserError("Parquet needs Polars or PyArrow: pip install polars.")
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
    keeper = keep(columns)
    index: dict[tuple[str, ...], int] = {} if groups is None else {label: number for number, label in enumerate(groups)}
    for part in _parts(frame, list(dict.fromkeys([*columns, *by]))):
        numbers = [_numbers(part[name], name, source) for name in columns]
        codes = np.zeros(len(part), np.int32)
        if by:
            labels = list(zip(*(_labels(part[name], name, source) for name in by), strict=True))
            seen: dict[tuple[Any, ...], int] = {}  # from labels as they are
            for label in dict.fromkeys(labels):
                text = tuple(map(str, label))
                if any(word is None or word != word for word in label):
                    seen[label] = -1
                else:
                    seen[label] = index.setdefault(text, len(index)) if groups is None else index.get(text, -1)
            codes = np.fromiter(map(seen.__getitem__, labels), np.int32, len(labels))
        keeper.add(numbers, codes)
    table = keeper.table(list(index) if by else [()])
    return in_order(table) if groups is None else table


def _parts(frame: Any, names: list[str]) -> Iterator[Any]:
    """Some records at a time, as tables with an item for each column; of a file without one, a table of none."""
    if hasattr(frame, "collect_schema"):  # Polars
        polars = importlib.import_module("polars")
        size = frame.select(polars.len()).collect().item()
        for start in range(0, max(size, 1), _ROWS):
            yield frame.select(names).slice(start, _ROWS).collect()
        return
    pyarrow = importlib.import_module("pyarrow")
    yield frame.schema_arrow.empty_table().select(names)
    for batch in frame.iter_batches(_ROWS, columns=names):
        yield pyarrow.Table.from_batches([batch])


def _numbers(column: Any, name: str, source: Source) -> np.ndarray:
    """The numbers of a column, float64; its dtype, which is public, must be one of numbers."""
    if not _is(column, "is_numeric", "integer", "floating", "decimal", "boolean") and str(_kind(column)) != "Boolean":
        raise UserError(f"{source.name}: column {name!r} must have a dtype of numbers: convert it before.")
    return as_floats(column.to_numpy())


def _labels(column: Any, name: str, source: Source) -> list[Any]:
    """The labels of a column as Python objects that compare by their value, None or NaN for missing ones."""
    if _is(column, "is_nested", "nested"):
        raise UserError(f"{source.name}: column {name!r} is nested, which cannot name a group.")
    if _is(column, "is_float", "floating"):
        return list((as_floats(column.to_numpy()) + 0.0).tolist())  # there is one zero
    return list((column.to_list if hasattr(column, "to_list") else column.to_pylist)())


def _kind(column: Any) -> Any:
    return column.dtype if hasattr(column, "dtype") else column.type


def _is(column: Any, question: str, *kinds: str) -> bool:
    """Ask the dtype of a column a question, or PyArrow whether its type is of some kinds."""
    if hasattr(column, "dtype"):
        return bool(getattr(column.dtype, question)())
    types = importlib.import_module("pyarrow").types
    return any(getattr(types, f"is_{kind}")(column.type) for kind in kinds)
