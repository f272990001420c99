"""Shortest paths in graphs and trees, against NumPy."""

import numpy as np

from dpjax.metric_privacy import from_budgets, from_graph, spanning_tree, validate
from tests.metric_privacy.instances import shortest_paths


def test_graphs(x64):
    rng = np.random.default_rng(4)
    edges = rng.integers(0, 9, (16, 2))  # with loops and double edges, and in pieces
    budgets = rng.exponential(size=(30, 16))
    budgets[rng.random((30, 16)) < 0.1] = 0.0
    budgets[rng.random((30, 16)) < 0.2] = np.inf
    direct = np.full((30, 9, 9), np.inf)
    for (i, j), cost in zip(edges, budgets.T, strict=True):
        direct[:, i, j] = direct[:, j, i] = np.minimum(direct[:, i, j], cost)
    direct[:, range(9), range(9)] = 0.0
    expected = shortest_paths(direct)
    assert np.isinf(expected).any()
    found = from_graph(edges, size=9, budgets=budgets).budgets
    np.testing.assert_allclose(found, expected, rtol=1e-13)
    np.testing.assert_allclose(from_budgets(direct).closure().budgets, expected, rtol=1e-13)
    # Without paths of more than one step the triangle inequality is lost, and seen.
    assert not np.any(validate(found).violations)
    assert np.all(np.asarray(validate(direct).violations) > 0)


def test_paths_in_the_spanning_tree(x64):
    """An edge is in it if no other way has shorter edges only."""
    rng = np.random.default_rng(5)
    lengths = np.triu(rng.uniform(1, 2, (12, 7, 7)), 1)
    lengths[6:, :3, 3:] = np.inf  # in two pieces
    lengths = lengths + np.swapaxes(lengths, -1, -2)
    tree = lengths == shortest_paths(lengths, np.maximum)
    metric = from_budgets(lengths)
    for budget, steps in ((None, lengths), (0.5, np.where(np.isinf(lengths), np.inf, 0.5))):
        edges = np.where(np.eye(7) == 1, 0.0, np.where(tree, steps, np.inf))
        found = np.asarray(spanning_tree(metric, budget=budget).budgets)
        np.testing.assert_allclose(found, shortest_paths(edges), rtol=1e-13)
        assert np.isinf(found).any()
        # No minimum of all paths: the control of what is compared
        assert budget is not None or np.any(found[:6] > 1.5 * lengths[:6])
