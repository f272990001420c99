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
is convex and piecewise linear, so that its corners are all that has to be searched. A sum of
absolute errors is a linear program in G and c, and one of squares a projection on a cone: all of
these optima are global.

*Several queries* share the budget of each pair. With given shares each is a problem of its own;
from its solution, the optimal scales tell which shares are used, and the rest is shared equally.

Everything here reads public numbers only, in float64. For ``queries``, ``metric`` and
``num_records`` see :mod:`dpjax.metric_privacy`.
"""

from __future__ import annotations

from dataclasses import field
from functools import reduce
from math import log
from typing import Any, Literal, NamedTuple, get_args

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from scipy import sparse
from scipy.optimize import linprog, nnls

from dpjax import checks
from dpjax.checks import Neighbors
from dpjax.metric_privacy.histograms import evaluate
from dpjax.metric_privacy.metric import Metric, finite, on_one_universe
from dpjax.metric_privacy.scales import (
    noise_scales,
    prepared,
    ratio,
    rounded_up,
    smallest_scales,
)
from dpjax.pytrees import pytree

Loss = Literal["squared", "absolute", "maximum"]
Bias = Literal["all_elements", "worst_element"]
Mechanism = Literal["small_db", "mwem"]
LOSSES, BIASES, MECHANISMS = get_args(Loss), get_args(Bias), get_args(Mechanism)
BEYOND_ONE = (
    "queries must have values in [-1, 1] for MWEM: divide them all by their largest |value|, and "
    "multiply the answers by it."
)
_TURNS = 4  # of several queries


class FittedQueries(NamedTuple):
    """Queries to answer in place of others, with their noise scales.

    Attributes:
        queries: float64 ``(K, N)``: G, c * Q' in the paper.
        scales: float64 ``(K,)``: c.
        objective: the bound of the error that was minimized.
        closed_form: the same for the original queries, with the best scales for them.

    >>> from dpjax.metric_privacy import from_points
    >>> metric = from_points([[0.0], [0.1], [5.0]], epsilon=0.2)
    >>> fit = fit_queries([[0.0, 1.0, 2.0]], metric, num_records=10.0, loss="maximum")
    >>> fit.queries.shape, fit.scales.shape
    ((1, 3), (1,))
    """

    queries: np.ndarray
    scales: np.ndarray
    objective: float
    closed_form: float


@pytree
class LipschitzQueries:
    """K linear queries c Q' whose values differ by at most c d(i, j) between i and j, with c.

    A pytree, returned by :func:`lipschitz_queries`, :func:`lipschitz_envelope` and
    :func:`fit_lipschitz_queries`.

    Attributes:
        values: ``(K, N)``, c Q', which the mechanisms answer, in JAX's default float. With the null
            record in the metric, it is the last element.
        scale: c.
        neighbors: static, the neighbor relation of the metric.

    >>> from dpjax.metric_privacy import from_budgets
    >>> queries = lipschitz_queries([[0.0, 3.0]], from_budgets([[0.0, 2.0], [2.0, 0.0]]))
    >>> round(float(queries.scale), 4), float(queries.answers(jnp.array([1.0, 5.0]))[0])
    (1.5, 15.0)
    """

    values: Any
    scale: Any
    neighbors: Neighbors = field(default="swap", metadata={"static": True})

    @property
    def size(self) -> int:
        """The number of elements of the universe, including the null record."""
        return self.values.shape[-1]

    def answers(self, histograms: jax.Array) -> jax.Array:
        """Return the values of all queries, ``(..., K)``, at histograms ``(..., N)``.

        The histograms include the null record if the metric has it.
        """
        if histograms.shape[-1:] != (self.size,):
            raise ValueError(
                f"histograms must have a last axis of {self.size} elements, including the null "
                f"record, got shape {histograms.shape}."
            )
        return evaluate(jnp.asarray(self.values), histograms)


def fit_queries(
    queries: ArrayLike,
    metric: Metric,
    *,
    num_records: float,
    loss: Loss = "squared",
    bias: Bias = "all_elements",
    failure: float = 0.05,
) -> FittedQueries:
    """Return queries G and scales c with a small error bound of G x + Lap(c) for Q x.

    The bounds, with R = G - Q and n records:

        "squared"   n^2 ||R||^2 + 2 ||c||^2             of the mean squared error
        "absolute"  n ||R||_1 + ||c||_1                 of the mean absolute error
        "maximum"   n ||R||_inf + ln(K/failure) max c   of the largest error, with prob. 1 - failure

    with the entrywise norms of R (``bias="all_elements"``, Theorem 2) or with the largest norm of a
    column (``"worst_element"``: every record is one element, so this is enough, and it is exact for
    ``"squared"``).

    Args:
        queries: see :mod:`dpjax.metric_privacy`.
        metric: without the null record, and with the triangle inequality.
        num_records: n or a public bound of it.
        loss: ``"squared"``, ``"absolute"`` or ``"maximum"``.
        bias: ``"all_elements"`` or ``"worst_element"``.
        failure: in (0, 1), for ``"maximum"``.

    Returns:
        :class:`FittedQueries`, within the budgets in exact arithmetic and never worse than G = Q.
        It is the global optimum for K = 1, up to a millionth, and a local one for more. Queries
        that differ on elements of budget 0 are replaced by the middle of their values there;
        ``closed_form`` is then infinite.

    Privacy:
        ``metric_laplace(x, fit.queries, metric, scales=fit.scales)`` is d-private under swap
        neighbors, for any fit.

    References:
        Kamalaruban et al. (2020), equation (6) and Appendix B, without an unneeded factor of 2 in
        the bound of the squared error.

    >>> from dpjax.metric_privacy import from_points
    >>> metric = from_points([[0.0], [0.1], [5.0]], epsilon=0.2)
    >>> fit = fit_queries([[0.0, 1.0, 2.0]], metric, num_records=10.0, loss="maximum")
    >>> bool(fit.scales[0] < 30), fit.objective < 0.5 * fit.closed_form
    (True, True)
    """
    checks.one_of("loss", loss, LOSSES)
    checks.one_of("bias", bias, BIASES)
    n = checks.concrete_positive("num_records", num_records)
    values, budgets = prepared(queries, metric)
    if metric.neighbors != "swap":
        raise ValueError(
            "fitting needs a public number of records: pass a metric without the null record."
        )
    count, power = len(values), 2 if loss == "squared" else 1
    nats = log(count / checks.concrete_probability("failure", failure))

    def fitted(g: np.ndarray) -> FittedQueries:
        """Return queries with their best scales and the bound."""
        off = np.abs(g - values)
        if loss == "maximum":
            c = noise_scales(g, metric, strategy="common")
            bound = n * np.max(off) + nats * np.max(c)
        else:
            c = smallest_scales(g, budgets, np.ones(count), power).scales
            each = np.sum(off**power, axis=0)
            total = np.sum(each) if bias == "all_elements" else np.max(each)
            bound = n**power * total + power * np.sum(c**power)
        return FittedQueries(g, c, float(bound), float(bound))

    def solved(values: np.ndarray, d: np.ndarray) -> np.ndarray:
        """Return the best queries for these budgets, ``(K, N, N)``, of each."""
        if loss == "maximum":
            c = _worth_its_noise(_apart(values), d, n / nats)
        elif bias == "worst_element":
            c = _worth_its_noise(_apart(values), d, n, power)
        else:
            values, c = (_least_squares if power == 2 else _least_total)(values[0], d[0], n)
        return _nearest(values, c, d)

    # Elements with a budget of 0 between them are one element.
    twins = metric.closure().budgets == 0
    best = fitted(_nearest(values, 1.0, np.where(twins, 0.0, np.inf)))
    closed_form = best.objective if np.array_equal(best.queries, values) else np.inf
    shares = np.broadcast_to(budgets / count, (count, *budgets.shape))
    for _ in range(_TURNS if count > 1 else 1):
        closed = np.array([Metric(share).closure().budgets for share in shares])
        parts = [slice(None)] if loss == "maximum" else [slice(k, k + 1) for k in range(count)]
        g = np.concatenate([solved(values[part], closed[part]) for part in parts])
        if bias == "worst_element" and loss != "maximum" and count > 1:
            g = g + _center(values - g, power)
        found = fitted(g)
        best = min(best, found, key=lambda fit: fit.objective)
        used = ratio(_apart(found.queries), found.scales[:, None, None])
        protected, rest = budgets < np.inf, budgets.copy()
        np.subtract(budgets, np.sum(used, axis=0), where=protected, out=rest)
        shares = used + np.maximum(rest, 0.0) / count
    return best._replace(closed_form=closed_form)


def fit_statistics(
    values: ArrayLike,
    metric: Metric,
    *,
    num_records: float,
    loss: Loss = "squared",
    failure: float = 0.05,
) -> FittedQueries:
    """Return the transformed universe of problem (13): queries G and scales c for statistics.

    A statistic is the mean over records of a function of one record, q(x) = (1/n) sum_i q(x_i): the
    linear query with the value q(u)/n at each element u. The paper maps each u to another u':

        minimize  max_u ||c * q(u') - q(u)||_2^2 + 2 ||c||^2
        where     ||q(u') - q(v')||_1 <= n d(u, v)

    and the corresponding problems for the other losses (Theorem 11), by :func:`fit_queries` with
    the error of the worst element, which explains the arguments; ``values`` are q(u), float
    ``(K, N)``, the K statistics of each element of the universe.

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
    >>> fit = fit_statistics([[0.0, 1.0, 2.0]], metric, num_records=2.0, loss="maximum")
    >>> fit.objective < 0.8 * fit.closed_form
    True
    """
    n = checks.concrete_positive("num_records", num_records)
    scaled = prepared(values, metric, "values")[0] / n
    return fit_queries(
        scaled, metric, num_records=n, loss=loss, bias="worst_element", failure=failure
    )


def fit_marginals(values: ArrayLike, metric: Metric, *, num_records: float) -> FittedQueries:
    """Return the values and the noise of problem (14), for the mean of one attribute.

        minimize  max_u |c u' - u| + c   where   |u' - v'| <= n d(u, v)

    Where the metric is a sum over attributes, the mean of each is such a problem on its values, and
    (13) with one statistic and absolute errors. The result is the global optimum, unless the metric
    violates the triangle inequality, and even then it is within the budgets.

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


def lipschitz_queries(queries: ArrayLike, metric: Metric) -> LipschitzQueries:
    """Return the queries unchanged with the smallest scale c that allows them.

    This is c = max over queries and pairs of |q_i - q_j| / d(i, j).

    The scale is rounded up, and never below sqrt(eps) times the largest |value|: at a scale of 0,
    which queries constant on every protected pair would have, rounding would decide what is drawn.
    It is infinite where a query differs on a pair of budget 0; then mechanisms return NaN, and
    :func:`fit_lipschitz_queries` can fit other queries. For the arguments see
    :mod:`dpjax.metric_privacy`.

    References:
        Kamalaruban et al. (2020), Theorem 5 and Section 4.1.

    >>> from dpjax.metric_privacy import from_budgets
    >>> metric = from_budgets([[0, 1, 4], [1, 0, 4], [4, 4, 0]])
    >>> round(float(lipschitz_queries([[0.0, 1.0, 2.0], [1.0, 1.0, 0.0]], metric).scale), 6)
    1.0
    """
    return _promised(prepared(queries, metric)[0], metric, 0.0)


def lipschitz_envelope(queries: ArrayLike, metric: Metric, *, scale: float) -> LipschitzQueries:
    """Return the c d-Lipschitz queries nearest to the given ones in the sup norm.

    They are the mean of two envelopes, with the shortest paths of d. The mismatch of each query is
    half its largest excess |q_i - q_j| - c d(i, j), and its values stay between its least and its
    largest. The scale is rounded up as in :func:`lipschitz_queries`.

    Args:
        queries: see :mod:`dpjax.metric_privacy`.
        metric: see :mod:`dpjax.metric_privacy`.
        scale: c, positive.

    References:
        McShane (1934); Kamalaruban et al. (2020), problem (8), Q' for a given c.

    >>> from dpjax.metric_privacy import from_budgets
    >>> metric = from_budgets([[0, 1], [1, 0]])
    >>> lipschitz_envelope([[0.0, 1.0]], metric, scale=0.5).values.tolist()
    [[0.25, 0.75]]
    """
    values, c = prepared(queries, metric)[0], checks.concrete_positive("scale", scale)
    return _promised(_nearest(values, c, metric.closure().budgets), metric, c)


def fit_lipschitz_queries(
    queries: ArrayLike,
    metric: Metric,
    *,
    num_records: float,
    price: Mechanism | float,
    failure: float = 0.05,
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
        price: ``"small_db"`` or ``"mwem"``: the factor in Theorem 6 or 8 (see :func:`unit_price`);
            or a nonnegative number. The factor of Theorem 8 is far above the errors seen in
            practice: with it the best queries for a thousand records are often constant, where MWEM
            with the closed form would answer well.
        failure: the probability beta with which SmallDB may exceed its bound, in (0, 1).

    References:
        Kamalaruban et al. (2020), problem (8) in Sections 3.3 and 3.4, and Appendix B, which leaves
        it to local search.

    >>> from dpjax.metric_privacy import from_budgets
    >>> metric = from_budgets([[0.0, 0.01, 1.0], [0.01, 0.0, 1.0], [1.0, 1.0, 0.0]])
    >>> options = {"num_records": 1000, "price": "small_db"}  # the closed form is c = 10
    >>> fitted = fit_lipschitz_queries([[0.0, 0.1, 1.0]], metric, **options)
    >>> round(float(fitted.scale), 4), [round(float(v), 4) for v in fitted.values[0]]
    (0.9091, [0.0455, 0.0545, 0.9545])
    """
    values, budgets = prepared(queries, metric)
    n = checks.concrete_positive("num_records", num_records)
    if isinstance(price, str):
        checks.one_of("price", price, MECHANISMS)
        if price == "mwem" and np.any(np.abs(values) > 1):
            raise ValueError(BEYOND_ONE)
        price = unit_price(price, metric.size, len(values), failure)
    price, closed = checks.concrete_nonnegative("price", price), metric.closure().budgets
    changes = _largest_changes(values)
    c, excess = _corners(changes, closed)
    best = c[np.argmin(n * excess / 2 + price * np.cbrt(c * n**2))]
    if best < np.max(ratio(changes, budgets)) * (1 - 1e-12):
        values = _nearest(values, best, closed)
    return _promised(values, metric, best)


def unit_price(mechanism: Mechanism, num_elements: int, num_queries: int, failure: float) -> float:
    """Return the factor of (c n^2)^(1/3) in the error bound of a mechanism.

    SmallDB: gamma^(1/3), gamma = 16 log N l + 4 log N + 4 log(1/failure), l = max(log K,
    log(2K)/2). The paper's gamma lacks 4 log N, as if log K/alpha^2 records need not be rounded up;
    its l = log K differs at K = 1 only, where its small database is empty. MWEM: 20/5^(2/3) (log N
    log K)^(1/3), as printed; it holds with probability 1 - 2T/K.

    >>> round(unit_price("small_db", 3, 3, 0.05), 4), round(unit_price("mwem", 3, 3, 0.05), 4)
    (3.2924, 7.2825)
    """
    failure = checks.concrete_probability("failure", failure)
    if mechanism == "small_db":
        log_choices = max(log(num_queries), log(2 * num_queries) / 2)
        gamma = (16 * log_choices + 4) * log(num_elements) - 4 * log(failure)
        return float(gamma ** (1 / 3))
    return float(20 / 5 ** (2 / 3) * (log(num_elements) * log(num_queries)) ** (1 / 3))


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
    """Return a scale rounded up in the dtype of the values that are drawn with it.

    It is at least sqrt(eps) times the largest |value| (or 1 if all are 0).
    """
    least = float(np.finfo(values.dtype).eps) ** 0.5 * float(np.max(np.abs(values))) or 1.0
    return rounded_up(max(scale * (1 + 2.0**-50), least), values.dtype)


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
    reach = np.multiply(c, budgets, where=budgets < np.inf, out=np.full_like(budgets, np.inf))
    above = np.min(values[..., None, :] + reach, axis=-1)
    below = np.max(values[..., None, :] - reach, axis=-1)
    return (above + below) / 2


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


def _worth_its_noise(changes: np.ndarray, budgets: np.ndarray, n: float, power: int = 1) -> float:
    """Return the c of least (n E(c) / 2)^power + power * c^power, for a power of 1 or 2."""
    c, excess = _corners(changes, budgets)
    if power == 2:  # between corners, it is a parabola
        slope = np.diff(excess) / -np.diff(c)
        height = excess[1:] + slope * c[1:]
        least = np.clip(n**2 * slope * height / (8 + (n * slope) ** 2), c[1:], c[:-1])
        c, excess = np.append(c, least), np.append(excess, height - slope * least)
    return float(c[np.argmin((n * excess / 2) ** power + power * c**power)])


def _center(points: np.ndarray, power: int) -> np.ndarray:
    """Return a point ``(K, 1)`` with a small largest distance to the columns of points ``(K, N)``.

    It takes shorter and shorter steps toward the farthest column (Badoiu and Clarkson 2003).
    """
    at = points[:, :1]
    for number in range(200):
        far = np.argmax(np.sum(np.abs(points - at) ** power, axis=0))
        at = at + (points[:, [far]] - at) / (number + 2)
    return at


def _pairs(budgets: np.ndarray) -> tuple[sparse.csr_array, np.ndarray]:
    """Return the differences x_i - x_j of protected pairs, both ways, and their budgets."""
    first, second = np.nonzero((budgets < np.inf) & ~np.eye(len(budgets), dtype=bool))
    rows, one = np.arange(first.size), np.ones(first.size)
    entries = np.append(one, -one), (np.append(rows, rows), np.append(first, second))
    return sparse.csr_array(entries, (first.size, len(budgets))), budgets[first, second]


def _least_total(query: np.ndarray, budgets: np.ndarray, n: float) -> tuple[np.ndarray, float]:
    """Return the G and c of least n ||G - q||_1 + c, a linear program.

    Its variables are the parts of G above and below q, and c.
    """
    apart, d = _pairs(budgets)
    unit, most = np.ptp(query) or 1.0, np.max(d, initial=0.0) or 1.0
    rows = sparse.hstack([apart, -apart, sparse.csr_array(-d[:, None] / most)])
    cost = np.append(np.full(2 * query.size, n * most), 1.0)
    found = linprog(cost / np.min(cost), rows, -apart @ query / unit).x * unit
    more, less = found[:-1].reshape(2, -1)
    return query + more - less, float(found[-1] / most)


def _least_squares(query: np.ndarray, budgets: np.ndarray, n: float) -> tuple[np.ndarray, float]:
    """Return the G and c of least n^2 ||G - q||^2 + 2 c^2, the projection on a cone.

    In z = (G, sqrt(2) c / n) the budgets are rows z <= 0, and what is taken from (q, 0) is the
    nearest sum of rows with nonnegative factors.
    """
    apart, d = _pairs(budgets)
    rows = np.column_stack([apart.toarray(), -d * n / 2**0.5])
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    given = np.append(query - np.mean(query), 0.0)
    factors, _ = nnls(rows.T, given, maxiter=20 * len(rows))
    nearest = given - factors @ rows
    return nearest[:-1] + np.mean(query), float(max(nearest[-1], 0.0) * n / 2**0.5)
