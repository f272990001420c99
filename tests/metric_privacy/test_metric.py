"""A matrix of budgets: its shortest paths and violations of them, the null record, and sums."""

import numpy as np

from dpjax.metric_privacy import Metric, from_budgets, uniform
from tests.metric_privacy.instances import shortest_paths


def random_budgets(count=30, size=9):
    """With pairs of budget 0, and pairs without protection."""
    rng = np.random.default_rng(0)
    budgets = rng.exponential(size=(count, size, size)) ** 3
    kind = rng.uniform(size=budgets.shape)
    budgets[kind < 0.01], budgets[kind > 0.9] = 0.0, np.inf
    budgets[:, range(size), range(size)] = 0
    return np.minimum(budgets, np.swapaxes(budgets, -1, -2))


def test_shortest_paths_and_their_absence():
    """Against paths by squaring, and all triangles."""
    for budgets in random_budgets():
        metric = Metric(budgets)
        closed, (i, j, length) = metric.closure().budgets, metric.violation()
        np.testing.assert_allclose(closed, shortest_paths(budgets), rtol=1e-13)
        a, b, c = np.nonzero(budgets[:, :, None] + budgets < np.inf)
        excess = budgets[a, c] - budgets[a, b] - budgets[b, c]
        assert budgets[i, j] - length >= max(excess) * (1 - 1e-9) > 0
        assert (length, Metric(closed).violation()) == (closed[i, j], None)


def test_rounding_is_no_violation():
    for longer, violated in ((1e-15, False), (1e-4, True)):
        path = (0.1 + 0.2) * (1 + longer)
        found = Metric([[0, 0.1, path], [0.1, 0, 0.2], [path, 0.2, 0]]).violation()
        assert (found is not None) == violated


def test_the_null_record_and_sums():
    one, other = Metric(random_budgets()[0]), uniform(9, epsilon=0.5)
    hidden = one.with_absence(np.arange(1.0, 10.0))
    assert (hidden.size, hidden.num_values, hidden.neighbors) == (10, 9, "add_remove")
    np.testing.assert_array_equal(hidden.budgets[:-1, :-1], one.budgets)
    assert hidden.budgets[-1].tolist() == hidden.budgets[:, -1].tolist() == [*range(1, 10), 0]
    np.testing.assert_array_equal((one + other).budgets, one.budgets + other.budgets)
    assert (other.smallest, uniform(1, epsilon=1).smallest) == (0.5, np.inf)
    # Of two budgets that differ by rounding, the smaller one
    assert from_budgets([[0, 1.0], [1 + 1e-15, 0]]).budgets.max() == 1
    assert not one.budgets.flags.writeable
