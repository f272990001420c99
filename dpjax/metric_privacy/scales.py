"""Noise scales for linear queries under a metric: how much Laplace noise each of K answers needs.

A record that moves from element i to j changes answer k by |Q_ki - Q_kj|. With independent noise
Lap(c_k) that move costs sum_k |Q_ki - Q_kj| / c_k, which must be at most d(i, j) for every pair.
The scales c share the budgets by three strategies of Kamalaruban et al. (2020), Section 4, or by
the exact optimum, which is convex in 1/c. A scale is 0 for a query that needs no noise (it is equal
on all protected pairs) and ``inf`` for one that cannot be answered (it differs on a pair of budget
0); neither uses any budget. For ``queries`` and ``metric`` see :mod:`dpjax.metric_privacy`.

Privacy: Laplace noise of these scales is d-private under the neighbor relation of the metric. All
scales are checked on all pairs, multiplied by their largest load and rounded up, by any strategy.
Nothing here sees data, so the best of several may be taken.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple, get_args

import numpy as np
from jax.typing import ArrayLike

from dpjax import checks
from dpjax.metric_privacy.metric import Metric, finite, numbers

Strategy = Literal["equal_shares", "common", "parameter_selection", "optimal"]
Objective = Literal["squared", "absolute", "geometric_mean"]
STRATEGIES = get_args(Strategy)
POWERS = {"squared": 2, "absolute": 1, "geometric_mean": 0}
_GAP = 1e-7  # of the certificate


class OptimalScales(NamedTuple):
    """Noise scales with a certificate.

    Attributes:
        scales: float64 ``(K,)``.
        gap: no scales within the budgets have an objective smaller than ``scales`` by more than
            this fraction (of their geometric mean, for that objective).

    >>> from dpjax.metric_privacy import from_budgets
    >>> best = optimal_scales([[1.0, 0.0]], from_budgets([[0.0, 0.5], [0.5, 0.0]]))
    >>> round(float(best.scales[0]), 3), best.gap < 1e-7
    (2.0, True)
    """

    scales: np.ndarray
    gap: float


def load(queries: ArrayLike, scales: ArrayLike, metric: Metric) -> float:
    """Return the largest fraction of a pair's budget that the noise uses; at most 1 is private.

        max over i, j of  sum_k |Q_ki - Q_kj| / c_k / d(i, j)

    Pairs on which no query differs do not count, nor do pairs of infinite budget. It is infinite if
    a query with noise of scale 0 differs on a protected pair, or any query on a pair of budget 0
    (Kamalaruban et al. 2020, Theorem 1).

    Args:
        queries: see :mod:`dpjax.metric_privacy`.
        scales: float ``(K,)``, nonnegative; a query of scale ``inf`` is not answered and costs
            nothing.
        metric: see :mod:`dpjax.metric_privacy`.

    Raises:
        ValueError: a scale is negative, or their number is not that of the queries.

    >>> from dpjax.metric_privacy import from_budgets
    >>> metric = from_budgets([[0.0, 1.0, 2.0], [1.0, 0.0, 1.5], [2.0, 1.5, 0.0]])
    >>> queries = [[1.0, 0.0, 0.0], [0.0, 0.5, 0.0]]
    >>> load(queries, [2.0, 1.0], metric)
    1.0
    """
    steep = slopes(*prepared(queries, metric))
    c = numbers("scales", scales)
    if c.shape != steep.shape[:1] or not np.all(c >= 0):
        raise ValueError(
            f"scales must be nonnegative, one for each of the {len(steep)} queries, got {scales}."
        )
    return float(ratio(steep, c[:, None]).sum(axis=0).max(initial=0.0))


def single_query_scale(query: ArrayLike, metric: Metric) -> float:
    """Return the scale of one query ``(N,)`` with the whole budget.

    It is the maximum of |q_i - q_j| / d(i, j), rounded up.

    A constant query has a scale of 0 under swap neighbors, where n is public, but not with the null
    record.

    References:
        Kamalaruban et al. (2020), Section 4.1.

    >>> from dpjax.metric_privacy import from_points
    >>> metric = from_points([[0.0], [1.0], [3.0]], epsilon=2.0)
    >>> round(single_query_scale([0.0, 0.5, 0.2], metric), 4)
    0.25
    """
    return float(noise_scales(finite("query", query, ("N",))[None], metric, strategy="common")[0])


def noise_scales(
    queries: ArrayLike, metric: Metric, *, strategy: Strategy = "optimal"
) -> np.ndarray:
    """Return noise scales, float64 ``(K,)``, by one of four strategies, all within the budgets.

        "equal_shares"         c_k = K max |dQ_k| / d: each has 1/K of the budgets (strategy 1)
        "common"               max ||dQ||_1 / d for all (strategy 2)
        "parameter_selection"  shares by need, in at most K rounds (strategy 3, Algorithm 3)
        "optimal"              the smallest sum of c^2: :func:`optimal_scales`

    A round of strategy 3 gives query k the share 1/c_k = r_k / max load, with r_k = min d / |dQ_k|
    (its share if it were alone) and the largest load sum_l r_l |dQ_l| / d over the pairs on which k
    differs. The next round shares the remaining budgets. The budget of the pair with the largest
    load is used up exactly, and every query that differs on it is done.

    The printed loop waits for shares of exactly 0. In floating point a used-up budget is 1e-17 or
    negative, the loop continues, and the scales exceed the budgets (up to 10 times, on 15 % of
    random instances). Here budgets stop at 0, and queries that differ on a pair whose budget is
    used up to rounding are done.

    References:
        Kamalaruban et al. (2020), Section 4.2.

    >>> from dpjax.metric_privacy import from_budgets
    >>> metric = from_budgets([[0.0, 1.0, 2.0], [1.0, 0.0, 1.5], [2.0, 1.5, 0.0]])
    >>> queries = [[1.0, 0.0, 0.0], [0.2, 0.9, 0.4]]
    >>> [noise_scales(queries, metric, strategy=s).round(4).tolist() for s in STRATEGIES]
    [[2.0, 1.4], [1.7, 1.7], [2.0, 1.4], [1.7884, 1.5879]]
    """
    checks.one_of("strategy", strategy, STRATEGIES)
    if strategy == "optimal":
        return optimal_scales(queries, metric).scales
    alone, live, steep = _live(*prepared(queries, metric))
    if not len(steep):
        return alone
    if strategy == "equal_shares":
        shared = alone[live] * len(steep)
    elif strategy == "common":
        shared = np.full(len(steep), steep.sum(axis=0).max())
    else:
        shared = _in_rounds(steep)
    return _within(alone, live, steep, shared)


def optimal_scales(
    queries: ArrayLike, metric: Metric, *, objective: Objective = "squared"
) -> OptimalScales:
    """Return the best noise scales within the budgets, for one of three objectives.

    They have the smallest sum of c_k^2, of c_k, or of log c_k. An error of query k that counts s
    times as much is that of s times the query.

    They are found by a logarithmic barrier. The certificate is Holder's inequality: for any weights
    l_p of pairs, with y_k = sum_p l_p |dQ_kp| / d_p,

        sum_k c_k^p >= (sum_k y_k^(p/(p+1)))^(p+1) / (sum_p l_p)^p

    Args:
        queries: see :mod:`dpjax.metric_privacy`.
        metric: see :mod:`dpjax.metric_privacy`.
        objective: ``"squared"``: sum c_k^2, half the mean squared error of the answers.
            ``"absolute"``: sum c_k, their mean absolute error. ``"geometric_mean"``: sum log c_k,
            for the largest :func:`improvement_factor`. Scales of 0 and ``inf`` do not count.

    References:
        Kamalaruban et al. (2020), Section 4.2, for the problem; Boyd and Vandenberghe (2004),
        "Convex optimization", Chapter 11, for the barrier.

    >>> from dpjax.metric_privacy import from_budgets
    >>> metric = from_budgets([[0.0, 1.0, 9.0], [1.0, 0.0, 9.0], [9.0, 9.0, 0.0]])
    >>> best = optimal_scales([[1.0, 0.0, 0.0], [0.0, 8.0, 0.0]], metric)
    >>> best.scales.round(2).tolist(), best.gap < 1e-7
    ([5.0, 10.0], True)
    """
    checks.one_of("objective", objective, POWERS)
    return smallest_scales(*prepared(queries, metric), POWERS[objective])


def improvement_factor(queries: ArrayLike, scales: ArrayLike, metric: Metric) -> float:
    """Return the geometric mean of the noise ratio of epsilon-DP to these scales.

    epsilon is the smallest budget:

        (prod_k (Delta / epsilon) / c_k)^(1/K),  Delta = max ||Q_i - Q_j||_1,  epsilon = min d(i, j)

    It is dominated by the closest pair of the universe, which sets epsilon; ``inf`` where a scale
    or the smallest budget is 0.

    References:
        Kamalaruban et al. (2020), Sections 4.1 and 4.2. The factor of 202 in Section 4.3, for the
        elevation of homes in 741 cities, rests on a list that is not public; on public lists it is
        97, or 31 to 4333 depending on the treatment of a city that is listed twice
        (``benchmarks/experiments/metric_budgets.py``).

    >>> from dpjax.metric_privacy import from_points
    >>> metric = from_points([[0.0], [1.0], [3.0]], epsilon=0.5)
    >>> improvement_factor([[0.0, 1.0, 2.0]], [1.0], metric)
    4.0
    """
    values, budgets = prepared(queries, metric)
    sensitivity = slopes(values, np.ones_like(budgets)).sum(axis=0).max(initial=0.0)
    with np.errstate(divide="ignore"):
        each = sensitivity / metric.smallest / numbers("scales", scales)
        return float(np.exp(np.mean(np.log(each))))


def prepared(
    queries: ArrayLike, metric: Metric, name: str = "queries"
) -> tuple[np.ndarray, np.ndarray]:
    """Return checked queries with a 0 for the null record, and the budgets, both in float64."""
    checks.instance(name, metric, Metric, "from_points, from_budgets, ...")
    values, elements = finite(name, queries, ("K", "N")), metric.num_values
    if values.shape[1] != elements:
        raise ValueError(f"{name} must be of shape (K, {elements}), got {values.shape}.")
    return np.pad(values, [(0, 0), (0, metric.size - elements)]), metric.budgets


def ratio(cost: Any, budget: Any) -> np.ndarray:
    """Divide cost by budget: 0/x = x/inf = 0, x/0 = inf; others stay above 0."""
    free = (cost == 0) | (budget == np.inf)
    with np.errstate(all="ignore"):
        return np.where(free, 0.0, np.maximum(cost / budget, np.finfo(np.float64).tiny))


def rounded_up(numbers: Any, dtype: Any) -> np.ndarray:
    """Return numbers above nonnegative ones in another dtype, positive ones normal; 0 stays 0."""
    with np.errstate(over="ignore"):
        found = np.maximum(numbers, float(np.finfo(dtype).tiny)).astype(dtype)
    return np.where(numbers > 0, np.nextafter(found, np.inf, dtype=dtype), 0)


def slopes(values: np.ndarray, budgets: np.ndarray) -> np.ndarray:
    """Return |q_i - q_j| / d(i, j) of each query and pair, ``(K, N (N - 1) / 2)``."""
    first, second = np.triu_indices(len(budgets), 1)
    return ratio(np.abs(values[:, first] - values[:, second]), budgets[first, second])


def smallest_scales(values: np.ndarray, budgets: np.ndarray, power: int) -> OptimalScales:
    """Return the scales of least sum c_k^power; for power 0, of log c_k."""
    alone, live, steep = _live(values, budgets)
    if not len(steep):
        return OptimalScales(alone, 0.0)
    # Queries of far smaller noise cannot be seen beside the largest, but have a share
    size = np.maximum(alone[live] / alone[live].max(), 1e-30) ** power
    v, gap = _shared((steep / alone[live, None]).T, size / np.sum(size), power)
    return OptimalScales(_within(alone, live, steep, alone[live] / v), gap)


def _live(values: np.ndarray, budgets: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return each query's scale with the whole budget, which need noise, and the slopes of these.

    The others have a scale of 0 or ``inf``.
    """
    steep = slopes(values, budgets)
    alone = steep.max(axis=1, initial=0.0)
    live = (alone > 0) & (alone < np.inf)
    return alone, live, steep[live]


