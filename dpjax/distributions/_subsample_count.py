"""Laplace noise on a count of a Poisson subsample: (K + noise) / p with K binomial.

This is a mixture of Laplace distributions. Between neighboring places k/p, every density is of the
form u e^(y/b) + v e^(-y/b), and the ratio of two of them is a Moebius function of e^(2y/b), which
is monotone; beyond all places the ratio is constant. So the supremum of the privacy loss is
attained at one of the places.
"""

from __future__ import annotations

from dataclasses import field
from math import prod
from typing import Any

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from dpjax.distributions.base import Distribution, compiled, draws_first
from dpjax.distributions.noise import tail_and_sign
from dpjax.distributions.sampler import choose
from dpjax.numerics.float64 import in_float64
from dpjax.numerics.search import bisect
from dpjax.pytrees import pytree


@pytree
class SubsampledLaplace(Distribution):
    """``K / probability + scale * Z`` with K binomial and Z standard Laplace.

    K has ``loc`` trials of probability ``probability``.

    Attributes:
        loc: float ``(...)``, the count, an integer from 0 to ``most``.
        scale: float ``(...)``, positive.
        probability: float ``(...)``, in (0, 1].
        most: static int, the largest count; closed forms are sums of ``most + 1`` terms.

    References:
        Steinke, "Privacy Amplification by Subsampling" (2025), Equation 5, for queries with values
        0 and 1.

    >>> import jax.numpy as jnp
    >>> noisy = SubsampledLaplace(jnp.asarray(30.0), jnp.asarray(2.0), jnp.asarray(0.1), most=50)
    >>> float(noisy.mean()), round(float(noisy.variance()), 2)
    (30.0, 278.0)
    """

    loc: jax.Array
    scale: jax.Array
    probability: jax.Array
    most: int = field(metadata={"static": True})

    @property
    def places(self) -> jax.Array:
        """The locations of the mixture components, ``(..., most + 1)``."""
        return jnp.arange(self.most + 1, dtype=self.dtype) / self.probability[..., None]

    @compiled
    def log_prob(self, y: ArrayLike) -> jax.Array:
        """Return the log-density at ``y``."""
        return jax.nn.logsumexp(
            self._log_weights() - jnp.abs(self._from_places(y)), axis=-1
        ) - jnp.log(2 * self.scale)

    @compiled
    def cdf(self, y: ArrayLike) -> jax.Array:
        """Return P(Y <= y)."""
        return self._beyond(-self._from_places(y))

    @compiled
    def survival(self, y: ArrayLike) -> jax.Array:
        """Return P(Y > y)."""
        return self._beyond(self._from_places(y))

    @compiled
    def quantile(self, p: ArrayLike) -> jax.Array:
        """Return the inverse of :meth:`cdf`, by bisection; NaN outside [0, 1]."""
        p = jnp.broadcast_to(p, jnp.broadcast_shapes(jnp.shape(p), self.batch_shape))
        end = jnp.full_like(p, jnp.inf)
        found = bisect(lambda y: self.cdf(y) < p, -end, end)[1]
        outside = jnp.minimum(p, 1 - p)
        end = jnp.where(outside == 0, (p - 0.5) * jnp.inf, jnp.nan)
        return jnp.where(outside > 0, found, end)

    def mean(self) -> jax.Array:
        """Return the mean, which is the count ``loc``."""
        return jnp.broadcast_to(self.loc, self.batch_shape)

    def variance(self) -> jax.Array:
        """Return the variance, the sum of those of the subsample and of the noise."""
        return self.loc * (1 - self.probability) / self.probability + 2 * jnp.square(self.scale)

    @compiled
    def mean_abs_error(self, center: ArrayLike) -> jax.Array:
        """Return E|Y - center|."""
        z = jnp.abs(self._from_places(center))
        return self.scale * self._average(z + jnp.exp(-z))

    def _from_places(self, y: Any) -> jax.Array:
        return (y[..., None] - self.places) / self.scale[..., None]

    def _beyond(self, z: jax.Array) -> jax.Array:
        """Return the probability of noise above z, which has one value for each place."""
        tail = jnp.exp(-jnp.abs(z)) / 2
        return self._average(jnp.where(z > 0, tail, 1 - tail))

    def _average(self, terms: jax.Array) -> jax.Array:
        return jnp.sum(jnp.exp(self._log_weights()) * terms, axis=-1)

    def _log_weights(self) -> jax.Array:
        """Return log P(K = k), ``(..., most + 1)``."""

        def compute(count: jax.Array, share: jax.Array) -> jax.Array:
            k = jnp.arange(self.most + 1, dtype=count.dtype)
            # At a share of 1, the gradient is not finite.
            share = jnp.minimum(share, 1 - jnp.finfo(share.dtype).epsneg)
            return jax.scipy.stats.binom.logpmf(k, count, share)

        # The logarithms of factorials cancel. The count is an integer: it has no derivative.
        count = jax.lax.stop_gradient(self.loc)[..., None]
        return in_float64(compute, count, self.probability[..., None])

    def _sample(self, key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
        key_count, key_noise = jax.random.split(key)
        batch, draws = self.batch_shape, prod(shape)
        weights = jnp.broadcast_to(jnp.exp(self._log_weights()), (*batch, self.most + 1))
        number = choose(key_count, weights, draws).astype(self.dtype)
        tail, sign = tail_and_sign(key_noise, (*batch, draws), self.dtype)
        noise = -self.scale[..., None] * sign * jnp.log(2 * tail)
        return draws_first(number / self.probability[..., None] + noise, shape)
