"""One piece of a piecewise exponential distribution: density ~ exp(-s r), r in [0, 1].

r is the distance from the low-cost end in units of the width, and ``s >= 0`` the decay over the
piece, rate * (cost at the far end - cost at the near end); s = 0 is uniform. All functions are
elementwise, finite with finite gradients for all s >= 0, and accurate to a few units in the last
place: where the closed form cancels (small s), the Taylor series is summed instead. Its
coefficients are Bernoulli numbers, since 1/s - 1/(e^s - 1) = 1/2 - sum_k B_2k s^(2k-1) / (2k)!.
"""

from __future__ import annotations

from fractions import Fraction
from functools import partial
from math import comb, factorial

import jax
import jax.numpy as jnp

_SERIES_BELOW = 1.0  # below this decay, mean and variance are computed from their series
_TERMS = 10  # the first omitted term is below (1 / 2 pi)^22 * 42 = 1e-16 at s = 1


def _bernoulli_ratios(count: int) -> list[float]:
    """Return B_2k / (2k)! for k = 1..count, by the defining recurrence in exact arithmetic."""
    numbers = [Fraction(1)]
    for m in range(1, 2 * count + 1):
        numbers.append(-sum((comb(m + 1, j) * numbers[j] for j in range(m)), Fraction(0)) / (m + 1))
    return [float(numbers[2 * k] / factorial(2 * k)) for k in range(1, count + 1)]


_BERNOULLI = _bernoulli_ratios(_TERMS)


def _bernoulli_series(s: jax.Array) -> jax.Array:
    """Sum B_2k / (2k)! s^(2k-2) over k = 1, 2, ..."""
    series = jnp.zeros_like(s)
    for ratio in reversed(_BERNOULLI):
        series = series * s * s + ratio
    return series


@partial(jax.jit, inline=True)
def log_mass_fraction(s: jax.Array) -> jax.Array:
    """Return log phi0(s), phi0(s) = (1 - e^-s) / s; see :func:`mass_fraction`."""
    small = s < 1e-3  # the first omitted term of the series is s^4 / 2880
    safe = jnp.where(small, 1.0, s)
    return jnp.where(small, s * (s / 24 - 0.5), jnp.log(-jnp.expm1(-safe) / safe))


@partial(jax.jit, inline=True)
def mass_fraction(s: jax.Array) -> jax.Array:
    """Return phi0(s) = (1 - e^-s) / s: mass relative to a flat piece of the near end's height."""
    flat = s <= 0
    safe = jnp.where(flat, 1.0, s)
    return jnp.where(flat, 1.0, -jnp.expm1(-safe) / safe)


@partial(jax.jit, inline=True)
def far_height(s: jax.Array) -> jax.Array:
    """Return s / (e^s - 1), the height at the far end relative to the mean height.

    For s >= 1 the relative error is that of e^-s, s units in the last place. The result is 0 where
    e^-s is.
    """
    small = s < _SERIES_BELOW
    below, above = jnp.where(small, s, 0.0), jnp.where(small, 1.0, s)
    kept = jnp.exp(-above)
    return jnp.where(
        small, 1 - below * (0.5 - below * _bernoulli_series(below)), above * kept / (1 - kept)
    )


@jax.jit
def mean_fraction(s: jax.Array) -> jax.Array:
    """Return the mean of r: 1/s - 1/(e^s - 1)."""
    small = s < _SERIES_BELOW
    below, above = jnp.where(small, s, 0.0), jnp.where(small, 1.0, s)
    # 1/(e^s - 1) written with e^-s, which cannot overflow.
    closed = 1 / above + jnp.exp(-above) / jnp.expm1(-above)
    return jnp.where(small, 0.5 - below * _bernoulli_series(below), closed)


@jax.jit
def variance_fraction(s: jax.Array) -> jax.Array:
    """Return the variance of r: 1/s^2 - e^-s / (1 - e^-s)^2."""
    small = s < _SERIES_BELOW
    below, above = jnp.where(small, s, 0.0), jnp.where(small, 1.0, s)
    series = jnp.zeros_like(below)
    for k, ratio in reversed(list(enumerate(_BERNOULLI, start=1))):
        series = series * below * below + (2 * k - 1) * ratio
    closed = 1 / (above * above) - jnp.exp(-above) / jnp.square(jnp.expm1(-above))
    return jnp.where(small, series, closed)


@partial(jax.jit, inline=True)
def cdf_fraction(r: jax.Array, s: jax.Array) -> jax.Array:
    """Return the mass within ``r`` of the near end, (1 - e^-sr) / (1 - e^-s)."""
    flat = s < jnp.finfo(jnp.result_type(s)).eps  # r to relative error s/2
    safe = jnp.where(flat, 1.0, s)
    return jnp.where(flat, r, jnp.expm1(-safe * r) / jnp.expm1(-safe))


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
    log_rest = jnp.where(high, jnp.log(rest), jnp.log1p(low))
    return jnp.where(flat, p, jnp.minimum(-log_rest / jnp.where(flat, 1.0, s), 1.0))


@partial(jax.jit, inline=True)
def log_integral(slope: jax.Array, length: jax.Array) -> jax.Array:
    """Return the log of the integral of e^(slope t) over [0, length].

    ``length`` may be infinite; then the result is infinite unless the slope is negative.
    """
    endless = length == jnp.inf
    finite = jnp.where(endless, 1.0, length)
    steep = jnp.where(endless & (slope < 0), -slope, 1.0)
    there = ~(finite <= 0)
    log_length = jnp.where(there, jnp.log(jnp.where(there, finite, 1.0)), -jnp.inf)
    value = (
        log_length + jnp.maximum(slope, 0.0) * finite + log_mass_fraction(jnp.abs(slope) * finite)
    )
    return jnp.where(
        endless, jnp.where(slope < 0, -jnp.log(steep), jnp.where(slope >= 0, jnp.inf, slope)), value
    )


@partial(jax.jit, inline=True)
def mean_position(slope: jax.Array, length: jax.Array) -> jax.Array:
    """Return the mean of t under the density proportional to e^(slope t) on [0, length].

    An infinite ``length`` needs a negative slope.
    """
    endless = length == jnp.inf
    finite = jnp.where(endless, 1.0, length)
    from_near = mean_fraction(jnp.abs(slope) * finite)
    inside = finite * jnp.where(slope > 0, 1 - from_near, from_near)
    return jnp.where(endless, -1 / jnp.where(slope < 0, slope, -1.0), inside)
