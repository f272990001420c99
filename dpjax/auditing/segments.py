"""Two laws cut into common segments, on which both log-densities are linear: every exact audit is a sum or a maximum over them.

A segment has its own coordinate t in [0, length], where length is 1, or infinite in a tail beyond the outermost edge of both laws.
Between neighbouring edges of either law both costs are linear and are read from inside, at both ends: the law at an edge itself
is the law of one side only, and misses the other limit. A candidate of a finite law is a segment on which nothing changes.

The loss log p - log q is a difference of costs times the rate plus one of the log-normalisers: never of exponentials, so it is as
good where both densities are below the smallest float, and whole-numbered costs cancel without rounding, however large.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from dpjax.distributions import closed_forms
from dpjax.distributions.finite import Finite, above_least
from dpjax.distributions.piecewise import PiecewiseExponential
from dpjax.numerics.batching import align, broadcast_rows, concatenate, take


class Segments(NamedTuple):
    """Common segments of two laws, on the last axis; every field is ``(*batch, k)``.

    Where a law has no mass its log-density is -inf and its slope 0. The loss is +inf where only p has mass, -inf where only q has,
    and 0 where neither.
    """

    log_p: jax.Array  # log-density of p with respect to t at the start: log p(t) = log_p + slope_p * t
    log_q: jax.Array
    slope_p: jax.Array
    slope_q: jax.Array
    loss_start: jax.Array
    loss_end: jax.Array
    length: jax.Array
    wide: jax.Array  # bool: whether a supremum is taken here


class _Costs(NamedTuple):
    """One law on the segments: where it has mass, its cost at both ends, and how much the cost rises over a unit of t."""

    there: jax.Array
    start: jax.Array
    end: jax.Array  # of a tail, whose end is infinite: as at its start
    rise: jax.Array
    rate: jax.Array  # (*batch, 1)
    log_normalizer: jax.Array  # (*batch, 1)


class Pieces(NamedTuple):
    """The pieces of a law in ascending order, ``(*batch, m)`` each, with costs counted from ``base``; and its normaliser."""

    edges: jax.Array
    cost_left: jax.Array
    cost_right: jax.Array
    base: jax.Array
    log_normalizer: jax.Array

    @staticmethod
    def of(law: PiecewiseExponential, batch: tuple[int, ...]) -> Pieces:
        """Read a law; one of tails only gets one piece of width 0."""
        base, normalizer = (jnp.broadcast_to(part, batch)[..., None] for part in closed_forms.normalizer(law))
        edges, left, right = law.edges, law.cost_left, law.cost_right
        if edges.shape[-1] == 1:
            edges = jnp.concatenate([edges, edges], axis=-1)
            left = right = jnp.zeros((1,), edges.dtype)
        edges, left, right = (broadcast_rows(field, batch) for field in (edges, left - base, right - base))
        return Pieces(edges, left, right, base, normalizer)

    def cost_at(self, index: jax.Array, y: jax.Array) -> jax.Array:
        """The cost at ``y`` in pieces of these indices."""
        left, right = take(self.edges, index), take(self.edges, index + 1)
        low, high = take(self.cost_left, index), take(self.cost_right, index)
        inside = low + (high - low) * ((y - left) / jnp.where(right > left, right - left, 1.0))
        return jnp.where((y > left) & (y < right), inside, jnp.where(y >= right, high, low))


def of_lines(p: PiecewiseExponential, q: PiecewiseExponential, resolution: jax.Array) -> Segments:
    """Cut two laws on the line at all their edges; intervals up to ``resolution`` times the largest edge are not wide."""
    batch = jnp.broadcast_shapes(p.batch_shape, q.batch_shape)
    of_p, of_q = Pieces.of(p, batch), Pieces.of(q, batch)
    edges_p, edges_q = of_p.edges, of_q.edges
    edges = jnp.concatenate([edges_p, edges_q], axis=-1)
    order = jnp.argsort(edges, axis=-1)
    points = jnp.take_along_axis(edges, order, axis=-1)
    is_p = order < edges_p.shape[-1]
    costs_p, costs_q = _inside(p, of_p, is_p, points), _inside(q, of_q, ~is_p, points)
    width = jnp.diff(points)
    largest = jnp.max(jnp.abs(jax.lax.stop_gradient(points)), axis=-1, keepdims=True)
    exists, wide = width > 0, width > resolution * largest
    log_unit, length = jnp.log(jnp.where(exists, width, 1.0)), jnp.ones_like(width)
    if p.tails is not None or q.tails is not None:
        costs_p, costs_q = _with_tails(p, of_p, points, costs_p), _with_tails(q, of_q, points, costs_q)
        one = jnp.ones_like(points[..., :1])
        exists, wide, log_unit, length = (
            concatenate(one > 0, exists, one > 0),
            concatenate(one > 0, wide, one > 0),
            concatenate(jnp.zeros_like(one), log_unit, jnp.zeros_like(one)),  # t is the distance in y
            concatenate(jnp.inf * one, length, jnp.inf * one),
        )
    return _segments(costs_p, costs_q, exists, wide, log_unit, length, resolution)


def of_candidates(p: Finite, q: Finite) -> Segments:
    """Take each candidate for a segment; a row is NaN where the values of a possible candidate differ."""
    batch = jnp.broadcast_shapes(p.batch_shape, q.batch_shape)
    costs = []
    for law in (p, q):
        above = broadcast_rows(above_least(law.cost), batch)
        there = above < jnp.inf
        above = jnp.where(above == jnp.inf, 0.0, above)
        rate = align(law.rate, len(batch))[..., None]
        total = jax.nn.logsumexp(jnp.where(there | jnp.isnan(above), -rate * above, -jnp.inf), axis=-1, keepdims=True)
        costs.append(_Costs(there, above, above, jnp.zeros_like(above), rate, total))
    values = [broadcast_rows(law.values, batch) for law in (p, q)]
    other = jnp.any((costs[0].there | costs[1].there) & (values[0] != values[1]), axis=-1, keepdims=True)
    costs[0] = costs[0]._replace(log_normalizer=jnp.where(other, jnp.nan, costs[0].log_normalizer))
    one = jnp.ones((*batch, p.values.shape[-1]), p.dtype)
    return _segments(costs[0], costs[1], one > 0, one > 0, jnp.zeros_like(one), one, jnp.zeros((), p.dtype))


def _inside(law: PiecewiseExponential, pieces: Pieces, own: jax.Array, points: jax.Array) -> _Costs:
    """A law between neighbouring points, of which its ``own`` edges are some."""
    m = pieces.cost_left.shape[-1]
    left, right = points[..., :-1], points[..., 1:]
    # Edges up to here, less 1: the piece that starts last. Where edges tie, the last interval alone has a width, and sees them all.
    index = jnp.cumsum(own.astype(jnp.int32), axis=-1)[..., :-1] - 1
    at = jnp.clip(index, 0, m - 1)
    there, start, end = (index >= 0) & (index < m), pieces.cost_at(at, left), pieces.cost_at(at, right)
    if law.tails is not None:
        lower, upper = _tails(law, pieces)
        for beyond, tail in ((index < 0, lower), (index >= m, upper)):
            there = there | (beyond & (tail.scale > 0))
            start, end = jnp.where(beyond, tail.cost_at(left), start), jnp.where(beyond, tail.cost_at(right), end)
    return _Costs(there, start, end, end - start, law.rate[..., None], pieces.log_normalizer)


class _Tail(NamedTuple):
    """A tail: where it starts, the cost there above the base, its scale in y for a unit of cost, ``(*batch, 1)``, and its side."""

    edge: jax.Array
    cost: jax.Array
    scale: jax.Array
    sign: int

    @property
    def rise(self) -> jax.Array:
        return 1 / jnp.where(self.scale > 0, self.scale, 1.0)

    def cost_at(self, y: jax.Array) -> jax.Array:
        return self.cost + jnp.maximum(self.sign * (y - self.edge), 0.0) * self.rise


def _tails(law: PiecewiseExponential, pieces: Pieces) -> tuple[_Tail, _Tail]:
    """The lower and the upper tail; of scale 0 if there is none."""
    bottom, top = pieces.edges[..., :1], pieces.edges[..., -1:]
    if law.tails is None:
        zero = jnp.zeros_like(bottom)
        return _Tail(bottom, zero, zero, -1), _Tail(top, zero, zero, 1)
    tails, shape = law.tails, bottom.shape
    low, high = (cost[..., None] - pieces.base for cost in (tails.lower_cost, tails.upper_cost))
    scales = (jnp.broadcast_to(scale[..., None], shape) for scale in (tails.lower_scale, tails.upper_scale))
    return _Tail(bottom, low, next(scales), -1), _Tail(top, high, next(scales), 1)


def _with_tails(law: PiecewiseExponential, pieces: Pieces, points: jax.Array, inside: _Costs) -> _Costs:
    """Add one segment below the first and one above the last of all points."""
    lower, upper = _tails(law, pieces)
    below, above = lower.cost_at(points[..., :1]), upper.cost_at(points[..., -1:])
    return _Costs(
        there=concatenate(lower.scale > 0, inside.there, upper.scale > 0),
        start=concatenate(below, inside.start, above),
        end=concatenate(below, inside.end, above),
        rise=concatenate(lower.rise, inside.rise, upper.rise),
        rate=inside.rate,
        log_normalizer=inside.log_normalizer,
    )


def _segments(
    p: _Costs, q: _Costs, exists: jax.Array, wide: jax.Array, log_unit: jax.Array, length: jax.Array, resolution: jax.Array
) -> Segments:
    shape = jnp.broadcast_shapes(p.start.shape, q.start.shape, length.shape)
    # A sliver at the end of one support, which is that of the other but for rounding, would make every divergence infinite.
    has_p, has_q = (
        jnp.broadcast_to(exists & own & (wide | other), shape) for own, other in ((p.there, q.there), (q.there, p.there))
    )
    shift = q.log_normalizer - p.log_normalizer

    def loss(cost_p: jax.Array, cost_q: jax.Array) -> jax.Array:
        return q.rate * (cost_q - cost_p) + (q.rate - p.rate) * cost_p

    def where_both(value: jax.Array) -> jax.Array:
        alone = jnp.where(has_p == has_q, 0.0, jnp.where(has_p, jnp.inf, -jnp.inf))
        return jnp.where(has_p & has_q, value, alone.astype(value.dtype))

    change = loss(p.rise, q.rise)
    slope_p, slope_q = -p.rate * p.rise, -q.rate * q.rise
    endless = length == jnp.inf
    # Tails of one scale that was rounded twice would be infinitely apart at infinity.
    parallel = jnp.abs(change) <= resolution * jnp.maximum(jnp.abs(slope_p), jnp.abs(slope_q))
    slope_q = jnp.where(endless & parallel, slope_p, slope_q)
    start = loss(p.start, q.start) + shift
    at_infinity = jnp.where(parallel, start, jnp.where(change > 0, jnp.inf, -jnp.inf))
    end = jnp.where(endless, at_infinity, loss(p.end, q.end) + shift)
    no_law = ~(jnp.isfinite(p.log_normalizer) & jnp.isfinite(q.log_normalizer))

    def known(value: jax.Array) -> jax.Array:
        return jnp.where(no_law, jnp.nan, value)

    return Segments(
        log_p=known(jnp.where(has_p, log_unit - p.rate * p.start - p.log_normalizer, -jnp.inf)),
        log_q=known(jnp.where(has_q, log_unit - q.rate * q.start - q.log_normalizer, -jnp.inf)),
        slope_p=known(jnp.where(has_p, slope_p, 0.0)),
        slope_q=known(jnp.where(has_q, slope_q, 0.0)),
        loss_start=known(where_both(start)),
        loss_end=known(where_both(end)),
        length=known(jnp.broadcast_to(length, shape)),
        wide=jnp.broadcast_to(wide | no_law, shape),
    )
