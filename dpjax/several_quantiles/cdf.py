"""The distribution on the real line defined by some of its quantiles, such as private quantiles."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from dpjax import checks
from dpjax.display import Picture
from dpjax.distributions.base import Distribution, compiled, draws_first
from dpjax.numerics.batching import broadcast_rows, concatenate, take
from dpjax.random.keys import row_words
from dpjax.random.uniforms import row_uniforms


@jax.tree_util.register_dataclass
@dataclass(frozen=True, repr=False)
class QuantileCdf(Distribution):
    """The distribution with given quantiles and uniform between them: its cdf is piecewise linear.

    The cdf has a jump where quantiles are equal. If the quantiles are private, so is it at no
    further cost: a cdf, a histogram, and by ``sample`` synthetic records. Leading axes are a batch.

    Attributes:
        values: ascending, ``(..., m + 2)``, from the lower to the upper bound.
        levels: the probability up to each of them, ascending from 0 to 1, ``(m + 2,)``.

    >>> import jax.numpy as jnp
    >>> ages = QuantileCdf(jnp.array([0.0, 30.0, 45.0, 120.0]), jnp.array([0.0, 0.25, 0.75, 1.0]))
    >>> ages.cdf(jnp.array([15.0, 30.0, 37.5])).tolist(), float(ages.quantile(0.5))
    ([0.125, 0.25, 0.5], 37.5)
    >>> ages.histogram([0, 30, 45, 120]).tolist()
    [0.25, 0.5, 0.25]
    """

    values: jax.Array
    levels: jax.Array

    _event_axes = ("values", "levels")

    @staticmethod
    def through(
        quantiles: jax.Array, levels: Iterable[Any], lower: jax.Array, upper: jax.Array
    ) -> QuantileCdf:
        """Return the distribution with quantiles ``(..., m)`` at static levels, between bounds."""
        values = concatenate(lower[..., None], quantiles, upper[..., None])
        return QuantileCdf(
            values, jnp.asarray(np.array([0.0, *map(float, levels), 1.0]), quantiles.dtype)
        )

    @property
    def batch_shape(self) -> tuple[int, ...]:
        """The leading axes of ``values``."""
        return self.values.shape[:-1]

    @property
    def dtype(self) -> Any:
        """The dtype of the values."""
        return self.values.dtype

    @property
    def support(self) -> tuple[jax.Array, jax.Array]:
        """The lower and the upper bound, of shape ``batch_shape`` each."""
        return self.values[..., 0], self.values[..., -1]

    def _sample(self, key: jax.Array, shape: tuple[int, ...], first: ArrayLike = 0) -> jax.Array:
        draws = int(np.prod(shape))
        rows = row_words(key, self.batch_shape, first)
        uniform = jnp.moveaxis(row_uniforms(rows, draws, self.dtype, stream=0).value, -1, 0)
        return draws_first(jnp.moveaxis(self.quantile(uniform), 0, -1), shape)

    @compiled
    def cdf(self, y: ArrayLike) -> jax.Array:
        """Return P(Y <= y), for ``y`` that broadcasts against ``batch_shape``."""
        return self._read(jnp.asarray(y), self.values, self.levels)

    @compiled
    def quantile(self, p: ArrayLike) -> jax.Array:
        """Return the inverse of :meth:`cdf`; NaN outside [0, 1]."""
        p = jnp.asarray(p)
        return jnp.where((p >= 0) & (p <= 1), self._read(p, self.levels, self.values), jnp.nan)

    def histogram(self, edges: ArrayLike) -> jax.Array:
        """Return the probability of each bin ``(edges[i], edges[i + 1]]``, ``(..., bins)``.

        A first edge at the lower bound is included in the first bin.

        Args:
            edges: float ``(bins + 1,)``, ascending, at least two.

        Raises:
            ValueError: ``edges`` are not one-dimensional or fewer than two.
        """
        ends = checks.float_array("edges", edges).astype(self.dtype)
        if ends.ndim != 1 or ends.shape[0] < 2:
            raise ValueError(
                "edges must be one-dimensional with at least two ascending numbers, got shape "
                f"{ends.shape}."
            )
        upto = jnp.moveaxis(self.cdf(ends.reshape(-1, *[1] * len(self.batch_shape))), 0, -1)
        first = jnp.where(ends[0] <= self.values[..., :1], 0.0, upto[..., :1])
        return jnp.diff(jnp.concatenate([first, upto[..., 1:]], axis=-1), axis=-1)

    def mean(self) -> jax.Array:
        """Return the mean, E[Y], of shape ``batch_shape``."""
        return jnp.sum(jnp.diff(self.levels) * self._middles(), axis=-1)

    def variance(self) -> jax.Array:
        """Return the variance, E[(Y - E[Y])^2], of shape ``batch_shape``."""
        around = self._middles() - self.mean()[..., None]
        return jnp.sum(
            jnp.diff(self.levels) * (around**2 + jnp.diff(self.values) ** 2 / 12), axis=-1
        )

    def _looks(self, rows: int) -> tuple[dict[str, Any], Picture | None]:
        """Return a table and a picture of the full cdf, not of some of its quantiles."""
        values = np.asarray(self.values).reshape(-1, self.values.shape[-1])[:rows]
        table = {
            f"{level:.4g}": column
            for level, column in zip(np.asarray(self.levels), values.T, strict=True)
        }
        return table, Picture(
            values,
            np.broadcast_to(np.asarray(self.levels), values.shape),
            "value",
            "share of records up to it",
        )

    def _middles(self) -> jax.Array:
        return (self.values[..., 1:] + self.values[..., :-1]) / 2

    def _read(self, at: jax.Array, x: jax.Array, y: jax.Array) -> jax.Array:
        """Interpolate the points (x, y) linearly; of points with the same x, use the last."""
        batch = jnp.broadcast_shapes(at.shape, self.batch_shape)
        points = jnp.broadcast_to(at, batch)[..., None]
        x, y = (broadcast_rows(a, batch) for a in (x, y))
        last = x.shape[-1] - 1
        after = jnp.sum(x <= points, axis=-1, keepdims=True, dtype=jnp.int32)
        low, high = jnp.clip(after - 1, 0, last), jnp.clip(after, 0, last)
        near, far, start, end = take(x, low), take(x, high), take(y, low), take(y, high)
        share = jnp.where(far > near, (points - near) / jnp.where(far > near, far - near, 1.0), 0.0)
        found = jnp.where(jnp.isnan(points), jnp.nan, start * (1 - share) + end * share)
        return found[..., 0]
