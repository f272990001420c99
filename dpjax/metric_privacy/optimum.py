"""The best noise scales, by an interior point method on a working set of pairs.

It solves for u = 1/c, in which the budgets are linear and the objectives convex, and gives a
certificate. Pairs whose budget a solution exceeds are added until there are none.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from dpjax.metric_privacy.loads import answered, fold_pairs, ratio, within_budgets
from dpjax.metric_privacy.metrics import Metric

_EXCHANGES = 30  # exchanges of the working set of pairs; a few suffice
# Steps of the interior point method; each divides the gap by about 5, less where scales span
# decades.
_STEPS = 80


def best_scales(
    values: jax.Array,
    metric: Metric,
    alone: jax.Array,
    weights: jax.Array,
    power: int,
    others: tuple[jax.Array, jax.Array],
) -> tuple[jax.Array, jax.Array]:
    """Return the scales ``(..., K)`` of least sum w_k c_k^power, and a bound of the gap ``(...)``.

    For power 0 the sum is that of w_k log c_k.

    ``alone``, from :func:`dpjax.metric_privacy.loads.scales_alone`, has the full batch shape. The
    search starts at the first of ``others``, scales by other strategies, and the result is no worse
    than any of them.
    """
    alive, shared = answered(values, alone)
    weights = jnp.where(alive, weights, 0.0)
    # In units of v = alone / c, every entry of the constraints and every v is at most 1.
    unit = jnp.where(alive, alone, 1.0)
    size = weights * unit**power
    w = size / jnp.max(size, axis=-1, keepdims=True)
    start = jnp.where(alive, unit / others[0], 0.0)
    v, multipliers, first, second = jax.lax.stop_gradient(
        _exchange(shared, unit, metric, w, alive, start, power)
    )
    rows = _constraints(shared, unit, metric, first, second)
    v = _implicit(v, multipliers, rows, w, alive, power)
    best = within_budgets(values, unit / jnp.where(alive, v, 1.0), alone, metric)

    def objective(scales: jax.Array) -> jax.Array:
        x = jnp.where(alive, scales / unit, 1.0)
        return jnp.sum(w * (x**power if power else jnp.log(x)), axis=-1)

    for other in others:
        # Better by rounding only, unless the solver failed: the derivative remains that of the
        # optimum.
        other = jax.lax.stop_gradient(within_budgets(values, other, alone, metric))
        better = ~(objective(best) <= objective(other))
        change = best - jax.lax.stop_gradient(best)
        best = jnp.where(
            better[..., None], other + jnp.where(jnp.isfinite(change), change, 0.0), best
        )
    bound = _lower_bound(rows, multipliers, w, alive, power)
    reached = objective(best)
    gap = reached / bound - 1 if power else jnp.expm1((reached - bound) / jnp.sum(w, axis=-1))
    nothing = jnp.where(jnp.isnan(alone[..., 0]), jnp.nan, 0.0)  # no scale was free
    return best, jax.lax.stop_gradient(
        jnp.where(jnp.any(alive, axis=-1), jnp.maximum(gap, 0.0), nothing)
    )


def _constraints(
    shared: jax.Array, unit: jax.Array, metric: Metric, first: jax.Array, second: jax.Array
) -> jax.Array:
    """Return |dQ_k| / unit_k / d for pairs of elements ``(..., M)``: ``(..., M, K)``.

    Subtract before dividing: differences of quotients would be mostly rounding where a query has a
    large constant in it.
    """
    one, other = (
        jnp.take_along_axis(shared, index[..., None, :], axis=-1) for index in (first, second)
    )
    return jnp.swapaxes(
        ratio(jnp.abs(one - other) / unit[..., None], metric.pairs(first, second)[..., None, :]),
        -1,
        -2,
    )


def _exchange(
    shared: jax.Array,
    unit: jax.Array,
    metric: Metric,
    w: jax.Array,
    alive: jax.Array,
    start: jax.Array,
    power: int,
) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]:
    """Return the optimum v, multipliers and their pairs.

    Solve for a working set of pairs, then add the pairs whose budgets the solution exceeds.
    """
    n, k, batch = metric.size, shared.shape[-2], start.shape[:-1]
    slots = min(4 * k + 24, max(1, n * (n - 1) // 2) + k)
    eps = float(np.finfo(shared.dtype).eps)
    columns = jnp.arange(n, dtype=jnp.int32)

    def steepest(carry: tuple, index: jax.Array, apart: jax.Array, rows: jax.Array) -> tuple:
        """Find the pair that bounds each query alone."""
        most, i, j = carry
        need = ratio(apart / unit[..., None, None], rows[..., None, :, :]).reshape(*batch, k, -1)
        at = jnp.argmax(need, axis=-1).astype(jnp.int32)
        here = jnp.max(need, axis=-1)
        return (
            jnp.maximum(most, here),
            jnp.where(here > most, index[at // n], i),
            jnp.where(here > most, at % n, j),
        )

    zeros = jnp.zeros((*batch, k), jnp.int32)
    _, first, second = fold_pairs(
        shared, metric, (jnp.zeros((*batch, k), shared.dtype), zeros, zeros), steepest
    )

    def heaviest(v: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Return the largest load of each element with a later one, and the index of that one."""

        def step(carry: tuple, index: jax.Array, apart: jax.Array, rows: jax.Array) -> tuple:
            loads, partner = carry
            together = ratio(jnp.sum((v / unit)[..., None, None] * apart, axis=-3), rows)
            together = jnp.where(columns > index[:, None], together, 0.0)
            here = jnp.argmax(together, axis=-1).astype(jnp.int32)
            return loads.at[..., index].set(jnp.max(together, axis=-1)), partner.at[..., index].set(
                here
            )

        return fold_pairs(
            shared,
            metric,
            (jnp.zeros((*batch, n), shared.dtype), jnp.zeros((*batch, n), jnp.int32)),
            step,
        )

    every = jnp.broadcast_to(columns, (*batch, n))
    tolerance = 1 + (1e-11 if shared.dtype == jnp.float64 else 1e-5)

    def exchange(carry: tuple) -> tuple:
        count, unfinished, _, multipliers, first, second, loads, partner = carry
        largest = jnp.max(multipliers, axis=-1, keepdims=True)
        # Binding pairs stay, or the objective could fall; then the pairs over their budgets, the
        # worst first, then the fullest. A binding candidate that is within its budget is in the set
        # already.
        held = jnp.where(
            multipliers > max(1e-6, 1e3 * eps) * largest, 4 + multipliers / largest, 0.0
        )
        spare = jnp.where(loads < 1 - 1e-6, loads, -1.0)
        score = jnp.concatenate(
            [held, jnp.where(loads > 1 + 16 * eps, 1 + jnp.minimum(loads, 2.0), spare)], axis=-1
        )
        _, kept = jax.lax.top_k(score, slots)
        first, second = (
            jnp.take_along_axis(jnp.concatenate(pool, axis=-1), kept, axis=-1)
            for pool in ((first, every), (second, partner))
        )
        v, multipliers = _interior_point(
            _constraints(shared, unit, metric, first, second), w, alive, start, power
        )
        solved = (v, multipliers, first, second, *heaviest(v))
        kept_on = [
            jnp.where(unfinished, new, old) for new, old in zip(solved, carry[2:], strict=True)
        ]
        return (
            count + 1,
            unfinished & (jnp.max(kept_on[4], axis=-1, keepdims=True) > tolerance),
            *kept_on,
        )

    # Start with the pairs that bound each query alone; a pair of an element with itself is no
    # constraint.
    ones = jnp.ones((*batch, k), shared.dtype)
    held = (
        jnp.pad(initial, [(0, 0)] * len(batch) + [(0, slots - k)])
        for initial in (ones, first, second)
    )
    carry = (jnp.int32(0), jnp.any(alive, axis=-1, keepdims=True), start, *held, *heaviest(start))
    carry = jax.lax.while_loop(
        lambda carry: jnp.any(carry[1]) & (carry[0] < _EXCHANGES), exchange, carry
    )
    return carry[2:6]


