"""The choice by integer scores: its distribution, clamping, exact draws, and what it refuses."""

from fractions import Fraction

import numpy as np
import pytest

from dpjax import release
from dpjax.release import draw, release_choice
from dpjax.release import exact_flip as permute_and_flip
from dpjax.release.api import choice_between
from tests.support.exact_draws import EXTREME, given, more
from tests.support.statistics import assert_counts_follow, assert_counts_rejected


def test_draws_follow_the_exponential_mechanism():
    scores = np.array([[5, 9, 900, -4, 7], [0, 0, 0, 0, 0]], np.int16)
    common = {"epsilon": 1.2, "lower": 0, "upper": 10, "neighbors": "swap"}
    for sensitivity, rate in ((2, 0.3), (Fraction(3, 4), 0.8)):
        found = release_choice(scores, sensitivity=sensitivity, draws=20_000, **common)
        for row, inside in enumerate(np.clip(scores, 0, 10)):
            weights = np.exp(rate * inside)
            assert_counts_follow(
                np.bincount(found.multiples[:, row], minlength=5), weights / weights.sum()
            )
        sharper = np.exp(1.3 * rate * np.clip(scores[0], 0, 10))
        assert_counts_rejected(
            np.bincount(found.multiples[:, 0], minlength=5), sharper / sharper.sum()
        )
    np.testing.assert_array_equal(found.values, found.multiples)
    assert (found.resolution, found.draws, found.guarantee.neighbors) == (None, 20_000, "swap")
    assert Fraction(found.guarantee.epsilon) >= Fraction(1.2) * 20_000


@pytest.mark.parametrize("mechanism", ["exponential", "permute_and_flip"])
def test_many_candidates_and_large_differences_are_drawn_exactly(mechanism):
    """Costs far beyond those with a weight in floats, and no certainty at all: the same draws."""
    rng = np.random.default_rng(0)
    scores = rng.integers(0, 5000, (8, 13))
    scores[:4] = rng.integers(4990, 5000, (4, 13))
    found = choice_between(scores, 0.3, Fraction(1, 2), 0, 5000, mechanism)
    if mechanism == "exponential":
        words = rng.integers(0, 2**64, (2, 3, 8), np.uint64)
        words[0] = np.where(rng.random((3, 8)) < 0.5, rng.choice(EXTREME, (3, 8)), words[0])
        fast, exact = (
            draw.positions(found, 3, given(words), more, margin=margin)
            for margin in (draw.MARGIN, 2**61)
        )
    else:
        words = (
            rng.integers(0, 2**64, (3, 104), np.uint64),
            rng.integers(0, 2**64, (3, 8), np.uint64),
        )
        fast, exact = (
            permute_and_flip.positions(found, 3, given(*words), more, widened=by)
            for by in (2.0**-36, 2.0)
        )
    np.testing.assert_array_equal(fast, exact)
    assert len(np.unique(fast)) > 5


def test_scores_of_every_dtype_are_clamped():
    def clamped(scores, lower, upper):
        """By how much each score is below the largest one."""
        found = choice_between(scores, 2.0, 1, lower, upper, "exponential")
        logs = found.log_pmf(np.arange(len(scores)))
        return (logs.max() - logs).tolist()

    for dtype in (np.int8, np.uint8, np.int32, np.uint64, np.int64):
        scores = np.array([3, 100, 7], dtype)
        assert clamped(scores, 5, 1000) == pytest.approx([95, 0, 93])
        assert clamped(scores, -1000, 4) == pytest.approx([1, 0, 0])
    top = np.array([2**64 - 1, 0, 2**63], np.uint64)
    assert clamped(top, 2**63, 2**63 + 9) == pytest.approx([0, 9, 9])
    assert clamped([-(2**61), 2**61], -(2**61), 2**61) == pytest.approx([2**62, 0])
    ends = np.array([-(2**63), 2**63 - 1])
    assert clamped(ends, -(2**63), 5 - 2**63) == pytest.approx([5, 0])
    assert clamped([-(10**30), 2, 10**30], 0, 4) == pytest.approx([4, 2, 0])
    narrow = np.array([-120, 100], np.int8)
    assert clamped(narrow, -(10**30), 3 - 10**30) == [0, 0]


def test_records_are_rounded_to_a_resolution():
    """What rounds to a candidate counts for it, what lies beyond all of them for none; without a
    resolution equality is exact.
    """
    votes = [0.1 + 0.2] * 30 + [0.3] * 10 + [0.7] * 35 + [9.0] * 90 + [-9.0] * 90
    options = {"candidates": (0.3, 0.7, 0.9), "epsilon": 20.0, "neighbors": "swap", "draws": 50}
    assert set(release.mode(votes, **options, resolution=0.1).values) == {0.3}
    assert set(release.mode(votes, **options).values) == {0.7}
    assert set(
        release.mode([float("nan")] * 9 + [0.74] * 40, **options, resolution="0.1").values
    ) == {0.7}
    with pytest.raises(ValueError, match="multiples of the resolution"):
        release.mode(votes, **options, resolution=0.2)
