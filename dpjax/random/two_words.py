"""Whole numbers below 2^64 as two 32-bit words: JAX has no 64-bit integer unless the whole process asks for it."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp


class Words(NamedTuple):
    """The whole number ``high * 2^32 + low``, or just two words; both uint32 of one shape.

    Attributes:
        high: the first word.
        low: the second word.
    """

    high: jax.Array
    low: jax.Array


def add(a: Words, b: Words) -> Words:
    """Return a + b modulo 2^64."""
    low = a.low + b.low
    return Words(a.high + b.high + (low < b.low).astype(jnp.uint32), low)


def subtract(a: Words, b: Words) -> Words:
    """Return a - b modulo 2^64."""
    return Words(a.high - b.high - (a.low < b.low).astype(jnp.uint32), a.low - b.low)


def at_most(a: Words, b: Words) -> jax.Array:
    """Return a <= b."""
    return (a.high < b.high) | ((a.high == b.high) & (a.low <= b.low))


def select(condition: jax.Array, yes: Words, no: Words) -> Words:
    """Return ``yes`` where the condition holds, else ``no``."""
    return Words(*(jnp.where(condition, y, n) for y, n in zip(yes, no, strict=True)))


def to_float(a: Words, dtype: Any) -> jax.Array:
    """Return the number as a float, to a relative error of one unit in the last place."""
    return a.high.astype(dtype) * 2.0**32 + a.low.astype(dtype)


def from_float(x: jax.Array) -> Words:
    """Return the whole part of a float in ``[0, 2^64)``, exactly."""
    high = jnp.floor(x * 2.0**-32)
    return Words(high.astype(jnp.uint32), (x - high * 2.0**32).astype(jnp.uint32))
