"""Noise around a value: Laplace, bounded Laplace, K-norm, Gaussian, subsampled Laplace.

**Laplace** (Dwork et al. 2006). On the real line: value + Laplace noise of scale
sensitivity/epsilon, two exponential tails at rate epsilon. On [lower, upper]: density proportional
to exp(-epsilon/2 * |y - value| / sensitivity), the exponential mechanism, scale 2 *
sensitivity/epsilon. Renormalizing the first density on an interval instead leaks up to 1.86
epsilon, because the normalizer depends on the data. The second is exactly piecewise Laplace with
all increments equal to the sensitivity.

**Bounded Laplace** (Geng, Ding, Guo and Kumar 2020) has bounded errors, for approximate DP: the
output is value + Z with density of Z proportional to exp(-epsilon |z| / sensitivity) on [-T, T],

    T = sensitivity/epsilon * log(1 + (e^epsilon - 1) / (2 delta)).

Privacy. Where two such densities overlap, their ratio is at most e^epsilon. What only one of them
reaches is the end of its support, of length at most s, the sensitivity, and of mass at most
e^(-epsilon T/s) (e^epsilon - 1) / (2 (1 - e^(-epsilon T/s))) = delta.

**K-norm** (Hardt and Talwar 2010) is Laplace noise for vectors, K an L_p ball. The density is
proportional to exp(-epsilon ||y - value||_p / sensitivity). Privacy: by the triangle inequality the
norm changes by at most the sensitivity between neighbors, and the normalizer is the same for every
value. With p = 1 the coordinates are independent Laplace variates; for another norm, independent
noise would need the sensitivity in the L_1 norm, which is up to d times larger.

**Gaussian** (Dwork et al. 2006) is value + N(0, sigma^2), for scalars and vectors. Privacy: between
neighbors the statistic changes by at most ``sensitivity`` (for a vector in the Euclidean norm).
Gaussian noise is isotropic, so only the distance Delta of two values matters, and N(0, sigma^2) and
N(Delta, sigma^2) are easier to distinguish the larger it is. The mechanism is (Delta/sigma)-GDP,
which is tight (Dong, Roth and Su 2022, Theorem 1), and Delta^2 / (2 sigma^2)-zCDP (Bun and Steinke
2016, Proposition 1.6). It has no finite epsilon at delta 0.

**Subsampled Laplace** (Steinke 2025) is a noisy count of a Poisson subsample, rescaled. Privacy:
with epsilon_p = log(1 + (e^epsilon - 1)/p) for the noise on the subsample, the mechanism is
epsilon-DP under add/remove neighbors (``dpjax.accounting.subsampling``), which is tight: the loss
between the counts 1 and 0 tends to epsilon in the tails.
"""

from __future__ import annotations

from fractions import Fraction
from math import inf
from typing import Annotated

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from dpjax import checks
from dpjax.accounting.guarantee import Guarantee, rounded_up
from dpjax.checks.numbers import PROPORTION
from dpjax.distributions import (
    DiscreteLaplace,
    Gaussian,
    PiecewiseExponential,
    Radial,
    SphericalGaussian,
    SubsampledLaplace,
)
from dpjax.distributions.piecewise import laplace_noise
from dpjax.mechanisms.mechanism import Amount, Half, Positive, mechanism, relation_of
from dpjax.sensitivity.profile import SensitivityProfile
from dpjax.sensitivity.vector_profile import vectors


