"""Validation of data and public parameters as JAX arrays, by the rules of :mod:`dpjax.checks`."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial, reduce
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from dpjax.checks.host import host_floats


def float_array(name: str, value: Any) -> jax.Array:
    """Return ``value`` as a JAX array of float32 or float64, upcasting integers and half precision.

    Python and NumPy integers become the default float (float32, or float64 with x64 enabled) before
    they are passed to JAX, so that large integers are rounded and do not wrap around.

    Raises:
        TypeError: ``value`` does not hold real numbers.
    """
    if not isinstance(value, jax.Array):
        value = host_floats(name, value)
        if value.dtype.itemsize > jnp.result_type(float).itemsize:
            # No warning, as it would depend on the data: 1e300 becomes inf in float32, a signaling
            # NaN a quiet one.
            with np.errstate(over="ignore", invalid="ignore"):
                value = value.astype(jnp.result_type(float))
    array = value if isinstance(value, jax.Array) else on_device(value)
    if jnp.issubdtype(array.dtype, jnp.integer) or array.dtype == jnp.bool_:
        return array.astype(jnp.result_type(float))
    if not jnp.issubdtype(array.dtype, jnp.floating):
        raise TypeError(f"{name} must hold real numbers, got dtype {array.dtype}.")
    return array.astype(jnp.float32) if array.dtype.itemsize < 4 else array


def on_device(value: np.ndarray) -> jax.Array:
    """Return a copy of a NumPy array as a JAX array.

    In some versions of JAX ``jnp.asarray`` compiles a program for each new shape.
    """
    return jax.device_put(np.array(value))  # device_put may share memory, so that it takes a copy


def float_dtype(*values: Any) -> Any:
    """Return the widest float dtype of the JAX arrays, at least float32.

    The default float if there is none.
    """
    found = [
        value.dtype
        for value in values
        if isinstance(value, jax.Array) and jnp.issubdtype(value.dtype, jnp.floating)
    ]
    widest = max(found, key=lambda dtype: dtype.itemsize, default=jnp.result_type(float))
    return widest if widest.itemsize >= 4 else jnp.dtype("float32")


def codes(given: jax.Array | np.ndarray) -> jax.Array:
    """Return integers as int32, with -1 for those that are negative or do not fit.

    They would wrap around.
    """
    xp: Any = jnp if isinstance(given, jax.Array) else np
    held = (given >= 0) & (given <= min(np.iinfo(np.int32).max, np.iinfo(given.dtype).max))
    found = xp.where(held, given.astype(np.int32), np.int32(-1))
    return found if isinstance(found, jax.Array) else on_device(found)


def positive(name: str, value: ArrayLike, dtype: Any) -> jax.Array:
    """Return a public parameter as an array.

    It must be finite and positive (rule 2 of :mod:`dpjax.checks`).
    """
    return _checked(name, value, dtype, "finite and positive")


def nonnegative(name: str, value: ArrayLike, dtype: Any) -> jax.Array:
    """Return a public parameter as an array; it must be finite and at least 0 (rule 2)."""
    return _checked(name, value, dtype, "finite and not negative")


def finite(name: str, value: ArrayLike, dtype: Any) -> jax.Array:
    """Return a public parameter as an array; it must be finite (rule 2)."""
    return _checked(name, value, dtype, "finite")


def probability(name: str, value: ArrayLike, dtype: Any, *, below: float) -> jax.Array:
    """Return a public probability as an array.

    It must be strictly between 0 and ``below`` (rule 2).
    """
    array = positive(name, value, dtype)
    if isinstance(value, jax.Array):
        return jnp.where(array < below, array, jnp.nan)
    if not np.all(np.asarray(value) < below):
        raise ValueError(f"{name} must be positive and below {below:g}, got {value}.")
    return array


def proportion(name: str, value: ArrayLike, dtype: Any) -> jax.Array:
    """Return a public probability as an array; it must be above 0 and at most 1 (rule 2)."""
    return _checked(name, value, dtype, "above 0 and at most 1")


def above_one(name: str, value: ArrayLike, dtype: Any) -> jax.Array:
    """Return a public parameter, such as a Renyi order, as an array.

    It must be finite and above 1 (rule 2).
    """
    return _checked(name, value, dtype, "finite and above 1")


def bounds(lower: ArrayLike, upper: ArrayLike, dtype: Any) -> tuple[jax.Array, jax.Array]:
    """Return the public bounds of the data, finite and with ``lower < upper`` (rule 2).

    Their difference must be from 2^-104 to 2^104 in float32, and from 2^-1000 to 2^1000 in float64.
    Quantities computed from the data then stay within the range of the dtype: otherwise pieces that
    all underflow, or one that overflows, could leave a row without a distribution for some data
    only.
    """
    low, high = finite("lower", lower, dtype), finite("upper", upper, dtype)
    most = 2.0**104 if low.dtype == jnp.float32 else 2.0**1000
    if not isinstance(lower, jax.Array) and not isinstance(upper, jax.Array):
        a, b = np.asarray(lower, dtype=low.dtype), np.asarray(upper, dtype=low.dtype)
        with np.errstate(over="ignore"):
            if np.any(a >= b):
                raise ValueError(
                    f"lower must be below upper, got lower={lower}, upper={upper} (in {low.dtype})."
                )
            if not np.all((b - a >= 1 / most) & (b - a <= most)):
                raise ValueError(
                    f"lower must be below upper, by {1 / most:.3g} to {most:.3g} in {low.dtype}: "
                    f"got lower={lower}, upper={upper}."
                )
        return low, high
    return _apart(low, high, most)


@partial(jax.jit, inline=True, static_argnames="most")
def _apart(low: jax.Array, high: jax.Array, most: float) -> tuple[jax.Array, jax.Array]:
    ok = (high - low >= 1 / most) & (high - low <= most)
    return jnp.where(ok, low, jnp.nan), jnp.where(ok, high, jnp.nan)


def remaining(message: str, rest: Callable[..., Any], *public: ArrayLike, dtype: Any) -> jax.Array:
    """Return ``rest(xp, *public)``, a remaining budget that must be finite and positive.

    If all public values are Python or NumPy numbers, another result raises ``ValueError``.
    Otherwise such rows are NaN, and so are rows of infinite public values, as an infinite budget
    would remove all noise.

    Args:
        message: of the error, with a ``{}`` for each public value and one for the result.
        rest: a function of NumPy or ``jax.numpy``, and of the public values.
        public: numbers that broadcast against each other.
        dtype: of the result.
    """
    if any(isinstance(value, jax.Array) for value in public):
        arrays = [jnp.asarray(value).astype(dtype) for value in public]
        value = rest(jnp, *arrays)
        good = reduce(jnp.logical_and, map(jnp.isfinite, arrays), (value > 0) & (value < jnp.inf))
        return jnp.where(good, value, jnp.nan)
    with np.errstate(all="ignore"):
        concrete = rest(np, *(np.asarray(value, np.float64) for value in public))
    if not np.all((concrete > 0) & np.isfinite(concrete)):
        raise ValueError(message.format(*public, concrete))
    with np.errstate(all="ignore"):
        return on_device(np.asarray(concrete, dtype))


# Conditions on public parameters, for NumPy or JAX arrays. XLA flushes numbers below the smallest
# normal one to zero.
_MUST: dict[str, Callable[[Any, Any], Any]] = {
    "finite": lambda v, xp: xp.isfinite(v),
    "finite and not negative": lambda v, xp: xp.isfinite(v) & (v >= 0),
    "finite and positive": lambda v, xp: xp.isfinite(v) & (v >= np.finfo(v.dtype).tiny),
    "finite and above 1": lambda v, xp: xp.isfinite(v) & (v > 1),
    "above 0 and at most 1": lambda v, xp: (v >= np.finfo(v.dtype).tiny) & (v <= 1),
}


def _checked(name: str, value: ArrayLike, dtype: Any, must: str) -> jax.Array:
    kind = f"{name} must be a real number or an array of them, got {value!r}."
    if isinstance(value, jax.Array):
        if jnp.issubdtype(value.dtype, jnp.complexfloating):
            raise TypeError(kind)
        return _or_nan(value, jnp.dtype(dtype), must)
    try:
        numbers = host_floats(name, None if isinstance(value, bool) else value)
    except TypeError:
        raise TypeError(kind) from None
    with np.errstate(over="ignore", under="ignore"):
        concrete = numbers.astype(np.float64).astype(dtype)
    if not np.all(_MUST[must](concrete, np)):
        raise ValueError(f"{name} must be {must} (in {np.dtype(dtype).name}), got {value}.")
    return on_device(concrete)


@partial(jax.jit, inline=True, static_argnames=("dtype", "must"))
def _or_nan(value: jax.Array, dtype: Any, must: str) -> jax.Array:
    array = value.astype(dtype)
    return jnp.where(_MUST[must](array, jnp), array, jnp.nan)
