"""Noise scales for linear queries under a metric: how much Laplace noise each of K answers needs.

A record that moves from element i to element j changes answer k by |Q_ki - Q_kj|. With independent noise Lap(c_k) that move costs
sum_k |Q_ki - Q_kj| / c_k, which must be at most d(i, j) for every pair: the scales c share the budget of each pair between the
queries. Three strategies of Kamalaruban et al. (2020), and the exact optimum, which is convex in 1/c.

Nothing here sees data: any way to choose c is allowed, and every c returned is multiplied by its largest load, rounded up.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from dpjax import checks
from dpjax.metric_privacy.loads import largest_of, prepared, with_scales
from dpjax.metric_privacy.metrics import Metric
from dpjax.metric_privacy.optimum import best_scales
from dpjax.metric_privacy.points import PointMetric
from dpjax.metric_privacy.strategies import common_scales, equal_shares, scales_in_rounds
from dpjax.numerics.batching import align

Strategy = Literal["equal_shares", "common", "parameter_selection", "optimal"]
Objective = Literal["squared", "absolute", "geometric_mean"]
STRATEGIES = ("equal_shares", "common", "parameter_selection", "optimal")
POWERS = {"squared": 2, "absolute": 1, "geometric_mean": 0}


class OptimalScales(NamedTuple):
    """Noise scales with a certificate.

    Attributes:
        scales: float ``(..., K)``.
        gap: float ``(...)``: no scales within the budgets have an objective smaller than ``scales`` by more than this fraction
            (of their geometric mean, for that objective).
    """

    scales: jax.Array
    gap: jax.Array


def single_query_scale(query: ArrayLike, metric: Metric | PointMetric) -> jax.Array:
    """Return the noise scale of one query that has the whole budget: max over pairs of |q_i - q_j| / d(i, j), rounded up.

    A universe without room for all pairs is gone through in blocks of rows, if ``metric`` is a :class:`PointMetric`.

    Args:
        query: float ``(..., N)``.
        metric: broadcasts against the batch.

    Returns:
        Float ``(...)``; 0 for a query that needs no noise (no protected pair is told apart), ``inf`` for one that cannot be
        answered (it tells apart a pair of budget 0).

    Raises:
        ValueError: as :func:`dpjax.metric_privacy.loads.load`.

    Privacy:
        Noise of this scale is d-private under the relation of the metric. A scale of 0 is right under swap neighbors only as n is
        public; with "nobody" in the universe, a constant query has a scale as well.

    References:
        Kamalaruban et al. (2020), Section 4.1.

    >>> from dpjax.metric_privacy.points import from_points
    >>> round(float(single_query_scale([0.0, 0.5, 0.2], from_points([[0.0], [1.0], [3.0]], epsilon=2.0))), 4)
    0.25
    """
    values, metric = prepared(
        jnp.expand_dims(query, -2) if isinstance(query, jax.Array) else np.asarray(query)[..., None, :], metric
    )
    return equal_shares(values, metric)[..., 0]


def noise_scales(queries: ArrayLike, metric: Metric | PointMetric, *, strategy: Strategy = "optimal") -> jax.Array:
    """Return noise scales by one of the strategies, all within the budgets.

    ``"equal_shares"`` (strategy 1): each query has the K-th part of the budgets, c_k = K * max |dQ_k| / d. ``"common"`` (strategy
    2): one scale for all, max ||dQ||_1 / d. ``"parameter_selection"`` (strategy 3): budgets are shared in proportion to need, and
    what is left is shared again: :func:`parameter_selection`. ``"optimal"``: the smallest sum of c^2: :func:`optimal_scales`.

    In all of them, a query that needs no noise has the scale 0 and one that cannot be answered ``inf``, and neither takes a
    share (the paper does not know such queries).

    Args:
        queries: float ``(..., K, N)``.
        metric: broadcasts against the batch.
        strategy: static.

    Returns:
        Float ``(..., K)``.

    Raises:
        ValueError: as :func:`dpjax.metric_privacy.loads.load`, or an unknown strategy.

    Privacy:
        Laplace noise of these scales is d-private under the relation of the metric. They do not depend on data: the best
        of several strategies may be taken.

    References:
        Kamalaruban et al. (2020), Section 4.2.

    >>> from dpjax.metric_privacy.metrics import from_budgets
    >>> metric = from_budgets([[0.0, 1.0, 2.0], [1.0, 0.0, 1.5], [2.0, 1.5, 0.0]])
    >>> queries = [[1.0, 0.0, 0.0], [0.2, 0.9, 0.4]]
    >>> [[round(float(c), 4) for c in noise_scales(queries, metric, strategy=s)] for s in STRATEGIES]
    [[2.0, 1.4], [1.7, 1.7], [2.0, 1.4], [1.7884, 1.5879]]
    """
    checks.one_of("strategy", strategy, STRATEGIES)
    if strategy == "optimal":
        return optimal_scales(queries, metric).scales
    values, metric = prepared(queries, metric)
    return {"equal_shares": equal_shares, "common": common_scales, "parameter_selection": scales_in_rounds}[strategy](
        values, metric
    )


def parameter_selection(queries: ArrayLike, metric: Metric | PointMetric) -> jax.Array:
    """Return the noise scales of Algorithm 3, in a form that ends after at most K rounds and never overspends.

    A round gives query k the share 1/c_k = r_k / max load, with r_k = min d / |dQ_k| (its share if it were alone) and the largest
    load sum_l r_l |dQ_l| / d over the pairs that k tells apart; the budgets shrink by what was given, and the next round shares
    the rest. The pair of the largest load of all is used up exactly, and every query that tells it apart is done: at most K
    rounds, in exact arithmetic.

    The printed loop waits for shares of exactly 0. In floating point a used-up budget comes out as 1e-17 or as a negative number,
    the loop goes on with it, and returns scales that overspend (up to 10 times, on 15 % of random instances). Here budgets
    stop at 0 and queries on a pair that is used up but for rounding are done.

    Args:
        queries: float ``(..., K, N)``.
        metric: broadcasts against the batch.

    Returns:
        Float ``(..., K)``; see :func:`noise_scales` for 0 and ``inf``. The sum of squares is not the smallest: see
        :func:`optimal_scales`.

    Raises:
        ValueError: as :func:`dpjax.metric_privacy.loads.load`.

    Privacy:
        As :func:`noise_scales`.

    References:
        Kamalaruban et al. (2020), Algorithm 3.

    >>> from dpjax.metric_privacy.metrics import from_budgets
    >>> metric = from_budgets([[0.0, 1.0, 9.0], [1.0, 0.0, 9.0], [9.0, 9.0, 0.0]])
    >>> [round(float(c), 4) for c in parameter_selection([[1.0, 0.0, 0.0], [0.0, 0.0, 9.0]], metric)]
    [1.1111, 1.1111]
    """
    return scales_in_rounds(*prepared(queries, metric))


def optimal_scales(
    queries: ArrayLike, metric: Metric | PointMetric, *, objective: Objective = "squared", weights: ArrayLike | None = None
) -> OptimalScales:
    """Return the best noise scales within the budgets: the smallest sum of w_k c_k^2, of w_k c_k, or of w_k log c_k.

    The budgets are linear in u = 1/c, where these objectives are convex: an interior point method on a working set of pairs, to
    which the pairs that it overspends are added until there are none. The certificate is Holder's inequality: for any
    weights l_p of pairs, with y_k = sum_p l_p |dQ_kp| / d_p,

        sum_k w_k c_k^p >= (sum_k (w_k y_k^p)^(1/(p+1)))^(p+1) / (sum_p l_p)^p

    Args:
        queries: float ``(..., K, N)``.
        metric: broadcasts against the batch.
        objective: static. ``"squared"``: twice the sum of c^2 is the mean squared error of the answers. ``"absolute"``: the sum of
            c is their mean absolute error. ``"geometric_mean"``: the largest :func:`improvement_factor`.
        weights: positive ``(..., K)``; 1 if not given.

    Returns:
        :class:`OptimalScales`. The scales are no worse than those of the other strategies, and are differentiable by the optimality
        conditions. See :func:`noise_scales` for 0 and ``inf``, which do not count in the objective.

    Raises:
        ValueError: as :func:`dpjax.metric_privacy.loads.load`, an unknown objective, bad weights.

    Privacy:
        As :func:`noise_scales`: the scales are checked on all pairs and rounded up, however well the optimum was found.

    References:
        Kamalaruban et al. (2020), Section 4.2, which states the problem and solves it by heuristics.

    >>> from dpjax.metric_privacy.metrics import from_budgets
    >>> metric = from_budgets([[0.0, 1.0, 9.0], [1.0, 0.0, 9.0], [9.0, 9.0, 0.0]])
    >>> best = optimal_scales([[1.0, 0.0, 0.0], [0.0, 8.0, 0.0]], metric)
    >>> [round(float(c), 2) for c in best.scales], bool(best.gap < 1e-4)
    ([5.0, 10.0], True)
    """
    checks.one_of("objective", objective, tuple(POWERS))
    values, metric = prepared(queries, metric)
    w = jnp.ones((1,), values.dtype) if weights is None else checks.positive("weights", weights, values.dtype)
    if w.ndim == 0 or w.shape[-1] not in (1, values.shape[-2]):
        raise ValueError(f"weights must be of shape (..., {values.shape[-2]}), got {w.shape}.")
    return OptimalScales(*best_scales(values, metric, w, POWERS[objective]))


def improvement_factor(queries: ArrayLike, scales: ArrayLike, metric: Metric | PointMetric) -> jax.Array:
    """Return how many times less noise the scales are than that of epsilon-DP at the smallest budget: a geometric mean.

        (prod_k (Delta / epsilon) / c_k)^(1/K),  Delta = max ||Q_i - Q_j||_1,  epsilon = min d(i, j)

    It is dominated by the closest pair of the universe, which sets epsilon.

    Args:
        queries: float ``(..., K, N)``.
        scales: positive ``(..., K)``.
        metric: broadcasts against the batch.

    Returns:
        Float ``(...)``; ``inf`` where a scale is 0 or the smallest budget is 0.

    Raises:
        ValueError: as :func:`dpjax.metric_privacy.loads.load`.

    Privacy:
        None: no data here.

    References:
        Kamalaruban et al. (2020), Sections 4.1 and 4.2.

    >>> from dpjax.metric_privacy.points import from_points
    >>> float(improvement_factor([[0.0, 1.0, 2.0]], [1.0], from_points([[0.0], [1.0], [3.0]], epsilon=0.5)))
    4.0
    """
    return _improvement_factor(*with_scales(queries, scales, metric))


@jax.jit
def _improvement_factor(values: jax.Array, scales: jax.Array, metric: Metric | PointMetric) -> jax.Array:
    sensitivity = largest_of(values, metric, lambda apart, _: jnp.sum(apart, axis=-3))
    plain = sensitivity / align(metric.smallest, sensitivity.ndim)
    return jnp.exp(jnp.mean(jnp.log(plain[..., None]) - jnp.log(scales), axis=-1))
