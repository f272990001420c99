"""Shortest paths against Dijkstra's algorithm in plain Python."""

import heapq

import numpy as np

from dpjax.metric_privacy import from_budgets, from_graph, spanning_tree, validate


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
    budgets = rng.exponential(size=(30, 11))
    budgets[rng.random((30, 11)) < 0.1] = 0.0
    budgets[rng.random((30, 11)) < 0.2] = np.inf
    found = from_graph(edges, size=9, budgets=budgets)
    expected = np.stack([dijkstra(edges, row, 9) for row in budgets])
    np.testing.assert_allclose(found.budgets, expected, rtol=1e-13)
    assert np.isinf(expected).any()
    assert not np.any(validate(found).violations)
    # Without paths of more than one step the triangle inequality is lost, and seen.
    direct = np.full((30, 9, 9), np.inf)
    for (i, j), cost in zip(edges, budgets.T, strict=True):
        direct[:, i, j] = direct[:, j, i] = np.minimum(direct[:, i, j], cost)
    direct[:, range(9), range(9)] = 0.0
    assert np.all(np.asarray(validate(direct).violations) > 0)
    np.testing.assert_allclose(from_budgets(direct).closure().budgets, expected, rtol=1e-13)


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
    metric = from_budgets(lengths)
    own, alike = spanning_tree(metric).budgets, spanning_tree(metric, budget=0.5).budgets
    for row, known in enumerate(lengths):
        edges = kruskal(known)
        paths = dijkstra(edges, [known[e] for e in edges], 7)
        np.testing.assert_allclose(np.asarray(own)[row], paths, rtol=1e-13)
        steps = dijkstra(edges, [0.5] * len(edges), 7)
        np.testing.assert_allclose(np.asarray(alike)[row], steps, rtol=1e-13)
    assert np.isinf(own).any()
    # No minimum of all paths: the control of what is compared
    assert np.any(np.asarray(own)[:6] > 1.5 * lengths[:6])
