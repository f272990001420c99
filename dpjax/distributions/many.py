"""Many draws from each row: all pieces are tabulated and drawn by inverse cdf in fixed point.

See ``fixed_point_choice.py``.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import prod

import jax
import jax.numpy as jnp
import numpy as np

from dpjax.distributions import truncated_exponential as piece
from dpjax.distributions.fixed_point_choice import Table
from dpjax.distributions.line import Lengths, Line
from dpjax.distributions.place import Chosen, Piece, place
from dpjax.numerics.batching import concatenate, in_memory, take
from dpjax.numerics.elementwise import where
from dpjax.numerics.two_words import Words
from dpjax.random.keys import fold_in_range
from dpjax.random.uniforms import UniformPair, row_uniforms

CHUNK = 2**18  # draws that are made together, so that they fit in the cache
_SLOT, _PLACE = 1, 2  # the streams of a draw's words


def many(rows: Words, line: Line, draws: int) -> tuple[jax.Array, jax.Array]:
    """Tabulate the slots of each side outwards, after its tail; otherwise as ``few``."""
    lower, upper, *tails = line.parts(jax.lax.stop_gradient(line).weights()[1])
    if tails:
        lower, upper = (
            jnp.concatenate([tails[0][..., i : i + 1], side], axis=-1)
            for i, side in enumerate((lower, upper))
        )
    center = lower.shape[-1]
    table = Table.of(jnp.concatenate([lower, upper], axis=-1), center)
    ends, exponentials = _ends_in_one(line), piece.Decay.of(jnp.abs(line.rise))[1:]
    step = min(draws, max(32, CHUNK // prod(line.batch) // 32 * 32))

    def chunk(number: jax.Array) -> tuple[jax.Array, jax.Array]:
        first = number * np.int32(step)
        index = table.choose(partial(fold_in_range, rows, step, first, _SLOT))
        above = index >= np.int32(center)
        index = where(above, index - np.int32(center), index)
        slot = jnp.maximum(index - np.int32(1), 0) if tails else index
        exists = (table.ends.high | table.ends.low)[..., -1:] > 0
        chosen = Chosen(above, slot, index == 0 if tails else None, exists)
        at = line.place_of(above, slot)
        rise, kept, lost = (take(part, at) for part in (line.rise, *exponentials))
        piece_of_slot = Piece(*ends(at, above), rise, piece.Decay(jnp.abs(rise), kept, lost))
        pair = row_uniforms(rows, step, line.rate.dtype, stream=_PLACE, first=first)
        return slot, place(pair, line, chosen, piece_of_slot)

    if step == draws:
        return chunk(jnp.int32(0))
    count = -(-draws // step)
    # Under a condition: otherwise XLA hoists the loop's invariants, one small kernel for each
    # operation.
    found = jax.lax.map(
        lambda number: in_memory(number >= 0, lambda: chunk(number)),
        jnp.arange(count, dtype=jnp.int32),
    )

    def joined(parts: jax.Array) -> jax.Array:
        return jnp.moveaxis(parts, 0, -2).reshape(*line.batch, -1)[..., :draws]

    return joined(found[0]), joined(found[1])


def from_tails(rows: Words, line: Line, draws: int) -> tuple[jax.Array, jax.Array]:
    """Draw from a line without pieces: the lighter tail if a uniform variate is below its share."""
    weights = jax.lax.stop_gradient(line).weights()[1]
    upper = is_upper(weights, row_uniforms(rows, draws, weights.dtype, stream=_SLOT))
    exists = weights.max(-1, keepdims=True) > 0
    chosen = Chosen(upper, jnp.zeros_like(upper, jnp.int32), jnp.ones_like(upper), exists)
    pair = row_uniforms(rows, draws, weights.dtype, stream=_PLACE)
    return chosen.slot, place(pair, line, chosen, None)


def is_upper(weights: jax.Array, uniform: UniformPair) -> jax.Array:
    """Return whether a draw is from the upper of two tails of these weights, ``(..., 2)``."""
    below, above = weights[..., :1], weights[..., 1:]
    share = jnp.minimum(below, above) / (below + above)
    return (uniform.value < share) == (above < below)


def _ends_in_one(line: Line) -> Callable[[jax.Array, jax.Array], tuple[jax.Array, jax.Array]]:
    """Join the ends of both sides; return a function of ``Line.place_of`` and the side."""
    lower, upper = line.sides
    if isinstance(lower, Lengths) or isinstance(upper, Lengths):
        lengths = concatenate(*(side.widths() for side in line.sides))
        return lambda at, _: (jnp.zeros_like(at, lengths.dtype), take(lengths, at))
    values = concatenate(lower.values, upper.values)

    def read(at: jax.Array, above: jax.Array) -> tuple[jax.Array, jax.Array]:
        at = where(above, at + np.int32(1), at)  # a side has one value more than pieces
        return take(values, at), take(values, at + np.int32(1))

    return read
