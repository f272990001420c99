"""Conversion of records in any container, one record at a time; no record makes it raise."""

from __future__ import annotations

import math
import re
import sys
from decimal import Decimal
from numbers import Integral, Real
from typing import Any

import numpy as np

from dpjax import checks

# dtype names of text
_TEXT = re.compile(
    r"(large_)?(str|string|utf8|category|categorical|enum|dictionary)\b", re.IGNORECASE
)


def as_floats(x: Any, low: int = -(10**308), high: int = 10**308) -> np.ndarray:
    """Return records as a new float64 array, without warnings.

    Integers are clipped to ``[low, high]``.
    """
    array = as_reals(x)
    if array.dtype.kind in "iu":
        array = clip_integers(array, low, high)
    elif array.dtype.kind == "O":
        exact = [v if isinstance(v, float) else min(max(v, low), high) for v in array.flat]
        array = np.array(exact, np.float64).reshape(array.shape)
    with np.errstate(invalid="ignore", over="ignore", under="ignore"):
        return array.astype(np.float64)


def clip_integers(array: np.ndarray, low: int, high: int) -> np.ndarray:
    """Clip an array of integers to bounds that its dtype need not be able to hold."""
    if array.dtype.kind == "O":
        return np.clip(array, low, high)
    limits = np.iinfo(array.dtype)
    return np.clip(array, *np.clip([low, high], limits.min, limits.max).astype(array.dtype))


def as_integers(name: str, x: Any) -> np.ndarray:
    """Return computed integers, such as counts, as an array.

    It has an integer dtype or holds Python integers.

    Raises:
        TypeError: if anything else is among them.
    """
    array = as_array(x)
    if array.dtype.kind == "O":
        values = [without_axes(value) for value in array.flat]
        if not all(is_integer(value) and not isinstance(value, bool) for value in values):
            raise TypeError(f"{name} must all be integers.")
        found = np.empty(array.size, object)
        found[:] = list(map(int, values))
        return found.reshape(array.shape)
    if array.dtype.kind not in "iu":
        raise TypeError(f"{name} must be integers, got dtype {array.dtype}.")
    return array


def as_array(x: Any) -> np.ndarray:
    """Return an array of NumPy or JAX as a NumPy array, and anything else as an array of objects.

    Objects are used for a list, since the dtype that NumPy infers depends on all its records at
    once, and for arrays of other libraries with dtypes that NumPy lacks. Float dtypes that only JAX
    has become float32, which holds them exactly, and its narrow integers int32. Masked arrays, data
    frames and rows of different lengths are refused.
    """
    checks.refuse_frame("x", x)
    if _is_masked(x):
        raise TypeError(
            "x must not be a masked array, whose mask would be lost: pass .filled(np.nan), or "
            "mask=."
        )
    if isinstance(getattr(x, "dtype", None), np.dtype):
        array = np.asarray(x)
        if array.dtype.kind == "V":
            name = array.dtype.name  # of ml_dtypes
            wider = (
                np.float32
                if name.startswith(("bfloat", "float"))
                else np.int32
                if name.startswith(("int", "uint"))
                else None
            )
            array = array if wider is None else array.astype(wider)
        return array
    if not isinstance(x, (list, tuple)):
        return _objects(x)
    shape: tuple[int, ...] = (len(x),)
    records = list(x)
    while records and all(map(_is_sequence, records)):
        lengths = set(map(len, records))
        if len(lengths) > 1:
            raise ValueError(
                "x has rows of different lengths: pad them with NaN under add_remove, as "
                f"{checks.PADDED} does; under swap, where NaN counts as the lower bound, release "
                "one row at a time."
            )
        shape, records = (
            (*shape, lengths.pop()),
            [record for row in records for record in _items(row)],
        )
    # A list among scalar records is not a number.
    return np.fromiter(
        (None if _is_sequence(record) else record for record in records), object, len(records)
    ).reshape(shape)


def _objects(x: Any) -> np.ndarray:
    """Return the elements of an array of another library as objects, each read by itself.

    NumPy's own conversion makes floats of all integers if one of them is missing.
    """
    if hasattr(getattr(x, "dtype", None), "categories") and hasattr(x, "__array__"):
        own = getattr(x, "cat", x)
        if hasattr(own, "codes"):  # categories of pandas
            named = [*own.categories.to_list(), None]
            return _of_cells([named[code] for code in np.asarray(own.codes).tolist()])
    listed = getattr(x, "to_pylist", getattr(x, "to_list", None))  # of PyArrow, or of others
    if listed is None or getattr(x, "ndim", 1) != 1:
        return np.asarray(x, dtype=object)
    try:
        return _of_cells(listed())
    except Exception:  # One cell that Python cannot represent must not change the others.
        return _of_cells([_cell(x, place) for place in range(len(x))])


def _cell(x: Any, place: int) -> Any:
    """Return a single element as an object, None if Python cannot represent it."""
    try:
        cell = x[place]
        return cell.as_py() if hasattr(cell, "as_py") else cell
    except Exception:
        return None


