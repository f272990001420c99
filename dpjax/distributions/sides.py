"""The pieces of a distribution on the line, as two sides that go outwards from a center, and what they weigh.

A sensitivity profile has two such sides, and they are never laid out in ascending order to be drawn from: on the CPU, reversing and
joining arrays of the size of the data costs more than the draw. Padding at the far end of a side has no width, and changes nothing
before it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from math import prod
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from dpjax.distributions import truncated_exponential as piece
from dpjax.distributions.weights import Base, Heights
from dpjax.numerics.batching import broadcast_rows, by_chunks, by_platform, concatenate, in_memory, some_rows, take, window
from dpjax.numerics.sums import lane_sums

_BLOCK = 2**18  # pieces that are worked on together: they and their temporaries stay in the cache


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Side:
    """The pieces on one side of the center: piece i lies between values i and i + 1.

    Attributes:
        values: float ``(..., k+1)``, monotone, going outwards.
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
        """The length of all pieces together, ``(..., 1)``."""
        return jnp.abs(self.values[..., -1:] - self.values[..., :1])

    @property
    def low_cost(self) -> jax.Array:
        """The cost at the low-cost end of each piece."""
        return jnp.minimum(self.cost_near, self.cost_far)

    def widths(self, start: Any = 0, size: int | None = None) -> jax.Array:
        """The lengths of ``size`` pieces from ``start`` on, by default of all."""
        size = self.size if size is None else size
        return jnp.abs(window(self.values, start + 1, size) - window(self.values, start, size))

    def ends(self, index: jax.Array, where: jax.Array | None = None) -> tuple[jax.Array, jax.Array]:
        """The inner and the outer end of pieces ``(*batch, j)``; elsewhere those of any piece."""
        if not self.size:
            end = take(self.values, index)
            return end, end
        pair = take(self.values, index, where, 2)
        return pair[..., 0], pair[..., 1]

    def negated(self) -> Side:
        """The side that has -y where this one has y."""
        return Side(-self.values, self.cost_near, self.cost_far)


class Lengths(NamedTuple):
    """Pieces that all start at 0, in the place of a ``Side``: a point inside is then its own offset."""

    lengths: jax.Array
    cost_near: jax.Array
    cost_far: jax.Array

    @property
    def size(self) -> int:
        """The number of pieces."""
        return self.lengths.shape[-1]

    @property
    def length(self) -> jax.Array:
        """The length of all pieces together, ``(..., 1)``."""
        return jnp.sum(self.lengths, axis=-1, keepdims=True)

    def widths(self, start: Any = 0, size: int | None = None) -> jax.Array:
        """The lengths of ``size`` pieces from ``start`` on, by default of all."""
        return window(self.lengths, start, self.size if size is None else size)

    def ends(self, index: jax.Array, where: jax.Array | None = None) -> tuple[jax.Array, jax.Array]:
        """0 and the length of pieces ``(*batch, j)``; elsewhere that of any piece."""
        length = take(self.lengths, index, where)
        return jnp.zeros_like(length), length


class Ends(NamedTuple):
    """Exponential tails beyond both sides, on the last axis: where they start, their scale in y, and the cost there."""

    start: jax.Array
    scale: jax.Array
    cost: jax.Array


class OnLine(Protocol):
    """A distribution that is drawn from, and has closed forms, by its :class:`Line`."""

    @property
    def batch_shape(self) -> tuple[int, ...]:
        """The broadcast shape of all fields, without the axis of pieces."""

    @property
    def dtype(self) -> Any:
        """The dtype of every result."""

    def line(self) -> Line:
        """What is drawn from."""


