"""Batch axes: all axes but the last one (or, for parameters, all axes).

Outside ``jit`` a helper is compiled as one program; inside, it becomes part of the caller's
program.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import prod
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dpjax.numerics import host_call


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
    offset = index.ndim - 1 - leading
    rows = [
        jax.lax.broadcasted_iota(jnp.int32, index.shape, offset + axis)
        if array.shape[axis] > 1
        else jnp.zeros_like(index)
        for axis in range(leading)
    ]
    return array.at[(*rows, index)].get(mode="promise_in_bounds")


def window(array: jax.Array, start: Any, size: int) -> jax.Array:
    """Return ``size`` entries of the last axis from ``start`` on; ``start`` may be traced."""
    if isinstance(start, int):
        return jax.lax.slice_in_dim(array, start, start + size, axis=-1)
    return jax.lax.dynamic_slice_in_dim(array, start, size, axis=-1)


def in_memory(always: jax.Array, compute: Callable[[], Any], instead: Any = None) -> Any:
    """Return ``compute()``, materialized on the CPU.

    There, its arrays are results of a ``cond`` that always holds. XLA's CPU compiler would
    otherwise fuse gathers with the operations that use them, and run these without vectorization.
    On other devices there is no ``cond``, as the host would wait for each.

    Args:
        always: a traced bool that is true.
        compute: a function without arguments that returns a pytree of arrays.
        instead: arrays of the same shapes and dtypes for the other branch, by default zeros.
    """
    shapes: list[Any] = []

    def once() -> Any:
        found = compute()
        shapes.append(jax.tree.map(lambda a: jax.ShapeDtypeStruct(a.shape, a.dtype), found))
        return found

    def never() -> Any:  # traced after ``once``
        if instead is not None:
            return instead
        return jax.tree.map(lambda a: jnp.zeros(a.shape, a.dtype), shapes[-1])

    return by_platform(cpu=lambda: jax.lax.cond(always, once, never), default=compute)


def materialized(compute: Callable[[], Any], always: jax.Array) -> Any:
    """Return ``compute()`` from a condition that always holds.

    XLA's CPU compiler would otherwise fuse gathers with the operations that use them, and run these
    one number at a time. ``always`` is a traced bool that is true.
    """
    shapes = jax.eval_shape(compute)
    return jax.lax.cond(
        always, compute, lambda: jax.tree.map(lambda a: jnp.zeros(a.shape, a.dtype), shapes)
    )


def by_platform(*arrays: Any, cpu: Callable[..., Any], default: Callable[..., Any]) -> Any:
    """Return ``cpu(*arrays)`` on the CPU, and ``default(*arrays)`` elsewhere.

    The two must be equivalent. The device that a program is lowered for decides. If it can only be
    the CPU (:func:`runs_on_cpu`), ``default`` is not traced.
    """
    if runs_on_cpu():
        return cpu(*arrays)
    return jax.lax.platform_dependent(*arrays, cpu=cpu, default=default)


def runs_on_cpu() -> bool:
    """Return whether the program that is being traced can only run on the CPU.

    This holds on a machine without an accelerator, except for exported programs
    (:func:`dpjax.numerics.host_call.without_host_calls`), which may run on any device.
    """
    return host_call.allowed() and jax.default_backend() == "cpu"


def some_rows(
    tree: Any, batch: tuple[int, ...], start: Any, size: int, always: jax.Array | None = None
) -> Any:
    """Return rows ``start`` to ``start + size`` of the flattened batch.

    The argument is a pytree of arrays ``(*batch, k)``, and the results have the shape
    ``(size, k)``, or ``(1, k)`` for an array that all rows share by broadcasting. With ``always``,
    the arrays are materialized on the CPU (see :func:`in_memory`).
    """
    rows = prod(batch)
    leaves, structure = jax.tree.flatten(tree)
    shared = [
        leaf.reshape(1, leaf.shape[-1]) if prod(leaf.shape[:-1]) == 1 else None for leaf in leaves
    ]

    def some(leaf: jax.Array) -> jax.Array:
        leading = leaf.shape[:-1]
        flat = leaf.reshape(prod(leading), leaf.shape[-1])
        if flat.shape[0] == rows:
            return jax.lax.dynamic_slice_in_dim(flat, start, size)
        index = jnp.broadcast_to(
            jnp.arange(flat.shape[0], dtype=jnp.int32).reshape(leading), batch
        ).reshape(-1)
        return flat[jax.lax.dynamic_slice_in_dim(index, start, size)]

    def read() -> list[jax.Array]:
        return [some(leaf) for leaf, whole in zip(leaves, shared, strict=True) if whole is None]

    others = iter(read() if always is None else in_memory(always, read))
    return jax.tree.unflatten(
        structure, [next(others) if whole is None else whole for whole in shared]
    )


def by_chunks(
    compute: Callable[[Any, int], Any], rows: int, size: int, elsewhere: int | None = None
) -> Any:
    """Compute rows in chunks and join them, with one small program for any number of rows.

    Args:
        compute: a function of ``start`` and ``size`` that returns a pytree of arrays of ``size``
            rows.
        rows: the total number of rows.
        size: the number of rows of a chunk on the CPU, small enough for the cache.
        elsewhere: the same on other devices, which launch a kernel for every step of every chunk;
            by default 16 times as large.
    """
    elsewhere = min(rows, 16 * size) if elsewhere is None else elsewhere
    if size >= rows:
        return compute(0, rows)
    return by_platform(
        cpu=lambda: _chunks(compute, rows, size), default=lambda: _chunks(compute, rows, elsewhere)
    )


def _chunks(compute: Callable[[Any, int], Any], rows: int, size: int) -> Any:
    if size >= rows:
        return compute(0, rows)
    # The last two chunks may overlap
    starts = np.minimum(np.arange(0, rows, size, dtype=np.int32), np.int32(rows - size))
    rest = rows - (len(starts) - 1) * size

    def join(found: jax.Array) -> jax.Array:
        return jnp.concatenate([found[:-1].reshape(-1, *found.shape[2:]), found[-1, size - rest :]])

    return jax.tree.map(join, jax.lax.map(lambda start: compute(start, size), jnp.asarray(starts)))


def fits_into(batch: tuple[int, ...], of: str, **public: tuple[int, ...]) -> None:
    """Raise ``ValueError`` if a public parameter does not broadcast to the shape ``batch``.

    The parameters are those of an object ``of`` that they cannot enlarge.
    """
    for name, shape in public.items():
        try:
            fitting = jnp.broadcast_shapes(batch, shape) == batch
        except ValueError:
            fitting = False
        if not fitting:
            raise ValueError(
                f"{name} of shape {shape} does not broadcast to the shape {batch} of {of}."
            )


def fits(batch: tuple[int, ...], **public: tuple[int, ...]) -> None:
    """Raise ``ValueError`` if a public parameter does not broadcast against the batch."""
    for name, shape in public.items():
        try:
            jnp.broadcast_shapes(batch, shape)
        except ValueError:
            raise ValueError(
                f"{name} of shape {shape} does not broadcast against the batch {batch}: for a "
                f"sweep write {name}[:, None]."
            ) from None