def _interior_point(
    rows: jax.Array, w: jax.Array, alive: jax.Array, start: jax.Array, power: int
) -> tuple[jax.Array, jax.Array]:
    """Minimize sum_k w_k v_k^-p / p (or -w_k log v_k) subject to rows v <= 1.

    Return v ``(..., K)`` and multipliers ``(..., M)``.
    """
    m = rows.shape[-2]
    v = jnp.where(alive, start, 0.0)
    v = v * (0.9 / jnp.maximum(jnp.max(_product(rows, v), axis=-1, keepdims=True), 0.1))
    v = jnp.where(alive, v, 1.0)
    slack = 1 - _product(rows, v)
    # The sum of all multipliers, at the optimum.
    scale = jnp.sum(jnp.where(alive, w * v**-power, 0.0), axis=-1, keepdims=True)
    multipliers = 0.5 * scale / m / slack
    eps = float(np.finfo(v.dtype).eps)
    floor = 4 * eps * scale

    def furthest(x: jax.Array, dx: jax.Array) -> jax.Array:
        """Return the largest step, up to 1, that stays positive."""
        limit = jnp.where(dx < 0, x / jnp.where(dx < 0, -dx, 1.0), jnp.inf)
        return jnp.minimum(0.99 * jnp.min(limit, axis=-1, keepdims=True), 1.0)

    def mean_gap(slack: jax.Array, multipliers: jax.Array) -> jax.Array:
        return jnp.sum(slack * multipliers, axis=-1, keepdims=True) / m

    def step(carry: tuple) -> tuple:
        count, unsettled, v, slack, multipliers = carry
        # Below the floor a slack would be mostly the rounding of 1 - rows v.
        target = jnp.maximum(0.1 * mean_gap(slack, multipliers), floor)
        gradient = -_product(jnp.swapaxes(rows, -1, -2), target / slack) + jnp.where(
            alive, w * v ** (-power - 1), 0.0
        )
        dv = _newton(rows, multipliers / slack, v, w, alive, power, gradient)
        change = _product(rows, dv)
        dm = (target + multipliers * change) / slack - multipliers
        along = jnp.minimum(furthest(slack, -change), furthest(v, dv))
        moved = v + along * dv
        # The slack is recomputed, so that errors do not accumulate, and stays positive where it
        # rounds to 0.
        trial = (
            moved,
            jnp.maximum(1 - _product(rows, moved), eps / 4),
            multipliers + furthest(multipliers, dm) * dm,
        )
        sound = jnp.isfinite(
            jnp.sum(trial[0], axis=-1, keepdims=True) + jnp.sum(trial[2], axis=-1, keepdims=True)
        )
        # Settled batch elements do not change: further steps would only add rounding.
        unsettled = unsettled & sound
        v, slack, multipliers = (
            jnp.where(unsettled, new, old) for new, old in zip(trial, carry[2:], strict=True)
        )
        wide = mean_gap(slack, multipliers) > 1.5 * floor
        off = jnp.where(
            alive, v * _product(jnp.swapaxes(rows, -1, -2), multipliers) - w * v**-power, 0.0
        )
        unsettled = unsettled & (
            wide | (jnp.max(jnp.abs(off), axis=-1, keepdims=True) > 16 * floor)
        )
        return count + 1, unsettled, v, slack, multipliers

    carry = (jnp.int32(0), jnp.any(alive, axis=-1, keepdims=True), v, slack, multipliers)
    _, _, v, _, multipliers = jax.lax.while_loop(
        lambda carry: jnp.any(carry[1]) & (carry[0] < _STEPS), step, carry
    )
    return v, multipliers


