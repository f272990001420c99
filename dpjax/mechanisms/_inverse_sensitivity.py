"""Inverse sensitivity (Asi and Duchi 2020; McSherry and Talwar 2007): the exponential mechanism on the number of changes.

Density proportional to exp(-epsilon/2 * len(y)), where len(y) is how many individuals must change for the statistic to become y:
piece l is chosen as in piecewise Laplace, and the point in it uniformly. Its median under add/remove neighbors is Duff's.
Privacy: len(y) changes by at most 1 between neighbors. The flat piece of the rho-smooth variant has cost 1 - depth, 0 without ties;
so has the value itself on the multiples of a resolution, where another multiple costs len(y) (``from_profile.py``).
"""

from collections.abc import Callable
from typing import Protocol, overload

import jax
from jax.typing import ArrayLike

from dpjax import checks
from dpjax.accounting.guarantee import Guarantee
from dpjax.accounting.mechanism import with_guarantee
from dpjax.distributions import PiecewiseExponential, Radial, Rounded
from dpjax.mechanisms.from_profile import PROFILES, Support, distribution_in_shells, distribution_on_line, is_given
from dpjax.mechanisms.relations import pure
from dpjax.sensitivity import SensitivityProfile, VectorProfile


def guarantee(profile: SensitivityProfile | VectorProfile | str, epsilon: float) -> Guarantee:
    """Return what one draw of :func:`inverse_sensitivity` costs.

    >>> print(inverse_sensitivity.guarantee("add_remove", 2))
    2-DP and 2-bounded-range under add_remove neighbors
    """
    return pure(profile, epsilon)


class _InverseSensitivity(Protocol):
    """The signatures of :func:`inverse_sensitivity`."""

    guarantee: Callable[..., Guarantee]

    @overload
    def __call__(
        self, profile: SensitivityProfile, epsilon: ArrayLike, *, rho: ArrayLike = 0.0, support: Support = "restricted"
    ) -> PiecewiseExponential | Rounded: ...

    @overload
    def __call__(self, profile: VectorProfile, epsilon: ArrayLike) -> Radial: ...


@with_guarantee(guarantee, signatures=_InverseSensitivity)
def inverse_sensitivity(
    profile: SensitivityProfile | VectorProfile, epsilon: ArrayLike, *, rho: ArrayLike = 0.0, support: Support = "restricted"
) -> PiecewiseExponential | Rounded | Radial:
    """Return the distribution of the inverse sensitivity mechanism.

    For a finite range, such as categories, see :func:`dpjax.from_distances`.

    Args:
        profile: the sensitivity profile of a statistic, batch shape ``(...)``, with integer levels; or of a vector
            (:func:`dpjax.from_vector_radii`), whose steps after the last radius have a slope, as in piecewise Laplace.
        epsilon: positive.
        rho: as for :func:`dpjax.piecewise_laplace`, like ``support``.

    Returns:
        As :func:`dpjax.piecewise_laplace`.

    Raises:
        ValueError: if ``profile`` has fractional levels, or steps whose number is not static; a ``rho`` (also a JAX array of zeros)
            for a profile that is not interpolable, or that of a vector.

    Privacy:
        epsilon-DP and epsilon-bounded-range under the profile's neighbor relation. Public: epsilon, rho, and what the profile says
        is public. Float draws are simulations.

    References:
        Durfee (2025), Definition 4.1 and mechanism M.2; Asi and Duchi (2020), whose rho-smooth variant is ``"extended"``;
        Gillenwater and Munoz Medina, Section 4.

    >>> import jax, jax.numpy as jnp
    >>> from dpjax import median
    >>> distribution = inverse_sensitivity(median(jnp.array([1.0, 2.0, 5.0]), lower=0, upper=10, neighbors="swap"), 1.0)
    >>> bool(jnp.isclose(distribution.prob(1.5) / distribution.prob(0.5), jnp.exp(0.5)))
    True
    """
    if isinstance(profile, VectorProfile):
        return distribution_in_shells(profile, epsilon, piece_costs=_costs, rho=rho, support=support)
    checks.instance("inverse_sensitivity", profile, SensitivityProfile, PROFILES)
    if not profile.integer_levels:
        raise ValueError("inverse sensitivity needs integer levels: this profile's are fractional. Use piecewise_laplace.")
    if profile.step is not None:
        raise ValueError(
            "inverse sensitivity needs one piece for each level: write profile.truncate(k), or give truncate a num_steps. "
            "piecewise_laplace takes steps without end."
        )
    if not profile.interpolable and is_given(rho):
        raise ValueError(
            "rho gives the value itself a cost, and this profile's values hold almost everywhere only: it leaks 1.2 epsilon. "
            "Give no rho, or a profile that is interpolable."
        )
    return distribution_on_line(profile, epsilon, piece_costs=_costs, flat_cost=0.0, rho=rho, support=support)


def _costs(levels: jax.Array) -> tuple[jax.Array, jax.Array]:
    return levels[..., 1:], levels[..., 1:]
