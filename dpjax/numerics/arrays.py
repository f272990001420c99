"""Arrays with batch axes: all axes but the last one (or, for parameters, all axes).

Outside ``jit`` a helper is compiled as one program; inside, it becomes part of the caller's
program.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dpjax.numerics import host_call


def integers(*ends: int) -> np.ndarray:
    """Return ``np.arange(*ends)`` in int32, the dtype of indices and ranks, with x64 or without."""
    return np.arange(*ends, dtype=np.int32)


@partial(jax.jit, inline=True)
def concatenate(*arrays: jax.Array) -> jax.Array:
    """Join arrays along the last axis, broadcasting their leading axes.

    These may be of any rank.
    """
    batch = jnp.broadcast_shapes(*(array.shape[:-1] for array in arrays))
    return jnp.concatenate([broadcast_rows(array, batch) for array in arrays], axis=-1)


@partial(jax.jit, inline=True, static_argnames="batch")
def broadcast_rows(array: jax.Array, batch: tuple[int, ...]) -> jax.Array:
    """Broadcast the leading axes to ``batch`` and keep the last axis."""
    return jnp.broadcast_to(array, (*batch, array.shape[-1]))


@partial(jax.jit, inline=True)
def take(array: jax.Array, index: jax.Array) -> jax.Array:
    """Return ``array[..., index]`` for indices ``(*batch, j)``, in bounds.

    The leading axes of the array broadcast to ``batch``, without a copy.
    """
    leading = array.ndim - 1
    batch = jnp.broadcast_shapes(array.shape[:-1], index.shape[:-1])
    index = jnp.broadcast_to(index, (*batch, index.shape[-1]))
    offset = len(batch) - leading
    rows = [
        jax.lax.broadcasted_iota(jnp.int32, index.shape, offset + axis)
        if array.shape[axis] > 1
        else jnp.zeros_like(index)
        for axis in range(leading)
    ]
    return array.at[(*rows, index)].get(mode="promise_in_bounds")


def materialized(compute: Callable[[], Any], always: jax.Array) -> Any:
    """Return ``compute()``, on the CPU from a condition that always holds.

    XLA's CPU compiler would otherwise fuse gathers with the operations that use them, and run these
    one number at a time. ``always`` is a traced bool that is true.
    """

    def conditionally() -> Any:
        nothing = jax.tree.map(lambda a: jnp.zeros(a.shape, a.dtype), jax.eval_shape(compute))
        return jax.lax.cond(always, compute, lambda: varying(nothing, always))

    return by_platform(cpu=conditionally, default=compute)


def varying(arrays: Any, holds: jax.Array) -> Any:
    """Return the arrays; inside ``jax.shard_map`` they vary over the same axes as a test does.

    Loops and conditions need that of what they carry.
    """
    return jax.tree.map(lambda array: jnp.where(holds, array, array), arrays)


def by_platform(*arrays: Any, cpu: Callable[..., Any], default: Callable[..., Any]) -> Any:
    """Return ``cpu(*arrays)`` on the CPU, and ``default(*arrays)`` elsewhere.

    The device that a program is lowered for decides. If it can only be the CPU (on a machine
    without an accelerator, outside :func:`dpjax.numerics.host_call.without_host_calls`),
    ``default`` is not traced.
    """
    if host_call.allowed() and jax.default_backend() == "cpu":
        return cpu(*arrays)
    return jax.lax.platform_dependent(*arrays, cpu=cpu, default=default)


def fits(batch: tuple[int, ...], enlarge: bool = True, /, **public: tuple[int, ...]) -> None:
    """Raise ``ValueError`` if a public parameter does not broadcast against the batch.

    Nor may it have more rows than the batch, unless it may ``enlarge`` the batch.
    """
    for name, shape in public.items():
        try:
            fitting = jnp.broadcast_shapes(batch, shape) == batch or enlarge
        except ValueError:
            fitting = False
        if not fitting:
            raise ValueError(
                f"{name} of shape {shape} does not broadcast against the batch {batch}: for a "
                f"sweep write {name}[:, None]."
            )
