"""Other queries for less noise: within the budgets in exact arithmetic, never worse than what was
asked, and the optimum for one query and for one scale of all.
"""

import numpy as np
import pytest

from dpjax.metric_privacy import (
    fit_lipschitz_queries,
    fit_marginals,
    fit_queries,
    from_budgets,
    from_points,
    lipschitz_queries,
    optimal_scales,
)
from dpjax.metric_privacy.fitting import sufficient
from tests.metric_privacy import instances
from tests.metric_privacy.instances import shortest_paths

TASKS = pytest.mark.parametrize(("loss", "power"), [("squared", 2), ("absolute", 1)])


def some(queries, seed=0):
    """Queries and budgets, some of them 0 or unlimited, and points that are almost one."""
    rng = np.random.default_rng(seed)
    for kind in ("plain", "ties", "distinct ties", "blowfish", "twins"):
        for d in 0.3 * instances.metrics(2, "plain" if kind == "twins" else kind, rng):
            if kind == "twins":
                d[0] = d[:, 0] = d[1]
                d[0, 0], d[0, 1], d[1, 0] = 0, 1e-8, 1e-8
            yield kind, rng.uniform(size=(queries, instances.N)), d


@TASKS
def test_within_the_budgets_and_never_worse(loss, power):
    gains = []
    for _, values, budgets in some(3):
        metric = from_budgets(budgets)
        asked = power * np.sum(optimal_scales(values, metric, objective=loss).scales ** power)
        for n in (0.5, 5.0, 500.0):
            fit = fit_queries(values, metric, num_records=n, loss=loss)
            assert instances.exact_load(fit.queries, fit.scales, budgets) <= 1
            off = (n * np.abs(fit.queries - values)) ** power
            error = off.sum(axis=0).max() + power * np.sum(fit.scales**power)
            assert fit.objective == pytest.approx(error, rel=1e-9)
            assert fit.objective <= asked * (1 + 1e-6)
            gains.append(fit.objective < 0.9 * asked)
    assert 0.1 < np.mean(gains) < 0.9  # some are better, some are as asked


def changes(queries):
    return np.abs(queries[:, :, None] - queries[:, None]).max(axis=0)


def needed(queries, budgets):
    """The closed form: the largest change of any query over the budget."""
    change = changes(queries)
    known = (change > 0) & np.isfinite(budgets)
    with np.errstate(divide="ignore"):
        return np.max(change[known] / budgets[known], initial=0.0)


def half_excess(queries, budgets, scale):
    """Half of the largest excess over the Lipschitz condition, by closed budgets."""
    paths = shortest_paths(budgets)
    known = np.isfinite(paths)
    return np.max(changes(queries)[known] - scale * paths[known], initial=0.0) / 2


@TASKS
def test_one_query_has_the_global_optimum(loss, power):
    """No G is closer to q than half the excess at a scale, and the error is convex in the scale."""
    worse = []
    for _, asked, budgets in some(1, seed=1):
        for n in (0.5, 5.0, 50.0):
            fit = fit_queries(asked, from_budgets(budgets), num_records=n, loss=loss)

            def least(scale, asked=asked, budgets=budgets, n=n):
                return (n * half_excess(asked, budgets, scale)) ** power + power * scale**power

            (scale,) = fit.scales
            assert fit.objective == pytest.approx(least(scale), rel=1e-7)
            around = [least(c) for c in (scale or 1e-3) * np.geomspace(0.1, 10, 41)]
            assert fit.objective <= min(around) * (1 + 1e-7)
            worse.append(max(around) > 1.1 * fit.objective)
    assert np.mean(worse) > 0.5  # the control


def test_several_queries_are_no_worse_than_equal_shares():
    """Of each its own optimum with a part of the budgets; and they are often much better."""
    gains = []
    for _, values, budgets in some(2, seed=2):
        metric, share = from_budgets(budgets), from_budgets(budgets / 2)
        both = fit_queries(values, metric, num_records=5.0, loss="absolute").objective
        each = [fit_queries([q], share, num_records=5.0, loss="absolute") for q in values]
        gains.append(both / sum(fit.objective for fit in each))
    assert max(gains) <= 1 + 1e-9
    assert min(gains) < 0.98


