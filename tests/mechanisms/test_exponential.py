"""The exponential mechanism over candidates: its distribution, two races that draw from it, its
privacy on every small dataset.
"""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpjax.accounting.guarantee import Guarantee
from dpjax.distributions.fixed_point_choice import gumbel_max
from dpjax.mechanisms import exponential, permute_and_flip
from dpjax.random import gumbel_from_uniform, uniform
from dpjax.sensitivity.scores import CandidateScores
from dpjax.statistics import candidate_counts, mode
from tests.support import oracle, statistics
from tests.support.audit import Audit, padded

CANDIDATES = (0.0, 1.0, 4.0)
GRID = (*CANDIDATES, 9.0)
DATASETS = {
    "add_remove": oracle.all_datasets(range(6), GRID),
    "swap": oracle.all_datasets([4, 5], GRID),
}
EPSILONS = np.array([0.5, 3.0])


def mode_scores(neighbors, datasets=None):
    x, count = padded(DATASETS[neighbors] if datasets is None else datasets, 5)
    return mode(jnp.asarray(x), candidates=CANDIDATES, neighbors=neighbors, num_records=count)


def count_scores(neighbors, datasets=None):
    x, count = padded(DATASETS[neighbors] if datasets is None else datasets, 5)
    return candidate_counts(
        jnp.asarray(x), candidates=CANDIDATES, neighbors=neighbors, num_records=count
    )


def audit(log_probabilities, datasets, neighbors):
    """The largest log-ratio over all neighbors, and the largest range of them, for each leading
    index.
    """
    index = {data: row for row, data in enumerate(datasets)}
    pairs = [
        (index[d], index[o])
        for d in datasets
        for o in oracle.neighbors_of(d, neighbors, GRID)
        if o in index
    ]
    first, second = np.array(pairs).T
    ratio = np.asarray(log_probabilities)[:, first] - np.asarray(log_probabilities)[:, second]
    spread = np.maximum(ratio.max(axis=-1), 0) + np.maximum(-ratio.min(axis=-1), 0)
    return Audit(np.abs(ratio).max(axis=(1, 2)), spread.max(axis=-1))


def audit_of(scores, neighbors):
    return audit(
        exponential(scores, EPSILONS[:, None]).log_probabilities(), DATASETS[neighbors], neighbors
    )


@pytest.mark.slow
def test_distances_from_the_mode_are_private(x64):
    for neighbors in DATASETS:
        found = audit_of(mode_scores(neighbors), neighbors)
        assert (found.loss <= EPSILONS * (1 + 1e-9)).all(), found
        np.testing.assert_allclose(found.range, EPSILONS, rtol=1e-9)


def test_counts_are_private_and_attain_the_range(x64):
    for neighbors in DATASETS:
        found = audit_of(count_scores(neighbors), neighbors)
        assert (found.loss <= EPSILONS * (1 + 1e-9)).all(), found
        np.testing.assert_allclose(found.range, EPSILONS, rtol=1e-9)


def test_control_mistakes_about_the_sensitivity_are_caught(x64):
    half = replace(mode_scores("swap"), sensitivity=jnp.asarray(0.5))
    found = audit_of(half, "swap")
    assert (found.range >= 1.9 * EPSILONS).all()
    assert (found.loss >= 1.1 * EPSILONS).all()
    # Counts with the sensitivity of add/remove, under swap.
    wrong = count_scores("add_remove", DATASETS["swap"])
    found = audit_of(wrong, "swap")
    assert (found.range >= 1.9 * EPSILONS).all()
    assert (found.loss >= 1.1 * EPSILONS).all()
    # And epsilon off by a tenth.
    faster = replace(mode_scores("swap"), sensitivity=jnp.asarray(1 / 1.1))
    np.testing.assert_allclose(audit_of(faster, "swap").range, 1.1 * EPSILONS, rtol=1e-9)


