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

In floating point the values must interleave (see ``rounding``) where they are 10^-12 of the range
and near its top. So each is computed within a factor of 1 +- e, from numbers with twice the
precision, e = 2^14 u^2:

* Sums are taken about the median record m, outwards from it, so that nothing outside a window
  enters its sums. If the mean of a set is t standard deviations from m, its sum of squares about m
  is (1 + t^2) SSE; errors are a multiple of that, at most 2^11 u^2.
* The full set has t <= 1. A window with l <= n/4 has at least a third of its records on either side
  of m, so t^2 <= 2 (Cantelli).
* For the largest values, 2 SSE(x) + l w^2, with the replaced records, is at most 10 times SSE after
  l swaps, since this is at least SSE(x) and at least l w^2 / 8 (half of them at a, half at b; for l
  = 1 the one that is further from the mean).
* Shorter windows grow record by record, from one record to 3 n/4. With G the sum of (last - x) over
  a window of k records, one more record at a distance g gives G + k g, and SSE + (G + k g)^2 / (k
  (k + 1)): there are no differences, so e grows by 16 u^2 a record.
* Units are powers of two such that w is between 1 and 2. Values below the square root of the
  smallest float may have lost precision by underflow and become 0, which is a monotone map.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from dpjax import checks
from dpjax.checks import Neighbors
from dpjax.numerics.batching import take
from dpjax.numerics.double_float import DoubleFloat, larger, largest, prefix_sums, product, single
from dpjax.sensitivity.profile import SensitivityProfile, from_sides
from dpjax.statistics.padded_records import bounded_records, levels_kept
from dpjax.statistics.rounding import outwards, unit
from dpjax.statistics.sorting import SortedRows, sort_rows

# The difference of records, in the units of the module docstring.
Apart = Callable[[jax.Array, jax.Array], DoubleFloat]


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
    checks.one_of("neighbors", neighbors, checks.NEIGHBORS)
    if neighbors != "swap":
        raise ValueError(
            'neighbors must be "swap" for variance: no exact profile is known under add_remove.'
        )
    keep = levels_kept(truncate)

    def squares(width: Any, size: Any, n: int, square: float) -> tuple[Any, Any]:
        return 4 * (n * width) * (n * width), (width / n) * (width / n)

    arrays = bounded_records(x, lower, upper, num_records, mask, range_of=squares, least=2)
    above, below = _variance(*arrays, keep)
    return from_sides(
        above, below, neighbors=neighbors, reached="extremes" if keep is None else "bounds"
    )


