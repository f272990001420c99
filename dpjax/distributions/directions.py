"""Directions of vectors whose density depends on the L_p norm: the cone measure.

Independent coordinates with density proportional to exp(-|x|^p), divided by their norm, follow it
and are independent of the norm (Schechtman and Zinn 1990). For p = infinity, the coordinates are
uniform in the cube.
"""

from __future__ import annotations

from math import inf, lgamma, log

import jax
import jax.numpy as jnp
from jax.scipy.special import ndtri

from dpjax.distributions.vectors import norm
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
    if p in (1, 2, inf):
        survival = uniforms(size_key, shape, dtype)
        # For p = 2 in another unit, which dividing by the norm removes.
        inverse = {1: lambda u: -jnp.log(u), 2: lambda u: -ndtri(u / 2), inf: lambda u: 1 - u}
        size = inverse[p](survival)
    else:
        size = jax.random.gamma(size_key, 1 / p, shape, dtype) ** (1 / p)
    # A magnitude of 0, due to rounding, has no direction.
    size = jnp.maximum(size, float(jnp.finfo(dtype).eps))
    return sign * (size / norm(size, p)[..., None])
