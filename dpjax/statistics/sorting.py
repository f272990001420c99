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

from dpjax import checks
from dpjax.checks import Neighbors
from dpjax.numerics.arrays import by_platform, integers, take, varying
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

    def descending(self) -> jax.Array:
        """Return x[n], ..., x[1], and ``low`` from there on: ``(..., n_max + 1)``."""
        return self.at(jnp.maximum(self.n - integers(self.n_max + 1), 0))

    def present(self, values: jax.Array) -> jax.Array:
        """Replace by 0 the values, of x[1], ..., x[n_max], beyond n."""
        return jnp.where(integers(self.n_max) < self.n, values, 0.0)


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

    With a resolution, records and bounds become multiples of it. A NaN record is absent under
    add/remove. Under swap, where the number of records is public, it becomes ``low``. A row with a
    bound that is NaN is all NaN.
    """
    if resolution is not None:
        records, low, high = (to_multiples(array, resolution) for array in (records, low, high))
    swap, there = checks.one_of("neighbors", neighbors, checks.NEIGHBORS) == "swap", present
    n: Any = np.full((1,) * records.ndim, records.shape[-1], np.int32)
    if not swap:
        there = ~jnp.isnan(records) if present is None else ~jnp.isnan(records) & present
    if there is not None:
        n = jnp.sum(there, axis=-1, keepdims=True, dtype=jnp.int32)
    # Clamping makes bounds of infinite numbers: of those that are added at both ends too.
    records = jnp.where(jnp.isnan(records), -jnp.inf, records)
    records = records if there is None else jnp.where(there, records, jnp.inf)
    ends = [(0, 0)] * (records.ndim - 1) + [(1, 1)]
    records = jnp.pad(records, ends, constant_values=(-jnp.inf, jnp.inf))
    low, high = low[..., None], high[..., None]
    rows = jnp.where(low <= high, jnp.clip(records, low, high), jnp.nan)
    # -0.0 becomes 0.0: sorts need not agree on their order.
    return SortedRows(_sort(jnp.where(rows == 0, 0.0, rows)), n)


def _sort(rows: jax.Array) -> jax.Array:
    def host(rows: jax.Array) -> jax.Array:
        result = jax.ShapeDtypeStruct(rows.shape, rows.dtype)
        return varying(host_call(_SortInPlace(), [result], rows, in_place=True)[0], rows == rows)

    @jax.custom_jvp
    def fast(rows: jax.Array) -> jax.Array:
        return by_platform(rows, cpu=host, default=jnp.sort)

    fast.defjvp(lambda rows, tangents: (fast(*rows), jax.jvp(jnp.sort, rows, tangents)[1]))
    return fast(rows) if allowed() else jnp.sort(rows)


@dataclass(frozen=True)
class _SortInPlace:
    """NumPy's sort. Its ``repr`` identifies it (:mod:`dpjax.numerics.host_call`)."""

    def __call__(self, results: Sequence[np.ndarray], rows: np.ndarray) -> None:
        del rows  # in the memory of the result
        result = results[0].reshape(-1, results[0].shape[-1])
        block = max(1, _BLOCK // result.shape[-1])
        parts = [result[start : start + block] for start in range(0, len(result), block)]
        if len(parts) == 1:
            parts[0].sort()
            return
        try:
            with ThreadPoolExecutor() as pool:  # NumPy sorts without the interpreter lock
                list(pool.map(np.ndarray.sort, parts))
        except RuntimeError:  # no threads start when the interpreter ends
            result.sort()
