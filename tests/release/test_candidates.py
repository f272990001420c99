"""The choice by integer scores: its distribution, its clamping, the doubtful lanes, and what it refuses."""

from fractions import Fraction
from itertools import product

import jax
import numpy as np
import pytest
from dpjax.release.candidates import clamped_scores
from dpjax.release.exact import exact_choice
from dpjax.release.sampler import Draw, certified_choice
from dpjax.release.tables import level_weights

from dpjax import release
from dpjax.release import candidates, release_choice, words
from tests.release.test_sampler import EXTREME, more
from tests.support.statistics import assert_counts_follow, assert_counts_rejected


def test_draws_follow_the_exponential_mechanism():
    scores = np.array([[5, 9, 900, -4, 7], [0, 0, 0, 0, 0]], np.int16)
    common = {"epsilon": 1.2, "lower": 0, "upper": 10, "neighbors": "swap"}
    for sensitivity, rate in ((2, 0.3), (Fraction(3, 4), 0.8)):
        found = release_choice(scores, sensitivity=sensitivity, draws=20_000, **common)
        for row, inside in enumerate(np.clip(scores, 0, 10)):
            weights = np.exp(rate * inside)
            assert_counts_follow(np.bincount(found.multiples[:, row], minlength=5), weights / weights.sum())
        sharper = np.exp(1.3 * rate * np.clip(scores[0], 0, 10))
        assert_counts_rejected(np.bincount(found.multiples[:, 0], minlength=5), sharper / sharper.sum())
    np.testing.assert_array_equal(found.values, found.multiples)
    assert (found.resolution, found.draws, found.guarantee.neighbors) == (None, 20_000, "swap")
    assert Fraction(found.guarantee.epsilon) >= Fraction(1.2) * 20_000


@pytest.mark.slow
def test_doubtful_lanes_are_drawn_exactly(monkeypatch):
    """Costs beyond what the words decide, and no certainty at all: the same draws."""
    seed = bytes(range(32))
    monkeypatch.setattr(words.os, "urandom", lambda n: seed[:n])
    scores = np.random.default_rng(0).integers(0, 5000, (40, 13))
    arguments = {"epsilon": 0.3, "sensitivity": Fraction(1, 2), "lower": 0, "upper": 5000, "neighbors": "add_remove", "draws": 3}
    plain = release_choice(scores, **arguments)
    device = candidates.certified_choice

    def never(*args):
        drawn = device(*args)
        return Draw(drawn.cell * 0 - 5, drawn.certified & False)

    monkeypatch.setattr(candidates, "certified_choice", never)
    np.testing.assert_array_equal(release_choice(scores, **arguments).multiples, plain.multiples)


@pytest.mark.slow
def test_device_equals_host_and_levels_beyond_the_table_are_in_doubt():
    rng = np.random.default_rng(0)
    weights = level_weights(1.5, 30)
    costs = rng.integers(0, 30, (300, 70))
    costs[:100] += rng.integers(0, 2, (100, 1)) * 40  # whole rows far out
    costs[100:150, 3] = 31  # one candidate too far
    read = np.where(rng.uniform(size=(2, 300)) < 0.3, rng.choice(EXTREME, (2, 300)), rng.integers(0, 2**32, (2, 300))).astype(
        np.uint32
    )
    drawn = certified_choice(weights, costs.astype(np.int32), read)
    certified = np.asarray(drawn.certified)
    covered = (costs < 30).all(axis=-1)
    assert not certified[~covered].any()
    assert certified[covered].mean() > 0.9
    for row in np.flatnonzero(certified):
        assert np.asarray(drawn.cell)[row] == exact_choice(1.5, costs[row], read[:, row], more=more)
    # Clipped to the table, the far candidate would be as likely as one at the last level: another distribution, unseen.
    clipped = np.asarray(certified_choice(weights, np.minimum(costs, 29).astype(np.int32), read).cell)
    exact = np.array([exact_choice(1.5, c, w, more=more) for c, w in zip(costs[:100], read.T[:100], strict=True)])
    assert (clipped[:100] != exact).any()


