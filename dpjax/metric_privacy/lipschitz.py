"""The best queries that a metric's budgets allow: the exact solution of problem (8).

The problem is that of Kamalaruban et al. (2020). SmallDB and MWEM answer c Q' in place of Q, for
queries Q' with |q'_i - q'_j| <= d(i, j): c q' must be c d-Lipschitz. A larger c costs noise, a
smaller one a mismatch max |q - c q'|. At a given c the best function is the mean of two envelopes
of q (McShane),

    min over j of q_j + c d(i, j)   and   max over j of q_j - c d(i, j),

with d replaced by its shortest-path closure. Its mismatch is E(c)/2, for the largest excess E(c) =
max over pairs of (|q_i - q_j| - c d(i, j))+: the envelopes lie on opposite sides of q, both within
E(c) of it; and no c d-Lipschitz function is closer, because |q_i - q_j| - c d(i, j) is at most its
error at i plus its error at j.

It remains to minimize n E(c)/2 + price (c n^2)^(1/3) over c. E is convex and piecewise linear, so
the sum is concave between the breakpoints of E, and its minimum is at one of them or at c = 0. They
are visited in decreasing order, beginning with the closed form of the paper (c = the largest |q_i -
q_j| / d(i, j), no mismatch), so the result is never worse than the closed form.

Privacy: all functions here read public numbers only.
"""

from __future__ import annotations

from dataclasses import field
from functools import partial
from math import log
from typing import Any, Literal, get_args

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from dpjax import checks
from dpjax.metric_privacy.histograms import evaluate
from dpjax.metric_privacy.loads import prepared, scales_alone
from dpjax.metric_privacy.metrics import Metric, Neighbors
from dpjax.metric_privacy.nearest import allowed, nearest_function
from dpjax.pytrees import pytree

Mechanism = Literal["small_db", "mwem"]
MECHANISMS = get_args(Mechanism)
BEYOND_ONE = (
    "queries must have values in [-1, 1] for MWEM: divide them all by their largest |value|, and "
    "multiply the answers by it."
)


