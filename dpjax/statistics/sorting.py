"""Sorting of clamped rows, and counting of present records.

On the CPU, XLA sorts with a comparator, 40 times slower than NumPy's vectorized sort. There the
rows are passed to NumPy (:mod:`dpjax.numerics.host_call`), in as many threads as the process may
use; on other devices XLA sorts, and nothing leaves the device. The derivative is that of XLA's
version in both cases.
"""

from __future__ import annotations

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
from dpjax.numerics.arrays import broadcast_rows, by_platform, take
from dpjax.numerics.host_call import allowed, host_call
from dpjax.statistics.values_at_ranks import Reader

# Records that one thread processes at a time: with fewer, threads wait for the interpreter lock.
_BLOCK = 2**19


class SortedRows(NamedTuple):
    """Sorted rows: x[1..n] are present records, x[j] = low for j <= 0 and x[j] = high for j > n.

    Attributes:
        values: x[0], ..., x[n_max + 1], ``(..., n_max + 2)``, or what was read from them.
        n: int32 ``(..., 1)``, like ``low`` and ``high``; a NumPy array of one number if it is
            public and the same for all rows.
        n_max: the number of columns.
    """

    values: jax.Array
    n: jax.Array
    low: jax.Array
    high: jax.Array
    n_max: int

    def at(self, index: jax.Array) -> jax.Array:
        """Return x[index]."""
        return take(self.values, index)

    def present(self, values: jax.Array) -> jax.Array:
        """Replace by 0 the values, of x[1], ..., x[n_max], beyond n."""
        return jnp.where(np.arange(self.n_max, dtype=np.int32) < self.n, values, 0.0)


def sort_rows(
    records: jax.Array,
    present: jax.Array | None,
    low: jax.Array,
    high: jax.Array,
    *,
    neighbors: Neighbors,
    read: Reader | None = None,
) -> SortedRows:
    """Clamp and sort the records of every row, ``(..., n_max)``, and read a profile from them.

    A NaN record is absent under add/remove. Under swap, where the number of records is public, it
    becomes ``low``. Without ``read`` the values are the rows themselves.
    """
    masks = [] if present is None else [present]
    batch = jnp.broadcast_shapes(
        low.shape, high.shape, *(array.shape[:-1] for array in (records, *masks))
    )
    records, low, high, *masks = (
        broadcast_rows(array, batch) for array in (records, low[..., None], high[..., None], *masks)
    )
    n_max, swap = records.shape[-1], neighbors == "swap"
    n: Any
    if swap and present is None:
        n = np.full((1,) * records.ndim, n_max, np.int32)
        if read is not None and read.is_the_row(n_max):
            read = None
    else:
        there = masks if swap else [*masks, ~jnp.isnan(records)]
        n = jnp.sum(there[0] & there[-1], axis=-1, keepdims=True, dtype=jnp.int32)
    size = n_max + 2 if read is None else read.size

    def host(low: jax.Array, high: jax.Array, counted: jax.Array, *arrays: jax.Array) -> jax.Array:
        del counted  # counted again on the host
        result = jax.ShapeDtypeStruct((*batch, size), records.dtype)
        return host_call(_OnHost(swap, read), [result], low, high, *arrays)[0]

    def device(
        low: jax.Array, high: jax.Array, counted: jax.Array, *arrays: jax.Array
    ) -> jax.Array:
        ordered = _on_device(low, high, *arrays, nan_is_low=swap)
        return ordered if read is None else read(ordered, n if swap and not masks else counted)

    @jax.custom_jvp
    def fast(*arrays: Any) -> Any:
        return by_platform(*arrays, cpu=host, default=device)

    fast.defjvp(lambda primals, tangents: (fast(*primals), jax.jvp(device, primals, tangents)[1]))
    counted = jnp.broadcast_to(jnp.asarray(n), (*batch, 1))
    values = (fast if allowed() else device)(low, high, counted, records, *masks)
    return SortedRows(values, n, low, high, n_max)


def _on_device(
    low: jax.Array,
    high: jax.Array,
    records: jax.Array,
    present: jax.Array | None = None,
    *,
    nan_is_low: bool,
) -> jax.Array:
    unreadable = jnp.isnan(records)
    clamped = jnp.clip(jnp.where(unreadable, low if nan_is_low else high, records), low, high)
    # -0.0 becomes 0.0: sorts need not agree on their order.
    clamped = jnp.where(clamped == 0, 0.0, clamped)
    clamped = clamped if present is None else jnp.where(present, clamped, high)
    return jnp.concatenate([low, jnp.sort(clamped, axis=-1), high], axis=-1)


@dataclass(frozen=True)
class _OnHost:
    """The computation of ``_on_device`` and of a reader in NumPy.

    Its ``repr`` identifies the computation (:mod:`dpjax.numerics.host_call`).
    """

    nan_is_low: bool
    read: Reader | None

    def __call__(
        self,
        results: Sequence[np.ndarray],
        low: np.ndarray,
        high: np.ndarray,
        records: np.ndarray,
        *masks: np.ndarray,
    ) -> None:
        n_max, rows, read = records.shape[-1], prod(records.shape[:-1]), self.read
        lows, highs, sources, result = (
            array.reshape(rows, array.shape[-1]) for array in (low, high, records, results[0])
        )
        there = masks[0].reshape(rows, n_max) if masks else None

        def work(part: slice) -> None:
            out = result[part]
            ordered = np.empty((len(out), n_max + 2), out.dtype) if read is not None else out
            ordered[:, :1], ordered[:, -1:], block = lows[part], highs[part], ordered[:, 1:-1]
            np.add(sources[part], 0.0, out=block)  # -0.0 becomes 0.0
            count = np.full(len(block), n_max, np.int32)
            if there is not None:
                np.copyto(block, np.inf, where=~there[part])
                count = np.sum(there[part], axis=-1, dtype=np.int32)
            block.sort(axis=-1)
            if np.isnan(block[:, -1:]).any():  # NaN is sorted last
                unreadable = np.isnan(block)
                np.copyto(block, -np.inf if self.nan_is_low else np.inf, where=unreadable)
                if self.nan_is_low:
                    block.sort(axis=-1)
                else:
                    count = count - np.sum(unreadable, axis=-1, dtype=np.int32)
            # Clamping preserves the order: it is only needed if an end of a sorted row is outside,
            # or a bound is NaN.
            if not (np.all(block[:, :1] >= lows[part]) and np.all(block[:, -1:] <= highs[part])):
                np.maximum(block, lows[part], out=block)  # twice as fast as np.clip
                np.minimum(block, highs[part], out=block)
            if read is None:
                return
            # Rows with equal numbers of records are read together, usually all.
            for number in np.unique(count):
                if np.all(count == number):
                    read.write(out, ordered, number)
                    break
                same = np.flatnonzero(count == number)
                found = np.empty((len(same), read.size), out.dtype)
                read.write(found, ordered[same], number)
                out[same] = found

        def quiet(part: slice) -> None:
            # A signaling NaN warns; the error state is per thread.
            with np.errstate(invalid="ignore"):
                work(part)

        _in_blocks(quiet, rows, n_max)


def _in_blocks(work: Callable[[slice], None], rows: int, columns: int) -> None:
    """Run ``work`` on all rows in blocks, in threads if worthwhile; NumPy sorts without the GIL."""
    size = max(1, _BLOCK // max(columns, 1))
    blocks = [slice(start, min(start + size, rows)) for start in range(0, rows, size)]
    threads = min(
        len(blocks),
        len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
    )
    if threads < 2:
        for block in blocks:
            work(block)
        return
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(work, blocks))
