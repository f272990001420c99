"""A matrix of budgets: its shortest paths and violations of them, the null record, and sums."""

import itertools

import numpy as np

from dpjax.metric_privacy import Metric, from_budgets, uniform
from tests.metric_privacy.instances import shortest_paths


def random_budgets(seed, count=30, size=9):
    """With pairs of budget 0, and pairs without protection."""
    rng = np.random.default_rng(seed)
    kind = rng.choice([0.0, 1.0, np.inf], (count, size, size), p=[0.01, 0.89, 0.1])
    budgets = rng.exponential(size=kind.shape) ** 3
    budgets = np.where(kind == 1, budgets, kind)
    budgets[:, range(size), range(size)] = 0
    return np.minimum(budgets, np.swapaxes(budgets, -1, -2))


def scales(queries, budgets):
    """c = max |q_i - q_j| / d(i, j) of queries ``(K, N)``, over pairs with a finite budget."""
    apart = np.abs(queries[:, :, None] - queries[:, None, :])
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where((apart > 0) & np.isfinite(budgets), apart / budgets, 0.0).max((1, 2))


def test_shortest_paths_and_their_absence():
    """Against paths by squaring and triangles by loops; and a closure changes no scale."""
    queries, lower = np.random.default_rng(1).normal(size=(20, 9)), False
    for budgets in random_budgets(0):
        metric = Metric(budgets)
        closed, (i, j, length) = metric.closure().budgets, metric.violation()
        np.testing.assert_allclose(closed, shortest_paths(budgets), rtol=1e-13)
        excess = [
            budgets[a, c] - budgets[a, b] - budgets[b, c]
            for a, b, c in itertools.permutations(range(9), 3)
            if budgets[a, b] + budgets[b, c] < np.inf
        ]
        assert budgets[i, j] - length >= max(excess) * (1 - 1e-9) > 0
        assert (length, Metric(closed).violation()) == (closed[i, j], None)
        np.testing.assert_allclose(scales(queries, closed), scales(queries, budgets), rtol=1e-12)
        lower |= (scales(queries, closed * 0.9) > 1.1 * scales(queries, budgets)).any()
    assert lower  # the control: below the closure it is another scale


def test_rounding_is_no_violation():
    points = np.sort(np.random.default_rng(0).random((50, 3)))
    lines = np.abs(points[:, :, None] - points[:, None, :]) * 0.1  # triangles without slack
    worst = lines[np.argmax(lines[:, 0, 2] - (lines[:, 0, 1] + lines[:, 1, 2]))]
    assert worst[0, 2] > worst[0, 1] + worst[1, 2]
    assert Metric(worst).violation() is None
    worst[0, 2] = worst[2, 0] = worst[0, 2] * 1.0001
    assert Metric(worst).violation() is not None


def test_the_null_record_is_one_more_element():
    metric, absence = Metric(random_budgets(2)[0]), np.arange(1.0, 10.0)
    hidden = metric.with_absence(absence)
    assert (hidden.size, hidden.num_values, hidden.neighbors) == (10, 9, "add_remove")
    np.testing.assert_array_equal(hidden.budgets[:-1, :-1], metric.budgets)
    for edge in (hidden.budgets[-1], hidden.budgets[:, -1]):
        np.testing.assert_array_equal(edge, [*absence, 0])
    columns = hidden.columns(np.ones((2, 9)))
    np.testing.assert_array_equal(columns, [[1] * 9 + [0]] * 2)


def test_metrics_add_up_and_scale():
    one, other = Metric(random_budgets(3)[0]), uniform(9, epsilon=0.5)
    np.testing.assert_array_equal(sum([one, other]).budgets, one.budgets + other.budgets)
    for factor in (3, np.float64(3)):  # NumPy leaves the product to the metric
        np.testing.assert_array_equal((factor * one).budgets, 3 * one.budgets)
    assert other.smallest == 0.5
    assert uniform(1, epsilon=1).smallest == np.inf
    # Of two budgets that differ by rounding, the smaller one
    assert np.ptp(from_budgets([[0, 1.0], [1 + 1e-15, 0]]).budgets) == 1
    assert not one.budgets.flags.writeable
