"""Other queries for less noise: problems (6), (8), (13) and (14) of Kamalaruban et al. (2020).

A mechanism may answer G x in place of Q x. The budgets constrain G only, and a G whose values lie
closer together where the universe is dense needs less noise, for a bias of at most n |G - Q|. In
the paper's notation G = c Q'.

*One query, or one scale for all.* The function nearest to q in the sup norm whose differences are
at most c d is the mean of two envelopes (McShane 1934),

    min over j of q_j + c d(i, j)   and   max over j of q_j - c d(i, j),

with d replaced by its shortest paths. It misses q by E(c)/2, for the largest excess E(c) = max over
pairs of (|q_i - q_j| - c d(i, j))+: both envelopes are within E(c) of q, on opposite sides; and no
function is closer, because |q_i - q_j| - c d(i, j) is at most its error at i plus its error at j. E
is convex and piecewise linear, so that its corners, and of squares the lowest points of the
parabolas between them, are all that has to be searched: the optimum is global.

*Several queries* share the budget of each pair. With given shares each is a problem of its own;
from its solution, the optimal scales tell which shares are used, and the rest is shared equally.
A constant added to a query needs no noise, and balances the errors of all at the worst element.

Everything here reads public numbers only, in float64. For ``queries``, ``metric`` and
``num_records`` see :mod:`dpjax.metric_privacy`.
"""

from __future__ import annotations

from dataclasses import field
from functools import reduce
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
from jax.typing import ArrayLike

from dpjax import checks
from dpjax.checks import Neighbors
from dpjax.metric_privacy.metric import Metric, finite, on_one_universe
from dpjax.metric_privacy.scales import prepared, ratio, rounded_up, smallest_scales
from dpjax.pytrees import pytree

Loss = Literal["squared", "absolute"]


class FittedQueries(NamedTuple):
    """Queries to answer in place of others, with their noise scales.

    Attributes:
        queries: float64 ``(K, N)``: G, c * Q' in the paper.
        scales: float64 ``(K,)``: c.
        objective: the error that was minimized.

    >>> from dpjax.metric_privacy import from_points
    >>> metric = from_points([[0.0], [0.1], [5.0]], epsilon=0.2)
    >>> fit = fit_queries([[0.0, 1.0, 2.0]], metric, num_records=10.0)
    >>> fit.queries.shape, fit.scales.shape
    ((1, 3), (1,))
    """

    queries: np.ndarray
    scales: np.ndarray
    objective: float


@pytree
class LipschitzQueries:
    """K linear queries c Q' whose values differ by at most c d(i, j) between i and j, with c.

    A pytree, returned by :func:`lipschitz_queries` and :func:`fit_lipschitz_queries`.

    Attributes:
        values: ``(K, N)``, c Q', which the mechanisms answer, in JAX's default float. With the null
            record in the metric, it is the last element. The answers at histograms y ``(..., N)``
            are ``y @ values.T``.
        scale: c.
        neighbors: static, the neighbor relation of the metric.

    >>> from dpjax.metric_privacy import from_budgets
    >>> queries = lipschitz_queries([[0.0, 3.0]], from_budgets([[0.0, 2.0], [2.0, 0.0]]))
    >>> round(float(queries.scale), 4), queries.size
    (1.5, 2)
    """

    values: Any
    scale: Any
    neighbors: Neighbors = field(default="swap", metadata={"static": True})

    @property
    def size(self) -> int:
        """The number of elements of the universe, including the null record."""
        return self.values.shape[-1]


