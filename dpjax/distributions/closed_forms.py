"""Closed forms of the piecewise exponential distribution: normalizer, cdf, quantiles, moments, entropy.

Everything is a sum over pieces of something known for one truncated exponential (``truncated_exponential.py``) times the weight
that the sampler uses, so exponentials are taken once for each cost. On the CPU some rows are taken at a time: they and their
temporaries stay in the cache. Sums of masses run from the far end of each side inwards, so that small tails keep all their digits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import prod
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dpjax.distributions import truncated_exponential as piece
from dpjax.distributions.line import Line, OnLine
from dpjax.distributions.weights import Base
from dpjax.numerics.batching import by_chunks, by_platform, take
from dpjax.numerics.bisection import count_leading
from dpjax.numerics.powers import log2_floor, power_of_two
from dpjax.numerics.sums import LANES, folded_sum, pad


class Half(NamedTuple):
    """One side with its tail: what the closed forms read of it, on the last axis.

    Attributes:
        side: the pieces.
        sign: 1 above the center, -1 below.
        weight: of the pieces, relative to the base of the row, ``(..., k)``.
        tail: the weight of the tail, ``(..., 1)``; 0 without one.
        scale: of the tail, ``(..., 1)``; 0 without one.
        decay: over each piece.
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
        """The weight of pieces and tail, ``(..., 1)``."""
        return jnp.sum(self.weight, axis=-1, keepdims=True) + self.tail

    def mean_from(self, origin: jax.Array) -> jax.Array:
        """The mean of each piece minus ``origin``, so that a large offset of the data costs no digits."""
        near, far = self.side.values[..., :-1], self.side.values[..., 1:]
        return (near - origin) + (far - near) * self.position

    @property
    def end(self) -> jax.Array:
        """Where the tail starts, ``(..., 1)``."""
        return self.side.values[..., -1:]


class Resolved(NamedTuple):
    """A distribution with the weights of its pieces: the lower and the upper half."""

    line: Line
    base: Base
    halves: tuple[Half, Half]

    @property
    def total(self) -> jax.Array:
        """The weight of everything, ``(..., 1)``."""
        return self.halves[0].total + self.halves[1].total

    @property
    def log_normalizer(self) -> jax.Array:
        """The log of Z, counted from exp(-rate * base.cost), ``(..., 1)``."""
        return jnp.log(self.total) + self.base.log_unit


def _resolve(line: Line, position: jax.Array) -> Resolved:
    base, weights = line.weights()
    halves = []
    for number, sign in enumerate((-1, 1)):
        side, first = line.sides[number], number * line.sides[0].size
        own = slice(first, first + side.size)
        tail = scale = jnp.zeros_like(base.cost)
        if line.tails is not None:
            tail, scale = (array[..., number : number + 1] for array in (weights[2], line.tails.scale))
        halves.append(Half(side, sign, weights[number], tail, scale, jnp.abs(line.rise[..., own]), position[..., own]))
    return Resolved(line, base, (halves[0], halves[1]))


def by_rows(compute: Callable[..., jax.Array], distribution: OnLine, *points: jax.Array) -> jax.Array:
    """Call ``compute(resolved, *points)`` on the rows of a distribution, a cacheful at a time.

    Points broadcast against the batch and reach ``compute`` as ``(rows, samples)``; it returns an array of that shape,
    or ``(rows, 1)`` if there are no points.
    """
    shape = jnp.broadcast_shapes(distribution.batch_shape, *(p.shape for p in points))
    rank = len(shape) - len(distribution.batch_shape)
    samples, batch = shape[:rank], shape[rank:]
    if prod(shape) == 0:
        return jnp.zeros(shape, distribution.dtype)
    columns = [jnp.moveaxis(jnp.broadcast_to(p, shape).reshape(-1, *batch), 0, -1) for p in points]
    line = replace(distribution.line(), batch=batch)
    from_low = piece.mean_fraction(jnp.abs(line.rise))  # here and not in the loop, so that it is kept in memory
    position = jnp.where(line.rise >= 0, from_low, 1 - from_low)
    rows, size = line.cacheful

    def some(start: Any, size: int) -> jax.Array:
        always = None if size == rows else start >= 0
        own, (position_there, *there) = line.rows((position, *columns), start, size, always)
        found = compute(_resolve(own, position_there), *there)
        return jnp.broadcast_to(found, (size, found.shape[-1]))

    def in_chunks() -> jax.Array:
        return by_chunks(lambda start: some(start, size), rows, size)

    found = some(0, rows) if size == rows else by_platform(cpu=in_chunks, default=lambda: some(0, rows))
    return jnp.moveaxis(found.reshape(*batch, found.shape[-1]), -1, 0).reshape(samples + batch)


