"""Draws from a distribution on the line: weigh the pieces, choose one, then place the draw inside it by inverse CDF.

For one or a few draws from a row, the pieces 64 apart are added up (a lane); then a lane is chosen, and a piece of it: nothing of
the size of the data is stored. For many draws, all pieces are tabulated. Both choose in the same way (``selection.py``). On
accelerators, where one fused pass over all pieces costs less than several small kernels, few draws are made by Gumbel-max instead.

For draws that are bitwise the same whatever the padding and the other rows are, sums of floats are explicit adds counted from the
center, and transcendental functions of draws run over a multiple of 32 lanes: XLA's vector loop and its remainder loop round
differently.
"""

from __future__ import annotations

from functools import partial
from math import prod
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from dpjax.distributions import truncated_exponential as piece
from dpjax.distributions.selection import Table, choose, gumbel_max
from dpjax.distributions.sides import GROUPS, LANES, Ends, Line, decay_of, weigh
from dpjax.distributions.weights import Base, Heights
from dpjax.numerics.batching import in_memory, take
from dpjax.numerics.sums import pad
from dpjax.numerics.two_words import Words
from dpjax.random.keys import fold_in_range, fold_in_streams, row_words
from dpjax.random.noise import UniformPair, exponential_from_uniform, gumbel_from_uniform, uniform_from_words

if TYPE_CHECKING:
    from dpjax.distributions.piecewise import PiecewiseExponential

_FEW = 64  # up to so many draws from a row cost less by lanes than by a table
_CHUNK = 2**17  # draws that are made together: they stay in the cache
_FUSED = 2**23  # pieces: with fewer, an accelerator takes one pass of Gumbel-max (estimated by bytes and kernels, not measured)
_GROUP, _LANE, _SLOT, _PLACE, _GUMBEL = range(1, 6)  # what words are for
Method = Literal["auto", "tree", "table", "gumbel"]


class Chosen(NamedTuple):
    """What was chosen for each draw, ``(*batch, draws)``.

    Attributes:
        upper: bool, whether it is on the upper side.
        slot: int32, the piece, counted outwards.
        in_tail: bool, whether it is the tail of that side instead; None without tails.
        exists: whether the row has a distribution at all, ``(*batch, 1)``: mass, and no NaN anywhere.
    """

    upper: jax.Array
    slot: jax.Array
    in_tail: jax.Array | None
    exists: jax.Array


def draw(key: jax.Array, line: Line, draws: int, method: Method, first: ArrayLike = 0) -> tuple[jax.Array, jax.Array]:
    """Draw from each row: the chosen slots, counted outwards on their side (int32), and the points, both ``(draws, *batch)``."""
    rows = row_words(key, line.batch, first)
    if not line.pieces or method == "tree":
        found = _few(rows, line, draws)
    elif method == "gumbel":
        found = _by_gumbel_max(rows, line, draws)
    elif method == "table" or draws > _FEW:
        found = _many(rows, line, draws)
    elif prod(line.batch) * line.pieces >= _FUSED:
        found = _few(rows, line, draws)
    else:
        few, fused = (partial(way, line=line, draws=draws) for way in (_few, _by_gumbel_max))
        found = jax.lax.platform_dependent(rows, cpu=few, default=fused)
    return jnp.moveaxis(found[0], -1, 0), jnp.moveaxis(found[1], -1, 0)


# --- few draws ---


