"""Access to tables of every kind, and creation of frames of the same kind.

Tables are in memory or in an engine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import PurePath
from types import ModuleType
from typing import Any, NamedTuple, Protocol

import numpy as np

from dpjax.frames.column_options import Asked, check_kind
from dpjax.frames.columns import NESTED, ArrayColumns, FrameColumns, kind_of_dtype
from dpjax.frames.labels import DIGITS, check_zones, in_order, public_labels
from dpjax.frames.memory import Groups, Memory, Tally
from dpjax.frames.persons import Persons
from dpjax.frames.private_groups import PrivateGroups
from dpjax.release import DistinctCount, Statistic

_IN_ENGINES = ("duckdb", "ibis", "pyspark", "pyspark_connect", "dask", "polars")


class Records(Protocol):
    """The records of a table, each in a group."""

    def check(self, name: Any, statistic: Statistic | None) -> None:
        """Raise ``TypeError`` if the statistic of a column cannot be computed, by dtype."""

    def there(self, bounded: bool) -> tuple[Groups, np.ndarray]:
        """Return all groups that have rows, and their numbers of rows or persons.

        With ``bounded`` a person counts in at most ``max_groups`` groups.
        """

    def crowded(self, groups: Groups) -> tuple[int, int]:
        """Return the number of persons in more than ``max_groups`` of these groups, and of all.

        A person is in a group if it has rows there.
        """

    def tally(self, column: Any, statistic: Statistic, groups: Groups, neighbors: str) -> Tally:
        """Count the records of a column in these groups."""

    def records(self, column: Any, groups: Groups) -> tuple[np.ndarray, np.ndarray]:
        """Return the records of a column as numbers, float64, and the group of each."""


@dataclass(frozen=True)
class Table:
    """A table whose columns and groups are validated, by public numbers, names and dtypes.

    Attributes:
        rows: the records.
        named: the public groups; None for all groups in the data; without ``by`` a single group.
        kinds: the kind of each requested column, by its dtype.
        remake: a function that makes a frame of the kind of the input from columns.
    """

    rows: Records
    named: Groups | None
    kinds: dict[Any, str]
    remake: Callable[[dict[str, Any]], Any]

    def groups(self, *, bounded: bool) -> tuple[Groups, np.ndarray]:
        """Return all groups that have rows, in order, and their numbers of rows or persons.

        With ``bounded`` a person counts in at most ``max_groups`` groups.
        """
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
    """Validate the columns and groups of a frame by names and dtypes alone; no record is read."""
    keys = () if by is None else tuple(by) if isinstance(by, (list, tuple)) else (by,)
    if keys and neighbors == "swap":
        raise ValueError(
            "by needs neighbors='add_remove': a replaced record can move from one group to another."
        )
    if not keys and groups is not None:
        raise ValueError("groups needs by, the column of the group labels.")
    if not keys and persons is not None and persons.max_groups != 1:
        raise ValueError("max_groups needs by: without groups a person counts once.")
    opened = _opened(frame)
    columns, schema = opened.columns, opened.kind
    needed = [*asked, *keys, *([] if persons is None else [persons.unit])]
    for name in needed:
        if name not in columns:
            raise ValueError(
                f"the frame has no column {name!r}; its columns are {', '.join(map(str, columns))}."
            )
    for name in needed[len(asked) :]:
        if schema(name).startswith((*NESTED, "complex")):
            raise TypeError(
                f"column {name!r} holds {schema(name)}, which cannot identify a group or a person."
            )
    for name, own in asked.items():
        if persons is not None and own.statistic is None:
            raise ValueError("unit= needs a statistic with a resolution, as a release does.")
        if persons is not None and own.statistic is not None:
            rule = persons.rule(own.statistic)
            if own.kind is not None and (
                rule == "count" or (rule == "sum" and own.kind != "Duration")
            ):
                raise ValueError(
                    f"per_unit={rule!r} is not a {own.kind.lower()}: use 'mean', 'min' or 'max' "
                    f"for column {name!r}."
                )
        if not isinstance(own.statistic, DistinctCount):
            check_kind(name, schema(name), own)
    if len({None if own.kind is None else schema(name) for name, own in asked.items()}) > 1:
        raise ValueError(
            "columns must all be numbers, or all of one kind of dates or times: use separate calls "
            "otherwise."
        )
    named = None if keys else Groups([()], {})
    if keys and groups is not None and not isinstance(groups, PrivateGroups):
        names, shown = public_labels(groups, keys, [schema(key) for key in keys])
        for key, labels in zip(keys, shown, strict=True):
            if schema(key) == "Datetime":
                check_zones(labels, opened.zoned(key), key)
        named = Groups(names, dict(zip(keys, shown, strict=True)))
    rows = opened.rows(keys, persons)
    for name, own in asked.items():
        rows.check(name, own.statistic)
    return Table(rows, named, {name: schema(name) for name in asked}, opened.remake)


def check_names(by: Any, taken: Iterable[str]) -> None:
    """Raise ``ValueError`` if a column of groups has the name of a column of the result."""
    for name in by if isinstance(by, list | tuple) else (by,):
        if isinstance(name, str) and name in taken:
            raise ValueError(
                f"by must not be {name!r}, which is a column of the result: rename the column "
                "first."
            )


def kinds_of(frame: Any) -> Callable[[Any], str]:
    """Return a function that names the kind of a column of a frame by its dtype."""
    return _opened(frame).kind


class _Opened(NamedTuple):
    """A frame whose columns and dtypes are known.

    Attributes:
        columns: the names of the columns.
        kind: a function that names the kind of a column by its dtype.
        zoned: a function that returns whether the dtype of a column has a time zone.
        rows: a function of the columns of groups and of how persons are combined that returns
            records.
        remake: a function that makes a frame of the same kind from columns.
    """

    columns: list[Any]
    kind: Callable[[Any], str]
    zoned: Callable[[Any], bool]
    rows: Callable[[Any, Persons | None], Records]
    remake: Callable[[dict[str, Any]], Any]


def _opened(frame: Any) -> _Opened:
    """Inspect a frame's columns and dtypes; no record is read."""
    if isinstance(frame, Mapping):
        arrays = ArrayColumns(frame)
        return _Opened(
            arrays.names(), arrays.kind, lambda _: False, partial(Memory, arrays), _arrays
        )
    narwhals = _narwhals()
    plain, names = _with_text_names(frame)
    try:
        known = narwhals.from_native(plain)
    except TypeError as error:
        kinds = (
            "pandas, Polars, PyArrow, Dask, PySpark or Ibis, a DuckDB relation or a mapping of "
            "names to arrays"
        )
        hint = ": pass connection.table('trips')" if "Connection" in type(frame).__name__ else ""
        hint = (
            ": read the file first, as by pandas.read_csv"
            if isinstance(frame, str | PurePath)
            else hint
        )
        raise TypeError(f"frame must be of {kinds}, got {type(frame).__name__}{hint}.") from error
    lazy = isinstance(known, narwhals.LazyFrame)
    # Before anything is charged
    if known.implementation.name.lower() == "duckdb" and find_spec("pyarrow") is None:
        raise ImportError("a DuckDB relation needs PyArrow: pip install pyarrow.")
    engine, remake = (
        known.implementation.name.lower(),
        partial(_made, narwhals, known.implementation, lazy),
    )
    columns = (
        [names.get(name, name) for name in known.columns]
        if not lazy
        else list(known.collect_schema())
    )
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
    """Return a pandas frame with text as column names, as narwhals needs, and the original names.

    Other frames are returned unchanged.
    """
    if not type(frame).__module__.startswith("pandas") or not hasattr(frame, "columns"):
        return frame, {}
    if not frame.columns.is_unique:
        raise ValueError("frame must not have several columns with the same name.")
    if all(isinstance(name, str) for name in frame.columns):
        return frame, {}
    names = {f"{place}:{name}": name for place, name in enumerate(frame.columns)}
    return frame.set_axis(list(names), axis=1), names


