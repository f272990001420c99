"""One piece of a piecewise exponential distribution: density ~ exp(-s r), r in [0, 1].

r is the distance from the low-cost end in units of the width, and ``s >= 0`` the decay over the
piece, rate * (cost at the far end - cost at the near end); s = 0 is uniform. All functions are
elementwise, finite with finite gradients for all s >= 0, and accurate to a few units in the last
place. All follow from the mass phi0(s) = (1 - e^-s) / s: the mean is minus the derivative of its
logarithm, and the variance minus that of the mean.
"""

from __future__ import annotations

from functools import partial
from math import factorial

import jax
import jax.numpy as jnp

# The series of the integral of r exp(-s r), highest power first; the next is below 1e-17 at s = 1.
_FIRST_MOMENT = [(-1) ** k / (factorial(k) * (k + 2)) for k in reversed(range(18))]


@jax.custom_jvp
def mass_fraction(s: jax.Array) -> jax.Array:
    """Return phi0(s) = (1 - e^-s) / s: mass relative to a flat piece of the near end's height."""
    flat = s <= 0
    safe = jnp.where(flat, 1.0, s)
    return jnp.where(flat, 1.0, -jnp.expm1(-safe) / safe)


def far_height(s: jax.Array) -> jax.Array:
    """Return s / (e^s - 1), the height at the far end relative to the mean height.

    For s >= 1 the relative error is that of e^-s, s units in the last place. The result is 0 where
    e^-s is.
    """
    return jnp.exp(-s) / mass_fraction(jnp.minimum(s, 1e3))


@jax.jit
def mean_fraction(s: jax.Array) -> jax.Array:
    """Return the mean of r: 1/s - 1/(e^s - 1)."""
    small = s < 1  # where the closed form cancels
    below, above = jnp.where(small, s, 0.0), jnp.where(small, 1.0, s)
    moment = jnp.zeros_like(below)
    for coefficient in _FIRST_MOMENT:
        moment = moment * below + coefficient
    # 1/(e^s - 1) written with e^-s, which cannot overflow.
    closed = 1 / above + jnp.exp(-above) / jnp.expm1(-above)
    return jnp.where(small, moment / mass_fraction(below), closed)


mass_fraction.defjvps(lambda change, mass, s: -change * mass * mean_fraction(s))


@jax.jit
def variance_fraction(s: jax.Array) -> jax.Array:
    """Return the variance of r: 1/s^2 - e^-s / (1 - e^-s)^2."""
    return -jax.jvp(mean_fraction, (s,), (jnp.ones_like(s),))[1]


@partial(jax.jit, inline=True)
def cdf_fraction(r: jax.Array, s: jax.Array) -> jax.Array:
    """Return the mass within ``r`` of the near end, (1 - e^-sr) / (1 - e^-s)."""
    flat = s < jnp.finfo(jnp.result_type(s)).eps
    safe = jnp.where(flat, 1.0, s)
    return jnp.where(flat, r + s / 2 * r * (1 - r), jnp.expm1(-safe * r) / jnp.expm1(-safe))


@partial(jax.jit, inline=True)
def quantile_fraction(p: jax.Array, complement: jax.Array, s: jax.Array) -> jax.Array:
    """Return the r whose mass from the near end is ``p``; ``complement`` is 1 - p.

    ``complement`` must have full relative precision.

    r = -log1p(x) / s with x = p (e^-s - 1). Where 1 + x cancels (x near -1: p near 1 and s large),
    it is computed as (1 - p) + p e^-s.
    """
    flat = s < jnp.finfo(jnp.result_type(s)).eps
    x = p * jnp.expm1(-s)
    high = x < -0.5
    low = jnp.where(high, 0.0, x)
    rest = jnp.where(high, complement + p * jnp.exp(-s), 1.0)
    rest = jnp.maximum(rest, jnp.finfo(rest.dtype).tiny)  # its logarithm has a derivative
    log_rest = jnp.where(high, jnp.log(rest), jnp.log1p(low))
    found = jnp.minimum(-log_rest / jnp.where(flat, 1.0, s), 1.0)
    return jnp.where(flat, p - s / 2 * p * complement, found)
