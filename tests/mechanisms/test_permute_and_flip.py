"""Permute and flip: its probabilities against fractions, the noisy maximum, and its range."""

import itertools
from fractions import Fraction
from math import factorial

import numpy as np
import pytest
from numpy.testing import assert_allclose

from dpjax import exponential, permute_and_flip
from tests.support.statistics import assert_counts_follow, assert_counts_rejected


def by_permutations(chances):
    """The definition: a random order, each candidate accepted with its chance, the first one wins.
    In fractions.
    """
    wins = [Fraction(0)] * len(chances)
    for order in itertools.permutations(range(len(chances))):
        rest = Fraction(1)
        for i in order:
            wins[i] += rest * chances[i]
            rest *= 1 - chances[i]
    return [win / factorial(len(chances)) for win in wins]


def test_probabilities_against_the_sum_over_permutations(x64):
    rows = [
        [(1, 1), (1, 2), (3, 4), (1, 8), (1, 1000), (1, 1)],
        [(1, 1)] * 6,
        [(1, 1), (1, 10**6), (1, 10**6), (1, 10**9), (999, 1000), (99, 100)],
        [(1, 3), (1, 1), (0, 1), (2, 3), (0, 1), (0, 1)],  # three excluded
    ]
    chances = [[Fraction(*q) for q in row] for row in rows]
    with np.errstate(divide="ignore"):
        scores = 2 * np.log(np.array(chances, np.float64))  # exp(score / 2) is the chance
    wanted = np.array([by_permutations(row) for row in chances], np.float64)
    for dtype, rtol in (("float64", 1e-13), ("float32", 2e-6)):
        distribution = permute_and_flip((scores + 7).astype(dtype), 1.0, sensitivity=1.0)
        assert_allclose(distribution.probabilities(), wanted, rtol=rtol)
    # Control: the race without permutation (softmax) is another distribution.
    assert np.abs(exponential(scores, 1.0, sensitivity=1.0).probabilities() - wanted).max() > 0.03


@pytest.mark.parametrize("k", [33, 700])
def test_probabilities_of_many_candidates_add_up(k, x64):
    """Fewer nodes than k/2; 10^-10 in float64 is what is promised, 10^-11 what is measured."""
    spreads = np.array([0.0, 0.01, 1.0, 5.0, 50.0])[:, None]
    scores = np.round(np.random.default_rng(k).normal(size=(5, k)) * spreads, 2)
    for dtype, rtol in (("float64", 1e-11), ("float32", 1e-4)):
        cost = permute_and_flip(scores.astype(dtype), 1.0, sensitivity=1.0).cost
        sums = np.exp(-np.asarray(cost, np.float64)).sum(axis=-1)
        assert_allclose(sums, 1.0, rtol=rtol)


def test_the_noisy_maximum_has_these_probabilities(x64):
    scores = np.array([0.0, -1.0, -1.5, 0.5, -8.0, 0.5])
    noise = np.random.default_rng(7).exponential(2 * 0.5, (40_000, 6))
    counts = np.bincount(np.argmax(scores + noise, axis=-1), minlength=6)
    exact, slower = permute_and_flip(scores, [1.0, 0.9], sensitivity=0.5).probabilities()
    assert_counts_follow(counts, exact)
    for other in (slower, exponential(scores, 1.0, sensitivity=0.5).probabilities()):
        assert_counts_rejected(counts, other)


def test_the_range_of_two_candidates_is_above_epsilon(x64):
    """2 log(2 exp(epsilon/2) - 1), near 2 epsilon for a small one: the docstring names it."""
    epsilon, scores = np.array([0.1, 1.0, 4.0]), np.array([[0.5, -0.5], [-0.5, 0.5]])
    distribution = permute_and_flip(scores, epsilon[:, None], sensitivity=1.0)
    one, other = np.moveaxis(np.asarray(distribution.log_probabilities()), 1, 0)
    spread = np.ptp(one - other, axis=-1)
    assert_allclose(spread, 2 * np.log(2 * np.exp(epsilon / 2) - 1), rtol=1e-12)
    assert (spread > epsilon * 1.1).all()
