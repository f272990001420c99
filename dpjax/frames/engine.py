"""Tables of engines, which round and count through narwhals.

Only groups, positions and counts are fetched.

    table --one record per person and group--> few groups per person --cell--> group, cell, count

Cells are equal in every engine and in memory: they are computed in float64, by operations that are
rounded in the same way everywhere. Missing values are removed before anything is computed or cast,
as an engine may raise for them.
"""

from __future__ import annotations

import datetime
from collections.abc import Collection, Sequence
from decimal import Decimal
from itertools import zip_longest
from typing import Any

import narwhals as nw
import numpy as np

from dpjax.frames.collations import with_binary_text
from dpjax.frames.columns import TIMES, FrameColumns, kind_of_dtype
from dpjax.frames.labels import number_in
from dpjax.frames.memory import Groups, Memory, Tally
from dpjax.frames.persons import Persons, Rounding, cells_of, rows_of
from dpjax.release import Count, DistinctCount, Statistic
from dpjax.release.grid import Multiples

_SQL = ("duckdb", "ibis", "pyspark", "pyspark_connect")
_DAYS = 719_163  # from the first day of the year 1 to 1970
_HIGH = 2**62  # larger than every position
_MOMENTS = datetime.datetime(1, 1, 1), datetime.datetime(9999, 12, 31, 23, 59, 59)


