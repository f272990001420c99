"""The last step of a draw: a point in the chosen piece, by inverse cdf from its low-cost end."""

from __future__ import annotations

from math import prod
from typing import NamedTuple

import jax
import jax.numpy as jnp

from dpjax.distributions import truncated_exponential as piece
from dpjax.distributions.line import Ends, Line
from dpjax.numerics.batching import take
from dpjax.numerics.elementwise import clip, where
from dpjax.numerics.sums import pad
from dpjax.random.uniforms import UniformPair, exponential_from_uniform


class Chosen(NamedTuple):
    """The piece or tail that was drawn, ``(*batch, draws)``.

    Attributes:
        upper: bool, true on the upper side.
        slot: int32, the index of the piece, counted outwards.
        in_tail: bool, true for the tail of that side; None without tails.
        exists: bool ``(*batch, 1)``, true if the row has a distribution: positive mass and no NaN.
    """

    upper: jax.Array
    slot: jax.Array
    in_tail: jax.Array | None
    exists: jax.Array


class Piece(NamedTuple):
    """The piece of each draw, ``(*batch, draws)``.

    Attributes:
        near: the inner end.
        far: the outer end.
        rise: rate times the change of the cost from the inner to the outer end.
        decay: the decay from the low-cost end, if read from a table; None if it is to be computed.
    """

    near: jax.Array
    far: jax.Array
    rise: jax.Array
    decay: piece.Decay | None = None

    @staticmethod
    def at(line: Line, chosen: Chosen) -> Piece:
        """Read the chosen pieces."""
        ends = line.ends(chosen.upper, chosen.slot)
        return Piece(*ends, take(line.rise, line.place_of(chosen.upper, chosen.slot)))


def place(pair: UniformPair, line: Line, chosen: Chosen, own: Piece | None) -> jax.Array:
    """Draw the point of each draw in its piece or tail from a uniform variate: ``(*batch, draws)``.

    Transcendental functions run over a multiple of 32 lanes: XLA's vector loop and its remainder
    loop round differently, and a draw must not depend on the draws next to it.
    """
    shape = chosen.slot.shape
    alone = shape[-1] == 1  # with one draw per row, the rows are the lanes of XLA's loops

    def in_lanes(array: jax.Array) -> jax.Array:
        return pad(jnp.broadcast_to(array, shape).reshape(-1)) if alone else array

    def out(array: jax.Array) -> jax.Array:
        return array[: prod(shape)].reshape(shape) if alone else array

    pair = UniformPair(*map(in_lanes, pair))
    points = jnp.zeros(shape, line.rate.dtype)
    if own is not None:
        decay = (
            piece.Decay.of(in_lanes(jnp.abs(own.rise)))
            if own.decay is None
            else piece.Decay(*map(in_lanes, own.decay))
        )
        fraction = out(piece.quantile_fraction(pair.value, pair.complement, decay))
        rises = own.rise >= 0
        start, stop = where(rises, own.near, own.far), where(rises, own.far, own.near)
        width = stop - start
        # The clip changes no value, but keeps the product from being fused into a sum, which would
        # change the last bit in some programs and not in others.
        offset = clip(width * fraction, jnp.minimum(width, 0.0), jnp.maximum(width, 0.0))
        points = clip(start + offset, jnp.minimum(start, stop), jnp.maximum(start, stop))
    if line.tails is not None and chosen.in_tail is not None:
        noise = out(exponential_from_uniform(pair))
        below, above = (Ends(*(part[..., i : i + 1] for part in line.tails)) for i in (0, 1))
        # Max() as the clip above.
        reach = jnp.maximum(where(chosen.upper, above.scale, below.scale) * noise, 0.0)
        beyond = where(chosen.upper, above.start + reach, below.start - reach)
        points = where(chosen.in_tail, beyond, points)
    # A row without mass, or with a NaN, has no distribution.
    return where(chosen.exists, points, jnp.nan)
