"""Sums in a fixed order, so that a draw that is made of them never changes in a bit.

XLA's own ``sum`` and ``cumsum`` change in their last bits with the padding of a row and with further rows. Its vector loop and its
remainder loop round ``log`` and ``exp`` differently, so rows are padded to a multiple of ``LANES`` before any of these.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp

LANES = 32


def pad(array: jax.Array, multiple: int = LANES, value: float = 0) -> jax.Array:
    """Pad the last axis to a multiple, at least one of it."""
    size = max(1, -(-array.shape[-1] // multiple)) * multiple
    return jnp.pad(array, [(0, 0)] * (array.ndim - 1) + [(0, size - array.shape[-1])], constant_values=value)


def pair_sums(terms: jax.Array) -> jax.Array:
    """Add neighbours on the last axis, which must be even."""
    return terms[..., 0::2] + terms[..., 1::2]


def pairwise_sum(terms: jax.Array) -> jax.Array:
    """The sum over the last axis, kept as an axis of size 1, by adds of neighbours: further zeros at the end change nothing."""
    while terms.shape[-1] > 1:
        terms = pair_sums(terms if terms.shape[-1] % 2 == 0 else pad(terms, 2))
    return terms


def running(values: jax.Array, place: jax.Array, combine: Callable[[jax.Array, jax.Array], jax.Array]) -> jax.Array:
    """Combine every value with all before it in its segment, where ``place`` counts from 0 in each segment.

    The order of the operations (Hillis and Steele 1986) depends on the place only.
    """
    distance = 1
    while distance < values.shape[-1]:
        before = jnp.concatenate([jnp.zeros_like(values[..., :distance]), values[..., :-distance]], axis=-1)
        values = jnp.where(place >= distance, combine(values, before), values)
        distance *= 2
    return values
