"""Discrete Laplace (geometric) noise: P(K = k) = tanh(rate / 2) exp(-rate |k|) for integers k.

With q = exp(-rate), P(K > k) = q^(k+1) / (1 + q) for k >= 0.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from dpjax.distributions.base import compiled
from dpjax.distributions.noise import SymmetricNoise
from dpjax.pytrees import pytree


@pytree
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
        number = _last(z)
        found = jnp.log(jnp.tanh(self.rate / 2)) - self.rate * number
        return jnp.where(jnp.abs(z - number) > _NEAR, -jnp.inf, found)

    @compiled
    def cdf(self, y: ArrayLike) -> jax.Array:
        """Return P(Y <= y), at full relative precision in the lower tail."""
        return self._beyond(-_last(self._standardized(y)) - 1)

    @compiled
    def quantile(self, p: ArrayLike) -> jax.Array:
        """Return the least value with ``cdf(value) >= p``, up to rounding; NaN outside [0, 1]."""
        p = jnp.asarray(p)
        low = jnp.ceil((jnp.log(p) + self._log_both) / self.rate)
        return self.loc + self.scale * jnp.where(low >= 0, self._tail_quantile(1 - p), low)

    def _beyond(self, z: jax.Array) -> jax.Array:
        """Return P(K > z), for z of any sign."""
        number = _last(z)
        tail = self._tail(jnp.where(number >= 0, number, -number - 1))
        return jnp.where(number >= 0, tail, 1 - tail)

    @property
    def _log_both(self) -> jax.Array:
        """log(1 + e^-rate): a tail and its reflection share the value 0."""
        return jnp.log1p(jnp.exp(-self.rate))

    def _tail(self, z: jax.Array) -> jax.Array:
        return jnp.exp(-self.rate * (_last(z) + 1) - self._log_both)

    def _tail_integral(self, z: jax.Array) -> jax.Array:
        floor = _last(z)
        complete = -jnp.expm1(-self.rate * floor) / (2 * jnp.sinh(self.rate))
        return complete + (z - floor) * self._tail(z)

    def _tail_quantile(self, p: jax.Array) -> jax.Array:
        return jnp.maximum(jnp.ceil(-(jnp.log(p) + self._log_both) / self.rate) - 1, 0.0)

    def _mean_abs(self) -> jax.Array:
        return 1 / jnp.sinh(self.rate)

    def _mean_square(self) -> jax.Array:
        return 0.5 / jnp.square(jnp.sinh(self.rate / 2))


def _last(z: jax.Array) -> jax.Array:
    """Return the floor of z, where a z just below an integer counts as that integer."""
    return jnp.floor(z + _NEAR)


_NEAR = 1e-3  # a value this close to an integer counts as that integer
