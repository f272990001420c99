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
import pyarrow  # noqa: F401  # with it Polars and narwhals read the tables of other libraries

from dpjax.frames.persons import Persons, finished, grid_of_records, rows_of
from dpjax.frames.result import ORDER
from dpjax.release import Count, Counts, DistinctCount, Mode, Statistic
from dpjax.release.grid import kind_of

_LABELS = "text, categories, integers, floats, booleans or dates"
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
        self._by, self._persons = list(by), persons
        self._keys = [str(place) for place in range(len(by))]
        others = [*by, *([] if persons is None else [persons.unit])]

        def judge(dtypes: Mapping[Any, Any], library: str) -> None:
            for name, statistic in columns:
                _check_values(name, dtypes[name], statistic, library)
            kinds = {
                (kind := kind_of(getattr(statistic, "lower", None)), kind and _zone(dtypes[name]))
                for name, statistic in columns
            }
            if len(kinds) > 1:
                raise ValueError(
                    "columns must all be numbers, or all of one kind of dates or times, with or "
                    "without a zone: use separate calls."
                )
            for name in others:
                if not _is_label(dtypes[name]):
                    raise TypeError(
                        f"column {name!r} holds {dtypes[name]}, but labels of groups and persons "
                        f"are {_LABELS}: cast it."
                    )

        names = list(dict.fromkeys([*(name for name, _ in columns), *others]))
        found, self._as_text = _fetched(frame, names, judge)
        inner = {name: str(place) for place, name in enumerate(names)}
        self._dtypes = {name: found.schema[inner[name]] for name in names}
        self._values = {name: f"value {inner[name]}" for name, _ in columns}
        shown = [*self._keys, *([] if persons is None else ["who"])]
        self._rows = found.select(
            "times",
            *(
                _label(inner[name], self._dtypes[name]).alias(key)
                for name, key in zip(others, shown, strict=True)
            ),
            *(pl.col(inner[name]).alias(value) for name, value in self._values.items()),
        )
        self._rows = self._rows.drop_nulls(shown) if shown else self._rows
        self.labels = pl.DataFrame() if by else pl.DataFrame({"0": [0]})

    def name(self, groups: Sequence[Any]) -> None:
        """Take these public labels, tuples for several columns."""
        several, made = len(self._by) > 1, {}
        for label in groups if several else ():
            if not isinstance(label, tuple | list) or len(label) != len(self._by):
                raise ValueError(
                    f"groups by {', '.join(map(str, self._by))} must be tuples of {len(self._by)} "
                    f"labels, got {label!r}."
                )
        for place, name in enumerate(self._by):
            cells, dtype = (
                [label[place] if several else label for label in groups],
                _held(self._dtypes[name]),
            )
            cells = [_text(cell) for cell in cells] if name in self._as_text else cells
            labels = _labels(cells, dtype)
            if labels is None:
                wrong = next((cell for cell in cells if _labels([cell], dtype) is None), cells)
                raise ValueError(
                    f"column {name!r} holds labels of the dtype {dtype}, so no group is {wrong!r}."
                )
            made[self._keys[place]] = labels
        self.labels = pl.DataFrame(made)
        if self.labels.is_duplicated().any():
            twice = self.labels.row(self.labels.is_duplicated().arg_max() or 0)
            raise ValueError(f"groups contains {twice if several else twice[0]!r} twice.")

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
        values, read = rows[self._values[name]], statistic.read
        if persons is not None:
            rule, grid = persons.rule(statistic), grid_of_records(statistic)
            read = _as_it_is if grid is None else rows_of(grid, rule).read
        position, present = _read(values, statistic, read)
        group, times = rows["group"].to_numpy().astype(np.int64), rows["times"].to_numpy()
        missing = np.zeros(len(self.labels), np.int64)
        np.add.at(missing, group[~present], times[~present])
        if persons is not None:
            rows = rows.select(
                "who", "group", "times", value=pl.Series(position), there=pl.Series(present)
            )
            rows = rows.filter("there") if neighbors == "add_remove" else rows
            value, number = pl.col("value").filter("there"), pl.col("times").filter("there")
            together = getattr(value, rule)() if rule in ("min", "max") else (value * number).sum()
            rows = self._in_few(
                rows.group_by("who", "group").agg(together, number.sum().alias("rows"))
            )
            number, total = rows["rows"].to_numpy(), rows["value"].fill_null(0).to_numpy()
            present, group = number > 0, rows["group"].to_numpy().astype(np.int64)
            times = np.ones_like(group)
            if grid is not None:
                position = finished(total, np.maximum(number, 1), grid, rule)
            elif isinstance(statistic, Count | DistinctCount):
                position = total
            else:
                position, known = statistic.read(total)
                present = present & known
        if neighbors == "swap" and not isinstance(statistic, Mode | DistinctCount):
            position = np.where(present, position, 0)
        else:
            group = np.where(present, group, -1)
        return Counts.of_rows(group, position, times, groups=len(self.labels)), missing

    def zone(self, name: Any) -> str | None:
        """Return UTC if the times of a column have a zone."""
        return _zone(self._dtypes[name])

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
    if isinstance(statistic, Count | DistinctCount):
        codes = values.to_frame("value").select(_label("value", dtype)).to_series()
        if isinstance(statistic, Count):
            return np.zeros(len(codes), np.int64), codes.is_not_null().to_numpy()
        ranks = codes.rank("dense").fill_null(0).to_numpy().astype(np.int64)
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
    kind, fine = kind_of(getattr(statistic, "lower", None)), _is_time(dtype, library)
    taken = {
        None: dtype.is_numeric() or dtype == nw.Boolean,
        "Date": dtype == nw.Date or (fine and dtype == nw.Datetime),
        "Datetime": fine and dtype == nw.Datetime,
        "Duration": fine and dtype == nw.Duration,
    }
    known = _is_label(dtype) or dtype.is_numeric()
    if isinstance(statistic, Count):
        if known or fine:
            return
    elif isinstance(statistic, DistinctCount):
        if _is_label(dtype):
            return
    elif taken.get(kind, False):
        return
    if kind is None and (fine or dtype == nw.Date):
        step = "give lower and upper of that kind, and a datetime.timedelta as resolution"
    elif isinstance(statistic, DistinctCount):
        step = f"cast it to {_LABELS}"
    else:
        step = (
            "cast it to numbers, booleans, dates, or times or durations in micro- or nanoseconds"
            f"{' (durations of databases to numbers)' * (library in _DATABASES)}"
        )
    raise TypeError(
        f"column {name!r} holds {dtype}, which {type(statistic).__name__} does not take"
        f"{'' if kind is None else f' with bounds of the kind {kind}'}: {step}."
    )


