"""Laplace noise under a metric: answers of linear queries, and noisy places.

Z = Q x + (Lap(c_1), ..., Lap(c_K)) for a histogram x. If one record moves from element i to element
j, the answers move by Q_i - Q_j, so no density changes by more than exp(sum_k |Q_ki - Q_kj| / c_k),
which is at most exp(d(i, j)) for scales c within the budgets (``dpjax.metric_privacy.scales``). See
Kamalaruban et al. (2020), Theorem 1.

Planar Laplace noise is geo-indistinguishability (Andres et al. 2013; Chatzikokolakis et al. 2013).
The density at y is proportional to exp(-epsilon * distance(y, x)) around the true location x, in
any number of dimensions. By the triangle inequality it changes by at most a factor exp(epsilon *
distance(x, x')) from x to x': d-privacy of one record for the metric of ``from_points``, with all
places as the universe.
"""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from dpjax.accounting.mechanism import with_guarantee
from dpjax.distributions.piecewise import PiecewiseExponential, laplace_noise
from dpjax.distributions.radial import Radial
from dpjax.mechanisms import k_norm
from dpjax.metric_privacy.guarantees import MetricGuarantee
from dpjax.metric_privacy.histograms import counts_of, moderate
from dpjax.metric_privacy.metric import Metric, finite, numbers
from dpjax.metric_privacy.scales import load, noise_scales, prepared, rounded_up
from dpjax.metric_privacy.universes import from_points
from dpjax.numerics.float64 import in_float64


def laplace_guarantee(metric: Metric) -> MetricGuarantee:
    """Return the guarantee of one draw of all answers of :func:`metric_laplace`.

    It is d, and twice d in range.

    >>> from dpjax.metric_privacy import from_points
    >>> cost = metric_laplace.guarantee(from_points([[0.0], [1.0], [3.0]], epsilon=0.5))
    >>> print(cost)  # doctest: +NORMALIZE_WHITESPACE
    d-privacy on 3 elements with budgets 0.5 to 1.5, n public:
    1.5-DP under swap neighbors
    """
    return MetricGuarantee(metric)


@with_guarantee(laplace_guarantee)
def metric_laplace(
    x: ArrayLike, queries: ArrayLike, metric: Metric, *, scales: ArrayLike | None = None
) -> PiecewiseExponential:
    """Return the distribution of the noisy answers Q x + Lap(c).

    Args:
        x: see :mod:`dpjax.metric_privacy`.
        queries: see :mod:`dpjax.metric_privacy`.
        metric: see :mod:`dpjax.metric_privacy`.
        scales: ``(K,)``, by default those of :func:`dpjax.metric_privacy.noise_scales`, which has
            further strategies.

    Returns:
        The distributions of all answers, of batch shape ``(..., K)``. A query that distinguishes a
        pair of budget 0 has no answer (NaN). One that distinguishes no protected pair is answered
        exactly: its scale is 1e-18.

    Raises:
        ValueError: the scales exceed the budgets, or in float32 a query has a value above 1e19.

    Privacy:
        d-private: moving one record from i to j changes no probability by more than a factor
        exp(d(i, j)). Under swap n is public, and the count of all records is answered exactly; with
        the null record in the universe n is private. Float draws are simulations: an answer that is
        large compared to its noise is rounded to a float.

    References:
        Kamalaruban et al. (2020), Theorem 1 and equation (5) with c * Q' = Q.

    >>> from dpjax.metric_privacy import from_points
    >>> metric = from_points([[0.0], [1.0], [3.0]], epsilon=0.5)
    >>> distribution = metric_laplace([40, 25, 35], [[0.0, 0.0, 1.0], [1.0, 1.0, 1.0]], metric)
    >>> distribution.mean().tolist(), [round(float(s), 4) for s in distribution.stddev()]
    ([35.0, 100.0], [1.4142, 0.0])
    """
    values = prepared(queries, metric)[0]
    known = noise_scales(queries, metric) if scales is None else np.asarray(scales)
    if (spent := load(queries, known, metric)) > 1:
        raise ValueError(f"scales must have a load of at most 1 to be private, got {spent:g}.")
    counts = counts_of(x, metric.num_values)
    moderate("queries", values, counts.dtype)
    answers = in_float64(partial(_answers, values, metric), counts)
    c = rounded_up(np.where(known == 0, 1e-18, known), answers.dtype)  # no scale is 0
    return laplace_noise(answers, jnp.ones_like(c), jnp.where(c < np.inf, c, np.nan))


