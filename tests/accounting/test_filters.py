"""Filters refuse beyond their budget, odometers bound what adaptive adversaries spend."""

from functools import cache
from math import inf, log

import numpy as np
import pytest

from dpjax.accounting import BudgetExceeded, Guarantee, PrivacyFilter, PrivacyOdometer, epsilon_of_zcdp, zcdp_of


def test_a_pure_budget():
    budget = PrivacyFilter(1.0, 0.0, "swap")
    for _ in range(10):
        budget.charge(Guarantee(0.1, 0.1, "swap"))
    assert budget.remaining == 0
    with pytest.raises(BudgetExceeded, match="passes"):
        budget.charge(Guarantee(1e-6, 1e-6, "swap"))
    assert budget.spent == 1.0  # a refusal is free
    half = PrivacyFilter(1.0, 0.0, "swap")
    half.charge(5 * Guarantee(0.1, 0.1, "swap"))
    assert half.allows(Guarantee(0.5, 0.5, "swap"))
    assert not half.allows(Guarantee(0.500001, 0.5, "swap"))


def test_a_budget_with_delta_is_one_of_zcdp(x64):
    budget = PrivacyFilter(1.0, 1e-6, "add_remove")
    np.testing.assert_allclose(budget.budget, zcdp_of(1.0, delta=1e-6), rtol=1e-9)
    each, count = Guarantee(0.05, 0.05, "add_remove"), 0
    while budget.allows(each):
        budget.charge(each)
        count += 1
    assert count == int(budget.budget / (0.05**2 / 8))
    assert epsilon_of_zcdp(budget.spent, delta=1e-6) <= 1.0 < epsilon_of_zcdp(budget.spent + each.rho, delta=1e-6)
    assert count > 3 * 20  # of what a pure budget would allow


def test_what_a_budget_cannot_charge():
    pure, loose = PrivacyFilter(1.0, 0.0, "swap"), PrivacyFilter(1.0, 1e-6, "swap")
    for budget in (pure, loose):
        with pytest.raises(ValueError, match="neighbors"):
            budget.charge(Guarantee(0.1, 0.1, "add_remove"))
        with pytest.raises(ValueError, match="does not promise"):
            budget.charge(Guarantee(0.1, inf, "swap", delta=1e-9))
    with pytest.raises(ValueError, match="pure DP"):
        pure.charge(Guarantee(inf, inf, "swap", zcdp=0.01))
    loose.charge(Guarantee(inf, inf, "swap", zcdp=0.01))
    loose.charge(Guarantee(1.0, inf, "swap", delta=1e-6, zcdp=0.001))
    for bad in ((0.0, 0.0), (inf, 0.0), (1.0, 1.0), (1.0, -0.1)):
        with pytest.raises(ValueError, match=r"epsilon|delta"):
            PrivacyFilter(*bad, "swap")
    for bad in ({"delta": 0.0}, {"delta": 1e-6, "first": 0.0}):
        with pytest.raises(ValueError, match=r"delta|first"):
            PrivacyOdometer(neighbors="swap", **bad)
    odometer = PrivacyOdometer(1e-6, "swap")
    for bad in (Guarantee(0.1, 0.1, "edge"), Guarantee(0.1, inf, "swap", delta=1e-9)):
        with pytest.raises(ValueError, match=r"neighbors|zCDP"):
            odometer.charge(bad)


def adaptive_losses(runs, rounds, seed):
    """Losses and rho of an adversary who doubles the cost when ahead: randomised responses, all runs at once."""
    rng = np.random.default_rng(seed)
    loss, rho, path = np.zeros(runs), np.zeros(runs), []
    for _ in range(rounds):
        epsilon = np.where(loss > np.sqrt(rho), 0.4, 0.1)
        right = rng.uniform(size=runs) < 1 / (1 + np.exp(-epsilon))
        loss, rho = loss + np.where(right, epsilon, -epsilon), rho + epsilon * np.tanh(epsilon / 2)
        path.append((loss.copy(), rho.copy()))
    return path


@pytest.mark.slow
def test_an_odometer_bounds_the_loss_at_all_times():
    delta, runs = 0.05, 4000
    ever, ever_half = np.zeros(runs, bool), np.zeros(runs, bool)
    for loss, rho in adaptive_losses(runs, 60, 0):
        spent, run = np.unique(rho, return_inverse=True)
        bound = np.array([reading(delta, r) for r in spent])[run]
        ever |= loss > bound
        ever_half |= loss > bound / 3
    # At most delta of the runs, with six standard deviations of 4000 runs on top; a third of the bound is passed by many.
    assert ever.mean() <= delta + 6 * np.sqrt(delta / runs)
    assert ever_half.mean() > 2 * delta


