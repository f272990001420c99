"""Metrics on points: d(i, j) = epsilon * distance(i, j) (Kamalaruban et al. 2020, Sections 4.1 and 5)."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from dpjax import checks
from dpjax.metric_privacy.budgets import nan_where_any, nan_where_missing
from dpjax.metric_privacy.coordinates import DISTANCES, Distance, Points
from dpjax.metric_privacy.metrics import Metric
from dpjax.numerics.batching import fits
from dpjax.numerics.double_float import single, split


def from_points(
    points: ArrayLike, *, epsilon: ArrayLike, distance: Distance = "euclidean", weights: ArrayLike | None = None
) -> Metric:
    """Return the metric d(i, j) = epsilon * distance(i, j) of points, as a matrix.

    Args:
        points: float ``(..., N, D)``, the coordinates of the public universe. Differences of NumPy numbers are right to about 2^-46
            of a coordinate's span in float32; a JAX array of float32 has been rounded before.
        epsilon: positive, the budget per unit of distance; broadcasts against the batch.
        distance: ``"euclidean"``, ``"manhattan"``, ``"chebyshev"`` (the largest difference), ``"hamming"`` (the number of
            coordinates that differ), or ``"great_circle"``: kilometres between pairs of latitude and longitude in degrees.
        weights: ``(..., D)``, finite and not negative, not for ``"great_circle"``: every coordinate's difference (in ``"hamming"``
            its 1) is multiplied by its weight first.

    >>> from_points([[0.0], [1.0], [3.0]], epsilon=0.5).budgets.tolist()
    [[0.0, 0.5, 1.5], [0.5, 0.0, 1.0], [1.5, 1.0, 0.0]]
    """
    return point_metric(points, epsilon=epsilon, distance=distance, weights=weights).dense()


def point_metric(
    points: ArrayLike, *, epsilon: ArrayLike, distance: Distance = "euclidean", weights: ArrayLike | None = None
) -> Metric:
    """Return the metric of :func:`from_points`, whose budgets are computed from the coordinates when they are needed.

    For universes without room for N x N numbers: noise scales and selections go through it in blocks of rows. What needs the whole
    matrix (a closure, a guarantee, fitted queries) makes it. Arguments and privacy are those of :func:`from_points`.

    >>> metric = point_metric([[0.0], [1.0], [3.0]], epsilon=0.5)
    >>> metric.rows(1, 1).tolist(), float(metric.largest)
    ([[0.5, 0.0, 1.0]], 1.5)
    """
    checks.one_of("distance", distance, DISTANCES)
    where = checks.finite("points", points, checks.float_array("points", points).dtype)
    if where.ndim < 2 or 0 in where.shape[-2:]:
        raise ValueError(f"points must be of shape (..., N, D) with N, D >= 1, got {where.shape}.")
    if distance == "great_circle":
        if where.shape[-1] != 2 or weights is not None:
            raise ValueError(f"great-circle points are pairs of latitude and longitude without weights, got shape {where.shape}.")
        if isinstance(points, jax.Array):
            where = jnp.where(jnp.abs(where[..., :1]) <= 90, where, jnp.nan)
        elif np.any(np.abs(np.asarray(points, np.float64)[..., 0]) > 90):
            raise ValueError("great-circle points are (latitude, longitude) in degrees, and a latitude is between -90 and 90.")
    rate = checks.positive("epsilon", epsilon, where.dtype)
    fits(where.shape[:-2], epsilon=rate.shape)
    share = None
    if weights is not None:
        share = checks.nonnegative("weights", weights, where.dtype)
        if share.shape[-1:] != where.shape[-1:]:
            raise ValueError(f"{where.shape[-1]} coordinates need as many weights, got shape {share.shape}.")
        rate = nan_where_missing(rate, share) if isinstance(weights, jax.Array) else rate
    if isinstance(points, jax.Array):
        return Metric(Points(single(nan_where_any(where)), rate, share, distance=distance))
    given = np.asarray(points)
    # Above the smallest of each coordinate, so that differences of large coordinates are kept.
    exact = given.astype(np.float64) if distance in ("hamming", "great_circle") else from_smallest(given, -2)
    if not np.all(np.abs(exact) <= float(jnp.finfo(where.dtype).max)):
        raise ValueError(f"points are farther apart than {where.dtype} can say.")
    return Metric(Points(split(exact, where.dtype), rate, share, distance=distance))


def from_smallest(values: np.ndarray, axis: int) -> np.ndarray:
    """How far numbers are above the smallest, float64: integers of 64 bits are subtracted before they are rounded."""
    if values.dtype.kind == "i":
        values = values.astype(np.int64).view(np.uint64) ^ np.uint64(1 << 63)  # in order, and differences do not overflow
    elif values.dtype.kind in "bu":
        values = values.astype(np.uint64)
    else:
        values = values.astype(np.float64)
    with np.errstate(invalid="ignore"):  # infinities, which are refused later
        return (values - np.min(values, axis=axis, keepdims=True)).astype(np.float64)
