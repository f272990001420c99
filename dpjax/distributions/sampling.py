"""Draws from a law on the line: weigh the slots, choose one, then place the draw inside it by inverse cdf.

Slots are the pieces on two sides, each going outwards from the centre, and the tails; that is how their randomness is indexed
(``selection.py``). For draws that are bitwise the same whatever the padding and the other rows are, every transcendental function
runs over a multiple of 32 lanes: XLA's vector loop and its remainder loop round differently.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from math import prod
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from dpjax.distributions import truncated_exponential as piece
from dpjax.distributions.selection import FAN_OUT, BlockTree, gumbel_max, search, tabulate, ticket
from dpjax.distributions.weights import Heights
from dpjax.numerics.batching import align, broadcast_batch, row, take
from dpjax.numerics.sums import pad
from dpjax.numerics.two_words import Words
from dpjax.random.keys import fold_in, fold_in_range, row_words
from dpjax.random.noise import UniformPair, exponential_from_uniform, gumbel_from_uniform, uniform_from_words

if TYPE_CHECKING:
    from dpjax.distributions.piecewise import PiecewiseExponential

_LANES = 32
_ROWS = 512  # rows that are weighed together
_WALKS = 64  # up to so many draws from a row, walking down its tree costs less than tabulating it
Method = Literal["gumbel", "tree", "table"]


class Line(NamedTuple):
    """The pieces to draw from, all fields with the rank of the batch plus 1.

    Attributes:
        center: how many pieces lie below the centre.
        widths: gives the widths of the pieces below the centre, going outwards, ``(..., center)``, and of those above it,
            ``(..., m - center)``. A function, so that a branch that seldom runs computes them for itself.
        ends_at: from indices of pieces (in ascending order) to their left and right ends.
        cost_left: costs at the left ends, ``(..., m)`` in ascending order.
        cost_right: costs at the right ends.
        rate: ``(..., 1)``.
        tails: where the lower and the upper tail start, their scales in y and their costs, each ``(..., 2)``; or None.
        batch: the broadcast shape without the last axis.
        row: gives the line of one row alone, by its number in the flattened batch.
    """

    center: int
    widths: Callable[[], tuple[jax.Array, jax.Array]]
    ends_at: Callable[[jax.Array], tuple[jax.Array, jax.Array]]
    cost_left: jax.Array
    cost_right: jax.Array
    rate: jax.Array
    tails: tuple[jax.Array, jax.Array, jax.Array] | None
    batch: tuple[int, ...]
    row: Callable[[jax.Array], Line]

    def piece(self, side: jax.Array, slot: jax.Array) -> jax.Array:
        """The index, in ascending order, of a slot counted outwards."""
        center, last = np.int32(self.center), np.int32(max(self.cost_left.shape[-1], 1) - 1)
        return jnp.clip(jnp.where(side == 0, center - 1 - slot, center + slot), 0, last)


class Weights(NamedTuple):
    """What the weights of a line's slots are made of beside the widths.

    Attributes:
        lower: heights of the lower side, going outwards, padded to a multiple of 32 slots.
        upper: heights of the upper side.
        tails: heights of the tails (and padding to 32), or None.
    """

    lower: Heights
    upper: Heights
    tails: Heights | None

    @staticmethod
    def of(line: Line) -> Weights:
        """Take the exponentials, once for each cost."""
        low = jnp.minimum(line.cost_left, line.cost_right)
        decay = line.rate * jnp.abs(line.cost_right - line.cost_left)
        c = line.center
        sides = [(jnp.flip(low[..., :c], -1), jnp.flip(decay[..., :c], -1)), (low[..., c:], decay[..., c:])]
        if line.tails is not None:
            sides.append((line.tails[2], jnp.zeros_like(line.tails[2])))
        heights = [Heights.of(pad(cost, _LANES), pad(decay, _LANES), line.rate) for cost, decay in sides]
        # The barrier keeps the exponentials out of the loop over all rows.
        lower, upper, *tails = jax.lax.optimization_barrier(heights)
        return Weights(lower, upper, tails[0] if tails else None)

    def sides(self, line: Line, base: jax.Array) -> list[jax.Array]:
        """The weights of all slots of the lower and of the upper side, and of the tails, counted from ``2**base``."""
        return [heights.weight(pad(widths, _LANES), base) for heights, widths in self._parts(line)]

    def heaviest(self, line: Line) -> jax.Array:
        """A base for each row that fits its heaviest slot, int32 ``(..., 1)``."""
        return _largest(
            [jnp.max(heights.log2_weight(pad(widths, _LANES)), axis=-1, keepdims=True) for heights, widths in self._parts(line)]
        )

    def _parts(self, line: Line) -> list[tuple[Heights, jax.Array]]:
        parts = list(zip((self.lower, self.upper), line.widths(), strict=True))
        if line.tails is not None and self.tails is not None:
            parts.append((self.tails, line.tails[1]))
        return parts


def _largest(arrays: list[jax.Array]) -> jax.Array:
    largest = arrays[0]
    for array in arrays[1:]:
        largest = jnp.maximum(largest, array)
    return largest


class Chosen(NamedTuple):
    """What was chosen for each draw, ``(*batch, draws)``.

    Attributes:
        piece: the piece's index in ascending order, int32.
        in_tail: whether the draw is in a tail instead; None without tails.
        upper: whether that is the upper tail.
        exists: whether the row has a law at all, ``(*batch, 1)``: mass, and no NaN anywhere.
    """

    piece: jax.Array
    in_tail: jax.Array | None
    upper: jax.Array | None
    exists: jax.Array


def draw(
    key: jax.Array, line: Line, draws: int, method: Method | Literal["auto"], first: ArrayLike = 0
) -> tuple[jax.Array, jax.Array]:
    """Draw ``draws`` points from each row: the chosen pieces (int32) and the points, both ``(draws, *batch)``."""
    if method == "auto":
        method = "tree" if draws <= _WALKS else "table"
    rows = row_words(key, line.batch, first)
    select, place = (fold_in(rows, jnp.full(rows.high.shape, role, jnp.uint32)) for role in (0, 1))
    lanes = 1 if draws == 1 else -(-draws // _LANES) * _LANES
    weights = jax.lax.stop_gradient(Weights.of(line))

    def finish(chosen: Chosen) -> tuple[jax.Array, jax.Array]:
        return chosen.piece, _place(line, chosen, fold_in_range(place, chosen.piece.shape[-1]))

    if method == "table":
        piece, points = _by_table(lambda: ticket(fold_in_range(select, lanes)), line, weights, finish)
    elif method == "tree":
        piece, points = finish(_by_tree(ticket(fold_in_range(select, lanes)), line, weights))
    else:
        piece, points = finish(_by_gumbel_max(select, line, weights, draws))
    return jnp.moveaxis(piece[..., :draws], -1, 0), jnp.moveaxis(points[..., :draws], -1, 0)


def _by_tree(ticket: Words, line: Line, weights: Weights) -> Chosen:
    base, tree = _block_tree(line, weights)
    sizes = [side.mantissa.shape[-1] for side in (weights.lower, weights.upper)]
    heights = [jnp.concatenate(field, axis=-1) for field in zip(weights.lower, weights.upper, strict=True)]

    def slots_at(side: jax.Array, block: jax.Array) -> jax.Array:
        slot = FAN_OUT * block[..., None] + jnp.arange(FAN_OUT, dtype=jnp.int32).reshape((1,) * block.ndim + (-1,))
        side = jnp.broadcast_to(side[..., None], slot.shape)
        there = slot < jnp.where(side == 0, np.int32(line.center), np.int32(line.cost_left.shape[-1] - line.center))
        flat = (*line.batch, -1)
        left, right = line.ends_at(line.piece(side, slot).reshape(flat))
        height = jnp.where(side == 0, jnp.minimum(slot, sizes[0] - 1), jnp.minimum(slot, sizes[1] - 1) + np.int32(sizes[0]))
        mantissa, exponent = (take(field, height.reshape(flat)) for field in heights)
        weight = Heights(mantissa, exponent).weight(jnp.abs(right - left), base).reshape(slot.shape)
        return jnp.where(there, weight, 0.0)

    side, slot, in_tail = tree.walk(ticket, slots_at if max(sizes) > FAN_OUT else None)
    if line.tails is None:
        return Chosen(line.piece(side, slot), None, None, tree.total > 0)
    return Chosen(line.piece(side, slot), in_tail, side == 1, tree.total > 0)


def _block_tree(line: Line, weights: Weights) -> tuple[jax.Array, BlockTree]:
    """The base of each row (int32, ``(*batch, 1)``) and its tree of sums."""

    def build(line: Line, weights: Weights, base: jax.Array) -> BlockTree:
        lower, upper, *tails = weights.sides(line, base)
        tree = BlockTree.build(lower, upper, tails[0][..., :2] if tails else None)
        rank = len(line.batch)
        return jax.tree.map(lambda sums: jnp.broadcast_to(sums, (*line.batch, *sums.shape[rank:])), tree)

    def by_rows(compute: Callable[[Line, Weights, jax.Array], Any]) -> Any:
        """Compute something for each row, some rows at a time: on the CPU it then stays in the cache, and in reused memory."""

        def one(number: jax.Array) -> Any:
            return compute(line.row(number), jax.tree.map(lambda field: row(field, line.batch, number), weights), number)

        numbers = jnp.arange(prod(line.batch), dtype=jnp.int32)
        found = jax.lax.map(one, numbers, batch_size=min(prod(line.batch), _ROWS))
        return jax.tree.map(lambda field: field.reshape(*line.batch, *field.shape[1:]), found)

    # Base 0 does for almost all rows, and saves a pass over the data. Other rows have all their mass near the end of the exponents
    # (long ties, large epsilon, tiny widths); if there is any, all rows are weighed again. A base is a matter of exact powers of
    # two, and each row decides for itself.
    zero = jnp.zeros((*line.batch, 1), jnp.int32)
    if prod(line.batch) <= _ROWS:
        tree = build(line, weights, zero)
    else:
        tree = jax.lax.platform_dependent(
            zero,
            cpu=lambda zero: by_rows(lambda one, its, _: build(one, its, jnp.zeros_like(zero, shape=(1,)))),
            default=lambda zero: build(line, weights, zero),
        )
    info = jnp.finfo(tree.sides.dtype)
    fits = (tree.total > 2.0 ** (info.minexp + 76)) & (tree.total < 2.0 ** (info.maxexp - 16))

    def again(one: Line, its: Weights, number: jax.Array) -> tuple[jax.Array, BlockTree]:
        base = jnp.where(fits.reshape(-1)[number], 0, its.heaviest(one))
        return base, build(one, its, base)

    return jax.lax.cond(jnp.all(fits), lambda: (zero, tree), lambda: by_rows(again))


def _by_table(ticket: Callable[[], Words], line: Line, weights: Weights, finish: Callable[[Chosen], Any]) -> Any:
    parts = weights.sides(line, weights.heaviest(line))
    size = 1 << (max(part.shape[-1] for part in parts) - 1).bit_length()
    lower, upper = (jnp.broadcast_to(pad(part, size), (*line.batch, size)) for part in parts[:2])
    tails = jnp.broadcast_to(parts[2][..., :2], (*line.batch, 2)) if len(parts) > 2 else None
    total = jnp.sum(lower, axis=-1, keepdims=True) + jnp.sum(upper, axis=-1, keepdims=True)
    if tails is not None:
        total = total + (tails[..., :1] + tails[..., 1:])

    def of_slot(slot: jax.Array) -> Any:
        inside = jnp.where(slot < size, 0, 1)
        chosen = line.piece(inside, jnp.where(slot < size, slot, slot - np.int32(size)))
        if tails is None:
            return finish(Chosen(chosen, None, None, total > 0))
        return finish(Chosen(chosen, slot >= 2 * size, slot == 2 * size + 1, total > 0))

    return search(tabulate(lower, upper, tails), ticket, of_slot)


def _by_gumbel_max(keys: Words, line: Line, weights: Weights, draws: int) -> Chosen:
    """The reference: two words for each slot and draw; the tails are the first slots of a third side."""
    parts = weights.sides(line, weights.heaviest(line))
    parts = [jnp.broadcast_to(part, (*line.batch, part.shape[-1])) for part in parts]
    log_weights = jnp.log(jnp.concatenate(parts, axis=-1))
    sizes = [part.shape[-1] for part in parts]

    def one(number: jax.Array) -> jax.Array:
        fresh = fold_in(keys, jnp.full(keys.high.shape, number, jnp.uint32))
        sides = [fold_in(fresh, jnp.full(keys.high.shape, side, jnp.uint32)) for side in range(len(parts))]
        drawn = [uniform_from_words(fold_in_range(side, size), log_weights.dtype) for side, size in zip(sides, sizes, strict=True)]
        joined = UniformPair(*(jnp.concatenate(part, axis=-1) for part in zip(*drawn, strict=True)))
        return gumbel_max(log_weights, gumbel_from_uniform(joined))

    if draws == 1:
        slot = one(jnp.uint32(0))[..., None]
    else:
        slot = jnp.moveaxis(jax.lax.map(one, jnp.arange(draws, dtype=jnp.uint32), batch_size=min(draws, 256)), 0, -1)
    inside = jnp.where(slot < sizes[0], 0, 1)
    chosen = line.piece(inside, jnp.where(slot < sizes[0], slot, slot - np.int32(sizes[0])))
    exists = jnp.max(log_weights, axis=-1, keepdims=True) > -jnp.inf
    tails = sizes[0] + sizes[1]
    return Chosen(chosen, None, None, exists) if line.tails is None else Chosen(chosen, slot >= tails, slot == tails + 1, exists)


def _place(line: Line, chosen: Chosen, words: Words) -> jax.Array:
    """Place each draw in its piece, counted from the low-cost end, or in its tail: ``(*batch, draws)``."""
    shape = chosen.piece.shape
    pair = uniform_from_words(words, line.rate.dtype)
    left, right = line.ends_at(chosen.piece)
    rise = take(line.cost_right - line.cost_left, chosen.piece)
    decay = jnp.broadcast_to(line.rate * jnp.abs(rise), shape)
    if shape[-1] == 1:  # one draw a row: the rows are the lanes
        decay, pair = _in_lanes(decay), UniformPair(*map(_in_lanes, pair))
    fraction = piece.quantile_fraction(pair.value, pair.complement, decay)
    noise = None if line.tails is None else exponential_from_uniform(pair)
    if shape[-1] == 1:
        fraction = fraction[: prod(shape)].reshape(shape)
        noise = None if noise is None else noise[: prod(shape)].reshape(shape)
    offset = (right - left) * fraction
    points = jnp.where(rise >= 0, left + offset, right - offset)
    points = jnp.clip(points, jnp.minimum(left, right), jnp.maximum(left, right))
    if line.tails is not None and noise is not None and chosen.in_tail is not None and chosen.upper is not None:
        starts, scales, _ = line.tails
        beyond = jnp.where(chosen.upper, starts[..., 1:] + scales[..., 1:] * noise, starts[..., :1] - scales[..., :1] * noise)
        points = jnp.where(chosen.in_tail, beyond, points)
    # A row without any mass, or with a NaN anywhere, has no law.
    return jnp.where(chosen.exists, points, jnp.nan)


def _in_lanes(array: jax.Array) -> jax.Array:
    return pad(array.reshape(-1), _LANES)


@partial(jax.jit, static_argnames=("shape", "method"))
def sample(
    key: jax.Array, law: PiecewiseExponential, shape: tuple[int, ...], method: Method | Literal["auto"], first: ArrayLike = 0
) -> jax.Array:
    """Draw from a law: float of shape ``shape + batch_shape``."""
    batch, draws = law.batch_shape, prod(shape)
    if draws == 0 or prod(batch) == 0:
        return jnp.zeros(shape + batch, law.dtype)
    _, points = draw(key, line_of(law), draws, method, first)
    return points.reshape(shape + batch)


def line_of(law: PiecewiseExponential) -> Line:
    """Read a law's pieces and tails."""
    batch = law.batch_shape
    rank, center = len(batch) + 1, law.center
    edges, rate = align(law.edges, rank), align(law.rate, rank - 1)[..., None]
    cost_left, cost_right = align(law.cost_left, rank), align(law.cost_right, rank)
    alone = edges.shape[-1] == 1  # tails only: one piece without width
    if alone:
        cost_left = cost_right = jnp.zeros((1,) * rank, edges.dtype)

    def widths() -> tuple[jax.Array, jax.Array]:
        lengths = jnp.zeros_like(edges) if alone else jnp.abs(edges[..., 1:] - edges[..., :-1])
        return jnp.flip(lengths[..., :center], -1), lengths[..., center:]

    def ends_at(index: jax.Array) -> tuple[jax.Array, jax.Array]:
        last = np.int32(edges.shape[-1] - 1)
        return take(edges, index), take(edges, jnp.minimum(index + 1, last))

    tails = None
    if law.tails is not None:
        ends = (
            (edges[..., 0], edges[..., -1]),
            tuple(align(scale, rank - 1) / rate[..., 0] for scale in (law.tails.lower_scale, law.tails.upper_scale)),
            (law.tails.lower_cost, law.tails.upper_cost),
        )
        starts, scales, costs = (jnp.stack([broadcast_batch(a, batch) for a in pair], axis=-1) for pair in ends)
        tails = starts, scales, costs

    def one(number: jax.Array) -> Line:
        edges, cost_left, cost_right = (row(field, batch, number) for field in (law.edges, law.cost_left, law.cost_right))
        rate, tails = jax.tree.map(lambda field: broadcast_batch(field, batch).reshape(-1)[number], (law.rate, law.tails))
        return line_of(replace(law, edges=edges, cost_left=cost_left, cost_right=cost_right, rate=rate, tails=tails))

    return Line(center, widths, ends_at, cost_left, cost_right, rate, tails, batch, one)
