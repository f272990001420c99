"""Numbers on a public grid: multiples of a resolution, by indices that floats hold exactly."""

from __future__ import annotations

from fractions import Fraction
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp


@partial(jax.jit, inline=True, static_argnames="resolution")
def to_multiples(x: jax.Array, resolution: Fraction) -> jax.Array:
    """Return the index of the multiple nearest to x.

    Halfway, the upper one, as in data frame engines.
    """
    return jnp.floor(_times(x, resolution.denominator, resolution.numerator) + 0.5)


@partial(jax.jit, inline=True, static_argnames="resolution")
def from_multiples(number: jax.Array, resolution: Fraction) -> jax.Array:
    """Return the multiple with this index, rounded once: 29 hundredths are the float 0.29."""
    return _times(number, resolution.numerator, resolution.denominator)


def most_multiples(dtype: Any) -> int:
    """Return the largest index up to which all indices and half-integers are exact floats."""
    return 2 ** (jnp.finfo(dtype).nmant - 1)


def _times(x: jax.Array, numerator: int, denominator: int) -> jax.Array:
    product = x * float(numerator)
    # XLA replaces a constant divisor by its reciprocal, which sometimes changes the last bit; this
    # divisor is not constant to XLA.
    return product / jnp.where(jnp.isnan(product), jnp.nan, float(denominator))
