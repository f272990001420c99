"""The base class of the distributions of ``loc + scale * Z`` with Z symmetric around 0.

A subclass describes Z by six functions of z >= 0 (or of a probability) and one of uniform variates,
from which all other methods follow. Draws are by inverse cdf from pairs of words
(``dpjax.random``), so that both tails have full precision.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from math import prod
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from dpjax.distributions.base import Distribution, compiled, draws_first
from dpjax.numerics.sums import LANES, pad
from dpjax.random.keys import row_words
from dpjax.random.uniforms import UniformPair, row_uniforms


@dataclass(frozen=True, repr=False)
class SymmetricNoise(Distribution):
    """``loc + scale * Z`` for a Z that is symmetric around 0, such as :class:`Cauchy`.

    Leading axes are a batch, and the fields broadcast against each other. ``scale`` is positive; a
    NaN makes its row NaN. Draws reach tails of probability 2^-64. Under jit, draws do not change
    when more are drawn from the same row.
    """

    loc: jax.Array
    scale: jax.Array

    @property
    def batch_shape(self) -> tuple[int, ...]:
        """The broadcast shape of all fields."""
        return jnp.broadcast_shapes(*(field.shape for field in jax.tree.leaves(self)))

    @property
    def dtype(self) -> Any:
        """The dtype of every result."""
        return self.loc.dtype

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
        p = jnp.asarray(p)
        tail = jnp.broadcast_to(
            jnp.minimum(p, 1 - p), jnp.broadcast_shapes(p.shape, self.batch_shape)
        )
        inside = (tail > 0) & (tail <= 0.5)
        safe = jnp.where(inside, tail, 0.25)
        # One step of Newton's method from the inverse, which also makes it differentiable. Far out,
        # the density and so the step underflow, and the inverse is returned.
        z = jax.lax.stop_gradient(self._tail_quantile(safe))
        slope = jax.lax.stop_gradient(safe / jnp.exp(self._log_density(z)))
        slope = jnp.where((slope > 0) & (slope < jnp.finfo(z.dtype).max / 2), slope, 0.0)
        z = jnp.maximum(z + (self._tail(z) / safe - 1) * slope, 0.0)
        z = jnp.where(inside, z, jnp.where(tail == 0, jnp.inf, jnp.nan))
        return self.loc + self.scale * jnp.where(p < 0.5, -z, z)

    def interval(self, level: ArrayLike) -> tuple[jax.Array, jax.Array]:
        """Return the ends of the central interval of probability ``level``; NaN outside [0, 1]."""
        level = self._points("level", level)
        # At the precision of the lower tail.
        reach = jnp.abs(self.loc - self.quantile((1 - level) / 2))
        reach = jnp.where(level >= 0, reach, jnp.nan)
        return self.loc - reach, self.loc + reach

    def mean(self) -> jax.Array:
        """Return the mean, E[Y], of shape ``batch_shape``; NaN if it does not exist."""
        return jnp.where(self._mean_abs() < jnp.inf, self.loc + 0 * self.scale, jnp.nan)

    def variance(self) -> jax.Array:
        """Return the variance, of shape ``batch_shape``.

        It is infinite if it does not exist, and 0 where it underflows.
        """
        return jnp.broadcast_to(jnp.square(self.scale) * self._mean_square(), self.batch_shape)

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
        ends = map(self._standardized, (lower, inside, upper))
        low, middle, high = z = jnp.stack(jnp.broadcast_arrays(*ends))
        to_low, to_middle, to_high = self._tail_integral(jnp.abs(z))

        def integral(z: jax.Array, to_z: jax.Array) -> jax.Array:
            """Integrate P(Z > t) from 0 to z, of any sign."""
            return jnp.where(z >= 0, to_z, to_z - jnp.abs(z))

        above = integral(high, to_high) - integral(middle, to_middle)
        below = integral(-low, to_low) - integral(-middle, to_middle)
        return self.scale * (above + below) + jnp.abs(center - inside)

    def _standardized(self, y: Any) -> jax.Array:
        return (y - self.loc) / self.scale

    def _beyond(self, z: jax.Array) -> jax.Array:
        """Return P(Z > z) for z of any sign."""
        tail = self._tail(jnp.abs(z))
        return jnp.where(z >= 0, tail, 1 - tail)

    def _sample(self, key: jax.Array, shape: tuple[int, ...], first: ArrayLike = 0) -> jax.Array:
        return sample_noise(key, self, shape, first)

    if TYPE_CHECKING:  # the description of Z; fields broadcast against z

        def _log_density(self, z: jax.Array) -> jax.Array:
            """Return the log-density of Z."""

        def _tail(self, z: jax.Array) -> jax.Array:
            """Return P(Z > z)."""

        def _tail_integral(self, z: jax.Array) -> jax.Array:
            """Integrate P(Z > t) over t in [0, z]."""

        def _tail_quantile(self, p: jax.Array) -> jax.Array:
            """Return z with P(Z > z) = p, p in (0, 1/2]; one Newton step must make it exact."""

        def _mean_abs(self) -> jax.Array:
            """Return E|Z|."""

        def _mean_square(self) -> jax.Array:
            """Return E[Z^2]."""

        def _standard(self, uniform: Callable[[int], UniformPair]) -> jax.Array:
            """Return Z from independent uniform variates, ``uniform(0)``, ``uniform(1)``, ..."""


def smaller_tail(pair: UniformPair) -> tuple[jax.Array, jax.Array]:
    """Return the smaller of u and 1-u, and the sign of the variate: -1 where u is the smaller."""
    return jnp.minimum(pair.value, pair.complement), jnp.where(
        pair.value <= pair.complement, -1.0, 1.0
    ).astype(pair.value.dtype)


@partial(jax.jit, static_argnames=("shape",))
def sample_noise(
    key: jax.Array, distribution: Any, shape: tuple[int, ...], first: ArrayLike
) -> jax.Array:
    """Draw ``loc + scale * _standard(uniform)`` for fields that broadcast to the batch."""
    batch, draws = distribution.batch_shape, prod(shape)
    rows = row_words(key, batch, first)
    lanes = 1 if draws == 1 else -(-draws // LANES) * LANES

    def in_lanes(array: jax.Array) -> jax.Array:  # with one draw per row, the rows are the lanes
        return pad(array.reshape(-1)) if lanes == 1 else array

    def uniform(number: int) -> UniformPair:
        pair = row_uniforms(rows, lanes, distribution.dtype, stream=number + 1)
        return UniformPair(in_lanes(pair.value), in_lanes(pair.complement))

    full = jax.tree.map(lambda field: jnp.broadcast_to(field, batch)[..., None], distribution)
    noise = jax.tree.map(in_lanes, full)._standard(uniform)
    noise = noise[: prod(batch)].reshape(*batch, 1) if lanes == 1 else noise[..., :draws]
    # The barrier prevents the product and the sum from being fused in some lanes and not in others.
    return draws_first(full.loc + jax.lax.optimization_barrier(full.scale * noise), shape)
