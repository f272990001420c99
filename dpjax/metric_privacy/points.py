"""Metrics on points: d(i, j) = epsilon * distance(i, j).

See Kamalaruban et al. (2020), Sections 4.1 and 5.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from dpjax import checks
from dpjax.metric_privacy.budgets import nan_where_any, nan_where_missing
from dpjax.metric_privacy.coordinates import DISTANCES, Distance, Points
from dpjax.metric_privacy.metrics import Metric
from dpjax.numerics.arrays import fits
from dpjax.numerics.float64 import Exact, split


def from_points(
    points: ArrayLike,
    *,
    epsilon: ArrayLike,
    distance: Distance = "euclidean",
    weights: ArrayLike | None = None,
) -> Metric:
    """Return the metric d(i, j) = epsilon * distance(i, j) of points, as a matrix.

    Args:
        points: float ``(..., N, D)``, the coordinates of the public universe. Differences of NumPy
            numbers are right to about 2^-46 of a coordinate's span in float32; a JAX array of
            float32 has been rounded before.
        epsilon: positive, the budget per unit of distance; broadcasts against the batch.
        distance: ``"euclidean"``, ``"manhattan"``, ``"chebyshev"`` (the largest difference),
            ``"hamming"`` (the number of coordinates that differ), or ``"great_circle"``: kilometers
            between pairs of latitude and longitude in degrees.
        weights: ``(..., D)``, finite and nonnegative, not for ``"great_circle"``: every
            coordinate's difference (in ``"hamming"`` its 1) is multiplied by its weight first.

    >>> from_points([[0.0], [1.0], [3.0]], epsilon=0.5).budgets.tolist()
    [[0.0, 0.5, 1.5], [0.5, 0.0, 1.0], [1.5, 1.0, 0.0]]
    """
    return point_metric(points, epsilon=epsilon, distance=distance, weights=weights).dense()


def point_metric(
    points: ArrayLike,
    *,
    epsilon: ArrayLike,
    distance: Distance = "euclidean",
    weights: ArrayLike | None = None,
) -> Metric:
    """Return the metric of :func:`from_points` with budgets computed when they are needed.

    Use it for universes too large for an N x N matrix: noise scales and selections read it in
    blocks of rows. Functions that need the full matrix (a closure, a guarantee, fitted queries)
    compute it. Arguments and privacy are those of :func:`from_points`.

    >>> metric = point_metric([[0.0], [1.0], [3.0]], epsilon=0.5)
    >>> metric.rows(1, 1).tolist(), float(metric.largest)
    ([[0.5, 0.0, 1.0]], 1.5)
    """
    checks.one_of("distance", distance, DISTANCES)
    coordinates = checks.finite("points", points, checks.float_array("points", points).dtype)
    if coordinates.ndim < 2 or 0 in coordinates.shape[-2:]:
        raise ValueError(
            f"points must be of shape (..., N, D) with N, D >= 1, got {coordinates.shape}."
        )
    if distance == "great_circle":
        if coordinates.shape[-1] != 2 or weights is not None:
            raise ValueError(
                "great_circle needs points (..., N, 2) of latitude and longitude, without "
                f"weights, got shape {coordinates.shape}."
            )
        if isinstance(points, jax.Array):
            coordinates = jnp.where(jnp.abs(coordinates[..., :1]) <= 90, coordinates, jnp.nan)
        elif np.any(np.abs(np.asarray(points, np.float64)[..., 0]) > 90):
            raise ValueError(
                "points must be (latitude, longitude) in degrees for great_circle, with latitudes "
                "from -90 to 90."
            )
    rate = checks.positive("epsilon", epsilon, coordinates.dtype)
    fits(coordinates.shape[:-2], epsilon=rate.shape)
    factors = None
    if weights is not None:
        factors = checks.nonnegative("weights", weights, coordinates.dtype)
        if factors.shape[-1:] != coordinates.shape[-1:]:
            raise ValueError(
                f"weights must have one element for each of the {coordinates.shape[-1]} "
                f"coordinates, got shape {factors.shape}."
            )
        rate = nan_where_missing(rate, factors) if isinstance(weights, jax.Array) else rate
    if isinstance(points, jax.Array):
        known = nan_where_any(coordinates)
        places = Exact(known, jnp.zeros_like(known))
        return Metric(Points(places, rate, factors, distance=distance))
    array = np.asarray(points)
    # Relative to the smallest of each coordinate, so that differences of large coordinates are
    # kept.
    exact = (
        array.astype(np.float64)
        if distance in ("hamming", "great_circle")
        else from_smallest(array, -2)
    )
    if not np.all(np.abs(exact) <= float(jnp.finfo(coordinates.dtype).max)):
        raise ValueError(
            f"points must have differences within the range of {coordinates.dtype}: rescale them."
        )
    return Metric(Points(split(exact, coordinates.dtype), rate, factors, distance=distance))


def from_smallest(values: np.ndarray, axis: int) -> np.ndarray:
    """Return numbers minus the smallest, float64.

    64-bit integers are subtracted before they are rounded.
    """
    if values.dtype.kind == "i":
        # Keeps the order, and differences do not overflow.
        values = values.astype(np.int64).view(np.uint64) ^ np.uint64(1 << 63)
    elif values.dtype.kind in "bu":
        values = values.astype(np.uint64)
    else:
        values = values.astype(np.float64)
    with np.errstate(invalid="ignore"):  # infinities, which are rejected later
        return (values - np.min(values, axis=axis, keepdims=True)).astype(np.float64)
