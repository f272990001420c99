"""Noise scales for linear queries under a metric: how much Laplace noise each of K answers needs.

A record that moves from element i to element j changes answer k by |Q_ki - Q_kj|. With independent noise Lap(c_k) that move costs
sum_k |Q_ki - Q_kj| / c_k, which must be at most d(i, j) for every pair: the scales c share the budget of each pair between the
queries. Three strategies of Kamalaruban et al. (2020), and the exact optimum, which is convex in 1/c.

Nothing here sees data: any way to choose c is allowed, and every c returned is multiplied by its largest load, rounded up.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from dpjax import parameters
from dpjax.metric_privacy.metrics import Metric, PointMetric, fold_rows
from dpjax.shapes import align

Strategy = Literal["equal_shares", "common", "parameter_selection", "optimal"]
Objective = Literal["squared", "absolute", "geometric_mean"]
STRATEGIES = ("equal_shares", "common", "parameter_selection", "optimal")
POWERS = {"squared": 2, "absolute": 1, "geometric_mean": 0}
_CELLS = 2**20  # differences of query values in a block of rows: little enough for a cache
_EXCHANGES = 30  # of the working set of pairs; a few suffice
_STEPS = 80  # of the interior point method: the gap falls about fivefold in each, less where scales span many powers of ten


class OptimalScales(NamedTuple):
    """Noise scales with a certificate.

    Attributes:
        scales: float ``(..., K)``.
        gap: float ``(...)``: no scales within the budgets have an objective smaller than ``scales`` by more than this fraction
            (of their geometric mean, for that objective).
    """

    scales: jax.Array
    gap: jax.Array


def load(queries: ArrayLike, scales: ArrayLike, metric: Metric | PointMetric) -> jax.Array:
    """Return the largest share of its budget that a pair of elements is charged: the noise is private if it is at most 1.

        max over i, j of  sum_k |Q_ki - Q_kj| / c_k / d(i, j)

    Pairs that no query tells apart do not count, nor do pairs of infinite budget. It is infinite if noise of scale 0 tells a
    protected pair apart, or any noise a pair of budget 0. A query of infinite scale is not answered and costs nothing.

    Args:
        queries: float ``(..., K, N)``, the value of each query at each element of the universe.
        scales: float ``(..., K)``, not negative, may be ``inf``.
        metric: on N elements (and "nobody"), broadcasts against the batch.

    Returns:
        Float ``(...)``.

    Raises:
        ValueError: shapes that do not fit; queries that are not finite or negative scales, as Python or NumPy numbers (as JAX
            arrays: NaN for their batch element).

    Privacy:
        None: no data here.

    References:
        Kamalaruban et al. (2020), Theorem 1.

    >>> from dpjax.metric_privacy.metrics import from_budgets
    >>> metric = from_budgets([[0.0, 1.0, 2.0], [1.0, 0.0, 1.5], [2.0, 1.5, 0.0]])
    >>> queries = [[1.0, 0.0, 0.0], [0.0, 0.5, 0.0]]
    >>> float(load(queries, [2.0, 1.0], metric))
    1.0
    """
    return largest_load(*_with_scales(queries, scales, metric))


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
        ValueError: as :func:`load`.

    Privacy:
        Noise of this scale is d-private under the relation of the metric. A scale of 0 is right under swap neighbors only as n is
        public; with "nobody" in the universe, a constant query has a scale as well.

    References:
        Kamalaruban et al. (2020), Section 4.1.

    >>> from dpjax.metric_privacy.metrics import from_points
    >>> round(float(single_query_scale([0.0, 0.5, 0.2], from_points([[0.0], [1.0], [3.0]], epsilon=2.0))), 4)
    0.25
    """
    values, metric = door(jnp.expand_dims(query, -2) if isinstance(query, jax.Array) else np.asarray(query)[..., None, :], metric)
    return _equal_shares(values, metric)[..., 0]


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
        ValueError: as :func:`load`, or an unknown strategy.

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
    parameters.one_of("strategy", strategy, STRATEGIES)
    if strategy == "optimal":
        return optimal_scales(queries, metric).scales
    values, metric = door(queries, metric)
    return {"equal_shares": _equal_shares, "common": common_scales, "parameter_selection": _parameter_selection}[strategy](
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
        ValueError: as :func:`load`.

    Privacy:
        As :func:`noise_scales`.

    References:
        Kamalaruban et al. (2020), Algorithm 3.

    >>> from dpjax.metric_privacy.metrics import from_budgets
    >>> metric = from_budgets([[0.0, 1.0, 9.0], [1.0, 0.0, 9.0], [9.0, 9.0, 0.0]])
    >>> [round(float(c), 4) for c in parameter_selection([[1.0, 0.0, 0.0], [0.0, 0.0, 9.0]], metric)]
    [1.1111, 1.1111]
    """
    return _parameter_selection(*door(queries, metric))


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
        ValueError: as :func:`load`, an unknown objective, bad weights.

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
    parameters.one_of("objective", objective, tuple(POWERS))
    values, metric = door(queries, metric)
    w = jnp.ones((1,), values.dtype) if weights is None else parameters.positive("weights", weights, values.dtype)
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
        ValueError: as :func:`load`.

    Privacy:
        None: no data here.

    References:
        Kamalaruban et al. (2020), Sections 4.1 and 4.2.

    >>> from dpjax.metric_privacy.metrics import from_points
    >>> float(improvement_factor([[0.0, 1.0, 2.0]], [1.0], from_points([[0.0], [1.0], [3.0]], epsilon=0.5)))
    4.0
    """
    return _improvement_factor(*_with_scales(queries, scales, metric))


def door(queries: ArrayLike, metric: Metric | PointMetric) -> tuple[jax.Array, Metric | PointMetric]:
    """Queries and metric in one dtype and of one batch rank, with a 0 for "nobody"."""
    if not isinstance(metric, (Metric, PointMetric)):
        raise TypeError(f"a Metric is needed here (from_points, from_budgets, ...), got {type(metric).__name__}.")
    dtype = jnp.promote_types(parameters.float_array("queries", queries).dtype, metric.dtype)
    values = parameters.finite("queries", queries, dtype)
    if values.ndim < 2 or values.shape[-2] == 0:
        raise ValueError(f"queries must be of shape (..., K, N) with K >= 1, got {values.shape}.")
    values = metric.columns(values)
    rank = max(values.ndim - 2, len(metric.batch_shape))
    jnp.broadcast_shapes(values.shape[:-2], metric.batch_shape)
    return align(values, rank + 2), aligned(jax.tree.map(lambda leaf: leaf.astype(dtype), metric), rank)


def aligned(metric: Metric | PointMetric, rank: int) -> Any:
    """Return the metric with this number of batch axes."""
    return jax.tree.map(lambda leaf: align(leaf, leaf.ndim + rank - len(metric.batch_shape)), metric)


def _with_scales(
    queries: ArrayLike, scales: ArrayLike, metric: Metric | PointMetric
) -> tuple[jax.Array, jax.Array, Metric | PointMetric]:
    """The same with scales, which may have more batch axes."""
    values, metric = door(queries, metric)
    c = parameters.float_array("scales", scales).astype(values.dtype)
    if not isinstance(scales, jax.Array) and not np.all(np.asarray(c) >= 0):
        raise ValueError(f"scales must not be negative or NaN, got {scales}.")
    if c.shape[-1:] != values.shape[-2:-1]:
        raise ValueError(f"{values.shape[-2]} queries need as many scales, got shape {c.shape}.")
    rank = max(values.ndim - 2, c.ndim - 1)
    return align(values, rank + 2), align(jnp.where(c >= 0, c, jnp.nan), rank + 1), aligned(metric, rank)


def _batch(values: jax.Array, metric: Metric | PointMetric) -> tuple[int, ...]:
    return jnp.broadcast_shapes(values.shape[:-2], metric.batch_shape)


def _ratio(part: jax.Array, whole: jax.Array) -> jax.Array:
    """Divide part by whole, where nothing of anything is 0, something of nothing inf, and anything of an infinite whole 0."""
    void = (part == 0) | (whole == jnp.inf)
    none = whole <= 0
    value = part / jnp.where(void | none, 1.0, whole)
    value = jnp.maximum(value, float(np.finfo(part.dtype).tiny))  # what was told apart costs something
    value = jnp.where(void, 0.0, jnp.where(none, jnp.inf, value))
    return jnp.where(jnp.isnan(whole), jnp.nan, value)


def _fold(
    values: jax.Array,
    metric: Metric | PointMetric,
    initial: Any,
    step: Callable[[Any, jax.Array, jax.Array, jax.Array], Any],
) -> Any:
    """Run over all pairs in blocks: ``step(carry, index (B,), differences (..., K, B, N), budgets (..., B, N))``."""
    lanes = int(np.prod(_batch(values, metric), dtype=np.int64)) * values.shape[-2] * metric.size
    tiny = float(np.finfo(values.dtype).tiny)

    def block(carry: Any, index: jax.Array, rows: jax.Array) -> Any:
        own, other = jnp.take(values, index, axis=-1)[..., :, None], values[..., None, :]
        # A difference that underflows is still one.
        apart = jnp.where(own == other, 0.0, jnp.maximum(jnp.abs(own - other), tiny))
        return step(carry, index, apart, rows)

    return fold_rows(metric, initial, block, count=max(1, min(metric.size, _CELLS // lanes)))


def _largest(
    values: jax.Array,
    metric: Metric | PointMetric,
    function: Callable[[jax.Array, jax.Array], jax.Array],
    tail: tuple[int, ...] = (),
) -> jax.Array:
    """The largest value over all pairs of a function of differences ``(..., K, B, N)`` and budgets ``(..., B, N)``."""

    def step(carry: jax.Array, index: jax.Array, apart: jax.Array, rows: jax.Array) -> jax.Array:
        return jnp.maximum(carry, jnp.max(function(apart, rows), axis=-2))

    # Elements side by side to the end: compilers turn that into vector instructions, and a maximum of neighbours less so.
    start = jnp.zeros((*_batch(values, metric), *tail, metric.size), values.dtype)
    return jnp.max(_fold(values, metric, start, step), axis=-1)


def _each(scales: jax.Array) -> jax.Array:
    """(..., K) beside differences of shape (..., K, B, N)."""
    return scales[..., None, None]


@jax.jit
def largest_load(values: jax.Array, scales: jax.Array, metric: Metric | PointMetric) -> jax.Array:
    """Return :func:`load` of values from :func:`door`."""
    scales = align(scales, values.ndim - 1)
    return _largest(
        values,
        metric,
        lambda apart, budgets: _ratio(jnp.sum(_ratio(apart, _each(scales)), axis=-3), align(budgets, apart.ndim - 1)),
    )


def _alone(values: jax.Array, metric: Metric | PointMetric) -> jax.Array:
    """The scale of each query with the whole budget, ``(..., K)``: 0, inf, or between; all NaN where something is wrong."""
    scales = _largest(values, metric, lambda apart, budgets: _ratio(apart, budgets[..., None, :, :]), values.shape[-2:-1])
    return jnp.where(jnp.any(jnp.isnan(scales), axis=-1, keepdims=True), jnp.nan, scales)


def _answered(values: jax.Array, alone: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Which queries take a share, and the query values with 0 for all others."""
    alive = (alone > 0) & (alone < jnp.inf)
    return alive, jnp.where(alive[..., None], values, 0.0)


def _within(values: jax.Array, scales: jax.Array, metric: Metric | PointMetric) -> jax.Array:
    """Scales that are within the budgets in exact arithmetic: the load has a relative error below (K + 8) eps."""
    margin = 1 + (2 * values.shape[-2] + 16) * float(np.finfo(values.dtype).eps)
    return scales * (jnp.maximum(largest_load(values, scales, metric), 1.0) * margin)[..., None]


def _finished(values: jax.Array, scales: jax.Array, alone: jax.Array, metric: Metric | PointMetric) -> jax.Array:
    alive, shared = _answered(values, alone)
    return jnp.where(alive, _within(shared, jnp.where(alive, scales, jnp.inf), metric), alone)


@jax.jit
def _equal_shares(values: jax.Array, metric: Metric | PointMetric) -> jax.Array:
    alone = _alone(values, metric)
    alive, _ = _answered(values, alone)
    return _finished(values, alone * jnp.sum(alive, axis=-1, keepdims=True, dtype=values.dtype), alone, metric)


@jax.jit
def common_scales(values: jax.Array, metric: Metric | PointMetric) -> jax.Array:
    """Return the scales of strategy 2 for values from :func:`door`."""
    alone = _alone(values, metric)
    return _finished(values, _one_for_all(_answered(values, alone)[1], metric), alone, metric)


def _one_for_all(shared: jax.Array, metric: Metric | PointMetric) -> jax.Array:
    largest = _largest(shared, metric, lambda apart, budgets: _ratio(jnp.sum(apart, axis=-3), budgets))
    return jnp.broadcast_to(largest[..., None], (*largest.shape, shared.shape[-2]))


@jax.jit
def _parameter_selection(values: jax.Array, metric: Metric | PointMetric) -> jax.Array:
    alone = _alone(values, metric)
    alive, shared = _answered(values, alone)
    return _finished(values, 1 / jnp.where(alive, _selected(shared, alive, metric), 1.0), alone, metric)


def _selected(shared: jax.Array, alive: jax.Array, metric: Metric | PointMetric) -> jax.Array:
    """The sums of shares R = 1/c of Algorithm 3."""
    tail = shared.shape[-2:-1]
    used_up = 64 * tail[0] * float(np.finfo(shared.dtype).eps)

    def left(given: jax.Array, apart: jax.Array, budgets: jax.Array) -> jax.Array:
        return jnp.maximum(budgets - jnp.sum(_each(given) * apart, axis=-3), 0.0)

    def one_round(carry: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        given, active = carry

        def need(apart: jax.Array, budgets: jax.Array) -> jax.Array:
            return _ratio(apart, left(given, apart, budgets)[..., None, :, :])

        needs = _largest(shared, metric, need, tail)
        share = jnp.where(active, 1 / jnp.where(active, needs, 1.0), 0.0)

        def crowd(apart: jax.Array, budgets: jax.Array) -> jax.Array:
            together = _ratio(jnp.sum(_each(share) * apart, axis=-3), left(given, apart, budgets))
            return jnp.where(apart > 0, together[..., None, :, :], 0.0)

        crowds = _largest(shared, metric, crowd, tail)
        given = given + jnp.where(active, share / jnp.where(active, crowds, 1.0), 0.0)

        def exhausted(apart: jax.Array, budgets: jax.Array) -> jax.Array:
            gone = (left(given, apart, budgets) <= used_up * budgets) & (budgets < jnp.inf)
            return ((apart > 0) & gone[..., None, :, :]).astype(apart.dtype)

        return given, active & (_largest(shared, metric, exhausted, tail) == 0)

    def turn(carry: tuple[jax.Array, jax.Array], _: None) -> tuple[tuple[jax.Array, jax.Array], None]:
        return jax.lax.cond(jnp.any(carry[1]), one_round, lambda same: same, carry), None

    (given, _), _ = jax.lax.scan(turn, (jnp.zeros(alive.shape, shared.dtype), alive), length=tail[0])
    return given


@partial(jax.jit, static_argnames="power")
def best_scales(values: jax.Array, metric: Metric | PointMetric, weights: jax.Array, power: int) -> tuple[jax.Array, jax.Array]:
    """Return scales and gap of :func:`optimal_scales` for values from :func:`door`."""
    alone = _alone(values, metric)
    alive, shared = _answered(values, alone)
    weights = jnp.where(alive, align(weights, alive.ndim), 0.0)
    # In units of v = alone / c, every entry of the constraints and every v is at most 1.
    unit = jnp.where(alive, alone, 1.0)
    size = weights * jnp.where(alive, unit, 1.0) ** power
    w = size / jnp.max(size, axis=-1, keepdims=True)
    fixed = jax.lax.stop_gradient((shared, metric))
    shares = jnp.where(alive, _selected(fixed[0], alive, fixed[1]), 1.0)
    others = [_finished(values, c, alone, metric) for c in jax.lax.stop_gradient((1 / shares, _one_for_all(*fixed)))]
    start = jnp.where(alive, unit * shares, 0.0)
    scaled = jax.lax.stop_gradient((shared / unit[..., None], metric, w, alive, start))
    v, multipliers, first, second = jax.lax.stop_gradient(_exchange(*scaled, power))
    rows = _constraints(shared / unit[..., None], metric, first, second)
    v = _implicit(v, multipliers, rows, w, alive, power)
    best = _finished(values, unit / jnp.where(alive, v, 1.0), alone, metric)

    def objective(scales: jax.Array) -> jax.Array:
        x = jnp.where(alive, scales / unit, 1.0)
        return jnp.sum(w * (x**power if power else jnp.log(x)), axis=-1)

    for other in jax.lax.stop_gradient(others):
        # Better by rounding only, unless the solver failed: the derivative stays that of the optimum.
        better = ~(objective(best) <= objective(other))
        change = best - jax.lax.stop_gradient(best)
        best = jnp.where(better[..., None], other + jnp.where(jnp.isfinite(change), change, 0.0), best)
    bound = _lower_bound(rows, multipliers, w, alive, power)
    reached = objective(best)
    total = jnp.sum(w, axis=-1)
    nothing = jnp.where(jnp.isnan(alone[..., 0]), jnp.nan, 0.0)  # left to choose
    gap = reached / bound - 1 if power else jnp.expm1((reached - bound) / total)
    return best, jax.lax.stop_gradient(jnp.where(jnp.any(alive, axis=-1), jnp.maximum(gap, 0.0), nothing))


def _constraints(shared: jax.Array, metric: Metric | PointMetric, first: jax.Array, second: jax.Array) -> jax.Array:
    """|dQ_k| / d for pairs of elements ``(..., M)``: a row of ``(..., M, K)`` for each."""
    one, other = (jnp.take_along_axis(shared, index[..., None, :], axis=-1) for index in (first, second))
    return jnp.swapaxes(_ratio(jnp.abs(one - other), _budgets(metric, first, second)[..., None, :]), -1, -2)


def _budgets(metric: Metric | PointMetric, first: jax.Array, second: jax.Array) -> jax.Array:
    """d(i, j) of pairs ``(..., M)``."""
    if isinstance(metric, Metric):
        flat = metric.budgets.reshape(*metric.batch_shape, metric.size**2)
        return jnp.take_along_axis(flat, first * metric.size + second, axis=-1)
    pairs = jnp.stack([jnp.take_along_axis(metric.points, i[..., None], axis=-2) for i in (first, second)], axis=-2)
    threshold = None if metric.threshold is None else metric.threshold[..., None]
    return replace(metric, points=pairs, epsilon=metric.epsilon[..., None], threshold=threshold).rows(0, 1)[..., 0, 1]


def _exchange(
    shared: jax.Array, metric: Metric | PointMetric, w: jax.Array, alive: jax.Array, start: jax.Array, power: int
) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]:
    """The optimum v, multipliers, and the pairs that they belong to: solve for some pairs, add those that this overspends."""
    n, k, batch = metric.size, shared.shape[-2], start.shape[:-1]
    slots = min(4 * k + 24, max(1, n * (n - 1) // 2) + k)
    eps = float(np.finfo(shared.dtype).eps)
    columns = jnp.arange(n, dtype=jnp.int32)

    def steepest(carry: tuple, index: jax.Array, apart: jax.Array, rows: jax.Array) -> tuple:
        """The pair that bounds each query alone."""
        most, i, j = carry
        need = _ratio(apart, rows[..., None, :, :]).reshape(*batch, k, -1)
        at = jnp.argmax(need, axis=-1).astype(jnp.int32)
        here = jnp.max(need, axis=-1)
        return jnp.maximum(most, here), jnp.where(here > most, index[at // n], i), jnp.where(here > most, at % n, j)

    zeros = jnp.zeros((*batch, k), jnp.int32)
    _, first, second = _fold(shared, metric, (jnp.zeros((*batch, k), shared.dtype), zeros, zeros), steepest)

    def heaviest(v: jax.Array) -> tuple[jax.Array, jax.Array]:
        """The largest load of each element with a later one, and with which."""

        def step(carry: tuple, index: jax.Array, apart: jax.Array, rows: jax.Array) -> tuple:
            loads, partner = carry
            together = _ratio(jnp.sum(_each(v) * apart, axis=-3), rows)
            together = jnp.where(align(columns[None, :] > index[:, None], together.ndim), together, 0.0)
            at = (*((jnp.int32(0),) * len(batch)), index[0])
            here = jnp.argmax(together, axis=-1).astype(jnp.int32)
            return (
                jax.lax.dynamic_update_slice(loads, jnp.max(together, axis=-1), at),
                jax.lax.dynamic_update_slice(partner, here, at),
            )

        return _fold(shared, metric, (jnp.zeros((*batch, n), shared.dtype), jnp.zeros((*batch, n), jnp.int32)), step)

    everyone = jnp.broadcast_to(align(columns, len(batch) + 1), (*batch, n))

    tolerance = 1 + (1e-11 if shared.dtype == jnp.float64 else 1e-5)

    def exchange(carry: tuple) -> tuple:
        count, unfinished, _, multipliers, first, second, loads, partner = carry
        largest = jnp.max(multipliers, axis=-1, keepdims=True)
        # Binding pairs stay, or the objective could fall; then come those that are overspent, the worst first, then the fullest.
        # A candidate that is full but not overspent is one that is held already.
        held = jnp.where(multipliers > max(1e-6, 1e3 * eps) * largest, 4 + multipliers / largest, 0.0)
        spare = jnp.where(loads < 1 - 1e-6, loads, -1.0)
        score = jnp.concatenate([held, jnp.where(loads > 1 + 16 * eps, 1 + jnp.minimum(loads, 2.0), spare)], axis=-1)
        _, kept = jax.lax.top_k(score, slots)
        first, second = (
            jnp.take_along_axis(jnp.concatenate(pool, axis=-1), kept, axis=-1) for pool in ((first, everyone), (second, partner))
        )
        v, multipliers = _interior_point(_constraints(shared, metric, first, second), w, alive, start, power)
        found = (v, multipliers, first, second, *heaviest(v))
        kept_on = [jnp.where(unfinished, new, old) for new, old in zip(found, carry[2:], strict=True)]
        return count + 1, unfinished & (jnp.max(kept_on[4], axis=-1, keepdims=True) > tolerance), *kept_on

    # At first the pairs that bound each query alone are held; a pair of an element with itself is no constraint.
    multipliers = jnp.concatenate([jnp.ones((*batch, k), shared.dtype), jnp.zeros((*batch, slots - k), shared.dtype)], axis=-1)
    first, second = (jnp.pad(i, [(0, 0)] * len(batch) + [(0, slots - k)]) for i in (first, second))
    carry = (jnp.int32(0), jnp.any(alive, axis=-1, keepdims=True), start, multipliers, first, second, *heaviest(start))
    carry = jax.lax.while_loop(lambda carry: jnp.any(carry[1]) & (carry[0] < _EXCHANGES), exchange, carry)
    return carry[2:6]


def _interior_point(rows: jax.Array, w: jax.Array, alive: jax.Array, start: jax.Array, power: int) -> tuple[jax.Array, jax.Array]:
    """Minimise sum_k w_k v_k^-p / p (or -w_k log v_k) where rows v <= 1: v ``(..., K)`` and multipliers ``(..., M)``."""
    m = rows.shape[-2]
    v = jnp.where(alive, start, 0.0)
    v = v * (0.9 / jnp.maximum(jnp.max(_product(rows, v), axis=-1, keepdims=True), 0.1))
    v = jnp.where(alive, v, 1.0)
    slack = 1 - _product(rows, v)
    scale = jnp.sum(jnp.where(alive, w * v**-power, 0.0), axis=-1, keepdims=True)  # the sum of all multipliers, at the optimum
    multipliers = 0.5 * scale / m / slack
    eps = float(np.finfo(v.dtype).eps)
    floor = 4 * eps * scale

    def furthest(x: jax.Array, dx: jax.Array) -> jax.Array:
        """The largest step, up to 1, that stays positive."""
        limit = jnp.where(dx < 0, x / jnp.where(dx < 0, -dx, 1.0), jnp.inf)
        return jnp.minimum(0.99 * jnp.min(limit, axis=-1, keepdims=True), 1.0)

    def mean_gap(slack: jax.Array, multipliers: jax.Array) -> jax.Array:
        return jnp.sum(slack * multipliers, axis=-1, keepdims=True) / m

    def step(carry: tuple) -> tuple:
        count, unsettled, v, slack, multipliers = carry
        # Below the floor a slack would be mostly the rounding of 1 - rows v.
        target = jnp.maximum(0.1 * mean_gap(slack, multipliers), floor)
        gradient = -_product(jnp.swapaxes(rows, -1, -2), target / slack) + jnp.where(alive, w * v ** (-power - 1), 0.0)
        dv = _newton(rows, multipliers / slack, v, w, alive, power, gradient)
        change = _product(rows, dv)
        dm = (target + multipliers * change) / slack - multipliers
        along = jnp.minimum(furthest(slack, -change), furthest(v, dv))
        moved = v + along * dv
        # Of rows v itself, so that no error adds up; what rounding makes of a slack of 0 stays positive.
        found = moved, jnp.maximum(1 - _product(rows, moved), eps / 4), multipliers + furthest(multipliers, dm) * dm
        sound = jnp.isfinite(jnp.sum(found[0], axis=-1, keepdims=True) + jnp.sum(found[2], axis=-1, keepdims=True))
        # What is settled stays, or more steps for the rest of a batch would wear it down to rounding.
        unsettled = unsettled & sound
        v, slack, multipliers = (jnp.where(unsettled, new, old) for new, old in zip(found, carry[2:], strict=True))
        wide = mean_gap(slack, multipliers) > 1.5 * floor
        off = jnp.where(alive, v * _product(jnp.swapaxes(rows, -1, -2), multipliers) - w * v**-power, 0.0)
        unsettled = unsettled & (wide | (jnp.max(jnp.abs(off), axis=-1, keepdims=True) > 16 * floor))
        return count + 1, unsettled, v, slack, multipliers

    carry = (jnp.int32(0), jnp.any(alive, axis=-1, keepdims=True), v, slack, multipliers)
    _, _, v, _, multipliers = jax.lax.while_loop(lambda carry: jnp.any(carry[1]) & (carry[0] < _STEPS), step, carry)
    return v, multipliers


def _product(matrix: jax.Array, vector: jax.Array) -> jax.Array:
    return jnp.matmul(matrix, vector[..., None], precision=jax.lax.Precision.HIGHEST)[..., 0]


def _newton(
    rows: jax.Array, pull: jax.Array, v: jax.Array, w: jax.Array, alive: jax.Array, power: int, gradient: jax.Array
) -> jax.Array:
    """Solve (diag((p+1) w v^-(p+2)) + rows^T diag(pull) rows) x = gradient; 0 for queries that take no share."""
    curve = jnp.where(alive, (power + 1) * w * v ** (-power - 2), 1.0)
    hessian = jnp.matmul(jnp.swapaxes(rows, -1, -2), pull[..., None] * rows, precision=jax.lax.Precision.HIGHEST)
    hessian = hessian + curve[..., None] * align(jnp.eye(v.shape[-1], dtype=v.dtype), hessian.ndim)
    # A unit diagonal, as the entries span many powers of ten; a little more, or rounding leaves some without a factor.
    root = jnp.sqrt(jnp.diagonal(hessian, axis1=-2, axis2=-1))
    ridge = 8 * v.shape[-1] * float(np.finfo(v.dtype).eps) * jnp.eye(v.shape[-1], dtype=v.dtype)
    factor = jnp.linalg.cholesky(hessian / (root[..., :, None] * root[..., None, :]) + align(ridge, hessian.ndim))
    half = jax.lax.linalg.triangular_solve(factor, (jnp.where(alive, gradient, 0.0) / root)[..., None], left_side=True, lower=True)
    whole = jax.lax.linalg.triangular_solve(factor, half, left_side=True, lower=True, transpose_a=True)
    return whole[..., 0] / root


def _implicit(v: jax.Array, multipliers: jax.Array, rows: jax.Array, w: jax.Array, alive: jax.Array, power: int) -> jax.Array:
    """The same v, with the derivative that the optimality conditions give it."""
    fixed = jax.lax.stop_gradient(rows)
    slack = jnp.maximum(1 - _product(fixed, v), 0.0)
    pull = multipliers / jnp.maximum(slack, float(np.finfo(v.dtype).eps) ** 0.5)
    residual = (
        _product(jnp.swapaxes(rows, -1, -2), multipliers)
        - jnp.where(alive, w * v ** (-power - 1), 0.0)
        + _product(jnp.swapaxes(fixed, -1, -2), pull * _product(rows, v))
    )
    moved = residual - jax.lax.stop_gradient(residual)
    change = _newton(fixed, pull, v, jax.lax.stop_gradient(w), alive, power, moved)
    return v - jnp.where(jnp.isfinite(change), change, 0.0)


def _lower_bound(rows: jax.Array, multipliers: jax.Array, w: jax.Array, alive: jax.Array, power: int) -> jax.Array:
    """Of sum w_k v_k^-p, or of -sum w_k log v_k, over all v within the budgets: Holder, Jensen."""
    pull = _product(jnp.swapaxes(rows, -1, -2), multipliers)
    pull = jnp.where(alive, pull, 1.0)
    price = jnp.sum(multipliers, axis=-1)
    if power:
        return jnp.sum((w * pull**power) ** (1 / (power + 1)), axis=-1) ** (power + 1) / price**power
    total = jnp.sum(w, axis=-1)
    parts = jnp.where(alive, w * jnp.log(pull / jnp.where(alive, w, 1.0)), 0.0)
    return jnp.sum(parts, axis=-1) + total * jnp.log(total / price)


@jax.jit
def _improvement_factor(values: jax.Array, scales: jax.Array, metric: Metric | PointMetric) -> jax.Array:
    sensitivity = _largest(values, metric, lambda apart, _: jnp.sum(apart, axis=-3))
    plain = sensitivity / align(metric.smallest, sensitivity.ndim)
    return jnp.exp(jnp.mean(jnp.log(plain[..., None]) - jnp.log(scales), axis=-1))
