"""MWEM, d-private: a synthetic histogram by multiplicative weights.

It is Algorithm 2 of Kamalaruban et al. (2020). From y = n times the uniform distribution, T times:
draw a query with P(q) proportional to exp(|c q'(y) - c q'(x)| / (4cT)); measure m = c q'(x) +
Laplace noise of scale 2cT; multiply y_i by exp(c q'_i (m - c q'(y)) / (2n)) and normalize to n.

Privacy: with |q'_i - q'_j| <= d(i, j), moving a record from i to j changes each score, and the
measured value, by at most c d(i, j). The selection then costs d/(2T) (Theorem 3 at the scale 2cT)
and the measurement d/(2T); T rounds cost d (Theorem 7). All other steps only use the selected
queries, the measurements and n.

Algorithm 2 as printed multiplies by exp(q'_i (m - q'(y)) / (2n)), which mixes the scales of q' and
of m = c q'(x) + noise. That is private, but for c far from 1 it moves y away from x: in this
module's tests (12 elements, 15 queries, c = 0.2) ten rounds without noise take the largest error
from 0.29 n (uniform) to 0.56 n, and to 0.22 n with the update above. Theorem 8 also needs |c q'_i|
<= 1. The printed output is the average of y^0, ..., y^(T-1), which excludes the update of the last
round.
"""

from __future__ import annotations

from functools import partial
from math import prod
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from dpjax import checks
from dpjax.accounting.mechanism import with_guarantee
from dpjax.distributions.base import Shape, draws_shape
from dpjax.distributions.finite import Finite
from dpjax.metric_privacy.guarantees import MetricGuarantee
from dpjax.metric_privacy.histograms import below_best, evaluate, linear_answers, whole_histogram
from dpjax.metric_privacy.lipschitz import BEYOND_ONE, LipschitzQueries, allowed_by
from dpjax.metric_privacy.metrics import Metric
from dpjax.numerics.float64 import Exact, exactly
from dpjax.random import check_key
from dpjax.random.variates import uniforms

Output = Literal["average", "last"]
OUTPUTS = ("average", "last")


class _Problem(NamedTuple):
    """The common inputs of all runs; leading axes broadcast against ``(*shape, *batch)``."""

    values: jax.Array  # c Q', (..., K, N)
    answers: Exact  # c Q'(x), (..., K): the only use of the data, without rounding
    noise: jax.Array  # 2cT, the scale of the selection and of the noise of a round, (..., 1)
    total: jax.Array  # n, (..., 1)


def guarantee(queries: LipschitzQueries, metric: Metric) -> MetricGuarantee:
    """Return the guarantee of one draw of :func:`mwem`: d, and twice that in range.

    The metric must allow the queries at their scale. Half the budget is spent on selections, and
    half on Laplace noise. A round depends on the answers of those before it, so that the range of a
    selection, too, adds up to twice its budget.

    >>> from dpjax.metric_privacy.lipschitz import lipschitz_queries
    >>> from dpjax.metric_privacy.metrics import from_budgets
    >>> metric = from_budgets([[0.0, 2.0], [2.0, 0.0]])
    >>> cost = mwem.guarantee(lipschitz_queries([[0.0, 1.0]], metric), metric)
    >>> print(cost)  # doctest: +NORMALIZE_WHITESPACE
    d-privacy on 2 elements with budgets 2 to 2, n public:
    2-DP and 4-bounded-range under swap neighbors
    """
    return MetricGuarantee(allowed_by(queries, metric))