class Engine:
    """The records of a lazy narwhals frame.

    Args:
        frame: the lazy frame.
        by: the columns of the groups.
        persons: how rows are combined to persons; None if each row is a record.
    """

    def __init__(self, frame: Any, by: Sequence[Any], persons: Persons | None) -> None:
        self._by, self._persons = tuple(by), persons
        self._keys = [f"group{number}" for number in range(len(self._by))]
        if _is_of_sqlite(frame):
            raise TypeError(
                "frame is a table of SQLite, whose columns may hold values of any type, so that a "
                "record could make a query raise: read it first, as by frame.to_pandas()."
            )
        labels = (*by, *([] if persons is None else [persons.unit]))
        self._frame = with_binary_text(frame, labels)
        self._schema = self._frame.collect_schema()
        self._engine = frame.implementation.name.lower()
        for name in labels:
            self._check_labels(name)
        if persons is not None and by and self._engine == "dask":
            raise TypeError(
                "unit= and by= cannot be combined for Dask, which has no window functions: use a "
                "frame of another engine."
            )

    def _check_labels(self, name: Any) -> None:
        """Raise ``TypeError`` if a column cannot be used as labels, by dtype."""
        kind, dtype = kind_of_dtype(self._schema[name]), self._schema[name]
        # Distinct values may be equal in Python
        if kind in ("other", "text"):
            raise TypeError(
                f"column {name!r} holds {dtype}, which cannot be used as labels: cast it to text."
            )
        if self._engine in _SQL and kind == "Duration":
            raise TypeError(
                f"column {name!r} holds durations of {self._engine}, which cannot be used as "
                "labels: convert them to numbers."
            )
        if self._engine == "ibis" and kind == "Time":
            raise TypeError(  # 9:00 of two time zones would be one label in Python
                f"column {name!r} holds times of Ibis, which may have time zones, so that they "
                "cannot be used as labels: cast it to text."
            )
        if self._engine in _SQL and str(dtype) == "UInt128":
            raise TypeError(
                f"column {name!r} holds UInt128, some of which cannot be fetched as labels: cast "
                "it to text."
            )
        self._check_times(name, labels=True)

    def _check_times(self, name: Any, labels: bool) -> None:
        """Raise ``TypeError`` for times of Dask of which some raise when it compares them."""
        if self._engine != "dask" or kind_of_dtype(self._schema[name]) not in TIMES:
            return
        dtype = self._frame.to_native().dtypes[name]
        if hasattr(dtype, "pyarrow_dtype") or (labels and hasattr(dtype, "tz")):
            raise TypeError(
                f"column {name!r} holds {dtype} of Dask, which is not supported here: convert it "
                "to datetime64 or timedelta64 of NumPy."
            )

    def check(self, name: Any, statistic: Statistic | None) -> None:
        """Raise ``TypeError`` if the statistic of a column cannot be computed, by dtype."""
        kind, distinct = kind_of_dtype(self._schema[name]), isinstance(statistic, DistinctCount)
        self._check_times(name, labels=distinct)
        if self._engine == "ibis" and kind in ("other", "Duration") and distinct:
            raise TypeError(
                f"column {name!r} holds a type of Ibis whose distinct values cannot be counted: "
                "cast it to text."
            )
        if self._engine == "ibis" and kind == "Duration" and not isinstance(statistic, Count):
            raise TypeError(
                f"column {name!r} holds durations of Ibis, which are not supported: convert them "
                "to numbers."
            )
        if distinct and self._engine != "dask":
            nothing = self._frame.select(nw.col(name).alias("value")).head(0)
            FrameColumns(_collected(nothing)).check_labels("value")

    def there(self, bounded: bool) -> tuple[Groups, np.ndarray]:
        """Return all groups that have rows, and their numbers of rows or persons.

        With ``bounded`` a person counts in at most ``max_groups`` groups.
        """
        rows = self._rows(None)
        if self._persons is not None:
            rows = rows.group_by("unit", *self._keys).agg(nw.len().alias("rows"))
            rows = self._in_few_groups(rows) if bounded else rows
        groups, sizes = self._counted(rows, ()).there(False)
        return Groups(groups.names, dict(zip(self._by, groups.shown.values(), strict=True))), sizes

    def crowded(self, groups: Groups) -> tuple[int, int]:
        """Return the number of persons in more than ``max_groups`` of these groups, and of all.

        A person is in a group if it has rows there.
        """
        known: Any = self._persons
        each = (
            self._rows(groups)
            .group_by("unit", *self._keys)
            .agg(nw.len().alias("rows"))
            .group_by("unit")
            .agg(nw.len().alias("groups"))
        )
        more = nw.when(nw.col("groups") > known.max_groups).then(nw.lit(1)).otherwise(nw.lit(0))
        found = _collected(each.select(more.sum().alias("more"), nw.len().alias("persons")))
        more_groups, persons = (found[name].to_list()[0] for name in ("more", "persons"))
        return int(more_groups or 0), int(persons)

    def tally(self, column: Any, statistic: Statistic, groups: Groups, neighbors: str) -> Tally:
        """Count the records of a column in these groups."""
        found = getattr(statistic, "records_grid", None)
        grid = (
            found
            if isinstance(found, Multiples) and not isinstance(statistic, DistinctCount)
            else None
        )
        numbers = grid is not None or isinstance(statistic, Count)
        rows, present = self._rows(groups, column, numbers=numbers), self._present(column)
        if self._persons is not None:
            rule, only_there = self._persons.rule(statistic), isinstance(statistic, Count)
            rows = self._of_persons(rows, column, present, grid, rule, neighbors, only_there)
        elif grid is not None or isinstance(statistic, Count):
            cell = nw.lit(0.0) if grid is None else self._integer(column, cells_of(grid))
            rows = rows.with_columns(
                nw.when(present).then(cell).otherwise(nw.lit(-1.0)).cast(nw.Int64).alias("value")
            )
        memory = self._counted(rows, ("value",))
        if grid is not None or isinstance(statistic, Count):
            return memory.positions("value", groups)
        return memory.tally("value", statistic, groups, neighbors)

    def records(self, column: Any, groups: Groups) -> tuple[np.ndarray, np.ndarray]:
        """Return the records of a column as numbers, and the group of each."""
        rows = FrameColumns(_collected(self._rows(groups, column)))
        return Memory(rows, self._keys, None).records("value", groups)

    def _rows(self, groups: Groups | None, column: Any = None, *, numbers: bool = True) -> Any:
        """Return the labels, values and persons of rows.

        The rows have a label among the groups, and a person. The values are ``numbers`` or labels.
        """
        columns = [
            self._label(name).alias(key) for name, key in zip(self._by, self._keys, strict=True)
        ]
        columns += [] if column is None else [self._value(column, numbers).alias("value")]
        columns += [] if self._persons is None else [self._label(self._persons.unit).alias("unit")]
        rows = self._frame.select(*columns)
        labeled = [*zip(self._by, self._keys, strict=True)]
        if self._persons is not None:
            labeled.append((self._persons.unit, "unit"))
        for name, key in labeled:
            rows = rows.filter(~nw.col(key).is_null())
            if self._schema[name].is_float():
                rows = rows.filter(~nw.col(key).is_nan())
            # Python has no 24:00, and would take it for 0:00
            if self._engine in _SQL and kind_of_dtype(self._schema[name]) == "Time":
                rows = rows.filter(nw.col(key).dt.hour() < 24)
        if self._keys and groups is not None and groups.some:
            labels = self._labels_in(groups.names)
            if not labels:
                return rows.filter(nw.col(self._keys[0]).is_null())  # which no label is
            compared = []
            for place, (name, key) in enumerate(zip(self._by, self._keys, strict=True)):
                # Databases raise for numbers that the type of the literals cannot hold
                text = self._engine in ("duckdb", "ibis") and _is_large(self._schema[name])
                each = nw.col(key).cast(nw.String) if text else nw.col(key)
                rows = rows.filter(each.is_in(list(dict.fromkeys(row[place] for row in labels))))
                compared.append(each)
            # Other groups must not count towards max_groups
            if self._persons is not None and len(self._keys) > 1:
                rows = rows.filter(_one_of(labels, compared))
        return rows

    def _labels_in(self, names: Sequence[Any]) -> list[tuple[Any, ...]]:
        """Return the labels as tuples in the columns' dtypes.

        Labels that a column cannot hold are left out.
        """
        columns = (
            [names]
            if len(self._by) == 1
            else [[name[place] for name in names] for place in range(len(self._by))]
        )
        for place, name in enumerate(self._by):
            if (dtype := self._schema[name]).is_numeric():
                columns[place] = [number_in(label, dtype) for label in columns[place]]
                if self._engine in ("duckdb", "ibis") and _is_large(dtype):
                    columns[place] = [_text_in(number, dtype) for number in columns[place]]
        return [label for label in zip(*columns, strict=True) if None not in label]

    def _label(self, name: Any) -> Any:
        """Return an expression for a column of labels: categories as text, and -0.0 as 0.0."""
        dtype = self._schema[name]
        if self._is_category(name):
            return nw.col(name).cast(nw.String)
        if dtype.is_float():
            return nw.col(name).cast(nw.Float64) + 0.0
        return self._value(name, numbers=False)

    def _value(self, name: Any, numbers: bool) -> Any:
        """Return an expression for a column whose times are in microseconds.

        DuckDB raises for coarser times that it cannot represent in finer units, when it compares
        them or takes them apart. Those that Python cannot represent are clipped if the values are
        ``numbers``, and missing if they are labels.
        """
        value: Any = nw.col(name)
        unit: Any = getattr(self._schema[name], "time_unit", None)
        coarse = kind_of_dtype(self._schema[name]) == "Datetime" and unit in ("s", "ms")
        if self._engine not in ("duckdb", "ibis") or not coarse:
            return value
        low, high = (nw.lit(end).cast(nw.Datetime(unit)) for end in _MOMENTS)
        if numbers:
            value = value.clip(low, high)
        else:
            value = nw.when((value >= low) & (value <= high)).then(value)
        return value.cast(nw.Datetime("us"))

    def _is_category(self, name: Any) -> bool:
        return str(self._schema[name]).startswith(("Categorical", "Enum"))

    def _present(self, column: Any) -> Any:
        there = ~nw.col("value").is_null()
        # Infinite dates have no year
        if self._engine in _SQL and kind_of_dtype(self._schema[column]) in ("Date", "Datetime"):
            there = there & ~nw.col("value").dt.year().is_null()
        return there & ~nw.col("value").is_nan() if self._schema[column].is_float() else there

    def _number(self, column: Any, rounding: Rounding) -> Any:
        """Return an expression for the value as a float; times in microseconds."""
        dtype, value = self._schema[column], nw.col("value")
        ends: list[Any]
        kind = kind_of_dtype(dtype)
        if kind == "Boolean":
            return nw.when(value).then(nw.lit(1.0)).otherwise(nw.lit(0.0))
        if kind not in TIMES:
            return value.cast(nw.Float64)
        if kind == "Duration":  # clipped, as durations of some engines overflow in microseconds
            ends = [
                datetime.timedelta(microseconds=round(end * rounding.over / rounding.times))
                for end in (rounding.low, rounding.high)
            ]
            return value.clip(*ends).dt.total_microseconds().cast(nw.Float64)
        clock = [
            (value.dt.hour(), 36e8),
            (value.dt.minute(), 6e7),
            (value.dt.second(), 1e6),
            (value.dt.microsecond(), 1.0),
        ]
        time = sum((part.cast(nw.Float64) * factor for part, factor in clock), start=nw.lit(0.0))
        if kind == "Time":
            return time
        zone = getattr(dtype, "time_zone", None)
        if self._engine not in _SQL or (self._engine == "duckdb" and zone is not None):
            # Within the bounds Python can represent all times. DuckDB's clock functions depend on
            # the session's time zone.
            low, high = (
                np.datetime64(round(end * rounding.over / rounding.times), "us")
                for end in (rounding.low, rounding.high)
            )
            ends = [end.item() for end in (low, high)]
            if kind == "Date":
                ends = [end.date() for end in ends]
            if zone is not None:
                ends = [end.replace(tzinfo=datetime.UTC) for end in ends]
            if self._engine not in _SQL:
                return value.clip(*ends).dt.timestamp("us").cast(nw.Float64)
            since = (value.clip(*ends) - nw.lit(ends[0])).dt.total_microseconds().cast(nw.Float64)
            return since + float(low.astype(np.int64))
        year = value.dt.year().cast(nw.Float64) - 1.0
        leap = (year / 4.0).floor() - (year / 100.0).floor() + (year / 400.0).floor()
        days = year * 365.0 + leap + value.dt.ordinal_day().cast(nw.Float64) - float(_DAYS)
        return days * 864e8 if kind == "Date" else days * 864e8 + time

    def _integer(self, column: Any, rounding: Rounding) -> Any:
        """Return an expression for the integer of a value by :class:`Rounding`, as a float."""
        scaled = self._number(column, rounding) * rounding.times / rounding.over
        fine = scaled.clip(float(rounding.low), float(rounding.high)) * 2.0**rounding.bits
        return (fine + 0.5).floor() - float(rounding.offset) * 2.0**rounding.bits

    def _of_persons(
        self,
        rows: Any,
        column: Any,
        present: Any,
        grid: Multiples | None,
        rule: Any,
        neighbors: str,
        only_there: bool,
    ) -> Any:
        """Return one row per person and group, with the position of the record.

        If there is no grid, it has a value instead.
        """
        if neighbors == "add_remove":
            rows, number = rows.filter(present), nw.len()
        else:  # under swap a person counts, whatever the values are
            rows = rows.with_columns(
                nw.when(present).then(nw.lit(1)).otherwise(nw.lit(0)).alias("there")
            )
            number = nw.col("there").sum()
        # Missing values become null, as NaN may be the largest number
        if grid is None and not only_there:
            label = (
                nw.col("value").cast(nw.String) if self._is_category(column) else nw.col("value")
            )
            rows = rows.with_columns(nw.when(present).then(label).alias("value"))
        else:
            none = float(_HIGH) if rule == "min" else -1.0 if rule == "max" else 0.0
            one = nw.lit(0.0) if grid is None else self._integer(column, rows_of(grid, rule))
            rows = rows.with_columns(
                nw.when(present).then(one).otherwise(nw.lit(none)).cast(nw.Int64).alias("value")
            )
        value = getattr(nw.col("value"), rule if rule in ("min", "max") else "sum")()
        rows = self._in_few_groups(
            rows.group_by("unit", *self._keys).agg(value.alias("value"), number.alias("rows"))
        )
        return (
            rows
            if grid is None and not only_there
            else rows.with_columns(self._finished(grid, rule).alias("value"))
        )

    def _finished(self, grid: Multiples | None, rule: Any) -> Any:
        """Return an expression for the position of a person's combined record.

        -1 if no row has a value.
        """
        rows, value = nw.col("rows").cast(nw.Float64), nw.col("value").cast(nw.Float64)
        some = nw.when(nw.col("rows") > 0).then(rows).otherwise(nw.lit(1.0))
        if grid is not None and rule not in ("min", "max"):
            scale, cells = 2.0 ** rows_of(grid, rule).bits, cells_of(grid)
            if rule == "mean":
                value = (value / (some * scale) + 0.5).floor()
            else:
                whole = (
                    (value / scale + 0.5).floor()
                    if rule == "sum"
                    else some * cells.times / cells.over
                )
                whole = whole.clip(float(cells.low), float(cells.high))
                value = (whole + 0.5).floor() - float(cells.offset)
        return nw.when(nw.col("rows") > 0).then(value).otherwise(nw.lit(-1.0)).cast(nw.Int64)

    def _in_few_groups(self, rows: Any) -> Any:
        """Return the rows of each person's groups with most rows, ties by label."""
        if not self._keys or self._persons is None:
            return rows
        rows = rows.with_columns((nw.col("rows") * -1).alias("fewer"))
        place = nw.col("rows").cum_count().over("unit", order_by=["fewer", *self._keys])
        return rows.with_columns(place.alias("place")).filter(
            nw.col("place") <= self._persons.max_groups
        )

    def _counted(self, rows: Any, values: Sequence[str]) -> Memory:
        """Fetch the number of rows for each combination of labels and value."""
        keys = [*self._keys, *values]
        found = rows.group_by(*keys).agg(nw.len().alias("count")).select(*keys, "count")
        return Memory(FrameColumns(_collected(found)), self._keys, None, "count")


