"""Triangle counts under edge neighbors: local sensitivity at every distance, as radii.

The edge between i and j closes a triangle with every common neighbor of both, so the local
sensitivity of the count is the largest number a_ij of common neighbors over all pairs, adjacent or
not. Let b_ij be the number of other nodes adjacent to exactly one of i and j. One new edge makes
one of those b_ij a common neighbor; any other node needs two. So

    A_k = max over i != j of  min(a_ij + floor((k + min(k, b_ij)) / 2), n - 2)

is the largest local sensitivity within k edges of the graph. It is attained, not only a bound, and
R_l = A_{l-1} are radii of Definition 5.1. A pair matters only through (a_ij, b_ij), so all pairs
are first reduced to the largest b for each a.
"""

from __future__ import annotations

from functools import partial
from math import comb, prod
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from dpjax import checks
from dpjax.numerics.batching import concatenate
from dpjax.sensitivity import LocalSensitivity, SensitivityProfile, from_radii
from dpjax.statistics.padded_records import beyond_64_bits

Sensitivity = Literal["exact", "cheap"]
_BLOCK = 2**21  # number of paths of two edges that are sorted at a time


def triangle_count(
    adjacency: ArrayLike,
    *,
    num_levels: int,
    neighbors: Literal["edge"],
    sensitivity: Sensitivity = "exact",
) -> SensitivityProfile:
    """Return the sensitivity profile of the number of triangles, from adjacency matrices.

    The values are the count plus and minus R_1, R_1 + R_2, and so on. ``sensitivity="exact"``: R_l
    = A_{l-1}, the largest local sensitivity within l-1 edges (see the module docstring).
    ``"cheap"``: R_l = min(A_0 + l - 1, n - 2), never smaller, from the local sensitivity alone: one
    edge changes every a_ij by at most 1, hence their maximum too. After ``num_levels`` radii every
    level has length n-2, the global sensitivity, until the bounds 0 and n(n-1)(n-2)/6.

    Args:
        adjacency: ``(..., n, n)``, bool or numbers, n >= 3. There is an edge between i and j if
            either of the entries ij and ji is neither 0 nor NaN (XLA treats a subnormal number of a
            JAX array as 0); the diagonal is ignored. A smaller graph is padded with nodes without
            edges; n is then the public number of nodes.
        num_levels: static, the number of radii. With 150/epsilon the later levels have negligible
            weight; more only cost time. For piecewise Laplace 40/epsilon suffice.
        neighbors: ``"edge"``: one edge more or less between the n nodes. The set of nodes is
            public.
        sensitivity: ``"exact"`` or ``"cheap"``, the radii.

    Returns:
        A profile of batch shape ``(...)`` with integer levels. Inverse sensitivity does not accept
        its unbounded steps: for it, use ``.truncate(num_levels)``, or ``.truncate(num_levels,
        step=n - 2, num_steps=...)``. Without its bounds (``dataclasses.replace(profile,
        bounds=None)``) piecewise Laplace is on the whole real line; its draws may then be clamped
        to the bounds, which is more accurate if the noise is much larger than the count.

    Raises:
        TypeError: ``adjacency`` is not numeric.
        ValueError: it is not square or has fewer than 3 nodes; more than 2345 nodes in 32 bits,
            where the count could overflow.

    Privacy:
        For mechanisms on this profile: epsilon-DP and epsilon-bounded-range under edge neighbors,
        by Definition 5.1: R_l(x) <= R_{l+1}(x'), since all graphs within l-1 edges of x are within
        l edges of x'. Public: the number of nodes and ``num_levels``. Counts and radii are exact
        integers before they become floats; in float32 their sums are exact below 2^24, and beyond
        it the warning of :func:`dpjax.from_radii` applies: enable float64.

    References:
        Nissim, Raskhodnikova and Smith (2007), Section 3.2 (the number of triangles); Durfee
        (2025), Definition 5.1, Corollaries 5.1 and 5.2. That such mechanisms uniformly outperform
        smooth sensitivity is not true with a delta: with 1e-6, Laplace noise scaled by smooth
        sensitivity has a smaller error than piecewise Laplace in 9 of 12 rows (two graphs, epsilon
        0.1 to 4), by up to 5 % (``benchmarks/experiments/triangle_counts.py``).

    >>> import jax.numpy as jnp
    >>> square_with_a_diagonal = jnp.array([[0, 1, 1, 1], [1, 0, 1, 0], [1, 1, 0, 1], [1, 0, 1, 0]])
    >>> profile = triangle_count(square_with_a_diagonal, num_levels=2, neighbors="edge")
    >>> profile.upper.tolist(), float(profile.step)
    ([2.0, 4.0, 6.0], 2.0)
    """
    return _profile(*_read_adjacency(adjacency, num_levels, neighbors, sensitivity))


