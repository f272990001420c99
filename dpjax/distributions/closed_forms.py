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

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from math import log
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from dpjax.distributions import truncated_exponential as piece
from dpjax.distributions.line import ALL, Line
from dpjax.distributions.sampler import Place
from dpjax.numerics.arrays import take
from dpjax.numerics.search import count_leading


class OnLine(Protocol):
    """A distribution whose draws and closed forms are computed from its :class:`Line`."""

    @property
    def batch_shape(self) -> tuple[int, ...]:
        """The broadcast shape of all fields, without the axis of pieces."""

    @property
    def dtype(self) -> Any:
        """The dtype of every result."""

    def line(self) -> Line:
        """Return the density in the form that the sampler and closed forms use."""


@dataclass(frozen=True)
class Masses:
    """The pieces of a line, their weights ``(*batch, pieces)`` and the base of each row."""

    line: Line
    weight: jax.Array
    base: jax.Array

    @staticmethod
    def of(line: Line) -> Masses:
        """Weigh all pieces."""
        weigh, base = line.weigher()
        return Masses(line, jnp.broadcast_to(weigh(ALL), (*line.batch, line.size)), base)

    @cached_property
    def total(self) -> jax.Array:
        """The total weight, ``(*batch, 1)``."""
        return jnp.sum(self.weight, axis=-1, keepdims=True)

    @cached_property
    def below(self) -> jax.Array:
        """The weight below each edge, ``(*batch, pieces + 1)``."""
        return self._with_zero(jnp.cumsum(self.weight, axis=-1), (1, 0))

    @cached_property
    def above(self) -> jax.Array:
        """The weight above each edge, ``(*batch, pieces + 1)``."""
        sums = jax.lax.cumsum(self.weight, self.weight.ndim - 1, reverse=True)
        return self._with_zero(sums, (0, 1))

    def _with_zero(self, sums: jax.Array, where: tuple[int, int]) -> jax.Array:
        return jnp.pad(sums, [(0, 0)] * (sums.ndim - 1) + [where])

    @cached_property
    def energy(self) -> jax.Array:
        """Rate times the lower cost of each piece, relative to the base of its row."""
        heights = self.line.heights
        with jax.enable_x64(True):
            energy = heights.rate * self.line.low.astype(jnp.float64)
            return (energy - log(2) * self.base.astype(jnp.float64)).astype(self.line.dtype)

    @cached_property
    def log_normalizer(self) -> jax.Array:
        """The log of Z, ``(*batch, 1)``."""
        with jax.enable_x64(True):
            energy = log(2) * self.base.astype(jnp.float64)
            return (jnp.log(self.total.astype(jnp.float64)) - energy).astype(self.line.dtype)

    def average(self, terms: jax.Array) -> jax.Array:
        """Average a quantity that is known for each piece, ``(*batch, 1)``."""
        terms = jnp.where(self.weight == 0, 0.0, terms)
        return jnp.sum(self.weight * terms, axis=-1, keepdims=True) / self.total

    def means_from(self, origin: jax.Array) -> jax.Array:
        """Return the mean of each piece minus ``origin``, without loss of precision by offsets."""
        start, end = self.line.ends(ALL)
        offset = self.line.width(ALL) * piece.mean_fraction(self.line.decay)
        if self.line.cells:  # the middle of a cell lies further out than the mean inside it
            offset = offset + (0.5 - piece.mean_fraction(self.line.cell_decay))
        return jnp.where(self.line.rise >= 0, (start - origin) + offset, (end - origin) - offset)

    def mean_from(self, origin: jax.Array) -> jax.Array:
        """Return the mean minus ``origin``, ``(*batch, 1)``."""
        return self.average(self.means_from(origin))

    def mean(self) -> jax.Array:
        """Return the mean, with the relative precision of its distance from most of the mass."""
        rough = jax.lax.stop_gradient(self.mean_from(jnp.zeros_like(self.total)))
        return rough + self.mean_from(rough)

    def at(self, y: jax.Array) -> Inside:
        """Return the pieces that contain points, to the right of an edge where there is one."""
        size, edges = self.line.size, self.line.edges
        top = y == edges[..., -1:]

        def passed(index: jax.Array) -> jax.Array:
            edge = take(edges, index + np.int32(1))
            return (edge < y) | ((edge == y) & ~top)

        found = jnp.minimum(count_leading(passed, size, y.shape), np.int32(size - 1))
        start, end = self.line.ends(found)
        rise, width = take(self.line.rise, found), self.line.width(found)
        away = jnp.where(rise >= 0, y - start, end - y) / jnp.where(width > 0, width, 1.0)
        return Inside(found, width, rise >= 0, jnp.abs(rise), take(self.weight, found), away)