def _guarantee_of_laplace(
    profile: SensitivityProfile | str,
    epsilon: Amount,
    *,
    bounded: bool = False,
    continuous: bool = False,
) -> Guarantee:
    """Return the guarantee of one draw of :func:`laplace`.

    The privacy losses of noise on the real line are smaller than those of a general epsilon-DP
    mechanism, and so are compositions of such guarantees. Noise on multiples of a resolution has
    larger losses: those of a count are those of randomized response. So the guarantee records the
    noise only where it is known to be on the real line: for a profile without a resolution, or with
    ``continuous=True``.

    Args:
        profile: the profile of the statistic, or the name of the relation.
        epsilon: positive.
        bounded: true if the mechanism has ``lower`` and ``upper``.
        continuous: for the name of a relation: true if the noise is added to a single real number,
            such as a sum; false for counts and other multiples of a resolution.

    Raises:
        ValueError: ``continuous`` is true with bounds or for a profile with a resolution.

    >>> noise = laplace.guarantee("swap", 1.0, continuous=True)
    >>> print(noise)
    1-DP under swap neighbors
    >>> round(noise.zcdp, 3), round(laplace.guarantee("swap", 1.0).zcdp, 3)
    (0.368, 0.462)
    """
    discrete = bounded or getattr(profile, "resolution", None) is not None
    if continuous and discrete:
        raise ValueError(
            "continuous must be False for noise between bounds or on multiples of a resolution."
        )
    on_line = not discrete and (continuous or isinstance(profile, SensitivityProfile))
    size = epsilon if on_line else inf
    most = epsilon if bounded else 2 * epsilon
    return Guarantee(epsilon, most, relation_of(profile), laplace=size)


@mechanism(_guarantee_of_laplace)
def laplace(
    value: ArrayLike | SensitivityProfile,
    epsilon: Positive,
    *,
    sensitivity: Positive | None = None,
    lower: ArrayLike | None = None,
    upper: ArrayLike | None = None,
) -> PiecewiseExponential | DiscreteLaplace:
    """Return the distribution of the Laplace mechanism around ``value``.

    Args:
        value: float ``(...)``, the statistic, clamped to the bounds if there are any; or the
            profile of a statistic whose steps are a global sensitivity: :func:`dpjax.count`,
            :func:`dpjax.histogram`, :func:`dpjax.sum` under add/remove.
        epsilon: positive.
        sensitivity: positive, the global sensitivity of the statistic; not for a profile, which has
            its own.
        lower: lower bound of the output; give both bounds or neither.
        upper: upper bound of the output.

    Returns:
        A :class:`PiecewiseExponential`: without bounds, of scale ``sensitivity/epsilon``; with
        bounds, of scale ``2 * sensitivity/epsilon``, conditioned on them. For a profile with a
        resolution, such as that of a count, a :class:`DiscreteLaplace` on its multiples.

    Raises:
        ValueError: only one bound is given; there is no sensitivity, or one with a profile; the
            profile has no steps; or bounds are given for a profile with a resolution.

    Privacy:
        epsilon-DP under the relation that ``sensitivity`` was computed for. The bounded range is 2
        epsilon without bounds, and epsilon with bounds. For the smaller scale and a range, clamp
        draws of the unbounded mechanism, which is post-processing. Float draws are simulations.

    References:
        Dwork, McSherry, Nissim and Smith (2006); Durfee (2025), Section 4.1.

    >>> distribution = laplace(0.0, 1.0, sensitivity=1.0)
    >>> float(distribution.mean_abs_error(0.0)), round(float(distribution.quantile(0.25)), 4)
    (1.0, -0.6931)
    """
    if (lower is None) != (upper is None):
        raise ValueError("lower and upper must be given together, or neither of them.")
    if isinstance(value, SensitivityProfile):
        if value.step is None or sensitivity is not None:
            raise ValueError(
                "sensitivity must be given with a value, and not with a profile, which must have "
                "steps (such as that of dpjax.count)."
            )
        sensitivity = value.step
        if value.resolution is not None:
            if lower is not None:
                raise ValueError(
                    "lower and upper must not be given for a profile with a resolution: clamp the "
                    "draws (dpjax.Clamped.of)."
                )
            unit = jnp.asarray(float(value.resolution), value.dtype)
            return DiscreteLaplace(value.value, unit, jnp.multiply(epsilon, unit) / sensitivity)
        value = value.value
    if sensitivity is None:
        raise ValueError("sensitivity must be given: the global sensitivity of value.")
    scale = jnp.asarray(sensitivity)
    if lower is None or upper is None:
        return laplace_noise(jnp.asarray(value), jnp.asarray(epsilon), scale)
    low, high = checks.bounds(lower, upper, jnp.result_type(value))
    between = laplace_noise(jnp.clip(value, low, high), jnp.divide(epsilon, 2), scale)
    return between.restrict(low, high)


