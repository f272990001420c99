"""Selection under a metric: the exponential mechanism, with the scale of a range, and SmallDB.

The exponential mechanism is Definition 9 and Theorem 3 of Kamalaruban et al. (2020).
P(candidate) is proportional to exp(score / (2c)). Moving a record from i to j changes the score of
candidate r by some g_r, and its log-probability by g_r/(2c) minus the logarithm of a mean of
exp(g/(2c)), which lies between its extremes. So the changes of all log-probabilities lie in an
interval around 0 of length (max g - min g)/(2c). It is at most d(i, j) if

    c >= (max over r of g_r - min over r of g_r) / 2 / d(i, j)   for all pairs.

Theorem 3 has the largest |g_r| instead, which is never smaller than half the range. The two agree
on counts (g = -1, 1, 0, ...); scores that a move can only increase need half of it.

In floating point a cost is rounded once, and its product with the rate once more: within the reach
of a draw, 42 nats, the total error of the exponents of two neighbors is up to 2^-16 in float32, for
any scale. So this much is subtracted from every d(i, j) first.

SmallDB, Algorithm 1, draws one small database:

    P(y) proportional to exp(-max over q of |c q'(x) - (n/m) c q'(y)| / (2c))

over all databases y of m records.

It is private: moving a record from i to j changes the score by at most c max |q'_i - q'_j|, which
is at most c d(i, j) (Theorem 5).

Algorithm 1 as printed compares q'(x), a sum over n records, with q'(y), a sum over m of them. That
is private, but inaccurate for n far from m: in the tests (n = 4, m = 2, three elements, three
queries) its expected error is 2.67, and 1.92 with y scaled to n records, as here. The size
log|Q|/alpha^2 is rounded up.
"""

from __future__ import annotations

from functools import reduce
from itertools import combinations_with_replacement
from math import ceil, comb, log

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from dpjax import checks
from dpjax.accounting.mechanism import with_guarantee
from dpjax.distributions.finite import Finite
from dpjax.metric_privacy.fitting import LipschitzQueries, allowed_by, sufficient
from dpjax.metric_privacy.guarantees import MetricGuarantee
from dpjax.metric_privacy.histograms import costs, counts_of, moderate, whole_histogram
from dpjax.metric_privacy.metric import Metric, finite
from dpjax.metric_privacy.scales import prepared, ratio, rounded_up

MOST_DATABASES = 200_000


def selection_guarantee(metric: Metric) -> MetricGuarantee:
    """Return the guarantee of one draw of :func:`metric_exponential` or :func:`linear_selection`.

    It is d, and d in range.

    >>> from dpjax.metric_privacy import from_budgets
    >>> cost = metric_exponential.guarantee(from_budgets([[0.0, 0.5], [0.5, 0.0]]))
    >>> print(cost)  # doctest: +NORMALIZE_WHITESPACE
    d-privacy on 2 elements with budgets 0.5, n public:
    0.5-DP under swap neighbors
    """
    return MetricGuarantee(metric, ranges=1)


@with_guarantee(selection_guarantee)
def metric_exponential(scores: ArrayLike, metric: Metric, *, sensitivity: ArrayLike) -> Finite:
    """Return the distribution P(candidate) proportional to exp(score / (2c)).

    c is the maximum over pairs of sensitivity(i, j) / d(i, j).

    Args:
        scores: float ``(..., R)``, higher is better. A score of ``-inf`` excludes a candidate; that
            must be public, the same for every dataset.
        metric: see :mod:`dpjax.metric_privacy`.
        sensitivity: float ``(N, N)``, public, the diagonal ignored: for a move from i to j,
            the largest change of any score, or half the largest difference of two scores' changes
            (which is never larger).

    Returns:
        A :class:`Finite` of the batch shape of the scores whose values are the indices 0..R-1 of
        candidates; uniform (except for excluded candidates)
        if a pair of budget 0 has a positive sensitivity, or in float32 one of a budget below 2^-16.
        A row is NaN if a score is NaN or ``+inf``, or all are ``-inf``; and if no protected pair
        changes any score: the scores are then as public as n is, and need no mechanism.

    Raises:
        ValueError: there are no candidates, or a sensitivity is negative.

    Privacy:
        d-private, and of bounded range d(i, j) too, under the relation of the metric. Public: the
        metric, the sensitivity, and n under swap.

    References:
        McSherry and Talwar (2007); Kamalaruban et al. (2020), Definition 9 and Theorem 3, with the
        sharper sensitivity.

    >>> from dpjax.metric_privacy import from_budgets
    >>> metric = from_budgets([[0.0, 0.5], [0.5, 0.0]])
    >>> distribution = metric_exponential([0.0, 2.0], metric, sensitivity=[[0.0, 1.0], [1.0, 0.0]])
    >>> bool(jnp.isclose(distribution.prob(1.0) / distribution.prob(0.0), jnp.exp(0.5), rtol=1e-4))
    True
    """
    points = checks.score_array(scores)
    if points.shape[-1:] in ((), (0,)):
        raise ValueError(f"scores must have a last axis of candidates, got shape {points.shape}.")
    checks.instance("metric", metric, Metric, "from_points, from_budgets, ...")
    change = finite("sensitivity", sensitivity, ("N", "N"))
    if change.shape != metric.budgets.shape or not np.all(change >= 0):
        raise ValueError(
            f"sensitivity must be finite and not negative, ({metric.size}, {metric.size}), got "
            f"shape {change.shape}."
        )
    change = np.maximum(change, change.T) * (1 - np.eye(metric.size))
    needed = _largest_ratio(change, metric.budgets, points.dtype)
    scale = rounded_up(needed * (1 + 2.0**-50), points.dtype)
    return _distribution(costs(jnp.asarray, points), scale)


