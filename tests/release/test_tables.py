"""The public tables against an independent computation in decimal arithmetic."""

from decimal import Decimal, localcontext
from fractions import Fraction

import numpy as np
import pytest
from dpjax.release.tables import DIGITS, exponential, floor_of, level_weights, own_weight_at, public_tables, rate_of

EPSILONS = [2.0**-30, 0.1, 1.0, 3.7, 64.0]


def decimal_of(fraction):
    return Decimal(fraction.numerator) / Decimal(fraction.denominator)


@pytest.fixture
def precise():
    with localcontext() as context:
        context.prec = 120
        context.Emin, context.Emax = -(10**9), 10**9
        yield context


def mantissas_of(weights):
    return weights.high.astype(object) * 2**32 + weights.low.astype(object)


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_weights_and_thresholds(epsilon, precise):
    tables = public_tables(epsilon, levels=200)
    rate = decimal_of(Fraction(epsilon) / 2)
    mantissas = mantissas_of(tables.levels)
    for level in (0, 1, 2, 3, 50, 199):
        exact = (-rate * level).exp() * Decimal(2) ** int(tables.levels.scale[level])
        assert mantissas[level] <= exact < mantissas[level] + 1
        assert 2**61 <= mantissas[level] < 2**62
    own = mantissas_of(tables.own)
    assert own.size == 201  # a depth of one more than there are levels: nothing moves the value
    for depth in (1, 2, 3, 50, 200, 201):
        exact = rate / (1 - (-rate).exp()) * (rate * (depth - 1)).exp() * Decimal(2) ** int(tables.own.scale[depth - 1])
        assert own[depth - 1] <= exact < own[depth - 1] + 1
        assert 2**61 <= own[depth - 1] < 2**62
    for alone, together in zip(level_weights(epsilon, 200), tables.levels, strict=True):
        np.testing.assert_array_equal(alone, together)
    assert tables.thresholds.shape == (DIGITS,)
    for k in range(1, DIGITS + 1):
        exact = 2**32 / (1 + (rate / 2**k).exp())
        assert int(tables.thresholds[k - 1]) <= exact < int(tables.thresholds[k - 1]) + 1
    # The cdf of the rest exceeds x by at most mu/8: the slack covers it, and half of it would not.
    mu = rate / 2**DIGITS
    excess = max((1 - (-mu * x / 16).exp()) / (1 - (-mu).exp()) - Decimal(x) / 16 for x in range(17)) * 2**32
    assert excess <= int(tables.slack)
    assert int(tables.slack) - 1 < 1.01 * float(excess) + 1e-9


def test_enclosures_enclose(precise):
    for numerator, denominator in ((1, 3), (1, 2**40), (57, 1), (10**6, 7), (2**31, 1)):
        for bits in (8, 70, 200):
            found = exponential(Fraction(numerator, denominator), bits)
            exact = (-Decimal(numerator) / Decimal(denominator)).exp() * Decimal(2) ** found.scale
            assert found.low <= exact <= found.high
            assert found.high - found.low <= max(2, found.high >> (bits - 2))
    for epsilon, depth in ((2.0**-30, 1), (1.0, 7), (64.0, 1000)):
        rate = decimal_of(Fraction(epsilon) / 2)
        exact = rate / (1 - (-rate).exp()) * (rate * (depth - 1)).exp()
        for bits in (8, 70, 200):
            found = own_weight_at(rate_of(epsilon), depth, bits)
            scaled = exact * Decimal(2) ** found.scale
            assert found.low <= scaled <= found.high
            assert found.high - found.low <= max(2, found.high >> (bits - 2))
    mantissa, scale = floor_of(lambda bits: exponential(Fraction(1, 3), bits), 62)
    assert mantissa <= Decimal(-1 / Decimal(3)).exp() * Decimal(2) ** scale < mantissa + 1


def test_bad_parameters():
    for epsilon in (0.0, -1.0, 2.0**-31, 64.1, float("nan"), float("inf")):
        with pytest.raises(ValueError, match="epsilon"):
            public_tables(epsilon, levels=3)
        with pytest.raises(ValueError, match="epsilon"):
            level_weights(epsilon, 3)
    for levels in (0, 2**24 + 1):
        with pytest.raises(ValueError, match="levels"):
            public_tables(1.0, levels=levels)
        with pytest.raises(ValueError, match="levels"):
            level_weights(1.0, levels)


def test_levels_far_out_keep_their_exponent():
    """They are not clipped to the last one that has a weight in 64 bits."""
    tables = public_tables(64.0, levels=1000)
    assert np.all(np.diff(tables.levels.scale) > 45)
    assert tables.levels.scale[-1] > 46_000
    assert np.all(np.diff(tables.own.scale) < -45)
    assert tables.own.scale[-1] < -46_000