def _answers(values: np.ndarray, metric: Metric, counts: jax.Array) -> jax.Array:
    """Return Q x, where no rounding of a value that protected elements share tells of a move.

    Such a value is multiplied by the number of records of all these elements.
    """
    from scipy.sparse.csgraph import connected_components

    num_parts, part = connected_components(metric.budgets < np.inf)
    common = np.zeros((len(values), num_parts))
    common[:, part] = values  # of the last element of each part, which may be the null record
    counted = slice(metric.num_values)
    records = counts @ np.eye(num_parts)[part[counted]]
    return counts @ (values - common[:, part]).T[counted] + records @ common.T


def planar_guarantee(points: ArrayLike, epsilon: float) -> MetricGuarantee:
    """Return the guarantee of one draw of :func:`planar_laplace` for these places.

    It is d, and twice d in range.

    >>> cost = planar_laplace.guarantee([[0.0, 0.0], [3.0, 4.0]], 0.1)
    >>> print(cost)  # doctest: +NORMALIZE_WHITESPACE
    d-privacy on 2 elements with budgets 0.5, n public:
    0.5-DP under swap neighbors
    """
    return MetricGuarantee(from_points(points, epsilon=epsilon))


@with_guarantee(planar_guarantee)
def planar_laplace(locations: ArrayLike, epsilon: ArrayLike) -> Radial:
    """Return the distribution of the noisy location of each record.

    Args:
        locations: float ``(..., D)``, the true places, in units of length: meters of a map's
            projection, not degrees.
        epsilon: positive, the budget per unit of length, the Euclidean distance (for others see
            :func:`dpjax.k_norm`); broadcasts against ``(...)``.

    Returns:
        A :class:`dpjax.Radial`, whose :meth:`~dpjax.Radial.norm_quantile` is the radius that
        contains a given share of the draws. It is not restricted to a region: map draws to public
        places with :func:`nearest_point`.

    Privacy:
        Each location is d-private with d = epsilon * distance. Public: epsilon and the number of
        records. Float draws are simulations.

    References:
        Andres et al. (2013), "Geo-indistinguishability"; Chatzikokolakis et al. (2013).

    >>> noisy = planar_laplace([[120.0, 40.0]], 0.01)
    >>> round(float(noisy.mean_norm_error()[0]), 1), round(float(noisy.norm_quantile(0.95)[0]), 1)
    (200.0, 474.4)
    """
    return k_norm(locations, epsilon, sensitivity=1.0, p=2)


def nearest_point(draws: ArrayLike, points: ArrayLike) -> np.ndarray:
    """Return the index of the public point nearest to each draw, such as a point of a grid.

    This is post-processing, on the host.

    Args:
        draws: float ``(..., D)``.
        points: float ``(N, D)``, chosen without the data.

    Returns:
        Integers ``(...)``; 0 for a draw that is not finite.

    Raises:
        ValueError: draws and points differ in their number of coordinates.

    >>> nearest_point([[0.2, 0.9], [7.0, 1.0]], [[0.0, 0.0], [0.0, 1.0], [5.0, 1.0]]).tolist()
    [1, 2]
    """
    from scipy.spatial import KDTree

    drawn, places = numbers("draws", draws), KDTree(finite("points", points, ("N", "D")))
    if drawn.shape[-1:] != (places.m,):
        raise ValueError(f"draws must have {places.m} coordinates, got shape {drawn.shape}.")
    known = np.isfinite(drawn).all(axis=-1)
    return np.where(known, places.query(np.where(known[..., None], drawn, 0.0))[1], 0)
