"""Quantiles of data without an upper bound: above threshold on a growing public grid (Durfee 2023).

Search the grid b_0 = lower, b_i = lower + base^i - 1 upwards, and stop where c_i = #{records <=
b_i} has reached q n. As in :mod:`dpjax.mechanisms.above_threshold`, only the threshold has noise,
and a smooth maximum replaces the largest query so far. With

    w_i = log(base) exp(r (c_i - q n)),    A_i = w_0 + ... + w_(i-1),
    psi(z) = min((z / overshoot)^(l-1), (z / overshoot)^-(k+1))

draw Z > 0 with density proportional to psi, and return the b_i with A_i < Z <= A_(i+1), or the last
point if A_last < Z. The probabilities are closed forms:

    p_i = C * integral of psi from A_i to A_(i+1) = C w_i * integral over s from 0 to 1 of psi(A_i +
    s w_i).

Privacy. The slope of log psi by log z is l-1 or -(k+1), so log(psi(f z) / psi(z)) lies between
(l-1) log f and -(k+1) log f for all positive f and z. Compare p_i' of a neighbor with p_i at each
s: there z = A_i + s w_i, and f = z'/z. At the last point f = A'/A, and the integral of psi beyond
A' is f times that of psi(f z) beyond A. So log(p_i'/p_i) lies in these intervals.

One more record; t is the first point that is not below it; w_i' is exp(-q r) w_i for i < t, and
exp((1-q) r) w_i from t on.
    i < t: log f = -q r, as is log(w_i'/w_i): r [-q l, q k].
    i >= t: log f is in r [-q, 1-q], and log(w_i'/w_i) = r (1-q):
      r [min(-k (1-q), 1 - q l), max(l (1-q), 1 + q k)].
    Last point: log f is in r [-q, 1-q]: r [-max(q l, k (1-q)), max(q k, l (1-q))].
  So epsilon = r max(1 + q k, k (1-q), l max(q, 1-q)), with the largest l that does not increase it.
One record replaced by a smaller one; w_i' is exp(r) w_i for the points between them, and w_i
elsewhere.
    Before them: 0. Between them: log f is in [0, r], and log(w_i'/w_i) = r: r [-k, l].
    After them: r [-(k+1), l-1]. Last point: r [-k, l].
  So epsilon = r (k+1), and l = k+1.

Neither constant can be improved: the bound with l is attained at the first point, that with k is
approached on long grids. The grid only needs to be nondecreasing. Here k = 5: if all records are
far below the last point, which is 10^12 above lower, its probability is below (log(10^12) /
overshoot)^-5 = 10^-12, and its contribution to the mean error is small.
"""

from __future__ import annotations

from fractions import Fraction
from functools import partial
from math import ceil, log, log1p

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from dpjax import checks
from dpjax.accounting.guarantee import Guarantee
from dpjax.accounting.mechanism import with_guarantee
from dpjax.checks import Neighbors
from dpjax.distributions.finite import Finite
from dpjax.mechanisms._above_threshold import stopping_cost
from dpjax.mechanisms.relations import pure
from dpjax.numerics.batching import fits
from dpjax.several_quantiles.ranks import ranks_of_quantile
from dpjax.statistics.padded_records import present_records

_REACH = 1e12
_MOST = 2**24  # steps
_TAIL = 5  # k


def guarantee(relation: str, epsilon: float) -> Guarantee:
    """Return the guarantee of one draw of :func:`unbounded_quantile`.

    >>> print(unbounded_quantile.guarantee("add_remove", 1.0))
    1-DP and 2-bounded-range under add_remove neighbors
    """
    return pure(relation, epsilon, ranges=2, known=checks.NEIGHBORS)