@mechanism()
def bounded_noise_laplace(
    value: ArrayLike, epsilon: Positive, *, sensitivity: Positive, delta: Half
) -> PiecewiseExponential:
    """Return the distribution of ``value`` plus Laplace noise conditioned on [-T, T].

    The scale is ``sensitivity/epsilon``. This differs from :func:`laplace` with bounds: those are
    fixed bounds of the output, which is then epsilon-DP at twice the scale.

    Args:
        value: float ``(...)``, the statistic.
        epsilon: positive.
        sensitivity: positive, the global sensitivity of the statistic.
        delta: in (0, 1/2).

    Returns:
        A :class:`PiecewiseExponential` of two pieces, on ``value - T`` to ``value + T``.

    Privacy:
        (epsilon, delta)-DP under the relation that ``sensitivity`` was computed for, and for no
        smaller delta. The support depends on the data: some outputs are impossible for a neighbor.
        Float draws are simulations.

    References:
        Geng, Ding, Guo and Kumar (2020), Theorem 1; Steinke, "Algorithms that never fail",
        differentialprivacy.org (2024).

    >>> distribution = bounded_noise_laplace(10.0, 1.0, sensitivity=1.0, delta=1e-3)
    >>> [round(float(edge), 3) for edge in distribution.edges], float(distribution.mean())
    ([3.243, 10.0, 16.757], 10.0)
    """
    return _bounded(value, epsilon, sensitivity, delta)


@jax.jit
def _bounded(
    center: jax.Array, rate: jax.Array, scale: jax.Array, failure: jax.Array
) -> PiecewiseExponential:
    # log(1 + (e^epsilon - 1) / (2 delta)) without overflow, and exact for small epsilon.
    reach = 1 + jnp.log1p(-jnp.expm1(-rate) * (1 / (2 * failure) - 1)) / rate
    center = jnp.broadcast_to(center, jnp.broadcast_shapes(center.shape, reach.shape, scale.shape))
    # A value whose neighboring floats are further away than the noise still needs a piece on each
    # side.
    fixed, far = jax.lax.stop_gradient(center), jnp.full_like(center, jnp.inf)
    below = jnp.minimum(center - scale * reach, jnp.nextafter(fixed, -far))
    above = jnp.maximum(center + scale * reach, jnp.nextafter(fixed, far))
    outer, inner = reach, jnp.zeros_like(reach)
    return PiecewiseExponential(
        edges=jnp.stack([below, center, above], axis=-1),
        cost_left=jnp.stack([outer, inner], axis=-1),
        cost_right=jnp.stack([inner, outer], axis=-1),
        rate=rate,
    )


@mechanism(ranges=2)
def k_norm(value: ArrayLike, epsilon: Positive, *, sensitivity: Positive, p: float) -> Radial:
    """Return the distribution of the K-norm mechanism, K the L_p ball of radius ``sensitivity``.

    Args:
        value: float ``(..., d)``, the statistic of each dataset, with components on the last axis.
        epsilon: positive.
        sensitivity: positive, the global sensitivity of the statistic in the L_p norm.
        p: static, from 1 to ``inf``, the order of the norm.

    Returns:
        A :class:`Radial` of the broadcast batch shape, centered at ``value``; its norm is
        ``sensitivity/epsilon`` times a Gamma(d) variate. For K an image A B of a ball, such as an
        ellipsoid, draw around A^-1 f(x) and multiply the draws by A.

    Privacy:
        epsilon-DP under the relation that ``sensitivity`` was computed for; the bounded range is
        2 epsilon. Public: epsilon, the sensitivity and the norm. Float draws are simulations.

    References:
        Hardt and Talwar (2010), "On the Geometry of Differential Privacy".

    >>> distribution = k_norm([3.0, 4.0], 1.0, sensitivity=0.5, p=2)
    >>> error, density = distribution.mean_norm_error(), distribution.prob([3.0, 4.0])
    >>> round(float(error), 4), round(float(density), 4)
    (1.0, 0.6366)
    """
    center = vectors("value", value)
    none, start = jnp.zeros((0,), center.dtype), jnp.zeros((1,), center.dtype)
    order = checks.static_number("p", p, 1, inf)
    rate, step = jnp.asarray(epsilon), jnp.asarray(sensitivity)
    return Radial(center, start, none, none, rate, step, p=order)


