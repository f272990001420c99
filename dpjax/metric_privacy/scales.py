"""Noise scales for linear queries under a metric: how much Laplace noise each of K answers needs.

The scales c share the budget of each pair of elements between the queries
(:func:`dpjax.metric_privacy.loads.load`), by three strategies of Kamalaruban et al. (2020), Section
4, or by the exact optimum, which is convex in 1/c. A scale is 0 for a query that needs no noise (it
is equal on all protected pairs) and ``inf`` for one that cannot be answered (it differs on a pair
of budget 0); neither uses any budget. For ``queries`` and ``metric`` see
:mod:`dpjax.metric_privacy`.

Privacy: Laplace noise of these scales is d-private under the neighbor relation of the metric. All
scales are checked on all pairs, multiplied by their largest load and rounded up, by any strategy.
Nothing here sees data, so the best of several may be taken.
"""

from __future__ import annotations

from functools import partial
from typing import Literal, NamedTuple, get_args

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from dpjax import checks
from dpjax.metric_privacy.loads import (
    answered,
    batch_of,
    largest_of,
    one_query,
    prepared,
    ratio,
    scales_alone,
    with_scales,
    within_budgets,
)
from dpjax.metric_privacy.metrics import Metric
from dpjax.metric_privacy.optimum import best_scales

Strategy = Literal["equal_shares", "common", "parameter_selection", "optimal"]
Objective = Literal["squared", "absolute", "geometric_mean"]
STRATEGIES = get_args(Strategy)
POWERS = {"squared": 2, "absolute": 1, "geometric_mean": 0}


class OptimalScales(NamedTuple):
    """Noise scales with a certificate.

    Attributes:
        scales: float ``(..., K)``.
        gap: float ``(...)``: no scales within the budgets have an objective smaller than ``scales``
            by more than this fraction (of their geometric mean, for that objective).

    >>> from dpjax.metric_privacy.metrics import from_budgets
    >>> best = optimal_scales([[1.0, 0.0]], from_budgets([[0.0, 0.5], [0.5, 0.0]]))
    >>> round(float(best.scales[0]), 3), bool(best.gap < 1e-4)
    (2.0, True)
    """

    scales: jax.Array
    gap: jax.Array


def single_query_scale(query: ArrayLike, metric: Metric) -> jax.Array:
    """Return the scale ``(...)`` of one query ``(..., N)`` with the whole budget.

    It is the maximum of |q_i - q_j| / d(i, j), rounded up.

    A constant query has a scale of 0 under swap neighbors, where n is public, but not with the null
    record.

    >>> from dpjax.metric_privacy.points import from_points
    >>> metric = from_points([[0.0], [1.0], [3.0]], epsilon=2.0)
    >>> round(float(single_query_scale([0.0, 0.5, 0.2], metric)), 4)
    0.25
    """
    return scales_by(*prepared(one_query(query), metric), "equal_shares")[..., 0]


def noise_scales(
    queries: ArrayLike, metric: Metric, *, strategy: Strategy = "optimal"
) -> jax.Array:
    """Return noise scales ``(..., K)`` by one of four strategies, all within the budgets.

        "equal_shares"         c_k = K max |dQ_k| / d: each has 1/K of the budgets (strategy 1)
        "common"               max ||dQ||_1 / d for all (strategy 2)
        "parameter_selection"  shares by need: :func:`parameter_selection` (strategy 3)
        "optimal"              the smallest sum of c^2: :func:`optimal_scales`

    >>> from dpjax.metric_privacy.metrics import from_budgets
    >>> metric = from_budgets([[0.0, 1.0, 2.0], [1.0, 0.0, 1.5], [2.0, 1.5, 0.0]])
    >>> queries = [[1.0, 0.0, 0.0], [0.2, 0.9, 0.4]]
    >>> [
    ...     [round(float(c), 4) for c in noise_scales(queries, metric, strategy=s)]
    ...     for s in STRATEGIES
    ... ]
    [[2.0, 1.4], [1.7, 1.7], [2.0, 1.4], [1.7884, 1.5879]]
    """
    checks.one_of("strategy", strategy, STRATEGIES)
    if strategy == "optimal":
        return optimal_scales(queries, metric).scales
    return scales_by(*prepared(queries, metric), strategy)