def test_marginals_ignore_elements_that_are_almost_one():
    almost = from_points([[0.0], [1e-8], [1.0]], epsilon=1.0)
    fit = fit_marginals([0.0, 0.3, 1.0], almost, num_records=30.0)
    # |u' - v'| <= n d(u, v) with u' = values / c
    assert 1 - 1e-9 < instances.exact_load(fit.queries, fit.scales, almost.budgets) <= 1
    off = 30 * fit.queries[0] - [0.0, 0.3, 1.0]
    assert fit.objective == pytest.approx(np.abs(off).max() + fit.scales[0], rel=1e-9)
    assert fit.objective < 1 < 1e6 < 0.3 / (30 * almost.smallest) * (1 + 1e-9)  # as asked


def universes():
    """Three queries, budgets and records of all kinds."""
    for seed in range(6):
        for number, (_, values, budgets) in enumerate(some(3, seed)):
            yield values, budgets, 3.0 ** (number + seed)


def test_no_function_is_closer_than_the_envelope(x64):
    for number, (asked, budgets, _) in enumerate(universes()):
        metric, c = from_budgets(budgets), 10.0 ** (number / 15 - 2)
        found, plain = lipschitz_queries(asked, metric, scale=c), lipschitz_queries(asked, metric)
        assert needed(found.values, budgets) <= float(found.scale) == pytest.approx(c, rel=1e-7)
        off = np.abs(found.values - asked).max()
        assert off == pytest.approx(half_excess(asked, budgets, c), rel=1e-9, abs=1e-14)
        np.testing.assert_array_equal(plain.values, asked)
        least = needed(asked, budgets)
        assert float(plain.scale) >= least or np.isinf(least)
        # The control: queries as they are need a larger scale than one they do not fit in
        assert (off > 1e-12) == (least > c * (1 + 1e-12))


def test_the_price_is_least_over_all_scales(x64):
    kinds = []
    for number, (asked, budgets, n) in enumerate(universes()):
        price = (8.8, 3.8, 0.2)[number % 3]  # of MWEM, of SmallDB, and a low one
        fit = fit_lipschitz_queries(asked, from_budgets(budgets), num_records=n, price=price)
        scale = float(fit.scale)
        assert needed(fit.values, budgets) <= scale

        def objective(scale, asked=asked, budgets=budgets, n=n, price=price):
            return n * half_excess(asked, budgets, scale) + price * np.cbrt(scale * n**2)

        # A scale of 0 is used at its rounded value; the objective speaks of 0.
        constant, least = scale < 1e-7, needed(asked, budgets)
        fitted = 0.0 if constant else scale
        off = np.abs(fit.values - asked).max()
        assert off == pytest.approx(half_excess(asked, budgets, fitted), rel=1e-9, abs=1e-12)
        for share in (0.0, *np.geomspace(1e-6, 1, 60)):
            assert objective(fitted) <= objective(share * min(least, 100.0)) * (1 + 1e-9)
        kinds.append("constant" if constant else "as asked" if off < 1e-12 else "fitted")
    assert {"constant", "as asked", "fitted"} == set(kinds)


def test_a_count_of_all_records_has_a_price_with_the_null_record(x64):
    known, everyone = from_points([[0.0], [1.0], [4.0]], epsilon=1.0), [[1.0, 1.0, 1.0]]
    found = lipschitz_queries(everyone, known.with_absence(2.0))
    assert float(found.scale) == pytest.approx(0.5, rel=1e-12)
    assert (found.neighbors, found.values.tolist()) == ("add_remove", [[1.0, 1.0, 1.0, 0.0]])
    # Free, but for rounding, where n is public
    assert float(lipschitz_queries(everyone, known).scale) == pytest.approx(2.0**-26, rel=1e-12)


def test_queries_rounded_to_float32_are_within_their_scale():
    """Nearby elements of a large value: rounded values differ by more than given ones."""
    metric = from_points(np.arange(4.0)[:, None], epsilon=1e-3)
    asked = 1e3 + np.array([[0.0, 2e-5, 4e-5, 1e-5]])
    found = lipschitz_queries(asked, metric)
    values = found.values.astype(np.float64)
    assert found.values.dtype == np.float32
    assert float(found.scale) >= needed(values, metric.budgets) > needed(asked, metric.budgets)


def test_a_multiple_of_a_scale_in_float32_is_large_enough():
    """The noise of MWEM is a multiple, rounded once more; one float above is too little."""
    exact = np.random.default_rng(0).uniform(0.1, 1, 500)
    found = np.array([sufficient(c, np.ones(1, np.float32)) for c in exact])
    control = np.nextafter(np.float32(exact), np.float32(np.inf))
    assert ((np.float32(14) * found).astype(float) >= 14 * exact).all()
    assert not ((np.float32(14) * control).astype(float) >= 14 * exact).all()
