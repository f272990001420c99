"""The d-private exponential mechanism, with the smaller scale of a range.

It is Definition 9 and Theorem 3 of Kamalaruban et al. (2020). P(candidate) is proportional to
exp(score / (2c)). Moving a record from i to j changes the score of candidate r by some g_r, and its
log-probability by g_r/(2c) minus the logarithm of a mean of exp(g/(2c)), which lies between its
extremes. So the changes of all log-probabilities lie in an interval around 0 of length (max g - min
g)/(2c). It is at most d(i, j) if

    c >= (max over r of g_r - min over r of g_r) / 2 / d(i, j)   for all pairs.

Theorem 3 has the largest |g_r| instead, which is never smaller than half the range. The two agree
on counts (g = -1, 1, 0, ...); scores that a move can only increase need half of it.

In floating point a cost is rounded once, and its product with the rate once more: within the reach
of a draw, 42 nats, the total error of the exponents of two neighbors is up to 2^-16 in float32, for
any scale. So this much is subtracted from every d(i, j) first.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from dpjax import checks
from dpjax.accounting.mechanism import with_guarantee
from dpjax.distributions.finite import Finite
from dpjax.metric_privacy.guarantees import MetricGuarantee
from dpjax.metric_privacy.histograms import below_best, counts_of, exact_numbers, linear_answers
from dpjax.metric_privacy.lipschitz import rounded_up
from dpjax.metric_privacy.loads import prepared, ratio
from dpjax.metric_privacy.metrics import BLOCK_CELLS, Metric, fold_rows
from dpjax.numerics.arrays import fits
from dpjax.numerics.float64 import Exact


def guarantee(metric: Metric) -> MetricGuarantee:
    """Return the guarantee of one draw of :func:`metric_exponential` or :func:`linear_selection`.

    It is d, and d in range.

    >>> from dpjax.metric_privacy.metrics import from_budgets
    >>> cost = metric_exponential.guarantee(from_budgets([[0.0, 0.5], [0.5, 0.0]]))
    >>> print(cost)  # doctest: +NORMALIZE_WHITESPACE
    d-privacy on 2 elements with budgets 0.5 to 0.5, n public:
    0.5-DP and 0.5-bounded-range under swap neighbors
    """
    return MetricGuarantee(metric, ranges=metric)


@with_guarantee(guarantee)
def metric_exponential(
    scores: ArrayLike,
    metric: Metric,
    *,
    sensitivity: ArrayLike,
    candidates: ArrayLike | None = None,
) -> Finite:
    """Return the distribution P(candidate) proportional to exp(score / (2c)).

    c is the maximum over pairs of sensitivity(i, j) / d(i, j).

    Args:
        scores: float ``(..., R)``, higher is better. A score of ``-inf`` excludes a candidate; that
            must be public, the same for every dataset.
        metric: see :mod:`dpjax.metric_privacy`.
        sensitivity: float ``(..., N, N)``, public, the diagonal ignored: for a move from i to j,
            the largest change of any score, or half the largest difference of two scores' changes
            (which is never larger).
        candidates: float ``(R,)`` or ``(..., R)``, public, the values of the candidates; by default
            the indices 0..R-1.

    Returns:
        A :class:`Finite` of the broadcast batch shape; uniform (except for excluded candidates) if
        a pair of budget 0 has a positive sensitivity, or in float32 one of a budget below 2^-16. A
        row is NaN if a score is NaN or ``+inf``, or all are ``-inf``; and if no protected pair
        changes any score: the scores are then as public as n is, and need no mechanism.

    Privacy:
        d-private, and of bounded range d(i, j) too, under the relation of the metric. Public: the
        metric, the sensitivity, the candidates, and n under swap.

    References:
        McSherry and Talwar (2007); Kamalaruban et al. (2020), Definition 9 and Theorem 3, with the
        sharper sensitivity.

    >>> from dpjax.metric_privacy.metrics import from_budgets
    >>> metric = from_budgets([[0.0, 0.5], [0.5, 0.0]])
    >>> distribution = metric_exponential([0.0, 2.0], metric, sensitivity=[[0.0, 1.0], [1.0, 0.0]])
    >>> bool(jnp.isclose(distribution.prob(1.0) / distribution.prob(0.0), jnp.exp(0.5), rtol=1e-4))
    True
    """
    points = exact_numbers("scores", scores, metric.dtype)
    shape, dtype = points.value.shape, points.value.dtype
    if shape[-1:] in ((), (0,)):
        raise ValueError(
            f"scores must have a last axis with at least one candidate, got shape {shape}."
        )
    change = checks.nonnegative("sensitivity", sensitivity, dtype)
    if change.shape[-2:] != (metric.size, metric.size):
        raise ValueError(
            f"sensitivity must be of shape (..., {metric.size}, {metric.size}), got {change.shape}."
        )
    labels = _labels(candidates, shape[-1], dtype)
    return _distribution(points, labels, _scale_of_sensitivity(change, metric))


@with_guarantee(guarantee)
def linear_selection(
    x: ArrayLike, metric: Metric, *, weights: ArrayLike, candidates: ArrayLike | None = None
) -> Finite:
    """Return the distribution of the exponential mechanism with scores linear in a histogram.

    The score of candidate r is <w_r, x>:

        P(r) proportional to exp(<w_r, x> / (2c)),
        c = max over i, j of (max over r of g_r - min over r of g_r) / 2 / d(i, j)

    where g_r = w_rj - w_ri is the change by a move from i to j.

    Args:
        x: see :mod:`dpjax.metric_privacy`.
        metric: see :mod:`dpjax.metric_privacy`.
        weights: float ``(..., R, N)``, finite and public.
        candidates: as for :func:`metric_exponential`.

    Returns:
        A :class:`Finite` of the broadcast batch shape. If no protected pair changes the scores'
        differences, the best candidate has all the probability, up to rounding (see
        :func:`selection_scale`). In float32 budgets below 2^-16 are smaller than the rounding, and
        make it uniform: enable float64 for them.

    Privacy:
        As :func:`metric_exponential`. Public: the metric, the weights, the candidates, and n under
        swap.

    >>> from dpjax.metric_privacy.metrics import from_budgets
    >>> metric = from_budgets([[0.0, 1.0], [1.0, 0.0]])
    >>> weights = [[1.0, 0.0], [0.0, 1.0]]  # to select the commoner element
    >>> distribution = linear_selection([3.0, 1.0], metric, weights=weights)
    >>> bool(jnp.isclose(distribution.prob(0.0) / distribution.prob(1.0), jnp.exp(1.0), rtol=1e-4))
    True
    """
    values, _ = prepared(weights, metric, "weights")
    counts = counts_of(x, values.dtype, metric.num_values)
    fits(counts.value.shape[:-1], metric=metric.batch_shape, weights=values.shape[:-2])
    labels = _labels(candidates, values.shape[-2], counts.value.dtype)
    values = values.astype(counts.value.dtype)
    scores = linear_answers(values[..., : metric.num_values], counts)
    return _distribution(scores, labels, _scale_of_weights(values, metric))


def selection_scale(weights: ArrayLike, metric: Metric) -> jax.Array:
    """Return the c of :func:`linear_selection`, of the broadcast batch shape, rounded up.

    It is at least sqrt(eps) times the largest |weight|, so that the rounding of a score is small
    compared to c; infinite if a pair of budget 0 changes the differences of scores, or in float32
    one of a budget below 2^-16.

    >>> from dpjax.metric_privacy.metrics import from_budgets
    >>> metric = from_budgets([[0.0, 2.0], [2.0, 0.0]])
    >>> round(float(selection_scale([[1.0, 0.0], [0.0, 0.0]], metric)), 4)  # Theorem 3 has 0.5
    0.25
    """
    return _scale_of_weights(*prepared(weights, metric, "weights"))


def _labels(candidates: ArrayLike | None, count: int, dtype: jnp.dtype) -> jax.Array:
    if candidates is None:
        return jnp.arange(count, dtype=dtype)
    labels = checks.float_array("candidates", candidates).astype(dtype)
    if labels.shape[-1:] != (count,):
        raise ValueError(
            f"candidates must have one element for each of the {count} scores on the last axis, "
            f"got shape {labels.shape}."
        )
    return labels


@jax.jit
def _distribution(scores: Exact, labels: jax.Array, scale: jax.Array) -> Finite:
    ok = scale > 0  # NaN and 0 give NaN; infinity the uniform distribution
    return Finite(
        labels, below_best(scores), jnp.where(ok, 1 / (2 * jnp.where(ok, scale, 1.0)), jnp.nan)
    )


@jax.jit
def _scale_of_sensitivity(sensitivity: jax.Array, metric: Metric) -> jax.Array:
    either_way = jnp.maximum(sensitivity, jnp.swapaxes(sensitivity, -1, -2))
    change = jnp.where(jnp.eye(metric.size, dtype=bool), 0.0, either_way)
    needed = _largest_ratio(
        metric.astype(sensitivity.dtype),
        lambda index: change[..., index, :],
        sensitivity.shape[:-2],
        1,
    )
    return needed * (1 + 4 * jnp.finfo(needed.dtype).eps)


@jax.jit
def _scale_of_weights(weights: jax.Array, metric: Metric) -> jax.Array:
    def half_range(index: jax.Array) -> jax.Array:
        """Return half the range of the changes of all candidates' scores."""
        change = weights[..., None, :] - weights[..., index][..., :, None]
        most, least = jnp.max(change, axis=-3), jnp.min(change, axis=-3)
        # The rounding of a difference of two rounded differences is added to the scale.
        return (most - least) / 2 + jnp.finfo(weights.dtype).eps * (jnp.abs(most) + jnp.abs(least))

    needed = _largest_ratio(
        metric.astype(weights.dtype), half_range, weights.shape[:-2], weights.shape[-2]
    )
    return rounded_up(needed, jnp.max(jnp.abs(weights), axis=(-2, -1)))


def _largest_ratio(
    metric: Metric, change: Callable[[jax.Array], jax.Array], batch: tuple[int, ...], scores: int
) -> jax.Array:
    """Return the largest ratio of ``change(index)`` to the budgets minus rounding.

    ``change`` returns ``(..., count, N)`` for some elements and all.
    """
    batch = jnp.broadcast_shapes(batch, metric.batch_shape)
    count = BLOCK_CELLS // max(1, prod(batch) * scores * metric.size)
    rounding = 2.0**7 * jnp.finfo(metric.dtype).eps

    def step(most: jax.Array, index: jax.Array, rows: jax.Array) -> jax.Array:
        return jnp.maximum(most, jnp.max(ratio(change(index), rows - rounding), axis=(-2, -1)))

    found = fold_rows(metric, jnp.zeros(batch, metric.dtype), step, count=count)
    return found + metric.rows(0, 1)[..., 0, 0]  # the diagonal is 0, or NaN where the metric is
