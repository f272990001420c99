"""Running combinations of values in segments whose bits do not depend on the padding or on further rows."""

from collections.abc import Callable

import jax
import jax.numpy as jnp


def running(values: jax.Array, place: jax.Array, combine: Callable[[jax.Array, jax.Array], jax.Array]) -> jax.Array:
    """Combine every value with all before it in its segment, where ``place`` counts from 0 in each segment.

    Written out in pairs (Hillis and Steele 1986) whose order depends on the place only: XLA's own cumulative sum changes in its
    last bits with the padding and with further rows.
    """
    distance = 1
    while distance < values.shape[-1]:
        before = jnp.concatenate([jnp.zeros_like(values[..., :distance]), values[..., :-distance]], axis=-1)
        values = jnp.where(place >= distance, combine(values, before), values)
        distance *= 2
    return values