def parameter_selection(queries: ArrayLike, metric: Metric) -> jax.Array:
    """Return the noise scales ``(..., K)`` of Algorithm 3 of Kamalaruban et al. (2020).

    It takes at most K rounds and, unlike the printed algorithm in floating point, never exceeds the
    budgets.

    A round gives query k the share 1/c_k = r_k / max load, with r_k = min d / |dQ_k| (its share if
    it were alone) and the largest load sum_l r_l |dQ_l| / d over the pairs on which k differs. The
    next round shares the remaining budgets. The budget of the pair with the largest load is used up
    exactly, and every query that differs on it is done.

    The printed loop waits for shares of exactly 0. In floating point a used-up budget is 1e-17 or
    negative, the loop continues, and the scales exceed the budgets (up to 10 times, on 15 % of
    random instances). Here budgets stop at 0, and queries that differ on a pair whose budget is
    used up to rounding are done. Privacy is that of :func:`noise_scales`.

    >>> from dpjax.metric_privacy.metrics import from_budgets
    >>> metric = from_budgets([[0.0, 1.0, 9.0], [1.0, 0.0, 9.0], [9.0, 9.0, 0.0]])
    >>> [
    ...     round(float(c), 4)
    ...     for c in parameter_selection([[1.0, 0.0, 0.0], [0.0, 0.0, 9.0]], metric)
    ... ]
    [1.1111, 1.1111]
    """
    return scales_by(*prepared(queries, metric), "parameter_selection")


def optimal_scales(
    queries: ArrayLike,
    metric: Metric,
    *,
    objective: Objective = "squared",
    weights: ArrayLike | None = None,
) -> OptimalScales:
    """Return the best noise scales within the budgets, for one of three objectives.

    They have the smallest sum of w_k c_k^2, of w_k c_k, or of w_k log c_k.

    They are found by an interior point method. The certificate is Holder's inequality: for any
    weights l_p of pairs, with y_k = sum_p l_p |dQ_kp| / d_p,

        sum_k w_k c_k^p >= (sum_k (w_k y_k^p)^(1/(p+1)))^(p+1) / (sum_p l_p)^p

    Args:
        queries: see :mod:`dpjax.metric_privacy`.
        metric: see :mod:`dpjax.metric_privacy`.
        objective: static. ``"squared"``: sum w_k c_k^2, half the mean squared error of the answers.
            ``"absolute"``: sum w_k c_k, their mean absolute error. ``"geometric_mean"``: sum w_k
            log c_k, for the largest :func:`improvement_factor`.
        weights: positive ``(..., K)``; 1 by default. Scales of 0 and ``inf`` do not count.

    Returns:
        :class:`OptimalScales`, no worse than the other strategies, and differentiable.

    >>> from dpjax.metric_privacy.metrics import from_budgets
    >>> metric = from_budgets([[0.0, 1.0, 9.0], [1.0, 0.0, 9.0], [9.0, 9.0, 0.0]])
    >>> best = optimal_scales([[1.0, 0.0, 0.0], [0.0, 8.0, 0.0]], metric)
    >>> [round(float(c), 2) for c in best.scales], bool(best.gap < 1e-4)
    ([5.0, 10.0], True)
    """
    checks.one_of("objective", objective, tuple(POWERS))
    values, metric = prepared(queries, metric)
    w = (
        jnp.ones((1,), values.dtype)
        if weights is None
        else checks.positive("weights", weights, values.dtype)
    )
    if w.ndim == 0 or w.shape[-1] not in (1, values.shape[-2]):
        raise ValueError(f"weights must be of shape (..., {values.shape[-2]}), got {w.shape}.")
    return OptimalScales(*smallest_scales(values, metric, w, POWERS[objective]))


