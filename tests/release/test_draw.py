"""Draws by floats are those by decimals of the same words, word by word; and draws follow the
distribution.
"""

from dataclasses import replace
from decimal import MAX_EMAX, MIN_EMIN, Context, localcontext
from fractions import Fraction
from math import exp, log

import numpy as np
import pytest

from dpjax import release
from dpjax.release.distribution import Runs
from dpjax.release.exact import Bits, seeded, system_words
from dpjax.release.grid import Multiples
from tests.support.releases import MECHANISMS
from tests.support.statistics import assert_counts_follow, assert_counts_rejected

LAST = 2**64 - 1
EDGES = (0, 1, 2**20, 2**30, 2**43, 2**44, 2**44 + 1, 2**63, LAST)


def runs(cost, length, rate, mechanism, groups=1):
    """The same distribution in each group."""
    length = np.array(length)
    first = np.cumsum(length) - length
    starts = np.arange(groups + 1) * len(cost)
    grid = Multiples(Fraction(1), 0, int(length.sum()))
    columns = (np.tile(column, groups) for column in (first, length, np.array(cost)))
    return Runs(starts, *columns, Fraction(rate), grid, np.zeros(groups), mechanism)


LAWS = {
    "a step": ([3, 0, 1], [1, 1, 1], 0.5),
    "a run as long as a grid": ([900, 0, 70], [2**31 - 1, 3, 2**30 + 7], 0.3),
    "coins that underflow": ([9000, 4000, 0, 1, 5000], [1, 2**20, 3, 5, 1], 1),
    "nearly equal": ([1, 0, 1, 2], [1, 1, 1, 1], Fraction(1, 2**31)),
    "rare heads": ([1, 0, 40], [1, 2, 1000], 4),
}


def tape(rounds, seed=0):
    """Words of one lane: given ones, then random ones; further bits have words of their own."""
    left, later, bits = list(rounds), seeded(seed), seeded(seed + 1)

    def words(shape):
        if shape == (1,):
            return bits(shape)
        return np.array(left.pop(0), np.uint64).reshape(shape) if left else later(shape)

    return words


def near(word, rng):
    """The word, or one that is near it, at any distance."""
    away = 1 + (int(word) >> int(rng.integers(16, 65)))
    return min(max(int(word) + away * int(rng.integers(-1, 2)), 0), LAST)


