"""The mechanisms by their names on the command line: each name's law and its guarantee."""

from __future__ import annotations

from jax.typing import ArrayLike

from dpjax.accounting import Guarantee
from dpjax.distributions import PiecewiseExponential
from dpjax.mechanisms import inverse_sensitivity, laplace, piecewise_laplace
from dpjax.sensitivity.profile import SensitivityProfile

MECHANISMS = ("piecewise_laplace", "inverse_sensitivity", "laplace")


def law_of(
    mechanism: str, profile: SensitivityProfile, epsilon: ArrayLike, *, lower: float, upper: float, rho: float = 0.0
) -> PiecewiseExponential:
    """Return the law of a mechanism on the profile of a quantile.

    Args:
        mechanism: one of ``MECHANISMS``.
        profile: of batch shape ``(...)``.
        epsilon: positive, broadcasts against the batch shape.
        lower: the public lower bound of the data.
        upper: the public upper bound. One record can move a quantile from one bound to the other, so ``laplace`` takes
            ``upper - lower`` as the sensitivity and stays within the bounds.
        rho: as in :func:`dpjax.piecewise_laplace`; ``laplace`` has no use for it.

    Returns:
        A law of the broadcast batch shape.
    """
    if mechanism == "laplace":
        return laplace.laplace(profile.value, epsilon, sensitivity=upper - lower, lower=lower, upper=upper)
    if mechanism == "inverse_sensitivity":
        return inverse_sensitivity.inverse_sensitivity(profile, epsilon, rho=rho)
    return piecewise_laplace.piecewise_laplace(profile, epsilon, rho=rho)


def guarantee_of(mechanism: str, profile: SensitivityProfile, epsilon: float) -> Guarantee:
    """Return what one draw of :func:`law_of` costs, as the mechanism's own file states it."""
    if mechanism == "laplace":
        return laplace.guarantee(epsilon, neighbors=profile.neighbors, bounded=True)
    if mechanism == "inverse_sensitivity":
        return inverse_sensitivity.guarantee(profile, epsilon)
    return piecewise_laplace.guarantee(profile, epsilon)