def worst_range(changes, sensitivity):
    """Over all scores 0..4 of two candidates and all changes of both: the range of the loss, in units of epsilon."""
    worst = 0.0
    for scores in product(range(5), repeat=2):
        for change in product(changes, repeat=2):
            first, second = (
                clamped_scores(np.array(rows), 1, 3) / (2 * float(sensitivity)) for rows in (scores, np.add(scores, change))
            )
            worst = max(worst, np.ptp(first - second))
    return worst


def test_clamping_keeps_either_sensitivity():
    assert 0.5 < worst_range((-1, 0, 1), 1) <= 1
    assert 0.5 < worst_range((0, 1), Fraction(1, 2)) <= 1
    # Half is for scores that all change in one direction from 0 on; and only for them.
    assert worst_range((1, 2), Fraction(1, 2)) > 1.5
    assert worst_range((-1, 0, 1), Fraction(1, 2)) > 1.5


def test_scores_of_every_dtype():
    for dtype in (np.int8, np.uint8, np.int32, np.uint64, np.int64):
        scores = np.array([3, 100, 7], dtype)
        np.testing.assert_array_equal(clamped_scores(scores, 5, 1000), [0, 95, 2])
        np.testing.assert_array_equal(clamped_scores(scores, -1000, 4), [1003, 1004, 1004])
    top = np.array([2**64 - 1, 0, 2**63], np.uint64)
    np.testing.assert_array_equal(clamped_scores(top, 2**63, 2**63 + 9), [9, 0, 0])
    np.testing.assert_array_equal(clamped_scores(np.array([-(2**63), 2**63 - 1]), -(2**63), 5 - 2**63), [0, 5])
    np.testing.assert_array_equal(clamped_scores([-(10**30), 2, 10**30], 0, 4), [0, 2, 4])
    assert clamped_scores(np.array([-120, 100], np.int8), -(10**30), 3 - 10**30).tolist() == [3, 3]


def test_what_is_refused():
    common = {"epsilon": 1.0, "sensitivity": 1, "lower": 0, "upper": 9, "neighbors": "swap"}
    for change, error in (
        ({"sensitivity": 0}, ValueError),
        ({"sensitivity": 0.5}, TypeError),
        ({"sensitivity": Fraction(1, 100)}, ValueError),
        ({"epsilon": 65.0}, ValueError),
        ({"epsilon": float("nan")}, ValueError),
        ({"upper": -1}, ValueError),
        ({"upper": 2**24}, ValueError),
        ({"lower": 0.0}, ValueError),
        ({"draws": 0}, ValueError),
        ({"neighbors": "other"}, ValueError),
    ):
        with pytest.raises(error, match=next(iter(change))):
            release_choice([1, 2], **(common | change))
    for scores, error in (([1.0, 2.0], TypeError), (np.ones(2), TypeError), (3, ValueError), (np.zeros((2, 0), int), ValueError)):
        with pytest.raises(error, match="scores"):
            release_choice(scores, **common)
    with pytest.raises(TypeError, match="jit"):
        jax.jit(lambda s: release_choice(s, **common).multiples)(np.array([1, 2]))


def test_records_are_rounded_to_a_resolution():
    """What rounds to a candidate counts for it, what lies beyond all of them for none; without a resolution equality is exact."""
    votes = [0.1 + 0.2] * 30 + [0.3] * 10 + [0.7] * 35 + [9.0] * 90 + [-9.0] * 90
    options = {"candidates": (0.3, 0.7, 0.9), "epsilon": 20.0, "neighbors": "swap", "draws": 50}
    assert set(release.mode(votes, **options, resolution=0.1).values) == {0.3}
    assert set(release.mode(votes, **options).values) == {0.7}
    assert set(release.mode([float("nan")] * 9 + [0.74] * 40, **options, resolution="0.1").values) == {0.7}
    with pytest.raises(ValueError, match="multiples of the resolution"):
        release.mode(votes, **options, resolution=0.2)