class Found(NamedTuple):
    """The pieces that hold some points, ``(rows, samples)``: which side they are on, and what is read of them."""

    upper: jax.Array
    near: jax.Array
    far: jax.Array
    weight: jax.Array
    decay: jax.Array
    position: jax.Array
    rises: jax.Array
    cost_near: jax.Array
    cost_far: jax.Array

    def share(self, y: jax.Array) -> jax.Array:
        """Where y lies in the piece, as a fraction of its width from the inner end."""
        width = jnp.where(self.far != self.near, self.far - self.near, 1.0)
        return jnp.clip((y - self.near) / width, 0.0, 1.0)


def read_pieces(r: Resolved, upper: jax.Array, index: Sequence[jax.Array], beyond: Any = None) -> tuple[Found, jax.Array]:
    """Read the pieces of these indices on either side, for each point from its own; also what ``beyond`` has at their far ends."""
    found = []
    for number, half in enumerate(r.halves):
        at = jnp.clip(index[number], 0, max(half.side.size - 1, 0))
        near, far = half.side.ends(at)
        if not half.side.size:  # one point, and nothing of it is used
            zero = jnp.zeros_like(near)
            found.append((near, far, zero, zero, zero, zero > 0, zero, zero, zero))
            continue
        costs = take(half.side.cost_near, at), take(half.side.cost_far, at)
        extra = zero = jnp.zeros_like(near) if beyond is None else take(beyond[number], at + 1)
        own = (take(field, at) for field in (half.weight, half.decay, half.position))
        found.append((near, far, *own, costs[0] <= costs[1], *costs, extra))
    *fields, extra = (jnp.where(upper, b, a) for a, b in zip(*found, strict=True))
    return Found(upper, *fields), extra


def locate(half: Half, y: jax.Array, passes: jax.Array | bool = False) -> jax.Array:
    """How many pieces end before y; with ``passes``, those that end at y too."""
    values, shape = half.side.values, y.shape

    def before(index: jax.Array) -> jax.Array:
        end = half.sign * take(values, index + 1)
        return (end < half.sign * y) | ((end == half.sign * y) & passes)

    return count_leading(before, half.side.size, shape) if half.side.size else jnp.zeros(shape, jnp.int32)


def _beyond(half: Half) -> jax.Array:
    """The weight further out than each value, ``(rows, k+1)``."""
    return _sums_inwards(jnp.concatenate([half.weight, jnp.broadcast_to(half.tail, (*half.weight.shape[:-1], 1))], axis=-1))


def _sums_outwards(terms: jax.Array) -> jax.Array:
    """The sum of each term and all before it on the last axis."""
    return jnp.flip(_sums_inwards(jnp.flip(terms, -1)), -1)


def _sums_inwards(terms: jax.Array) -> jax.Array:
    """The sum of each term and all after it on the last axis: blocks of 32 as a product of matrices, then the blocks after."""
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
        # The limit from the right, at the top from the left.
        at_top = y == top
        upper = (y >= center) & ~(at_top & (top == center))
        index = locate(low, y, at_top), locate(high, y, ~at_top)
        here, _ = read_pieces(r, upper, index)
        near, far = here.cost_near - r.base.cost, here.cost_far - r.base.cost
        cost = near + (far - near) * here.share(y)
        value = jnp.where((y >= bottom) & (y <= top) & (top > bottom), -r.line.rate * cost, -jnp.inf)
        if r.line.tails is not None:
            ends = r.line.tails
            for number, distance in ((0, bottom - y), (1, y - top)):
                scale, cost = (field[..., number : number + 1] for field in (ends.scale, ends.cost))
                there = (distance >= 0) & (scale > 0)
                inside = -r.line.rate * (cost - r.base.cost) - jnp.where(there, distance, 0.0) / jnp.where(there, scale, 1.0)
                value = jnp.where((distance > 0) | (top <= bottom), jnp.where(there, inside, value), value)
        return jnp.where(jnp.isnan(y), jnp.nan, value - r.log_normalizer)

    return by_rows(compute, distribution, y)


