"""Other queries in place of those that were asked: less noise for a small bias (the general pre-processing problem).

Answer G x + Lap(c) where Q x was asked. The budgets bind G only: sum_k |G_ki - G_kj| / c_k <= d(i, j). With G = Q that leaves the
scales; a G whose values lie closer together where the universe is dense needs less noise, for an error of at most n |G - Q|. In
the paper's letters G = c * Q', problem (6). It does not depend on data, but on the number of records n.

The problem is convex in G for given c, in c for given G, and for K = 1 in both. Here: G for multiples of two c, the best of Q and
that of each query on its own (:func:`scale_worth_its_noise`), over grids; from the best of them G and c in turns. What is returned
is checked, and never worse than G = Q.
"""

from functools import partial
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from dpjax import checks
from dpjax.metric_privacy.loads import prepared
from dpjax.metric_privacy.metrics import Metric
from dpjax.metric_privacy.scales import common_scales, smallest_scales
from dpjax.metric_privacy.shortest_paths import shortest_paths
from dpjax.numerics.bisection import bisect

Loss = Literal["squared", "absolute", "maximum"]
Bias = Literal["all_elements", "worst_element"]
LOSSES = ("squared", "absolute", "maximum")
BIASES = ("all_elements", "worst_element")
_OF_QUERIES = (1.0, 0.92, 0.8, 0.65, 0.5, 0.35, 0.25, 0.15, 0.08, 0.03, 0.01, 0.001)  # times the best scales of Q
_ON_ITS_OWN = (0.16, 0.4, 1.0, 2.5, 6.0)  # times the scales of each query on its own
_GRIDS = (  # each around the best scales so far
    (1.0, 0.5, 0.57, 0.65, 0.74, 0.86, 0.93, 1.08, 1.15, 1.3, 1.5, 1.75),
    (1.0, 0.94, 0.955, 0.97, 0.98, 0.99, 1.01, 1.02, 1.03, 1.04, 1.05, 1.06),
)
_SWEEPS = 200  # of the splitting method for G


class FittedQueries(NamedTuple):
    """Queries to answer in place of others, with their noise.

    Attributes:
        queries: float ``(..., K, N)``: G, c * Q' in the paper.
        scales: float ``(..., K)``: c.
        objective: float ``(...)``, the bound of the error that was made small.
        closed_form: float ``(...)``, the same for the queries that were asked, with the best scales for them.
    """

    queries: jax.Array
    scales: jax.Array
    objective: jax.Array
    closed_form: jax.Array


def fit_queries(
    queries: ArrayLike,
    metric: Metric,
    *,
    num_records: ArrayLike,
    loss: Loss = "squared",
    bias: Bias = "all_elements",
    failure: float = 0.05,
) -> FittedQueries:
    """Return queries G and scales c with a small bound of the error of G x + Lap(c) as an answer to Q x.

    The bounds, with R = G - Q and n records:

        "squared"    n^2 ||R||^2 + 2 ||c||^2             of the mean squared error
        "absolute"   n ||R||_1 + ||c||_1                 of the mean absolute error
        "maximum"    n ||R||_inf + ln(K/failure) max c   of the largest error, with probability 1 - failure

    with the entrywise norms of R (``bias="all_elements"``, Theorem 2) or with the largest norm of a column
    (``"worst_element"``: every record is one element, so this is enough, and it is exact for ``"squared"``).

    Args:
        queries: float ``(..., K, N)``, finite.
        metric: on N elements, with the triangle inequality; broadcasts against the batch.
        num_records: positive ``(...)``, n or a public bound of it.
        loss: static.
        bias: static.
        failure: static, in (0, 1), for ``"maximum"``.

    Returns:
        :class:`FittedQueries`, within the budgets in exact arithmetic and never worse than G = Q. A local optimum, not solved to
        the last digit: for K = 1 within 3 % of the global one in all cases tried, for K = 2 within 20 %, also where elements are
        1e-8 of the spread apart. Queries that
        tell apart elements of budget 0 cannot be answered as they are, and are by their means over such elements here;
        ``closed_form`` is then infinite.

    Raises:
        ValueError: a metric with the null record, whose n is not public.

    Privacy:
        ``metric_laplace(x, fit.queries, metric, scales=fit.scales)`` is d-private under swap neighbors, whatever was found.

    References:
        Kamalaruban et al. (2020), equation (6) and Appendix B. The bound of the squared error there has a factor of 2 that is not
        needed (noise of mean 0 has no cross term), and 2 ||c||^2 counts with the noise's variance.

    >>> from dpjax.metric_privacy.points import from_points
    >>> metric = from_points([[0.0], [0.1], [5.0]], epsilon=0.2)
    >>> fit = fit_queries([[0.0, 1.0, 2.0]], metric, num_records=10.0, loss="maximum")
    >>> bool(fit.scales[0] < 30), bool(fit.objective < 0.5 * fit.closed_form)
    (True, True)
    """
    checks.one_of("loss", loss, LOSSES)
    checks.one_of("bias", bias, BIASES)
    failure = checks.concrete_probability("failure", failure)
    values, known = with_public_n(queries, metric)
    n = checks.positive("num_records", num_records, values.dtype)
    bias = "worst_element" if loss == "maximum" else bias  # one and the same
    return _fit(values, known, n, loss, bias, failure)


