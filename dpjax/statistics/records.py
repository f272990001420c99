"""Padded data at the door of a statistic: the records, and which of them are there."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from dpjax import checks


def present_records(
    x: ArrayLike, *, count: ArrayLike | None, mask: ArrayLike | None, least: int = 0
) -> tuple[jax.Array, jax.Array | None]:
    """Return float records ``(..., n)`` and which of them are there, bool that broadcasts against them, or None for all.

    Raises:
        ValueError: a scalar, fewer than ``least`` places for records, a bad ``count`` or ``mask``, or both.
    """
    records = checks.float_array("x", x)
    if records.ndim == 0:
        raise ValueError("x needs an axis of individuals (the last one); got a scalar.")
    if records.shape[-1] < least:
        raise ValueError(f"x needs an axis of at least {least} individuals (the last one); got shape {records.shape}.")
    return records, presence(records, count, mask)


def presence(records: jax.Array, count: ArrayLike | None, mask: ArrayLike | None) -> jax.Array | None:
    """Which records are there, bool that broadcasts against ``records``; None for all."""
    if count is not None and mask is not None:
        raise ValueError("give count or mask, not both.")
    if mask is not None:
        there = jnp.asarray(mask)
        if there.dtype != jnp.bool_ or there.ndim == 0 or there.shape[-1] != records.shape[-1]:
            raise ValueError(f"mask must be bool with last axis {records.shape[-1]}, got {there.dtype} of shape {there.shape}.")
        return there
    if count is not None:
        number = count if isinstance(count, jax.Array) else np.asarray(count)
        if not jnp.issubdtype(number.dtype, jnp.integer):
            raise ValueError(f"count must hold integers, got dtype {number.dtype}.")
        position = jnp.arange(records.shape[-1], dtype=jnp.int32).reshape((1,) * number.ndim + (-1,))
        # A narrow count (uint8) would not hold every position, a wide one need not fit into int32.
        xp = jnp if isinstance(number, jax.Array) else np
        present = xp.clip(number, 0, min(records.shape[-1], jnp.iinfo(number.dtype).max)).astype(np.int32)
        return position < present[..., None]
    return None


def levels_kept(truncate: int | None) -> int | None:
    """Return the static number of levels to keep, or raise."""
    return None if truncate is None else checks.static_integer("truncate", truncate, 0, must="None or an integer from 0")


def beyond_64_bits(given: object, array: np.ndarray) -> np.ndarray | None:
    """Return Python integers that NumPy made floats of, or left alone, since no type of its holds them all; otherwise None."""
    exact = np.asarray(given, dtype=object) if array.dtype.kind in "fO" else None
    if exact is None or exact.size == 0 or not all(isinstance(v, (int, np.integer)) for v in exact.flat):
        return None
    return exact
