"""Two distributions on common segments, on which both log-densities are linear.

Exact audits sum over them. A segment has a coordinate t in [0, length]. Between adjacent edges of
the two distributions length is 1, and both costs are evaluated as limits from inside the segment at
both ends, as the density at an edge is only one of its two limits. Beyond the outermost edges, t is
the distance from them, and length is infinite. A candidate of a finite distribution is a segment of
constant density.

The loss log p - log q is a difference of costs times the rate plus a difference of log-normalizers.
No exponentials are subtracted, so it is accurate even where both densities underflow, and large
integer costs cancel without rounding.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dpjax import checks
from dpjax.distributions.finite import Finite
from dpjax.distributions.piecewise import PiecewiseExponential, Tails
from dpjax.distributions.rounded import Rounded
from dpjax.numerics.arrays import broadcast_rows, concatenate, take
from dpjax.numerics.multiples import from_multiples, to_multiples

Distribution = PiecewiseExponential | Rounded | Finite
_MULTIPLES = 2**20  # the maximal number of multiples of a resolution that are compared


class Segments(NamedTuple):
    """Common segments of two distributions, on the last axis; every field is ``(*batch, k)``.

    Where a distribution has no mass, its log-density is -inf and its slope 0. The loss is +inf
    where only p has mass, -inf where only q has mass, and 0 where neither has.
    """

    # log-density of p with respect to t at the start: log p(t) = log_p + slope_p * t
    log_p: jax.Array
    log_q: jax.Array
    slope_p: jax.Array
    slope_q: jax.Array
    loss_start: jax.Array
    loss_end: jax.Array
    length: jax.Array
    wide: jax.Array  # bool: whether suprema include the segment


class _Costs(NamedTuple):
    """One distribution on the segments: where it has mass, its end costs, and their slope.

    The slope is in t.
    """

    there: jax.Array
    start: jax.Array
    end: jax.Array  # equal to ``start`` for an infinite segment
    rise: jax.Array
    rate: jax.Array  # (..., 1)
    log_normalizer: jax.Array  # (..., 1)


@jax.jit
def of_lines(p: PiecewiseExponential, q: PiecewiseExponential, resolution: jax.Array) -> Segments:
    """Split two distributions on the real line at all their edges.

    Intervals of at most ``resolution`` times the largest edge are not wide, unless their
    probability is above a threshold.
    """
    batch = jnp.broadcast_shapes(p.batch_shape, q.batch_shape)
    edges = jnp.concatenate(
        [broadcast_rows(p.edges, batch), broadcast_rows(q.edges, batch)], axis=-1
    )
    order = jnp.argsort(edges, axis=-1)
    points = jnp.take_along_axis(edges, order, axis=-1)
    start, end = concatenate(points[..., :1], points), concatenate(points, points[..., -1:])
    number = jnp.arange(start.shape[-1])
    endless = (number == 0) | (number == points.shape[-1])
    width = end - start
    largest = jnp.max(jnp.abs(jax.lax.stop_gradient(points)), axis=-1, keepdims=True)
    exists, wide = endless | (width > 0), endless | (width > resolution * largest)
    is_p = order < p.edges.shape[-1]
    costs_p, costs_q = (
        _on_line(p, is_p, start, end, endless),
        _on_line(q, ~is_p, start, end, endless),
    )
    log_unit = jnp.where(endless, 0.0, jnp.log(jnp.where(width > 0, width, 1.0)))
    # An interval with more than negligible probability is not due to rounding, however narrow it
    # is.
    for costs in (costs_p, costs_q):
        wide |= exists & (_log_most(costs, log_unit) > _log_negligible(p.dtype))
    length = jnp.where(endless, jnp.inf, jnp.ones_like(width))
    return _segments(costs_p, costs_q, exists, wide, log_unit, length, resolution)


def _log_negligible(dtype: jnp.dtype) -> float:
    """Return the logarithm of the largest probability of an excluded interval.

    It is the root of the precision.
    """
    return float(np.log(np.finfo(dtype).eps)) / 2


def _log_most(costs: _Costs, log_unit: jax.Array) -> jax.Array:
    """Return the logarithm of an upper bound of the probability of each interval.

    The bound is width times density.
    """
    least = jnp.minimum(costs.start, costs.end)
    return jnp.where(
        costs.there,
        jax.lax.stop_gradient(log_unit - costs.rate * least - costs.log_normalizer),
        -jnp.inf,
    )


def multiples_of(*distributions: Rounded) -> tuple[int, int]:
    """Return the indices of the first and last multiple that any row can take, on the host."""
    ends = [
        [to_multiples(end, distribution.resolution) for end in distribution.support]
        for distribution in distributions
    ]
    if any(checks.is_traced(end) for pair in ends for end in pair):
        raise TypeError(
            "the privacy loss of Rounded distributions cannot be traced: call privacy_loss outside "
            "jit and vmap."
        )
    low, high = (np.concatenate([np.ravel(pair[k]) for pair in ends]) for k in (0, 1))
    if np.isnan(low).all() or np.isnan(high).all():
        return 0, 0
    first, last = int(np.nanmin(low)), int(np.nanmax(high))
    if last - first >= _MULTIPLES:
        raise ValueError(
            f"resolution has {last - first + 1} multiples, more than {_MULTIPLES}: use a coarser "
            "one."
        )
    return first, last


def on_multiples(distribution: Rounded, ends: tuple[int, int]) -> Finite:
    """Return a rounded distribution as a finite one on the multiples with these indices."""
    values = from_multiples(
        jnp.arange(ends[0], ends[1] + 1).astype(distribution.dtype), distribution.resolution
    )
    shape = (-1, *(1,) * len(distribution.batch_shape))
    log_prob = jnp.moveaxis(distribution.log_prob(values.reshape(shape)), 0, -1)
    return Finite(values, -log_prob, jnp.ones((), distribution.dtype))


@jax.jit
def of_candidates(p: Finite, q: Finite) -> Segments:
    """Return one segment per candidate.

    A row is NaN where values with positive probability differ.
    """
    if p.values.shape[-1] != q.values.shape[-1]:
        raise ValueError(
            f"p and q must have the same candidates, got {p.values.shape[-1]} and "
            f"{q.values.shape[-1]} of them."
        )
    costs_p, costs_q = _on_candidates(p), _on_candidates(q)
    other = jnp.any(
        (costs_p.there | costs_q.there) & (p.values != q.values), axis=-1, keepdims=True
    )
    costs_p = costs_p._replace(log_normalizer=jnp.where(other, jnp.nan, costs_p.log_normalizer))
    batch = jnp.broadcast_shapes(p.batch_shape, q.batch_shape)
    one = jnp.ones((*batch, p.values.shape[-1]), p.dtype)
    return _segments(
        costs_p, costs_q, one > 0, one > 0, jnp.zeros_like(one), one, jnp.zeros((), p.dtype)
    )


def _on_candidates(distribution: Finite) -> _Costs:
    cost, rate = distribution.cost, distribution.rate[..., None]
    there = ~(cost == jnp.inf)  # a NaN cost propagates
    least = jax.lax.stop_gradient(jnp.min(cost, axis=-1, keepdims=True))
    above = jnp.where(there, cost, least) - least
    total = jax.nn.logsumexp(jnp.where(there, -rate * above, -jnp.inf), axis=-1, keepdims=True)
    return _Costs(there, above, above, jnp.zeros_like(above), rate, total)


def _on_line(
    distribution: PiecewiseExponential,
    own: jax.Array,
    start: jax.Array,
    end: jax.Array,
    endless: jax.Array,
) -> _Costs:
    """Return a distribution on the segments from ``start`` to ``end``.

    ``own`` marks which of the points between the segments are edges of this distribution.
    """
    lowered = _lowered(distribution)
    edges, zero, one = lowered.edges, jnp.zeros((), lowered.dtype), jnp.ones((1,), lowered.dtype)
    tails = lowered.tails or Tails(zero, zero, zero, zero)
    lower, upper, width = (
        tails.lower_scale[..., None],
        tails.upper_scale[..., None],
        jnp.diff(edges),
    )
    # The cost as lines for the lower tail, the pieces and the upper tail; over a distance of
    # ``run`` it changes by ``rise``.
    lines = (
        concatenate(lower > 0, jnp.ones(width.shape[-1:], bool), upper > 0),
        concatenate(edges[..., :1], edges[..., :-1], edges[..., -1:]),
        concatenate(tails.lower_cost[..., None], lowered.cost_left, tails.upper_cost[..., None]),
        concatenate(*(jnp.where(run > 0, run, 1.0) for run in (lower, width, upper))),
        concatenate(-one, lowered.cost_right - lowered.cost_left, one),
    )
    # The number of its edges up to the start. Of tied edges only the last segment has a width, and
    # it counts all of them.
    index = concatenate(
        jnp.zeros_like(own[..., :1], jnp.int32), jnp.cumsum(own.astype(jnp.int32), axis=-1)
    )
    there, origin, cost, run, rise = (take(field, index) for field in lines)
    at_start, at_end = (cost + rise * ((y - origin) / run) for y in (start, end))
    slope = jnp.where(endless, jnp.abs(rise) / run, at_end - at_start)
    return _Costs(
        there,
        at_start,
        at_end,
        slope,
        distribution.rate[..., None],
        lowered.log_normalizer()[..., None],
    )


def _lowered(distribution: PiecewiseExponential) -> PiecewiseExponential:
    """Return the same distribution with its smallest cost shifted to 0.

    A large cost times the rate would be rounded.
    """
    cost_left, cost_right, tails = (
        distribution.cost_left,
        distribution.cost_right,
        distribution.tails,
    )
    costs = [
        jnp.where(jnp.diff(distribution.edges) > 0, jnp.minimum(cost_left, cost_right), jnp.inf)
    ]
    if tails is not None:
        for cost, scale in (
            (tails.lower_cost, tails.lower_scale),
            (tails.upper_cost, tails.upper_scale),
        ):
            costs.append(jnp.where(scale > 0, cost, jnp.inf)[..., None])
    least = jax.lax.stop_gradient(jnp.min(concatenate(*costs), axis=-1, initial=jnp.inf))
    least = jnp.where(jnp.isinf(least), 0.0, least)
    if tails is not None:
        tails = Tails(
            tails.lower_cost - least, tails.lower_scale, tails.upper_cost - least, tails.upper_scale
        )
    cost_left, cost_right = cost_left - least[..., None], cost_right - least[..., None]
    return replace(distribution, cost_left=cost_left, cost_right=cost_right, tails=tails)


def _segments(
    p: _Costs,
    q: _Costs,
    exists: jax.Array,
    wide: jax.Array,
    log_unit: jax.Array,
    length: jax.Array,
    resolution: jax.Array,
) -> Segments:
    # A sliver at the end of one support, due to rounding of equal supports, would make every
    # divergence infinite.
    has_p, has_q = exists & p.there & (wide | q.there), exists & q.there & (wide | p.there)
    shift = q.log_normalizer - p.log_normalizer

    def loss(cost_p: jax.Array, cost_q: jax.Array) -> jax.Array:
        return q.rate * (cost_q - cost_p) + (q.rate - p.rate) * cost_p

    def where_both(value: jax.Array) -> jax.Array:
        alone = jnp.where(has_p == has_q, 0.0, jnp.where(has_p, jnp.inf, -jnp.inf))
        return jnp.where(has_p & has_q, value, alone.astype(value.dtype))

    change = loss(p.rise, q.rise)
    slope_p, slope_q = -p.rate * p.rise, -q.rate * q.rise
    endless = length == jnp.inf
    # Tails whose equal scales were rounded differently would have an infinite loss at infinity.
    parallel = jnp.abs(change) <= resolution * jnp.maximum(jnp.abs(slope_p), jnp.abs(slope_q))
    slope_q = jnp.where(endless & parallel, slope_p, slope_q)
    start = loss(p.start, q.start) + shift
    at_infinity = jnp.where(parallel, start, jnp.where(change > 0, jnp.inf, -jnp.inf))
    end = jnp.where(endless, at_infinity, loss(p.end, q.end) + shift)
    bad = ~(jnp.isfinite(p.log_normalizer) & jnp.isfinite(q.log_normalizer))
    fields = [
        jnp.where(has_p, log_unit - p.rate * p.start - p.log_normalizer, -jnp.inf),
        jnp.where(has_q, log_unit - q.rate * q.start - q.log_normalizer, -jnp.inf),
        jnp.where(has_p, slope_p, 0.0),
        jnp.where(has_q, slope_q, 0.0),
        where_both(start),
        where_both(end),
        length,
    ]
    return Segments(*[*(jnp.where(bad, jnp.nan, field) for field in fields), wide | bad])