class Line(NamedTuple):
    """What is drawn from. Its slots are the pieces of the lower side, those of the upper side, both outwards, and two tails.

    Attributes:
        sides: the lower and the upper side.
        tails: two tails, or None.
        rise: rate times that of the cost over each piece, from its inner to its outer end, ``(..., pieces)``.
        heights: of all slots.
        rate: ``(..., 1)``.
        batch: the broadcast shape without the last axis.
        cells: static, whether pieces are runs of cells of width 1, each with the mass of its outer end (see :meth:`measure`).
    """

    sides: tuple[Side | Lengths, Side | Lengths]
    tails: Ends | None
    rise: jax.Array
    heights: Heights
    rate: jax.Array
    batch: tuple[int, ...]
    cells: bool = False

    @staticmethod
    def of(sides: tuple[Any, Any], rate: jax.Array, tails: Ends | None, batch: tuple[int, ...], cells: bool = False) -> Line:
        """Take the exponentials, once for each cost; rate is ``(..., 1)``."""
        near, far = (concatenate(*(getattr(side, end) for side in sides)) for end in ("cost_near", "cost_far"))
        cost, most = jnp.minimum(near, far), float(jnp.finfo(rate.dtype).max)
        rise = jnp.clip(rate * (far - near), -most, most)
        decay = jnp.abs(rise)
        if tails is not None:
            cost, decay = concatenate(cost, tails.cost), concatenate(decay, jnp.zeros_like(tails.cost))
        return Line(sides, tails, rise, Heights.of(cost, decay, rate), rate, batch, cells)

    @property
    def pieces(self) -> int:
        """How many pieces there are on both sides."""
        return self.sides[0].size + self.sides[1].size

    def parts(self, slots: jax.Array) -> list[jax.Array]:
        """Split something of all slots into that of each side, and of the tails if there are any."""
        ends = [self.sides[0].size, self.pieces][: 1 if self.tails is None else 2]
        return jnp.split(slots, ends, axis=-1)

    def measure(self, lengths: jax.Array, rise: jax.Array) -> jax.Array:
        """What the heights of pieces are multiplied by to give their mass: their length, if the mass is an integral.

        Where it is a sum over cells of the height at the outer end, that is the same fraction of the mean height in every cell of a
        piece, and so the sum is that fraction of the integral.
        """
        return lengths * piece.far_height(jnp.abs(rise) / jnp.maximum(lengths, 1.0)) if self.cells else lengths

    def widths(self) -> list[jax.Array]:
        """The measures of the pieces of each side, and the scales of the tails if there are any."""
        rises = jnp.split(self.rise, [self.sides[0].size], axis=-1)
        pieces = [self.measure(side.widths(), rise) for side, rise in zip(self.sides, rises, strict=True)]
        return [*pieces, *(() if self.tails is None else (self.tails.scale,))]

    def reader(self, number: int) -> Callable[[Any, int], jax.Array]:
        """Return what reads the measures of so many pieces of one side, from a place on."""
        if not self.cells:
            return self.sides[number].widths
        return partial(window, self.widths()[number])  # made in one piece: a smaller program, and a faster one

    def without_gradient(self) -> Line:
        """The same line, taken as constant by ``jax.grad``."""
        return Line(*jax.lax.stop_gradient(self[:-2]), self.batch, self.cells)

    def weights(self) -> tuple[Base, list[jax.Array]]:
        """The weights of each side's pieces, and of the tails if there are any, ``(*batch, k)``: each row from its own base.

        The heaviest is about 1, whatever the costs, the rate and the widths are.
        """
        widths = concatenate(*self.widths())
        widths = widths.astype(jnp.result_type(widths, self.heights.mantissa))
        base = jax.tree.map(lambda column: broadcast_rows(column, self.batch), self.heights.base(widths))
        known = base.cost.reshape(-1)[0] != jnp.inf  # true, which the compiler does not know
        instead = broadcast_rows(widths, self.batch)
        weights = in_memory(known, lambda: broadcast_rows(self.heights.weight(widths, base), self.batch), instead)
        return base, self.parts(weights)

    def lanes(self) -> tuple[Base, jax.Array, jax.Array | None, jax.Array]:
        """The weights added up by lanes: slot i of a side is number i // 32 of lane i % 32. They have no gradient.

        Almost all rows can be weighed from cost 0, with one product for each piece and nothing stored. Where a row has all its mass
        far above it (long ties, a large epsilon) or in tiny pieces, all are weighed again, each from a base of its own. A base only
        changes powers of two, and with them no draw.

        Returns:
            What they are relative to; the lanes of the lower and of the upper side, ``(*batch, 64)``; the weights of the tails,
            ``(*batch, 2)`` or None; and true, which the compiler does not know.
        """
        line = self.without_gradient()
        tables = line.parts(line.heights.from_zero())

        def from_zero(number: int) -> jax.Array:
            widths, table = line.reader(number), tables[number]
            return lane_sums(lambda start, size: jnp.abs(widths(start, size) * window(table, start, size)), table.shape[-1])

        plain = _joined(
            [from_zero(0), from_zero(1)],
            [] if line.tails is None else [jnp.abs(line.tails.scale * tables[2])],
        )
        plain = [broadcast_rows(part, self.batch) for part in plain]
        length = line.sides[0].length + line.sides[1].length
        if line.tails is not None:
            length = length + jnp.sum(line.tails.scale, axis=-1, keepdims=True)
        fits = _fits(functools.reduce(jnp.maximum, (jnp.max(part, axis=-1, keepdims=True) for part in plain)), length)
        zero = Base.zero(fits.shape, self.rate.dtype), plain
        base, (lanes, *tails) = by_platform(
            cpu=lambda: line._weighed_in_turns(fits, zero), default=lambda: line._weighed_at_once(fits, zero)
        )
        return base, lanes, tails[0] if tails else None, base.cost.reshape(-1)[0] != jnp.inf

    def _weighed_in_turns(self, fits: jax.Array, plain: Any) -> Any:
        """Return ``plain``, the lanes from cost 0, if they fit in all rows; else those of all rows, some rows at a time."""
        rows, size = self._cacheful()

        def again(number: jax.Array, found: Any) -> Any:
            start = jnp.minimum(number * size, rows - size)
            base, (lower, upper, *tails) = self._rows((), start, size)[0].weights()
            own = base, _joined([lane_sums(partial(window, side), side.shape[-1]) for side in (lower, upper)], tails)
            put = jax.lax.dynamic_update_slice_in_dim
            return jax.tree.map(lambda all, some: put(all, some.astype(all.dtype), start, 0), found, own)

        # A loop of as many turns as needed, mostly none: a condition would copy what it hands through.
        turns = jnp.max(jnp.where(fits, 0.0, float(-(-rows // size)))).astype(jnp.int32)
        found = jax.tree.map(lambda a: a.reshape(rows, a.shape[-1]), plain)
        found = jax.lax.fori_loop(np.int32(0), turns, again, found)
        return jax.tree.map(lambda a: a.reshape(*self.batch, a.shape[-1]), found)

    def _weighed_at_once(self, fits: jax.Array, plain: Any) -> Any:
        """Return the same by one condition, in whose other branch no weight is stored: it is made where it is added."""

        def again() -> Any:
            widths = concatenate(*self.widths())
            widths = widths.astype(jnp.result_type(widths, self.heights.mantissa))
            base = jax.tree.map(lambda column: broadcast_rows(column, self.batch), self.heights.base(widths))
            fields = [self.parts(field) for field in self.heights[:3]]

            def weight(number: int, widths: jax.Array, start: Any, size: int) -> jax.Array:
                mantissa, exponent, cost = (window(field[number], start, size) for field in fields)
                return broadcast_rows(Heights(mantissa, exponent, cost, self.heights.bits).weight(widths, base), self.batch)

            def lanes(number: int) -> jax.Array:
                widths = self.reader(number)
                return lane_sums(lambda start, size: weight(number, widths(start, size), start, size), self.sides[number].size)

            found = base, _joined([lanes(0), lanes(1)], [] if self.tails is None else [weight(2, self.tails.scale, 0, 2)])
            return jax.tree.map(lambda own, other: own.astype(other.dtype), found, plain)

        return jax.lax.cond(jnp.all(fits), lambda: plain, again)

    def _cacheful(self) -> tuple[int, int]:
        """The number of rows, and of those that stay in the cache while they are worked on."""
        rows = prod(self.batch)
        return rows, max(1, min(rows, _BLOCK // max(self.pieces, 1)))

    def _rows(self, columns: Any, start: Any, size: int, always: jax.Array | None = None) -> tuple[Line, Any]:
        """``size`` rows from ``start`` on, of the line and of columns ``(*batch, j)``; see :func:`some_rows`."""
        sides, tails, rise, heights, rate, columns = some_rows((*self[:-2], columns), self.batch, start, size, always)
        return Line(sides, tails, rise, heights, rate, (size,), self.cells), columns

    def by_rows(self, compute: Callable[..., Any], *columns: jax.Array) -> Any:
        """``compute(line, *columns)`` for all rows, on the CPU a cacheful of them at a time.

        Args:
            compute: from a line with a batch of one axis, and columns ``(rows, j)``, to a pytree of arrays ``(rows, k)``.
            columns: ``(*batch, j)``.
        """
        rows, size = self._cacheful()

        def some(start: Any, size: int) -> Any:
            line, own = self._rows(columns, start, size, None if size == rows else start >= 0)
            found = compute(line, *own)
            return jax.tree.map(lambda a: jnp.broadcast_to(a, (size, a.shape[-1])), found)

        def all_rows() -> Any:
            return some(0, rows)

        def chunks() -> Any:
            return by_chunks(lambda start: some(start, size), rows, size)

        found = all_rows() if size == rows else by_platform(cpu=chunks, default=all_rows)
        return jax.tree.map(lambda a: a.reshape(*self.batch, a.shape[-1]), found)


def _joined(sides: list[jax.Array], tails: list[jax.Array]) -> list[jax.Array]:
    return [concatenate(*sides), *tails]


def _fits(heaviest: jax.Array, length: jax.Array) -> jax.Array:
    """Whether the weights that matter, and quotients of noise and them, are normal floats; a NaN is left as it is.

    Args:
        heaviest: the largest of up to 66 sums of weights.
        length: of all pieces: where heights are too small for a float, it bounds what they weigh together.
    """
    info = jnp.finfo(heaviest.dtype)
    small = heaviest <= jnp.maximum(2.0**76, 2.0**62 * length) * 2.0**info.minexp
    return ~(small | (heaviest >= 2.0 ** (info.maxexp - 75)))
