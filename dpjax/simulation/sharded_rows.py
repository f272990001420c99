"""Rows of a batch on devices: placed, padded to equal numbers, evaluated and sampled locally.

Everything runs inside ``jax.shard_map``, so that each device sorts and samples its own rows and
there is no communication. The randomness of a row depends on its index in the whole batch: the same
key gives bitwise the same draws on any number of devices.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from dpjax.distributions.base import Shape, draws_shape
from dpjax.random.keys import check_key

AXIS = "rows"
Devices = Sequence[jax.Device] | Mesh
DistributionFn = Callable[[Any], Any]


class Rows(NamedTuple):
    """The rows of this process, and the devices that they are on.

    Attributes:
        mesh: the devices, on one axis.
        here: the number of rows of this process, without padding.
        first: the index of its first row in the whole batch.
        everywhere: the number of rows of all processes.
    """

    mesh: Mesh
    here: int
    first: int
    everywhere: int

    @property
    def each(self) -> int:
        """The number of rows on each device."""
        return -(-self.here // self.mesh.size)

    def map(self, function: Callable[..., Any], in_specs: Any, out_specs: Any, *static: Any) -> Any:
        """Return a jitted function that runs ``function(*static, *arrays)`` on each device.

        With the same functions and equal other values as ``static``, it is not compiled again for
        equal shapes.
        """
        return _program(
            function,
            tuple(_Same(s) if callable(s) else s for s in static),
            self.mesh,
            in_specs,
            out_specs,
        )

    def sampler(self, shape: tuple[int, ...]) -> Any:
        """Return a function that draws ``shape + batch_shape`` from results of :func:`evaluate`."""
        spec = PartitionSpec(*[None] * len(shape), AXIS)
        return self.map(
            _draw, (PartitionSpec(), PartitionSpec(AXIS)), spec, self.each, self.first, shape
        )


class _Same:
    """A wrapper that compares functions by identity: callable objects may not be hashable."""

    def __init__(self, function: Any) -> None:
        self.function = function

    def __hash__(self) -> int:
        return id(self.function)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and self.function is other.function


@lru_cache(maxsize=32)  # keeps its functions, and their closures, alive
def _program(
    function: Callable[..., Any], static: tuple[Any, ...], mesh: Mesh, in_specs: Any, out_specs: Any
) -> Any:
    """Compile a program on all devices, without replication checks, which disallow loops."""
    bound = partial(function, *(s.function if isinstance(s, _Same) else s for s in static))
    return jax.jit(
        jax.shard_map(bound, mesh=mesh, in_specs=in_specs, out_specs=out_specs, check_vma=False)
    )


def _draw(
    each: int, first: int, shape: tuple[int, ...], key: jax.Array, distribution: Any
) -> jax.Array:
    """Draw from the rows of a device, given its part of the result of :func:`evaluate`."""
    start = jax.lax.axis_index(AXIS).astype(jnp.uint32) * jnp.uint32(each) + jnp.uint32(first)
    distribution = jax.tree.map(lambda leaf: leaf[0], distribution)
    if hasattr(distribution, "_sample"):
        return distribution._sample(key, shape, start)

    def one(row: Any, number: jax.Array) -> jax.Array:
        return row.sample(jax.random.fold_in(key, number), shape)

    numbers = start + jnp.arange(each, dtype=jnp.uint32)
    return jnp.squeeze(jax.vmap(one, out_axes=len(shape))(distribution, numbers), len(shape) + 1)


def sharded_sample(
    key: jax.Array,
    distribution_fn: DistributionFn,
    data: Any,
    *,
    shape: Shape = (),
    devices: Devices | None = None,
    first_row: int | None = None,
) -> jax.Array:
    """Draw from the distribution of every row, on several devices, bitwise as on one.

    The draws are those of ``distribution_fn(data).sample(key, shape)``. Under plain ``jit`` with
    sharded inputs XLA moves rows between devices; here each device sorts and samples its own.

    Args:
        key: a scalar typed threefry key.
        distribution_fn: a function from rows of ``data`` to their distribution, as in
            :func:`dpjax.simulate`.
        data: a pytree of arrays with a common leading axis of rows.
        shape: the shape of the draws from each row, an integer or a sequence of integers.
        devices: as in :func:`dpjax.simulate`.
        first_row: as in :func:`dpjax.simulate`; each process passes its own rows and gets their
            draws.

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
    rows, data = place(data, devices, first_row)
    distribution, _ = evaluate(rows, distribution_fn, data)
    draws: jax.Array = rows.sampler(shape)(key, distribution)
    return (
        draws
        if draws.shape[len(shape)] == rows.here
        else jax.lax.slice_in_dim(draws, 0, rows.here, axis=len(shape))
    )


