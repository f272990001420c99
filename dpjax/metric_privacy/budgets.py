"""Arrays of budgets, as they are given: what may be infinite, must be square or symmetric, and where they are wrong."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from dpjax import checks


def budget_array(name: str, value: ArrayLike) -> jax.Array:
    """Return budgets that may be infinite; negative ones and NaN raise, or in a JAX array become NaN."""
    array = checks.float_array(name, value)
    if isinstance(value, jax.Array):
        return jnp.where(array >= 0, array, jnp.nan)
    if not np.all(np.asarray(value, np.float64) >= 0):
        raise ValueError(f"{name} must not be negative or NaN, got {value}.")
    return array


def square_array(name: str, value: ArrayLike) -> jax.Array:
    """Return floats ``(..., N, N)``."""
    array = checks.float_array(name, value)
    if array.ndim < 2 or array.shape[-1] != array.shape[-2] or array.shape[-1] == 0:
        raise ValueError(f"{name} must be square, (..., N, N) with N >= 1, got shape {array.shape}.")
    return array


def nan_where_any(array: jax.Array, wrong: jax.Array | None = None) -> jax.Array:
    """NaN for every batch element with something wrong (NaN, unless it is given) in its last two axes."""
    wrong = jnp.isnan(array) if wrong is None else wrong
    return jnp.where(jnp.any(wrong, axis=(-2, -1), keepdims=True), jnp.nan, array)


def nan_where_missing(epsilon: jax.Array, needed: jax.Array) -> jax.Array:
    """NaN for the batch elements that have NaN among the ``needed`` ``(..., k)``."""
    return jnp.where(jnp.any(jnp.isnan(needed), axis=-1), jnp.nan, epsilon)


@jax.jit
def even(budgets: jax.Array) -> jax.Array:
    """Return budgets of which ij and ji are the same, NaN for a batch element where something is wrong with them."""
    return nan_where_any(jnp.minimum(budgets, jnp.swapaxes(budgets, -1, -2)), _faults(budgets, budgets.dtype, jnp))


def _faults(budgets: Any, dtype: Any, xp: Any) -> Any:
    """Where budgets break what is asked of them: bool ``(..., N, N)``."""
    mirrored = xp.swapaxes(budgets, -1, -2)
    finite = xp.isfinite(budgets) & xp.isfinite(mirrored)
    one, other = xp.where(finite, budgets, 0), xp.where(finite, mirrored, 0)
    gap = xp.abs(one - other) > 16 * float(np.finfo(dtype).eps) * xp.maximum(one, other)
    uneven = xp.where(finite, gap, budgets != mirrored)
    return uneven | ~(budgets >= 0) | (xp.eye(budgets.shape[-1], dtype=bool) & (budgets != 0))


def first_wrong(budgets: np.ndarray, dtype: Any) -> str:
    """Return in words what is wrong first, or nothing."""
    faults = np.argwhere(_faults(budgets, dtype, np))
    if not faults.size:
        return ""
    *at, i, j = (int(k) for k in faults[0])
    where = f" in batch element {tuple(at)}" if at else ""
    other = "" if i == j else f" and d({j}, {i}) = {budgets[(*at, j, i)]:g}"
    return f"d({i}, {j}) = {budgets[(*at, i, j)]:g}{other}{where}"
