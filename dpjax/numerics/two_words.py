"""Unsigned 64-bit integers as two 32-bit words.

JAX has 64-bit integers only if x64 is enabled.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp


class Words(NamedTuple):
    """The unsigned integer ``high * 2^32 + low``, or a pair of words; both are uint32 of one shape.

    Attributes:
        high: the upper (or first) word.
        low: the lower (or second) word.

    >>> import jax.numpy as jnp
    >>> Words(jnp.uint32(1), jnp.uint32(2)).low.shape
    ()
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


def equal(a: Words, b: Words) -> jax.Array:
    """Return a == b."""
    return (a.high == b.high) & (a.low == b.low)


def at_most(a: Words, b: Words) -> jax.Array:
    """Return a <= b."""
    return (a.high < b.high) | ((a.high == b.high) & (a.low <= b.low))


def select(condition: jax.Array, yes: Words, no: Words) -> Words:
    """Return ``yes`` where the condition holds, else ``no``."""
    return Words(*(jnp.where(condition, y, n) for y, n in zip(yes, no, strict=True)))


def to_float(a: Words, dtype: Any) -> jax.Array:
    """Return the number as a float, with a relative error of at most one unit in the last place."""
    return a.high.astype(dtype) * 2.0**32 + a.low.astype(dtype)


def from_float(x: jax.Array) -> Words:
    """Return the integer part of a float in ``[0, 2^64)``, exactly."""
    high = jnp.floor(x * 2.0**-32)
    return Words(high.astype(jnp.uint32), (x - high * 2.0**32).astype(jnp.uint32))


def _u(number: int) -> jax.Array:
    return jnp.asarray(number, jnp.uint32)


def multiply(a: jax.Array, b: jax.Array) -> Words:
    """Return the product of two words, exactly."""
    a1, a0, b1, b0 = a >> _u(16), a & _u(0xFFFF), b >> _u(16), b & _u(0xFFFF)
    low, high = a0 * b0, a1 * b1
    cross = a1 * b0 + (low >> _u(16))  # below 2^32: (2^16 - 1)^2 + 2^16 - 1
    middle = a0 * b1 + (cross & _u(0xFFFF))
    return Words(
        high + (cross >> _u(16)) + (middle >> _u(16)), (middle << _u(16)) | (low & _u(0xFFFF))
    )


def times_word(a: Words, b: jax.Array) -> tuple[jax.Array, Words]:
    """Return the product of a two-word number and a word: its third word and its lower two."""
    low, high = multiply(a.low, b), multiply(a.high, b)
    middle = high.low + low.high
    return high.high + (middle < low.high).astype(jnp.uint32), Words(middle, low.low)


@jax.jit
def upper_product(a: Words, b: Words) -> Words:
    """Return floor(a b / 2^64)."""
    third, by_low = times_word(a, b.low)
    by_high_third, by_high = times_word(a, b.high)
    # a b = by_high * 2^32 + by_low, where the words of weight 2^32 are needed for their carry only.
    carried = add(
        Words(jnp.zeros_like(third), by_low.high), Words(jnp.zeros_like(third), by_high.low)
    )
    middle = add(Words(jnp.zeros_like(third), third), Words(jnp.zeros_like(third), by_high.high))
    middle = add(middle, Words(jnp.zeros_like(third), carried.high))
    return Words(by_high_third + middle.high, middle.low)