@with_guarantee(guarantee)
def mwem(
    key: jax.Array,
    x: ArrayLike,
    queries: LipschitzQueries,
    *,
    rounds: int,
    shape: Shape = (),
    output: Output = "average",
    passes: int = 1,
    public_n: ArrayLike | None = None,
) -> jax.Array:
    """Draw synthetic histograms by multiplicative weights and the exponential mechanism.

    Args:
        key: a scalar typed threefry key.
        x: see :mod:`dpjax.metric_privacy`.
        queries: the queries to answer and their scale c, with all values in [-1, 1] (as Theorem 8
            requires); their batch broadcasts against that of the data.
        rounds: T, at least 1, the number of queries that are selected and measured.
        shape: the shape of the draws for each dataset, an integer or a sequence of integers.
        output: ``"average"``, of y^0 to y^(T-1) as in the paper (and in Theorem 8; for T = 1 it is
            uniform), or ``"last"``, y^T, which is nearly always more accurate.
        passes: 1 is the paper's single update by each measurement. With more, each round continues
            with ``passes - 1`` updates by each measurement made so far (as Hardt, Ligett and
            McSherry do), at no cost in privacy. 10 with ``output="last"`` are a good start: on 3
            queries of 10 towns and 1001 records, with 10 rounds, the largest error is 29 rather
            than the paper's 196 (Laplace noise for just these queries: 2).
        public_n: see :mod:`dpjax.metric_privacy`.

    Returns:
        Float of shape ``(*shape, *batch, N)``, the null record last if the metric has it: each sums
        to n. ``queries.answers`` of it are the answers. NaN if the scale of the queries is infinite
        or a value is outside [-1, 1].

    Raises:
        ValueError: concrete queries all have a value outside [-1, 1].

    Privacy:
        d-private for each dataset and draw, under the relation of the metric of the queries; a
        shape of k draws costs k times that. Public: the queries, c, the options, and n or its bound
        ``public_n``. Float draws are simulations: the low-order bits of a measurement depend on the
        data (Mironov 2012). The noise reaches 45 nats. In float32 the exponents of a selection are
        rounded by up to 2^-16: use float64 if the budget of a round is not much larger.

    References:
        Hardt, Ligett and McSherry (2012); Kamalaruban et al. (2020), Algorithm 2 and Theorem 7,
        with an update of consistent scale.

    >>> from dpjax.metric_privacy.lipschitz import lipschitz_queries
    >>> from dpjax.metric_privacy.points import from_points
    >>> metric = from_points([[0.0], [1.0], [2.0]], epsilon=20.0)
    >>> queries = lipschitz_queries([[0.0, 0.5, 1.0], [1.0, 0.5, 1.0]], metric)
    >>> x = jnp.array([50.0, 0.0, 950.0])
    >>> y = mwem(jax.random.key(0), x, queries, rounds=20, output="last", passes=10)
    >>> round(float(y.sum())), bool((abs(queries.answers(y) - queries.answers(x)) < 20).all())
    (1000, True)
    """
    checks.one_of("output", output, OUTPUTS)
    rounds, passes = (
        checks.static_integer("rounds", rounds, 1),
        checks.static_integer("passes", passes, 1),
    )
    checks.instance("mwem", queries, LipschitzQueries, "lipschitz_queries(queries, metric)")
    concrete = queries.values.size > 0 and not checks.is_traced(queries.values)
    if concrete and np.all(np.max(np.abs(queries.values), axis=(-2, -1)) > 1):
        raise ValueError(BEYOND_ONE)
    counts, public = whole_histogram(x, queries.size, queries.neighbors, queries.dtype, public_n)
    return _run(check_key(key), counts, public, queries, rounds, draws_shape(shape), output, passes)


@partial(jax.jit, static_argnames=("rounds", "shape", "output", "passes"))
def _run(
    key: jax.Array,
    counts: Exact,
    total: jax.Array,
    queries: LipschitzQueries,
    rounds: int,
    shape: tuple[int, ...],
    output: Output,
    passes: int,
) -> jax.Array:
    batch = jnp.broadcast_shapes(counts.value.shape[:-1], total.shape, queries.batch_shape)
    size = queries.size
    if prod(shape + batch) == 0:
        return jnp.zeros((*shape, *batch, size), total.dtype)
    problem = _problem(counts, total, queries, rounds)
    past = (
        jnp.zeros((rounds, *batch, size), total.dtype),
        jnp.zeros((rounds, *batch, 1), total.dtype),
    )

    def histogram(log_y: jax.Array) -> jax.Array:
        return problem.total * jax.nn.softmax(log_y, axis=-1)

    def updated(log_y: jax.Array, query: jax.Array, measured: jax.Array) -> jax.Array:
        """Return the log-weights after a measurement, plus c q' (m - c q'(y)) / (2n)."""
        found = jnp.sum(query * histogram(log_y), axis=-1, keepdims=True)
        return log_y + query * (measured - found) / (
            2 * jnp.where(problem.total > 0, problem.total, 1.0)
        )

    def one_round(carry: tuple, at: tuple[jax.Array, jax.Array]) -> tuple[tuple, None]:
        log_y, sum_y, past = carry
        number, key = at
        key_query, key_noise = jax.random.split(key)
        y = histogram(log_y)
        chosen = _selection(problem, y).sample_index(key_query)
        query, measured = _measure(key_noise, problem, chosen)
        log_y = updated(log_y, query, measured)
        if passes > 1:
            past = tuple(
                seen.at[number].set(new) for seen, new in zip(past, (query, measured), strict=True)
            )

            def again(turn: jax.Array, log_y: jax.Array) -> jax.Array:
                index = turn % rounds
                made = index <= number
                return jnp.where(made, updated(log_y, past[0][index], past[1][index]), log_y)

            log_y = jax.lax.fori_loop(0, (passes - 1) * rounds, again, log_y)
        return (log_y, sum_y + y, past), None

    def run(key: jax.Array) -> jax.Array:
        zeros = jnp.zeros((*batch, size), total.dtype)
        start = (zeros, zeros, past if passes > 1 else ())
        each = jnp.arange(rounds), jax.random.split(key, rounds)
        (log_y, sum_y, _), _ = jax.lax.scan(one_round, start, each)
        return sum_y / rounds if output == "average" else histogram(log_y)

    found = jax.vmap(run)(jax.random.split(key, prod(shape)))
    return found.reshape(*shape, *batch, size)


