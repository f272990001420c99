"""The population variance of clamped records: its extreme values within l swaps.

They are those of the sum of squares, SSE = n variance.

Largest: SSE is convex in each replaced record, so these move to a bound, a or b. It is also convex
in each kept record: for a kept record y between replaced ones x1 <= y <= x2, keeping x1 or x2 in
its place would not be worse; so the replaced ones are adjacent in the sorted row, x[s+1..s+l]. With
j of them at b, SSE is a concave quadratic in j with its vertex at n/2 - P/w, for w = b - a and P
the sum of (kept - a): it is largest at an integer next to it.

Smallest: replaced records move to the mean of the kept ones, and do not change their SSE. About the
mean of kept records, the n - l nearest records have no larger sum of squares, and about their own
mean a smaller one still; they are adjacent in the sorted row. So it is the smallest SSE of n - l
consecutive records, a window.

In floating point, values are computed in float64 and get a slack that grows with the level, so that
those of neighbors x and x' interleave (see ``exact_sums``; squares do not fit on a grid):

* Records are distances from the median record, in widths of the bounds. With u = 2^-53 and n < 2^c,
  the error of a record is at most 2 u, that of its square 5 u, that of a sum of the first of them,
  by 2 c additions in sequence, (2 c + 5) u n, and that of the sum over a window or over all others
  3 times as much. About the mean, SSE = Q - P^2 / m, where abs(P) <= m: its error is at most that
  of Q plus twice that of P. So the error of a variance is at most e = 2^5 (c + 3) u.
* The values are V_l = U_l + 2 e l: V_l(x) <= U_l(x) + e + 2 e l <= U_{l+1}(x') + e + 2 e l <=
  V_{l+1}(x'), where U in the middle is exact and V has an error of at most e. Below likewise.
* What follows is nondecreasing and the same for all datasets: bounds, the product with the square
  of the width, and the rounding to the dtype of the data.

The slack is 10^-12 squares of the width a level for n = 1000, where one record can move the
variance by 10^-3 of it. f(x) itself has none, and an error relative to itself.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from dpjax import checks
from dpjax.checks import Neighbors
from dpjax.numerics.arrays import integers, take
from dpjax.sensitivity.profile import SensitivityProfile, from_sides
from dpjax.statistics.exact_sums import from_sorted, prefix_sums
from dpjax.statistics.padded_records import bounded_records
from dpjax.statistics.sorting import SortedRows


def variance(
    x: ArrayLike,
    *,
    lower: ArrayLike,
    upper: ArrayLike,
    neighbors: Neighbors,
    num_records: ArrayLike | None = None,
    mask: ArrayLike | None = None,
    truncate: int | None = None,
) -> SensitivityProfile:
    """Return the sensitivity profile of the population variance under swap.

    The variance is the sum of (x[i] - mean)^2 / n.

    It takes O(n) operations a level: pass ``truncate`` = k, for O(n k), if n is in the thousands.

    Args:
        x: float ``(..., n)``, n >= 2. See :mod:`dpjax.statistics` for it and for the arguments not
            listed here.
        truncate: static k, chosen without the data: the profile is that of ``.truncate(k)``.
        neighbors: ``"swap"``. Under add/remove no exact profile is known to the authors of this
            library.

    Returns:
        A profile of batch shape ``(...)`` with range [0, (upper - lower)^2 floor(n/2) ceil(n/2) /
        n^2], which n records can attain. A row of fewer than two records has no distribution.

    Raises:
        ValueError: as :func:`dpjax.mean`; ``neighbors="add_remove"``, fewer than two columns, or an
            invalid ``truncate``.

    Privacy:
        The values satisfy Corollary 3.1, also after rounding. Public: see :mod:`dpjax.statistics`.

    References:
        Durfee (2025), Section 3.1; the extreme values are derived in the module docstring.

    >>> import jax.numpy as jnp
    >>> profile = variance(jnp.array([1.0, 2.0, 3.0, 4.0]), lower=0, upper=4, neighbors="swap")
    >>> profile.upper.tolist(), profile.lower.round(3).tolist()
    ([1.25, 2.5, 3.1875, 4.0, 4.0], [1.25, 0.5, 0.125, 0.0, 0.0])
    """
    if neighbors != "swap":
        raise ValueError(
            'neighbors must be "swap" for variance: no exact profile is known under add_remove.'
        )
    if truncate is not None:
        truncate = checks.static_integer("truncate", truncate, 0)
    arrays, _ = bounded_records(
        *(x, lower, upper, num_records, mask), size=lambda low, high: (high - low) ** 2, least=2
    )
    levels = arrays[0].shape[-1] - 1
    levels = levels if truncate is None else min(truncate, levels)
    above, below = from_sorted(_sides, *arrays, neighbors=neighbors, options=(levels,))
    return from_sides(
        above, below, neighbors=neighbors, reached="extremes" if truncate is None else "bounds"
    )


def _sides(x: SortedRows, levels: int) -> tuple[jax.Array, jax.Array]:
    """Return the values above and below."""
    n, size, dtype, width = x.n, x.n_max, x.values.dtype, x.high - x.low
    number = jnp.maximum(n, 1).astype(dtype)
    median = x.at(jnp.broadcast_to((n + 1) // 2, width.shape))
    a, b = (x.low - median) / width, (x.high - median) / width
    distance = x.present((x.values[..., 1:-1] - median) / width)
    sums = prefix_sums(jnp.stack([distance, jnp.square(distance)]))
    total = take(sums, jnp.broadcast_to(n, (2, *width.shape)))
    start = integers(size + 1)

    def windows(length: Any) -> jax.Array:
        """Return the sums over so many records from ``start`` on."""
        end = jnp.clip(start + length, 0, n)
        return take(sums, jnp.broadcast_to(end, sums.shape)) - sums

    def extremes(level: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Return the largest and the smallest variance after ``level`` swaps."""
        kept, kept_squares = total - windows(level)
        replaced = level.astype(dtype)
        vertex = jnp.floor(number / 2 * (a + b) - kept - a * replaced)
        at_b = jnp.clip(jnp.stack([vertex, vertex + 1]), 0, replaced)
        at_a = replaced - at_b
        moved = kept + a * at_a + b * at_b
        larger = kept_squares + a * a * at_a + b * b * at_b - moved * moved / number
        kept, kept_squares = windows(n - level)
        smaller = kept_squares - kept * kept / jnp.maximum(n - level, 1).astype(dtype)
        largest = jnp.max(jnp.where(start <= n - level, larger, 0.0), axis=(0, -1))
        return largest, jnp.min(jnp.where(start <= level, smaller, jnp.inf), axis=-1)

    level = integers(levels + 1)
    above, below = (
        jnp.moveaxis(side, 0, -1) / number for side in jax.lax.map(extremes, jnp.asarray(level))
    )
    slack = 2 * 2.0**-48 * (size.bit_length() + 3) * level.astype(dtype)
    top = (n // 2).astype(dtype) * (n - n // 2).astype(dtype) / (number * number)
    above = jnp.where(level >= n, top, above + slack)
    below = jnp.where(level >= n - 1, 0.0, below - slack)
    above = jnp.concatenate([below[..., :1], above[..., 1:], 0 * width + top], axis=-1)
    below = jnp.concatenate([below, 0 * width], axis=-1)
    square = width * width
    return jnp.clip(above, 0.0, top) * square, jnp.clip(below, 0.0, top) * square