def triangle_count_of_edges(
    edges: ArrayLike,
    *,
    num_nodes: int,
    num_levels: int,
    neighbors: Literal["edge"],
    sensitivity: Sensitivity = "exact",
) -> SensitivityProfile:
    """Return the profile of :func:`triangle_count` from the list of edges of a large graph.

    It runs on the host with NumPy, in time and memory proportional to the number of paths of two
    edges, not the number of pairs of nodes: pairs without a common neighbor are represented by the
    one with the largest b.

    Args:
        edges: integers ``(m, 2)``, indices of nodes from 0. Directions, repeated edges, loops, and
            edges with a node outside 0..num_nodes-1 are ignored.
        num_nodes: n, public, at least 3.
        num_levels: as in :func:`triangle_count`, like ``neighbors`` and ``sensitivity``.

    Returns:
        A profile without batch axes.

    Raises:
        TypeError: ``edges`` are not integers, or are traced by JAX.
        ValueError: ``edges`` are not ``(m, 2)``; and as :func:`triangle_count`.

    Privacy:
        As :func:`triangle_count`. The running time depends on the graph.

    References:
        See :func:`triangle_count`.

    >>> profile = triangle_count_of_edges(
    ...     [[0, 1], [1, 2], [2, 0], [2, 3]], num_nodes=5, num_levels=3, neighbors="edge"
    ... )
    >>> profile.upper.tolist(), profile.lower.tolist()
    ([1.0, 2.0, 4.0, 6.0], [1.0, 0.0, -2.0, -4.0])
    """
    return _profile(*_read_edges(edges, num_nodes, num_levels, neighbors, sensitivity))


def triangle_local_sensitivity(
    adjacency: ArrayLike, *, num_levels: int, neighbors: Literal["edge"]
) -> LocalSensitivity:
    """Return the local sensitivity of the number of triangles at every distance.

    It is exact up to ``num_levels`` - 1 edges.

    Args:
        adjacency: as in :func:`triangle_count`, like ``neighbors``.
        num_levels: static, the number of exact distances; they are followed by n - 2, the global
            sensitivity.

    Returns:
        A :class:`LocalSensitivity` of batch shape ``(...)``, with ``at_distance`` of shape ``(...,
        num_levels + 1)``.

    Raises:
        ValueError: as :func:`triangle_count`.

    Privacy:
        No guarantee by itself; A_k(x) <= A_{k+1}(x') for neighbors, as smooth bounds and
        propose-test-release require. Public: the number of nodes and ``num_levels``.

    References:
        Nissim, Raskhodnikova and Smith (2007), Section 3.2.

    >>> import jax.numpy as jnp
    >>> square_with_a_diagonal = jnp.array([[0, 1, 1, 1], [1, 0, 1, 0], [1, 1, 0, 1], [1, 0, 1, 0]])
    >>> triangle_local_sensitivity(
    ...     square_with_a_diagonal, num_levels=2, neighbors="edge"
    ... ).at_distance.tolist()
    [2.0, 2.0, 2.0]
    """
    return _local_sensitivity(*_read_adjacency(adjacency, num_levels, neighbors, "exact"))


