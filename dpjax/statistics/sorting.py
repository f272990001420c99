"""Sorting of clamped rows, and counting of present records, for all ranks or a window of them.

On the CPU, XLA sorts with a comparator, 40 times slower than NumPy's vectorized sort. There the
rows are passed to NumPy (:mod:`dpjax.numerics.host_call`), in as many threads as the process may
use; on other devices XLA sorts, and nothing leaves the device. Programs that may not call NumPy
sort the bits of the floats as integers. The derivative is that of XLA's version in all cases.
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
from dpjax.numerics.batching import broadcast_rows, by_platform, take
from dpjax.numerics.host_call import allowed, host_call
from dpjax.statistics.values_at_ranks import Sides, Window

# Records that one thread processes at a time: with fewer, threads wait for the interpreter lock.
_BLOCK = 2**19
_SELECT = 4096  # from this many records on, a window is selected instead of sorted


class SortedRows(NamedTuple):
    """Sorted rows: x[1..n] are present records, x[j] = low for j <= 0 and x[j] = high for j > n.

    Attributes:
        values: x[0], ..., x[n_max + 1], ``(..., n_max + 2)``, or a window of them.
        n: int32 ``(..., 1)``, like ``low`` and ``high``; a NumPy array of one number if it is
            public and the same for all rows.
        n_max: the number of columns.
        read: the values that were read in place of the rows, if any.
    """

    values: jax.Array
    n: jax.Array
    low: jax.Array
    high: jax.Array
    n_max: int
    read: tuple[jax.Array, ...] = ()

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
    window: Window | None = None,
    read: Sides | None = None,
) -> SortedRows:
    """Clamp the records of every row, ``(..., n_max)``, and sort them, or a window of ranks.

    A NaN record is absent under add/remove. Under swap, where the number of records is public, it
    becomes ``low``. If ``read`` is given, the values that it reads are returned in place of the
    rows.
    """
    masks = [] if present is None else [present]
    batch = jnp.broadcast_shapes(
        low.shape, high.shape, *(array.shape[:-1] for array in (records, *masks))
    )
    records, low, high, *masks = (
        broadcast_rows(array, batch) for array in (records, low[..., None], high[..., None], *masks)
    )
    n_max = records.shape[-1]
    if neighbors == "swap" and present is None:
        n: Any = np.full((1,) * records.ndim, n_max, np.int32)
    else:
        there = masks if neighbors == "swap" else [*masks, ~jnp.isnan(records)]
        n = jnp.sum(there[0] & there[-1], axis=-1, keepdims=True, dtype=jnp.int32)
    nan_is_low = neighbors == "swap"
    sizes = read.sizes if read is not None else (n_max + 2 if window is None else window.width,)

    def host(
        low: jax.Array, high: jax.Array, counted: jax.Array, *arrays: jax.Array
    ) -> tuple[jax.Array, ...]:
        del counted  # counted again on the host
        results = [jax.ShapeDtypeStruct((*batch, size), records.dtype) for size in sizes]
        return tuple(host_call(_OnHost(nan_is_low, window, read), results, low, high, *arrays))

    def device(
        low: jax.Array, high: jax.Array, counted: jax.Array, *arrays: jax.Array
    ) -> tuple[jax.Array, ...]:
        count = n if isinstance(n, np.ndarray) else counted
        return _on_device(
            low, high, count, *arrays, nan_is_low=nan_is_low, window=window, read=read
        )

    @jax.custom_jvp
    def fast(*arrays: Any) -> Any:
        return by_platform(*arrays, cpu=host, default=device)

    fast.defjvp(lambda primals, tangents: (fast(*primals), jax.jvp(device, primals, tangents)[1]))
    found = (fast if allowed() else device)(
        low, high, jnp.broadcast_to(jnp.asarray(n), (*batch, 1)), records, *masks
    )
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
    # -0.0 becomes 0.0: sorts need not agree on their order.
    clamped = jnp.where(clamped == 0, 0.0, clamped)
    clamped = clamped if present is None else jnp.where(present, clamped, high)
    ordered = jnp.concatenate([low, _sorted(clamped), high], axis=-1)
    if window is not None:
        ranks = window.first(n, records.shape[-1], jnp) + np.arange(window.width, dtype=np.int32)
        ordered = take(ordered, jnp.broadcast_to(ranks, (*ordered.shape[:-1], window.width)))
    return (ordered,) if read is None else read(ordered, n)


@jax.custom_jvp
def _sorted(x: jax.Array) -> jax.Array:
    """Sort the last axis; on the CPU as integers.

    The bits of floats are in order after inverting those of negative floats. On the CPU this takes
    a quarter of the time of ``jnp.sort``, whose comparator handles NaN and -0.0; here there is
    neither, unless a bound and so all values are NaN.
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
    """The computation of ``_on_device`` in NumPy.

    Its ``repr`` identifies the computation (:mod:`dpjax.numerics.host_call`).
    """

    nan_is_low: bool
    window: Window | None
    read: Sides | None

    def __call__(
        self,
        results: Sequence[np.ndarray],
        low: np.ndarray,
        high: np.ndarray,
        records: np.ndarray,
        *masks: np.ndarray,
    ) -> None:
        nan_is_low, window, read = self.nan_is_low, self.window, self.read
        n_max, rows = records.shape[-1], prod(records.shape[:-1])
        lows, highs, sources = (
            array.reshape(rows, array.shape[-1]) for array in (low, high, records)
        )
        there = masks[0].reshape(rows, n_max) if masks else None
        full_rows = window is None and read is None
        select = window is not None and n_max >= _SELECT
        outs = [result.reshape(rows, result.shape[-1]) for result in results]

        def work(part: slice) -> None:
            ordered = (
                outs[0][part]
                if full_rows
                else np.empty((len(sources[part]), n_max + 2), records.dtype)
            )
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
            # Clamping preserves the order: it is only needed if an end of a sorted row is outside,
            # or a bound is NaN.
            if clamp or not (
                np.all(block[:, :1] >= lows[part]) and np.all(block[:, -1:] <= highs[part])
            ):
                np.maximum(block, lows[part], out=block)  # twice as fast as np.clip
                np.minimum(block, highs[part], out=block)
            if full_rows:
                return
            # Rows with equal numbers of records are processed together, usually all.
            for number in np.unique(count):
                alike = np.all(count == number)
                same = slice(None) if alike else np.flatnonzero(count == number)
                found = ordered[same]
                if window is not None:
                    first = int(window.first(number, n_max, np))
                    found = (
                        _select(found, first, first + window.width)
                        if select
                        else found[:, first : first + window.width]
                    )
                targets = [out[part] for out in outs]
                if read is None:
                    targets[0][same] = found
                elif alike:
                    read.write(targets, found, number)
                else:
                    parts = [np.empty((len(found), size), records.dtype) for size in read.sizes]
                    read.write(parts, found, number)
                    for out, piece in zip(targets, parts, strict=True):
                        out[same] = piece

        def quiet(part: slice) -> None:
            # A signaling NaN warns; the error state is per thread.
            with np.errstate(invalid="ignore"):
                work(part)

        _in_blocks(quiet, rows, n_max)


def _select(ordered: np.ndarray, first: int, stop: int) -> np.ndarray:
    """Return the sorted columns from ``first`` to ``stop``.

    Boundaries are selected one at a time, because NumPy's selection of one is vectorized.
    """
    if first > 0:
        ordered = np.partition(ordered, first, axis=-1)[:, first:]
    if stop - first < ordered.shape[-1]:
        ordered = np.partition(ordered, stop - first, axis=-1)[:, : stop - first]
    return np.sort(ordered, axis=-1)


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
