"""Data-independent choices of beta, for the three noise distributions scaled by smooth sensitivity.

On dense data, where A_k = (k + 1) A_0, the smooth sensitivity is close to A_0 e^(beta - 1) / beta,
and the scale of the noise is this divided by alpha: its minimum depends on public numbers only. It
is capped at log 2, above which dense data do not gain.
"""

from __future__ import annotations

from collections.abc import Callable
from math import exp, log
from typing import Literal

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from dpjax import checks
from dpjax.accounting.conversions import zcdp_of
from dpjax.numerics.search import bisect
from dpjax.sensitivity.local import LocalSensitivity, SmoothSensitivity

Noise = Literal["cauchy", "laplace", "laplace_log_normal"]


def optimal_beta(
    epsilon: ArrayLike, *, noise: Noise, delta: ArrayLike | None = None, gamma: float = 2.0
) -> jax.Array:
    """Return the optimal beta for dense data.

    Args:
        epsilon: positive ``(...)``.
        noise: ``"cauchy"``, ``"laplace"`` or ``"laplace_log_normal"`` (with the tight conversion to
            zCDP and :func:`optimal_sigma`).
        delta: in (0, 1); None for ``"cauchy"``.
        gamma: static, above 1; used for ``"cauchy"``.

    Returns:
        Float of the broadcast shape.

    Privacy:
        A function of public numbers only. The published baselines minimize bound/alpha on the
        private data instead, and their guarantee then does not hold.

    References:
        Gillenwater and Munoz Medina, Section 6, for the choice that is avoided here.

    >>> round(float(optimal_beta(1.0, noise="cauchy")), 4)
    0.382
    >>> round(float(optimal_beta(1.0, noise="laplace", delta=1e-3)), 4)
    0.076
    """
    checks.one_of("noise", noise, ("cauchy", "laplace", "laplace_log_normal"))
    if (delta is None) != (noise == "cauchy"):
        raise ValueError(
            "delta must be given for laplace and laplace_log_normal noise, and not for cauchy, "
            f"got delta={delta} for {noise!r}."
        )
    dtype = checks.float_dtype(epsilon)
    budget = checks.positive("epsilon", epsilon, dtype)
    if delta is None:
        return best_for_dense_data(budget, jnp.asarray(constants(gamma)[1], dtype))
    if noise == "laplace":
        beta = _laplace(budget, checks.probability("delta", delta, dtype, below=1.0))
    else:
        beta = _laplace_log_normal(jnp.sqrt(2 * zcdp_of(epsilon, delta=delta)))
    return jnp.minimum(beta, log(2))


def best_for_dense_data(budget: jax.Array, stretch: jax.Array) -> jax.Array:
    """Return the beta, at most log 2, that minimizes e^beta / (beta (budget - stretch beta)).

    It is a root of a quadratic equation.
    """
    return jnp.minimum(2 * budget / (budget + 2 * stretch + jnp.hypot(budget, 2 * stretch)), log(2))


def constants(gamma: float) -> tuple[float, float]:
    """Return sup|h'/h| and sup|1 + z h'/h|, the costs of alpha and beta.

    >>> constants(2.0)
    (1.0, 1.0)
    """
    if checks.concrete_positive("gamma", gamma) <= 1:
        raise ValueError(f"gamma must be a static number above 1, got {gamma}.")
    return (gamma - 1) ** ((gamma - 1) / gamma), max(1.0, gamma - 1)


def smoothed(
    caller: str, given: SmoothSensitivity | LocalSensitivity, beta: Callable[[], jax.Array]
) -> SmoothSensitivity:
    """Return a smooth sensitivity unchanged, and a local one smoothed at a public beta."""
    if isinstance(given, LocalSensitivity):
        return given.smooth(beta())
    checks.instance(
        caller,
        given,
        SmoothSensitivity,
        "or a LocalSensitivity, such as dpjax.local_sensitivity(x, ...)",
    )
    return given


def _laplace(epsilon: jax.Array, delta: jax.Array) -> jax.Array:
    """Minimize e^beta / (beta alpha), whose logarithm is convex."""
    epsilon, delta = jnp.broadcast_arrays(epsilon, delta)
    nats = -jnp.log(delta)

    def gain(beta: jax.Array) -> jax.Array:
        """Return minus the derivative of the logarithm."""
        first, second = jnp.expm1(beta) * nats - beta, beta
        alpha = epsilon - jnp.maximum(first, second)
        slope = jnp.where(first > second, jnp.exp(beta) * nats - 1, 1.0)
        return jnp.where(alpha <= 0, -jnp.inf, 1 / beta - 1 - slope / alpha)

    # For delta above e^-2, alpha has a kink, where the minimum can be.
    return _root(gain, jnp.minimum(epsilon, log(2)), smooth=delta <= exp(-2))


def _laplace_log_normal(c: jax.Array) -> jax.Array:
    """Minimize e^(beta + 2 sigma^2) / (beta (c - beta/sigma)) over both: beta = 1 - 4 sigma^2.

    c decreases in sigma, which is found as a root.
    """

    def excess(sigma: jax.Array) -> jax.Array:
        square = 4 * jnp.square(sigma)
        return jnp.log1p(-square) + jnp.log1p(1 / square) - jnp.log(sigma * c)

    sigma = _root(excess, jnp.full_like(c, 0.5))
    # 1 - 4 sigma^2 from its equation: the difference cancels near sigma = 1/2, where epsilon is
    # small.
    return c * 4 * sigma * jnp.square(sigma) / (4 * jnp.square(sigma) + 1)


def _root(
    falling: Callable[[jax.Array], jax.Array], high: jax.Array, smooth: jax.Array | bool = True
) -> jax.Array:
    """Return the zero of a decreasing function between 0 and ``high``.

    A last step of Newton's method gives it the derivatives of the root.
    """
    root = jax.lax.stop_gradient(bisect(lambda x: falling(x) > 0, jnp.zeros_like(high), high)[0])
    value, slope = jax.jvp(falling, (root,), (jnp.ones_like(root),))
    return root - jnp.where(smooth, value / jax.lax.stop_gradient(slope), 0 * value)
