"""The Gumbel-max trick over all pieces, a reference implementation.

Two words are drawn for each piece, so that no piece is too light to be drawn.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from dpjax.distributions.fixed_point_choice import gumbel_max
from dpjax.distributions.line import Line
from dpjax.distributions.place import Chosen, Piece, place
from dpjax.numerics.elementwise import where
from dpjax.numerics.two_words import Words
from dpjax.random.keys import fold_in_range
from dpjax.random.uniforms import UniformPair, gumbel_from_uniform, row_uniforms

# Streams of a draw's words; _GUMBEL is that of the lower side, followed by the upper side and
# tails.
_PLACE, _GUMBEL = 2, 3


def by_gumbel_max(rows: Words, line: Line, draws: int) -> tuple[jax.Array, jax.Array]:
    """Draw by two words a slot and draw; tails are the slots of a third side. See ``few``."""
    weights = jax.lax.stop_gradient(line).weights()[1]
    log_weights = jnp.log(weights)
    sizes = [part.shape[-1] for part in line.parts(weights)]

    def one(number: jax.Array) -> jax.Array:
        drawn = []
        for side, size in enumerate(sizes):
            words = fold_in_range(rows, 1, number, stream=_GUMBEL + side)
            keys = Words(words.high[..., 0], words.low[..., 0])
            drawn.append(row_uniforms(keys, size, log_weights.dtype, stream=0))
        joined = UniformPair(*(jnp.concatenate(part, axis=-1) for part in zip(*drawn, strict=True)))
        return gumbel_max(log_weights, gumbel_from_uniform(joined))

    if draws == 1:
        slot = one(jnp.uint32(0))[..., None]
    else:
        slot = jnp.moveaxis(
            jax.lax.map(one, jnp.arange(draws, dtype=jnp.uint32), batch_size=min(draws, 256)), 0, -1
        )
    starts = np.cumsum([0, *sizes], dtype=np.int32)
    upper = (slot >= starts[1]) & (slot < starts[2])
    in_tail = None
    if line.tails is not None:
        in_tail = slot >= starts[2]
        upper = upper | (slot == starts[2] + 1)
    slot = where(slot < starts[1], slot, slot - starts[1])
    chosen = Chosen(upper, slot, in_tail, jnp.sum(weights, axis=-1, keepdims=True) > 0)
    pair = row_uniforms(rows, draws, line.rate.dtype, stream=_PLACE)
    return slot, place(pair, line, chosen, Piece.at(line, chosen))
