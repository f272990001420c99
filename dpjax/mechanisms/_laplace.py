"""The Laplace mechanism (Dwork et al. 2006), on the line and on an interval.

On the line: value + Laplace noise of scale sensitivity/epsilon, two exponential tails at rate epsilon and nothing else.
On [lower, upper]: density proportional to exp(-epsilon/2 * |y - value| / sensitivity), the exponential mechanism, scale
2 * sensitivity/epsilon. Renormalising the first density on an interval instead leaks up to 1.86 epsilon, because the normaliser
depends on the data. Piecewise Laplace with all increments equal to the sensitivity is exactly the second.
"""

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


def guarantee(profile: SensitivityProfile | str, epsilon: float, *, bounded: bool = False, continuous: bool = False) -> Guarantee:
    """Return what one draw of :func:`laplace` costs.

    The losses of noise on the real line are smaller than those of any epsilon-DP mechanism, and sums of such guarantees are smaller
    for it. Noise on multiples of a resolution has larger ones: those of a count are those of randomised response. So a guarantee
    names the noise where it is known to be on the real line: of a profile without a resolution, or where ``continuous`` says so.

    Args:
        profile: of the statistic, or the relation by its name.
        epsilon: positive.
        bounded: whether the mechanism has ``lower`` and ``upper``.
        continuous: of a relation by its name: whether the noise is added to a single number without a resolution.

    Raises:
        ValueError: ``continuous`` beside bounds or a profile with a resolution.

    >>> noise = laplace.guarantee("swap", 1.0, continuous=True)
    >>> print(noise)
    1-DP and 2-bounded-range under swap neighbors
    >>> round(noise.rho, 3), round(laplace.guarantee("swap", 1.0).rho, 3)
    (0.368, 0.462)
    """
    promise = pure(profile, epsilon, ranges=1 if bounded else 2)
    discrete = bounded or getattr(profile, "resolution", None) is not None
    if continuous and discrete:
        raise ValueError("noise between bounds or on multiples of a resolution is not that of the real line: continuous=False.")
    if discrete or not (continuous or isinstance(profile, SensitivityProfile)):
        return promise
    return replace(promise, noise=("laplace", promise.epsilon, 1.0))


class _Laplace(Protocol):
    """The signatures of :func:`laplace`."""

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
        self, value: SensitivityProfile, epsilon: ArrayLike, *, lower: ArrayLike | None = None, upper: ArrayLike | None = None
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
        value: float ``(...)``, the statistic. With bounds it is clamped to them. Or the profile of a statistic whose steps are a
            global sensitivity: :func:`dpjax.count`, :func:`dpjax.histogram`, :func:`dpjax.sum` under add/remove.
        epsilon: positive.
        sensitivity: positive, the global sensitivity of the statistic; a profile has its own.
        lower: bound of the output; with ``upper`` or not at all.

    Returns:
        A :class:`PiecewiseExponential`: without bounds, scale ``sensitivity/epsilon``; with bounds, scale
        ``2 * sensitivity/epsilon``, conditioned on them. Of a profile with a resolution, such as a count, a
        :class:`DiscreteLaplace` on its multiples.

    Raises:
        ValueError: only one bound; no sensitivity, or one beside a profile; a profile without steps; bounds beside a resolution.

    Privacy:
        epsilon-DP under the relation that ``sensitivity`` was computed for; without bounds the range is 2 epsilon, with bounds it
        is epsilon. Clamp the draws without bounds yourself if you want both the smaller scale and a range: that is post-processing.
        Float draws are simulations.

    References:
        Dwork, McSherry, Nissim and Smith (2006); Durfee (2025), Section 4.1.

    >>> distribution = laplace(0.0, 1.0, sensitivity=1.0)
    >>> float(distribution.mean_abs_error(0.0)), round(float(distribution.quantile(0.25)), 4)
    (1.0, -0.6931)
    """
    if (lower is None) != (upper is None):
        raise ValueError("laplace takes both lower and upper, or neither.")
    resolution = None
    if isinstance(value, SensitivityProfile):
        if value.step is None or sensitivity is not None:
            raise ValueError("laplace takes a profile with steps, such as of dpjax.count, or a value and its sensitivity.")
        sensitivity, resolution, value = value.step, value.resolution, value.value
    elif sensitivity is None:
        raise ValueError("laplace needs the global sensitivity of an array: sensitivity=...")
    center = checks.float_array("value", value)
    rate = checks.positive("epsilon", epsilon, center.dtype)
    scale = checks.positive("sensitivity", sensitivity, center.dtype)
    if resolution is not None:
        if lower is not None:
            raise ValueError("a count is drawn without bounds: clamp the draws (dpjax.Clamped.of), which costs nothing.")
        unit = jnp.asarray(float(resolution), center.dtype)
        return DiscreteLaplace(center, unit, rate * unit / scale)
    tails = Tails(jnp.zeros_like(scale), scale, jnp.zeros_like(scale), scale)
    no_pieces = jnp.zeros((0,), center.dtype)
    if lower is None or upper is None:
        return PiecewiseExponential(center[..., None], no_pieces, no_pieces, rate, tails)
    low, high = checks.bounds(lower, upper, center.dtype)
    center = jnp.clip(center, low, high)
    return PiecewiseExponential(center[..., None], no_pieces, no_pieces, rate / 2, tails).restrict(low, high)
