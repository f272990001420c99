"""Other queries and means for less noise: within the budgets in exact arithmetic, never worse, and
near the optimum where that is known.
"""

import numpy as np
import pytest
from scipy import optimize

from dpjax.metric_privacy import (
    fit_marginals,
    fit_queries,
    fit_statistics,
    from_budgets,
    from_points,
)
from tests.metric_privacy import instances

KINDS = ("plain", "ties", "distinct ties")
LOSSES = ("squared", "absolute", "maximum")


def batch(count, seed=0):
    rng = np.random.default_rng(seed)
    budgets = np.concatenate([instances.metrics(count, kind, rng) for kind in KINDS]) * 0.3
    return instances.queries(3 * count, "real", rng), budgets


def check(fit, values, budgets):
    """Within the budgets, and never worse than the queries as they were asked."""
    g, c = np.asarray(fit.queries), np.asarray(fit.scales)
    for row in range(0, len(values), 2):
        assert instances.exact_load(g[row], c[row], budgets[row]) <= 1
    objective, closed = np.asarray(fit.objective), np.asarray(fit.closed_form)
    assert (objective <= closed).all()
    assert np.isfinite(objective).all()
    no_budget = ((budgets + np.eye(budgets.shape[-1])) == 0).any((1, 2))
    assert (np.isinf(closed) == no_budget).all()
    return objective, closed


def best_maximum_error(values, budgets, n, noise):
    """min over c of n max(|dq| - c d) / 2 + noise c for K = 1: exact, since functions with
    Lipschitz conditions extend.
    """
    first, second = np.triu_indices(values.shape[-1], 1)
    apart, d = np.abs(values[first] - values[second]), budgets[first, second]
    most = min((apart / np.maximum(d, 1e-9)).max(), n * apart.max() / noise)
    grid, excess = np.linspace(0, most, 200_001), 0.0
    for change, limit in zip(apart, np.minimum(d, 1e12), strict=True):
        excess = np.maximum(excess, change - grid * limit)
    return (n * excess / 2 + noise * grid).min()


@pytest.mark.slow
@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("bias", ["all_elements", "worst_element"])
def test_within_the_budgets_and_never_worse(loss, bias, x64):
    values, budgets = batch(7)
    for n in (0.5, 5.0, 500.0):
        fit = fit_queries(values, from_budgets(budgets), num_records=n, loss=loss, bias=bias)
        objective, closed = check(fit, values, budgets)
        residual, c = np.asarray(fit.queries) - values, np.asarray(fit.scales)
        total = np.sum if bias == "all_elements" else np.max
        expected = {
            "squared": n**2 * total((residual**2).sum(1), -1) + 2 * (c**2).sum(-1),
            "absolute": n * total(np.abs(residual).sum(1), -1) + c.sum(-1),
            "maximum": n * np.abs(residual).max((1, 2)) + np.log(60) * c.max(-1),
        }[loss]
        np.testing.assert_allclose(objective, expected, rtol=1e-9)
        if n < 1:
            assert (objective < 0.9 * closed).mean() > 0.5


def linear_program(values, budgets, n):
    """The least n ||G - Q||_1 + c for K = 1, entrywise."""
    size = len(values)
    first, second = np.triu_indices(size, 1)
    apart = np.eye(size)[first] - np.eye(size)[second]
    zeros, one = np.zeros((len(first), size)), np.zeros((size, 1))
    limit = -budgets[first, second][:, None]
    a = np.block(
        [
            [apart, limit, zeros],
            [-apart, limit, zeros],
            [np.eye(size), one, -np.eye(size)],
            [-np.eye(size), one, -np.eye(size)],
        ]
    )
    return optimize.linprog(
        np.concatenate([np.zeros(size), [1.0], n * np.ones(size)]),
        A_ub=a,
        b_ub=np.concatenate([np.zeros(2 * len(first)), values, -values]),
        bounds=[(None, None)] * size + [(0, None)] * (size + 1),
    ).fun


