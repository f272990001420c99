"""Sums in a fixed order, so that a draw that is made of them never changes in a bit.

XLA's own ``sum`` and ``cumsum`` change in their last bits with the padding of a row and with further rows. Its vector loop and its
remainder loop round ``log`` and ``exp`` differently, so rows are padded to a multiple of ``LANES`` before any of these.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

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


def running_sums(terms: Any, add: Callable[[Any, Any], Any] = jnp.add) -> Any:
    """Return the sum of each term and all before it on the last axis, for arrays or pytrees of arrays that ``add`` adds.

    Blocks of 32 are summed by doubling (Hillis and Steele 1986), then the sums of the blocks before are added.
    """
    size = jax.tree.leaves(terms)[0].shape[-1]
    if size > 2 * LANES:
        blocks = jax.tree.map(lambda a: pad(a).reshape(*a.shape[:-1], -1, LANES), terms)
        inside = running_sums(blocks, add)
        before = jax.tree.map(lambda a: _later(a, 1)[..., None], running_sums(jax.tree.map(lambda a: a[..., -1], inside), add))
        return jax.tree.map(lambda a: a.reshape(*a.shape[:-2], -1)[..., :size], add(inside, before))

    # A loop: written out, XLA fuses the steps and computes each one twice for every one that follows.
    def double(step: jax.Array, terms: Any) -> Any:
        return add(terms, jax.tree.map(lambda a: _later(a, np.int32(1) << step), terms))

    return jax.lax.fori_loop(np.int32(0), np.int32((size - 1).bit_length()), double, terms)


def _later(array: jax.Array, distance: ArrayLike) -> jax.Array:
    """Move the last axis on by some places below its size, zeros in front."""
    size = array.shape[-1]
    doubled = jnp.pad(array, [(0, 0)] * (array.ndim - 1) + [(size, 0)])
    return jax.lax.dynamic_slice_in_dim(doubled, np.int32(size) - distance, size, axis=-1)


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