def _product(matrix: jax.Array, vector: jax.Array) -> jax.Array:
    return jnp.matmul(matrix, vector[..., None], precision=jax.lax.Precision.HIGHEST)[..., 0]


def _newton(
    rows: jax.Array,
    pull: jax.Array,
    v: jax.Array,
    w: jax.Array,
    alive: jax.Array,
    power: int,
    gradient: jax.Array,
) -> jax.Array:
    """Solve (diag((p+1) w v^-(p+2)) + rows^T diag(pull) rows) x = gradient.

    x is 0 for queries without noise.
    """
    curve = jnp.where(alive, (power + 1) * w * v ** (-power - 2), 1.0)
    hessian = jnp.matmul(
        jnp.swapaxes(rows, -1, -2), pull[..., None] * rows, precision=jax.lax.Precision.HIGHEST
    )
    hessian = hessian + curve[..., None] * jnp.eye(v.shape[-1], dtype=v.dtype)
    # Scale to a unit diagonal, as the entries span many powers of ten, and add a ridge: rounding
    # could make Cholesky fail.
    root = jnp.sqrt(jnp.diagonal(hessian, axis1=-2, axis2=-1))
    ridge = 8 * v.shape[-1] * float(np.finfo(v.dtype).eps) * jnp.eye(v.shape[-1], dtype=v.dtype)
    factor = jnp.linalg.cholesky(hessian / (root[..., :, None] * root[..., None, :]) + ridge)
    half = jax.lax.linalg.triangular_solve(
        factor, (jnp.where(alive, gradient, 0.0) / root)[..., None], left_side=True, lower=True
    )
    solution = jax.lax.linalg.triangular_solve(
        factor, half, left_side=True, lower=True, transpose_a=True
    )
    return solution[..., 0] / root


def _implicit(
    v: jax.Array,
    multipliers: jax.Array,
    rows: jax.Array,
    w: jax.Array,
    alive: jax.Array,
    power: int,
) -> jax.Array:
    """Return v unchanged, with the derivative that the optimality conditions give it."""
    fixed = jax.lax.stop_gradient(rows)
    slack = jnp.maximum(1 - _product(fixed, v), 0.0)
    pull = multipliers / jnp.maximum(slack, float(np.finfo(v.dtype).eps) ** 0.5)
    residual = (
        _product(jnp.swapaxes(rows, -1, -2), multipliers)
        - jnp.where(alive, w * v ** (-power - 1), 0.0)
        + _product(jnp.swapaxes(fixed, -1, -2), pull * _product(rows, v))
    )
    moved = residual - jax.lax.stop_gradient(residual)
    change = _newton(fixed, pull, v, jax.lax.stop_gradient(w), alive, power, moved)
    return v - jnp.where(jnp.isfinite(change), change, 0.0)


def _lower_bound(
    rows: jax.Array, multipliers: jax.Array, w: jax.Array, alive: jax.Array, power: int
) -> jax.Array:
    """Return a lower bound of the objective over all v within the budgets: Holder, Jensen.

    The objective is sum w_k v_k^-p, or -sum w_k log v_k.
    """
    pull = _product(jnp.swapaxes(rows, -1, -2), multipliers)
    pull = jnp.where(alive, pull, 1.0)
    price = jnp.sum(multipliers, axis=-1)
    if power:
        return (
            jnp.sum((w * pull**power) ** (1 / (power + 1)), axis=-1) ** (power + 1) / price**power
        )
    total = jnp.sum(w, axis=-1)
    parts = jnp.where(alive, w * jnp.log(pull / jnp.where(alive, w, 1.0)), 0.0)
    return jnp.sum(parts, axis=-1) + total * jnp.log(total / price)
