"""Shortest paths between all elements of a universe, on the device."""

from __future__ import annotations

import jax
import jax.numpy as jnp


@jax.jit
def shortest_paths(lengths: jax.Array) -> jax.Array:
    """Return the lengths of the shortest paths between all pairs (Floyd 1962, Algorithm 97).

    It takes N steps of N x N sums.

    Args:
        lengths: float ``(..., N, N)``, nonnegative, ``inf`` where there is no edge.

    Returns:
        Float ``(..., N, N)``, never above ``lengths``; ``inf`` between elements that no path
        connects. NaN spreads within its batch element. The result is exactly symmetric if
        ``lengths`` are. The derivative keeps all N intermediate matrices.

    >>> import jax.numpy as jnp
    >>> shortest_paths(jnp.array([[0.0, 1.0, 5.0], [1.0, 0.0, 2.0], [5.0, 2.0, 0.0]]))[0].tolist()
    [0.0, 1.0, 3.0]
    """

    def through(k: jax.Array, shortest: jax.Array) -> jax.Array:
        return jnp.minimum(shortest, detours(shortest, k))

    return jax.lax.fori_loop(0, lengths.shape[-1], through, lengths)


def detours(lengths: jax.Array, k: jax.Array) -> jax.Array:
    """Return the lengths of the paths i, k, j: ``(..., N, N)``."""
    return jax.lax.dynamic_index_in_dim(lengths, k, axis=-1) + jax.lax.dynamic_index_in_dim(
        lengths, k, axis=-2
    )
