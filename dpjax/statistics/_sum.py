"""The sum of clamped records.

With x[1..n] sorted, T their sum, and a, b the bounds, the largest values within l changes (the
smallest by symmetry) are:

    swap          T + sum over i <= l of (b - x[i])
    add/remove    T + sum over i <= l of max(b, 0, -x[i])

where each change of the latter adds b or removes the smallest record. Both are exact, also in
floating point: see ``exact_sums``.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from dpjax import checks
from dpjax.checks import Neighbors, Resolution
from dpjax.numerics.arrays import integers, take
from dpjax.sensitivity.profile import SensitivityProfile, from_sides
from dpjax.statistics.exact_sums import from_sorted, on_grid, prefix_sums
from dpjax.statistics.padded_records import bounded_records
from dpjax.statistics.sorting import SortedRows


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
    columns = np.shape(x)[-1] if np.ndim(x) else 0
    if max_count is not None:
        must = f"a static integer from the {columns} columns of x, for add_remove neighbors"
        max_count = checks.static_integer("max_count", max_count, max(columns, 1), must=must)
        if neighbors == "swap":
            raise ValueError(f"max_count is {must}; got {max_count}.")
    unbounded = neighbors == "add_remove" and max_count is None
    if resolution is not None and unbounded:
        raise ValueError(
            "resolution needs max_count under add_remove neighbors, as an unbounded sum is not on "
            "a finite grid."
        )
    most = max(columns, max_count or 1)
    arrays, multiple = bounded_records(
        *(x, lower, upper, num_records, mask),
        resolution=resolution,
        parts=most,
        size=lambda low, high: 4.0 * most * (abs(low) + abs(high)),
        least=1 if neighbors == "swap" else 0,
    )
    above, below = from_sorted(
        *(_sides, *arrays),
        neighbors=neighbors,
        resolution=multiple,
        options=(neighbors, max_count, multiple is not None),
    )
    largest = jnp.maximum(*map(abs, arrays[2:]))
    # Under add/remove the last levels may need more records than max_count allows.
    found = from_sides(
        above,
        below,
        neighbors=neighbors,
        step=jnp.broadcast_to(largest, above.shape[:-1]) if unbounded else None,
        reached="extremes" if neighbors == "swap" else "bounds",
    )
    return found if multiple is None else found.in_units(multiple)


def _sides(
    x: SortedRows, neighbors: Neighbors, max_count: int | None, whole: bool
) -> tuple[jax.Array, jax.Array]:
    """Return the values above and below."""
    size, most = jnp.maximum(abs(x.low), abs(x.high)), 2 * x.n_max + (max_count or 1)
    grid = on_grid(x, 0.0, size, most, whole)
    smallest, largest = prefix_sums(grid.ascending), prefix_sums(grid.descending)
    total = take(smallest, x.n)
    if neighbors == "swap":
        gone = jnp.minimum(integers(x.n_max + 1), x.n)
        came = gone.astype(total.dtype)
        above = total - take(smallest, gone) + came * grid.high
        below = total - take(largest, gone) + came * grid.low
        return above * grid.unit, below * grid.unit
    more = max(1 - x.n_max, 0) if max_count is None else max_count
    missing = [(0, 0)] * (total.ndim - 1) + [(0, more)]
    most_added, most_removed = jnp.maximum(grid.high, 0.0), jnp.maximum(-grid.low, 0.0)
    gains = jnp.maximum(most_added, -jnp.pad(grid.ascending, missing))
    losses = jnp.maximum(most_removed, jnp.pad(grid.descending, missing))
    above, below = total + prefix_sums(gains), total - prefix_sums(losses)
    if max_count is not None:
        ends = -max_count * most_removed, max_count * most_added
        above, below = jnp.clip(above, *ends), jnp.clip(below, *ends)
    return above * grid.unit, below * grid.unit