def triangle_local_sensitivity_of_edges(
    edges: ArrayLike, *, num_nodes: int, num_levels: int, neighbors: Literal["edge"]
) -> LocalSensitivity:
    """Return the result of :func:`triangle_local_sensitivity` from the edges of a large graph.

    Args:
        edges: as in :func:`triangle_count_of_edges`, like ``num_nodes``.
        num_levels: as in :func:`triangle_local_sensitivity`, like ``neighbors``.

    Returns:
        A :class:`LocalSensitivity` without batch axes.

    Raises:
        TypeError: as :func:`triangle_count_of_edges`.
            ValueError: as :func:`triangle_count_of_edges`.

    Privacy:
        As :func:`triangle_local_sensitivity`. The running time depends on the graph.

    References:
        See :func:`triangle_local_sensitivity`.

    >>> graph = [[0, 1], [1, 2], [2, 0], [2, 3]]
    >>> triangle_local_sensitivity_of_edges(
    ...     graph, num_nodes=5, num_levels=3, neighbors="edge"
    ... ).at_distance.tolist()
    [1.0, 2.0, 2.0, 3.0]
    """
    return _local_sensitivity(*_read_edges(edges, num_nodes, num_levels, neighbors, "exact"))


def _read_adjacency(
    adjacency: ArrayLike, num_levels: int, neighbors: str, sensitivity: str
) -> tuple[jax.Array, jax.Array, int]:
    """Return the count, the radii, and the number of nodes."""
    linked = checks.float_array("adjacency", adjacency)
    # Compared before a narrower dtype rounds a small entry to 0.
    if not isinstance(adjacency, jax.Array):
        host = checks.host_floats("adjacency", adjacency)
        linked = jnp.asarray((host != 0) & ~np.isnan(host)).astype(linked.dtype)
    if linked.ndim < 2 or linked.shape[-1] != linked.shape[-2]:
        raise ValueError(
            f"adjacency must be square on its last two axes, got shape {linked.shape}."
        )
    num_nodes = linked.shape[-1]
    num_levels = _check(num_nodes, "adjacency has", num_levels, neighbors, sensitivity)
    if comb(num_nodes, 3) > jnp.iinfo(jnp.result_type(int)).max:
        raise ValueError(
            f"adjacency must have fewer than {num_nodes} nodes to count triangles in 32 bits: "
            "enable jax_enable_x64, or use triangle_count_of_edges."
        )
    value, radii = _of_adjacency(linked, num_levels, sensitivity)
    return value.astype(linked.dtype), radii.astype(linked.dtype), num_nodes


def _read_edges(
    edges: ArrayLike, num_nodes: int, num_levels: int, neighbors: str, sensitivity: str
) -> tuple[jax.Array, jax.Array, int]:
    if checks.is_traced(edges):
        raise TypeError(
            "triangle_count_of_edges cannot be traced, as it runs on the host: call it outside "
            "jit, vmap and grad."
        )
    num_nodes = checks.static_integer("num_nodes", num_nodes, 0)
    pairs = np.asarray(edges)
    if pairs.size == 0:
        pairs = np.empty((0, 2), np.int64)
    if not isinstance(edges, np.ndarray) and (exact := beyond_64_bits(edges, pairs)) is not None:
        pairs = np.where((exact >= 0) & (exact < num_nodes), exact, -1).astype(np.int64)
    if pairs.dtype.kind not in "iu":
        raise TypeError(f"edges must be integers, got dtype {pairs.dtype}.")
    if pairs.ndim != 2 or pairs.shape[-1] != 2:
        raise ValueError(f"edges must have the shape (m, 2), got {pairs.shape}.")
    num_levels = _check(num_nodes, "num_nodes is", num_levels, neighbors, sensitivity)
    value, common, either = _pairs_of_edges(pairs.astype(np.int64), num_nodes)
    radii = _radii(common, either, num_nodes, num_levels, sensitivity, np)
    return checks.float_array("value", value), checks.float_array("radii", radii), num_nodes


