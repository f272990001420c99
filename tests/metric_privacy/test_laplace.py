"""Noisy answers: the exact privacy loss of every move over all small histograms, exact and refused answers, the sampler."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpjax.metric_privacy.budget import noise_scales
from dpjax.metric_privacy.laplace import LaplaceAnswers, guarantee, metric_laplace
from dpjax.metric_privacy.metrics import from_budgets, from_points
from tests.support.audit import one_sided_limits
from tests.support.statistics import assert_follows, assert_rejected

BUDGETS = np.array([[0, 1, 2, 3], [1, 0, 1.5, 2], [2, 1.5, 0, 0.5], [3, 2, 0.5, 0]], float)
QUERIES = np.array([[0.0, 1.0, 0.3, 0.2], [1.0, 0.1, 0.1, 0.4]])
HISTOGRAMS = np.array([x for x in itertools.product(range(3), repeat=4) if sum(x) == 2], float)


def losses(law, histograms):
    """The largest log-ratio of the joint density for every ordered pair of rows: a sum over queries of suprema over y."""
    limits = one_sided_limits(law.noisy()).reshape(*law.batch_shape, -1)  # (rows, K, points)
    return np.maximum((limits[:, None] - limits[None]).max(-1), 0).sum(-1)


def moves(histograms):
    """Rows, and the elements from and to which one record moves between them."""
    for a, b in itertools.permutations(range(len(histograms)), 2):
        change = histograms[b] - histograms[a]
        if np.abs(change).sum() == 2 and change.sum() == 0:
            yield a, b, int(np.argmin(change)), int(np.argmax(change))


def test_the_exact_loss_of_every_move_is_within_its_budget(x64):
    metric = from_budgets(BUDGETS)
    law = metric_laplace(HISTOGRAMS, QUERIES, metric)
    c = np.asarray(law.scales)[0]
    wrong = LaplaceAnswers(law.values, law.scales * 0.98)
    ratio, of_wrong = [], []
    found, found_wrong = losses(law, HISTOGRAMS), losses(wrong, HISTOGRAMS)
    for a, b, i, j in moves(HISTOGRAMS):
        formula = (np.abs(QUERIES[:, i] - QUERIES[:, j]) / c).sum()
        assert found[a, b] == pytest.approx(formula, rel=1e-9)
        ratio.append(found[a, b] / BUDGETS[i, j])
        of_wrong.append(found_wrong[a, b] / BUDGETS[i, j])
    assert len(ratio) == 48
    assert max(ratio) == pytest.approx(1, abs=1e-9)
    assert max(of_wrong) > 1.02  # the audit sees noise that is 2 % too small


def test_with_nobody_a_record_more_is_within_its_budget_too(x64):
    metric = from_budgets(BUDGETS).with_absence(0.8)
    histograms = np.array([x for x in itertools.product(range(3), repeat=4) if sum(x) in (1, 2)], float)
    found = losses(metric_laplace(histograms, QUERIES, metric), histograms)
    public = losses(metric_laplace(histograms, QUERIES, from_budgets(BUDGETS)), histograms)
    more = [
        (a, b) for a, b in itertools.permutations(range(len(histograms)), 2) if np.abs(histograms[a] - histograms[b]).sum() == 1
    ]
    assert max(found[pair] for pair in more) <= 0.8 * (1 + 1e-9)
    assert max(public[pair] for pair in more) > 0.9  # a metric without nobody promises nothing about n
    assert max(found[a, b] / BUDGETS[i, j] for a, b, i, j in moves(histograms)) <= 1 + 1e-9


def test_exact_and_refused_answers():
    law = LaplaceAnswers(jnp.array([3.0, 3.0, 3.0]), jnp.array([0.0, 2.0, jnp.inf]))
    draws = np.asarray(law.sample(jax.random.key(0), (5,)))
    assert (draws[:, 0] == 3).all()
    assert np.isnan(draws[:, 2]).all()
    assert np.unique(draws[:, 1]).size == 5
    np.testing.assert_array_equal(law.cdf(2.5)[::2], [0.0, np.nan])
    np.testing.assert_array_equal(law.survival(2.5)[::2], [1.0, np.nan])
    np.testing.assert_array_equal(law.log_prob(3.0)[0], np.inf)
    np.testing.assert_array_equal(law.prob(2.0)[0], 0.0)
    np.testing.assert_allclose(law.variance(), [0.0, 8.0, np.nan])
    np.testing.assert_allclose(law.stddev(), [0.0, 8**0.5, np.nan], rtol=1e-6)
    np.testing.assert_allclose(law.mean(), [3.0, 3.0, np.nan])
    np.testing.assert_allclose(law.mean_abs_error(3.0), [0.0, 2.0, np.nan], rtol=1e-6)
    np.testing.assert_allclose(law.mean_squared_error(4.0), [1.0, 9.0, np.nan], rtol=1e-6)
    np.testing.assert_allclose(law.interval(0.5)[0], [3.0, 3 - 2 * np.log(2), np.nan], rtol=1e-5)
    np.testing.assert_array_equal(law.quantile(jnp.array([[0.5], [2.0]]))[:, 0], [3.0, np.nan])


def test_the_law_of_draws():
    law = metric_laplace([2.0, 0.0, 1.0, 0.0], QUERIES, from_budgets(BUDGETS), strategy="common")
    draws = law.sample(jax.random.key(1), (20_000,))
    for k in range(2):
        cdf = jax.jit(lambda y, k=k: law.cdf(y[:, None])[:, k])
        assert_follows(draws[:, k], lambda y, cdf=cdf: cdf(jnp.asarray(y, jnp.float32)))
        assert_rejected(draws[:, k] * 1.1, lambda y, cdf=cdf: cdf(jnp.asarray(y, jnp.float32)))


def test_bad_counts_are_no_records_and_batches_broadcast():
    metric = from_budgets(BUDGETS)
    hostile = np.array([[2.0, np.nan, -3.0, np.inf], [2.0, 0.0, 0.0, 0.0]], np.float32)
    scales = noise_scales(QUERIES, metric, strategy="common")
    law = metric_laplace(hostile, QUERIES, metric, scales=scales)
    assert law.batch_shape == (2, 2)
    np.testing.assert_array_equal(law.values[0], law.values[1])


def test_scales_that_overspend_are_refused():
    metric = from_budgets(BUDGETS)
    x = [2.0, 0.0, 1.0, 0.0]
    with pytest.raises(ValueError, match="overspend"):
        metric_laplace(x, QUERIES, metric, scales=[0.1, 0.1])
    assert np.isnan(metric_laplace(x, QUERIES, metric, scales=jnp.array([0.1, 0.1])).mean()).all()
    with pytest.raises(ValueError, match="do not fit a histogram"):
        metric_laplace(x[:3], QUERIES, metric, strategy="common")
    with pytest.raises(ValueError, match="strategy must be one of"):
        metric_laplace(x, QUERIES, metric, strategy="none", scales=[9.0, 9.0])


def test_the_guarantee_is_that_of_the_metric():
    known = from_points([[0.0], [1.0], [3.0]], epsilon=0.5)
    assert guarantee(known).guarantee(neighbors="swap").epsilon == pytest.approx(1.5)
    private = guarantee(known.with_absence(0.75)).guarantee(neighbors="add_remove")
    assert (private.epsilon, private.bounded_range) == (pytest.approx(0.75), pytest.approx(1.5))


@pytest.mark.slow
def test_one_program_serves_a_sweep_over_epsilon(x64):
    points = jnp.asarray(np.random.default_rng(0).uniform(size=(5, 2)))
    queries = jnp.asarray(np.random.default_rng(1).uniform(size=(2, 5)))
    x, epsilon = jnp.arange(5.0), jnp.array([0.1, 1.0, 10.0])
    traces = []

    @jax.jit
    def errors(x, epsilon):
        traces.append(1)
        law = metric_laplace(x, queries, from_points(points, epsilon=epsilon))
        return law.mean_abs_error(law.values)

    found = errors(x, epsilon)
    errors(x + 1, epsilon * 2)
    assert len(traces) == 1
    assert found.shape == (3, 2)
    np.testing.assert_allclose(found[0], 10 * found[1], rtol=1e-9)
    np.testing.assert_allclose(jax.vmap(lambda e: errors(x, e))(epsilon), found, rtol=1e-9)