def _guarantee_of_gaussian(relation: str, sigma: Amount, *, sensitivity: Amount) -> Guarantee:
    """Return the guarantee of one draw of :func:`gaussian` or :func:`spherical_gaussian`.

    Guarantees of this kind compose exactly.

    >>> once = gaussian.guarantee("add_remove", 1.0, sensitivity=1.0)
    >>> print(once)
    1-GDP under add_remove neighbors
    >>> round(once.epsilon_at(1e-6), 2), round((4 * once).epsilon_at(1e-6), 2)
    (4.89, 11.0)
    """
    mu = rounded_up(Fraction(sensitivity) / Fraction(sigma))
    return Guarantee(neighbors=relation_of(relation), gdp=mu)


@mechanism(_guarantee_of_gaussian)
def gaussian(value: ArrayLike, sigma: Positive) -> Gaussian:
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
    return Gaussian(jnp.asarray(value), jnp.asarray(sigma))


@mechanism(_guarantee_of_gaussian)
def spherical_gaussian(value: ArrayLike, sigma: Positive) -> SphericalGaussian:
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
    return SphericalGaussian(vectors("value", value), jnp.asarray(sigma))


def _guarantee_of_counts(relation: str, epsilon: Amount) -> Guarantee:
    """Return the guarantee of one draw, amplified by subsampling under ``"add_remove"``.

    >>> print(subsampled_laplace.guarantee("add_remove", 1.0))
    1-DP under add_remove neighbors
    """
    return Guarantee(epsilon, 2 * epsilon, relation_of(relation, known=("add_remove",)))


@mechanism(_guarantee_of_counts)
def subsampled_laplace(
    count: ArrayLike, epsilon: Positive, *, probability: Annotated[ArrayLike, PROPORTION], most: int
) -> SubsampledLaplace:
    """Return the distribution of ``(K + noise) / p``, K the count in a Poisson subsample.

    It is an unbiased estimate of ``count``. The noise on K has scale 1 / epsilon_p. Without
    sampling the noise is at most as large: see :func:`dpjax.accounting.sampling_efficiency`.

    Args:
        count: ``(...)``, the number of records with a property, clamped to integers from 0 to
            ``most``.
        epsilon: positive, of the mechanism including subsampling.
        probability: p in (0, 1], public, the probability with which each record is sampled.
        most: static and public, the largest count.

    Returns:
        A :class:`SubsampledLaplace`.

    Privacy:
        epsilon-DP under add/remove neighbors, if the subsample stays secret. Float draws are
        simulations.

    References:
        Steinke, "Privacy Amplification by Subsampling" (2025), Equations 5 to 8.

    >>> noisy = subsampled_laplace(300, 1.0, probability=0.5, most=1000)
    >>> round(float(noisy.stddev()), 3), round(float(noisy.mean_abs_error(300.0)), 3)
    (17.424, 13.906)
    """
    most = checks.static_integer("most", most, 1)
    share, budget = jnp.asarray(probability), jnp.asarray(epsilon)
    # As dpjax.accounting.epsilon_before_sampling, in JAX
    before = budget + jnp.log1p(-jnp.expm1(-budget) * ((1 - share) / share))
    scale = 1 / (share * before)
    return SubsampledLaplace(jnp.round(count).clip(0, most), scale, share, most)
