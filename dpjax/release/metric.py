"""Exact releases with metric privacy: answers of linear queries, and selections.

The answers are noisy, and the selections have integer scores. Queries are rounded to multiples of a
public resolution, so that answers of integer counts are integers. One record that moves from
element i to j changes answer k by m_ki - m_kj, and

* discrete Laplace noise of rates lam_k (``integer_noise.py``) loses sum_k lam_k |m_ki - m_kj|, a
  rational number, which is at most d(i, j) for every pair: rates are divided by the largest load,
  as Fractions;
* a choice with P(r) proportional to e^(lam score(r)) loses lam (max_r g_r - min_r g_r), where g_r
  is what the move adds to the score of r (``metric_privacy/_linear_selection.py`` has the
  argument): lam is the least quotient, as a Fraction.

Budgets are the exact values of the metric's floats. The distributions are those that
``dpjax.metric_privacy`` simulates, except for the grid. :func:`dpjax.release.median` states what
the guarantee does not cover.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
from jax.typing import ArrayLike

from dpjax import checks
from dpjax.accounting.ledger import Budget, charge
from dpjax.checks import Resolution
from dpjax.metric_privacy import small_databases
from dpjax.metric_privacy.guarantees import MetricGuarantee, times
from dpjax.metric_privacy.metrics import Metric
from dpjax.metric_privacy.scales import OptimalScales, Strategy, noise_scales
from dpjax.release.api import choice_between
from dpjax.release.grid import values_of
from dpjax.release.integer_noise import check_rates, draw_discrete_laplace
from dpjax.release.records import as_integers, refuse_traces
from dpjax.release.result import Release, release_of

_MOST = 2**62
_MOST_SCORES = 2**53


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
        x: histograms ``(..., N)`` of integers, concrete (not traced); a negative count is read as
            0.
        queries: ``(K, N)``, public; they are rounded to multiples of the resolution, and the
            rounded queries are answered.
        metric: one metric on the N elements, concrete.
        resolution: public, well below the scales of the noise; 1 for counts.
        strategy: as for :func:`dpjax.metric_privacy.metric_laplace`.
        scales: the scales of the noise, ``(K,)``, or the result of
            :func:`dpjax.metric_privacy.optimal_scales`.
        draws: the number of draws of each answer; each costs the metric.
        budget: as for :func:`dpjax.release.median`. It is charged the differential privacy that
            follows from the metric; if some pair of elements has no budget, none follows, and the
            release is refused.

    Returns:
        A :class:`Release` with values ``(draws, ..., K)`` whose guarantee is a
        :class:`dpjax.metric_privacy.MetricGuarantee`.

    Raises:
        TypeError: if the counts are not integers.
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
    number = checks.static_integer("draws", draws, 1)
    step, whole, integers, budgets, counts = _read(x, queries, metric, resolution)
    given_scales = scales.scales if isinstance(scales, OptimalScales) else scales
    # The scales of the rounded queries, less a constant for each query if n is public
    if given_scales is None:
        near = integers - integers[:, :1] if metric.neighbors == "swap" else integers
        scaled = np.array([[float(v * step) for v in row] for row in near])
        rates = exact_rates(
            np.asarray(noise_scales(scaled, metric, strategy=strategy)),
            whole,
            budgets,
            step,
            most=True,
        )
    else:
        rates = exact_rates(np.asarray(given_scales), whole, budgets, step, most=False)
    answers = counts @ integers.T
    noisy = [k for k, rate in enumerate(rates) if rate is not None]
    rows = math.prod(answers.shape[:-1])
    noisy_answers = (
        np.broadcast_to(answers, (number, *answers.shape)).reshape(number, rows, len(rates)).copy()
    )
    check_rates([rate for rate in rates if rate is not None])
    guarantee = number * MetricGuarantee(metric)
    description = {
        "statistic": "metric_laplace",
        "queries": len(rates),
        "elements": metric.size,
        "resolution": step,
    }
    _charge(budget, guarantee, description, number)
    if noisy:
        noisy_answers[..., noisy] += draw_discrete_laplace(
            [rate for rate in rates if rate is not None], rows, number
        )
    multiples = (
        np.clip(noisy_answers, -_MOST, _MOST).astype(np.int64).reshape(number, *answers.shape)
    )
    return Release(values_of(multiples, step), multiples, step, guarantee)


def metric_choice(
    x: Any,
    metric: Metric,
    *,
    weights: ArrayLike,
    resolution: Resolution,
    public_n: int | None = None,
    draws: int = 1,
    budget: Budget | None = None,
) -> Release:
    """Release one of R candidates by scores linear in a histogram, with the exponential mechanism.

        P(r) proportional to e^(lam <w_r, x>),
        lam the least of d(i, j) / (max_r g_r - min_r g_r),   g_r = w_rj - w_ri

    with weights in multiples of the resolution, and lam at most 32.

    Args:
        x: histograms, as for :func:`metric_laplace`.
        metric: one metric on the N elements, concrete.
        weights: ``(R, N)``, public, rounded to multiples of the resolution.
        resolution: public; n times the largest difference between two candidates is at most 2^53
            multiples of it.
        public_n: for a metric with the null record, a public upper bound on n. By default n is the
            sum of the counts.
        draws: the number of draws from each histogram; each costs the metric.
        budget: as for :func:`metric_laplace`.

    Returns:
        A :class:`Release` whose values are indices of candidates, 0, ..., R - 1, of shape
        ``(draws, ...)``.

    Raises:
        ValueError: if no protected pair changes the differences of scores, or one of budget 0 does.

    Privacy:
        d-private and of range d, exactly. Scores stay within a public range: if n is private, they
        are clamped to what ``public_n`` records can reach, and the range of the g_r then
        includes 0. Public: all parameters and the shape of ``x``, and n under swap.

    References:
        Kamalaruban et al. (2020), Theorem 3; :func:`dpjax.metric_privacy.linear_selection`, which
        simulates it.

    >>> from dpjax.metric_privacy import from_budgets
    >>> metric = from_budgets([[0.0, 8.0], [8.0, 0.0]])
    >>> weights = [[1, 0], [0, 1]]  # to choose the more frequent element
    >>> metric_choice([30, 10], metric, weights=weights, resolution=1).multiples.tolist()
    [0]
    """
    step, whole, integers, budgets, counts = _read(x, weights, metric, resolution)
    n, may_exceed = _public_total(counts, metric, public_n), public_n is not None
    # Weights less the largest weight of each element.
    whole, integers = (values - np.max(values, axis=0) for values in (whole, integers))

    def change(i: int, j: int) -> int:
        g = [*(whole[:, j] - whole[:, i]), *([0] if may_exceed else [])]
        return int(max(g) - min(g))

    description = {
        "statistic": "metric_choice",
        "candidates": len(whole),
        "elements": metric.size,
        "resolution": step,
    }
    return _choice(
        counts @ integers.T,
        least_ratio(change, budgets),
        n * int(np.min(whole)),
        metric,
        draws,
        budget,
        description,
    )


def small_db(
    x: Any,
    queries: ArrayLike,
    metric: Metric,
    *,
    size: int,
    resolution: Resolution,
    public_n: int | None = None,
    draws: int = 1,
    budget: Budget | None = None,
) -> Release:
    """Release a small database of ``size`` records with the exponential mechanism.

    It is chosen for its answers to linear queries.

        P(y) proportional to e^(-lam max_q |m q(x) - n q(y)|),
        lam the least of d(i, j) / (2 m max_q |q_i - q_j|)

    Args:
        x: histograms, as for :func:`metric_laplace`.
        queries: ``(K, N)``, public, rounded to multiples of the resolution.
        metric: one metric on the N elements, concrete.
        size: m, the number of records of a small database.
        resolution: public; n m / gcd(n, m) times the spread of the queries is at most 2^53
            multiples of it.
        public_n: n, or for a metric with the null record a public upper bound on n, filled up with
            null records.
        draws: the number of draws from each histogram; each costs the metric.
        budget: as for :func:`metric_laplace`.

    Returns:
        A :class:`Release` whose values are rows of :func:`dpjax.metric_privacy.small_databases`;
        ``n/m`` times the answers there are the answers to all queries.

    Raises:
        ValueError: if there are too many databases or multiples.

    Privacy:
        d-private and of range d, exactly. Public: all parameters, the shape of ``x``, and n under
        swap.

    References:
        Kamalaruban et al. (2020), Algorithm 1 and Theorem 5, corrected as in
        :func:`dpjax.metric_privacy.small_db`.

    >>> from dpjax.metric_privacy import from_budgets, small_databases
    >>> metric = from_budgets([[0.0, 40.0], [40.0, 0.0]])
    >>> found = small_db([10, 30], [[0, 1]], metric, size=4, resolution=1)
    >>> small_databases(2, 4)[found.multiples].tolist()
    [[1, 3]]
    """
    m = checks.static_integer("size", size, 1)
    step, whole, integers, budgets, counts = _read(x, queries, metric, resolution)
    n = _public_total(counts, metric, public_n)
    unit = math.gcd(n, m) or 1
    databases = small_databases(metric.size, m).astype(object)
    found = counts @ integers.T  # null records contribute 0
    synthetic = databases @ whole.T  # (R, K)
    misses = np.abs(found[..., None, :] * (m // unit) - synthetic * (n // unit))
    scores = -np.max(misses, axis=-1)
    worst = max(int(np.max(row) - np.min(row)) for row in whole) * n * (m // unit)
    rate = least_ratio(lambda i, j: 2 * (m // unit) * max(abs(whole[:, i] - whole[:, j])), budgets)
    description = {
        "statistic": "small_db",
        "queries": len(whole),
        "elements": metric.size,
        "resolution": step,
        "size": m,
    }
    return _choice(scores, rate, -worst, metric, draws, budget, description)


def exact_rates(
    scales: np.ndarray, whole: np.ndarray, budgets: np.ndarray, step: Fraction, *, most: bool
) -> list[Fraction | None]:
    """Return noise rates for integer queries ``(K, N)`` with a load of at most 1, exactly.

    None means no noise. With ``most`` the rates use up the budgets: the load is 1.
    """
    if scales.shape != (whole.shape[0],) or not np.all(scales >= 0):
        raise ValueError(
            f"scales must be {whole.shape[0]} nonnegative numbers, one for each query, got "
            f"{scales}."
        )
    if np.any(np.isinf(scales)):
        raise ValueError(
            "queries must not distinguish elements of budget 0: remove the query, or use "
            "fit_queries."
        )
    rates = [None if c == 0 else _rounded_down(step / Fraction(float(c))) for c in scales]
    silent = [k for k, rate in enumerate(rates) if rate is None]
    if (
        silent
        and _largest(lambda i, j: sum(abs(whole[k, i] - whole[k, j]) for k in silent), budgets) > 0
    ):
        raise ValueError(
            "a scale of 0 needs a query that, rounded to the resolution, distinguishes no "
            "protected pair."
        )
    noisy = [(k, rate) for k, rate in enumerate(rates) if rate is not None]
    load = _largest(
        lambda i, j: sum(rate * abs(whole[k, i] - whole[k, j]) for k, rate in noisy), budgets
    )
    if not most and load > 1 + Fraction(1, 2**20):
        raise ValueError(
            f"scales overspend the budgets: the largest load is {float(load):g}, and must be at "
            "most 1."
        )
    divisor = load if load > 1 or (most and load > 0) else Fraction(1)
    return [None if rate is None else rate / divisor for rate in rates]


def least_ratio(change: Callable[[int, int], int], budgets: np.ndarray) -> Fraction:
    """Return the least d(i, j) / change(i, j), the rate of a choice."""
    largest = _largest(change, budgets)
    if largest == 0:
        raise ValueError(
            "no protected pair changes any difference of scores: the choice needs no mechanism, as "
            "it is public."
        )
    return 1 / largest


def _largest(change: Callable[[int, int], Any], budgets: np.ndarray) -> Fraction:
    """Return the largest change(i, j) / d(i, j) over all protected pairs, exactly."""
    largest = Fraction(0)
    for i in range(budgets.shape[-1]):
        for j in np.flatnonzero(budgets[i, :i] < np.inf).tolist():
            moved = Fraction(change(i, j))
            if moved and budgets[i, j] == 0:
                raise ValueError(
                    f"elements {j} and {i} have a budget of 0, but the queries or weights "
                    "distinguish them."
                )
            if moved:
                largest = max(largest, moved / Fraction(float(budgets[i, j])))
    return largest


def _rounded_down(rate: Fraction) -> Fraction:
    """Return the rate, rounded down to about 53 bits."""
    bits = 53 + rate.denominator.bit_length() - rate.numerator.bit_length()
    unit = Fraction(2) ** bits
    return int(rate * unit) / unit


def _read(
    x: Any, queries: ArrayLike, metric: Metric, resolution: Resolution
) -> tuple[Fraction, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return the resolution, the queries in multiples of it, the budgets, and the counts.

    The budgets are float64. The queries ``(K, N)`` come twice, with the null record and without.
    Multiples and counts ``(..., N)`` are Python integers, so that no sum overflows.
    """
    refuse_traces(x)
    step = checks.resolution(resolution, (), 1)
    checks.instance("metric", metric, Metric, "from_points, from_budgets, ...")
    MetricGuarantee(metric)  # raises for a batch, a trace, NaN
    rows = checks.host_floats("queries", queries)
    elements = metric.size - (metric.neighbors == "add_remove")
    if (
        rows.ndim != 2
        or rows.shape[-1] != elements
        or rows.shape[0] == 0
        or not np.all(np.isfinite(rows))
    ):
        raise ValueError(
            f"queries or weights must be finite, of shape (K, {elements}), got shape {rows.shape}."
        )
    integers = np.array([[round(Fraction(str(v)) / step) for v in row] for row in rows], object)
    null = np.zeros((rows.shape[0], metric.size - elements), object)
    counts = as_integers("counts", x)
    if counts.ndim == 0 or counts.shape[-1] != elements:
        raise ValueError(
            f"x must count {elements} elements on its last axis, got shape {counts.shape}."
        )
    budgets = np.asarray(metric.dense().budgets, np.float64)
    return (
        step,
        np.concatenate([integers, null], axis=-1),
        integers,
        budgets,
        np.maximum(counts.astype(object), 0),
    )


