"""Noise scales: within the budgets in exact arithmetic on every instance, tight, and the optimum
against other solvers.
"""

import functools

import numpy as np
import pytest
from scipy import optimize

from dpjax.metric_privacy import (
    from_budgets,
    improvement_factor,
    load,
    noise_scales,
    optimal_scales,
    single_query_scale,
)
from dpjax.metric_privacy.scales import OptimalScales, rounded_up
from tests.metric_privacy import instances
from tests.metric_privacy.golden import golden
from tests.metric_privacy.instances import K, N

GOLDEN = golden("D_metric_laplace")
STRATEGIES = ("equal_shares", "common", "parameter_selection", "optimal")
OBJECTIVES = {
    "squared": lambda u, w: w @ u**-2.0,
    "absolute": lambda u, w: w @ u**-1.0,
    "geometric_mean": lambda u, w: -w @ np.log(u),
}


@functools.cache
def everything():
    """Instances of all kinds, and their scales by strategy; certificates of the optimum."""
    values, budgets, kinds = instances.all_kinds(20)
    asked = [(q, from_budgets(d)) for q, d in zip(values, budgets, strict=True)]
    scales = {
        name: np.array([noise_scales(*one, strategy=name) for one in asked])
        for name in STRATEGIES[:-1]
    }
    best = OptimalScales(*map(np.array, zip(*(optimal_scales(*one) for one in asked), strict=True)))
    scales["optimal"] = best.scales
    return values, budgets, kinds, scales, best.gap


def kinds_of(values, budgets):
    """Which queries need no noise, and which cannot be answered."""
    apart = np.abs(values[:, :, :, None] - values[:, :, None, :])
    hopeless = ((apart > 0) & (budgets[:, None] == 0)).any((2, 3))
    return ~hopeless & ~((apart > 0) & np.isfinite(budgets[:, None])).any((2, 3)), hopeless


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_no_scales_overspend_and_none_waste(strategy):
    values, budgets, _, scales, _ = everything()
    c = scales[strategy]
    free, hopeless = kinds_of(values, budgets)
    assert (np.isposinf(c) == hopeless).all()
    assert ((c == 0) == free).all()
    some = ~(free | hopeless).all(-1)
    assert some.sum() > 0.75 * len(values)
    spent = instances.loads(values, c, budgets)
    assert spent.max() <= 1 + 1e-12
    if strategy == "equal_shares":
        alone = instances.loads(values.reshape(-1, 1, N), np.ones((1, 1)), budgets.repeat(K, 0))
        alive = ~(free | hopeless)
        sharing = np.broadcast_to(alive.sum(-1, keepdims=True), c.shape)[alive]
        np.testing.assert_allclose(c[alive], alone.reshape(-1, K)[alive] * sharing, rtol=1e-12)
    else:
        assert spent[some].min() >= 1 - 1e-9
    for row in range(0, len(values), 7):
        assert instances.exact_load(values[row], c[row], budgets[row]) <= 1


def test_the_load_sees_scales_that_are_a_little_too_small():
    values, budgets, _, scales, _ = everything()
    free, hopeless = kinds_of(values, budgets)
    some = np.flatnonzero(~(free | hopeless).all(-1))
    for factor in (1 - 1e-9, 1.0):
        tried = scales["optimal"] * factor
        found = [load(values[row], tried[row], from_budgets(budgets[row])) for row in some]
        np.testing.assert_allclose(found, instances.loads(values, tried, budgets)[some], rtol=1e-12)
        assert (np.array(found) > 1).all() == (factor < 1)


def test_golden_numbers():
    metric, asked = from_budgets(GOLDEN["d"]), np.array(GOLDEN["Q"])
    for name, key in zip(STRATEGIES, ("S1", "S2", "S3", "opt"), strict=True):
        tolerance = 1e-4 if name == "optimal" else 1e-9  # of the optimum, the sum has 1e-7
        np.testing.assert_allclose(
            noise_scales(asked, metric, strategy=name), GOLDEN[key], rtol=tolerance
        )
    alone = [single_query_scale(query, metric) for query in asked]
    np.testing.assert_allclose(alone, GOLDEN["c_single"], rtol=1e-9)
    factors = [improvement_factor(asked, GOLDEN[key], metric) for key in ("S1", "S2", "S3")]
    np.testing.assert_allclose(factors, GOLDEN["IF"], rtol=1e-9)