def reading(delta, rho):
    odometer = PrivacyOdometer(delta, "swap")
    odometer.charge(Guarantee(inf, inf, "swap", zcdp=float(rho)))
    return odometer.epsilon


def test_readings():
    odometer = PrivacyOdometer(1e-6, "swap")
    assert odometer.epsilon == 0
    last = 0.0
    for _ in range(49):
        odometer.charge(Guarantee(0.2, 0.2, "swap"))
        assert odometer.epsilon >= last
        last = odometer.epsilon
    assert odometer.rho == pytest.approx(49 * 0.005)
    budget = 2.0**-2  # the first doubled budget that holds it
    assert last == pytest.approx(budget + 2 * np.sqrt(budget * -log(6e-6 / (np.pi * 9) ** 2)))


def test_bad_numbers_do_not_open_a_budget():
    """NaN compares false with everything; a refund would undo a charge."""
    for bad in (float("nan"), -10.0):
        with pytest.raises(ValueError, match="epsilon"):
            PrivacyFilter(1.0, 0.0, "swap").charge(Guarantee(bad, inf, "swap"))
    odometer = PrivacyOdometer(1e-6, "swap")
    with pytest.raises(ValueError, match="zCDP"):
        odometer.charge(Guarantee(1e308, inf, "swap"))
    budget = PrivacyFilter(1.0, 0.0, "swap")
    budget.charge(Guarantee(0.5, 0.5, "swap"))
    for _ in range(2):
        with pytest.raises(BudgetExceeded):
            budget.charge(Guarantee(1e308, inf, "swap"))


def test_a_delta_admits_at_least_what_none_admits():
    for each in (Guarantee(0.3, 0.6, "swap"), Guarantee(0.9, inf, "swap"), Guarantee(0.05, 0.05, "swap")):
        admitted = {}
        for delta in (0.0, 1e-6):
            budget, admitted[delta] = PrivacyFilter(1.0, delta, "swap"), 0
            while budget.allows(each):
                budget.charge(each)
                admitted[delta] += 1
        assert admitted[1e-6] >= admitted[0.0] > 0
    large = Guarantee(0.9, inf, "swap")
    assert large.rho > PrivacyFilter(1.0, 1e-6, "swap").budget  # control: its rho alone would refuse it
    mixed = PrivacyFilter(1.0, 1e-6, "swap")
    mixed.charge(Guarantee(inf, inf, "swap", zcdp=1e-4))
    assert not mixed.allows(large)  # without an epsilon for every part the sum of epsilons admits nothing


def largest_delta(epsilon, allows):
    """The delta at epsilon of the best adversary who composes randomised responses at 0.1 and 0.5, each as ``allows`` says."""

    @cache
    def best(small, large, loss):  # the loss is counted in steps of 0.1
        found = max(-np.expm1(epsilon - 0.1 * loss), 0.0)
        for step, counts in ((1, (small + 1, large)), (5, (small, large + 1))):
            if allows(*counts):
                right = 1 / (1 + np.exp(-0.1 * step))
                found = max(found, right * best(*counts, loss + step) + (1 - right) * best(*counts, loss - step))
        return found

    return best(0, 0, 0)


def test_two_filters_side_by_side_keep_the_delta():
    """All adaptive adversaries, against the filter; the control may spend one budget after the other."""
    parts, delta = (Guarantee(0.1, inf, "swap"), Guarantee(0.5, inf, "swap")), 0.01
    rho = PrivacyFilter(1.0, delta, "swap").budget
    assert 10 * parts[0].rho < rho < parts[1].rho

    @cache
    def allows(small, large):
        """Whether this many of each can be charged, in any order: what is allowed does not depend on the order."""
        budget = PrivacyFilter(1.0, delta, "swap")
        try:
            for part, count in zip(parts, (small, large), strict=True):
                for _ in range(count):
                    budget.charge(part)
        except BudgetExceeded:
            return False
        return True

    assert largest_delta(1.0, allows) <= delta
    assert largest_delta(1.0, lambda small, large: large <= 2 and small * parts[0].rho <= rho) > delta


def test_unknown_relations_are_refused():
    for make in (lambda: PrivacyFilter(1.0, 0.0, "swapp"), lambda: PrivacyOdometer(1e-6, "swapp")):
        with pytest.raises(ValueError, match="neighbors must be one of"):
            make()
