"""Draws from a distribution on the line: weigh the pieces, choose one, then place the draw inside it by inverse CDF.

For one or a few draws from a row, the pieces 32 apart are added up (a lane); then a lane is chosen, and a piece of it: nothing of
the size of the data is stored. They are chosen by races: exponential noise divided by weights, of which the least wins. That is
Gumbel-max without its logarithms, from the top down: the sum of a lane races for its pieces. For many draws, all pieces are
tabulated, and chosen by inverse CDF in fixed point (``selection.py``). On accelerators, where one fused pass over all pieces costs
less than several small kernels, few draws are made by Gumbel-max over all pieces, which is also the reference.

For draws that are bitwise the same whatever the padding and the other rows are, sums of floats are explicit adds counted from the
center, and transcendental functions of draws run over a multiple of 32 lanes: XLA's vector loop and its remainder loop round
differently.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import prod
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from dpjax.distributions import truncated_exponential as piece
from dpjax.distributions.selection import Table, gumbel_max, race
from dpjax.distributions.sides import Ends, Lengths, Line, OnLine
from dpjax.distributions.weights import Base, Heights
from dpjax.numerics.batching import by_platform, concatenate, in_memory, take
from dpjax.numerics.sums import LANES, pad
from dpjax.numerics.two_words import Words
from dpjax.random.keys import fold_in_range, row_words
from dpjax.random.noise import UniformPair, exponential_from_uniform, gumbel_from_uniform, uniform_from_words
from dpjax.random.threefry import threefry

_GROUPS = 8  # lane i of both sides is number i // 8 of group i % 8
_FEW = 64  # up to so many draws from a row cost less by lanes than by a table
_CHUNK = 2**18  # draws that are made together: they stay in the cache
_FUSED = 2**23  # pieces: with fewer, an accelerator takes one pass of Gumbel-max (estimated by bytes and kernels, not measured)
_SLOT, _PLACE, _GUMBEL, _NOISE = 1, 2, 3, 8  # what words are for: the last three have streams of their own from there on
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
    if not line.pieces:
        found = _from_tails(rows, line, draws)
    elif method == "tree":
        found = _few(rows, line, draws)
    elif method == "gumbel":
        found = _by_gumbel_max(rows, line, draws)
    elif method == "table" or draws > _FEW:
        found = _many(rows, line, draws)
    elif prod(line.batch) * line.pieces >= _FUSED:
        found = _few(rows, line, draws)
    else:
        found = by_platform(cpu=lambda: _few(rows, line, draws), default=lambda: _by_gumbel_max(rows, line, draws))
    return jnp.moveaxis(found[0], -1, 0), jnp.moveaxis(found[1], -1, 0)


# --- few draws ---


def _few(rows: Words, line: Line, draws: int) -> tuple[jax.Array, jax.Array]:
    """Choose one of 8 groups of lanes (or a tail), then one of its 8 lanes, then one of the slots in that lane, each by a race."""
    base, lanes, tails, known = line.lanes()
    groups = lanes
    while groups.shape[-1] > _GROUPS:
        half = groups.shape[-1] // 2
        groups = groups[..., :half] + groups[..., half:]
    groups = groups if tails is None else pad(jnp.concatenate([groups, tails], axis=-1), 2 * _GROUPS)
    exists, first = jnp.max(groups, axis=-1, keepdims=True) > 0, groups.shape[-1]  # a NaN is the largest, and not above 0
    slots = -(-max(side.size for side in line.sides) // LANES)
    size = -(-(first + _GROUPS + slots) // LANES) * LANES
    noise = in_memory(known, lambda: _exponentials(rows, draws, size, groups.dtype))
    group = race(groups[..., None, :], noise[..., :first])
    number = jax.lax.rem(group, np.int32(_GROUPS))[..., None] + np.int32(_GROUPS) * jnp.arange(_GROUPS, dtype=jnp.int32)
    members = take(lanes, number.reshape(*line.batch, -1)).reshape(number.shape)
    member = race(members, noise[..., first : first + _GROUPS])

    # What follows from these two is computed again wherever it is used: a condition would keep each of its inputs in memory.
    def found() -> tuple[jax.Array, jax.Array, jax.Array | None]:
        lane = jax.lax.rem(group, np.int32(_GROUPS)) + np.int32(_GROUPS) * member
        in_tail = None if tails is None else group >= _GROUPS
        upper = lane >= LANES if in_tail is None else jnp.where(in_tail, group == _GROUPS + 1, lane >= LANES)
        return upper, jax.lax.rem(lane, np.int32(LANES)), in_tail

    def weigh() -> jax.Array:
        upper, lane, _ = found()
        return _weights_at(line, upper, lane[..., None] + np.int32(LANES) * jnp.arange(slots, dtype=jnp.int32), base)

    within = race(in_memory(known, weigh), noise[..., first + _GROUPS :][..., :slots])

    def chosen() -> Chosen:
        upper, lane, in_tail = found()
        return Chosen(upper, lane + np.int32(LANES) * within, in_tail, exists)

    own = in_memory(known, lambda: Piece.at(line, chosen()))
    return chosen().slot, _place(fold_in_range(rows, draws, stream=_PLACE), line, chosen(), own)


def _exponentials(rows: Words, draws: int, size: int, dtype: Any) -> jax.Array:
    """Standard exponential noise ``(*batch, draws, size)``, of which each number depends on its row, its draw and its place."""
    place, draw = (jnp.arange(n, dtype=jnp.uint32) for n in (size, draws))
    counter = Words((_NOISE + place)[None, :], draw[:, None])
    keys = Words(rows.high[..., None, None], rows.low[..., None, None])
    return exponential_from_uniform(uniform_from_words(threefry(keys, counter), dtype))


def _from_tails(rows: Words, line: Line, draws: int) -> tuple[jax.Array, jax.Array]:
    """Without pieces: choose one of two tails, the lighter one where a uniform is below its share."""
    weights = line.without_gradient().weights()[1][2]
    below, above = weights[..., :1], weights[..., 1:]
    share = jnp.minimum(below, above) / (below + above)
    lighter = uniform_from_words(fold_in_range(rows, draws, stream=_SLOT), weights.dtype).value < share
    upper = lighter == (above < below)
    chosen = Chosen(upper, jnp.zeros_like(upper, jnp.int32), jnp.ones_like(upper), below + above > 0)
    return chosen.slot, _place(fold_in_range(rows, draws, stream=_PLACE), line, chosen, None)


def _weights_at(line: Line, upper: jax.Array, slot: jax.Array, base: Base) -> jax.Array:
    """The weights of slots ``(*batch, draws, j)`` of one side for each draw; 0 beyond its end."""
    flat = (*line.batch, -1)
    upper, index = jnp.broadcast_to(upper[..., None], slot.shape).reshape(flat), slot.reshape(flat)
    near, far = _ends(line, upper, index)
    rise, mantissa, exponent, cost = (take(field, _joined(line, upper, index)) for field in (line.rise, *line.heights[:3]))
    heights, widths = Heights(mantissa, exponent, cost, line.heights.bits), line.measure(jnp.abs(far - near), rise)
    there = index < jnp.where(upper, np.int32(line.sides[1].size), np.int32(line.sides[0].size))
    return jnp.where(there, heights.weight(widths, base), 0.0).reshape(slot.shape)


def _joined(line: Line, upper: jax.Array, slot: jax.Array) -> jax.Array:
    """The place of slots ``(*batch, j)`` among those of the lower side followed by those of the upper one; some place beyond."""
    return jnp.minimum(jnp.where(upper, np.int32(line.sides[0].size), 0) + slot, np.int32(line.pieces - 1))


def _ends(line: Line, upper: jax.Array, slot: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The inner and outer ends of slots ``(*batch, j)`` from the side that each is on; the other side is read at one place."""
    found = []
    for side, own in zip(line.sides, (~upper, upper), strict=True):
        if side.size:
            found.append(side.ends(jnp.clip(slot, 0, side.size - 1), own))
    if len(found) == 1:
        return found[0]
    (near_below, far_below), (near_above, far_above) = found
    return jnp.where(upper, near_above, near_below), jnp.where(upper, far_above, far_below)


