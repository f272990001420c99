"""Metrics on the nodes of a graph or a tree: budgets along edges add up."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from dpjax import checks
from dpjax.metric_privacy.metrics import Metric, budget_array
from dpjax.metric_privacy.shortest_paths import shortest_paths


def from_graph(edges: ArrayLike, *, size: int, budgets: ArrayLike) -> Metric:
    """Return the metric d(i, j) = the smallest sum of budgets along a path from i to j, ``inf`` where there is none.

    A tree is a graph of N - 1 edges; of several edges between two nodes the smallest budget counts, an edge from a node to itself
    says nothing. Edges go both ways. The work is that of N steps over N x N numbers.

    Args:
        edges: int ``(E, 2)``, pairs of nodes 0 to N-1; public.
        size: static, the number of nodes N.
        budgets: float ``(..., E)``, or one for all: not negative, ``inf`` for an edge that is not there.

    Returns:
        A :class:`Metric`; NaN for a batch element with a bad JAX budget, and everywhere for a bad JAX edge.

    Privacy:
        The graph is public. Nodes that no path joins are not protected from being told apart.

    References:
        Kamalaruban et al. (2020), Section 5 ("Privacy in Social Networks").

    >>> from_graph([[0, 1], [1, 2]], size=3, budgets=[1.0, 0.5]).budgets.tolist()
    [[0.0, 1.0, 1.5], [1.0, 0.0, 0.5], [1.5, 0.5, 0.0]]
    """
    given = edges if isinstance(edges, jax.Array) else np.asarray(edges)
    if given.dtype.kind not in "iu":
        raise TypeError(f"edges must be pairs of integers, got dtype {given.dtype}.")
    if given.ndim != 2 or given.shape[-1] != 2:
        raise ValueError(f"edges must be of shape (E, 2), got {given.shape}.")
    size = checks.static_integer("size", size, 1)
    if isinstance(given, np.ndarray) and not np.all((given >= 0) & (given < size)):
        raise ValueError(f"edges must join nodes from 0 to {size - 1}.")
    cost = jnp.atleast_1d(budget_array("budgets", budgets))
    if cost.shape[-1] not in (1, given.shape[0]):
        raise ValueError(f"{given.shape[0]} edges need as many budgets, or one for all; got shape {cost.shape}.")
    return _of_edges(checks.codes(given), cost, size)


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
