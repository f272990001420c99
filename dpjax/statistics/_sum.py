"""The sum of clamped records.

With x[1..n] sorted, T their sum, and a, b the bounds, the largest values within l changes (the
smallest by symmetry) are:

    swap          T + sum over i <= l of (b - x[i])
    add/remove    T + sum over i <= l of max(b, 0, -x[i])

where each change of the latter adds b or removes the smallest record. Both are exact, also in
floating point: see ``exact_sums``.
"""

from __future__ import annotations

from fractions import Fraction
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from dpjax import checks
from dpjax.checks import Neighbors, Resolution
from dpjax.numerics.arrays import take
from dpjax.numerics.multiples import most_multiples, to_multiples
from dpjax.sensitivity.profile import SensitivityProfile, from_sides
from dpjax.statistics.exact_sums import (
    from_sorted,
    in_both_orders,
    on_grid,
    power_of_two,
    prefix_sums,
)
from dpjax.statistics.padded_records import bounded_records
from dpjax.statistics.sorting import SortedRows, sort_rows


def sum(  # named as in NumPy and JAX
    x: ArrayLike,
    *,
    lower: ArrayLike,
    upper: ArrayLike,
    neighbors: Neighbors,
    max_count: int | None = None,
    resolution: Resolution | None = None,
    num_records: ArrayLike | None = None,
    mask: ArrayLike | None = None,
) -> SensitivityProfile:
    """Return the sensitivity profile of the sum, x[1] + ... + x[n], of clamped records.

    Under swap the output range is [n lower, n upper]. Under add/remove n is private and the sum of
    a neighbor may exceed any bound: after the levels at which all records are removed, every
    further one adds the global sensitivity max(abs(lower), abs(upper)), without bound. (Each column
    of padding is one more exact level before those steps, and so makes the noise in the tails
    slightly smaller.) With ``max_count``, a public bound on the number of records, the range is
    [max_count * min(lower, 0), max_count * max(upper, 0)].

    Args:
        x: float ``(..., n)``. See :mod:`dpjax.statistics` for it and for the arguments not listed
            here.
        max_count: static and public, at least the number of columns of ``x``; for ``"add_remove"``
            only.
        resolution: under add/remove it requires ``max_count``.

    Returns:
        A profile of batch shape ``(...)``: n levels, under add/remove followed by steps (which
        inverse sensitivity does not accept) or, with ``max_count``, n + max_count levels. Under
        swap a row without records has no distribution.

    Raises:
        ValueError: as :func:`dpjax.mean`; ``max_count`` is given under swap or is less than the
            columns of ``x``; there is no column under swap; or there is a resolution under
            add/remove without ``max_count``, or one for which floats cannot represent the sums.

    Privacy:
        The values satisfy Corollary 3.1, also after rounding; so do the steps, as one change moves
        each of them by at most the global sensitivity. Public: see :mod:`dpjax.statistics`.

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
        must = f"a static integer from the {columns} columns of x, for add_remove neighbors"
        max_count = checks.static_integer("max_count", max_count, max(columns, 1), must=must)
        if neighbors == "swap":
            raise ValueError(f"max_count is {must}; got {max_count}.")
    records, present, low, high = bounded_records(
        *(x, lower, upper, num_records, mask),
        size=lambda low, high: 4.0 * max(columns, max_count or 1) * (abs(low) + abs(high)),
        least=1 if neighbors == "swap" else 0,
    )
    multiple = None
    if resolution is not None:
        if neighbors == "add_remove" and max_count is None:
            raise ValueError(
                "resolution needs max_count under add_remove neighbors, as an unbounded sum is not "
                "on a finite grid."
            )
        most = most_multiples(records.dtype) // max(columns, max_count or 1)
        multiple = checks.resolution(resolution, (lower, upper), most)
    above, below, step = _sum(records, present, low, high, neighbors, max_count, multiple)
    # Under add/remove the last levels may need more records than max_count allows.
    found = from_sides(
        above,
        below,
        neighbors=neighbors,
        step=step if neighbors == "add_remove" and max_count is None else None,
        reached="extremes" if neighbors == "swap" else "bounds",
    )
    return found if multiple is None else found.in_units(multiple)


@partial(jax.jit, static_argnames=("neighbors", "max_count", "resolution"))
def _sum(
    records: jax.Array,
    present: jax.Array | None,
    low: jax.Array,
    high: jax.Array,
    neighbors: Neighbors,
    max_count: int | None,
    resolution: Fraction | None,
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Return the values above and below, and the global sensitivity."""
    if resolution is not None:
        records, low, high = (to_multiples(array, resolution) for array in (records, low, high))
    x = sort_rows(records, present, low, high, neighbors=neighbors)
    unit = None if resolution is None else 1.0
    above, below = from_sorted(partial(_sides, unit, neighbors, max_count), x)
    return above, below, jnp.maximum(abs(x.low), abs(x.high))[..., 0]


def _sides(
    unit: float | None, neighbors: Neighbors, max_count: int | None, x: SortedRows
) -> tuple[jax.Array, jax.Array]:
    n, n_max = x.n, x.n_max
    scale = power_of_two(jnp.maximum(abs(x.low), abs(x.high))) if unit is None else unit
    count = 2 * n_max + (max_count or 1)
    ascending, descending = in_both_orders(x, 0.0, scale, count)
    a, b = on_grid(x.low / scale, count), on_grid(x.high / scale, count)
    smallest, largest = prefix_sums(ascending), prefix_sums(descending)
    total = take(smallest, n)
    if neighbors == "swap":
        gone = jnp.minimum(np.arange(n_max + 1, dtype=np.int32), n)
        came = gone.astype(total.dtype)
        above = total - take(smallest, gone) + came * b
        below = total - take(largest, gone) + came * a
    else:
        more = max(1 - n_max, 0) if max_count is None else max_count
        missing = [(0, 0)] * (ascending.ndim - 1) + [(0, more)]
        gain = jnp.maximum(jnp.maximum(b, 0.0), -jnp.pad(ascending, missing))
        loss = jnp.maximum(jnp.maximum(-a, 0.0), jnp.pad(descending, missing))
        above, below = total + prefix_sums(gain), total - prefix_sums(loss)
    if max_count is not None:
        least, most = max_count * jnp.minimum(a, 0.0), max_count * jnp.maximum(b, 0.0)
        above, below = jnp.clip(above, least, most), jnp.clip(below, least, most)
    return above * scale, below * scale
