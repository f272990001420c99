"""Statistics that can only fall when people leave, as down sensitivities: see :mod:`dpjax.sensitivity.down`.

statistic          h(l)                                                   people
maximum            the (l+1)-th largest record                            one record each
distinct count     the values left after the rarest l records are gone    one record each
                   at least the values that n - l persons hold            many rows each
nonnegative sum    the total without the l largest records                one record each
user sum           the total without the l largest persons' totals        many rows each
"""

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
    """Return the down sensitivity of the largest record: h(l) is the (l+1)-th largest, and ``lower`` when all are gone.

    Args:
        x: float ``(..., n)``, one record a person. The other arguments: :mod:`dpjax.statistics`.
        lower: public, ``(...)``: also the maximum of no records.

    Returns:
        A :class:`DownSensitivity` with n+1 values.

    Privacy:
        Valid for one record more or less. Public: the bounds and the shape of ``x``; the number of records is not.

    References:
        Steinke (2023), "Beyond Local Sensitivity via Down Sensitivity"; Fang, Dong and Yi (2022).

    >>> import jax.numpy as jnp
    >>> maximum(jnp.array([3.0, 9.0, 4.0, 9.0]), lower=0, upper=100, num_records=3).values.tolist()
    [9.0, 4.0, 3.0, 0.0, 0.0]
    """
    records, present = present_records(x, num_records=num_records, mask=mask)
    low, high = checks.bounds(lower, upper, records.dtype)
    return _down(lambda x, low, high: _maximum(x, present, low, high), resolution, (lower, upper), records, low, high)


def _down(
    values: Callable[..., jax.Array], resolution: Resolution | None, bounds: tuple[Any, ...], *arrays: jax.Array
) -> DownSensitivity:
    """``values(*arrays)``, counted in multiples of a resolution where there is one; the last array is the bound."""
    if resolution is None:
        return DownSensitivity(values(*arrays), arrays[-1])
    most = most_multiples(arrays[-1].dtype)
    step = checks.resolution(resolution, bounds, most)
    counted = [to_multiples(array, step) for array in arrays]
    numbers, high = values(*counted), counted[-1]
    fits = jnp.maximum(abs(high[..., None]), abs(numbers[..., -1:])) <= most  # a float cannot count further
    return DownSensitivity(jnp.where(fits, from_multiples(numbers, step), jnp.nan), from_multiples(high, step), step)


