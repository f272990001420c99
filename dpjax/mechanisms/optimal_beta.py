"""A good beta without a look at the data, for the three noises on smooth sensitivity."""

from __future__ import annotations

from typing import Literal

import jax
from jax.typing import ArrayLike

from dpjax import checks
from dpjax.accounting.conversions import zcdp_of
from dpjax.mechanisms import smooth_cauchy, smooth_laplace, smooth_laplace_log_normal
from dpjax.numerics.batching import align

Noise = Literal["cauchy", "laplace", "laplace_log_normal"]


def optimal_beta(epsilon: ArrayLike, *, noise: Noise, delta: ArrayLike | None = None, gamma: float = 2.0) -> jax.Array:
    """Return the beta that is best for dense data, where A_k = (k + 1) A_0.

    There the smooth sensitivity is close to A_0 e^(beta - 1) / beta, and the scale of the noise that divided by alpha: its minimum
    depends on public numbers only. It is capped at log 2, from where on dense data have no further gain.

    Args:
        epsilon: positive ``(...)``.
        noise: ``"cauchy"``, ``"laplace"`` or ``"laplace_log_normal"`` (with the tight conversion to zCDP and
            :func:`optimal_sigma`).
        delta: in (0, 1); broadcasts against epsilon; not for ``"cauchy"``.
        gamma: for ``"cauchy"``: static, above 1.

    Returns:
        Float of the broadcast shape.

    Raises:
        ValueError: a bad parameter; a ``delta`` for ``"cauchy"``, or none for the others.

    Privacy:
        A function of public numbers only. The published baselines minimise bound/alpha on the private data instead, and their
        guarantee then does not hold; nothing in this library does that.

    References:
        Gillenwater and Munoz Medina, Section 6, for what is avoided here.

    >>> round(float(optimal_beta(1.0, noise="cauchy")), 4), round(float(optimal_beta(1.0, noise="laplace", delta=1e-3)), 4)
    (0.382, 0.076)
    """
    checks.one_of("noise", noise, ("cauchy", "laplace", "laplace_log_normal"))
    if (delta is None) != (noise == "cauchy"):
        raise ValueError(f"delta is for the noises that need one, and only for them: got delta={delta} for {noise!r}.")
    dtype = checks.float_dtype(epsilon)
    budget = checks.positive("epsilon", epsilon, dtype)
    if delta is None:
        return smooth_cauchy.optimal_beta(budget, gamma)
    if noise == "laplace":
        failure = checks.probability("delta", delta, dtype, below=1.0)
        rank = max(budget.ndim, failure.ndim)
        return smooth_laplace.optimal_beta(align(budget, rank), align(failure, rank))
    return smooth_laplace_log_normal.optimal_beta(zcdp_of(epsilon, delta=delta))