def with_public_n(queries: ArrayLike, metric: Metric) -> tuple[jax.Array, Metric]:
    """Values and matrix of budgets in one dtype, without the null record."""
    values, known = prepared(queries, metric)
    if metric.neighbors != "swap":
        raise ValueError("fitting needs a public number of records: a metric without the null record.")
    return values, known.dense()


def _bound(residual: jax.Array, scales: jax.Array, n: jax.Array, loss: str, bias: str, failure: float) -> jax.Array:
    """The objective, for residuals ``(..., K, N)``."""
    off = _bias(residual, loss, bias)
    if loss == "squared":
        return jnp.square(n) * off + 2 * jnp.sum(jnp.square(scales), axis=-1)
    if loss == "absolute":
        return n * off + jnp.sum(scales, axis=-1)
    return n * off + float(np.log(scales.shape[-1] / failure)) * jnp.max(scales, axis=-1)


def _bias(residual: jax.Array, loss: str, bias: str) -> jax.Array:
    """Of one record, to the power of the loss."""
    size = jnp.abs(residual)
    if loss == "maximum":
        return jnp.max(size, axis=(-2, -1))
    total = jnp.sum if bias == "all_elements" else jnp.max
    return total(jnp.sum(jnp.square(size) if loss == "squared" else size, axis=-2), axis=-1)


