"""Directions of vectors whose density depends on the L_p norm: the cone measure.

Independent coordinates with density proportional to exp(-|x|^p), divided by their norm, follow it
and are independent of the norm (Schechtman and Zinn 1990). For p = infinity, the coordinates are
uniform in the cube, and one of them, chosen uniformly, is set to 1 or -1.
"""

from __future__ import annotations

from math import inf, lgamma, log

import jax
import jax.numpy as jnp
import numpy as np

from dpjax.numerics.sums import pairwise_sum
from dpjax.numerics.two_words import Words
from dpjax.random.uniforms import row_uniforms

_NEWTON_STEPS = 12
_COORDINATES, _FACE = 1, 2  # streams of random words


def log_volume(d: int, p: float) -> float:
    """Return the logarithm of the volume of the unit ball of L_p in R^d.

    The volume is (2 Gamma(1 + 1/p))^d / Gamma(1 + d/p).

    >>> from math import exp
    >>> [round(exp(log_volume(2, p)), 4) for p in (1.0, 2.0, inf)]
    [2.0, 3.1416, 4.0]
    """
    return d * (log(2) + lgamma(1 + 1 / p)) - lgamma(1 + d / p)


def directions(keys: Words, d: int, p: float, dtype: jnp.dtype) -> jax.Array:
    """Return a vector of norm 1 for each key: float ``(..., d)``."""
    pair = row_uniforms(keys, d, dtype, stream=_COORDINATES)
    sign = jnp.where(pair.value <= pair.complement, -1.0, 1.0).astype(dtype)
    # The sign and the magnitude are independent. A magnitude of 0, due to rounding, has no
    # direction.
    size = jnp.maximum(
        _size(2 * jnp.minimum(pair.value, pair.complement), p), float(jnp.finfo(dtype).eps)
    )
    if p == inf:
        place = row_uniforms(keys, 1, dtype, stream=_FACE).value
        face = jnp.minimum(jnp.floor(d * place), d - 1).astype(jnp.int32)
        return sign * jnp.where(jnp.arange(d, dtype=jnp.int32) == face, 1.0, size)
    if d == 1:
        return sign
    if p == 1:
        return sign * (size / pairwise_sum(size))
    largest = jnp.max(size, axis=-1, keepdims=True)
    share = size / largest
    return sign * (share / (pairwise_sum(share**p) ** (1 / p)))


def _size(survival: jax.Array, p: float) -> jax.Array:
    """Return x with P(|X| > x) = ``survival``, for X with density proportional to exp(-|x|^p)."""
    if p == 1:
        return -jnp.log(survival)
    if p == 2:
        # In another unit, which dividing by the norm removes.
        return -jax.scipy.special.ndtri(survival / 2)
    if p == inf:
        return 1 - survival
    return _generalized_normal(survival, p)


def _generalized_normal(survival: jax.Array, p: float) -> jax.Array:
    """Invert the survival function by Newton's method on the logarithm of the smaller tail.

    That logarithm is concave: from a start beyond the root, iterates never cross it.
    """
    shape, scale = jnp.asarray(1 / p, survival.dtype), lgamma(1 + 1 / p)
    upper = survival <= 0.5
    target = jnp.log(jnp.where(upper, survival, 1 - survival))
    # P(|X| > x) <= exp(-x^p), and P(|X| <= x) <= x / Gamma(1 + 1/p).
    start = jnp.where(upper, (-target) ** (1 / p), jnp.exp(target + scale))

    def step(_: int, x: jax.Array) -> jax.Array:
        power = x**p
        tails = jax.scipy.special.gammaincc(shape, power), jax.scipy.special.gammainc(shape, power)
        found = jnp.log(jnp.where(upper, *tails))
        move = (target - found) * jnp.exp(found + power + scale)
        return jnp.maximum(jnp.where(upper, x - move, x + move), 0.0)

    safe = jax.lax.fori_loop(np.int32(0), np.int32(_NEWTON_STEPS), step, start)
    return jnp.where(survival < 1, safe, 0.0)
