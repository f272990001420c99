"""Draws from a law on the line: choose a slot, then place the draw inside it by inverse cdf.

Pieces (and tails) are laid out as slots on two sides, each going outwards from the centre, because that is how their randomness
is indexed (``selection.py``). For draws that are bitwise the same whatever the padding and the other rows are, every
transcendental function runs over a multiple of 32 lanes: XLA's vector loop and its remainder loop round differently.
"""

from __future__ import annotations

from functools import partial
from math import prod
from typing import TYPE_CHECKING, Literal, NamedTuple

import jax
import jax.numpy as jnp

from dpjax.distributions import truncated_exponential as piece
from dpjax.distributions.closed_forms import lowest_cost
from dpjax.distributions.selection import choose_by_gumbel_max, choose_from_table, stream
from dpjax.random.keys import row_keys
from dpjax.random.noise import UniformPair, exponential_from_uniform
from dpjax.shapes import align, broadcast_rows, concatenate

if TYPE_CHECKING:
    from dpjax.distributions.piecewise import PiecewiseExponential

_LANES = 32
Method = Literal["gumbel", "table"]


class Slots(NamedTuple):
    """Pieces and tails as slots on the last axis: the lower side going outwards, then the upper side going outwards.

    Every field broadcasts to ``(*batch_shape, slots)``; fields that all rows share keep leading axes of size 1.

    Attributes:
        near: the inner end (for a tail: where it starts).
        far: the outer end (for a tail: the same).
        width: the length of a piece, the scale in y of a tail, 0 for padding.
        cost_near: the cost at the inner end.
        cost_far: the cost at the outer end; for a tail the same, so that its decay is 0 and its mass is width * height.
    """

    near: jax.Array
    far: jax.Array
    width: jax.Array
    cost_near: jax.Array
    cost_far: jax.Array

    @staticmethod
    def join(lower: Slots, upper: Slots) -> tuple[Slots, tuple[int, int]]:
        """Pad both sides with empty slots to a multiple of 32 and join them; also return their two sizes."""
        padded = []
        for side in (lower, upper):
            size = -(-max(1, side.width.shape[-1]) // _LANES) * _LANES
            padded.append(Slots(*(_pad_last(field, size) for field in side)))
        sizes = padded[0].width.shape[-1], padded[1].width.shape[-1]
        joined = (concatenate(*both) for both in zip(*padded, strict=True))
        return Slots(*joined), sizes

    def log_weights(self, rate: jax.Array) -> jax.Array:
        """Log masses, -inf for an empty slot, for a ``rate`` of shape ``(*batch_shape, 1)``."""
        there = ~(self.width <= 0)  # a NaN stays visible
        log_width = jnp.where(there, jnp.log(jnp.where(there, self.width, 1.0)), -jnp.inf)
        cost = jnp.minimum(self.cost_near, self.cost_far)
        base = lowest_cost(cost, self.width)[..., None]  # counted from the smallest cost with mass: see closed_forms.Masses
        decay = rate * jnp.abs(self.cost_far - self.cost_near)
        return log_width + (piece.log_mass_fraction(decay) - rate * (cost - jnp.where(jnp.isinf(base), 0.0, base)))


def draw(
    key: jax.Array,
    slots: Slots,
    sides: tuple[int, int],
    rate: jax.Array,
    batch: tuple[int, ...],
    draws: int,
    method: Method,
    tails: bool,
) -> tuple[jax.Array, jax.Array]:
    """Draw ``draws`` points from each row: the chosen slots (int32) and the points, both ``(draws, *batch)``."""
    rate = align(rate, len(batch))[..., None]
    log_weights = slots.log_weights(rate)
    rows = broadcast_rows(log_weights, batch).reshape(prod(batch), log_weights.shape[-1])
    roles = jax.vmap(jax.random.split)(row_keys(key, batch).reshape(-1))
    keys_select, keys_place = roles[:, 0], roles[:, 1]
    choose = choose_by_gumbel_max if method == "gumbel" else choose_from_table
    chosen = choose(keys_select, rows, sides, draws)
    points = _place(slots, rate, sides[0], chosen, stream(keys_place, draws, rows.dtype), batch, tails)
    # A row without any mass, or with a NaN anywhere, has no law: its draws are NaN whatever slot was chosen.
    points = jnp.where(jnp.max(rows, axis=-1, keepdims=True) > -jnp.inf, points, jnp.nan)
    return chosen.T.reshape(draws, *batch), points.T.reshape(draws, *batch)


def _place(
    slots: Slots,
    rate: jax.Array,
    upper_start: int,
    chosen: jax.Array,
    pair: UniformPair,
    batch: tuple[int, ...],
    tails: bool,
) -> jax.Array:
    """Place each draw in its slot, counted from the slot's low-cost end; deterministic, ``(rows, draws)``."""
    size = prod(chosen.shape)

    def lanes(array: jax.Array) -> jax.Array:
        return jnp.pad(jnp.broadcast_to(array, chosen.shape).reshape(-1), (0, -size % _LANES))

    def pick(field: jax.Array) -> jax.Array:
        shared = prod(field.shape[:-1]) == 1
        rows = field if shared else broadcast_rows(field, batch)
        return lanes(jnp.take_along_axis(rows.reshape(-1, field.shape[-1]), chosen, axis=-1))

    near, far, width, cost_near, cost_far = (pick(field) for field in slots)
    rates = lanes(broadcast_rows(rate, batch).reshape(-1, 1))
    index, p, complement = lanes(chosen), lanes(pair.value), lanes(pair.complement)
    outwards = jnp.where(index < upper_start, -1.0, 1.0).astype(width.dtype)
    offset = width * piece.quantile_fraction(p, complement, rates * jnp.abs(cost_far - cost_near))
    points = jnp.where(cost_near <= cost_far, near + outwards * offset, far - outwards * offset)
    points = jnp.clip(points, jnp.minimum(near, far), jnp.maximum(near, far))
    if tails:
        in_tail = (index == 0) | (index == upper_start)  # a tail is the first slot of its side
        distance = width * exponential_from_uniform(UniformPair(p, complement))
        points = jnp.where(in_tail, near + outwards * distance, points)
    return points[:size].reshape(chosen.shape)


@partial(jax.jit, static_argnames=("shape", "method"))
def sample(key: jax.Array, law: PiecewiseExponential, shape: tuple[int, ...], method: Method) -> jax.Array:
    """Draw from a law: float of shape ``shape + batch_shape``."""
    batch = law.batch_shape
    rank = len(batch) + 1
    edges, (cost_left, cost_right) = align(law.edges, rank), (align(c, rank) for c in (law.cost_left, law.cost_right))
    center = law.center
    lower = _side(jnp.flip(edges[..., : center + 1], -1), *(jnp.flip(c[..., :center], -1) for c in (cost_right, cost_left)))
    upper = _side(edges[..., center:], cost_left[..., center:], cost_right[..., center:])
    if law.tails is not None:
        rate = align(law.rate, rank - 1)
        lower = _with_tail(lower, edges[..., :1], law.tails.lower_cost, law.tails.lower_scale, rate)
        upper = _with_tail(upper, edges[..., -1:], law.tails.upper_cost, law.tails.upper_scale, rate)
    slots, sides = Slots.join(lower, upper)
    draws = prod(shape)
    if draws == 0 or prod(batch) == 0:
        return jnp.zeros(shape + batch, law.dtype)
    _, points = draw(key, slots, sides, law.rate, batch, draws, method, law.tails is not None)
    return points.reshape(shape + batch)


def _side(knots: jax.Array, cost_near: jax.Array, cost_far: jax.Array) -> Slots:
    """The pieces between knots that go outwards."""
    near, far = knots[..., :-1], knots[..., 1:]
    return Slots(near, far, jnp.abs(far - near), cost_near, cost_far)


def _with_tail(side: Slots, start: jax.Array, cost: jax.Array, scale: jax.Array, rate: jax.Array) -> Slots:
    """Put a tail in front of a side's pieces, where its index does not depend on how many there are."""
    cost = align(cost, rate.ndim)[..., None]
    tail = Slots(start, start, (align(scale, rate.ndim) / rate)[..., None], cost, cost)
    return Slots(*(concatenate(*both) for both in zip(tail, side, strict=True)))


def _pad_last(array: jax.Array, size: int) -> jax.Array:
    return jnp.pad(array, [(0, 0)] * (array.ndim - 1) + [(0, size - array.shape[-1])])
