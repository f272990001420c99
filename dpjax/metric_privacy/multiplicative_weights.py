"""MWEM, d-private (Kamalaruban et al. 2020, Algorithm 2): a synthetic histogram by multiplicative weights.

From y = n times the uniform distribution, T times: draw a query with P(q) proportional to exp(|c q'(y) - c q'(x)| / (4cT)); measure
m = c q'(x) + Laplace noise of scale 2cT; multiply y_i by exp(c q'_i (m - c q'(y)) / (2n)) and normalise to n.

Privacy: with |q'_i - q'_j| <= d(i, j), moving a record from i to j changes each score, and the measured value, by at most
c d(i, j). The selection then costs d/(2T) (Theorem 3 at the scale 2cT) and the measurement d/(2T); T rounds cost d (Theorem 7). All
else reads the selected queries, the measurements and n only.

Algorithm 2 as printed multiplies by exp(q'_i (m - q'(y)) / (2n)): the scales of q' and of m = c q'(x) + noise are mixed. That is
private, but for c far from 1 it moves y away from x: for 12 elements, 15 queries and c = 0.2 in this module's tests the largest
error goes from 0.29 n (uniform) to 0.56 n in ten rounds without noise, and to 0.22 n with the update above. Theorem 8 needs
|c q'_i| <= 1, besides. The printed output is the average of y^0, ..., y^(T-1), which leaves out what the last round has learnt.
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
from dpjax.distributions.finite import Finite
from dpjax.distributions.selection import gumbel_max
from dpjax.metric_privacy.guarantees import MetricGuarantee, times
from dpjax.metric_privacy.histograms import below_best, evaluate, linear_answers, whole_histogram
from dpjax.metric_privacy.lipschitz import LipschitzQueries, allowed_by
from dpjax.metric_privacy.metrics import Metric
from dpjax.metric_privacy.points import PointMetric
from dpjax.numerics.batching import align
from dpjax.numerics.double_float import Pair, single
from dpjax.numerics.two_words import Words
from dpjax.random.keys import check_key, fold_in, fold_in_range, row_words
from dpjax.random.noise import exponential_from_uniform, gumbel_from_uniform, uniform_from_words

Output = Literal["average", "last"]
OUTPUTS = ("average", "last")


class _Problem(NamedTuple):
    """One run for each of the leading axes ``(*shape, *batch)``; all fields are aligned to that rank.

    Attributes:
        values: c Q', ``(..., K, N)``.
        answers: c Q'(x), ``(..., K)``: the only trace of the data, and unrounded.
        scale: c, ``(..., 1)``.
        total: n, ``(..., 1)``.
    """

    values: jax.Array
    answers: Pair
    scale: jax.Array
    total: jax.Array


def mwem(
    key: jax.Array,
    x: ArrayLike,
    queries: LipschitzQueries,
    *,
    rounds: int,
    shape: tuple[int, ...] = (),
    output: Output = "average",
    passes: int = 1,
    total: ArrayLike | None = None,
) -> jax.Array:
    """Draw synthetic histograms by multiplicative weights and the exponential mechanism.

    Args:
        key: a scalar typed threefry key.
        x: counts ``(..., N)`` of the elements (without "nobody"); one that is negative, infinite or NaN counts as 0.
        queries: what to answer, and at which scale c (see :func:`lipschitz_queries` and :func:`fit_lipschitz_queries`), with all
            values in [-1, 1]; their batch broadcasts against that of the data.
        rounds: T, at least 1: how many queries are selected and measured.
        shape: the shape of the draws for each dataset.
        output: ``"average"``, of y^0 to y^(T-1) as in the paper (all that Theorem 8 speaks of; for T = 1 it is uniform), or
            ``"last"``, y^T, which is nearly always closer.
        passes: how often a round goes over measurements: 1 is the paper's update with its own; with more, each round goes on with
            ``passes - 1`` updates by each measurement made so far (as Hardt, Ligett and McSherry do). It costs no privacy, and 10
            with ``output="last"`` are a better start than the paper's: on 3 queries of 10 towns and 1001 records, with 10 rounds, a
            largest error of 29 in place of 196 (Laplace noise for just these queries: 2).
        total: n, positive and public, ``(...)``. Under add/remove it is required: an upper bound on the number of records, the
            rest of which are "nobody". Under swap the counts are added up.

    Returns:
        Float of shape ``(*shape, *batch, N)``, "nobody" last if the metric has it: each sums to n. ``queries.answers`` of it are
        the answers. NaN where the scale of the queries is infinite or a value is outside [-1, 1] (Theorem 8 needs it: divide all
        queries by their largest |value|, and multiply the answers).

    Raises:
        TypeError: ``key`` is not a typed key, or not real numbers.
        ValueError: another kind of key, bad ``rounds``, ``passes`` or ``total``, an unknown ``output``, or a number of elements
            that is not that of the queries.

    Privacy:
        d-private for each dataset and draw, under the relation of the metric of the queries: swap, with n public, or add/remove
        with "nobody" as an element of the universe, and with the total public. A shape of k draws costs k times that. Public: the
        queries, c and the options. Float draws are simulations: the low-order bits of a measurement depend on the data (Mironov
        2012). The noise reaches 45 nats.

    References:
        Hardt, Ligett and McSherry (2012); Kamalaruban, Perrier, Asghar and Kaafar (2020), Algorithm 2 and Theorem 7, repaired: the
        update has one scale.

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
    rounds, passes = checks.static_integer("rounds", rounds, 1), checks.static_integer("passes", passes, 1)
    checks.instance("mwem", queries, LipschitzQueries, "lipschitz_queries(queries, metric)")
    counts, public = whole_histogram(x, queries.size, queries.neighbors, queries.dtype, total)
    return _run(check_key(key), counts, public, queries, rounds, tuple(shape), output, passes)


