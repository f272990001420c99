"""Planar Laplace noise: geo-indistinguishability (Andres et al. 2013; Chatzikokolakis et al. 2013).

The density at y is proportional to exp(-epsilon * distance(y, x)) around the true location x, in
any number of dimensions. By the triangle inequality it changes by at most a factor exp(epsilon *
distance(x, x')) from x to x': d-privacy of one record for the metric of ``from_points``, with all
places as the universe.
"""

from __future__ import annotations

from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from dpjax import checks
from dpjax.accounting.mechanism import with_guarantee
from dpjax.distributions.radial import Radial
from dpjax.distributions.vectors import norm
from dpjax.mechanisms import k_norm
from dpjax.metric_privacy.guarantees import MetricGuarantee
from dpjax.metric_privacy.points import from_points

PlaneDistance = Literal["euclidean", "manhattan", "chebyshev"]
_NORMS = {"euclidean": 2.0, "manhattan": 1.0, "chebyshev": float("inf")}


def guarantee(
    points: ArrayLike, epsilon: ArrayLike, *, distance: PlaneDistance = "euclidean"
) -> MetricGuarantee:
    """Return the guarantee of one draw of :func:`planar_laplace` for these places.

    It is d, and twice d in range.

    >>> cost = planar_laplace.guarantee([[0.0, 0.0], [3.0, 4.0]], 0.1)
    >>> print(cost)  # doctest: +NORMALIZE_WHITESPACE
    d-privacy on 2 elements with budgets 0.5 to 0.5, n public:
    0.5-DP and 1-bounded-range under swap neighbors
    """
    checks.one_of("distance", distance, _NORMS)
    return MetricGuarantee(from_points(points, epsilon=epsilon, distance=distance))


@with_guarantee(guarantee)
def planar_laplace(
    locations: ArrayLike, epsilon: ArrayLike, *, distance: PlaneDistance = "euclidean"
) -> Radial:
    """Return the distribution of the noisy location of each record.

    Args:
        locations: float ``(..., D)``, the true places, in units of length: meters of a map's
            projection, not degrees.
        epsilon: positive, the budget per unit of length; broadcasts against ``(...)``.
        distance: static, as for :func:`from_points`.

    Returns:
        A :class:`dpjax.Radial`, whose :meth:`~dpjax.Radial.norm_quantile` is the radius that
        contains a given share of the draws. It is not restricted to a region: map draws to public
        places with :func:`nearest_point`.

    Privacy:
        Each location is d-private with d = epsilon * distance. Public: epsilon, the distance, and
        the number of records. Float draws are simulations.

    >>> noisy = planar_laplace([[120.0, 40.0]], 0.01)
    >>> round(float(noisy.mean_norm_error()[0]), 1), round(float(noisy.norm_quantile(0.95)[0]), 1)
    (200.0, 474.4)
    """
    checks.one_of("distance", distance, _NORMS)
    return k_norm(locations, epsilon, sensitivity=1.0, p=_NORMS[distance])


def nearest_point(
    draws: ArrayLike, points: ArrayLike, *, distance: PlaneDistance = "euclidean"
) -> jax.Array:
    """Return the index of the public point nearest to each draw, such as a point of a grid.

    This is post-processing.

    Args:
        draws: float ``(..., D)``.
        points: float ``(N, D)``, chosen without the data. Memory of size N is used for each draw.
        distance: static.

    Returns:
        Int32 ``(...)``; the first of equally near points, and 0 for a draw that is NaN.

    >>> nearest_point([[0.2, 0.9], [7.0, 1.0]], [[0.0, 0.0], [0.0, 1.0], [5.0, 1.0]]).tolist()
    [1, 2]
    """
    checks.one_of("distance", distance, _NORMS)
    drawn = checks.float_array("draws", draws)
    places = checks.finite("points", points, drawn.dtype)
    if (
        drawn.ndim == 0
        or places.ndim != 2
        or places.shape[0] == 0
        or places.shape[-1] != drawn.shape[-1]
    ):
        raise ValueError(
            f"points must be (N, D) for draws (..., D), got shapes {places.shape} and "
            f"{drawn.shape}."
        )
    apart = norm(drawn[..., None, :] - places, _NORMS[distance])
    return jnp.argmin(jnp.where(jnp.isnan(apart), np.inf, apart), axis=-1).astype(jnp.int32)
