"""Frames of any kind as arrays, and results as a frame of the same kind, by narwhals."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from types import ModuleType
from typing import Any

import numpy as np

from dpjax import checks
from dpjax.accounting import Composition, Guarantee
from dpjax.display import TEXT_WIDTH, cell_of, text_table
from dpjax.frames.grouping import Grouping, codes_of, natural_order
from dpjax.frames.private_groups import PrivateGroups
from dpjax.release.grid import as_floats

_SAID_ONCE = ("column", "missing", "epsilon")  # below a printed table, where they are the same in all rows
_FIRST = ("records", "released")  # before these, a row says what it is of
_CHUNK = 2**20  # labels that are Python objects at a time


@dataclass(frozen=True, repr=False)
class FrameResult:
    """What came of a frame. Printed, it is a table with what is the same in all rows, the guarantee and the note below.

    Attributes:
        frame: of the kind that was given, a row for each group, column, epsilon and quantile.
        guarantee: what all of it costs together.
        guarantees: by column and epsilon, what its draws cost, in all groups together: ``guarantees["age", 0.5]``.
        note: what spoils a simulation, in a sentence or two; empty if nothing does.
    """

    frame: Any
    guarantee: Guarantee | Composition
    guarantees: dict[tuple[str, float], Guarantee | Composition]
    note: str = ""

    def __repr__(self) -> str:
        known = self._collected()
        cells = {name: known[name].to_list() for name in known.columns}
        same = {}
        if len(known) > 1:
            same = {name: column[0] for name, column in cells.items() if name in _SAID_ONCE and len(set(column)) == 1}
        left = {name: column for name, column in cells.items() if name not in same}
        table = text_table(left, min(list(left).index(name) for name in _FIRST if name in left))
        below = [", ".join(f"{name} {cell_of(value)}" for name, value in same.items()), str(self.guarantee), self.note]
        return "\n".join([table, *(textwrap.fill(line, TEXT_WIDTH) for line in below if line)])

    def _repr_html_(self) -> str:
        native = _narwhals().to_native(self._collected())
        if not hasattr(native, "_repr_html_"):
            return f"<pre>{escape(repr(self))}</pre>"
        note = f"<p>{escape(self.note)}</p>" if self.note else ""
        return f"<div>{native._repr_html_()}<p>{escape(str(self.guarantee))}</p>{note}</div>"

    def _collected(self) -> Any:
        """The frame by narwhals, in memory."""
        known = _narwhals().from_native(self.frame)
        return known.collect() if hasattr(known, "collect") else known


@dataclass(frozen=True)
class Table:
    """The columns of a frame that are asked for.

    Attributes:
        columns: float64 ``(n,)`` each, NaN where a value is missing.
        by: the names of the columns of groups.
        grouping: which group each row is in; one group of all without ``by``.
        kind: what made it, by narwhals, to make another: the module, the backend, and whether it was lazy.
    """

    columns: dict[str, np.ndarray]
    by: tuple[str, ...]
    grouping: Grouping
    kind: tuple[ModuleType, Any, bool]

    def frame_of(
        self,
        found: Mapping[tuple[str, int], Sequence[dict[str, Any]]],
        grouping: Grouping,
        asked: Mapping[str, Mapping[str, Any]],
        sizes: Mapping[str, Sequence[Any]],
        names: Sequence[str],
    ) -> Any:
        """Return a frame of the kind of the one that was read, from rows by column and number of the group.

        ``asked`` are the options of each column, ``sizes`` columns with an entry for each group, ``names`` the last columns.
        """
        rows: list[dict[str, Any]] = [
            dict(zip(self.by, label, strict=True))
            | {name: of_groups[group] for name, of_groups in sizes.items()}
            | {"column": column}
            | row
            for column in asked
            for group, label in enumerate(grouping.labels)
            for row in found[column, group]
        ]
        several = ["quantile"] * any("qs" in own for own in asked.values())
        draws = ["draw"] * any(own.get("draws", 1) > 1 for own in asked.values())
        columns = {name: [row.get(name) for row in rows] for name in (*self.by, *sizes, "column", *several, *draws, *names)}
        narwhals, kind, lazy = self.kind
        duckdb = str(kind) == "duckdb"
        made = narwhals.from_dict(columns, backend="pyarrow" if duckdb else kind)
        return narwhals.to_native(made.lazy("duckdb" if duckdb else None) if lazy else made)


def asked_columns(columns: str | Iterable[str] | Mapping[str, Mapping[str, Any]], shared: dict[str, Any]) -> dict[str, Any]:
    """Return the options of each column: those of its own over the shared ones."""
    if isinstance(columns, Mapping):
        return {name: shared | dict(own) for name, own in columns.items()}
    if hasattr(columns, "dtype"):
        raise TypeError(f"columns must be names of columns of the frame, got the {type(columns).__name__} itself.")
    names = [columns] if isinstance(columns, str) else list(columns)
    if not names or len(set(names)) < len(names):
        raise ValueError(f"columns must be one or more different names, got {columns!r}.")
    return {name: dict(shared) for name in names}


def read_frame(
    frame: Any, columns: Iterable[str], by: str | Sequence[str] | None, groups: Iterable[Any] | PrivateGroups | None, neighbors: str
) -> Table:
    """Read columns of numbers, and the groups: those with the labels ``groups``, otherwise all that the frame has, in order."""
    checks.one_of("neighbors", neighbors, checks.NEIGHBORS)
    keys = () if by is None else (by,) if isinstance(by, str) else tuple(by)
    if keys and neighbors == "swap":
        raise ValueError("by needs neighbors='add_remove': a replaced record can move from one group to another.")
    if isinstance(groups, str | bytes):
        raise TypeError(
            f"groups must be a list of labels, such as [{groups!r}]; got {groups!r}, whose letters would be the groups."
        )
    narwhals = _narwhals()
    try:
        known = narwhals.from_native(frame)
    except TypeError as error:
        raise TypeError(f"frame must be of pandas, Polars or PyArrow, or a DuckDB relation, got {type(frame).__name__}.") from error
    names, there = tuple(columns), known.collect_schema()
    missing = [name for name in (*names, *keys) if name not in there]
    if missing:
        raise ValueError(f"the frame has no column {missing[0]!r}; its columns are {', '.join(map(str, there))}.")
    for key in keys:
        if there[key].is_nested():
            raise TypeError(f"column {key!r} holds {there[key]}, which cannot name a group.")
    lazy = isinstance(known, narwhals.LazyFrame)
    kind = narwhals, known.implementation, lazy
    known = known.select(*dict.fromkeys((*names, *keys)))
    known = known.collect() if lazy else known
    numbers = {name: _numbers(known[name], name) for name in names}
    return Table(numbers, keys, _grouping(known, keys, None if isinstance(groups, PrivateGroups) else groups), kind)


def total_of(costs: Sequence[Guarantee | Composition]) -> Guarantee | Composition:
    """Return what mechanisms on the same records cost together."""
    total = costs[0]
    for cost in costs[1:]:
        total = total + cost
    return total


def _narwhals() -> ModuleType:
    try:
        import narwhals
    except ImportError as error:
        raise ImportError("dpjax.frames needs narwhals: pip install 'dpjax[frames]'.") from error
    return narwhals


def _numbers(series: Any, name: str) -> np.ndarray:
    kind = series.dtype
    if not (kind.is_numeric() or str(kind) == "Boolean"):
        raise TypeError(f"column {name!r} must have a dtype of numbers: convert it before.")
    return as_floats(series.to_numpy())


def _grouping(known: Any, keys: tuple[str, ...], groups: Iterable[Any] | None) -> Grouping:
    if not keys:
        if groups is not None:
            raise ValueError("groups need by, the column that they are in.")
        return Grouping(np.zeros(len(known), np.int32), [()])
    index: dict[Any, int] = {}
    for label in () if groups is None else groups:
        one = tuple(label) if len(keys) > 1 and not isinstance(label, str) else (label,)
        if len(one) != len(keys):
            raise ValueError(f"a group by {', '.join(keys)} must have {len(keys)} labels, got {label!r}.")
        for part, key in zip(one, keys, strict=True):
            if isinstance(part, str) and known[key].dtype.is_numeric():
                raise ValueError(f"column {key!r} holds numbers, so no group is {part!r}.")
        one = tuple(str(part) if _is_mixed(known[key]) else part for part, key in zip(one, keys, strict=True))
        name = one if len(keys) > 1 else one[0]
        if name in index:
            raise ValueError(f"groups name {label!r} twice.")
        index[name] = len(index)
    parts = []
    for start in range(0, len(known), _CHUNK):
        cells = [_labels(known[key][start : start + _CHUNK]) for key in keys]
        parts.append(codes_of(list(zip(*cells, strict=True)) if len(keys) > 1 else cells[0], index, grow=groups is None))
    labels = list(index) if len(keys) > 1 else [(name,) for name in index]
    found = Grouping(np.concatenate([np.zeros(0, np.int32), *parts]), labels)
    if groups is not None:
        return found
    named = [k for k, label in enumerate(found.labels) if not any(_is_missing(part) for part in label)]
    return found.only(np.array(sorted(named, key=lambda k: [natural_order(part) for part in found.labels[k]]), np.int64))


def _labels(series: Any) -> list[Any]:
    """As Python objects that compare by their value, None for missing ones."""
    if series.dtype.is_float():
        with np.errstate(invalid="ignore"):
            return list((series.to_numpy() + 0.0).tolist())  # there is one zero
    found, text, missing = series.to_list(), _is_mixed(series), series.is_null()
    if not text and not missing.any():
        return list(found)
    both = zip(found, missing.to_list(), strict=True)
    return [None if gone else str(label) if text else label for label, gone in both]


def _is_mixed(series: Any) -> bool:
    """Whether labels may be of several kinds, and become text: by the dtype and never by what the column holds."""
    return str(series.dtype) == "Object" or str(getattr(series.to_native(), "dtype", "")) == "object"


def _is_missing(label: Any) -> bool:
    return label is None or label != label
