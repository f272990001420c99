"""A table of any library as the counts of its records, and results as a table of that library.

    table --narwhals--> distinct rows in Polars --labels, persons--> (group, value) --> counts

Only dtypes decide what is refused. Every step after the dtypes is a function of one cell, or of one
person's rows, that never raises.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import PurePath
from typing import Any

import narwhals as nw
import numpy as np
import polars as pl
import pyarrow  # type: ignore[import-untyped]  # noqa: F401  # with it Polars and narwhals read the tables of other libraries

from dpjax.frames.persons import Persons, finished, grid_of_records, rows_of
from dpjax.frames.result import ORDER
from dpjax.release import Count, Counts, DistinctCount, Mean, Mode, Statistic
from dpjax.release.grid import Multiples, kind_of

_LABELS = "text, categories, integers, floats, booleans or dates"
_VALUES = "numbers, booleans, dates, or times or durations (not in databases) of us or ns"
_TEXT = (nw.String, nw.Categorical, nw.Enum)
_DATABASES = ("duckdb", "ibis", "pyspark", "pyspark_connect")
_LIBRARIES = ("pandas", "polars", "pyarrow", "dask", *_DATABASES)
_DAY = 86_400_000_000  # microseconds


class Table:
    """The records of a table, each in a group and of a person.

    Attributes:
        labels: the labels of the groups, a row each, in columns ``"0"``, ``"1"``, ...; empty until
            they are named or found.
    """

    def __init__(
        self,
        frame: Any,
        columns: Sequence[tuple[Any, Statistic]],
        by: Sequence[Any],
        persons: Persons | None,
    ) -> None:
        """Judge the dtypes of the columns, then read them."""
        self._by, self._persons = by, persons
        self._keys = [str(place) for place in range(len(by))]
        labels = dict(zip(self._keys, by, strict=True))
        labels |= {} if persons is None else {"who": persons.unit}

        def judge(dtypes: Mapping[Any, Any], library: str) -> None:
            for name, statistic in columns:
                _check_values(name, dtypes[name], statistic, library)
            for name in labels.values():
                if not _is_label(dtypes[name]):
                    raise TypeError(
                        f"column {name!r} holds {dtypes[name]}, but labels of groups and persons "
                        f"are {_LABELS}: cast it."
                    )

        names = list(dict.fromkeys([*(name for name, _ in columns), *labels.values()]))
        found, self._as_text = _fetched(frame, names, judge)
        inner = {name: str(place) for place, name in enumerate(names)}
        self._dtypes = {name: found.schema[inner[name]] for name in names}
        self._values = {name: f"value {inner[name]}" for name, _ in columns}
        zones = [getattr(self._dtypes[name], "time_zone", None) for name in self._values]
        self.zone = "UTC" if any(zones) else None
        shown = [_label(inner[name], self._dtypes[name]).alias(key) for key, name in labels.items()]
        values = [pl.col(inner[name]).alias(value) for name, value in self._values.items()]
        rows = found.select("times", *shown, *values)
        self._rows = rows.drop_nulls(list(labels)) if labels else rows
        self.labels = pl.DataFrame() if by else pl.DataFrame({"0": [0]})

    def name(self, groups: Sequence[Any]) -> None:
        """Take these public labels, tuples for several columns."""
        rows = [label if len(self._by) > 1 else (label,) for label in groups]
        for label in rows:
            if not isinstance(label, tuple | list) or len(label) != len(self._by):
                raise ValueError(
                    f"groups by {', '.join(map(str, self._by))} must be tuples of {len(self._by)} "
                    f"labels, got {label!r}."
                )
        made = {}
        for place, name in enumerate(self._by):
            cells = [label[place] for label in rows]
            cells = list(map(_text, cells)) if name in self._as_text else cells
            labels = _labels(cells, self._dtypes[name])
            if labels is None:
                wrong = (cell for cell in cells if _labels([cell], self._dtypes[name]) is None)
                raise ValueError(
                    f"column {name!r} holds {self._dtypes[name]}, so no group is "
                    f"{next(wrong, cells)!r}."
                )
            made[self._keys[place]] = labels
        self.labels = pl.DataFrame(made)
        if (twice := self.labels.is_duplicated()).any():
            raise ValueError(f"groups contains {rows[twice.to_list().index(True)]!r} twice.")

    def find(self, bounded: bool) -> np.ndarray:
        """Take all groups that have rows, in the order of their labels, and return their sizes.

        A size is the number of rows or persons; with ``bounded`` a person counts in at most
        ``max_groups`` groups.
        """
        self.labels = self._rows.select(self._keys).unique().sort(self._keys)
        rows, times = self._in_groups(), pl.col("times").sum()
        if self._persons is not None:
            rows = rows.group_by("who", "group").agg(times.alias("rows"))
            rows, times = self._in_few(rows) if bounded else rows, pl.len()
        sizes = rows.group_by("group").agg(times.alias("size")).sort("group")
        self.keep(sizes["group"].to_numpy())
        found: np.ndarray = sizes["size"].to_numpy().astype(np.int64)
        return found

    def keep(self, places: np.ndarray) -> None:
        """Take only the groups at these places, ascending."""
        self.labels = self.labels[places.tolist()]

    def counts(self, name: Any, statistic: Statistic, neighbors: str) -> tuple[Counts, np.ndarray]:
        """Return how many records of each group have each position.

        The second result is how many rows of each group have no value, int64 ``(groups,)``.
        """
        rows, persons = self._in_groups(), self._persons
        values = rows[self._values[name]]
        read: Callable[..., Any] = statistic.read
        if persons is not None:
            rule, grid = persons.rule(statistic), grid_of_records(statistic)
            read = _as_it_is if grid is None else rows_of(grid, rule).read
        position, present = _read(values, statistic, read)
        group, times = rows["group"].to_numpy().astype(np.int64), rows["times"].to_numpy()
        missing = np.zeros(len(self.labels), np.int64)
        np.add.at(missing, group[~present], times[~present])
        if persons is not None:
            there, value = pl.Series(present), pl.Series(position)
            rows = rows.select("who", "group", "times", value=value, there=there)
            rows = rows.filter("there") if neighbors == "add_remove" else rows
            each, number = (pl.col(name).filter("there") for name in ("value", "times"))
            together = getattr(each, rule)() if rule in ("min", "max") else (each * number).sum()
            rows = rows.group_by("who", "group").agg(together, number.sum().alias("rows"))
            rows = self._in_few(rows)
            group, size = rows["group"].to_numpy().astype(np.int64), rows["rows"].to_numpy()
            if grid is None:
                position, present = _read(rows["value"], statistic, statistic.read)
            else:
                total, present = rows["value"].fill_null(0).to_numpy(), size > 0
                position = finished(total, np.maximum(size, 1), grid, rule)
            times = np.ones_like(group)
        if neighbors == "swap" and not isinstance(statistic, Mode | DistinctCount):
            position = np.where(present, position, 0)
        else:
            group = np.where(present, group, -1)
        return Counts.of_rows(group, position, times, groups=len(self.labels)), missing

    def shown(self, places: np.ndarray) -> dict[str, pl.Series]:
        """Return the labels at these places, in columns with the names of the user."""
        named = zip(self._keys, self._by, strict=True)
        return {str(name): self.labels[key][places] for key, name in named}

    def _in_groups(self) -> pl.DataFrame:
        """Return the rows with the index of their group; an inner join leaves out all others."""
        if not self._keys:
            return self._rows.with_columns(group=pl.lit(0))
        return self._rows.join(self.labels.with_row_index("group"), on=self._keys)

    def _in_few(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Return the groups of each person with most rows, ties in the order of the groups."""
        if self._persons is None or not self._keys:
            return rows
        ordered = rows.sort("who", -pl.col("rows").cast(pl.Int64), "group")
        return ordered.filter(pl.int_range(pl.len()).over("who") < self._persons.max_groups)


