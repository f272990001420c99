"""What a guarantee was given is kept, what follows is derived when it is read, and a delta is never lost on the way."""

import copy
import dataclasses
import pickle
from fractions import Fraction
from math import exp, inf

import jax.numpy as jnp
import numpy as np
import pytest

import dpjax
from dpjax.accounting import (
    Composition,
    Guarantee,
    PrivacyFilter,
    PrivacyOdometer,
    fixed_size_subsample,
    for_groups,
    optimal_pure_delta,
    parallel,
    poisson_subsample,
)
from dpjax.accounting.guarantee import promised, rounded_up

LOST = 1e-3
APPROXIMATE = [
    Guarantee(inf, inf, "swap", delta=LOST, zcdp=0.01),
    Guarantee(1.0, inf, "swap", delta=LOST, zcdp=0.01),
    Guarantee(1.0, 1.0, "swap", delta=LOST),
    Guarantee(inf, 0.5, "swap", delta=LOST),
    Guarantee(inf, inf, "swap", delta=LOST, gdp=0.3),
    Guarantee(inf, inf, "swap", delta=LOST, renyi=((2.0, 0.1), (30.0, 0.5))),
    Guarantee(0.2, 0.4, "swap", delta=LOST, noise=("laplace", 0.2, 1.0)),
]


@pytest.mark.parametrize("given", APPROXIMATE, ids=repr)
@pytest.mark.parametrize("count", [1, 10])
def test_a_delta_is_never_lost(given, count):
    """No operation makes a statement without a delta of a promise with one, nor one with a smaller delta."""
    least = 1 - (1 - LOST) ** count
    whole = count * given
    pure = Guarantee(0.1, 0.1, "swap")
    for spent in (whole, whole + pure, pure + whole, Composition.from_json(whole.to_json()), pickle.loads(pickle.dumps(whole))):
        assert spent.delta >= spent.slack >= count * Fraction(LOST)
        assert spent.rules_at(0.99 * least) == {}
        assert spent.epsilon_at(0.99 * least) == inf
        assert spent.delta_at(50.0) >= least * (1 - 1e-12)
        one = spent.guarantee()
        assert one.delta >= count * LOST
        assert "except with probability" in str(one) or str(one).startswith("(")
        assert promised(one.delta) in str(one)
    assert "-zCDP and (" not in str(whole)  # zCDP, and nothing said of the delta
    if count == 1:
        for same in (copy.copy(given), dataclasses.replace(given), Guarantee.from_json(given.to_json()), eval_of(given)):
            assert same == given
        assert dataclasses.replace(given, unit="row").delta == LOST
        both = parallel(given, Guarantee(0.1, 0.1, "swap"), membership="by_position")
        assert both.delta == LOST
    for budget in (PrivacyFilter(9.0, 1e-6, "swap"), PrivacyFilter(9.0, 0.0, "swap"), PrivacyOdometer(1e-6, "swap")):
        with pytest.raises(ValueError, match=r"mechanism_delta|charges"):
            budget.charge(whole)
    for orders in ((), (4.0, 8.0)):
        with pytest.raises((ValueError, RuntimeError), match=r"charges|passes"):
            PrivacyFilter(9.0, 0.5, "swap", mechanism_delta=0.99 * count * LOST, orders=orders).charge(whole)
    added = dataclasses.replace(given, neighbors="add_remove")
    for sample in (
        lambda: poisson_subsample(added, probability=0.1),
        lambda: fixed_size_subsample(given, taken=1, records=10, replacement="without"),
        lambda: for_groups(given, size=2),
    ):
        if given.epsilon == inf:
            with pytest.raises(ValueError, match=r"known|nothing is promised"):
                sample()
        else:
            found = sample()
            assert found.delta >= 0.1 * LOST
            assert min(found.zcdp, found.gdp) == inf
            assert (found.renyi, found.noise) == ((), None)


def eval_of(given):
    return given if given.renyi else eval(repr(given))


def test_approximate_zcdp():
    """Bun and Steinke (2016), section 8: rhos and deltas add up, and it is (epsilon, delta + delta')-DP."""
    one = Guarantee(inf, inf, "swap", delta=1e-3, zcdp=0.01)
    assert str(one) == "0.01-zCDP except with probability 0.001 under swap neighbors"
    ten = 10 * one
    assert (ten.rho, ten.slack) == (pytest.approx(0.1), pytest.approx(0.01))
    assert ten.rho >= 10 * Fraction(0.01)
    exact = 10 * Guarantee(inf, inf, "swap", zcdp=0.01)
    assert ten.epsilon_at(0.02) == pytest.approx(exact.epsilon_at(1 - 0.98 / (1 - 1e-3) ** 10), rel=1e-9)
    assert one.epsilon_at(1e-3) == inf
    budget = PrivacyFilter(2.0, 0.01, "swap", mechanism_delta=0.005)
    for _ in range(4):
        budget.charge(one)
    assert not budget.allows(2 * one)


