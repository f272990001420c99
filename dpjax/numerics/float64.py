"""Computation in float64 inside a float32 program."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp


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
