"""Laplace-log-normal noise scaled by smooth sensitivity (Bun and Steinke 2019): concentrated DP.

The output is value + bound/s * X e^(sigma Y), X standard Laplace, Y standard normal, bound
beta-smooth:

    sqrt(2 rho) = beta/sigma + e^(3 sigma^2 / 2) s    for rho-zCDP.

Privacy: Theorem 4 of the paper, by Renyi divergences; a shift costs e^(3 sigma^2 / 2) s, a stretch
beta/sigma. The paper writes "epsilon^2/2-concentrated" for rho = epsilon^2/2. Numerical divergences
are 0.1 to 0.9 of the bound, the most for a small sigma: it is valid, and loose where sigma is not
small.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from dpjax import checks
from dpjax.accounting.guarantee import Guarantee
from dpjax.accounting.mechanism import with_guarantee
from dpjax.distributions.laplace_log_normal import LaplaceLogNormal
from dpjax.mechanisms._optimal_beta import best_for_dense_data, smoothed
from dpjax.mechanisms.relations import relation_of
from dpjax.sensitivity.local import LocalSensitivity, SmoothSensitivity, representable


def guarantee(smooth: SmoothSensitivity | LocalSensitivity | str, zcdp: float) -> Guarantee:
    """Return the zCDP guarantee of one draw of :func:`smooth_laplace_log_normal`.

    If ``zcdp`` was computed by :func:`dpjax.accounting.zcdp_of` from an epsilon and a delta, it
    implies these.

    >>> print(smooth_laplace_log_normal.guarantee("swap", 0.1))
    0.1-zCDP under swap neighbors
    """
    return Guarantee(neighbors=relation_of(smooth), zcdp=checks.concrete_epsilon(zcdp))


@with_guarantee(guarantee)
def smooth_laplace_log_normal(
    smooth: SmoothSensitivity | LocalSensitivity, zcdp: ArrayLike, *, sigma: ArrayLike
) -> LaplaceLogNormal:
    """Return the distribution of ``value + bound/s * X e^(sigma Y)``.

    Args:
        smooth: the statistic and its smooth sensitivity, of batch shape ``(...)``, whose beta uses
            a part of the budget. Or its local sensitivity, which is smoothed at the optimal beta
            for dense data at this sigma.
        zcdp: positive, rho. For an epsilon and a delta, use :func:`dpjax.accounting.zcdp_of`.
        sigma: positive, above beta / sqrt(2 rho), chosen without the data (see
            :func:`optimal_sigma`).

    Returns:
        A :class:`LaplaceLogNormal`. Use :class:`Clamped` to restrict the range (post-processing).

    Raises:
        ValueError: beta exhausts the budget. Where a parameter is a JAX array, that row is NaN
            instead.

    Privacy:
        rho-zCDP under the relation of ``smooth``. Public: rho, sigma, beta, and what ``smooth``
        documents as public; a beta or sigma that depends on the data breaks the guarantee. Float
        draws are simulations.

    References:
        Bun and Steinke (2019), Section 3; Gillenwater and Munoz Medina, Section 6 (where sigma is
        counted twice).

    >>> import jax.numpy as jnp
    >>> from dpjax.statistics import smooth_sensitivity
    >>> smooth = smooth_sensitivity(
    ...     jnp.arange(101.0), 0.1, lower=0, upper=100, neighbors="add_remove"
    ... )
    >>> distribution = smooth_laplace_log_normal(smooth, 0.5, sigma=0.3)
    >>> round(float(distribution.scale * (1 - 0.1 / 0.3) / jnp.exp(1.5 * 0.3**2) / smooth.bound), 5)
    1.0
    """

    def beta() -> jax.Array:
        budget, spread = (
            checks.positive("zcdp", zcdp, smooth.dtype),
            checks.positive("sigma", sigma, smooth.dtype),
        )
        return best_for_dense_data(jnp.sqrt(2 * budget), 1 / spread)

    smooth = smoothed("smooth_laplace_log_normal", smooth, beta)
    checks.positive("zcdp", zcdp, smooth.dtype)
    spread = checks.positive("sigma", sigma, smooth.dtype)

    def s(xp: Any, zcdp: Any, beta: Any, sigma: Any) -> Any:
        return (xp.sqrt(2 * zcdp) - beta / sigma) * xp.exp(-1.5 * xp.square(sigma))

    message = (
        "beta = {1} exhausts zcdp = {0} at sigma = {2}: choose a smaller beta or a larger sigma."
    )
    rate = representable(
        smooth, checks.remaining(message, s, zcdp, smooth.beta, sigma, dtype=smooth.dtype)
    )
    return LaplaceLogNormal(smooth.value, smooth.bound / rate, spread)


def optimal_sigma(zcdp: ArrayLike, *, beta: ArrayLike) -> jax.Array:
    """Return the sigma with the smallest mean absolute error.

    It is the root of 4 c sigma^3 = beta (4 sigma^2 + 1), c = sqrt(2 rho).

    Args:
        zcdp: positive ``(...)``, rho.
        beta: positive.

    Returns:
        Float of the broadcast shape, above beta/c, so that some of the budget remains for the
        noise.

    Privacy:
        No privacy is spent: it is a function of public numbers.

    References:
        Bun and Steinke (2019), Section 3.2, with 5 in place of 4, as they minimize the variance.

    >>> round(float(optimal_sigma(0.5, beta=0.1)), 4)
    0.3298
    """
    dtype = checks.float_dtype(zcdp)
    least = checks.positive("beta", beta, dtype) / jnp.sqrt(
        2 * checks.positive("zcdp", zcdp, dtype)
    )
    # Above the root, where the cubic is convex: Newton's method decreases to it.
    sigma = least + jnp.cbrt(least / 4)
    for _ in range(8):
        cubic = 4 * jnp.square(sigma) * (sigma - least) - least
        sigma = sigma - cubic / (12 * jnp.square(sigma) - 8 * least * sigma)
    return sigma