def _few(rows: Words, line: Line, draws: int) -> tuple[jax.Array, jax.Array]:
    """Choose one of 8 groups of lanes a side (or a tail), then one of its 8 lanes, then one of the slots in that lane."""
    weighed = weigh(line)
    exists = weighed.total > 0
    for_group, for_lane, for_slot, for_place = fold_in_streams(rows, draws, (_GROUP, _LANE, _SLOT, _PLACE))
    group = choose(weighed.groups[..., None, :], for_group)
    if not line.pieces:
        upper = group == 1
        chosen = Chosen(upper, jnp.zeros(upper.shape, jnp.int32), jnp.ones_like(upper), exists)
        return chosen.slot, _place(for_place, line, chosen, None)
    upper, in_tail = group >= GROUPS, None
    if line.tails is not None:
        in_tail = group >= 2 * GROUPS
        upper = jnp.where(in_tail, group == 2 * GROUPS + 1, upper)
    number = (group % GROUPS)[..., None] + np.int32(GROUPS) * jnp.arange(LANES // GROUPS, dtype=jnp.int32)
    flat = number.reshape(*line.batch, -1)
    side = jnp.broadcast_to(upper[..., None], number.shape).reshape(flat.shape)
    members = jnp.where(side, take(weighed.lanes[1], flat, side), take(weighed.lanes[0], flat, ~side)).reshape(number.shape)
    lane = group % GROUPS + np.int32(GROUPS) * choose(members, for_lane)
    slot = lane[..., None] + np.int32(LANES) * jnp.arange(max(-(-side.size // LANES) for side in line.sides), dtype=jnp.int32)
    if slot.shape[-1] > 1:
        within = choose(in_memory(weighed.done, lambda: _weights_at(line, upper, slot, weighed.base)), for_slot)
        slot = jnp.take_along_axis(slot, within[..., None], axis=-1)
    chosen = Chosen(upper, slot[..., 0], in_tail, exists)
    own = in_memory(weighed.done, lambda: jnp.stack(Piece.at(line, chosen)))
    return chosen.slot, _place(for_place, line, chosen, Piece(*own))


def _weights_at(line: Line, upper: jax.Array, slot: jax.Array, base: Base) -> jax.Array:
    """The weights of slots ``(*batch, draws, j)`` of one side for each draw; 0 beyond its end."""
    flat = (*line.batch, -1)
    upper = jnp.broadcast_to(upper[..., None], slot.shape).reshape(flat)
    index = slot.reshape(flat)
    near, far = _pick(line, upper, index, lambda side, _, at: side.ends(*at))
    mantissa, exponent, cost = _pick(line, upper, index, lambda _, heights, at: tuple(take(field, *at) for field in heights[:3]))
    there = index < jnp.where(upper, np.int32(line.sides[1].size), np.int32(line.sides[0].size))
    weight = Heights(mantissa, exponent, cost, line.heights[0].bits).weight(jnp.abs(far - near), base)
    return jnp.where(there, weight, 0.0).reshape(slot.shape)


def _pick(line: Line, upper: jax.Array, slot: jax.Array, read: Any) -> tuple[jax.Array, ...]:
    """Read something of slots ``(*batch, j)`` from the side that each is on; the other side is read at one place."""
    found = []
    for number, (side, heights) in enumerate(zip(line.sides, line.heights, strict=True)):
        own = upper if number else ~upper
        if side.size or not line.pieces:
            found.append(read(side, heights, (jnp.clip(slot, 0, max(side.size - 1, 0)), own)))
    if len(found) == 1:
        return tuple(found[0])
    return tuple(jnp.where(upper, above, below) for below, above in zip(*found, strict=True))


class Piece(NamedTuple):
    """The piece of each draw, ``(*batch, draws)``: its low-cost end, its other end, and the decay from the one to the other."""

    start: jax.Array
    stop: jax.Array
    decay: jax.Array

    @staticmethod
    def of(near: jax.Array, far: jax.Array, rise: jax.Array, decay: jax.Array) -> Piece:
        """From the inner and the outer end, and how much the cost rises between them."""
        return Piece(jnp.where(rise >= 0, near, far), jnp.where(rise >= 0, far, near), decay)

    @staticmethod
    def at(line: Line, chosen: Chosen) -> Piece:
        """Read the chosen pieces."""
        near, far, rise, decay = _pick(
            line,
            chosen.upper,
            chosen.slot,
            lambda side, _, at: (
                *side.ends(*at),
                take(side.cost_far - side.cost_near, *at),
                take(decay_of(side, line.rate), *at),
            ),
        )
        return Piece.of(near, far, rise, decay)

    @staticmethod
    def all(line: Line) -> Piece:
        """All pieces in ascending order, ``(*batch, pieces)``."""
        found = []
        for side, order in zip(line.sides, (-1, 1), strict=True):
            index = jnp.broadcast_to(jnp.arange(side.size, dtype=jnp.int32), (*line.batch, side.size))
            rise, decay = side.cost_far - side.cost_near, decay_of(side, line.rate)
            parts = (jnp.broadcast_to(part, index.shape)[..., ::order] for part in (*side.ends(index), rise, decay))
            found.append(Piece.of(*parts))
        return jax.tree.map(lambda *sides: jnp.concatenate(sides, axis=-1), *found)


def _place(words: Words, line: Line, chosen: Chosen, own: Piece | None) -> jax.Array:
    """Place each draw in its piece, counted from the low-cost end, or in its tail: ``(*batch, draws)``."""
    shape = chosen.slot.shape
    pair = uniform_from_words(words, line.rate.dtype)
    alone = shape[-1] == 1  # one draw a row: the rows are the lanes of XLA's loops

    def in_lanes(array: jax.Array) -> jax.Array:
        return pad(jnp.broadcast_to(array, shape).reshape(-1)) if alone else array

    def out(array: jax.Array) -> jax.Array:
        return array[: prod(shape)].reshape(shape) if alone else array

    pair = UniformPair(*map(in_lanes, pair))
    points = jnp.zeros(shape, line.rate.dtype)
    if own is not None:
        fraction = out(piece.quantile_fraction(pair.value, pair.complement, in_lanes(own.decay)))
        width = own.stop - own.start
        # It lies between these anyway: they keep the product from being fused into a sum, which would change the last bit, in some
        # programs and not in others.
        offset = jnp.clip(width * fraction, jnp.minimum(width, 0.0), jnp.maximum(width, 0.0))
        points = jnp.clip(own.start + offset, jnp.minimum(own.start, own.stop), jnp.maximum(own.start, own.stop))
    if line.tails is not None and chosen.in_tail is not None:
        ends = line.tails[0]
        noise = out(exponential_from_uniform(pair))
        below, above = (Ends(*(field[..., i : i + 1] for field in ends)) for i in (0, 1))
        reach = jnp.maximum(jnp.where(chosen.upper, above.scale, below.scale) * noise, 0.0)  # as above
        beyond = jnp.where(chosen.upper, above.start + reach, below.start - reach)
        points = jnp.where(chosen.in_tail, beyond, points)
    # A row without any mass, or with a NaN anywhere, has no distribution.
    return jnp.where(chosen.exists, points, jnp.nan)


# --- many draws ---


def _many(rows: Words, line: Line, draws: int) -> tuple[jax.Array, jax.Array]:
    weighed = weigh(line)
    exists = weighed.total > 0
    lower, upper, *tails = jax.lax.stop_gradient(line.weights(weighed.base))
    parts = [jnp.flip(lower, -1), upper]
    if tails:
        parts = [tails[0][..., :1], *parts, tails[0][..., 1:]]
    weights = jnp.concatenate([jnp.broadcast_to(part, (*line.batch, part.shape[-1])) for part in parts], axis=-1)
    # Their order is that of the line, and their sums are those of its pieces alone: not of the padding at either end.
    table, pieces = Table.of(weights), Piece.all(line)
    first_piece = 1 if tails else 0
    center = line.sides[0].size + first_piece
    step = min(draws, max(32, _CHUNK // prod(line.batch) // 32 * 32))

    def chunk(number: jax.Array) -> tuple[jax.Array, jax.Array]:
        first = number * np.int32(step)
        for_piece, for_place = (fold_in_range(rows, step, first, stream) for stream in (_GROUP, _PLACE))
        index = table.choose(for_piece)
        above = index >= center
        slot = jnp.where(above, index - np.int32(center), np.int32(center - 1) - index)
        sizes = jnp.where(above, np.int32(line.sides[1].size), np.int32(line.sides[0].size))
        chosen = Chosen(above, slot, slot >= sizes if tails else None, exists)
        at = jnp.clip(index - np.int32(first_piece), 0, np.int32(line.pieces - 1))
        return slot, _place(for_place, line, chosen, Piece(*(take(part, at) for part in pieces)))

    if step == draws:
        return chunk(jnp.int32(0))
    count = -(-draws // step)
    found = jax.lax.map(chunk, jnp.arange(count, dtype=jnp.int32))

    def joined(parts: jax.Array) -> jax.Array:
        return jnp.moveaxis(parts, 0, -2).reshape(*line.batch, -1)[..., :draws]

    return joined(found[0]), joined(found[1])


# --- the reference ---


def _by_gumbel_max(rows: Words, line: Line, draws: int) -> tuple[jax.Array, jax.Array]:
    """Two words for each slot and draw; the tails are the slots of a third side."""
    weighed = weigh(line)
    parts = jax.lax.stop_gradient(line.weights(weighed.base))
    log_weights = jnp.log(jnp.concatenate([jnp.broadcast_to(part, (*line.batch, part.shape[-1])) for part in parts], axis=-1))
    sizes = [part.shape[-1] for part in parts]

    def one(number: jax.Array) -> jax.Array:
        drawn = []
        for side, size in enumerate(sizes):
            own = fold_in_range(rows, 1, number, stream=_GUMBEL + side)
            drawn.append(uniform_from_words(fold_in_range(Words(own.high[..., 0], own.low[..., 0]), size), log_weights.dtype))
        joined = UniformPair(*(jnp.concatenate(part, axis=-1) for part in zip(*drawn, strict=True)))
        return gumbel_max(log_weights, gumbel_from_uniform(joined))

    if draws == 1:
        slot = one(jnp.uint32(0))[..., None]
    else:
        slot = jnp.moveaxis(jax.lax.map(one, jnp.arange(draws, dtype=jnp.uint32), batch_size=min(draws, 256)), 0, -1)
    starts = np.cumsum([0, *sizes], dtype=np.int32)
    upper = (slot >= starts[1]) & (slot < starts[2])
    in_tail = None
    if line.tails is not None:
        in_tail = slot >= starts[2]
        upper = upper | (slot == starts[2] + 1)
    slot = jnp.where(slot < starts[1], slot, slot - starts[1])
    chosen = Chosen(upper, slot, in_tail, weighed.total > 0)
    piece = Piece.at(line, chosen) if line.pieces else None
    return chosen.slot, _place(fold_in_range(rows, draws, stream=_PLACE), line, chosen, piece)


@partial(jax.jit, static_argnames=("shape", "method"))
def sample(
    key: jax.Array, distribution: PiecewiseExponential, shape: tuple[int, ...], method: Method, first: ArrayLike = 0
) -> jax.Array:
    """Draw from a distribution: float of shape ``shape + batch_shape``; ``first`` is the index of its first row."""
    batch, draws = distribution.batch_shape, prod(shape)
    if draws == 0 or prod(batch) == 0:
        return jnp.zeros(shape + batch, distribution.dtype)
    return draw(key, distribution.line(), draws, method, first)[1].reshape(shape + batch)
