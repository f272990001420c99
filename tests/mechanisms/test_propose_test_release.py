"""Propose-test-release: the exact hockey-stick divergence with its atom, over all datasets on a
grid; controls; draws.
"""

from dataclasses import replace

import jax
import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.stats import laplace

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
    proposals = np.array([3.9, 4.0, 5.0, 5.9, 19.0, 20.0, 50.0])

    @jax.jit
    def known_of(x):
        local = local_sensitivity(x, **given)
        found = propose_test_release(local, 1.0, delta=0.1, proposal=proposals)
        error = found.mean_abs_error(5.0)
        return local.at_distance, found.test.edges[:, 0], found.answer_probability(), error

    at_distance, distance, answered, error = known_of(np.array([1.0, 5.0, 6.0]))
    assert_allclose(at_distance, [4.0, 5.0, 6.0, 20.0])
    assert_allclose(distance, [0, 1, 2, 2, 3, 4, 4])
    assert_allclose(answered[0], 0.1, rtol=1e-12)
    # The answer's noise is for the proposal and the other half of epsilon
    assert_allclose(error, proposals / 0.5)


def test_draws_have_the_exact_probability_of_an_answer_and_its_distribution():
    """Rows that differ in delta only have draws of their own."""
    known = {"lower": 0, "upper": 1, "neighbors": "add_remove"}
    delta = np.array([0.05, 0.03], np.float32)

    @jax.jit
    def drawn(x, key):
        local = local_sensitivity(x, **known)
        found = propose_test_release(local, 2.0, delta=delta, proposal=0.15)
        return found.sample(key, (5_000,)), found.answer_probability(), local.value

    x = np.linspace(0, 1, 12, dtype=np.float32)
    draws, probabilities, value = (np.asarray(part) for part in drawn(x, jax.random.key(0)))
    answered = ~np.isnan(draws)
    for row, p in enumerate(probabilities.astype(float)):
        counts = [answered[:, row].sum(), (~answered[:, row]).sum()]
        assert_counts_follow(counts, [p, 1 - p])
        assert_counts_rejected(counts, [0.85 * p, 1 - 0.85 * p])
        assert_follows(draws[answered[:, row], row], laplace(value, 0.15).cdf)
    answers = draws[answered]
    assert np.unique(answers).size > 0.99 * answers.size
