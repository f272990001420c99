"""Rows of a batch over devices: placed, padded to a whole number for each device, evaluated and sampled where they lie.

Everything runs inside ``jax.shard_map``, so that each device sorts and samples its own rows and nothing is exchanged. A row's
randomness comes from its number in the whole batch: the same key gives the same draws on any number of devices, bitwise. That is
so because draws do not change with the other rows of the batch (``distributions/sampling.py``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr, jaxpr_as_fun
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from dpjax.distributions import PiecewiseExponential, sampling
from dpjax.random.keys import check_key

AXIS = "rows"
Devices = Sequence[jax.Device] | Mesh
DistributionFn = Callable[[Any], PiecewiseExponential]


class Rows(NamedTuple):
    """Which rows this process holds, and on which devices.

    Attributes:
        mesh: the devices, on one axis.
        here: the number of rows, without padding.
        first: the number of the first one in the whole batch.
        everywhere: the number of rows of all processes.
    """

    mesh: Mesh
    here: int
    first: int
    everywhere: int

    @property
    def each(self) -> int:
        """How many rows a device holds."""
        return -(-self.here // self.mesh.size)

    def structs(self, data: Any, height: int) -> Any:
        """The shapes of ``height`` rows of data."""
        return jax.tree.map(lambda leaf: jax.ShapeDtypeStruct((height, *leaf.shape[1:]), leaf.dtype), data)

    def map(self, function: Callable[..., Any], in_specs: Any, out_specs: Any) -> Callable[..., Any]:
        """Run a function on every device's own rows, jitted; without replication checks, which forbid the library's loops."""
        return jax.jit(jax.shard_map(function, mesh=self.mesh, in_specs=in_specs, out_specs=out_specs, check_vma=False))

    def first_here(self) -> jax.Array:
        """Inside :meth:`map`: the number of the device's first row."""
        return jax.lax.axis_index(AXIS).astype(jnp.uint32) * jnp.uint32(self.each) + jnp.uint32(self.first)


class Laws(NamedTuple):
    """The law of every row.

    Attributes:
        law: its arrays over the devices, padded; those that all rows share on every device.
        specs: a law of partition specs.
        batch: the batch shape on one device.
    """

    law: PiecewiseExponential
    specs: PiecewiseExponential
    batch: tuple[int, ...]


def sharded_sample(
    key: jax.Array,
    distribution_fn: DistributionFn,
    data: Any,
    *,
    shape: tuple[int, ...] = (),
    devices: Devices | None = None,
    first_row: int | None = None,
) -> jax.Array:
    """Draw from the law of every row, with the rows spread over the devices.

    The draws are those of ``jax.jit(lambda key, data: distribution_fn(data).sample(key, shape))(key, data)``, bitwise, on any
    number of devices of one kind; each call compiles. That plain call also works on rows with a ``NamedSharding`` (of automatic
    axes), with the same draws, but moves rows between devices on the way. Here each device sorts and samples its own.

    Args:
        key: a scalar typed threefry key.
        distribution_fn: from rows of ``data`` to their law, as in :func:`dpjax.simulate`.
        data: a pytree of arrays with a common leading axis of rows.
        shape: the shape of the draws from each row.
        devices: a list of devices of this process, or a mesh (its axes are flattened); all of them by default.
        first_row: as in :func:`dpjax.simulate`: each process passes its own rows and gets their draws.

    Returns:
        Float of shape ``shape + batch_shape``, one array over the devices.

    Raises:
        TypeError: ``key`` is not a typed key, or ``distribution_fn`` does not return a ``PiecewiseExponential``.
        ValueError: no rows, leaves without a common leading axis, a law whose batch does not start with it, unusable devices.

    Privacy:
        Draws are simulations: their low-order bits depend on the data.

    References:
        Durfee (2025), Algorithm 1, for the draws.

    >>> import jax, jax.numpy as jnp, dpjax
    >>> means = jnp.array([1.0, 5.0, 2.0])
    >>> sharded_sample(jax.random.key(0), lambda x: dpjax.laplace(x, 1.0, sensitivity=1.0), means, shape=(4,)).shape
    (4, 3)
    """
    key, shape = check_key(key), tuple(shape)
    rows, data = place(data, devices, first_row)
    laws = evaluate(rows, distribution_fn, data)
    spec = PartitionSpec(*[None] * len(shape), AXIS)

    def draw(key: jax.Array, law: PiecewiseExponential) -> jax.Array:
        return sampling.sample(key, law, shape, "auto", rows.first_here())

    draws: jax.Array = rows.map(draw, (PartitionSpec(), laws.specs), spec)(key, laws.law)
    padding = rows.each * rows.mesh.size - rows.here
    return jax.lax.slice_in_dim(draws, 0, rows.here, axis=len(shape)) if padding else draws


