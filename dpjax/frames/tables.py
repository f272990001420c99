"""Tables of every kind: those in memory as arrays, those of an engine as queries, and frames of the same kind out of columns."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import PurePath
from types import ModuleType
from typing import Any, NamedTuple, Protocol

import numpy as np

from dpjax.frames.asked import Asked, check_kind
from dpjax.frames.columns import ArrayColumns, FrameColumns, kind_of_dtype
from dpjax.frames.labels import check_zones, in_order, public_labels
from dpjax.frames.memory import Groups, Memory, Tally
from dpjax.frames.persons import Persons
from dpjax.frames.private_groups import PrivateGroups
from dpjax.release import DistinctCount, Statistic

_IN_ENGINES = ("duckdb", "ibis", "pyspark", "pyspark_connect", "dask", "polars")


class Records(Protocol):
    """The records of a table, each in a group."""

    def there(self, bounded: bool) -> tuple[Groups, np.ndarray]:
        """Return all groups that have a row, and how many rows or persons: with ``bounded`` a person counts in few groups."""

    def crowded(self, groups: Groups) -> tuple[int, int]:
        """Return how many persons have rows in more of these groups than they count in, and how many have rows at all."""

    def tally(self, column: Any, statistic: Statistic, groups: Groups, neighbors: str) -> Tally:
        """Count the records of a column in these groups."""

    def records(self, column: Any, groups: Groups) -> tuple[np.ndarray, np.ndarray]:
        """Return the records of a column as numbers, float64, and the group of each."""


@dataclass(frozen=True)
class Table:
    """A table whose columns and groups have been checked: all that depends on public numbers, names and dtypes.

    Attributes:
        rows: where the records are.
        named: the public groups; None for those that have a record; without ``by`` the one of all records.
        kinds: what each column that is asked for holds, by its dtype.
        remake: makes a frame of the kind that was given from columns.
    """

    rows: Records
    named: Groups | None
    kinds: dict[Any, str]
    remake: Callable[[dict[str, Any]], Any]

    def groups(self, *, bounded: bool) -> tuple[Groups, np.ndarray]:
        """Return all groups that have a row, in order, and how many rows or persons; with ``bounded`` of persons in few groups."""
        groups, sizes = self.rows.there(bounded)
        ordered = in_order(range(len(groups.names)), groups.names, len(groups.shown) > 1)
        return groups.only(ordered, some=False), sizes[ordered]


def read_table(
    frame: Any,
    asked: Mapping[Any, Asked],
    by: Any,
    groups: Iterable[Any] | PrivateGroups | None,
    neighbors: str,
    persons: Persons | None = None,
) -> Table:
    """Check the columns of a frame and the groups that are asked for, by names and dtypes alone; no record is read."""
    keys = () if by is None else tuple(by) if isinstance(by, (list, tuple)) else (by,)
    if keys and neighbors == "swap":
        raise ValueError("by needs neighbors='add_remove': a replaced record can move from one group to another.")
    if not keys and groups is not None:
        raise ValueError("groups need by, the column that they are in.")
    if not keys and persons is not None and persons.max_groups != 1:
        raise ValueError("max_groups needs by: without groups a person counts once.")
    given = _opened(frame)
    columns, schema = given.columns, given.kind
    needed = [*asked, *keys, *([] if persons is None else [persons.unit])]
    for name in needed:
        if name not in columns:
            raise ValueError(f"the frame has no column {name!r}; its columns are {', '.join(map(str, columns))}.")
    for name in needed[len(asked) :]:
        if schema(name).startswith(("List", "Array", "Struct")):
            raise TypeError(f"column {name!r} holds {schema(name)}, which cannot name a group or a person.")
    for name, own in asked.items():
        if persons is not None and own.statistic is None:
            raise ValueError("unit= needs a statistic with a resolution, as a release does.")
        if persons is not None and own.statistic is not None:
            rule = persons.rule(own.statistic)
            if own.kind is not None and (rule == "count" or (rule == "sum" and own.kind != "Duration")):
                raise ValueError(f"per_unit={rule!r} is no {own.kind.lower()}: of column {name!r} take 'mean', 'min' or 'max'.")
        if not isinstance(own.statistic, DistinctCount):
            check_kind(name, schema(name), own)
    if len({None if own.kind is None else schema(name) for name, own in asked.items()}) > 1:
        raise ValueError("a column of the result is of one kind: ask for dates, for times and for numbers one after the other.")
    named = None if keys else Groups([()], {})
    if keys and groups is not None and not isinstance(groups, PrivateGroups):
        names, shown = public_labels(groups, keys, [schema(key) for key in keys])
        for key, labels in zip(keys, shown, strict=True):
            if schema(key) == "Datetime":
                check_zones(labels, given.zoned(key), key)
        named = Groups(names, dict(zip(keys, shown, strict=True)))
    return Table(given.rows(keys, persons), named, {name: schema(name) for name in asked}, given.remake)


def check_names(by: Any, taken: Iterable[str]) -> None:
    """Raise where the result has another column of the name of a column of groups."""
    for name in by if isinstance(by, list | tuple) else (by,):
        if isinstance(name, str) and name in taken:
            raise ValueError(f"the result has a column {name!r} of its own: rename the column of the groups before.")


def kinds_of(frame: Any) -> Callable[[Any], str]:
    """Return what names the kind of a column of a frame by its dtype."""
    return _opened(frame).kind


class _Opened(NamedTuple):
    """A frame that was given.

    Attributes:
        columns: their names.
        kind: names what a column holds, by its dtype.
        zoned: says whether the times of a column have a zone, by its dtype.
        rows: makes the records, of columns of groups and of what becomes of persons.
        remake: makes a frame of the kind that was given from columns.
    """

    columns: list[Any]
    kind: Callable[[Any], str]
    zoned: Callable[[Any], bool]
    rows: Callable[[Any, Persons | None], Records]
    remake: Callable[[dict[str, Any]], Any]


def _opened(frame: Any) -> _Opened:
    """Look at a frame's columns and dtypes; no record is read."""
    if isinstance(frame, Mapping):
        arrays = ArrayColumns(frame)
        return _Opened(arrays.names(), arrays.kind, lambda _: False, partial(Memory, arrays), _arrays)
    narwhals = _narwhals()
    plain, names = _with_text_names(frame)
    try:
        known = narwhals.from_native(plain)
    except TypeError as error:
        kinds = "pandas, Polars, PyArrow, Dask, PySpark or Ibis, a DuckDB relation or a mapping of names to arrays"
        hint = ": give connection.table('trips')" if "Connection" in type(frame).__name__ else ""
        hint = ": read the file first, as by pandas.read_csv" if isinstance(frame, str | PurePath) else hint
        raise TypeError(f"frame must be of {kinds}, got {type(frame).__name__}{hint}.") from error
    lazy = isinstance(known, narwhals.LazyFrame)
    if known.implementation.name.lower() == "duckdb" and find_spec("pyarrow") is None:  # before anything is charged
        raise ImportError("a DuckDB relation is read through PyArrow: pip install pyarrow.")
    engine, remake = known.implementation.name.lower(), partial(_made, narwhals, known.implementation, lazy)
    columns = [names.get(name, name) for name in known.columns] if not lazy else list(known.collect_schema())
    if engine in _IN_ENGINES:
        from dpjax.frames.engine import Engine

        schema = known.collect_schema()

        return _Opened(
            columns,
            lambda name: kind_of_dtype(schema[name]),
            lambda name: getattr(schema[name], "time_zone", None) is not None,
            partial(Engine, known.lazy()),
            remake,
        )
    if engine not in ("pandas", "pyarrow"):
        known = narwhals.from_native((known.collect() if lazy else known).to_arrow())
    eager = FrameColumns(known, {shown: text for text, shown in names.items()})
    return _Opened(columns, eager.kind, eager.zoned, partial(Memory, eager), remake)


