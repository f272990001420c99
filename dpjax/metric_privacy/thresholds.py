"""Policies that protect differences up to a threshold.

Blowfish leaves larger differences unprotected; the smooth form protects them less.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from dpjax import checks
from dpjax.metric_privacy.budgets import nan_where_any
from dpjax.metric_privacy.coordinates import Form, Points, policy
from dpjax.metric_privacy.metrics import Metric
from dpjax.numerics.arrays import fits


def blowfish(distances: Metric, *, epsilon: ArrayLike, threshold: ArrayLike) -> Metric:
    """Return the policy d(i, j) = epsilon up to a distance threshold, and ``inf`` beyond.

    It violates the triangle inequality, but needs no repair: a mechanism within these budgets is
    also within their :meth:`~dpjax.metric_privacy.metrics.Metric.closure` (epsilon times the number
    of steps of at most the threshold between two elements), and the noise of linear queries has the
    same scales for both. Elements that no such steps connect are not protected from being
    distinguished.

    Args:
        distances: a metric with a budget of 1 per unit of distance, such as ``from_points(points,
            epsilon=1)``, without the null record. If it is computed from coordinates, so is the
            policy.
        epsilon: positive, broadcasts against the batch.
        threshold: positive, a distance; broadcasts against the batch. A distance above it by up to
            64 units in the last place counts as within it.

    References:
        He, Machanavajjhala and Ding (2014), for policies without constraints; Kamalaruban et al.
        (2020), Section 4.4.

    >>> from dpjax.metric_privacy.points import from_points
    >>> line = from_points([[0.0], [1.0], [2.0]], epsilon=1)  # 1 per unit of distance
    >>> blowfish(line, epsilon=0.5, threshold=1).budgets.tolist()
    [[0.0, 0.5, inf], [0.5, 0.0, 0.5], [inf, 0.5, 0.0]]
    """
    return _with_threshold(distances, epsilon, threshold, "blowfish")


def smooth_threshold(distances: Metric, *, epsilon: ArrayLike, threshold: ArrayLike) -> Metric:
    """Return the metric d(i, j) = epsilon * max(1, distance / threshold) for i != j.

    It satisfies the triangle inequality if the distances do: max(1, s + t) <= max(1, s) + max(1,
    t). Arguments are those of :func:`blowfish`. Two elements at distance 0 also have the budget
    epsilon, not 0.

    References:
        Kamalaruban et al. (2020), Section 4.4.

    >>> from dpjax.metric_privacy.points import from_points
    >>> smooth_threshold(
    ...     from_points([[0.0], [1.0], [4.0]], epsilon=1), epsilon=0.5, threshold=2
    ... ).budgets.tolist()
    [[0.0, 0.5, 1.0], [0.5, 0.0, 0.75], [1.0, 0.75, 0.0]]
    """
    return _with_threshold(distances, epsilon, threshold, "smooth")


def _with_threshold(
    distances: Metric, epsilon: ArrayLike, threshold: ArrayLike, form: Form
) -> Metric:
    checks.instance(form, distances, Metric, "of distances, as from_points returns")
    if distances.neighbors == "add_remove":
        raise ValueError(
            "distances must be without the null record: add it to the policy, as in "
            "blowfish(...).with_absence(...)."
        )
    rate = checks.positive("epsilon", epsilon, distances.dtype)
    limit = checks.positive("threshold", threshold, distances.dtype)
    fits(distances.batch_shape, epsilon=rate.shape)
    fits(jnp.broadcast_shapes(distances.batch_shape, rate.shape), threshold=limit.shape)
    points = distances.budgets
    if not isinstance(points, Points):
        return Metric(_of_matrix(points, rate, limit, form))
    if points.form != "linear":
        raise ValueError(f"distances must be without a threshold, got one of form={points.form!r}.")
    return Metric(replace(points, epsilon=rate, threshold=limit / points.epsilon, form=form))


@partial(jax.jit, static_argnames="form")
def _of_matrix(apart: jax.Array, epsilon: jax.Array, threshold: jax.Array, form: Form) -> jax.Array:
    same = jnp.eye(apart.shape[-1], dtype=bool)
    return nan_where_any(
        policy(apart, same, epsilon[..., None, None], threshold[..., None, None], form)
    )
