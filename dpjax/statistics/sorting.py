"""Order statistics of every row: clamped, counted and sorted, all of them or only a window of ranks.

On the CPU, XLA sorts with a comparator, 40 times slower than NumPy's vectorised sort. There the rows are handed to NumPy by a
callback, in as many threads as the process may use; on other devices XLA sorts, and nothing leaves the device. The derivative
is that of the XLA version everywhere. A process with several CPU devices, or one of several processes, sorts by XLA too:
callbacks of several devices wait for each other's threads, and have been seen to wait for ever.
"""

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from math import prod
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dpjax.numerics.batching import take

Sort = Literal["auto", "xla"]
Missing = Literal["absent", "low"]
_BLOCK = 2**18  # records that one thread works on at a time: they stay in its cache
_SELECT = 4096  # from so many records on, a window is selected instead of sorted


class Window(NamedTuple):
    """The ranks ``(per_record * n + constant) // denominator``, the next and so on, ``width`` in all, moved into 0..n_max+1."""

    per_record: int
    constant: int
    denominator: int
    width: int

    def first(self, n: Any, n_max: int, xp: Any) -> Any:
        """The first rank, for NumPy or JAX arrays of counts."""
        rank = (n * np.int32(self.per_record) + np.int32(self.constant)) // np.int32(self.denominator)
        return xp.clip(rank, 0, n_max + 2 - self.width)


def order(
    records: jax.Array,
    present: jax.Array | None,
    low: jax.Array,
    high: jax.Array,
    *,
    missing: Missing,
    window: Window | None,
    sort: Sort,
) -> tuple[jax.Array, jax.Array]:
    """Sort every row of records, clamped to ``[low, high]``.

    With x[1..n] the sorted records that are present, x[j] = low for j <= 0 and x[j] = high for j > n:

    Args:
        records: float ``(..., n_max)``.
        present: bool ``(..., n_max)``, or None for all.
        low: ``(..., 1)``.
        high: ``(..., 1)``.
        missing: whether a NaN record is absent, or ``low``.
        window: which ranks to return; None for 0..n_max+1.
        sort: ``"xla"`` keeps XLA's own sort on every device.

    Returns:
        x[j] for the ranks of the window, ``(..., width)``, and n, int32 ``(..., 1)``.
    """
    width = records.shape[-1] + 2 if window is None else window.width
    device, host = (partial(function, missing=missing, window=window) for function in (_on_device, _on_host))
    # The counts come as the bits of one more column: on JAX 0.7, a callback with two results cannot be inside shard_map.
    shape = jax.ShapeDtypeStruct((*records.shape[:-1], width + 1), records.dtype)
    integer = np.dtype(f"int{8 * records.dtype.itemsize}")

    def callback(*arrays: Any) -> Any:
        packed = jax.pure_callback(host, shape, *arrays, vmap_method="broadcast_all")
        return packed[..., :-1], jax.lax.bitcast_convert_type(packed[..., -1:], integer).astype(jnp.int32)

    @jax.custom_jvp
    def fast(*arrays: Any) -> Any:
        alone = jax.process_count() == 1 and jax.local_device_count(backend="cpu") == 1
        if sort == "xla" or not alone:
            return device(*arrays)
        return jax.lax.platform_dependent(*arrays, cpu=callback, default=device)

    fast.defjvp(lambda primals, tangents: (fast(*primals), jax.jvp(device, primals, tangents)[1]))
    arguments = (low, high, records) if present is None else (low, high, records, present)
    return fast(*arguments)


