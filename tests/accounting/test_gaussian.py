"""Gaussian DP: against 80 digits of mpmath, log_ndtr of SciPy, and integrals of max(p - e^epsilon
q, 0) for compositions.
"""

from math import exp, expm1, inf, sqrt

import numpy as np
import pytest
from scipy.special import log_ndtr

from dpjax.accounting import Guarantee, delta_of_gdp, epsilon_of_gdp, gdp_of

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
    (1e-3, 0.03, 1.656620395042938e-202),
    (20.0, 0.5, 1.0),
]
ONE = Guarantee(neighbors="swap", gdp=1.0)


def reference(mu, epsilon):
    """The difference itself, in logarithms: it cancels where mu is small, and SciPy's log_ndtr is
    right to 1e-14. At an epsilon below 0, delta(eps) = 1 - e^eps + e^eps delta(-eps).
    """
    if epsilon < 0:
        return -expm1(epsilon) + exp(epsilon) * reference(mu, -epsilon)
    first, second = (log_ndtr(side * mu / 2 - epsilon / mu) for side in (1, -1))
    return np.exp(first) * -np.expm1(epsilon + second - first)


def test_golden_values_from_above():
    for mu, delta, epsilon in EPSILONS:
        assert 0 <= epsilon_of_gdp(mu, delta=delta) / epsilon - 1 <= 1e-8, (mu, delta)
        assert 0 <= 1 - gdp_of(epsilon, delta=delta) / mu <= 1e-8
    for mu, epsilon, delta in DELTAS:
        assert -1e-15 <= delta_of_gdp(mu, epsilon=epsilon) / delta - 1 <= 1e-8


def test_the_curve_against_logarithms():
    for mu in (0.1, 0.7, 3.0, 40.0, 300.0):
        for shift in np.linspace(-3, 12, 16):
            epsilon = max(mu * (mu / 2 + shift), 0.0)
            found, wanted = delta_of_gdp(mu, epsilon=epsilon), reference(mu, epsilon)
            # The reference itself rounds
            assert wanted * (1 - 1e-11) <= found == pytest.approx(wanted, rel=1e-9)


def test_inverses_never_promise_too_much():
    for mu in (1e-12, 1e-5, 0.1, 1.0, 50.0, 1e6):
        for delta in (1e-299, 1e-200, 1e-20, 1e-3, 0.5, 1 - 1e-6):
            epsilon = epsilon_of_gdp(mu, delta=delta)
            assert delta_of_gdp(mu, epsilon=epsilon) <= delta * (1 + 1e-9)
            if epsilon:
                back = gdp_of(epsilon, delta=delta)
                assert back == pytest.approx(mu, rel=1e-5)
                assert delta_of_gdp(back, epsilon=epsilon) <= delta * (1 + 1e-9)
                if mu > 1e-5:  # the control: an epsilon that is smaller by 1e-6 is too small
                    assert delta_of_gdp(mu, epsilon=epsilon * (1 - 1e-6)) > delta


def test_extremes():
    assert epsilon_of_gdp(1e200, delta=1e-3) == inf
    assert 0 < epsilon_of_gdp(1e-300, delta=1e-300) < 1e-298
    assert epsilon_of_gdp(1e-320, delta=0.5) == 0
    # 0 would be pure DP
    for mu, epsilon in ((1e-320, 1.0), (1.0, 1e300)):
        assert delta_of_gdp(mu, epsilon=epsilon) == np.finfo(float).tiny
    assert delta_of_gdp(1e150, epsilon=1.0) == 1
    assert Guarantee(neighbors="swap", gdp=1e-200).zcdp > 0


def test_compositions_are_as_one():
    assert (25 * ONE).gdp == pytest.approx(5.0, rel=1e-14)
    assert (25 * ONE).guarantee() == Guarantee(neighbors="swap", zcdp=12.5, gdp=(25 * ONE).gdp)
    rules = (1000 * ONE).rules_at(1e-6)
    assert rules["gaussian"] == pytest.approx(epsilon_of_gdp(sqrt(1000), delta=1e-6), rel=1e-12)
    by_zcdp = Guarantee(neighbors="swap", zcdp=500.0).epsilon_at(1e-6)
    assert rules["gaussian"] < rules["rdp"] == pytest.approx(by_zcdp, rel=1e-4)
    assert (10**6 * Guarantee(neighbors="swap", gdp=1e-200)).gdp == pytest.approx(1e-197)