def _check(num_nodes: int, where: str, num_levels: int, neighbors: str, sensitivity: str) -> int:
    checks.one_of("neighbors", neighbors, ("edge",))
    checks.one_of("sensitivity", sensitivity, ("exact", "cheap"))
    if num_nodes < 3:
        raise ValueError(f"triangles need at least 3 nodes, but {where} {num_nodes}.")
    return checks.static_integer("num_levels", num_levels, 1, must="a positive integer")


def _profile(value: jax.Array, radii: jax.Array, num_nodes: int) -> SensitivityProfile:
    most = float(comb(num_nodes, 3))
    return from_radii(
        value, radii, neighbors="edge", lower=0.0, upper=most, step=float(num_nodes - 2)
    )


def _local_sensitivity(value: jax.Array, radii: jax.Array, num_nodes: int) -> LocalSensitivity:
    low, high = (jnp.asarray(end, value.dtype) for end in (0, comb(num_nodes, 3)))
    return LocalSensitivity(
        value,
        concatenate(radii, jnp.full(1, num_nodes - 2, value.dtype)),
        low,
        high,
        neighbors="edge",
    )


def _radii(
    common: Any, either: Any, num_nodes: int, num_levels: int, sensitivity: str, xp: Any
) -> Any:
    """Return R_1, R_2, ..., ``(..., num_levels)``, for NumPy or JAX arrays.

    ``either`` has b, or -1 for no pair, for the values a in ``common``; both are ``(..., p)``. If
    every change makes a common neighbor, A_k is a + k: the cheap radius.
    """
    common, either = common[..., None, :], either[..., None, :]
    distance = xp.arange(num_levels, dtype=common.dtype).reshape(
        (1,) * (common.ndim - 2) + (num_levels, 1)
    )
    helpful = xp.minimum(distance, either) if sensitivity == "exact" else distance
    reached = xp.where(either < 0, 0, common + (distance + helpful) // 2)
    return xp.minimum(xp.max(reached, axis=-1), num_nodes - 2)


@partial(jax.jit, static_argnames=("num_levels", "sensitivity"))
def _of_adjacency(
    adjacency: jax.Array, num_levels: int, sensitivity: str
) -> tuple[jax.Array, jax.Array]:
    """Return the count and the radii of every graph, in integers."""
    n, batch = adjacency.shape[-1], adjacency.shape[:-2]
    off_diagonal = ~jnp.eye(n, dtype=jnp.bool_).reshape((1,) * len(batch) + (n, n))
    linked = jnp.abs(adjacency) > 0  # false for NaN
    linked = (linked | jnp.swapaxes(linked, -1, -2)) & off_diagonal
    zeros_and_ones = linked.astype(adjacency.dtype)
    # Products of 0 and 1 are exact in every precision, and sums of them below 2^24 in float32;
    # there are no fast kernels for integers.
    paths = jnp.matmul(zeros_and_ones, zeros_and_ones, precision=jax.lax.Precision.HIGHEST).astype(
        jnp.int32
    )
    common = jnp.where(off_diagonal, paths, 0)
    degree = jnp.sum(linked, axis=-1, dtype=jnp.int32)
    either = degree[..., :, None] + degree[..., None, :] - 2 * (paths + linked.astype(jnp.int32))
    # Every triangle is counted six times in total; divide before it overflows.
    six = jnp.sum(jnp.where(linked, common, 0), axis=-1)
    value = (
        jnp.sum(six // 6, axis=-1, dtype=jnp.result_type(int))
        + jnp.sum(six % 6, axis=-1, dtype=jnp.result_type(int)) // 6
    )
    # The diagonal enters as a = b = 0, which no pair of nodes is below.
    graph = jnp.arange(prod(batch), dtype=jnp.int32).reshape((*batch, 1, 1)) * (n - 1)
    largest = (
        jnp.full((prod(batch) * (n - 1),), -1, jnp.int32)
        .at[(graph + common).reshape(-1)]
        .max(either.reshape(-1))
    )
    values = jnp.arange(n - 1, dtype=jnp.int32).reshape((1,) * len(batch) + (n - 1,))
    return value, _radii(values, largest.reshape((*batch, n - 1)), n, num_levels, sensitivity, jnp)


def _pairs_of_edges(edges: np.ndarray, n: int) -> tuple[int, np.ndarray, np.ndarray]:
    """Return the number of triangles, and the pairs (a, b) that no other pair exceeds in both."""
    inside = np.all((edges >= 0) & (edges < n), axis=1) & (edges[:, 0] != edges[:, 1])
    once = np.unique(edges[inside].min(axis=1) * n + edges[inside].max(axis=1))
    ends = np.stack([once // n, once % n])
    degree = np.bincount(ends.reshape(-1), minlength=n)
    # Nodes are relabeled by decreasing degree, so that the first possible partner of a node is the
    # best.
    order = np.argsort(-degree, kind="stable")
    degree, name = degree[order], np.empty(n, np.int64)
    name[order] = np.arange(n)
    low, high = name[ends]
    source, target = np.divmod(np.sort(np.concatenate([low * n + high, high * n + low])), n)
    first = np.concatenate([[0], np.cumsum(degree)])
    opposite = np.empty_like(source)  # index of the same edge in the other direction
    opposite[np.argsort(target, kind="stable")] = np.arange(source.size)
    # From i over v to all j > i: the entries after i in the sorted list of v, so that every path
    # occurs once.
    length = first[target + 1] - 1 - opposite
    work = np.concatenate([[0], np.cumsum(length + 1)])[first]

    largest, three = np.full(int(degree[0]) + 1, -1, np.int64), 0
    begin = 0
    while begin < n:
        end = max(begin + 1, int(np.searchsorted(work, work[begin] + _BLOCK, side="right")) - 1)
        here = slice(first[begin], first[end])
        own_edges = (source[here] * n + target[here])[target[here] > source[here]]
        start = opposite[here] + 1 - (np.cumsum(length[here]) - length[here])
        last = target[np.repeat(start, length[here]) + np.arange(length[here].sum())]
        met = np.sort(np.concatenate([np.repeat(source[here], length[here]) * n + last, own_edges]))
        change = np.flatnonzero(np.diff(met, prepend=-1))
        pair, common = met[change], np.diff(change, append=met.size)
        linked = np.zeros(pair.size, np.int64)
        linked[np.searchsorted(pair, own_edges)] = 1
        common -= linked
        three += int(np.sum(common * linked))  # every triangle has three edges
        i, j = np.divmod(pair, n)
        np.maximum.at(largest, common, degree[i] + degree[j] - 2 * (common + linked))
        # All other pairs have a = 0 and no edge: the best of those of i has the first later node
        # that was not reached.
        count = np.bincount(i - begin, minlength=end - begin)
        offset = np.arange(pair.size) - np.repeat(np.cumsum(count) - count, count)
        in_a_row = np.bincount((i - begin)[j == i + 1 + offset], minlength=end - begin)
        missed = np.arange(begin, end) + 1 + in_a_row
        alone = missed < n
        if np.any(alone):
            largest[0] = max(
                largest[0], np.max((degree[begin:end] + degree[np.minimum(missed, n - 1)])[alone])
            )
        begin = end
    best_beyond = np.maximum.accumulate(np.append(largest, -1)[::-1])[::-1][1:]
    kept = np.flatnonzero(largest > best_beyond)
    return three // 3, kept, largest[kept]
