"""Distributions on finitely many values, with probabilities proportional to exp(-rate * cost)."""

from __future__ import annotations

from functools import partial
from math import prod
from typing import Any

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from dpjax.distributions.base import Distribution, Shape, compiled, draws_first, draws_shape
from dpjax.distributions.sampler import choose
from dpjax.numerics.arrays import broadcast_rows, take
from dpjax.numerics.float64 import in_float64
from dpjax.pytrees import pytree
from dpjax.random.keys import check_key


@pytree
class Finite(Distribution):
    """A distribution on ``values``, with probabilities proportional to ``exp(-rate * cost)``.

    It is the output distribution of the exponential mechanism.

    Leading axes are a batch. The fields broadcast against each other: candidates shared by all rows
    have shape ``(k,)``, and a sweep over epsilon is a ``rate`` of shape ``(sweep, 1)``. A candidate
    of infinite cost (padding) has probability 0; at an infinite rate, so has every candidate but
    the best. All results of a row are NaN where a cost or the rate is NaN, or no cost is finite.
    All methods except ``sample`` and ``sample_index`` are exact sums.

    Attributes:
        values: float ``(..., k)``, in any order; the probabilities of equal values add up.
        cost: float ``(..., k)``.
        rate: float ``(...)``; epsilon/2 for the exponential mechanism.

    References:
        McSherry and Talwar (2007).

    >>> import jax.numpy as jnp
    >>> coin = Finite(jnp.array([10.0, 20.0]), jnp.array([0.0, 1.0]), jnp.log(3.0))
    >>> [round(float(p), 6) for p in coin.probabilities()], float(coin.mean())
    ([0.75, 0.25], 12.5)
    """

    values: jax.Array
    cost: jax.Array
    rate: jax.Array

    _event_axes = ("values", "cost")
    _parameters = ("rate",)

    @property
    def batch_shape(self) -> tuple[int, ...]:
        """The broadcast shape of all fields without the axis of candidates."""
        if self.values.shape[-1:] != self.cost.shape[-1:] or self.values.shape[-1:] == (0,):
            raise ValueError(
                "values and cost must have the same last axis, of size k >= 1, got shapes "
                f"{self.values.shape} and {self.cost.shape}."
            )
        return super().batch_shape

    @property
    def dtype(self) -> Any:
        """The dtype of the values and of every result."""
        # NumPy fields may be wider than JAX's.
        return jax.dtypes.canonicalize_dtype(self.values.dtype)

    @property
    def support(self) -> tuple[jax.Array, jax.Array]:
        """The smallest and largest value of positive probability, of shape ``batch_shape``."""
        there = self.log_probabilities() > -jnp.inf
        return jnp.min(jnp.where(there, self.values, jnp.inf), axis=-1), jnp.max(
            jnp.where(there, self.values, -jnp.inf), axis=-1
        )

    def sample_index(self, key: jax.Array, shape: Shape = ()) -> jax.Array:
        """Draw candidate indices; probabilities down to about 2^-60 are reached.

        Each has its probability to a few units in the last place. The arguments are those of
        ``sample``, which draws the values at these indices.

        Returns:
            int32 of shape ``shape + batch_shape``; -1 for a row without a distribution.
        """
        shape = draws_shape(shape)
        return draws_first(_choose(check_key(key), self, prod(shape)), shape)

    def _sample(self, key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
        index = _choose(key, self, prod(shape))
        return draws_first(
            jnp.where(index >= 0, take(jnp.asarray(self.values), jnp.maximum(index, 0)), jnp.nan),
            shape,
        )

    @compiled
    def log_probabilities(self) -> jax.Array:
        """Return the log-probability of each candidate, ``(*batch_shape, k)``.

        It is ``-inf`` at infinite cost.
        """
        there = self.cost < jnp.inf
        # Large costs times a rate would lose precision. No derivative depends on the least one.
        least = jax.lax.stop_gradient(jnp.min(self.cost, axis=-1, keepdims=True))
        above = jnp.where(there, self.cost, least) - least
        # Finite, so that 0 * rate is 0.
        rate = jnp.minimum(self.rate, float(jnp.finfo(self.rate.dtype).max))[..., None]
        weighted = jnp.where(there, -rate * above, -jnp.inf)
        return broadcast_rows(jax.nn.log_softmax(weighted, axis=-1), self.batch_shape)

    def probabilities(self) -> jax.Array:
        """Return the probability of each candidate, ``(*batch_shape, k)``."""
        return jnp.exp(self.log_probabilities())

    @compiled
    def expectation(self, function_values: ArrayLike) -> jax.Array:
        """Return E[g(Y)], ``batch_shape``, for values of g at the candidates, ``(..., k)``.

        Candidates of probability 0 do not count, even where g is infinite or NaN.
        """
        mass = self.probabilities()
        # Masked twice, so that neither the sum nor its derivative has 0 * inf.
        return jnp.sum(
            jnp.where(mass == 0, 0.0, mass * jnp.where(mass == 0, 0.0, function_values)), axis=-1
        )

    @compiled
    def log_prob(self, y: ArrayLike) -> jax.Array:
        """Return log P(Y = y); ``-inf`` where ``y`` is not a candidate."""
        mass = self.log_probabilities()
        here = (self.values == jnp.expand_dims(y, -1)) & (mass > -jnp.inf)
        total = jax.nn.logsumexp(jnp.where(here | jnp.isnan(mass), mass, -jnp.inf), axis=-1)
        return jnp.where(jnp.isnan(y), jnp.nan, total)

    @compiled
    def cdf(self, y: ArrayLike) -> jax.Array:
        """Return P(Y <= y)."""
        return self._total(self.values <= jnp.expand_dims(y, -1), y)

    @compiled
    def survival(self, y: ArrayLike) -> jax.Array:
        """Return P(Y > y), summed from the upper tail."""
        return self._total(self.values > jnp.expand_dims(y, -1), y)

    @compiled
    def quantile(self, p: ArrayLike) -> jax.Array:
        """Return the smallest candidate with ``cdf(candidate) >= p``; NaN for ``p`` outside [0, 1].

        Sums are rounded: for a ``p`` equal to a value of the cdf, an adjacent candidate may be
        returned.
        """
        p, last = jnp.asarray(p), self.support[1]
        values = broadcast_rows(self.values, self.batch_shape)
        values, mass = jax.lax.sort((values, self.probabilities()), num_keys=1)
        below = jnp.cumsum(mass, axis=-1)
        reached = (below > 0) & (below >= p[..., None])
        found = jnp.min(jnp.where(reached, values, jnp.inf), axis=-1)
        # The rounded total may stay below a p near 1.
        found = jnp.minimum(found, last)
        return jnp.where((p >= 0) & (p <= 1) & (last > -jnp.inf), found, jnp.nan)

    def mean(self) -> jax.Array:
        """Return the mean, E[Y], of shape ``batch_shape``."""
        return self.expectation(self.values)

    def variance(self) -> jax.Array:
        """Return the variance, E[(Y - E[Y])^2], of shape ``batch_shape``; 0 where it underflows."""
        return self.expectation(jnp.square(self.values - self.mean()[..., None]))

    @compiled
    def stddev(self) -> jax.Array:
        """Return the standard deviation, even where the variance under- or overflows float32."""
        return in_float64(lambda wide: jnp.sqrt(wide.variance()), self)

    @compiled
    def mean_abs_error(self, center: ArrayLike) -> jax.Array:
        """Return E|Y - center|."""
        return self.expectation(jnp.abs(self.values - jnp.expand_dims(center, -1)))

    @compiled
    def entropy(self) -> jax.Array:
        """Return the entropy of the index in nats, of shape ``batch_shape``."""
        return self.expectation(-self.log_probabilities())

    def _total(self, counted: jax.Array, y: ArrayLike) -> jax.Array:
        """Return the probability of the candidates selected by ``counted``; NaN where y is NaN."""
        total = jnp.clip(self.expectation(counted), 0.0, 1.0)
        return jnp.where(jnp.isnan(y), jnp.nan, total)


@partial(jax.jit, static_argnames="draws")
def _choose(key: jax.Array, distribution: Finite, draws: int) -> jax.Array:
    """Draw candidate indices, int32 ``(*batch, draws)``; -1 for a row without a distribution."""
    weights = distribution.probabilities()
    exists = jnp.sum(weights, axis=-1, keepdims=True) > 0
    return jnp.where(exists, choose(key, weights, draws), -1)
