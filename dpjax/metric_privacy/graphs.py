"""Metrics on the nodes of a graph or a tree, where the budgets of edges add up.

References:
    Kamalaruban et al. (2020), Section 5 ("Privacy in Social Networks"), after He, Machanavajjhala
    and Ding (2014).
"""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from dpjax import checks
from dpjax.metric_privacy.budgets import budget_array
from dpjax.metric_privacy.metrics import Metric
from dpjax.metric_privacy.shortest_paths import shortest_paths


def from_graph(edges: ArrayLike, *, size: int, budgets: ArrayLike) -> Metric:
    """Return the metric d(i, j) = the smallest sum of budgets along a path from i to j.

    It is ``inf`` if there is no path: such nodes are not protected. Edges are undirected; of
    several between two nodes the smallest budget counts. The cost is N steps of N x N operations.

    Args:
        edges: int ``(E, 2)``, pairs of nodes 0 to N-1 of the public graph; a JAX edge out of range
            makes the metric NaN.
        size: static, the number N of nodes.
        budgets: float ``(..., E)``, or one for all: nonnegative, ``inf`` for an absent edge.

    >>> from_graph([[0, 1], [1, 2]], size=3, budgets=[1.0, 0.5]).budgets.tolist()
    [[0.0, 1.0, 1.5], [1.0, 0.0, 0.5], [1.5, 0.5, 0.0]]
    """
    pairs = edges if isinstance(edges, jax.Array) else np.asarray(edges)
    if pairs.dtype.kind not in "iu":
        raise TypeError(f"edges must be pairs of integers, got dtype {pairs.dtype}.")
    if pairs.ndim != 2 or pairs.shape[-1] != 2:
        raise ValueError(f"edges must be of shape (E, 2), got {pairs.shape}.")
    size = checks.static_integer("size", size, 1)
    if isinstance(pairs, np.ndarray) and not np.all((pairs >= 0) & (pairs < size)):
        raise ValueError(f"edges must join nodes from 0 to {size - 1}.")
    cost = jnp.atleast_1d(budget_array("budgets", budgets))
    if cost.shape[-1] not in (1, pairs.shape[0]):
        raise ValueError(
            f"budgets must have one element for each of the {pairs.shape[0]} edges, or one for "
            f"all, got shape {cost.shape}."
        )
    return _of_edges(checks.codes(pairs), cost, size)


def spanning_tree(metric: Metric, *, budget: ArrayLike | None = None) -> Metric:
    """Return the metric of paths in a minimum spanning tree (Prim 1957).

    d(i, j) is the sum of budgets along the path from i to j. The tree is public. With the budgets
    of ``metric`` no pair is protected more than under its closure.

    Args:
        metric: the lengths that the tree minimizes, for example the distances of points. Of edges
            of equal length any may be in the tree; elements that no finite budget connects stay at
            ``inf``.
        budget: positive ``(...)``, the same for every edge of the tree; by default the budgets of
            ``metric``.

    >>> from dpjax.metric_privacy.points import from_points
    >>> spanning_tree(from_points([[0.0], [1.0], [3.0]], epsilon=1.0), budget=0.5).budgets.tolist()
    [[0.0, 0.5, 1.0], [0.5, 0.0, 0.5], [1.0, 0.5, 0.0]]
    """
    checks.instance("spanning_tree", metric, Metric, "from_points, from_graph, ...")
    return _spanning_tree(
        metric, None if budget is None else checks.positive("budget", budget, metric.dtype)
    )


@jax.jit
def _spanning_tree(metric: Metric, budget: jax.Array | None) -> Metric:
    lengths = metric.dense().budgets
    n, batch = (
        metric.size,
        lengths.shape[:-2]
        if budget is None
        else jnp.broadcast_shapes(lengths.shape[:-2], budget.shape),
    )

    def tree(lengths: jax.Array, edge: jax.Array) -> jax.Array:
        def add_nearest(_: jax.Array, state: tuple) -> tuple:
            paths, found, nearest, parent = state
            new = jnp.argmin(
                jnp.where(found, jnp.inf, jnp.minimum(nearest, jnp.finfo(nearest.dtype).max))
            )
            step = jnp.where(
                nearest[new] == jnp.inf, jnp.inf, nearest[new] if budget is None else edge
            )
            row = jnp.where(found, paths[parent[new]] + step, jnp.inf).at[new].set(0.0)
            closer = lengths[new] < nearest
            parent = jnp.where(closer, new.astype(parent.dtype), parent)
            return (
                paths.at[new].set(row).at[:, new].set(row),
                found.at[new].set(True),
                jnp.minimum(nearest, lengths[new]),
                parent,
            )

        paths = jnp.full((n, n), jnp.inf, lengths.dtype).at[0, 0].set(0.0)
        start = paths, jnp.arange(n) == 0, lengths[0], jnp.zeros(n, jnp.int32)
        paths = jax.lax.fori_loop(0, n - 1, add_nearest, start)[0]
        return jnp.where(jnp.any(jnp.isnan(lengths)) | jnp.isnan(edge), jnp.nan, paths)

    edges = jnp.zeros(batch, lengths.dtype) if budget is None else jnp.broadcast_to(budget, batch)
    each = jnp.broadcast_to(lengths, (*batch, n, n)).reshape(-1, n, n)
    return Metric(jax.vmap(tree)(each, edges.reshape(-1)).reshape(*batch, n, n), metric.neighbors)


@partial(jax.jit, static_argnames="size")
def _of_edges(edges: jax.Array, cost: jax.Array, size: int) -> Metric:
    batch = cost.shape[:-1]
    each = jnp.broadcast_to(cost, (*batch, edges.shape[0]))
    one, other = edges[:, 0], edges[:, 1]
    lengths = jnp.full((*batch, size, size), jnp.inf, cost.dtype)
    lengths = lengths.at[..., one, other].min(each).at[..., other, one].min(each)
    lengths = jnp.where(jnp.eye(size, dtype=bool), 0.0, lengths)
    wrong = jnp.any(jnp.isnan(each), axis=-1) | jnp.any((edges < 0) | (edges >= size))
    return Metric(jnp.where(wrong[..., None, None], jnp.nan, shortest_paths(lengths)))
