"""The law on finitely many values: probabilities proportional to exp(-rate * cost), the other shape of an exponential mechanism."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from math import prod
from typing import Any

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from dpjax import checks
from dpjax.distributions.intervals import line_of_intervals
from dpjax.distributions.sampling import draw
from dpjax.numerics.batching import align, broadcast_batch, broadcast_rows, take
from dpjax.random.keys import check_key


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
        return jax.dtypes.canonicalize_dtype(self.values.dtype)  # NumPy fields may be wider than JAX's

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
        return self._sample(check_key(key), tuple(shape), 0)

    def _sample(self, key: jax.Array, shape: tuple[int, ...], first: ArrayLike) -> jax.Array:
        """Draw where the batch's first row is row number ``first`` of a larger batch; see ``dpjax.simulation``."""
        index = _sample_index(key, self, shape, first)
        batch = self.batch_shape
        if index.size == 0:
            return jnp.zeros(index.shape, self.dtype)
        flat = jnp.moveaxis(index.reshape(prod(shape), *batch), 0, -1)
        points = jnp.moveaxis(take(jnp.asarray(self.values), jnp.maximum(flat, 0)), -1, 0).reshape(index.shape)
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
        return _log_probabilities(self)

    def probabilities(self) -> jax.Array:
        """The probability of each candidate, ``(*batch_shape, k)``."""
        return jnp.exp(_log_probabilities(self))

    def expectation(self, function_values: ArrayLike) -> jax.Array:
        """E[g(Y)] for values of g at the candidates, ``(..., k)``: of shape ``batch_shape``.

        Candidates of probability 0 do not count, whatever g is there.
        """
        at = checks.float_array("function_values", function_values).astype(self.dtype)
        return _expectation(self, align(at, max(len(self.batch_shape) + 1, at.ndim)))

    def log_prob(self, y: ArrayLike) -> jax.Array:
        """Log P(Y = y), for a ``y`` that broadcasts against ``batch_shape``; ``-inf`` where ``y`` is no candidate."""
        return _log_prob(self, self._points("y", y))

    def prob(self, y: ArrayLike) -> jax.Array:
        """P(Y = y); see :meth:`log_prob`."""
        return jnp.exp(self.log_prob(y))

    def cdf(self, y: ArrayLike) -> jax.Array:
        """P(Y <= y), for a ``y`` that broadcasts against ``batch_shape``."""
        return _cdf(self, self._points("y", y))

    def survival(self, y: ArrayLike) -> jax.Array:
        """P(Y > y), summed from the upper tail, for a ``y`` that broadcasts against ``batch_shape``."""
        return _survival(self, self._points("y", y))

    def quantile(self, p: ArrayLike) -> jax.Array:
        """The smallest candidate with ``cdf(candidate) >= p``, for a ``p`` that broadcasts against ``batch_shape``.

        NaN for a ``p`` outside [0, 1]. Sums round: at a ``p`` that is a probability of the law, the neighbour may come instead.
        """
        return _quantile(self, self._points("p", p))

    def interval(self, level: ArrayLike) -> tuple[jax.Array, jax.Array]:
        """The central interval of probability at least ``level``: each side leaves out at most ``(1 - level) / 2``.

        Args:
            level: float in [0, 1] that broadcasts against ``batch_shape``.

        Returns:
            Its lower and upper end, two candidates.
        """
        left_out = (1 - self._points("level", level)) / 2
        return _quantile(self, left_out), _quantile(self, 1 - left_out)

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
        return _expectation(self, jnp.abs(self._differences(center)))

    def mean_squared_error(self, center: ArrayLike) -> jax.Array:
        """E[(Y - center)^2], for a ``center`` that broadcasts against ``batch_shape``."""
        return _expectation(self, jnp.square(self._differences(center)))

    def entropy(self) -> jax.Array:
        """Entropy of the index in nats, of shape ``batch_shape``."""
        return _expectation(self, -_log_probabilities(self))

    def _differences(self, center: ArrayLike) -> jax.Array:
        at = self._points("center", center)[..., None]
        return align(self.values, at.ndim) - at

    def _points(self, name: str, value: ArrayLike) -> jax.Array:
        array = checks.float_array(name, value).astype(self.dtype)
        return align(array, max(array.ndim, len(self.batch_shape)))


