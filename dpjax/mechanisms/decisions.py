"""Noisy decisions: whether a query of sensitivity 1 plus noise is above zero; shared by the mechanisms that walk down a tree."""

from math import inf, log
from typing import Any, Literal

import jax
import jax.numpy as jnp

from dpjax import checks
from dpjax.accounting.guarantee import Guarantee

Noise = Literal["laplace", "gaussian"]


def noise_of(epsilon: Any, zcdp: Any) -> tuple[Noise, Any]:
    """Return the noise that a budget asks for, and the budget; raise if it is not exactly one of the two."""
    if (epsilon is None) == (zcdp is None):
        raise ValueError("give epsilon (Laplace noise) or zcdp (Gaussian noise): exactly one of them.")
    return ("gaussian", zcdp) if epsilon is None else ("laplace", epsilon)


def noise_scale(noise: Noise, budget: Any, *, rounds: int, dtype: Any) -> jax.Array:
    """Return the scale of the noise of each of so many queries of sensitivity 1: rounds/epsilon, or sqrt(rounds/(2 zcdp))."""
    cost = checks.positive("epsilon" if noise == "laplace" else "zcdp", budget, dtype)
    return rounds / cost if noise == "laplace" else jnp.sqrt(rounds / (2 * cost))


def log_cdf(t: jax.Array, noise: Noise) -> jax.Array:
    """Log P(noise <= t), for standard noise."""
    if noise == "gaussian":
        return jax.scipy.special.log_ndtr(t, series_order=8)  # the default 3 is off by 4e-9 at 20 deviations
    return jnp.where(t <= 0, t - log(2), jnp.log1p(-jnp.exp(-jnp.abs(t)) / 2))


def guarantee_of(noise: Noise, budget: float, *, rounds: int, neighbors: str) -> Guarantee:
    """Return what so many decisions cost, each a Laplace query at epsilon/rounds or a Gaussian one at zcdp/rounds."""
    cost = checks.concrete_epsilon(budget)
    if noise == "gaussian":
        return Guarantee(inf, inf, neighbors, zcdp=cost)
    return Guarantee(cost, 2 * cost, neighbors, zcdp=cost**2 / (2 * rounds))
