"""The sampler: a piece by its probability, then a point in the piece by inverse cdf.

Few draws from a row are two exponential races (the Gumbel-max trick without its logarithms: the
least quotient of exponential noise and weight wins). The row is split into up to 16 slots of
adjacent pieces; lane l has the l-th piece of every slot. The sums of the lanes race, then the
pieces of the winner. So weights are not stored, and a row takes one word of noise for every 16
pieces. A lane is summed in a power of two of its own, so that pieces are read once.

The words of a draw are one that all lanes share, one that all slots share, one for each lane, one
for each slot, and two for the point. Noise of an own and a shared word reaches 2^-65, and is as
good as independent, as the shared word matters only where the own one is 0. Noise above 30 is cut,
which changes a probability by a factor of 1 + 2^-24.

Many draws invert the cumulative sums of the weights in float64, by a binary search; what remains of
the uniform variate in its piece is the position there. A variate has 64 bits and a sum 53, so that
every piece has its share to 2^-53 of the total.

The point is drawn from the end of lower cost, with the mass beyond it from 2^-65 to 1 (or 2^-53). A
NaN, or no piece that has a width, makes the draws of a row NaN. Only the point, given the piece, is
differentiated.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import prod
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dpjax.distributions import truncated_exponential as piece
from dpjax.distributions.line import Lanes, Line, Weights, steepness
from dpjax.numerics.arrays import by_platform, integers, materialized, take
from dpjax.numerics.search import count_leading
from dpjax.random.variates import uniform, words

FEW = 32  # up to this many draws from a row, races cost less than a table
# Draws by the table that are made together: they fit in a CPU's cache, or keep an accelerator busy
_CHUNK, _CHUNK_ON_ACCELERATOR = 2**17, 2**22


def by_races(drawn: jax.Array, weights: Weights) -> tuple[jax.Array, jax.Array]:
    """Draw pieces by two races; return also whether rows have any weight, ``(*batch, 1)``.

    ``drawn`` are at least ``Lanes.of(size).noise`` random words, ``(*batch, draws, words)``.
    """
    split, batch = Lanes.of(weights.size), drawn.shape[:-2]
    slots, lanes = len(split.starts), split.lanes
    sums, base = weights.by_lanes()
    sums = jnp.broadcast_to(sums, (*batch, lanes))
    lane = _race(sums[..., None, :], drawn[..., 2 : lanes + 2], drawn[..., :1])
    at = lane[..., None] + split.starts
    weight = weights.weigh(at.reshape(*batch, -1), base).reshape(at.shape)
    weight = jnp.where(at >= split.begins, weight, 0.0)
    slot = _race(weight, drawn[..., lanes + 2 : lanes + slots + 2], drawn[..., 1:2])
    # Not by the race: a minimum may pass over a NaN.
    exists = jnp.sum(sums, axis=-1, keepdims=True) > 0
    return lane + jnp.asarray(split.starts)[slot], exists


def _race(weights: jax.Array, word: jax.Array, shared: jax.Array) -> jax.Array:
    """Return the index of the least exponential / weight.

    The chance of an index is in proportion to its weight.
    """
    noise = jnp.minimum(-jnp.log1p(-uniform(word, shared, weights.dtype)), 30.0)
    return first_of(jnp.where(weights == 0, jnp.inf, noise / weights))


def first_of(times: jax.Array) -> jax.Array:
    """Return the index of the least time on the last axis, int32; any if it is not a number."""

    def by_minimum(times: jax.Array) -> jax.Array:
        index = jax.lax.broadcasted_iota(jnp.int32, times.shape, times.ndim - 1)
        least = jnp.min(times, axis=-1, keepdims=True)
        first = jnp.where(times == least, index, np.int32(times.shape[-1] - 1))
        return jnp.min(first, axis=-1)

    def by_argmin(times: jax.Array) -> jax.Array:  # one kernel, but slower on the CPU
        return jax.lax.argmin(times, times.ndim - 1, jnp.int32)

    return by_platform(times, cpu=by_minimum, default=by_argmin)


class Table(NamedTuple):
    """The cumulative sums of weights ``(*batch, k)``, float64."""

    weights: jax.Array
    ends: jax.Array

    @staticmethod
    def of(weights: jax.Array) -> Table:
        """Sum the weights up."""
        with jax.enable_x64(True):
            return Table(weights, jnp.cumsum(weights.astype(jnp.float64), axis=-1))

    @property
    def exists(self) -> jax.Array:
        """True for rows that have any weight, ``(*batch, 1)``."""
        return jnp.sum(self.weights, axis=-1, keepdims=True) > 0

    @property
    def last(self) -> jax.Array:
        """The last piece that has weight, int32 ``(*batch, 1)``."""
        index = jax.lax.broadcasted_iota(jnp.int32, self.weights.shape, self.weights.ndim - 1)
        there = jnp.where(self.weights > 0, index, np.int32(0))
        return jnp.max(there, axis=-1, keepdims=True)

    def find(self, drawn: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Return the pieces ``(*batch, draws)`` of random words ``(*batch, draws, 2)``.

        Also the sum up to each piece that remains beyond the draw, float64.
        """
        end = self.last
        with jax.enable_x64(True):
            target = uniform(drawn[..., 0], drawn[..., 1], jnp.float64) * self.ends[..., -1:]
            size = self.ends.shape[-1]
            found = count_leading(lambda at: take(self.ends, at) < target, size, target.shape)
            # Sums in another order may differ by a unit where nothing is added.
            return jnp.minimum(found, end), target

    def share(self, found: jax.Array, target: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Return the shares of the piece below and above the draw."""
        dtype = self.weights.dtype
        with jax.enable_x64(True):
            weight = take(self.weights, found).astype(jnp.float64)
            weight = jnp.where(weight == 0, 1.0, weight)
            above = jnp.clip((take(self.ends, found) - target) / weight, 0.0, 1.0)
            return (1 - above).astype(dtype), above.astype(dtype)


def choose(key: jax.Array, weights: jax.Array, draws: int) -> jax.Array:
    """Draw indices by nonnegative weights ``(*batch, k)``, the largest about 1 in each row.

    Returns:
        int32 ``(*batch, draws)``; arbitrary in a row whose weights are all 0 or not numbers.
    """
    weights, batch = jax.lax.stop_gradient(weights), weights.shape[:-1]
    if draws <= FEW:
        size = weights.shape[-1]
        drawn = words(key, (*batch, draws, Lanes.of(size).noise))
        return by_races(drawn, Weights.of(weights))[0]
    return Table.of(weights).find(words(key, (*batch, draws, 2)))[0]


class Place(NamedTuple):
    """The places of draws in their pieces, ``(*batch, draws)``.

    Attributes:
        piece: int32, the index of the piece.
        start: its lower edge.
        end: its upper edge.
        width: its length.
        rise: rate times the change of the cost from the lower to the upper edge.
        below: the share of the mass of the piece below the draw.
        above: the share above it.
    """

    piece: jax.Array
    start: jax.Array
    end: jax.Array
    width: jax.Array
    rise: jax.Array
    below: jax.Array
    above: jax.Array

    @staticmethod
    def of(line: Line, found: jax.Array, below: jax.Array, above: jax.Array) -> Place:
        """Read the pieces."""
        width, rise = line.width(found), take(line.rise, found)
        return Place(found, *line.ends(found), width, rise, below, above)

    def points(self, exists: jax.Array) -> jax.Array:
        """Return the points; NaN in rows that do not exist."""
        rises = self.rise >= 0
        inner = jnp.where(rises, self.below, self.above)
        outer = jnp.where(rises, self.above, self.below)
        away = self.width * piece.quantile_fraction(inner, outer, steepness(self.rise))
        points = jnp.where(rises, self.start + away, self.end - away)
        return jnp.where(exists, jnp.clip(points, self.start, self.end), jnp.nan)


def sample_pieces(key: jax.Array, line: Line, draws: int) -> tuple[jax.Array, jax.Array]:
    """Draw pieces, int32, and points in them, each ``(*line.batch, draws)``."""
    weights, size, batch = jax.lax.stop_gradient(line).weights(), line.size, line.batch
    if draws <= FEW:
        drawn = words(key, (*batch, draws, Lanes.of(size).noise + 2))
        found, exists = by_races(drawn, weights)
        beyond = uniform(drawn[..., -1], drawn[..., -2], line.dtype)
        falls = take(line.rise, found) < 0
        below = jnp.where(falls, beyond, 1 - beyond)
        above = jnp.where(falls, 1 - beyond, beyond)
        return found, Place.of(line, found, below, above).points(exists)
    table = Table.of(jnp.broadcast_to(weights.of_all()[0], (*batch, size)))
    exists, always = table.exists, table.weights.reshape(-1)[0] != -1  # known only at run time

    def some(drawn: jax.Array) -> tuple[jax.Array, jax.Array]:
        found, target = table.find(drawn)
        place = materialized(lambda: Place.of(line, found, *table.share(found, target)), always)
        return found, place.points(exists)

    def chunks(size: int) -> Callable[[jax.Array], Any]:
        return partial(_in_chunks, some, size // prod(batch))

    drawn = words(key, (*batch, draws, 2))
    return by_platform(drawn, cpu=chunks(_CHUNK), default=chunks(_CHUNK_ON_ACCELERATOR))


def _in_chunks(some: Callable[[jax.Array], Any], step: int, drawn: jax.Array) -> Any:
    """Compute ``some`` of words ``(*batch, draws, 2)`` for ``step`` draws at a time."""
    draws, step = drawn.shape[-2], max(step, 1)
    if draws <= step:
        return some(drawn)
    starts = np.minimum(integers(0, draws, step), np.int32(draws - step))

    def chunk(start: jax.Array) -> Any:
        return some(jax.lax.dynamic_slice_in_dim(drawn, start, step, axis=-2))

    def join(found: jax.Array) -> jax.Array:  # the last two chunks overlap
        whole = jnp.moveaxis(found[:-1], 0, -2).reshape(*found.shape[1:-1], -1)
        return jnp.concatenate([whole, found[-1, ..., whole.shape[-1] - draws :]], axis=-1)

    return jax.tree.map(join, jax.lax.map(chunk, jnp.asarray(starts)))