def above_least(cost: jax.Array) -> jax.Array:
    """The cost above the smallest of its row: a product of large costs with the rate would be rounded by more than it decides.

    Infinite stays infinite; NaN everywhere in a row without a finite cost, or with a cost of -inf or NaN.
    """
    least = jax.lax.stop_gradient(jnp.min(cost, axis=-1, keepdims=True))  # a common shift: no derivative depends on it
    absent = (cost == jnp.inf) & (least < jnp.inf)
    return jnp.where(absent, jnp.inf, jnp.where(absent, 0.0, cost) - least)


@jax.jit
def _log_probabilities(law: Finite) -> jax.Array:
    batch = law.batch_shape
    above = broadcast_rows(above_least(law.cost), batch)
    absent = above == jnp.inf
    weighted = -jnp.where(absent, 0.0, above) * align(law.rate, len(batch))[..., None]
    return jax.nn.log_softmax(jnp.where(absent & ~jnp.isnan(weighted), -jnp.inf, weighted), axis=-1)


@jax.jit
def _expectation(law: Finite, at: jax.Array) -> jax.Array:
    mass = align(jnp.exp(_log_probabilities(law)), at.ndim)
    # Twice: neither the sum nor its derivative may meet 0 * inf.
    return jnp.sum(jnp.where(mass == 0, 0.0, mass * jnp.where(mass == 0, 0.0, at)), axis=-1)


@jax.jit
def _log_prob(law: Finite, y: jax.Array) -> jax.Array:
    mass = align(_log_probabilities(law), y.ndim + 1)
    here = (align(law.values, y.ndim + 1) == y[..., None]) & (mass > -jnp.inf)
    total = jax.nn.logsumexp(jnp.where(here | jnp.isnan(mass), mass, -jnp.inf), axis=-1)
    return jnp.where(jnp.isnan(y), jnp.nan, total)


@jax.jit
def _cdf(law: Finite, y: jax.Array) -> jax.Array:
    return _mass_where(law, y, align(law.values, y.ndim + 1) <= y[..., None])


@jax.jit
def _survival(law: Finite, y: jax.Array) -> jax.Array:
    return _mass_where(law, y, align(law.values, y.ndim + 1) > y[..., None])


def _mass_where(law: Finite, y: jax.Array, there: jax.Array) -> jax.Array:
    mass = align(jnp.exp(_log_probabilities(law)), y.ndim + 1)
    total = jnp.sum(jnp.where(there | jnp.isnan(mass), mass, 0.0), axis=-1)
    return jnp.where(jnp.isnan(y), jnp.nan, jnp.clip(total, 0.0, 1.0))


@jax.jit
def _quantile(law: Finite, p: jax.Array) -> jax.Array:
    mass = jnp.exp(_log_probabilities(law))
    values = broadcast_rows(law.values, law.batch_shape)
    order = jnp.argsort(values, axis=-1)
    ordered = jnp.take_along_axis(values, order, axis=-1)
    below = jnp.cumsum(jnp.take_along_axis(mass, order, axis=-1), axis=-1)
    last = jnp.max(jnp.where(mass > 0, values, -jnp.inf), axis=-1)  # for a sum that stays below a p near 1
    rank = p.ndim
    reached = (align(below, rank + 1) >= p[..., None]) & (align(below, rank + 1) > 0)
    found = jnp.minimum(jnp.min(jnp.where(reached, align(ordered, rank + 1), jnp.inf), axis=-1), align(last, rank))
    exists = ~jnp.any(jnp.isnan(mass), axis=-1)
    return jnp.where((p >= 0) & (p <= 1) & align(exists, rank), found, jnp.nan)


@partial(jax.jit, static_argnames=("shape",))
def _sample_index(key: jax.Array, law: Finite, shape: tuple[int, ...], first: ArrayLike = 0) -> jax.Array:
    batch, draws = law.batch_shape, prod(shape)
    if draws == 0 or prod(batch) == 0:
        return jnp.zeros(shape + batch, jnp.int32)
    rate = broadcast_batch(law.rate, batch)[..., None]  # rows that differ in their values only draw separately too
    above = above_least(align(law.cost, len(batch) + 1))
    absent = above == jnp.inf
    widths = jnp.where(absent, 0.0, jnp.where(jnp.isnan(above), jnp.nan, 1.0)).astype(law.dtype)
    line = line_of_intervals(widths, jnp.where(absent, 0.0, above), rate, False)
    index, offset = draw(key, line, draws, "auto", first)
    return jnp.where(jnp.isnan(offset), -1, index).reshape(shape + batch)