def fit_queries(
    queries: ArrayLike, metric: Metric, *, num_records: float, loss: Loss = "squared"
) -> FittedQueries:
    """Return queries G and scales c with a small error of G x + Lap(c) for Q x.

    With n records, the largest mean error over all their histograms x, where R = G - Q:

        "squared"   n^2 max_u ||R_u||_2^2 + 2 ||c||_2^2   exactly
        "absolute"  n max_u ||R_u||_1 + ||c||_1           an upper bound

    Args:
        queries: see :mod:`dpjax.metric_privacy`.
        metric: without the null record.
        num_records: n or a public bound of it.
        loss: ``"squared"`` or ``"absolute"``.

    Returns:
        :class:`FittedQueries`, within the budgets in exact arithmetic and never worse than G = Q.
        It is the global optimum for K = 1 and a local one for more. Queries that differ on elements
        of budget 0 are replaced by the middle of their values there.

    Raises:
        ValueError: the metric has the null record.

    Privacy:
        ``metric_laplace(x, fit.queries, metric, scales=fit.scales)`` is d-private under swap
        neighbors, for any fit.

    References:
        Kamalaruban et al. (2020), equation (6) and Appendix B, with the errors of the worst element
        (which Theorem 2 replaces by a sum over all elements) and of noise of mean 0.

    >>> from dpjax.metric_privacy import from_points
    >>> metric = from_points([[0.0], [0.1], [5.0]], epsilon=0.2)
    >>> fit = fit_queries([[0.0, 1.0, 2.0]], metric, num_records=10.0, loss="absolute")
    >>> fit.scales.round(2).tolist(), round(fit.objective, 2)  # 50 for the queries as asked
    ([1.02], 5.92)
    """
    checks.one_of("loss", loss, get_args(Loss))
    n = checks.concrete_positive("num_records", num_records)
    values, budgets = prepared(queries, metric)
    if metric.neighbors != "swap":
        raise ValueError(
            "fitting needs a public number of records: pass a metric without the null record."
        )
    count, power = len(values), 2 if loss == "squared" else 1

    def fitted(g: np.ndarray) -> FittedQueries:
        c = smallest_scales(g, budgets, power).scales
        worst = np.max(np.sum((n * np.abs(g - values)) ** power, axis=0))
        return FittedQueries(g, c, float(worst + power * np.sum(c**power)))

    # Elements with a budget of 0 between them are one element
    one = np.where(metric.closure().budgets == 0, 0.0, np.inf)
    best, shares = fitted(_nearest(values, 1.0, one)), np.tile(budgets / count, (count, 1, 1))
    for _ in range(4):
        g = np.array([_alone(*pair, n, power) for pair in zip(values, shares, strict=True)])
        # Shorter and shorter steps to the center of all errors (Badoiu and Clarkson 2003)
        for step in range(200 * (count > 1)):
            off = g - values
            far = np.argmax(np.sum(np.abs(off) ** power, axis=0))
            g = g - off[:, [far]] / (step + 2)
        found = fitted(g)
        best = min(best, found, key=lambda fit: fit.objective)
        used = ratio(_apart(found.queries), found.scales[:, None, None])
        used = np.where(budgets < np.inf, used, 0.0)
        shares = used + np.maximum(budgets - used.sum(axis=0), 0.0) / count
    return best


def fit_statistics(
    values: ArrayLike, metric: Metric, *, num_records: float, loss: Loss = "squared"
) -> FittedQueries:
    """Return the transformed universe of problem (13): queries G and scales c for statistics.

    A statistic is the mean over records of a function of one record, q(x) = (1/n) sum_i q(x_i): the
    linear query with the value q(u)/n at each element u. The paper maps each u to another u':

        minimize  max_u ||c * q(u') - q(u)||_2^2 + 2 ||c||^2
        where     ||q(u') - q(v')||_1 <= n d(u, v)

    and the corresponding problem of absolute errors (Theorem 11), by :func:`fit_queries`, which
    explains the arguments; ``values`` are q(u), float ``(K, N)``, the K statistics of each element
    of the universe.

    Returns:
        :class:`FittedQueries` to answer from a histogram: ``queries`` is c * q(u') / n, so that
        q(u') = n * queries / c.

    Privacy:
        ``metric_laplace(histogram, fit.queries, metric, scales=fit.scales)`` is d-private under
        swap neighbors.

    References:
        Kamalaruban et al. (2020), Appendix C, Theorem 10 and equation (13).

    >>> from dpjax.metric_privacy import from_points
    >>> metric = from_points([[0.0], [0.1], [5.0]], epsilon=1.0)
    >>> fit_statistics([[0.0, 1.0, 2.0]], metric, num_records=2.0).objective < 0.8
    True
    """
    n = checks.concrete_positive("num_records", num_records)
    return fit_queries(finite("values", values, ("K", "N")) / n, metric, num_records=n, loss=loss)


