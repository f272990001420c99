"""Rows of a batch on several devices, by ``NamedSharding`` and plain ``jit``.

The random words of a row are counted from its own index, so that they are the same on any number of
devices, and draws are equal up to rounding.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from dpjax.distributions.base import Shape, draws_shape
from dpjax.random.keys import check_key

Devices = Sequence[jax.Device] | Mesh
DistributionFn = Callable[[Any], Any]


def sharded_sample(
    key: jax.Array,
    distribution_fn: DistributionFn,
    data: Any,
    *,
    shape: Shape = (),
    devices: Devices | None = None,
) -> jax.Array:
    """Draw from the distribution of every row, on several devices.

    The draws are those of ``distribution_fn(data).sample(key, shape)``, up to rounding.

    Inside :func:`jax.shard_map` the library needs nothing of it: make and use distributions there.
    Elsewhere the axes of a mesh must be of JAX's type ``Auto``.

    Args:
        key: a scalar typed threefry key.
        distribution_fn: a function from rows of ``data`` to their distribution, as in
            :func:`dpjax.simulate`.
        data: a pytree of arrays with a common leading axis of rows.
        shape: the shape of the draws from each row, an integer or a sequence of integers.
        devices: as in :func:`dpjax.simulate`.

    Returns:
        Float of shape ``shape + batch_shape``, one array on all devices.

    Raises:
        TypeError: ``key`` is not a typed key, or ``distribution_fn`` does not return a
            distribution.
        ValueError: there are no rows, leaves have no common leading axis, the batch does not start
            with it, or devices are unusable.

    Privacy:
        Draws are simulations: their low-order bits depend on the data.

    References:
        Durfee (2025), Algorithm 1, for the draws.

    >>> import jax, jax.numpy as jnp, dpjax
    >>> means = jnp.array([1.0, 5.0, 2.0])
    >>> sharded_sample(
    ...     jax.random.key(0), lambda x: dpjax.laplace(x, 1.0, sensitivity=1.0), means, shape=(4,)
    ... ).shape
    (4, 3)
    """
    key, shape = check_key(key), draws_shape(shape)
    placed, count, mesh = place(data, devices)
    draws = draw(key, evaluate(distribution_fn, placed), shape, mesh)
    return jax.lax.slice_in_dim(draws, 0, count, axis=len(shape))


def place(data: Any, devices: Devices | None) -> tuple[Any, int, Mesh]:
    """Put equal numbers of rows on each device; the last row is repeated to the next multiple.

    Returns:
        The placed rows, their number without the repeated ones, and the devices on one axis.
    """
    shapes = [np.shape(leaf) for leaf in jax.tree.leaves(data)]
    if not shapes or not all(shape and 0 < shape[0] == shapes[0][0] for shape in shapes):
        raise ValueError(
            f"data must be arrays with a common leading axis of at least one row, got shapes "
            f"{shapes}."
        )
    given: Any = jax.local_devices() if devices is None else getattr(devices, "devices", devices)
    chosen = np.ravel(given)
    if not chosen.size or not set(chosen) <= set(jax.local_devices()):
        raise ValueError(
            f"devices must be a mesh or a list of jax.Device of this process, got {devices!r}."
        )
    count = shapes[0][0]
    mesh = Mesh(chosen[:count], ("rows",))
    repeated = np.minimum(np.arange(-(-count // mesh.size) * mesh.size), count - 1)

    def put(leaf: Any) -> jax.Array:
        leaf = leaf if isinstance(leaf, jax.Array) else _narrowed(np.asarray(leaf))
        leaf = leaf if len(repeated) == count else leaf[repeated]
        return jax.device_put(leaf, NamedSharding(mesh, PartitionSpec("rows")))

    return jax.tree.map(put, data), count, mesh


def _narrowed(leaf: np.ndarray) -> np.ndarray:
    """Convert NumPy data to a JAX dtype: too large integers become floats, too large floats inf."""
    with np.errstate(all="ignore"):
        narrow = leaf.astype(jax.dtypes.canonicalize_dtype(leaf.dtype))
        wrapped = leaf.dtype.kind in "iu" and np.any(narrow != leaf)
        return leaf.astype(jnp.result_type(float)) if wrapped else narrow


def evaluate(distribution_fn: DistributionFn, data: Any) -> Any:
    """Return the distribution of all rows."""
    distribution = jax.jit(distribution_fn)(data)
    if not hasattr(distribution, "batch_shape"):
        raise TypeError(
            "distribution_fn must return a distribution, with sample(key, shape) and batch_shape, "
            f"got {type(distribution).__name__}."
        )
    count, batch = len(jax.tree.leaves(data)[0]), distribution.batch_shape
    if batch[:1] != (count,):
        raise ValueError(
            "the batch of the distribution must start with the rows of data, but distribution_fn "
            f"got {count} rows and returned batch shape {batch}: for a sweep, put the parameters "
            "on later axes."
        )
    return distribution


@partial(jax.jit, static_argnames=("shape", "mesh"))
def draw(key: jax.Array, distribution: Any, shape: tuple[int, ...], mesh: Mesh) -> jax.Array:
    """Draw ``shape + batch_shape``, each device its own rows."""
    rows = NamedSharding(mesh, PartitionSpec(*[None] * len(shape), "rows"))
    return jax.lax.with_sharding_constraint(distribution.sample(key, shape), rows)
