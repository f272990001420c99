"""Means under a metric: problem (14) against a grid, problem (13) within its conditions."""

import numpy as np
import pytest

from dpjax.metric_privacy import metric_laplace
from dpjax.metric_privacy.loads import load
from dpjax.metric_privacy.means import fit_marginals, fit_statistics
from dpjax.metric_privacy.metrics import from_budgets
from tests.metric_privacy import instances


def best_marginal(values, budgets, n):
    first, second = np.triu_indices(len(values), 1)
    apart, d = (
        np.abs(values[first] - values[second]),
        np.where(np.isinf(budgets), 1e12, budgets)[first, second],
    )
    grid = np.linspace(0, min((apart / np.maximum(n * d, 1e-9)).max(), apart.max()), 200_001)
    excess = np.zeros_like(grid)
    for a, limit in zip(apart, d, strict=True):
        excess = np.maximum(excess, a - grid * n * limit)
    return (excess / 2 + grid).min()


@pytest.mark.slow
@pytest.mark.parametrize("kind", [pytest.param("plain", marks=pytest.mark.slow), "ties"])
def test_marginals_are_optimal_and_within_the_budgets(kind, x64):
    rng = np.random.default_rng(1)
    budgets = instances.metrics(40, kind, rng) * 0.3
    values, n = rng.uniform(-1, 3, (40, instances.N)), np.geomspace(1, 50, 40)
    fit = fit_marginals(values, from_budgets(budgets), num_records=n)
    u, c = np.asarray(fit.values), np.asarray(fit.scales)
    np.testing.assert_allclose(fit.objective, np.abs(u - values).max(-1) + c, rtol=1e-12)
    best = np.array([best_marginal(*row) for row in zip(values, budgets, n, strict=True)])
    np.testing.assert_allclose(fit.objective, best, rtol=1e-4)
    assert (np.asarray(fit.objective) <= np.asarray(fit.closed_form)).all()
    assert (np.asarray(fit.objective) < 0.9 * np.asarray(fit.closed_form)).any()
    for row in range(0, 40, 7):  # |u' - v'| <= n d(u, v) with u' = values / c
        parts = (u[row][None], [n[row] * c[row]], budgets[row])
        assert float(instances.load(*(instances.exact(part) for part in parts))) <= 1 + 1e-12


def test_marginals_without_the_triangle_inequality_stay_within_the_budgets(x64):
    rng = np.random.default_rng(2)
    budgets = instances.metrics(40, "blowfish", rng)
    budgets = np.where(np.isinf(budgets), 30.0, budgets)
    values = rng.uniform(size=(40, instances.N))
    fit = fit_marginals(values, from_budgets(budgets), num_records=1.0)
    assert (
        instances.loads(
            np.asarray(fit.values)[:, None], np.asarray(fit.scales)[:, None], budgets
        ).max()
        <= 1 + 1e-12
    )
    assert (np.asarray(fit.objective) <= np.asarray(fit.closed_form)).all()


@pytest.mark.slow
@pytest.mark.parametrize("loss", ["squared", "absolute", "maximum"])
def test_the_transformed_universe_fits_its_budgets(loss, x64):
    # As many universes as in test_preprocessing.py, for the same programs
    rng = np.random.default_rng(3)
    values, budgets = instances.queries(21, "real", rng), instances.metrics(21, "plain", rng) * 0.1
    n, metric = 20.0, from_budgets(budgets)
    fit = fit_statistics(values, metric, num_records=n, loss=loss)
    assert (np.asarray(fit.objective) <= np.asarray(fit.closed_form)).all()
    assert (np.asarray(fit.objective) < 0.99 * np.asarray(fit.closed_form)).any()
    assert float(load(fit.queries, fit.scales, metric).max()) <= 1
    c = np.asarray(fit.scales)
    c = np.where(c > 0, c, 1.0)  # 0 where no noise is worth it: the query is constant
    mapped = n * np.asarray(fit.queries) / c[:, :, None]  # q(u')
    moved = np.abs(mapped[:, :, :, None] - mapped[:, :, None, :]).sum(1)
    assert (moved <= n * budgets * (1 + 1e-9) + 1e-9).all()
    histogram = rng.multinomial(20, np.ones(instances.N) / instances.N, 21)
    distribution = metric_laplace(histogram, fit.queries, metric, scales=fit.scales)
    answers = (mapped * histogram[:, None]).sum(-1) / n
    np.testing.assert_allclose(distribution.mean(), c * answers, rtol=1e-9)


def test_values_far_from_zero_do_not_overspend():
    """In float32: values divided by n before their differences are taken would allow 1.018 times
    the budgets.
    """
    values = np.array([1000000.5936, 999999.8994, 1000000.7261, 1000001.2857])
    budgets = np.zeros((4, 4))
    upper = [
        1.8405581712722778,
        1.5068143606185913,
        2.479670763015747,
        1.4454593658447266,
        2.4428138732910156,
        1.867851734161377,
    ]
    budgets[np.triu_indices(4, 1)] = upper
    budgets = budgets + budgets.T
    found = fit_marginals(values, from_budgets(budgets), num_records=10)
    given = np.asarray(found.values, np.float64)
    apart = np.abs(np.subtract.outer(given, given)) / 10
    away = ~np.eye(4, dtype=bool)
    assert (apart[away] / float(found.scales) / budgets[away]).max() <= 1 + 1e-6
