"""Mean, sum and variance of clamped records: their sensitivity profiles.

With x[1..n] sorted, T their sum, and a, b the bounds, the extreme values within l changes (those below by symmetry) are:

    mean, swap            (T + sum over i <= l of (b - x[i])) / n
    mean, add/remove      max over R of (T - x[1] - ... - x[R] + (l - R) b) / (n - 2 R + l): R smallest removed, l - R added at b
    sum, swap             T + sum over i <= l of (b - x[i])
    sum, add/remove       T + sum over i <= l of max(b, 0, -x[i]): each change adds b or removes the smallest, whichever gives more
    variance, swap        see ``_variance``

All are exact. The mean under add/remove is the one where the best change at each step is not the best in the end: of {0, 0, 0.8} in
[0, 1], two changes chosen one by one reach 0.6, and removing both zeros reaches 0.8. But the numerator above is concave in R and
the denominator affine, so the ratio is quasi-concave; it rises to the best R without a pause, then falls. It rises from R to R + 1
exactly where it is above (x[R+1] + b) / 2, the mean of the record that goes and the addition that does not come, and the best R is
found by bisection.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from dpjax import checks
from dpjax.checks import Neighbors
from dpjax.numerics.batching import broadcast_rows, take
from dpjax.numerics.double_float import Pair, exact_product, prefix_sums, product, single
from dpjax.sensitivity.profile import SensitivityProfile
from dpjax.statistics.records import levels_kept, present_records
from dpjax.statistics.sorting import Sort, order

Values = Literal["extreme", "hull"]


def mean(
    x: ArrayLike,
    *,
    lower: ArrayLike,
    upper: ArrayLike,
    neighbors: Neighbors,
    values: Values = "extreme",
    count: ArrayLike | None = None,
    mask: ArrayLike | None = None,
    sort: Sort = "auto",
) -> SensitivityProfile:
    """Return the sensitivity profile of the mean, (x[1] + ... + x[n]) / n.

    Under swap the l smallest records become ``upper``. Under add/remove records come and go and n is private; the mean is then not
    sample-monotone (of {0, 1}, removing one record reaches 0 and 1, but 0.9 takes two changes), and there are two profiles.
    ``values="extreme"`` has the largest and the smallest mean within l changes: right for piecewise Laplace, and for inverse
    sensitivity too. ``values="hull"`` has what l changes reach with at least one addition, a whole interval: inverse sensitivity
    on it is Duff's mean. It is a little narrower and cannot be interpolated: piecewise Laplace would have a loss of 1.08 epsilon
    and a range of 1.5 epsilon.

    Args:
        x: float ``(..., n)``, individuals on the last axis; clamped to ``[lower, upper]``. A NaN record is absent under
            ``"add_remove"`` and counts as ``lower`` under ``"swap"``.
        lower: public lower bound of the data, ``(...)``.
        upper: public upper bound of the data, ``(...)``.
        neighbors: ``"add_remove"`` or ``"swap"``.
        values: ``"extreme"``, or under add/remove ``"hull"``.
        count: int ``(...)``, how many leading records of each row are present (clamped to 0..n).
        mask: bool ``(..., n)``, which records are present; instead of ``count``.
        sort: as in :func:`dpjax.quantile`.

    Returns:
        A profile of batch shape ``(...)``, n levels under swap and n+1 under add/remove. An empty dataset has the value
        (lower + upper) / 2.

    Raises:
        TypeError, ValueError: as :func:`dpjax.quantile`; ``values="hull"`` under swap; bounds so large that n of them overflow.

    Privacy:
        The values keep Corollary 3.1 (the hull only beyond level 0: flat pieces, no ``rho``). Public: the bounds, the shape of
        ``x``, and under swap the number of records; under add/remove it is private.

    References:
        Durfee (2025), Section 3.1; Gillenwater and Munoz Medina, Section 4.1, which calls for a dynamic program: none is needed.

    >>> import jax.numpy as jnp
    >>> profile = mean(jnp.array([1.0, 2.0, 3.0, 6.0]), lower=0, upper=10, neighbors="swap")
    >>> profile.upper.tolist(), profile.lower.tolist()
    ([3.0, 5.25, 7.25, 9.0, 10.0], [3.0, 1.5, 0.75, 0.25, 0.0])
    """
    checks.one_of("values", values, ("extreme", "hull"))
    checks.one_of("neighbors", neighbors, checks.NEIGHBORS)
    if values == "hull" and neighbors == "swap":
        raise ValueError('values="hull" is for add_remove neighbors; under swap the mean has one profile.')
    arrays = _arguments(x, lower, upper, count, mask, sort, lambda width, size, n: (2 * (size + width) * n, width))
    above, below = _mean(*arrays, neighbors, values, sort)
    return _profile(above, below, neighbors, interpolable=values == "extreme")


def sum(  # the name it has in NumPy and JAX
    x: ArrayLike,
    *,
    lower: ArrayLike,
    upper: ArrayLike,
    neighbors: Neighbors,
    max_count: int | None = None,
    count: ArrayLike | None = None,
    mask: ArrayLike | None = None,
    sort: Sort = "auto",
) -> SensitivityProfile:
    """Return the sensitivity profile of the sum, x[1] + ... + x[n], of clamped records.

    Under swap the output ranges over [n lower, n upper]. Under add/remove n is private and the sum of a neighbour may be larger
    than any bound: after the levels at which all records are gone, every further one costs the global sensitivity
    max(abs(lower), abs(upper)), without end. With ``max_count``, a public bound on the number of records, the range is
    [max_count * min(lower, 0), max_count * max(upper, 0)].

    Args:
        x: float ``(..., n)``, individuals on the last axis; NaN as in :func:`mean`.
        lower: public lower bound of a record, ``(...)``.
        upper: public upper bound of a record, ``(...)``.
        neighbors: ``"add_remove"`` or ``"swap"``.
        max_count: static, at least the number of columns of ``x``; for ``"add_remove"`` only.
        count: int ``(...)``, how many leading records of each row are present (clamped to 0..n).
        mask: bool ``(..., n)``, which records are present; instead of ``count``.
        sort: as in :func:`dpjax.quantile`.

    Returns:
        A profile of batch shape ``(...)``: n levels, under add/remove followed by steps (which inverse sensitivity refuses) or,
        with ``max_count``, n + max_count levels. Under swap a row without records has no law.

    Raises:
        TypeError, ValueError: as :func:`mean`; a ``max_count`` under swap or below the columns of ``x``; no column under swap.

    Privacy:
        The values are exact and keep Corollary 3.1; so do the steps, as one change moves each of them by at most the global
        sensitivity. Public: the bounds, ``max_count``, the shape of ``x``, and under swap the number of records.

    References:
        Durfee (2025), Sections 3.1 and 5.2.

    >>> import jax.numpy as jnp
    >>> profile = sum(jnp.array([1.0, -2.0]), lower=-3, upper=1, neighbors="add_remove")
    >>> profile.upper.tolist(), profile.lower.tolist(), float(profile.step)
    ([-1.0, 1.0, 2.0], [-1.0, -4.0, -7.0], 3.0)
    """
    checks.one_of("neighbors", neighbors, checks.NEIGHBORS)
    columns = np.shape(x)[-1] if np.ndim(x) else 0
    if max_count is not None:
        whole = isinstance(max_count, (int, np.integer)) and not isinstance(max_count, bool)
        if neighbors == "swap" or not whole or max_count < max(columns, 1):
            raise ValueError(
                f"max_count is a static integer from the {columns} columns of x, for add_remove neighbors; got {max_count!r}."
            )
    limit = None if max_count is None else int(max_count)
    least = 1 if neighbors == "swap" else 0
    arrays = _arguments(x, lower, upper, count, mask, sort, lambda width, size, n: (2 * size * (n + (limit or n)), width), least)
    above, below, step = _sum(*arrays, neighbors, limit, sort)
    return _profile(above, below, neighbors, step=step)


def variance(
    x: ArrayLike,
    *,
    lower: ArrayLike,
    upper: ArrayLike,
    neighbors: Neighbors,
    count: ArrayLike | None = None,
    mask: ArrayLike | None = None,
    truncate: int | None = None,
    sort: Sort = "auto",
) -> SensitivityProfile:
    """Return the sensitivity profile of the population variance, sum of (x[i] - mean)^2 / n, under swap neighbours.

    It takes O(n) operations a level: give ``truncate`` where n is in the thousands.

    Args:
        x: float ``(..., n)``, individuals on the last axis, at least 2; NaN as in :func:`mean`.
        lower: public lower bound of the data, ``(...)``.
        upper: public upper bound of the data, ``(...)``.
        neighbors: ``"swap"``. Under add/remove the exact profile is not known to this library.
        count: int ``(...)``, how many leading records of each row are present (clamped to 0..n).
        mask: bool ``(..., n)``, which records are present; instead of ``count``.
        truncate: static k, chosen without the data; the same as ``.truncate(k)`` afterwards, in O(n k).
        sort: as in :func:`dpjax.quantile`.

    Returns:
        A profile of batch shape ``(...)`` with range [0, (upper - lower)^2 floor(n/2) ceil(n/2) / n^2], which n records can reach.
        A row of fewer than two records has no law.

    Raises:
        TypeError, ValueError: as :func:`mean`; ``neighbors="add_remove"``, fewer than two columns, a bad ``truncate``.

    Privacy:
        The values are exact and keep Corollary 3.1. Public: the bounds, k, the shape of ``x`` and the number of records.

    References:
        Durfee (2025), Section 3.1; the extreme values are derived in the source.

    >>> import jax.numpy as jnp
    >>> profile = variance(jnp.array([1.0, 2.0, 3.0, 4.0]), lower=0, upper=4, neighbors="swap")
    >>> profile.upper.tolist(), profile.lower.round(3).tolist()
    ([1.25, 2.5, 3.1875, 4.0, 4.0], [1.25, 0.5, 0.125, 0.0, 0.0])
    """
    checks.one_of("neighbors", neighbors, checks.NEIGHBORS)
    if neighbors != "swap":
        raise ValueError('variance has a profile under neighbors="swap" only: under add_remove none is known to be exact.')
    keep = levels_kept(truncate)

    def squares(width: Any, size: Any, n: int) -> tuple[Any, Any]:
        return 4 * (n * width) * (n * width), (width / n) * (width / n)

    arrays = _arguments(x, lower, upper, count, mask, sort, squares, 2)
    above, below = _variance(*arrays, keep, sort)
    return _profile(above, below, neighbors)


def _arguments(
    x: ArrayLike,
    lower: ArrayLike,
    upper: ArrayLike,
    count: ArrayLike | None,
    mask: ArrayLike | None,
    sort: Sort,
    range_of: Callable[[Any, Any, int], tuple[Any, Any]],
    least: int = 0,
) -> tuple[jax.Array, jax.Array | None, jax.Array, jax.Array]:
    """Records, which are present, and the bounds.

    ``range_of(width, size, n)`` is the largest number on the way, which must not overflow, and the smallest, which must not vanish:
    data never make a NaN.
    """
    checks.one_of("sort", sort, ("auto", "xla"))
    records, present = present_records(x, count=count, mask=mask, least=least)
    low, high = checks.bounds(lower, upper, records.dtype)
    n = max(records.shape[-1], 1)
    tiny = float(jnp.finfo(records.dtype).tiny) * 2.0**20
    if not isinstance(lower, jax.Array) and not isinstance(upper, jax.Array):
        a, b = np.asarray(lower, np.float64), np.asarray(upper, np.float64)
        with np.errstate(over="ignore", under="ignore"):
            most, smallest = range_of(b - a, np.maximum(abs(a), abs(b)), n)
        if not np.all(most < float(jnp.finfo(records.dtype).max)):
            raise ValueError(f"bounds too large to add {n} records in {records.dtype}: got lower={lower}, upper={upper}.")
        if not np.all(smallest > tiny):
            raise ValueError(f"bounds too close for {n} records in {records.dtype}: got lower={lower}, upper={upper}.")
    most, smallest = range_of(high - low, jnp.maximum(abs(low), abs(high)), n)
    fits = jnp.isfinite(most) & (smallest > tiny)
    return records, present, jnp.where(fits, low, jnp.nan), jnp.where(fits, high, jnp.nan)


def _profile(
    above: jax.Array, below: jax.Array, neighbors: Neighbors, step: jax.Array | None = None, interpolable: bool = True
) -> SensitivityProfile:
    upper_levels, lower_levels = (jnp.arange(side.shape[-1], dtype=side.dtype) for side in (above, below))
    return SensitivityProfile(above, below, upper_levels, lower_levels, step=step, neighbors=neighbors, interpolable=interpolable)


class Sorted(NamedTuple):
    """Sorted rows.

    Attributes:
        records: x[0], ..., x[n_max + 1], ``(..., n_max + 2)``; x[0] = low, and high beyond n.
        n: int32 ``(..., 1)``.
        low: ``(..., 1)``.
        high: ``(..., 1)``.
    """

    records: jax.Array
    n: jax.Array
    low: jax.Array
    high: jax.Array

    @staticmethod
    def of(
        records: jax.Array, present: jax.Array | None, low: jax.Array, high: jax.Array, neighbors: Neighbors, sort: Sort
    ) -> Sorted:
        """Clamp and sort."""
        shapes = [records.shape, (*low.shape, 1), (*high.shape, 1)] + ([] if present is None else [present.shape])
        batch = jnp.broadcast_shapes(*shapes)[:-1]
        records, low, high = (broadcast_rows(array, batch) for array in (records, low[..., None], high[..., None]))
        there = None if present is None else broadcast_rows(present, batch)
        missing: Literal["absent", "low"] = "absent" if neighbors == "add_remove" else "low"
        return Sorted(*order(records, there, low, high, missing=missing, window=None, sort=sort), low, high)

    @property
    def size(self) -> int:
        """The largest number of records."""
        return self.records.shape[-1] - 2

    def indices(self, stop: int, start: int = 0) -> jax.Array:
        """start, ..., stop - 1 on the last axis, int32."""
        return jnp.arange(start, stop, dtype=jnp.int32).reshape((1,) * (self.n.ndim - 1) + (-1,))

    def term(self, values: jax.Array) -> jax.Array:
        """Zero beyond the records of the row, for values of x[1], ..., x[n_max]."""
        return jnp.where(self.indices(self.size) < self.n, values, 0.0)

    def at(self, index: jax.Array) -> jax.Array:
        """x[index]."""
        return take(self.records, index)

    def floats(self, whole: jax.Array) -> jax.Array:
        """Integers as floats, at least 1: for a denominator."""
        return jnp.maximum(whole, 1).astype(self.records.dtype)


def _pick(sums: Pair, index: jax.Array) -> Pair:
    return Pair(take(sums.high, index), take(sums.low, index))


def _outwards(value: jax.Array, beyond: jax.Array, sign: int, low: jax.Array, high: jax.Array) -> jax.Array:
    """Join f(x) and the values of the further levels, which rounding may have left out of order or beyond the bounds."""
    side = jnp.clip(jnp.concatenate([value, beyond], axis=-1), low, high)
    return sign * jax.lax.cummax(sign * side, axis=side.ndim - 1)


@partial(jax.jit, static_argnames=("neighbors", "values", "sort"))
def _mean(
    records: jax.Array,
    present: jax.Array | None,
    low: jax.Array,
    high: jax.Array,
    neighbors: Neighbors,
    values: Values,
    sort: Sort,
) -> tuple[jax.Array, jax.Array]:
    x = Sorted.of(records, present, low, high, neighbors, sort)
    # Distances from the lower bound, which all neighbours share, as pairs of floats that are rounded once, at the end: means that
    # are rounded correctly interleave like the exact ones, also where the bounds are far from 0 and close to each other.
    width = single(x.high).minus(single(x.low))
    distance = single(x.records[..., 1:-1]).minus(single(jnp.broadcast_to(x.low, x.records[..., 1:-1].shape)))
    sums = prefix_sums(Pair(x.term(distance.high), x.term(distance.low)))
    total = _pick(sums, x.n)
    level = x.indices((max(x.size, 1) if neighbors == "swap" else x.size + 1) + 1, 1)

    def quotient(sum_: Pair, whole: jax.Array) -> Pair:
        first = sum_.high / x.floats(whole)
        return Pair(first, sum_.minus(exact_product(first, x.floats(whole))).value / x.floats(whole))

    def rounded(mean_: Pair) -> jax.Array:
        return mean_.plus(single(x.low)).value

    value = jnp.where(x.n == 0, x.low / 2 + x.high / 2, rounded(quotient(total, x.n)))

    def changed(gone: jax.Array, added: jax.Array, sign: int) -> Pair:
        """The mean less ``low``, when the ``gone`` smallest (largest) records have made place for ``added`` at the bound."""
        rest = total.minus(_pick(sums, gone)) if sign > 0 else _pick(sums, x.n - gone)
        if sign > 0:
            rest = rest.plus(width.times(added.astype(x.high.dtype)))
        return quotient(rest, x.n - gone + added)

    def side(sign: int) -> jax.Array:
        bound = x.high if sign > 0 else x.low
        if neighbors == "swap":
            gone = jnp.minimum(level, x.n)
            beyond = jnp.where(level >= x.n, bound, rounded(changed(gone, gone, sign)))
            return _outwards(value, beyond, sign, x.low, x.high)
        # The empty dataset is left out: its value, the middle, is never beyond what one record and one bound reach.
        extreme = jnp.where(level == x.n, x.n - 1, jnp.minimum(level, x.n))
        most = extreme if values == "extreme" else jnp.minimum(level - 1, x.n)

        def halve(_: Any, ends: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
            first, last = ends
            gone = (first + last) // 2
            goes = x.at(gone + 1 if sign > 0 else jnp.maximum(x.n - gone, 0))
            middle = (goes - x.low) / 2 + (bound - x.low) / 2
            rises = (sign * changed(gone, level - gone, sign).minus(single(middle)).value > 0) & (gone < most)
            return jnp.where(rises, gone + 1, first), jnp.where(rises, last, gone)

        ends = jnp.zeros_like(most), most
        best, _ = jax.lax.fori_loop(np.int32(0), np.int32(x.size.bit_length() + 1), halve, ends)
        beyond = jnp.where(level > x.n, bound, rounded(changed(best, level - best, sign)))
        return _outwards(value, beyond, sign, x.low, x.high)

    return side(1), side(-1)


@partial(jax.jit, static_argnames=("neighbors", "limit", "sort"))
def _sum(
    records: jax.Array,
    present: jax.Array | None,
    low: jax.Array,
    high: jax.Array,
    neighbors: Neighbors,
    limit: int | None,
    sort: Sort,
) -> tuple[jax.Array, jax.Array, jax.Array | None]:
    x = Sorted.of(records, present, low, high, neighbors, sort)
    sums = prefix_sums(single(x.term(x.records[..., 1:-1])))
    total = _pick(sums, x.n)
    if neighbors == "swap":
        level = x.indices(x.size + 1, 1)
        gone = jnp.minimum(level, x.n)
        number, came = x.n.astype(x.low.dtype), gone.astype(x.low.dtype)
        bounds = product(number, x.low), product(number, x.high)
        above = total.minus(_pick(sums, gone)).plus(exact_product(came, x.high)).value
        below = _pick(sums, x.n - gone).plus(exact_product(came, x.low)).value
        above, below = jnp.where(level >= x.n, bounds[1], above), jnp.where(level >= x.n, bounds[0], below)
        return _outwards(total.value, above, 1, *bounds), _outwards(total.value, below, -1, *bounds), None
    most, least = jnp.maximum(x.high, 0.0), jnp.minimum(x.low, 0.0)
    levels = max(x.size, 1) if limit is None else x.size + limit
    level = x.indices(levels + 1, 1)
    there = level <= x.n
    smallest, largest = x.at(jnp.minimum(level, x.n)), x.at(jnp.maximum(x.n + 1 - level, 0))
    above = total.plus(prefix_sums(single(jnp.where(there, jnp.maximum(most, -smallest), most))).at(slice(1, None))).value
    below = total.minus(prefix_sums(single(jnp.where(there, jnp.maximum(-least, largest), -least))).at(slice(1, None))).value
    if limit is None:
        infinity = jnp.where(jnp.isnan(x.low), jnp.nan, jnp.inf)
        above, below = (_outwards(total.value, side, sign, -infinity, infinity) for side, sign in ((above, 1), (below, -1)))
        return above, below, jnp.maximum(abs(x.low), abs(x.high))[..., 0]
    bounds = limit * least, limit * most
    above, below = jnp.where(level == levels, bounds[1], above), jnp.where(level == levels, bounds[0], below)
    return _outwards(total.value, above, 1, *bounds), _outwards(total.value, below, -1, *bounds), None


@partial(jax.jit, static_argnames=("keep", "sort"))
def _variance(
    records: jax.Array, present: jax.Array | None, low: jax.Array, high: jax.Array, keep: int | None, sort: Sort
) -> tuple[jax.Array, jax.Array]:
    """The extreme variances within l swaps, from the sum of squares about the mean, SSE.

    Largest: SSE is convex in each replaced record, so replaced records go to a or b. It is also convex in each kept record: were a
    kept record y between replaced ones x1 <= y <= x2, keeping x1 or x2 in its place would not be worse; so the replaced ones are
    neighbours in the sorted row, x[s+1..s+l]. With j of them at b, SSE is a concave quadratic in j with its vertex at
    n/2 - P/w, for w = b - a and P the sum of (kept - a): best at a whole number next to it.

    Smallest: replaced records go to the mean of the kept ones, and leave their SSE. About the mean of kept records, the n - l
    nearest records have no larger sum of squares, and about their own mean a smaller one still; they are neighbours in the sorted
    row. So it is the smallest SSE of n - l consecutive records.

    Records are counted from a middle one, exactly enough in any window of them: squares and sums have twice the digits.
    """
    x = Sorted.of(records, present, low, high, "swap", sort)
    n, kept_levels = x.n, x.size - 1 if keep is None else min(keep, x.size - 1)
    origin = x.at((n + 1) // 2)
    from_origin = x.term(x.records[..., 1:-1] - origin)
    sums, squares = prefix_sums(single(from_origin)), prefix_sums(exact_product(from_origin, from_origin))
    total, total_squares = _pick(sums, n), _pick(squares, n)
    a, b, number = x.low - origin, x.high - origin, x.floats(n)
    width = x.high - x.low

    def about_mean(count: jax.Array, sums: Pair, squares: Pair) -> jax.Array:
        size = x.floats(count)
        center = sums.value / size  # rounded: the error it makes is its square
        twice = sums.plus(sums).minus(exact_product(size, center))
        return jnp.where(count < 2, 0.0, jnp.maximum(squares.minus(twice.times(center)).value, 0.0))

    def smallest(level: jax.Array) -> jax.Array:
        start, size = x.indices(kept_levels + 1), n - level
        end = jnp.clip(start + size, 0, x.size)
        start = jnp.minimum(start, end)
        window = [_pick(array, end).minus(_pick(array, start)) for array in (sums, squares)]
        sse = about_mean(size + jnp.zeros_like(end), *window)
        return jnp.min(
            jnp.where((x.indices(kept_levels + 1) <= level) & (size > 1), sse, jnp.where(size > 1, jnp.inf, 0.0)), axis=-1
        )

    def largest(level: jax.Array) -> jax.Array:
        start = x.indices(x.size + 1)
        end = jnp.minimum(start + level, x.size)
        kept, kept_squares = (
            whole.minus(_pick(array, end).minus(_pick(array, start))).value
            for whole, array in ((total, sums), (total_squares, squares))
        )
        replaced = level.astype(number.dtype)
        vertex = product(number / 2, (a + b) / width) - (kept + product(replaced, a)) / width
        best = jnp.full_like(kept, -jnp.inf)
        for choice in (jnp.floor(vertex), jnp.floor(vertex) + 1):
            at_b = jnp.clip(choice, 0, replaced)
            at_a = replaced - at_b
            moved = kept + (product(at_b, b) + product(at_a, a))
            spread = kept_squares + (product(at_b, product(b, b)) + product(at_a, product(a, a)))
            best = jnp.maximum(best, spread - product(moved, moved) / number)
        return jnp.max(jnp.where(start <= n - level, best, -jnp.inf), axis=-1)

    def levels(of_level: Callable[[jax.Array], jax.Array]) -> jax.Array:
        return jnp.moveaxis(jax.lax.map(of_level, jnp.arange(1, kept_levels + 1, dtype=jnp.int32)), 0, -1) / number

    value = about_mean(n, total, total_squares) / number
    top = product(width, width) * product(x.floats(n // 2) / number, x.floats(n - n // 2) / number)
    top = jnp.where(n < 2, jnp.zeros_like(top), top)
    none = jnp.zeros_like(top)
    level = x.indices(kept_levels + 1, 1)
    above = jnp.where(level >= n, top, levels(largest))
    below = jnp.where(level >= n - 1, none, levels(smallest))
    top = jnp.where(jnp.isnan(width), jnp.nan, top)
    above, below = (
        _outwards(value, jnp.concatenate([side, end], axis=-1), sign, none, top)
        for side, end, sign in ((above, top, 1), (below, none, -1))
    )
    return above, jnp.where(jnp.isnan(width), jnp.nan, below)