@with_guarantee(selection_guarantee)
def linear_selection(x: ArrayLike, metric: Metric, *, weights: ArrayLike) -> Finite:
    """Return the distribution of the exponential mechanism with scores linear in a histogram.

    The score of candidate r is <w_r, x>:

        P(r) proportional to exp(<w_r, x> / (2c)),
        c = max over i, j of (max over r of g_r - min over r of g_r) / 2 / d(i, j)

    where g_r = w_rj - w_ri is the change by a move from i to j. c is rounded up, and at least
    sqrt(eps) times the largest |weight|: at that scale, the rounding of the scores of n records
    moves exponents by up to n 2^-26 in float64.

    Args:
        x: see :mod:`dpjax.metric_privacy`.
        metric: see :mod:`dpjax.metric_privacy`.
        weights: float ``(R, N)``, finite and public.

    Returns:
        A :class:`Finite` of the batch shape of the data whose values are the indices 0..R-1 of
        candidates. If no protected pair changes the scores' differences, the best candidate has all
        the probability, up to rounding. In float32 budgets below 2^-16 are smaller than the
        rounding, and make it uniform: enable float64 for them.

    Raises:
        ValueError: in float32 a weight is above 1e19.

    Privacy:
        As :func:`metric_exponential`. Public: the metric, the weights, and n under swap.

    References:
        Kamalaruban et al. (2020), Theorem 3.

    >>> from dpjax.metric_privacy import from_budgets
    >>> metric = from_budgets([[0.0, 1.0], [1.0, 0.0]])
    >>> weights = [[1.0, 0.0], [0.0, 1.0]]  # to select the commoner element
    >>> distribution = linear_selection([3.0, 1.0], metric, weights=weights)
    >>> bool(jnp.isclose(distribution.prob(0.0) / distribution.prob(1.0), jnp.exp(1.0), rtol=1e-4))
    True
    """
    values, budgets = prepared(weights, metric, "weights")
    counts = counts_of(x, metric.num_values)
    moderate("weights", values, counts.dtype)
    known = jnp.asarray(values.T[: metric.num_values], counts.dtype)
    scale = _scale(values, budgets, counts.dtype)
    return _distribution(costs(jnp.matmul, counts, known), scale)


def small_db_guarantee(queries: LipschitzQueries, metric: Metric) -> MetricGuarantee:
    """Return the guarantee of one draw of :func:`small_db`: d, and d in range.

    The metric must allow the queries at their scale.

    >>> from dpjax.metric_privacy.fitting import lipschitz_queries
    >>> from dpjax.metric_privacy import from_budgets
    >>> metric = from_budgets([[0.0, 2.0], [2.0, 0.0]])
    >>> cost = small_db.guarantee(lipschitz_queries([[0.0, 1.0]], metric), metric)
    >>> print(cost)  # doctest: +NORMALIZE_WHITESPACE
    d-privacy on 2 elements with budgets 2, n public:
    2-DP under swap neighbors
    """
    return selection_guarantee(allowed_by(queries, metric))


@with_guarantee(small_db_guarantee)
def small_db(
    x: ArrayLike, queries: LipschitzQueries, *, size: int, public_n: ArrayLike | None = None
) -> Finite:
    """Return the distribution of the small database mechanism over :func:`small_databases`.

    There may be at most 200,000 databases.

        P(y) proportional to exp(-max over q of |c q'(x) - (n/m) c q'(y)| / (2c))

    Args:
        x: see :mod:`dpjax.metric_privacy`.
        queries: the queries to answer and their scale c.
        size: m, the number of records of a small database, at least 1 (see :func:`small_db_size`).
        public_n: see :mod:`dpjax.metric_privacy`.

    Returns:
        A :class:`Finite` whose values are indices: ``small_databases(N,
        size)[distribution.sample_index(key)]`` is a database, and ``n/size`` times its answers are
        the answers to all queries. NaN if the scale of the queries is infinite.

    Raises:
        TypeError: ``x`` is float32 and the queries are float64.
        ValueError: ``public_n`` is needed and not given, or above 2 / eps, or there are too many
            databases.

    Privacy:
        d-private, under the relation of the metric of the queries. Public: the queries, c, the
        size, and n or its bound ``public_n``. In float32 the exponents of neighbors are rounded by
        up to 2^-16: use float64 if budgets are not much larger.

    References:
        Blum, Ligett and Roth (2008); Kamalaruban et al. (2020), Algorithm 1 and Theorem 5, with y
        scaled to n records.

    >>> from dpjax.metric_privacy.fitting import lipschitz_queries
    >>> from dpjax.metric_privacy import from_budgets
    >>> queries = lipschitz_queries([[0.0, 1.0]], from_budgets([[0.0, 2.0], [2.0, 0.0]]))
    >>> distribution = small_db([1.0, 9.0], queries, size=2)
    >>> [
    ...     round(float(p), 4) for p in distribution.probabilities()
    ... ]  # of 2, 1 and 0 records of the second kind
    [0.9523, 0.0474, 0.0003]
    """
    counts, public = whole_histogram(x, queries, public_n)
    parts = small_databases(queries.size, size), queries.values, queries.scale
    databases, values, scale = (jnp.asarray(part, public.dtype) for part in parts)
    cost = costs(_misses, counts, public, values, databases)
    return _distribution(cost, jnp.where(scale < jnp.inf, scale, jnp.nan))


