"""Laplace noise for vectors: the K-norm mechanism (Hardt and Talwar 2010) with K an L_p ball.

The density is proportional to exp(-epsilon ||y - value||_p / sensitivity). Privacy: by the triangle
inequality the norm changes by at most the sensitivity between neighbors, and the normalizer is the
same for every value. With p = 1 the coordinates are independent Laplace variates; for another norm,
independent noise would need the sensitivity in the L_1 norm, which is up to d times larger.
"""

from __future__ import annotations

from math import inf

import jax.numpy as jnp
from jax.typing import ArrayLike

from dpjax import checks
from dpjax.accounting.guarantee import Guarantee
from dpjax.accounting.mechanism import with_guarantee
from dpjax.distributions.radial import Radial
from dpjax.mechanisms.relations import pure
from dpjax.sensitivity.vector_profile import vectors


def guarantee(relation: str, epsilon: float) -> Guarantee:
    """Return the guarantee of one draw of :func:`k_norm`.

    >>> print(k_norm.guarantee("swap", 1.0))
    1-DP and 2-bounded-range under swap neighbors
    """
    return pure(relation, epsilon, ranges=2)


@with_guarantee(guarantee)
def k_norm(value: ArrayLike, epsilon: ArrayLike, *, sensitivity: ArrayLike, p: float) -> Radial:
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
    rate = checks.positive("epsilon", epsilon, center.dtype)
    step = checks.positive("sensitivity", sensitivity, center.dtype)
    none = jnp.zeros((0,), center.dtype)
    return Radial(
        center,
        jnp.zeros((1,), center.dtype),
        none,
        none,
        rate,
        step,
        p=checks.static_number("p", p, 1, inf),
    )
