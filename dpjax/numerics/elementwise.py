"""``where`` and ``clip`` without the nested calls of ``jax.numpy``.

This reduces the compile time of draws.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np


def where(condition: jax.Array, x: Any, y: Any) -> jax.Array:
    """Return ``x`` where the condition holds, else ``y``.

    Both are arrays of one dtype that broadcast, or one of them is a Python number.
    """
    dtype = jnp.result_type(x, y)
    shape = jnp.broadcast_shapes(np.shape(condition), np.shape(x), np.shape(y))

    def full(value: Any) -> jax.Array:
        if isinstance(value, int | float | np.number):
            return jax.lax.full(shape, value, dtype)
        return jnp.broadcast_to(value.astype(dtype), shape)

    return jax.lax.select(jnp.broadcast_to(condition, shape), full(x), full(y))


def clip(x: jax.Array, low: Any, high: Any) -> jax.Array:
    """Clip ``x`` to bounds that broadcast against it; a NaN is kept."""
    return jnp.minimum(jnp.maximum(x, low), high)
