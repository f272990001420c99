"""Numbers on a public grid: the multiples of a resolution, counted as integers that a float holds exactly."""

from fractions import Fraction
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp


@partial(jax.jit, inline=True, static_argnames="resolution")
def to_multiples(x: jax.Array, resolution: Fraction) -> jax.Array:
    """Return the number of the multiple that is nearest to x, of two the upper one: as in the engines of tables."""
    return jnp.floor(_times(x, resolution.denominator, resolution.numerator) + 0.5)


@partial(jax.jit, inline=True, static_argnames="resolution")
def from_multiples(number: jax.Array, resolution: Fraction) -> jax.Array:
    """Return the multiple of this number, rounded once: 29 hundredths are the float that is written 0.29."""
    return _times(number, resolution.numerator, resolution.denominator)


@partial(jax.jit, inline=True, static_argnames="resolution")
def multiple_from(x: jax.Array, resolution: Fraction) -> jax.Array:
    """Return the smallest multiple that is not below x, up to rounding."""
    number = to_multiples(x, resolution)
    below = from_multiples(number, resolution) < x * (1 - 8 * float(jnp.finfo(x.dtype).eps))
    return from_multiples(jnp.where(below, number + 1, number), resolution)


def most_multiples(dtype: Any) -> int:
    """Return numbers up to this one, and half of one more, are floats."""
    return 2 ** (jnp.finfo(dtype).nmant - 1)


def _times(x: jax.Array, numerator: int, denominator: int) -> jax.Array:
    product = x * float(numerator) if numerator != 1 else x
    if denominator == 1:
        return product
    # XLA multiplies by the reciprocal of a divisor that all elements share, which is off by one in the last place now and then.
    return product / jnp.where(jnp.isnan(product), jnp.nan, float(denominator))