def guarantee(queries: LipschitzQueries, metric: Metric | PointMetric) -> MetricGuarantee:
    """Return what one draw of :func:`mwem` costs, after a look whether the metric allows the queries at their scale.

    Args:
        queries: those of the draw, concrete and without a batch.
        metric: budgets of the universe.

    Returns:
        A :class:`MetricGuarantee`. Its ranges are 3/2 of the budgets: half a budget goes to selections, whose range is no larger,
        and half to Laplace noise, whose range is twice that.

    Raises:
        TypeError: traced arguments.
        ValueError: queries that differ by more than c d(i, j) somewhere; a batch; another universe.

    >>> from dpjax.metric_privacy.lipschitz import lipschitz_queries
    >>> from dpjax.metric_privacy.metrics import from_budgets
    >>> metric = from_budgets([[0.0, 2.0], [2.0, 0.0]])
    >>> print(guarantee(lipschitz_queries([[0.0, 1.0]], metric), metric))
    d-privacy on 2 elements with budgets 2 to 2, n public: 2-DP and 3-bounded-range under swap neighbors
    """
    whole = allowed_by(queries, metric)
    return MetricGuarantee(whole, ranges=times(whole, 1.5))


@partial(jax.jit, static_argnames=("rounds", "shape", "output", "passes"))
def _run(
    key: jax.Array,
    counts: Pair,
    total: jax.Array,
    queries: LipschitzQueries,
    rounds: int,
    shape: tuple[int, ...],
    output: Output,
    passes: int,
) -> jax.Array:
    batch = jnp.broadcast_shapes(counts.high.shape[:-1], total.shape, queries.batch_shape)
    runs, size = shape + batch, queries.size
    if prod(runs) == 0:
        return jnp.zeros((*runs, size), total.dtype)
    problem = _problem(counts, total, queries, len(runs))
    keys = row_words(key, runs)
    log_y = jnp.zeros((*runs, size), total.dtype)
    past = (jnp.zeros((rounds, *runs, size), total.dtype), jnp.zeros((rounds, *runs, 1), total.dtype))

    def one_round(carry: tuple, number: jax.Array) -> tuple[tuple, None]:
        log_y, sum_y, past = carry
        y = problem.total * jax.nn.softmax(log_y, axis=-1)
        words = fold_in_range(fold_in(keys, jnp.broadcast_to(number, keys.high.shape)), queries.num_queries + 2)
        chosen = _select(words, problem, y, rounds)
        query, measured = _measure(words, problem, chosen, rounds)
        log_y = log_y + _step(query, measured, y, problem.total)
        if passes > 1:
            past = tuple(seen.at[number].set(new) for seen, new in zip(past, (query, measured), strict=True))
            log_y = jax.lax.fori_loop(0, (passes - 1) * rounds, partial(_again, problem, past, number, rounds), log_y)
        return (log_y, sum_y + y, past), None

    start = (log_y, jnp.zeros_like(log_y), past if passes > 1 else ())
    (log_y, sum_y, _), _ = jax.lax.scan(one_round, start, jnp.arange(rounds, dtype=jnp.uint32))
    return sum_y / rounds if output == "average" else problem.total * jax.nn.softmax(log_y, axis=-1)


