"""Closed forms of the piecewise exponential distribution: cdf, quantiles, moments, entropy.

Each is a sum over pieces of a closed form for one truncated exponential distribution
(``truncated_exponential.py``), weighted as in the sampler, so that each cost is exponentiated once.
On the CPU, rows are processed in chunks that fit in the cache. Masses are summed from the far end
of each side inwards, so that small tails keep their relative precision.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import prod
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dpjax.distributions import truncated_exponential as piece
from dpjax.distributions.line import Line, OnLine
from dpjax.distributions.weights import Base
from dpjax.numerics.batching import by_chunks, concatenate, take
from dpjax.numerics.elementwise import clip, where
from dpjax.numerics.powers import log2_floor, power_of_two
from dpjax.numerics.search import count_leading
from dpjax.numerics.sums import LANES, folded_sum, pad


class Half(NamedTuple):
    """One side with its tail, as the closed forms use it; pieces are on the last axis.

    Attributes:
        side: the pieces.
        sign: 1 above the center, -1 below.
        weight: the weights of the pieces, relative to the base of the row, ``(..., k)``.
        tail: the weight of the tail, ``(..., 1)``; 0 without one.
        scale: the scale of the tail, ``(..., 1)``; 0 without one.
        decay: rate times the change of the cost over each piece, nonnegative.
        position: the mean of each piece, as a fraction of its width from the inner end.
    """

    side: Any  # a Side, whose pieces have values
    sign: int
    weight: jax.Array
    tail: jax.Array
    scale: jax.Array
    decay: jax.Array
    position: jax.Array

    @property
    def total(self) -> jax.Array:
        """The total weight of the pieces and the tail, ``(..., 1)``."""
        return jnp.sum(self.weight, axis=-1, keepdims=True) + self.tail

    def mean_from(self, origin: jax.Array) -> jax.Array:
        """Return the mean of each piece minus ``origin``, without loss of precision by offsets."""
        near, far = self.side.values[..., :-1], self.side.values[..., 1:]
        return (near - origin) + (far - near) * self.position

    @property
    def end(self) -> jax.Array:
        """The point where the tail starts, ``(..., 1)``."""
        return self.side.values[..., -1:]


class Resolved(NamedTuple):
    """A distribution together with the weights of its pieces.

    Attributes:
        line: the distribution.
        base: the base that weights are relative to.
        weight: the weights of the pieces, lower side first, ``(rows, pieces)``.
        position: the mean of each piece, as a fraction of its width from the inner end, ``(rows,
            pieces)``.
        halves: the lower and the upper half, which hold the same weights and positions.
    """

    line: Line
    base: Base
    weight: jax.Array
    position: jax.Array
    halves: tuple[Half, Half]

    @property
    def total(self) -> jax.Array:
        """The total weight, ``(..., 1)``."""
        return self.halves[0].total + self.halves[1].total

    @property
    def log_normalizer(self) -> jax.Array:
        """The log of Z relative to exp(-rate * base.cost), ``(..., 1)``."""
        return jnp.log(self.total) + self.base.log_unit

    def locate(self, y: jax.Array, upper: jax.Array, passes: jax.Array | None = None) -> jax.Array:
        """Count the pieces of its side that end before each y, or at y where ``passes``."""
        low, high = (half.side for half in self.halves)
        values, (first, last) = concatenate(low.values, high.values), self.places(upper, 1)
        sign = where(upper, 1.0, -1.0).astype(y.dtype)

        def before(index: jax.Array) -> jax.Array:
            end, at = sign * take(values, jnp.minimum(first + index, last)), sign * y
            return (first + index <= last) & (
                (end < at) if passes is None else (end < at) | ((end == at) & passes)
            )

        return count_leading(before, max(low.size, high.size), y.shape)

    def reached(self, beyond: jax.Array, outside: jax.Array, upper: jax.Array) -> jax.Array:
        """Return the number of pieces of its side with more than ``outside`` beyond their far end.

        ``beyond`` is the weight beyond each value of the lower side, followed by those of the upper
        side.
        """
        first, last = self.places(upper, 1)

        def holds(index: jax.Array) -> jax.Array:
            return (first + index <= last) & (
                take(beyond, jnp.minimum(first + index, last)) > outside
            )

        return count_leading(holds, max(half.side.size for half in self.halves), outside.shape)

    def places(self, upper: jax.Array, number: int) -> tuple[jax.Array, jax.Array]:
        """Return the indices of value ``number`` and of the last value of a side.

        The values of the upper side follow those of the lower side.
        """
        below, above = (half.side.size for half in self.halves)
        ends = (below + 1 + number, number), (below + 1 + above, below)
        first, last = (where(upper, np.int32(one), np.int32(other)) for one, other in ends)
        return first, last

    def piece_at(self, upper: jax.Array, slot: jax.Array) -> Found:
        """Return the pieces of index ``slot`` on the side of each point.

        A side without pieces is represented by a point of weight 0.
        """
        if not self.line.pieces:
            point = jnp.broadcast_to(center_of(self), slot.shape)
            return Found(upper, point, point, *(jnp.zeros_like(point),) * 4)
        below, above = (half.side.size for half in self.halves)
        slot = clip(slot, 0, where(upper, np.int32(max(above - 1, 0)), np.int32(max(below - 1, 0))))
        near, far = self.line.ends(upper, slot)
        at = self.line.place_of(upper, slot)
        weight, *others = (
            take(part, at)
            for part in (self.weight, self.line.rise, self.position, self.line.heights.cost)
        )
        if not below or not above:
            there = upper if above else ~upper
            near, far = (where(there, end, center_of(self)) for end in (near, far))
            weight = where(there, weight, 0.0)
        return Found(upper, near, far, weight, *others)


def _resolve(line: Line, position: jax.Array) -> Resolved:
    base, weights = line.weights()
    weight, tails = weights[..., : line.pieces], weights[..., line.pieces :]
    split, halves = [line.sides[0].size], []
    parts = (jnp.split(part, split, axis=-1) for part in (weight, jnp.abs(line.rise), position))
    for side, (sign, *columns) in enumerate(zip((-1, 1), *parts, strict=True)):
        tail = scale = jnp.zeros_like(base.cost)
        if line.tails is not None:
            tail, scale = (array[..., side : side + 1] for array in (tails, line.tails.scale))
        halves.append(Half(line.sides[side], sign, columns[0], tail, scale, *columns[1:]))
    return Resolved(line, base, weight, position, (halves[0], halves[1]))


def by_rows(
    compute: Callable[..., jax.Array], distribution: OnLine, *points: jax.Array
) -> jax.Array:
    """Call ``compute(resolved, *points)`` on chunks of rows that fit in the cache.

    Points broadcast against the batch and are passed as ``(rows, samples)``; ``compute`` returns an
    array of that shape, or ``(rows, 1)`` if there are no points.
    """
    shape = jnp.broadcast_shapes(distribution.batch_shape, *(p.shape for p in points))
    rank = len(shape) - len(distribution.batch_shape)
    samples, batch = shape[:rank], shape[rank:]
    if prod(shape) == 0:
        return jnp.zeros(shape, distribution.dtype)
    columns = [jnp.moveaxis(jnp.broadcast_to(p, shape).reshape(-1, *batch), 0, -1) for p in points]
    line = replace(distribution.line(), batch=batch)
    from_low = piece.mean_fraction(jnp.abs(line.rise))  # outside the loop, so that it is stored
    position = where(line.rise >= 0, from_low, 1 - from_low)
    rows, size = line.cacheful

    def some(start: Any, size: int) -> jax.Array:
        always = None if size == rows else start >= 0
        part, (position_part, *points_part) = line.rows((position, *columns), start, size, always)
        found = compute(_resolve(part, position_part), *points_part)
        return jnp.broadcast_to(found, (size, found.shape[-1]))

    found = by_chunks(some, rows, size, elsewhere=rows)
    return jnp.moveaxis(found.reshape(*batch, found.shape[-1]), -1, 0).reshape(samples + batch)


class Found(NamedTuple):
    """The pieces that contain some points, ``(rows, samples)``: their sides and parameters."""

    upper: jax.Array
    near: jax.Array
    far: jax.Array
    weight: jax.Array
    rise: jax.Array
    position: jax.Array
    low_cost: jax.Array

    @property
    def decay(self) -> jax.Array:
        """Rate times the change of the cost, from the end of lower cost."""
        return jnp.abs(self.rise)

    @property
    def rises(self) -> jax.Array:
        """True where the end of lower cost is the inner one."""
        return self.rise >= 0

    def share(self, y: jax.Array) -> jax.Array:
        """Return the position of y in the piece, as a fraction of its width from the inner end."""
        width = where(self.far != self.near, self.far - self.near, 1.0)
        return clip((y - self.near) / width, 0.0, 1.0)


def _beyond(half: Half) -> jax.Array:
    """Return the weight beyond each value, ``(rows, k+1)``."""
    return _sums_inwards(
        jnp.concatenate(
            [half.weight, jnp.broadcast_to(half.tail, (*half.weight.shape[:-1], 1))], axis=-1
        )
    )


def _sums_outwards(terms: jax.Array) -> jax.Array:
    """Return the cumulative sums on the last axis, from the first term on."""
    return jnp.flip(_sums_inwards(jnp.flip(terms, -1)), -1)


def _sums_inwards(terms: jax.Array) -> jax.Array:
    """Return the cumulative sums on the last axis, from the last term back.

    Blocks of 32 are summed by a matrix product, and the sums of later blocks are added.
    """
    size = terms.shape[-1]
    blocks = pad(terms, LANES).reshape(*terms.shape[:-1], -1, LANES)
    later = jnp.tril(jnp.ones((LANES, LANES), terms.dtype))
    inside = jnp.matmul(blocks, later, precision=jax.lax.Precision.HIGHEST)
    if size > LANES:
        after = _sums_inwards(inside[..., 0])[..., 1:]
        inside = inside + jnp.pad(after, [(0, 0)] * (after.ndim - 1) + [(0, 1)])[..., None]
    return inside.reshape(*terms.shape[:-1], -1)[..., :size]


def center_of(r: Resolved) -> jax.Array:
    return r.halves[1].side.values[..., :1]


@jax.jit
def log_normalizer(distribution: OnLine) -> jax.Array:
    return by_rows(lambda r: r.log_normalizer - r.line.rate * r.base.cost, distribution)


@jax.jit
def log_prob(distribution: OnLine, y: jax.Array) -> jax.Array:
    def compute(r: Resolved, y: jax.Array) -> jax.Array:
        low, high = r.halves
        top, bottom, center = high.end, low.end, center_of(r)
        # The density is the limit from the right; at the top, from the left.
        at_top = y == top
        upper = (y >= center) & ~(at_top & (top == center))
        here = r.piece_at(upper, r.locate(y, upper, at_top != upper))
        share = here.share(y)
        fall = r.line.rate * (here.low_cost - r.base.cost) + here.decay * where(
            here.rises, share, 1 - share
        )
        value = where((y >= bottom) & (y <= top) & (top > bottom), -fall, -jnp.inf)
        if r.line.tails is not None:
            ends = r.line.tails
            for number, distance in ((0, bottom - y), (1, y - top)):
                scale, cost = (field[..., number : number + 1] for field in (ends.scale, ends.cost))
                there = (distance >= 0) & (scale > 0)
                inside = -r.line.rate * (cost - r.base.cost) - where(there, distance, 0.0) / where(
                    there, scale, 1.0
                )
                value = where((distance > 0) | (top <= bottom), where(there, inside, value), value)
        return where(jnp.isnan(y), jnp.nan, value - r.log_normalizer)

    return by_rows(compute, distribution, y)


@jax.jit
def cdf(distribution: OnLine, y: jax.Array) -> jax.Array:
    def compute(r: Resolved, y: jax.Array) -> jax.Array:
        low, high = r.halves
        upper = y >= center_of(r)
        # Weight below each piece: on the lower side, the pieces further out; on the upper, further
        # in.
        within = low.total + jnp.concatenate(
            [jnp.zeros_like(high.tail), _sums_outwards(high.weight)], axis=-1
        )
        below, slot = concatenate(_beyond(low), within), r.locate(y, upper)
        here, (first, last) = r.piece_at(upper, slot), r.places(upper, 0)
        start = take(
            below, jnp.minimum(first + slot + where(upper, np.int32(0), np.int32(1)), last)
        )
        inner = here.share(y)
        outer = 1 - inner
        # Distance of y from the end of the piece where its mass starts, and from the other end.
        near, far = where(upper, inner, outer), where(upper, outer, inner)
        # A product avoids a cancelling difference.
        falling = jnp.exp(-here.decay * far) * piece.cdf_fraction(near, here.decay)
        part = where(here.rises == upper, piece.cdf_fraction(near, here.decay), falling)
        value = (start + here.weight * part) / r.total
        for half in r.halves:
            past = half.sign * (y - half.end)
            safe = where(half.scale > 0, half.scale, 1.0)
            gone = (
                where(half.scale > 0, half.tail * jnp.exp(-jnp.maximum(past, 0.0) / safe), 0.0)
                / r.total
            )
            value = where(
                (past >= 0) & (upper == (half.sign > 0)), 1 - gone if half.sign > 0 else gone, value
            )
        return clip(value, 0.0, 1.0)

    return by_rows(compute, distribution, y)


@jax.jit
def quantile(distribution: OnLine, p: jax.Array, complement: jax.Array) -> jax.Array:
    """Return the point with mass ``p`` below and ``complement`` = 1 - p above it.

    The result is as precise as the smaller of the two.
    """

    def compute(r: Resolved, p: jax.Array, complement: jax.Array) -> jax.Array:
        sums = [_beyond(half) for half in r.halves]
        total, further = sums[0][..., :1] + sums[1][..., :1], concatenate(*sums)
        upper = p * total > sums[0][..., :1]
        outside = where(upper, complement, p) * total
        slot = r.reached(further, outside, upper)
        here, (first, last) = r.piece_at(upper, slot), r.places(upper, 1)
        beyond = take(further, jnp.minimum(first + slot, last))
        weight = where(here.weight > 0, here.weight, 1.0)
        outer = clip((outside - beyond) / weight, 0.0, 1.0)
        inner = clip((here.weight - (outside - beyond)) / weight, 0.0, 1.0)
        from_low = piece.quantile_fraction(
            where(here.rises, inner, outer),
            where(here.rises, outer, inner),
            piece.Decay.of(here.decay),
        )
        length = (here.far - here.near) * from_low
        value = where(here.rises, here.near + length, here.far - length)
        value = clip(value, jnp.minimum(here.near, here.far), jnp.maximum(here.near, here.far))
        for half in r.halves:
            inside = (outside < half.tail) & (upper == (half.sign > 0))
            ratio = where(inside, half.tail, 1.0) / where(inside, outside, 1.0)
            value = where(inside, half.end + half.sign * half.scale * jnp.log(ratio), value)
        return where((p >= 0) & (p <= 1) & ~jnp.isnan(total), value, jnp.nan)

    return by_rows(compute, distribution, p, complement)


@jax.jit
def interval(distribution: OnLine, outside: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Return the points that leave out ``outside`` on either side, each found from its own tail."""
    outside = jnp.broadcast_to(
        outside, jnp.broadcast_shapes(outside.shape, distribution.batch_shape)
    )
    ends = quantile(
        distribution, jnp.stack([outside, 1 - outside]), jnp.stack([1 - outside, outside])
    )
    return ends[0], ends[1]


