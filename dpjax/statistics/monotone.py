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

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from dpjax import checks
from dpjax.checks import Resolution
from dpjax.numerics.batching import broadcast_rows, take
from dpjax.numerics.multiples import from_multiples, most_multiples, to_multiples
from dpjax.numerics.sums import running
from dpjax.sensitivity.down import DownSensitivity
from dpjax.statistics.padded_records import beyond_64_bits, presence, present_records
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
    records, present = present_records(x, num_records=num_records, mask=mask)
    low, high = checks.bounds(lower, upper, records.dtype)
    return _down(
        lambda x, low, high: _maximum(x, present, low, high),
        resolution,
        (lower, upper),
        records,
        low,
        high,
    )


def _down(
    values: Callable[..., jax.Array],
    resolution: Resolution | None,
    bounds: tuple[Any, ...],
    *arrays: jax.Array,
) -> DownSensitivity:
    """Compute ``values(*arrays)``, in multiples of a resolution; the last array is the bound."""
    if resolution is None:
        return DownSensitivity(values(*arrays), arrays[-1])
    most = most_multiples(arrays[-1].dtype)
    step = checks.resolution(resolution, bounds, most)
    counted = [to_multiples(array, step) for array in arrays]
    numbers, high = values(*counted), counted[-1]
    # The largest multiple that a float can count to.
    fits = jnp.maximum(abs(high[..., None]), abs(numbers[..., -1:])) <= most
    return DownSensitivity(
        jnp.where(fits, from_multiples(numbers, step), jnp.nan), from_multiples(high, step), step
    )


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
        records is private. Sums are rounded: the values are those of records moved by a few units
        in the last place of the total.

    References:
        Steinke (2023), "Beyond Local Sensitivity via Down Sensitivity"; Fang, Dong and Yi (2022).

    >>> import jax.numpy as jnp
    >>> nonnegative_sum(jnp.array([1.0, 50.0, 2.0, -4.0]), upper=20).values.tolist()
    [20.0, 3.0, 1.0, 0.0, 0.0]
    """
    records, present = present_records(x, num_records=num_records, mask=mask)
    _, high = checks.bounds(0.0, upper, records.dtype)
    return _down(lambda x, high: _sum(x, present, high), resolution, (upper,), records, high)


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
        person_ids: int ``(..., m)``, the person of each row: any integers, in any order.
        upper: positive and public, ``(...)``: the range of the total is ``[0, upper]``.
        resolution: as in :mod:`dpjax.statistics`; sums of the rounded amounts are exact.
        num_records: int ``(...)``, the number of leading rows that are present. Give this or
            ``mask``.
        mask: bool ``(..., m)``, the rows that are present.

    Returns:
        A :class:`DownSensitivity` with m+1 values from f(x) to 0.

    Privacy:
        Valid for one person more or less, with all of that person's rows. Public: ``upper`` and m,
        the capacity in rows; the numbers of rows and of persons are private. A person's total is
        bitwise independent of other rows.

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
    words = _words("person_ids", person_ids, records.shape[-1])
    return _down(
        lambda amounts, high: _user_sum(amounts, words, present, high),
        resolution,
        (upper,),
        records,
        high,
    )


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
        ids: int ``(..., n)``, any integers: on the last axis one id a person, or one id a row.
        person_ids: int ``(..., n)``, the person of each row: any integers, in any order. Uses
            maximum flows on the host, and cannot be traced.
        upper: positive and public, ``(...)``: the range of the count is ``[0, upper]``.
        resolution: 1 for integer draws; as in :mod:`dpjax.statistics`, like ``num_records`` and
            ``mask``.

    Returns:
        A :class:`DownSensitivity` with n+1 values from f(x) to 0, in the default float.

    Raises:
        TypeError: ``ids`` are not integers, or ``person_ids`` are given inside jit, vmap or grad.

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
    if np.ndim(ids) == 0:
        raise ValueError("ids must have a last axis of individuals, got a scalar.")
    words = _words("ids", ids, np.shape(ids)[-1])
    present = presence(words[0], num_records, mask)
    _, high = checks.bounds(0.0, upper, jnp.result_type(float))
    if person_ids is None:
        values = _distinct(words, present, high)
    else:
        persons = _words("person_ids", person_ids, words[0].shape[-1])
        if any(checks.is_traced(array) for array in (*words, *persons, present, high)):
            raise TypeError(
                "distinct_count with person_ids cannot be traced, as it runs on the host: call it "
                "outside jit and vmap."
            )
        values = _distinct_of_persons(words, persons, present, high)
    return _down(lambda numbers, _: numbers, resolution, (upper, 1), values, high)


def _words(name: str, ids: ArrayLike, size: int) -> tuple[jax.Array, ...]:
    """Return integers as JAX arrays without loss, as two 32-bit words if JAX lacks 64 bits."""
    array = ids if isinstance(ids, jax.Array) else np.asarray(ids)
    if (
        not isinstance(ids, (jax.Array, np.ndarray))
        and (exact := beyond_64_bits(ids, np.asarray(array))) is not None
    ):
        # Ids are only compared.
        array = np.unique(exact, return_inverse=True)[1].reshape(exact.shape)
    if not jnp.issubdtype(array.dtype, jnp.integer):
        raise TypeError(f"{name} must be integers, got dtype {array.dtype}.")
    if array.shape[-1:] != (size,):
        raise ValueError(f"{name} must have a last axis of size {size}, got shape {array.shape}.")
    if isinstance(array, np.ndarray) and array.dtype.itemsize > jnp.result_type(int).itemsize:
        bits = array.astype(np.uint64)
        return jnp.asarray((bits >> np.uint64(32)).astype(np.uint32)), jnp.asarray(
            bits.astype(np.uint32)
        )
    return (jnp.asarray(array),)


@jax.jit
def _maximum(
    records: jax.Array, present: jax.Array | None, low: jax.Array, high: jax.Array
) -> jax.Array:
    x = sort_rows(records, present, low, high, neighbors="add_remove")
    return x.at(jnp.maximum(x.n - np.arange(x.n_max + 1, dtype=np.int32), 0))


@jax.jit
def _sum(records: jax.Array, present: jax.Array | None, high: jax.Array) -> jax.Array:
    """Return the sums of the n-l smallest records.

    Clamping records to the bound of the sum changes no sum: with a record beyond it, the sum is
    ``high`` either way.
    """
    x = sort_rows(records, present, jnp.zeros_like(high), high, neighbors="add_remove")
    ordered = x.values[..., :-1]
    index = jnp.arange(ordered.shape[-1], dtype=jnp.int32).reshape(
        (1,) * (ordered.ndim - 1) + (-1,)
    )
    sums = running(ordered, index, jnp.add)
    # Sums of more records are larger, except for rounding in different orders of addition.
    sums = running(sums, index, lambda here, before: jnp.where(before > here, before, here))
    return jnp.minimum(
        take(sums, jnp.maximum(x.n - np.arange(sums.shape[-1], dtype=np.int32), 0)), high[..., None]
    )


@jax.jit
def _user_sum(
    amounts: jax.Array, words: tuple[jax.Array, ...], present: jax.Array | None, high: jax.Array
) -> jax.Array:
    # No sum changes, and sums of multiples stay exact.
    amounts = jnp.minimum(amounts, high[..., None])
    there = ~jnp.isnan(amounts) if present is None else ~jnp.isnan(amounts) & present
    shape = jnp.broadcast_shapes(there.shape, *(word.shape for word in words))
    amounts, there, *words_ = (
        broadcast_rows(array, shape[:-1]) for array in (amounts, there, *words)
    )
    amounts = jnp.maximum(jnp.where(there, amounts, 0.0), 0.0)
    # The amount is the last sort key, so that a person's total does not depend on the order of the
    # rows.
    absent, *words_, amounts = jax.lax.sort(
        ((~there).astype(jnp.int32), *words_, amounts), num_keys=len(words_) + 2
    )
    first = _starts(absent, words_)
    index = jnp.broadcast_to(jnp.arange(shape[-1], dtype=jnp.int32), shape)
    # Additions are paired by the index within the person only, so totals are bitwise independent of
    # other rows.
    totals = running(
        amounts, index - jax.lax.cummax(jnp.where(first, index, 0), axis=first.ndim - 1), jnp.add
    )
    last = jnp.concatenate([first[..., 1:], jnp.ones_like(first[..., :1])], axis=-1) & (absent == 0)
    return _sum(totals, last, high)


@jax.jit
def _distinct(
    words: tuple[jax.Array, ...], present: jax.Array | None, high: jax.Array
) -> jax.Array:
    there = jnp.ones(words[0].shape, jnp.bool_)
    there = there if present is None else there & present
    batch, n_max = jnp.broadcast_shapes(there.shape[:-1], high.shape), there.shape[-1]
    absent, *sorted_words = jax.lax.sort(
        (
            (~broadcast_rows(there, batch)).astype(jnp.int32),
            *(broadcast_rows(word, batch) for word in words),
        ),
        num_keys=len(words) + 1,
    )
    first = _starts(absent, sorted_words) & (absent == 0)
    index = jnp.broadcast_to(jnp.arange(n_max, dtype=jnp.int32), first.shape)
    # An id ends at the smallest start after it, or where absent rows begin.
    n = jnp.sum(absent == 0, axis=-1, keepdims=True, dtype=jnp.int32)
    beyond = np.int32(n_max + 1)
    starts = jnp.sort(jnp.where(first, index, beyond), axis=-1)
    ends = jnp.minimum(jnp.concatenate([starts[..., 1:], jnp.full_like(n, beyond)], axis=-1), n)
    multiplicity = jnp.sort(jnp.where(starts < beyond, ends - starts, beyond), axis=-1)
    real = multiplicity < beyond
    gone_after = jnp.where(
        real, jnp.cumsum(jnp.where(real, multiplicity, 0), axis=-1, dtype=jnp.int32), beyond
    )
    levels = jnp.arange(n_max + 1, dtype=jnp.int32)
    gone = jnp.vectorize(partial(jnp.searchsorted, side="right"), signature="(n),(m)->(m)")(
        gone_after, levels
    )
    left = jnp.sum(first, axis=-1, keepdims=True, dtype=jnp.int32) - gone
    return jnp.minimum(left.astype(high.dtype), high[..., None])


def _distinct_of_persons(
    words: tuple[jax.Array, ...],
    persons: tuple[jax.Array, ...],
    present: jax.Array | None,
    high: jax.Array,
) -> jax.Array:
    """Compute the values row by row on the host."""
    there = np.ones(words[0].shape, np.bool_) if present is None else np.asarray(present)
    shape = np.broadcast_shapes(words[0].shape, persons[0].shape, there.shape)
    *arrays, there = (
        np.broadcast_to(np.asarray(array), shape) for array in (*words, *persons, there)
    )
    left = np.empty((*shape[:-1], shape[-1] + 1), np.int64)
    for row in np.ndindex(shape[:-1]):
        kept = [array[row][there[row]].astype(np.int64) for array in arrays]
        items, holders = (
            np.unique(np.stack(some, axis=-1), axis=0, return_inverse=True)[1].reshape(-1)
            for some in (kept[: len(words)], kept[len(words) :])
        )
        left[row] = least_left(items, holders, shape[-1])
    return jnp.minimum(jnp.asarray(left.astype(high.dtype)), high[..., None])


def _starts(absent: jax.Array, words: list[jax.Array]) -> jax.Array:
    """Return True for sorted entries that differ from the previous one."""
    differs = [word[..., 1:] != word[..., :-1] for word in (absent, *words)]
    return jnp.concatenate(
        [jnp.ones_like(absent[..., :1], jnp.bool_), jnp.any(jnp.stack(differs), axis=0)], axis=-1
    )
