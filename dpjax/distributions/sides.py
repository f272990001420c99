"""The pieces of a distribution on the line, as two sides that go outwards from a center, and what they weigh.

A sensitivity profile has two such sides, and they are never laid out in ascending order to be drawn from: on the CPU, reversing and
joining arrays of the size of the data costs more than the draw. Padding at the far end of a side has no width, and changes nothing
before it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dpjax.distributions.weights import NEVER, Base, Heights
from dpjax.numerics.batching import by_chunks, some_rows, take
from dpjax.numerics.sums import pad, pairwise_sum

LANES = 64  # slot i of a side is number i // 64 of lane i % 64
GROUPS = 8  # lane i is number i // 8 of group i % 8
_CHUNK = 32 * LANES
_ROWS = 256  # that are weighed again together


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
    """What is drawn from.

    Attributes:
        sides: the lower and the upper side.
        heights: of the pieces of each side.
        tails: two tails and their heights, or None.
        rate: ``(..., 1)``.
        batch: the broadcast shape without the last axis.
    """

    sides: tuple[Side | Lengths, Side | Lengths]
    heights: tuple[Heights, Heights]
    tails: tuple[Ends, Heights] | None
    rate: jax.Array
    batch: tuple[int, ...]

    @staticmethod
    def of(sides: tuple[Any, Any], rate: jax.Array, tails: Ends | None, batch: tuple[int, ...]) -> Line:
        """Take the exponentials, once for each cost; rate is ``(..., 1)``."""
        heights = tuple(Heights.of(jnp.minimum(s.cost_near, s.cost_far), decay_of(s, rate), rate) for s in sides)
        ends = None if tails is None else (tails, Heights.of(tails.cost, jnp.zeros_like(tails.cost), rate))
        return Line(sides, heights, ends, rate, batch)  # type: ignore[arg-type]

    @property
    def pieces(self) -> int:
        """How many pieces there are on both sides."""
        return self.sides[0].size + self.sides[1].size

    def weights(self, base: Base) -> list[jax.Array]:
        """The weights of all pieces of each side, and of the tails if there are any."""
        batch = jnp.broadcast_shapes(self.batch, base.cost.shape[:-1])

        def plain() -> list[jax.Array]:
            found = [jnp.abs(side.widths() * heights.from_zero()) for side, heights in zip(self.sides, self.heights, strict=True)]
            return [jnp.broadcast_to(part, (*batch, part.shape[-1])) for part in found]

        def own() -> list[jax.Array]:
            return [jnp.broadcast_to(part, (*batch, part.shape[-1])) for part in self._each(lambda w, h: h.weight(w, base))[:2]]

        found = jax.lax.cond(jnp.all((base.cost == 0) & (base.exponent == 0)), plain, own)
        return found if self.tails is None else [*found, self.tails[1].weight(self.tails[0].scale, base)]

    def own_base(self) -> Base:
        """The lowest cost that has mass in each row, and then the power of two of its heaviest slot."""

        def of_row(part: Callable[[jax.Array, Heights], jax.Array], combine: Any, neutral: Any) -> jax.Array:
            found = [
                jnp.broadcast_to(jax.lax.reduce(array, np.asarray(neutral, array.dtype), combine, (array.ndim - 1,)), self.batch)
                for array in self._each(part)
            ]
            return functools.reduce(combine, found)[..., None]

        cost = of_row(lambda width, heights: jnp.where(width > 0, heights.cost, jnp.inf), jax.lax.min, np.inf)
        base = Base.at(jnp.where(jnp.isinf(cost), 0.0, cost), self.heights[0].bits)
        return base.shifted(-of_row(lambda width, heights: heights.log2_weight(width, base), jax.lax.max, NEVER))

    def lanes(self) -> list[jax.Array]:
        """The sums over lanes of weights from cost 0: ``(..., 64)`` a side, if there are any pieces."""

        def one(side: Side | Lengths, heights: Heights) -> jax.Array:
            table = heights.from_zero()
            return _by_lanes(lambda start, size: jnp.abs(side.widths(start, size) * window(table, start, size)), side.size)

        return [one(side, heights) for side, heights in zip(self.sides, self.heights, strict=True)] if self.pieces else []

    def _each(self, part: Callable[[jax.Array, Heights], jax.Array]) -> list[jax.Array]:
        """Something of the widths and heights of each side, and of the tails."""
        found = [part(side.widths(), heights) for side, heights in zip(self.sides, self.heights, strict=True)]
        return found if self.tails is None else [*found, part(self.tails[0].scale, self.tails[1])]


def decay_of(side: Side | Lengths, rate: jax.Array) -> jax.Array:
    """The decay over each piece; ``rate`` is ``(..., 1)``."""
    return jnp.minimum(rate * jnp.abs(side.cost_far - side.cost_near), float(jnp.finfo(rate.dtype).max))


def window(array: jax.Array, start: Any, size: int) -> jax.Array:
    """``size`` entries of the last axis from ``start`` on, which may be traced."""
    if isinstance(start, int):
        return array[..., start : start + size]
    return jax.lax.dynamic_slice_in_dim(array, start, size, axis=-1)


def _by_lanes(some: Callable[[Any, int], jax.Array], size: int) -> jax.Array:
    """Add slots 64 apart, in pairs of pairs counted from the center: further slots of weight 0 change nothing."""

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


def _to_lanes(weights: jax.Array) -> jax.Array:
    """The same sums in the same order, of weights that are there already."""
    weights = pad(weights, LANES)
    blocks = jnp.swapaxes(weights.reshape(*weights.shape[:-1], -1, LANES), -1, -2)
    return pairwise_sum(blocks)[..., 0]


class Weighed(NamedTuple):
    """The weights of a line by parts.

    Attributes:
        base: what they are relative to in each row.
        lanes: of either side, the sums over pieces 64 apart, ``(*batch, 64)``; none without pieces.
        groups: of either side, the sums over lanes 8 apart; then the two tails; ``(*batch, 16)``, 18 or 2.
        done: bool ``()``, true; the compiler does not know it.
    """

    base: Base
    lanes: tuple[jax.Array, ...]
    groups: jax.Array
    done: jax.Array

    @staticmethod
    def of(line: Line, base: Base, lanes: list[jax.Array]) -> Weighed:
        """Add up lanes."""
        sides = [jnp.broadcast_to(side, (*line.batch, LANES)) for side in lanes]
        groups = []
        for group in sides:
            while group.shape[-1] > GROUPS:
                half = group.shape[-1] // 2
                group = group[..., :half] + group[..., half:]
            groups.append(group)
        if line.tails is not None:
            groups.append(jnp.broadcast_to(line.tails[1].weight(line.tails[0].scale, base), (*line.batch, 2)))
        base = jax.tree.map(lambda field: jnp.broadcast_to(field, (*line.batch, 1)), base)
        return Weighed(base, tuple(sides), jnp.concatenate(groups, axis=-1), jnp.array(not lanes))

    @property
    def total(self) -> jax.Array:
        """Of each row, ``(*batch, 1)``; not positive where a row has no distribution: no mass, or a NaN anywhere."""
        return pairwise_sum(self.groups)


def weigh(line: Line) -> Weighed:
    """Weigh the pieces and tails of all rows.

    Almost all rows can be weighed from cost 0, with one product for each piece. Rows with all their mass far above it (long ties, a
    large epsilon) or in tiny pieces are weighed again from a base of their own. A base only changes powers of two, and each row
    decides for itself.
    """
    sides, heights, tails, rate = jax.lax.stop_gradient(line[:4])
    line = Line(sides, heights, tails, rate, line.batch)
    if not line.pieces:  # two tails cost nothing
        return Weighed.of(line, line.own_base(), [])
    zero = jnp.zeros((1,), line.rate.dtype)
    plain = Base(zero, zero.astype(jnp.int32), zero)
    weighed, info = Weighed.of(line, plain, line.lanes()), jnp.finfo(line.rate.dtype)
    fits = (weighed.total > 2.0 ** (info.minexp + 76)) & (weighed.total < 2.0 ** (info.maxexp - 16))
    rows = prod(line.batch)
    size = min(rows, _ROWS)

    def again(_: Weighed) -> Weighed:
        def some(start: jax.Array) -> Any:
            sides, heights, tails, rate = some_rows(line[:4], line.batch, start, size)
            own = Line(sides, heights, tails, rate, (size,))
            fitting = some_rows(fits, line.batch, start, size)
            base = jax.tree.map(lambda own, plain: jnp.where(fitting, plain, own), own.own_base(), plain)
            weights = own._each(lambda width, heights: heights.weight(width, base))[:2]
            return Weighed.of(own, base, [_to_lanes(part) for part in weights])[:3]

        found: Any = jax.tree.map(lambda leaf: leaf.reshape(*line.batch, leaf.shape[-1]), by_chunks(some, rows, size))
        base, lanes, groups = found
        return Weighed(base, lanes, groups, jnp.array(True))

    # A loop of no turn or one: a condition would copy what it hands through.
    return jax.lax.while_loop(lambda weighed: ~weighed.done, again, weighed._replace(done=jnp.all(fits)))
