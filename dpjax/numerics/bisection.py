"""Bisection of JAX arrays, of real numbers and of indices."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike


def bisect(is_below: Callable[[jax.Array], jax.Array], low: jax.Array, high: jax.Array, steps: int) -> tuple[jax.Array, jax.Array]:
    """Halve ``[low, high]`` elementwise, keeping the half at whose lower end ``is_below`` holds and at whose upper end it does not.

    Args:
        is_below: true up to some point of the interval and false beyond it.
        low: the lower ends, taken to hold.
        high: the upper ends of the same shape, taken not to hold.
        steps: how often; each is one evaluation.

    Returns:
        The ends of what is left.
    """

    def halve(_: int, ends: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        low, high = ends
        middle = low + (high - low) / 2
        below = is_below(middle)
        return jnp.where(below, middle, low), jnp.where(below, high, middle)

    return jax.lax.fori_loop(np.int32(0), np.int32(steps), halve, (low, high))


def count_leading(
    holds: Callable[[jax.Array], jax.Array], size: int, shape: tuple[int, ...], start: ArrayLike = 0, rounds: Any = None
) -> jax.Array:
    """Return how many of the indices ``0..size-1`` hold, int32 of ``shape``, where those that hold come first.

    Args:
        holds: from indices, int32 of ``shape``, to bool.
        size: static.
        shape: of the searches that run side by side.
        start: how many are known to hold, if any are, int32.
        rounds: the answer is less than ``2**rounds`` above ``start``; by default every answer is found.
    """
    if not size:
        return jnp.zeros(shape, jnp.int32)
    rounds = np.int32(size.bit_length()) if rounds is None else rounds

    def step(number: jax.Array, count: jax.Array) -> jax.Array:
        stride = jnp.int32(1) << (rounds - 1 - number)
        last = count + stride - 1
        yes = (last < size) & holds(jnp.minimum(last, np.int32(size - 1)))
        return jnp.where(yes, count + stride, count)

    return jax.lax.fori_loop(np.int32(0), rounds, step, jnp.broadcast_to(jnp.int32(start), shape))
