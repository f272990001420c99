"""Exact releases with metric privacy: answers of linear queries with discrete Laplace noise.

Queries are rounded to multiples of a public resolution, so that answers of integer counts are
integers. One record that moves from element i to j changes answer k by m_ki - m_kj, and noise of
rates lam_k loses sum_k lam_k |m_ki - m_kj|, a rational number, which is at most d(i, j) for every
pair: rates are divided by the largest load, as Fractions. Budgets are the exact values of the
metric's floats. The distributions are those that ``dpjax.metric_privacy`` simulates, except for the
grid.
"""

from __future__ import annotations

from fractions import Fraction
from math import ceil
from numbers import Integral
from typing import Any

import numpy as np
from jax.typing import ArrayLike

from dpjax import checks
from dpjax.accounting.ledger import Budget, charge
from dpjax.checks import Resolution
from dpjax.metric_privacy.guarantees import MetricGuarantee
from dpjax.metric_privacy.metrics import Metric
from dpjax.metric_privacy.scales import OptimalScales, Strategy, noise_scales
from dpjax.release.grid import resolution_of
from dpjax.release.noise import LARGEST, DiscreteLaplace
from dpjax.release.records import as_array
from dpjax.release.result import Release


def metric_laplace(
    x: Any,
    queries: ArrayLike,
    metric: Metric,
    *,
    resolution: Resolution,
    strategy: Strategy = "optimal",
    scales: ArrayLike | OptimalScales | None = None,
    draws: int = 1,
    budget: Budget | None = None,
) -> Release:
    """Release noisy answers of linear queries, with discrete Laplace noise on a public grid.

    Args:
        x: histograms ``(..., N)`` of integers, concrete (not traced); a negative count is 0.
        queries: ``(K, N)``, public; they are rounded to multiples of the resolution, and the
            rounded queries are answered.
        metric: one metric on the N elements, concrete.
        resolution: public, well below the scales of the noise; 1 for counts.
        strategy: as for :func:`dpjax.metric_privacy.metric_laplace`.
        scales: the scales of the noise, ``(K,)``, or the result of
            :func:`dpjax.metric_privacy.optimal_scales`.
        draws: the number of draws of each answer; each costs the metric.
        budget: as for :meth:`dpjax.release.Statistic.release`. It is charged the differential
            privacy that follows from the metric; if some pair of elements has no budget, none
            follows, and the release is refused.

    Returns:
        A :class:`Release` with values ``(draws, ..., K)`` whose guarantee is a
        :class:`dpjax.metric_privacy.MetricGuarantee`.

    Raises:
        TypeError: if the counts are not integers, or this is traced by JAX.
        ValueError: if a query distinguishes elements of budget 0, if the scales overspend, or if
            the noise is below 2^-20 or above 2^40 times the resolution.

    Privacy:
        d-private under the relation of the metric, exactly: the load of the rates is at most 1 in
        rational arithmetic, and it is 1 for the rates of a strategy. A query that distinguishes no
        protected pair is answered without noise, as n is then public. Public: all parameters and
        the shape of ``x``.

    References:
        Kamalaruban et al. (2020), Theorem 1, with the noise of Ghosh, Roughgarden and Sundararajan
        (2009).

    >>> from dpjax.metric_privacy import from_points
    >>> metric = from_points([[0.0], [1.0], [3.0]], epsilon=8.0)
    >>> found = metric_laplace([400, 250, 350], [[0, 0, 1], [1, 1, 1]], metric, resolution=1)
    >>> abs(found.values[0, 0] - 350) < 20, found.values[0, 1]
    (np.True_, np.float64(1000.0))
    """
    number, step = checks.static_integer("draws", draws, 1, 2**40), resolution_of(resolution, ())
    checks.instance("metric", metric, Metric, "from_points, from_budgets, ...")
    guarantee = number * MetricGuarantee(metric)  # raises for a batch, a trace, NaN
    private = metric.neighbors == "add_remove"
    elements = metric.size - private
    rows = checks.host_floats("queries", queries)
    if rows.ndim != 2 or rows.shape[1] != elements or not rows.size or not np.isfinite(rows).all():
        raise ValueError(
            f"queries must be finite, of shape (K, {elements}), got shape {rows.shape}."
        )
    whole = np.array([[round(Fraction(str(v)) / step) for v in row] for row in rows], object)
    answers = np.clip(_counts(x, elements) @ whole.T, -LARGEST, LARGEST).astype(np.int64)
    if not private:
        whole -= whole[:, :1]  # n is public: a constant changes nothing
    moves = np.pad(whole, ((0, 0), (0, private)))  # null records contribute 0
    budgets = np.asarray(metric.dense().budgets, np.float64)
    known = scales.scales if isinstance(scales, OptimalScales) else scales
    if known is None:
        rounded = np.array([[float(v * step) for v in row] for row in whole])
        known = noise_scales(rounded, metric, strategy=strategy)
    rates = exact_rates(np.asarray(known), moves, budgets, step)
    load = largest_load(rates, moves, budgets)
    if scales is not None and load > 1 + Fraction(1, 2**20):
        raise ValueError(
            f"scales overspend the budgets: the largest load is {float(load):g}, and must be at "
            "most 1."
        )
    if load > 1 or scales is None:
        rates = [rate / (load or 1) for rate in rates]
    noisy = {
        k: DiscreteLaplace(answers[..., k], rate, step) for k, rate in enumerate(rates) if rate
    }
    if budget is not None:
        described = {"statistic": "metric_laplace", "queries": len(rows), "resolution": step}
        implied = guarantee.guarantee(neighbors=metric.neighbors)
        charge(budget, implied, described | {"elements": metric.size, "draws": number})
    drawn = np.broadcast_to(answers, (number, *answers.shape)).copy()
    for k, answer in noisy.items():
        drawn[..., k] = answer.positions(number)
    return Release(DiscreteLaplace(drawn, Fraction(1), step).value, guarantee)