def _ends_in_one(line: Line) -> Callable[[jax.Array, jax.Array], tuple[jax.Array, jax.Array]]:
    """Join the ends of both sides in one array, for many draws; from places as in ``_joined`` and whether they are above."""
    lower, upper = line.sides
    if isinstance(lower, Lengths) or isinstance(upper, Lengths):
        lengths = concatenate(*(side.widths() for side in line.sides))
        return lambda at, _: (jnp.zeros_like(at, lengths.dtype), take(lengths, at))
    values = concatenate(lower.values, upper.values)

    def read(at: jax.Array, above: jax.Array) -> tuple[jax.Array, jax.Array]:
        at = jnp.where(above, at + np.int32(1), at)  # a side has one value more than pieces
        return take(values, at), take(values, at + np.int32(1))

    return read


class Piece(NamedTuple):
    """The piece of each draw, ``(*batch, draws)``.

    Attributes:
        near: its inner end.
        far: its outer end.
        rise: rate times the rise of the cost from the one to the other.
        decay: from its low-cost end, where it is read from a table; None where its exponentials are to be taken.
    """

    near: jax.Array
    far: jax.Array
    rise: jax.Array
    decay: piece.Decay | None = None

    @staticmethod
    def at(line: Line, chosen: Chosen) -> Piece:
        """Read the chosen pieces."""
        ends = _ends(line, chosen.upper, chosen.slot)
        return Piece(*ends, take(line.rise, _joined(line, chosen.upper, chosen.slot)))


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
        decay = piece.Decay.of(in_lanes(jnp.abs(own.rise))) if own.decay is None else piece.Decay(*map(in_lanes, own.decay))
        fraction = out(piece.quantile_fraction(pair.value, pair.complement, decay))
        rises = own.rise >= 0
        start, stop = jnp.where(rises, own.near, own.far), jnp.where(rises, own.far, own.near)
        width = stop - start
        # It lies between these anyway: they keep the product from being fused into a sum, which would change the last bit, in some
        # programs and not in others.
        offset = jnp.clip(width * fraction, jnp.minimum(width, 0.0), jnp.maximum(width, 0.0))
        points = jnp.clip(start + offset, jnp.minimum(start, stop), jnp.maximum(start, stop))
    if line.tails is not None and chosen.in_tail is not None:
        ends = line.tails
        noise = out(exponential_from_uniform(pair))
        below, above = (Ends(*(field[..., i : i + 1] for field in ends)) for i in (0, 1))
        reach = jnp.maximum(jnp.where(chosen.upper, above.scale, below.scale) * noise, 0.0)  # as above
        beyond = jnp.where(chosen.upper, above.start + reach, below.start - reach)
        points = jnp.where(chosen.in_tail, beyond, points)
    # A row without any mass, or with a NaN anywhere, has no distribution.
    return jnp.where(chosen.exists, points, jnp.nan)


