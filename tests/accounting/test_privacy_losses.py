"""Numerical accounting against exact deltas and against dp-accounting, from both sides; and what is
monotone.
"""

import itertools
import sys
from math import comb, exp, inf

import numpy as np
import pytest

from dpjax.accounting import (
    Guarantee,
    delta_of_gdp,
    dominating_pairs,
    optimal_pure_delta,
    poisson_subsample,
    privacy_losses,
    steps_within,
)

library = pytest.importorskip(
    "dp_accounting.pld.privacy_loss_distribution", reason="the extra accounting is not installed"
)


def step(sigma, probability):
    noise = Guarantee(neighbors="add_remove", gdp=1 / sigma)
    return poisson_subsample(noise, probability=probability)


def laplace(epsilon):
    return Guarantee(epsilon, 2 * epsilon, "add_remove", noise=("laplace", epsilon, 1.0))


def pairs(part, count):
    return [(dominating_pairs.pair_of(part), count)]


@pytest.mark.parametrize(
    ("part", "count", "epsilon", "exact"),
    [
        (Guarantee(0.5, inf, "swap"), 10, 1.0, optimal_pure_delta([0.5], [10], epsilon=1.0)),
        # 3e-13
        (Guarantee(0.1, inf, "swap"), 100, 7.0, optimal_pure_delta([0.1], [100], epsilon=7.0)),
        (Guarantee(neighbors="swap", gdp=0.1), 100, 2.0, delta_of_gdp(1.0, epsilon=2.0)),
        (Guarantee(neighbors="swap", gdp=1e-3), 10**6, 6.0, delta_of_gdp(1.0, epsilon=6.0)),  # 1e-9
        (laplace(1.0), 1, 0.5, 1 - exp(-0.25)),
        (Guarantee(1.0, 1.0, "swap"), 1, 0.5, (1 - exp(-0.25)) ** 2 / (1 - exp(-1.0))),
    ],
)
def test_against_exact_deltas(part, count, epsilon, exact):
    found = privacy_losses.delta_of_pairs(pairs(part, count), epsilon)
    assert exact * (1 - 1e-9) <= found <= exact * 1.01
    back = privacy_losses.epsilon_of_pairs(pairs(part, count), exact)
    assert epsilon * (1 - 1e-6) <= back <= epsilon * 1.003


def test_a_range_beside_an_epsilon():
    """The worst of all pairs with two losses t and t - r that are both within epsilon, at every
    level, by their maximum.
    """
    for epsilon, r in ((0.8, 1.0), (0.5, 1.0), (0.6, 0.9)):
        t = np.linspace(r - epsilon, epsilon, 4001)
        q = (np.exp(-t) - exp(-r)) / (1 - exp(-r))
        for level in (0.0, 0.1, 0.3, 0.55):
            above, below = (np.maximum(np.exp(loss) - exp(level), 0) for loss in (t, t - r))
            exact = np.max(q * above + (1 - q) * below)
            found = privacy_losses.delta_of_pairs(pairs(Guarantee(epsilon, r, "swap"), 1), level)
            assert exact - 1e-9 <= found <= exact * 1.002 + 1e-12


@pytest.mark.parametrize(
    ("sigma", "probability", "count", "delta"),
    [
        (1.0, 0.01, 120, 1e-6),
        pytest.param(0.6, 0.1, 10, 1e-10, marks=pytest.mark.slow),
        (4.0, 1e-3, 10**5, 1e-5),
        (1.0, 0.01, 10**6, 1e-5),
    ],
)
def test_between_the_estimates_of_dp_accounting(sigma, probability, count, delta):
    above, below = (
        library.from_gaussian_mechanism(
            sigma,
            value_discretization_interval=1e-3 if count == 10**6 else 1e-5 if count > 120 else 1e-4,
            sampling_prob=probability,
            pessimistic_estimate=pessimistic,
        )
        for pessimistic in (True, False)
    )
    found = (count * step(sigma, probability)).epsilon_at(delta)
    if count < 10**6:
        assert below.self_compose(count).get_epsilon_for_delta(delta) <= found
    assert found == pytest.approx(above.self_compose(count).get_epsilon_for_delta(delta), rel=0.01)


def test_cases_that_were_wrong():
    """Sums of subsampled Gaussian noise were up to 34 times too large, and more noise cost more;
    Renyi divergences admit no step where losses admit 120.
    """
    costs = [(10_000 * step(sigma, 1e-4)).epsilon_at(1e-6) for sigma in (0.8, 1.0, 1.3)]
    assert costs[1] == pytest.approx(0.04697, rel=1e-3)
    assert costs == sorted(costs, reverse=True)
    assert (10_000 * step(1.0, 1e-4)).delta_at(0.1) <= 1.4e-11
    by_renyi = Guarantee(neighbors="add_remove", renyi=step(1.0, 0.01).renyi)
    for each, count in ((by_renyi, 0), (step(1.0, 0.01), 120)):
        assert steps_within(each, epsilon=1.0, delta=1e-6) == count
    spent = 50 * laplace(1.0)
    assert spent.rules_at(1e-6)["rdp"] == pytest.approx(42.76, abs=0.01)
    assert spent.epsilon_at(1e-6) == pytest.approx(41.61, rel=2e-3)


def test_more_noise_fewer_steps_and_a_larger_delta_cost_less():
    numbers = ((2.5, 0.7), (1e-3, 0.05), (1, 300), (1e-6, 1e-8))  # the second one costs more
    found = np.reshape(
        [
            (count * step(sigma, probability)).rules_at(delta)["losses"]
            for sigma, probability, count, delta in itertools.product(*numbers)
        ],
        (2, 2, 2, 2),
    )
    for axis in range(4):
        assert (np.diff(found, axis=axis) >= 0).all()


def test_a_delta_of_a_part_is_paid():
    """Ten mechanisms that are (0.1, 1e-7)-DP: the exact delta, by the binomial sum and the product
    of what is kept.
    """
    part, right = Guarantee(0.1, inf, "swap", delta=1e-7), 1 / (1 + exp(-0.1))
    exact = sum(
        comb(10, wrong)
        * right ** (10 - wrong)
        * (1 - right) ** wrong
        * max(1 - exp(0.5 - 0.1 * (10 - 2 * wrong)), 0)
        for wrong in range(11)
    )
    exact = 1 - (1 - 1e-7) ** 10 * (1 - exact)
    assert exact <= privacy_losses.delta_of_pairs(pairs(part, 10), 0.5) <= 1.001 * exact
    assert privacy_losses.epsilon_of_pairs(pairs(part, 10), 9e-7) == inf


def test_without_the_extra_other_rules_hold(monkeypatch):
    monkeypatch.setitem(sys.modules, "dp_accounting", None)
    spent = 100 * step(1.0, 0.01)
    assert set(spent.rules_at(1e-6)) == {"rdp"}
    assert "less with the extra dpjax[accounting]" in str(spent)
    assert "extra" not in str(100 * Guarantee(0.1, 0.1, "swap"))  # to which it adds nothing
    monkeypatch.undo()
    assert spent.best_rule_at(1e-6)[0] == "losses"