@pytree
class LipschitzQueries:
    """K linear queries c Q' whose values differ by at most c d(i, j) between i and j, with c.

    A pytree, returned by :func:`lipschitz_queries`, :func:`lipschitz_envelope` and
    :func:`fit_lipschitz_queries`.

    Attributes:
        values: float ``(..., K, N)``, c Q', which the mechanisms answer. With the null record in
            the metric, it is the last element.
        scale: float ``(...)``, c.
        neighbors: static, the neighbor relation of the metric.

    >>> from dpjax.metric_privacy.metrics import from_budgets
    >>> queries = lipschitz_queries([[0.0, 3.0]], from_budgets([[0.0, 2.0], [2.0, 0.0]]))
    >>> round(float(queries.scale), 4), float(queries.answers(jnp.array([1.0, 5.0]))[0])
    (1.5, 15.0)
    """

    values: jax.Array
    scale: jax.Array
    neighbors: Neighbors = field(default="swap", metadata={"static": True})

    @property
    def num_queries(self) -> int:
        """The number of queries, K."""
        return self.values.shape[-2]

    @property
    def size(self) -> int:
        """The number of elements of the universe, including the null record."""
        return self.values.shape[-1]

    @property
    def batch_shape(self) -> tuple[int, ...]:
        """The broadcast shape of the leading axes."""
        return jnp.broadcast_shapes(self.values.shape[:-2], self.scale.shape)

    @property
    def dtype(self) -> Any:
        """The dtype of the values."""
        return self.values.dtype

    def answers(self, histograms: jax.Array) -> jax.Array:
        """Return the values of all queries, ``(..., K)``, at histograms ``(..., N)``.

        The histograms include the null record if the metric has it.
        """
        if histograms.shape[-1:] != (self.size,):
            null_record = (
                ", the last of which is the null record" if self.neighbors == "add_remove" else ""
            )
            raise ValueError(
                f"histograms must have a last axis of {self.size} elements{null_record}, got shape "
                f"{histograms.shape}."
            )
        return evaluate(self.values, histograms)


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

    >>> from dpjax.metric_privacy.metrics import from_budgets
    >>> metric = from_budgets([[0, 1, 4], [1, 0, 4], [4, 4, 0]])
    >>> round(float(lipschitz_queries([[0.0, 1.0, 2.0], [1.0, 1.0, 0.0]], metric).scale), 6)
    1.0
    """
    values, metric = prepared(queries, metric)
    return _rounded(values, _needed(values, metric), metric.neighbors)


def lipschitz_envelope(queries: ArrayLike, metric: Metric, *, scale: ArrayLike) -> LipschitzQueries:
    """Return the c d-Lipschitz queries nearest to the given ones in the sup norm.

        (min over j of (q_j + c d(i, j)) + max over j of (q_j - c d(i, j))) / 2

    with the shortest-path closure of d.

    The mismatch of each query is half its largest excess |q_i - q_j| - c d(i, j), and its values
    stay between its least and its largest. The scale is rounded up as in :func:`lipschitz_queries`.

    Args:
        queries: see :mod:`dpjax.metric_privacy`.
        metric: see :mod:`dpjax.metric_privacy`.
        scale: c, positive; broadcasts against the batch.

    References:
        McShane (1934); Kamalaruban et al. (2020), problem (8), Q' for a given c.

    >>> from dpjax.metric_privacy.metrics import from_budgets
    >>> metric = from_budgets([[0, 1], [1, 0]])
    >>> lipschitz_envelope([[0.0, 1.0]], metric, scale=0.5).values.tolist()
    [[0.25, 0.75]]
    """
    values, metric = prepared(queries, metric)
    return _rounded(
        *_envelope(values, metric, checks.positive("scale", scale, values.dtype)), metric.neighbors
    )


def fit_lipschitz_queries(
    queries: ArrayLike,
    metric: Metric,
    *,
    num_records: ArrayLike,
    price: Mechanism | ArrayLike,
    failure: float = 0.05,
) -> LipschitzQueries:
    """Return the queries and the scale that minimize the error bound of a mechanism.

    It is the exact solution of problem (8) of Kamalaruban et al. (2020):

        minimize   n max over q of |q - c q'| + price * (c n^2)^(1/3)
        over       c >= 0 and |q'_i - q'_j| <= d(i, j)

    Where no c is worth its price (few records), the queries are constant on every protected pair,
    and the scale is the smallest one allowed (see :func:`lipschitz_queries`).

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

    >>> from dpjax.metric_privacy.metrics import from_budgets
    >>> metric = from_budgets([[0.0, 0.01, 1.0], [0.01, 0.0, 1.0], [1.0, 1.0, 0.0]])
    >>> options = {"num_records": 1000, "price": "small_db"}  # the closed form is c = 10
    >>> fitted = fit_lipschitz_queries([[0.0, 0.1, 1.0]], metric, **options)
    >>> round(float(fitted.scale), 4), [round(float(v), 4) for v in fitted.values[0]]
    (0.9091, [0.0455, 0.0545, 0.9545])
    """
    values, metric = prepared(queries, metric)
    if isinstance(price, str):
        checks.one_of("price", price, MECHANISMS)
        factor: ArrayLike = unit_price(price, values.shape[-1], values.shape[-2], failure)
        if (
            price == "mwem"
            and not isinstance(queries, jax.Array)
            and np.any(np.abs(np.asarray(queries, np.float64)) > 1)
        ):
            raise ValueError(BEYOND_ONE)
    else:
        factor = price
    records = checks.positive("num_records", num_records, values.dtype)
    return _fit(values, metric, records, checks.nonnegative("price", factor, values.dtype))


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
        return float(
            (16 * log(num_elements) * log_choices + 4 * log(num_elements) + 4 * log(1 / failure))
            ** (1 / 3)
        )
    return float(20 / 5 ** (2 / 3) * (log(num_elements) * log(num_queries)) ** (1 / 3))


def mismatch(queries: ArrayLike, fitted: LipschitzQueries) -> jax.Array:
    """Return the largest |q - c q'| over all queries and elements, of the broadcast batch shape.

    ``queries`` are float ``(..., K, N)``.

    >>> from dpjax.metric_privacy.metrics import from_budgets
    >>> metric = from_budgets([[0, 1], [1, 0]])
    >>> float(mismatch([[0.0, 1.0]], lipschitz_envelope([[0.0, 1.0]], metric, scale=0.5)))
    0.25
    """
    originals = checks.float_array("queries", queries).astype(fitted.dtype)
    if fitted.neighbors == "add_remove":
        originals = jnp.concatenate([originals, jnp.zeros_like(originals[..., :1])], axis=-1)
    return jnp.max(jnp.abs(originals - fitted.values), axis=(-2, -1))


def overspent(queries: LipschitzQueries, metric: Metric) -> jax.Array:
    """Return the largest |c q'_i - c q'_j| / (c d(i, j)), of the broadcast batch shape.

    The metric allows the queries if it is at most 1.
    """
    if queries.size != metric.size or queries.neighbors != metric.neighbors:
        raise ValueError(
            f"queries and metric must have the same elements and neighbors, got {queries.size} "
            f"elements under {queries.neighbors} and {metric.size} under {metric.neighbors}."
        )
    dtype = jnp.promote_types(queries.dtype, metric.dtype)
    return _needed(queries.values.astype(dtype), metric.astype(dtype)) / queries.scale.astype(dtype)


def allowed_by(queries: LipschitzQueries, metric: Metric) -> Metric:
    """Return the dense metric for a guarantee, or raise if it does not allow the queries."""
    if queries.batch_shape or metric.batch_shape:
        raise ValueError(
            "a guarantee describes one distribution: index the batch first, got queries and "
            f"metric of batch shapes {queries.batch_shape} and {metric.batch_shape}."
        )
    try:
        excess = float(overspent(queries, metric))
    except TypeError:  # JAX's error for a traced value is one
        raise TypeError(
            "queries and budgets must be concrete for a guarantee, got traced ones."
        ) from None
    if not excess <= 1:
        raise ValueError(
            f"queries must differ by at most c d(i, j), got {excess:g} times that: increase the "
            "scale c."
        )
    return metric.dense()


def rounded_up(scale: jax.Array, largest: jax.Array) -> jax.Array:
    """Return a scale rounded up by a few units in the last place.

    It is at least sqrt(eps) times the largest |value| (or 1 if all are 0).
    """
    eps = float(jnp.finfo(scale.dtype).eps)
    least = jnp.where(largest > 0, eps**0.5 * largest, 1.0)
    return jnp.maximum(scale * (1 + 4 * eps), least)


@jax.jit
def _needed(values: jax.Array, metric: Metric) -> jax.Array:
    """Return the smallest scale that allows all queries."""
    return jnp.max(scales_alone(values, metric), axis=-1)


@partial(jax.jit, static_argnames="neighbors")
def _rounded(values: jax.Array, scale: jax.Array, neighbors: Neighbors) -> LipschitzQueries:
    return LipschitzQueries(
        values, rounded_up(scale, jnp.max(jnp.abs(values), axis=(-2, -1))), neighbors
    )


@jax.jit
def _envelope(values: jax.Array, metric: Metric, scale: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Return the nearest queries and the scale they need, which rounding may have increased."""
    closed = metric.closure()
    budgets = closed.budgets[..., None, :, :]
    nearest = nearest_function(values, allowed(scale[..., None, None, None], budgets), budgets)
    return nearest, jnp.maximum(scale, _needed(nearest, closed))


