"""Validation of data and public parameters as JAX arrays, by the rules of :mod:`dpjax.checks`."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

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
        value = on_device(value)
    if not any(jnp.issubdtype(value.dtype, kind) for kind in (jnp.floating, jnp.integer, jnp.bool)):
        raise TypeError(f"{name} must hold real numbers, got dtype {value.dtype}.")
    return value.astype(float_dtype(value))


def score_array(scores: Any) -> jax.Array:
    """Return scores as :func:`float_array` does; of Python and NumPy numbers minus the highest.

    Selections depend on nothing else, and float32 rounds integers above 2^24.
    """
    if not isinstance(scores, jax.Array):
        scores = host_floats("scores", scores)
        if scores.ndim:
            top = scores.max(axis=-1, keepdims=True, initial=-np.inf)
            with np.errstate(over="ignore", invalid="ignore"):
                scores = scores - np.where(np.isfinite(top), top, scores.dtype.type(0))
    return float_array("scores", scores)


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
    return np.result_type(np.float32, *(found or [jnp.result_type(float)]))


@partial(jax.jit, inline=True, static_argnames="most")
def apart(low: jax.Array, high: jax.Array, most: float) -> tuple[jax.Array, jax.Array]:
    """Return bounds with NaN for those that are not apart by ``1 / most`` to ``most``."""
    ok = (high - low >= 1 / most) & (high - low <= most)
    return jnp.where(ok, low, jnp.nan), jnp.where(ok, high, jnp.nan)


@partial(jax.jit, inline=True, static_argnames=("dtype", "holds"))
def or_nan(value: jax.Array, dtype: Any, holds: Callable[[Any], Any]) -> jax.Array:
    """Return an array of this dtype with NaN for entries for which ``holds`` is false."""
    array = value.astype(dtype)
    return jnp.where(holds(array), array, jnp.nan)