def _arrays(columns: dict[str, Any]) -> dict[str, np.ndarray]:
    return {name: np.asarray(column) for name, column in columns.items()}


def _in_a_dtype(column: Any) -> Any:
    """Return a list of labels that a frame cannot hold as they are with a dtype that it has.

    Integers that need 64 bits without a sign become an array of those, and decimals of more than 38
    digits floats, as public labels do. Other columns are returned unchanged.
    """
    if type(column) is not list:
        return column
    if any(isinstance(cell, int) and 2**63 <= cell < 2**64 for cell in column):
        return np.array(column, np.uint64)
    if any(isinstance(cell, Decimal) and len(cell.as_tuple().digits) > DIGITS for cell in column):
        return [float(cell) for cell in column]
    return column


def _narwhals() -> ModuleType:
    try:
        import narwhals
    except ImportError as error:
        raise ImportError(
            "dpjax.frames needs narwhals, except for a mapping of names to arrays: pip install "
            "'dpjax[frames]'."
        ) from error
    return narwhals


def _made(narwhals: ModuleType, kind: Any, lazy: bool, columns: dict[Any, Any]) -> Any:
    """Return a frame of this kind; a PyArrow table for Spark, and a pandas frame for Dask."""
    engine = kind.name.lower()
    if engine == "pandas" and not all(isinstance(name, str) for name in columns):
        return import_module("pandas").DataFrame(columns)
    backend = {
        "duckdb": "pyarrow",
        "ibis": "pyarrow",
        "pyspark": "pyarrow",
        "pyspark_connect": "pyarrow",
        "dask": "pandas",
    }.get(engine)
    made = narwhals.from_dict(
        {str(name): _in_a_dtype(column) for name, column in columns.items()},
        backend=backend or kind,
    )
    if engine in ("duckdb", "ibis"):
        made = made.lazy(engine)
    elif lazy and engine == "polars":
        made = made.lazy()
    return narwhals.to_native(made)
