"""Functions and queries nearest to given ones within the budgets.

For one function it is the mean of its two envelopes (McShane 1934). For several queries that share
the budgets, with given noise scales, it is found by splitting (ADMM), and then made to satisfy the
budgets exactly.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from dpjax.metric_privacy.metrics import Metric
from dpjax.metric_privacy.shortest_paths import shortest_paths
from dpjax.numerics.search import bisect

_SWEEPS = 200


def nearest_function(values: jax.Array, reach: jax.Array, budgets: jax.Array) -> jax.Array:
    """Return the function nearest in the sup norm whose differences are at most ``reach``.

        (min over j of (q_j + reach_ij) + max over j of (q_j - reach_ij)) / 2

    ``values`` are ``(..., N)``; ``reach``, ``(..., N, N)``, satisfies the triangle inequality.
    Elements with ``budgets`` of 0 between them get exactly the same value, even if their rows were
    rounded differently.
    """
    above = jnp.min(values[..., None, :] + reach, axis=-1)
    below = jnp.max(values[..., None, :] - reach, axis=-1)
    first = jnp.argmax(budgets == 0, axis=-1).astype(jnp.int32)
    both = (above + below) / 2
    return jnp.take_along_axis(both, jnp.broadcast_to(first, both.shape), axis=-1)


def allowed(c: jax.Array, budgets: jax.Array) -> jax.Array:
    """Return c d; ``inf`` where d is, even for c = 0."""
    return jnp.where(budgets == jnp.inf, jnp.inf, c * jnp.where(budgets == jnp.inf, 0.0, budgets))


def bias_of(residual: jax.Array, loss: str, bias: str) -> jax.Array:
    """Return the bias of one record, to the power of the loss, for residuals ``(..., K, N)``."""
    magnitude = jnp.abs(residual)
    if loss == "maximum":
        return jnp.max(magnitude, axis=(-2, -1))
    total = jnp.sum if bias == "all_elements" else jnp.max
    return total(
        jnp.sum(jnp.square(magnitude) if loss == "squared" else magnitude, axis=-2), axis=-1
    )


def nearest_queries(
    target: jax.Array, scales: jax.Array, metric: Metric, loss: str, bias: str
) -> jax.Array:
    """Return the G nearest to the target within the budgets, for given scales.

    It is found by splitting (ADMM) in x = G / c. Every pair has a copy of x_i - x_j, projected on
    the L1 ball of radius d(i, j). The pairs are a complete graph, whose Laplacian N I - 1 1' is
    inverted in closed form. :func:`_within` removes the remaining disagreement of the copies.
    """
    c = scales[..., None]
    t = target / c
    t = t - jnp.mean(t, axis=-1, keepdims=True)
    unit = jnp.maximum(
        jnp.max(jnp.abs(t), axis=(-2, -1), keepdims=True), float(np.finfo(t.dtype).tiny)
    )
    t = t / unit
    radius = metric.budgets / unit
    n = t.shape[-1]
    # Residuals of x weigh c^2 (squared) or c; those that are not squared are split too, and meet
    # the pairs with weight 1.
    weight = c / jnp.max(c, axis=-2, keepdims=True)
    if loss == "squared":
        weight = jnp.square(weight)
    pull = (weight if loss == "squared" else jnp.ones_like(weight)) * n**0.5
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
            residual = (
                _soft(off, threshold) if loss == "absolute" else off - _on_cube_dual(off, threshold)
            )
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

    split = centered(x)
    if bias == "all_elements":
        return split
    direct = centered(t)  # the best for K = 1, where splitting converges slowly
    better = bias_of(direct - target, loss, bias) < bias_of(split - target, loss, bias)
    return jnp.where(better[..., None, None], direct, split)


def _center(points: jax.Array, loss: str) -> jax.Array:
    """Return a point ``(..., K)`` with a small largest distance to points ``(..., K, N)``.

    Start from the middle of each coordinate, which is the best for K = 1 and for "maximum", and
    take shorter and shorter steps toward the farthest point.
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
        towards = jnp.take_along_axis(away, jnp.argmax(apart, axis=-1)[..., None, None], axis=-1)[
            ..., 0
        ]
        return at + towards / (number + 3), jnp.where(better, at, best), jnp.minimum(most, least)

    return jax.lax.fori_loop(
        0, 60, step, (middle, middle, jnp.full((*middle.shape[:-1], 1), jnp.inf, middle.dtype))
    )[1]


def _within(x: jax.Array, budgets: jax.Array) -> jax.Array:
    """Return functions ``(..., K, N)`` near x with sum_k |x_ki - x_kj| <= d(i, j).

    It holds for budgets much smaller than the violation too. Each pair's budget is shared between
    the K functions, and each takes the nearest function within the closure of its shares. Elements
    so close that rounding hides their difference become one.
    """
    apart = jnp.abs(x[..., :, None] - x[..., None, :])
    total = jnp.sum(apart, axis=-3, keepdims=True)
    finest = 64 * float(np.finfo(x.dtype).eps) * jnp.sum(jnp.max(jnp.abs(x), axis=-1), axis=-1)
    d = jnp.where(budgets <= finest[..., None, None], 0.0, budgets)[..., None, :, :]
    spare = jnp.maximum(d - total, 0.0) / x.shape[-2]
    reach = shortest_paths(
        jnp.where(total > d, apart * (d / jnp.where(total > d, total, 1.0)), apart + spare)
    )
    return nearest_function(x, reach, reach)


def _soft(x: jax.Array, threshold: jax.Array) -> jax.Array:
    return jnp.sign(x) * jnp.maximum(jnp.abs(x) - threshold, 0.0)


def _on_ball(x: jax.Array, radius: jax.Array) -> jax.Array:
    """Project on the L1 ball along the third axis from the end; K Newton steps are exact."""
    magnitude = jnp.abs(x)
    cut = jnp.zeros_like(jnp.sum(magnitude, axis=-3, keepdims=True))
    for _ in range(min(x.shape[-3], 8)):
        above = magnitude > cut
        count = jnp.sum(above, axis=-3, keepdims=True, dtype=x.dtype)
        cut = jnp.maximum(
            (jnp.sum(jnp.where(above, magnitude, 0.0), axis=-3, keepdims=True) - radius)
            / jnp.maximum(count, 1.0),
            cut,
        )
    return _soft(x, cut)


def _on_cube_dual(x: jax.Array, radius: jax.Array) -> jax.Array:
    """Project on the L1 ball over the last two axes, by bisection."""
    magnitude, radius = jnp.abs(x), jnp.max(radius, axis=(-2, -1), keepdims=True)

    def outside(cut: jax.Array | float) -> jax.Array:
        return jnp.sum(jnp.maximum(magnitude - cut, 0.0), axis=(-2, -1), keepdims=True) > radius

    top = jnp.max(magnitude, axis=(-2, -1), keepdims=True)
    _, cut = bisect(outside, jnp.zeros_like(top), top)
    return jnp.where(outside(0.0), _soft(x, cut), x)
