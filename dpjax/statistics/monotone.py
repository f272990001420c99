"""Statistics that can only decrease when people leave, as down sensitivities.

See :mod:`dpjax.sensitivity.down`.

statistic          h(l)                                                       people
maximum            the (l+1)-th largest record                                one record each
distinct count     the number of values left without the rarest l records     one record each
                   at least the number of values that n - l persons have      many rows each
nonnegative sum    the total without the l largest records                    one record each
user sum           the total without the l largest persons' totals            many rows each
"""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from dpjax import checks
from dpjax.checks import Resolution
from dpjax.numerics.arrays import integers
from dpjax.numerics.float64 import in_float64
from dpjax.sensitivity.down import DownSensitivity, in_multiples
from dpjax.statistics.padded_records import bounded_records, presence, present_records
from dpjax.statistics.shared_items import least_left
from dpjax.statistics.sorting import sort_rows


def maximum(
    x: ArrayLike,
    *,
    lower: ArrayLike,
    upper: ArrayLike,
    resolution: Resolution | None = None,
    num_records: ArrayLike | None = None,
    mask: ArrayLike | None = None,
) -> DownSensitivity:
    """Return the down sensitivity of the largest record: h(l) is the (l+1)-th largest record.

    If all records are removed, it is ``lower``.

    Args:
        x: float ``(..., n)``, one record a person. See :mod:`dpjax.statistics` for the arguments
            not listed here.
        lower: public, ``(...)``, also the maximum of the empty dataset.

    Returns:
        A :class:`DownSensitivity` with n+1 values.

    Privacy:
        Valid for one record more or less. Public: the bounds and the shape of ``x``; the number of
        records is private.

    References:
        Steinke (2023), "Beyond Local Sensitivity via Down Sensitivity"; Fang, Dong and Yi (2022).

    >>> import jax.numpy as jnp
    >>> maximum(jnp.array([3.0, 9.0, 4.0, 9.0]), lower=0, upper=100, num_records=3).values.tolist()
    [9.0, 4.0, 3.0, 0.0, 0.0]
    """
    (records, present, low, high), _ = bounded_records(x, lower, upper, num_records, mask)
    return in_multiples(partial(_maximum, present), resolution, (lower, upper), records, low, high)


def nonnegative_sum(
    x: ArrayLike,
    *,
    upper: ArrayLike,
    resolution: Resolution | None = None,
    num_records: ArrayLike | None = None,
    mask: ArrayLike | None = None,
) -> DownSensitivity:
    """Return the down sensitivity of ``min(upper, sum(x))``.

    h(l) is the sum without the l largest records, at most ``upper``. A bound on the total is
    needed, but none on a single record, which is the advantage of the shifted mechanisms.

    Args:
        x: float ``(..., n)``, one record a person on the last axis. Negative records count as 0,
            NaN records are absent.
        upper: positive and public, ``(...)``: the range of the total is ``[0, upper]``.
        resolution: as in :mod:`dpjax.statistics`, like ``num_records`` and ``mask``; sums of the
            rounded records are exact.

    Returns:
        A :class:`DownSensitivity` with n+1 values from f(x) to 0.

    Privacy:
        Valid for one record more or less. Public: ``upper`` and the shape of ``x``; the number of
        records is private. Sums are rounded, although in float64: the values are those of records
        moved by a few units in the last place of the total.

    References:
        Steinke (2023), "Beyond Local Sensitivity via Down Sensitivity"; Fang, Dong and Yi (2022).

    >>> import jax.numpy as jnp
    >>> nonnegative_sum(jnp.array([1.0, 50.0, 2.0, -4.0]), upper=20).values.tolist()
    [20.0, 3.0, 1.0, 0.0, 0.0]
    """
    records, present = present_records(x, num_records=num_records, mask=mask)
    _, high = checks.bounds(0.0, upper, records.dtype)
    return in_multiples(partial(_sum, present), resolution, (upper,), records, high)