def _on_device(
    low: jax.Array,
    high: jax.Array,
    records: jax.Array,
    present: jax.Array | None = None,
    *,
    missing: Missing,
    window: Window | None,
) -> tuple[jax.Array, jax.Array]:
    unreadable = jnp.isnan(records)
    clamped = jnp.clip(jnp.where(unreadable, low, records), low, high)
    clamped = jnp.where(clamped == 0, 0.0, clamped)  # -0.0 becomes 0.0: sorts need not agree on their order
    there = jnp.ones(records.shape, jnp.bool_) if present is None else present
    if missing == "absent":
        there = there & ~unreadable
    n = jnp.sum(there, axis=-1, keepdims=True, dtype=jnp.int32)
    whole = jnp.concatenate([low, jnp.sort(jnp.where(there, clamped, high), axis=-1), high], axis=-1)
    if window is None:
        return whole, n
    step = jnp.arange(window.width, dtype=jnp.int32).reshape((1,) * (n.ndim - 1) + (-1,))
    return take(whole, window.first(n, records.shape[-1], jnp) + step), n


def _on_host(low: Any, high: Any, records: Any, present: Any = None, *, missing: Missing, window: Window | None) -> np.ndarray:
    """What ``_on_device`` returns, the counts as integers in the bits of a last column."""
    records = np.asarray(records)
    batch, n_max = records.shape[:-1], records.shape[-1]
    sources = records.reshape(prod(batch), n_max)
    lows, highs = (
        np.ascontiguousarray(np.broadcast_to(np.asarray(end), (*batch, 1))).reshape(len(sources), 1) for end in (low, high)
    )
    there = None if present is None else np.broadcast_to(np.asarray(present), records.shape).reshape(sources.shape)
    width = n_max + 2 if window is None else window.width
    packed = np.empty((len(sources), width + 1), records.dtype)
    result, count = packed[:, :-1], packed[:, -1:].view(f"int{8 * records.itemsize}")

    def work(rows: slice) -> None:
        with np.errstate(invalid="ignore"):  # a signaling NaN warns; the state is that of this thread
            clamp_and_sort(rows)

    def clamp_and_sort(rows: slice) -> None:
        block = np.empty_like(sources[rows]) if window is not None else result[rows, 1:-1]
        np.maximum(sources[rows], lows[rows], out=block)  # both keep NaN; twice as fast as np.clip
        np.minimum(block, highs[rows], out=block)
        block += 0.0  # -0.0 becomes 0.0
        count[rows] = n_max
        absent = None if there is None else ~there[rows]
        unreadable = np.isnan(block)
        if unreadable.any():
            if missing == "low":
                np.copyto(block, lows[rows], where=unreadable)
            else:
                absent = unreadable if absent is None else absent | unreadable
        if absent is not None:
            np.copyto(block, highs[rows], where=absent)
            count[rows] -= np.count_nonzero(absent, axis=-1, keepdims=True)
        if window is None:
            block.sort(axis=-1)
            result[rows, :1], result[rows, -1:] = lows[rows], highs[rows]
        else:
            firsts = window.first(count[rows], n_max, np)[:, 0]
            for first in np.unique(firsts):  # rows with the same window go together: all of them where n is the same
                same = np.flatnonzero(firsts == first)
                result[same + rows.start] = _window(block[same], lows[rows][same], highs[rows][same], int(first), width)

    _in_blocks(work, *sources.shape)
    return packed.reshape(*batch, width + 1)


def _window(block: np.ndarray, low: np.ndarray, high: np.ndarray, first: int, width: int) -> np.ndarray:
    """x[first], ..., x[first + width - 1] of each row."""
    begin, end = max(first - 1, 0), min(first + width - 1, block.shape[-1])  # the records among them
    if block.shape[-1] >= _SELECT:  # one boundary at a time: NumPy's selection is vectorised for one
        if begin > 0:
            block = np.partition(block, begin, axis=-1)[:, begin:]
            begin, end = 0, end - begin
        if end < block.shape[-1]:
            block = np.partition(block, end, axis=-1)[:, :end]
    inside = np.sort(block, axis=-1)[:, begin:end]
    below = [low] if first == 0 else []
    above = [high] if len(below) + inside.shape[-1] < width else []
    return np.concatenate([*below, inside, *above], axis=-1)


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