@jax.jit
def _fit(
    values: jax.Array, metric: Metric, records: jax.Array, price: jax.Array
) -> LipschitzQueries:
    batch = jnp.broadcast_shapes(values.shape[:-2], metric.batch_shape, records.shape, price.shape)
    # Closed: a path of small budgets between i and j may bound |q'_i - q'_j|, and so the mismatch,
    # more tightly than d(i, j) does.
    budgets = metric.closure().budgets
    changes = jnp.max(jnp.abs(values[..., :, None] - values[..., None, :]), axis=-3)
    changes, slopes = (jnp.where(budgets == jnp.inf, 0.0, array) for array in (changes, budgets))
    best = _best_scale(
        changes, slopes, jnp.broadcast_to(records, batch), jnp.broadcast_to(price, batch)
    )
    needed, (nearest, scale) = _needed(values, metric), _envelope(values, metric, best)
    unchanged = best >= needed
    chosen = jnp.where(unchanged[..., None, None], values, nearest)
    return _rounded(chosen, jnp.where(unchanged, needed, scale), metric.neighbors)


def _best_scale(changes: jax.Array, slopes: jax.Array, n: jax.Array, price: jax.Array) -> jax.Array:
    """Return the breakpoint of E(c), or 0, with the least n E(c)/2 + price (c n^2)^(1/3).

    E(c) is the maximum of changes - c slopes; the batch is ``(...)``.
    """

    def cost(excess: jax.Array, c: jax.Array) -> jax.Array:
        return n * excess / 2 + price * jnp.cbrt(c) * jnp.cbrt(n) * jnp.cbrt(n)

    def to_the_left(state: tuple) -> tuple:
        """Move from one line of the envelope to the next steeper one."""
        active, change, slope, best, least = state
        steeper = slopes > slope[..., None, None]
        rise = changes - change[..., None, None]
        meet = jnp.where(
            steeper, rise / jnp.where(steeper, slopes - slope[..., None, None], 1.0), -jnp.inf
        )
        c = jnp.max(meet, axis=(-2, -1))
        active = active & (c > 0)
        cost_here = cost(jnp.maximum(change - slope * c, 0.0), c)
        better = active & (cost_here < least)
        next_slope = jnp.max(jnp.where(meet == c[..., None, None], slopes, 0.0), axis=(-2, -1))
        on_line = (slopes == next_slope[..., None, None]) & steeper
        next_change = jnp.max(jnp.where(on_line, changes, -jnp.inf), axis=(-2, -1))
        line = jnp.where(active, next_change, change), jnp.where(active, next_slope, slope)
        return active, *line, jnp.where(better, c, best), jnp.where(better, cost_here, least)

    zero = jnp.zeros_like(n)
    # An excess that no scale removes.
    flat = jnp.max(jnp.where(slopes == 0, changes, 0.0), axis=(-2, -1)) + zero
    at_zero = cost(jnp.max(changes, axis=(-2, -1)), zero)
    start = (jnp.isfinite(at_zero), flat, zero, zero, at_zero)
    best = jax.lax.while_loop(lambda state: jnp.any(state[0]), to_the_left, start)[3]
    return jnp.where(jnp.isfinite(at_zero), best, jnp.nan)