def _is_label(dtype: Any) -> bool:
    """Return whether cells of a dtype of narwhals can be labels: equal cells are shown alike."""
    return bool(dtype.is_integer() or dtype.is_float() or dtype in (*_TEXT, nw.Boolean, nw.Date))


def _is_time(dtype: Any, library: str) -> bool:
    """Return whether a dtype holds times, or durations, that fit into 64 bits of its unit."""
    fine = getattr(dtype, "time_unit", None) in ("us", "ns")
    return fine and not (dtype == nw.Duration and library in _DATABASES)


def _zone(dtype: Any) -> str | None:
    return None if getattr(dtype, "time_zone", None) is None else "UTC"


def _held(dtype: Any) -> Any:
    """Return the dtype of public labels of a column."""
    return pl.String if dtype in (pl.Categorical, pl.Enum) else dtype


def _label(name: str, dtype: Any) -> pl.Expr:
    """Return labels of which equal ones are one; missing ones are null."""
    label = pl.col(name).cast(_held(dtype))
    if dtype == pl.Date:  # Polars panics where it shows or casts others
        return pl.when(label.is_between(datetime.date.min, datetime.date.max)).then(label)
    if dtype.is_float():  # both zeros are one label; Polars leaves out an addition of 0.0
        label = label.cast(pl.Float64)
        return pl.when(label == 0).then(0.0).otherwise(label).fill_nan(None)
    return label


def _labels(cells: Sequence[Any], dtype: Any) -> pl.Series | None:
    """Return public labels as those of a column; None if its dtype cannot hold one of them."""
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
    texts: dict[str, pl.Series] = {}
    inner = {name: str(place) for place, name in enumerate(names)}
    columns: Any = None
    if nw.dependencies.is_pandas_dataframe(frame):
        columns = list(frame.columns)
        _check_names(names, columns)
        frame, texts = _of_pandas(frame, inner)
        known = nw.from_native(frame)
    else:
        known = _known(frame)
        _check_names(names, known.collect_schema().names())
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
        found = _in_polars(known, counted, list(there))
    except KeyboardInterrupt:
        raise
    except BaseException:  # a panic of Polars is no Exception
        raise RuntimeError(
            "the table could not be computed by its library, whose message is withheld, as it may "
            "show records."
        ) from None
    found = found.with_columns(**texts) if there else pl.DataFrame(texts)
    judged(nw.from_native(found).schema)
    if "times" not in found.columns:
        found = found.with_columns(times=pl.lit(1, pl.Int64))
    by_text = {name for name, place in inner.items() if place in texts}
    return found.with_columns(pl.col("times").cast(pl.Int64)), by_text


def _check_names(names: Sequence[Any], columns: Sequence[Any]) -> None:
    for name in names:
        if columns.count(name) != 1:
            raise ValueError(
                f"the frame has no column {name!r}, or several; its columns are "
                f"{', '.join(map(str, columns))}."
            )


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
        return str(cell).encode(errors="replace").decode()
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
    # Dask shows its groups to Python, which does not hold all dates
    return known, library != "dask" and (not texts or library not in _DATABASES)


def _in_polars(known: Any, counted: bool, names: Sequence[str]) -> pl.DataFrame:
    """Return the rows of a table; of a lazy one that may count them, each of the distinct ones."""
    if not isinstance(known, nw.LazyFrame):
        found: pl.DataFrame = known.to_polars() if names else pl.DataFrame()
        return found
    rows = known.group_by(*names).agg(nw.len().alias("times")) if counted else known
    found = rows.collect("polars").to_native()
    return found


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
            column = _in_kind(column, "Duration" if is_error else kind, table.zone(asked.name))
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
    if isinstance(statistic, Mode):
        return all(float(candidate).is_integer() for candidate in statistic.candidates)
    if isinstance(statistic, Count):
        return True
    grid: Any = getattr(statistic, "values_grid", lambda: None)()
    return getattr(grid, "resolution", None) is not None and grid.resolution.denominator == 1


def in_library(rows: pl.DataFrame, frame: Any, by: Iterable[Any]) -> Any:
    """Return results as a frame of the library of ``frame`` if it is pandas, PyArrow or a database.

    All others are Polars frames.
    """
    library = nw.from_native(frame).implementation.name.lower()
    if library == "pandas":
        return rows.to_pandas().rename(columns={str(name): name for name in by})
    if library == "pyarrow":
        return rows.to_arrow()
    if library in ("duckdb", "ibis"):
        return nw.from_native(rows).lazy(library).to_native()
    return rows
