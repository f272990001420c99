"""Privacy losses against exact deltas, pairs that attain them, enumeration and dp-accounting."""

import sys
from dataclasses import replace
from math import exp, inf

import numpy as np
import pytest
from scipy.stats import binom, norm

from dpjax.accounting import (
    Composition,
    Guarantee,
    delta_of_gdp,
    fixed_size_subsample,
    losses,
    optimal_pure_delta,
    poisson_subsample,
)

library = pytest.importorskip(
    "dp_accounting.pld.privacy_loss_distribution", reason="the extra accounting is not installed"
)

LEVELS = np.array([-0.3, -0.02, 0.0, 0.01, 0.1, 0.5, 1.2])
Z, WIDTH = np.linspace(-14.0, 20.0, 68_001, retstep=True)


def step(sigma, probability):
    noise = Guarantee(neighbors="add_remove", gdp=1 / sigma)
    return poisson_subsample(noise, probability=probability)


def sample(mu, replacement, taken=100, public_n=10_000):
    noise = Guarantee(neighbors="swap", gdp=mu)
    return fixed_size_subsample(noise, taken=taken, public_n=public_n, replacement=replacement)


def laplace(epsilon):
    return Guarantee(epsilon, 2 * epsilon, "add_remove", laplace=epsilon)


def curves(part):
    """Of P against Q, and of Q against P."""
    (pair, _), *_ = (1 * part)._pairs(0.1)
    return pair[0], pair[-1]


def divergence(p, q, level):
    """Of the outcomes on the last axis."""
    return np.maximum(p - np.exp(level) * q, 0).sum(axis=-1)


@pytest.mark.parametrize(
    ("part", "count", "epsilon", "exact"),
    [
        (Guarantee(0.5, inf, "swap"), 10, 1.0, optimal_pure_delta(0.5, count=10, epsilon=1.0)),
        # 3e-13
        (Guarantee(0.1, inf, "swap"), 100, 7.0, optimal_pure_delta(0.1, count=100, epsilon=7.0)),
        (Guarantee(neighbors="swap", gdp=0.1), 100, 2.0, delta_of_gdp(1.0, epsilon=2.0)),
        (Guarantee(neighbors="swap", gdp=0.01), 10**4, 4.5, delta_of_gdp(1.0, epsilon=4.5)),  # 1e-5
        (laplace(1.0), 1, 0.5, 1 - exp(-0.25)),
        (Guarantee(1.0, 1.0, "swap"), 1, 0.5, (1 - exp(-0.25)) ** 2 / (1 - exp(-1.0))),
    ],
)
def test_against_exact_deltas(part, count, epsilon, exact):
    on = (count * part)._pairs
    lost = 2.0**-51 * (count + 1000)  # what rounding may add
    assert exact * (1 - 1e-9) <= losses.delta_of(on, count, epsilon) <= exact * 1.01 + lost
    if exact > 1e-9:
        back, _ = losses.epsilon_of(on, count, exact)
        assert epsilon * (1 - 1e-6) <= back <= epsilon * 1.003


def test_rounding_is_paid():
    """Where delta is 1e-16 to 1e-13, Fourier transforms have errors of that size."""
    spent = 1000 * Guarantee(0.01, inf, "swap")
    for epsilon in (2.4, 2.6, 2.7, 2.8, 3.0):
        assert losses.delta_of(spent._pairs, 1000, epsilon) >= optimal_pure_delta(
            0.01, count=1000, epsilon=epsilon
        )


@pytest.mark.parametrize("share", [0.01, 0.3])
def test_curves_of_samples_are_attained(share):
    """Gaussian noise on the sum of the sample, where other records are 0: the mixture itself."""
    mu = 1.3
    other, one = norm.pdf(Z) * WIDTH, norm.pdf(Z - mu) * WIDTH
    mixture = (1 - share) * other + share * one
    poisson = curves(step(1 / mu, share))
    for curve, (p, q) in zip(poisson, ((mixture, other), (other, mixture)), strict=True):
        exact = [divergence(p, q, level) for level in LEVELS]
        np.testing.assert_allclose(curve(LEVELS), exact, atol=1e-7)
    ahead = LEVELS[LEVELS >= 0]
    exact = np.array([divergence(mixture, other, level) for level in ahead])
    fixed, back = curves(sample(mu, "without", round(100 * share), 100))
    np.testing.assert_allclose(fixed(ahead), exact, atol=1e-7)
    # Under swap, both directions are as large
    np.testing.assert_allclose(back(-ahead), 1 - np.exp(-ahead) + np.exp(-ahead) * exact, atol=1e-7)


