"""Distributions on the multiples of a public resolution, with probabilities ~ exp(-rate * cost).

The cost is linear on runs of multiples, as on the pieces of a :class:`PiecewiseExponential`, and is
evaluated at the multiples: there are no integrals over cells. In a run of g multiples with the
costs l + r/g, l + 2 r/g, ..., l + r, the index of a multiple is a truncated geometric variable,
that is, a truncated exponential variable rounded up. So a draw is made on the real line, where the
run is a piece of length g whose cost rises from l to l + r, and is moved to the middle of its cell.
Only the mass of the piece differs: it is x / (e^x - 1) times the integral over the piece, with x =
rate * r / g (``Line.measure``).

In a piece, the position inside a cell is independent of the cell, so a mean or variance on the grid
is that on the real line minus the contribution of this position.
"""

from __future__ import annotations

from dataclasses import field
from fractions import Fraction

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from dpjax.distributions.base import compiled
from dpjax.distributions.closed_forms import OnLine
from dpjax.distributions.line import Line
from dpjax.numerics.multiples import from_multiples, to_multiples
from dpjax.pytrees import pytree


@pytree
class Rounded(OnLine):
    """A distribution on the multiples of a public resolution, P(y) ~ ``exp(-rate * cost(y))``.

    Leading axes are a batch. Mechanisms return it for a profile with a resolution; what
    ``dpjax.release`` draws from has flat runs in its place. All methods except ``sample`` are
    closed forms; probabilities are those of single multiples.

    Edges are half-integers in units of the resolution: a multiple is a cell of width 1, and its
    cost is that at the end of higher cost of the cell.

    Attributes:
        edges: float ``(..., m+1)``, nondecreasing half-integers.
        cost_left: float ``(..., m)``, the cost at the left end of each piece.
        cost_right: float ``(..., m)``, the cost at the right end.
        rate: float ``(...)``; epsilon/2 for exponential mechanisms.
        resolution: static fraction, the distance between adjacent values.

    >>> import jax.numpy as jnp
    >>> from dpjax import median, piecewise_laplace
    >>> ages = jnp.array([21.0, 30.0, 30.0, 30.0, 47.0])
    >>> distribution = piecewise_laplace(
    ...     median(ages, lower=0, upper=120, neighbors="swap", resolution=1), 4.0
    ... )
    >>> round(float(distribution.prob(30.0)), 3), float(distribution.quantile(0.5))
    (0.776, 30.0)
    """

    edges: jax.Array
    cost_left: jax.Array
    cost_right: jax.Array
    rate: jax.Array
    resolution: Fraction = field(metadata={"static": True})

    _event_axes = ("edges", "cost_left", "cost_right")
    _parameters = ("rate",)

    def line(self) -> Line:
        """Return the form that the sampler and closed forms use, in units of the resolution."""
        rate = self.rate[..., None]
        return Line(self.edges, self.cost_left, self.cost_right, rate, self.batch_shape, cells=True)

    @compiled
    def log_prob(self, y: ArrayLike) -> jax.Array:
        """Return log P(Y = y); ``-inf`` where ``y`` is no multiple, up to rounding."""
        number = self._number(y)
        return jnp.where(number > jnp.floor(number), -jnp.inf, super().log_prob(number))

    @compiled
    def mean(self) -> jax.Array:
        """Return the mean, E[Y], of shape ``batch_shape``."""
        return from_multiples(super().mean(), self.resolution)

    @compiled
    def stddev(self) -> jax.Array:
        """Return the standard deviation, of shape ``batch_shape``."""
        return from_multiples(super().stddev(), self.resolution)

    @compiled
    def mean_abs_error(self, center: ArrayLike) -> jax.Array:
        """Return E|Y - center|, the exact error of a draw."""
        return from_multiples(super().mean_abs_error(self._number(center)), self.resolution)

    def _place(self, y: ArrayLike) -> jax.Array:
        return jnp.floor(self._number(y)) + 0.5

    def _value(self, point: jax.Array) -> jax.Array:
        number = jnp.clip(
            jnp.ceil(point - 0.5), self.edges[..., 0] + 0.5, self.edges[..., -1] - 0.5
        )
        return from_multiples(number, self.resolution)

    def _number(self, y: ArrayLike) -> jax.Array:
        """Return y in units of the resolution, an integer where it is a multiple up to rounding."""
        y, nearest = jnp.asarray(y), to_multiples(jnp.asarray(y), self.resolution)
        value = from_multiples(nearest, self.resolution)
        near = jnp.abs(y - value) <= 8 * float(jnp.finfo(self.dtype).eps) * jnp.abs(value)
        inexact = y * (self.resolution.denominator / self.resolution.numerator)
        return jnp.where(near, nearest, inexact)