@pytest.mark.parametrize("dtype", [pytest.param("float32", marks=pytest.mark.slow), "float64"])
def test_duffs_race_and_gumbel_max_choose_the_same_from_the_same_uniforms(dtype, x64):
    """Algorithm 1 of Gillenwater and Munoz Medina against the library's Gumbel-max; both against
    the exact probabilities.
    """
    draws, rate = 40_000, 1.0
    scores = np.array([0.0, -1.0, -3.0, 0.5, -8.0], dtype)
    # The widths of the paper's A_k
    log_weights = np.log(np.array([1.0, 3.0, 0.5, 2.0, 40.0], dtype)) + rate * scores
    distribution = exponential(scores, 2 * rate, sensitivity=1.0)

    @jax.jit
    def races(key):
        pair = uniform(key, (draws * 5,), dtype)
        gumbels = gumbel_from_uniform(pair).reshape(draws, 5)
        race = jnp.log(jnp.log(1 / pair.value)).reshape(draws, 5) - log_weights[None]
        return (
            gumbel_max(log_weights[None], gumbels),
            jnp.argmin(race, axis=-1),
            gumbel_max(scores[None], gumbels),
        )

    by_gumbel, by_race, plain = (np.asarray(index) for index in races(jax.random.key(5)))
    # In float32 log(1/U) of a U near 1 is rounded; where it decides, and only there, the two
    # differ.
    assert np.mean(by_gumbel != by_race) <= (0.0 if dtype == "float64" else 1e-4)
    weights = np.exp(np.asarray(log_weights, np.float64))
    for index in (by_gumbel, by_race):
        statistics.assert_counts_follow(np.bincount(index, minlength=5), weights / weights.sum())
        statistics.assert_counts_rejected(
            np.bincount(index, minlength=5), distribution.probabilities()
        )
    statistics.assert_counts_follow(np.bincount(plain, minlength=5), distribution.probabilities())


@pytest.mark.slow
def test_forms_of_scores_and_excluded_candidates():
    scores = CandidateScores(
        jnp.array([[1.0, 3.0, -jnp.inf]] * 2), jnp.array([5.0, 6.0, 7.0]), neighbors="swap"
    )
    distribution = exponential(scores, jnp.array([1.0, 2.0])[:, None])
    assert distribution.batch_shape == (2, 2)
    np.testing.assert_allclose(
        distribution.prob(6.0) / distribution.prob(5.0), [[np.e] * 2, [np.e**2] * 2], rtol=1e-6
    )
    assert (distribution.prob(7.0) == 0).all()
    same = exponential(scores.scores, 1.0, candidates=[5, 6, 7], sensitivity=1)
    np.testing.assert_array_equal(same.probabilities(), distribution.probabilities()[0])
    per_row = exponential(scores.scores[0], 1.0, sensitivity=np.array([1.0, 2.0]))
    np.testing.assert_allclose(
        per_row.prob(1.0) / per_row.prob(0.0), [np.e, np.exp(0.5)], rtol=1e-6
    )
    bad = exponential(
        jnp.array([[1.0, jnp.nan], [1.0, jnp.inf], [-jnp.inf, -jnp.inf], [0.0, 0.0]]),
        1.0,
        sensitivity=1.0,
    )
    assert np.isnan(bad.mean()).tolist() == [True, True, True, False]
    assert np.isnan(exponential(scores, jnp.float32(-1.0)).mean()).all()


def test_errors_and_guarantee():
    scores = CandidateScores(jnp.zeros(2), jnp.zeros(2), neighbors="swap")
    for options in ({"sensitivity": 1.0}, {"candidates": [1, 2]}):
        with pytest.raises(ValueError, match="carry their"):
            exponential(scores, 1.0, **options)
    with pytest.raises(ValueError, match="needs sensitivity="):
        exponential(jnp.zeros(2), 1.0)
    with pytest.raises(ValueError, match="epsilon"):
        exponential(scores, 0.0)
    with pytest.raises(ValueError, match="sensitivity"):
        exponential(replace(scores, sensitivity=-1.0), 1.0)
    with pytest.raises(ValueError, match="same last axis"):
        exponential(jnp.zeros(2), 1.0, sensitivity=1.0, candidates=[1, 2, 3])
    with pytest.raises(ValueError, match="at least one"):
        exponential(jnp.zeros((2, 0)), 1.0, sensitivity=1.0)
    assert exponential.guarantee(scores, 0.5) == Guarantee(0.5, 0.5, "swap")
    assert exponential.guarantee("edge", 0.5) == Guarantee(0.5, 0.5, "edge")
    with pytest.raises(TypeError, match="name of the relation"):
        exponential.guarantee(jnp.zeros(2), 0.5)


@pytest.mark.parametrize("mechanism", [exponential, permute_and_flip])
def test_a_huge_epsilon_over_a_small_sensitivity_chooses_the_best(mechanism):
    distribution = mechanism(jnp.array([0.0, 5.0, 5.0, 2.0]) + 1000, 3e38, sensitivity=1e-3)
    np.testing.assert_array_equal(distribution.probabilities(), [0.0, 0.5, 0.5, 0.0])