def fit_marginals(values: ArrayLike, metric: Metric, *, num_records: float) -> FittedQueries:
    """Return the values and the noise of problem (14), for the mean of one attribute.

        minimize  max_u |c u' - u| + c   where   |u' - v'| <= n d(u, v)

    Where the metric is a sum over attributes, the mean of each is such a problem on its values, and
    (13) with one statistic and absolute errors. The result is the global optimum.

    Args:
        values: float ``(N,)``, the value of each element of one attribute's universe.
        metric: on these N elements.
        num_records: n, positive.

    Returns:
        :class:`FittedQueries` of one query, as :func:`fit_statistics`: ``num_records * queries[0]``
        are the values c u' to average in place of the given ones.

    Privacy:
        All attributes together are d-private under swap neighbors for the sum of their metrics,
        d(u, v) = sum_i d_i(u_i, v_i): :func:`dpjax.metric_privacy.product` is that metric.

    >>> from dpjax.metric_privacy import from_points
    >>> metric = from_points([[0.0], [0.1], [5.0]], epsilon=1.0)
    >>> fit = fit_marginals([0.0, 1.0, 2.0], metric, num_records=4.0)
    >>> (
    ...     (4 * fit.queries[0]).round(3).tolist(),
    ...     fit.scales.round(3).tolist(),
    ...     round(fit.objective, 3),
    ... )
    ([0.49, 0.51, 1.51], [0.051], 0.541)
    """
    given = finite("values", values, ("N",))[None]
    return fit_statistics(given, metric, num_records=num_records, loss="absolute")


def lipschitz_queries(
    queries: ArrayLike, metric: Metric, *, scale: float | None = None
) -> LipschitzQueries:
    """Return the queries with the smallest scale c that allows them, or the nearest ones for one c.

    The smallest scale is c = max over queries and pairs of |q_i - q_j| / d(i, j). For a given c the
    queries nearest in the sup norm are the mean of two envelopes, with the shortest paths of d: the
    mismatch of each query is half its largest excess |q_i - q_j| - c d(i, j), and its values stay
    between its least and its largest.

    The scale is rounded up, and never below sqrt(eps) times the largest |value|: at a scale of 0,
    which queries constant on every protected pair would have, rounding would decide what is drawn.
    It is infinite where a query differs on a pair of budget 0; then mechanisms return NaN, and a
    given scale or :func:`fit_lipschitz_queries` finds other queries.

    Args:
        queries: see :mod:`dpjax.metric_privacy`.
        metric: see :mod:`dpjax.metric_privacy`.
        scale: c, positive.

    References:
        McShane (1934); Kamalaruban et al. (2020), Theorem 5 and Section 4.1, and problem (8) for a
        given c.

    >>> from dpjax.metric_privacy import from_budgets
    >>> metric = from_budgets([[0, 1, 4], [1, 0, 4], [4, 4, 0]])
    >>> round(float(lipschitz_queries([[0.0, 1.0, 2.0], [1.0, 1.0, 0.0]], metric).scale), 6)
    1.0
    >>> lipschitz_queries([[0.0, 1.0, 2.0]], metric, scale=0.5).values.tolist()
    [[0.25, 0.75, 2.0]]
    """
    values = prepared(queries, metric)[0]
    if scale is None:
        return _promised(values, metric, 0.0)
    c = checks.concrete_positive("scale", scale)
    return _promised(_nearest(values, c, metric.closure().budgets), metric, c)


def fit_lipschitz_queries(
    queries: ArrayLike, metric: Metric, *, num_records: float, price: float
) -> LipschitzQueries:
    """Return the queries and the scale that minimize the error bound of a mechanism.

    It is the exact solution of problem (8) of Kamalaruban et al. (2020):

        minimize   n max over q of |q - c q'| + price * (c n^2)^(1/3)
        over       c >= 0 and |q'_i - q'_j| <= d(i, j)

    The bound is concave between the corners of E(c), so it is smallest at one of them. Where no c
    is worth its price (few records), the queries are constant on every protected pair, and the
    scale is the smallest one allowed (see :func:`lipschitz_queries`).

    Args:
        queries: see :mod:`dpjax.metric_privacy`; for MWEM within [-1, 1].
        metric: see :mod:`dpjax.metric_privacy`.
        num_records: see :mod:`dpjax.metric_privacy`.
        price: nonnegative. For SmallDB it is what ``bounds.metric.small_db_bound(1, scale=1, ...)``
            returns (Theorem 6), for MWEM 20/5^(2/3) (log N log K)^(1/3) (Theorem 8, except with
            probability 2T/K). The factor of Theorem 8 is far above the errors seen in practice:
            with it the best queries for a thousand records are often constant, where MWEM with the
            closed form would answer well.

    References:
        Kamalaruban et al. (2020), problem (8) in Sections 3.3 and 3.4, and Appendix B, which leaves
        it to local search.

    >>> from dpjax.bounds.metric import small_db_bound
    >>> from dpjax.metric_privacy import from_budgets
    >>> metric = from_budgets([[0.0, 0.01, 1.0], [0.01, 0.0, 1.0], [1.0, 1.0, 0.0]])
    >>> price = small_db_bound(1, num_elements=3, num_queries=1, scale=1, failure=0.05)
    >>> fitted = fit_lipschitz_queries([[0.0, 0.1, 1.0]], metric, num_records=1000, price=price)
    >>> round(float(fitted.scale), 4), [round(float(v), 4) for v in fitted.values[0]]
    (0.9091, [0.0455, 0.0545, 0.9545])
    """
    values, n = prepared(queries, metric)[0], checks.concrete_positive("num_records", num_records)
    price, closed = checks.concrete_nonnegative("price", price), metric.closure().budgets
    c, excess = _corners(_largest_changes(values), closed)
    best = c[np.argmin(n * excess / 2 + price * np.cbrt(c * n**2))]
    return _promised(_nearest(values, best, closed), metric, best)


