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
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from dpjax.distributions.weights import Base, Heights
from dpjax.numerics.batching import broadcast_rows, by_chunks, concatenate, in_memory, some_rows, take
from dpjax.numerics.sums import LANES, pairwise_sum

_CHUNK = 64 * LANES
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
    def low_cost(self) -> jax.Array:
        """The cost at the low-cost end of each piece."""
        return jnp.minimum(self.cost_near, self.cost_far)

    def widths(self, start: Any = 0, size: int | None = None) -> jax.Array:
        """The lengths of ``size`` pieces from ``start`` on, by default of all."""
        values = window(self.values, start, (self.size if size is None else size) + 1)
        return jnp.abs(values[..., 1:] - values[..., :-1])

    def both_ends(self) -> tuple[jax.Array, jax.Array]:
        """The inner and the outer ends of all pieces."""
        return self.values[..., :-1], self.values[..., 1:]

    def ends(self, index: jax.Array, where: jax.Array | None = None) -> tuple[jax.Array, jax.Array]:
        """The inner and the outer end of pieces ``(*batch, j)``; elsewhere those of any piece."""
        if not self.size:
            end = take(self.values, index)
            return end, end
        pair = take(self.values, index, where, 2)
        return pair[..., 0], pair[..., 1]


class Lengths(NamedTuple):
    """Pieces that all start at 0, in the place of a ``Side``: a point inside is then its own offset."""

    lengths: jax.Array
    cost_near: jax.Array
    cost_far: jax.Array

    @property
    def size(self) -> int:
        """The number of pieces."""
        return self.lengths.shape[-1]

    def widths(self, start: Any = 0, size: int | None = None) -> jax.Array:
        """The lengths of ``size`` pieces from ``start`` on, by default of all."""
        return window(self.lengths, start, self.size if size is None else size)

    def both_ends(self) -> tuple[jax.Array, jax.Array]:
        """0 and the lengths."""
        return jnp.zeros_like(self.lengths), self.lengths

    def ends(self, index: jax.Array, where: jax.Array | None = None) -> tuple[jax.Array, jax.Array]:
        """0 and the length of pieces ``(*batch, j)``; elsewhere that of any piece."""
        length = take(self.lengths, index, where)
        return jnp.zeros_like(length), length


class Ends(NamedTuple):
    """Exponential tails beyond both sides, on the last axis: where they start, their scale in y, and the cost there."""

    start: jax.Array
    scale: jax.Array
    cost: jax.Array


