"""Noise scales: within the budgets in exact arithmetic on every instance, tight, and the optimum
against another solver.
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
from dpjax.metric_privacy.scales import rounded_up
from tests.metric_privacy import instances
from tests.metric_privacy.golden import golden

STRATEGIES = ("equal_shares", "common", "parameter_selection", "optimal")
OBJECTIVES = {
    "squared": lambda u: np.sum(u**-2.0),
    "absolute": lambda u: np.sum(1 / u),
    "geometric_mean": lambda u: -np.sum(np.log(u)),
}


@functools.cache
def everything():
    """Instances of all kinds with their scales by strategy."""
    return [
        (
            values,
            budgets,
            kind,
            {s: noise_scales(values, from_budgets(budgets), strategy=s) for s in STRATEGIES},
        )
        for values, budgets, kind in instances.all_kinds(6)
    ]


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_no_scales_overspend_and_none_waste(strategy):
    for values, budgets, _, scales in everything():
        c, metric = scales[strategy], from_budgets(budgets)
        apart = np.abs(values[:, :, None] - values[:, None]) > 0
        hopeless = (apart & (budgets == 0)).any((1, 2))
        free = ~hopeless & ~(apart & np.isfinite(budgets)).any((1, 2))
        assert (np.isposinf(c) == hopeless).all()
        assert ((c == 0) == free).all()
        live = np.flatnonzero(~(free | hopeless))
        spent = instances.exact_load(values, c, budgets)
        assert spent <= 1
        assert load(values, c, metric) == pytest.approx(float(spent), rel=1e-12)
        if strategy == "equal_shares":
            alone = [instances.exact_load(values[[k]], [1.0], budgets) * live.size for k in live]
            np.testing.assert_allclose(c[live], np.array(alone, float), rtol=1e-12)
        elif live.size:
            assert spent >= 1 - 1e-9
            assert load(values, c * (1 - 1e-9), metric) > 1 >= load(values, c, metric)


def test_golden_numbers():
    known = golden("D_metric_laplace")
    metric, asked = from_budgets(known["d"]), np.array(known["Q"])
    for name, key in zip(STRATEGIES, ("S1", "S2", "S3", "opt"), strict=True):
        tolerance = 1e-4 if name == "optimal" else 1e-9  # of the optimum, the sum has 1e-7
        found = noise_scales(asked, metric, strategy=name)
        np.testing.assert_allclose(found, known[key], rtol=tolerance)
    alone = [single_query_scale(query, metric) for query in asked]
    np.testing.assert_allclose(alone, known["c_single"], rtol=1e-9)
    factors = [improvement_factor(asked, known[key], metric) for key in ("S1", "S2", "S3")]
    np.testing.assert_allclose(factors, known["IF"], rtol=1e-9)


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_the_certificate_against_an_independent_solver(objective):
    function = OBJECTIVES[objective]
    for values, budgets, kind, scales in everything():
        metric = from_budgets(budgets)
        c, gap = optimal_scales(values, metric, objective=objective)
        assert gap < 1e-7
        if kind not in ("plain/real", "distinct ties/real"):
            continue
        i, j = np.triu_indices(instances.N, 1)
        a = np.abs(values[:, i] - values[:, j]) / budgets[i, j]
        unit = 1 / a.max(1)
        best = optimize.minimize(
            lambda v, unit=unit: function(v * unit),
            0.5 / a.sum(0).max() / unit,
            constraints={"type": "ineq", "fun": lambda v, a=a, unit=unit: 1 - (v * unit) @ a},
            bounds=[(1e-6, 1.0)] * len(a),
            method="SLSQP",
            options={"ftol": 1e-14, "maxiter": 1000},
        )
        np.testing.assert_allclose(function(1 / c), best.fun, rtol=1e-6)
        # Controls: other strategies
        worse = max(function(1 / scales[name]) for name in STRATEGIES[:-1])
        assert worse > best.fun + 1e-6 * abs(best.fun)


def test_the_certificate_of_many_pairs_and_queries():
    rng = np.random.default_rng(0)
    points = rng.uniform(0, 10, (400, 2))
    plane = np.linalg.norm(points[:, None] - points, axis=-1)
    line = np.abs(np.subtract.outer(np.arange(400.0), np.arange(400.0)))
    walks = np.cumsum(rng.normal(size=(10, 400)), axis=1)
    cities = np.vstack([rng.uniform(size=(3, 400)) ** 8, rng.uniform(size=(3, 400)) < 0.01])
    several = rng.uniform(size=(50, 400))
    far = np.diag([1e-200, 1.0, 1e200]), 1 - np.eye(3)  # squares that are no floats
    for values, budgets in ((several, plane), (walks, line), (cities, plane**2), far):
        for objective in OBJECTIVES:
            best = optimal_scales(values, from_budgets(budgets), objective=objective)
            assert best.gap < 1e-7
            assert 1 - 1e-9 < load(values, best.scales, from_budgets(budgets)) <= 1


def test_the_printed_selection_overspends():
    """The control of Algorithm 3: budgets that are used up but for rounding are spent again."""
    spent = []
    for values, budgets, kind, scales in everything():
        if kind in ("plain/real", "distinct ties/real", "wide/real"):
            printed = np.abs(instances.printed_selection(values, budgets))
            spent.append(load(values, printed, from_budgets(budgets)))
            if spent[-1] <= 1 + 1e-9:  # where it does not, it is the same algorithm
                np.testing.assert_allclose(scales["parameter_selection"], printed, rtol=1e-6)
    assert max(spent) > 1.01
    assert np.median(spent) <= 1 + 1e-9


def test_scales_of_another_dtype_are_rounded_up():
    numbers = np.array([0.0, 1e-50, 0.7, 1 / 3, 1.0, 1e30, 1e39, np.inf])
    found = rounded_up(numbers, np.dtype(np.float32))
    assert found.dtype == np.float32
    assert (found >= numbers).all()
    assert (found[2:6] <= numbers[2:6] * (1 + 2.0**-22)).all()
    assert (found[0], found[1] >= np.finfo(np.float32).tiny) == (0, True)
    assert float(np.float32(0.7)) < 0.7  # the control