def twins(count, apart):
    """Points in the unit square, two of them so far apart, and a query that tells them apart."""
    rng = np.random.default_rng(3)
    points = rng.uniform(size=(count, 6, 2))
    points[:, 1] = points[:, 0] + [apart, 0]
    return from_points(points, epsilon=1.0), rng.uniform(size=(count, 1, 6))


OPTIMA = {
    "absolute": linear_program,
    "maximum": lambda values, budgets, n: best_maximum_error(values, budgets, n, np.log(20)),
}


@pytest.mark.slow
@pytest.mark.parametrize("loss", OPTIMA)
def test_one_query_comes_near_the_optimum_with_elements_that_are_almost_one(loss):
    metric, values = twins(6, 1e-6)
    n = np.array([1.0, 10.0, 100.0, 1.0, 10.0, 100.0])
    fit = fit_queries(values, metric, num_records=n, loss=loss)
    budgets = np.asarray(metric.budgets, np.float64)
    rows = zip(values[:, 0], budgets, n, strict=True)
    best = np.array([OPTIMA[loss](*row) for row in rows])
    ratio = np.asarray(fit.objective) / best
    assert 1 - 1e-3 < ratio.min() <= ratio.max() < 1.1
    # What the queries as they were asked would cost
    assert (np.asarray(fit.closed_form) > 100 * best).all()
    spent = instances.loads(np.asarray(fit.queries), np.asarray(fit.scales), budgets)
    assert (spent <= 1 + 1e-6).all()


@pytest.mark.slow
@pytest.mark.parametrize("apart", [1e-8, 1e-4])
def test_statistics_cost_no_more_than_marginals_with_elements_that_are_almost_one(apart):
    metric, values = twins(8, apart)
    for n in (1.0, 30.0, 1000.0):
        marginals = fit_marginals(values[:, 0], metric, num_records=n)
        fit = fit_statistics(values, metric, num_records=n, loss="absolute")
        assert (np.asarray(fit.objective) <= 1.05 * np.asarray(marginals.objective)).all()
        assert (np.asarray(fit.closed_form) > 5 * np.asarray(marginals.objective)).any()


@pytest.mark.parametrize("kind", ["ties", "blowfish"])
def test_marginals_are_optimal_and_within_the_budgets(kind, x64):
    """Without the triangle inequality they are within the budgets, only."""
    rng = np.random.default_rng(1)
    budgets = instances.metrics(40, kind, rng) * 0.3
    values, n = rng.uniform(-1, 3, (40, instances.N)), np.geomspace(1, 50, 40)
    fit = fit_marginals(values, from_budgets(budgets), num_records=n)
    u, c = np.asarray(fit.values), np.asarray(fit.scales)
    objective, closed = np.asarray(fit.objective), np.asarray(fit.closed_form)
    np.testing.assert_allclose(objective, np.abs(u - values).max(-1) + c, rtol=1e-12)
    assert (objective <= closed).all()
    for row in range(0, 40, 7):  # |u' - v'| <= n d(u, v) with u' = values / c
        spent = instances.exact_load(u[row][None], [n[row] * c[row]], budgets[row])
        assert float(spent) <= 1 + 1e-12
    if kind == "ties":
        rows = zip(values, budgets, n, strict=True)
        best = [best_maximum_error(v, m * d, 1.0, 1.0) for v, d, m in rows]
        np.testing.assert_allclose(objective, best, rtol=1e-4)
        assert (objective < 0.9 * closed).any()


def test_values_far_from_zero_do_not_overspend():
    """In float32: values divided by n before their differences are taken would allow 1.018 times
    the budgets.
    """
    values = np.array([1000000.5936, 999999.8994, 1000000.7261, 1000001.2857])
    budgets = np.zeros((4, 4))
    upper = [1.840558171, 1.506814361, 2.479670763, 1.445459366, 2.442813873, 1.867851734]
    budgets[np.triu_indices(4, 1)] = upper
    budgets = budgets + budgets.T
    found = fit_marginals(values, from_budgets(budgets), num_records=10)
    given = np.asarray(found.values, np.float64)
    apart = np.abs(np.subtract.outer(given, given)) / 10
    away = ~np.eye(4, dtype=bool)
    assert (apart[away] / float(found.scales) / budgets[away]).max() <= 1 + 1e-6
