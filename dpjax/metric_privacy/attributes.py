"""Metrics from the attributes of records: what it costs to change some of them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial, reduce
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from dpjax import checks
from dpjax.metric_privacy.metrics import Metric, budget_array
from dpjax.metric_privacy.points import from_points, from_smallest
from dpjax.numerics.batching import align, broadcast_batch, broadcast_rows, fits, take

Rule = Literal["sum", "min"]


def weighted_hamming(records: ArrayLike, *, budgets: ArrayLike) -> Metric:
    """Return the metric d(i, j) = sum of the budgets of all attributes in which elements i and j differ.

    Args:
        records: ``(..., N, A)``, the A attributes of every element of the universe: numbers or, in NumPy, labels of any kind.
        budgets: ``(..., A)``, what a change of each attribute may cost: not negative, ``inf`` for one that is not protected.

    Returns:
        A :class:`Metric`. A batch element with NaN in JAX records or budgets is NaN.

    Raises:
        TypeError: JAX records that are neither integers nor floats; budgets that are not real numbers.
        ValueError: wrong shapes, NaN among NumPy records, bad budgets.

    Privacy:
        The records here are the universe, which is public.

    References:
        Kamalaruban et al. (2020), Sections 1 and 5.

    >>> weighted_hamming([["m", "yes"], ["m", "no"], ["f", "no"]], budgets=[2.0, 0.5]).budgets.tolist()
    [[0.0, 0.5, 2.5], [0.5, 0.0, 2.0], [2.5, 2.0, 0.0]]
    """
    codes = _codes(records)
    given = budget_array("budgets", budgets)
    if given.ndim < 1 or given.shape[-1] != codes.shape[-1]:
        raise ValueError(f"{codes.shape[-1]} attributes need as many budgets, got shape {given.shape}.")
    fits(codes.shape[:-2], budgets=given.shape[:-1])
    return _by_attribute(codes, given)


def value_budgets(records: ArrayLike, *, budgets: Sequence[ArrayLike] | np.ndarray | jax.Array, rule: Rule) -> Metric:
    """Return a metric from a budget for every value of every attribute: a smaller one protects a value more.

    ``rule="sum"``: d(i, j) = sum of e(u) + e(v) over the attributes in which i has u, and j has v != u. ``rule="min"``: the smaller
    of e(u) and e(v) instead, for attributes of two values only. With three it is no metric: budgets (1, 10, 10) allow 10 between
    the last two values, and by way of the first, where moves cost 1 each, no more than 2 can be used. In the sum, an infinite
    budget of one value leaves every change to or from it unprotected.

    With one attribute of N values, ``records=numpy.arange(N)[:, None]``, it is (e_i + e_j) for i != j: a budget for every element.

    Args:
        records: int ``(..., N, A)``, the codes 0, 1, ... of the values that every element has.
        budgets: A arrays of shape ``(..., V_a)``, a budget for every value of an attribute; or one array ``(A, V)``.
        rule: static.

    Returns:
        A :class:`Metric`. A batch element with a JAX code or budget out of range is NaN.

    Raises:
        TypeError: records that are not integers.
        ValueError: wrong shapes, NumPy codes that have no budget, bad budgets, or ``"min"`` with an attribute of other than two
            values.

    Privacy:
        The records here are the universe, which is public. Budgets go with values, not with persons.

    References:
        Kamalaruban et al. (2020): Example 1 has the minimum (equation 3) and calls it a distance metric, which is true of its
        binary attributes; Section 5 has the sum.

    >>> value_budgets([[0], [1], [2]], budgets=[[1.0, 2.0, 4.0]], rule="sum").budgets.tolist()
    [[0.0, 3.0, 5.0], [3.0, 0.0, 6.0], [5.0, 6.0, 0.0]]
    """
    checks.one_of("rule", rule, ("sum", "min"))
    given = records if isinstance(records, jax.Array) else np.asarray(records)
    if given.dtype.kind not in "iu":
        raise TypeError(f"records must be integer codes of values, got dtype {given.dtype}.")
    _check_records(given.shape)
    each = [budget_array("budgets", value) for value in budgets]
    if len(each) != given.shape[-1] or any(value.ndim < 1 for value in each):
        raise ValueError(f"{given.shape[-1]} attributes need as many arrays of budgets, got {len(each)}.")
    for a, value in enumerate(each):
        if rule == "min" and value.shape[-1] != 2:
            raise ValueError(
                f"the minimum of two budgets is a metric for two values only, and attribute {a} has {value.shape[-1]}: with "
                'budgets (1, 10, 10) the last two are 10 apart, but 2 by way of the first. Use rule="sum", or weighted_hamming.'
            )
        if isinstance(given, np.ndarray) and not np.all((given[..., a] >= 0) & (given[..., a] < value.shape[-1])):
            raise ValueError(f"the codes of attribute {a} must be 0 to {value.shape[-1] - 1}, those with a budget.")
    return _by_value(checks.codes(given), each, rule)


def from_dates(dates: ArrayLike, *, epsilon: ArrayLike) -> Metric:
    """Return the metric d(i, j) = epsilon * days between the dates of elements i and j.

    Args:
        dates: ``(..., N)``: NumPy ``datetime64`` or Python dates, or numbers of days (then JAX arrays too).
        epsilon: positive, the budget per day (epsilon / T protects a period of T days by epsilon); broadcasts against the batch.

    Returns:
        A :class:`Metric`. A batch element with NaN among JAX days is NaN.

    Raises:
        TypeError: neither dates nor real numbers.
        ValueError: a date that is NaT, days that are not finite, no dates, a bad ``epsilon``.

    Privacy:
        The dates here are the universe, which is public.

    References:
        Kamalaruban et al. (2020), Section 5 ("Data Generalization").

    >>> import datetime
    >>> from_dates([datetime.date(2024, 2, 28), datetime.date(2024, 3, 1)], epsilon=0.5).budgets.tolist()
    [[0.0, 1.0], [1.0, 0.0]]
    """
    if isinstance(dates, jax.Array):
        days: jax.Array | np.ndarray = dates
    else:
        given = np.asarray(dates)
        if given.dtype.kind not in "biuf":
            try:
                given = given.astype("datetime64[us]")
            except (TypeError, ValueError):
                raise TypeError(f"dates must be dates or numbers of days, got dtype {given.dtype}.") from None
            if np.any(np.isnat(given)):
                raise ValueError("dates must not be NaT.")
        if given.ndim < 1 or given.shape[-1] == 0:
            raise ValueError(f"dates must be of shape (..., N) with N >= 1, got {given.shape}.")
        microseconds = given.dtype.kind == "M"
        since = from_smallest(given.view(np.int64) if microseconds else given, -1)
        days = since / (86400 * 10**6) if microseconds else since
    checks.finite("dates", days, jnp.result_type(float))
    return from_points(days[..., None], epsilon=epsilon, distance="manhattan")


def product(*metrics: Metric) -> Metric:
    """Return the metric of records that have one element of each universe: the sum of what their changes may cost.

        d((i, a), (j, b)) = d_1(i, j) + d_2(a, b)

    Args:
        metrics: each on a universe of its own, without "nobody"; their batches broadcast.

    Returns:
        A :class:`Metric` on all combinations; the last universe varies fastest, as in ``itertools.product``.

    Raises:
        TypeError: not a :class:`Metric`.
        ValueError: no metric, one with "nobody" (add it to the product), batches that do not fit.

    Privacy:
        What is released from each attribute on its own, d_k-privately, is d-private all together.

    References:
        Kamalaruban et al. (2020), Appendix C.

    >>> from dpjax.metric_privacy.metrics import uniform
    >>> from dpjax.metric_privacy.points import from_points
    >>> product(from_points([[0.0], [3.0]], epsilon=0.5), uniform(2, epsilon=1.0)).budgets[0].tolist()
    [0.0, 1.0, 1.5, 2.5]
    """
    if not metrics:
        raise ValueError("product needs at least one metric.")
    for metric in metrics:
        checks.instance("product", metric, Metric, "of from_budgets, from_points, ...; points: .dense()")
        if metric.neighbors == "add_remove":
            raise ValueError("take the product without nobody, and add it afterwards: product(...).with_absence(...).")
    jnp.broadcast_shapes(*(metric.batch_shape for metric in metrics))
    return reduce(_product, metrics)


@jax.jit
def _product(first: Metric, second: Metric) -> Metric:
    batch = jnp.broadcast_shapes(first.batch_shape, second.batch_shape)
    dtype, rank = jnp.promote_types(first.dtype, second.dtype), len(batch) + 2
    one, other = (align(metric.budgets.astype(dtype), rank) for metric in (first, second))
    both = one[..., :, None, :, None] + other[..., None, :, None, :]
    size = first.size * second.size
    return Metric(both.reshape(*batch, size, size))


def _check_records(shape: tuple[int, ...]) -> None:
    if len(shape) < 2 or 0 in shape[-2:]:
        raise ValueError(f"records must be of shape (..., N, A) with N, A >= 1, got {shape}.")


def _codes(records: ArrayLike) -> jax.Array:
    """Numbers that differ where the records do; NaN where a JAX record is."""
    if isinstance(records, jax.Array):
        if records.dtype.kind not in "biuf":
            raise TypeError(f"JAX records must be integers or floats, got dtype {records.dtype}.")
        _check_records(records.shape)
        return records
    given = np.asarray(records)
    _check_records(given.shape)
    if given.dtype.kind in "fc" and np.any(np.isnan(given)):
        raise ValueError("records must not be NaN.")
    _, codes = np.unique(given, return_inverse=True)
    return jnp.asarray(codes.reshape(given.shape), jnp.int32)


@jax.jit
def _by_attribute(codes: jax.Array, budgets: jax.Array) -> Metric:
    wrong = jnp.any(jnp.isnan(budgets), axis=-1)
    if jnp.issubdtype(codes.dtype, jnp.floating):
        missing = jnp.any(jnp.isnan(codes), axis=(-2, -1))
        rank = max(wrong.ndim, missing.ndim)
        wrong = align(wrong, rank) | align(missing, rank)
    return _add_up(codes, budgets[..., None, :], wrong, "min")


@partial(jax.jit, static_argnames="rule")
def _by_value(codes: jax.Array, budgets: list[jax.Array], rule: Rule) -> Metric:
    dtype = jnp.result_type(*budgets)
    batch = jnp.broadcast_shapes(codes.shape[:-2], *(each.shape[:-1] for each in budgets))
    own = jnp.stack([_of_codes(each.astype(dtype), codes[..., a], batch) for a, each in enumerate(budgets)], axis=-1)
    wrong = jnp.any(jnp.stack([broadcast_batch(jnp.any(jnp.isnan(each), axis=-1), batch) for each in budgets]), axis=0)
    return _add_up(codes, own, wrong | jnp.any(jnp.isnan(own), axis=(-2, -1)), rule)


def _of_codes(budgets: jax.Array, codes: jax.Array, batch: tuple[int, ...]) -> jax.Array:
    """The budgets of the values that elements have, ``(*batch, N)``; NaN where a code has none."""
    count = budgets.shape[-1]
    index = broadcast_rows(codes, batch)
    found = take(broadcast_rows(budgets, batch), jnp.clip(index, 0, count - 1))
    return jnp.where((index >= 0) & (index < count), found, jnp.nan)


def _add_up(codes: jax.Array, own: jax.Array, wrong: jax.Array, rule: Rule) -> Metric:
    """Over the attributes in which two elements differ, the sum of what both budgets ``(..., N or 1, A)`` allow."""
    rank = max(codes.ndim, own.ndim)
    size = codes.shape[-2]
    batch = jnp.broadcast_shapes(align(codes, rank).shape[:-2], align(own, rank).shape[:-2])

    def step(total: jax.Array, at: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, None]:
        code, budget = at
        one, other = budget[..., :, None], budget[..., None, :]
        both = one + other if rule == "sum" else jnp.minimum(one, other)
        return total + jnp.where(code[..., :, None] != code[..., None, :], both, 0.0), None

    attributes = jnp.moveaxis(align(codes, rank), -1, 0), jnp.moveaxis(align(own, rank), -1, 0)
    total, _ = jax.lax.scan(step, jnp.zeros((*batch, size, size), own.dtype), attributes)
    return Metric(jnp.where(align(wrong, rank - 2)[..., None, None], jnp.nan, total))
