"""Gaussian DP: against 80 digits of mpmath, log_ndtr of SciPy, and integrals of max(p - e^epsilon
q, 0) for compositions.
"""

from math import exp, expm1, inf, log, sqrt

import numpy as np
import pytest
from scipy.special import log_ndtr, logsumexp

from dpjax.accounting import (
    Composition,
    Guarantee,
    PrivacyFilter,
    PrivacyOdometer,
    delta_of_gdp,
    epsilon_of_gdp,
    epsilon_of_zcdp,
    for_groups,
    gdp_of,
    parallel,
)

# mu, delta, epsilon: the root of Phi(-a) - e^epsilon Phi(-a - mu) = delta, by 120 bisections in
# mpmath at 500 digits.
EPSILONS = [
    (1.0, 1e-6, 4.886554117462212),
    (1.0, 1e-300, 37.4488479121391),
    (0.01, 1e-9, 0.04886639301570327),
    (5.0, 1e-3, 27.17601713437745),
    (30.0, 1e-10, 639.9335232014504),
    (0.3, 0.1, 0.04581318579566376),
    (1e-4, 1e-30, 0.001041494091602652),
]
DELTAS = [
    (1.0, 1.0, 0.1269367375066439),
    (1.0, 30.0, 4.709326318097522e-193),
    (0.05, 0.2, 3.947243281789342e-7),
]
DELTAS += [(1e-3, 0.03, 1.656620395042938e-202), (20.0, 0.5, 1.0)]
ONE = Guarantee(neighbors="swap", gdp=1.0)


def reference(mu, epsilon):
    """The difference itself, in logarithms: it cancels where mu is small, and SciPy's log_ndtr is
    right to 1e-14.
    """
    first, second = log_ndtr(mu / 2 - epsilon / mu), log_ndtr(-mu / 2 - epsilon / mu)
    return np.exp(first) * -np.expm1(epsilon + second - first)


def test_golden_values_from_above():
    for mu, delta, epsilon in EPSILONS:
        found = epsilon_of_gdp(mu, delta=delta)
        assert 0 <= found / epsilon - 1 <= 1e-8, (mu, delta)
        assert 0 <= 1 - gdp_of(epsilon, delta=delta) / mu <= 1e-8
    for mu, epsilon, delta in DELTAS:
        assert -1e-15 <= delta_of_gdp(mu, epsilon=epsilon) / delta - 1 <= 1e-8


def test_the_curve_against_logarithms():
    for mu in (0.1, 0.7, 3.0, 40.0, 300.0):
        for shift in np.linspace(-3, 12, 16):
            epsilon = max(mu * (mu / 2 + shift), 0.0)
            found, wanted = delta_of_gdp(mu, epsilon=epsilon), reference(mu, epsilon)
            assert found == pytest.approx(wanted, rel=1e-9)
            assert found >= wanted * (1 - 1e-11)  # the reference itself rounds


def test_inverses_never_promise_too_much():
    for mu in (1e-12, 1e-5, 0.1, 1.0, 50.0, 1e6):
        for delta in (1e-307, 1e-200, 1e-20, 1e-3, 0.5, 1 - 1e-12):
            epsilon = epsilon_of_gdp(mu, delta=delta)
            assert delta_of_gdp(mu, epsilon=epsilon) <= delta * (1 + 1e-9)
            if epsilon:
                assert gdp_of(epsilon, delta=delta) == pytest.approx(mu, rel=1e-5)
                assert delta_of_gdp(gdp_of(epsilon, delta=delta), epsilon=epsilon) <= delta * (
                    1 + 1e-9
                )
                if mu > 1e-5:  # the control: an epsilon that is smaller by 1e-6 is too small
                    assert delta_of_gdp(mu, epsilon=epsilon * (1 - 1e-6)) > delta


def test_extremes():
    assert epsilon_of_gdp(1e200, delta=1e-3) == inf
    assert 0 < epsilon_of_gdp(1e-300, delta=1e-300) < 1e-298
    assert epsilon_of_gdp(1e-320, delta=0.5) == 0
    # 0 would be pure DP
    assert (
        delta_of_gdp(1e-320, epsilon=1.0)
        == delta_of_gdp(1.0, epsilon=1e300)
        == np.finfo(float).tiny
    )
    assert delta_of_gdp(1e150, epsilon=1.0) == 1
    assert Guarantee(neighbors="swap", gdp=1e-200).zcdp > 0
    assert (10**6 * Guarantee(neighbors="swap", gdp=1e-200)).gdp == pytest.approx(1e-197)
    assert (2 * Guarantee(neighbors="swap", gdp=1e200)).epsilon_at(1e-6) == inf
    for bad in (0.0, -1.0, inf, float("nan")):
        with pytest.raises(ValueError, match="gdp"):
            delta_of_gdp(bad, epsilon=1.0)
    with pytest.raises(ValueError, match="gdp"):
        Guarantee(neighbors="swap", gdp=-1.0)


def test_gaussians_compose_exactly():
    """Against the integral over the plane of two of them; adding up what each costs alone is far
    more.
    """
    mus = 0.8, 1.3
    x, y = np.meshgrid(*(np.arange(-9, 11, 1 / 64),) * 2, sparse=True)
    for epsilon in (0.5, 2.0, 6.0):
        # The loss of N(mu, I) against N(0, I).
        loss = mus[0] * x + mus[1] * y - (mus[0] ** 2 + mus[1] ** 2) / 2
        density = np.exp(-((x - mus[0]) ** 2 + (y - mus[1]) ** 2) / 2) / (2 * np.pi)
        exact = np.sum(density * np.maximum(-np.expm1(epsilon - loss), 0)) / 64**2
        both = Guarantee(neighbors="swap", gdp=mus[0]) + Guarantee(neighbors="swap", gdp=mus[1])
        assert both.delta_at(epsilon) == pytest.approx(exact, rel=1e-3)
        # The controls: neither the largest nor the sum
        assert delta_of_gdp(max(mus), epsilon=epsilon) < 0.9 * exact
        assert delta_of_gdp(sum(mus), epsilon=epsilon) > 1.1 * exact