@jax.jit
def cdf(distribution: OnLine, y: jax.Array) -> jax.Array:
    def compute(r: Resolved, y: jax.Array) -> jax.Array:
        low, high = r.halves
        upper = y >= center_of(r)
        # The weight below each piece: on the lower side what is further out, on the upper side what is further in.
        below = _beyond(low), low.total + jnp.concatenate([jnp.zeros_like(high.tail), _sums_outwards(high.weight)], axis=-1)
        index = locate(low, y), locate(high, y)
        here, _ = read_pieces(r, upper, index)
        start = jnp.where(upper, take(below[1], index[1]), take(below[0], jnp.minimum(index[0] + 1, np.int32(low.side.size))))
        inner = here.share(y)
        outer = 1 - inner
        # How far y is from the end of the piece that its mass is counted from, and whether that is the low-cost end.
        near, far = jnp.where(upper, inner, outer), jnp.where(upper, outer, inner)
        falling = jnp.exp(-here.decay * far) * piece.cdf_fraction(near, here.decay)  # a product where a difference would cancel
        part = jnp.where(here.rises == upper, piece.cdf_fraction(near, here.decay), falling)
        value = (start + here.weight * part) / r.total
        for half in r.halves:
            past = half.sign * (y - half.end)
            safe = jnp.where(half.scale > 0, half.scale, 1.0)
            gone = jnp.where(half.scale > 0, half.tail * jnp.exp(-jnp.maximum(past, 0.0) / safe), 0.0) / r.total
            value = jnp.where((past >= 0) & (upper == (half.sign > 0)), 1 - gone if half.sign > 0 else gone, value)
        return jnp.clip(value, 0.0, 1.0)

    return by_rows(compute, distribution, y)


@jax.jit
def quantile(distribution: OnLine, p: jax.Array, complement: jax.Array) -> jax.Array:
    """The point with mass ``p`` below and ``complement`` = 1 - p above, of which the smaller needs its digits."""

    def compute(r: Resolved, p: jax.Array, complement: jax.Array) -> jax.Array:
        sums = [_beyond(half) for half in r.halves]
        total = sums[0][..., :1] + sums[1][..., :1]
        upper = p * total > sums[0][..., :1]
        outside = jnp.where(upper, complement, p) * total

        def passed(half: Half, beyond: jax.Array) -> jax.Array:
            holds = lambda index: take(beyond, index + 1) > outside  # noqa: E731
            return count_leading(holds, half.side.size, p.shape) if half.side.size else jnp.zeros(p.shape, jnp.int32)

        index = tuple(passed(half, beyond) for half, beyond in zip(r.halves, sums, strict=True))
        here, beyond = read_pieces(r, upper, index, sums)
        weight = jnp.where(here.weight > 0, here.weight, 1.0)
        outer = jnp.clip((outside - beyond) / weight, 0.0, 1.0)
        inner = jnp.clip((here.weight - (outside - beyond)) / weight, 0.0, 1.0)
        from_low = piece.quantile_fraction(
            jnp.where(here.rises, inner, outer), jnp.where(here.rises, outer, inner), piece.Decay.of(here.decay)
        )
        length = (here.far - here.near) * from_low
        value = jnp.where(here.rises, here.near + length, here.far - length)
        value = jnp.clip(value, jnp.minimum(here.near, here.far), jnp.maximum(here.near, here.far))
        for half in r.halves:
            inside = (outside < half.tail) & (upper == (half.sign > 0))
            ratio = jnp.where(inside, half.tail, 1.0) / jnp.where(inside, outside, 1.0)
            value = jnp.where(inside, half.end + half.sign * half.scale * jnp.log(ratio), value)
        return jnp.where((p >= 0) & (p <= 1) & ~jnp.isnan(total), value, jnp.nan)

    return by_rows(compute, distribution, p, complement)


