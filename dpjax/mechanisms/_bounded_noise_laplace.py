"""Laplace noise conditioned on [-T, T]: bounded errors, for approximate DP.

The mechanism is from Geng, Ding, Guo and Kumar (2020). The output is value + Z with density of Z
proportional to exp(-epsilon |z| / sensitivity) on [-T, T],

    T = sensitivity/epsilon * log(1 + (e^epsilon - 1) / (2 delta)).

Privacy. Where two such densities overlap, their ratio is at most e^epsilon. What only one of them
reaches is the end of its support, of length at most s, the sensitivity, and of mass at most
e^(-epsilon T/s) (e^epsilon - 1) / (2 (1 - e^(-epsilon T/s))) = delta.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from dpjax import checks
from dpjax.accounting.guarantee import Guarantee
from dpjax.accounting.mechanism import with_guarantee
from dpjax.distributions.piecewise import PiecewiseExponential
from dpjax.mechanisms.relations import approximate


def guarantee(relation: str, epsilon: float, *, delta: float) -> Guarantee:
    """Return the guarantee of one draw of :func:`bounded_noise_laplace`.

    >>> print(bounded_noise_laplace.guarantee("swap", 1.0, delta=1e-6))
    (1, 1e-06)-DP under swap neighbors
    """
    return approximate(relation, epsilon, delta)


@with_guarantee(guarantee)
def bounded_noise_laplace(
    value: ArrayLike, epsilon: ArrayLike, *, sensitivity: ArrayLike, delta: ArrayLike
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
    center = checks.float_array("value", value)
    rate = checks.positive("epsilon", epsilon, center.dtype)
    scale = checks.positive("sensitivity", sensitivity, center.dtype)
    return _distribution(
        center, rate, scale, checks.probability("delta", delta, center.dtype, below=0.5)
    )


@jax.jit
def _distribution(
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