@partial(jax.jit, static_argnames=("loss", "bias", "failure"))
def _fit(values: jax.Array, metric: Metric, n: jax.Array, loss: Loss, bias: Bias, failure: float) -> FittedQueries:
    batch = jnp.broadcast_shapes(values.shape[:-2], metric.batch_shape, n.shape)
    asked = jnp.broadcast_to(values, (*batch, *values.shape[-2:]))
    # Elements of budget 0 are one element.
    same = jnp.broadcast_to((metric.budgets == 0).astype(asked.dtype), (*batch, *metric.budgets.shape[-2:]))
    means = jnp.matmul(asked, same, precision=jax.lax.Precision.HIGHEST) / jnp.sum(same, axis=-1)[..., None, :]
    one = jnp.argmax(same, axis=-1).astype(jnp.int32)[..., None, :]
    twins = jnp.any(jnp.sum(same, axis=-1) > 1, axis=-1)

    def merged(g: jax.Array) -> jax.Array:
        return jnp.where(twins[..., None, None], jnp.take_along_axis(g, one, axis=-1), g)

    start = jnp.where(twins[..., None, None], merged(means), asked)

    def scales_of(g: jax.Array) -> jax.Array:
        if loss == "maximum":
            return common_scales(g, metric)
        return smallest_scales(g, metric, jnp.ones((1,), g.dtype), 2 if loss == "squared" else 1)[0]

    def objective(g: jax.Array, c: jax.Array) -> jax.Array:
        return _bound(g - asked, c, n, loss, bias, failure)

    closed = scales_of(start)
    noisy = closed > 0
    own = jnp.where(noisy, closed, 1.0)
    target = jnp.where(noisy[..., None], asked - asked[..., :1], 0.0)

    def settled(g: jax.Array, c: jax.Array) -> tuple[jax.Array, jax.Array]:
        return jnp.where(noisy[..., None], g + asked[..., :1], start), jnp.where(noisy, c, 0.0)

    def best_of(candidates: jax.Array) -> jax.Array:
        """The scales with the smallest bound, of those along the first axis."""

        def bound(c: jax.Array) -> jax.Array:
            return objective(*settled(_nearest(target, c, metric, loss, bias), c))

        at = jnp.argmin(jax.lax.map(bound, candidates), axis=0)[None, ..., None]
        return jnp.take_along_axis(candidates, at, axis=0)[0]

    def around(center: jax.Array, grid: jax.Array) -> tuple[jax.Array, None]:
        return best_of(center * grid.reshape(-1, *((1,) * center.ndim))), None

    price = {"squared": 2**0.5, "absolute": 1.0, "maximum": float(np.log(asked.shape[-2] / failure))}[loss] / n
    budgets = metric.budgets[..., None, :, :] / asked.shape[-2]
    lone = scale_worth_its_noise(start, budgets, price[..., None], own, bias)
    lone = jnp.where(noisy & (lone > 0), lone, own)
    grids = [jnp.asarray(grid, asked.dtype).reshape(-1, *((1,) * own.ndim)) for grid in (_OF_QUERIES, _ON_ITS_OWN)]
    candidates = jnp.concatenate([own * grids[0], lone * grids[1]])
    c, _ = jax.lax.scan(around, best_of(candidates), jnp.asarray(_GRIDS, asked.dtype))

    def turn(carry: tuple, _: None) -> tuple[tuple, None]:
        found, c_found, least, c = carry
        g, c = settled(_nearest(target, jnp.where(noisy, c, 1.0), metric, loss, bias), c)
        c = scales_of(g)
        bound = objective(g, c)
        better = bound < least
        carry = (
            jnp.where(better[..., None, None], g, found),
            jnp.where(better[..., None], c, c_found),
            jnp.where(better, bound, least),
            jnp.where((c > 0) & (c < jnp.inf), c, own),
        )
        return carry, None

    least = objective(start, closed)
    first = (start, closed, least, c)
    (g, c, least, _), _ = jax.lax.scan(turn, first, length=3)
    return FittedQueries(g, c, least, jnp.where(twins & jnp.any(start != asked, axis=(-2, -1)), jnp.inf, objective(start, closed)))


def scale_worth_its_noise(values: jax.Array, budgets: jax.Array, price: jax.Array, most: jax.Array, bias: Bias) -> jax.Array:
    """Return the c of the least r(c) + price * c for each query, r the sum or the largest of r_i over the elements i.

        r_i(c) = max over j of (|q_i - q_j| - c d(i, j))+ / 2

    The largest is how near a function with differences of at most c d comes to a query ``(..., N)``, for a d ``(..., N, N)`` that
    satisfies the triangle inequality. ``price`` and ``most``, above which c need not be, have the batch of both.
    """
    apart = jnp.abs(values[..., :, None] - values[..., None, :])
    over_all = (-2, -1) if bias == "worst_element" else -1

    def worth_it(c: jax.Array) -> jax.Array:
        """Whether the pairs that exceed most give more than the price."""
        over = apart - allowed(c[..., None, None], budgets)
        worst = jnp.max(over, axis=over_all, keepdims=True)
        slopes = jnp.max(jnp.where((over == worst) & (over > 0), budgets, 0.0), axis=over_all) / 2
        return (slopes if bias == "worst_element" else jnp.sum(slopes, axis=-1)) > price

    # Where a pair of budget 0 is told apart, `most` may be infinite; noise above all error is never worth it.
    top = jnp.minimum(most, jnp.sum(jnp.max(apart, axis=-1), axis=-1) / price)
    return bisect(worth_it, jnp.zeros_like(top), top, 2 * int(np.finfo(values.dtype).nmant))[1]


