"""The three strategies of Kamalaruban et al. (2020) on arrays: queries and metric from :func:`dpjax.metric_privacy.loads.prepared`.

Any way to choose scales is allowed: every one returned is multiplied by its largest load, rounded up.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from dpjax.metric_privacy.loads import largest_load, largest_of, per_pair, ratio
from dpjax.metric_privacy.metrics import Metric
from dpjax.metric_privacy.points import PointMetric


def alone_scales(values: jax.Array, metric: Metric | PointMetric) -> jax.Array:
    """The scale of each query with the whole budget, ``(..., K)``: 0, inf, or between; all NaN where something is wrong."""
    scales = largest_of(values, metric, lambda apart, budgets: ratio(apart, budgets[..., None, :, :]), values.shape[-2:-1])
    return jnp.where(jnp.any(jnp.isnan(scales), axis=-1, keepdims=True), jnp.nan, scales)


def answered(values: jax.Array, alone: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Which queries take a share, and the query values with 0 for all others."""
    alive = (alone > 0) & (alone < jnp.inf)
    return alive, jnp.where(alive[..., None], values, 0.0)


def _within(values: jax.Array, scales: jax.Array, metric: Metric | PointMetric) -> jax.Array:
    """Scales that are within the budgets in exact arithmetic: the load has a relative error below (K + 8) eps."""
    margin = 1 + (2 * values.shape[-2] + 16) * float(np.finfo(values.dtype).eps)
    return scales * (jnp.maximum(largest_load(values, scales, metric), 1.0) * margin)[..., None]


def finished(values: jax.Array, scales: jax.Array, alone: jax.Array, metric: Metric | PointMetric) -> jax.Array:
    """The scales of the queries that take a share, within the budgets; 0 or inf for the others."""
    alive, shared = answered(values, alone)
    return jnp.where(alive, _within(shared, jnp.where(alive, scales, jnp.inf), metric), alone)


@jax.jit
def equal_shares(values: jax.Array, metric: Metric | PointMetric) -> jax.Array:
    """Strategy 1."""
    alone = alone_scales(values, metric)
    alive, _ = answered(values, alone)
    return finished(values, alone * jnp.sum(alive, axis=-1, keepdims=True, dtype=values.dtype), alone, metric)


@jax.jit
def common_scales(values: jax.Array, metric: Metric | PointMetric) -> jax.Array:
    """Strategy 2."""
    alone = alone_scales(values, metric)
    return finished(values, one_for_all(answered(values, alone)[1], metric), alone, metric)


def one_for_all(shared: jax.Array, metric: Metric | PointMetric) -> jax.Array:
    """The least scale that all queries can have, ``(..., K)``."""
    largest = largest_of(shared, metric, lambda apart, budgets: ratio(jnp.sum(apart, axis=-3), budgets))
    return jnp.broadcast_to(largest[..., None], (*largest.shape, shared.shape[-2]))


@jax.jit
def scales_in_rounds(values: jax.Array, metric: Metric | PointMetric) -> jax.Array:
    """Strategy 3."""
    alone = alone_scales(values, metric)
    alive, shared = answered(values, alone)
    return finished(values, 1 / jnp.where(alive, selected_shares(shared, alive, metric), 1.0), alone, metric)


def selected_shares(shared: jax.Array, alive: jax.Array, metric: Metric | PointMetric) -> jax.Array:
    """The sums of shares R = 1/c of Algorithm 3."""
    tail = shared.shape[-2:-1]
    used_up = 64 * tail[0] * float(np.finfo(shared.dtype).eps)

    def left(given: jax.Array, apart: jax.Array, budgets: jax.Array) -> jax.Array:
        return jnp.maximum(budgets - jnp.sum(per_pair(given) * apart, axis=-3), 0.0)

    def one_round(carry: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        given, active = carry

        def need(apart: jax.Array, budgets: jax.Array) -> jax.Array:
            return ratio(apart, left(given, apart, budgets)[..., None, :, :])

        needs = largest_of(shared, metric, need, tail)
        share = jnp.where(active, 1 / jnp.where(active, needs, 1.0), 0.0)

        def crowd(apart: jax.Array, budgets: jax.Array) -> jax.Array:
            together = ratio(jnp.sum(per_pair(share) * apart, axis=-3), left(given, apart, budgets))
            return jnp.where(apart > 0, together[..., None, :, :], 0.0)

        crowds = largest_of(shared, metric, crowd, tail)
        given = given + jnp.where(active, share / jnp.where(active, crowds, 1.0), 0.0)

        def exhausted(apart: jax.Array, budgets: jax.Array) -> jax.Array:
            gone = (left(given, apart, budgets) <= used_up * budgets) & (budgets < jnp.inf)
            return ((apart > 0) & gone[..., None, :, :]).astype(apart.dtype)

        return given, active & (largest_of(shared, metric, exhausted, tail) == 0)

    def turn(carry: tuple[jax.Array, jax.Array], _: None) -> tuple[tuple[jax.Array, jax.Array], None]:
        return jax.lax.cond(jnp.any(carry[1]), one_round, lambda same: same, carry), None

    (given, _), _ = jax.lax.scan(turn, (jnp.zeros(alive.shape, shared.dtype), alive), length=tail[0])
    return given
