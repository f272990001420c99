"""Sorted rows: clamped and counted, all ranks or only a window of them.

On the CPU, XLA sorts with a comparator, 40 times slower than NumPy's vectorised sort. There the rows are handed to NumPy
(:mod:`dpjax.numerics.host_call`), in as many threads as the process may use; on other devices XLA sorts, and nothing leaves the
device. Programs that may not call NumPy sort the bits of the floats as integers. The derivative is that of XLA's
version everywhere.
"""

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from math import prod
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dpjax.checks import Neighbors
from dpjax.numerics.batching import broadcast_rows, by_platform, take
from dpjax.numerics.host_call import allowed, host_call
from dpjax.statistics.values_at_ranks import Sides, Window

_BLOCK = 2**19  # records that one thread works on at a time: for less, the threads wait for each other's interpreter lock
_SELECT = 4096  # from so many records on, a window is selected instead of sorted


class SortedRows(NamedTuple):
    """Sorted rows: x[1..n] are the records that are present, x[j] = low for j <= 0 and x[j] = high for j > n.

    Attributes:
        values: x[0], ..., x[n_max + 1], ``(..., n_max + 2)``, or a window of them.
        read: what was read of them instead, if anything.
        n: int32 ``(..., 1)``, like ``low`` and ``high``; a NumPy array of one number where it is public and the same for all rows.
        n_max: the number of columns.
    """

    values: jax.Array
    n: jax.Array
    low: jax.Array
    high: jax.Array
    n_max: int
    read: tuple[jax.Array, ...] = ()

    def at(self, index: jax.Array) -> jax.Array:
        """x[index]."""
        return take(self.values, index)

    def present(self, values: jax.Array) -> jax.Array:
        """Values of x[1], ..., x[n_max], and 0 beyond n."""
        return jnp.where(np.arange(self.n_max, dtype=np.int32) < self.n, values, 0.0)


def sort_rows(
    records: jax.Array,
    present: jax.Array | None,
    low: jax.Array,
    high: jax.Array,
    *,
    neighbors: Neighbors,
    window: Window | None = None,
    read: Sides | None = None,
) -> SortedRows:
    """Clamp the records of every row, float ``(..., n_max)``, to ``[low, high]`` and sort them, all or a window of their ranks.

    A NaN record is absent under add/remove. Under swap, where the number of records is public, it becomes ``low``.
    What ``read`` makes of the rows, if it is given, is returned in their place.
    """
    masks = [] if present is None else [present]
    batch = jnp.broadcast_shapes(low.shape, high.shape, *(array.shape[:-1] for array in (records, *masks)))
    records, low, high, *masks = (broadcast_rows(array, batch) for array in (records, low[..., None], high[..., None], *masks))
    n_max = records.shape[-1]
    if neighbors == "swap" and present is None:
        n: Any = np.full((1,) * records.ndim, n_max, np.int32)
    else:
        there = masks if neighbors == "swap" else [*masks, ~jnp.isnan(records)]
        n = jnp.sum(there[0] & there[-1], axis=-1, keepdims=True, dtype=jnp.int32)
    nan_is_low = neighbors == "swap"
    sizes = read.sizes if read is not None else (n_max + 2 if window is None else window.width,)

    def host(low: jax.Array, high: jax.Array, counted: jax.Array, *arrays: jax.Array) -> tuple[jax.Array, ...]:
        del counted  # it is as well counted again
        results = [jax.ShapeDtypeStruct((*batch, size), records.dtype) for size in sizes]
        return tuple(host_call(_OnHost(nan_is_low, window, read), results, low, high, *arrays))

    def device(low: jax.Array, high: jax.Array, counted: jax.Array, *arrays: jax.Array) -> tuple[jax.Array, ...]:
        count = n if isinstance(n, np.ndarray) else counted
        return _on_device(low, high, count, *arrays, nan_is_low=nan_is_low, window=window, read=read)

    @jax.custom_jvp
    def fast(*arrays: Any) -> Any:
        return by_platform(*arrays, cpu=host, default=device)

    fast.defjvp(lambda primals, tangents: (fast(*primals), jax.jvp(device, primals, tangents)[1]))
    found = (fast if allowed() else device)(low, high, jnp.broadcast_to(jnp.asarray(n), (*batch, 1)), records, *masks)
    return SortedRows(found[0], n, low, high, n_max, found if read is not None else ())


def _on_device(
    low: jax.Array,
    high: jax.Array,
    n: Any,
    records: jax.Array,
    present: jax.Array | None = None,
    *,
    nan_is_low: bool,
    window: Window | None,
    read: Sides | None,
) -> tuple[jax.Array, ...]:
    unreadable = jnp.isnan(records)
    clamped = jnp.clip(jnp.where(unreadable, low if nan_is_low else high, records), low, high)
    clamped = jnp.where(clamped == 0, 0.0, clamped)  # -0.0 becomes 0.0: sorts need not agree on their order
    clamped = clamped if present is None else jnp.where(present, clamped, high)
    ordered = jnp.concatenate([low, _sorted(clamped), high], axis=-1)
    if window is not None:
        ranks = window.first(n, records.shape[-1], jnp) + np.arange(window.width, dtype=np.int32)
        ordered = take(ordered, jnp.broadcast_to(ranks, (*ordered.shape[:-1], window.width)))
    return (ordered,) if read is None else read(ordered, n)