@jax.jit
def mean(distribution: OnLine) -> jax.Array:
    return by_rows(lambda r: mean_from(r, mean_from(r, center_of(r))), distribution)


def mean_from(r: Resolved, origin: jax.Array) -> jax.Array:
    """Return the mean, with the relative precision of its distance from ``origin``."""
    return origin + average(
        r,
        lambda half: half.mean_from(origin),
        lambda half: half.end - origin + half.sign * half.scale,
    )


def average(
    r: Resolved, of_pieces: Callable[[Half], jax.Array], of_tail: Callable[[Half], jax.Array]
) -> jax.Array:
    """Average a quantity that is known for each piece and for each tail, ``(rows, 1)``."""
    total = jnp.zeros_like(r.total)
    for half in r.halves:
        total = (
            total
            + jnp.sum(half.weight * of_pieces(half), axis=-1, keepdims=True)
            + half.tail * of_tail(half)
        )
    return total / r.total


@jax.jit
def stddev(distribution: OnLine) -> jax.Array:
    def compute(r: Resolved) -> jax.Array:
        low, high = r.halves
        # Scaled by a power of two near the total width, so that squares do not underflow.
        span = jnp.maximum(high.end - low.end, jnp.maximum(high.scale, low.scale))
        unit = power_of_two(clip(-log2_floor(jax.lax.stop_gradient(span)), -100, 100), span.dtype)
        origin = jax.lax.stop_gradient(mean_from(r, center_of(r)))

        def square(distance: jax.Array) -> jax.Array:
            # The clip changes no value, but keeps XLA from squaring the unit by itself, which
            # overflows.
            return jnp.square(clip(distance * unit, -(2.0**60), 2.0**60))

        def of_pieces(half: Half) -> jax.Array:
            spread = square(half.side.widths()) * piece.variance_fraction(half.decay)
            return square(half.mean_from(origin)) + spread

        def of_tail(half: Half) -> jax.Array:
            return square(half.scale) + square(half.end - origin + half.sign * half.scale)

        total = average(r, of_pieces, of_tail) - square(mean_from(r, origin) - origin)
        return jnp.sqrt(jnp.maximum(total, 0.0)) / unit

    return by_rows(compute, distribution)


