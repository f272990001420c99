"""Policies that protect differences up to a threshold: Blowfish, which says nothing of larger ones, and the smooth form."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TypeVar

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from dpjax import checks
from dpjax.metric_privacy.metrics import Metric
from dpjax.metric_privacy.points import Form, PointMetric, at_threshold
from dpjax.numerics.batching import align, fits

AnyMetric = TypeVar("AnyMetric", Metric, PointMetric)


def blowfish(distances: AnyMetric, *, epsilon: ArrayLike, threshold: ArrayLike) -> AnyMetric:
    """Return the policy d(i, j) = epsilon for elements within the threshold of each other, and ``inf`` for others.

    Distances beyond the threshold by no more than 64 units in the last place count as within it.

    It breaks the triangle inequality, and need not be repaired: a mechanism that keeps these budgets keeps their
    :meth:`~dpjax.metric_privacy.metrics.Metric.closure`, epsilon times the number of steps of at most the threshold between two
    elements, and for linear queries the scales of the noise are the same for both.

    Args:
        distances: a metric with a budget of 1 per unit of distance, such as ``from_points(points, epsilon=1)``, or a
            :class:`PointMetric`; without "nobody", whom :meth:`with_absence` adds afterwards.
        epsilon: positive, broadcasts against the batch.
        threshold: positive, a distance; broadcasts against the batch.

    Returns:
        A metric of the same kind.

    Raises:
        TypeError: ``distances`` is not a metric.
        ValueError: a bad ``epsilon`` or ``threshold``, a metric with "nobody", points that have a threshold already.

    Privacy:
        Elements that no steps of at most the threshold join may be told apart without limit.

    References:
        He, Machanavajjhala and Ding (2014), for policies without constraints; Kamalaruban et al. (2020), Section 4.4.

    >>> from dpjax.metric_privacy.points import from_points
    >>> blowfish(from_points([[0.0], [1.0], [2.0]], epsilon=1), epsilon=0.5, threshold=1).budgets.tolist()  # 1 per unit of distance
    [[0.0, 0.5, inf], [0.5, 0.0, 0.5], [inf, 0.5, 0.0]]
    """
    return _at(distances, epsilon, threshold, "blowfish")


def smooth_threshold(distances: AnyMetric, *, epsilon: ArrayLike, threshold: ArrayLike) -> AnyMetric:
    """Return the metric d(i, j) = epsilon * max(1, distance / threshold) for i != j.

    Like Blowfish up to the threshold, and from there proportional to the distance. It satisfies the triangle inequality if the
    distances do: max(1, s + t) <= max(1, s) + max(1, t).

    Args:
        distances: as for :func:`blowfish`, with the triangle inequality.
        epsilon: positive, broadcasts against the batch.
        threshold: positive, a distance; broadcasts against the batch.

    Returns:
        A metric of the same kind.

    Raises:
        TypeError: as :func:`blowfish`.
        ValueError: as :func:`blowfish`.

    Privacy:
        Two elements at one place have the budget epsilon too, not 0.

    References:
        Kamalaruban et al. (2020), Section 4.4.

    >>> from dpjax.metric_privacy.points import from_points
    >>> smooth_threshold(from_points([[0.0], [1.0], [4.0]], epsilon=1), epsilon=0.5, threshold=2).budgets.tolist()
    [[0.0, 0.5, 1.0], [0.5, 0.0, 0.75], [1.0, 0.75, 0.0]]
    """
    return _at(distances, epsilon, threshold, "smooth")


def _at(distances: AnyMetric, epsilon: ArrayLike, threshold: ArrayLike, form: Form) -> AnyMetric:
    if not isinstance(distances, (Metric, PointMetric)):
        raise TypeError(f"distances must be a Metric or a PointMetric, such as from_points gives; got {type(distances).__name__}.")
    if distances.neighbors == "add_remove":
        raise ValueError(
            "give the distances without the element nobody, and add it to the policy: blowfish(...).with_absence(...)."
        )
    rate = checks.positive("epsilon", epsilon, distances.dtype)
    limit = checks.positive("threshold", threshold, distances.dtype)
    fits(distances.batch_shape, epsilon=rate.shape)
    fits(jnp.broadcast_shapes(distances.batch_shape, rate.shape), threshold=limit.shape)
    if isinstance(distances, PointMetric):
        if distances.form != "linear":
            raise ValueError(f"these points have a threshold already (form={distances.form!r}).")
        rank = max(limit.ndim, distances.epsilon.ndim)
        return replace(distances, epsilon=rate, threshold=align(limit, rank) / align(distances.epsilon, rank), form=form)
    return replace(distances, budgets=_policy(distances.budgets, rate, limit, form))


@partial(jax.jit, static_argnames="form")
def _policy(apart: jax.Array, epsilon: jax.Array, threshold: jax.Array, form: Form) -> jax.Array:
    rank = max(apart.ndim, epsilon.ndim + 2, threshold.ndim + 2)
    itself = align(jnp.eye(apart.shape[-1], dtype=bool), rank)
    rates, limits = align(epsilon[..., None, None], rank), align(threshold[..., None, None], rank)
    budgets = at_threshold(align(apart, rank), itself, epsilon=rates, threshold=limits, form=form)
    wrong = jnp.any(jnp.isnan(budgets), axis=(-2, -1), keepdims=True)
    return jnp.where(wrong, jnp.nan, budgets)