@jax.custom_jvp
def _sorted(x: jax.Array) -> jax.Array:
    """Sort the last axis, on the CPU as integers: the bits of floats are in their order once those of negative ones are inverted.

    There it takes a quarter of the time of ``jnp.sort``, whose comparator knows NaN and -0.0; here there is neither, but where a
    bound is NaN, and with it all values.
    """

    def by_bits(x: jax.Array) -> jax.Array:
        kind, rest = {4: (jnp.int32, 2**31 - 1), 8: (jnp.int64, 2**63 - 1)}[x.dtype.itemsize]

        def in_order(bits: jax.Array) -> jax.Array:
            return jnp.where(bits < 0, bits ^ jnp.asarray(rest, kind), bits)

        ordered = jax.lax.sort(in_order(jax.lax.bitcast_convert_type(x, kind)), is_stable=False)
        return jax.lax.bitcast_convert_type(in_order(ordered), x.dtype)

    return by_platform(x, cpu=by_bits, default=lambda x: jnp.sort(x, axis=-1))


@_sorted.defjvp
def _(primals: tuple[jax.Array], tangents: tuple[jax.Array]) -> tuple[jax.Array, jax.Array]:
    return _sorted(*primals), jax.jvp(lambda x: jnp.sort(x, axis=-1), primals, tangents)[1]


@dataclass(frozen=True)
class _OnHost:
    """What ``_on_device`` returns, by NumPy; its ``repr`` says all that it does (:mod:`dpjax.numerics.host_call`)."""

    nan_is_low: bool
    window: Window | None
    read: Sides | None

    def __call__(
        self, results: Sequence[np.ndarray], low: np.ndarray, high: np.ndarray, records: np.ndarray, *masks: np.ndarray
    ) -> None:
        nan_is_low, window, read = self.nan_is_low, self.window, self.read
        n_max, rows = records.shape[-1], prod(records.shape[:-1])
        lows, highs, sources = (array.reshape(rows, array.shape[-1]) for array in (low, high, records))
        there = masks[0].reshape(rows, n_max) if masks else None
        whole_rows = window is None and read is None
        select = window is not None and n_max >= _SELECT
        outs = [result.reshape(rows, result.shape[-1]) for result in results]

        def work(part: slice) -> None:
            ordered = outs[0][part] if whole_rows else np.empty((len(sources[part]), n_max + 2), records.dtype)
            ordered[:, :1], ordered[:, -1:], block = lows[part], highs[part], ordered[:, 1:-1]
            np.add(sources[part], 0.0, out=block)  # -0.0 becomes 0.0
            count = np.full(len(block), n_max, np.int32)
            if there is not None:
                np.copyto(block, np.inf, where=~there[part])
                count = np.sum(there[part], axis=-1, dtype=np.int32)
            if not select:
                block.sort(axis=-1)
            clamp = select
            if np.isnan(block if select else block[:, -1:]).any():  # NaN is sorted last
                clamp = True
                unreadable = np.isnan(block)
                np.copyto(block, (lows if nan_is_low else highs)[part], where=unreadable)
                if not nan_is_low:
                    count = count - np.sum(unreadable, axis=-1, dtype=np.int32)
                elif not select:
                    block.sort(axis=-1)
            # Clamping keeps the order: it is needed only where an end of a sorted row lies outside, or a bound is NaN.
            if clamp or not (np.all(block[:, :1] >= lows[part]) and np.all(block[:, -1:] <= highs[part])):
                np.maximum(block, lows[part], out=block)  # twice as fast as np.clip
                np.minimum(block, highs[part], out=block)
            if whole_rows:
                return
            for number in np.unique(count):  # rows with as many records go together: mostly all of them
                alike = np.all(count == number)
                same = slice(None) if alike else np.flatnonzero(count == number)
                found = ordered[same]
                if window is not None:
                    first = int(window.first(number, n_max, np))
                    found = _select(found, first, first + window.width) if select else found[:, first : first + window.width]
                own = [out[part] for out in outs]
                if read is None:
                    own[0][same] = found
                elif alike:
                    read.write(own, found, number)
                else:
                    parts = [np.empty((len(found), size), records.dtype) for size in read.sizes]
                    read.write(parts, found, number)
                    for out, piece in zip(own, parts, strict=True):
                        out[same] = piece

        def quiet(part: slice) -> None:
            with np.errstate(invalid="ignore"):  # a signaling NaN warns; the state is that of this thread
                work(part)

        _in_blocks(quiet, rows, n_max)


def _select(ordered: np.ndarray, first: int, stop: int) -> np.ndarray:
    """The sorted columns from ``first`` to ``stop``; one boundary at a time: NumPy's selection is vectorised for one."""
    if first > 0:
        ordered = np.partition(ordered, first, axis=-1)[:, first:]
    if stop - first < ordered.shape[-1]:
        ordered = np.partition(ordered, stop - first, axis=-1)[:, : stop - first]
    return np.sort(ordered, axis=-1)


def _in_blocks(work: Callable[[slice], None], rows: int, columns: int) -> None:
    """Do the work on all rows, block by block, in threads where that pays; NumPy releases the interpreter while it sorts."""
    size = max(1, _BLOCK // max(columns, 1))
    blocks = [slice(start, min(start + size, rows)) for start in range(0, rows, size)]
    threads = min(len(blocks), len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1)
    if threads < 2:
        for block in blocks:
            work(block)
        return
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(work, blocks))
