"""Data and public parameters as NumPy arrays, and tests for JAX arrays.

This module does not import JAX or ``numpy.ma``: if a module was never imported, no value has one of
its types.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, TypeGuard

import numpy as np

if TYPE_CHECKING:
    import jax

_NUMBERS = (int, float, np.integer, np.floating)


def is_jax_array(value: Any) -> TypeGuard[jax.Array]:
    """Return whether a value is a JAX array, traced or not.

    >>> is_jax_array(np.zeros(3))
    False
    """
    return isinstance(value, getattr(sys.modules.get("jax"), "Array", ()))


def is_traced(value: Any) -> bool:
    """Return whether a value is a traced JAX array, which has no concrete value.

    >>> is_traced(1.0)
    False
    """
    if not is_jax_array(value):
        return False
    import jax

    return isinstance(value, jax.core.Tracer)


def is_tracing(value: Any) -> bool:
    """Return whether a program is being traced, judging by the value and by the current trace.

    A function that closes over the data shows neither.

    >>> is_tracing(1.0)
    False
    """
    if "jax" not in sys.modules:
        return False
    import jax

    return is_traced(value) or is_traced(jax.device_put(np.float32(0)))


# How a message tells to pad a list of rows; NumPy and JAX have no function for it.
PADDED = "numpy.array(list(itertools.zip_longest(*rows, fillvalue=numpy.nan))).T"


def host_floats(name: str, value: Any) -> np.ndarray:
    """Return Python or NumPy numbers as a NumPy array of their float dtype.

    Integers become float64.

    Raises:
        TypeError: a data frame, a masked array, or values that are not real numbers.
        ValueError: rows of different lengths.

    >>> host_floats("x", [1, 2]).dtype
    dtype('float64')
    """
    refuse_frame(name, value)
    if isinstance(value, getattr(sys.modules.get("numpy.ma"), "MaskedArray", ())):
        raise TypeError(
            f"{name} must not be a masked array, whose mask would be lost: pass "
            f"{name}.filled(np.nan), or mask= if available."
        )
    try:
        value = np.asarray(value)
    except ValueError as error:  # rows of different lengths
        raise ValueError(
            f"{name} has rows of different lengths: pad them with NaN, as {PADDED} does (not under "
            "swap, where NaN counts as the lower bound)."
        ) from error
    if value.dtype.kind in "biu":
        value = value.astype(np.float64)
    elif value.dtype == object and all(
        isinstance(v, _NUMBERS) for v in value.flat
    ):  # integers beyond 64 bits
        value = np.array([nearest_float(v) for v in value.flat], np.float64).reshape(value.shape)
    # Half precision of ml_dtypes has kind V
    if value.dtype.kind != "f" and not value.dtype.name.startswith(("bfloat", "float")):
        raise TypeError(f"{name} must hold real numbers, got {value.dtype.type.__name__}.")
    return value


def refuse_frame(name: str, value: Any) -> None:
    """Raise ``TypeError`` for a data frame or table, whose rows would be treated as datasets.

    >>> refuse_frame("x", [1.0, 2.0])
    """
    if hasattr(value, "columns"):
        raise TypeError(
            f"{name} is a {type(value).__name__}, whose rows would be treated as datasets: pass "
            "one of its columns as an array, or the frame to dpjax.frames.simulate or "
            "dpjax.frames.release, which take statistics of its columns, and groups."
        )


def nearest_float(number: Any) -> float:
    """Return an integer or a Fraction of any size as the nearest float, which may be infinite.

    >>> nearest_float(10**400)
    inf
    """
    try:
        return float(number)
    except OverflowError:
        return float("inf") if number > 0 else float("-inf")