def small_databases(num_elements: int, size: int) -> np.ndarray:
    """Return all databases of m = ``size`` records as counts, int64 ``(R, N)``, in order.

    The order is lexicographic.

    R = C(N + m - 1, m) is at most 200,000.

    Raises:
        ValueError: there are more.

    >>> small_databases(3, 2).tolist()
    [[0, 0, 2], [0, 1, 1], [0, 2, 0], [1, 0, 1], [1, 1, 0], [2, 0, 0]]
    """
    num_elements = checks.static_integer("num_elements", num_elements, 1)
    size = checks.static_integer("size", size, 1)
    count = comb(num_elements + size - 1, size)
    if count > MOST_DATABASES:
        raise ValueError(
            f"SmallDB enumerates all databases, at most {MOST_DATABASES} of them, got {count} "
            f"databases of {size} records of {num_elements} kinds: use a smaller size or universe, "
            "or mwem, which enumerates none."
        )
    chosen = combinations_with_replacement(range(num_elements), size)
    return np.array([np.bincount(records, minlength=num_elements) for records in chosen])[::-1]


def small_db_size(num_queries: int, *, alpha: float) -> int:
    """Return the number m of records with which a small database answers K queries within alpha n.

    It is sufficient for some database of that size:

        m = ceil(max(log K, log(2K)/2) / alpha^2)

    Two values of one query differ by at most 1; where they differ by at most s, alpha/s is in place
    of alpha. By Hoeffding's inequality, m records drawn from x miss some query by more than alpha n
    with probability below 1 if 2K exp(-2 m alpha^2) < 1. The paper's log K/alpha^2 (Theorem 9, from
    Dwork and Roth 2014, Theorem 4.2) suffices from K = 2 on; for one query it is 0.

    >>> small_db_size(10, alpha=0.5), small_db_size(1, alpha=0.5)
    (10, 2)
    """
    num_queries = checks.static_integer("num_queries", num_queries, 1)
    nats = max(log(num_queries), log(2 * num_queries) / 2)
    return max(1, ceil(nats / checks.concrete_positive("alpha", alpha) ** 2))


@jax.jit
def _distribution(cost: jax.Array, scale: ArrayLike) -> Finite:
    """Return the distribution of indices with P proportional to exp(-cost / (2 scale)).

    It is uniform for an infinite scale, and NaN for one of 0 or NaN.
    """
    scale = jnp.asarray(scale, cost.dtype)
    rate = 0.5 / jnp.where(scale > 0, scale, jnp.nan)
    return Finite(jnp.arange(cost.shape[-1], dtype=cost.dtype), cost, rate)


def _scale(weights: np.ndarray, budgets: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Return the scale of scores that are linear in a histogram, for weights in this dtype."""
    weights = weights.astype(dtype)
    most = reduce(np.maximum, (row - row[:, None] for row in weights.astype(np.float64)))
    least = -most.T  # a move back changes scores by as much
    # The rounding of a difference of two rounded differences is added to the scale.
    half_range = (most - least) / 2 + 2.0**-52 * (np.abs(most) + np.abs(least))
    return sufficient(_largest_ratio(half_range, budgets, dtype), weights)


def _largest_ratio(change: np.ndarray, budgets: np.ndarray, dtype: np.dtype) -> float:
    """Return the largest ratio to the budgets of two elements minus rounding."""
    left = np.maximum(budgets - 2.0**7 * np.finfo(dtype).eps, 0.0)
    return float(np.max(ratio(change, left)))


@jax.jit
def _misses(
    counts: jax.Array, total: jax.Array, values: jax.Array, databases: jax.Array
) -> jax.Array:
    """Return minus the largest miss of each database."""
    there = (total / jnp.sum(databases[0]))[..., None, None] * (databases @ values.T)
    return -jnp.max(jnp.abs((counts @ values.T)[..., None, :] - there), axis=-1)
