"""Distributions of one size, for one compiled program to serve many of them."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np

from dpjax import PiecewiseExponential, Rounded


def of_one_size(distribution, pieces=32, batch=None):
    """One on the line with pieces without width at its upper end, all fields of one
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

    fields = {
        "edges": wide(distribution.edges, pieces + 1),
        "cost_left": wide(distribution.cost_left, pieces),
        "cost_right": wide(distribution.cost_right, pieces),
        "rate": strong(xp.broadcast_to(distribution.rate, batch)),
    }
    if isinstance(distribution, PiecewiseExponential):
        fields["tails"] = jax.tree.map(
            lambda value: strong(xp.broadcast_to(value, batch)), distribution.tails
        )
    return replace(distribution, **fields)


def strong(value):
    """With a dtype that is no Python number's: programs are shared by types."""
    if isinstance(value, np.ndarray):
        return jnp.asarray(value)
    return jax.lax.convert_element_type(value, value.dtype)
