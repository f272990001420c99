"""Statistical queries under a metric: means over records of a function of one record.

See Kamalaruban et al. (2020), Appendix C. q(x) = (1/n) sum_i q(x_i) is the linear query with the
value q(u)/n at each element u of the universe. The paper maps each u to another u' and answers c *
q(u') for q(u). With G(u) = c * q(u') / n that is the problem of
:func:`dpjax.metric_privacy.preprocessing.fit_queries` with the error of the worst element: problem
(13). Where the metric is a sum over attributes, the mean of each is a separate problem on one
attribute's values: problem (14), which is solved by bisection.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from dpjax import checks
from dpjax.metric_privacy.loads import one_query
from dpjax.metric_privacy.metrics import Metric
from dpjax.metric_privacy.nearest import allowed, nearest_function
from dpjax.metric_privacy.preprocessing import (
    FittedQueries,
    Loss,
    fit_queries,
    scale_worth_its_noise,
    with_public_n,
)
from dpjax.metric_privacy.scales import scales_by


class FittedMeans(NamedTuple):
    """Values to average in place of the original ones, with the noise of their means.

    Attributes:
        values: float ``(..., N)``: c u' of the paper, in place of the value u of each element.
        scales: float ``(...)``: c, the noise of the mean.
        objective: float ``(...)``: max |values - original| + c, which bounds the mean absolute
            error.
        closed_form: float ``(...)``: c for the original values.

    >>> from dpjax.metric_privacy.points import from_points
    >>> fit = fit_marginals(
    ...     [0.0, 1.0, 2.0], from_points([[0.0], [0.1], [5.0]], epsilon=1.0), num_records=4.0
    ... )
    >>> [round(float(v), 3) for v in fit.values]
    [0.49, 0.51, 1.51]
    """

    values: jax.Array
    scales: jax.Array
    objective: jax.Array
    closed_form: jax.Array


def fit_statistics(
    values: ArrayLike,
    metric: Metric,
    *,
    num_records: ArrayLike,
    loss: Loss = "squared",
    failure: float = 0.05,
) -> FittedQueries:
    """Return the transformed universe of problem (13): queries G and scales c for statistics.

        minimize  max_u ||c * q(u') - q(u)||_2^2 + 2 ||c||^2
        where     ||q(u') - q(v')||_1 <= n d(u, v)

    and the corresponding problems for the other losses (Theorem 11), by
    :func:`dpjax.metric_privacy.preprocessing.fit_queries`, which explains the arguments; ``values``
    are q(u), float ``(..., K, N)``, the K statistics of each element of the universe.

    Returns:
        :class:`FittedQueries` to answer from a histogram: ``queries`` is c * q(u') / n, so that
        q(u') = n * queries / c.

    Privacy:
        ``metric_laplace(histogram, fit.queries, metric, scales=fit.scales)`` is d-private under
        swap neighbors.

    References:
        Kamalaruban et al. (2020), Appendix C, Theorem 10 and equation (13).

    >>> from dpjax.metric_privacy.points import from_points
    >>> metric = from_points([[0.0], [0.1], [5.0]], epsilon=1.0)
    >>> fit = fit_statistics([[0.0, 1.0, 2.0]], metric, num_records=2.0, loss="maximum")
    >>> bool(fit.objective < 0.8 * fit.closed_form)
    True
    """
    array = checks.float_array("values", values)
    n = checks.positive("num_records", num_records, array.dtype)
    scaled = checks.finite("values", values, array.dtype) / n[..., None, None]
    return fit_queries(
        scaled, metric, num_records=n, loss=loss, bias="worst_element", failure=failure
    )


def fit_marginals(values: ArrayLike, metric: Metric, *, num_records: ArrayLike) -> FittedMeans:
    """Return the values and the noise of problem (14), for the mean of each attribute separately.

        minimize  max_u |c u' - u| + c   where   |u' - v'| <= n d(u, v)

    For a given c the error is r(c) = max_uv (|u - v| - c n d(u, v)) / 2, reached by the mean of two
    envelopes (see :func:`dpjax.metric_privacy.lipschitz.lipschitz_envelope`), and r(c) + c is
    convex. The result is the global optimum, unless the metric violates the triangle inequality,
    and even then it is within the budgets.

    Args:
        values: float ``(..., N)``, the value of each element of one attribute's universe;
            attributes are a batch axis.
        metric: on the N elements of each attribute.
        num_records: n, positive.

    Returns:
        :class:`FittedMeans`: release mean(values of the records) + Lap(scales). The distribution of
        n times that is ``metric_laplace(histogram, fit.values[..., None, :], metric, scales=n *
        fit.scales[..., None])``.

    Privacy:
        All attributes together are d-private under swap neighbors for the sum of their metrics,
        d(u, v) = sum_i d_i(u_i, v_i): :func:`dpjax.metric_privacy.attributes.product` is that
        metric.

    >>> from dpjax.metric_privacy.points import from_points
    >>> fit = fit_marginals(
    ...     [0.0, 1.0, 2.0], from_points([[0.0], [0.1], [5.0]], epsilon=1.0), num_records=4.0
    ... )
    >>> [round(float(v), 3) for v in fit.values]
    [0.49, 0.51, 1.51]
    >>> round(float(fit.scales), 3), round(float(fit.objective), 3)
    (0.051, 0.541)
    """
    queries, known = with_public_n(one_query(values), metric)
    n = checks.positive("num_records", num_records, queries.dtype)
    return _fit_marginals(queries[..., 0, :], known, n)


@jax.jit
def _fit_marginals(u: jax.Array, metric: Metric, n: jax.Array) -> FittedMeans:
    reach = n[..., None, None] * metric.budgets
    rounding = 1 + 2 * jnp.finfo(u.dtype).eps

    def scale_of(values: jax.Array) -> jax.Array:
        """Return the scale for the mean of exactly these values: division by n would round them."""
        return scales_by(values[..., None, :], metric, "common")[..., 0] / n * rounding

    closed = scale_of(u)
    c = scale_worth_its_noise(u, reach, jnp.ones_like(closed), closed, "worst_element")[
        ..., None, None
    ]
    fitted = nearest_function(u, allowed(c, reach), metric.budgets)
    scale = scale_of(fitted)

    objective = jnp.max(jnp.abs(fitted - u), axis=-1) + scale
    better = objective < closed
    return FittedMeans(
        jnp.where(better[..., None], fitted, u),
        jnp.where(better, scale, closed),
        jnp.where(better, objective, closed),
        closed,
    )
