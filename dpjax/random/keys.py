"""Keys: which ones are accepted, and one key for each row of a batch."""

from typing import Any

import jax
import jax.numpy as jnp


def check_key(key: Any) -> jax.Array:
    """Return ``key`` if it is one typed threefry key; raise with the fix if it is not.

    ``rbg`` keys are refused because ``jax.vmap`` over them draws from the first key only, and a threefry that is not
    partitionable because its i-th word changes with the number of words asked for: the draws of one row would depend
    on the padding and on the other rows.

    Args:
        key: a scalar key made by ``jax.random.key(seed)``.

    Returns:
        The same key.

    Raises:
        TypeError: not a typed key (an integer, or a raw ``jax.random.PRNGKey`` array).
        ValueError: a batch of keys, another key type, or ``jax_threefry_partitionable`` switched off.

    >>> import jax
    >>> check_key(jax.random.key(0)).shape
    ()
    """
    if not (isinstance(key, jax.Array) and jnp.issubdtype(key.dtype, jax.dtypes.prng_key)):
        raise TypeError(f"key must be a typed key such as jax.random.key(0), got {type(key).__name__}.")
    if key.shape != ():
        raise ValueError(f"key must be one key, got a batch of shape {key.shape}; use jax.vmap over the keys.")
    implementation = str(jax.random.key_impl(key))
    if implementation != "threefry2x32":
        raise ValueError(
            f"key must be a threefry2x32 key, got {implementation!r}: under vmap it would repeat its words. "
            "Make it with jax.random.key(seed, impl='threefry2x32')."
        )
    if not getattr(jax.config, "jax_threefry_partitionable", True):
        raise ValueError("jax_threefry_partitionable is off: draws would depend on the padding. Leave it on.")
    return key


def row_keys(key: jax.Array, batch_shape: tuple[int, ...]) -> jax.Array:
    """Return one key for each row of a batch, by nested ``fold_in`` over the row's index on each axis.

    The key of row ``(i, j)`` is ``fold_in(fold_in(key, i), j)``: it does not change when rows are added.

    Args:
        key: a scalar typed key.
        batch_shape: the shape of the batch; ``()`` gives back the key itself.

    Returns:
        Keys of shape ``batch_shape``.

    >>> import jax
    >>> few, many = row_keys(jax.random.key(1), (2,)), row_keys(jax.random.key(1), (5,))
    >>> bool((jax.random.key_data(few) == jax.random.key_data(many)[:2]).all())
    True
    """
    keys = key.reshape(1)
    for size in batch_shape:
        index = jnp.arange(size, dtype=jnp.uint32)
        fold = jax.vmap(jax.vmap(jax.random.fold_in, in_axes=(None, 0)), in_axes=(0, None))
        keys = fold(keys, index).reshape(-1)
    return keys.reshape(batch_shape)