def rates(values, budgets):
    """What each pair of finite budget costs for scales of 1, as a part of its budget."""
    first, second = np.triu_indices(N, 1)
    d = budgets[first, second]
    return np.abs(values[:, first] - values[:, second])[:, np.isfinite(d)] / d[np.isfinite(d)]


def test_the_optimum_is_certified_and_strategy_3_is_not_optimal():
    _, _, kinds, scales, gap = everything()
    assert gap.max() < 1e-7
    sizes = {n: (np.where(np.isfinite(c), c, 0.0) ** 2).sum(-1) for n, c in scales.items()}
    for other in STRATEGIES[:-1]:
        assert (sizes["optimal"] <= sizes[other] * (1 + 1e-7)).all()
    real = kinds == "plain/real"
    assert 0.78 < np.mean(sizes["optimal"][real] / sizes["parameter_selection"][real]) < 0.99


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_the_certificate_against_an_independent_solver(objective):
    values, budgets, kinds, *_ = everything()
    weights, function = np.array([1.0, 2.0, 0.5]), OBJECTIVES[objective]
    for row in np.flatnonzero(np.isin(kinds, ["plain/real", "distinct ties/real"]))[::8]:
        metric = from_budgets(budgets[row])
        c, gap = optimal_scales(values[row], metric, objective=objective, weights=weights)
        assert gap < 1e-7
        a = rates(values[row], budgets[row])
        unit = 1 / a.max(1)
        best = optimize.minimize(
            lambda v, unit=unit: function(v * unit, weights),
            0.5 / a.sum(0).max() / unit,
            constraints={"type": "ineq", "fun": lambda v, a=a, unit=unit: 1 - (v * unit) @ a},
            bounds=[(1e-6, 1.0)] * K,
            method="SLSQP",
            options={"ftol": 1e-14, "maxiter": 1000},
        )
        np.testing.assert_allclose(function(1 / c, weights), best.fun, rtol=1e-6)
        # Control: equal weights have another optimum
        other = optimal_scales(values[row], metric, objective=objective).scales
        assert function(1 / other, weights) > function(1 / c, weights) + 1e-6 * abs(best.fun)


def test_the_certificate_of_many_pairs_and_queries():
    rng = np.random.default_rng(0)
    points = rng.uniform(0, 10, (400, 2))
    plane = np.linalg.norm(points[:, None] - points, axis=-1)
    line = np.abs(np.subtract.outer(np.arange(400.0), np.arange(400.0)))
    walks = np.cumsum(rng.normal(size=(10, 400)), axis=1)
    for values, budgets in ((rng.uniform(size=(10, 400)), plane), (walks, line)):
        scales, gap = optimal_scales(values, from_budgets(budgets))
        assert gap < 1e-7
        assert 1 - 1e-9 < load(values, scales, from_budgets(budgets)) <= 1


def test_the_printed_selection_overspends():
    """The negative control of Algorithm 3: budgets that are used up but for rounding are spent
    again.
    """
    values, budgets, kinds, scales, _ = everything()
    real = np.flatnonzero(np.isin(kinds, ["plain/real", "distinct ties/real", "wide/real"]))
    printed = np.abs([instances.printed_selection(values[row], budgets[row]) for row in real])
    spent = instances.loads(values[real], printed, budgets[real])
    assert (spent > 1.01).mean() > 0.1
    fine = spent <= 1 + 1e-9  # where it does not, it is the same algorithm
    assert fine.sum() > 0.3 * len(real)
    np.testing.assert_allclose(scales["parameter_selection"][real][fine], printed[fine], rtol=1e-6)


def test_scales_of_another_dtype_are_rounded_up():
    numbers = np.array([0.0, 1e-50, 0.7, 1 / 3, 1.0, 1e30, 1e39, np.inf])
    found = rounded_up(numbers, np.dtype(np.float32))
    assert found.dtype == np.float32
    assert (found >= numbers).all()
    assert (found[2:6] <= numbers[2:6] * (1 + 2.0**-23)).all()
    assert found[0] == 0
    assert found[1] == np.finfo(np.float32).tiny
    assert float(np.float32(0.7)) < 0.7  # control