def adversarial(law, rng):
    """Three rounds of words at the boundaries of runs, places and acceptance."""
    coin = np.exp(-float(law.rate) * law.cost)
    ends = np.cumsum(coin * law.length) / (coin * law.length).sum()
    clock, rounds = 0.0, []
    for _ in range(3):
        run = rng.integers(len(coin))
        proposal = near(int(ends[run] * 2.0**53) << 11, rng)
        run = min(np.searchsorted(ends, proposal * 2.0**-64), len(coin) - 1)
        width = int(law.length[run])
        place = -(-int(rng.integers(1, width + 1)) * 2**64 // width) - int(rng.integers(1, 3))
        edge = EDGES[rng.integers(len(EDGES))]
        wait = edge if rng.random() < 0.3 else LAST >> int(rng.integers(46))
        clock -= log((wait + 0.5) * 2.0**-64) / (coin * law.length).sum()
        odds = coin[run] + (1 - coin[run]) * exp(min(clock, 600))
        accept = edge if rng.random() < 0.1 else near(2**64 / odds, rng)
        rounds.append([proposal, place, wait, accept])
    return rounds


def differences(law, other, number=100):
    """How many draws of adversarial and of random words differ by decimals of another law."""
    rng, found = np.random.default_rng(0), 0
    for seed in range(number):
        rounds = adversarial(law, rng) if seed % 4 else []
        one = law.positions(1, tape(rounds, seed))
        found += one != other.positions(1, tape(rounds, seed), margin=1.0)
    return int(found.sum())


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("name", LAWS)
def test_floats_decide_as_decimals_do(name, mechanism):
    law = runs(*LAWS[name], mechanism)
    assert differences(law, law) == 0


def test_floats_accept_as_decimals_do():
    """A position that is not the best is proposed; the clock is near its mean or far beyond, in
    some cases after refusals.
    """
    law, rng, accepted = runs([0, 1], [1, 1], 0.5, "permute_and_flip"), np.random.default_rng(0), 0
    coin = exp(-0.5)
    for seed in range(300):
        refused, wait = int(rng.integers(3)), LAST >> int(rng.integers(46))
        clock = (19 * log(2) * refused - log((wait + 0.5) * 2.0**-64)) / (1 + coin)
        accept = near(2**64 / (coin + (1 - coin) * exp(clock)), rng)
        rounds = [[2**64 - 2**60, 0, 2**45, LAST]] * refused
        rounds.append([2**64 - 2**60, 0, wait, accept])
        one, other = (law.positions(1, tape(rounds, seed), margin) for margin in (2.0**-40, 1.0))
        accepted += int(one.sum())
        assert one == other
    assert 60 < accepted < 240


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_control_weights_that_are_off_by_a_billionth_are_found(mechanism):
    law = runs(*LAWS["a step"], mechanism)
    assert differences(law, replace(law, rate=law.rate + Fraction(1, 2**30))) > 0


@pytest.mark.parametrize("name", LAWS)
def test_forty_digits_decide_as_more_do_or_not_at_all(name):
    law, rng, open_ = runs(*LAWS[name], "permute_and_flip"), np.random.default_rng(1), 0
    for seed in range(0, 2000, 50):
        rounds, found = adversarial(law, rng), []
        for digits in (40, 320):
            own = (tape([], seed + place) for place in range(12))  # further bits of each uniform
            uniforms = [[Bits(word, next(own)) for word in four] for four in rounds]
            with localcontext(Context(prec=digits, Emin=MIN_EMIN, Emax=MAX_EMAX)):
                found.append(law._by_decimals(0, uniforms, tape([], seed), digits))
        one, other = found
        open_ += one is None
        assert one in (None, other)
    assert open_ < 30


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_lanes_have_their_own_words(mechanism):
    """Each of many groups and draws gets what its words alone would give."""
    laws = [runs(*LAWS[name], mechanism) for name in ("a step", "rare heads")]
    columns = [np.concatenate([getattr(law, name) for law in laws]) for name in ("first", "length")]
    cost = np.concatenate([law.cost * (law.rate / laws[0].rate) for law in laws]).astype(int)
    both = replace(
        laws[0],
        starts=np.array([0, 3, 6]),
        first=columns[0],
        length=columns[1],
        cost=cost,
        value=np.zeros(2),
    )
    given = seeded(5)((4, 40))
    given[3] >>= np.uint64(30)  # all are accepted
    given[0, ::3] = 2**64 - 1  # at a boundary: by decimals
    found = both.positions(20, lambda shape: given if shape == (4, 40) else seeded(1)(shape))
    for lane in range(40):
        group = lane % 2
        alone = laws[group].positions(1, tape([given[:, lane].tolist()]))
        assert found[lane // 2, group] == alone


def test_lanes_that_wait_keep_their_words():
    """Two of three are refused at first, at clocks of their own, which decide their next turn."""
    law, coin = runs([0, 1], [1, 1], 0.5, "permute_and_flip"), exp(-0.5)
    waits = [2**45 << lane % 11 if lane % 3 else LAST for lane in range(40)]
    first = [[2**64 - 2**60, 0, wait, LAST if wait < LAST else 0] for wait in waits]
    odds = [coin + (1 - coin) * (wait * 2.0**-64) ** (-1 / (1 + coin)) for wait in waits]
    second = [
        [2**64 - 2**60, 0, LAST, int(2**64 / odd) + (-1) ** lane * 2**16]
        for lane, odd in enumerate(odds)
    ]
    last = [[0, 0, 2**63, 0]] * 40
    left = [words for wait, words in zip(waits, second, strict=True) if wait < LAST]
    turns = (np.array(words, np.uint64).T for words in (first, left))
    found = law.positions(40, tape([*turns, *last]))[:, 0]
    for lane, wait in enumerate(waits):
        own = [first[lane], *[second[lane]] * (wait < LAST), last[0]]
        assert found[lane] == law.positions(1, tape(own))
    assert 10 < found.sum() < 35


@pytest.mark.parametrize("margin", [2.0**-40, 1.0])
@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("groups", [1, 300])
def test_draws_follow_the_distribution(groups, mechanism, margin):
    law = runs([4, 0, 2, 5], [3, 2, 1, 9], 0.4, mechanism, groups)
    draws = (60_000 if margin < 1 else 1200) // groups
    drawn = law.positions(draws, seeded(7), margin)
    assert drawn.shape == (draws, groups)
    counts = np.bincount(drawn.ravel(), minlength=15)
    shares = np.repeat((law.shares / law.length)[:4], law.length[:4])
    assert_counts_follow(counts, shares)
    wrong = replace(law, rate=law.rate * 2)
    assert_counts_rejected(counts, np.repeat((wrong.shares / wrong.length)[:4], law.length[:4]))


def test_many_draws_are_made_in_parts(monkeypatch):
    monkeypatch.setattr("dpjax.release.distribution._LANES", 64)
    law = runs(*LAWS["a step"], "permute_and_flip", 5)
    assert law.positions(100, seeded(0)).shape == (100, 5)
    assert law.positions(0).shape == (0, 5)
    assert runs([0], [2], 1, "permute_and_flip", 0).positions(3).shape == (3, 0)


def test_samples_for_simulations_follow_a_seed_and_releases_do_not(monkeypatch):
    statistic = release.Median(lower=0, upper=1000, resolution=1)
    options = {"epsilon": 0.01, "neighbors": "swap"}
    law = statistic.distribution([[1, 2, 3]] * 2, **options)
    one, same = (law.sample(3, (4, 5)) for _ in range(2))
    np.testing.assert_array_equal(one, same)
    assert one.shape == (4, 5, 2)
    assert len(np.unique(one)) > 20
    assert law.sample(np.random.default_rng(3)).shape == (2,)
    assert (law.sample(4, 20) != law.sample(5, 20)).any()
    drawn = [statistic.release([1, 2, 3], **options, draws=20).values for _ in range(2)]
    assert (drawn[0] != drawn[1]).any()
    asked = []
    monkeypatch.setattr("os.urandom", lambda size: asked.append(size) or bytes(size - 1) + b"\x01")
    assert system_words((2, 3)).tolist() == [[0, 0, 0], [0, 0, 2**56]]
    assert asked == [48]
