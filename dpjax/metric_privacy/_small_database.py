"""SmallDB: one small database drawn by the d-private exponential mechanism.

It is Algorithm 1 of Kamalaruban et al. (2020):

    P(y) proportional to exp(-max over q of |c q'(x) - (n/m) c q'(y)| / (2c))

over all databases y of m records.

Privacy: moving a record from i to j changes the score by at most c max |q'_i - q'_j| <= c d(i, j)
(Theorem 5).

Algorithm 1 as printed compares q'(x), a sum over n records, with q'(y), a sum over m of them. That
is private, but inaccurate for n far from m: in this module's tests (n = 4, m = 2, three elements,
three queries) its expected error is 2.67, and 1.92 with y scaled to n records, as here. The size
log|Q|/alpha^2 is rounded up.
"""

from __future__ import annotations

from itertools import combinations_with_replacement
from math import ceil, comb, log

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from dpjax import checks
from dpjax.accounting.mechanism import with_guarantee
from dpjax.distributions.finite import Finite
from dpjax.metric_privacy.guarantees import MetricGuarantee
from dpjax.metric_privacy.histograms import below_best, evaluate, linear_answers, whole_histogram
from dpjax.metric_privacy.lipschitz import LipschitzQueries, allowed_by
from dpjax.metric_privacy.metrics import Metric
from dpjax.numerics.float64 import Exact, exactly

MOST_DATABASES = 200_000


def guarantee(queries: LipschitzQueries, metric: Metric) -> MetricGuarantee:
    """Return the guarantee of one draw of :func:`small_db`: d, and d in range.

    The metric must allow the queries at their scale.

    >>> from dpjax.metric_privacy.lipschitz import lipschitz_queries
    >>> from dpjax.metric_privacy.metrics import from_budgets
    >>> metric = from_budgets([[0.0, 2.0], [2.0, 0.0]])
    >>> cost = small_db.guarantee(lipschitz_queries([[0.0, 1.0]], metric), metric)
    >>> print(cost)  # doctest: +NORMALIZE_WHITESPACE
    d-privacy on 2 elements with budgets 2 to 2, n public:
    2-DP and 2-bounded-range under swap neighbors
    """
    allowed = allowed_by(queries, metric)
    return MetricGuarantee(allowed, ranges=allowed)


@with_guarantee(guarantee)
def small_db(
    x: ArrayLike, queries: LipschitzQueries, *, size: int, public_n: ArrayLike | None = None
) -> Finite:
    """Return the distribution of the small database mechanism over :func:`small_databases`.

    There may be at most 200,000 databases.

        P(y) proportional to exp(-max over q of |c q'(x) - (n/m) c q'(y)| / (2c))

    Args:
        x: see :mod:`dpjax.metric_privacy`.
        queries: the queries to answer and their scale c; their batch broadcasts against that of the
            data.
        size: m, the number of records of a small database, at least 1 (see :func:`small_db_size`).
        public_n: see :mod:`dpjax.metric_privacy`.

    Returns:
        A :class:`Finite` whose values are indices: ``small_databases(N,
        size)[distribution.sample_index(key)]`` is a database, and ``n/size`` times its answers are
        the answers to all queries. NaN if the scale of the queries is infinite.

    Privacy:
        d-private, under the relation of the metric of the queries. Public: the queries, c, the
        size, and n or its bound ``public_n``. In float32 the exponents of neighbors are rounded by
        up to 2^-16: use float64 if budgets are not much larger.

    References:
        Blum, Ligett and Roth (2008); Kamalaruban et al. (2020), Algorithm 1 and Theorem 5, with y
        scaled to n records.

    >>> from dpjax.metric_privacy.lipschitz import lipschitz_queries
    >>> from dpjax.metric_privacy.metrics import from_budgets
    >>> queries = lipschitz_queries([[0.0, 1.0]], from_budgets([[0.0, 2.0], [2.0, 0.0]]))
    >>> distribution = small_db([1.0, 9.0], queries, size=2)
    >>> [
    ...     round(float(p), 4) for p in distribution.probabilities()
    ... ]  # of 2, 1 and 0 records of the second kind
    [0.9523, 0.0474, 0.0003]
    """
    checks.instance("small_db", queries, LipschitzQueries, "lipschitz_queries(queries, metric)")
    databases = small_databases(queries.size, size)
    counts, public = whole_histogram(x, queries.size, queries.neighbors, queries.dtype, public_n)
    return _distribution(
        counts,
        public,
        queries,
        jnp.asarray(databases, public.dtype),
        jnp.asarray(size, public.dtype),
    )


