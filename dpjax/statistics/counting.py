"""Counts of records, and of records in bins: one record more or less changes one of them by 1."""

from __future__ import annotations

from fractions import Fraction
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from dpjax import checks
from dpjax.checks import Neighbors
from dpjax.numerics.multiples import most_multiples
from dpjax.sensitivity.profile import SensitivityProfile, from_sides
from dpjax.statistics.padded_records import nan_where_absent


def count(
    x: ArrayLike,
    *,
    neighbors: Neighbors = "add_remove",
    num_records: ArrayLike | None = None,
    mask: ArrayLike | None = None,
) -> SensitivityProfile:
    """Return the sensitivity profile of the number of records.

    To count the records that satisfy a condition, pass it as ``mask``.

    Args:
        x: float ``(..., n)``; NaN records are absent. See :mod:`dpjax.statistics` for the other
            arguments.
        neighbors: only ``"add_remove"``: under swap the number of records is public.

    Returns:
        A profile of batch shape ``(...)`` with resolution 1, in which every level adds a step of 1.
        :func:`dpjax.laplace` of it is the geometric mechanism.

    Raises:
        ValueError: there are more columns than a float can count, or ``neighbors`` is ``"swap"``.

    Privacy:
        One record more or less changes the count by 1. Public: the shape of ``x``.

    References:
        Dwork, McSherry, Nissim and Smith (2006); Ghosh, Roughgarden and Sundararajan (2009).

    >>> import jax.numpy as jnp, dpjax
    >>> ages = jnp.array([31.0, 70.0, 28.0, 81.0])
    >>> distribution = dpjax.laplace(count(ages, mask=ages >= 65), epsilon=1.0)
    >>> round(float(distribution.prob(2.0)), 3), round(float(distribution.mean_abs_error(2.0)), 3)
    (0.462, 0.851)
    """
    checks.counted_neighbors(neighbors)
    records = nan_where_absent(x, num_records, mask)
    return _counted(jnp.sum(~jnp.isnan(records), axis=-1), records)


def histogram(
    x: ArrayLike,
    *,
    edges: ArrayLike,
    neighbors: Neighbors = "add_remove",
    num_records: ArrayLike | None = None,
    mask: ArrayLike | None = None,
) -> SensitivityProfile:
    """Return the profile of the number of records in each bin.

    Args:
        x: float ``(..., n)``. A record in no bin is not counted. See :mod:`dpjax.statistics` for
            the arguments not listed here.
        edges: float ``(bins + 1,)``, public, increasing: as in NumPy, each bin includes its lower
            edge, the last one also its upper edge. For categories, between their numbers.
        neighbors: only ``"add_remove"``, as for :func:`count`.

    Returns:
        A profile of batch shape ``(..., bins)``, as that of :func:`count`, with a distribution,
        draw and error for each bin.

    Raises:
        ValueError: ``edges`` do not increase, or there are more columns than a float can count.

    Privacy:
        Add/remove. A record is in one bin only, so a draw of all bins costs the same as that of one
        bin (parallel composition, :func:`dpjax.accounting.parallel`). Public: the bins and the
        shape of ``x``.

    References:
        Dwork, McSherry, Nissim and Smith (2006); McSherry (2009), Theorem 4.

    >>> import jax, jax.numpy as jnp, dpjax
    >>> ages = jnp.array([31.0, 70.0, 28.0, 81.0])
    >>> profile = histogram(ages, edges=[0, 30, 60, 90])
    >>> profile.value.tolist(), dpjax.laplace(profile, epsilon=1.0).sample(jax.random.key(0)).shape
    ([1.0, 1.0, 2.0], (3,))
    >>> print(dpjax.laplace.guarantee(profile, 1.0))
    1-DP under add_remove neighbors
    """
    checks.counted_neighbors(neighbors)
    records = nan_where_absent(x, num_records, mask)
    ends = checks.float_array("edges", edges).astype(records.dtype)
    host = None if isinstance(edges, jax.Array) else np.asarray(edges, np.float64)
    if (
        ends.ndim != 1
        or ends.size < 2
        or (host is not None and not np.all(np.diff(host.astype(records.dtype)) > 0))
    ):
        raise ValueError(
            f"edges must be one-dimensional with at least two increasing numbers, got {edges}."
        )
    return _counted(_in_bins(records, ends), records)


@jax.jit
@partial(jnp.vectorize, signature="(n),(e)->(b)")
def _in_bins(records: jax.Array, edges: jax.Array) -> jax.Array:
    """Return the number of records in each bin; -1 if edges do not increase."""
    # 0 below all bins; records beyond the last edge, and NaN, are dropped.
    cell = jnp.searchsorted(edges, records, side="right")
    cell = jnp.where(records == edges[-1], edges.size - 1, cell)
    counts = jnp.zeros(edges.size, np.int32).at[cell].add(1, mode="drop")
    return jnp.where(jnp.all(jnp.diff(edges) > 0), counts[1:], -1)


def _counted(number: jax.Array, records: jax.Array) -> SensitivityProfile:
    """Return the profile of counts of records; a negative count means invalid parameters."""
    dtype = records.dtype
    if records.shape[-1] > most_multiples(dtype):
        raise ValueError(
            f"x must have at most {most_multiples(dtype)} columns to be counted in {dtype}, got "
            f"{records.shape[-1]}: use float64."
        )
    value = jnp.where(number >= 0, number.astype(dtype), jnp.nan)[..., None]
    profile = from_sides(value, value, neighbors="add_remove", step=jnp.ones((), dtype))
    return profile.in_units(Fraction(1))
