"""From one notion of privacy to another."""

from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from dpjax import parameters
from dpjax.shapes import align

_POINTS, _ROUNDS = 65, 7  # of the search for the best order of a Renyi divergence: any order is valid


def zcdp_of(epsilon: ArrayLike, *, delta: ArrayLike, conversion: Literal["tight", "classical"] = "tight") -> jax.Array:
    """Return a rho such that rho-zCDP implies (epsilon, delta)-DP.

    Args:
        epsilon: positive ``(...)``.
        delta: in (0, 1); broadcasts against epsilon.
        conversion: ``"tight"``, the default: the best order of the Renyi divergence, delta =
            e^((a-1)(a rho - epsilon)) (1 - 1/a)^a / (a - 1); ``"classical"``: epsilon = rho + 2 sqrt(rho log(1/delta)), which the
            published baseline used.

    Returns:
        Float of the broadcast shape.

    Raises:
        ValueError: a bad ``epsilon``, ``delta`` or ``conversion``.

    References:
        Bun and Steinke (2016), Proposition 1.3; Canonne, Kamath and Steinke (2020), Corollary 13.

    >>> round(float((2 * zcdp_of(1.0, delta=1e-3)) ** 0.5), 4)
    0.3446
    """
    parameters.one_of("conversion", conversion, ("tight", "classical"))
    dtype = epsilon.dtype if isinstance(epsilon, jax.Array) else jnp.result_type(float)
    budget, failure = parameters.positive("epsilon", epsilon, dtype), parameters.probability("delta", delta, dtype, below=1.0)
    rank = max(budget.ndim, failure.ndim)
    budget, nats = align(budget, rank), -jnp.log(align(failure, rank))
    classical = jnp.square(budget / (jnp.sqrt(nats + budget) + jnp.sqrt(nats)))
    return classical if conversion == "classical" else jnp.maximum(classical, _tight(budget, nats))


@jax.jit
def _tight(epsilon: jax.Array, nats: jax.Array) -> jax.Array:
    rank, dtype = epsilon.ndim, epsilon.dtype

    def rho(order: jax.Array) -> jax.Array:
        """The rho of an order a, from log(a - 1): the equation solved for it."""
        above = jnp.exp(order)
        a = 1 + above
        return (epsilon[..., None] + (order - nats[..., None] + a * jnp.log1p(jnp.exp(-order))) / above) / a

    fractions = jnp.asarray(np.linspace(-1, 1, _POINTS), dtype).reshape((1,) * rank + (-1,))
    shape = jnp.broadcast_shapes(epsilon.shape, nats.shape)

    def closer(_: int, search: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        center, reach = search
        orders = center + reach * fractions
        best = jnp.argmax(rho(orders), axis=-1, keepdims=True)
        return jnp.take_along_axis(orders, best, axis=-1), reach * (4 / _POINTS)

    start = jnp.full((*shape, 1), 12.0, dtype), jnp.asarray(20.0, dtype)
    center, _ = jax.lax.stop_gradient(jax.lax.fori_loop(0, _ROUNDS, closer, start))
    return rho(center)[..., 0]