@with_guarantee(guarantee)
def unbounded_quantile(
    x: ArrayLike,
    q: float | Fraction | str,
    epsilon: ArrayLike,
    *,
    lower: ArrayLike,
    neighbors: Neighbors,
    base: float = 1.01,
    overshoot: ArrayLike = 0.1,
    steps: int | None = None,
    num_records: ArrayLike | None = None,
    mask: ArrayLike | None = None,
) -> Finite:
    """Return the distribution of a private q-quantile of data that only have a lower bound.

    Use it for n (1-q) epsilon below about 20, and :func:`dpjax.piecewise_laplace` above: for
    smaller values, piecewise Laplace draws from the whole range up to the bound. Exact mean
    absolute errors, relative to the quantile, for 1000 incomes distributed as exp(10.5 + 0.8 N(0,
    1)), under add/remove:

        q     epsilon  n (1-q) epsilon  here   piecewise Laplace on [0, 10^6]  on [0, 10^9]
        0.99  0.2      2                0.306  1.34                            2120
        0.99  1        10               0.027  0.271                           1930
        0.9   0.1      10               0.109  0.819                           4870
        0.99  2        20               0.041  0.035                           1150
        0.9   0.2      20               0.020  0.053                           3030
        0.9   0.5      50               0.041  0.017                           0.018
        0.5   0.2      100              0.039  0.010                           0.010

    Above threshold with exponential noise also on the queries has errors 0.309, 0.079 and 0.042 in
    the rows of 0.99, with base and shares of epsilon chosen in hindsight. Where n epsilon is below
    about 60, the search can stop already near ``lower``.

    Args:
        x: float ``(..., n)``. See :mod:`dpjax.statistics` for it and for the arguments not listed
            here. Records are clamped from below; if they only have an upper bound, pass ``-x``, ``1
            - q`` and minus the bound, and negate the result.
        q: static, strictly between 0 and 1, read by its decimal value: 0.99 is 99/100.
        epsilon: positive.
        base: public and static, above 1. Points are ``base - 1`` apart, times the value for values
            far above 1: use small units for the data. Otherwise the distribution hardly depends on
            it.
        overshoot: public, positive: how far the search goes beyond q n, relative to the value.
            Where records are dense, the result is up to about 0.4 times it too large; with a
            smaller one the search stops too early where records are sparse.
        steps: public and static, the number of grid points, at least 2; by default up to 10^12
            above ``lower``.

    Returns:
        A :class:`Finite` of the broadcast batch shape on the grid; its costs are minus
        log-probabilities, and its rate is 1. Probabilities have a relative error of about 1e-12 in
        float64, and of 1e-5 in float32 where they are above 1e-12.

    Privacy:
        epsilon-DP under ``neighbors``; the bounded range is up to 2 epsilon (proof in the module
        docstring). Public: q, the grid, ``overshoot``, and what :mod:`dpjax.statistics` lists.

    References:
        Durfee, "Unbounded differentially private quantile and maximum estimation" (2023), for the
        grid and the search. The distribution of the threshold is not taken from there.

    >>> import jax.numpy as jnp
    >>> incomes = 10_000 * jnp.exp(jnp.linspace(-2.0, 2.0, 1001))
    >>> distribution = unbounded_quantile(incomes, 0.99, 1.0, lower=0, neighbors="add_remove")
    >>> 0.9 < float(distribution.quantile(0.5)) / 71_000 < 1.1
    True
    """
    checks.one_of("neighbors", neighbors, checks.NEIGHBORS)
    ranks = ranks_of_quantile(q, definition="lower", neighbors=neighbors)
    records, present = present_records(x, num_records=num_records, mask=mask)
    if ranks.denominator * (records.shape[-1] + 1) >= 2**31:
        raise ValueError(
            f"q must have a smaller denominator for exact ranks of {records.shape[-1]} records, "
            f"got {ranks.denominator}."
        )
    rate, more = (
        checks.positive("epsilon", epsilon, records.dtype),
        checks.positive("overshoot", overshoot, records.dtype),
    )
    grid = _grid(lower, base, steps, records.dtype)
    share = Fraction(ranks.per_record, ranks.denominator)
    largest, below = _powers(share, neighbors)
    gaps = _gaps(grid, records, present, share, neighbors)
    fits(gaps.shape[:-1], epsilon=rate.shape, overshoot=more.shape)
    scale = log(base) / more
    return _distribution(grid, gaps, rate, scale, largest, below)


