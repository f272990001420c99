"""Noisy answers and places: the exact privacy loss of every move over all small histograms, answers
without noise, remapping.
"""

import jax
import numpy as np
import pytest
from scipy.spatial.distance import cdist

from dpjax.metric_privacy import (
    from_budgets,
    metric_laplace,
    nearest_point,
    noise_scales,
    planar_laplace,
)
from tests.support.histograms import histograms, moves

BUDGETS = np.array([[0, 1, 2, 3], [1, 0, 1.5, 2], [2, 1.5, 0, 0.5], [3, 2, 0.5, 0]], float)
QUERIES = np.array([[1.0, 2.0, 1.3, 1.2], [2.0, 1.1, 1.1, 1.4]])
ROWS = np.concatenate([histograms(4, n) for n in (1, 2)])


@jax.jit
def log_prob(found, points):
    return found.log_prob(points)


def losses(metric, share=1.0):
    """The largest log-ratio of the joint density for every ordered pair of rows: a sum over queries
    of suprema over y, for a share of the noise.

    A Laplace density has a linear logarithm between and beyond the values of all rows: a ratio is
    largest at one or far out.
    """
    scales = noise_scales(QUERIES, metric, strategy="common")
    found = metric_laplace(ROWS, QUERIES, metric, scales=scales)
    points = np.concatenate([(ROWS @ QUERIES.T).ravel(), [-50.0, 90.0]])[:, None, None]
    log = np.asarray(log_prob(found, points)) / share
    return scales, (log[:, :, None] - log[:, None]).max(0).sum(-1)


def test_the_exact_loss_of_every_move_is_within_its_budget(x64):
    a, b, i, j = moves(ROWS)
    public = from_budgets(BUDGETS)
    scales, found = losses(public)
    formula = (np.abs(QUERIES[:, i] - QUERIES[:, j]) / scales[:, None]).sum(0)
    np.testing.assert_allclose(found[a, b], formula, rtol=1e-9)
    assert (formula / BUDGETS[i, j]).max() == pytest.approx(1, abs=1e-9)
    # The audit sees noise that is 2 % too small
    assert (losses(public, 0.98)[1][a, b] / BUDGETS[i, j]).max() > 1.02
    # With the null record a record more is within its budget; without it nothing is said of n
    _, hidden = losses(public.with_absence(0.8))
    more = np.abs(ROWS[:, None] - ROWS).sum(-1) == 1
    assert (hidden[a, b] / BUDGETS[i, j]).max() <= 1 + 1e-9
    assert hidden[more].max() <= 0.8 * (1 + 1e-9) < 0.9 < found[more].max()


def test_answers_without_noise_and_without_an_answer():
    """No protected pair tells of the first query; the second tells two elements of budget 0."""
    budgets = np.array([[0, 2, np.inf], [2, 0, np.inf], [np.inf, np.inf, 0]])
    queries, x = np.array([[1.0, 1, 0], [0, 4, 0]]), [2**10, 2**10, 7]
    told = from_budgets(budgets), from_budgets(np.where(budgets == 2, 0, budgets))

    @jax.jit
    def both(x):
        noisy, refused = (metric_laplace(x, queries, metric) for metric in told)
        return noisy.mean(), noisy.quantile(0.9), noisy.stddev(), refused.mean()

    mean, quantile, deviation, refused = (np.asarray(part) for part in both(np.float32(x)))
    assert mean.tolist() == [2**11, 2**12]
    assert (quantile[0], deviation[0] < 1e-17) == (2**11, True)
    np.testing.assert_allclose(deviation[1], 2 * 2**0.5, rtol=1e-5)
    assert (refused[0], np.isnan(refused[1])) == (2**11, True)


def test_no_rounding_of_what_all_elements_share_tells_of_a_move(x64):
    """A tenth of 100 records is not 2 tenths and 98, in floats."""
    queries, x = np.array([[0.1, 0.1, 0.3]]), np.array([[2.0, 98, 7], [3, 97, 7]])
    pairs = from_budgets([[0, 1, np.inf], [1, 0, np.inf], [np.inf, np.inf, 0]])
    found = jax.jit(lambda x: metric_laplace(x, queries, pairs).mean())(x)
    assert np.ptp(found) == 0
    assert np.ptp(x @ queries[0]) > 0  # the control


def test_no_record_is_too_strange():
    hostile = [[np.nan, 3.0], [-np.inf, 2.0**41], [-1e30, 1e30], [2.5, np.inf]]
    pair = from_budgets([[0, 1.0], [1, 0]])
    found = metric_laplace(hostile, np.eye(2), pair, scales=[2.0, 2.0]).mean()
    assert found.tolist() == [[0, 3], [0, 2**40], [0, 2**40], [2.5, 0]]


PLACES = np.array([[0.0, 0.0], [30.0, 40.0], [-10.0, 5.0]])


def test_the_loss_of_a_noisy_place_is_the_distance(x64):
    """It is reached at the places themselves; a scale that is too small is seen."""
    y = np.concatenate([PLACES, np.random.default_rng(0).normal(0, 60, (200, 2))])[:, None, None]

    @jax.jit
    def both(epsilon):
        noisy = planar_laplace(PLACES, epsilon)
        return noisy.log_prob(y), noisy.norm_cdf(40.0)

    log, within = (np.asarray(part) for part in both(np.array([[0.1], [0.11]])))
    # Of a distance r, the paper has 1 - (1 + epsilon r) exp(-epsilon r)
    np.testing.assert_allclose(within[0], 1 - 5 * np.exp(-4.0), rtol=1e-12)
    budgets = 0.1 * cdist(PLACES, PLACES)
    own, larger = np.max(log[..., :, None] - log[..., None, :], axis=0)
    np.testing.assert_allclose(own, budgets, rtol=1e-9, atol=1e-12)
    assert np.all(larger[budgets > 0] > 1.05 * budgets[budgets > 0])


def test_draws_are_remapped_to_the_nearest_point():
    random = np.random.default_rng(1)
    draws, grid = random.normal(0, 40, (2000, 2)), random.uniform(-60, 60, (50, 2))
    np.testing.assert_array_equal(nearest_point(draws, grid), cdist(draws, grid).argmin(axis=-1))
    assert nearest_point([[np.nan, 1.0], [60.0, np.inf]], grid).tolist() == [0, 0]