def _of_cells(cells: list[Any]) -> np.ndarray:
    found = np.empty(len(cells), object)
    found[:] = cells
    return found


def shape_of(x: Any) -> tuple[int, ...]:
    """Return the shape that :func:`as_array` gives."""
    shape = getattr(x, "shape", None)
    return as_array(x).shape if shape is None else tuple(shape)


def _items(row: Any) -> Any:
    return row if isinstance(row, (list, tuple)) else _objects(row)


def _is_sequence(record: Any) -> bool:
    """Return whether an element of a list is itself a list or an array with axes."""
    return isinstance(record, (list, tuple)) or getattr(record, "ndim", 0) > 0


def refuse_traces(x: Any) -> None:
    """Raise inside jit, vmap or grad; a vmap that closes over the data cannot be detected."""
    if checks.is_tracing(x):
        raise TypeError(
            "a release cannot run inside jit, vmap or grad: it would not draw new values at each "
            "call."
        )


def refuse_text(x: Any) -> None:
    """Raise for a column of text or categories, by its dtype, which is public.

    A column of objects passes, since any of them may be numbers.
    """
    dtype = getattr(x, "dtype", None)
    if getattr(dtype, "kind", "") in ("U", "S") or _TEXT.match(str(dtype)):
        raise TypeError(f"x must hold numbers, got dtype {dtype}.")


def masked_arrays() -> Any:
    """Return the class of masked arrays, or () if ``numpy.ma`` has not been imported.

    NumPy does not import it by itself.
    """
    return getattr(sys.modules.get("numpy.ma"), "MaskedArray", ())


def _is_masked(x: Any) -> bool:
    """Return whether ``x`` is a masked array or a list of them.

    A single masked record in a list is a missing record.
    """
    if isinstance(x, (list, tuple)):
        return any(map(_is_masked, x))
    return isinstance(x, masked_arrays()) and x.ndim > 0


def as_reals(x: Any) -> np.ndarray:
    """Return records as an array of floats, integers or bools, or of objects.

    Each object is a Python integer or float.
    """
    array = as_array(x)
    if array.dtype.kind == "O":
        found = np.empty(array.size, object)
        found[:] = [_real(value) for value in array.flat]
        return found.reshape(array.shape)
    if array.dtype.kind not in "fiub":
        raise TypeError(f"records must be real numbers, got dtype {array.dtype}.")
    return array


def without_axes(value: Any) -> Any:
    """Return the scalar in an array without axes, and other objects unchanged.

    None for a masked scalar.
    """
    if (
        getattr(value, "ndim", None) == 0
        and hasattr(value, "item")
        and not isinstance(value, np.generic)
    ):
        return None if isinstance(value, masked_arrays()) and np.any(value.mask) else value.item()
    return value


def is_integer(value: Any) -> bool:
    """Return whether an object is an integer, which excludes NumPy's time differences."""
    return isinstance(value, Integral) and not isinstance(value, np.timedelta64)


def _real(value: Any) -> int | float:
    """Return an object as a Python integer or the nearest float; NaN if not a real number."""
    if type(value) in (int, float):
        return value
    value = without_axes(value)
    if is_integer(value):
        return int(value)
    kinds: Any = (Real, Decimal, np.bool_)
    if not isinstance(value, kinds) or isinstance(value, np.timedelta64):
        return math.nan
    try:
        return float(value)
    except OverflowError:
        return -math.inf if value < 0 else math.inf
    except ValueError:  # a signaling NaN
        return math.nan


def codes_of(ids: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return integer codes, equal where the ids are equal, int64, and a mask of valid ids.

    Both have the shape of ``ids``. An object is a valid id if it is an integer or text; others do
    not raise.
    """
    array = as_array(ids)
    if array.dtype.kind == "O":
        known: dict[Any, int] = {}
        plain = [
            int(v) if is_integer(v) else str(v) if isinstance(v, str) else None
            for v in map(without_axes, array.flat)
        ]
        found = np.array(
            [-1 if v is None else known.setdefault(v, len(known)) for v in plain], np.int64
        ).reshape(array.shape)
    elif array.dtype.kind in "iuUSb":
        found = np.unique(array, return_inverse=True)[1].reshape(array.shape).astype(np.int64)
    else:
        raise TypeError(f"ids must be integers or text, got dtype {array.dtype}.")
    return np.maximum(found, 0), found >= 0


def increasing(name: str, given: Any, least: int) -> np.ndarray:
    """Return public numbers as a new float64 array.

    Raises:
        ValueError: if they are fewer than ``least``, or not finite and increasing.
    """
    numbers = np.array(given, np.float64)
    if (
        numbers.ndim != 1
        or numbers.size < least
        or not np.isfinite(numbers).all()
        or not np.all(np.diff(numbers) > 0)
    ):
        raise ValueError(f"{name} must be {least} or more finite, increasing numbers, got {given}.")
    return numbers
