"""Noisy decisions, shared by the mechanisms that descend a tree.

Each tests whether a query of sensitivity 1 plus noise is positive.
"""

from __future__ import annotations

from math import log
from typing import Any, Literal

import jax
import jax.numpy as jnp

from dpjax import checks
from dpjax.accounting.guarantee import Guarantee

Noise = Literal["laplace", "gaussian"]


def noise_of(epsilon: Any, zcdp: Any) -> tuple[Noise, Any]:
    """Return the noise for a budget, and the budget; raise unless exactly one of them is given."""
    if (epsilon is None) == (zcdp is None):
        raise ValueError(
            "exactly one of epsilon (Laplace noise) and zcdp (Gaussian noise) must be given."
        )
    return ("gaussian", zcdp) if epsilon is None else ("laplace", epsilon)


def noise_scale(noise: Noise, budget: Any, *, rounds: int, dtype: Any) -> jax.Array:
    """Return the noise scale of each of ``rounds`` queries of sensitivity 1.

    It is rounds/epsilon, or sqrt(rounds/(2 zcdp)).
    """
    cost = checks.positive("epsilon" if noise == "laplace" else "zcdp", budget, dtype)
    return rounds / cost if noise == "laplace" else jnp.sqrt(rounds / (2 * cost))


def log_cdf(t: jax.Array, noise: Noise) -> jax.Array:
    """Return log P(noise <= t), for standard noise."""
    if noise == "gaussian":
        # The default of 3 has an error of 4e-9 at 20 deviations.
        return jax.scipy.special.log_ndtr(t, series_order=8)
    return jnp.where(t <= 0, t - log(2), jnp.log1p(-jnp.exp(-jnp.abs(t)) / 2))


def guarantee_of(noise: Noise, budget: float, *, rounds: int, neighbors: str) -> Guarantee:
    """Return the guarantee of ``rounds`` decisions.

    Each is a Laplace query at epsilon/rounds or a Gaussian query at zcdp/rounds.
    """
    cost = checks.concrete_epsilon(budget)
    if noise == "gaussian":
        return Guarantee(neighbors=neighbors, zcdp=cost)
    return Guarantee(cost, 2 * cost, neighbors, zcdp=cost**2 / (2 * rounds))
