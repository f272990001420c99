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

from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from dpjax.distributions import closed_forms, sampling
from dpjax.distributions import truncated_exponential as piece
from dpjax.distributions.base import Distribution, compiled
from dpjax.distributions.closed_forms import (
    Found,
    Half,
    Resolved,
    average,
    by_rows,
    center_of,
    each_point,
)
from dpjax.distributions.line import Line, OnLine, Side
from dpjax.numerics.multiples import from_multiples, to_multiples


@jax.tree_util.register_dataclass
@dataclass(frozen=True, repr=False)
class Rounded(Distribution):
    """A distribution on the multiples of a public resolution, P(y) ~ ``exp(-rate * cost(y))``.

    Leading axes are a batch. Mechanisms return it for a profile with a resolution; what
    ``dpjax.release`` draws from has flat runs in its place. All methods except ``sample`` are
    closed forms; probabilities are those of single multiples.

    It is stored as two sides that extend outwards, in units of the resolution. All edges are
    half-integers, so that a multiple is a cell of width 1. The cost of a multiple is the cost at
    the outer end of its cell; it is nondecreasing outwards.

    Attributes:
        lower: the pieces below the value, outwards.
        upper: the pieces from the value on, outwards; the first one is the cell of the value.
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

    lower: Side
    upper: Side
    rate: jax.Array
    resolution: Fraction = field(metadata={"static": True})

    _event_axes = ("lower", "upper")
    _parameters = ("rate",)

    @property
    def dtype(self) -> Any:
        """The dtype of every result."""
        return self.upper.values.dtype

    def line(self) -> Line:
        """Return the form that the sampler and closed forms use, in units of the resolution."""
        return Line.of(
            (self.lower, self.upper), self.rate[..., None], None, self.batch_shape, cells=True
        )

    @property
    def support(self) -> tuple[jax.Array, jax.Array]:
        """The smallest and the largest value, of shape ``batch_shape`` each."""
        low, high = (
            jnp.broadcast_to(from_multiples(end, self.resolution), self.batch_shape)
            for end in self._ends
        )
        return low, high

    @property
    def _ends(self) -> tuple[jax.Array, jax.Array]:
        return self.lower.values[..., -1] + 0.5, self.upper.values[..., -1] - 0.5

    def _sample(self, key: jax.Array, shape: tuple[int, ...], first: ArrayLike = 0) -> jax.Array:
        return self._value(jnp.floor(sampling.sample(key, self, shape, "auto", first) + 0.5))

    @compiled
    def log_prob(self, y: ArrayLike) -> jax.Array:
        """Return log P(Y = y); ``-inf`` where ``y`` is no multiple, up to rounding."""
        number = to_multiples(jnp.asarray(y), self.resolution)
        there = self._is_near(y, number)
        return jnp.where(there | jnp.isnan(y), _log_prob(self, number), -jnp.inf)

    @compiled
    def cdf(self, y: ArrayLike) -> jax.Array:
        """Return P(Y <= y)."""
        return closed_forms.cdf(self, self._last(y) + 0.5)

    @compiled
    def survival(self, y: ArrayLike) -> jax.Array:
        """Return P(Y > y), summed from the upper tail."""
        negated = replace(self, lower=self.upper.negated(), upper=self.lower.negated())
        return closed_forms.cdf(negated, -(self._last(y) + 0.5))

    @compiled
    def quantile(self, p: ArrayLike) -> jax.Array:
        """Return the smallest multiple with ``cdf(multiple) >= p``, up to rounding.

        It is NaN for ``p`` outside [0, 1].
        """
        p = jnp.asarray(p)
        return self._value(jnp.ceil(closed_forms.quantile(self, p, 1 - p) - 0.5))

    @compiled
    def interval(self, level: ArrayLike) -> tuple[jax.Array, jax.Array]:
        """Return the ends of the central interval of probability ``level``.

        Each side leaves out at most ``(1 - level) / 2``, up to rounding.
        """
        ends = closed_forms.interval(self, (1 - jnp.asarray(level)) / 2)
        low, high = (self._value(jnp.ceil(end - 0.5)) for end in ends)
        return low, high

    @compiled
    def mean(self) -> jax.Array:
        """Return the mean, E[Y], of shape ``batch_shape``."""
        return from_multiples(by_rows(lambda r: _mean_from(r, center_of(r)), self), self.resolution)

    def variance(self) -> jax.Array:
        """Return the variance, E[(Y - E[Y])^2], of shape ``batch_shape``."""
        return jnp.square(self.stddev())

    @compiled
    def stddev(self) -> jax.Array:
        """Return the standard deviation, of shape ``batch_shape``."""

        def compute(r: Resolved) -> jax.Array:
            origin = jax.lax.stop_gradient(_mean_from(r, center_of(r)))

            def of_pieces(half: Half) -> jax.Array:
                inside = jnp.square(half.side.widths()) * piece.variance_fraction(
                    half.decay
                ) - piece.variance_fraction(_of_a_cell(half))
                return jnp.square(_means(half, origin)) + inside

            square = average(r, of_pieces, _no_tail)
            square = jnp.maximum(square - jnp.square(_mean_from(r, origin) - origin), 0.0)
            # All mass on one value, at a large epsilon; sqrt has no derivative at 0.
            certain = square == 0
            return jnp.where(certain, 0.0, jnp.sqrt(jnp.where(certain, 1.0, square)))

        return from_multiples(by_rows(compute, self), self.resolution)

    @compiled
    def mean_abs_error(self, center: ArrayLike) -> jax.Array:
        """Return E|Y - center|, the exact error of a draw."""
        at = jnp.asarray(center) * (self.resolution.denominator / self.resolution.numerator)
        near = to_multiples(jnp.asarray(center), self.resolution)
        at = jnp.where(self._is_near(center, near), near, at)
        return from_multiples(_mean_abs_error(self, at), self.resolution)

    @compiled
    def entropy(self) -> jax.Array:
        """Return the entropy in nats, of shape ``batch_shape``."""

        def of_places(half: Half) -> jax.Array:
            """Return the cost at the outer end of a cell minus the mean cost over the cell."""
            s = _of_a_cell(half)
            return s * (1 - piece.mean_fraction(s))

        return jnp.maximum(
            closed_forms.entropy(self) + by_rows(lambda r: average(r, of_places, _no_tail), self),
            0.0,
        )

    def _value(self, number: jax.Array) -> jax.Array:
        return from_multiples(jnp.clip(number, *self._ends), self.resolution)

    def _is_near(self, y: ArrayLike, number: jax.Array) -> jax.Array:
        """Return True where y is this multiple, up to rounding."""
        value = from_multiples(number, self.resolution)
        return jnp.abs(y - value) <= 8 * float(jnp.finfo(self.dtype).eps) * jnp.abs(value)

    def _last(self, y: ArrayLike) -> jax.Array:
        """Return the index of the largest multiple up to y."""
        number = to_multiples(jnp.asarray(y), self.resolution)
        return jnp.where(
            (from_multiples(number, self.resolution) <= y) | self._is_near(y, number),
            number,
            number - 1,
        )


def _of_a_cell(half: Half) -> jax.Array:
    """Return the decay over one cell of each piece."""
    return half.decay / jnp.maximum(half.side.widths(), 1.0)


def _means(half: Half, origin: jax.Array) -> jax.Array:
    """Return the mean of each piece on the grid minus ``origin``.

    The middle of a cell is further out than the mean inside it.
    """
    return half.mean_from(origin) + half.sign * (0.5 - piece.mean_fraction(_of_a_cell(half)))


def _no_tail(half: Half) -> jax.Array:
    return jnp.zeros_like(half.tail)


def _mean_from(r: Resolved, origin: jax.Array) -> jax.Array:
    return origin + average(r, lambda half: _means(half, origin), _no_tail)


def _piece_of(r: Resolved, number: jax.Array) -> tuple[Found, jax.Array, jax.Array]:
    """Return the piece that contains a cell, its number of cells, and how many are further in."""
    upper = number >= center_of(r)
    here = r.piece_at(upper, r.locate(number, upper))
    cells = jnp.maximum(jnp.abs(here.far - here.near), 1.0)
    return here, cells, jnp.clip(jnp.abs(number - here.near) - 0.5, 0.0, cells - 1)


def _log_prob(distribution: OnLine, number: jax.Array) -> jax.Array:
    def compute(r: Resolved, number: jax.Array) -> jax.Array:
        low, high = r.halves
        here, cells, before = _piece_of(r, number)
        share = (before + 1) / cells
        fall = r.line.rate * (here.low_cost - r.base.cost) + here.decay * jnp.where(
            here.rises, share, 1 - share
        )
        inside = (number > low.end) & (number < high.end)
        value = jnp.where(inside, -fall, -jnp.inf)
        return jnp.where(jnp.isnan(number), jnp.nan, value - r.log_normalizer)

    return by_rows(compute, distribution, number)


def _mean_abs_error(distribution: OnLine, center: jax.Array) -> jax.Array:
    def compute(r: Resolved, center: jax.Array) -> jax.Array:
        total = jnp.zeros_like(center)
        for half in r.halves:
            means = each_point(partial(_means, half), center)
            total = total + jnp.sum(half.weight[..., None, :] * jnp.abs(means), axis=-1)
        # In the piece that contains the center, E|Y - c| replaces |E Y - c|, which is not larger.
        here, cells, _ = _piece_of(r, jnp.floor(center + 0.5))
        s = here.decay / cells
        # The cells of the piece lie at 0, 1, ..., cells - 1, counted outwards.
        d = jnp.abs(center - here.near) - 0.5
        inside = (d > 0) & (d < cells - 1) & ((center - here.near) * (here.far - center) > 0)
        first = jnp.clip(jnp.floor(d) + 1, 0.0, cells)
        rest = cells - first
        offset = 0.5 - piece.mean_fraction(s) - 0.5
        share, decay = first / cells, here.decay
        part = (
            piece.cdf_fraction(share, decay),
            jnp.exp(-decay * share) * piece.cdf_fraction(1 - share, decay),
        )
        mean_first = first * piece.mean_fraction(decay * share) + offset
        mean_rest = first + rest * piece.mean_fraction(decay * (1 - share)) + offset
        exact = part[0] * (d - mean_first) + part[1] * (mean_rest - d)
        rough = jnp.abs(cells * piece.mean_fraction(decay) + offset - d)
        return (total + jnp.where(inside, here.weight * (exact - rough), 0.0)) / r.total

    return by_rows(compute, distribution, center)
