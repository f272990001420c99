"""What exact draws rest on: e^-rate in integers, places in big integers, and NumPy's exp."""

from decimal import Context, Decimal
from fractions import Fraction
from math import fsum

import numpy as np
import pytest

from dpjax.release.counts import sums_of
from dpjax.release.exact import Bits, decay, exact_epsilon, places, seeded

PRECISE = Context(prec=90, Emin=-(10**9), Emax=10**9)
ASSUMED = 2.0**-45
RATES = [Fraction(1, 3), Fraction(1, 2**33), Fraction(4), Fraction(300, 7), Fraction(2, 5)]
RATES += [Fraction(0.1), Fraction(64), Fraction(1, 2)]


def exponential(x):
    """The decimal e^-x of a fraction."""
    return PRECISE.exp(PRECISE.divide(Decimal(-x.numerator), Decimal(x.denominator)))


@pytest.mark.parametrize("bits", [8, 128, 200])
def test_decays_are_rounded_up_by_less_than_two_units(bits):
    for rate in RATES:
        above = decay(rate, bits) - PRECISE.multiply(exponential(rate), Decimal(2**bits)).__ceil__()
        assert above in (0, 1)
        assert above - 2 not in (0, 1)  # control: rounded down


def test_places_are_those_of_big_integers():
    rng = np.random.default_rng(0)
    widths = [1, 2, 3, 7, 2**16 + 1, 2**31 - 1, 2**31, 2**32 - 5, *rng.integers(1, 2**32, 20)]
    for width in map(int, widths):
        steps = [0, 1, width // 3, width - 1, width, *map(int, rng.integers(0, width, 5))]
        words = {-(-step * 2**64 // width) + near for step in steps for near in (-2, -1, 0, 1)}
        words = sorted(word for word in words if 0 <= word < 2**64)
        found, sure = places(np.full(len(words), width), np.array(words, np.uint64))
        for word, place, known in zip(words, found.tolist(), sure.tolist(), strict=True):
            low, high = word * width >> 64, ((word + 1) * width - 1) >> 64
            assert place == low
            assert low == high if known else True
            further = seeded(1)
            assert low <= Bits(word, further).below(width) <= high
        assert sure.mean() > 0.3


def test_a_place_that_64_bits_leave_open_is_decided_by_further_bits():
    """The word 2^64 / 3: a third, less one third of a unit."""
    word = 2**64 // 3
    for further, place in ((0, 0), (2**63, 1)):
        assert Bits(word, lambda shape, more=further: np.full(shape, more)).below(3) == place
    assert not places(np.array([3]), np.array([word], np.uint64))[1][0]


def test_exp_of_numpy_is_as_accurate_as_is_assumed():
    rng = np.random.default_rng(0)
    arguments = np.concatenate([-(10 ** rng.uniform(-10, 2.8, 1500)), rng.uniform(-40, 40, 500)])
    for x, found in zip(arguments, np.exp(arguments), strict=True):
        exact = PRECISE.exp(Decimal(x))
        wrong = PRECISE.divide(PRECISE.subtract(Decimal(found), exact), exact)
        assert abs(wrong) < ASSUMED
    assert abs(np.exp(1.0 + 4 * ASSUMED) / np.exp(1.0) - 1) > ASSUMED  # control


def test_sums_of_a_million_weights_are_within_the_margin():
    weights = np.exp(-np.linspace(0, 40, 2**20)[np.random.default_rng(0).permutation(2**20)])
    found = sums_of(weights, np.array([0, 2**20]))[0]
    assert abs(found / fsum(weights) - 1) < 2.0**-46


def test_an_epsilon_is_exactly_the_float():
    assert exact_epsilon(0.1) == Fraction(0.1) != Fraction(1, 10)
    assert exact_epsilon(Fraction(1, 10)) == Fraction(1, 10)
