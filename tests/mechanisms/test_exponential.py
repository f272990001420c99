"""The exponential mechanism over candidates: its distribution, the race that draws from it, its
privacy on every small dataset.
"""

from dataclasses import replace
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from dpjax import exponential, mode, permute_and_flip
from dpjax.statistics import candidate_counts
from tests.support import oracle, statistics
from tests.support.audit import Audit, neighboring_rows, padded

CANDIDATES = (0.0, 1.0, 4.0)
GRID = (*CANDIDATES, 9.0)
DATASETS = {
    "add_remove": oracle.all_datasets(range(6), GRID),
    "swap": oracle.all_datasets([4, 5], GRID),
}
EPSILONS = np.array([0.5, 3.0])
KINDS = ("mode", "counts")
FACTORS = {"right": 1.0, "half": 0.5, "a tenth less": 1 / 1.1}  # of the sensitivity


@cache
def audits(mechanism, neighbors):
    """The largest log-ratio and range over all neighbors, of each epsilon, by statistic and by the
    sensitivity that is claimed: all of them in one program.
    """
    x, count = padded(DATASETS[neighbors], 5)
    asked = {"candidates": CANDIDATES, "neighbors": neighbors}

    @jax.jit
    def log_probabilities(x, count):
        scores = [
            statistic(x, num_records=count, **asked) for statistic in (mode, candidate_counts)
        ]
        claimed = [
            replace(one, sensitivity=factor * one.sensitivity)
            for one in scores
            for factor in FACTORS.values()
        ]
        return [mechanism(one, EPSILONS[:, None]).log_probabilities() for one in claimed]

    logs = np.array(log_probabilities(x, count))
    first, second = neighboring_rows(tuple(DATASETS[neighbors]), neighbors, GRID)
    ratio = logs[:, :, first] - logs[:, :, second]
    loss, spread = np.abs(ratio).max(axis=(2, 3)), np.ptp(ratio, axis=-1).max(axis=2)
    names = [(kind, factor) for kind in KINDS for factor in FACTORS]
    return {name: Audit(*found) for name, *found in zip(names, loss, spread, strict=True)}


@pytest.mark.parametrize("neighbors", DATASETS)
@pytest.mark.parametrize("kind", KINDS)
def test_private_and_attains_the_range(kind, neighbors, x64):
    found = audits(exponential, neighbors)[kind, "right"]
    assert (found.loss <= EPSILONS * (1 + 1e-9)).all(), found
    assert_allclose(found.range, EPSILONS, rtol=1e-9)


@pytest.mark.parametrize("neighbors", DATASETS)
@pytest.mark.parametrize("kind", KINDS)
def test_control_a_sensitivity_that_is_too_small(kind, neighbors, x64):
    """Half of it is that of counts under add/remove, where records are swapped."""
    half = audits(exponential, neighbors)[kind, "half"]
    assert (half.range >= 1.9 * EPSILONS).all()
    assert (half.loss >= 1.1 * EPSILONS).all()
    less = audits(exponential, neighbors)[kind, "a tenth less"]
    assert_allclose(less.range, 1.1 * EPSILONS, rtol=1e-9)


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
    assert_array_equal(found.values, [0, 1, 4, 9, 16])


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