@jax.jit
def mean_abs_error(distribution: OnLine, center: jax.Array) -> jax.Array:
    def compute(r: Resolved, center: jax.Array) -> jax.Array:
        total = sum_at(
            lambda point: [half.weight * jnp.abs(half.mean_from(point)) for half in r.halves],
            center,
        )
        for half in r.halves:
            # E|T - d| for an exponential T of this scale and a center at depth d inside the tail.
            depth = half.sign * (center - half.end)
            safe = where(half.scale > 0, half.scale, 1.0)
            inside = depth - half.scale + 2 * half.scale * jnp.exp(-jnp.maximum(depth, 0.0) / safe)
            total = total + half.tail * where(depth > 0, inside, half.scale - depth)
        # In the piece that contains the center, E|Y - c| replaces |E Y - c|, which is not larger.
        upper = center >= center_of(r)
        here = r.piece_at(upper, r.locate(center, upper))
        share, width = here.share(center), jnp.abs(here.far - here.near)
        near = where(here.rises, share, 1 - share)
        far = 1 - near
        s = here.decay
        part_near = (
            near * near * piece.mass_fraction(s * near) * (1 - piece.mean_fraction(s * near))
        )
        part_far = (
            jnp.exp(-s * near)
            * far
            * far
            * piece.mass_fraction(s * far)
            * piece.mean_fraction(s * far)
        )
        exact = (part_near + part_far) / piece.mass_fraction(s)
        rough = jnp.abs(share - here.position)
        within = (center - here.near) * (here.far - center) > 0
        total = total + where(within, here.weight * width * (exact - rough), 0.0)
        return total / r.total

    return by_rows(compute, distribution, center)


