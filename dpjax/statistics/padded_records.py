"""Padded data: the records, the mask of present records, and the bounds for clamping."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from dpjax import checks
from dpjax.checks import Resolution
from dpjax.numerics.multiples import most_multiples


def present_records(
    x: ArrayLike, *, num_records: ArrayLike | None, mask: ArrayLike | None, least: int = 0
) -> tuple[jax.Array, jax.Array | None]:
    """Return float records ``(..., n)`` and a bool mask of those present, or None if all are.

    The mask broadcasts against the records.
    """
    records = checks.float_array("x", x)
    if records.ndim == 0:
        raise ValueError("x must have a last axis of individuals, got a scalar.")
    if records.shape[-1] < least:
        raise ValueError(
            f"x must have at least {least} individuals on the last axis, got shape {records.shape}."
        )
    return records, presence(records, num_records, mask)


def presence(
    records: jax.Array, num_records: ArrayLike | None, mask: ArrayLike | None
) -> jax.Array | None:
    """Return a bool mask of present records that broadcasts against ``records``; None for all."""
    if num_records is not None and mask is not None:
        raise ValueError("only one of num_records and mask can be given.")
    if mask is not None:
        present = jnp.asarray(mask)
        if present.dtype != jnp.bool_ or present.shape[-1:] != records.shape[-1:]:
            raise ValueError(
                f"mask must be bool with last axis {records.shape[-1]}, got {present.dtype} of "
                f"shape {present.shape}."
            )
        return present
    if num_records is not None:
        number = num_records if isinstance(num_records, jax.Array) else np.asarray(num_records)
        if not jnp.issubdtype(number.dtype, jnp.integer):
            raise ValueError(f"num_records must be integers, got dtype {number.dtype}.")
        # A narrow type (uint8) cannot represent every position, and a wide one may not fit in
        # int32.
        xp: Any = jnp if isinstance(number, jax.Array) else np
        clamped = xp.clip(number, 0, min(records.shape[-1], jnp.iinfo(number.dtype).max)).astype(
            np.int32
        )
        return jnp.arange(records.shape[-1], dtype=jnp.int32) < clamped[..., None]
    return None


def nan_where_absent(
    x: ArrayLike, num_records: ArrayLike | None, mask: ArrayLike | None
) -> jax.Array:
    """Return float records ``(..., n)``, NaN for those that are not present."""
    records, present = present_records(x, num_records=num_records, mask=mask)
    return records if present is None else jnp.where(present, records, jnp.nan)


def bounded_records(
    x: ArrayLike,
    lower: ArrayLike,
    upper: ArrayLike,
    num_records: ArrayLike | None,
    mask: ArrayLike | None,
    *,
    resolution: Resolution | None = None,
    parts: int = 1,
    size: Callable[[Any, Any], Any] | None = None,
    least: int = 0,
) -> tuple[tuple[jax.Array, jax.Array | None, jax.Array, jax.Array], Fraction | None]:
    """Return records, the mask of present ones, and bounds; and the exact resolution.

    ``size(low, high)`` must be in the range of the dtype. Otherwise the values of some datasets
    would overflow or vanish, and those of others would not. Floats must count ``parts`` of the
    largest multiple of the resolution.
    """
    records, present = present_records(x, num_records=num_records, mask=mask, least=least)
    low, high = checks.bounds(lower, upper, records.dtype)
    if size is not None:
        limits = jnp.finfo(records.dtype)
        static = not (isinstance(lower, jax.Array) or isinstance(upper, jax.Array))
        ends = (np.asarray(end, np.float64) for end in (lower, upper)) if static else (low, high)
        with np.errstate(over="ignore", under="ignore"):
            largest = size(*ends)
        fits = (largest > float(limits.tiny) * 2.0**20) & (largest < float(limits.max))
        if static and not np.all(fits):
            raise ValueError(
                f"lower and upper are too large or too close for {records.shape[-1]} records in "
                f"{records.dtype}, got {lower} and {upper}."
            )
        low, high = jnp.where(fits, low, jnp.nan), jnp.where(fits, high, jnp.nan)
    step = None
    if resolution is not None:
        step = checks.resolution(resolution, (lower, upper), most_multiples(records.dtype) // parts)
    return (records, present, low, high), step