def user_sum(
    values: ArrayLike,
    person_ids: ArrayLike,
    *,
    upper: ArrayLike,
    resolution: Resolution | None = None,
    num_records: ArrayLike | None = None,
    mask: ArrayLike | None = None,
) -> DownSensitivity:
    """Return the down sensitivity of the total when each person may have many rows.

    h(l) is the total without the l persons with the largest totals.

    Args:
        values: float ``(..., m)``, one amount a row. Negative amounts count as 0, NaN rows are
            absent.
        person_ids: ``(..., m)``, the person of each row, in any order: numbers, text, or any other
            objects. Ids that are equal are one person, and so are all that are missing (None, NaN).
        upper: positive and public, ``(...)``: the range of the total is ``[0, upper]``.
        resolution: as in :mod:`dpjax.statistics`; sums of the rounded amounts are exact.
        num_records: int ``(...)``, the number of leading rows that are present. Give this or
            ``mask``.
        mask: bool ``(..., m)``, the rows that are present.

    Returns:
        A :class:`DownSensitivity` with m+1 values from f(x) to 0.

    Privacy:
        Valid for one person more or less, with all of that person's rows. Public: ``upper`` and m,
        the capacity in rows; the numbers of rows and of persons are private. Sums are rounded, as
        those of :func:`nonnegative_sum`.

    References:
        Steinke (2023), "Beyond Local Sensitivity via Down Sensitivity" (user-level privacy); Fang,
        Dong and Yi (2022).

    >>> import jax.numpy as jnp
    >>> user_sum(
    ...     jnp.array([1.0, 5.0, 2.0, 4.0]), jnp.array([7, 3, 7, 3]), upper=100
    ... ).values.tolist()
    [12.0, 3.0, 0.0, 0.0, 0.0]
    """
    records, present = present_records(
        checks.float_array("values", values), num_records=num_records, mask=mask
    )
    _, high = checks.bounds(0.0, upper, records.dtype)
    persons = _codes("person_ids", person_ids, records.shape[-1])
    return in_multiples(partial(_user_sum, persons, present), resolution, (upper,), records, high)


def distinct_count(
    ids: ArrayLike,
    person_ids: ArrayLike | None = None,
    *,
    upper: ArrayLike,
    resolution: Resolution | None = None,
    num_records: ArrayLike | None = None,
    mask: ArrayLike | None = None,
) -> DownSensitivity:
    """Return the down sensitivity of the number of distinct ids, at most ``upper``.

    Persons may have one id each, or several. Removals decrease the count fastest if the rarest ids
    are removed first: h(l) is the number of ids minus the number of the rarest ones whose
    multiplicities sum to at most l. If persons have several ids, the worst persons to remove are
    NP-hard to find: the values are then the convex envelope of h, rounded up, which equals h at its
    corners and never exceeds h (``shared_items.py``).

    Args:
        ids: ``(..., n)``, on the last axis one id a person, or one id a row: numbers, text, or any
            other objects. All that are missing (None, NaN) are one id.
        person_ids: ``(..., n)``, the person of each row, as in :func:`user_sum`. Uses maximum flows
            on the host, and cannot be traced.
        upper: positive and public, ``(...)``: the range of the count is ``[0, upper]``.
        resolution: 1 for integer draws; as in :mod:`dpjax.statistics`, like ``num_records`` and
            ``mask``.

    Returns:
        A :class:`DownSensitivity` with n+1 values from f(x) to 0, in the default float.

    Raises:
        TypeError: ``person_ids`` are given inside jit, vmap or grad.

    Privacy:
        Valid for one person more or less, with all rows. Public: ``upper`` and the shape of
        ``ids``; the numbers of rows and of persons are private. With ``person_ids``, the running
        time depends on the data.

    References:
        Steinke (2023), "Beyond Local Sensitivity via Down Sensitivity"; Fang, Dong and Yi (2022).

    >>> import jax.numpy as jnp
    >>> distinct_count(jnp.array([4, 4, 4, 9, 9, 1]), upper=10).values.tolist()
    [3.0, 2.0, 2.0, 1.0, 1.0, 1.0, 0.0]
    """
    items = _codes("ids", ids)
    present = presence(items, num_records, mask)
    _, high = checks.bounds(0.0, upper, jnp.result_type(float))
    if person_ids is None:
        left = _distinct(items, present)
    else:
        persons = _codes("person_ids", person_ids, items.shape[-1])
        if any(map(checks.is_traced, (items, persons, present))):
            raise TypeError(
                "distinct_count with person_ids cannot be traced, as it runs on the host: call it "
                "outside jit and vmap."
            )
        left = _distinct_of_persons(items, persons, present)
    return in_multiples(_at_most, resolution, (upper, 1), left.astype(high.dtype), high)


