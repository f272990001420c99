"""Checks of arrays of budgets: signs, shape and symmetry."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from dpjax import checks


def budget_array(name: str, value: ArrayLike) -> jax.Array:
    """Return nonnegative numbers, possibly infinite; others raise, or in a JAX array become NaN."""
    array = checks.float_array(name, value)
    if isinstance(value, jax.Array):
        return jnp.where(array >= 0, array, jnp.nan)
    if not np.all(np.asarray(value, np.float64) >= 0):
        raise ValueError(f"{name} must be nonnegative and not NaN, got {value}.")
    return array


def square_array(name: str, value: ArrayLike) -> jax.Array:
    """Return floats ``(..., N, N)``, or raise for another shape."""
    array = checks.float_array(name, value)
    if array.ndim < 2 or array.shape[-1] != array.shape[-2] or array.shape[-1] == 0:
        raise ValueError(
            f"{name} must be square, (..., N, N) with N >= 1, got shape {array.shape}."
        )
    return array


def nan_where_any(array: jax.Array, wrong: jax.Array | None = None) -> jax.Array:
    """Return NaN for batch elements with a true ``wrong`` (by default NaN) in the last two axes."""
    wrong = jnp.isnan(array) if wrong is None else wrong
    return jnp.where(jnp.any(wrong, axis=(-2, -1), keepdims=True), jnp.nan, array)


def nan_where_missing(epsilon: jax.Array, needed: jax.Array) -> jax.Array:
    """Return NaN for batch elements with a NaN among the ``needed`` ``(..., k)``."""
    return jnp.where(jnp.any(jnp.isnan(needed), axis=-1), jnp.nan, epsilon)


@jax.jit
def symmetric(budgets: jax.Array) -> jax.Array:
    """Return the smaller of the budgets ij and ji; NaN for a batch element with :func:`faults`."""
    return nan_where_any(
        jnp.minimum(budgets, jnp.swapaxes(budgets, -1, -2)), faults(budgets, budgets.dtype, jnp)
    )


def faults(budgets: Any, dtype: Any, xp: Any) -> Any:
    """Return a bool mask ``(..., N, N)`` of invalid budgets.

    These are budgets that are not symmetric up to rounding, negative, NaN, or not 0 on the
    diagonal.
    """
    mirrored = xp.swapaxes(budgets, -1, -2)
    low, high = xp.minimum(budgets, mirrored), xp.maximum(budgets, mirrored)
    uneven = low < high * (1 - 16 * float(np.finfo(dtype).eps))
    return uneven | ~(budgets >= 0) | (xp.eye(budgets.shape[-1], dtype=bool) & (budgets != 0))
