"""Frames of any kind as arrays, with the group of each row as a number, by narwhals: the engine compares the labels."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from types import ModuleType
from typing import Any

import numpy as np

from dpjax.frames.labels import in_order, is_missing, joined, public_labels, text_of
from dpjax.frames.private_groups import PrivateGroups
from dpjax.release.records import as_floats

_TEXT = ("Object", "object", "null", "string_view")  # dtypes whose labels are compared as text


@dataclass(frozen=True)
class Table:
    """The columns of a frame that are asked for.

    Attributes:
        columns: float64 ``(n,)`` each, NaN where a value is missing; of ids, int64 numbers, -1 where one is missing.
        codes: int64 ``(n,)``, the number of the group of each row, -1 for none.
        labels: of the groups, for each column of groups.
        groups: how many there are.
        remake: makes a frame of the kind that was read from columns.
    """

    columns: dict[str, np.ndarray]
    codes: np.ndarray
    labels: dict[str, list[Any]]
    groups: int
    remake: Callable[[dict[str, Any]], Any]

    @property
    def sizes(self) -> np.ndarray:
        """How many rows each group has, int64."""
        return np.bincount(self.codes + 1, minlength=self.groups + 1)[1:]

    def numbers(self, which: np.ndarray) -> np.ndarray:
        """Return how many rows of each group are among those, a bool ``(n,)``, int64."""
        return np.bincount(self.codes[which] + 1, minlength=self.groups + 1)[1:]

    def only(self, kept: np.ndarray) -> Table:
        """Return the table of the groups of these numbers, in this order."""
        number = np.full(self.groups + 1, -1)
        number[kept] = np.arange(len(kept))
        labels = {name: [part[k] for k in kept.tolist()] for name, part in self.labels.items()}
        return replace(self, codes=number[self.codes], labels=labels, groups=len(kept))


def read_table(
    frame: Any,
    columns: Iterable[str],
    ids: Sequence[str],
    by: str | Sequence[str] | None,
    groups: Iterable[Any] | PrivateGroups | None,
    neighbors: str,
) -> Table:
    """Read columns of numbers or, if in ``ids``, of any labels, and the groups: those that are named, otherwise all, in order."""
    keys = () if by is None else tuple(by) if isinstance(by, (list, tuple)) else (by,)
    if keys and neighbors == "swap":
        raise ValueError("by needs neighbors='add_remove': a replaced record can move from one group to another.")
    if not keys and groups is not None:
        raise ValueError("groups need by, the column that they are in.")
    numbers, labelled = [name for name in columns if name not in ids], [(name,) for name in ids]
    found, coded, kinds, remake = _read(frame, numbers, [*labelled, keys] if keys else labelled)
    for name, (codes, labels) in zip(ids, coded, strict=False):
        found[name] = _renumbered(codes, labels, list(dict.fromkeys(labels)))
    if not keys:
        return Table(found, np.zeros(len(next(iter(found.values()))), np.int64), {}, 1, remake)
    codes, labels = coded[-1]
    if groups is None or isinstance(groups, PrivateGroups):
        names = in_order(set(labels) - {None}, len(keys) > 1)
        shown = [names] if len(keys) == 1 else [[name[place] for name in names] for place in range(len(keys))]
    else:
        names, shown = public_labels(groups, keys, [kinds[key] for key in keys])
    return Table(found, _renumbered(codes, labels, names), dict(zip(keys, shown, strict=True)), len(names), remake)


def _renumbered(codes: np.ndarray, labels: Sequence[Any], named: Sequence[Any]) -> np.ndarray:
    """Number each row by the place of its label among those named, -1 where it has none."""
    place = {label: number for number, label in enumerate(named) if label is not None}
    return np.array([*(place.get(label, -1) for label in labels), -1])[codes]


def _numbered_objects(labels: Iterable[Any]) -> tuple[np.ndarray, list[Any]]:
    """Number objects by their text, the same for equal ones, and None and NaN as None."""
    index: dict[Any, int] = {}
    texts = [label if type(label) is str else None if is_missing(label) else text_of(label) for label in labels]
    return np.array([index.setdefault(text, len(index)) for text in texts], np.int64), list(index)


def _read(frame: Any, numbers: Sequence[str], labelled: Sequence[tuple[str, ...]]) -> Any:
    """Read a frame by narwhals.

    Returns:
        Float64 arrays by name; for each of ``labelled``, columns whose labels together make one, the number of the label of each
        row, -1 for some that are missing, and the labels by number; the kinds of these columns; and what makes a frame of columns.
    """
    narwhals = _narwhals()
    try:
        known = narwhals.from_native(frame)
    except TypeError as error:
        raise TypeError(f"frame must be of pandas, Polars or PyArrow, or a DuckDB relation, got {type(frame).__name__}.") from error
    there, keys = known.collect_schema(), tuple(dict.fromkeys(key for some in labelled for key in some))
    missing = [name for name in (*numbers, *keys) if name not in there]
    if missing:
        raise ValueError(f"the frame has no column {missing[0]!r}; its columns are {', '.join(map(str, there))}.")
    for key in keys:
        if there[key].is_nested():
            raise TypeError(f"column {key!r} holds {there[key]}, which cannot name a group.")
    lazy = isinstance(known, narwhals.LazyFrame)
    remake = partial(_made, narwhals, known.implementation, lazy)
    known = known.select(*dict.fromkeys((*numbers, *keys)))
    known = known.collect() if lazy else known
    for name in numbers:
        if not (known[name].dtype.is_numeric() or str(known[name].dtype) == "Boolean"):
            raise TypeError(f"column {name!r} must have a dtype of numbers: convert it before.")
    kinds, texts = {key: _kind_of(known[key]) for key in keys}, {}
    for key in keys:
        if kinds[key] == "text":
            codes, texts[key] = _numbered_objects(_objects(known[key]))
            known = known.with_columns(narwhals.new_series(key, codes, narwhals.Int64, backend=known.implementation))
    distinct = {}
    for some in labelled:
        code = "number"
        while code in known.columns:  # until it is free
            code += "_"
        different = known.select(*some).unique().with_row_index(code)
        cells = {key: _objects(different[key]) for key in some}
        distinct[code] = joined([[texts[key][k] for k in cells[key]] if key in texts else cells[key] for key in some])
        known = known.join(different, on=list(some), how="left")  # in an order of its own
    coded = [(known[code].fill_null(-1).to_numpy().astype(np.int64), labels) for code, labels in distinct.items()]
    return {name: _numbers(known[name]) for name in numbers}, coded, kinds, remake


def _objects(series: Any) -> list[Any]:
    """Return the cells of a column as Python objects that compare by their value, None for missing ones."""
    if series.dtype.is_float():
        with np.errstate(invalid="ignore"):
            numbers = series.to_numpy() + 0.0  # there is one zero
        return [None if gone else cell for cell, gone in zip(numbers.tolist(), np.isnan(numbers).tolist(), strict=True)]
    try:
        found, missing = series.to_list(), series.is_null()
    except Exception:  # a date that Python does not hold, or a signaling NaN: one row must not change what becomes of the others
        return [_object(series, place) for place in range(len(series))]
    return [None if gone else cell for cell, gone in zip(found, missing.to_list(), strict=True)] if missing.any() else list(found)


def _object(series: Any, place: int) -> Any:
    try:
        cell = series[place : place + 1]
        return None if cell.is_null().any() else cell.to_list()[0]
    except Exception:
        return None


def _kind_of(series: Any) -> str:
    """Name what labels a column can hold: by the dtype and never by what the column holds."""
    native = series.to_native()
    dtype = getattr(native, "dtype", getattr(native, "type", None))
    if {str(series.dtype), str(dtype)} & set(_TEXT):
        return "text"
    categories: Any = getattr(dtype, "categories", None)
    if hasattr(categories, "to_series"):  # of pandas, which are of any dtype
        return _kind_of(_narwhals().from_native(categories.to_series(), series_only=True))
    if str(series.dtype).startswith(("Categorical", "Enum")):
        return "String" if "string" in str(getattr(dtype, "value_type", "string")) else "other"
    if series.dtype.is_numeric() and not series.dtype.is_float():
        return "number"
    return str(series.dtype).partition("(")[0]


def _numbers(series: Any) -> np.ndarray:
    if str(series.dtype) in ("Int128", "UInt128"):
        series = series.cast(_narwhals().Float64)
    return as_floats(series.to_numpy())


def _narwhals() -> ModuleType:
    try:
        import narwhals
    except ImportError as error:
        raise ImportError("dpjax.frames needs narwhals: pip install 'dpjax[frames]'.") from error
    return narwhals


def _made(narwhals: ModuleType, kind: Any, lazy: bool, columns: dict[str, Any]) -> Any:
    duckdb = str(kind) == "duckdb"
    made = narwhals.from_dict(columns, backend="pyarrow" if duckdb else kind)
    return narwhals.to_native(made.lazy("duckdb" if duckdb else None) if lazy else made)
