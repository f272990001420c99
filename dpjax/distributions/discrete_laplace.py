"""Discrete Laplace (geometric) noise: P(K = k) = tanh(rate / 2) exp(-rate |k|) for integers k.

With q = exp(-rate), P(K > k) = q^(k+1) / (1 + q) for k >= 0.
"""

from __future__ import annotations

from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from dpjax.distributions.base import compiled
from dpjax.distributions.noise import SymmetricNoise


@jax.tree_util.register_dataclass
@dataclass(frozen=True, repr=False)
class DiscreteLaplace(SymmetricNoise):
    """``loc + scale * K`` for an integer K with P(K = k) proportional to ``exp(-rate * |k|)``.

    Attributes:
        loc: float ``(...)``.
        scale: float ``(...)``, positive: the distance between adjacent values.
        rate: float ``(...)``, positive; epsilon, for a count.

    References:
        Ghosh, Roughgarden and Sundararajan (2009).

    >>> import jax.numpy as jnp
    >>> noise = DiscreteLaplace(jnp.asarray(7.0), jnp.asarray(1.0), jnp.asarray(1.0))
    >>> error = noise.mean_abs_error(7)
    >>> round(float(noise.prob(7.0)), 3), float(noise.quantile(0.9)), round(float(error), 3)
    (0.462, 8.0, 0.851)
    """

    rate: jax.Array

    _parameters = ("rate",)

    @compiled
    def log_prob(self, y: ArrayLike) -> jax.Array:
        """Return log P(Y = y); ``-inf`` between the values."""
        z = jnp.abs(self._standardized(y))
        number = self._last(z)
        there = jnp.abs(z - number) <= _NEAR
        found = jnp.log(jnp.tanh(self.rate / 2)) - self.rate * number
        return jnp.where(there | jnp.isnan(z), found, -jnp.inf)

    @compiled
    def cdf(self, y: ArrayLike) -> jax.Array:
        """Return P(Y <= y), at full relative precision in the lower tail."""
        return self._beyond(-self._last(self._standardized(y)) - 1)

    @compiled
    def survival(self, y: ArrayLike) -> jax.Array:
        """Return P(Y > y), at full relative precision in the upper tail."""
        return self._beyond(self._last(self._standardized(y)))

    @compiled
    def quantile(self, p: ArrayLike) -> jax.Array:
        """Return the least value with ``cdf(value) >= p``, up to rounding; NaN outside [0, 1]."""
        p = jnp.asarray(p)
        log_of_both = jnp.log1p(jnp.exp(-self.rate))
        low = jnp.ceil((jnp.log(p) + log_of_both) / self.rate)
        high = jnp.ceil(-(jnp.log1p(-p) + log_of_both) / self.rate) - 1
        return self.loc + self.scale * jnp.where(low >= 0, jnp.maximum(high, 0.0), low)

    def _beyond(self, z: jax.Array) -> jax.Array:
        """Return P(K > z), for integers z of any sign."""
        tail = self._tail(jnp.where(z >= 0, z, -z - 1))
        return jnp.where(z >= 0, tail, 1 - tail)

    @staticmethod
    def _last(z: jax.Array) -> jax.Array:
        """Return the floor of z, where a z just below an integer counts as that integer."""
        return jnp.floor(z + _NEAR)

    def _tail(self, z: jax.Array) -> jax.Array:
        return jnp.exp(-self.rate * (self._last(z) + 1) - jnp.log1p(jnp.exp(-self.rate)))

    def _tail_integral(self, z: jax.Array) -> jax.Array:
        floor = self._last(z)
        complete = -jnp.expm1(-self.rate * floor) / (2 * jnp.sinh(self.rate))
        return complete + (z - floor) * self._tail(z)

    def _mean_abs(self) -> jax.Array:
        return 1 / jnp.sinh(self.rate)

    def _mean_square(self) -> jax.Array:
        return 0.5 / jnp.square(jnp.sinh(self.rate / 2))

    def _tail_quantile(self, p: jax.Array) -> jax.Array:
        number = jnp.ceil(-(jnp.log(p) + jnp.log1p(jnp.exp(-self.rate))) / self.rate) - 1
        return jnp.maximum(number, 0.0)


_NEAR = 1e-3  # a value this close to an integer counts as that integer
