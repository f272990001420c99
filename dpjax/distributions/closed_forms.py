"""Closed forms of the piecewise exponential distribution: cdf, quantiles, moments, entropy.

Each is a sum over pieces of a closed form for one truncated exponential distribution
(``truncated_exponential.py``), weighted as in the sampler. Masses are summed from either end, so
that small tails keep their relative precision.

On the multiples of a resolution (``Line.cells``), the cells of a piece have the masses of a
truncated geometric distribution, that is of a truncated exponential variate rounded to its cell.
The place inside a cell is independent of the cell, so a mean or a variance is that on the real line
corrected by a term for this place.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import log, prod
from typing import TYPE_CHECKING, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from dpjax.distributions import truncated_exponential as piece
from dpjax.distributions.base import Distribution, compiled, draws_first
from dpjax.distributions.line import ALL, Line, near, steepness
from dpjax.distributions.sampler import Place, sample_pieces
from dpjax.numerics.arrays import take
from dpjax.numerics.search import count_leading


class OnLine(Distribution):
    """A distribution whose draws and closed forms are computed from its :class:`Line`.

    Points are those of the line, unless a subclass has others: ``_place`` and ``_value``.
    """

    if TYPE_CHECKING:
        edges: jax.Array

        def line(self) -> Line:
            """Return the density in the form that the sampler and closed forms use."""

    @property
    def support(self) -> tuple[jax.Array, jax.Array]:
        """The smallest and the largest value, each of shape ``batch_shape``."""
        low, high = (
            jnp.broadcast_to(self._value(self.edges[..., end]), self.batch_shape) for end in (0, -1)
        )
        return low, high

    @property
    def _masses(self) -> Masses:
        line = self.line()
        return Masses(line, *line.weights().of_all())

    def _sample(self, key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
        points = sample_pieces(key, self.line(), prod(shape))[1]
        return self._value(draws_first(points, shape))

    def _place(self, y: ArrayLike) -> jax.Array:
        """Return the last point of the line whose value is at most y."""
        return jnp.asarray(y)

    def _value(self, point: jax.Array) -> jax.Array:
        """Return the value of a point of the line."""
        return point

    @compiled
    def log_prob(self, y: ArrayLike) -> jax.Array:
        """Return the log-density at ``y``, ``-inf`` outside the support.

        At an edge it is the limit from the right, at the last edge from the left.

        Args:
            y: float that broadcasts against ``batch_shape``.

        Returns:
            Float of the broadcast shape.
        """
        y, masses = jnp.asarray(y), self._masses
        line = masses.line
        here = masses.at(y[..., None])
        inside = here.width > 0
        if line.widths is None:  # otherwise tails continue
            inside &= (here.away >= 0) & (here.away <= 1)
        # The cost of a cell is that at its end of higher cost.
        away = here.away + 0.5 / jnp.maximum(here.width, 1.0) if line.cells else here.away
        energy = take(masses.energy, here.piece) + here.decay * away
        value = jnp.where(inside, -energy, -jnp.inf) - jnp.log(masses.total)
        return jnp.where(jnp.isnan(y), jnp.nan, value[..., 0])

    @compiled
    def cdf(self, y: ArrayLike) -> jax.Array:
        """Return P(Y <= y), at full relative precision in the lower tail."""
        return self._masses.tail(self._place(y), upper=False)

    @compiled
    def survival(self, y: ArrayLike) -> jax.Array:
        """Return P(Y > y), at full relative precision in the upper tail."""
        return self._masses.tail(self._place(y), upper=True)

    @compiled
    def quantile(self, p: ArrayLike) -> jax.Array:
        """Return the smallest y with ``cdf(y) >= p``, up to rounding; NaN outside [0, 1].

        Pieces whose mass underflows are not reached: in float32, ``quantile(1.0)`` can lie inside
        the support.
        """
        p = jnp.asarray(p)[..., None]
        return self._value(self._masses.quantile(p, 1 - p)[..., 0])

    @compiled
    def interval(self, level: ArrayLike) -> tuple[jax.Array, jax.Array]:
        """Return the central interval of probability ``level``.

        Each side leaves out ``(1 - level) / 2``, or at most that on multiples of a resolution. Each
        end is found from its own tail.

        Args:
            level: float in [0, 1] that broadcasts against ``batch_shape``.

        Returns:
            The lower and the upper end.
        """
        outside = (1 - jnp.asarray(level)) / 2
        p = jnp.stack([outside, 1 - outside], axis=-1)
        ends = self._masses.quantile(p, jnp.flip(p, -1))
        return self._value(ends[..., 0]), self._value(ends[..., 1])

    @compiled
    def mean(self) -> jax.Array:
        """Return the mean, E[Y], of shape ``batch_shape``."""
        return self._masses.mean()[..., 0]

    def variance(self) -> jax.Array:
        """Return the variance, ``batch_shape``; it can underflow where :meth:`stddev` does not."""
        return jnp.square(self.stddev())

    @compiled
    def stddev(self) -> jax.Array:
        """Return the standard deviation, of shape ``batch_shape``."""
        masses = self._masses
        line = masses.line
        away, width = masses.means_from(masses.mean()), line.width(ALL)
        # In units of the largest weighted distance, so that squares neither over- nor underflow.
        root = jnp.sqrt(jax.lax.stop_gradient(masses.weight / masses.total))
        largest = jnp.max(root * (jnp.abs(away) + width), axis=-1, keepdims=True)
        unit = jax.lax.stop_gradient(jnp.where(largest > 0, largest, 1.0))
        inside = jnp.square(width / unit) * piece.variance_fraction(line.decay)
        if line.cells:
            of_cell = piece.variance_fraction(line.cell_decay) / jnp.square(unit)
            inside = jnp.where(width > 1, inside - of_cell, 0.0)
        square = masses.average(jnp.square(away / unit) + inside)
        certain = ~(square > 0)  # the square root has no derivative at 0
        root = unit * jnp.sqrt(jnp.where(certain, 1.0, square))
        return jnp.where(certain, 0 * square, root)[..., 0]

    @compiled
    def mean_abs_error(self, center: ArrayLike) -> jax.Array:
        """Return E|Y - center|, the exact error of a draw."""
        center, masses = jnp.asarray(center)[..., None], self._masses
        total = masses.average(jnp.abs(masses.means_from(center)))
        # In the piece that contains the center, E|Y - c| replaces |E Y - c|, which is not larger.
        here = masses.at(center)
        within = (here.away > 0) & (here.away < 1)
        excess = here.weight * here.error_in_piece(masses.line.cells)
        return (total + jnp.where(within, excess, 0.0) / masses.total)[..., 0]

    @compiled
    def entropy(self) -> jax.Array:
        """Return the entropy -E[log p(Y)] in nats, of shape ``batch_shape``."""
        masses = self._masses
        line = masses.line
        energy = masses.energy + line.decay * piece.mean_fraction(line.decay)
        if line.cells:  # from the mean cost over a cell to that at its end of higher cost
            energy = energy + line.cell_decay * (1 - piece.mean_fraction(line.cell_decay))
        found = (jnp.log(masses.total) + masses.average(energy))[..., 0]
        return jnp.maximum(found, 0.0) if line.cells else found


@dataclass(frozen=True)
class Masses:
    """The pieces of a line, their weights ``(*batch, pieces)`` and the base of each row.

    Points are on the last axis of arrays whose other axes broadcast against the batch.
    """

    line: Line
    weight: jax.Array
    base: jax.Array

    @cached_property
    def total(self) -> jax.Array:
        """The total weight, ``(*batch, 1)``."""
        return jnp.sum(self.weight, axis=-1, keepdims=True)

    def beyond(self, *, upper: bool) -> jax.Array:
        """Return the weight below each edge, or above it, ``(*batch, pieces + 1)``."""
        last = self.weight.ndim - 1
        sums = jax.lax.cumsum(self.weight, last, reverse=upper)
        return jnp.pad(sums, [(0, 0)] * last + [(0, 1) if upper else (1, 0)])

    @property
    def energy(self) -> jax.Array:
        """Rate times the lower cost of each piece, relative to the base of its row.

        Far ones are brought nearer, as the sampler's are, in all rows alike: a density that is
        exact in one row and not in its neighbor's would lose more than draws do.
        """
        nats = self.line.heights.nats
        with jax.enable_x64(True):
            energy = near(nats) - log(2) * self.base.astype(jnp.float64)
            energy = jnp.where(self.line.low == jnp.inf, jnp.inf, energy)
            return energy.astype(self.line.dtype)

    def average(self, terms: jax.Array) -> jax.Array:
        """Average a quantity that is known for each piece, ``(..., 1)``."""
        terms = jnp.where(self.weight == 0, 0.0, terms)
        return jnp.sum(self.weight * terms, axis=-1, keepdims=True) / self.total

    def means_from(self, origin: jax.Array) -> jax.Array:
        """Return the mean of each piece minus ``origin``, without loss of precision by offsets."""
        start, end = self.line.ends(ALL)
        offset = self.line.width(ALL) * piece.mean_fraction(self.line.decay)
        if self.line.cells:  # the middle of a cell lies further out than the mean inside it
            offset = offset + (0.5 - piece.mean_fraction(self.line.cell_decay))
        return jnp.where(self.line.rise >= 0, (start - origin) + offset, (end - origin) - offset)

    def mean(self) -> jax.Array:
        """Return the mean, with the relative precision of its distance from most of the mass."""
        zero = jnp.zeros_like(self.total)
        rough = jax.lax.stop_gradient(self.average(self.means_from(zero)))
        return rough + self.average(self.means_from(rough))

    def at(self, y: jax.Array) -> Inside:
        """Return the pieces that contain points, to the right of an edge where there is one."""
        line, edges = self.line, self.line.edges

        def passed(index: jax.Array) -> jax.Array:
            edge = take(edges, index + np.int32(1))
            return jnp.where(y < edges[..., -1:], edge <= y, edge < y)

        shape = jnp.broadcast_shapes(y.shape, self.total.shape)
        found = count_leading(passed, line.size - 1, shape)
        (start, end), width, rise = line.ends(found), line.width(found), take(line.rise, found)
        away = jnp.where(rise >= 0, y - start, end - y) / jnp.where(width > 0, width, 1.0)
        return Inside(found, width, rise >= 0, steepness(rise), take(self.weight, found), away)

    def tail(self, y: jax.Array, *, upper: bool) -> jax.Array:
        """Return the probability below points of any shape, or above them."""
        here = self.at(y[..., None])
        rest = take(self.beyond(upper=upper), here.piece + np.int32(upper))
        value = rest + here.part(upper=upper)
        return jnp.where(jnp.isnan(y), jnp.nan, jnp.clip(value / self.total, 0.0, 1.0)[..., 0])

    def quantile(self, p: jax.Array, complement: jax.Array) -> jax.Array:
        """Return the points with mass ``p`` below and ``complement`` = 1 - p above them.

        The result is as precise as the smaller of the two.
        """
        below, above = self.beyond(upper=False), self.beyond(upper=True)
        upper = p > complement
        target = jnp.where(upper, complement, p) * self.total

        def until(edge: jax.Array) -> jax.Array:
            """Return the mass from an edge up to the point."""
            return jnp.where(upper, take(above, edge) - target, target - take(below, edge))

        one = np.int32(1)
        found = count_leading(lambda i: until(i + one) > 0, self.line.size - 1, target.shape)
        weight = take(self.weight, found)
        weight = jnp.where(weight > 0, weight, 1.0)
        shares = (jnp.clip(part / weight, 0.0, 1.0) for part in (until(found), -until(found + one)))
        value = Place.of(self.line, found, *shares).points(self.total > 0)
        if (widths := self.line.widths) is not None:  # tails have no end
            value = value - jnp.where((p == 0) & (widths[..., :1] > 0), jnp.inf, 0.0)
            value = value + jnp.where((complement == 0) & (widths[..., -1:] > 0), jnp.inf, 0.0)
        return jnp.where((p >= 0) & (p <= 1), value, jnp.nan)


class Inside(NamedTuple):
    """Points in pieces, ``(..., samples)``.

    Attributes:
        piece: int32, the index of the piece.
        width: its length.
        rises: true where the lower edge has the lower cost.
        decay: rate times the change of the cost, nonnegative.
        weight: the weight of the piece.
        away: the distance of the point from the end of lower cost, in widths.
    """

    piece: jax.Array
    width: jax.Array
    rises: jax.Array
    decay: jax.Array
    weight: jax.Array
    away: jax.Array

    def part(self, *, upper: bool) -> jax.Array:
        """Return the weight of the piece below the point, or above it."""
        near, far = _shares(jnp.clip(self.away, 0.0, 1.0), self.decay)
        return self.weight * jnp.where(self.rises ^ upper, near, far)

    def error_in_piece(self, cells: bool) -> jax.Array:
        """Return by how much E|Y - c| exceeds |E[Y] - c|, in the piece that contains the point c.

        Distances are from the end of lower cost.
        """
        width = jnp.where(self.width > 0, self.width, 1.0)
        center = cut = jnp.clip(self.away, 0.0, 1.0) * width
        offset = jnp.zeros_like(width)
        if cells:
            cut = jnp.floor(center + 0.5)
            offset = 0.5 - piece.mean_fraction(self.decay / width)

        def mean(length: jax.Array) -> jax.Array:
            return length * piece.mean_fraction(self.decay * (length / width)) + offset

        near, far = _shares(cut / width, self.decay)
        exact = near * (center - mean(cut)) + far * ((cut - center) + mean(width - cut))
        return exact - jnp.abs(mean(width) - center)


def _shares(near: jax.Array, decay: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Return the shares of a piece nearer to its end of lower cost than a point, and further."""
    # A product avoids a cancelling difference.
    beyond = jnp.exp(-decay * near) * piece.cdf_fraction(1 - near, decay)
    return piece.cdf_fraction(near, decay), beyond