def allowed_by(queries: LipschitzQueries, metric: Metric) -> Metric:
    """Return the metric for a guarantee, or raise if it does not allow the queries."""
    on_one_universe("queries and metric", queries, metric)
    changes = _largest_changes(finite("queries", queries.values, ("K", "N")))
    excess = np.max(ratio(changes, metric.budgets)) / float(queries.scale)
    if not excess <= 1:
        raise ValueError(f"queries must differ by at most c d(i, j), got {excess:g} times that.")
    return metric


def _promised(values: np.ndarray, metric: Metric, scale: float) -> LipschitzQueries:
    """Return queries of JAX's default float with a scale that these rounded ones need."""
    values = values.astype(checks.float_dtype())
    needed = np.max(ratio(_largest_changes(values.astype(np.float64)), metric.budgets))
    return LipschitzQueries(values, sufficient(max(scale, needed), values), metric.neighbors)


def sufficient(scale: float, values: np.ndarray) -> np.ndarray:
    """Return a scale in the dtype of the values that are drawn with it, also after one rounding.

    It is at least sqrt(eps) times the largest |value| (or 1 if all are 0).
    """
    eps = float(np.finfo(values.dtype).eps)
    least = eps**0.5 * float(np.max(np.abs(values))) or 1.0
    return rounded_up(max(scale * (1 + eps), least), values.dtype)


def _apart(values: np.ndarray) -> np.ndarray:
    """Return |q_i - q_j|, ``(..., N, N)``."""
    return np.abs(values[..., :, None] - values[..., None, :])


def _largest_changes(values: np.ndarray) -> np.ndarray:
    """Return the largest |q_i - q_j| of queries ``(K, N)``, one query at a time."""
    return reduce(np.maximum, map(_apart, values))


def _nearest(values: np.ndarray, c: float, budgets: np.ndarray) -> np.ndarray:
    """Return the functions ``(..., N)`` nearest in the sup norm with differences up to c d.

    The budgets d satisfy the triangle inequality. Elements with a budget of 0 between them have the
    same row, and so get exactly the same value.
    """
    with np.errstate(invalid="ignore"):  # 0 * inf
        reach = np.where(budgets < np.inf, c * budgets, np.inf)
    above = np.min(values[..., None, :] + reach, axis=-1)
    return (above + np.max(values[..., None, :] - reach, axis=-1)) / 2


def _corners(changes: np.ndarray, budgets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the corners c of E(c) = max(changes - c budgets) in decreasing order, 0 the last.

    Their excesses E(c) come with them.
    """
    protected = budgets < np.inf
    heights, slopes = changes[protected], budgets[protected]
    slope, height = 0.0, np.max(heights[slopes == 0], initial=0.0)  # what no scale removes
    found = []
    while True:
        steeper = slopes > slope
        heights, slopes = heights[steeper], slopes[steeper]
        meet = (heights - height) / (slopes - slope)
        c = np.max(meet, initial=0.0)
        found.append((c, height - slope * c))
        if c == 0:
            c, excess = np.array(found).T
            return c, excess
        line = np.argmax(np.where(meet == c, slopes, 0.0))
        slope, height = slopes[line], heights[line]


def _alone(query: np.ndarray, budgets: np.ndarray, n: float, power: int) -> np.ndarray:
    """Return the G of least (n max |G - q|)^power + power * c^power, for a power of 1 or 2."""
    paths = Metric(budgets).closure().budgets
    c, excess = _corners(_apart(query), paths)
    if power == 2:  # between corners, it is a parabola
        slope = np.diff(excess) / -np.diff(c)
        height = excess[1:] + slope * c[1:]
        least = np.clip(n**2 * slope * height / (8 + (n * slope) ** 2), c[1:], c[:-1])
        c, excess = np.append(c, least), np.append(excess, height - slope * least)
    return _nearest(query, c[np.argmin((n * excess / 2) ** power + power * c**power)], paths)
