"""Cauchy noise scaled by smooth sensitivity (Nissim, Raskhodnikova and Smith 2007): pure DP.

The output is value + bound/alpha * Z, density of Z proportional to h(z) = 1 / (1 + |z|^gamma),
where bound is beta-smooth. Privacy: between neighbors the density is shifted by at most alpha of
its scales and stretched by up to e^beta. A shift by s changes log h by at most s * sup|h'/h|, and
sup gamma z^(gamma-1) / (1 + z^gamma) = (gamma-1)^((gamma-1)/gamma), at z^gamma = gamma - 1. A
stretch by e^t changes log(e^t h(e^t z)) by at most |t| * sup|1 - gamma |z|^gamma / (1 + |z|^gamma)|
= |t| * max(1, gamma-1). So (gamma-1)^((gamma-1)/gamma) * alpha + max(1, gamma-1) * beta <= epsilon
suffices: for gamma = 2, alpha + beta <= epsilon.
"""

from __future__ import annotations

from math import pi
from typing import Any, Literal

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from dpjax import checks
from dpjax.accounting.guarantee import Guarantee
from dpjax.accounting.mechanism import with_guarantee
from dpjax.distributions.cauchy import Cauchy
from dpjax.mechanisms._optimal_beta import constants, optimal_beta, smoothed
from dpjax.mechanisms.relations import pure
from dpjax.sensitivity.local import LocalSensitivity, SmoothSensitivity, representable

Calibration = Literal["tight", "published"]


def guarantee(smooth: SmoothSensitivity | LocalSensitivity | str, epsilon: float) -> Guarantee:
    """Return the guarantee of one draw of :func:`smooth_cauchy`.

    >>> print(smooth_cauchy.guarantee("swap", 1.0))
    1-DP and 2-bounded-range under swap neighbors
    """
    return pure(smooth, epsilon, ranges=2)


@with_guarantee(guarantee)
def smooth_cauchy(
    smooth: SmoothSensitivity | LocalSensitivity,
    epsilon: ArrayLike,
    *,
    gamma: float = 2.0,
    calibration: Calibration = "tight",
) -> Cauchy:
    """Return the distribution of ``value + bound/alpha * Z``.

    The density of Z is proportional to ``1 / (1 + |z|^gamma)``.

    Args:
        smooth: the statistic and its smooth sensitivity, of batch shape ``(...)``, whose beta uses
            a part of epsilon. Or its local sensitivity, which is smoothed at the beta of
            :func:`optimal_beta`; for ``"published"``, at the largest beta.
        epsilon: positive.
        gamma: static, above 1; 2 is the Cauchy distribution.
        calibration: ``"tight"``: alpha = (epsilon - max(1, gamma-1) beta) /
            (gamma-1)^((gamma-1)/gamma); ``"published"``, of the papers: alpha = epsilon / (2
            (gamma+1)), for beta at most as large. At gamma = 2 and beta = alpha, the published
            noise is three times larger, and its true loss on medians is 0.23 epsilon.

    Returns:
        A :class:`Cauchy`. Its mean does not exist for gamma <= 2, and its mean absolute error is
        infinite: clamp its draws to the bounds, which costs nothing (:class:`Clamped`).

    Raises:
        ValueError: beta exhausts epsilon. Where epsilon or beta is a JAX array, that row is NaN
            instead.

    Privacy:
        epsilon-DP under the relation of ``smooth``. Public: epsilon, gamma, beta, and what
        ``smooth`` documents as public; a beta that depends on the data breaks the guarantee. Float
        draws are simulations.

    References:
        Nissim, Raskhodnikova and Smith (2007), Lemmas 2.6 and 2.7; Gillenwater and Munoz Medina,
        Proposition 3.

    >>> import jax.numpy as jnp
    >>> from dpjax import Clamped, smooth_sensitivity
    >>> smooth = smooth_sensitivity(
    ...     jnp.arange(101.0), 0.5, lower=0, upper=100, neighbors="add_remove"
    ... )
    >>> noisy = smooth_cauchy(smooth, 1.0)
    >>> noisy.scale.item() == smooth.bound.item() / 0.5
    True
    >>> clamped = Clamped.of(noisy, lower=0, upper=100)
    >>> float(noisy.mean_abs_error(50.0)), round(float(clamped.mean_abs_error(50.0)), 2)
    (inf, 3.64)
    """

    def beta() -> jax.Array:
        if calibration == "published":
            return checks.positive("epsilon", epsilon, smooth.dtype) / (2 * (gamma + 1))
        return optimal_beta(epsilon, noise="cauchy", gamma=gamma)

    smooth = smoothed("smooth_cauchy", smooth, beta)
    checks.positive("epsilon", epsilon, smooth.dtype)
    alpha = alpha_of(
        epsilon, beta=smooth.beta, gamma=gamma, calibration=calibration, dtype=smooth.dtype
    )
    return Cauchy(smooth.value, smooth.bound / representable(smooth, alpha), gamma=float(gamma))


def alpha_of(
    epsilon: ArrayLike,
    *,
    beta: ArrayLike,
    gamma: float = 2.0,
    calibration: Calibration = "tight",
    dtype: Any = None,
) -> jax.Array:
    """Return alpha, the remainder of epsilon after beta; the scale of the noise is bound/alpha.

    >>> float(alpha_of(1.0, beta=0.25)), float(alpha_of(3.0, beta=0.5, calibration="published"))
    (0.75, 0.5)
    """
    checks.one_of("calibration", calibration, ("tight", "published"))
    shift, stretch = constants(gamma)

    def alpha(xp: Any, epsilon: Any, beta: Any) -> Any:
        if calibration == "tight":
            return (epsilon - stretch * beta) / shift
        published = epsilon / (2 * (gamma + 1))
        # Tolerates the rounding of beta in float32.
        return xp.where(beta <= published * (1 + 1e-6), published, -beta)

    message = "beta = {1} exhausts epsilon = {0}: choose a smaller beta (see optimal_beta)."
    return checks.remaining(
        message, alpha, epsilon, beta, dtype=jnp.result_type(float) if dtype is None else dtype
    )


def cauchy_tail_bound(
    smooth: SmoothSensitivity | LocalSensitivity, epsilon: ArrayLike, *, failure: ArrayLike
) -> jax.Array:
    """Return the error that the published mechanism exceeds with probability ``failure``.

    It is 6 bound/epsilon tan(pi (1-failure)/2). For gamma = 2 and the published calibration, and so
    for a beta of at most epsilon/6, it is exact, not only a bound (Gillenwater and Munoz Medina,
    Equation 4 and Proposition 7); it grows like 1/failure. It depends on the private data, so it is
    for evaluation only.

    >>> import jax.numpy as jnp
    >>> from dpjax import Clamped, smooth_sensitivity
    >>> smooth = smooth_sensitivity(
    ...     jnp.arange(101.0), 0.1, lower=0, upper=100, neighbors="add_remove"
    ... )
    >>> error = cauchy_tail_bound(smooth, 1.0, failure=0.1)
    >>> round(float(smooth_cauchy(smooth, 1.0, calibration="published").survival(50.0 + error)), 6)
    0.05
    """
    scale = smooth_cauchy(smooth, epsilon, calibration="published").scale
    return scale / jnp.tan(pi / 2 * checks.probability("failure", failure, scale.dtype, below=1.0))