def test_replaced_promises_are_the_honest_ones():
    noise = Guarantee(inf, inf, "swap", gdp=1.0)
    louder = dataclasses.replace(noise, gdp=3.0)
    assert (noise.rho, louder.rho, louder.zcdp) == (0.5, 4.5, inf)
    assert louder == Guarantee(inf, inf, "swap", gdp=3.0)
    assert louder.epsilon_at(1e-6) == pytest.approx(18.16, abs=0.01)
    laplace = Guarantee(1.0, 2.0, "swap", noise=("laplace", 1.0, 1.0))
    assert laplace.rho == pytest.approx(exp(-1))
    assert dataclasses.replace(laplace, noise=None).rho == pytest.approx(np.tanh(0.5))
    filtered = PrivacyFilter(1.0, 0.0, "swap")
    filtered.charge(Guarantee(0.75, inf, "swap"))
    for same in (copy.copy(filtered), copy.deepcopy(filtered), pickle.loads(pickle.dumps(filtered))):
        assert same.remaining == 0.25
    with pytest.raises(TypeError):
        dataclasses.replace(filtered, epsilon=2.0)


def test_the_zcdp_of_laplace_noise_is_above_its_curve():
    orders = 1 + np.geomspace(1e-6, 1e6, 2000)
    for size in (1e-6, 0.1, 1.0, 5.0, 40.0):
        noise = Guarantee(size, 2 * size, "swap", noise=("laplace", size, 1.0))
        assert np.max(noise.rdp(orders) / orders) <= noise.rho * (1 + 1e-9)
        assert noise.rho <= Guarantee(size, 2 * size, "swap").rho


@pytest.mark.parametrize("number", [2, 20])
def test_noise_on_a_resolution_is_not_taken_for_that_on_the_line(number):
    """The losses of a noisy count are those of randomised response, whose sums are larger than those of continuous noise."""
    profile = dpjax.count(jnp.arange(3.0))
    exact = optimal_pure_delta([1.0], [number], epsilon=number / 2)
    guarantee = dpjax.mechanisms.laplace.guarantee
    for each in (guarantee(profile, 1.0), guarantee("add_remove", 1.0), guarantee("add_remove", 1.0, bounded=True)):
        assert each.noise is None
        if each.bounded_range == 2.0:
            assert (number * each).delta_at(number / 2) >= exact * (1 - 1e-12)
    control = guarantee("add_remove", 1.0, continuous=True)
    assert (number * control).rho < number * guarantee(profile, 1.0).rho
    pytest.importorskip("dp_accounting", reason="the extra accounting is not installed")
    assert (number * control).delta_at(number / 2) < 0.99 * exact
    for wrong in (lambda: guarantee(profile, 1.0, continuous=True), lambda: guarantee("swap", 1.0, bounded=True, continuous=True)):
        with pytest.raises(ValueError, match="resolution"):
            wrong()


def test_sums_and_words_round_up():
    ten = 10 * Guarantee(0.1, 0.1, "swap", delta=0.01, zcdp=0.001)
    for found, each in ((ten.epsilon, 0.1), (ten.delta, 0.01), (ten.rho, 0.001)):
        assert found >= 10 * Fraction(each)
        assert found <= 10 * each * (1 + 1e-15)
    assert str(ten).startswith("10 mechanisms: (1, 0.1)-DP and 0.01-zCDP except with probability 0.1")
    assert str(Guarantee(0.12345649, inf, "swap", delta=1.23456789e-6)) == "(0.123457, 1.23457e-06)-DP under swap neighbors"
    assert str(Guarantee(inf, inf, "swap", zcdp=0.12345611)).startswith("0.123457-zCDP")
    rng = np.random.default_rng(0)
    for number in rng.lognormal(size=200).tolist():
        assert float(promised(number)) >= number
        assert rounded_up(Fraction(number) / 3) * Fraction(3) >= Fraction(number)


def test_pure_epsilons_round_up():
    """The delta of randomised response at what is answered, in exact arithmetic but for one exponential."""
    for epsilon in (0.01, 1.0, 8.0, 30.0):
        for delta in (1e-15, 1e-14, 1e-12, 1e-6):
            found = Guarantee(epsilon, inf, "swap").epsilon_at(delta)
            left = Fraction(epsilon) - Fraction(found)
            assert float(left - left**2 / 2) / (1 + exp(-epsilon)) <= delta * (1 + 1e-12)
