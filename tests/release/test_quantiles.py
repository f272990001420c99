"""Releases of several quantiles: their budget, hostile counts, and parameters."""

import warnings
from fractions import Fraction
from math import ceil

import numpy as np
import pytest

from dpjax import checks
from dpjax.release import joint, several_quantiles
from dpjax.release.counts import MOST, Counts
from dpjax.release.several_quantiles import Quantiles

AGES = {"lower": 0, "upper": 120, "resolution": 1}
QUARTILES = (0.25, 0.5, 0.75)


def levels_of(m):
    return [Fraction(k, m + 1) for k in range(1, m + 1)]


def test_value_is_the_lower_quantile():
    x = np.random.default_rng(0).integers(0, 9, (5, 3, 11)).astype(float)
    x[0, 0], x[1, 0, 3:], x[2, 2, 0] = np.nan, np.nan, np.nan
    found = Quantiles((0.1, "1/3", 0.9), **AGES).distribution(x, epsilon=1, neighbors="add_remove")
    assert found.value.shape == (5, 3, 3)
    for row, value in zip(x.reshape(15, 11), found.value.reshape(15, 3), strict=True):
        records = np.sort(row[~np.isnan(row)])
        ranks = [ceil(q * len(records)) for q in (Fraction(1, 10), Fraction(1, 3), Fraction(9, 10))]
        assert value.tolist() == [records[rank - 1] if len(records) else 0 for rank in ranks]


@pytest.mark.parametrize("m", [1, 4, 5, 20, 21, 440, 441, 5000])
def test_parts_of_the_budget_add_up(monkeypatch, m):
    epsilon, spent = Fraction(3, 7), []

    def noise(rate, shape, words):
        spent.append(rate)
        return np.stack([np.ones(shape[1:], np.int64), np.full(shape[1:], 9)])

    def draw(self, parts, levels, rounds):
        """One more record costs 2 rates in each round, and a swapped one 4."""
        spent.append(rounds * changes * self.rate)
        assert (joint.TOGETHER + 1) ** rounds > len(levels)
        # Two records, and noise of 1 - 9 unless their number is public
        assert parts.number.tolist() == [2 if changes == 4 else 1]
        return np.zeros((1, len(levels)), np.int64)

    monkeypatch.setattr(several_quantiles, "geometric", noise)
    monkeypatch.setattr(joint.Joint, "draw", draw)
    for neighbors, changes in (("add_remove", 2), ("swap", 4)):
        spent.clear()
        asked = Quantiles(levels_of(m), **AGES)
        found = asked.release([1, 2], epsilon=epsilon, neighbors=neighbors)
        assert sum(spent) == epsilon
        assert found.guarantee.epsilon >= epsilon
        assert len(spent) == 3 - changes // 2


HOSTILE = {
    "nobody": [],
    "one": [(0, 1)],
    "equal": [(60, 10**12)],
    "most": [(60, MOST - 1)],  # under swap
    "too many": [(0, 2**63 - 1), (120, 2**40)],
    "ends": [(0, 10**6), (120, 10**6)],
}


@pytest.mark.parametrize("epsilon", [Fraction(1, 2**30), 0.5, 64])
@pytest.mark.parametrize("name", HOSTILE)
def test_no_counts_raise_or_warn(monkeypatch, name, epsilon):
    """Nor are they ever expanded: no more ranks are looked at than a public number."""
    monkeypatch.setattr(joint, "_WIDEST", 2**12)
    at, looked = joint.FinePoints.at, []

    def counting(self, group, rank):
        looked.append(np.size(rank))
        return at(self, group, rank)

    monkeypatch.setattr(joint.FinePoints, "at", counting)
    values, number = zip(*HOSTILE[name], strict=True) if HOSTILE[name] else ((), ())
    counts = Counts.of_rows(np.zeros(len(values)), values, number, groups=1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for m in (1, 3, 70):
            asked = Quantiles(levels_of(m), **AGES)
            known = counts.totals < MOST  # more are refused under swap
            for neighbors in checks.NEIGHBORS[: 1 + bool(known)]:
                drawn = asked.release(counts, epsilon=epsilon, neighbors=neighbors).values
                assert drawn.shape == (1, 1, m)
                assert (np.diff(drawn) >= 0).all()
    assert max(looked) <= 2 * 2**12 + 100


def test_equal_records_are_found():
    """Half of the records are equal; deciles of 10^9 records come from their counts."""
    number = np.array([1, 5, 3, 1]) * 10**8
    counts = Counts.of_rows(np.zeros(4), [10, 20, 30, 40], number, groups=1)
    asked = Quantiles([0.05, 0.2, 0.4, 0.55, 0.7, 0.85, 0.95], **AGES)
    assert Quantiles([1 / 7, 6 / 7], **AGES).levels[0].denominator > 2**40
    for neighbors in checks.NEIGHBORS:
        drawn = asked.release(counts, epsilon=0.1, neighbors=neighbors, draws=3)
        assert (drawn.values == [10, 20, 20, 20, 30, 30, 40]).all()


@pytest.mark.parametrize("qs", [0.5, [], [0.5, 0.5]])
def test_levels_are_several_in_ascending_order(qs):
    with pytest.raises((TypeError, ValueError), match="levels"):
        Quantiles(qs, **AGES)


def test_the_bounded_range_is_epsilon_for_one_round_of_a_public_number():
    one, two = ([k / (m + 1) for k in range(1, m + 1)] for m in (20, 21))
    for qs, neighbors, range_ in ((one, "swap", 1), (one, "add_remove", 2), (two, "swap", 2)):
        found = Quantiles(qs, **AGES).cost(1.0, 3, neighbors)
        assert (found.epsilon, found.bounded_range) == (3.0, 3 * range_)