class Inside(NamedTuple):
    """Points in pieces, ``(*batch, samples)``.

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

    def parts(self) -> tuple[jax.Array, jax.Array]:
        """Return the weight of the piece below and above the point."""
        away = jnp.clip(self.away, 0.0, 1.0)
        near = self.weight * piece.cdf_fraction(away, self.decay)
        # A product avoids a cancelling difference.
        far = jnp.exp(-self.decay * away) * piece.cdf_fraction(1 - away, self.decay)
        far = self.weight * far
        return jnp.where(self.rises, near, far), jnp.where(self.rises, far, near)


def by_rows(
    compute: Callable[..., jax.Array], distribution: OnLine, *points: jax.Array
) -> jax.Array:
    """Return ``compute(masses, *points)`` for points that broadcast against the batch.

    ``compute`` gets points ``(*batch, samples)``, and returns an array of that shape, or ``(*batch,
    1)`` if there are no points.
    """
    shape = jnp.broadcast_shapes(distribution.batch_shape, *(p.shape for p in points))
    rank = len(shape) - len(distribution.batch_shape)
    batch = shape[rank:]
    columns = [jnp.moveaxis(jnp.broadcast_to(p, shape).reshape(-1, *batch), 0, -1) for p in points]
    found = compute(Masses.of(replace(distribution.line(), batch=batch)), *columns)
    samples = columns[0].shape[-1] if columns else 1
    return jnp.moveaxis(jnp.broadcast_to(found, (*batch, samples)), -1, 0).reshape(shape)


@jax.jit
def log_normalizer(distribution: OnLine) -> jax.Array:
    return by_rows(lambda masses: masses.log_normalizer, distribution)


@jax.jit
def log_prob(distribution: OnLine, y: jax.Array) -> jax.Array:
    def compute(masses: Masses, y: jax.Array) -> jax.Array:
        here, line = masses.at(y), masses.line
        inside = here.width > 0
        if line.widths is None:  # otherwise tails continue
            inside &= (here.away >= 0) & (here.away <= 1)
        # The cost of a cell is that at its end of higher cost.
        away = here.away + 0.5 / jnp.maximum(here.width, 1.0) if line.cells else here.away
        energy = take(masses.energy, here.piece) + here.decay * away
        value = jnp.where(inside, -energy, -jnp.inf) - jnp.log(masses.total)
        return jnp.where(jnp.isnan(y), jnp.nan, value)

    return by_rows(compute, distribution, y)


@jax.jit
def cdf(distribution: OnLine, y: jax.Array) -> jax.Array:
    """Return P(Y <= y), at full relative precision in the lower tail."""

    def compute(masses: Masses, y: jax.Array) -> jax.Array:
        here = masses.at(y)
        value = (take(masses.below, here.piece) + here.parts()[0]) / masses.total
        return jnp.where(jnp.isnan(y), jnp.nan, jnp.clip(value, 0.0, 1.0))

    return by_rows(compute, distribution, y)


@jax.jit
def survival(distribution: OnLine, y: jax.Array) -> jax.Array:
    """Return P(Y > y), at full relative precision in the upper tail."""

    def compute(masses: Masses, y: jax.Array) -> jax.Array:
        here = masses.at(y)
        value = (take(masses.above, here.piece + np.int32(1)) + here.parts()[1]) / masses.total
        return jnp.where(jnp.isnan(y), jnp.nan, jnp.clip(value, 0.0, 1.0))

    return by_rows(compute, distribution, y)


@jax.jit
def quantile(distribution: OnLine, p: jax.Array, complement: jax.Array) -> jax.Array:
    """Return the point with mass ``p`` below and ``complement`` = 1 - p above it.

    The result is as precise as the smaller of the two.
    """

    def compute(masses: Masses, p: jax.Array, complement: jax.Array) -> jax.Array:
        line, below, above, upper = masses.line, masses.below, masses.above, p > complement
        target = jnp.where(upper, complement, p) * masses.total

        def passed(index: jax.Array) -> jax.Array:
            end = index + np.int32(1)
            return jnp.where(upper, take(above, end) >= target, take(below, end) < target)

        found = jnp.minimum(count_leading(passed, line.size, p.shape), np.int32(line.size - 1))
        end = found + np.int32(1)
        weight = take(masses.weight, found)
        weight = jnp.where(weight > 0, weight, 1.0)

        def share(upwards: jax.Array, downwards: jax.Array) -> jax.Array:
            return jnp.clip(jnp.where(upper, downwards, upwards) / weight, 0.0, 1.0)

        inner = share(target - take(below, found), take(above, found) - target)
        outer = share(take(below, end) - target, target - take(above, end))
        value = Place.of(line, found, inner, outer).points(masses.total > 0)
        return jnp.where((p >= 0) & (p <= 1), value, jnp.nan)

    return by_rows(compute, distribution, p, complement)


@jax.jit
def interval(distribution: OnLine, outside: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Return the points that leave out ``outside`` on either side, each found from its own tail."""
    outside = jnp.broadcast_to(
        outside, jnp.broadcast_shapes(outside.shape, distribution.batch_shape)
    )
    ends = quantile(
        distribution, jnp.stack([outside, 1 - outside]), jnp.stack([1 - outside, outside])
    )
    return ends[0], ends[1]


