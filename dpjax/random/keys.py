"""Validation of keys, and one key for each row of a batch."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from dpjax.numerics.batching import in_memory
from dpjax.numerics.two_words import Words
from dpjax.random.threefry import threefry


def check_key(key: Any) -> jax.Array:
    """Return ``key`` if it is a single typed threefry key; raise otherwise.

    ``rbg`` keys are refused because ``jax.vmap`` over them draws from the first key only.
    Non-partitionable threefry is refused because its i-th word depends on the number of words
    drawn: the draws of a row would depend on the padding and on the other rows.

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
    if isinstance(key, jax.Array | np.ndarray) and key.dtype == np.uint32:
        raise TypeError(
            "key must be a typed key: use jax.random.key(seed), not PRNGKey(seed), or convert raw "
            "key data by jax.random.wrap_key_data."
        )
    if not (isinstance(key, jax.Array) and jnp.issubdtype(key.dtype, jax.dtypes.prng_key)):
        raise TypeError(
            f"key must be a typed key such as jax.random.key(0), got {type(key).__name__}."
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
            "jax_threefry_partitionable must be on, as draws would depend on the padding otherwise."
        )
    return key


def row_keys(key: jax.Array, batch_shape: tuple[int, ...], first: ArrayLike = 0) -> jax.Array:
    """Return one key for each row of a batch, by ``fold_in`` of the row's index on each axis.

    The key of row ``(i, j)`` is ``fold_in(fold_in(key, first + i), j)``, so that it does not change
    when rows are added.

    Args:
        key: a scalar typed key, or an array of keys for the first axes of the batch.
        batch_shape: the shape of the batch; for ``()`` the key itself is returned.
        first: the index of the first row on the first axis, for a device that holds a part of the
            batch.

    Returns:
        Keys of shape ``batch_shape``.

    >>> import jax
    >>> few, many = row_keys(jax.random.key(1), (2,)), row_keys(jax.random.key(1), (5,))
    >>> bool((jax.random.key_data(few) == jax.random.key_data(many)[:2]).all())
    True
    """
    return jax.random.wrap_key_data(
        jnp.stack(row_words(key, batch_shape, first), axis=-1), impl="threefry2x32"
    )


def row_words(key: jax.Array, batch_shape: tuple[int, ...], first: ArrayLike = 0) -> Words:
    """Return the key data of :func:`row_keys`, materialized to be computed once."""
    data = jax.random.key_data(key)
    keys = Words(data[..., 0], data[..., 1])

    def fold() -> Words:
        found = keys
        for axis, size in enumerate(batch_shape[key.ndim :], start=key.ndim):
            found = fold_in_range(found, size, first if axis == 0 else 0)
        return found

    if key.ndim or not batch_shape:
        return fold()
    return in_memory(always_true(keys), fold)


def always_true(keys: Words) -> jax.Array:
    """Return true, in a form that is only known at run time: for random words ``in_memory``.

    It depends on the keys alone: under ``jax.vmap`` with one key for all rows, it is one bool, so
    the words are computed once.
    """
    return (keys.high.reshape(-1)[0] | jnp.uint32(1)) > 0


def fold_in(keys: Words, index: jax.Array) -> Words:
    """Return the key data of ``jax.random.fold_in``, for keys and indices (uint32) of one shape."""
    return threefry(keys, Words(jnp.zeros_like(index), index))


@partial(jax.jit, inline=True, static_argnames="size")
def fold_in_range(keys: Words, size: int, first: ArrayLike = 0, stream: ArrayLike = 0) -> Words:
    """Fold ``first, ..., first + size - 1`` into each key, on a new last axis.

    The result are the words for the variates with these indices. Different streams are independent;
    stream 0 is that of ``jax.random.fold_in``.
    """
    index = jnp.arange(size, dtype=jnp.uint32) + jnp.asarray(first, jnp.uint32)
    counter = Words(jnp.full_like(index, jnp.asarray(stream, jnp.uint32)), index)
    return threefry(Words(keys.high[..., None], keys.low[..., None]), counter)
