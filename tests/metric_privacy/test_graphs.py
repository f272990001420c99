"""Shortest paths against Dijkstra's algorithm in plain Python."""

import heapq

import jax.numpy as jnp
import numpy as np
import pytest

from dpjax.metric_privacy.graphs import from_graph, spanning_tree
from dpjax.metric_privacy.metrics import Metric
from dpjax.metric_privacy.validation import validate


def dijkstra(edges, budgets, size):
    neighbors = [[] for _ in range(size)]
    for (i, j), cost in zip(edges, budgets, strict=True):
        neighbors[i].append((j, cost))
        neighbors[j].append((i, cost))
    found = np.full((size, size), np.inf)
    for source in range(size):
        found[source, source], heap = 0.0, [(0.0, source)]
        while heap:
            length, node = heapq.heappop(heap)
            for other, cost in neighbors[node]:
                if length <= found[source, node] and length + cost < found[source, other]:
                    found[source, other] = length + cost
                    heapq.heappush(heap, (length + cost, other))
    return found


def test_graphs(x64):
    rng = np.random.default_rng(4)
    edges = rng.integers(0, 9, (11, 2))  # with loops and double edges, and in pieces
    budgets = rng.exponential(size=(30, 11)) * rng.choice(
        [0.0, 1.0, np.inf], (30, 11), p=[0.1, 0.7, 0.2]
    )
    budgets = np.where(np.isnan(budgets), np.inf, budgets)
    found = from_graph(edges, size=9, budgets=budgets)
    expected = np.stack([dijkstra(edges, row, 9) for row in budgets])
    np.testing.assert_allclose(found.budgets, expected, rtol=1e-13)
    assert np.isinf(expected).any()
    assert not np.any(validate(found).violations)
    np.testing.assert_array_equal(np.swapaxes(np.asarray(found.budgets), -1, -2), found.budgets)
    # Without paths of more than one step the triangle inequality is lost, and seen.
    direct = np.full((30, 9, 9), np.inf)
    for (i, j), cost in zip(edges, budgets.T, strict=True):
        direct[:, i, j] = direct[:, j, i] = np.minimum(direct[:, i, j], cost)
    direct[:, range(9), range(9)] = 0.0
    assert np.all(np.asarray(validate(direct).violations) > 0)
    np.testing.assert_allclose(Metric(jnp.asarray(direct)).closure().budgets, expected, rtol=1e-13)


def test_a_tree(x64):
    parents = np.array([-1, 0, 0, 1, 1, 2, 5])
    edges = np.stack([np.arange(1, 7), parents[1:]], axis=-1)
    found = from_graph(edges, size=7, budgets=0.5)

    def path(node):
        return [node, *path(parents[node])] if node >= 0 else []

    steps = [[len(set(path(i)) ^ set(path(j))) for j in range(7)] for i in range(7)]
    np.testing.assert_array_equal(found.budgets, 0.5 * np.array(steps))


def test_hostile_graphs():
    with pytest.raises(ValueError, match="edges must join nodes from 0 to 2"):
        from_graph([[0, 3]], size=3, budgets=1.0)
    with pytest.raises(ValueError, match="edges must be of shape"):
        from_graph([0, 1], size=3, budgets=1.0)
    with pytest.raises(TypeError, match="pairs of integers"):
        from_graph([[0.0, 1.0]], size=3, budgets=1.0)
    with pytest.raises(ValueError, match="size must be an integer"):
        from_graph([[0, 1]], size=0, budgets=1.0)
    with pytest.raises(ValueError, match="each of the 1 edges"):
        from_graph([[0, 1]], size=3, budgets=[1.0, 2.0])
    for bad in (-1.0, np.nan):
        with pytest.raises(ValueError, match="must be nonnegative and not NaN"):
            from_graph([[0, 1]], size=3, budgets=bad)
    spoilt = from_graph([[0, 1]], size=2, budgets=jnp.array([[1.0], [-1.0], [jnp.nan]])).budgets
    np.testing.assert_array_equal(spoilt[0], [[0, 1], [1, 0]])
    assert np.isnan(spoilt[1:]).all()
    for edge in ([0, 2], [-1, 0]):
        assert np.isnan(from_graph(jnp.array([edge]), size=2, budgets=1.0).budgets).all()


@pytest.mark.slow
def test_nodes_that_int32_does_not_hold_do_not_wrap_around(x64):
    for edge in ([0, 2**32 + 1], [2**32, 1], [-(2**32), 1]):
        assert np.isnan(from_graph(jnp.array([edge]), size=3, budgets=1.0).budgets).all()
        with pytest.raises(ValueError, match="edges must join nodes"):
            from_graph([edge], size=3, budgets=1.0)
    assert np.isnan(
        from_graph(jnp.array([[0, 2**32 - 1]], jnp.uint32), size=3, budgets=1.0).budgets
    ).all()
    chain = jnp.stack([jnp.arange(299), jnp.arange(1, 300)], axis=-1)
    for dtype in (jnp.uint16, jnp.int64, jnp.uint64):
        assert float(from_graph(chain.astype(dtype), size=300, budgets=1.0).budgets[0, -1]) == 299.0
    assert (
        float(from_graph(jnp.array([[0, 255]], jnp.uint8), size=300, budgets=1.0).budgets[0, 255])
        == 1.0
    )


def kruskal(lengths):
    """The edges of the shortest tree (or forest), in plain Python."""
    group = list(range(len(lengths)))
    edges = []
    for length, i, j in sorted(
        (lengths[a, b], a, b) for a in range(len(lengths)) for b in range(a)
    ):
        if group[i] != group[j] and length < np.inf:
            edges.append((i, j))
            group = [group[i] if g == group[j] else g for g in group]
    return edges


def test_paths_in_the_spanning_tree(x64):
    rng = np.random.default_rng(5)
    lengths = rng.uniform(1, 2, (12, 7, 7))
    lengths[6:, :3, 3:] = np.inf  # in two pieces
    lengths = np.triu(lengths, 1) + np.swapaxes(np.triu(lengths, 1), -1, -2)
    metric = Metric(jnp.asarray(lengths))
    own, alike = spanning_tree(metric), spanning_tree(metric, budget=0.5)
    for row in range(12):
        edges = kruskal(lengths[row])
        np.testing.assert_allclose(
            own.budgets[row], dijkstra(edges, [lengths[row][e] for e in edges], 7), rtol=1e-13
        )
        np.testing.assert_allclose(
            alike.budgets[row], dijkstra(edges, [0.5] * len(edges), 7), rtol=1e-13
        )
    assert np.isinf(own.budgets[6:]).any()
    # No minimum of all paths: the control of what is compared
    assert np.any(own.budgets[:6] > 1.5 * lengths[:6])
