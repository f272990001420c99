"""Distributions of one size, for one compiled program to serve many of them."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np

from dpjax import PiecewiseExponential, Rounded


def of_one_size(distribution, pieces=16, batch=None):
    """One on the line with pieces without width at the far ends of its sides, all fields of one
    batch; others as they are.

    Outside of a trace that is made in NumPy: each shape would be a few programs.
    """
    if not isinstance(distribution, PiecewiseExponential | Rounded):
        return distribution
    traced = any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves(distribution))
    xp = jnp if traced else np
    if not traced:
        distribution = jax.tree.map(np.asarray, distribution)
    batch = distribution.batch_shape if batch is None else batch

    def wide(values, size):
        missing = [(0, 0)] * (values.ndim - 1) + [(0, size - values.shape[-1])]
        values = xp.pad(values, missing, mode="edge" if values.shape[-1] else "constant")
        return strong(xp.broadcast_to(values, (*batch, size)))

    def of_side(side):
        near, far = wide(side.cost_near, pieces), wide(side.cost_far, pieces)
        return replace(side, values=wide(side.values, pieces + 1), cost_near=near, cost_far=far)

    lower, upper = of_side(distribution.lower), of_side(distribution.upper)
    if isinstance(distribution, Rounded):
        return replace(
            distribution,
            lower=lower,
            upper=upper,
            rate=strong(xp.broadcast_to(distribution.rate, batch)),
        )
    rate, tails = jax.tree.map(
        lambda value: strong(xp.broadcast_to(value, batch)), (distribution.rate, distribution.tails)
    )
    return PiecewiseExponential.from_sides(lower, upper, rate, tails)


def strong(value):
    """With a dtype that is no Python number's: programs are shared by types."""
    if isinstance(value, np.ndarray):
        return jnp.asarray(value)
    return jax.lax.convert_element_type(value, value.dtype)
