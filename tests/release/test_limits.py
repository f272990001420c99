"""Releases at the limits of integers and floats, and what raises before a budget is charged."""

from fractions import Fraction

import numpy as np
import pytest

from dpjax.accounting import PrivacyFilter
from dpjax.release import Count, Counts, Mean, Median, Mode, Quantiles, Sum
from dpjax.release.counts import MOST

BOUNDS = {"lower": 0, "upper": 10, "resolution": 1}
PUBLIC = {"epsilon": 1.0, "neighbors": "add_remove"}


def counts_of(*counts):
    """Counts of the values 5 and 9 in one group."""
    return Counts(np.array([0, 2]), np.array([5, 9]), np.array(counts))


@pytest.mark.filterwarnings("error")
def test_sums_of_many_large_counts_do_not_overflow():
    counts = np.full(2**12, 2**51)
    for records in (np.zeros(2**12), np.arange(2**12)):
        assert Count().distribution(records, counts=counts, **PUBLIC).value >= 2**32
    law = Median(0, 1, 1).distribution(np.zeros(2**12), counts=counts, **PUBLIC)
    assert law.pmf(0) > 0.99


def test_the_number_of_clamped_points_is_no_public_number(monkeypatch):
    monkeypatch.setattr("dpjax.release.joint._POINT_BITS", 3)
    quartiles = Quantiles([0.25, 0.5, 0.75], **BOUNDS)
    numbers = []

    def draw(self, parts, levels, rounds):
        numbers.append(int(parts.number[0]))
        return np.zeros((1, len(levels)), np.int64)

    monkeypatch.setattr("dpjax.release.joint.Joint.draw", draw)
    for counts in ((12, 2), (11, 3)):
        quartiles.release(counts_of(*counts), epsilon=1.0, neighbors="swap")
    assert numbers == [14, 14]


@pytest.mark.parametrize(
    "statistic", [Sum(100, 101, 1), Mean(100, 101, 1), Quantiles([0.5], 0, 9, 1)]
)
def test_counts_that_are_clamped_are_refused_under_swap(statistic):
    """The clamped sums of neighbors differ by a whole record, not by a change of one."""
    budget = PrivacyFilter(9.0, 0.0, "swap")
    public = {"epsilon": 1.0, "neighbors": "swap"}
    sums = []
    for first, second in ((MOST + 5, 3), (MOST + 4, 4)):
        clamped = Counts.of_rows([0, 0], [0, 1], [first, second], groups=1)
        sums.append(clamped.counts @ (clamped.values + 100))
        with pytest.raises(ValueError, match="fewer than 2"):
            statistic.release(clamped, budget=budget, **public)
    assert abs(sums[0] - sums[1]) == 101
    assert budget.spent == 0
    for most, number in ((MOST - 4, 3), (MOST - 5, 4)):  # these are not clamped
        counted = Counts.of_rows([0, 0], [0, 1], [most, number], groups=1)
        assert counted.totals == MOST - 1
        statistic.release(counted, **public)
    # Scores that are clamped change by at most one
    Mode([0, 1]).release(Counts.of_rows([0], [0], [MOST + 5], groups=1), **public)


@pytest.mark.filterwarnings("error")
def test_sums_beyond_floats_do_not_warn():
    total = Sum(0, 1e308, 1e300)
    assert total.distribution([1e308] * 20, **PUBLIC).value == np.inf
    total.release([1e308], draws=300, epsilon=0.01, neighbors="add_remove")


def test_an_empty_last_group_raises_before_the_charge():
    groups = 2**17 + 5
    starts = np.append(np.arange(groups), groups - 1)
    values = np.zeros(groups - 1, np.int64)
    budget = PrivacyFilter(9.0, 0.0, "swap")
    with pytest.raises(ValueError, match="at least one"):
        Mean(0, 1, 1).release(
            Counts(starts, values, values + 1), epsilon=1.0, neighbors="swap", budget=budget
        )
    assert budget.spent == 0


def test_several_quantiles_of_no_rows_and_at_any_levels():
    quartiles = Quantiles([0.25, 0.5], **BOUNDS)
    assert quartiles.release(np.zeros((0, 3)), draws=2, **PUBLIC).values.shape == (2, 0, 2)
    assert quartiles.distribution(np.zeros((0, 3)), **PUBLIC).mean_abs_error(0).shape == (0, 2)
    denominators = 1048573 - 2 * (np.arange(4300) * 7919 % 1000)
    levels = [Fraction(int(d) * (k + 1) // 4301, int(d)) for k, d in enumerate(denominators)]
    assert Quantiles(levels, **BOUNDS).release([1, 2] * 5, **PUBLIC).values.shape == (1, 4300)
    few = [Fraction((1048573 - 2 * k) * (k + 1) // 72, 1048573 - 2 * k) for k in range(70)]
    law = Quantiles(few, 0, 1000, 1).distribution(
        np.arange(1001), counts=np.full(1001, 10**6), **PUBLIC
    )
    assert np.abs(law.sample(0) - law.value).max() <= 1


def test_counts_are_given_once():
    with pytest.raises(ValueError, match="counts must be None"):
        Median(0, 9, 1).release(counts_of(1, 2), counts=[1], **PUBLIC)
