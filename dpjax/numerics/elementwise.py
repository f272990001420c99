"""``where`` and ``clip`` without the nested call that each is in ``jax.numpy``: a draw has some sixty of them to compile."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np


def where(condition: jax.Array, x: Any, y: Any) -> jax.Array:
    """Return ``x`` where the condition holds, else ``y``: arrays of one dtype that broadcast, or Python numbers beside an array."""
    dtype = jnp.result_type(x, y)
    shape = jnp.broadcast_shapes(np.shape(condition), np.shape(x), np.shape(y))

    def full(value: Any) -> jax.Array:
        if isinstance(value, int | float | np.number):
            return jax.lax.full(shape, value, dtype)
        return jnp.broadcast_to(value.astype(dtype), shape)

    return jax.lax.select(jnp.broadcast_to(condition, shape), full(x), full(y))


def clip(x: jax.Array, low: Any, high: Any) -> jax.Array:
    """Return ``x`` within bounds that broadcast against it; a NaN stays."""
    return jnp.minimum(jnp.maximum(x, low), high)
