"""The law on finitely many values: probabilities proportional to exp(-rate * cost), the other shape of an exponential mechanism."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from math import prod
from typing import Any

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from dpjax import parameters
from dpjax.distributions.intervals import line_of_intervals
from dpjax.distributions.sampling import draw
from dpjax.random.keys import check_key
from dpjax.shapes import align, broadcast_rows, take


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Finite:
    """A law on the candidates ``values`` with probabilities proportional to ``exp(-rate * cost)``.

    Leading axes are a batch; the fields broadcast against each other, so candidates shared by all rows stay of shape ``(k,)`` and a
    sweep over epsilon is a ``rate`` of shape ``(sweep, 1)``. A candidate of infinite cost (padding) has probability 0. It is a
    pytree, and all methods but ``sample`` and ``sample_index`` are exact sums.

    Attributes:
        values: float ``(..., k)``, in any order; equal values add up.
        cost: float ``(..., k)``.
        rate: float ``(...)``, epsilon/2 for the exponential mechanism.

    References:
        McSherry and Talwar (2007).

    >>> import jax.numpy as jnp
    >>> law = Finite(jnp.array([10.0, 20.0]), jnp.array([0.0, 1.0]), jnp.log(3.0))
    >>> [round(float(p), 6) for p in law.probabilities()], float(law.mean())
    ([0.75, 0.25], 12.5)
    """

    values: jax.Array
    cost: jax.Array
    rate: jax.Array

    @property
    def batch_shape(self) -> tuple[int, ...]:
        """The broadcast shape of all fields, without the axis of candidates."""
        if self.values.shape[-1:] != self.cost.shape[-1:] or self.values.shape[-1:] == (0,):
            raise ValueError(f"k >= 1 values need k costs, got shapes {self.values.shape} and {self.cost.shape}.")
        return jnp.broadcast_shapes(self.values.shape[:-1], self.cost.shape[:-1], self.rate.shape)

    @property
    def dtype(self) -> Any:
        """The dtype of the values and of every result."""
        return self.values.dtype

    def sample(self, key: jax.Array, shape: tuple[int, ...] = ()) -> jax.Array:
        """Draw values; see :meth:`sample_index`.

        Args:
            key: a scalar typed threefry key.
            shape: the shape of the draws from each row.

        Returns:
            Float of shape ``shape + batch_shape``; NaN for a row that has no law.

        Raises:
            TypeError: ``key`` is not a typed key.
            ValueError: another kind of key.
        """
        index = self.sample_index(key, shape)
        batch = self.batch_shape
        if index.size == 0:
            return jnp.zeros(index.shape, self.dtype)
        flat = jnp.moveaxis(index.reshape(prod(shape), *batch), 0, -1)
        points = jnp.moveaxis(take(self.values, jnp.maximum(flat, 0)), -1, 0).reshape(index.shape)
        return jnp.where(index >= 0, points, jnp.nan)

    def sample_index(self, key: jax.Array, shape: tuple[int, ...] = ()) -> jax.Array:
        """Draw the indices of candidates, each with its probability to a few units in the last place; reaches about 2^-60.

        Args:
            key: a scalar typed threefry key.
            shape: the shape of the draws from each row.

        Returns:
            int32 of shape ``shape + batch_shape``; -1 for a row that has no law (NaN, or no candidate of finite cost).

        Raises:
            TypeError: ``key`` is not a typed key.
            ValueError: another kind of key.
        """
        return _sample_index(check_key(key), self, tuple(shape))

    def log_probabilities(self) -> jax.Array:
        """The log-probability of each candidate, ``(*batch_shape, k)``; ``-inf`` at infinite cost."""
        cost = broadcast_rows(self.cost, self.batch_shape)
        absent = cost == jnp.inf
        # From the smallest cost on: the product of a large cost with the rate would be rounded by more than the masses it decides.
        least = jax.lax.stop_gradient(jnp.min(cost, axis=-1, keepdims=True))
        above = jnp.where(absent & (least < jnp.inf), 0.0, cost - least)
        weighted = jnp.where(absent, -jnp.inf, -above * align(self.rate, len(self.batch_shape))[..., None])
        return jax.nn.log_softmax(weighted, axis=-1)

    def probabilities(self) -> jax.Array:
        """The probability of each candidate, ``(*batch_shape, k)``."""
        return jnp.exp(self.log_probabilities())

    def expectation(self, function_values: ArrayLike) -> jax.Array:
        """E[g(Y)] for values of g at the candidates, ``(..., k)``: of shape ``batch_shape``."""
        at = parameters.float_array("function_values", function_values).astype(self.dtype)
        rank = max(len(self.batch_shape) + 1, at.ndim)
        mass = align(self.probabilities(), rank)
        return jnp.sum(jnp.where(mass > 0, mass * align(at, rank), mass), axis=-1)

    def log_prob(self, y: ArrayLike) -> jax.Array:
        """Log P(Y = y), for a ``y`` that broadcasts against ``batch_shape``; ``-inf`` where ``y`` is no candidate."""
        points = self._points("y", y)
        mass = align(self.log_probabilities(), points.ndim + 1)
        values = align(self.values, points.ndim + 1)
        return jax.nn.logsumexp(jnp.where((values == points[..., None]) | jnp.isnan(mass), mass, -jnp.inf), axis=-1)

    def prob(self, y: ArrayLike) -> jax.Array:
        """P(Y = y); see :meth:`log_prob`."""
        return jnp.exp(self.log_prob(y))

    def cdf(self, y: ArrayLike) -> jax.Array:
        """P(Y <= y), for a ``y`` that broadcasts against ``batch_shape``."""
        return self._mass_where(y, lambda values, points: values <= points)

    def survival(self, y: ArrayLike) -> jax.Array:
        """P(Y > y), summed from the upper tail, for a ``y`` that broadcasts against ``batch_shape``."""
        return self._mass_where(y, lambda values, points: values > points)

    def quantile(self, p: ArrayLike) -> jax.Array:
        """The smallest candidate with ``cdf(candidate) >= p``, for a ``p`` that broadcasts against ``batch_shape``.

        NaN for a ``p`` outside [0, 1]. Sums round: at a ``p`` that is a probability of the law, the neighbour may come instead.
        """
        level = self._points("p", p)
        mass = self.probabilities()
        batch = self.batch_shape
        order = jnp.argsort(broadcast_rows(self.values, batch), axis=-1)
        values = jnp.take_along_axis(broadcast_rows(self.values, batch), order, axis=-1)
        below = jnp.cumsum(jnp.take_along_axis(mass, order, axis=-1), axis=-1)
        rank = level.ndim + 1
        reached = (align(below, rank) >= level[..., None]) & (align(below, rank) > 0)
        last = jnp.max(jnp.where(mass > 0, broadcast_rows(self.values, batch), -jnp.inf), axis=-1)
        smallest = jnp.min(jnp.where(reached, align(values, rank), jnp.inf), axis=-1)
        found = jnp.minimum(smallest, align(last, rank - 1))
        nothing = jnp.any(jnp.isnan(mass), axis=-1)
        return jnp.where((level >= 0) & (level <= 1) & ~align(nothing, rank - 1), found, jnp.nan)

    def mean(self) -> jax.Array:
        """E[Y], of shape ``batch_shape``."""
        return self.expectation(self.values)

    def variance(self) -> jax.Array:
        """E[(Y - E[Y])^2], of shape ``batch_shape``."""
        return self.mean_squared_error(self.mean())

    def stddev(self) -> jax.Array:
        """The standard deviation, of shape ``batch_shape``."""
        return jnp.sqrt(self.variance())

    def mean_abs_error(self, center: ArrayLike) -> jax.Array:
        """E|Y - center|, for a ``center`` that broadcasts against ``batch_shape``."""
        at = self._points("center", center)
        return self.expectation(jnp.abs(align(self.values, at.ndim + 1) - at[..., None]))

    def mean_squared_error(self, center: ArrayLike) -> jax.Array:
        """E[(Y - center)^2], for a ``center`` that broadcasts against ``batch_shape``."""
        at = self._points("center", center)
        return self.expectation(jnp.square(align(self.values, at.ndim + 1) - at[..., None]))

    def entropy(self) -> jax.Array:
        """Entropy of the index in nats, of shape ``batch_shape``."""
        return self.expectation(-self.log_probabilities())

    def _mass_where(self, y: ArrayLike, test: Any) -> jax.Array:
        points = self._points("y", y)
        mass = align(self.probabilities(), points.ndim + 1)
        there = test(align(self.values, points.ndim + 1), points[..., None])
        return jnp.sum(jnp.where(there, mass, jnp.where(jnp.isnan(mass), mass, 0.0)), axis=-1)

    def _points(self, name: str, value: ArrayLike) -> jax.Array:
        array = parameters.float_array(name, value).astype(self.dtype)
        return align(array, max(array.ndim, len(self.batch_shape)))


@partial(jax.jit, static_argnames=("shape",))
def _sample_index(key: jax.Array, law: Finite, shape: tuple[int, ...]) -> jax.Array:
    batch, draws = law.batch_shape, prod(shape)
    if draws == 0 or prod(batch) == 0:
        return jnp.zeros(shape + batch, jnp.int32)
    cost, rate = align(law.cost, len(batch) + 1), align(law.rate, len(batch))[..., None]
    open_one = cost < jnp.inf
    absent = cost == jnp.inf
    widths = jnp.where(absent, 0.0, jnp.where(open_one, 1.0, jnp.nan)).astype(law.dtype)
    line = line_of_intervals(widths, jnp.where(absent, 0.0, cost), rate, False)
    index, offset = draw(key, line, draws, "auto")
    return jnp.where(jnp.isnan(offset), -1, index).reshape(shape + batch)
