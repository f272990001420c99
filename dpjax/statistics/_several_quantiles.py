"""Several quantiles of the same records, for a mechanism that draws them together."""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction
from functools import partial

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from dpjax import checks
from dpjax.checks import Neighbors, Resolution
from dpjax.numerics.multiples import from_multiples, most_multiples, to_multiples
from dpjax.sensitivity.sorted_records import SortedRecords
from dpjax.statistics.padded_records import present_records
from dpjax.statistics.sorting import sort_rows


def quantiles(
    x: ArrayLike,
    qs: Iterable[float | Fraction | str],
    *,
    lower: ArrayLike,
    upper: ArrayLike,
    neighbors: Neighbors,
    resolution: Resolution | None = None,
    num_records: ArrayLike | None = None,
    mask: ArrayLike | None = None,
) -> SortedRecords:
    """Return the sorted records of each row, with the requested quantile levels.

    Args:
        x: float ``(..., n)``. See :mod:`dpjax.statistics` for it and for the arguments not listed
            here.
        qs: static, strictly ascending levels between 0 and 1, each read by its decimal value: 0.1
            is 1/10.

    Returns:
        A :class:`SortedRecords` of batch shape ``(...)``.

    Raises:
        TypeError: a level is a JAX array, or ``qs`` is a single level.
        ValueError: the levels are outside (0, 1), not ascending, or one has a denominator too large
            for exact ranks.

    Privacy:
        No guarantee by itself. Public: see :mod:`dpjax.statistics`.

    References:
        Hyndman and Fan (1996), for ``value``: definition 7, and with a resolution definition 1.

    >>> import jax.numpy as jnp
    >>> ages = jnp.array([23.0, 35.0, 41.0, 62.0, 62.0])
    >>> quantiles(
    ...     ages, [0.25, 0.5, 0.75], lower=0, upper=120, neighbors="swap", resolution=1
    ... ).value.tolist()
    [35.0, 41.0, 62.0]
    """
    checks.one_of("neighbors", neighbors, checks.NEIGHBORS)
    levels = checks.levels(qs)
    records, present = present_records(x, num_records=num_records, mask=mask)
    largest = max(level.denominator for level in levels)
    if largest * (records.shape[-1] + 1) >= 2**31:
        raise ValueError(
            f"qs must have smaller denominators for exact ranks of {records.shape[-1]} records, "
            f"got {largest}: use short decimals or Fractions such as Fraction(1, 3)."
        )
    low, high = checks.bounds(lower, upper, records.dtype)
    step = (
        None
        if resolution is None
        else checks.resolution(resolution, (lower, upper), most_multiples(records.dtype))
    )
    return _sorted(records, present, low, high, levels, neighbors, step)


@partial(jax.jit, static_argnames=("levels", "neighbors", "resolution"))
def _sorted(
    records: jax.Array,
    present: jax.Array | None,
    low: jax.Array,
    high: jax.Array,
    levels: tuple[Fraction, ...],
    neighbors: Neighbors,
    resolution: Fraction | None,
) -> SortedRecords:
    if resolution is not None:
        records, low, high = (
            from_multiples(to_multiples(array, resolution), resolution)
            for array in (records, low, high)
        )
    ordered = sort_rows(records, present, low, high, neighbors=neighbors)
    count = jnp.broadcast_to(ordered.n[..., 0], ordered.values.shape[:-1])
    return SortedRecords(
        ordered.values[..., 1:-1],
        count,
        low,
        high,
        levels=levels,
        neighbors=neighbors,
        resolution=resolution,
    )
