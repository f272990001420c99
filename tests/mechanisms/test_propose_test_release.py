"""Propose-test-release: the exact hockey-stick divergence with its atom, over all datasets on a
grid; controls; draws.
"""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpjax.mechanisms import ProposeTestRelease, propose_test_release
from dpjax.statistics import local_sensitivity
from tests.mechanisms.test_smooth_noise import GRID, NEIGHBORS, local_of, pairs_of
from tests.support.hockey_stick import hockey_stick
from tests.support.statistics import assert_counts_follow, assert_counts_rejected, assert_follows

DELTA = 0.01


def exact_delta(distribution, pairs, epsilon):
    first, second = pairs
    answer, none = (
        np.asarray(p, np.float64)
        for p in (distribution.answer_probability(), distribution.no_answer_probability())
    )
    np.testing.assert_allclose(answer + none, 1.0, rtol=1e-12)
    atom = np.maximum(none[first] - np.exp(epsilon) * none[second], 0.0)
    return float(np.max(atom + hockey_stick(distribution.answer, pairs, epsilon, np.log(answer))))


@pytest.mark.parametrize("neighbors", NEIGHBORS)
def test_private_with_the_atom_and_tight(neighbors, x64):
    local, pairs = local_of(neighbors), pairs_of(neighbors)
    for epsilon in (0.5, 2.0):
        worst = 0.0
        for proposal in (0.5, 2.0, 9.0, 25.0):
            for share in (0.3, 0.7):
                distribution = propose_test_release(
                    local, epsilon, delta=DELTA, proposal=proposal, test_share=share
                )
                found = exact_delta(distribution, pairs, epsilon)
                assert found <= DELTA * (1 + 1e-9)
                worst = max(worst, found)
        assert worst >= 0.9 * DELTA


@pytest.mark.parametrize("neighbors", NEIGHBORS)
def test_controls_are_caught(neighbors, x64):
    local, pairs = local_of(neighbors), pairs_of(neighbors)
    distribution = propose_test_release(local, 1.0, delta=DELTA, proposal=0.5)
    farther = replace(
        distribution, test=replace(distribution.test, edges=distribution.test.edges + 1)
    )
    assert exact_delta(farther, pairs, 1.0) > 1.2 * DELTA
    # Too little noise shows where some neighbors are on either side of the threshold, and answers
    # are likely.
    wide = propose_test_release(local, 3.0, delta=DELTA, proposal=14.5)
    certain = replace(wide, test=replace(wide.test, rate=100 * wide.test.rate))
    narrow = replace(wide, answer=replace(wide.answer, rate=20 * wide.answer.rate))
    assert exact_delta(wide, pairs, 3.0) <= DELTA
    for control in (certain, narrow):
        assert exact_delta(control, pairs, 3.0) > 1.2 * DELTA


@pytest.mark.slow
def test_the_distance_counts_changes_to_the_first_larger_local_sensitivity(x64):
    local = local_sensitivity(
        np.array([1.0, 5.0, 6.0]), lower=0, upper=20, neighbors="add_remove", definition="lower"
    )
    np.testing.assert_allclose(local.at_distance, [4.0, 5.0, 6.0, 20.0])
    for proposal, distance in (
        (3.9, 0),
        (4.0, 1),
        (5.0, 2),
        (5.9, 2),
        (19.0, 3),
        (20.0, 4),
        (50.0, 4),
    ):
        distribution = propose_test_release(local, 1.0, delta=0.1, proposal=proposal)
        np.testing.assert_allclose(distribution.test.edges, [distance])
    distribution = propose_test_release(local, 1.0, delta=0.1, proposal=3.0)
    np.testing.assert_allclose(distribution.answer_probability(), 0.1, rtol=1e-12)
    np.testing.assert_allclose(distribution.mean_abs_error(5.0), 6.0)


@pytest.mark.slow
def test_draws_have_the_exact_probability_of_an_answer_and_its_distribution():
    local = local_sensitivity(np.linspace(0, 1, 12), lower=0, upper=1, neighbors="add_remove")
    distribution = propose_test_release(local, 2.0, delta=0.05, proposal=0.15)
    draws = np.asarray(distribution.sample(jax.random.key(0), (20_000,)))
    answered = ~np.isnan(draws)
    p = float(distribution.answer_probability())
    assert 0.2 < p < 0.9
    counts = [np.sum(answered), np.sum(~answered)]
    assert_counts_follow(counts, [p, 1 - p])
    assert_counts_rejected(counts, [0.9 * p, 1 - 0.9 * p])
    assert_follows(draws[answered], distribution.answer.cdf)


@pytest.mark.slow
def test_shapes_broadcast_and_parameters_are_checked():
    local = local_of("swap")
    distribution = propose_test_release(
        local, jnp.array([0.5, -1.0])[:, None], delta=1e-3, proposal=2.0
    )
    rows = local.value.shape[0]
    assert distribution.batch_shape == (2, rows)
    assert distribution.sample(jax.random.key(0), (3,)).shape == (3, 2, rows)
    assert (
        distribution.mean_abs_error(0.0).shape
        == distribution.no_answer_probability().shape
        == (2, rows)
    )
    np.testing.assert_array_equal(
        np.isnan(distribution.no_answer_probability()[:, 0]), [False, True]
    )
    assert isinstance(
        jax.jit(lambda e: propose_test_release(local, e, delta=1e-3, proposal=2.0))(1.0),
        ProposeTestRelease,
    )
    for bad in ({"delta": 0.5}, {"delta": 0.0}, {"proposal": 0.0}, {"test_share": 1.0}):
        with pytest.raises(ValueError, match=next(iter(bad))):
            propose_test_release(local, 1.0, **{"delta": 1e-3, "proposal": 1.0, **bad})
    assert GRID[-1] == float(local.upper)


def test_rows_that_differ_in_delta_only_have_draws_of_their_own():
    local = local_sensitivity(
        np.linspace(0, 1, 101), lower=0, upper=1, neighbors="add_remove", definition="lower"
    )
    distribution = propose_test_release(
        local, 2.0, delta=np.array([1e-3, 1e-4, 1e-5]), proposal=0.3
    )
    draws = np.asarray(distribution.sample(jax.random.key(0), (50,)))
    answers = draws[~np.isnan(draws)]
    assert answers.size > 100
    assert np.unique(answers).size == answers.size
