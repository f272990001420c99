"""The Gaussian mechanism (Dwork et al. 2006), value + N(0, sigma^2), for scalars and vectors.

Privacy: between neighbors the statistic changes by at most ``sensitivity`` (for a vector in the
Euclidean norm). Gaussian noise is isotropic, so only the distance Delta of two values matters, and
N(0, sigma^2) and N(Delta, sigma^2) are easier to distinguish the larger it is. The mechanism is
(Delta/sigma)-GDP, which is tight (Dong, Roth and Su 2022, Theorem 1), and Delta^2 / (2
sigma^2)-zCDP (Bun and Steinke 2016, Proposition 1.6). It has no finite epsilon at delta 0.
"""

from __future__ import annotations

from fractions import Fraction

from jax.typing import ArrayLike

from dpjax import checks
from dpjax.accounting.guarantee import Guarantee, rounded_up
from dpjax.accounting.mechanism import with_guarantee
from dpjax.distributions import Gaussian, SphericalGaussian
from dpjax.mechanisms.relations import relation_of
from dpjax.sensitivity.vector_profile import vectors


def guarantee(relation: str, sigma: float, *, sensitivity: float) -> Guarantee:
    """Return the guarantee of one draw of :func:`gaussian` or :func:`spherical_gaussian`.

    Guarantees of this kind compose exactly.

    >>> once = gaussian.guarantee("add_remove", 1.0, sensitivity=1.0)
    >>> print(once)
    0.5-zCDP and 1-GDP under add_remove neighbors
    >>> round(once.epsilon_at(1e-6), 2), round((4 * once).epsilon_at(1e-6), 2)
    (4.89, 11.0)
    """
    shift, deviation = (
        checks.concrete_positive("sensitivity", sensitivity),
        checks.concrete_positive("sigma", sigma),
    )
    return Guarantee(
        neighbors=relation_of(relation), gdp=rounded_up(Fraction(shift) / Fraction(deviation))
    )


@with_guarantee(guarantee)
def gaussian(value: ArrayLike, sigma: ArrayLike) -> Gaussian:
    """Return the distribution of ``value + sigma * Z``, elementwise, with Z standard normal.

    Args:
        value: float ``(...)``, the statistic of each dataset.
        sigma: positive, the standard deviation. The smallest one for (epsilon, delta)-DP is
            ``sensitivity / dpjax.accounting.gdp_of(epsilon, delta=delta)``.

    Returns:
        A :class:`Gaussian`. Use :class:`Clamped` to restrict the range (post-processing).

    Privacy:
        (sensitivity/sigma)-GDP, and so (sensitivity/sigma)^2 / 2-zCDP, under the relation that the
        sensitivity was computed for: ``gaussian.guarantee(relation, sigma, sensitivity=...)``.
        Float draws are simulations.

    References:
        Dwork, Kenthapadi, McSherry, Mironov and Naor (2006); Dong, Roth and Su (2022), Theorem 1.

    >>> distribution = gaussian(3.0, 2.0)
    >>> error, bound = distribution.mean_abs_error(3.0), distribution.quantile(0.975)
    >>> round(float(error), 4), round(float(bound), 4)
    (1.5958, 6.9199)
    """
    center = checks.float_array("value", value)
    return Gaussian(center, checks.positive("sigma", sigma, center.dtype))


@with_guarantee(guarantee)
def spherical_gaussian(value: ArrayLike, sigma: ArrayLike) -> SphericalGaussian:
    """Return the distribution of ``value + sigma * Z``, Z standard normal in R^d, for each vector.

    Args:
        value: float ``(..., d)``, the statistic of each dataset.
        sigma: positive, the standard deviation of each coordinate.

    Returns:
        A :class:`SphericalGaussian`.

    Privacy:
        As :func:`gaussian`, for the vector as a whole, with the sensitivity in the Euclidean norm:
        clip the norm of the contribution of an individual, not its coordinates.

    References:
        See :func:`gaussian`.

    >>> distribution = spherical_gaussian([3.0, 4.0], 1.0)
    >>> round(float(distribution.mean_norm_error()), 4)
    1.2533
    """
    center = vectors("value", value)
    return SphericalGaussian(center, checks.positive("sigma", sigma, center.dtype))
