"""Tails against exact fractions, and against sums that are normalized by themselves where fractions
are too long.
"""

from decimal import Decimal, getcontext
from fractions import Fraction
from math import comb

import numpy as np
import pytest
from scipy.stats import binom

from dpjax.numerics.solve import lower_limit, root, upper_limit, upper_tail


def exact_tail(successes, trials, probability):
    p = Fraction(probability)
    return sum(
        comb(trials, k) * p**k * (1 - p) ** (trials - k) for k in range(successes, trials + 1)
    )


def self_normalized_tail(successes, trials, probability, window):
    """From ratios of neighboring probabilities in 30 digits; what lies outside the window around
    the mean is negligible.
    """
    getcontext().prec = 30
    p = Decimal(probability)
    odds, mean = p / (1 - p), int(trials * probability)
    weights = {mean: Decimal(1)}
    for k in range(mean, min(trials, mean + window)):
        weights[k + 1] = weights[k] * (trials - k) / (k + 1) * odds
    for k in range(mean, max(0, mean - window), -1):
        weights[k - 1] = weights[k] * k / (trials - k + 1) / odds
    return sum(w for k, w in weights.items() if k >= successes) / sum(weights.values())


def test_tails_of_few_trials_are_those_of_fractions():
    for trials in (1, 2, 7, 16, 100):
        for probability in (1e-9, 0.01, 0.3, 0.5, 0.77, 1 - 1e-7):
            given = {"trials": trials, "probability": probability}
            successes = np.array(sorted({0, 1, trials // 3, trials // 2, trials - 1, trials}))
            tails = [exact_tail(int(k), **given) for k in successes]
            found = upper_tail(successes, **given)
            np.testing.assert_allclose(found, np.float64(tails), rtol=1e-12, atol=1e-300)


@pytest.mark.parametrize(("trials", "probability"), [(10**6, 0.001), (10**7, 0.73)])
def test_tails_of_many_trials(trials, probability):
    mean = int(trials * probability)
    deviation = int((mean * (1 - probability)) ** 0.5)
    for successes in (mean - 3 * deviation, mean, mean + 1, mean + 4 * deviation):
        wanted = float(self_normalized_tail(successes, trials, probability, 11 * deviation))
        found = upper_tail(successes, trials=trials, probability=probability)
        assert float(found) == pytest.approx(wanted, rel=1e-10)


def test_the_ends():
    assert upper_tail([-1, 0, 6], trials=5, probability=0.3).tolist() == [1, 1, 0]
    assert upper_tail([0, 3, 5], trials=5, probability=0.0).tolist() == [1, 0, 0]
    assert upper_tail([0, 3, 5], trials=5, probability=1.0).tolist() == [1, 1, 1]
    assert upper_tail([0, 1], trials=0, probability=0.5).tolist() == [1, 0]
    n = 10**7
    found = upper_tail([1, n], trials=n, probability=[1e-9, 1 - 1e-9])
    np.testing.assert_allclose(found, [-np.expm1(-1e-2), np.exp(-1e-2)], rtol=1e-7)


def test_limits_solve_their_equations_and_err_on_the_safe_side():
    successes, trials, error = np.array([1, 3, 50, 99, 100]), 100, 0.025
    low = lower_limit(successes, trials=trials, error=error)
    high = upper_limit(trials - successes, trials=trials, error=error)
    np.testing.assert_allclose(high, 1 - low, rtol=1e-13)
    for k, p in zip(successes, low, strict=True):
        assert float(exact_tail(int(k), trials, float(p))) == pytest.approx(error, rel=1e-12)
        # In floats: rounded down, and up
        assert upper_tail(k, trials=trials, probability=p) <= error
    for k, p in zip(trials - successes, high, strict=True):
        above = exact_tail(int(k) + 1, trials, float(p))
        assert 1 - above <= Fraction(error) * (1 + Fraction(1, 10**12))
    assert lower_limit(0, trials=trials, error=error) == 0
    assert upper_limit(trials, trials=trials, error=error) == 1


@pytest.mark.parametrize("trials", [1, 100, 10**7])
def test_limits_at_the_ends_are_closed_forms(trials):
    for error in (0.5, 0.05, 1e-9):
        ends = (
            lower_limit(trials, trials=trials, error=error),
            upper_limit(0, trials=trials, error=error),
        )
        wanted = error ** (1 / trials), -np.expm1(np.log(error) / trials)
        np.testing.assert_allclose(ends, wanted, rtol=1e-10)


def test_coverage_is_exact():
    """For every p the chance of a limit above p is at most the error, summed over all counts; the
    plug-in estimate fails.
    """
    trials, error = 60, 0.05
    counts = np.arange(trials + 1)
    limits = lower_limit(counts, trials=trials, error=error)
    places = np.linspace(0.01, 0.99, 99)
    masses = binom.pmf(np.arange(trials + 1), trials, np.array(places)[:, None])
    chances, plug_in = (
        np.sum(masses * (at > places[:, None]), axis=1).max() for at in (limits, counts / trials)
    )
    assert 0.9 * error < chances <= error * (1 + 1e-12)
    assert plug_in > 0.4


@pytest.mark.parametrize("tolerance", [2.0**-49, 1e-3])
@pytest.mark.parametrize("at", [1e-90, 0.3, 7e9])
def test_roots_are_rounded_to_the_side_that_passes(tolerance, at):
    """Of functions that rise or fall, jump to infinity, or are flat beyond the root."""
    functions = (
        lambda x: x - at,
        lambda x: np.inf if x > at else -1.0,
        lambda x: x**3 - at**3,
    )
    for excess in functions:
        for sign in (1, -1):
            found = root(lambda x, f=excess, s=sign: s * f(x), 0.0, 1e10, tolerance)
            assert sign * excess(found) <= 0
            assert abs(found - at) <= 4 * tolerance * at
    assert abs(1e10 - at) > 4 * tolerance * at  # the control: an end that passes
    with pytest.raises(ValueError, match="sign"):
        root(lambda x: x + 1, 0.0, 1.0)
