"""The mean of clamped records.

With x[1..n] sorted, T their sum, and a, b the bounds, the largest values within l changes (the
smallest by symmetry) are:

    swap          (T + sum over i <= l of (b - x[i])) / n
    add/remove    max over R of (T - x[1] - ... - x[R] + (l - R) b) / (n - 2 R + l)

where the R smallest records are removed and l - R are added at b. Both are exact. Under add/remove
a greedy choice of changes is not optimal: for {0, 0, 0.8} in [0, 1], two changes chosen one by one
reach 0.6, and removing both zeros reaches 0.8. But the numerator is concave in R and the
denominator affine, so the ratio is quasi-concave: it strictly increases up to the best R, then
decreases. It increases from R to R + 1 exactly where it is above (x[R+1] + b) / 2, the mean of the
record that is removed and the addition that is omitted, so the best R is found by bisection.

In floating point, records are distances from the lower bound, which all neighbors share, as pairs
of floats with twice the precision. The remaining records are summed from their own end, so that the
error of a mean is at most 2^10 u^2 of the width of the bounds, including the effect of comparisons
in the bisection, and 2^4 u^2 of their magnitude: see ``rounding``.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from dpjax import checks
from dpjax.checks import Neighbors, Resolution
from dpjax.numerics.batching import take
from dpjax.numerics.double_float import DoubleFloat, prefix_sums, single
from dpjax.numerics.multiples import from_multiples, to_multiples
from dpjax.numerics.search import count_leading
from dpjax.sensitivity.profile import SensitivityProfile, from_sides
from dpjax.statistics._sum import sum
from dpjax.statistics.padded_records import bounded_records
from dpjax.statistics.rounding import outwards, unit, with_slack
from dpjax.statistics.sorting import sort_rows

Values = Literal["extreme", "hull"]


def mean(
    x: ArrayLike,
    *,
    lower: ArrayLike,
    upper: ArrayLike,
    neighbors: Neighbors,
    values: Values = "extreme",
    resolution: Resolution | None = None,
    num_records: ArrayLike | None = None,
    mask: ArrayLike | None = None,
) -> SensitivityProfile:
    """Return the sensitivity profile of the mean, (x[1] + ... + x[n]) / n.

    Under swap the l smallest records become ``upper``. Under add/remove records are added and
    removed and n is private; the mean is then not sample-monotone (for {0, 1}, removing one record
    reaches 0 and 1, but 0.9 takes two changes), and there are two profiles. ``values="extreme"``
    has the largest and the smallest mean within l changes, for piecewise Laplace and for inverse
    sensitivity. ``values="hull"`` has the interval that l changes with at least one addition reach:
    inverse sensitivity on it is Duff's mean. It is slightly narrower and not interpolable:
    piecewise Laplace would have a loss of 1.08 epsilon and a range of 1.5 epsilon.

    Args:
        x: float ``(..., n)``. See :mod:`dpjax.statistics` for it and for the arguments not listed
            here.
        values: ``"extreme"``, or under add/remove ``"hull"``.
        resolution: for ``"swap"`` without ``num_records`` and ``mask``: the mean is then a multiple
            of resolution / n.

    Returns:
        A profile of batch shape ``(...)``, n levels under swap and n+1 under add/remove. An empty
        dataset has the value (lower + upper) / 2.

    Raises:
        ValueError: there is a resolution where the means are not on a common grid; the bounds are
            so large that the sum of n records overflows, or closer than about 2^-66 in float32 and
            2^-904 in float64.

    Privacy:
        The values satisfy Corollary 3.1, also after rounding (the hull only beyond level 0: flat
        pieces, no ``rho``). Public: see :mod:`dpjax.statistics`.

    References:
        Durfee (2025), Section 3.1; Gillenwater and Munoz Medina, Section 4.1, which calls for a
        dynamic program that is not needed.

    >>> import jax.numpy as jnp
    >>> profile = mean(jnp.array([1.0, 2.0, 3.0, 6.0]), lower=0, upper=10, neighbors="swap")
    >>> profile.upper.tolist(), profile.lower.tolist()
    ([3.0, 5.25, 7.25, 9.0, 10.0], [3.0, 1.5, 0.75, 0.25, 0.0])
    """
    checks.one_of("values", values, ("extreme", "hull"))
    checks.one_of("neighbors", neighbors, checks.NEIGHBORS)
    if values == "hull" and neighbors == "swap":
        raise ValueError(
            'values="hull" is only for add_remove neighbors, got swap, under which '
            "the mean has one profile."
        )
    if resolution is not None:
        if neighbors != "swap" or num_records is not None or mask is not None:
            raise ValueError(
                "resolution needs swap neighbors, without num_records and mask: n must be the same "
                "for all rows and neighbors."
            )
        total = sum(x, lower=lower, upper=upper, neighbors=neighbors, resolution=resolution)
        assert total.resolution is not None
        unit_of_total, unit_of_mean = total.resolution, total.resolution / np.shape(x)[-1]
        upper_side, lower_side = (
            from_multiples(to_multiples(side, unit_of_total), unit_of_mean)
            for side in (total.upper, total.lower)
        )
        return replace(total, upper=upper_side, lower=lower_side, resolution=unit_of_mean)
    arrays = bounded_records(
        *(x, lower, upper, num_records, mask),
        range_of=lambda width, size, n, square: (
            2 * (size + width) * n,
            square * (2.0**10 * width + 2.0**4 * size),
        ),
    )
    above, below = _mean(*arrays, neighbors, values)
    extreme = values == "extreme"
    return from_sides(
        above,
        below,
        neighbors=neighbors,
        interpolable=extreme,
        reached="extremes" if extreme else "intervals",
    )


@partial(jax.jit, static_argnames=("neighbors", "values"))
def _mean(
    records: jax.Array,
    present: jax.Array | None,
    low: jax.Array,
    high: jax.Array,
    neighbors: Neighbors,
    values: Values,
) -> tuple[jax.Array, jax.Array]:
    x = sort_rows(records, present, low, high, neighbors=neighbors)
    low, high, n, n_max, dtype = x.low, x.high, x.n, x.n_max, x.low.dtype
    level: Any = np.arange(
        1, (max(n_max, 1) if neighbors == "swap" else n_max + 1) + 1, dtype=np.int32
    )
    error = (2.0**10 * (high - low) + 2.0**4 * jnp.maximum(abs(low), abs(high))) * unit(dtype)
    slack, width = 2 * error * level.astype(dtype), single(high).minus(single(low))

    # The remaining records are the largest above, and the smallest below.
    descending = x.at(jnp.maximum(n - np.arange(n_max, dtype=np.int32), 0))
    distances = (
        single(records).minus(single(low)) for records in (x.values[..., 1:-1], descending)
    )
    smallest, largest = (
        prefix_sums(DoubleFloat(*map(x.present, distance))) for distance in distances
    )

    def mean_of(kept: Any, added: Any, sign: int) -> DoubleFloat:
        """Return the mean minus ``low`` of the records kept and of others at the bound."""
        total = DoubleFloat(*(take(part, kept) for part in (largest if sign > 0 else smallest)))
        total = total.plus(width.times(added.astype(dtype))) if sign > 0 else total
        return total.over(jnp.maximum(kept + added, 1).astype(dtype))

    value = mean_of(n, 0 * n, -1).plus(single(low)).value
    value = jnp.where(n == 0, low / 2 + high / 2, value)

    def side(sign: int) -> jax.Array:
        bound = high if sign > 0 else low
        # The empty dataset is excluded: its value, the midpoint, never exceeds what one record and
        # one bound reach.
        most = (
            jnp.where(level == n, n - 1, jnp.minimum(level, n))
            if values == "extreme"
            else jnp.minimum(level - 1, n)
        )

        def rises(gone: jax.Array) -> jax.Array:
            gone = jnp.minimum(gone, n)
            goes = x.at(gone + 1 if sign > 0 else n - gone)
            middle = (goes - low) / 2 + (bound - low) / 2
            return (
                sign * mean_of(n - gone, level - gone, sign).minus(single(middle)).value > 0
            ) & (gone < most)

        swapped = neighbors == "swap"
        gone = jnp.minimum(level, n) if swapped else count_leading(rises, n_max + 1, most.shape)
        beyond = with_slack(
            mean_of(n - gone, gone if swapped else level - gone, sign).plus(single(low)),
            slack,
            sign,
        )
        return outwards(
            value, jnp.where(level >= n if swapped else level > n, bound, beyond), sign, low, high
        )

    return side(1), side(-1)
