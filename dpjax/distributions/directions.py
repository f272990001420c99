"""Directions of vectors whose density depends on the L_p norm: the cone measure.

Independent coordinates with density proportional to exp(-|x|^p), divided by their norm, follow it
and are independent of the norm (Schechtman and Zinn 1990). For p = infinity, the coordinates are
uniform in the cube.
"""

from __future__ import annotations

from math import inf, lgamma, log

import jax
import jax.numpy as jnp

from dpjax.distributions.vectors import norm
from dpjax.numerics.search import bisect
from dpjax.random.variates import uniforms, words


def log_volume(d: int, p: float) -> float:
    """Return the logarithm of the volume of the unit ball of L_p in R^d.

    The volume is (2 Gamma(1 + 1/p))^d / Gamma(1 + d/p).

    >>> from math import exp
    >>> [round(exp(log_volume(2, p)), 4) for p in (1.0, 2.0, inf)]
    [2.0, 3.1416, 4.0]
    """
    return d * (log(2) + lgamma(1 + 1 / p)) - lgamma(1 + d / p)


def directions(key: jax.Array, shape: tuple[int, ...], p: float, dtype: jnp.dtype) -> jax.Array:
    """Draw vectors of norm 1: float of this shape, with coordinates on the last axis."""
    sign_key, size_key = jax.random.split(key)
    sign = jnp.where(words(sign_key, shape) % 2 == 0, 1.0, -1.0).astype(dtype)
    # A magnitude of 0, due to rounding, has no direction.
    size = _size(uniforms(size_key, shape, dtype), p)
    size = jnp.maximum(size, float(jnp.finfo(dtype).eps))
    return sign * (size / norm(size, p)[..., None])


def _size(survival: jax.Array, p: float) -> jax.Array:
    """Return x with P(|X| > x) = ``survival``, for X with density proportional to exp(-|x|^p)."""
    if p == 1:
        return -jnp.log(survival)
    if p == 2:
        # In another unit, which dividing by the norm removes.
        return -jax.scipy.special.ndtri(survival / 2)
    if p == inf:
        return 1 - survival
    shape = jnp.asarray(1 / p, survival.dtype)

    def is_below(x: jax.Array) -> jax.Array:
        return jax.scipy.special.gammaincc(shape, x**p) > survival

    # P(|X| > x) <= exp(-x^p), and a uniform variate is at least exp(-45.1).
    top = jnp.full_like(survival, 46 ** (1 / p))
    return bisect(is_below, jnp.zeros_like(survival), top)[1]
