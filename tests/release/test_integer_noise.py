"""Discrete Laplace noise: the distribution that the digits give, words that decide against exact
arithmetic, draws.
"""

from fractions import Fraction

import numpy as np
import pytest

from dpjax.release.integer_noise import (
    decide,
    digits_of,
    draw_discrete_laplace,
    exact_noise,
    threshold,
)
from tests.support.exact_draws import more
from tests.support.statistics import assert_counts_follow, assert_counts_rejected

EXTREME = np.array([0, 1, 2**31, 2**32 - 1], np.uint32)


@pytest.mark.parametrize("rate", [Fraction(7, 3), Fraction(1, 5), Fraction(1, 1000)])
def test_the_digits_make_a_geometric_number(rate):
    digits = digits_of(rate)
    assert rate * 2**digits >= 32
    ones = np.array([threshold(rate, j) for j in range(digits)]) / 2**32
    for number in [*range(min(16, 2**digits)), int(3 / rate), int(6 / rate)]:
        bits = number >> np.arange(digits) & 1
        found = np.prod(np.where(bits == 1, ones, 1 - ones))
        law, wrong = (
            -np.expm1(-r) * np.exp(-r * number) for r in (float(rate), 1.001 * float(rate))
        )
        assert abs(found - law) < digits * 2.0**-32
        assert number or abs(found - wrong) > digits * 2.0**-32  # a rate 0.1 % off is seen


def test_exact_arithmetic_agrees_wherever_the_words_decide():
    rng = np.random.default_rng(0)
    for rate in (Fraction(7, 3), Fraction(1, 50), Fraction(1, 10**9), Fraction(300)):
        digits = digits_of(rate)
        table = np.array([[threshold(rate, j)] for j in range(digits + 1)], np.uint32)
        words = rng.integers(0, 2**32, (2 * (digits + 1), 1, 60), np.uint32)
        words = np.where(
            rng.uniform(size=words.shape) < 0.2 / digits if digits else 0.5,
            rng.choice(EXTREME, words.shape),
            words,
        )
        at = rng.integers(0, words.shape[0], 20)
        # The first 32 bits decide nothing
        words[at, 0, np.arange(20)] = table[at % (digits + 1), 0]
        noise, certified = decide(table, words)
        assert not certified[0, :20].any()
        assert certified[0, 20:].mean() > 0.5
        for lane in range(60):
            exact = exact_noise(rate, digits, words[:, 0, lane].tolist(), more)
            assert not certified[0, lane] or exact == noise[0, lane]


def test_what_is_above_the_digits_is_counted():
    """A uniform of many zero bits is an event of probability e^-32 and less, and is not cut off."""
    rate = Fraction(1, 2)
    digits = digits_of(rate)
    words = [2**32 - 1] * digits + [0] + [2**32 - 1] * (digits + 1)
    zeros = exact_noise(
        rate, digits, words, lambda role, i: 0 if (role, i) < (digits, 3) else 2**32 - 1
    )
    assert zeros == 2**digits
    assert exact_noise(rate, digits, words, lambda role, i: 2**32 - 1) == 0


def test_draws_follow_their_law():
    rates = [Fraction(1, 3), Fraction(2)]
    draws = draw_discrete_laplace(rates, 4, 500)
    assert draws.shape == (500, 4, 2)
    support = np.arange(-60, 61)
    for k, rate in enumerate(rates):
        counts = np.bincount(draws[..., k].ravel() + 60, minlength=121)
        assert_counts_follow(
            counts, np.tanh(float(rate) / 2) * np.exp(-float(rate) * np.abs(support))
        )
        wrong = 1.25 * float(rate)
        assert_counts_rejected(counts, np.tanh(wrong / 2) * np.exp(-wrong * np.abs(support)))
    with pytest.raises(ValueError, match="times the resolution"):
        draw_discrete_laplace([Fraction(1, 2**41)], 1, 1)
