"""Bisection, for real numbers and for indices."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np


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


def bisect_numbers(is_below: Callable[[float], bool], low: float, high: float, tolerance: float) -> tuple[float, float]:
    """The same for numbers on the host, until ``high - low`` is at most ``tolerance`` times ``high`` or no number is between."""
    while high - low > tolerance * high:
        middle = low + (high - low) / 2
        if not low < middle < high:
            break
        low, high = (middle, high) if is_below(middle) else (low, middle)
    return low, high


def count_leading(holds: Callable[[jax.Array], jax.Array], size: int, shape: tuple[int, ...]) -> jax.Array:
    """Return how many of the indices ``0..size-1`` hold, int32 of ``shape``, where those that hold come first.

    Args:
        holds: from indices, int32 of ``shape``, to bool.
        size: static.
        shape: of the searches that run side by side.
    """

    def halve(_: int, ends: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        low, high = ends
        middle = (low + high) // 2
        yes = (middle < high) & holds(jnp.minimum(middle, np.int32(size - 1)))
        return jnp.where(yes, middle + 1, low), jnp.where(yes, high, middle)

    ends = jnp.zeros(shape, jnp.int32), jnp.full(shape, size, jnp.int32)
    return jax.lax.fori_loop(np.int32(0), np.int32(size.bit_length()), halve, ends)[0]