def _codes(name: str, ids: Any, size: int | None = None) -> jax.Array:
    """Return numbers that are equal where the ids are; those of NumPy and of lists as int32."""
    checks.refuse_frame(name, ids)
    if not isinstance(ids, np.ndarray | jax.Array):
        ids = _cells(ids)
    if ids.ndim == 0 or size not in (None, ids.shape[-1]):
        raise ValueError(
            f"{name} must have a last axis of {size or 'individuals'}, got shape {ids.shape}."
        )
    if isinstance(ids, jax.Array):
        return ids
    if ids.dtype.kind in "biuSU":
        codes = np.unique(ids, return_inverse=True)[1]
    else:
        codes = np.array([*map(partial(_code, {}), ids.flat)])
    return jnp.asarray(codes.reshape(ids.shape).astype(np.int32))


def _cells(ids: Any) -> np.ndarray:
    """Return an array of objects; only lists have axes, as NumPy's depend on all entries."""
    cells: list[Any] = [ids if np.isscalar(ids) else list(ids)]
    shape: list[int] = []
    while cells and all(isinstance(each, list) for each in cells) and len({*map(len, cells)}) == 1:
        shape.append(len(cells[0]))
        cells = [cell for each in cells for cell in each]
    return np.fromiter(cells, object, len(cells)).reshape(shape)


def _code(known: Any, value: Any) -> int:
    """Return the number of an id, by those known; all that cannot be compared have the same."""
    try:
        return known.setdefault(value if value == value else None, len(known))
    except Exception:  # no record raises: it is missing
        return _code(known, None)


@jax.jit
def _maximum(
    present: jax.Array | None, records: jax.Array, low: jax.Array, high: jax.Array
) -> jax.Array:
    return sort_rows(records, present, low, high, neighbors="add_remove").descending()


@jax.jit
def _sum(present: jax.Array | None, records: jax.Array, high: jax.Array) -> jax.Array:
    """Return the sums without the l largest records; one that is absent counts as 0.

    Clamping records to the bound of the sum changes no sum: with a record beyond it, the sum is
    ``high`` either way.
    """
    there = records if present is None else jnp.where(present, records, 0.0)
    x = sort_rows(there, None, jnp.zeros_like(high), high, neighbors="swap")
    sums = in_float64(partial(jnp.cumsum, axis=-1), x.values[..., :-1])
    # Sums of more records are larger, but for the rounding.
    sums = jax.lax.cummax(sums, axis=sums.ndim - 1)
    return _at_most(jnp.flip(sums, axis=-1), high)


def _at_most(values: jax.Array, high: jax.Array) -> jax.Array:
    return jnp.minimum(values, high[..., None])


@jax.jit
def _user_sum(
    persons: jax.Array, present: jax.Array | None, amounts: jax.Array, high: jax.Array
) -> jax.Array:
    # With an amount beyond the bound, the sum is at the bound either way.
    amounts = jnp.clip(amounts, 0, high[..., None])
    there = ~jnp.isnan(amounts) if present is None else ~jnp.isnan(amounts) & present
    totals = in_float64(_totals, jnp.where(there, amounts, 0), persons)
    return _sum(None, totals, high)


@jax.jit
def _distinct(ids: jax.Array, present: jax.Array | None) -> jax.Array:
    there = jnp.ones(ids.shape, bool) if present is None else present
    # People with the rarest ids leave first.
    people = jnp.sort(_totals(there.astype(np.int32), ids), axis=-1)
    gone = jnp.cumsum(people, axis=-1, dtype=np.int32)
    levels = integers(gone.shape[-1] + 1)
    find = jnp.vectorize(partial(jnp.searchsorted, side="right"), signature="(n),(m)->(m)")
    return gone.shape[-1] - find(gone, levels)


@partial(jnp.vectorize, signature="(n),(n)->(n)")
def _totals(amounts: jax.Array, ids: jax.Array) -> jax.Array:
    """Return the sum of the amounts of every id, followed by zeros."""
    group = jnp.unique(ids, return_inverse=True, size=ids.size)[1]
    return jnp.zeros_like(amounts).at[group].add(amounts)


def _distinct_of_persons(
    items: jax.Array, persons: jax.Array, present: jax.Array | None
) -> jax.Array:
    """Compute the values row by row on the host."""
    arrays = np.broadcast_arrays(items, persons, True if present is None else present)
    *batch, size = arrays[0].shape
    left = [least_left(*(array[row] for array in arrays)) for row in np.ndindex(*batch)]
    return jnp.asarray(np.array(left, np.int32).reshape(*batch, size + 1))