@jax.jit
def mean(distribution: OnLine) -> jax.Array:
    return by_rows(Masses.mean, distribution)


@jax.jit
def stddev(distribution: OnLine) -> jax.Array:
    def compute(masses: Masses) -> jax.Array:
        line = masses.line
        away = masses.means_from(masses.mean())
        # In units of the largest weighted distance, so that squares neither over- nor underflow.
        root = jnp.sqrt(jax.lax.stop_gradient(masses.weight / masses.total))
        largest = jnp.max(root * (jnp.abs(away) + line.width(ALL)), axis=-1, keepdims=True)
        unit = jax.lax.stop_gradient(jnp.where(largest > 0, largest, 1.0))
        inside = jnp.square(line.width(ALL) / unit) * piece.variance_fraction(line.decay)
        if line.cells:
            inside = inside - piece.variance_fraction(line.cell_decay) / jnp.square(unit)
        square = masses.average(jnp.square(away / unit) + inside)
        certain = ~(square > 0)  # the square root has no derivative at 0
        return jnp.where(certain, 0 * square, unit * jnp.sqrt(jnp.where(certain, 1.0, square)))

    return by_rows(compute, distribution)


@jax.jit
def mean_abs_error(distribution: OnLine, center: jax.Array) -> jax.Array:
    def compute(masses: Masses, center: jax.Array) -> jax.Array:
        def rough(center: jax.Array) -> jax.Array:
            return masses.average(jnp.abs(masses.means_from(center[..., None])))[..., 0]

        total = jax.vmap(rough, -1, -1)(center)
        # In the piece that contains the center, E|Y - c| replaces |E Y - c|, which is not larger.
        here = masses.at(center)
        inside = _error_in_cells(here) if masses.line.cells else _error(here)
        within = (here.away > 0) & (here.away < 1)
        return total + jnp.where(within, here.weight * inside, 0.0) / masses.total

    return by_rows(compute, distribution, center)


def _error(here: Inside) -> jax.Array:
    """Return by how much E|Y - c| exceeds |E[Y] - c|, in the piece that contains the point c."""
    near, s = jnp.clip(here.away, 0.0, 1.0), here.decay
    far = 1 - near
    before = near * near * piece.mass_fraction(s * near) * (1 - piece.mean_fraction(s * near))
    beyond = far * far * piece.mass_fraction(s * far) * piece.mean_fraction(s * far)
    exact = (before + jnp.exp(-s * near) * beyond) / piece.mass_fraction(s)
    return here.width * (exact - jnp.abs(near - piece.mean_fraction(s)))


def _error_in_cells(here: Inside) -> jax.Array:
    """Return the same for a piece of cells, at 0, 1, ... from its end of lower cost."""
    cells, decay = jnp.maximum(here.width, 1.0), here.decay
    d = here.away * cells - 0.5
    first = jnp.clip(jnp.floor(d) + 1, 0.0, cells)
    share, offset = first / cells, -piece.mean_fraction(decay / cells)
    near = piece.cdf_fraction(share, decay)
    far = jnp.exp(-decay * share) * piece.cdf_fraction(1 - share, decay)
    mean_near = first * piece.mean_fraction(decay * share) + offset
    mean_far = first + (cells - first) * piece.mean_fraction(decay * (1 - share)) + offset
    exact = near * (d - mean_near) + far * (mean_far - d)
    rough = jnp.abs(cells * piece.mean_fraction(decay) + offset - d)
    return jnp.where((d > 0) & (d < cells - 1), exact - rough, 0.0)


@jax.jit
def entropy(distribution: OnLine) -> jax.Array:
    def compute(masses: Masses) -> jax.Array:
        line = masses.line
        energy = masses.energy + line.decay * piece.mean_fraction(line.decay)
        if line.cells:  # from the mean cost over a cell to that at its end of higher cost
            energy = energy + line.cell_decay * (1 - piece.mean_fraction(line.cell_decay))
        return jnp.log(masses.total) + masses.average(energy)

    return by_rows(compute, distribution)
