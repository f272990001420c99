"""Private confidence intervals: exact coverage on the hardest data, privacy, and widths."""

import itertools
from fractions import Fraction
from math import comb

import numpy as np
import pytest

from dpjax.accounting import PrivacyFilter
from dpjax.release import ConfidenceInterval, Counts, Quantile


def binomial(q, n):
    return np.array([comb(n, k) * float(q) ** k * float(1 - q) ** (n - k) for k in range(n + 1)])


def missed(level, q, n, beyond, epsilon, neighbors, mirrored=False):
    """The exact probability that the lower end is above xi, and ``beyond`` values of the grid are.

    B of n records are at most xi, binomially: one on each value up to xi, the others at the end of
    the grid, so that the sample quantile moves at each change until it jumps beyond xi. Mirrored,
    it is the upper end below xi.
    """
    group, rank = np.repeat(np.arange(n + 1), n), np.tile(np.arange(n), n + 1)
    top = n + beyond
    records = np.where(rank < group, n - group + 1 + rank, top)
    records = top - records if mirrored else records
    counts = Counts.of_rows(group, records, np.ones_like(group), groups=n + 1)
    end = Quantile(level, 0, top, 1)
    found = end.distribution(counts, epsilon=Fraction(epsilon) / 2, neighbors=neighbors)
    wrong = found.cdf(float(beyond - 1)) if mirrored else 1 - found.cdf(float(n))
    return float(binomial(1 - q if mirrored else q, n) @ wrong)


def uncovered(levels, q, n, size, *how):
    """The largest probability that an end is on the wrong side, however many values are above."""
    above = np.linspace(0, size - 1, 5).astype(int)
    lower = [missed(levels[0], q, n, number, *how) for number in above]
    upper = [missed(levels[1], q, n, size - 1 - number, *how, mirrored=True) for number in above]
    return float(np.max(np.add(lower, upper)))


@pytest.mark.parametrize(
    ("q", "n", "size", "epsilon", "coverage", "neighbors"),
    [
        ("1/2", 90, 1000, 8.0, 0.95, "swap"),
        ("1/2", 110, 60, 4.0, 0.9, "add_remove"),
        ("0.7", 100, 300, 4.0, 0.8, "add_remove"),
    ],
)
def test_the_coverage_is_kept_and_used(q, n, size, epsilon, coverage, neighbors):
    interval = ConfidenceInterval(q, 0, size - 1, 1, public_n=n, coverage=coverage)
    q, levels = Fraction(q), interval.levels(epsilon, neighbors)
    found = uncovered(levels, q, n, size, epsilon, neighbors)
    assert 0.4 * (1 - coverage) < found <= 1 - coverage
    # Levels without a share for the noise, those of an interval that is not private
    below, tail = np.cumsum(binomial(q, n)), (1 - coverage) / 2
    plain = [Fraction(int(np.searchsorted(below, p)), n) for p in (tail, 1 - tail)]
    assert uncovered(plain, q, n, size, epsilon, neighbors) > 1.5 * (1 - coverage)


def test_both_ends_together_cost_epsilon_whatever_the_number_of_records():
    statistic = ConfidenceInterval("0.3", 0, 3, 1, public_n=500)
    datasets = [x for n in (1, 2, 3) for x in itertools.combinations_with_replacement(range(4), n)]
    values = np.arange(4.0)

    def log_shares(x, epsilon, neighbors):
        found = statistic.distribution(list(x), epsilon=epsilon, neighbors=neighbors)
        return np.log([end.pmf(values) for end in found.ends])

    def largest_loss(epsilon, neighbors):
        known = {x: log_shares(x, epsilon, neighbors) for x in datasets}
        return max(
            np.abs(known[one] - known[other]).max(axis=1).sum()
            for one, other in itertools.permutations(datasets, 2)
            if one[1:] == (other[1:] if neighbors == "swap" else other)
        )

    for neighbors in ("swap", "add_remove"):
        assert 0.75 < largest_loss(1.5, neighbors) <= 1.5 * (1 + 1e-10)
        assert largest_loss(3.0, neighbors) > 1.5


def test_an_interval_is_two_values_in_order():
    x = np.random.default_rng(0).integers(0, 121, (2, 3, 400))
    statistic = ConfidenceInterval(0.5, 0, 120, 1, public_n=400)
    options = {"epsilon": 2.0, "neighbors": "add_remove"}
    assert statistic.release(x[:0], **options).values.shape == (1, 0, 3, 2)
    found = statistic.release(x, **options, draws=5)
    assert found.values.shape == (5, 2, 3, 2)
    assert (np.diff(found.values) >= 0).all()
    assert str(found.guarantee) == "10-DP under add_remove neighbors"
    planned = statistic.distribution(x, **options)
    assert planned.sample(0, (7, 2)).shape == (7, 2, 2, 3, 2)
    for place, level in enumerate(statistic.levels(**options)):
        end = np.quantile(x, float(level), axis=-1, method="inverted_cdf")
        np.testing.assert_array_equal(planned.value[..., place], end)
    budget = PrivacyFilter(epsilon=1.0, delta=0.0, neighbors="swap")
    few = ConfidenceInterval(0.5, 0, 120, 1, public_n=20)
    with pytest.raises(ValueError, match="needs more than 20 records"):
        few.release(x, epsilon=0.5, neighbors="swap", budget=budget)
    assert budget.remaining == 1.0
