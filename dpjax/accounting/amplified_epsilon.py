"""The epsilon of a mechanism on a Poisson subsample, and its inverse, as JAX arrays.

``epsilon`` is positive and ``probability`` (p) in (0, 1]; as arrays ``(...)`` they broadcast
against each other, and the result is a float array of the broadcast shape. The guarantee is that
of :func:`poisson_subsample`, under add/remove neighbors.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from dpjax import checks


def subsampled_epsilon(epsilon: ArrayLike, *, probability: ArrayLike) -> jax.Array:
    """Return the epsilon of an epsilon-DP mechanism on a Poisson subsample.

    It is log(1 + p (e^epsilon - 1)).

    Privacy:
        Under add/remove neighbors only, as for :func:`poisson_subsample`.

    References:
        Steinke (2022), "Composition of Differential Privacy & Privacy Amplification by
        Subsampling", Theorem 29.

    >>> round(float(subsampled_epsilon(1.0, probability=0.1)), 6)
    0.158565
    """
    return _amplified(*_checked(epsilon, probability))


@jax.jit
def _amplified(epsilon: jax.Array, probability: jax.Array) -> jax.Array:
    # log(1 + p expm1(e)); where expm1(e) would overflow, its logarithm is used.
    small = epsilon < np.log(np.finfo(epsilon.dtype).max) / 2
    near, far = jnp.where(small, epsilon, 1.0), jnp.where(small, 1.0, epsilon)
    large = jnp.logaddexp(jnp.log(probability) + far + jnp.log1p(-jnp.exp(-far)), 0.0)
    return jnp.where(small, jnp.log1p(probability * jnp.expm1(near)), large)


def epsilon_before_sampling(epsilon: ArrayLike, *, probability: ArrayLike) -> jax.Array:
    """Return the largest epsilon of a mechanism that is epsilon-DP on a Poisson subsample.

    It is log(1 + (e^epsilon - 1)/p), the inverse of :func:`subsampled_epsilon`, under the same
    relation.

    References:
        Steinke, "Limits of Privacy Amplification by Subsampling" (2025), Equation 3.

    >>> round(float(epsilon_before_sampling(1.0, probability=0.1)), 6)
    2.900477
    """
    return _before(*_checked(epsilon, probability))


@jax.jit
def _before(epsilon: jax.Array, probability: jax.Array) -> jax.Array:
    small = epsilon < 1
    near, far = jnp.where(small, epsilon, 1.0), jnp.where(small, 1.0, epsilon)
    large = far - jnp.log(probability) + jnp.log1p((probability - 1) * jnp.exp(-far))
    return jnp.where(small, jnp.log1p(jnp.expm1(near) / probability), large)


def sampling_efficiency(epsilon: ArrayLike, *, probability: ArrayLike) -> jax.Array:
    """Return p epsilon_p / epsilon, where epsilon_p is :func:`epsilon_before_sampling`.

    This is the noise of a mean without subsampling relative to that with subsampling at the same
    epsilon. At its largest value, 1, subsampling costs no accuracy but the sampling error. It is at
    least p/(p + epsilon), and well below 1 unless epsilon is much smaller than p: there subsampling
    multiplies the noise.

    References:
        Steinke, "Limits of Privacy Amplification by Subsampling" (2025), Equations 6 and 7.

    >>> round(float(sampling_efficiency(1.0, probability=0.01)), 4)
    0.0515
    """
    budget, share = _checked(epsilon, probability)
    return share * _before(budget, share) / budget


def _checked(epsilon: ArrayLike, probability: ArrayLike) -> tuple[jax.Array, jax.Array]:
    dtype = checks.float_dtype(epsilon, probability)
    return checks.positive("epsilon", epsilon, dtype), checks.proportion(
        "probability", probability, dtype
    )
