"""Discrete Laplace noise, and the sums, means, counts and histograms that it is added to."""

from decimal import Decimal, localcontext
from fractions import Fraction
from itertools import product

import numpy as np
import pytest

from dpjax import release
from dpjax.accounting import PrivacyFilter
from dpjax.release.exact import decay
from dpjax.release.noise import DiscreteLaplace, geometric

FURTHER = 2**64 - 12345  # all words after the first


def adversarial(rate):
    """Words at both ends, and on both sides of the first boundaries of e^(-rate g)."""
    ends = [0, 1, 2**20 + 1, 2**44, 2**44 + 1, 2**64 - 1]
    near = [decay(rate * g, 64) + off for g in (1, 2, 3, 7, 25) for off in (-2, -1, 0, 1)]
    random = np.random.default_rng(0).integers(0, 2**64, 30, np.uint64).tolist()
    return [word for word in ends + near + random if 0 <= word < 2**64]


def drawn(rate, first, later=(FURTHER,), **options):
    left = [*(np.full(1, word, np.uint64) for word in later[::-1]), np.array(first, np.uint64)]

    def words(shape):
        return left.pop() if left else np.full(shape, later[-1], np.uint64)

    return geometric(rate, (len(first),), words, **options).tolist()


def by_definition(rate, first, later=(FURTHER,)):
    """The floor of -log(U) / rate, in decimals."""
    with localcontext(prec=200):
        words = enumerate([first, *later] + [later[-1]] * 5, 1)
        uniform = sum(Decimal(word) / 2 ** (64 * k) for k, word in words)
        return int(-uniform.ln() * rate.denominator / rate.numerator)


@pytest.mark.parametrize("rate", ["1/1099511627776", "1/1000000007", "1/50", "7/3", "1048576"])
def test_floats_decide_as_integers_do(rate):
    rate = Fraction(rate)
    words = adversarial(rate)
    expected = [by_definition(rate, word) for word in words]
    assert drawn(rate, words) == drawn(rate, words, margin=np.inf) == expected
    # A rate off by one part in 10^8 is seen, but where all noise is 0
    assert (drawn(rate * (1 + Fraction(1, 10**8)), words) != expected) == any(expected[4:])
    # Beside boundaries that 40 digits do not tell apart, and where U begins with 128 zeros
    for cost, off in product((5, int(93 / rate) + 1), range(-3, 3)):
        bits = max(decay(cost * rate, 320) + 2 * off, 0) | 1
        first, *later = (bits >> 64 * k & 2**64 - 1 for k in range(4, -1, -1))
        assert drawn(rate, [first], later) == [by_definition(rate, first, later)]


SEVERAL = DiscreteLaplace(
    np.array([[3, -2, 0], [40, 5, -7]]), Fraction(1, 3), 5.0, np.array([[10.0], [70.0]])
)


def test_closed_forms_are_sums():
    noise = np.arange(-150, 151)
    p = np.exp(-np.abs(noise) / 3)
    p /= p.sum()
    below = np.cumsum(p)
    positions = np.add.outer(noise, SEVERAL.number)
    values = SEVERAL.values_of(positions)
    one, wide = values[1] - values[0], (..., None, None)
    np.testing.assert_allclose(values[150], SEVERAL.value)
    np.testing.assert_allclose(SEVERAL.pmf(values), p[wide] + 0 * values, rtol=1e-12)
    np.testing.assert_allclose(SEVERAL.cdf(values), below[wide] + 0 * values, atol=1e-13)
    np.testing.assert_allclose(SEVERAL.cdf(values + 0.6 * one), SEVERAL.cdf(values))
    assert not SEVERAL.pmf(values + 0.6 * one).any()
    for level in (1e-9, 0.025, 0.4, 0.5, 0.6, 0.99):
        smallest = values[np.searchsorted(below, level)]
        np.testing.assert_array_equal(SEVERAL.quantile(level), smallest)
    for off in (0.0, 0.3, -2.6, 11.0):
        center = SEVERAL.value + off
        expected = np.sum(np.abs(values - center) * p[wide], axis=0)
        np.testing.assert_allclose(SEVERAL.mean_abs_error(center), expected, rtol=1e-12)
    ends = SEVERAL.quantile(np.array([0, 1, -0.1, 1.1, np.nan])[wide])[:, 0, 0]
    np.testing.assert_array_equal(ends, [-np.inf, np.inf, np.nan, np.nan, np.nan])
    assert SEVERAL.cdf(np.array([-np.inf, np.inf])[wide])[:, 0, 0].tolist() == [0, 1]
    assert not SEVERAL.pmf(np.array([-np.inf, np.inf, np.nan])[wide]).any()


def test_values_are_the_nearest_floats_and_no_count_is_too_large():
    wide = {"epsilon": 1.0, "neighbors": "add_remove"}
    for resolution in ("0.01", "3", "1/7"):
        upper = 300 * Fraction(resolution)
        records = [float(k * Fraction(resolution)) for k in (1, 17, 299)]
        statistic = release.Sum(0, upper, Fraction(resolution))
        exact = 317 * Fraction(resolution)
        assert statistic.distribution(records, **wide).value == float(exact)
    mean = release.Mean(0, 1, "0.1").distribution([0.1, 0.1, 0.4], epsilon=1.0, neighbors="swap")
    assert mean.value == 0.2
    with np.errstate(all="raise"):
        many = [10**12, 10**12, 10**30, -5]
        for lower, x in ((-(10**9), [-1e9, 5, 5, 5]), (10**12 - 9, [10**12, 2, None, np.inf])):
            statistic = release.Sum(lower, 10**12 if lower > 0 else 7, 1)
            options = wide | {"counts": np.minimum(many, 2**62).astype(np.int64)}
            assert np.isfinite(statistic.release(x, **options).values).all()
    found = statistic.distribution([10**12], **wide, counts=[10**12])
    assert found.number.tolist() == 2**62  # and not what is left of 10^24 in 64 bits


def test_noise_out_of_range_is_refused_before_a_charge():
    budget = PrivacyFilter(epsilon=1.0, delta=0.0, neighbors="swap")
    fine = release.Sum(0, 2**30, 1)
    with pytest.raises(ValueError, match="times the resolution"):
        fine.release([1], epsilon=2.0**-11, neighbors="swap", budget=budget)
    assert budget.remaining == 1.0
    assert fine.release([1], epsilon=2.0**-10, neighbors="swap", budget=budget).draws == 1


def test_what_is_counted():
    """Each bin has its lower edge and the last one its upper, too; NaN is absent."""
    x = [[0.0, 1.0, 1.5, 2.0, 3.0, 3.0, np.nan, 9.0], [2, 2, 2, -1, 3, 0.5, 0.5, np.inf]]
    quiet = {"epsilon": 64.0, "neighbors": "add_remove"}  # noise of probability e^-64
    assert release.Count().release(x, **quiet).values.tolist() == [[7, 8]]
    found = release.Histogram(edges=[0, 1, 2, 3]).release(x, **quiet)
    assert found.values.tolist() == [[[1, 2, 3], [2, 0, 4]]]
    assert release.Count().release([3, 10**400, None], **quiet).values.tolist() == [2]
