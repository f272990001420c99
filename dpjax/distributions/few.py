"""One or a few draws from each row: pieces 32 apart are added up (a lane), a lane is chosen, and then a piece of it.

Nothing of the size of the data is stored. Each choice is a race: exponential noise divided by weights, of which the least wins.
That is Gumbel-max without its logarithms, from the top down: the sum of a lane races for its pieces. Sums are explicit adds counted
from the center, so that draws are bitwise the same whatever the padding and the other rows are.
"""

from __future__ import annotations

import functools
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dpjax.distributions.fixed_point_choice import race
from dpjax.distributions.line import Line
from dpjax.distributions.place import Chosen, Piece, place
from dpjax.distributions.weights import Base
from dpjax.numerics.batching import broadcast_rows, by_platform, concatenate, in_memory, take, window
from dpjax.numerics.elementwise import where
from dpjax.numerics.sums import LANES, lane_sums, pad
from dpjax.numerics.two_words import Words
from dpjax.random.threefry import threefry
from dpjax.random.uniforms import UniformPair, exponential_from_uniform, uniform_from_words

_GROUPS = 8  # lane i of both sides is number i // 8 of group i % 8
_STREAM = 8  # the words of place i of a draw have the stream 8 + i


def few(rows: Words, line: Line, draws: int) -> tuple[jax.Array, jax.Array]:
    """Choose one of 8 groups of lanes (or a tail), then one of its 8 lanes, then one of the slots in that lane.

    Args:
        rows: the words of each row's key, ``batch``.
        line: with at least one piece.
        draws: how many from each row.

    Returns:
        The chosen slots, counted outwards, int32, and the points, both ``(*batch, draws)``.
    """
    base, lanes, tails, always = lane_weights(line)
    groups = lanes
    while groups.shape[-1] > _GROUPS:
        half = groups.shape[-1] // 2
        groups = groups[..., :half] + groups[..., half:]
    groups = groups if tails is None else pad(jnp.concatenate([groups, tails], axis=-1), 2 * _GROUPS)
    exists, first = jnp.max(groups, axis=-1, keepdims=True) > 0, groups.shape[-1]  # a NaN is the largest, and not above 0
    slots = -(-max(side.size for side in line.sides) // LANES)
    # For each draw: noise for the groups, for the lanes of one, for the slots of one, and at last one number for the point.
    size = first + _GROUPS + slots + 1
    noise = in_memory(always, lambda: _exponentials(rows, draws, size, groups.dtype))
    group = race(groups[..., None, :], noise[..., :first])
    number = jax.lax.rem(group, np.int32(_GROUPS))[..., None] + np.int32(_GROUPS) * jnp.arange(_GROUPS, dtype=jnp.int32)
    members = take(lanes, number.reshape(*line.batch, -1)).reshape(number.shape)
    member = race(members, noise[..., first : first + _GROUPS])

    # What follows from these two is computed again wherever it is used: a condition would keep each of its inputs in memory.
    def found() -> tuple[jax.Array, jax.Array, jax.Array | None]:
        lane = jax.lax.rem(group, np.int32(_GROUPS)) + np.int32(_GROUPS) * member
        in_tail = None if tails is None else group >= _GROUPS
        upper = lane >= LANES if in_tail is None else where(in_tail, group == _GROUPS + 1, lane >= LANES)
        return upper, jax.lax.rem(lane, np.int32(LANES)), in_tail

    def weigh() -> jax.Array:
        upper, lane, _ = found()
        return _weights_at(line, upper, lane[..., None] + np.int32(LANES) * jnp.arange(slots, dtype=jnp.int32), base)

    within = race(in_memory(always, weigh), noise[..., first + _GROUPS : size - 1])

    def chosen() -> Chosen:
        upper, lane, in_tail = found()
        return Chosen(upper, lane + np.int32(LANES) * within, in_tail, exists)

    own = in_memory(always, lambda: Piece.at(line, chosen()))
    last = noise[..., size - 1]
    return chosen().slot, place(UniformPair(jnp.exp(-last), -jnp.expm1(-last)), line, chosen(), own)


def _exponentials(rows: Words, draws: int, size: int, dtype: Any) -> jax.Array:
    """Standard exponential noise for places 0 to ``size`` - 1, ``(*batch, draws, at least size)``.

    The number at a place depends on its row, its draw and its place, and at the last place on its row and its draw only.
    """
    place, draw = (jnp.arange(n, dtype=jnp.uint32) for n in (-(-size // LANES) * LANES, draws))
    stream = _STREAM + where(place == size - 1, np.uint32(0), place + np.uint32(1))
    keys = Words(rows.high[..., None, None], rows.low[..., None, None])
    return exponential_from_uniform(uniform_from_words(threefry(keys, Words(stream[None, :], draw[:, None])), dtype))


def _weights_at(line: Line, upper: jax.Array, slot: jax.Array, base: Base) -> jax.Array:
    """The weights of slots ``(*batch, draws, j)`` of one side for each draw; 0 beyond its end."""
    flat = (*line.batch, -1)
    upper, index = jnp.broadcast_to(upper[..., None], slot.shape).reshape(flat), slot.reshape(flat)
    near, far = line.ends(upper, index)
    at = line.place_of(upper, index)
    rise, mantissa, exponent, cost = (take(part, at) for part in (line.rise, *line.heights[:3]))
    heights = line.heights._replace(mantissa=mantissa, exponent=exponent, cost=cost)
    there = index < where(upper, np.int32(line.sides[1].size), np.int32(line.sides[0].size))
    return where(there, heights.weight(line.measure(jnp.abs(far - near), rise), base), 0.0).reshape(slot.shape)


def lane_weights(line: Line) -> tuple[Base, jax.Array, jax.Array | None, jax.Array]:
    """The weights added up by lanes: slot i of a side is number i // 32 of lane i % 32. They have no gradient.

    Almost all rows can be weighed from cost 0, with one product for each piece and nothing stored. Where a row has all its mass far
    above it (long ties, a large epsilon) or in tiny pieces, all are weighed again, each from a base of its own. A base only changes
    powers of two, and with them no draw.

    Returns:
        What they are relative to; the lanes of the lower and of the upper side, ``(*batch, 64)``; the weights of the tails,
        ``(*batch, 2)`` or None; and a condition that is true, but only when the program runs.
    """
    line = jax.lax.stop_gradient(line)
    tables = line.parts(line.heights.from_zero())

    def from_zero(number: int) -> jax.Array:
        read, table = line.reader(number), tables[number]
        return lane_sums(lambda start, size: jnp.abs(read(start, size) * window(table, start, size)), table.shape[-1])

    plain = _joined([from_zero(0), from_zero(1)], [] if line.tails is None else [jnp.abs(line.tails.scale * tables[2])])
    plain = [broadcast_rows(part, line.batch) for part in plain]
    length = line.sides[0].length + line.sides[1].length
    if line.tails is not None:
        length = length + jnp.sum(line.tails.scale, axis=-1, keepdims=True)
    fits = _fits(functools.reduce(jnp.maximum, (jnp.max(part, axis=-1, keepdims=True) for part in plain)), length)
    zero = Base.zero(fits.shape, line.rate.dtype), plain
    base, (lanes, *tails) = by_platform(
        cpu=lambda: _weighed_in_turns(line, fits, zero), default=lambda: _weighed_at_once(line, fits, zero)
    )
    return base, lanes, tails[0] if tails else None, base.cost.reshape(-1)[0] != jnp.inf


def _weighed_in_turns(line: Line, fits: jax.Array, plain: Any) -> Any:
    """Return ``plain``, the lanes from cost 0, if they fit in all rows; else those of all rows, some rows at a time."""
    rows, size = line.cacheful

    def again(number: jax.Array, found: Any) -> Any:
        start = jnp.minimum(number * size, rows - size)
        some = line.rows((), start, size)[0]
        base, weights = some.weights()
        lower, upper, *tails = some.parts(weights)
        own = base, _joined([lane_sums(partial(window, side), side.shape[-1]) for side in (lower, upper)], tails)
        put = jax.lax.dynamic_update_slice_in_dim
        return jax.tree.map(lambda all, some: put(all, some.astype(all.dtype), start, 0), found, own)

    # A loop of as many turns as needed, mostly none: a condition would copy what it hands through.
    turns = jnp.max(where(fits, 0.0, float(-(-rows // size)))).astype(jnp.int32)
    found = jax.tree.map(lambda a: a.reshape(rows, a.shape[-1]), plain)
    found = jax.lax.fori_loop(np.int32(0), turns, again, found)
    return jax.tree.map(lambda a: a.reshape(*line.batch, a.shape[-1]), found)


def _weighed_at_once(line: Line, fits: jax.Array, plain: Any) -> Any:
    """Return the same by one condition, in whose other branch no weight is stored: it is made where it is added.

    The barrier keeps it a condition: XLA's GPU compiler otherwise runs both branches and selects, and one draw from 65,536 rows of
    1001 records took 499 microseconds on an H200 in place of 181.
    """

    def again() -> Any:
        base, _ = line.base()
        parts = [line.parts(jax.lax.optimization_barrier(part)) for part in line.heights[:3]]

        def weight(number: int, widths: jax.Array, start: Any, size: int) -> jax.Array:
            mantissa, exponent, cost = (window(part[number], start, size) for part in parts)
            heights = line.heights._replace(mantissa=mantissa, exponent=exponent, cost=cost)
            return broadcast_rows(heights.weight(widths, base), line.batch)

        def lanes(number: int) -> jax.Array:
            read = line.reader(number)
            return lane_sums(lambda start, size: weight(number, read(start, size), start, size), line.sides[number].size)

        found = base, _joined([lanes(0), lanes(1)], [] if line.tails is None else [weight(2, line.tails.scale, 0, 2)])
        return jax.tree.map(lambda own, other: own.astype(other.dtype), found, plain)

    return jax.lax.cond(jnp.all(fits), lambda: plain, again)


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
