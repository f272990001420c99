"""Public numbers that follow from other public numbers, in the tiers of ``dpjax.parameters``."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from dpjax import parameters
from dpjax.shapes import align


def left_over(message: str, rest: Callable[..., Any], *public: ArrayLike, dtype: Any) -> jax.Array:
    """Return ``rest(xp, *public)``, which must be positive, for ``xp`` NumPy or JAX.

    If all public values are Python or NumPy numbers, it raises where nothing is left; otherwise those rows are NaN.

    Args:
        message: what to say then, with a ``{}`` for each public value and for the rest.
        rest: the computation.
        public: numbers that broadcast against each other.
        dtype: of the result.
    """
    if any(isinstance(value, jax.Array) for value in public):
        arrays = [jnp.asarray(value).astype(dtype) for value in public]
        rank = max(array.ndim for array in arrays)
        value = rest(jnp, *(align(array, rank) for array in arrays))
        return jnp.where(value > 0, value, jnp.nan)
    with np.errstate(all="ignore"):
        concrete = rest(np, *(np.asarray(value, np.float64) for value in public))
    if not np.all(concrete > 0):
        raise ValueError(message.format(*public, concrete))
    return jnp.asarray(concrete, dtype)


def probability(name: str, value: ArrayLike, dtype: Any, *, below: float) -> jax.Array:
    """Return a public probability strictly between 0 and ``below`` (see the tiers of ``dpjax.parameters``)."""
    if isinstance(value, jax.Array):
        array = parameters.positive(name, value, dtype)
        return jnp.where(array < below, array, jnp.nan)
    if not np.all(np.asarray(value) < below):
        raise ValueError(f"{name} must be positive and below {below:g}, got {value}.")
    return parameters.positive(name, value, dtype)
