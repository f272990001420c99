"""A table of any library as the counts of its records, and results as a table of that library.

    table --narwhals--> distinct rows in Polars --labels, persons--> (group, value) --> counts

Only dtypes decide what is refused. Every step after the dtypes is a function of one cell, or of one
person's rows, that never raises.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import narwhals as nw
import numpy as np
import polars as pl
import pyarrow  # type: ignore[import-untyped]  # noqa: F401  # Polars reads others with it

from dpjax.frames.options import Options
from dpjax.frames.persons import finished, grid_of_records, rounded, rule_of
from dpjax.frames.result import ORDER
from dpjax.release import Count, Counts, DistinctCount, Statistic
from dpjax.release.grid import kind_of

_LABELS = ("text", "numbers", "booleans", "dates")
_ALL = (*_LABELS, "decimals", "times", "durations")
_VALUES: dict[str | None, Sequence[str]] = {  # by the kind of the bounds
    None: ("numbers", "decimals", "booleans"),
    "Date": ("dates", "times"),
    "Datetime": ("times",),
    "Duration": ("durations",),
}
_DATABASES = ("duckdb", "ibis", "pyspark", "pyspark_connect")
_NUMPY_TIMES = ("datetime64[us", "datetime64[ns", "timedelta64[us", "timedelta64[ns")
_LIBRARIES = ("pandas", "polars", "pyarrow", "dask", *_DATABASES)
_DAY = 86_400_000_000  # microseconds


class Table:
    """The records of a table, each in a group and of a person.

    Attributes:
        labels: the labels of the groups, a row each, in columns ``"0"``, ``"1"``, ...; empty until
            they are named or found.
        size: the number of rows.
    """

    def __init__(
        self, frame: Any, columns: Sequence[tuple[Any, Statistic]], options: Options
    ) -> None:
        """Judge the dtypes of the columns, then read them."""
        self.options = options
        labels = {str(place): name for place, name in enumerate(options.by)}
        self._keys = list(labels)
        labels |= {} if options.unit is None else {"who": options.unit}
        wanted = [(name, _taken_by(statistic)) for name, statistic in columns]
        wanted += [(name, _LABELS) for name in labels.values()]
        self._found, times = _fetched(frame, wanted)
        shown = {key: _label(self._found[name]) for key, name in labels.items()}
        self.size: Any = times.sum()
        self._rows = pl.DataFrame({"times": times, **shown}).with_row_index("row").drop_nulls()
        self.labels = pl.DataFrame() if options.by else pl.DataFrame({"0": [0]})

    def name(self, groups: Sequence[Any]) -> None:
        """Take these public labels, tuples for several columns."""
        by = self.options.by
        rows = [label if isinstance(label, tuple) else (label,) for label in groups]
        for label in rows:
            if len(label) != len(by):
                raise ValueError(
                    f"groups= must be tuples of {len(by)} labels, of "
                    f"{', '.join(map(str, by))}, got {label!r}."
                )
        made = {}
        for place, (key, name) in enumerate(zip(self._keys, by, strict=True)):
            cells, dtype = [label[place] for label in rows], self._found[name].dtype
            made[key] = _labels(cells, dtype)
            if made[key] is None:
                wrong = (cell for cell in cells if _labels([cell], dtype) is None)
                raise ValueError(
                    f"column {name!r} holds {dtype}, so no group is {next(wrong, cells)!r}."
                )
        self.labels = pl.DataFrame(made)
        if (twice := self.labels.is_duplicated()).any():
            raise ValueError(f"groups contains {rows[twice.arg_true()[0]]!r} twice.")

    def find(self, bounded: bool) -> np.ndarray:
        """Take all groups that have rows, in the order of their labels, and return their sizes.

        A size is the number of rows or persons; with ``bounded`` a person counts in at most
        ``max_groups`` groups.
        """
        number = pl.col("times").sum().alias("rows")
        sizes = self._rows.group_by(self._keys).agg(number).sort(self._keys)
        self.labels = sizes.select(self._keys)
        if bounded and self.options.unit is not None:
            rows = self._in_few(self._in_groups().group_by("who", "group").agg(number))
            sizes = rows.group_by("group").agg(pl.len().alias("rows")).sort("group")
            self.labels = self.labels[sizes["group"].to_numpy()]
        return np.array(sizes["rows"], np.int64)

    def counts(self, name: Any, statistic: Statistic) -> tuple[Counts, np.ndarray, dict[str, int]]:
        """Return how many records of each group have each position.

        The second result is how many rows of each group have no value, int64 ``(groups,)``; the
        third one how many rows do not count, by the reason.
        """
        rows, groups = self._in_groups(), len(self.labels)
        swap, persons = self.options.neighbors == "swap", self.options.unit is not None
        read: Callable[..., Any] = statistic.read
        if persons:
            rule, grid = rule_of(statistic, self.options.per_unit), grid_of_records(statistic)
            if rule in ("mean", "sum"):
                read = partial(rounded, grid=grid, rule=rule)
        position, present = _read(self._found[name].gather(rows["row"]), statistic, read)
        group, times = rows["group"].to_numpy(), rows["times"].to_numpy()
        left = {"no group or no person": self.size - times.sum()}
        missing = np.bincount(group, np.where(present, 0, times), groups).astype(np.int64)
        if persons:
            rows = rows.with_columns(value=pl.Series(position), there=pl.Series(present))
            rows = rows if swap else rows.filter("there")
            each, number = (pl.col(name).filter("there") for name in ("value", "times"))
            together = getattr(each, rule)() if rule in ("min", "max") else (each * number).sum()
            rows = rows.group_by("who", "group").agg(together, number.sum().alias("rows"))
            rows = self._in_few(rows).fill_null(0)
            group, position, size = (rows[key].to_numpy() for key in ("group", "value", "rows"))
            left["further groups than max_groups"] = times.sum() - missing.sum() - size.sum()
            present, times = size > 0, np.ones_like(size)
            if rule not in ("min", "max"):
                position = finished(position, np.maximum(size, 1), grid, rule)
        if swap and not statistic.skips_missing:
            position = np.where(present, position, 0)
        else:
            group = np.where(present, group, -1)
        return Counts.of_rows(group, position, times, groups=groups), missing, left

    def _in_groups(self) -> pl.DataFrame:
        """Return the rows with the index of their group; an inner join leaves out all others."""
        if not self._keys:
            return self._rows.with_columns(group=pl.lit(0, pl.Int64))
        return self._rows.join(self.labels.with_columns(group=pl.int_range(pl.len())), self._keys)

    def _in_few(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Return the groups of each person with most rows, ties in the order of the groups."""
        ordered = rows.sort("who", -pl.col("rows"), "group")
        return ordered.filter(pl.int_range(pl.len()).over("who") < self.options.max_groups)


