"""Metrics from the attributes of records: what it costs to change some of them (Kamalaruban et al. 2020, Sections 1 and 5)."""

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
from dpjax.numerics.batching import fits, take

Rule = Literal["sum", "min"]


def weighted_hamming(records: ArrayLike, *, budgets: ArrayLike) -> Metric:
    """Return the metric d(i, j) = sum of the budgets of all attributes in which elements i and j differ.

    Args:
        records: ``(..., N, A)``, the A attributes of every element of the public universe: numbers or, in NumPy, labels of any
        kind.
        budgets: ``(..., A)``, what a change of each attribute may cost: not negative, ``inf`` for one that is not protected.

    >>> weighted_hamming([["m", "yes"], ["m", "no"], ["f", "no"]], budgets=[2.0, 0.5]).budgets.tolist()
    [[0.0, 0.5, 2.5], [0.5, 0.0, 2.0], [2.5, 2.0, 0.0]]
    """
    codes = _codes(records)
    given = budget_array("budgets", budgets)
    if given.ndim < 1 or given.shape[-1] != codes.shape[-1]:
        raise ValueError(f"{codes.shape[-1]} attributes need as many budgets, got shape {given.shape}.")
    fits(codes.shape[:-2], budgets=given.shape[:-1])
    return _add_up(codes, given[..., None, :], "min")


def value_budgets(records: ArrayLike, *, budgets: Sequence[ArrayLike] | np.ndarray | jax.Array, rule: Rule) -> Metric:
    """Return a metric from a budget e for every value of every attribute: a smaller one protects a value more.

    ``rule="sum"``: d(i, j) = sum of e(u) + e(v) over the attributes in which i has u, and j has v != u; an infinite budget leaves
    every change to or from its value unprotected. ``rule="min"``: the smaller of e(u) and e(v) instead, for attributes of two
    values only. (With three it is no metric: of budgets (1, 10, 10) the last two values are 10 apart, and 2 by way of the first.
    Instance-specific privacy has that minimum for any number of values. What keeps to it keeps to its shortest paths, which are a
    metric: ``from_budgets(numpy.minimum.outer(e, e) * (1 - numpy.eye(len(e)))).closure()``.) The larger of two budgets would be a
    metric for any number of values, and protect nothing: a value of a small budget could be told from all those of larger ones.

    Args:
        records: int ``(..., N, A)``, the codes 0, 1, ... of the values of every element of the public universe.
        budgets: A arrays of shape ``(..., V_a)``, a budget for every value of an attribute; or one array ``(A, V)``. Budgets go
            with values, not with persons.
        rule: static.

    References:
        Kamalaruban et al. (2020): Example 1 has the minimum (equation 3), a metric for its binary attributes, and so has Definition
        11 for values of any number; Section 5 the sum.

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
    codes, dtype = checks.codes(given), jnp.result_type(*each)
    own = [_budgets_of(codes[..., a], value.astype(dtype)) for a, value in enumerate(each)]
    return _add_up(codes, jnp.stack(jnp.broadcast_arrays(*own), axis=-1), rule)


def from_dates(dates: ArrayLike, *, epsilon: ArrayLike) -> Metric:
    """Return the metric d(i, j) = epsilon * days between the dates of elements i and j.

    Args:
        dates: ``(..., N)``, of the public universe: NumPy ``datetime64`` within 290,000 years of 1970, Python dates, or numbers of
            days (then JAX arrays too).
        epsilon: positive, the budget per day (epsilon / T protects a period of T days by epsilon); broadcasts against the batch.

    >>> import datetime
    >>> from_dates([datetime.date(2024, 2, 28), datetime.date(2024, 3, 1)], epsilon=0.5).budgets.tolist()
    [[0.0, 1.0], [1.0, 0.0]]
    """
    days = dates if isinstance(dates, jax.Array) else _days(np.asarray(dates))
    checks.finite("dates", days, jnp.result_type(float))
    return from_points(days[..., None], epsilon=epsilon, distance="manhattan")


def _days(dates: np.ndarray) -> np.ndarray:
    """Days from the first date, float64."""
    if dates.ndim < 1 or dates.shape[-1] == 0:
        raise ValueError(f"dates must be of shape (..., N) with N >= 1, got {dates.shape}.")
    if dates.dtype.kind in "biuf":
        return from_smallest(dates, -1)
    try:
        years = dates.astype("datetime64[Y]")
    except (TypeError, ValueError):
        raise TypeError(f"dates must be dates or numbers of days, got dtype {dates.dtype}.") from None
    if np.any(np.isnat(years)):
        raise ValueError("dates must not be NaT.")
    if np.any(abs(years.astype(np.int64)) > 290_000):  # 64 bits of microseconds hold little more
        raise ValueError("dates must be within 290,000 years of 1970.")
    return from_smallest(dates.astype("datetime64[us]").view(np.int64), -1) / (86400 * 10**6)


def product(*metrics: Metric) -> Metric:
    """Return the metric of records that have one element of each universe: d((i, a), (j, b)) = d_1(i, j) + d_2(a, b).

    What is released from each attribute on its own, d_k-privately, is d-private all together (Kamalaruban et al. 2020, Appendix C).
    The last universe varies fastest, as in ``itertools.product``. The metrics have no null record (add it to the product), and
    their batches broadcast.

    >>> from dpjax.metric_privacy.metrics import uniform
    >>> from dpjax.metric_privacy.points import from_points
    >>> product(from_points([[0.0], [3.0]], epsilon=0.5), uniform(2, epsilon=1.0)).budgets[0].tolist()
    [0.0, 1.0, 1.5, 2.5]
    """
    if not metrics:
        raise ValueError("product needs at least one metric.")
    for metric in metrics:
        checks.instance("product", metric, Metric, "of from_budgets, from_points, ...")
        if metric.neighbors == "add_remove":
            raise ValueError("take the product without the null record, and add it afterwards: product(...).with_absence(...).")
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
def _budgets_of(codes: jax.Array, budgets: jax.Array) -> jax.Array:
    """The budgets of the values that elements have, ``(..., N)``; NaN where a code has none, and for all where one is wrong."""
    found = take(budgets, jnp.clip(codes, 0, budgets.shape[-1] - 1))
    wrong = jnp.any(jnp.isnan(budgets), axis=-1, keepdims=True) | (codes < 0) | (codes >= budgets.shape[-1])
    return jnp.where(wrong, jnp.nan, found)


@partial(jax.jit, static_argnames="rule")
def _add_up(codes: jax.Array, own: jax.Array, rule: Rule) -> Metric:
    """Over the attributes in which two elements differ, the sum of what both budgets ``(..., N or 1, A)`` allow."""
    batch = jnp.broadcast_shapes(codes.shape[:-2], own.shape[:-2])

    def step(total: jax.Array, at: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, None]:
        code, budget = at
        one, other = budget[..., :, None], budget[..., None, :]
        both = one + other if rule == "sum" else jnp.minimum(one, other)
        return total + jnp.where(code[..., :, None] != code[..., None, :], both, 0.0), None

    start = jnp.zeros((*batch, codes.shape[-2], codes.shape[-2]), own.dtype)
    total, _ = jax.lax.scan(step, start, (jnp.moveaxis(codes, -1, 0), jnp.moveaxis(own, -1, 0)))
    wrong = jnp.any(jnp.isnan(codes), axis=(-2, -1)) | jnp.any(jnp.isnan(own), axis=(-2, -1))
    return Metric(jnp.where(wrong[..., None, None], jnp.nan, total))