def _shared(rows: np.ndarray, w: np.ndarray, power: int) -> tuple[np.ndarray, float]:
    """Minimize sum w_k v_k^-p (or -w_k log v_k) subject to rows v <= 1; return v and its gap.

    Few pairs bind, so pairs are added as they are found to be overloaded.
    """
    chosen = np.unique(rows.argmax(axis=0))
    while True:
        v, y = _barrier(rows[chosen], w, power)
        load = rows @ v
        best = v / load.max()
        if power:
            bound = np.sum((w * y**power) ** (1 / (power + 1))) ** (power + 1)
            gap = w @ best**-power / bound - 1
        else:
            gap = np.expm1(-w @ np.log(best * y / w))
        most = np.argsort(load)[-2 * w.size :]
        more = np.setdiff1d(most[load[most] > 1 + 1e-12], chosen)
        if gap < _GAP or not len(more):
            return best, float(max(gap, 0.0))
        chosen = np.union1d(chosen, more)


def _barrier(rows: np.ndarray, w: np.ndarray, power: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the minimum for few rows, and rows averaged by their multipliers.

    Newton steps are in log v, where v stays positive, and lower t times the objective plus a
    logarithmic barrier; t grows until the barrier costs a hundredth of the gap.
    """
    v = np.full(w.size, 0.5 / rows.sum(axis=1).max())
    t = len(rows) / (w @ v**-power)  # near the path of minima
    while True:
        for _ in range(50):
            pull, own = rows / (1 - rows @ v)[:, None] * v, t * w * v**-power
            total = pull.sum(axis=0)
            rise = max(power, 1) * own - total
            step = np.linalg.solve(pull.T @ pull + np.diag(power**2 * own + total), rise)
            size = min(1.0, 1 / np.abs(step).max(initial=1e-300))
            while np.any(rows @ (v * np.exp(size * step)) >= 1):
                size /= 2
            v = v * np.exp(size * step)
            if rise @ step < 1e-3 or size < 1e-6:
                break
        if t >= 100 * len(rows) / _GAP:
            multipliers = 1 / (1 - rows @ v)
            return v / (rows @ v).max(), multipliers / multipliers.sum() @ rows
        t *= 10


def _in_rounds(steep: np.ndarray) -> np.ndarray:
    """Return c with 1/c the sum of the shares of Algorithm 3."""
    rates, used_up = np.zeros(len(steep)), 64 * len(steep) * np.finfo(np.float64).eps
    while True:
        left = 1 - rates @ steep
        left = np.where(left > used_up, left, 0.0)
        share = 1 / ratio(steep, left).max(axis=1)  # 0 for a query whose budget is used up
        if not share.any():
            return 1 / rates
        crowd = np.where(steep > 0, ratio(share @ steep, left), 0.0).max(axis=1)
        rates += share / np.where(share > 0, crowd, 1.0)


def _within(
    alone: np.ndarray, live: np.ndarray, steep: np.ndarray, shared: np.ndarray
) -> np.ndarray:
    """Return the scales of all queries, those that need noise multiplied by a load above 1.

    They are within the budgets in exact arithmetic, as the computed load has a relative error below
    (K + 8) eps.
    """
    spent = max((1 / shared @ steep).max(), 1.0)
    margin = 1 + (2 * len(alone) + 16) * np.finfo(np.float64).eps
    found = alone.copy()
    found[live] = shared * (spent * margin)
    return found
