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
    epsilon_of_gdp,
    least_noise,
    optimal_pure_delta,
    poisson_subsample,
    privacy_losses,
    steps_within,
)
from dpjax.accounting.dominating_pairs import pair_of

library = pytest.importorskip(
    "dp_accounting.pld.privacy_loss_distribution", reason="the extra accounting is not installed"
)


def step(sigma, probability):
    return poisson_subsample(
        Guarantee(neighbors="add_remove", gdp=1 / sigma), probability=probability
    )


def laplace(epsilon):
    return Guarantee(epsilon, 2 * epsilon, "add_remove", noise=("laplace", epsilon, 1.0))


@pytest.mark.parametrize(
    ("part", "count", "epsilon", "exact"),
    [
        (Guarantee(0.5, inf, "swap"), 10, 1.0, optimal_pure_delta([0.5], [10], epsilon=1.0)),
        # 3e-13
        (Guarantee(0.1, inf, "swap"), 100, 7.0, optimal_pure_delta([0.1], [100], epsilon=7.0)),
        (Guarantee(neighbors="swap", gdp=0.1), 100, 2.0, delta_of_gdp(1.0, epsilon=2.0)),
        (Guarantee(neighbors="swap", gdp=0.01), 10**4, 3.0, delta_of_gdp(1.0, epsilon=3.0)),
        (Guarantee(neighbors="swap", gdp=1e-3), 10**6, 6.0, delta_of_gdp(1.0, epsilon=6.0)),  # 1e-9
        (laplace(1.0), 1, 0.5, 1 - exp(-0.25)),
        (Guarantee(1.0, 1.0, "swap"), 1, 0.5, (1 - exp(-0.25)) ** 2 / (1 - exp(-1.0))),
    ],
)
def test_against_exact_deltas(part, count, epsilon, exact):
    found = privacy_losses.delta_of_pairs([(pair_of(part), count)], epsilon)
    assert exact * (1 - 1e-9) <= found <= exact * 1.01
    assert (
        epsilon * (1 - 1e-6)
        <= privacy_losses.epsilon_of_pairs([(pair_of(part), count)], exact)
        <= epsilon * 1.003
    )


def test_a_range_beside_an_epsilon():
    """The worst of all pairs with two losses t and t - r that are both within epsilon, at every
    level, by their maximum.
    """
    for epsilon, r in ((0.8, 1.0), (0.5, 1.0), (1.0, 1.0), (0.6, 0.9)):
        t = np.linspace(r - epsilon, epsilon, 4001)
        q = (np.exp(-t) - exp(-r)) / (1 - exp(-r))
        pair = pair_of(Guarantee(epsilon, r, "swap"))
        for level in (0.0, 0.1, 0.3, 0.55):
            exact = np.max(
                q * np.maximum(np.exp(t) - exp(level), 0)
                + (1 - q) * np.maximum(np.exp(t - r) - exp(level), 0)
            )
            assert (
                exact - 1e-9
                <= privacy_losses.delta_of_pairs([(pair, 1)], level)
                <= exact * 1.002 + 1e-12
            )


@pytest.mark.parametrize(
    ("sigma", "probability", "count", "delta"),
    [
        (1.0, 0.01, 120, 1e-6),
        (0.6, 0.1, 10, 1e-10),
        (4.0, 1e-3, 10**5, 1e-5),
        (2.0, 0.1, 1, 1e-7),
        (1.0, 0.01, 10**6, 1e-5),
    ],
)
def test_between_the_estimates_of_dp_accounting(sigma, probability, count, delta):
    interval = 1e-5 if count == 10**5 else 1e-4 if count < 10**6 else 1e-3
    above, below = (
        library.from_gaussian_mechanism(
            sigma,
            value_discretization_interval=interval,
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
    """Sums of subsampled Gaussian noise were up to 34 times too large, and more noise cost more."""
    costs = [(10_000 * step(sigma, 1e-4)).epsilon_at(1e-6) for sigma in (0.7, 0.8, 1.0, 1.3)]
    assert costs[2] == pytest.approx(0.04697, rel=1e-3)
    assert costs == sorted(costs, reverse=True)
    assert (10_000 * step(1.0, 1e-4)).delta_at(0.1) <= 1.4e-11
    assert (10**6 * step(1.0, 1e-4)).epsilon_at(1e-6) == pytest.approx(0.5326, rel=2e-3)
    assert (10**6 * step(1.0, 0.01)).epsilon_at(1e-5) <= 150.6
    assert (50 * laplace(1.0)).rules_at(1e-6)["rdp"] == pytest.approx(42.76, abs=0.01)
    assert (50 * laplace(1.0)).epsilon_at(1e-6) == pytest.approx(41.61, rel=2e-3)


@pytest.mark.slow
def test_plans_that_were_wrong():
    assert least_noise(
        lambda sigma: 10_000 * step(sigma, 1e-4), epsilon=0.5, delta=1e-6
    ) == pytest.approx(0.605, rel=1e-3)
    assert steps_within(step(1.0, 0.01), epsilon=1.0, delta=1e-6) == 120


def test_more_noise_fewer_steps_and_a_larger_delta_cost_less():
    numbers = ((0.7, 1.0, 2.5), (1e-3, 0.01, 0.05), (1, 30, 1000), (1e-8, 1e-6))
    found = {
        case: (case[2] * step(case[0], case[1])).rules_at(case[3])["losses"]
        for case in itertools.product(*numbers)
    }
    for case, cost in found.items():
        for at, falls in enumerate((True, False, False, True)):
            place = numbers[at].index(case[at])
            if place + 1 < len(numbers[at]):
                other = found[(*case[:at], numbers[at][place + 1], *case[at + 1 :])]
                assert (other <= cost) if falls else (other >= cost), (case, at)


def test_three_kinds_together_cost_no_more_than_any_rule_says():
    spent = (
        Guarantee(0.3, inf, "swap")
        + Guarantee(neighbors="swap", gdp=0.1)
        + Guarantee(0.3, 0.3, "swap")
    )
    rules = spent.rules_at(1e-5)
    assert spent.epsilon_at(1e-5) == rules["losses"] < 0.98 * min(rules["rdp"], rules["gaussian"])
    assert spent.delta_at(rules["losses"]) <= 1.02e-5


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
    assert exact <= privacy_losses.delta_of_pairs([(pair_of(part), 10)], 0.5) <= 1.001 * exact
    assert privacy_losses.epsilon_of_pairs([(pair_of(part), 10)], 9e-7) == inf


def test_without_the_extra_other_rules_hold(monkeypatch):
    monkeypatch.setitem(sys.modules, "dp_accounting", None)
    spent = 100 * step(1.0, 0.01)
    assert set(spent.rules_at(1e-6)) == {"rdp"}
    assert spent.best_rule_at(1e-6)[0] == "rdp"
    assert "(rdp; less with the extra dpjax[accounting])" in str(spent)
    assert "extra" not in str(100 * Guarantee(0.1, 0.1, "swap"))  # to which it adds nothing
    monkeypatch.undo()
    assert (100 * step(1.0, 0.01)).best_rule_at(1e-6)[0] == "losses"
    assert "(losses)" in str(spent)


def test_gaussian_noise_alone_is_exact():
    assert (16 * Guarantee(neighbors="swap", gdp=0.25)).rules_at(1e-6).keys() == {"gaussian", "rdp"}
    assert (16 * Guarantee(neighbors="swap", gdp=0.25)).epsilon_at(1e-6) == pytest.approx(
        epsilon_of_gdp(1.0, delta=1e-6)
    )
