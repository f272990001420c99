"""From the profile of a vector and a cost for each shell to a distribution on R^d: what two exponential mechanisms share.

Privacy: let u(y) be the number of the ball whose surface y is on, linear in the norm between two balls. Lemma 5.2 of Durfee (2025)
shows that u changes by at most 1 between neighbours. A cost g(u) does so too if g is nondecreasing with g(u + 1) <= g(u) + 1:
piecewise Laplace has g(u) = u, and inverse sensitivity g(u) = ceil(u) in the k shells and g(u) = u beyond them.
"""

import jax.numpy as jnp
from jax.typing import ArrayLike

from dpjax import checks
from dpjax.distributions.radial import Radial
from dpjax.mechanisms.line import Costs, is_given
from dpjax.numerics.batching import fits
from dpjax.sensitivity.vectors import VectorProfile


def distribution_in_shells(
    profile: VectorProfile, epsilon: ArrayLike, *, piece_costs: Costs, rho: ArrayLike, support: str
) -> Radial:
    """Return the density proportional to exp(-epsilon/2 * cost), on all of R^d.

    Args:
        profile: of the vectors.
        epsilon: positive.
        piece_costs: from the levels 0..k to the costs at the near and at the far end of the k shells.
        rho: none, like ``support``: they are for profiles on the line.
    """
    if is_given(rho) or support != "restricted":
        raise ValueError("the profile of a vector has all of R^d for its support, and no flat piece: give no rho and no support.")
    rate = checks.positive("epsilon", epsilon, profile.dtype) / 2
    fits(profile.batch_shape, epsilon=rate.shape)
    near, far = piece_costs(jnp.arange(profile.radii.shape[-1], dtype=profile.dtype))
    return Radial(profile.value, profile.radii, near, far, rate, profile.step, p=profile.p)