def _read(values: pl.Series, statistic: Statistic, read: Callable[..., Any]) -> Any:
    """Return the position of each record by ``read``, and which are present."""
    dtype = values.dtype
    if type(statistic) is Count:
        there = (values.fill_nan(None) if dtype.is_float() else values).is_not_null().to_numpy()
        return np.zeros(len(there), np.int64), there
    if isinstance(statistic, DistinctCount):
        labels = _label(values)
        ranks = labels.rank("dense").fill_null(0).to_numpy().astype(np.int64)
        return ranks - 1, ranks > 0
    if dtype.is_temporal():
        ticks = values.to_physical()
        values = ticks // 1000 if getattr(dtype, "time_unit", "us") == "ns" else ticks
    numbers = values.cast(pl.Float64, strict=False).fill_null(np.nan).to_numpy()
    return read(numbers * _DAY if dtype == pl.Date else numbers)


def _kind(dtype: Any, library: str) -> str:
    """Return what a dtype of narwhals holds; its own name if that is nothing that is known."""
    if dtype in (nw.String, nw.Categorical, nw.Enum):
        return "text"
    if dtype.is_numeric():
        return "decimals" if dtype.is_decimal() else "numbers"
    fine = getattr(dtype, "time_unit", None) in ("us", "ns")  # others may not fit into 64 bits
    of_months = dtype == nw.Duration and library in _DATABASES
    known = {nw.Boolean: "booleans", nw.Date: "dates"}
    known |= {nw.Datetime: "times", nw.Duration: "durations"} if fine and not of_months else {}
    return known.get(type(dtype), str(dtype))


def _taken_by(statistic: Statistic) -> Sequence[str]:
    """Return what the values of a statistic may be."""
    if isinstance(statistic, Count | DistinctCount):
        return _LABELS if isinstance(statistic, DistinctCount) else _ALL
    return _VALUES[kind_of(getattr(statistic, "lower", None))]


