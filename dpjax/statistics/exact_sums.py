"""Sums of records without rounding, so that the values of neighbors interleave.

Corollary 3.1 requires that for neighbors x and x' the value U_l(x) is never beyond U_{l+1}(x').
Exact values that are equal, or closer than their rounding errors, may change order when they are
computed; two values in the wrong order cost up to 8 epsilon. Here none can:

* Records, in units of a power of two that is at least their size, are rounded one by one to
  multiples of 2^-k in float64. All datasets of one shape share this map, so that neighbors stay
  neighbors. With k = 51 - (the bits of a number of records), sums of so many records, twice such a
  sum, and products of a number of records with a record have at most 53 bits: they are exact, in
  any order of additions.
* So U_l and L_l are those of the rounded records, for which Corollary 3.1 holds: exact floats, or
  exact rational numbers. What follows is nondecreasing and the same for all datasets: the rounding
  of a quotient, the product with the unit, the sum with the lower bound, the minimum with a bound,
  the rounding to the dtype of the data. It preserves the order, and equal values stay equal.

A record moves by at most 2^-k of the unit: 2^-40 for 1000 records, less than float32 can show, and
2^-30 for 10^6 records, a thousandth of what one record can move their mean.

Derivatives are those of the same functions in the dtype of the data.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from dpjax.checks import Neighbors
from dpjax.numerics.float64 import in_float64
from dpjax.statistics.sorting import SortedRows, sort_rows


@partial(jax.jit, static_argnames=("compute", "neighbors", "resolution", "options"))
def from_sorted(
    compute: Callable[..., Any],
    *arrays: Any,
    neighbors: Neighbors,
    resolution: Fraction | None = None,
    options: tuple = (),
) -> Any:
    """Return ``compute(sorted_rows, *options)`` in float64, rounded to the dtype of the records.

    The arrays are those of :func:`sort_rows`, as is the resolution.
    """
    x = sort_rows(*arrays, neighbors=neighbors, resolution=resolution)

    return in_float64(
        lambda values, n: compute(SortedRows(values, n), *options),
        x.values,
        jnp.broadcast_to(x.n, x.low.shape),
    )


class OnGrid(NamedTuple):
    """Records and bounds less an origin, in a unit, on a grid; records beyond n are 0."""

    ascending: jax.Array
    descending: jax.Array
    low: jax.Array
    high: jax.Array
    unit: jax.Array


def on_grid(
    x: SortedRows, origin: jax.Array | float, size: jax.Array, most: int, whole: bool = False
) -> OnGrid:
    """Round records and bounds to a grid on which sums of ``most`` records are exact.

    ``whole`` records are integers and stay what they are; others are at most ``size`` from the
    origin.
    """
    fixed = jax.lax.stop_gradient(size)
    # The least power of two above, by which a division is exact.
    near = jax.lax.reduce_precision(fixed, 11, 0)
    unit = jnp.ones_like(fixed) if whole else jnp.where(near > fixed, near, 2 * near)
    steps = 2.0 ** (51 - most.bit_length())

    def rounded(numbers: jax.Array) -> jax.Array:
        number = (numbers - origin) / unit
        return number + jax.lax.stop_gradient(jnp.round(number * steps) / steps - number)

    return OnGrid(
        x.present(rounded(x.values[..., 1:-1])),
        x.present(rounded(x.descending()[..., :-1])),
        rounded(x.low),
        rounded(x.high),
        unit,
    )


def prefix_sums(terms: jax.Array) -> jax.Array:
    """Return the sums of the first 0, 1, ..., n terms: ``(..., n)`` to ``(..., n + 1)``.

    Each is a sum by at most 2 log2(n + 1) additions in sequence.
    """
    terms = jnp.pad(terms, [(0, 0)] * (terms.ndim - 1) + [(1, 0)])
    return jax.lax.associative_scan(jnp.add, terms, axis=terms.ndim - 1)