def sum_at(terms: Callable[[jax.Array], list[jax.Array]], points: jax.Array) -> jax.Array:
    """Return the sum over all pieces of ``terms(point)``, for points ``(rows, samples)``.

    ``terms`` maps a point ``(rows, 1)`` to the terms of the lower and of the upper side.
    """

    def at(point: jax.Array) -> jax.Array:
        below, above = terms(point)
        if below.shape == above.shape:
            return folded_sum(below + above)
        return folded_sum(below) + folded_sum(above)

    return (
        at(points)
        if points.shape[-1] == 1
        else jax.vmap(lambda point: at(point[:, None])[:, 0], 1, 1)(points)
    )


def each_point(mean_from: Callable[[jax.Array], jax.Array], points: jax.Array) -> jax.Array:
    """Return the means of all pieces minus each of several points: ``(rows, samples, k)``."""
    return jax.vmap(lambda point: mean_from(point[:, None]), in_axes=1, out_axes=1)(points)


@jax.jit
def entropy(distribution: OnLine) -> jax.Array:
    def compute(r: Resolved) -> jax.Array:
        def of_pieces(half: Half) -> jax.Array:
            return r.line.rate * (
                half.side.low_cost - r.base.cost
            ) + half.decay * piece.mean_fraction(half.decay)

        def of_tail(half: Half) -> jax.Array:
            cost = (
                0.0 if r.line.tails is None else r.line.tails.cost[..., (half.sign + 1) // 2, None]
            )
            return r.line.rate * (cost - r.base.cost) + 1

        return r.log_normalizer + average(r, of_pieces, of_tail)

    return by_rows(compute, distribution)