def _read(values: pl.Series, statistic: Statistic, read: Callable[..., Any]) -> Any:
    """Return the position of each record by ``read``, and which are present."""
    dtype = values.dtype
    if isinstance(statistic, Count):
        there = (values.fill_nan(None) if dtype.is_float() else values).is_not_null().to_numpy()
        return np.zeros(len(there), np.int64), there
    if isinstance(statistic, DistinctCount):
        labels = values.to_frame("value").select(_label("value", dtype)).to_series()
        ranks = labels.rank("dense").fill_null(0).to_numpy().astype(np.int64)
        return ranks - 1, ranks > 0
    if dtype.is_temporal():
        ticks = values.to_physical()
        values = ticks // 1000 if getattr(dtype, "time_unit", "us") == "ns" else ticks
    numbers = values.cast(pl.Float64, strict=False).fill_null(np.nan).to_numpy()
    return read(numbers * _DAY if dtype == pl.Date else numbers)


def _as_it_is(numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return numbers, ~np.isnan(numbers)


def _check_values(name: Any, dtype: Any, statistic: Statistic, library: str) -> None:
    """Raise ``TypeError`` if a statistic is not defined for values of a dtype of narwhals."""
    kind = kind_of(getattr(statistic, "lower", None))
    # Times and durations that fit into 64 bits of their unit; databases have durations of months
    fine = getattr(dtype, "time_unit", None) in ("us", "ns")
    fine = fine and not (dtype == nw.Duration and library in _DATABASES)
    if isinstance(statistic, DistinctCount):
        taken = _is_label(dtype)
    elif isinstance(statistic, Count):
        taken = fine or dtype.is_numeric() or _is_label(dtype)
    elif kind is None:
        taken = dtype.is_numeric() or dtype == nw.Boolean
    else:
        taken = fine and dtype in (getattr(nw, kind), nw.Datetime if kind == "Date" else None)
        taken = taken or (kind == "Date" and dtype == nw.Date)
    if not taken:
        labels = isinstance(statistic, DistinctCount)
        raise TypeError(
            f"column {name!r} holds {dtype}, which {type(statistic).__name__} with bounds of the "
            f"kind {kind or 'number'} does not take: cast it to {_LABELS if labels else _VALUES}."
        )


def _is_label(dtype: Any) -> bool:
    """Return whether cells of a dtype of narwhals can be labels: equal cells are shown alike."""
    return bool(dtype.is_integer() or dtype.is_float() or dtype in (*_TEXT, nw.Boolean, nw.Date))


def _label(name: str, dtype: Any) -> pl.Expr:
    """Return labels of which equal ones are one; missing ones are null."""
    label = pl.col(name)
    if dtype in (pl.Categorical, pl.Enum):
        return label.cast(pl.String)
    if dtype == pl.Date:  # Polars panics where it shows or casts others
        return pl.when(label.is_between(datetime.date.min, datetime.date.max)).then(label)
    if dtype.is_float():  # both zeros are one label; Polars leaves out an addition of 0.0
        label = label.cast(pl.Float64)
        return pl.when(label == 0).then(0.0).otherwise(label).fill_nan(None)
    return label


def _labels(cells: Sequence[Any], dtype: Any) -> pl.Series | None:
    """Return public labels as those of a column; None if its dtype cannot hold one of them."""
    dtype = pl.String if dtype in (pl.Categorical, pl.Enum) else dtype
    try:
        made = pl.Series("label", cells, dtype=dtype)
    except (TypeError, ValueError, OverflowError, pl.exceptions.PolarsError):
        return None
    if made.dtype != dtype:  # Polars makes times of them where dates are asked for
        return None
    made = made.to_frame().select(_label("label", dtype)).to_series()
    return None if made.has_nulls() else made


def _fetched(
    frame: Any, names: Sequence[Any], judge: Callable[[Mapping[Any, Any], str], None]
) -> tuple[pl.DataFrame, set[Any]]:
    """Return columns ``"0"``, ``"1"``, ... of a table, with the number of ``"times"`` of each row.

    Its dtypes are judged on what the library says, before any record is read, and on what Polars
    makes of them. The second result is the names of the columns whose cells are texts of objects.
    """
    inner = {name: str(place) for place, name in enumerate(names)}
    in_pandas = nw.dependencies.is_pandas_dataframe(frame)
    known: Any = None if in_pandas else _known(frame)
    columns = list(frame.columns) if in_pandas else known.collect_schema().names()
    for name in names:
        if columns.count(name) != 1 or str(name).startswith(("*", "^")):
            raise ValueError(
                f"the frame has no column {name!r}, or several, or it begins with * or ^, which are "
                f"patterns; its columns are {', '.join(map(str, columns))}."
            )
    texts: dict[str, pl.Series] = {}
    if in_pandas:
        found, texts = _of_pandas(frame, inner)
        known = nw.from_native(found)
    else:
        known = known.select(*(nw.col(name).alias(place) for name, place in inner.items()))
    library = known.implementation.name.lower()
    there = dict(known.collect_schema())
    if library == "dask":  # narwhals takes its Python objects for text
        there |= {inner[n]: nw.Object() for n in names if frame.dtypes[n] == np.dtype(object)}

    def judged(dtypes: Mapping[str, Any]) -> None:
        judge({name: dtypes.get(place, nw.String()) for name, place in inner.items()}, library)

    judged(there)
    known, counted = _by_bytes(known, library, [n for n, dtype in there.items() if dtype in _TEXT])
    try:
        if isinstance(known, nw.LazyFrame):
            rows = known.group_by(*there).agg(nw.len().alias("times")) if counted else known
            found = rows.collect("polars").to_native()
        else:
            found = known.to_polars()
    except KeyboardInterrupt:
        raise
    except BaseException:  # a panic of Polars is no Exception
        raise RuntimeError(
            "the table could not be computed by its library, whose message is withheld, as it may "
            "show records."
        ) from None
    found = found.with_columns(**texts)
    judged(nw.from_native(found).schema)
    times = pl.col("times").cast(pl.Int64) if "times" in found.columns else pl.lit(1, pl.Int64)
    by_text = {name for name, place in inner.items() if place in texts}
    return found.with_columns(times=times), by_text


def _known(frame: Any) -> Any:
    """Return a table as narwhals knows it; it is not computed."""
    try:
        known = nw.from_native(frame)
        library = known.implementation.name.lower()
    except TypeError:
        library = ""
    if library not in _LIBRARIES:
        hint = ": read the file first" if isinstance(frame, str | PurePath) else ""
        raise TypeError(
            "frame must be a frame of pandas, Polars, PyArrow or Dask, a DuckDB relation, or a "
            f"table of Ibis or PySpark, got {type(frame).__name__}{hint}."
        )
    if library == "ibis" and frame.get_backend().name == "sqlite":
        raise TypeError(
            "frame must not be a table of SQLite, whose columns hold cells of any type: read it "
            "with polars.read_database."
        )
    return known


def _of_pandas(frame: Any, inner: Mapping[Any, str]) -> tuple[Any, dict[str, pl.Series]]:
    """Return columns that narwhals can take by their dtypes, and the texts of all others.

    narwhals asks the records what a column of Python objects is, and it does not know all zones.
    """
    texts, others = {}, []
    for name, place in inner.items():
        column = frame[name]
        if hasattr(column, "cat"):
            shown = pl.Series([*map(_text, column.cat.categories), None], dtype=pl.String)
            texts[place] = shown[column.cat.codes.to_numpy()]  # the code -1 is the last one
        elif column.dtype == object or getattr(column.dtype, "storage", "") == "python":
            texts[place] = pl.Series(list(map(_text, column)), dtype=pl.String)
        else:
            others.append(name)
    found = frame[others].set_axis([inner[name] for name in others], axis=1)
    for place, dtype in found.dtypes.items():
        if getattr(dtype, "tz", None) is not None:
            found[place] = found[place].dt.tz_convert("UTC")
    return found, texts


def _text(cell: Any) -> str | None:
    """Return the text of an object; None if it is missing or has none.

    A time at midnight is its date, so that both are one label.
    """
    try:
        if cell is None or cell != cell:
            return None
        if isinstance(cell, datetime.datetime) and cell.time() == datetime.time():
            cell = cell.date()
        return str.encode(str(cell), errors="replace").decode()  # of a subclass of str, too
    except Exception:  # no record raises: its label is missing
        return None


def _by_bytes(known: Any, library: str, texts: Sequence[str]) -> tuple[Any, bool]:
    """Return a table that compares these columns of text by their bytes.

    The second result is whether its library may count equal rows: under another collation it would
    take different texts for one, and show either.
    """
    if library == "duckdb" and texts:
        replaced = ", ".join(f'"{name}"::varchar collate "C" as "{name}"' for name in texts)
        return nw.from_native(known.to_native().project(f"* replace ({replaced})")), True
    if library.startswith("pyspark"):
        fields = known.to_native().schema
        names = [getattr(fields[name].dataType, "collation", None) for name in texts]
        return known, all(name in (None, "UTF8_BINARY") for name in names)
    # Dask hashes cells as Python objects, which raises for some dates
    return known, library != "dask" and (not texts or library == "polars")


def results(
    table: Table, asked: Any, draws: int, found: Mapping[str, np.ndarray], more: Mapping[str, Any]
) -> pl.DataFrame:
    """Return a row for each group, draw and level of a statistic.

    Args:
        table: the table, whose groups are known.
        asked: the statistic of a column, with its ``levels``, and whether there are ``several``.
        draws: the number of draws.
        found: arrays that broadcast to ``(draws, groups, levels)``, in microseconds for times.
        more: an array ``(groups,)`` for each further column of the groups.
    """
    shape = draws, len(table.labels), max(len(asked.levels), 1)
    indices = np.moveaxis(np.indices(shape), 1, 2)  # a group's draws follow each other
    draw, group, level = (index.ravel() for index in indices)
    number, kind = len(group), kind_of(getattr(asked.statistic, "lower", None))
    rows = table.shown(group) | {name: pl.Series(each[group]) for name, each in more.items()}
    rows["column"] = pl.repeat(str(asked.name), number, eager=True)
    if asked.several:
        rows["statistic"] = pl.repeat(type(asked.statistic).__name__, number, eager=True)
    if asked.levels:
        rows["quantile"] = pl.Series(np.array(asked.levels)[level])
    if draws > 1:
        rows["draw"] = pl.Series(draw + 1)
    for name, values in found.items():
        cells = np.broadcast_to(values, shape).swapaxes(0, 1).ravel()
        column, is_error = pl.Series(cells, nan_to_null=True), name == "mean_abs_error"
        if kind is not None and column.dtype.is_float():
            column = _in_kind(column, "Duration" if is_error else kind, table.zone)
        elif not is_error and _is_whole(asked.statistic):
            column = column.cast(pl.Int64)
        rows[name] = column
    return pl.DataFrame(rows)


def _in_kind(microseconds: pl.Series, kind: str, zone: str | None) -> pl.Series:
    """Return microseconds, since 1970 for times, as cells of a kind."""
    ticks = microseconds.round().cast(pl.Int64)
    if kind == "Date":
        return (ticks // _DAY).cast(pl.Int32).cast(pl.Date)
    return ticks.cast(pl.Duration("us") if kind == "Duration" else pl.Datetime("us", zone))


def together(parts: Sequence[pl.DataFrame], epsilon: float) -> pl.DataFrame:
    """Return the rows of several statistics; columns that only some of them have are empty."""
    rows = pl.concat(parts, how="diagonal_relaxed").with_columns(epsilon=pl.lit(epsilon))
    labels = [name for name in rows.columns if name not in ORDER]
    return rows.select(*labels, *(name for name in ORDER if name in rows.columns))


def _is_whole(statistic: Statistic) -> bool:
    """Return whether all values of a statistic are integers, by its public parameters."""
    if isinstance(statistic, Count | Mean):
        return isinstance(statistic, Count)
    on: Any = statistic
    grid = on.values_grid() if hasattr(on, "values_grid") else getattr(on, "records_grid", None)
    return isinstance(grid, Multiples) and grid.resolution.denominator == 1


def in_library(rows: pl.DataFrame, frame: Any, by: Iterable[Any]) -> Any:
    """Return results as a frame of the library of ``frame`` if it is pandas, PyArrow or a database.

    All others are Polars frames.
    """
    if nw.dependencies.is_pandas_dataframe(frame):
        return rows.to_pandas().rename(columns={str(name): name for name in by})
    library = nw.from_native(frame).implementation.name.lower()
    if library == "pyarrow":
        return rows.to_arrow()
    if library in ("duckdb", "ibis"):
        return nw.from_native(rows).lazy(library).to_native()
    return rows
