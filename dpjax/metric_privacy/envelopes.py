"""The two envelopes of a function under a metric (McShane 1934), and the function nearest to it within the budgets."""

import jax
import jax.numpy as jnp


def nearest_function(values: jax.Array, reach: jax.Array, budgets: jax.Array) -> jax.Array:
    """Return the function nearest to values ``(..., N)``, in the sup norm, whose differences are at most ``reach``.

        (min over j of (q_j + reach_ij) + max over j of (q_j - reach_ij)) / 2

    ``reach`` ``(..., N, N)`` has the triangle inequality. Elements with ``budgets`` of 0 between them share one value exactly,
    however their rows were rounded.
    """
    above = jnp.min(values[..., None, :] + reach, axis=-1)
    below = jnp.max(values[..., None, :] - reach, axis=-1)
    first = jnp.argmax(budgets == 0, axis=-1).astype(jnp.int32)
    both = (above + below) / 2
    return jnp.take_along_axis(both, jnp.broadcast_to(first, both.shape), axis=-1)


def allowed(c: jax.Array, budgets: jax.Array) -> jax.Array:
    """Return c d; ``inf`` where d is, for c = 0 too."""
    return jnp.where(budgets == jnp.inf, jnp.inf, c * jnp.where(budgets == jnp.inf, 0.0, budgets))