def exact_rates(
    scales: np.ndarray, moves: np.ndarray, budgets: np.ndarray, step: Fraction
) -> list[Fraction]:
    """Return the rates of the noise of integer queries ``(K, N)``, 0 for none.

    Their load is at most 1, exactly.
    """
    if scales.shape != (len(moves),) or not np.all((scales >= 0) & (scales < np.inf)):
        raise ValueError(
            f"scales must be {len(moves)} nonnegative numbers, one for each query, got {scales}; "
            "they are infinite for queries that distinguish elements of budget 0."
        )
    # Rounded up, so that sums stay short; what this adds to the load is divided out
    each = [step * 2**100 / Fraction(float(scale)) if scale else Fraction(0) for scale in scales]
    rates = [Fraction(ceil(rate), 2**100) for rate in each]
    if largest_load([Fraction(not rate) for rate in rates], moves, budgets):
        raise ValueError(
            "a scale of 0 needs a query that, rounded to the resolution, distinguishes no "
            "protected pair."
        )
    return rates


def largest_load(rates: list[Fraction], moves: np.ndarray, budgets: np.ndarray) -> Fraction:
    """Return the largest sum of rate abs(move) / budget over all protected pairs, exactly."""
    largest = Fraction(0)
    for i, j in zip(*np.nonzero(np.tril(budgets < np.inf, -1)), strict=True):
        each = zip(rates, moves[:, i] - moves[:, j], strict=True)
        loss = sum((rate * abs(move) for rate, move in each), Fraction(0))
        if loss and budgets[i, j] == 0:
            raise ValueError(
                f"elements {j} and {i} have a budget of 0, but the queries distinguish them."
            )
        if loss:
            largest = max(largest, loss / Fraction(float(budgets[i, j])))
    return largest


def _counts(x: Any, elements: int) -> np.ndarray:
    """Return histograms as Python integers of at least 0, so that no sum overflows."""
    array = as_array(x)
    if not all(isinstance(value, Integral) for value in array.flat):
        raise TypeError("x must hold integers, the counts of a histogram.")
    if array.shape[-1] != elements:
        raise ValueError(
            f"x must count {elements} elements on its last axis, got shape {array.shape}."
        )
    return np.maximum(array.astype(object), 0)