def place(data: Any, devices: Devices | None, first_row: int | None) -> tuple[Rows, Any]:
    """Put rows on devices; the last row is repeated to give every device as many."""
    leaves = jax.tree.leaves(data)
    shapes = [np.shape(leaf) for leaf in leaves]
    if not leaves or any(not shape or shape[0] != shapes[0][0] for shape in shapes):
        raise ValueError(f"data must be arrays with a common leading axis of rows, got shapes {shapes}.")
    count = shapes[0][0]
    if count == 0:
        raise ValueError("data must have at least one row, got none.")
    if any(isinstance(leaf, jax.Array) and not leaf.is_fully_addressable for leaf in leaves):
        raise ValueError("data must be this process's own rows, got an array over several processes; pass the local part of it.")
    first, everywhere = _position(count, first_row)
    mesh = Mesh(np.array(_local(devices)[:count]), (AXIS,))
    rows = Rows(mesh, count, first, everywhere)
    padding = rows.each * mesh.size - count

    def put(leaf: Any) -> jax.Array:
        xp: Any = jnp if isinstance(leaf, jax.Array) else np
        leaf = leaf if isinstance(leaf, jax.Array) else _narrowed(leaf)
        if padding:
            leaf = xp.concatenate([leaf, xp.broadcast_to(leaf[-1:], (padding, *leaf.shape[1:]))])
        return jax.device_put(leaf, NamedSharding(mesh, PartitionSpec(AXIS)))

    return rows, jax.tree.map(put, data)


def _narrowed(leaf: Any) -> np.ndarray:
    """NumPy data in a dtype that JAX has: too large an integer becomes a float and is not wrapped around, too large a float inf."""
    leaf = np.asarray(leaf)
    narrow = jax.dtypes.canonicalize_dtype(leaf.dtype)
    if leaf.dtype.kind in "iu" and leaf.size and not np.iinfo(narrow).min <= leaf.min() <= leaf.max() <= np.iinfo(narrow).max:
        narrow = jax.dtypes.canonicalize_dtype(np.float64)
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        return leaf.astype(narrow)


def _local(devices: Devices | None) -> list[jax.Device]:
    if devices is None:
        return jax.local_devices()
    chosen = list(devices.devices.flat) if isinstance(devices, Mesh) else list(devices)
    if not chosen or not all(isinstance(device, jax.Device) for device in chosen):
        raise ValueError(f"devices must be a mesh or a list of at least one jax.Device, got {devices!r}.")
    foreign = [device for device in chosen if device.process_index != jax.process_index()]
    if foreign:
        raise ValueError(f"devices must belong to this process, got {foreign}; every process simulates its own rows.")
    return chosen


def _position(count: int, first_row: int | None) -> tuple[int, int]:
    """The number of this process's first row in the whole batch, and how many rows there are in all."""
    if first_row is not None:
        if not 0 <= first_row <= 2**32 - count:
            raise ValueError(f"first_row must be between 0 and 2^32 less the number of rows, got {first_row}.")
        return first_row, count
    if jax.process_count() == 1:
        return 0, count
    from jax.experimental import multihost_utils  # only where there are several processes

    counts = multihost_utils.process_allgather(np.array(count, np.int32))
    return int(np.sum(counts[: jax.process_index()])), int(np.sum(counts))


def evaluate(rows: Rows, distribution_fn: DistributionFn, data: Any) -> Laws:
    """Evaluate the laws once, each device those of its own rows."""
    # One row is evaluated as two, so that an array with an entry for each row differs from one with a leading axis of size 1.
    height = max(rows.each, 2)
    program, law = traced(distribution_fn, rows.structs(data, height))
    if not isinstance(law, PiecewiseExponential):
        raise TypeError(f"distribution_fn must return a dpjax.PiecewiseExponential, got {type(law).__name__}.")
    batch = law.batch_shape
    if not batch or batch[0] != height:
        raise ValueError(
            f"the batch of the law must start with the rows of data: distribution_fn got {height} rows and returned a law of "
            f"batch shape {batch}. For a sweep, put the parameters on later axes."
        )
    pieces: Any = replace(law, edges=1, cost_left=1, cost_right=1, rate=0, tails=jax.tree.map(lambda _: 0, law.tails))  # type: ignore[arg-type]
    by_row = jax.tree.map(lambda leaf, axes: leaf.ndim == len(batch) + axes and leaf.shape[0] == height, law, pieces)

    def on_device(data: Any) -> PiecewiseExponential:
        if rows.each < height:
            data = jax.tree.map(lambda leaf: jnp.concatenate([leaf, leaf]), data)
        arrays = jax.tree.unflatten(jax.tree.structure(law), jaxpr_as_fun(program)(*jax.tree.leaves(data)))
        return jax.tree.map(lambda leaf, split: leaf[: rows.each] if split else leaf, arrays, by_row)

    specs = jax.tree.map(lambda split: PartitionSpec(AXIS) if split else PartitionSpec(), by_row)
    return Laws(rows.map(on_device, PartitionSpec(AXIS), specs)(data), specs, (rows.each, *batch[1:]))


def traced(function: Callable[..., Any], *structs: Any) -> tuple[ClosedJaxpr, Any]:
    """Trace a function of the caller, once: its program on flat arguments, and the shapes of its result."""
    program, result = jax.make_jaxpr(function, return_shape=True)(*structs)
    return program, result