# --- many draws ---


def _many(rows: Words, line: Line, draws: int) -> tuple[jax.Array, jax.Array]:
    """Tabulate the slots of both sides outwards, each after its tail."""
    _, (lower, upper, *tails) = line.without_gradient().weights()
    if tails:
        lower, upper = (jnp.concatenate([tails[0][..., i : i + 1], side], axis=-1) for i, side in enumerate((lower, upper)))
    center = lower.shape[-1]
    table = Table.of(jnp.concatenate([lower, upper], axis=-1), center)
    ends, exponentials = _ends_in_one(line), piece.Decay.of(jnp.abs(line.rise))[1:]
    step = min(draws, max(32, _CHUNK // prod(line.batch) // 32 * 32))

    def chunk(number: jax.Array) -> tuple[jax.Array, jax.Array]:
        first = number * np.int32(step)
        index = table.choose(partial(fold_in_range, rows, step, first, _SLOT))
        above = index >= np.int32(center)
        index = jnp.where(above, index - np.int32(center), index)
        slot = jnp.maximum(index - np.int32(1), 0) if tails else index
        exists = (table.ends.high | table.ends.low)[..., -1:] > 0
        chosen = Chosen(above, slot, index == 0 if tails else None, exists)
        at = _joined(line, above, slot)
        rise, kept, lost = (take(part, at) for part in (line.rise, *exponentials))
        own = Piece(*ends(at, above), rise, piece.Decay(jnp.abs(rise), kept, lost))
        return slot, _place(fold_in_range(rows, step, first, _PLACE), line, chosen, own)

    if step == draws:
        return chunk(jnp.int32(0))
    count = -(-draws // step)
    # Under a condition: out of the loop itself XLA moves what does not change, one small kernel for each operation.
    found = jax.lax.map(lambda number: in_memory(number >= 0, lambda: chunk(number)), jnp.arange(count, dtype=jnp.int32))

    def joined(parts: jax.Array) -> jax.Array:
        return jnp.moveaxis(parts, 0, -2).reshape(*line.batch, -1)[..., :draws]

    return joined(found[0]), joined(found[1])


# --- the reference ---


def _by_gumbel_max(rows: Words, line: Line, draws: int) -> tuple[jax.Array, jax.Array]:
    """Two words for each slot and draw; the tails are the slots of a third side."""
    _, parts = line.without_gradient().weights()
    weights = jnp.concatenate(parts, axis=-1)
    log_weights = jnp.log(weights)
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
    chosen = Chosen(upper, slot, in_tail, jnp.sum(weights, axis=-1, keepdims=True) > 0)
    return slot, _place(fold_in_range(rows, draws, stream=_PLACE), line, chosen, Piece.at(line, chosen))


@partial(jax.jit, static_argnames=("shape", "method"))
def sample(key: jax.Array, distribution: OnLine, shape: tuple[int, ...], method: Method, first: ArrayLike = 0) -> jax.Array:
    """Draw from a distribution: float of shape ``shape + batch_shape``; ``first`` is the index of its first row."""
    batch, draws = distribution.batch_shape, prod(shape)
    if draws == 0 or prod(batch) == 0:
        return jnp.zeros(shape + batch, distribution.dtype)
    return draw(key, distribution.line(), draws, method, first)[1].reshape(shape + batch)
