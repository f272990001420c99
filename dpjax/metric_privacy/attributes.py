"""Metrics from the attributes of records, with budgets for changes of attributes.

See Kamalaruban et al. (2020), Sections 1 and 5.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial, reduce
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from dpjax import checks
from dpjax.metric_privacy.budgets import budget_array
from dpjax.metric_privacy.metrics import Metric
from dpjax.metric_privacy.points import from_points, from_smallest
from dpjax.numerics.arrays import fits, take

Rule = Literal["sum", "min"]


def weighted_hamming(records: ArrayLike, *, budgets: ArrayLike) -> Metric:
    """Return the metric d(i, j) = sum of the budgets of the attributes in which i and j differ.

    Args:
        records: ``(..., N, A)``, the A attributes of every element of the public universe: numbers
            or, in NumPy, labels of any kind.
        budgets: ``(..., A)``, the budget of a change of each attribute: nonnegative, ``inf`` for an
            unprotected one.

    >>> weighted_hamming(
    ...     [["m", "yes"], ["m", "no"], ["f", "no"]], budgets=[2.0, 0.5]
    ... ).budgets.tolist()
    [[0.0, 0.5, 2.5], [0.5, 0.0, 2.0], [2.5, 2.0, 0.0]]
    """
    codes = _codes(records)
    array = budget_array("budgets", budgets)
    if array.ndim < 1 or array.shape[-1] != codes.shape[-1]:
        raise ValueError(
            f"budgets must have one element for each of the {codes.shape[-1]} attributes on the "
            f"last axis, got shape {array.shape}."
        )
    fits(codes.shape[:-2], budgets=array.shape[:-1])
    return _add_up(codes, array[..., None, :], "min")


def value_budgets(
    records: ArrayLike, *, budgets: Sequence[ArrayLike] | np.ndarray | jax.Array, rule: Rule
) -> Metric:
    """Return a metric from a budget e for every value of an attribute; smaller ones protect more.

    ``rule="sum"``: d(i, j) = sum of e(u) + e(v) over the attributes in which i has u, and j has v
    != u; with an infinite budget, every change to or from its value is unprotected. ``rule="min"``:
    the smaller of e(u) and e(v) instead, for attributes of two values only. (With three it is not a
    metric: of budgets (1, 10, 10) the last two values are 10 apart, and 2 by way of the first.
    Instance-specific privacy has that minimum for any number of values. A mechanism that satisfies
    it also satisfies its shortest paths, which are a metric: ``from_budgets(numpy.minimum.outer(e,
    e) * (1 - numpy.eye(len(e)))).closure()``.) The larger of two budgets would be a metric for any
    number of values, but protect nothing: a value of a small budget could be distinguished from all
    those of larger ones.

    Args:
        records: int ``(..., N, A)``, the codes 0, 1, ... of the values of every element of the
            public universe.
        budgets: A arrays of shape ``(..., V_a)``, a budget for every value of an attribute; or one
            array ``(A, V)``. Budgets belong to values, not to persons.
        rule: static, ``"sum"`` or ``"min"``.

    References:
        Kamalaruban et al. (2020): Example 1 has the minimum (equation 3), a metric for its binary
        attributes, and so has Definition 11 for any number of values; Section 5 has the sum.

    >>> value_budgets([[0], [1], [2]], budgets=[[1.0, 2.0, 4.0]], rule="sum").budgets.tolist()
    [[0.0, 3.0, 5.0], [3.0, 0.0, 6.0], [5.0, 6.0, 0.0]]
    """
    checks.one_of("rule", rule, ("sum", "min"))
    array = records if isinstance(records, jax.Array) else np.asarray(records)
    if array.dtype.kind not in "iu":
        raise TypeError(f"records must be integer codes of values, got dtype {array.dtype}.")
    _check_records(array.shape)
    each = [budget_array("budgets", value) for value in budgets]
    if len(each) != array.shape[-1] or any(value.ndim < 1 for value in each):
        raise ValueError(
            f"budgets must have one array for each of the {array.shape[-1]} attributes, got "
            f"{len(each)}."
        )
    for a, value in enumerate(each):
        if rule == "min" and value.shape[-1] != 2:
            raise ValueError(
                f"rule='min' needs attributes of two values, got {value.shape[-1]} for attribute "
                f"{a}: with budgets (1, 10, 10) the last two are 10 apart, but 2 by way of the "
                "first. Use rule='sum' or weighted_hamming."
            )
        if isinstance(array, np.ndarray) and not np.all(
            (array[..., a] >= 0) & (array[..., a] < value.shape[-1])
        ):
            raise ValueError(
                f"the codes of attribute {a} must be 0 to {value.shape[-1] - 1}, which have a "
                "budget."
            )
    codes, dtype = checks.codes(array), jnp.result_type(*each)
    of_elements = [_budgets_of(codes[..., a], value.astype(dtype)) for a, value in enumerate(each)]
    return _add_up(codes, jnp.stack(jnp.broadcast_arrays(*of_elements), axis=-1), rule)


def from_dates(dates: ArrayLike, *, epsilon: ArrayLike) -> Metric:
    """Return the metric d(i, j) = epsilon * days between the dates of elements i and j.

    Args:
        dates: ``(..., N)``, of the public universe: NumPy ``datetime64`` within 290,000 years of
            1970, Python dates, or numbers of days (which may be JAX arrays).
        epsilon: positive, the budget per day (epsilon / T protects a period of T days by epsilon);
            broadcasts against the batch.

    >>> import datetime
    >>> from_dates(
    ...     [datetime.date(2024, 2, 28), datetime.date(2024, 3, 1)], epsilon=0.5
    ... ).budgets.tolist()
    [[0.0, 1.0], [1.0, 0.0]]
    """
    days = dates if isinstance(dates, jax.Array) else _days(np.asarray(dates))
    checks.finite("dates", days, jnp.result_type(float))
    return from_points(days[..., None], epsilon=epsilon, distance="manhattan")


def _days(dates: np.ndarray) -> np.ndarray:
    """Return the number of days from the first date, float64."""
    if dates.ndim < 1 or dates.shape[-1] == 0:
        raise ValueError(f"dates must be of shape (..., N) with N >= 1, got {dates.shape}.")
    if dates.dtype.kind in "biuf":
        return from_smallest(dates, -1)
    try:
        years = dates.astype("datetime64[Y]")
    except (TypeError, ValueError):
        raise TypeError(
            f"dates must be dates or numbers of days, got dtype {dates.dtype}."
        ) from None
    if np.any(np.isnat(years)):
        raise ValueError("dates must not be NaT.")
    # The range of 64-bit microseconds is slightly larger.
    if np.any(abs(years.astype(np.int64)) > 290_000):
        raise ValueError("dates must be within 290,000 years of 1970.")
    return from_smallest(dates.astype("datetime64[us]").view(np.int64), -1) / (86400 * 10**6)


def product(*metrics: Metric) -> Metric:
    """Return the metric of records that have one element of each universe.

    It is d((i, a), (j, b)) = d_1(i, j) + d_2(a, b). Separate d_k-private releases of each attribute
    are together d-private (Kamalaruban et al. 2020, Appendix C). The last universe varies fastest,
    as in ``itertools.product``. The metrics must not have a null record (add it to the product),
    and their batches broadcast.

    >>> from dpjax.metric_privacy.metrics import uniform
    >>> from dpjax.metric_privacy.points import from_points
    >>> both = product(from_points([[0.0], [3.0]], epsilon=0.5), uniform(2, epsilon=1.0))
    >>> both.budgets[0].tolist()
    [0.0, 1.0, 1.5, 2.5]
    """
    if not metrics:
        raise ValueError("product needs at least one metric.")
    for metric in metrics:
        checks.instance("product", metric, Metric, "of from_budgets, from_points, ...")
        if metric.neighbors == "add_remove":
            raise ValueError(
                "product takes metrics without the null record: add it afterwards by "
                "product(...).with_absence(...)."
            )
    jnp.broadcast_shapes(*(metric.batch_shape for metric in metrics))
    return reduce(_product, metrics)


@jax.jit
def _product(first: Metric, second: Metric) -> Metric:
    dtype = jnp.promote_types(first.dtype, second.dtype)
    one, other = first.astype(dtype).dense().budgets, second.astype(dtype).dense().budgets
    both = one[..., :, None, :, None] + other[..., None, :, None, :]
    size = first.size * second.size
    return Metric(both.reshape(*both.shape[:-4], size, size))


def _check_records(shape: tuple[int, ...]) -> None:
    if len(shape) < 2 or 0 in shape[-2:]:
        raise ValueError(f"records must be of shape (..., N, A) with N, A >= 1, got {shape}.")


def _codes(records: ArrayLike) -> jax.Array:
    """Return numbers that differ where the records do; NaN where a JAX record is NaN."""
    if isinstance(records, jax.Array):
        if records.dtype.kind not in "biuf":
            raise TypeError(f"JAX records must be integers or floats, got dtype {records.dtype}.")
        _check_records(records.shape)
        return records
    array = np.asarray(records)
    _check_records(array.shape)
    if array.dtype.kind in "fc" and np.any(np.isnan(array)):
        raise ValueError("records must not be NaN.")
    _, codes = np.unique(array, return_inverse=True)
    return jnp.asarray(codes.reshape(array.shape), jnp.int32)


@jax.jit
def _budgets_of(codes: jax.Array, budgets: jax.Array) -> jax.Array:
    """Return the budgets of the values of elements, ``(..., N)``.

    They are NaN where a code has no budget, and for all elements if a budget is invalid.
    """
    found = take(budgets, jnp.clip(codes, 0, budgets.shape[-1] - 1))
    wrong = (
        jnp.any(jnp.isnan(budgets), axis=-1, keepdims=True)
        | (codes < 0)
        | (codes >= budgets.shape[-1])
    )
    return jnp.where(wrong, jnp.nan, found)


@partial(jax.jit, static_argnames="rule")
def _add_up(codes: jax.Array, budgets: jax.Array, rule: Rule) -> Metric:
    """Return the metric of sums, over attributes in which elements differ, of budgets by ``rule``.

    ``budgets`` are ``(..., N or 1, A)``.
    """
    batch = jnp.broadcast_shapes(codes.shape[:-2], budgets.shape[:-2])

    def step(total: jax.Array, at: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, None]:
        code, budget = at
        one, other = budget[..., :, None], budget[..., None, :]
        both = one + other if rule == "sum" else jnp.minimum(one, other)
        return total + jnp.where(code[..., :, None] != code[..., None, :], both, 0.0), None

    start = jnp.zeros((*batch, codes.shape[-2], codes.shape[-2]), budgets.dtype)
    total, _ = jax.lax.scan(step, start, (jnp.moveaxis(codes, -1, 0), jnp.moveaxis(budgets, -1, 0)))
    wrong = jnp.any(jnp.isnan(codes), axis=(-2, -1)) | jnp.any(jnp.isnan(budgets), axis=(-2, -1))
    return Metric(jnp.where(wrong[..., None, None], jnp.nan, total))
