"""Laplace noise on a count of a Poisson subsample: (K + noise) / p with K binomial.

This is a mixture of Laplace distributions. Between neighboring places k/p, every density is of the
form u e^(y/b) + v e^(-y/b), and the ratio of two of them is a Moebius function of e^(2y/b), which
is monotone; beyond all places the ratio is constant. So the supremum of the privacy loss is
attained at one of the places.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from dpjax.distributions.base import Distribution, compiled
from dpjax.distributions.noise import sample_noise, smaller_tail
from dpjax.numerics.search import bisect, count_leading
from dpjax.random.uniforms import UniformPair

_HALVINGS = 64


@jax.tree_util.register_dataclass
@dataclass(frozen=True, repr=False)
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
    def batch_shape(self) -> tuple[int, ...]:
        """The broadcast shape of all fields."""
        return jnp.broadcast_shapes(self.loc.shape, self.scale.shape, self.probability.shape)

    @property
    def dtype(self) -> Any:
        """The dtype of every result."""
        return self.loc.dtype

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
        return jnp.sum(self._weights() * _below(self._from_places(y)), axis=-1)

    @compiled
    def survival(self, y: ArrayLike) -> jax.Array:
        """Return P(Y > y)."""
        return jnp.sum(self._weights() * _below(-self._from_places(y)), axis=-1)

    @compiled
    def quantile(self, p: ArrayLike) -> jax.Array:
        """Return the inverse of :meth:`cdf`, by bisection; NaN outside [0, 1]."""
        p = jnp.asarray(p)
        tail = jnp.minimum(p, 1 - p)
        reach = self.scale * -jnp.log(2 * jnp.maximum(tail, jnp.finfo(self.dtype).tiny))
        shape = jnp.broadcast_shapes(p.shape, self.batch_shape)
        start, end = -jnp.abs(reach), self.most / self.probability + jnp.abs(reach)
        low, high = bisect(
            lambda y: self.cdf(y) < p,
            jnp.broadcast_to(start, shape),
            jnp.broadcast_to(end, shape),
            _HALVINGS,
        )
        edge = jnp.where(p == 0, -jnp.inf, jnp.where(p == 1, jnp.inf, jnp.nan))
        return jnp.where((p > 0) & (p < 1), (low + high) / 2, edge)

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
        return self.scale * jnp.sum(self._weights() * (z + jnp.exp(-z)), axis=-1)

    def _from_places(self, y: Any) -> jax.Array:
        return (y[..., None] - self.places) / self.scale[..., None]

    def _log_weights(self) -> jax.Array:
        """Return log P(K = k), ``(..., most + 1)``, from the ratios of neighbors, normalized."""
        k = jnp.arange(self.most, dtype=self.dtype)
        left = jnp.maximum(self.loc[..., None] - k, 0.0)
        odds = jnp.log(self.probability) - jnp.log1p(
            -jnp.minimum(self.probability, 1 - jnp.finfo(self.dtype).epsneg)
        )
        steps = jnp.where(
            left > 0, jnp.log(jnp.where(left > 0, left, 1.0) / (k + 1)) + odds[..., None], 0.0
        )
        sums = jnp.concatenate(
            [jnp.zeros_like(steps[..., :1]), jnp.cumsum(steps, axis=-1)], axis=-1
        )
        here = jnp.arange(self.most + 1, dtype=self.dtype) <= self.loc[..., None]
        return jax.nn.log_softmax(jnp.where(here, sums, -jnp.inf), axis=-1)

    def _weights(self) -> jax.Array:
        return jnp.exp(self._log_weights())

    def _sample(self, key: jax.Array, shape: tuple[int, ...], first: ArrayLike = 0) -> jax.Array:
        return sample_noise(key, self, shape, first)

    def _standard(self, uniform: Callable[[int], UniformPair]) -> jax.Array:
        """Return the draw minus the count, over the scale; K by inverse cdf from the nearer end."""
        weights, pair = self._weights(), uniform(0)
        below, above = (
            jnp.cumsum(weights, axis=-1),
            jnp.cumsum(weights[..., ::-1], axis=-1)[..., ::-1],
        )

        def at(sums: jax.Array, index: jax.Array) -> jax.Array:
            if sums.shape[:-1] == index.shape:
                return jnp.take_along_axis(sums, index[..., None], axis=-1)[..., 0]
            return jnp.take_along_axis(sums[..., 0, :], index, axis=-1)

        def passed(index: jax.Array) -> jax.Array:
            """Test P(K <= index) < u, by P(K > index) > 1 - u if that is more precise."""
            over = at(above, jnp.minimum(index + 1, np.int32(self.most)))
            return (index < self.most) & jnp.where(
                pair.value < pair.complement, at(below, index) < pair.value, over > pair.complement
            )

        number = count_leading(passed, self.most + 1, pair.value.shape).astype(self.dtype)
        tail, sign = smaller_tail(uniform(1))
        return (number / self.probability - self.loc) / self.scale - sign * jnp.log(2 * tail)


def _below(z: jax.Array) -> jax.Array:
    """Return P(Z <= z)."""
    tail = jnp.exp(-jnp.abs(z)) / 2
    return jnp.where(z < 0, tail, 1 - tail)
