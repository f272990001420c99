"""Random words from JAX's own keys, and uniform variates with full relative precision near 0.

``jax.random.uniform`` and the noise built on it have 23 random bits in float32: an event of
probability below 2^-24 would never happen, and a private distribution would lose its tail. Here a
variate has 64 bits, and is never 0 or smaller than 2^-65.
"""

from __future__ import annotations

from typing import Any

import jax


def words(key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
    """Return random 32-bit words of this shape, two for each evaluation of threefry.

    Words are counted row by row: they do not change when rows are appended on the first axis, nor
    under any sharding of the rows. Call it outside ``jax.enable_x64``.

    >>> import jax
    >>> words(jax.random.key(0), (3, 5)).shape
    (3, 5)
    """
    *rows, size = shape
    pairs = jax.random.key_data(jax.random.split(key, (*rows, -(-size // 2))))
    return pairs.reshape(*rows, -1)[..., :size]


def uniform(high: jax.Array, low: jax.Array, dtype: Any) -> jax.Array:
    """Return uniform variates in (0, 1] from two random words each.

    Small ones have full relative precision, down to 2^-65, and large ones are rounded, possibly to
    1: take ``-log`` for an exponential variate with a full tail, and ``-log1p(-u)`` for one that is
    precise near 0.

    >>> import jax.numpy as jnp
    >>> float(uniform(jnp.uint32(0), jnp.uint32(0), jnp.float32)) == 2.0**-65
    True
    """
    return (high.astype(dtype) + (low.astype(dtype) + 0.5) * 2.0**-32) * 2.0**-32


def uniforms(key: jax.Array, shape: tuple[int, ...], dtype: Any) -> jax.Array:
    """Draw uniform variates of this shape; see :func:`uniform`.

    >>> import jax
    >>> import jax.numpy as jnp
    >>> uniforms(jax.random.key(0), (3,), jnp.float32).shape
    (3,)
    """
    drawn = words(key, (*shape, 2))
    return uniform(drawn[..., 0], drawn[..., 1], dtype)