def nonnegative_sum(
    x: ArrayLike,
    *,
    upper: ArrayLike,
    resolution: Resolution | None = None,
    num_records: ArrayLike | None = None,
    mask: ArrayLike | None = None,
) -> DownSensitivity:
    """Return the down sensitivity of ``min(upper, sum(x))``: h(l) is the sum without the l largest records, at most ``upper``.

    No bound on one record is needed, which is the point of the shifted mechanisms; ``upper`` bounds the total.

    Args:
        x: float ``(..., n)``, one record a person on the last axis. Negative records count as 0, NaN records are absent.
        upper: positive and public, ``(...)``: the range of the total is ``[0, upper]``.
        resolution: as in :mod:`dpjax.statistics`, like ``num_records`` and ``mask``; the sums of the rounded records are exact.

    Returns:
        A :class:`DownSensitivity` with n+1 values from f(x) to 0.

    Privacy:
        Valid for one record more or less. Public: ``upper`` and the shape of ``x``; the number of records is not. Sums are
        rounded: the values are those of records moved by a few units in the last place of the total.

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
    """Return the down sensitivity of the total over many rows a person: h(l) leaves out the l persons with the largest totals.

    Args:
        values: float ``(..., m)``, one amount a row. Negative amounts count as 0, NaN rows are absent.
        person_ids: int ``(..., m)``, whose row it is: any integers, in any order.
        upper: positive and public, ``(...)``: the range of the total is ``[0, upper]``.
        resolution: as in :mod:`dpjax.statistics`; the sums of the rounded amounts are exact.
        num_records: int ``(...)``, how many leading rows are present; or
        mask: bool ``(..., m)``, which ones.

    Returns:
        A :class:`DownSensitivity` with m+1 values from f(x) to 0.

    Privacy:
        Valid for one person more or less, with all of that person's rows. Public: ``upper`` and m, the capacity in rows; the
        numbers of rows and of persons are not. A person's total does not depend on the other rows, not even in its last bit.

    References:
        Steinke (2023), "Beyond Local Sensitivity via Down Sensitivity" (user-level privacy); Fang, Dong and Yi (2022).

    >>> import jax.numpy as jnp
    >>> user_sum(jnp.array([1.0, 5.0, 2.0, 4.0]), jnp.array([7, 3, 7, 3]), upper=100).values.tolist()
    [12.0, 3.0, 0.0, 0.0, 0.0]
    """
    records, present = present_records(values, num_records=num_records, mask=mask)
    _, high = checks.bounds(0.0, upper, records.dtype)
    words = _words("person_ids", person_ids, records.shape[-1])
    return _down(lambda amounts, high: _user_sum(amounts, words, present, high), resolution, (upper,), records, high)


def distinct_count(
    ids: ArrayLike,
    person_ids: ArrayLike | None = None,
    *,
    upper: ArrayLike,
    resolution: Resolution | None = None,
    num_records: ArrayLike | None = None,
    mask: ArrayLike | None = None,
) -> DownSensitivity:
    """Return the down sensitivity of the number of different ids, at most ``upper``, of persons with one id each, or several.

    Removing people lowers it fastest if the rarest ids go first: h(l) is the number of ids less the number of the rarest ones
    whose multiplicities sum to at most l. Where persons hold several, the worst ones to remove are NP-hard to find: the values are
    then the convex envelope of h, rounded up, which is right at its corners and never above h (``shared_items.py``).

    Args:
        ids: int ``(..., n)``, on the last axis one id a person, or one id a row: any integers.
        person_ids: int ``(..., n)``, whose row it is: any integers, in any order. Works on the host by maximum flows, and cannot be
            traced.
        upper: positive and public, ``(...)``: the range of the count is ``[0, upper]``.
        resolution: 1 for draws that are whole numbers; as in :mod:`dpjax.statistics`, like ``num_records`` and ``mask``.

    Returns:
        A :class:`DownSensitivity` with n+1 values from f(x) to 0, in the default float.

    Raises:
        TypeError: ids that are no integers, or ``person_ids`` inside jit, vmap or grad.

    Privacy:
        Valid for one person more or less, with all rows. Public: ``upper`` and the shape of ``ids``; the numbers of rows and of
        persons are not. The time that it takes with ``person_ids`` depends on the data.

    References:
        Steinke (2023), "Beyond Local Sensitivity via Down Sensitivity"; Fang, Dong and Yi (2022).

    >>> import jax.numpy as jnp
    >>> distinct_count(jnp.array([4, 4, 4, 9, 9, 1]), upper=10).values.tolist()
    [3.0, 2.0, 2.0, 1.0, 1.0, 1.0, 0.0]
    """
    if np.ndim(ids) == 0:
        raise ValueError("ids need an axis of individuals (the last one); got a scalar.")
    words = _words("ids", ids, np.shape(ids)[-1])
    present = presence(words[0], num_records, mask)
    _, high = checks.bounds(0.0, upper, jnp.result_type(float))
    if person_ids is None:
        values = _distinct(words, present, high)
    else:
        persons = _words("person_ids", person_ids, words[0].shape[-1])
        if any(checks.is_traced(array) for array in (*words, *persons, present, high)):
            raise TypeError("distinct_count with person_ids works on the host and cannot be traced: call it outside jit and vmap.")
        values = _distinct_of_persons(words, persons, present, high)
    return _down(lambda numbers, _: numbers, resolution, (upper, 1), values, high)


def _words(name: str, ids: ArrayLike, size: int) -> tuple[jax.Array, ...]:
    """Return integers as arrays that JAX holds without loss: two words each, where its integers have 32 bits and these have 64."""
    array = ids if isinstance(ids, jax.Array) else np.asarray(ids)
    if not isinstance(ids, (jax.Array, np.ndarray)) and (exact := beyond_64_bits(ids, np.asarray(array))) is not None:
        array = np.unique(exact, return_inverse=True)[1].reshape(exact.shape)  # ids are compared, nothing else
    if not jnp.issubdtype(array.dtype, jnp.integer):
        raise TypeError(f"{name} must be integers, got dtype {array.dtype}.")
    if array.ndim == 0 or array.shape[-1] != size:
        raise ValueError(f"{name} need a last axis of {size}, got shape {array.shape}.")
    if isinstance(array, np.ndarray) and array.dtype.itemsize > jnp.result_type(int).itemsize:
        bits = array.astype(np.uint64)
        return jnp.asarray((bits >> np.uint64(32)).astype(np.uint32)), jnp.asarray(bits.astype(np.uint32))
    return (jnp.asarray(array),)


@jax.jit
def _maximum(records: jax.Array, present: jax.Array | None, low: jax.Array, high: jax.Array) -> jax.Array:
    x = sort_rows(records, present, low, high, neighbors="add_remove")
    return x.at(jnp.maximum(x.n - np.arange(x.n_max + 1, dtype=np.int32), 0))


@jax.jit
def _sum(records: jax.Array, present: jax.Array | None, high: jax.Array) -> jax.Array:
    """The sum of the n-l smallest records.

    Clamping records to the bound of the sum changes nothing: a record beyond it makes the sum ``high`` either way.
    """
    x = sort_rows(records, present, jnp.zeros_like(high), high, neighbors="add_remove")
    ordered = x.values[..., :-1]
    index = jnp.arange(ordered.shape[-1], dtype=jnp.int32).reshape((1,) * (ordered.ndim - 1) + (-1,))
    sums = running(ordered, index, jnp.add)
    # Sums of more records are larger but for the rounding of different orders of addition.
    sums = running(sums, index, lambda own, before: jnp.where(before > own, before, own))
    return jnp.minimum(take(sums, jnp.maximum(x.n - np.arange(sums.shape[-1], dtype=np.int32), 0)), high[..., None])


@jax.jit
def _user_sum(amounts: jax.Array, words: tuple[jax.Array, ...], present: jax.Array | None, high: jax.Array) -> jax.Array:
    amounts = jnp.minimum(amounts, high[..., None])  # changes nothing, and sums of multiples stay exact
    there = ~jnp.isnan(amounts) if present is None else ~jnp.isnan(amounts) & present
    shape = jnp.broadcast_shapes(there.shape, *(word.shape for word in words))
    amounts, there, *words_ = (broadcast_rows(array, shape[:-1]) for array in (amounts, there, *words))
    amounts = jnp.maximum(jnp.where(there, amounts, 0.0), 0.0)
    # The amount is the last key, so that a person's total does not depend on the order of the rows.
    absent, *words_, amounts = jax.lax.sort(((~there).astype(jnp.int32), *words_, amounts), num_keys=len(words_) + 2)
    first = _starts(absent, words_)
    index = jnp.broadcast_to(jnp.arange(shape[-1], dtype=jnp.int32), shape)
    # Added in pairs that depend on the place within the person only: the total is the same, bit for bit, whatever stands around.
    totals = running(amounts, index - jax.lax.cummax(jnp.where(first, index, 0), axis=first.ndim - 1), jnp.add)
    last = jnp.concatenate([first[..., 1:], jnp.ones_like(first[..., :1])], axis=-1) & (absent == 0)
    return _sum(totals, last, high)


@jax.jit
def _distinct(words: tuple[jax.Array, ...], present: jax.Array | None, high: jax.Array) -> jax.Array:
    there = jnp.ones(words[0].shape, jnp.bool_)
    there = there if present is None else there & present
    batch, n_max = jnp.broadcast_shapes(there.shape[:-1], high.shape), there.shape[-1]
    absent, *sorted_words = jax.lax.sort(
        ((~broadcast_rows(there, batch)).astype(jnp.int32), *(broadcast_rows(word, batch) for word in words)),
        num_keys=len(words) + 1,
    )
    first = _starts(absent, sorted_words) & (absent == 0)
    index = jnp.broadcast_to(jnp.arange(n_max, dtype=jnp.int32), first.shape)
    # Where an id ends: at the next start, which is the smallest start after it, or where the absent begin.
    n = jnp.sum(absent == 0, axis=-1, keepdims=True, dtype=jnp.int32)
    beyond = np.int32(n_max + 1)
    starts = jnp.sort(jnp.where(first, index, beyond), axis=-1)
    ends = jnp.minimum(jnp.concatenate([starts[..., 1:], jnp.full_like(n, beyond)], axis=-1), n)
    multiplicity = jnp.sort(jnp.where(starts < beyond, ends - starts, beyond), axis=-1)
    real = multiplicity < beyond
    gone_after = jnp.where(real, jnp.cumsum(jnp.where(real, multiplicity, 0), axis=-1, dtype=jnp.int32), beyond)
    levels = jnp.arange(n_max + 1, dtype=jnp.int32)
    gone = jnp.vectorize(partial(jnp.searchsorted, side="right"), signature="(n),(m)->(m)")(gone_after, levels)
    left = jnp.sum(first, axis=-1, keepdims=True, dtype=jnp.int32) - gone
    return jnp.minimum(left.astype(high.dtype), high[..., None])


def _distinct_of_persons(
    words: tuple[jax.Array, ...], persons: tuple[jax.Array, ...], present: jax.Array | None, high: jax.Array
) -> jax.Array:
    """A row at a time, on the host."""
    there = np.ones(words[0].shape, np.bool_) if present is None else np.asarray(present)
    shape = np.broadcast_shapes(words[0].shape, persons[0].shape, there.shape)
    *arrays, there = (np.broadcast_to(np.asarray(array), shape) for array in (*words, *persons, there))
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
    """Which of the sorted entries differ from the one before."""
    differs = [word[..., 1:] != word[..., :-1] for word in (absent, *words)]
    return jnp.concatenate([jnp.ones_like(absent[..., :1], jnp.bool_), jnp.any(jnp.stack(differs), axis=0)], axis=-1)
