"""The load of noise scales: the fraction of its budget that a pair of elements uses.

A record that moves from element i to j changes answer k by |Q_ki - Q_kj|. With independent noise
Lap(c_k) that move costs sum_k |Q_ki - Q_kj| / c_k, which must be at most d(i, j) for every pair.
Functions on arrays take values and metric from :func:`prepared`; all batches broadcast.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from dpjax import checks
from dpjax.metric_privacy.budgets import budget_array
from dpjax.metric_privacy.metrics import BLOCK_CELLS, Metric, fold_rows


def load(queries: ArrayLike, scales: ArrayLike, metric: Metric) -> jax.Array:
    """Return the largest fraction of a pair's budget that the noise uses; at most 1 is private.

        max over i, j of  sum_k |Q_ki - Q_kj| / c_k / d(i, j)

    Pairs on which no query differs do not count, nor do pairs of infinite budget. It is infinite if
    a query with noise of scale 0 differs on a protected pair, or any query on a pair of budget 0
    (Kamalaruban et al. 2020, Theorem 1).

    Args:
        queries: see :mod:`dpjax.metric_privacy`.
        scales: float ``(..., K)``, nonnegative; a query of scale ``inf`` is not answered and costs
            nothing.
        metric: see :mod:`dpjax.metric_privacy`.

    >>> from dpjax.metric_privacy.metrics import from_budgets
    >>> metric = from_budgets([[0.0, 1.0, 2.0], [1.0, 0.0, 1.5], [2.0, 1.5, 0.0]])
    >>> queries = [[1.0, 0.0, 0.0], [0.0, 0.5, 0.0]]
    >>> float(load(queries, [2.0, 1.0], metric))
    1.0
    """
    return largest_load(*with_scales(queries, scales, metric))


def prepared(queries: ArrayLike, metric: Metric, name: str = "queries") -> tuple[jax.Array, Metric]:
    """Return checked queries, with a 0 for the null record, and the metric in the same dtype."""
    checks.instance(name, metric, Metric, "from_points, from_budgets, ...")
    array = checks.float_array(name, queries)
    if array.ndim < 2 or 0 in array.shape[-2:]:
        raise ValueError(f"{name} must be of shape (..., K, N) with K, N >= 1, got {array.shape}.")
    dtype = jnp.promote_types(array.dtype, metric.dtype)
    values = metric.columns(checks.finite(name, queries, dtype))
    jnp.broadcast_shapes(values.shape[:-2], metric.batch_shape)
    return values, metric.astype(dtype)


def with_scales(
    queries: ArrayLike, scales: ArrayLike, metric: Metric
) -> tuple[jax.Array, jax.Array, Metric]:
    """Return the checked queries, scales and metric."""
    values, metric = prepared(queries, metric)
    c = budget_array("scales", scales).astype(values.dtype)
    if c.shape[-1:] != values.shape[-2:-1]:
        raise ValueError(
            f"scales must have one element for each of the {values.shape[-2]} queries, got shape "
            f"{c.shape}."
        )
    return values, c, metric


def one_query(values: ArrayLike) -> jax.Array | np.ndarray:
    """Return values ``(..., N)`` of one query as ``(..., 1, N)``."""
    return (values if isinstance(values, jax.Array) else np.asarray(values))[..., None, :]


def batch_of(values: jax.Array, metric: Metric) -> tuple[int, ...]:
    """Return the broadcast batch shape of queries and metric."""
    return jnp.broadcast_shapes(values.shape[:-2], metric.batch_shape)


def ratio(cost: jax.Array, budget: jax.Array) -> jax.Array:
    """Divide cost by budget: 0/x = 0, x/0 = x/NaN = inf, x/inf = 0; others stay above 0."""
    free = (cost == 0) | (budget == jnp.inf)
    none = ~(budget > 0)  # also NaN: a maximum over thousands of numbers may drop NaN on a CPU
    quotient = jnp.maximum(cost / jnp.where(free | none, 1.0, budget), np.finfo(cost.dtype).tiny)
    return jnp.where(free, 0.0, jnp.where(none, jnp.inf, quotient))


def fold_pairs(
    values: jax.Array,
    metric: Metric,
    initial: Any,
    step: Callable[[Any, jax.Array, jax.Array, jax.Array], Any],
) -> Any:
    """Run over all pairs in blocks of rows of the metric.

    The call is ``step(carry, index (B,), differences (..., K, B, N), budgets (..., B, N))``.
    """
    lanes = prod(batch_of(values, metric)) * values.shape[-2] * metric.size
    tiny = np.finfo(values.dtype).tiny

    def block(carry: Any, index: jax.Array, rows: jax.Array) -> Any:
        block_values, other = jnp.take(values, index, axis=-1)[..., :, None], values[..., None, :]
        # A nonzero difference that underflows counts as the smallest normal number.
        apart = jnp.where(
            block_values == other, 0.0, jnp.maximum(jnp.abs(block_values - other), tiny)
        )
        return step(carry, index, apart, rows)

    return fold_rows(metric, initial, block, count=BLOCK_CELLS // max(lanes, 1))


def largest_of(
    values: jax.Array,
    metric: Metric,
    function: Callable[[jax.Array, jax.Array], jax.Array],
    shape: tuple[int, ...],
) -> jax.Array:
    """Return the maximum over all pairs of a function of differences and budgets.

    The function maps ``(..., K, B, N)`` and ``(..., B, N)`` to ``(*shape, B, N)``; the result has
    shape ``shape``.
    """

    def step(carry: jax.Array, index: jax.Array, apart: jax.Array, rows: jax.Array) -> jax.Array:
        return jnp.maximum(carry, jnp.max(function(apart, rows), axis=-2))

    # The last axis is reduced at the end, because a maximum along it is vectorized less well.
    return jnp.max(
        fold_pairs(values, metric, jnp.zeros((*shape, metric.size), values.dtype), step), axis=-1
    )


@jax.jit
def largest_load(values: jax.Array, scales: jax.Array, metric: Metric) -> jax.Array:
    """Return :func:`load`."""

    def charged(apart: jax.Array, budgets: jax.Array) -> jax.Array:
        return ratio(jnp.sum(ratio(apart, scales[..., None, None]), axis=-3), budgets)

    shape = jnp.broadcast_shapes(batch_of(values, metric), scales.shape[:-1])
    return largest_of(values, metric, charged, shape) + metric.rows(0, 1)[..., 0, 0]


def scales_alone(values: jax.Array, metric: Metric) -> jax.Array:
    """Return each query's scale with the whole budget, ``(..., K)``, 0 to ``inf``.

    All are NaN if the metric is: its diagonal is 0 or NaN.
    """
    shape = (*batch_of(values, metric), values.shape[-2])
    scales = largest_of(
        values, metric, lambda apart, budgets: ratio(apart, budgets[..., None, :, :]), shape
    )
    return scales + metric.rows(0, 1)[..., 0, 0, None]


def answered(values: jax.Array, alone: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Return which queries need noise, and the query values with 0 for all others.

    They are those whose scale alone is positive and finite.
    """
    alive = (alone > 0) & (alone < jnp.inf)
    return alive, jnp.where(alive[..., None], values, 0.0)


def within_budgets(
    values: jax.Array, scales: jax.Array, alone: jax.Array, metric: Metric
) -> jax.Array:
    """Return scales multiplied by their load if above 1; 0 or ``inf`` for queries without noise.

    They are within the budgets in exact arithmetic, as the computed load has a relative error below
    (K + 8) eps.
    """
    alive, shared = answered(values, alone)
    scales = jnp.where(alive, scales, jnp.inf)
    margin = 1 + (2 * values.shape[-2] + 16) * float(np.finfo(values.dtype).eps)
    return jnp.where(
        alive,
        scales * (jnp.maximum(largest_load(shared, scales, metric), 1.0) * margin)[..., None],
        alone,
    )
