"""Sums in a fixed order, so that a draw that is made of them never changes in a bit.

XLA's own ``sum`` and ``cumsum`` change in their last bits with the padding of a row and with further rows. Its vector loop and its
remainder loop round ``log`` and ``exp`` differently, so rows are padded to a multiple of ``LANES`` before any of these.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dpjax.numerics.batching import by_platform, window

LANES = 32
_CHUNK = 64 * LANES


def pad(array: jax.Array, multiple: int = LANES, value: float = 0) -> jax.Array:
    """Pad the last axis to a multiple, at least one of it."""
    size = max(1, -(-array.shape[-1] // multiple)) * multiple
    more = [(0, 0, 0)] * (array.ndim - 1) + [(0, size - array.shape[-1], 0)]
    return jax.lax.pad(array, jnp.asarray(value, array.dtype), more)


def pair_sums(terms: jax.Array) -> jax.Array:
    """Add neighbors on the last axis, which must be even."""
    return terms[..., 0::2] + terms[..., 1::2]


def pairwise_sum(terms: jax.Array) -> jax.Array:
    """Return the sum over the last axis, kept as an axis of size 1, by adds of neighbors: further zeros at the end change nothing."""
    while terms.shape[-1] > 1:
        terms = pair_sums(terms if terms.shape[-1] % 2 == 0 else pad(terms, 2))
    return terms


def lane_sums(some: Callable[[Any, int], jax.Array], size: int) -> jax.Array:
    """Add terms 32 apart, in pairs of pairs counted from the first: ``(..., 32)``. Further zeros at the end change nothing.

    Args:
        some: from where to start and how many, to so many terms on the last axis.
        size: how many there are.
    """

    def chunk(first: Any, size: int) -> jax.Array:
        terms = []
        for start in range(0, max(size, 1), LANES):
            term = some(first + start, min(LANES, size - start))
            terms.append(pad(term) if term.shape[-1] < LANES else term)
        return tree(terms)

    def tree(terms: list[jax.Array]) -> jax.Array:
        while len(terms) > 1:
            pairs = [a + b for a, b in zip(terms[0::2], terms[1::2], strict=False)]
            terms = pairs + terms[2 * len(pairs) :]
        return terms[0]

    if size <= _CHUNK:
        return chunk(0, size)
    whole = size // _CHUNK
    found = jax.lax.map(lambda number: chunk(number * _CHUNK, _CHUNK), jnp.arange(whole, dtype=jnp.int32))
    rest = [] if size % _CHUNK == 0 else [chunk(whole * _CHUNK, size % _CHUNK)]
    # The chunks, too, in pairs of pairs counted from the first, a rest counting as one.
    while found.shape[0] > 1:
        if found.shape[0] % 2:
            rest = [found[-1] if not rest else found[-1] + rest[0]]
            found = found[:-1]
        found = found[0::2] + found[1::2]
    return tree([found[0], *rest])


def folded_sum(terms: jax.Array) -> jax.Array:
    """Return the sum over the last axis, kept as an axis of size 1, by adding the second half to the first until 64 are left.

    On the CPU it takes a fraction of the time of XLA's ``sum`` where the terms are computed on the way.
    """
    odd = []
    while (size := terms.shape[-1]) > 2 * LANES:
        half = size // 2
        if size % 2:
            odd.append(terms[..., -1:])
        terms = terms[..., :half] + terms[..., half : 2 * half]
    return sum(odd, jnp.sum(terms, axis=-1, keepdims=True))


def running_sums(terms: Any, add: Callable[[Any, Any], Any] = jnp.add, read: Callable[[Any], Any] = lambda term: term) -> Any:
    """Return the sum of each term and all before it on the last axis, for arrays or pytrees of arrays that ``add`` adds.

    On the CPU, blocks of 32 are summed one term after the other, all blocks side by side; then the sums of the blocks before are
    added (:func:`running`). Other devices add pairs, pairs of pairs, and so on. The order of the adds depends on the place only.

    Args:
        terms: ``(..., n)``.
        add: the sum of two terms.
        read: turns a term, ``(..., blocks)``, into what is summed.
    """

    def by_blocks(terms: Any) -> Any:
        return _sums_by_blocks(terms, add, read)

    def at_once(terms: Any) -> Any:
        return jax.lax.associative_scan(add, read(terms), axis=jax.tree.leaves(terms)[0].ndim - 1)

    return by_platform(terms, cpu=by_blocks, default=at_once)


def _sums_by_blocks(terms: Any, add: Callable[[Any, Any], Any], read: Callable[[Any], Any]) -> Any:
    size = jax.tree.leaves(terms)[0].shape[-1]
    width = size if size <= 2 * LANES else LANES
    padded = jax.tree.map(lambda a: a if width == size else pad(a, width), terms)
    blocks = jax.tree.map(lambda a: jnp.moveaxis(a.reshape(*a.shape[:-1], -1, width), -1, 0), padded)

    def step(total: Any, term: Any) -> tuple[Any, Any]:
        total = add(total, read(term))
        return total, total

    first = jax.tree.map(lambda a: a[0], blocks)
    zeros = jax.tree.map(lambda a: jnp.zeros(a.shape, a.dtype), jax.eval_shape(read, first))
    whole, inside = jax.lax.scan(step, zeros, blocks)
    if width < size:
        place = jnp.arange(jax.tree.leaves(whole)[0].shape[-1], dtype=jnp.int32)
        inside = add(inside, _shifted(running(whole, place, lambda own, before: add(before, own)), 1))
    return jax.tree.map(lambda a: jnp.moveaxis(a, 0, -1).reshape(*a.shape[1:-1], -1)[..., :size], inside)


def running(values: Any, place: jax.Array, combine: Callable[[Any, Any], Any]) -> Any:
    """Combine every value with all before it in its segment, where ``place`` counts from 0 in each segment.

    For arrays, or pytrees of arrays that ``combine`` combines. The order of the operations (Hillis and Steele 1986) depends on the
    place only.
    """

    def double(number: jax.Array, values: Any) -> Any:
        distance = jnp.int32(1) << number
        longer = combine(values, _shifted(values, distance))
        return jax.tree.map(lambda a, b: jnp.where(place >= distance, a, b), longer, values)

    size = jax.tree.leaves(values)[0].shape[-1]
    return jax.lax.fori_loop(np.int32(0), np.int32(max(size - 1, 0).bit_length()), double, values)


def _shifted(values: Any, distance: Any) -> Any:
    """Return what is ``distance`` before each value, and 0 where nothing is."""

    def shift(array: jax.Array) -> jax.Array:
        size = array.shape[-1]
        return window(jnp.pad(array, [(0, 0)] * (array.ndim - 1) + [(size, 0)]), size - distance, size)

    return jax.tree.map(shift, values)
