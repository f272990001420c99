"""The load of noise scales: what share of its budget a pair of elements is charged.

A record that moves from element i to j changes answer k by |Q_ki - Q_kj|. With independent noise Lap(c_k) that move costs
sum_k |Q_ki - Q_kj| / c_k, which must be at most d(i, j) for every pair. Functions on arrays take values and metric from
:func:`prepared`; all batches broadcast.
"""

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
    """Return the largest share of its budget that a pair of elements is charged: the noise is private if it is at most 1.

        max over i, j of  sum_k |Q_ki - Q_kj| / c_k / d(i, j)

    Pairs that no query tells apart do not count, nor do pairs of infinite budget. It is infinite if noise of scale 0 tells a
    protected pair apart, or any noise a pair of budget 0 (Kamalaruban et al. 2020, Theorem 1).

    Args:
        queries: see :mod:`dpjax.metric_privacy`.
        scales: float ``(..., K)``, not negative; a query of scale ``inf`` is not answered and costs nothing.
        metric: see :mod:`dpjax.metric_privacy`.

    >>> from dpjax.metric_privacy.metrics import from_budgets
    >>> metric = from_budgets([[0.0, 1.0, 2.0], [1.0, 0.0, 1.5], [2.0, 1.5, 0.0]])
    >>> queries = [[1.0, 0.0, 0.0], [0.0, 0.5, 0.0]]
    >>> float(load(queries, [2.0, 1.0], metric))
    1.0
    """
    return largest_load(*with_scales(queries, scales, metric))


def prepared(queries: ArrayLike, metric: Metric, name: str = "queries") -> tuple[jax.Array, Metric]:
    """Checked queries, with a 0 for the null record, and the metric in one dtype."""
    checks.instance(name, metric, Metric, "from_points, from_budgets, ...")
    given = checks.float_array(name, queries)
    if given.ndim < 2 or 0 in given.shape[-2:]:
        raise ValueError(f"{name} must be of shape (..., K, N) with K, N >= 1, got {given.shape}.")
    dtype = jnp.promote_types(given.dtype, metric.dtype)
    values = metric.columns(checks.finite(name, queries, dtype))
    jnp.broadcast_shapes(values.shape[:-2], metric.batch_shape)
    return values, metric.astype(dtype)


def with_scales(queries: ArrayLike, scales: ArrayLike, metric: Metric) -> tuple[jax.Array, jax.Array, Metric]:
    """The same with scales."""
    values, metric = prepared(queries, metric)
    c = budget_array("scales", scales).astype(values.dtype)
    if c.shape[-1:] != values.shape[-2:-1]:
        raise ValueError(f"{values.shape[-2]} queries need as many scales, got shape {c.shape}.")
    return values, c, metric


def one_query(values: ArrayLike) -> jax.Array | np.ndarray:
    """Values ``(..., N)`` of one query as ``(..., 1, N)``."""
    return (values if isinstance(values, jax.Array) else np.asarray(values))[..., None, :]


def batch_of(values: jax.Array, metric: Metric) -> tuple[int, ...]:
    """The broadcast batch of queries and metric."""
    return jnp.broadcast_shapes(values.shape[:-2], metric.batch_shape)


def ratio(part: jax.Array, whole: jax.Array) -> jax.Array:
    """Divide part by whole: 0/x = 0 for any x, x/0 = inf, x/inf = 0; what is not 0 stays above 0."""
    free = (part == 0) | (whole == jnp.inf)
    none = whole <= 0
    value = jnp.maximum(part / jnp.where(free | none, 1.0, whole), float(np.finfo(part.dtype).tiny))
    value = jnp.where(free, 0.0, jnp.where(none, jnp.inf, value))
    return jnp.where(jnp.isnan(whole), jnp.nan, value)


def fold_pairs(values: jax.Array, metric: Metric, initial: Any, step: Callable[[Any, jax.Array, jax.Array, jax.Array], Any]) -> Any:
    """Run over all pairs in blocks: ``step(carry, index (B,), differences (..., K, B, N), budgets (..., B, N))``."""
    lanes = prod(batch_of(values, metric)) * values.shape[-2] * metric.size
    tiny = float(np.finfo(values.dtype).tiny)

    def block(carry: Any, index: jax.Array, rows: jax.Array) -> Any:
        own, other = jnp.take(values, index, axis=-1)[..., :, None], values[..., None, :]
        # A difference that underflows is still one.
        apart = jnp.where(own == other, 0.0, jnp.maximum(jnp.abs(own - other), tiny))
        return step(carry, index, apart, rows)

    return fold_rows(metric, initial, block, count=BLOCK_CELLS // max(lanes, 1))


def largest_of(
    values: jax.Array, metric: Metric, function: Callable[[jax.Array, jax.Array], jax.Array], shape: tuple[int, ...]
) -> jax.Array:
    """The largest value over all pairs of a function of differences ``(..., K, B, N)`` and budgets: ``(*shape, B, N)`` to shape."""

    def step(carry: jax.Array, index: jax.Array, apart: jax.Array, rows: jax.Array) -> jax.Array:
        return jnp.maximum(carry, jnp.max(function(apart, rows), axis=-2))

    # The last axis is kept to the end: a maximum along it is vectorised less well.
    return jnp.max(fold_pairs(values, metric, jnp.zeros((*shape, metric.size), values.dtype), step), axis=-1)


@jax.jit
def largest_load(values: jax.Array, scales: jax.Array, metric: Metric) -> jax.Array:
    """Return :func:`load`."""

    def charged(apart: jax.Array, budgets: jax.Array) -> jax.Array:
        return ratio(jnp.sum(ratio(apart, scales[..., None, None]), axis=-3), budgets)

    return largest_of(values, metric, charged, jnp.broadcast_shapes(batch_of(values, metric), scales.shape[:-1]))


def scales_alone(values: jax.Array, metric: Metric) -> jax.Array:
    """The scale of each query with the whole budget, ``(..., K)``, 0 to ``inf``; all NaN where something is wrong."""
    shape = (*batch_of(values, metric), values.shape[-2])
    scales = largest_of(values, metric, lambda apart, budgets: ratio(apart, budgets[..., None, :, :]), shape)
    return jnp.where(jnp.any(jnp.isnan(scales), axis=-1, keepdims=True), jnp.nan, scales)


def answered(values: jax.Array, alone: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Which queries take a share of the budgets, and the query values with 0 for all others."""
    alive = (alone > 0) & (alone < jnp.inf)
    return alive, jnp.where(alive[..., None], values, 0.0)


def within_budgets(values: jax.Array, scales: jax.Array, alone: jax.Array, metric: Metric) -> jax.Array:
    """The scales of the queries that take a share, times their load if it is above 1; 0 or ``inf`` for the other queries.

    They are within the budgets in exact arithmetic, as the computed load has a relative error below (K + 8) eps.
    """
    alive, shared = answered(values, alone)
    scales = jnp.where(alive, scales, jnp.inf)
    margin = 1 + (2 * values.shape[-2] + 16) * float(np.finfo(values.dtype).eps)
    return jnp.where(alive, scales * (jnp.maximum(largest_load(shared, scales, metric), 1.0) * margin)[..., None], alone)
