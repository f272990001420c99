"""Computation in float64 inside a float32 program."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np


def in_float64(compute: Callable[..., Any], *arrays: Any) -> Any:
    """Return ``compute(*arrays)`` in float64, its floats rounded to the dtype of the first array.

    The derivative is that of ``compute`` in the dtype of the arrays: JAX transposes a gather
    outside of ``jax.enable_x64``, where it has no float64.

    Args:
        compute: a function of arrays of any float dtype, which closes over nothing that is traced.
            Integers that it makes must have a dtype, as others have 64 bits.
        arrays: the first one is a float; integers and bools are passed on as they are.
    """
    dtype = arrays[0].dtype

    def cast(to: Any) -> Callable[[Any], Any]:
        return lambda array: (
            array.astype(to) if jnp.issubdtype(array.dtype, jnp.floating) else array
        )

    @jax.custom_jvp
    def wide(*arrays: Any) -> Any:
        with jax.enable_x64(True):
            return jax.tree.map(cast(dtype), compute(*jax.tree.map(cast(jnp.float64), arrays)))

    wide.defjvp(lambda primals, tangents: (wide(*primals), jax.jvp(compute, primals, tangents)[1]))
    return wide(*arrays)


class Exact(NamedTuple):
    """A float64 number in a float32 program: the nearest float and the rest."""

    value: jax.Array
    rest: jax.Array


def exactly(compute: Callable[..., jax.Array], *arrays: Any) -> Exact:
    """Return ``compute(*arrays)`` in float64, without rounding; see :func:`in_float64`."""
    dtype = arrays[0].dtype

    def both(*arrays: Any) -> tuple[jax.Array, jax.Array]:
        found = compute(*arrays)
        value = found.astype(dtype).astype(found.dtype)
        return value, jnp.where(jnp.isfinite(value), found - value, 0.0)

    return Exact(*in_float64(both, *arrays))


def split(numbers: np.ndarray, dtype: Any) -> Exact:
    """Convert NumPy float64; numbers beyond the range of ``dtype`` become infinite."""
    with np.errstate(over="ignore", invalid="ignore"):
        value = numbers.astype(dtype)
        rest = np.where(np.isfinite(value), numbers - value, 0.0).astype(dtype)
    # device_put compiles no program per shape; no other code holds these arrays
    return Exact(jax.device_put(value), jax.device_put(rest))
