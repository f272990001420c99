"""Shortest paths against Dijkstra's algorithm in plain Python."""

import heapq

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpjax.metric_privacy.graphs import from_graph
from dpjax.metric_privacy.metrics import from_budgets
from dpjax.metric_privacy.validation import validate


def dijkstra(edges, budgets, size):
    neighbours = [[] for _ in range(size)]
    for (i, j), cost in zip(edges, budgets, strict=True):
        neighbours[i].append((j, cost))
        neighbours[j].append((i, cost))
    found = np.full((size, size), np.inf)
    for source in range(size):
        found[source, source], heap = 0.0, [(0.0, source)]
        while heap:
            length, node = heapq.heappop(heap)
            for other, cost in neighbours[node]:
                if length <= found[source, node] and length + cost < found[source, other]:
                    found[source, other] = length + cost
                    heapq.heappush(heap, (length + cost, other))
    return found


def test_graphs(x64):
    rng = np.random.default_rng(4)
    edges = rng.integers(0, 12, (16, 2))  # with loops and double edges, and in pieces
    budgets = rng.exponential(size=(30, 16)) * rng.choice([0.0, 1.0, np.inf], (30, 16), p=[0.1, 0.7, 0.2])
    budgets = np.where(np.isnan(budgets), np.inf, budgets)
    found = from_graph(edges, size=12, budgets=budgets)
    expected = np.stack([dijkstra(edges, row, 12) for row in budgets])
    np.testing.assert_allclose(found.budgets, expected, rtol=1e-13)
    assert np.isinf(expected).any()
    report = validate(found)
    assert np.all(report.is_metric)
    np.testing.assert_array_equal(np.swapaxes(found.budgets, -1, -2), found.budgets)
    np.testing.assert_allclose(found.closure().budgets, expected, rtol=1e-13)
    # Without paths of more than one step the triangle inequality is lost, and seen.
    direct = np.full((12, 12), np.inf)
    for (i, j), cost in zip(edges, budgets[0], strict=True):
        direct[i, j] = direct[j, i] = min(direct[i, j], cost)
    np.fill_diagonal(direct, 0.0)
    assert not bool(validate(from_budgets(direct)).is_metric)
    np.testing.assert_allclose(from_budgets(direct).closure().budgets, expected[0], rtol=1e-13)


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
    with pytest.raises(ValueError, match="1 edges need as many budgets"):
        from_graph([[0, 1]], size=3, budgets=[1.0, 2.0])
    for bad in (-1.0, np.nan):
        with pytest.raises(ValueError, match="must not be negative or NaN"):
            from_graph([[0, 1]], size=3, budgets=bad)
    spoilt = from_graph([[0, 1]], size=2, budgets=jnp.array([[1.0], [-1.0], [jnp.nan]])).budgets
    np.testing.assert_array_equal(spoilt[0], [[0, 1], [1, 0]])
    assert np.isnan(spoilt[1:]).all()
    for edge in ([0, 2], [-1, 0]):
        assert np.isnan(from_graph(jnp.array([edge]), size=2, budgets=1.0).budgets).all()


def test_derivative_of_a_path(x64):
    edges = [[0, 1], [1, 2], [0, 2]]
    slope = jax.grad(lambda budgets: from_graph(edges, size=3, budgets=budgets).budgets[0, 2])(jnp.array([1.0, 1.0, 3.0]))
    np.testing.assert_array_equal(slope, [1.0, 1.0, 0.0])