def small_databases(num_elements: int, size: int) -> np.ndarray:
    """Return all databases of m = ``size`` records as counts, int64 ``(R, N)``, in order.

    The order is lexicographic.

    R = C(N + m - 1, m) is at most 200,000.

    >>> small_databases(3, 2).tolist()
    [[0, 0, 2], [0, 1, 1], [0, 2, 0], [1, 0, 1], [1, 1, 0], [2, 0, 0]]
    """
    num_elements, size = (
        checks.static_integer("num_elements", num_elements, 1),
        checks.static_integer("size", size, 1),
    )
    count = comb(num_elements + size - 1, size)
    if count > MOST_DATABASES:
        raise ValueError(
            f"SmallDB enumerates all databases, at most {MOST_DATABASES} of them, got {count} "
            f"databases of {size} records of {num_elements} kinds: use a smaller size or universe, "
            "or mwem, which enumerates none."
        )
    chosen = np.array(list(combinations_with_replacement(range(num_elements), size)))[::-1]
    found = np.zeros((count, num_elements), np.int64)
    np.add.at(found, (np.arange(count)[:, None], chosen), 1)
    return found


def small_db_size(num_queries: int, *, alpha: float, spread: float = 1.0) -> int:
    """Return the number m of records with which a small database answers K queries within alpha n.

    It is sufficient for some database of that size:

        m = ceil(max(log K, log(2K)/2) spread^2 / alpha^2)

    By Hoeffding's inequality, m records drawn from x miss some query by more than alpha n with
    probability below 1 if 2K exp(-2 m alpha^2 / spread^2) < 1, where ``spread`` is the largest
    difference between two values of one query. The paper's log K/alpha^2 (Theorem 9, from Dwork and
    Roth 2014, Theorem 4.2) suffices from K = 2 on; for one query it is 0.

    >>> small_db_size(10, alpha=0.5), small_db_size(1, alpha=0.5)
    (10, 2)
    """
    num_queries = checks.static_integer("num_queries", num_queries, 1)
    alpha, spread = (
        checks.concrete_positive("alpha", alpha),
        checks.concrete_positive("spread", spread),
    )
    return max(1, ceil(max(log(num_queries), log(2 * num_queries) / 2) * (spread / alpha) ** 2))


@jax.jit
def _distribution(
    counts: Exact,
    total: jax.Array,
    queries: LipschitzQueries,
    databases: jax.Array,
    size: jax.Array,
) -> Finite:
    dtype = counts.value.dtype
    values, scale = queries.values.astype(dtype), queries.scale.astype(dtype)
    of_data = linear_answers(values, counts)
    weight = total[..., None] / size

    # One query at a time: only the largest miss of each database, (..., R), is stored.
    def worse(miss: Exact, query: tuple[jax.Array, Exact]) -> tuple[Exact, None]:
        value, answer = query
        there = weight * evaluate(databases, value)
        return exactly(_larger_miss, *miss, there, *(part[..., None] for part in answer)), None

    batch = jnp.broadcast_shapes(of_data.value.shape[:-1], total.shape)
    start = Exact(*2 * [jnp.zeros((*batch, databases.shape[0]), dtype)])
    answers = jax.tree.map(lambda part: jnp.moveaxis(part, -1, 0), of_data)
    miss, _ = jax.lax.scan(worse, start, (jnp.moveaxis(values, -2, 0), answers))
    ok = (scale > 0) & (scale < jnp.inf)
    rate = jnp.where(ok, 1 / (2 * jnp.where(ok, scale, 1.0)), jnp.nan)
    return Finite(
        jnp.arange(databases.shape[0], dtype=dtype),
        below_best(Exact(-miss.value, -miss.rest)),
        rate,
    )


def _larger_miss(
    miss: jax.Array, miss_rest: jax.Array, there: jax.Array, answer: jax.Array, rest: jax.Array
) -> jax.Array:
    return jnp.maximum(miss + miss_rest, jnp.abs(answer + rest - there))
