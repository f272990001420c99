"""Data and public parameters as NumPy numbers, and whether a value is JAX's.

Nothing here imports JAX, or ``numpy.ma``: where a module was never imported, no value is of a type of its.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, TypeGuard

import numpy as np

if TYPE_CHECKING:
    import jax

_NUMBERS = (int, float, np.integer, np.floating)


def is_jax_array(value: Any) -> TypeGuard[jax.Array]:
    """Return whether a value is a JAX array, traced or not; where JAX was never imported, no value is."""
    return isinstance(value, getattr(sys.modules.get("jax"), "Array", ()))


def is_traced(value: Any) -> bool:
    """Return whether a value is a JAX array that has no numbers yet, because a program is being traced."""
    if not is_jax_array(value):
        return False
    import jax

    return isinstance(value, jax.core.Tracer)


def is_tracing(value: Any) -> bool:
    """Return whether a program is being traced, by the value or by what is around it; a closure over the data shows neither."""
    if "jax" not in sys.modules:
        return False
    import jax

    return isinstance(value, jax.core.Tracer) or isinstance(jax.device_put(np.float32(0)), jax.core.Tracer)


def host_floats(name: str, value: Any) -> np.ndarray:
    """Return Python or NumPy numbers as a NumPy array of floats: their own, or float64 for integers."""
    refuse_frame(name, value)
    if isinstance(value, getattr(sys.modules.get("numpy.ma"), "MaskedArray", ())):
        raise TypeError(
            f"{name} is a masked array, whose mask would be lost: give {name}.filled(np.nan), or a mask where one is taken."
        )
    try:
        value = np.asarray(value)
    except ValueError as error:  # rows of different lengths
        raise ValueError(f"{name} has rows of different lengths: pad them with NaN, or give num_records=.") from error
    if value.dtype.kind in "biu":
        value = value.astype(np.float64)
    elif value.dtype == object and all(isinstance(v, _NUMBERS) for v in value.flat):  # integers beyond 64 bits
        value = np.array([nearest_float(v) for v in value.flat], np.float64).reshape(value.shape)
    if value.dtype.kind != "f" and not value.dtype.name.startswith(("bfloat", "float")):  # half precision of ml_dtypes, of kind V
        raise TypeError(f"{name} must hold real numbers, got dtype {value.dtype}.")
    return value


def refuse_frame(name: str, value: Any) -> None:
    """Raise ``TypeError`` for a data frame or a table, whose rows would count as datasets."""
    if hasattr(value, "columns"):
        raise TypeError(
            f"{name} is a {type(value).__name__}, whose rows would be taken for datasets: give one of its columns, as an array, or "
            "the whole to dpjax.frames.simulate or dpjax.frames.release, which take columns by name, and groups."
        )


def nearest_float(number: Any) -> float:
    """Return an integer or a Fraction of any size as a float, which may be infinite."""
    try:
        return float(number)
    except OverflowError:
        return float("inf") if number > 0 else float("-inf")
