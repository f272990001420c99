"""Validation of keys."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp


def check_key(key: Any) -> jax.Array:
    """Return ``key`` if it is a single typed threefry key; raise otherwise.

    ``rbg`` keys are refused because ``jax.vmap`` over them draws from the first key only.
    Non-partitionable threefry is refused because its i-th word depends on the number of words
    drawn: the draws of a row would depend on the other rows.

    Args:
        key: a scalar key made by ``jax.random.key(seed)``.

    Returns:
        The same key.

    Raises:
        TypeError: ``key`` is not a typed key, but an integer or a raw ``jax.random.PRNGKey`` array.
        ValueError: ``key`` is a batch of keys or has another key type, or
            ``jax_threefry_partitionable`` is off.

    >>> import jax
    >>> check_key(jax.random.key(0)).shape
    ()
    """
    if not (isinstance(key, jax.Array) and jnp.issubdtype(key.dtype, jax.dtypes.prng_key)):
        raise TypeError(
            f"key must be a typed key: jax.random.key(seed), not PRNGKey(seed) or an integer; got "
            f"{type(key).__name__}."
        )
    if key.shape != ():
        raise ValueError(
            f"key must be one key, got a batch of shape {key.shape}; use jax.vmap over the keys."
        )
    implementation = str(jax.random.key_impl(key))
    if implementation != "threefry2x32":
        raise ValueError(
            f"key must be a threefry2x32 key, got {implementation!r}, which repeats its words "
            "under vmap: use jax.random.key(seed, impl='threefry2x32')."
        )
    if not getattr(jax.config, "jax_threefry_partitionable", True):
        raise ValueError(
            "jax_threefry_partitionable must be on, as draws would depend on other rows otherwise."
        )
    return key