def test_copies_are_groups():
    """Gaussian noise on the sum of five draws out of twenty, where other records are 0."""
    weights = binom.pmf(np.arange(6), 5, 1 / 20)
    densities = norm.pdf(Z - 0.5 * np.arange(6)[:, None]) * WIDTH
    p, q = weights @ densities, densities[0]
    once = weights[0] * q + (1 - weights[0]) * densities[1]
    found = curves(sample(0.5, "with", 5, 20))[0](LEVELS)
    # Of copies for which no losses are known, nothing is promised
    many = curves(sample(3.0, "with", 60, 100))[0](np.array([0.0, 700.0]))
    assert 0 < binom.sf(19, 60, 1 / 100) <= many[1] <= many[0] <= 1
    exact = np.array([divergence(p, q, level) for level in LEVELS])
    assert (exact <= found + 1e-12).all()
    assert (found[:5] <= 1.1 * exact[:5]).all()
    assert exact[-1] > 3 * divergence(once, q, LEVELS[-1])  # control: copies that are counted once


@pytest.mark.parametrize(
    ("sigma", "probability", "count", "delta", "interval"),
    [
        (1.0, 0.01, 120, 1e-6, 1e-4),
        (4.0, 1e-3, 10**5, 1e-5, 1e-5),
        pytest.param(1.0, 1e-4, 10**6, 1e-5, 1e-6, marks=pytest.mark.slow),
    ],
)
def test_between_the_estimates_of_dp_accounting(sigma, probability, count, delta, interval):
    above, below = (
        library.from_gaussian_mechanism(
            sigma,
            value_discretization_interval=interval,
            sampling_prob=probability,
            pessimistic_estimate=pessimistic,
        )
        .self_compose(count)
        .get_epsilon_for_delta(delta)
        for pessimistic in (True, False)
    )
    found = (count * step(sigma, probability)).epsilon_at(delta)
    assert below <= found <= 1.001 * above


@pytest.mark.parametrize(
    ("spent", "delta", "most"),
    [
        (lambda: 1000 * step(1.0, 0.01), 1e-5, 1.8284),
        (lambda: 1000 * step(1.0, 0.01), 1e-12, 3.987),
        (lambda: 1000 * step(1.0, 1e-4), 1e-5, 0.01119),
        (lambda: 1000 * sample(0.5, "without"), 1e-5, 0.7187),
        (lambda: 1000 * sample(0.5, "with"), 1e-5, 0.7388),  # 658,645 by Renyi divergences
        (lambda: 50 * laplace(1.0), 1e-6, 41.61),
    ],
)
def test_sums(spent, delta, most):
    found = spent().epsilon_at(delta)
    assert 0.99 * most < found <= most


def test_a_sample_never_costs_more_than_all_data():
    for gdp in (2.0, 20.0):
        noise = Guarantee(neighbors="add_remove", gdp=gdp)
        rules = (100 * poisson_subsample(noise, probability=0.1)).rules_at(1e-5)
        assert rules["losses"] < rules["gaussian"] <= (100 * noise).epsilon_at(1e-5)
    assert rules["losses"] == pytest.approx(4918, rel=1e-3)  # as dp-accounting's own


def test_losses_of_samples_hold_except_with_their_delta():
    """A step that fails with a probability of 1e-4: what is left of delta is a thousandth."""
    fails = replace(step(1.0, 0.01), delta=1e-4)
    least = (10 * step(1.0, 0.01)).epsilon_at(1e-3)
    assert (10 * fails).epsilon_at(2e-3) >= 0.999 * least > 1.3 * (10 * fails).epsilon_at(1e-2)
    # On the sample, the delta is that of the whole, and is paid once
    loose = poisson_subsample(Guarantee(1.0, inf, "add_remove", delta=1e-10), probability=0.01)
    assert [whole.delta for _, whole in loose.sampled] == [0]
    assert (1000 * loose).epsilon_at(1e-5) == pytest.approx(1.278, abs=1e-3)


def test_where_no_losses_are_known(monkeypatch):
    kinds = tuple((Guarantee(0.001 * number, inf, "add_remove"), 1) for number in range(1, 40))
    for others in (
        Guarantee(neighbors="add_remove", zcdp=0.01),
        Guarantee(1e3, inf, "add_remove"),
        Composition(kinds),
    ):
        spent = step(1.0, 0.01) + others
        assert "losses" not in spent.rules_at(1e-6)
        assert spent.losses(1e-6) is None
    spent = 100 * step(1.0, 0.01)
    again = Composition.from_json(spent.to_json())
    assert again == spent
    rules = again.rules_at(1e-6)
    assert min(rules, key=rules.get) == "losses"
    monkeypatch.setitem(sys.modules, "dp_accounting.pld", None)
    assert set(spent.rules_at(1e-6)) == {"gaussian", "rdp"}