def improvement_factor(queries: ArrayLike, scales: ArrayLike, metric: Metric) -> jax.Array:
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

    >>> from dpjax.metric_privacy.points import from_points
    >>> metric = from_points([[0.0], [1.0], [3.0]], epsilon=0.5)
    >>> float(improvement_factor([[0.0, 1.0, 2.0]], [1.0], metric))
    4.0
    """
    return _improvement_factor(*with_scales(queries, scales, metric))


@jax.jit
def _improvement_factor(values: jax.Array, scales: jax.Array, metric: Metric) -> jax.Array:
    sensitivity = largest_of(
        values, metric, lambda apart, _: jnp.sum(apart, axis=-3), batch_of(values, metric)
    )
    plain = sensitivity / metric.smallest
    return jnp.exp(jnp.mean(jnp.log(plain[..., None]) - jnp.log(scales), axis=-1))


@partial(jax.jit, static_argnames="strategy")
def scales_by(values: jax.Array, metric: Metric, strategy: str) -> jax.Array:
    """Return the scales of one of the paper's strategies."""
    alone = scales_alone(values, metric)
    alive, shared = answered(values, alone)
    if strategy == "equal_shares":
        scales = alone * jnp.sum(alive, axis=-1, keepdims=True, dtype=values.dtype)
    elif strategy == "common":
        scales = _one_for_all(shared, metric)
    else:
        scales = _in_rounds(shared, alive, metric)
    return within_budgets(values, scales, alone, metric)


def _one_for_all(shared: jax.Array, metric: Metric) -> jax.Array:
    """Return the least scale that all queries can have, ``(..., K)``."""
    batch = batch_of(shared, metric)
    largest = largest_of(
        shared, metric, lambda apart, budgets: ratio(jnp.sum(apart, axis=-3), budgets), batch
    )
    return jnp.broadcast_to(largest[..., None], (*batch, shared.shape[-2]))


def _in_rounds(shared: jax.Array, alive: jax.Array, metric: Metric) -> jax.Array:
    """Return c with 1/c the sum of the shares of Algorithm 3; c is 1 for queries without noise."""
    used_up = 64 * shared.shape[-2] * float(np.finfo(shared.dtype).eps)

    def left(rates: jax.Array, apart: jax.Array, budgets: jax.Array) -> jax.Array:
        return jnp.maximum(budgets - jnp.sum(rates[..., None, None] * apart, axis=-3), 0.0)

    def one_round(carry: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        rates, active = carry

        def need(apart: jax.Array, budgets: jax.Array) -> jax.Array:
            return ratio(apart, left(rates, apart, budgets)[..., None, :, :])

        needs = largest_of(shared, metric, need, alive.shape)
        share = jnp.where(active, 1 / jnp.where(active, needs, 1.0), 0.0)

        def crowd(apart: jax.Array, budgets: jax.Array) -> jax.Array:
            together = ratio(
                jnp.sum(share[..., None, None] * apart, axis=-3), left(rates, apart, budgets)
            )
            return jnp.where(apart > 0, together[..., None, :, :], 0.0)

        crowds = largest_of(shared, metric, crowd, alive.shape)
        rates = rates + jnp.where(active, share / jnp.where(active, crowds, 1.0), 0.0)

        def exhausted(apart: jax.Array, budgets: jax.Array) -> jax.Array:
            gone = (left(rates, apart, budgets) <= used_up * budgets) & (budgets < jnp.inf)
            return ((apart > 0) & gone[..., None, :, :]).astype(apart.dtype)

        return rates, active & (largest_of(shared, metric, exhausted, alive.shape) == 0)

    def turn(
        carry: tuple[jax.Array, jax.Array], _: None
    ) -> tuple[tuple[jax.Array, jax.Array], None]:
        return jax.lax.cond(jnp.any(carry[1]), one_round, lambda unchanged: unchanged, carry), None

    (rates, _), _ = jax.lax.scan(
        turn, (jnp.zeros(alive.shape, shared.dtype), alive), length=shared.shape[-2]
    )
    return 1 / jnp.where(alive, rates, 1.0)


@partial(jax.jit, static_argnames="power")
def smallest_scales(
    values: jax.Array, metric: Metric, weights: jax.Array, power: int
) -> tuple[jax.Array, jax.Array]:
    """Return scales and gap of :func:`optimal_scales`."""
    batch = jnp.broadcast_shapes(batch_of(values, metric), weights.shape[:-1])
    if 0 in batch:
        return jnp.zeros((*batch, values.shape[-2]), values.dtype), jnp.zeros(batch, values.dtype)
    alone = jnp.broadcast_to(scales_alone(values, metric), (*batch, values.shape[-2]))
    alive, shared = answered(values, alone)
    fixed = jax.lax.stop_gradient((shared, metric))
    others = jax.lax.stop_gradient((_in_rounds(fixed[0], alive, fixed[1]), _one_for_all(*fixed)))
    return best_scales(values, metric, alone, weights, power, others)
