"""Privacy amplification by Poisson subsampling, which holds under add/remove neighbours, and its limits.

Each individual is taken with probability p whatever the others are, and nothing else may depend on who was taken. A sample of fixed
size, or a replaced individual, is another theorem. ``epsilon`` is positive and ``probability`` (p) above 0 and at most 1; as arrays
``(...)`` they broadcast against each other, and the result is a float of the broadcast shape.
"""

from __future__ import annotations

from math import expm1, inf, log1p
from sys import float_info

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from dpjax import checks
from dpjax.accounting.guarantee import Guarantee


def subsampled_epsilon(epsilon: ArrayLike, *, probability: ArrayLike) -> jax.Array:
    """Return the epsilon of an epsilon-DP mechanism that runs on a Poisson subsample: log(1 + p (e^epsilon - 1)).

    Privacy:
        Under add/remove neighbours only, as the top of this file says.

    References:
        Steinke (2022), "Composition of Differential Privacy & Privacy Amplification by Subsampling", Theorem 29.

    >>> round(float(subsampled_epsilon(1.0, probability=0.1)), 6)
    0.158565
    """
    return _amplified(*_checked(epsilon, probability))


@jax.jit
def _amplified(epsilon: jax.Array, probability: jax.Array) -> jax.Array:
    # log(1 + p expm1(e)); where that would overflow, expm1(e) as a logarithm.
    small = epsilon < np.log(np.finfo(epsilon.dtype).max) / 2
    near, far = jnp.where(small, epsilon, 1.0), jnp.where(small, 1.0, epsilon)
    large = jnp.logaddexp(jnp.log(probability) + far + jnp.log1p(-jnp.exp(-far)), 0.0)
    return jnp.where(small, jnp.log1p(probability * jnp.expm1(near)), large)


def epsilon_before_sampling(epsilon: ArrayLike, *, probability: ArrayLike) -> jax.Array:
    """Return the epsilon that a mechanism may have on the subsample, for the whole to be epsilon-DP: log(1 + (e^epsilon - 1)/p).

    Privacy:
        As :func:`subsampled_epsilon`.

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
    """Return p epsilon_p / epsilon: the noise of a mean without subsampling, relative to that with it at the same privacy.

    At 1, its largest value, a subsample costs no accuracy (but its sampling error); it is at least p/(p + epsilon), and near that
    where epsilon, that of the whole, is not far below p: there subsampling multiplies the noise.

    References:
        Steinke, "Limits of Privacy Amplification by Subsampling" (2025), Equations 6 and 7.

    >>> round(float(sampling_efficiency(1.0, probability=0.01)), 4)
    0.0515
    """
    budget, share = _checked(epsilon, probability)
    return share * _before(budget, share) / budget


def poisson_subsample(guarantee: Guarantee, *, probability: float) -> Guarantee:
    """Return what a mechanism costs that runs on a Poisson subsample of the data.

    If q is the density of the output without an individual, averaged over who else is taken, it is (1 - p + p R) q with that
    individual, where R is in [e^-epsilon, e^epsilon].

    Args:
        guarantee: of the mechanism on the data that it is given, with a finite epsilon.
        probability: p in (0, 1], public, with which each individual is taken.

    Returns:
        A :class:`Guarantee`: (log(1 + p (e^epsilon - 1)), p delta)-DP, of range log(1 + p (e^epsilon - 1)) -
        log(1 - p (1 - e^-epsilon)). A small range of the mechanism does not carry over, since different subsamples have different
        losses.

    Raises:
        ValueError: also for another relation than add/remove, or an infinite epsilon.

    Privacy:
        As :func:`subsampled_epsilon`. Who was taken stays secret, and so does how many.

    References:
        As :func:`subsampled_epsilon`.

    >>> print(poisson_subsample(Guarantee(1.0, 1.0, "add_remove"), probability=0.1))
    0.158565-DP and 0.223863-bounded-range under add_remove neighbors
    """
    checks.instance("poisson_subsample", guarantee, Guarantee, "what the mechanism costs; of a Composition, its guarantee()")
    if guarantee.neighbors != "add_remove":
        raise ValueError(
            f"Poisson subsampling amplifies under add_remove neighbors, this guarantee is under {guarantee.neighbors}."
        )
    if guarantee.epsilon == inf:
        raise ValueError(
            "amplification of zCDP or Renyi DP by subsampling is not implemented: use dp-accounting for Gaussian noise."
        )
    p = float(probability)
    if not 0 < p <= 1:
        raise ValueError(f"probability must be above 0 and at most 1, got {probability}.")
    if p == 1:
        return guarantee
    most = log1p(p * expm1(guarantee.epsilon)) if guarantee.epsilon < 700 else guarantee.epsilon
    least = -log1p(p * expm1(-guarantee.epsilon))
    if guarantee.epsilon:
        most, least = max(most, float_info.min), max(least, float_info.min)  # a product that underflows
    return Guarantee(most, inf if guarantee.delta else most + least, "add_remove", p * guarantee.delta)


def _checked(epsilon: ArrayLike, probability: ArrayLike) -> tuple[jax.Array, jax.Array]:
    dtype = checks.float_dtype(epsilon, probability)
    return checks.positive("epsilon", epsilon, dtype), checks.proportion("probability", probability, dtype)
