"""Bisection with JAX arrays, over real numbers or indices."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from dpjax.numerics.arrays import by_platform, varying


def bisect(
    is_below: Callable[[jax.Array], jax.Array], low: jax.Array, high: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Bisect ``[low, high]`` elementwise to where ``is_below`` changes from true to false.

    Each step halves the number of floats between the ends, which are neighbors after 32 steps in
    float32 and 64 in float64.

    Args:
        is_below: a function of an array of points, true up to some point of the interval and false
            beyond it.
        low: the lower ends, where ``is_below`` is assumed to be true.
        high: the upper ends, of the same shape, where it is assumed to be false.

    Returns:
        The lower and upper ends of the remaining intervals; NaN where a given end is NaN.
    """
    bits = jnp.finfo(low.dtype).bits
    integer = np.dtype(f"int{bits}")
    sign, rest = np.array(bits - 1, integer), np.array(np.iinfo(integer).max, integer)

    def ordered(number: jax.Array) -> jax.Array:
        """Map the bits of floats to integers in the same order, and back."""
        return number ^ ((number >> sign) & rest)

    def floats(number: jax.Array) -> jax.Array:
        return jax.lax.bitcast_convert_type(ordered(number), low.dtype)

    def halve(_: int, ends: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        low, high = ends
        middle = (low & high) + ((low ^ high) >> 1)  # the sum may overflow
        below = is_below(floats(middle))
        return jnp.where(below, middle, low), jnp.where(below, high, middle)

    first, last = (ordered(jax.lax.bitcast_convert_type(end, integer)) for end in (low, high))
    ends = varying((first, last), is_below(low))
    first, last = jax.lax.fori_loop(np.int32(0), np.int32(bits), halve, ends)
    missing = jnp.isnan(low) | jnp.isnan(high)
    return jnp.where(missing, jnp.nan, floats(first)), jnp.where(missing, jnp.nan, floats(last))


def count_leading(
    holds: Callable[[jax.Array], jax.Array], size: int, shape: tuple[int, ...]
) -> jax.Array:
    """Return the number of leading indices among ``0..size-1`` for which ``holds`` is true, int32.

    Args:
        holds: a function of indices, int32 of ``shape``, that returns bool: true first, then false.
        size: the number of indices, static.
        shape: the shape of the independent searches.
    """
    if not size:
        return jnp.zeros(shape, jnp.int32)
    rounds = np.int32(size.bit_length())

    def step(round_index: jax.Array, count: jax.Array) -> jax.Array:
        stride = jnp.int32(1) << (rounds - 1 - round_index)
        last = count + stride - 1
        all_hold = (last < size) & holds(jnp.minimum(last, np.int32(size - 1)))
        return jnp.where(all_hold, count + stride, count)

    count = partial(jax.lax.fori_loop, np.int32(0), rounds, step)
    # On an accelerator a loop is three kernels a round
    none = jnp.zeros(shape, jnp.int32)
    none = varying(none, holds(none))
    return by_platform(none, cpu=count, default=partial(count, unroll=True))