@partial(jax.jit, static_argnames="rounds")
def _problem(counts: Exact, total: jax.Array, queries: LipschitzQueries, rounds: int) -> _Problem:
    dtype = counts.value.dtype
    values, scale = queries.values.astype(dtype), queries.scale.astype(dtype)[..., None]
    fits = (
        (jnp.max(jnp.abs(values), axis=(-2, -1))[..., None] <= 1) & (scale > 0) & (scale < jnp.inf)
    )
    noise = jnp.where(fits, 2 * rounds * scale, jnp.nan)
    return _Problem(values, linear_answers(values, counts), noise, total[..., None])


@jax.jit
def _selection(problem: _Problem, y: jax.Array) -> Finite:
    """Return the distribution of a query, with scores over 4cT minus the largest."""
    found = evaluate(problem.values, y)
    misses = exactly(lambda y, *x: jnp.abs(y - (x[0] + x[1])), found, *problem.answers)
    cost = below_best(misses) / (2 * problem.noise)
    return Finite(jnp.arange(cost.shape[-1], dtype=y.dtype), cost, jnp.ones((), y.dtype))


def _measure(key: jax.Array, problem: _Problem, chosen: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Return the chosen query ``(*runs, N)`` and its noisy answer."""
    key_size, key_sign = jax.random.split(key)
    shape, dtype = (*chosen.shape, 1), problem.values.dtype
    size = -jnp.log(uniforms(key_size, shape, dtype))
    noise = jax.random.rademacher(key_sign, shape, dtype) * size
    mark = jax.nn.one_hot(chosen, problem.values.shape[-2], dtype=problem.values.dtype)
    query = jnp.matmul(mark[..., None, :], problem.values, precision=jax.lax.Precision.HIGHEST)[
        ..., 0, :
    ]
    high, low = (
        jnp.sum(jnp.where(mark == 1, part, 0.0), axis=-1, keepdims=True) for part in problem.answers
    )
    return query, high + (low + problem.noise * noise)


def selection_distribution(
    x: ArrayLike,
    y: ArrayLike,
    queries: LipschitzQueries,
    *,
    rounds: int,
    public_n: ArrayLike | None = None,
) -> Finite:
    """Return the distribution of the query that a round of :func:`mwem` selects at y, for audits.

    Arguments are those of :func:`mwem`; y is a synthetic histogram, float ``(..., N)``, including
    the null record.

    >>> from dpjax.metric_privacy.lipschitz import LipschitzQueries
    >>> queries = LipschitzQueries(jnp.array([[0.0, 1.0], [1.0, 1.0]]), jnp.array(0.5))
    >>> distribution = selection_distribution([3.0, 1.0], [2.0, 2.0], queries, rounds=2)
    >>> ratio = distribution.prob(0.0) / distribution.prob(1.0)
    >>> round(float(jnp.log(ratio)), 4)  # |2 - 1| / (4 * 0.5 * 2)
    0.25
    """
    checks.instance(
        "selection_distribution", queries, LipschitzQueries, "lipschitz_queries(queries, metric)"
    )
    counts, public = whole_histogram(x, queries.size, queries.neighbors, queries.dtype, public_n)
    return _selection(_problem(counts, public, queries, rounds), jnp.asarray(y, public.dtype))
