"""Laplace noise scaled by smooth sensitivity: (epsilon, delta)-DP.

See Nissim, Raskhodnikova and Smith (2007) and Bun and Steinke (2019). The output is
value + bound/alpha * Z, Z standard Laplace, where bound is beta-smooth and L = log(1/delta):

    alpha + max((e^beta - 1) L - beta, beta) <= epsilon.

Privacy: with scales N and N e^-t, |t| <= beta, and values alpha N e^-t apart, the log-ratio at
value + N z is at most alpha - t + |z| (e^t - 1). This is convex in t: at t = beta and |z| <= L it
is alpha - beta + L (e^beta - 1), at t = -beta it is at most alpha + beta. And |z| > L has
probability delta. The published condition lacks the second case; for delta <= e^-2 the first is the
larger and the two agree.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from dpjax import checks
from dpjax.accounting.guarantee import Guarantee
from dpjax.accounting.mechanism import with_guarantee
from dpjax.distributions.piecewise import PiecewiseExponential
from dpjax.mechanisms._laplace import laplace
from dpjax.mechanisms._optimal_beta import optimal_beta, smoothed
from dpjax.mechanisms.relations import approximate
from dpjax.sensitivity.local import LocalSensitivity, SmoothSensitivity, representable


def guarantee(
    smooth: SmoothSensitivity | LocalSensitivity | str, epsilon: float, *, delta: float
) -> Guarantee:
    """Return the guarantee of one draw of :func:`smooth_laplace`.

    >>> print(smooth_laplace.guarantee("swap", 1.0, delta=1e-6))
    (1, 1e-06)-DP under swap neighbors
    """
    return approximate(smooth, epsilon, delta)


@with_guarantee(guarantee)
def smooth_laplace(
    smooth: SmoothSensitivity | LocalSensitivity, epsilon: ArrayLike, *, delta: ArrayLike
) -> PiecewiseExponential:
    """Return the distribution of ``value + bound/alpha * Z`` with Z standard Laplace.

    Args:
        smooth: the statistic and its smooth sensitivity, of batch shape ``(...)``, whose beta uses
            a part of epsilon. Or its local sensitivity, which is smoothed at the beta of
            :func:`optimal_beta`.
        epsilon: positive.
        delta: in (0, 1).

    Returns:
        A :class:`PiecewiseExponential` of two tails. Use :class:`Clamped` to restrict the range
        (post-processing).

    Raises:
        ValueError: beta exhausts epsilon.

    Privacy:
        (epsilon, delta)-DP under the relation of ``smooth``; not tight: at delta = 1e-3 an exact
        analysis would allow an alpha 1.4 to 1.9 times larger. Public: epsilon, delta, beta, and
        what ``smooth`` documents as public; a beta that depends on the data breaks the guarantee.
        Float draws are simulations.

    References:
        Bun and Steinke (2019), Theorem 34; Gillenwater and Munoz Medina, Proposition 2 (its "-
        beta" is correct).

    >>> import jax.numpy as jnp
    >>> from dpjax.statistics import smooth_sensitivity
    >>> smooth = smooth_sensitivity(
    ...     jnp.arange(101.0), 0.1, lower=0, upper=100, neighbors="add_remove"
    ... )
    >>> distribution = smooth_laplace(smooth, 1.0, delta=1e-3)
    >>> scale = smooth.bound / alpha_of(1.0, beta=0.1, delta=1e-3)
    >>> bool(jnp.isclose(distribution.mean_abs_error(50.0), scale))
    True
    """
    smooth = smoothed(
        "smooth_laplace", smooth, lambda: optimal_beta(epsilon, noise="laplace", delta=delta)
    )
    checks.positive("epsilon", epsilon, smooth.dtype)
    alpha = alpha_of(epsilon, beta=smooth.beta, delta=delta, dtype=smooth.dtype)
    return laplace(smooth.value, representable(smooth, alpha), sensitivity=smooth.bound)


def alpha_of(
    epsilon: ArrayLike, *, beta: ArrayLike, delta: ArrayLike, dtype: Any = None
) -> jax.Array:
    """Return alpha, the remainder of epsilon after beta; the scale of the noise is bound/alpha.

    >>> round(float(alpha_of(1.0, beta=0.1, delta=1e-3)), 4)
    0.3735
    """
    kind = jnp.result_type(float) if dtype is None else dtype
    failure = checks.probability("delta", delta, kind, below=1.0)

    def alpha(xp: Any, epsilon: Any, beta: Any, delta: Any) -> Any:
        return epsilon - xp.maximum(-xp.expm1(beta) * xp.log(delta) - beta, beta)

    message = (
        "beta = {1} exhausts epsilon = {0} at delta = {2}: choose a smaller beta (see "
        "optimal_beta)."
    )
    return checks.remaining(
        message,
        alpha,
        epsilon,
        beta,
        failure if isinstance(delta, jax.Array) else delta,
        dtype=kind,
    )
