"""The base class of the distributions of ``loc + scale * Z`` with Z symmetric around 0.

A subclass describes Z by five functions, of z >= 0, from which all other
methods follow. Draws are by inverse cdf from 64 random bits, so that both tails have full precision
and reach a probability of 2^-64.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any, Self

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from dpjax.distributions.base import Distribution, compiled, draws_first
from dpjax.numerics.search import bisect
from dpjax.random.variates import uniform, words


@dataclass(frozen=True, repr=False)
class SymmetricNoise(Distribution):
    """``loc + scale * Z`` for a Z that is symmetric around 0, such as :class:`Cauchy`.

    Leading axes are a batch, and the fields broadcast against each other. ``scale`` is positive; a
    NaN makes its row NaN. Draws reach tails of probability 2^-64.
    """

    loc: jax.Array
    scale: jax.Array

    @compiled
    def log_prob(self, y: ArrayLike) -> jax.Array:
        """Return the log-density at ``y``."""
        return self._log_density(jnp.abs(self._standardized(y))) - jnp.log(self.scale)

    @compiled
    def cdf(self, y: ArrayLike) -> jax.Array:
        """Return P(Y <= y), at full relative precision in the lower tail."""
        return self._beyond(-self._standardized(y))

    @compiled
    def survival(self, y: ArrayLike) -> jax.Array:
        """Return P(Y > y), at full relative precision in the upper tail."""
        return self._beyond(self._standardized(y))

    @compiled
    def quantile(self, p: ArrayLike) -> jax.Array:
        """Return the inverse of :meth:`cdf`; NaN outside [0, 1]."""
        p = jnp.broadcast_to(p, jnp.broadcast_shapes(jnp.shape(p), self.batch_shape))
        tail = jnp.minimum(p, 1 - p)
        inside = tail > 0
        safe = jnp.where(inside, tail, 0.25)
        z = jax.lax.stop_gradient(self._tail_quantile(safe))
        # Nothing but the derivative, that of an inverse function.
        slope = jax.lax.stop_gradient(jnp.exp(-self._log_density(z)))
        excess = self._tail(z) - safe
        change = excess - jax.lax.stop_gradient(excess)
        z = z + change * jnp.minimum(slope, jnp.finfo(z.dtype).max)
        z = jnp.where(inside, z, jnp.where(tail == 0, jnp.inf, jnp.nan))
        return self.loc + self.scale * jnp.where(p < 0.5, -z, z)

    def interval(self, level: ArrayLike) -> tuple[jax.Array, jax.Array]:
        """Return the ends of the central interval of probability ``level``; NaN outside [0, 1]."""
        level = self._points("level", level)
        # At the precision of the lower tail.
        low = self.quantile(jnp.where(level >= 0, (1 - level) / 2, jnp.nan))
        return low, 2 * self.loc - low

    def mean(self) -> jax.Array:
        """Return the mean, E[Y], of shape ``batch_shape``; NaN if it does not exist."""
        return jnp.where(self._mean_abs() < jnp.inf, self.loc + 0 * self.scale, jnp.nan)

    def variance(self) -> jax.Array:
        """Return the variance, of shape ``batch_shape``.

        It is infinite if it does not exist, and 0 where it underflows.
        """
        return jnp.square(self.stddev())

    def stddev(self) -> jax.Array:
        """Return the standard deviation, even where the variance under- or overflows."""
        return jnp.broadcast_to(self.scale * jnp.sqrt(self._mean_square()), self.batch_shape)

    @compiled
    def mean_abs_error(self, center: ArrayLike) -> jax.Array:
        """Return E|Y - center|; infinite if the mean does not exist."""
        z = jnp.abs(self._standardized(center))
        return self.scale * (self._mean_abs() + (z - 2 * self._tail_integral(z)))

    def mean_squared_error(self, center: ArrayLike) -> jax.Array:
        """Return E[(Y - center)^2]; infinite if the variance does not exist."""
        return self.variance() + jnp.square(self.loc - self._points("center", center))

    @compiled
    def clamped_mean_abs_error(
        self, center: ArrayLike, lower: ArrayLike, upper: ArrayLike
    ) -> jax.Array:
        """Return E|clip(Y, lower, upper) - center|, always finite; the bounds broadcast."""
        inside = jnp.clip(center, lower, upper)
        low, middle, high = map(self._standardized, (lower, inside, upper))

        def integral(z: jax.Array) -> jax.Array:
            """Integrate P(Z > t) over t from 0 to z, of any sign."""
            found = self._tail_integral(jnp.abs(z))
            return jnp.where(z >= 0, found, found - jnp.abs(z))

        above, below = integral(high) - integral(middle), integral(-low) - integral(-middle)
        return self.scale * (above + below) + jnp.abs(center - inside)

    def _rows(self) -> Self:
        """Return the distribution with one more axis, for several points of each row."""
        return jax.tree.map(lambda field: field[..., None], self)

    def _standardized(self, y: Any) -> jax.Array:
        return (y - self.loc) / self.scale

    def _beyond(self, z: jax.Array) -> jax.Array:
        """Return P(Z > z) for z of any sign."""
        tail = self._tail(jnp.abs(z))
        return jnp.where(z >= 0, tail, 1 - tail)

    def _sample(self, key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
        rows = self._rows()
        drawn = rows._standard(key, (*self.batch_shape, prod(shape)))
        return draws_first(rows.loc + rows.scale * drawn, shape)

    def _standard(self, key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
        """Draw Z; the fields broadcast against the shape."""
        tail, sign = tail_and_sign(key, shape, self.dtype)
        return sign * self._tail_quantile(tail)

    def _tail_quantile(self, p: jax.Array) -> jax.Array:
        """Return z with P(Z > z) = p, for p in (0, 1/2]."""
        ends = jnp.zeros_like(p), jnp.full_like(p, jnp.inf)
        return bisect(lambda z: self._tail(z) > p, *ends)[1]

    if TYPE_CHECKING:  # the description of Z; fields broadcast against z

        def _log_density(self, z: jax.Array) -> jax.Array:
            """Return the log-density of Z."""

        def _tail(self, z: jax.Array) -> jax.Array:
            """Return P(Z > z)."""

        def _tail_integral(self, z: jax.Array) -> jax.Array:
            """Integrate P(Z > t) over t in [0, z]."""

        def _mean_abs(self) -> jax.Array:
            """Return E|Z|."""

        def _mean_square(self) -> jax.Array:
            """Return E[Z^2]."""


def tail_and_sign(
    key: jax.Array, shape: tuple[int, ...], dtype: Any
) -> tuple[jax.Array, jax.Array]:
    """Draw a tail probability, uniform in (0, 1/2] with full relative precision, and a sign."""
    drawn = words(key, (*shape, 2))
    upper = drawn[..., :1] >= jnp.uint32(2**31)
    drawn = jnp.where(upper, ~drawn, drawn)  # of u and 1 - u, the smaller one
    tail = uniform(drawn[..., 0], drawn[..., 1], dtype)
    return tail, jnp.where(upper[..., 0], 1.0, -1.0).astype(dtype)