@partial(jax.jit, static_argnames=("largest", "below"))
def _distribution(
    grid: jax.Array,
    gaps: jax.Array,
    rate: jax.Array,
    scale: jax.Array,
    largest: float,
    below: float,
) -> Finite:
    cost = _cost(gaps, jnp.minimum(rate, 2.0**60) / largest, scale, below, float(_TAIL))
    return Finite(
        grid, jnp.where(jnp.isnan(grid[..., -1:]), jnp.nan, cost), jnp.ones((), grid.dtype)
    )


def _powers(q: Fraction, neighbors: Neighbors) -> tuple[float, float]:
    """Return epsilon in units of r, and l."""
    if neighbors == "swap":
        return _TAIL + 1.0, _TAIL + 1.0
    largest = max(1 + _TAIL * q, _TAIL * (1 - q))
    return float(largest), float(largest / max(q, 1 - q))


def _grid(lower: ArrayLike, base: float, steps: int | None, dtype: np.dtype) -> jax.Array:
    """Return the grid ``(..., steps)``; NaN where ``lower`` is invalid."""
    if isinstance(base, jax.Array):
        raise TypeError(
            "base must be a static number, not a JAX array: the grid is computed on the host."
        )
    checks.above_one("base", base, np.float64)
    size = checks.static_integer(
        "steps", ceil(log1p(_REACH) / log(base)) + 1 if steps is None else steps, 2, _MOST
    )
    low = checks.finite("lower", lower, dtype)
    with np.errstate(over="ignore"):
        above = np.power(float(base), np.arange(size)) - 1
        host_lower = (
            np.zeros(())
            if isinstance(lower, jax.Array)
            else checks.host_floats("lower", np.asarray(lower)).astype(np.float64)
        )
        points = (host_lower[..., None] + above).astype(dtype)
    if not np.all(np.isfinite(points[..., -1]) & (points[..., -1] > points[..., 0])):
        raise ValueError(
            f"the grid from lower={lower} to {above[-1]:.3g} above it must be increasing and "
            f"finite in {np.dtype(dtype)}."
        )
    if not isinstance(lower, jax.Array):
        return jnp.asarray(points)
    grid = low[..., None] + jnp.asarray(points)
    return jnp.where(jnp.isfinite(grid[..., -1:]) & (grid[..., -1:] > grid[..., :1]), grid, jnp.nan)


@partial(jax.jit, static_argnames=("q", "neighbors"))
def _gaps(
    grid: jax.Array,
    records: jax.Array,
    present: jax.Array | None,
    q: Fraction,
    neighbors: Neighbors,
) -> jax.Array:
    """Return #{records <= grid point} - q n, ``(..., steps)``, computed in integers."""
    absent = jnp.isnan(records)
    counted = jnp.ones(records.shape, bool) if present is None else present
    counted = counted if neighbors == "swap" else counted & ~absent
    records = jnp.where(absent, -jnp.inf, records)  # under swap, a NaN counts as the lower bound

    def counts(grid: jax.Array, records: jax.Array, counted: jax.Array) -> jax.Array:
        cell = jnp.searchsorted(grid, records)
        return (
            jnp.zeros(grid.shape[-1], jnp.int32)
            .at[cell]
            .add(counted.astype(jnp.int32), mode="drop")
        )

    upto = jnp.cumsum(
        jnp.vectorize(counts, signature="(g),(n),(n)->(g)")(grid, records, counted), axis=-1
    )
    n = jnp.sum(counted, axis=-1, keepdims=True, dtype=jnp.int32)
    return (upto * np.int32(q.denominator) - n * np.int32(q.numerator)).astype(grid.dtype) / float(
        q.denominator
    )


@jax.jit
def _cost(
    gaps: jax.Array, rate: jax.Array, scale: jax.Array, below: float, above: float
) -> jax.Array:
    """Return minus the log-probabilities, for weights ``scale * exp(rate * gaps)``.

    ``below`` and ``above`` are the powers l and k; the threshold is around 1.
    """
    return stopping_cost(rate[..., None] * gaps + jnp.log(scale)[..., None], below, above)
