"""Several quantiles of the same records, for a mechanism that draws them together."""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from dpjax import checks
from dpjax.checks import Neighbors, Resolution
from dpjax.numerics.multiples import from_multiples
from dpjax.sensitivity.sorted_records import SortedRecords
from dpjax.statistics.padded_records import bounded_records
from dpjax.statistics.ranks import check_denominator
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
    levels = checks.levels(qs)
    arrays, step = bounded_records(x, lower, upper, num_records, mask, resolution=resolution)
    columns = arrays[0].shape[-1]
    for level in levels:
        check_denominator("qs", level.denominator, columns, columns + 1)
    return _sorted(*arrays, levels=levels, neighbors=neighbors, resolution=step)


@partial(jax.jit, static_argnames=("levels", "neighbors", "resolution"))
def _sorted(
    *arrays: Any,
    levels: tuple[Fraction, ...],
    neighbors: Neighbors,
    resolution: Fraction | None,
) -> SortedRecords:
    x = sort_rows(*arrays, neighbors=neighbors, resolution=resolution)
    values = x.values if resolution is None else from_multiples(x.values, resolution)
    return SortedRecords(
        values[..., 1:-1],
        jnp.broadcast_to(x.n[..., 0], values.shape[:-1]),
        values[..., 0],
        values[..., -1],
        levels=levels,
        neighbors=neighbors,
        resolution=resolution,
    )