def place(data: Any, devices: Devices | None, first_row: int | None) -> tuple[Rows, Any]:
    """Put rows on devices; the last row is repeated so that all devices have equal numbers."""
    leaves = jax.tree.leaves(data)
    shapes = [np.shape(leaf) for leaf in leaves]
    if not leaves or any(not shape or shape[0] != shapes[0][0] for shape in shapes):
        raise ValueError(
            f"data must be arrays with a common leading axis of rows, got shapes {shapes}."
        )
    count = shapes[0][0]
    if count == 0:
        raise ValueError("data must have at least one row, got none.")
    if any(isinstance(leaf, jax.Array) and not leaf.is_fully_addressable for leaf in leaves):
        raise ValueError(
            "data must be this process's own rows, got an array on several processes: pass its "
            "local part."
        )
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
    """Convert NumPy data to a JAX dtype: too large integers become floats, too large floats inf."""
    leaf = np.asarray(leaf)
    narrow = jax.dtypes.canonicalize_dtype(leaf.dtype)
    if (
        leaf.dtype.kind in "iu"
        and leaf.size
        and not np.iinfo(narrow).min <= leaf.min() <= leaf.max() <= np.iinfo(narrow).max
    ):
        narrow = jax.dtypes.canonicalize_dtype(np.float64)
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        return leaf.astype(narrow)


def _local(devices: Devices | None) -> list[jax.Device]:
    if devices is None:
        return jax.local_devices()
    chosen = list(devices.devices.flat) if isinstance(devices, Mesh) else list(devices)
    if not chosen or not all(isinstance(device, jax.Device) for device in chosen):
        raise ValueError(
            f"devices must be a mesh or a list of at least one jax.Device, got {devices!r}."
        )
    foreign = [device for device in chosen if device.process_index != jax.process_index()]
    if foreign:
        raise ValueError(
            f"devices must belong to this process, got {foreign}; every process simulates its own "
            "rows."
        )
    return chosen


def _position(count: int, first_row: int | None) -> tuple[int, int]:
    """Return the index of this process's first row in the whole batch, and the number of rows."""
    if first_row is not None:
        if not 0 <= first_row <= 2**32 - count:
            raise ValueError(
                f"first_row must be between 0 and 2^32 less the number of rows, got {first_row}."
            )
        return first_row, count
    if jax.process_count() == 1:
        return 0, count
    from jax.experimental import multihost_utils  # only needed with several processes

    counts = multihost_utils.process_allgather(np.array(count, np.int32))
    return int(np.sum(counts[: jax.process_index()])), int(np.sum(counts))


def evaluate(rows: Rows, distribution_fn: DistributionFn, data: Any) -> tuple[Any, int]:
    """Evaluate the distributions once, on each device those of its rows.

    Returns:
        The distribution, each leaf with a new leading axis of devices, since only the distribution
        knows which leaves have rows. One without the hook ``_sample(key, shape, first)`` is
        evaluated row by row, on a second new axis. And the number of values of a row, the product
        of the batch axes after the rows.
    """
    distribution = rows.map(
        _evaluate, PartitionSpec(AXIS), PartitionSpec(AXIS), distribution_fn, rows.each
    )(data)
    new_axes = 1 if hasattr(distribution, "_sample") else 2
    part = jax.tree.map(
        lambda leaf: jax.ShapeDtypeStruct(leaf.shape[new_axes:], leaf.dtype), distribution
    )
    batch = jax.eval_shape(lambda part: jnp.zeros(part.batch_shape[1:]), part).shape
    return distribution, int(np.prod(batch))


def _evaluate(distribution_fn: DistributionFn, each: int, data: Any) -> Any:
    """Return the distribution of a device's rows."""
    distribution = distribution_fn(data)
    if not (hasattr(distribution, "sample") and hasattr(distribution, "batch_shape")):
        raise TypeError(
            "distribution_fn must return a distribution, with sample(key, shape) and batch_shape, "
            f"got {type(distribution).__name__}."
        )
    batch = distribution.batch_shape
    if batch[:1] != (each,):
        raise ValueError(
            "the batch of the distribution must start with the rows of data, but distribution_fn "
            f"got {each} rows and returned batch shape {batch}: for a sweep, put the parameters on "
            "later axes."
        )
    if not hasattr(distribution, "_sample"):
        distribution = jax.vmap(
            lambda row: distribution_fn(jax.tree.map(lambda leaf: leaf[None], row))
        )(data)
    return jax.tree.map(lambda leaf: leaf[None], distribution)
