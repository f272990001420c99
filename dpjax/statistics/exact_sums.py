"""Sums of records without rounding, so that the values of neighbors interleave.

Corollary 3.1 requires that for neighbors x and x' the value U_l(x) is never beyond U_{l+1}(x').
Exact values that are equal, or closer than their rounding errors, may change order when they are
computed; two values in the wrong order cost up to 8 epsilon. Here none can:

* Records, in units of a power of two that is at least their size, are rounded one by one to
  multiples of 2^-k in float64. All datasets of one shape share this map, so that neighbors stay
  neighbors. With k = 51 - (the bits of a number of records), sums of so many records, twice such a
  sum, and products of a number of records with a record have at most 53 bits: they are exact, in
  any order of additions.
* So U_l and L_l are those of the rounded records, for which Corollary 3.1 holds: exact rational
  numbers, or exact floats. What follows is nondecreasing and the same for all datasets: the rounding
  of a quotient, the product with the unit, the sum with the lower bound, the minimum with a bound,
  the rounding to the dtype of the data. It preserves the order, and equal values stay equal.

A record moves by at most 2^-k of the unit: 2^-40 for 1000 records, less than float32 can show, and
2^-30 for 10^6 records, a thousandth of what one record can move their mean.

For derivatives the same functions run in the dtype of the data.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dpjax.numerics.float64 import in_float64
from dpjax.statistics.sorting import SortedRows


def from_sorted(compute: Callable[[SortedRows], Any], x: SortedRows) -> Any:
    """Return ``compute(x)`` in float64, rounded to the dtype of the records."""

    def of_arrays(values: jax.Array, n: Any, low: jax.Array, high: jax.Array) -> Any:
        return compute(x._replace(values=values, n=n, low=low, high=high))

    return in_float64(of_arrays, x.values, jnp.broadcast_to(x.n, x.low.shape), x.low, x.high)


def power_of_two(size: jax.Array) -> jax.Array:
    """Return the least power of two above ``size``, by which a division is exact."""
    fixed = jax.lax.stop_gradient(size)
    return fixed / jnp.frexp(fixed)[0]


def on_grid(numbers: jax.Array, count: int) -> jax.Array:
    """Round numbers from -1 to 1 to a grid on which sums of ``count`` of them are exact."""
    steps = 2.0 ** (51 - count.bit_length())
    # The rounding has the derivative 1.
    return numbers + jax.lax.stop_gradient(jnp.round(numbers * steps) / steps - numbers)


def in_both_orders(
    x: SortedRows, origin: jax.Array | float, unit: jax.Array | float, count: int
) -> tuple[jax.Array, jax.Array]:
    """Return the records minus ``origin`` on the grid, ascending and descending, 0 beyond n."""
    descending = x.at(jnp.maximum(x.n - np.arange(x.n_max, dtype=np.int32), 0))
    ascending, descending = (
        x.present(on_grid((records - origin) / unit, count))
        for records in (x.values[..., 1:-1], descending)
    )
    return ascending, descending


def prefix_sums(terms: jax.Array) -> jax.Array:
    """Return the sums of the first 0, 1, ..., n terms: ``(..., n)`` to ``(..., n + 1)``.

    Each is a sum by at most 2 log2(n + 1) additions in sequence.
    """
    terms = jnp.pad(terms, [(0, 0)] * (terms.ndim - 1) + [(1, 0)])
    return jax.lax.associative_scan(jnp.add, terms, axis=terms.ndim - 1)