def _with_text_names(frame: Any) -> tuple[Any, dict[str, Any]]:
    """Return a pandas frame whose columns are named by text, as narwhals needs them, and their own names; others as they are."""
    if not type(frame).__module__.startswith("pandas") or not hasattr(frame, "columns"):
        return frame, {}
    if not frame.columns.is_unique:
        raise ValueError("the frame has several columns of one name.")
    if all(isinstance(name, str) for name in frame.columns):
        return frame, {}
    names = {f"{place}:{name}": name for place, name in enumerate(frame.columns)}
    return frame.set_axis(list(names), axis=1), names


def _arrays(columns: dict[str, Any]) -> dict[str, np.ndarray]:
    return {name: np.asarray(column) for name, column in columns.items()}


def _narwhals() -> ModuleType:
    try:
        import narwhals
    except ImportError as error:
        raise ImportError(
            "dpjax.frames needs narwhals, but for a mapping of names to arrays: pip install 'dpjax[frames]'."
        ) from error
    return narwhals


def _made(narwhals: ModuleType, kind: Any, lazy: bool, columns: dict[Any, Any]) -> Any:
    """Return a frame of the kind that was given; a table of PyArrow for Spark, and a frame of pandas for Dask."""
    engine = kind.name.lower()
    if engine == "pandas" and not all(isinstance(name, str) for name in columns):
        return import_module("pandas").DataFrame(columns)
    backend = {"duckdb": "pyarrow", "ibis": "pyarrow", "pyspark": "pyarrow", "pyspark_connect": "pyarrow", "dask": "pandas"}.get(
        engine
    )
    made = narwhals.from_dict({str(name): column for name, column in columns.items()}, backend=backend or kind)
    if engine in ("duckdb", "ibis"):
        made = made.lazy(engine)
    elif lazy and engine == "polars":
        made = made.lazy()
    return narwhals.to_native(made)
