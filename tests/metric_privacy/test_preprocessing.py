"""Other queries for less noise: within the budgets in exact arithmetic, never worse, and near the
optimum where that is known.
"""

import jax.numpy as jnp
import numpy as np
import pytest
from scipy import optimize

from dpjax.metric_privacy.means import fit_marginals, fit_statistics
from dpjax.metric_privacy.metrics import from_budgets
from dpjax.metric_privacy.points import from_points
from dpjax.metric_privacy.preprocessing import BIASES, LOSSES, fit_queries
from tests.metric_privacy import instances


def batch(count, seed=0):
    rng = np.random.default_rng(seed)
    kinds = ("plain", "ties", "distinct ties")
    budgets = np.concatenate([instances.metrics(count, kind, rng) for kind in kinds]) * 0.3
    return instances.queries(3 * count, "real", rng), budgets


def check(fit, values, budgets):
    g, c = np.asarray(fit.queries), np.asarray(fit.scales)
    for row in range(0, len(values), 2):
        assert (
            instances.load(*(instances.exact(part) for part in (g[row], c[row], budgets[row]))) <= 1
        )
    assert (np.asarray(fit.objective) <= np.asarray(fit.closed_form)).all()
    assert np.isfinite(fit.objective).all()
    assert (
        np.isinf(np.asarray(fit.closed_form))
        == ((budgets + np.eye(budgets.shape[-1])) == 0).any((1, 2))
    ).all()


def best_maximum_error(values, budgets, n, noise):
    """min over c of n max(|dq| - c d) / 2 + noise c for K = 1: exact, since functions with
    Lipschitz conditions extend.
    """
    first, second = np.triu_indices(values.shape[-1], 1)
    apart, d = np.abs(values[first] - values[second]), budgets[first, second]
    grid = np.linspace(0, (apart / d).max(), 20001)
    return (n * np.maximum((apart - grid[:, None] * d).max(-1), 0) / 2 + noise * grid).min()


@pytest.mark.slow
def test_one_query_comes_near_the_best_largest_error(x64):
    rng = np.random.default_rng(2)
    values, budgets = instances.queries(30, "real", rng)[:, :1], instances.metrics(30, "plain", rng)
    n = np.geomspace(1, 30, 30)
    fit = fit_queries(values, from_budgets(budgets), num_records=n, loss="maximum", failure=0.1)
    check(fit, values, budgets)
    best = [
        best_maximum_error(*row, noise=np.log(10))
        for row in zip(values[:, 0], budgets, n, strict=True)
    ]
    ratio = np.asarray(fit.objective) / best
    assert ratio.min() >= 1 - 1e-3
    assert ratio.max() < 1.2
    assert np.median(ratio) < 1.02
    assert (np.asarray(fit.objective) < 0.7 * np.asarray(fit.closed_form)).any()
    # A number of records that is none spoils itself only.
    bad = np.arange(30) == 7
    n = jnp.asarray(np.where(bad, -1.0, n))
    spoilt = fit_queries(values, from_budgets(budgets), num_records=n, loss="maximum", failure=0.1)
    np.testing.assert_array_equal(np.isnan(spoilt.objective), bad)


@pytest.mark.slow
@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("bias", BIASES)
def test_within_the_budgets_and_never_worse(loss, bias, x64):
    values, budgets = batch(7)
    for n in (0.5, 5.0, 500.0):
        fit = fit_queries(values, from_budgets(budgets), num_records=n, loss=loss, bias=bias)
        check(fit, values, budgets)
        residual = np.asarray(fit.queries) - values
        total = np.sum if bias == "all_elements" else np.max
        expected = {
            "squared": n**2 * total((residual**2).sum(1), -1)
            + 2 * (np.asarray(fit.scales) ** 2).sum(-1),
            "absolute": n * total(np.abs(residual).sum(1), -1) + np.asarray(fit.scales).sum(-1),
            "maximum": n * np.abs(residual).max((1, 2))
            + np.log(60) * np.asarray(fit.scales).max(-1),
        }[loss]
        np.testing.assert_allclose(fit.objective, expected, rtol=1e-9)
        if n < 1:
            assert (np.asarray(fit.objective) < 0.9 * np.asarray(fit.closed_form)).mean() > 0.5