def _is_of_sqlite(frame: Any) -> bool:
    ibis = frame.implementation.name.lower() == "ibis"
    return ibis and frame.to_native().get_backend().name == "sqlite"


def _collected(frame: Any) -> Any:
    """Compute a lazy frame; raise ``RuntimeError`` without the engine's message if it cannot.

    The steps by which a frame was made may raise for a record, such as the scan of a file of text.
    """
    try:
        return frame.collect()
    except Exception:
        raise RuntimeError(
            "the engine could not compute the frame. Its message is withheld, as it may show "
            "records: compute the frame itself to see it."
        ) from None


def _is_large(dtype: Any) -> bool:
    """Return whether a dtype has numbers that neither int64 nor float64 can represent."""
    return dtype.is_decimal() or str(dtype) in ("UInt64", "Int128", "UInt128")


def _text_in(number: Any, dtype: Any) -> str | None:
    """Return the text of a number in a dtype, or None if it has more digits than the dtype."""
    if number is None or not dtype.is_decimal():
        return None if number is None else str(number)
    text = f"{number:.{dtype.scale}f}"
    if Decimal(text) != number:
        return None
    return text.removeprefix("-") if number == 0 else text


def _one_of(labels: Collection[tuple[Any, ...]], keys: Sequence[Any]) -> Any:
    """Return an expression whether columns hold one of these tuples, at least one.

    It has one condition for each distinct set of labels that follow a first label.
    """
    if len(keys) == 1:
        return keys[0].is_in([label for (label,) in labels])
    after: dict[Any, dict[Any, None]] = {}
    for first, *others in labels:
        after.setdefault(first, {})[tuple(others)] = None
    alike: dict[Any, list[Any]] = {}
    for first, follow in after.items():
        alike.setdefault(frozenset(follow), []).append(first)
    each = [keys[0].is_in(firsts) & _one_of(rest, keys[1:]) for rest, firsts in alike.items()]
    while len(each) > 1:  # pairwise, as a long chain is nested too deeply for some engines
        each = [
            left | right
            for left, right in zip_longest(each[::2], each[1::2], fillvalue=nw.lit(value=False))
        ]
    return each[0]