def _label(column: pl.Series) -> pl.Series:
    """Return labels of which equal ones are one; missing ones are null."""
    if column.dtype in (pl.Categorical, pl.Enum):
        return column.cast(pl.String)
    if column.dtype == pl.Date:  # Polars panics where it shows or casts others
        return column.set(~column.is_between(datetime.date.min, datetime.date.max), None)
    if column.dtype.is_float():  # both zeros are one label
        column = column.cast(pl.Float64).fill_nan(None)
        return column.set(column == 0, 0.0)
    return column


def _labels(cells: Sequence[Any], dtype: Any) -> pl.Series | None:
    """Return public labels as those of a column; None if its dtype cannot hold one of them."""
    if dtype in (pl.String, pl.Categorical, pl.Enum):
        dtype, cells = pl.String, list(map(_text, cells))
    try:
        made = pl.Series(cells, dtype=dtype)
    except (TypeError, ValueError, OverflowError, pl.exceptions.PolarsError):
        return None
    # Polars makes times of them where dates are asked for
    labels = _label(made) if made.dtype == dtype else None
    return None if labels is None or labels.has_nulls() else labels


def _fetched(
    frame: Any, wanted: Sequence[tuple[Any, Sequence[str]]]
) -> tuple[dict[Any, pl.Series], pl.Series]:
    """Return columns of a table, and the number of times of each row.

    Its dtypes are judged on what the library says, before any record is read, and on what Polars
    makes of them.

    Args:
        frame: the table.
        wanted: the names of columns, and what each of them may hold.
    """
    inner = {name: str(place) for place, name in enumerate(dict.fromkeys(n for n, _ in wanted))}
    frame = nw.to_native(frame, pass_through=True)
    in_pandas = nw.dependencies.is_pandas_dataframe(frame)
    known: Any = None if in_pandas else _known(frame)
    columns = list(frame.columns) if in_pandas else known.collect_schema().names()
    for name in inner:
        if columns.count(name) != 1 or str(name).startswith(("*", "^")):
            raise ValueError(
                f"the frame has no column {name!r}, or several, or it is a pattern by * or ^; its "
                f"columns are {', '.join(map(str, columns))}."
            )
    own: dict[str, pl.Series] = {}
    if in_pandas:
        rest, own = _of_pandas(frame, inner)
        known = nw.from_native(rest)
    else:
        known = known.select(*(nw.col(name).alias(place) for name, place in inner.items()))
    library = known.implementation.name.lower()
    there = dict(known.collect_schema())
    if library == "dask":  # narwhals takes its Python objects for text
        there |= {inner[n]: nw.Object() for n in inner if frame.dtypes[n] == np.dtype(object)}

    def judge(dtypes: Mapping[str, Any]) -> None:
        for name, taken in wanted:
            dtype = dtypes.get(inner[name])
            if dtype is not None and _kind(dtype, library) not in taken:
                bounds = "" if "text" in taken else ", or give bounds of its kind"
                raise TypeError(
                    f"column {name!r} holds {dtype}: cast it to {' or '.join(taken)} (times and "
                    f"durations of us or ns; durations of databases to numbers){bounds}."
                )

    judge(there)
    text = [name for name, dtype in there.items() if _kind(dtype, library) == "text"]
    known, counted = _by_bytes(known, library, text)
    try:
        if isinstance(known, nw.LazyFrame):
            rows = known.group_by(*there).agg(nw.len().alias("times")) if counted else known
            found = rows.collect("polars").to_native()
        else:
            found = known.to_polars()
    except (Exception, pl.exceptions.PanicException):
        raise RuntimeError(
            "the table could not be computed by its library, whose message is withheld, as it may "
            "show records."
        ) from None
    found = found.with_columns(**own)
    judge(nw.from_native(found).schema)
    times = found["times"] if "times" in found.columns else pl.repeat(1, len(found), eager=True)
    return {name: found[place] for name, place in inner.items()}, times.cast(pl.Int64)


def _known(frame: Any) -> Any:
    """Return a table as narwhals knows it; it is not computed."""
    try:
        known = nw.from_native(frame)
        library = known.implementation.name.lower()
    except TypeError:
        library = ""
    if library not in _LIBRARIES:
        raise TypeError(
            "frame must be a frame of pandas, Polars, PyArrow or Dask, a DuckDB relation, or a "
            f"table of Ibis or PySpark, got {type(frame).__name__}: if that names a file, read the "
            "file first."
        )
    if library == "ibis" and frame.get_backend().name == "sqlite":
        raise TypeError(
            "frame must not be a table of SQLite, whose columns hold cells of any type: read it "
            "with polars.read_database."
        )
    return known