def linear_program(values, budgets, n):
    """The least n ||G - Q||_1 + c for K = 1, entrywise."""
    size = len(values)
    first, second = np.triu_indices(size, 1)
    apart = np.eye(size)[first] - np.eye(size)[second]
    zeros = np.zeros((len(first), size))
    limit = -budgets[first, second][:, None]
    a = np.block(
        [
            [apart, limit, zeros],
            [-apart, limit, zeros],
            [np.eye(size), np.zeros((size, 1)), -np.eye(size)],
            [-np.eye(size), np.zeros((size, 1)), -np.eye(size)],
        ]
    )
    return optimize.linprog(
        np.concatenate([np.zeros(size), [1.0], n * np.ones(size)]),
        A_ub=a,
        b_ub=np.concatenate([np.zeros(2 * len(first)), values, -values]),
        bounds=[(None, None)] * size + [(0, None)] * (size + 1),
    ).fun


@pytest.mark.slow
def test_one_query_comes_near_a_linear_program(x64):
    rng = np.random.default_rng(8)
    values, budgets = (
        instances.queries(10, "real", rng)[:, :1],
        instances.metrics(10, "plain", rng) * 0.2,
    )
    fit = fit_queries(values, from_budgets(budgets), num_records=3.0, loss="absolute")
    for row in range(10):
        assert (
            1 - 1e-6
            < float(fit.objective[row]) / linear_program(values[row, 0], budgets[row], 3)
            < 1.03
        )


def twins(count, apart, seed=3):
    """Points in the unit square, two of them so far apart, and a query that tells them apart."""
    rng = np.random.default_rng(seed)
    points = rng.uniform(size=(count, 6, 2))
    points[:, 1] = points[:, 0] + [apart, 0]
    return from_points(points, epsilon=1.0), rng.uniform(size=(count, 1, 6))


@pytest.mark.slow
def test_elements_that_are_almost_one_do_not_spoil_the_rest():
    metric, values = twins(6, 1e-6)
    n = np.array([1.0, 10.0, 100.0, 1.0, 10.0, 100.0])
    fit = fit_queries(values, metric, num_records=n, loss="absolute")
    budgets = np.asarray(metric.dense().budgets, np.float64)
    best = np.array([linear_program(*row) for row in zip(values[:, 0], budgets, n, strict=True)])
    ratio = np.asarray(fit.objective) / best
    assert ratio.min() > 1 - 1e-3
    assert ratio.max() < 1.1
    # What the queries as they were asked would cost
    assert (np.asarray(fit.closed_form) > 100 * best).all()
    assert (
        instances.loads(np.asarray(fit.queries), np.asarray(fit.scales), budgets) <= 1 + 1e-6
    ).all()


@pytest.mark.slow
@pytest.mark.parametrize("apart", [1e-8, 1e-6, 1e-4])
def test_statistics_cost_no_more_than_marginals_with_elements_that_are_almost_one(apart):
    metric, values = twins(8, apart)
    for n in (1.0, 30.0, 1000.0):
        marginals = fit_marginals(values[:, 0], metric, num_records=n)
        fit = fit_statistics(values, metric, num_records=n, loss="absolute")
        assert (np.asarray(fit.objective) <= 1.05 * np.asarray(marginals.objective)).all()
        assert (np.asarray(fit.closed_form) > 5 * np.asarray(marginals.objective)).any()


def test_bad_arguments():
    metric = from_points([[0.0], [1.0]], epsilon=1.0)
    with pytest.raises(ValueError, match="loss must be one of"):
        fit_queries([[0.0, 1.0]], metric, num_records=1.0, loss="cubed")
    with pytest.raises(ValueError, match="num_records must be"):
        fit_queries([[0.0, 1.0]], metric, num_records=0.0)
    with pytest.raises(ValueError, match="failure must be"):
        fit_queries([[0.0, 1.0]], metric, num_records=1.0, failure=1.0)
    with pytest.raises(ValueError, match="public number of records"):
        fit_queries([[0.0, 1.0]], metric.with_absence(1.0), num_records=1.0)
    with pytest.raises(TypeError, match="takes a Metric"):
        fit_queries([[0.0, 1.0]], np.eye(2), num_records=1.0)
