"""Sorting of clamped rows, and counting of present records.

On the CPU, XLA sorts with a comparator, 40 times slower than NumPy's vectorized sort. There the
clamped rows are passed to NumPy (:mod:`dpjax.numerics.host_call`), in threads if there are many; on
other devices XLA sorts, and nothing leaves the device. The derivative is that of XLA's sort in both
cases.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dpjax.checks import Neighbors
from dpjax.numerics.arrays import by_platform, concatenate, take
from dpjax.numerics.host_call import allowed, host_call
from dpjax.numerics.multiples import to_multiples

# Records that one thread sorts at a time: with fewer, threads wait for the interpreter lock.
_BLOCK = 2**19


class SortedRows(NamedTuple):
    """Sorted rows: x[1..n] are present records, x[j] = low for j <= 0 and x[j] = high for j > n.

    Attributes:
        values: x[0], ..., x[n_max + 1], ``(..., n_max + 2)``.
        n: int32 ``(..., 1)``; a NumPy array of one number if it is public and the same for all
            rows.
    """

    values: jax.Array
    n: Any

    @property
    def n_max(self) -> int:
        """The number of columns."""
        return self.values.shape[-1] - 2

    @property
    def low(self) -> jax.Array:
        """The lower bound, ``(..., 1)``."""
        return self.values[..., :1]

    @property
    def high(self) -> jax.Array:
        """The upper bound, ``(..., 1)``."""
        return self.values[..., -1:]

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
    resolution: Fraction | None = None,
) -> SortedRows:
    """Clamp and sort the records of every row, ``(..., n_max)``.

    With a resolution, records and bounds become multiples of it. A NaN record is absent under add/remove. Under swap, where the number of records is public, it
    becomes ``low``. A row with a bound that is NaN is all NaN.
    """
    if resolution is not None:
        records, low, high = (to_multiples(array, resolution) for array in (records, low, high))
    n: Any = np.full((1,) * records.ndim, records.shape[-1], np.int32)
    low, high = low[..., None], high[..., None]
    there, readable = present, ~jnp.isnan(records)
    if neighbors == "swap":
        records = jnp.where(readable, records, low)
    else:
        there = readable if present is None else readable & present
    clamped = jnp.clip(records, low, high)
    if there is not None:
        n = jnp.sum(there, axis=-1, keepdims=True, dtype=jnp.int32)
        clamped = jnp.where(there, clamped, high)
    # The bounds stay first and last, as sorts are stable.
    rows = concatenate(low, jnp.where(low <= high, clamped, jnp.nan), high)
    # -0.0 becomes 0.0: sorts need not agree on their order.
    return SortedRows(_sort(jnp.where(rows == 0, 0.0, rows)), n)


def _sort(rows: jax.Array) -> jax.Array:
    def host(rows: jax.Array) -> jax.Array:
        return host_call(_OnHost(), [jax.ShapeDtypeStruct(rows.shape, rows.dtype)], rows)[0]

    @jax.custom_jvp
    def fast(rows: jax.Array) -> jax.Array:
        return by_platform(rows, cpu=host, default=jnp.sort)

    fast.defjvp(lambda rows, tangents: (fast(*rows), jax.jvp(jnp.sort, rows, tangents)[1]))
    return fast(rows) if allowed() else jnp.sort(rows)


@dataclass(frozen=True)
class _OnHost:
    """NumPy's sort. Its ``repr`` identifies it (:mod:`dpjax.numerics.host_call`)."""

    def __call__(self, results: Sequence[np.ndarray], rows: np.ndarray) -> None:
        columns = rows.shape[-1]
        source, result = (array.reshape(-1, columns) for array in (rows, results[0]))
        block = max(1, _BLOCK // columns)

        def work(start: int) -> None:
            part = result[start : start + block]
            part[...] = source[start : start + block]
            part.sort(axis=-1)

        starts = range(0, len(source), block)
        if len(starts) < 2:
            work(0)
            return
        with ThreadPoolExecutor() as pool:  # NumPy sorts without the interpreter lock
            list(pool.map(work, starts))