def _of_pandas(frame: Any, inner: Mapping[Any, str]) -> tuple[Any, dict[str, pl.Series]]:
    """Return columns that narwhals can take by their dtypes, and all others in Polars.

    narwhals asks the records what a column of Python objects is, and does not know all zones, and
    PyArrow refuses some times.
    """
    own, others = {}, []
    for name, place in inner.items():
        column = frame[name]
        if hasattr(column, "cat") and column.cat.categories.dtype in (object, "str", "string"):
            # Equal numbers are one category, whose text depends on the records
            kinds = [_text(one) if isinstance(one, str) else None for one in column.cat.categories]
            shown = pl.Series([*kinds, None], dtype=pl.String)
            own[place] = shown[column.cat.codes.to_numpy()]  # the code -1 is the last one
        elif column.dtype == object or getattr(column.dtype, "storage", "") == "python":
            own[place] = pl.Series(list(map(_text, column)), dtype=pl.String)
        elif str(column.dtype).startswith(_NUMPY_TIMES):  # in UTC
            times = column.to_numpy(dtype=f"{column.dtype.kind}8[{column.dt.unit}]")
            own[place] = pl.Series(times)
        else:
            others.append(name)
    return frame[others].set_axis([inner[name] for name in others], axis=1), own


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
    table: Table, asked: Sequence[Any], found: Sequence[Mapping[str, np.ndarray]]
) -> pl.DataFrame:
    """Return a row for each statistic, group, draw and level.

    Args:
        table: the table, whose groups are known.
        asked: the statistics of the columns.
        found: for each, arrays ``(groups,)``, or ``(draws, groups[, levels])`` where draws may be
            1, in microseconds for times.
    """
    parts, options = [], table.options
    for each, arrays in zip(asked, found, strict=True):
        shape = options.draws, len(table.labels), len(each.levels)
        own = {
            name: _in_kind(_flat(array, shape), name, each.statistic)
            for name, array in arrays.items()
        }
        levels = np.array([[each.levels]], np.float64)
        draws = np.arange(options.draws)[:, None] + 1
        parts.append(
            table.labels[_flat(np.arange(shape[1]), shape)].with_columns(
                column=pl.lit(str(each.name)),
                statistic=pl.lit(type(each.statistic).__name__),
                quantile=pl.Series(_flat(levels, shape), nan_to_null=True),
                draw=pl.Series(_flat(draws, shape)),
                **own,
                epsilon=float(options.epsilon),
            )
        )
    said = {
        "draw": options.draws > 1,
        "quantile": any(each.levels != [None] for each in asked),
        "statistic": len({each.name for each in asked}) < len(asked),
    }
    rows = pl.concat(parts, how="diagonal_relaxed")
    names = [name for name in ORDER if name in rows.columns and said.get(name, True)]
    labels = {str(place): str(name) for place, name in enumerate(options.by)}
    return rows.rename(labels).select(*labels.values(), *names)


def _flat(array: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Return an entry for each draw, group and level; the draws of a group follow each other."""
    return np.broadcast_to(np.atleast_3d(array), shape).swapaxes(0, 1).ravel()


def _in_kind(array: np.ndarray, name: str, statistic: Any) -> pl.Series:
    """Return numbers as the kind of a statistic: counts, times from microseconds, or floats."""
    column, is_error = pl.Series(array, nan_to_null=True), name == "mean_abs_error"
    lower: Any = getattr(statistic, "lower", None)
    kind = kind_of(lower)
    if kind is None or not column.dtype.is_float():
        counted = isinstance(statistic, Count | DistinctCount) and not is_error
        return column.cast(pl.Int64) if counted else column
    ticks = column.round().cast(pl.Int64)
    if kind == "Duration" or is_error:
        return ticks.cast(pl.Duration("us"))
    if kind == "Date":
        return (ticks // _DAY).cast(pl.Int32).cast(pl.Date)
    return ticks.cast(pl.Datetime("us", lower.tzinfo and "UTC"))


def in_library(rows: pl.DataFrame, frame: Any, by: Iterable[Any]) -> Any:
    """Return results as a frame of the library of ``frame`` if it is pandas, PyArrow or a database.

    All others are Polars frames.
    """
    frame = nw.to_native(frame, pass_through=True)
    if nw.dependencies.is_pandas_dataframe(frame):
        return rows.to_pandas().rename(columns={str(name): name for name in by})
    library = nw.from_native(frame).implementation.name.lower()
    if library == "pyarrow":
        return rows.to_arrow()
    if library in ("duckdb", "ibis"):
        return nw.from_native(rows).lazy(library).to_native()
    return rows
