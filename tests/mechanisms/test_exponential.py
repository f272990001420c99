"""The exponential mechanism over candidates: its distribution, and the race that draws from it."""

import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from dpjax import exponential, permute_and_flip
from tests.support import statistics

SCORES = np.array([0.0, -1.0, -np.inf, 0.5, -8.0])


def test_probabilities_are_the_exponentials_of_scores(x64):
    """Rows of scores, sensitivities and a sweep of epsilon; a score of -inf excludes."""
    epsilon, sensitivity = np.array([0.1, 40.0])[:, None], np.array([1.0, 0.5, 3.0])
    scores = SCORES * np.array([[1.0], [7.0], [-0.0 + 2.0]]) + np.array([[0.0], [100.0], [-9.0]])
    found = exponential(scores, epsilon, sensitivity=sensitivity, candidates=np.arange(5.0) ** 2)
    weights = np.exp(
        epsilon[..., None] * (scores - scores.max(-1, keepdims=True)) / 2 / sensitivity[:, None]
    )
    expected = weights / weights.sum(-1, keepdims=True)
    assert_allclose(found.probabilities(), expected, rtol=1e-12)
    assert_array_equal(found.values, [[[0, 1, 4, 9, 16]]])


def test_the_race_of_duff_follows_the_probabilities(x64):
    """Algorithm 1 of Gillenwater and Munoz Medina: the least of log(log(1/U)) - log-weight."""
    uniforms = np.random.default_rng(5).uniform(size=(40_000, 5))
    race = np.argmin(np.log(np.log(1 / uniforms)) - SCORES, axis=-1)
    counts = np.bincount(race, minlength=5)
    exact, slower = exponential(SCORES, [1.0, 0.9], sensitivity=0.5).probabilities()
    statistics.assert_counts_follow(counts, exact)
    statistics.assert_counts_rejected(counts, slower)


@pytest.mark.parametrize("mechanism", [exponential, permute_and_flip])
def test_a_huge_epsilon_over_a_small_sensitivity_chooses_the_best(mechanism):
    distribution = mechanism(jnp.array([0.0, 5.0, 5.0, 2.0]) + 1000, 3e38, sensitivity=1e-3)
    assert_array_equal(distribution.probabilities(), [0.0, 0.5, 0.5, 0.0])


def test_only_distances_of_scores_are_rounded():
    """Of integers that float32 does not have."""
    near, far = np.array([2, 3]), np.array([2**25 + 2, 2**25 + 3])
    for select in (exponential, permute_and_flip):
        wanted, found, rounded = (
            select(scores, 1.0, sensitivity=1.0).cost for scores in (near, far, jnp.float32(far))
        )
        assert_array_equal(found - found.min(), wanted - wanted.min())
        assert abs((rounded - rounded.min()) - (wanted - wanted.min())).max() > 0.1  # the control