def _public_total(counts: np.ndarray, metric: Metric, total: int | None) -> int:
    if total is not None:
        return checks.static_integer("public_n", total, 1)
    if metric.neighbors == "add_remove":
        raise ValueError(
            "n is private under add_remove neighbors: give public_n=, a public total or an upper "
            "bound on n."
        )
    sums = {int(n) for n in np.ravel(np.sum(counts, axis=-1))}
    if len(sums) > 1:
        raise ValueError(
            f"all histograms of x must have the same n, got {sorted(sums)}: release them one by "
            "one."
        )
    return sums.pop() if sums else 0


def _choice(
    scores: np.ndarray,
    rate: Fraction,
    least: int,
    metric: Metric,
    draws: int,
    budget: Budget | None,
    asked: dict[str, Any],
) -> Release:
    """Choose with P(r) proportional to e^(min(rate, 32) score), for scores from ``least`` to 0."""
    if -least > _MOST_SCORES:
        raise ValueError(
            f"scores have {1 - least} multiples of the resolution, more than 2^53: use a coarser "
            "resolution."
        )
    number = checks.static_integer("draws", draws, 1)
    found = choice_between(scores, 2 * min(rate, Fraction(32)), 1, least, 0, "exponential")
    together = times(metric, number)  # no draw depends on another one, so that ranges add up
    guarantee = MetricGuarantee(together, ranges=together)
    _charge(budget, guarantee, asked, number)
    return release_of(
        found.positions(number).reshape(number, *found.batch_shape), found.grid, guarantee
    )


def _charge(
    budget: Budget | None, guarantee: MetricGuarantee, asked: dict[str, Any], draws: int
) -> None:
    """Charge a budget, if any, for the differential privacy that the guarantee implies."""
    if budget is not None:
        charge(
            budget,
            guarantee.guarantee(neighbors=guarantee.neighbors),
            {"statistic": asked, "draws": draws},
        )