def _problem(counts: Pair, total: jax.Array, queries: LipschitzQueries, rank: int) -> _Problem:
    dtype = counts.high.dtype
    values, scale = align(queries.values.astype(dtype), rank + 2), align(queries.scale.astype(dtype), rank)[..., None]
    fits = (jnp.max(jnp.abs(values), axis=(-2, -1))[..., None] <= 1) & (scale > 0) & (scale < jnp.inf)
    answers = linear_answers(values, Pair(*(align(part, rank + 1) for part in counts)))
    return _Problem(values, answers, jnp.where(fits, scale, jnp.nan), align(total, rank)[..., None])


def _exponents(problem: _Problem, y: jax.Array, rounds: int) -> jax.Array:
    """The logarithm of the selection's weights, ``(*runs, K)``: scores over 4cT, less the largest."""
    misses = abs(single(evaluate(problem.values, y)).minus(problem.answers))
    return -below_best(misses) / (4 * rounds * problem.scale)


def _select(words: Words, problem: _Problem, y: jax.Array, rounds: int) -> jax.Array:
    """The index of a query, by the first K of a round's K + 2 words."""
    gumbels = gumbel_from_uniform(uniform_from_words(Words(*(word[..., :-2] for word in words)), y.dtype))
    return gumbel_max(jnp.broadcast_to(_exponents(problem, y, rounds), gumbels.shape), gumbels)


def _measure(words: Words, problem: _Problem, chosen: jax.Array, rounds: int) -> tuple[jax.Array, jax.Array]:
    """The chosen query, ``(*runs, N)``, and its noisy answer, ``(*runs, 1)``, by the last two words of a round."""
    size = exponential_from_uniform(uniform_from_words(Words(*(word[..., -2:-1] for word in words)), problem.values.dtype))
    noise = jnp.where(words.high[..., -1:] >> 31 == 1, size, -size)
    mark = jax.nn.one_hot(chosen, problem.values.shape[-2], dtype=problem.values.dtype)
    query = jnp.matmul(mark[..., None, :], problem.values, precision=jax.lax.Precision.HIGHEST)[..., 0, :]
    high, low = (jnp.sum(jnp.where(mark == 1, part, 0.0), axis=-1, keepdims=True) for part in problem.answers)
    return query, high + (low + 2 * rounds * problem.scale * noise)


def _step(query: jax.Array, measured: jax.Array, y: jax.Array, total: jax.Array) -> jax.Array:
    """What a measurement adds to the log-weights: c q' (m - c q'(y)) / (2n)."""
    found = jnp.sum(query * y, axis=-1, keepdims=True)
    return query * (measured - found) / (2 * jnp.where(total > 0, total, 1.0))


def _again(
    problem: _Problem, past: tuple[jax.Array, jax.Array], number: jax.Array, rounds: int, turn: jax.Array, log_y: jax.Array
) -> jax.Array:
    """One more update by a past measurement; none by those that have not been made yet."""
    index = turn % rounds
    y = problem.total * jax.nn.softmax(log_y, axis=-1)
    added = _step(past[0][index], past[1][index], y, problem.total)
    return jnp.where(index <= number.astype(index.dtype), log_y + added, log_y)


def selection_law(x: ArrayLike, y: ArrayLike, queries: LipschitzQueries, *, rounds: int, total: ArrayLike | None = None) -> Finite:
    """Return the law of the query that a round of :func:`mwem` selects from the synthetic histogram y, for audits.

    Args:
        x: counts ``(..., N)``, as for :func:`mwem`.
        y: float ``(..., N)``, "nobody" included.
        queries: as for :func:`mwem`.
        rounds: T, at least 1.
        total: as for :func:`mwem`.

    Returns:
        A :class:`Finite` on the indices of the queries.

    >>> from dpjax.metric_privacy.lipschitz import LipschitzQueries
    >>> queries = LipschitzQueries(jnp.array([[0.0, 1.0], [1.0, 1.0]]), jnp.array(0.5))
    >>> law = selection_law([3.0, 1.0], [2.0, 2.0], queries, rounds=2)
    >>> round(float(jnp.log(law.prob(0.0) / law.prob(1.0))), 4)  # |2 - 1| / (4 * 0.5 * 2)
    0.25
    """
    checks.instance("selection_law", queries, LipschitzQueries, "lipschitz_queries(queries, metric)")
    counts, public = whole_histogram(x, queries.size, queries.neighbors, queries.dtype, total)
    rank = max(counts.high.ndim - 1, public.ndim, len(queries.batch_shape), np.ndim(y) - 1)
    exponents = _exponents(_problem(counts, public, queries, rank), align(jnp.asarray(y, public.dtype), rank + 1), rounds)
    return Finite(jnp.arange(queries.num_queries, dtype=public.dtype), -exponents, jnp.ones((), public.dtype))