def envelopes(values: jax.Array, reach: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The two envelopes of values ``(..., N)``: the functions min and max over j of values_j +- d(i, j) for a metric d."""
    return jnp.min(values[..., None, :] + reach, axis=-1), jnp.max(values[..., None, :] - reach, axis=-1)


def alike(values: jax.Array, reach: jax.Array) -> jax.Array:
    """The same values, bitwise equal where the metric is 0."""
    one = jnp.argmax(reach == 0, axis=-1).astype(jnp.int32)
    return jnp.take_along_axis(values, jnp.broadcast_to(one, values.shape), axis=-1)


def allowed(c: jax.Array, budgets: jax.Array) -> jax.Array:
    """C d, for c = 0 too; infinite without a budget limit."""
    return jnp.where(budgets == jnp.inf, jnp.inf, c * jnp.where(budgets == jnp.inf, 0.0, budgets))


def _nearest(target: jax.Array, scales: jax.Array, metric: Metric, loss: str, bias: str) -> jax.Array:
    """The G nearest to the target within the budgets, for given scales, by splitting (ADMM) in x = G / c.

    Every pair has its own copy of x_i - x_j, projected on the L1 ball of radius d(i, j); sums over all pairs are a complete graph,
    whose Laplacian N I - 1 1' is inverted by hand. What the copies still disagree about is removed by :func:`_within`.
    """
    c = scales[..., None]
    t = target / c
    t = t - jnp.mean(t, axis=-1, keepdims=True)
    unit = jnp.maximum(jnp.max(jnp.abs(t), axis=(-2, -1), keepdims=True), float(np.finfo(t.dtype).tiny))
    t = t / unit
    radius = metric.budgets / unit
    n = t.shape[-1]
    # Residuals of x weigh c^2 (squared) or c; the others are split off too, and meet the pairs with weight 1.
    weight = jnp.square(c / jnp.max(c, axis=-2, keepdims=True)) if loss == "squared" else c / jnp.max(c, axis=-2, keepdims=True)
    pull = weight * n**0.5 if loss == "squared" else jnp.ones_like(weight) * n**0.5
    threshold = weight * n**-0.5
    balls = radius[..., None, :, :]

    def sweep(_: jax.Array, carry: tuple) -> tuple:
        _, copies, prices, residual, price = carry
        wanted = pull * (t + residual - price) + jnp.sum(copies - prices, axis=-1)
        x = (wanted + jnp.sum(wanted, axis=-1, keepdims=True) / pull) / (pull + n)
        apart = x[..., :, None] - x[..., None, :] + prices
        copies = _on_ball(apart, balls)
        if loss != "squared":
            off = x - t + price
            residual = _soft(off, threshold) if loss == "absolute" else off - _on_cube_dual(off, threshold)
            price = off - residual
        return x, copies, apart - copies, residual, price

    zeros = jnp.zeros_like(t)
    copies = _on_ball(t[..., :, None] - t[..., None, :], balls)
    x, *_ = jax.lax.fori_loop(0, _SWEEPS, sweep, (t, copies, jnp.zeros_like(copies), zeros, zeros))

    def centered(x: jax.Array) -> jax.Array:
        g = _within(x, radius) * unit * c
        offset = target - g
        if bias == "worst_element":
            return g + _center(offset, loss)[..., None]
        middle = jnp.mean if loss == "squared" else jnp.median
        return g + middle(offset, axis=-1, keepdims=True)

    found = centered(x)
    if bias == "all_elements":
        return found
    at_once = centered(t)  # the best for K = 1, where splitting is slow
    better = _bias(at_once - target, loss, bias) < _bias(found - target, loss, bias)
    return jnp.where(better[..., None, None], at_once, found)


def _center(points: jax.Array, loss: str) -> jax.Array:
    """A point ``(..., K)`` whose farthest of the points ``(..., K, N)`` is near.

    From the middle of each coordinate, the best for K = 1 and for "maximum", in shorter and shorter steps towards the farthest.
    """
    middle = (jnp.max(points, axis=-1) + jnp.min(points, axis=-1)) / 2
    if loss == "maximum" or points.shape[-2] == 1:
        return middle

    def step(number: jax.Array, carry: tuple) -> tuple:
        at, best, least = carry
        away = points - at[..., None]
        apart = jnp.sum(jnp.square(away) if loss == "squared" else jnp.abs(away), axis=-2)
        most = jnp.max(apart, axis=-1, keepdims=True)
        better = most < least
        towards = jnp.take_along_axis(away, jnp.argmax(apart, axis=-1)[..., None, None], axis=-1)[..., 0]
        return at + towards / (number + 3), jnp.where(better, at, best), jnp.minimum(most, least)

    return jax.lax.fori_loop(0, 60, step, (middle, middle, jnp.full((*middle.shape[:-1], 1), jnp.inf, middle.dtype)))[1]


def _within(x: jax.Array, budgets: jax.Array) -> jax.Array:
    """Functions ``(..., K, N)`` near x with sum_k |x_ki - x_kj| <= d(i, j), however small d is beside what x exceeds it by.

    Each pair's budget is dealt out to the K functions, where x keeps within it by what they need; the middle of the envelopes is
    within the closure of what each has, and off by no more than x exceeds the budgets along a path. Elements so close that a
    float cannot tell the difference from 0 become one.
    """
    apart = jnp.abs(x[..., :, None] - x[..., None, :])
    total = jnp.sum(apart, axis=-3, keepdims=True)
    finest = 64 * float(np.finfo(x.dtype).eps) * jnp.sum(jnp.max(jnp.abs(x), axis=-1), axis=-1)
    d = jnp.where(budgets <= finest[..., None, None], 0.0, budgets)[..., None, :, :]
    spare = jnp.maximum(d - total, 0.0) / x.shape[-2]
    reach = shortest_paths(jnp.where(total > d, apart * (d / jnp.where(total > d, total, 1.0)), apart + spare))
    above, below = envelopes(x, reach)
    return alike((above + below) / 2, reach)


def _soft(x: jax.Array, threshold: jax.Array) -> jax.Array:
    return jnp.sign(x) * jnp.maximum(jnp.abs(x) - threshold, 0.0)


def _on_ball(x: jax.Array, radius: jax.Array) -> jax.Array:
    """Project on the L1 ball along the third axis from the end; K Newton steps find the threshold exactly."""
    size = jnp.abs(x)
    cut = jnp.zeros_like(jnp.sum(size, axis=-3, keepdims=True))
    for _ in range(min(x.shape[-3], 8)):
        above = size > cut
        count = jnp.sum(above, axis=-3, keepdims=True, dtype=x.dtype)
        cut = jnp.maximum((jnp.sum(jnp.where(above, size, 0.0), axis=-3, keepdims=True) - radius) / jnp.maximum(count, 1.0), cut)
    return _soft(x, cut)


def _on_cube_dual(x: jax.Array, radius: jax.Array) -> jax.Array:
    """Project on the L1 ball over the last two axes, by bisection."""
    size, radius = jnp.abs(x), jnp.max(radius, axis=(-2, -1), keepdims=True)

    def outside(cut: jax.Array | float) -> jax.Array:
        return jnp.sum(jnp.maximum(size - cut, 0.0), axis=(-2, -1), keepdims=True) > radius

    top = jnp.max(size, axis=(-2, -1), keepdims=True)
    _, cut = bisect(outside, jnp.zeros_like(top), top, 30)
    return jnp.where(outside(0.0), _soft(x, cut), x)
