"""Laplace noise on the smooth sensitivity (Nissim, Raskhodnikova and Smith 2007; Bun and Steinke 2019): (epsilon, delta)-DP.

value + bound/alpha * Z, Z standard Laplace, where bound is beta-smooth and L = log(1/delta):

    alpha + max((e^beta - 1) L - beta, beta) <= epsilon.

Privacy: with scales N and N e^-t, |t| <= beta, and values alpha N e^-t apart, the log-ratio at value + N z is at most
alpha - t + |z| (e^t - 1). This is convex in t: at t = beta and |z| <= L it is alpha - beta + L (e^beta - 1), at t = -beta it is at
most alpha + beta. And |z| > L has probability delta. The published condition lacks the second case; for delta <= e^-2 the first is
the larger and the two agree.
"""

from __future__ import annotations

from math import exp, log
from typing import Any

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from dpjax import checks
from dpjax.accounting.guarantee import Guarantee
from dpjax.distributions.piecewise import PiecewiseExponential, Tails
from dpjax.sensitivity.smooth import SmoothSensitivity, representable

_STEPS = 60


def smooth_laplace(smooth: SmoothSensitivity, epsilon: ArrayLike, *, delta: ArrayLike) -> PiecewiseExponential:
    """Return the law of ``value + bound/alpha * Z`` with Z standard Laplace.

    Args:
        smooth: the statistic and its smooth sensitivity, of batch shape ``(...)``; its beta uses a part of epsilon.
        epsilon: positive; broadcasts against the batch shape.
        delta: in (0, 1); broadcasts against the batch shape.

    Returns:
        A :class:`PiecewiseExponential` of two tails. Wrap it in :class:`Clamped` for a range (post-processing).

    Raises:
        TypeError: what is no :class:`SmoothSensitivity`.
        ValueError: a bad ``epsilon`` or ``delta``; a beta that leaves no alpha. Where one of them is a JAX array, a row without an
            alpha is NaN instead.

    Privacy:
        (epsilon, delta)-DP under the relation of ``smooth``; not tight: at delta = 1e-3 an exact analysis would allow an alpha 1.4
        to 1.9 times larger. Public: epsilon, delta, beta, and what ``smooth`` says is public; a beta chosen on the data breaks
        the guarantee. Float draws are simulations: their low-order bits depend on the data.

    References:
        Bun and Steinke (2019), Theorem 34; Gillenwater and Munoz Medina, Proposition 2 (its "- beta" is right).

    >>> import jax.numpy as jnp
    >>> from dpjax.mechanisms.smooth_laplace import alpha_of
    >>> from dpjax.statistics.local_sensitivity import smooth_sensitivity
    >>> smooth = smooth_sensitivity(jnp.arange(101.0), 0.1, lower=0, upper=100, neighbors="add_remove")
    >>> law = smooth_laplace(smooth, 1.0, delta=1e-3)
    >>> bool(jnp.isclose(law.mean_abs_error(50.0), smooth.bound / alpha_of(1.0, beta=0.1, delta=1e-3)))
    True
    """
    checks.instance("smooth_laplace", smooth, SmoothSensitivity, "see dpjax.smooth_sensitivity")
    checks.positive("epsilon", epsilon, smooth.dtype)
    alpha = alpha_of(epsilon, beta=smooth.beta, delta=delta, dtype=smooth.dtype)
    alpha = representable(smooth, alpha)
    tails = Tails(jnp.zeros_like(smooth.bound), smooth.bound, jnp.zeros_like(smooth.bound), smooth.bound)
    none = jnp.zeros((0,), smooth.dtype)
    return PiecewiseExponential(smooth.value[..., None], none, none, alpha, tails)


def alpha_of(epsilon: ArrayLike, *, beta: ArrayLike, delta: ArrayLike, dtype: Any = None) -> jax.Array:
    """Return the alpha that beta leaves of epsilon; the scale of the noise is bound/alpha.

    >>> round(float(alpha_of(1.0, beta=0.1, delta=1e-3)), 4)
    0.3735
    """
    kind = jnp.result_type(float) if dtype is None else dtype
    failure = checks.probability("delta", delta, kind, below=1.0)

    def rest(xp: Any, epsilon: Any, beta: Any, delta: Any) -> Any:
        return epsilon - xp.maximum(-xp.expm1(beta) * xp.log(delta) - beta, beta)

    message = "beta = {1} leaves nothing of epsilon = {0} at delta = {2}: choose a smaller beta (see optimal_beta)."
    return checks.remaining(message, rest, epsilon, beta, failure if isinstance(delta, jax.Array) else delta, dtype=kind)


def optimal_beta(epsilon: jax.Array, delta: jax.Array) -> jax.Array:
    """Minimise e^beta / (beta alpha), whose logarithm is convex: by thirds, then one step of Newton's method for the derivative."""

    def objective(beta: jax.Array) -> jax.Array:
        alpha = epsilon - jnp.maximum(-jnp.expm1(beta) * jnp.log(delta) - beta, beta)
        return jnp.where(alpha > 0, beta - jnp.log(beta) - jnp.log(jnp.where(alpha > 0, alpha, 1.0)), jnp.inf)

    def narrow(_: int, ends: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        low, high = ends
        a, b = low + (high - low) / 3, high - (high - low) / 3
        left = ~(objective(a) > objective(b)) | jnp.isinf(objective(b))
        return jnp.where(left, low, a), jnp.where(left, b, high)

    start = jnp.zeros(jnp.broadcast_shapes(epsilon.shape, delta.shape), epsilon.dtype)
    low, high = jax.lax.fori_loop(0, _STEPS, narrow, (start, start + log(2)))
    beta = jax.lax.stop_gradient((low + high) / 2)
    rise = -jnp.exp(beta) * jnp.log(delta)
    alpha = epsilon + jnp.expm1(beta) * jnp.log(delta) + beta
    gradient = 1 - 1 / beta - (1 - rise) / alpha
    curvature = 1 / jnp.square(beta) + rise / alpha + jnp.square((1 - rise) / alpha)
    # For delta above e^-2, alpha has a kink, which can be the minimum.
    step = jnp.where(delta <= exp(-2), gradient / jax.lax.stop_gradient(curvature), 0.0)
    return jnp.minimum(beta - step, log(2)) + 0 * (epsilon + delta)


def guarantee(smooth: SmoothSensitivity, epsilon: float, *, delta: float) -> Guarantee:
    """Return what one draw of :func:`smooth_laplace` costs.

    >>> import jax.numpy as jnp
    >>> from dpjax.statistics.local_sensitivity import smooth_sensitivity
    >>> print(guarantee(smooth_sensitivity(jnp.arange(9.0), 0.1, lower=0, upper=9, neighbors="swap"), 1.0, delta=1e-6))
    (1, 1e-06)-DP under swap neighbors
    """
    return Guarantee(checks.concrete_epsilon(epsilon), float("inf"), smooth.neighbors, delta=checks.concrete_delta(delta))
