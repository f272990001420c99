"""Sums in a fixed order, so that draws are reproducible bit by bit.

The last bits of XLA's ``sum`` and ``cumsum`` depend on the padding of a row and on the other rows.
XLA's vectorized loop and its remainder loop round ``log`` and ``exp`` differently, so that rows are
padded to a multiple of ``LANES`` first.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dpjax.numerics.batching import by_platform, window

LANES = 32
_CHUNK = 64 * LANES


def pad(array: jax.Array, multiple: int = LANES, value: float = 0) -> jax.Array:
    """Pad the last axis to a multiple of ``multiple``, and at least to ``multiple``."""
    size = max(1, -(-array.shape[-1] // multiple)) * multiple
    more = [(0, 0, 0)] * (array.ndim - 1) + [(0, size - array.shape[-1], 0)]
    return jax.lax.pad(array, jnp.asarray(value, array.dtype), more)


def pair_sums(terms: jax.Array) -> jax.Array:
    """Add adjacent pairs on the last axis, whose size must be even."""
    return terms[..., 0::2] + terms[..., 1::2]


def pairwise_sum(terms: jax.Array) -> jax.Array:
    """Return the sum over the last axis by repeatedly adding adjacent pairs.

    The last axis is kept with size 1. Trailing zeros do not change the result.
    """
    while terms.shape[-1] > 1:
        terms = pair_sums(terms if terms.shape[-1] % 2 == 0 else pad(terms, 2))
    return terms


def lane_sums(some: Callable[[Any, int], jax.Array], size: int) -> jax.Array:
    """Return 32 partial sums ``(..., 32)`` of terms that are 32 apart.

    It uses pairwise summation from the first. Trailing zeros do not change the result.

    Args:
        some: a function of ``start`` and ``size`` that returns this many terms on the last axis.
        size: the total number of terms.
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
    chunks = size // _CHUNK
    found = jax.lax.map(
        lambda index: chunk(index * _CHUNK, _CHUNK), jnp.arange(chunks, dtype=jnp.int32)
    )
    rest = [] if size % _CHUNK == 0 else [chunk(chunks * _CHUNK, size % _CHUNK)]
    # Chunks are summed pairwise from the first, too; an incomplete one counts as a chunk.
    while found.shape[0] > 1:
        if found.shape[0] % 2:
            rest = [found[-1] if not rest else found[-1] + rest[0]]
            found = found[:-1]
        found = found[0::2] + found[1::2]
    return tree([found[0], *rest])


def folded_sum(terms: jax.Array) -> jax.Array:
    """Return the sum over the last axis by repeatedly adding its second half.

    The last axis is kept with size 1. It stops folding at 64 terms. On the CPU it takes a fraction
    of the time of XLA's ``sum`` where the terms are computed in the same program.
    """
    odd = []
    while (size := terms.shape[-1]) > 2 * LANES:
        half = size // 2
        if size % 2:
            odd.append(terms[..., -1:])
        terms = terms[..., :half] + terms[..., half : 2 * half]
    return sum(odd, jnp.sum(terms, axis=-1, keepdims=True))


def running_sums(
    terms: Any,
    add: Callable[[Any, Any], Any] = jnp.add,
    read: Callable[[Any], Any] = lambda term: term,
) -> Any:
    """Return the inclusive prefix sums over the last axis.

    On the CPU, all blocks of 32 terms are summed sequentially in parallel, and then the sums of the
    previous blocks are added (:func:`running`). Other devices use an associative scan. The order of
    the additions depends on the position only.

    Args:
        terms: an array ``(..., n)``, or a pytree of them.
        add: a function that adds two terms.
        read: a function that converts terms, ``(..., blocks)``, to the summands.
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
    blocks = jax.tree.map(
        lambda a: jnp.moveaxis(a.reshape(*a.shape[:-1], -1, width), -1, 0), padded
    )

    def step(total: Any, term: Any) -> tuple[Any, Any]:
        total = add(total, read(term))
        return total, total

    first = jax.tree.map(lambda a: a[0], blocks)
    zeros = jax.tree.map(lambda a: jnp.zeros(a.shape, a.dtype), jax.eval_shape(read, first))
    totals, inside = jax.lax.scan(step, zeros, blocks)
    if width < size:
        index = jnp.arange(jax.tree.leaves(totals)[0].shape[-1], dtype=jnp.int32)
        inside = add(
            inside, _shifted(running(totals, index, lambda own, before: add(before, own)), 1)
        )
    return jax.tree.map(
        lambda a: jnp.moveaxis(a, 0, -1).reshape(*a.shape[1:-1], -1)[..., :size], inside
    )


def running(values: Any, place: jax.Array, combine: Callable[[Any, Any], Any]) -> Any:
    """Return an inclusive scan within segments (Hillis and Steele 1986).

    The order of the operations depends on the position only.

    Args:
        values: an array ``(..., n)``, or a pytree of them.
        place: int32, the position of each value in its segment, from 0.
        combine: a function of a value and the one before it.
    """

    def double(round_index: jax.Array, values: Any) -> Any:
        distance = jnp.int32(1) << round_index
        longer = combine(values, _shifted(values, distance))
        return jax.tree.map(lambda a, b: jnp.where(place >= distance, a, b), longer, values)

    size = jax.tree.leaves(values)[0].shape[-1]
    return jax.lax.fori_loop(np.int32(0), np.int32(max(size - 1, 0).bit_length()), double, values)


def _shifted(values: Any, distance: Any) -> Any:
    """Return the values shifted by ``distance`` to the right, with 0 at the start."""

    def shift(array: jax.Array) -> jax.Array:
        size = array.shape[-1]
        return window(
            jnp.pad(array, [(0, 0)] * (array.ndim - 1) + [(size, 0)]), size - distance, size
        )

    return jax.tree.map(shift, values)
