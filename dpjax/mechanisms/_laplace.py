"""The Laplace mechanism (Dwork et al. 2006), on the real line and on an interval.

On the real line: value + Laplace noise of scale sensitivity/epsilon, two exponential tails at rate
epsilon. On [lower, upper]: density proportional to exp(-epsilon/2 * |y - value| / sensitivity), the
exponential mechanism, scale 2 * sensitivity/epsilon. Renormalizing the first density on an interval
instead leaks up to 1.86 epsilon, because the normalizer depends on the data. The second is exactly
piecewise Laplace with all increments equal to the sensitivity.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Protocol, overload

import jax.numpy as jnp
from jax.typing import ArrayLike

from dpjax import checks
from dpjax.accounting.guarantee import Guarantee
from dpjax.accounting.mechanism import with_guarantee
from dpjax.distributions import DiscreteLaplace, PiecewiseExponential, Tails
from dpjax.mechanisms.relations import pure
from dpjax.sensitivity.profile import SensitivityProfile


def guarantee(
    profile: SensitivityProfile | str,
    epsilon: float,
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
    1-DP and 2-bounded-range under swap neighbors
    >>> round(noise.rho, 3), round(laplace.guarantee("swap", 1.0).rho, 3)
    (0.368, 0.462)
    """
    promise = pure(profile, epsilon, ranges=1 if bounded else 2)
    discrete = bounded or getattr(profile, "resolution", None) is not None
    if continuous and discrete:
        raise ValueError(
            "continuous must be False for noise between bounds or on multiples of a resolution."
        )
    if discrete or not (continuous or isinstance(profile, SensitivityProfile)):
        return promise
    return replace(promise, noise=("laplace", promise.epsilon, 1.0))


class _Laplace(Protocol):
    """The overloaded signatures of :func:`laplace`."""

    guarantee: Callable[..., Guarantee]

    @overload
    def __call__(
        self,
        value: ArrayLike,
        epsilon: ArrayLike,
        *,
        sensitivity: ArrayLike,
        lower: ArrayLike | None = None,
        upper: ArrayLike | None = None,
    ) -> PiecewiseExponential: ...

    @overload
    def __call__(
        self,
        value: SensitivityProfile,
        epsilon: ArrayLike,
        *,
        lower: ArrayLike | None = None,
        upper: ArrayLike | None = None,
    ) -> PiecewiseExponential | DiscreteLaplace: ...


@with_guarantee(guarantee, signatures=_Laplace)
def laplace(
    value: ArrayLike | SensitivityProfile,
    epsilon: ArrayLike,
    *,
    sensitivity: ArrayLike | None = None,
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
    resolution = None
    if isinstance(value, SensitivityProfile):
        if value.step is None or sensitivity is not None:
            raise ValueError(
                "laplace takes a profile with steps (such as from dpjax.count) alone, or a value "
                "and its sensitivity."
            )
        sensitivity, resolution, value = value.step, value.resolution, value.value
    elif sensitivity is None:
        raise ValueError("sensitivity must be given: the global sensitivity of value.")
    center = checks.float_array("value", value)
    rate = checks.positive("epsilon", epsilon, center.dtype)
    scale = checks.positive("sensitivity", sensitivity, center.dtype)
    if resolution is not None:
        if lower is not None:
            raise ValueError(
                "lower and upper must not be given for a profile with a resolution: clamp the "
                "draws (dpjax.Clamped.of)."
            )
        unit = jnp.asarray(float(resolution), center.dtype)
        return DiscreteLaplace(center, unit, rate * unit / scale)
    tails = Tails(jnp.zeros_like(scale), scale, jnp.zeros_like(scale), scale)
    no_pieces = jnp.zeros((0,), center.dtype)
    if lower is None or upper is None:
        return PiecewiseExponential(center[..., None], no_pieces, no_pieces, rate, tails)
    low, high = checks.bounds(lower, upper, center.dtype)
    center = jnp.clip(center, low, high)
    return PiecewiseExponential(center[..., None], no_pieces, no_pieces, rate / 2, tails).restrict(
        low, high
    )