class Line(NamedTuple):
    """What is drawn from. Its slots are the pieces of the lower side, those of the upper side, both outwards, and two tails.

    Attributes:
        sides: the lower and the upper side.
        tails: two tails, or None.
        rise: of the cost over each piece, from its inner to its outer end, ``(..., pieces)``.
        decay: over each piece, from its low-cost end.
        heights: of all slots.
        rate: ``(..., 1)``.
        batch: the broadcast shape without the last axis.
    """

    sides: tuple[Side | Lengths, Side | Lengths]
    tails: Ends | None
    rise: jax.Array
    decay: jax.Array
    heights: Heights
    rate: jax.Array
    batch: tuple[int, ...]

    @staticmethod
    def of(sides: tuple[Any, Any], rate: jax.Array, tails: Ends | None, batch: tuple[int, ...]) -> Line:
        """Take the exponentials, once for each cost; rate is ``(..., 1)``."""
        near, far = (concatenate(*(getattr(side, end) for side in sides)) for end in ("cost_near", "cost_far"))
        rise, cost = far - near, jnp.minimum(near, far)
        decay = slopes = jnp.minimum(rate * jnp.abs(rise), float(jnp.finfo(rate.dtype).max))
        if tails is not None:
            cost, slopes = concatenate(cost, tails.cost), concatenate(decay, jnp.zeros_like(tails.cost))
        return Line(sides, tails, rise, decay, Heights.of(cost, slopes, rate), rate, batch)

    @property
    def pieces(self) -> int:
        """How many pieces there are on both sides."""
        return self.sides[0].size + self.sides[1].size

    def parts(self, slots: jax.Array) -> list[jax.Array]:
        """Split something of all slots into that of each side, and of the tails if there are any."""
        ends = [self.sides[0].size, self.pieces][: 1 if self.tails is None else 2]
        return jnp.split(slots, ends, axis=-1)

    def widths(self) -> list[jax.Array]:
        """The widths of the pieces of each side, and the scales of the tails if there are any."""
        return [*(side.widths() for side in self.sides), *(() if self.tails is None else (self.tails.scale,))]

    def without_gradient(self) -> Line:
        """The same line, taken as constant by ``jax.grad``."""
        return Line(*jax.lax.stop_gradient(self[:-1]), self.batch)

    def weights(self) -> tuple[Base, list[jax.Array]]:
        """The weights of each side's pieces, and of the tails if there are any, ``(*batch, k)``: each row from its own base.

        The heaviest is about 1, whatever the costs, the rate and the widths are.
        """
        widths = concatenate(*self.widths())
        base = jax.tree.map(lambda column: broadcast_rows(column, self.batch), self.heights.base(widths))
        known = jnp.all(base.cost != jnp.inf)  # true, which the compiler does not know
        return base, self.parts(in_memory(known, lambda: broadcast_rows(self.heights.weight(widths, base), self.batch)))

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

        def from_zero(side: Side | Lengths, table: jax.Array) -> jax.Array:
            return _lanes(lambda start, size: jnp.abs(side.widths(start, size) * window(table, start, size)), side.size)

        def joined(sides: list[jax.Array], tails: list[jax.Array]) -> list[jax.Array]:
            return [concatenate(*sides), *tails]

        def again(_: Any) -> Any:
            def compute(line: Line) -> Any:
                base, (lower, upper, *tails) = line.weights()
                return base, joined([_lanes(partial(window, side), side.shape[-1]) for side in (lower, upper)], tails)

            return *line.by_rows(compute), jnp.array(True)

        plain = joined(
            [from_zero(*both) for both in zip(line.sides, tables[:2], strict=True)],
            [] if line.tails is None else [jnp.abs(line.tails.scale * tables[2])],
        )
        plain = [broadcast_rows(part, self.batch) for part in plain]
        fits = _fits(functools.reduce(jnp.add, map(pairwise_sum, plain)))
        # A loop of no turn or one: a condition would copy what it hands through.
        start = (Base.zero(fits.shape, self.rate.dtype), plain, jnp.all(fits))
        base, (lanes, *tails), done = jax.lax.while_loop(lambda state: ~state[2], again, start)
        return base, lanes, tails[0] if tails else None, done

    def by_rows(self, compute: Callable[..., Any], *columns: jax.Array) -> Any:
        """``compute(line, *columns)`` for all rows, on the CPU a cacheful of them at a time.

        Args:
            compute: from a line with a batch of one axis, and columns ``(rows, j)``, to a pytree of arrays ``(rows, k)``.
            columns: ``(*batch, j)``.
        """
        rows = prod(self.batch)
        size = max(1, min(rows, _BLOCK // max(self.pieces, 1)))

        def some(start: Any, size: int) -> Any:
            def read() -> Any:
                return some_rows((*self[:-1], columns), self.batch, start, size)

            *fields, own = read() if size == rows else in_memory(start >= 0, read)
            found = compute(self._replace(**dict(zip(self._fields, (*fields, (size,)), strict=True))), *own)
            return jax.tree.map(lambda a: jnp.broadcast_to(a, (size, a.shape[-1])), found)

        def all_rows() -> Any:
            return some(0, rows)

        def chunks() -> Any:
            return by_chunks(lambda start: some(start, size), rows, size)

        found = all_rows() if size == rows else jax.lax.platform_dependent(cpu=chunks, default=all_rows)
        return jax.tree.map(lambda a: a.reshape(*self.batch, a.shape[-1]), found)


def _fits(total: jax.Array) -> jax.Array:
    """Whether the weights that matter, and quotients of noise and them, are normal floats; a NaN is left as it is."""
    info = jnp.finfo(total.dtype)
    return ~((total <= 2.0 ** (info.minexp + 76)) | (total >= 2.0 ** (info.maxexp - 68)))


def window(array: jax.Array, start: Any, size: int) -> jax.Array:
    """``size`` entries of the last axis from ``start`` on, which may be traced."""
    if isinstance(start, int):
        return array[..., start : start + size]
    return jax.lax.dynamic_slice_in_dim(array, start, size, axis=-1)


def _lanes(some: Callable[[Any, int], jax.Array], size: int) -> jax.Array:
    """Add slots 32 apart, in pairs of pairs counted from the center: further slots of weight 0 change nothing."""

    def chunk(first: Any, size: int) -> jax.Array:
        terms = []
        for start in range(0, max(size, 1), LANES):
            term = some(first + start, min(LANES, size - start))
            gap = [(0, 0)] * (term.ndim - 1) + [(0, LANES - term.shape[-1])]
            terms.append(jnp.pad(term, gap) if term.shape[-1] < LANES else term)
        return tree(terms)

    def tree(terms: list[jax.Array]) -> jax.Array:
        while len(terms) > 1:
            pairs = [a + b for a, b in zip(terms[0::2], terms[1::2], strict=False)]
            terms = pairs + terms[2 * len(pairs) :]
        return terms[0]

    if size <= _CHUNK:
        return chunk(0, size)
    whole = size // _CHUNK
    found = jax.lax.map(lambda number: chunk(number * _CHUNK, _CHUNK), jnp.arange(whole, dtype=jnp.int32))
    rest = [] if size % _CHUNK == 0 else [chunk(whole * _CHUNK, size % _CHUNK)]
    # The chunks, too, in pairs of pairs counted from the center, a rest counting as one.
    while found.shape[0] > 1:
        if found.shape[0] % 2:
            rest = [found[-1] if not rest else found[-1] + rest[0]]
            found = found[:-1]
        found = found[0::2] + found[1::2]
    return tree([found[0], *rest])
