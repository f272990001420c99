"""Uniform, exponential and Gumbel variates with full relative precision in both tails.

A variate takes two random 32-bit words, which form the 64-bit integer W. The uniform variate is the
pair (u, 1-u) with u = (W + 1/2) / 2^64, both rounded separately, so that neither is ever 0 and
minus the logarithm of the smaller one reaches 65 log 2 = 45 nats. ``jax.random.gumbel`` and
``jax.random.exponential`` in float32 reach 15.9 nats: an event of probability below 2^-24 would
never happen, and a private distribution would lose its tail.
"""

from __future__ import annotations

from functools import partial
from math import prod
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from dpjax.numerics.elementwise import where
from dpjax.numerics.two_words import Words
from dpjax.random.keys import check_key, fold_in_range, row_words


class UniformPair(NamedTuple):
    """A uniform variate and its complement, each with full relative precision; neither is ever 0.

    Attributes:
        value: u, float of any shape, in [2^-65, 1].
        complement: 1 - u, of the same shape and dtype, in [2^-65, 1].

    >>> import jax.numpy as jnp
    >>> float(UniformPair(jnp.float32(0.25), jnp.float32(0.75)).complement)
    0.75
    """

    value: jax.Array
    complement: jax.Array


def words(key: jax.Array, shape: tuple[int, ...]) -> Words:
    """Draw two 32-bit words per variate.

    They equal ``jax.random.key_data(jax.random.split(key, ...))``. The words for variate i of a 1-D
    shape do not depend on the number of variates.

    Args:
        key: a scalar typed threefry key.
        shape: the shape of the variates, fewer than 2^32 of them.

    Returns:
        Two uint32 arrays of this shape.

    Raises:
        ValueError: ``shape`` has 2^32 or more elements.

    >>> import jax
    >>> words(jax.random.key(0), (3,)).high.shape
    (3,)
    """
    size = prod(shape)
    if size >= 2**32:
        raise ValueError(
            f"shape must have fewer than 2^32 elements, got {shape}; use several keys "
            "(jax.random.split)."
        )
    drawn = fold_in_range(row_words(check_key(key), ()), size)
    return Words(drawn.high.reshape(shape), drawn.low.reshape(shape))


@partial(jax.jit, inline=True, static_argnames="dtype")
def uniform_from_words(words: Words, dtype: Any) -> UniformPair:
    """Convert pairs of random words to uniform pairs (u, 1-u) with u = (W + 1/2) / 2^64.

    The error of each is below two units in its last place, also if it is small: then ``low``
    supplies the digits that ``high`` lacks.

    Args:
        words: two uint32 arrays of any shape.
        dtype: float32 or float64.

    Returns:
        A pair of arrays of this shape and dtype.

    Raises:
        TypeError: ``dtype`` is another one; half precision represents neither 2^-65 nor 32-bit
            words.

    >>> import jax.numpy as jnp
    >>> pair = uniform_from_words(Words(jnp.uint32(0), jnp.uint32(0)), jnp.float32)
    >>> float(pair.value) == 2.0**-65, float(pair.complement)
    (True, 1.0)
    """
    if jnp.dtype(dtype) not in (jnp.float32, jnp.float64):
        raise TypeError(f"dtype must be float32 or float64, got {jnp.dtype(dtype)}.")

    def fraction(high: jax.Array, low: jax.Array) -> jax.Array:
        # Products by powers of two are exact, so that only the conversions and the sums round.
        return high.astype(dtype) * 2.0**-32 + (low.astype(dtype) + 0.5) * 2.0**-64

    return UniformPair(fraction(words.high, words.low), fraction(~words.high, ~words.low))


@partial(jax.jit, inline=True)
def exponential_from_uniform(pair: UniformPair) -> jax.Array:
    """Return ``-log(u)``, a standard exponential variate, accurate in both tails.

    It has full relative precision.

    >>> import jax.numpy as jnp
    >>> ends = jnp.array([0, 2**32 - 1], jnp.uint32)
    >>> pair = uniform_from_words(Words(ends, ends), jnp.float32)
    >>> [float(f"{e:.4g}") for e in exponential_from_uniform(pair)]
    [45.05, 2.711e-20]
    """
    small = jnp.minimum(pair.value, pair.complement)
    return where(pair.value <= pair.complement, -jnp.log(small), -jnp.log1p(-small))


@partial(jax.jit, inline=True)
def gumbel_from_uniform(pair: UniformPair) -> jax.Array:
    """Return ``-log(-log(u))``, a standard Gumbel variate whose upper tail reaches 45 nats.

    >>> import jax.numpy as jnp
    >>> highest = jnp.uint32(2**32 - 1)
    >>> pair = uniform_from_words(Words(highest, highest), jnp.float32)
    >>> round(float(gumbel_from_uniform(pair)), 2)
    45.05
    """
    return -jnp.log(exponential_from_uniform(pair))


def row_uniforms(
    rows: Words, size: int, dtype: Any, *, stream: ArrayLike, first: ArrayLike = 0
) -> UniformPair:
    """Draw variates ``first, ..., first + size - 1`` of a stream of each row, on a new last axis.

    Args:
        rows: the two-word form of each row's key.
        size: the number of variates of each row.
        dtype: float32 or float64.
        stream: the number of the stream; different streams are independent.
        first: the index of the first variate.
    """
    return uniform_from_words(fold_in_range(rows, size, first, stream), dtype)


def uniform(key: jax.Array, shape: tuple[int, ...] = (), dtype: Any = jnp.float32) -> UniformPair:
    """Draw pairs (u, 1-u); see :func:`uniform_from_words`.

    >>> import jax
    >>> pair = uniform(jax.random.key(0), (1000,))
    >>> bool((abs(pair.value + pair.complement - 1) < 1e-6).all())
    True
    """
    return uniform_from_words(words(key, shape), dtype)


def exponential(key: jax.Array, shape: tuple[int, ...] = (), dtype: Any = jnp.float32) -> jax.Array:
    """Draw standard exponential variates; see :func:`exponential_from_uniform`.

    >>> import jax
    >>> bool((exponential(jax.random.key(0), (1000,)) > 0).all())
    True
    """
    return exponential_from_uniform(uniform(key, shape, dtype))


def gumbel(key: jax.Array, shape: tuple[int, ...] = (), dtype: Any = jnp.float32) -> jax.Array:
    """Draw standard Gumbel variates; see :func:`gumbel_from_uniform`.

    >>> import jax
    >>> gumbel(jax.random.key(0), (2, 3)).shape
    (2, 3)
    """
    return gumbel_from_uniform(uniform(key, shape, dtype))