@jax.jit
def interval(distribution: OnLine, outside: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The points that leave out ``outside`` on either side: each is found from the tail that it cuts off."""
    outside = jnp.broadcast_to(outside, jnp.broadcast_shapes(outside.shape, distribution.batch_shape))
    ends = quantile(distribution, jnp.stack([outside, 1 - outside]), jnp.stack([1 - outside, outside]))
    return ends[0], ends[1]


@jax.jit
def mean(distribution: OnLine) -> jax.Array:
    return by_rows(lambda r: mean_from(r, mean_from(r, center_of(r))), distribution)


def mean_from(r: Resolved, origin: jax.Array) -> jax.Array:
    """The mean, with the digits of its distance from ``origin``."""
    return origin + average(r, lambda half: half.mean_from(origin), lambda half: half.end - origin + half.sign * half.scale)


def average(r: Resolved, of_pieces: Callable[[Half], jax.Array], of_tail: Callable[[Half], jax.Array]) -> jax.Array:
    """The mean of something known for each piece and for each tail, ``(rows, 1)``."""
    total = jnp.zeros_like(r.total)
    for half in r.halves:
        total = total + jnp.sum(half.weight * of_pieces(half), axis=-1, keepdims=True) + half.tail * of_tail(half)
    return total / r.total


@jax.jit
def stddev(distribution: OnLine) -> jax.Array:
    def compute(r: Resolved) -> jax.Array:
        low, high = r.halves
        # In units of a power of two near the width of everything: squares of small numbers would underflow.
        span = jnp.maximum(high.end - low.end, jnp.maximum(high.scale, low.scale))
        unit = power_of_two(jnp.clip(-log2_floor(jax.lax.stop_gradient(span)), -100, 100), span.dtype)
        origin = jax.lax.stop_gradient(mean_from(r, center_of(r)))

        def of_pieces(half: Half) -> jax.Array:
            width = (half.side.values[..., 1:] - half.side.values[..., :-1]) * unit
            return jnp.square(half.mean_from(origin) * unit) + jnp.square(width) * piece.variance_fraction(half.decay)

        def of_tail(half: Half) -> jax.Array:
            return jnp.square(half.scale * unit) + jnp.square((half.end - origin + half.sign * half.scale) * unit)

        square = average(r, of_pieces, of_tail)
        return jnp.sqrt(jnp.maximum(square - jnp.square((mean_from(r, origin) - origin) * unit), 0.0)) / unit

    return by_rows(compute, distribution)


@jax.jit
def mean_abs_error(distribution: OnLine, center: jax.Array) -> jax.Array:
    def compute(r: Resolved, center: jax.Array) -> jax.Array:
        total = sum_at(lambda point: [half.weight * jnp.abs(half.mean_from(point)) for half in r.halves], center)
        for half in r.halves:
            # E|T - d| for an exponential T of this scale and a center that lies d inside the tail.
            depth = half.sign * (center - half.end)
            safe = jnp.where(half.scale > 0, half.scale, 1.0)
            inside = depth - half.scale + 2 * half.scale * jnp.exp(-jnp.maximum(depth, 0.0) / safe)
            total = total + half.tail * jnp.where(depth > 0, inside, half.scale - depth)
        # In the one piece that has the center inside, E|Y - c| takes the place of |E Y - c|, which is not larger.
        here, _ = read_pieces(r, center >= center_of(r), tuple(locate(half, center) for half in r.halves))
        share, width = here.share(center), jnp.abs(here.far - here.near)
        near = jnp.where(here.rises, share, 1 - share)
        far = 1 - near
        s = here.decay
        part_near = near * near * piece.mass_fraction(s * near) * (1 - piece.mean_fraction(s * near))
        part_far = jnp.exp(-s * near) * far * far * piece.mass_fraction(s * far) * piece.mean_fraction(s * far)
        exact = (part_near + part_far) / piece.mass_fraction(s)
        rough = jnp.abs(share - here.position)
        within = (center - here.near) * (here.far - center) > 0
        total = total + jnp.where(within, here.weight * width * (exact - rough), 0.0)
        return total / r.total

    return by_rows(compute, distribution, center)


def sum_at(terms: Callable[[jax.Array], list[jax.Array]], points: jax.Array) -> jax.Array:
    """The sums over the pieces of both sides of what ``terms`` makes of a point ``(rows, 1)``, for points ``(rows, samples)``."""

    def at(point: jax.Array) -> jax.Array:
        below, above = terms(point)
        if below.shape == above.shape:
            return folded_sum(below + above)
        return folded_sum(below) + folded_sum(above)

    return at(points) if points.shape[-1] == 1 else jax.vmap(lambda point: at(point[:, None])[:, 0], 1, 1)(points)


def each_point(mean_from: Callable[[jax.Array], jax.Array], points: jax.Array) -> jax.Array:
    """The means of all pieces minus each of several points: ``(rows, samples, k)``."""
    return jax.vmap(lambda point: mean_from(point[:, None]), in_axes=1, out_axes=1)(points)


@jax.jit
def entropy(distribution: OnLine) -> jax.Array:
    def compute(r: Resolved) -> jax.Array:
        def of_pieces(half: Half) -> jax.Array:
            return r.line.rate * (half.side.low_cost - r.base.cost) + half.decay * piece.mean_fraction(half.decay)

        def of_tail(half: Half) -> jax.Array:
            cost = 0.0 if r.line.tails is None else r.line.tails.cost[..., (half.sign + 1) // 2, None]
            return r.line.rate * (cost - r.base.cost) + 1

        return r.log_normalizer + average(r, of_pieces, of_tail)

    return by_rows(compute, distribution)
