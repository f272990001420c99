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

In floating point, records are distances from the lower bound: see ``exact_sums``.
"""

from __future__ import annotations

from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from dpjax import checks
from dpjax.checks import Neighbors, Resolution
from dpjax.numerics.arrays import integers, take
from dpjax.numerics.search import count_leading
from dpjax.sensitivity.profile import SensitivityProfile, from_sides
from dpjax.statistics.exact_sums import from_sorted, on_grid, prefix_sums
from dpjax.statistics.padded_records import bounded_records
from dpjax.statistics.sorting import SortedRows

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
        ValueError: there is a resolution where the means are not on a common grid.

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
    if values == "hull" and neighbors == "swap":
        raise ValueError(
            'values="hull" is only for add_remove neighbors, got swap, under which '
            "the mean has one profile."
        )
    columns = np.shape(x)[-1] if np.ndim(x) else 0
    private = neighbors != "swap" or num_records is not None or mask is not None
    if resolution is not None and (private or columns == 0):
        raise ValueError(
            "resolution needs swap neighbors, without num_records and mask: n must be the same for "
            "all rows and neighbors, and at least 1."
        )
    arrays, multiple = bounded_records(
        *(x, lower, upper, num_records, mask), resolution=resolution, parts=max(columns, 1)
    )
    above, below = from_sorted(
        *(_sides, *arrays),
        neighbors=neighbors,
        resolution=multiple,
        options=(neighbors, values, multiple is not None),
    )
    extreme = values == "extreme"
    found = from_sides(
        above,
        below,
        neighbors=neighbors,
        interpolable=extreme,
        reached="extremes" if extreme else "intervals",
    )
    return found if multiple is None else found.in_units(multiple, columns)


def _sides(
    x: SortedRows, neighbors: Neighbors, values: Values, whole: bool
) -> tuple[jax.Array, jax.Array]:
    """Return the values above and below."""
    n, levels = x.n, max(x.n_max, 1) if neighbors == "swap" else x.n_max + 1
    level = integers(levels + 1)
    # The empty dataset is excluded: its value, the midpoint, never exceeds what one record and one
    # bound reach.
    most = jnp.where(level == n, n - 1, jnp.minimum(level, n))
    if values == "hull":
        most = jnp.minimum(level - 1, n)
    grid = on_grid(x, x.low, x.high - x.low, 2 * x.n_max + 1, whole)

    def side(remaining: jax.Array, bound: Any, sign: int) -> jax.Array:
        """Return the extreme means, from the sums of the records that are removed last."""

        def total_and_number(gone: jax.Array) -> tuple[jax.Array, jax.Array]:
            added = gone if neighbors == "swap" else level - gone
            total = take(remaining, n - gone) + added.astype(x.low.dtype) * bound
            return total, (n - gone + added).astype(x.low.dtype)

        def rises(gone: jax.Array) -> jax.Array:
            gone = jnp.minimum(gone, n)
            goes = take(remaining, n - gone) - take(remaining, jnp.maximum(n - gone - 1, 0))
            total, number = total_and_number(gone)
            return (sign * (2 * total - number * (goes + bound)) > 0) & (gone < most)

        if neighbors == "swap":
            gone = jnp.minimum(level, n)
        else:
            gone = count_leading(rises, x.n_max + 1, most.shape)
        total, number = total_and_number(gone)
        mean = jnp.where(number == 0, grid.high / 2, total / jnp.maximum(number, 1))
        values = jnp.minimum(x.low + mean * grid.unit, x.high)
        return jnp.where(mean < grid.high, values, x.high)

    above = side(prefix_sums(grid.descending), grid.high, 1)
    return above, side(prefix_sums(grid.ascending), grid.low, -1)
