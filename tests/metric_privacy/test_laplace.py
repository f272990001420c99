"""Noisy answers: the exact privacy loss of every move over all small histograms, exact and refused
answers, the sampler.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpjax.metric_privacy import LaplaceAnswers, from_budgets, metric_laplace
from tests.support.histograms import histograms, moves
from tests.support.statistics import assert_follows, assert_rejected

BUDGETS = np.array([[0, 1, 2, 3], [1, 0, 1.5, 2], [2, 1.5, 0, 0.5], [3, 2, 0.5, 0]], float)
QUERIES = np.array([[0.0, 1.0, 0.3, 0.2], [1.0, 0.1, 0.1, 0.4]])
ROWS = np.concatenate([histograms(4, n) for n in (1, 2)])
SCALES = np.array([0.98, 1.0])  # of the control, and of the mechanism


@jax.jit
def joint_logs(rows, metric):
    """The answers, and log-densities of noise that is 2 % too small and as it should be."""
    found = metric_laplace(rows, QUERIES + 1, metric, strategy="common")
    values = jnp.concatenate([found.values.ravel(), jnp.array([-50.0, 90.0])])
    scales = found.scales * SCALES[:, None, None]
    return found.scales, LaplaceAnswers(found.values, scales).log_prob(values[:, None, None, None])


def losses(metric):
    """The largest log-ratio of the joint density for every ordered pair of rows: a sum over queries
    of suprema over y.

    A Laplace density has a linear logarithm between and beyond the values of all rows: a ratio is
    largest at one or far out.
    """
    scales, logs = (np.asarray(part) for part in joint_logs(ROWS, metric))
    return scales, (logs[:, :, :, None] - logs[:, :, None]).max(0).sum(-1)


def test_the_exact_loss_of_every_move_is_within_its_budget(x64):
    a, b, i, j = moves(ROWS)
    assert a.size == 60
    scales, found = losses(from_budgets(BUDGETS))
    formula = (np.abs(QUERIES[:, i] - QUERIES[:, j]) / scales[:, None]).sum(0)
    np.testing.assert_allclose(found[1, a, b], formula, rtol=1e-9)
    ratio = found[:, a, b] / BUDGETS[i, j]
    assert ratio[1].max() == pytest.approx(1, abs=1e-9)
    assert ratio[0].max() > 1.02  # the audit sees noise that is 2 % too small


def test_with_the_null_record_a_record_more_is_within_its_budget_too(x64):
    hidden, public = (
        losses(metric)[1][1]
        for metric in (from_budgets(BUDGETS).with_absence(0.8), from_budgets(BUDGETS))
    )
    a, b, i, j = moves(ROWS)
    assert (hidden[a, b] / BUDGETS[i, j]).max() <= 1 + 1e-9
    more = np.abs(ROWS[:, None] - ROWS).sum(-1) == 1
    assert hidden[more].max() <= 0.8 * (1 + 1e-9)
    # A metric without the null record promises nothing about n
    assert public[more].max() > 0.9


def laplace_cdf(z):
    return np.where(z < 0, np.exp(-np.abs(z)) / 2, 1 - np.exp(-np.abs(z)) / 2)


def test_draws_and_no_draw_is_silently_without_noise():
    values = np.array([3.0, 3.0, 3.0, 1e5, 5e7, 5e7, 5e7], np.float32)
    scales = np.array([0.0, 2.0, np.inf, 0.2, 0.2, 8.0, 0.0], np.float32)
    answers = LaplaceAnswers(jnp.asarray(values), jnp.asarray(scales))
    draws = np.asarray(jax.jit(lambda d: d.sample(jax.random.key(1), (20_000,)))(answers))
    exact, noisy, refused, fine, lost, coarse, large = draws.T
    assert (exact == 3).all()
    assert (large == 5e7).all()
    assert np.isnan(refused).all()
    assert np.isnan(lost).all()
    assert_follows((noisy - 3) / 2, laplace_cdf)
    assert_rejected((noisy - 3) / 2 * 1.2, laplace_cdf)
    assert np.unique(fine).size > 50  # steps of 1/128
    assert np.unique(coarse).size > 5  # steps of 4
    added = np.float32(5e7) + 0.2 * np.random.default_rng(0).laplace(size=200).astype(np.float32)
    assert np.unique(added).size == 1  # control: floats that are just added up


HALF = np.exp(-0.25) / 2
METHODS = {  # their arguments, and what they are for a scale of 0 and one of 2 around 3
    "cdf": ([2.5], [0.0, HALF]),
    "survival": ([2.5], [1.0, 1 - HALF]),
    "log_prob": ([3.0], [np.inf, -np.log(4)]),
    "prob": ([2.0], [0.0, np.exp(-0.5) / 4]),
    "variance": ([], [0.0, 8.0]),
    "stddev": ([], [0.0, 8**0.5]),
    "mean": ([], [3.0, 3.0]),
    "mean_abs_error": ([4.0], [1.0, 1 + 2 * np.exp(-0.5)]),
    "mean_squared_error": ([4.0], [1.0, 9.0]),
    "interval": ([0.5], [[3.0, 3 - 2 * np.log(2)], [3.0, 3 + 2 * np.log(2)]]),
    "quantile": ([np.array([[0.5], [2.0]])], [[3.0, 3.0], [np.nan, np.nan]]),
}


def test_every_method_of_exact_noisy_and_refused_answers():
    answers = LaplaceAnswers(jnp.array([3.0, 3.0, 3.0]), jnp.array([0.0, 2.0, jnp.inf]))
    calls = {name: arguments for name, (arguments, _) in METHODS.items()}
    found = jax.jit(lambda d: {name: getattr(d, name)(*calls[name]) for name in calls})(answers)
    for name, (_, expected) in METHODS.items():
        method = np.asarray(found[name])
        np.testing.assert_allclose(method[..., :2], expected, rtol=1e-5, err_msg=name)
        assert np.isnan(method[..., 2]).all(), name  # no answer


@pytest.mark.slow
@pytest.mark.optimized
def test_a_record_that_moves_between_equal_values_changes_no_bit():
    """Answers without noise, where only some pairs are protected: one bit would be an infinite
    loss.
    """
    pairs = np.kron(np.eye(3), np.ones((2, 2))) == 1
    budgets = np.where(np.eye(6) == 1, 0.0, np.where(pairs, 1.0, np.inf))
    query = np.repeat(np.array([1e-9, 0.1, 7e8], np.float32), 2)[None]
    random = np.random.default_rng(0)
    x = random.integers(1, 10**6, size=(200, 6))
    either = np.where(random.integers(2, size=(200, 3)) == 0, 1, -1).repeat(2, axis=1)
    rows = np.stack([x, x + either * np.array([1, -1] * 3)])

    @jax.jit
    def answers(rows):
        return metric_laplace(rows, query, from_budgets(jnp.asarray(budgets)), strategy="common")

    found = answers(rows)
    assert (np.asarray(found.scales) == 0).all()
    for part in (np.asarray(found.values), np.asarray(found.rest)):
        np.testing.assert_array_equal(part[0], part[1])
    one, other = (rows.astype(np.float32) * query).sum(-1, dtype=np.float32)
    assert (one != other).any()  # control