@partial(jax.jit, static_argnames=("keep",))
def _variance(
    records: jax.Array, present: jax.Array | None, low: jax.Array, high: jax.Array, keep: int | None
) -> tuple[jax.Array, jax.Array]:
    x = sort_rows(records, present, low, high, neighbors="swap")
    n, number, dtype, size = x.n, jnp.maximum(x.n, 1).astype(x.low.dtype), x.low.dtype, x.n_max
    kept_levels = size - 1 if keep is None else min(keep, size - 1)
    width = x.high - x.low
    fixed_width = jax.lax.stop_gradient(width)
    # A power of two, by which division is exact.
    scale = fixed_width / jnp.frexp(fixed_width)[0] / 2
    center = jnp.broadcast_to((n + 1) // 2, width.shape)

    def apart(a: jax.Array, b: jax.Array) -> DoubleFloat:
        exact = single(a).minus(single(b))
        return DoubleFloat(exact.high / scale, exact.low / scale)

    sums = _sums_from_the_median(x, apart, center, size + kept_levels + 1)
    a, b, w = apart(x.low, x.at(center)), apart(x.high, x.at(center)), width / scale
    total = sums.between(jnp.zeros_like(center), center - center + n)

    def largest_of(level: jax.Array) -> DoubleFloat:
        """Return the largest SSE after ``level`` swaps."""
        kept, kept_squares = (
            full.minus(window)
            for full, window in zip(total, sums.windows_of(level, size + 1), strict=True)
        )
        replaced = level.astype(dtype)
        vertex = a.plus(b).times(number / 2).minus(kept).minus(a.times(replaced)).value / w
        at_b = jnp.clip(jnp.stack([jnp.floor(vertex), jnp.floor(vertex) + 1]), 0, replaced)
        at_a = replaced - at_b
        moved = kept.plus(a.times(at_a)).plus(b.times(at_b))
        squares = kept_squares.plus(a.times(a).times(at_a)).plus(b.times(b).times(at_b))
        found = largest(
            squares.minus(moved.times(moved).over(number)),
            jnp.arange(size + 1, dtype=jnp.int32) <= n - level,
        )
        return larger(*(DoubleFloat(*(part[choice] for part in found)) for choice in (0, 1)))

    def smallest_of(level: jax.Array) -> DoubleFloat:
        """Return the smallest SSE of a window of n - level records, at levels up to n/4."""
        start: Any = np.arange(kept_levels + 1, dtype=np.int32)
        moved, squares = sums.between(start, start + jnp.maximum(n - level, 0))
        sse = squares.minus(moved.times(moved).over(jnp.maximum(n - level, 1).astype(dtype)))
        return -largest(-sse, start <= level)

    def both(level: jax.Array) -> tuple[DoubleFloat, DoubleFloat]:
        return largest_of(level), smallest_of(level)

    level: Any = np.arange(kept_levels + 1, dtype=np.int32)
    above, below = jax.tree.map(lambda parts: jnp.moveaxis(parts, 0, -1), jax.lax.map(both, level))
    quarter = n // 4
    few = max(1, min(size, 4 * kept_levels))  # longer rows have no levels beyond n/4
    by_size = _smallest_of_short_windows(x, apart, few)
    column = jnp.clip(n - level, 0, by_size.high.shape[-1] - 1)
    below = jax.tree.map(
        lambda long, short: jnp.where(level <= quarter, long, take(short, column)), below, by_size
    )

    error = 2.0**14 * unit(dtype)
    slack: Any = 3 * error * level.astype(dtype)
    slack_below = slack + 3 * (error + 16 * unit(dtype) * number) * jnp.maximum(
        level - quarter, 0
    ).astype(dtype)

    def rounded(sse: DoubleFloat, slack: Any) -> jax.Array:
        variance_ = sse.over(number)
        value = variance_.plus(variance_.times(slack)).value
        return jnp.where(
            value > float(jnp.finfo(dtype).tiny) ** 0.5, product(product(value, scale), scale), 0.0
        )

    top = product(width, width) * product(
        (n // 2).astype(dtype) / number, (n - n // 2).astype(dtype) / number
    )
    top = jnp.where(jnp.isnan(width), jnp.nan, jnp.where(n < 2, jnp.zeros_like(top), top))
    none = jnp.where(jnp.isnan(width), jnp.nan, jnp.zeros_like(top))
    above = jnp.where(level >= n, top, rounded(above, slack))
    below = jnp.where(level >= n - 1, none, rounded(below, -jnp.minimum(slack_below, 1.0)))
    value = below[..., :1]
    above, below = (
        jnp.concatenate([side[..., 1:], end], axis=-1)
        for side, end in ((above, top), (below, none))
    )
    return outwards(value, above, 1, none, top), outwards(value, below, -1, none, top)


class _Sums(NamedTuple):
    """Sums of distances to the median record, and of their squares, over x[1..p] for p = 0, 1, ...

    A constant is subtracted.
    """

    distances: DoubleFloat
    squares: DoubleFloat

    def between(self, start: jax.Array, end: jax.Array) -> tuple[DoubleFloat, DoubleFloat]:
        """Return the sums over x[start+1..end]."""

        def one(sums: DoubleFloat) -> DoubleFloat:
            at_end, at_start = (
                DoubleFloat(*(take(part, index) for part in sums)) for index in (end, start)
            )
            return at_end.minus(at_start)

        return one(self.distances), one(self.squares)

    def windows_of(self, length: jax.Array, count: int) -> tuple[DoubleFloat, DoubleFloat]:
        """Return the sums over x[s+1..s+length], s = 0, ..., count - 1."""

        def one(sums: DoubleFloat) -> DoubleFloat:
            at_end = DoubleFloat(
                *(jax.lax.dynamic_slice_in_dim(part, length, count, axis=-1) for part in sums)
            )
            return at_end.minus(sums.at(slice(0, count)))

        return one(self.distances), one(self.squares)


def _sums_from_the_median(x: SortedRows, apart: Apart, center: jax.Array, length: int) -> _Sums:
    """Return the sums from the median record x[center], where they are 0; negative below it."""
    reach = np.arange(x.n_max // 2 + 1, dtype=np.int32)
    left, right = center - reach, center + 1 + reach
    index = jnp.stack([jnp.maximum(left, 0), jnp.minimum(right, x.n)])
    exists = jnp.stack([left >= 1, right <= x.n])
    distance = apart(x.at(index), x.at(center))
    distance = DoubleFloat(*(jnp.where(exists, part, 0.0) for part in distance))
    terms = jax.tree.map(lambda *parts: jnp.stack(parts), distance, distance.times(distance))
    arms = prefix_sums(terms)  # (2 kinds of sums, 2 sides, ..., reach + 1)
    offset = np.arange(length, dtype=np.int32) - center

    def joined(kind: int) -> DoubleFloat:
        below, above = (
            DoubleFloat(
                *(take(part[kind, side], jnp.clip(sign * offset, 0, len(reach))) for part in arms)
            )
            for side, sign in ((0, -1), (1, 1))
        )
        return jax.tree.map(lambda low, high: jnp.where(offset < 0, low, high), -below, above)

    return _Sums(joined(0), joined(1))


def _smallest_of_short_windows(x: SortedRows, apart: Apart, columns: int) -> DoubleFloat:
    """Return the smallest SSE of 0, 1, 2, ... consecutive records, ``(..., sizes)``.

    Sizes go up to three quarters of the columns.
    """
    records, most = x.values[..., 1 : columns + 1], columns - columns // 4
    gaps = apart(records[..., 1:], records[..., :-1])
    gaps = DoubleFloat(
        *(jnp.pad(part, [(0, 0)] * (part.ndim - 1) + [(0, most + 1)]) for part in gaps)
    )
    start: Any = np.arange(columns, dtype=np.int32)

    def grow(
        state: tuple[DoubleFloat, DoubleFloat], k: jax.Array
    ) -> tuple[tuple[DoubleFloat, DoubleFloat], DoubleFloat]:
        below_last, sse = state
        gap = DoubleFloat(
            *(jax.lax.dynamic_slice_in_dim(part, k - 1, columns, axis=-1) for part in gaps)
        )
        number = k.astype(records.dtype)
        below_last = below_last.plus(gap.times(number))
        sse = sse.plus(below_last.times(below_last).over(number).over(number + 1))
        return (below_last, sse), -largest(-sse, start + k < x.n)

    nothing = single(jnp.zeros_like(records))
    _, found = jax.lax.scan(grow, (nothing, nothing), jnp.arange(1, max(most, 1), dtype=jnp.int32))
    return jax.tree.map(
        lambda part: jnp.pad(jnp.moveaxis(part, 0, -1), [(0, 0)] * (part.ndim - 1) + [(2, 0)]),
        found,
    )
