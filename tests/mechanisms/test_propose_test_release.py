"""Propose-test-release: the exact hockey-stick divergence with its atom, over all datasets on a
grid; controls; draws.
"""

from dataclasses import replace

import jax
import numpy as np
import pytest
from numpy.testing import assert_allclose

from dpjax import local_sensitivity, propose_test_release
from tests.mechanisms.test_smooth_noise import DATASETS, local_of, pairs_of
from tests.support.hockey_stick import hockey_stick
from tests.support.statistics import assert_counts_follow, assert_counts_rejected, assert_follows

DELTA = 0.01


@jax.jit
def released(local, epsilon, delta, proposal, share=0.5):
    return propose_test_release(local, epsilon, delta=delta, proposal=proposal, test_share=share)


@jax.jit
def answer_probabilities(distribution):
    return distribution.answer_probability(), distribution.no_answer_probability()


def exact_delta(distribution, pairs, epsilon):
    first, second = pairs
    answer, none = (np.asarray(p, np.float64) for p in answer_probabilities(distribution))
    assert_allclose(answer + none, 1.0, rtol=1e-12)
    atom = np.maximum(none[first] - np.exp(epsilon) * none[second], 0.0)
    return float(np.max(atom + hockey_stick(distribution.answer, pairs, epsilon, np.log(answer))))


@pytest.mark.parametrize("neighbors", DATASETS)
def test_private_with_the_atom_and_tight(neighbors, x64):
    local, pairs = local_of(neighbors), pairs_of(neighbors)
    for epsilon in (0.5, 2.0):
        found = [
            exact_delta(released(local, epsilon, DELTA, proposal, share), pairs, epsilon)
            for proposal, share in ((0.5, 0.3), (2.0, 0.7), (2.0, 0.3), (9.0, 0.7), (25.0, 0.3))
        ]
        assert 0.9 * DELTA <= max(found) <= DELTA * (1 + 1e-9)


@pytest.mark.parametrize("neighbors", DATASETS)
def test_controls_are_caught(neighbors, x64):
    local, pairs = local_of(neighbors), pairs_of(neighbors)
    right = released(local, 1.0, DELTA, 0.5)
    farther = replace(right, threshold=right.threshold - 1)
    assert exact_delta(farther, pairs, 1.0) > 1.2 * DELTA
    # Too little noise shows where some neighbors are on either side of the threshold, and answers
    # are likely.
    wide = released(local, 3.0, DELTA, 14.5)
    certain = replace(wide, test=replace(wide.test, rate=100 * np.asarray(wide.test.rate)))
    narrow = replace(wide, answer=replace(wide.answer, rate=20 * np.asarray(wide.answer.rate)))
    assert exact_delta(wide, pairs, 3.0) <= DELTA
    for control in (certain, narrow):
        assert exact_delta(control, pairs, 3.0) > 1.2 * DELTA


def test_the_distance_counts_changes_to_the_first_larger_local_sensitivity(x64):
    given = {"lower": 0, "upper": 20, "neighbors": "add_remove", "definition": "lower"}
    local = local_sensitivity(np.array([1.0, 5.0, 6.0]), **given)
    assert_allclose(local.at_distance, [4.0, 5.0, 6.0, 20.0])
    proposals = np.array([3.9, 4.0, 5.0, 5.9, 19.0, 20.0, 50.0])
    found = released(local, 1.0, 0.1, proposals)
    assert_allclose(found.test.edges[:, 0], [0, 1, 2, 2, 3, 4, 4])
    # The answer's noise is for the proposal and the other half of epsilon
    assert_allclose(answer_probabilities(found)[0][0], 0.1, rtol=1e-12)
    assert_allclose(found.mean_abs_error(5.0), proposals / 0.5)


def test_draws_have_the_exact_probability_of_an_answer_and_its_distribution():
    """Rows that differ in delta only have draws of their own."""
    local = local_sensitivity(np.linspace(0, 1, 12), lower=0, upper=1, neighbors="add_remove")
    delta = np.array([0.05, 0.04, 0.03], np.float32)
    distribution = released(local, 2.0, delta, 0.15)
    draws = np.asarray(distribution.sample(jax.random.key(0), (10_000,)))
    probabilities, _ = answer_probabilities(distribution)
    answered = ~np.isnan(draws)
    for row, p in enumerate(np.asarray(probabilities, np.float64)):
        counts = [answered[:, row].sum(), (~answered[:, row]).sum()]
        assert_counts_follow(counts, [p, 1 - p])
        assert_counts_rejected(counts, [0.85 * p, 1 - 0.85 * p])
        own = draws[answered[:, row], row]
        assert_follows(own, lambda y, row=row: distribution.answer.cdf(y[:, None])[:, row])
    answers = draws[answered]
    assert np.unique(answers).size > 0.99 * answers.size
