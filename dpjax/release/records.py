"""Conversion of records in any container, one record at a time; no record makes it raise."""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from decimal import Decimal
from numbers import Real
from typing import Any

import numpy as np

from dpjax import checks

# Dtypes of numbers that are not NumPy's, such as Int64, double[pyarrow] and torch.float32
_NUMBERS = r"(?i)([a-z.]+\.)?(u?int\d|b?float|half|double|bool|decimal)"


def as_floats(x: Any) -> np.ndarray:
    """Return records as a new float64 array; what is not a real number is NaN.

    Text is refused by its dtype, which is public, but for the length of the longest one.
    """
    array = as_array(x)
    if array.dtype.kind == "O":
        return _each(_real, array, math.nan).astype(np.float64)
    if array.dtype.kind not in "fiub":
        raise TypeError(f"x must hold numbers, got {array.dtype.type.__name__}.")
    with np.errstate(invalid="ignore", over="ignore", under="ignore"):
        return array.astype(np.float64)


def codes_of(ids: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return integer codes, equal where the ids are equal, int64, and a mask of valid ids.

    An object is a valid id if it is an integer or text; others do not raise.
    """
    array, known = as_array(ids), dict[Any, int]()
    if array.dtype.kind not in "OiuUTb":
        raise TypeError(f"x must hold ids, integers or text, got {array.dtype.type.__name__}.")
    codes = _each(lambda v: known.setdefault(_id(v), len(known)), array.astype(object), -1)
    found = codes.astype(np.int64)
    return np.maximum(found, 0), found >= 0


def as_counts(counts: Any, name: str = "counts") -> np.ndarray:
    """Return numbers of records as an array; objects that are no integers count as 0.

    Those beyond 2^62 are clamped.

    Raises:
        TypeError: the dtype is not that of integers; and as :func:`as_array`.
    """
    array = as_array(counts, name)
    if array.dtype.kind == "O":
        return _each(_whole, array, 0).astype(np.int64)
    if array.dtype.kind not in "iu":
        raise TypeError(f"{name} must be integers, got {array.dtype.type.__name__}.")
    return array


def as_array(x: Any, name: str = "x") -> np.ndarray:
    """Return records as a NumPy array with an axis of individuals.

    Lists, and columns of numbers of pandas, Polars and PyArrow, become arrays of objects, since the
    dtype that NumPy infers depends on all records at once, such as a missing one among integers.
    Float dtypes that only JAX has become float32, which holds them exactly, and its narrow integers
    int32.

    Raises:
        TypeError: inside jit, vmap or grad, where nothing new would be drawn at each call; and for
            frames, masked arrays and columns of other kinds, by their type and dtype.
        ValueError: for rows of different lengths, or without an axis.
    """
    checks.refuse_frame(name, x)
    if checks.is_tracing(x):
        raise TypeError(
            "a release cannot run inside jit, vmap or grad: it would not draw new values at each "
            "call."
        )
    if isinstance(x, getattr(sys.modules.get("numpy.ma"), "MaskedArray", ())):
        raise TypeError(f"{name} must not be a masked array, whose mask would be lost: fill it.")
    dtype = getattr(x, "dtype", getattr(x, "type", np.dtype(object)))
    lists = [getattr(x, name) for name in ("to_list", "to_pylist", "tolist") if hasattr(x, name)]
    if lists and not isinstance(dtype, np.dtype):
        if not re.match(_NUMBERS, str(dtype)):
            raise TypeError(
                f"{name} must hold numbers, got a {type(x).__name__} of {dtype}: use its list, or "
                "dpjax.frames.release."
            )
        x = lists[0]()
    is_list = isinstance(x, Sequence) and not isinstance(x, str)
    array = _of_rows(x) if is_list else np.asarray(x)
    if array.ndim == 0:
        raise ValueError(
            f"{name} must have an axis of individuals, the last one; got a single value."
        )
    if array.dtype.kind == "V" and not issubclass(array.dtype.type, np.void):  # of ml_dtypes
        return array.astype(np.float32 if "float" in array.dtype.name else np.int32)
    if array.dtype.kind == "O":
        return _each(_plain, array, None)
    return array


def _of_rows(x: Sequence[Any]) -> np.ndarray:
    shape: tuple[int, ...] = (len(x),)
    records = list(x)
    while records and all(map(_is_row, records)):
        lengths = set(map(len, records))
        if len(lengths) > 1:
            raise ValueError(
                "x has rows of different lengths: pad them with NaN under add_remove, as "
                f"{checks.PADDED} does; under swap, where NaN counts as the lower bound, release "
                "one row at a time."
            )
        shape = (*shape, lengths.pop())
        records = [record for row in records for record in row]
    return np.fromiter(records, object, len(records)).reshape(shape)


def _each(read: Callable[[Any], Any], array: np.ndarray, missing: Any) -> np.ndarray:
    """Return what each object is read as, an array of objects."""

    def safely() -> Iterator[Any]:
        for record in array.flat:
            try:
                yield read(record)
            except Exception:  # no record raises: it is missing
                yield missing

    with np.errstate(all="ignore"):  # of comparisons with a float16
        return np.fromiter(safely(), object, array.size).reshape(array.shape)


def _is_row(record: Any) -> bool:
    """Return whether an element of a list is itself a list or an array with axes."""
    try:
        rows = (list, tuple)
        return isinstance(record, rows) or (getattr(record, "ndim", 0) > 0 and len(record) >= 0)
    except Exception:  # no record raises: it has no axes
        return False


def _plain(value: Any) -> Any:
    """Return the scalar in an array without axes, and None for what is not one record.

    This is a list among records, a masked scalar, or a time difference, an integer to NumPy.
    """
    if _is_row(value) or isinstance(value, np.timedelta64) or getattr(value, "mask", False):
        return None
    if getattr(value, "ndim", None) == 0 and not isinstance(value, np.generic):
        return _plain(value.item())
    return value


def _id(value: Any) -> Any:
    """Return an integer or a text of a plain type; others raise."""
    return str.__str__(value) if isinstance(value, str) else int(value.__index__())


def _real(value: Any) -> float:
    """Return an object as the nearest float; NaN if it is not a real number."""
    try:
        return float(value) if isinstance(value, (float, Real, Decimal, np.bool_)) else math.nan
    except OverflowError:
        return -math.inf if value < 0 else math.inf


def _whole(value: Any) -> int:
    """Return an object as an integer from 0 to 2^62, and 0 if it is no integer."""
    near = min(max(value, 0), 2**62)
    return int(near) if near == int(near) else 0


def increasing(name: str, given: Any, least: int) -> np.ndarray:
    """Return public numbers as a new float64 array.

    Raises:
        ValueError: if they are fewer than ``least``, or not finite and increasing.
    """
    try:
        numbers = np.array(given, np.float64)
    except (TypeError, ValueError, OverflowError):
        numbers = np.zeros(())
    known = numbers.ndim == 1 and numbers.size >= least and np.isfinite(numbers).all()
    if not known or np.any(np.diff(numbers) <= 0):
        raise ValueError(f"{name} must be {least} or more finite, increasing numbers, got {given}.")
    return numbers
