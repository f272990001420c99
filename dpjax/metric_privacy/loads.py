"""What a pair of elements is charged: the load of noise scales, and the way over all pairs of a universe.

A record that moves from element i to element j changes answer k by |Q_ki - Q_kj|. With independent noise Lap(c_k) that move costs
sum_k |Q_ki - Q_kj| / c_k, which must be at most d(i, j) for every pair.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from dpjax import checks
from dpjax.metric_privacy.metrics import Metric, fold_rows
from dpjax.metric_privacy.points import PointMetric
from dpjax.numerics.batching import align

_CELLS = 2**20  # differences of query values in a block of rows: little enough for a cache


def load(queries: ArrayLike, scales: ArrayLike, metric: Metric | PointMetric) -> jax.Array:
    """Return the largest share of its budget that a pair of elements is charged: the noise is private if it is at most 1.

        max over i, j of  sum_k |Q_ki - Q_kj| / c_k / d(i, j)

    Pairs that no query tells apart do not count, nor do pairs of infinite budget. It is infinite if noise of scale 0 tells a
    protected pair apart, or any noise a pair of budget 0. A query of infinite scale is not answered and costs nothing.

    Args:
        queries: float ``(..., K, N)``, the value of each query at each element of the universe.
        scales: float ``(..., K)``, not negative, may be ``inf``.
        metric: on N elements (and "nobody"), broadcasts against the batch.

    Returns:
        Float ``(...)``.

    Raises:
        ValueError: shapes that do not fit; queries that are not finite or negative scales, as Python or NumPy numbers (as JAX
            arrays: NaN for their batch element).

    Privacy:
        None: no data here.

    References:
        Kamalaruban et al. (2020), Theorem 1.

    >>> from dpjax.metric_privacy.metrics import from_budgets
    >>> metric = from_budgets([[0.0, 1.0, 2.0], [1.0, 0.0, 1.5], [2.0, 1.5, 0.0]])
    >>> queries = [[1.0, 0.0, 0.0], [0.0, 0.5, 0.0]]
    >>> float(load(queries, [2.0, 1.0], metric))
    1.0
    """
    return largest_load(*with_scales(queries, scales, metric))


def prepared(queries: ArrayLike, metric: Metric | PointMetric) -> tuple[jax.Array, Metric | PointMetric]:
    """Queries and metric in one dtype and of one batch rank, with a 0 for "nobody"."""
    if not isinstance(metric, (Metric, PointMetric)):
        raise TypeError(f"a Metric is needed here (from_points, from_budgets, ...), got {type(metric).__name__}.")
    dtype = jnp.promote_types(checks.float_array("queries", queries).dtype, metric.dtype)
    values = checks.finite("queries", queries, dtype)
    if values.ndim < 2 or values.shape[-2] == 0:
        raise ValueError(f"queries must be of shape (..., K, N) with K >= 1, got {values.shape}.")
    values = metric.columns(values)
    rank = max(values.ndim - 2, len(metric.batch_shape))
    jnp.broadcast_shapes(values.shape[:-2], metric.batch_shape)
    return align(values, rank + 2), aligned(jax.tree.map(lambda leaf: leaf.astype(dtype), metric), rank)


def aligned(metric: Metric | PointMetric, rank: int) -> Any:
    """Return the metric with this number of batch axes."""
    return jax.tree.map(lambda leaf: align(leaf, leaf.ndim + rank - len(metric.batch_shape)), metric)


def with_scales(
    queries: ArrayLike, scales: ArrayLike, metric: Metric | PointMetric
) -> tuple[jax.Array, jax.Array, Metric | PointMetric]:
    """The same with scales, which may have more batch axes."""
    values, metric = prepared(queries, metric)
    c = checks.float_array("scales", scales).astype(values.dtype)
    if not isinstance(scales, jax.Array) and not np.all(checks.host_floats("scales", scales) >= 0):
        raise ValueError(f"scales must not be negative or NaN, got {scales}.")
    if c.shape[-1:] != values.shape[-2:-1]:
        raise ValueError(f"{values.shape[-2]} queries need as many scales, got shape {c.shape}.")
    rank = max(values.ndim - 2, c.ndim - 1)
    return align(values, rank + 2), align(jnp.where(c >= 0, c, jnp.nan), rank + 1), aligned(metric, rank)


def batch_of(values: jax.Array, metric: Metric | PointMetric) -> tuple[int, ...]:
    """The broadcast batch of queries and metric."""
    return jnp.broadcast_shapes(values.shape[:-2], metric.batch_shape)


def ratio(part: jax.Array, whole: jax.Array) -> jax.Array:
    """Divide part by whole, where nothing of anything is 0, something of nothing inf, and anything of an infinite whole 0."""
    void = (part == 0) | (whole == jnp.inf)
    none = whole <= 0
    value = part / jnp.where(void | none, 1.0, whole)
    value = jnp.maximum(value, float(np.finfo(part.dtype).tiny))  # what was told apart costs something
    value = jnp.where(void, 0.0, jnp.where(none, jnp.inf, value))
    return jnp.where(jnp.isnan(whole), jnp.nan, value)


def fold_pairs(
    values: jax.Array,
    metric: Metric | PointMetric,
    initial: Any,
    step: Callable[[Any, jax.Array, jax.Array, jax.Array], Any],
) -> Any:
    """Run over all pairs in blocks: ``step(carry, index (B,), differences (..., K, B, N), budgets (..., B, N))``."""
    lanes = int(np.prod(batch_of(values, metric), dtype=np.int64)) * values.shape[-2] * metric.size
    tiny = float(np.finfo(values.dtype).tiny)

    def block(carry: Any, index: jax.Array, rows: jax.Array) -> Any:
        own, other = jnp.take(values, index, axis=-1)[..., :, None], values[..., None, :]
        # A difference that underflows is still one.
        apart = jnp.where(own == other, 0.0, jnp.maximum(jnp.abs(own - other), tiny))
        return step(carry, index, apart, rows)

    return fold_rows(metric, initial, block, count=max(1, min(metric.size, _CELLS // max(lanes, 1))))


def largest_of(
    values: jax.Array,
    metric: Metric | PointMetric,
    function: Callable[[jax.Array, jax.Array], jax.Array],
    tail: tuple[int, ...] = (),
) -> jax.Array:
    """The largest value over all pairs of a function of differences ``(..., K, B, N)`` and budgets ``(..., B, N)``."""

    def step(carry: jax.Array, index: jax.Array, apart: jax.Array, rows: jax.Array) -> jax.Array:
        return jnp.maximum(carry, jnp.max(function(apart, rows), axis=-2))

    # Elements side by side to the end: compilers turn that into vector instructions, and a maximum of neighbours less so.
    start = jnp.zeros((*batch_of(values, metric), *tail, metric.size), values.dtype)
    return jnp.max(fold_pairs(values, metric, start, step), axis=-1)


def per_pair(scales: jax.Array) -> jax.Array:
    """(..., K) beside differences of shape (..., K, B, N)."""
    return scales[..., None, None]


@jax.jit
def largest_load(values: jax.Array, scales: jax.Array, metric: Metric | PointMetric) -> jax.Array:
    """Return :func:`load` of values from :func:`prepared`."""
    scales = align(scales, values.ndim - 1)
    return largest_of(
        values,
        metric,
        lambda apart, budgets: ratio(jnp.sum(ratio(apart, per_pair(scales)), axis=-3), align(budgets, apart.ndim - 1)),
    )