def test_compositions_of_a_kind_are_as_one_and_never_above_zcdp():
    assert ONE.epsilon_at(1e-6) == pytest.approx(4.88655, abs=1e-5)
    assert float(epsilon_of_zcdp(0.5, delta=1e-6)) == pytest.approx(5.2215, abs=1e-4)
    assert (25 * ONE).gdp == pytest.approx(5.0, rel=1e-14)
    assert (25 * ONE).guarantee() == Guarantee(neighbors="swap", zcdp=12.5, gdp=(25 * ONE).gdp)
    for count in (1, 7, 1000):
        for delta in (1e-12, 1e-6, 1e-2):
            rules = (count * ONE).rules_at(delta)
            assert set(rules) == {"gaussian", "rdp"}
            assert rules["gaussian"] < rules["rdp"]
            assert rules["gaussian"] == pytest.approx(
                epsilon_of_gdp(sqrt(count), delta=delta), rel=1e-12
            )
    np.testing.assert_allclose(ONE.rdp([1.5, 3.0]), [0.75, 1.5])
    assert str(ONE) == "0.5-zCDP and 1-GDP under swap neighbors"
    assert "(4.88656, 1e-06)-DP (gaussian)" in str(1 * ONE)


def randomized(epsilon, mu, pure, delta=0.0):
    """The exact delta of one Gaussian and one (pure, delta) randomised response."""
    high = 1 / (1 + exp(-pure))
    parts = [(high, pure), (1 - high, -pure)]
    mixed = sum(
        p * (reference(mu, epsilon - loss) if epsilon >= loss else _low(mu, epsilon - loss))
        for p, loss in parts
    )
    return delta + (1 - delta) * mixed


def _low(mu, epsilon):
    """At an epsilon below 0: delta(eps) = 1 - e^eps + e^eps delta(-eps)."""
    return -expm1(epsilon) + exp(epsilon) * reference(mu, -epsilon)


def test_a_gaussian_beside_others_costs_their_epsilons_more():
    pure, loose = Guarantee(0.2, 0.4, "swap"), Guarantee(0.2, inf, "swap", delta=1e-4)
    for epsilon in (0.5, 1.5, 4.0):
        exact = randomized(epsilon, 1.0, 0.2)
        assert (
            exact
            <= (ONE + pure).delta_at(epsilon)
            <= delta_of_gdp(1.0, epsilon=epsilon - 0.2) * (1 + 1e-12)
        )
        # The control: the other one does cost something
        assert delta_of_gdp(1.0, epsilon=epsilon) < exact
        assert randomized(epsilon, 1.0, 0.2, 1e-4) <= (ONE + loose).delta_at(epsilon)
    assert (ONE + pure).rules_at(1e-6)["gaussian"] == pytest.approx(0.2 + ONE.epsilon_at(1e-6))
    assert (ONE + loose).epsilon_at(0.9e-4) == inf
    assert "gaussian" not in (pure + pure).rules_at(1e-6)
    # Falls back to zCDP
    assert "gaussian" not in (ONE + Guarantee(neighbors="swap", zcdp=0.1)).rules_at(1e-6)
    assert (ONE + Guarantee(neighbors="swap", zcdp=0.1)).rho == pytest.approx(0.6)
    assert (ONE + pure).gdp == inf


def test_groups_parts_and_budgets():
    assert for_groups(ONE, size=3).gdp == 3.0
    assert for_groups(ONE, size=3).rho == 4.5
    both = parallel(ONE, Guarantee(neighbors="swap", gdp=0.5), membership="by_position")
    assert (both.gdp, both.rho) == (1.0, 0.5)
    assert parallel(ONE, Guarantee(1.0, 1.0, "swap"), membership="by_position").gdp == inf
    budget = PrivacyFilter(2.0, 1e-6, "swap")
    budget.charge(Guarantee(neighbors="swap", gdp=0.3))
    assert budget.spent == pytest.approx(0.045)
    odometer = PrivacyOdometer(1e-6, "swap")
    odometer.charge(2 * Guarantee(neighbors="swap", gdp=0.3))
    assert odometer.rho == pytest.approx(0.09)


def test_the_randomised_response_oracle_is_right():
    """By sums of the likelihoods on a grid of the Gaussian."""
    x = np.arange(-12, 14, 1 / 512)
    gauss = np.array([-(x**2), -((x - 1.0) ** 2)]) / 2 - log(sqrt(2 * np.pi) * 512)
    coin = -np.logaddexp(0, np.array([[-0.2, 0.2], [0.2, -0.2]]))
    q, p = gauss[:, :, None] + coin[::-1, None, :]
    assert logsumexp(p) == pytest.approx(0, abs=1e-9)
    for epsilon in (0.1, 1.5):
        exact = np.sum(np.maximum(np.exp(p) - np.exp(epsilon + q), 0))
        assert randomized(epsilon, 1.0, 0.2) == pytest.approx(exact, rel=1e-4)


def test_order_does_not_matter():
    parts = [ONE, Guarantee(0.2, 0.4, "swap"), ONE, Guarantee(neighbors="swap", gdp=0.25)]
    assert sum(parts).epsilon_at(1e-5) == pytest.approx(
        sum(parts[::-1]).epsilon_at(1e-5), rel=1e-12
    )
    assert isinstance(sum(parts), Composition)
