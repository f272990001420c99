"""Inverse sensitivity (Asi and Duchi 2020; McSherry and Talwar 2007).

It is the exponential mechanism on the number of changes: density proportional to exp(-epsilon/2 *
len(y)), where len(y) is the number of individuals who must change for the statistic to become y.
Piece l is chosen as in piecewise Laplace, and the point in it uniformly. For the median under
add/remove neighbors it is the mechanism of the Duff paper. Privacy: len(y) changes by at most 1
between neighbors. The flat piece of the rho-smooth variant has cost 1 - depth, which is 0 without
ties; so has the value itself on the multiples of a resolution, where another multiple costs len(y)
(``from_profile.py``).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, overload

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from dpjax import checks
from dpjax.accounting.guarantee import Guarantee
from dpjax.accounting.mechanism import with_guarantee
from dpjax.distributions import PiecewiseExponential, Radial, Rounded
from dpjax.mechanisms.from_profile import (
    PROFILES,
    Support,
    distribution_in_shells,
    distribution_on_line,
    is_given,
)
from dpjax.mechanisms.relations import pure
from dpjax.sensitivity import SensitivityProfile, VectorProfile


def guarantee(profile: SensitivityProfile | VectorProfile | str, epsilon: float) -> Guarantee:
    """Return the guarantee of one draw of :func:`inverse_sensitivity`.

    >>> print(inverse_sensitivity.guarantee("add_remove", 2))
    2-DP and 2-bounded-range under add_remove neighbors
    """
    return pure(profile, epsilon)


class _InverseSensitivity(Protocol):
    """The overloaded signatures of :func:`inverse_sensitivity`."""

    guarantee: Callable[..., Guarantee]

    @overload
    def __call__(
        self,
        profile: SensitivityProfile,
        epsilon: ArrayLike,
        *,
        rho: ArrayLike = 0.0,
        support: Support = "restricted",
    ) -> PiecewiseExponential | Rounded: ...

    @overload
    def __call__(self, profile: VectorProfile, epsilon: ArrayLike) -> Radial: ...


@with_guarantee(guarantee, signatures=_InverseSensitivity)
def inverse_sensitivity(
    profile: SensitivityProfile | VectorProfile,
    epsilon: ArrayLike,
    *,
    rho: ArrayLike = 0.0,
    support: Support = "restricted",
) -> PiecewiseExponential | Rounded | Radial:
    """Return the distribution of the inverse sensitivity mechanism.

    For a finite range, such as categories, see :func:`dpjax.from_distances`.

    Args:
        profile: the sensitivity profile of a statistic, batch shape ``(...)``, with integer levels;
            or of a vector (:func:`dpjax.from_vector_radii`), whose steps beyond the last radius
            have a slope, as in piecewise Laplace.
        epsilon: positive.
        rho: as for :func:`dpjax.piecewise_laplace`, like ``support``.

    Returns:
        See :func:`dpjax.piecewise_laplace`.

    Raises:
        ValueError: ``profile`` has fractional levels or an unbounded number of steps; or ``rho``
            (also a JAX array of zeros) is given for a profile that is not interpolable, or for a
            vector.

    Privacy:
        epsilon-DP and epsilon-bounded-range under the profile's neighbor relation. Public: epsilon,
        rho, and what the profile documents as public. Float draws are simulations.

    References:
        Durfee (2025), Definition 4.1 and mechanism M.2; Asi and Duchi (2020), whose rho-smooth
        variant is ``"extended"``; Gillenwater and Munoz Medina, Section 4.

    >>> import jax, jax.numpy as jnp
    >>> from dpjax import median
    >>> distribution = inverse_sensitivity(
    ...     median(jnp.array([1.0, 2.0, 5.0]), lower=0, upper=10, neighbors="swap"), 1.0
    ... )
    >>> bool(jnp.isclose(distribution.prob(1.5) / distribution.prob(0.5), jnp.exp(0.5)))
    True
    """
    if isinstance(profile, VectorProfile):
        return distribution_in_shells(
            profile, epsilon, piece_costs=_costs, rho=rho, support=support
        )
    checks.instance("inverse_sensitivity", profile, SensitivityProfile, PROFILES)
    if not profile.integer_levels:
        raise ValueError(
            "inverse_sensitivity needs a profile with integer levels, got fractional levels: use "
            "piecewise_laplace."
        )
    if profile.step is not None:
        raise ValueError(
            "inverse_sensitivity needs one piece for each level: use profile.truncate(k), or "
            "truncate with num_steps, or piecewise_laplace, which accepts an unbounded number of "
            "steps."
        )
    if not profile.interpolable and is_given(rho):
        raise ValueError(
            "rho must not be given for a profile that is not interpolable, whose values hold "
            "almost everywhere only: with it the loss reaches 1.2 epsilon."
        )
    return distribution_on_line(
        profile, epsilon, piece_costs=_costs, flat_cost=0.0, rho=rho, support=support
    )


def _costs(levels: jax.Array) -> tuple[jax.Array, jax.Array]:
    outer = jnp.maximum(levels[..., :-1], levels[..., 1:])
    return outer, outer
