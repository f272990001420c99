"""Alignment of batch axes: every array meets another of the same rank, so the library runs with rank promotion forbidden."""

from math import prod

import jax
import jax.numpy as jnp


def align(array: jax.Array, ndim: int) -> jax.Array:
    """Add leading axes of size 1 until the array has ``ndim`` axes."""
    return array.reshape((1,) * (ndim - array.ndim) + array.shape)


def concatenate(*arrays: jax.Array) -> jax.Array:
    """Join arrays along the last axis after broadcasting their leading axes (of any rank) against each other."""
    batch = jnp.broadcast_shapes(*(array.shape[:-1] for array in arrays))
    return jnp.concatenate([broadcast_rows(array, batch) for array in arrays], axis=-1)


def broadcast_rows(array: jax.Array, batch: tuple[int, ...]) -> jax.Array:
    """Broadcast the leading axes to ``batch`` and leave the last axis as it is."""
    return jnp.broadcast_to(align(array, len(batch) + 1), (*batch, array.shape[-1]))


def broadcast_batch(array: jax.Array, batch: tuple[int, ...]) -> jax.Array:
    """Broadcast an array that has batch axes only."""
    return jnp.broadcast_to(align(array, len(batch)), batch)


def take(array: jax.Array, index: jax.Array) -> jax.Array:
    """Return ``array[..., index]``, for an array that broadcasts to ``(*batch, k)`` and indices ``(*batch, j)`` in ``0..k-1``.

    One flat gather: on the CPU several times faster than one that keeps the batch axes.
    """
    array = align(array, index.ndim)
    batch, width = array.shape[:-1], array.shape[-1]
    row = jnp.arange(prod(batch), dtype=jnp.uint32).reshape((*batch, 1)) * jnp.uint32(width)
    return array.reshape(-1).at[row + index.astype(jnp.uint32)].get(mode="promise_in_bounds")


def row(array: jax.Array, batch: tuple[int, ...], number: jax.Array) -> jax.Array:
    """Return one row of an array that broadcasts to ``(*batch, k)``, by its number in the flattened batch: ``(k,)``."""
    own = align(array, len(batch) + 1).shape[:-1]
    if prod(own) == 1:
        return array.reshape(array.shape[-1])  # shared by all rows
    index = jnp.broadcast_to(jnp.arange(prod(own), dtype=jnp.int32).reshape(own), batch).reshape(-1)[number]
    return array.reshape(prod(own), array.shape[-1])[index]


def fits_into(batch: tuple[int, ...], of: str, **public: tuple[int, ...]) -> None:
    """Raise where the shape of a public parameter does not broadcast to that of something else, which it cannot widen."""
    for name, shape in public.items():
        try:
            fitting = jnp.broadcast_shapes(batch, shape) == batch
        except ValueError:
            fitting = False
        if not fitting:
            raise ValueError(f"{name} of shape {shape} does not broadcast to the shape {batch} of {of}.")


def fits(batch: tuple[int, ...], **public: tuple[int, ...]) -> None:
    """Raise where the shape of a public parameter does not broadcast against the batch."""
    for name, shape in public.items():
        try:
            jnp.broadcast_shapes(batch, shape)
        except ValueError:
            raise ValueError(
                f"{name} of shape {shape} does not broadcast against the batch {batch}: for a sweep write {name}[:, None]."
            ) from None
