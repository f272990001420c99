"""The sum of clamped records.

With x[1..n] sorted, T their sum, and a, b the bounds, the largest values within l changes (the
smallest by symmetry) are:

    swap          T + sum over i <= l of (b - x[i])
    add/remove    T + sum over i <= l of max(b, 0, -x[i])

where each change of the latter adds b or removes the smallest record. Both are exact. In floating
point, sums have twice the precision: the error of a sum of k numbers up to B in magnitude is at
most 2^8 u^2 k B, and that of a value at most e (n + l), or e n under swap, with e = 2^8 u^2 B.
Under add/remove n differs between neighbors. The slack of level l is then 2 e l (n + l + 2), which
from n at level l to n + 1 or n - 1 at level l + 1 grows by at least the errors of both, e (2 n + 2
l + 2): see ``rounding``.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from dpjax import checks
from dpjax.checks import Neighbors, Resolution
from dpjax.numerics.batching import take
from dpjax.numerics.double_float import DoubleFloat, exact_product, prefix_sums, product, single
from dpjax.numerics.multiples import most_multiples, to_multiples
from dpjax.sensitivity.profile import SensitivityProfile, from_sides
from dpjax.statistics.padded_records import bounded_records
from dpjax.statistics.rounding import outwards, unit, with_slack
from dpjax.statistics.sorting import sort_rows


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
    least = 1 if neighbors == "swap" else 0
    arrays = bounded_records(
        *(x, lower, upper, num_records, mask),
        range_of=lambda width, size, n, square: (
            2 * size * (n + (max_count or n)),
            2.0**8 * square * size,
        ),
        least=least,
    )
    multiple = None
    if resolution is not None:
        if neighbors == "add_remove" and max_count is None:
            raise ValueError(
                "resolution needs max_count under add_remove neighbors, as an unbounded sum is not "
                "on a finite grid."
            )
        records, present, low, high = arrays
        multiple = checks.resolution(
            resolution,
            (lower, upper),
            most_multiples(records.dtype) // max(columns, max_count or 1),
        )
        arrays = (
            to_multiples(records, multiple),
            present,
            to_multiples(low, multiple),
            to_multiples(high, multiple),
        )
    slack = 0.0 if multiple is not None else 1.0  # sums of integers are exact
    above, below = (
        _swap(*arrays, slack) if neighbors == "swap" else _add_remove(*arrays, slack, max_count)
    )
    step = None
    if neighbors == "add_remove" and max_count is None:
        step = jnp.broadcast_to(jnp.maximum(abs(arrays[2]), abs(arrays[3])), above.shape[:-1])
    # Under add/remove the last levels may need more records than max_count allows.
    found = from_sides(
        above,
        below,
        neighbors=neighbors,
        step=step,
        reached="extremes" if neighbors == "swap" else "bounds",
    )
    return found if multiple is None else found.in_units(multiple)


@partial(jax.jit, static_argnames=("slack",))
def _swap(
    records: jax.Array, present: jax.Array | None, low: jax.Array, high: jax.Array, slack: float
) -> tuple[jax.Array, jax.Array]:
    x = sort_rows(records, present, low, high, neighbors="swap")
    low, high, n, dtype = x.low, x.high, x.n, x.low.dtype
    sums = prefix_sums(single(x.present(x.values[..., 1:-1])))
    level: Any = np.arange(1, x.n_max + 1, dtype=np.int32)
    gone = jnp.minimum(level, n)
    number, came = n.astype(dtype), gone.astype(dtype)
    error = slack * (2.0**8 * unit(dtype)) * number * jnp.maximum(abs(low), abs(high))
    bounds = product(number, low), product(number, high)

    def of_smallest(kept: jax.Array) -> DoubleFloat:
        return DoubleFloat(*(take(part, kept) for part in sums))

    total = of_smallest(n)
    above = total.minus(of_smallest(gone)).plus(exact_product(came, high))
    below = of_smallest(n - gone).plus(exact_product(came, low))

    def side(beyond: DoubleFloat, bound: jax.Array, sign: int) -> jax.Array:
        rounded = with_slack(beyond, 2 * error * level.astype(dtype), sign)
        return outwards(total.value, jnp.where(level >= n, bound, rounded), sign, *bounds)

    return side(above, bounds[1], 1), side(below, bounds[0], -1)


@partial(jax.jit, static_argnames=("slack", "max_count"))
def _add_remove(
    records: jax.Array,
    present: jax.Array | None,
    low: jax.Array,
    high: jax.Array,
    slack: float,
    max_count: int | None,
) -> tuple[jax.Array, jax.Array]:
    x = sort_rows(records, present, low, high, neighbors="add_remove")
    n, dtype = x.n, x.low.dtype
    most, least = jnp.maximum(x.high, 0.0), jnp.minimum(x.low, 0.0)
    sums = prefix_sums(single(x.present(x.values[..., 1:-1])))
    total = DoubleFloat(*(take(part, n) for part in sums))
    levels = max(x.n_max, 1) if max_count is None else x.n_max + max_count
    level: Any = np.arange(1, levels + 1, dtype=np.int32)
    smallest, largest = x.at(jnp.minimum(level, n)), x.at(jnp.maximum(n + 1 - level, 0))
    if max_count is None:
        infinity = jnp.where(jnp.isnan(x.low), jnp.nan, jnp.inf)
        bounds = -infinity, infinity
    else:
        bounds = max_count * least, max_count * most
    error = slack * (2.0**8 * unit(dtype)) * jnp.maximum(abs(x.low), abs(x.high))
    more = 2 * error * product(level.astype(dtype), (n + level + 2).astype(dtype))

    def side(gain: jax.Array, no_record: jax.Array, bound: jax.Array, sign: int) -> jax.Array:
        gained = prefix_sums(
            single(jnp.where(level <= n, jnp.maximum(gain, no_record), no_record))
        ).at(slice(1, None))
        rounded = with_slack(total.plus(gained) if sign > 0 else total.minus(gained), more, sign)
        rounded = rounded if max_count is None else jnp.where(level == levels, bound, rounded)
        return outwards(total.value, rounded, sign, *bounds)

    return side(-smallest, most, bounds[1], 1), side(largest, -least, bounds[0], -1)
