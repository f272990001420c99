"""Densities on the real line, exp(-rate * cost(y)) / Z, as samplers and closed forms use them.

The cost is linear on the pieces of two sides, which extend outwards from a center, as those of a
sensitivity profile do. The sides are never joined in ascending order: on the CPU, reversing and
joining arrays of the size of the data costs more than a draw. Padding at the far end of a side has
width 0 and does not affect the values before it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from math import prod
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from dpjax.distributions import truncated_exponential as piece
from dpjax.distributions.weights import Base, Heights
from dpjax.numerics.batching import broadcast_rows, concatenate, in_memory, some_rows, take, window
from dpjax.numerics.elementwise import clip, where

_BLOCK = 2**18  # pieces that are processed together, so that they and temporaries fit in the cache


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Side:
    """The pieces on one side of the center; piece i lies between values i and i + 1.

    Attributes:
        values: float ``(..., k+1)``, monotone, from the center outwards.
        cost_near: float ``(..., k)``, the cost at the inner end of each piece.
        cost_far: float ``(..., k)``, the cost at the outer end.
    """

    values: jax.Array
    cost_near: jax.Array
    cost_far: jax.Array

    @property
    def size(self) -> int:
        """The number of pieces k."""
        return self.values.shape[-1] - 1

    @property
    def length(self) -> jax.Array:
        """The total length of the pieces, ``(..., 1)``."""
        return jnp.abs(self.values[..., -1:] - self.values[..., :1])

    @property
    def low_cost(self) -> jax.Array:
        """The cost at the low-cost end of each piece."""
        return jnp.minimum(self.cost_near, self.cost_far)

    def widths(self, start: Any = 0, size: int | None = None) -> jax.Array:
        """Return the lengths of ``size`` pieces from index ``start`` on, by default of all."""
        size = self.size if size is None else size
        return jnp.abs(window(self.values, start + 1, size) - window(self.values, start, size))

    def ends(
        self, index: jax.Array, condition: jax.Array | None = None
    ) -> tuple[jax.Array, jax.Array]:
        """Return inner and outer ends of pieces ``(*batch, j)``; arbitrary if not ``condition``."""
        if not self.size:
            end = take(self.values, index)
            return end, end
        pair = take(self.values, index, condition, 2)
        return pair[..., 0], pair[..., 1]

    def negated(self) -> Side:
        """Return the mirror image of the side, with -y in place of y."""
        return Side(-self.values, self.cost_near, self.cost_far)


class Lengths(NamedTuple):
    """Pieces that all start at 0, in place of a ``Side``: points are offsets in their pieces."""

    lengths: jax.Array
    cost_near: jax.Array
    cost_far: jax.Array

    @property
    def size(self) -> int:
        """The number of pieces."""
        return self.lengths.shape[-1]

    @property
    def length(self) -> jax.Array:
        """The total length of the pieces, ``(..., 1)``."""
        return jnp.sum(self.lengths, axis=-1, keepdims=True)

    def widths(self, start: Any = 0, size: int | None = None) -> jax.Array:
        """Return the lengths of ``size`` pieces from index ``start`` on, by default of all."""
        return window(self.lengths, start, self.size if size is None else size)

    def ends(
        self, index: jax.Array, condition: jax.Array | None = None
    ) -> tuple[jax.Array, jax.Array]:
        """Return 0 and the length of pieces ``(*batch, j)``; arbitrary where not ``condition``."""
        length = take(self.lengths, index, condition)
        return jnp.zeros_like(length), length


class Ends(NamedTuple):
    """Exponential tails beyond the two sides, on the last axis: start, scale in y, and cost."""

    start: jax.Array
    scale: jax.Array
    cost: jax.Array


class OnLine(Protocol):
    """A distribution whose draws and closed forms are computed from its :class:`Line`."""

    @property
    def batch_shape(self) -> tuple[int, ...]:
        """The broadcast shape of all fields, without the axis of pieces."""

    @property
    def dtype(self) -> Any:
        """The dtype of every result."""

    def line(self) -> Line:
        """Return the density in the form that samplers and closed forms use."""


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Line:
    """A density on the real line, in the form that samplers and closed forms use.

    Its slots are the pieces of the lower side and of the upper side, both outwards, and two tails.

    Attributes:
        sides: the lower and the upper side.
        tails: two tails, or None.
        rise: rate times the change of the cost over each piece, from its inner to its outer end,
            ``(..., pieces)``.
        heights: the heights of all slots.
        rate: ``(..., 1)``, epsilon/2 for exponential mechanisms.
        batch: static, the broadcast shape without the last axis.
        cells: static; if true, pieces are runs of cells of width 1, each with the mass of its outer
            end (see :meth:`measure`).
    """

    sides: tuple[Side | Lengths, Side | Lengths]
    tails: Ends | None
    rise: jax.Array
    heights: Heights
    rate: jax.Array
    batch: tuple[int, ...] = field(metadata={"static": True})
    cells: bool = field(default=False, metadata={"static": True})

    @staticmethod
    def of(
        sides: tuple[Any, Any],
        rate: jax.Array,
        tails: Ends | None,
        batch: tuple[int, ...],
        cells: bool = False,
    ) -> Line:
        """Create a line and compute exponentials, once for each cost; ``rate`` is ``(..., 1)``."""
        near, far = (
            concatenate(*(getattr(side, end) for side in sides))
            for end in ("cost_near", "cost_far")
        )
        cost, most = jnp.minimum(near, far), float(jnp.finfo(rate.dtype).max)
        rise = clip(rate * (far - near), -most, most)
        decay = jnp.abs(rise)
        if tails is not None:
            cost, decay = (
                concatenate(cost, tails.cost),
                concatenate(decay, jnp.zeros_like(tails.cost)),
            )
        return Line(sides, tails, rise, Heights.of(cost, decay, rate), rate, batch, cells)

    @property
    def pieces(self) -> int:
        """The number of pieces on both sides."""
        return self.sides[0].size + self.sides[1].size

    def parts(self, slots: jax.Array) -> list[jax.Array]:
        """Split an array of all slots into those of each side and, if any, of the tails."""
        ends = [self.sides[0].size, self.pieces][: 1 if self.tails is None else 2]
        return jnp.split(slots, ends, axis=-1)

    def measure(self, lengths: jax.Array, rise: jax.Array) -> jax.Array:
        """Return the ratios of mass to height of pieces: their lengths, if masses are integrals.

        If masses are sums, over cells, of the height at the outer end: that height is the same
        fraction of the mean height in every cell of a piece, and so the sum is that fraction of the
        integral.
        """
        return (
            lengths * piece.far_height(jnp.abs(rise) / jnp.maximum(lengths, 1.0))
            if self.cells
            else lengths
        )

    def measures(self) -> list[jax.Array]:
        """Return the measures of the pieces of each side, then the scales of tails, if any."""
        rises = jnp.split(self.rise, [self.sides[0].size], axis=-1)
        pieces = [
            self.measure(side.widths(), rise) for side, rise in zip(self.sides, rises, strict=True)
        ]
        return [*pieces, *(() if self.tails is None else (self.tails.scale,))]

    def reader(self, number: int) -> Callable[[Any, int], jax.Array]:
        """Return a function of (start, size) that reads the measures of the pieces of one side."""
        if not self.cells:
            return self.sides[number].widths
        # Computed at once: a smaller and faster program.
        return partial(window, self.measures()[number])

    def base(self) -> tuple[Base, jax.Array]:
        """Return the base of the weights of each row, and the measures of all slots."""
        measures = concatenate(*self.measures())
        measures = measures.astype(jnp.result_type(measures, self.heights.mantissa))
        return jax.tree.map(
            lambda column: broadcast_rows(column, self.batch), self.heights.base(measures)
        ), measures

    def weights(self) -> tuple[Base, jax.Array]:
        """Return the weights of all slots, ``(*batch, slots)``, relative to the base of each row.

        The largest is about 1, whatever the costs, the rate and the widths are.
        """
        base, measures = self.base()
        always = base.cost.reshape(-1)[0] != jnp.inf  # always true, but only known at run time
        instead = broadcast_rows(measures, self.batch)
        weights = in_memory(
            always, lambda: broadcast_rows(self.heights.weight(measures, base), self.batch), instead
        )
        return base, weights

    def place_of(self, upper: jax.Array, slot: jax.Array) -> jax.Array:
        """Return indices of slots ``(*batch, j)`` in the lower side followed by the upper side."""
        return jnp.minimum(
            where(upper, np.int32(self.sides[0].size), np.int32(0)) + slot,
            np.int32(self.pieces - 1),
        )

    def ends(self, upper: jax.Array, slot: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Return the inner and outer ends of slots ``(*batch, j)``, each on its side."""
        found = []
        for side, condition in zip(self.sides, (~upper, upper), strict=True):
            if side.size:  # for slots of the other side, an arbitrary piece is read
                found.append(side.ends(clip(slot, 0, side.size - 1), condition))
        if len(found) == 1:
            return found[0]
        (near_below, far_below), (near_above, far_above) = found
        return where(upper, near_above, near_below), where(upper, far_above, far_below)

    @property
    def cacheful(self) -> tuple[int, int]:
        """The number of rows, and the number of rows that fit in the cache together."""
        rows = prod(self.batch)
        return rows, max(1, min(rows, _BLOCK // max(self.pieces, 1)))

    def rows(
        self, columns: Any, start: Any, size: int, always: jax.Array | None = None
    ) -> tuple[Line, Any]:
        """Return ``size`` rows from index ``start`` on, of this and of columns ``(*batch, j)``."""
        line, columns = some_rows((self, columns), self.batch, start, size, always)
        return replace(line, batch=(size,)), columns
