"""Columns in memory as numbers or labels.

They come from pandas and PyArrow (by narwhals), or from a mapping of arrays.
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from importlib import import_module
from typing import Any, Protocol

import numpy as np

from dpjax.frames.labels import DIGITS, is_missing, text_of
from dpjax.release.records import as_floats, masked_arrays

_TEXT = ("Object", "object", "null", "string_view")  # dtypes whose labels are compared as text
TIMES = ("Date", "Datetime", "Duration", "Time")
NESTED = ("List", "Array", "Struct", "Map")
_MICROSECONDS = {"W": 6048e8, "D": 864e8, "h": 36e8, "m": 6e7, "s": 1e6, "ms": 1e3, "us": 1.0}
_FINER = ("ns", "ps", "fs", "as")  # units below the microsecond, the finest of Python's datetime


@dataclass(frozen=True)
class Labels:
    """A column of labels.

    Attributes:
        codes: int32 ``(n,)``, the index of each label in ascending order, -1 where it is missing.
        names: the labels by index.
    """

    codes: np.ndarray
    names: Sequence[Any]

    @staticmethod
    def of(codes: np.ndarray, names: Sequence[Any]) -> Labels:
        """Return labels from codes in any order.

        Equal names are merged, the rest is sorted. None, NaN and texts that are no valid Unicode,
        which no frame can show, are missing. -0.0 becomes 0.0, as otherwise the order of the rows
        would decide which of them is shown.
        """
        names = [_shown(name) if isinstance(name, float | str) else name for name in names]
        distinct = {name for name in names if name is not None}
        ordered = sorted(distinct)
        index = {name: rank for rank, name in enumerate(ordered)}
        ranks = np.array([*(index.get(name, -1) for name in names), -1], np.int32)
        return Labels(ranks[codes], ordered)


def _shown(name: float | str) -> float | str | None:
    if isinstance(name, float):
        return None if name != name else name + 0.0
    try:
        str.encode(name)  # a subclass may have another encode
    except UnicodeEncodeError:
        return None
    return name


class Columns(Protocol):
    """The columns of a table in memory."""

    def kind(self, name: Any) -> str:
        """Name the kind of a column by its dtype.

        It is ``"number"``, ``"String"``, ``"Boolean"``, ``"Date"``, ``"text"`` etc.
        """

    def numbers(self, name: Any) -> np.ndarray:
        """Return a column as floats or integers, NaN where missing; times in microseconds."""

    def labels(self, name: Any) -> Labels:
        """Return a column as labels of which no two are equal."""

    def check_labels(self, name: Any) -> None:
        """Raise ``TypeError`` if a column cannot be used as labels, by dtype."""


class ArrayColumns:
    """The columns of a mapping of names to arrays."""

    def __init__(self, arrays: Mapping[Any, Any]) -> None:
        for name, column in arrays.items():
            plain = isinstance(getattr(column, "dtype", None), np.dtype) and not isinstance(
                column, masked_arrays()
            )
            if not plain and not (hasattr(column, "codes") and hasattr(column, "names")):
                raise TypeError(
                    f"column {name!r} must be a NumPy array, whose dtype does not depend on the "
                    f"records, got {type(column).__name__}; missing values are NaN or NaT."
                )
        self._arrays = {
            name: column if hasattr(column, "codes") else np.asarray(column)
            for name, column in arrays.items()
        }
        for name, column in self._arrays.items():
            if not hasattr(column, "codes") and column.ndim != 1:
                raise ValueError(
                    f"column {name!r} must be an array of one axis, got the shape {column.shape}."
                )
        if (
            len(
                {
                    len(column.codes if hasattr(column, "codes") else column)
                    for column in self._arrays.values()
                }
            )
            > 1
        ):
            raise ValueError("all columns must have the same length.")

    def names(self) -> list[Any]:
        """Return the names of all columns."""
        return list(self._arrays)

    def kind(self, name: Any) -> str:
        """Name the kind of a column by its dtype."""
        column = self._arrays[name]
        if hasattr(column, "codes"):
            return "String"
        if column.dtype.kind == "M":
            return (
                "Date" if np.datetime_data(column.dtype)[0] in ("D", "W", "M", "Y") else "Datetime"
            )
        known = {
            "b": "Boolean",
            "i": "number",
            "u": "number",
            "f": f"Float{8 * column.dtype.itemsize}",
            "U": "String",
            "T": "String",
        }
        return known.get(
            column.dtype.kind, {"m": "Duration", "S": "Binary"}.get(column.dtype.kind, "text")
        )

    def numbers(self, name: Any) -> np.ndarray:
        """Return a column as floats or integers, as :meth:`Columns.numbers`."""
        return as_numbers(self._arrays[name])

    def check_labels(self, name: Any) -> None:
        """Accept every column, as arrays of all dtypes can be used as labels."""

    def labels(self, name: Any) -> Labels:
        """Return a column as labels."""
        column = self._arrays[name]
        if hasattr(column, "codes"):
            coded: Any = column
            return Labels.of(np.asarray(coded.codes), list(coded.names))
        if self.kind(name) == "text":
            return Labels.of(*numbered_texts(column.tolist()))
        if column.dtype.kind == "T":  # NumPy can neither sort nor compare its missing values
            texts = [cell if type(cell) is str else None for cell in column.tolist()]
            return Labels.of(*numbered_texts(texts))
        if column.dtype.kind == "f":
            column = column + 0.0  # -0.0 becomes 0.0, in long doubles too
        names, codes = np.unique(column, return_inverse=True)
        return Labels.of(codes, plain_labels(names))


class FrameColumns:
    """The columns of an eager narwhals frame."""

    def __init__(self, frame: Any, texts: Mapping[Any, str] | None = None) -> None:
        self._frame, self._texts = frame, texts or {}

    def _series(self, name: Any) -> Any:
        return self._frame[self._texts.get(name, name)]

    def kind(self, name: Any) -> str:
        """Name the kind of a column by its dtype, never by its values."""
        return kind_of_series(self._series(name))

    def zoned(self, name: Any) -> bool:
        """Return whether the dtype of a column has a time zone."""
        return getattr(self._series(name).dtype, "time_zone", None) is not None

    def numbers(self, name: Any) -> np.ndarray:
        """Return a column as floats or integers, as :meth:`Columns.numbers`."""
        series = self._series(name)
        if str(series.dtype) in ("Int128", "UInt128"):
            import narwhals

            series = series.cast(narwhals.Float64)
        kind = kind_of_series(series)
        if kind == "Datetime" and getattr(series.dtype, "time_zone", None) is not None:
            series = series.dt.convert_time_zone("UTC").dt.replace_time_zone(None)
        if kind == "Date" or kind == "Time":  # others convert these to objects
            arrow: Any = series.to_arrow()
            if kind == "Date":
                return as_numbers(arrow.to_numpy(zero_copy_only=False))
            return np.floor(_microseconds_of_the_day(arrow))
        if series.dtype.is_integer() and (missing := series.is_null().to_numpy()).any():
            return _with_missing(series.fill_null(0).to_numpy(), missing.astype(bool))
        return as_numbers(series.to_numpy())

    def check_labels(self, name: Any) -> None:
        """Raise ``TypeError`` if a column cannot be used as labels, by dtype.

        The dtype must ensure that equal labels are shown alike, and that all labels can be sorted,
        whatever the records are: intervals from 0.0 and from -0.0 are equal, and lists, complex
        numbers and the objects of a sparse column may have no order.
        """
        series = self._series(name)
        kind, native = kind_of_series(series), series.to_native()
        # The durations of DuckDB are triples of integers
        if kind.startswith(NESTED) or (
            kind in ("other", "complex")
            and str(getattr(native, "type", "")) != "month_day_nano_interval"
        ):
            raise TypeError(
                f"column {name!r} has a dtype of other values than numbers, text and times, which "
                "cannot be used as labels: cast it to text."
            )

    def labels(self, name: Any) -> Labels:
        """Return a column as labels; raise ``TypeError`` as :meth:`check_labels` does."""
        self.check_labels(name)
        series = self._series(name)
        native, kind = series.to_native(), kind_of_series(series)
        if kind == "text":
            return Labels.of(*numbered_texts(objects_of(series)))
        native = _decoded(native)
        if hasattr(native, "factorize"):  # pandas
            codes, distinct = native.factorize()
            return Labels.of(
                codes, objects_of(_series(distinct.to_series(index=range(len(distinct)))))
            )
        if hasattr(native, "rank"):  # Polars
            return Labels.of(
                native.rank("dense").fill_null(0).to_numpy().astype(np.int64) - 1,
                objects_of(_series(native.drop_nulls().unique().sort())),
            )
        array = native.combine_chunks()
        if not hasattr(array, "dictionary"):
            array = (array if not hasattr(array, "chunks") else array.chunk(0)).dictionary_encode()
        codes = array.indices.cast("int64").fill_null(-1).to_numpy(zero_copy_only=False)
        return Labels.of(codes, objects_of(_series(array.dictionary)))


def _with_missing(integers: np.ndarray, missing: np.ndarray) -> np.ndarray:
    """Return integers with NaN where they are missing, each as exact as in a column without gaps.

    Floats hold integers up to 2^53; beyond, the array has Python objects.
    """
    exact = bool(np.all((integers >= -(2**53)) & (integers <= 2**53)))
    found = integers.astype(np.float64 if exact else object)
    found[missing] = np.nan
    return found


def _decoded(native: Any) -> Any:
    """Return a column of Arrow's dictionaries as one of their values, and others unchanged.

    Its chunks may have more values together than their type of indices can number.
    """
    arrow = getattr(getattr(native, "dtype", None), "pyarrow_dtype", getattr(native, "type", None))
    value = getattr(arrow, "value_type", None)
    if value is None or not hasattr(arrow, "index_type"):
        return native
    if hasattr(native, "factorize"):  # pandas
        return native.astype(import_module("pandas").ArrowDtype(value))
    return native.cast(value)


def _series(native: Any) -> Any:
    import narwhals

    if type(native).__module__.startswith("pyarrow"):
        pyarrow = import_module("pyarrow")
        native = pyarrow.chunked_array([native])
    return narwhals.from_native(native, series_only=True)


def as_numbers(array: np.ndarray) -> np.ndarray:
    """Return an array of floats or integers; times become microseconds, float64."""
    if array.dtype.kind in "mM":
        unit, step = np.datetime_data(array.dtype)
        if unit in _FINER:  # NumPy's cast would overflow near the end of the range
            ticks, parts = array.astype(np.int64), 1000 ** (_FINER.index(unit) + 1)
            microseconds = ticks // parts if step == 1 else np.floor(ticks * (step / parts))
            return np.where(np.isnat(array), np.nan, microseconds)
        if unit not in _MICROSECONDS:
            unit, step = "D", 1
            array = array.astype(f"{array.dtype.kind}8[D]")
        factor = _MICROSECONDS[unit] * step
        return np.where(np.isnat(array), np.nan, array.astype(np.int64).astype(np.float64) * factor)
    return array if array.dtype.kind in "iub" else as_floats(array)


def plain_labels(names: np.ndarray) -> list[Any]:
    """Return labels as Python objects.

    None for missing ones, and for times that Python cannot represent.
    """
    if names.dtype.kind in "mM":
        rounded = names
        if np.datetime_data(names.dtype)[0] in _FINER:
            rounded = names.astype(f"{names.dtype.kind}8[us]")
            rounded = np.where(rounded == names, rounded, np.array("NaT", rounded.dtype))
        return [
            name if isinstance(name, datetime.date | datetime.timedelta) else None
            for name in rounded.tolist()
        ]
    return [None if is_missing(name) else name for name in names.tolist()]


def numbered_texts(cells: Sequence[Any]) -> tuple[np.ndarray, list[Any]]:
    """Return codes of objects by their text, and the texts.

    None, NaN and objects without text are missing.
    """
    index: dict[Any, int] = {}
    texts = [
        cell if type(cell) is str else None if is_missing(cell) else text_of(cell) for cell in cells
    ]
    return np.array([index.setdefault(text, len(index)) for text in texts], np.int64), list(index)


def objects_of(series: Any) -> list[Any]:
    """Return the cells of a column as Python objects that compare by value; None for missing ones.

    Distinct cells are distinct objects, or None, so that a person cannot count twice in one group.
    """
    # In Python the two hours when clocks are set back are equal
    if getattr(series.dtype, "time_zone", None) is not None:
        series = series.dt.convert_time_zone("UTC")
    series = _held(series)
    # pandas drops nanoseconds
    if str(series.dtype) == "Time" and not hasattr(series.to_native(), "to_physical"):
        ticks = _microseconds_of_the_day(series.to_arrow()).tolist()
        start = datetime.datetime(1970, 1, 1)
        return [
            (start + datetime.timedelta(microseconds=tick)).time()
            if tick % 1 == 0 and tick < 864e8  # 24:00 would be taken for 0:00
            else None
            for tick in ticks
        ]
    if series.dtype.is_float():
        with np.errstate(invalid="ignore"):
            numbers = series.to_numpy().astype(np.float64) + 0.0  # -0.0 becomes 0.0
        return [
            None if gone else cell
            for cell, gone in zip(numbers.tolist(), np.isnan(numbers).tolist(), strict=True)
        ]
    try:
        found, missing = series.to_list(), series.is_null()
    except (
        Exception
    ):  # a date that Python cannot represent, or a signaling NaN, must not change other rows
        return [_object(series, place) for place in range(len(series))]
    found = (
        [None if gone else cell for cell, gone in zip(found, missing.to_list(), strict=True)]
        if missing.any()
        else list(found)
    )
    if series.dtype.is_decimal() and hasattr(series.to_native(), "to_physical"):
        # Polars rounds those of more digits, and then they may be equal
        end = Decimal(10) ** (DIGITS - series.dtype.scale)
        found = [cell if cell is not None and -end < cell < end else None for cell in found]
    return found


def _microseconds_of_the_day(times: Any) -> np.ndarray:
    """Return the times of an Arrow array as floats in microseconds, NaN where missing."""
    name = str(times.type)
    ticks = as_floats(
        times.cast("int64" if "64" in name else "int32").to_numpy(zero_copy_only=False)
    )
    return (
        ticks / 1e3
        if "ns" in name
        else ticks * {"s": 1e6, "m": 1e3, "u": 1.0}[name.partition("[")[2][0]]
    )


def _held(series: Any) -> Any:
    """Remove the times that Python cannot represent from a Polars column.

    Polars would abort the process.
    """
    native = series.to_native()
    name, unit = str(series.dtype).partition("(")[0], getattr(series.dtype, "time_unit", "ns")
    if name not in TIMES or not hasattr(native, "to_physical"):
        return series
    ticks, second = native.to_physical(), {"ms": 10**3, "us": 10**6, "ns": 10**9}[unit]
    low, high = {
        "Date": (-719_162, 2_932_896),
        "Datetime": (-62_135_596_800 * second, 253_402_300_800 * second - 1),
        "Duration": (-(10**9 - 1) * 86_400 * second, (10**9 - 1) * 86_400 * second),
        "Time": (0, 86_400 * second),
    }[name]
    least, most = (-(2**31), 2**31 - 1) if name == "Date" else (-(2**63), 2**63 - 1)
    held = (ticks >= max(low, least)) & (ticks <= min(high, most))
    if unit == "ns" and name != "Date":  # to microseconds
        held &= ticks % 1000 == 0
    return _series(native.zip_with(held, native.clear(len(native))))


def _object(series: Any, place: int) -> Any:
    try:
        cell = series[place : place + 1]
        return None if cell.is_null().any() else cell.to_list()[0]
    except Exception:
        return None


def kind_of_series(series: Any) -> str:
    """Name the kind of a narwhals column by its dtype, never by its values."""
    native = series.to_native()
    dtype = getattr(native, "dtype", getattr(native, "type", None))
    if {str(series.dtype), str(dtype)} & set(_TEXT):
        return "text"
    categories: Any = getattr(dtype, "categories", None)
    if hasattr(categories, "to_series"):  # categories of pandas may have any dtype
        return kind_of_series(_series(categories.to_series()))
    if "complex" in str(dtype):
        return "complex"
    if str(series.dtype).startswith(("Categorical", "Enum")):
        return "String" if "string" in str(getattr(dtype, "value_type", "string")) else "other"
    return kind_of_dtype(series.dtype)


def kind_of_dtype(dtype: Any) -> str:
    """Name the kind of a narwhals dtype."""
    if dtype.is_numeric() and not dtype.is_float():
        return "number"
    name = str(dtype).partition("(")[0]
    return {"Categorical": "String", "Enum": "String", "Object": "text", "Unknown": "other"}.get(
        name, name
    )


def is_numbers(kind: str) -> bool:
    """Return whether a column of this kind holds numbers."""
    return kind in ("number", "Boolean") or kind.startswith("Float")
