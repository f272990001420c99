"""Noisy answers: the exact privacy loss of every move over all small histograms, exact and refused
answers, the sampler.
"""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpjax.metric_privacy import LaplaceAnswers, metric_laplace
from dpjax.metric_privacy.metrics import from_budgets, uniform
from dpjax.metric_privacy.points import from_points
from dpjax.metric_privacy.scales import noise_scales
from tests.support.statistics import assert_follows, assert_rejected

BUDGETS = np.array([[0, 1, 2, 3], [1, 0, 1.5, 2], [2, 1.5, 0, 0.5], [3, 2, 0.5, 0]], float)
QUERIES = np.array([[0.0, 1.0, 0.3, 0.2], [1.0, 0.1, 0.1, 0.4]])
HISTOGRAMS = np.array([x for x in itertools.product(range(3), repeat=4) if sum(x) == 2], float)


@jax.jit
def log_densities(values, scales, y):
    return LaplaceAnswers(values, scales).log_prob(y[:, None, None])


def losses(distribution):
    """The largest log-ratio of the joint density for every ordered pair of rows: a sum over queries
    of suprema over y.

    A Laplace density has a linear logarithm between and beyond the values of all rows: a ratio is
    largest at one or far out.
    """
    values = np.asarray(distribution.values)
    points = np.concatenate([np.unique(values), [values.min() - 50, values.max() + 50]])
    # (points, rows, K)
    logs = np.asarray(log_densities(distribution.values, distribution.scales, points))
    return (logs[:, :, None] - logs[:, None]).max(0).sum(-1)


def moves(histograms):
    """Rows, and the elements from and to which one record moves between them."""
    for a, b in itertools.permutations(range(len(histograms)), 2):
        change = histograms[b] - histograms[a]
        if np.abs(change).sum() == 2 and change.sum() == 0:
            yield a, b, int(np.argmin(change)), int(np.argmax(change))


def test_the_exact_loss_of_every_move_is_within_its_budget(x64):
    metric = from_budgets(BUDGETS)
    distribution = metric_laplace(HISTOGRAMS, QUERIES, metric, strategy="common")
    c = np.asarray(distribution.scales)[0]
    wrong = LaplaceAnswers(distribution.values, distribution.scales * 0.98)
    ratio, of_wrong = [], []
    found, found_wrong = losses(distribution), losses(wrong)
    for a, b, i, j in moves(HISTOGRAMS):
        formula = (np.abs(QUERIES[:, i] - QUERIES[:, j]) / c).sum()
        assert found[a, b] == pytest.approx(formula, rel=1e-9)
        ratio.append(found[a, b] / BUDGETS[i, j])
        of_wrong.append(found_wrong[a, b] / BUDGETS[i, j])
    assert len(ratio) == 48
    assert max(ratio) == pytest.approx(1, abs=1e-9)
    assert max(of_wrong) > 1.02  # the audit sees noise that is 2 % too small


def test_with_the_null_record_a_record_more_is_within_its_budget_too(x64):
    metric = from_budgets(BUDGETS).with_absence(0.8)
    histograms = np.array(
        [x for x in itertools.product(range(3), repeat=4) if sum(x) in (1, 2)], float
    )
    found = losses(metric_laplace(histograms, QUERIES + 1, metric, strategy="common"))
    public = losses(
        metric_laplace(histograms, QUERIES + 1, from_budgets(BUDGETS), strategy="common")
    )
    more = [
        (a, b)
        for a, b in itertools.permutations(range(len(histograms)), 2)
        if np.abs(histograms[a] - histograms[b]).sum() == 1
    ]
    assert max(found[pair] for pair in more) <= 0.8 * (1 + 1e-9)
    # A metric without the null record promises nothing about n
    assert max(public[pair] for pair in more) > 0.9
    assert max(found[a, b] / BUDGETS[i, j] for a, b, i, j in moves(histograms)) <= 1 + 1e-9


def test_an_answer_without_noise_is_exact_and_one_without_budget_is_none():
    distribution = LaplaceAnswers(jnp.array([3.0, 3.0, 3.0]), jnp.array([0.0, 2.0, jnp.inf]))
    draws, error = jax.jit(
        lambda distribution: (
            distribution.sample(jax.random.key(0), (5,)),
            distribution.mean_abs_error(4.0),
        )
    )(distribution)
    assert (draws[:, 0] == 3).all()
    assert np.unique(draws[:, 1]).size == 5
    assert np.isnan(draws[:, 2]).all()
    np.testing.assert_allclose(error, [1.0, 1 + 2 * np.exp(-0.5), np.nan], rtol=1e-5)


@jax.jit
def summary(distribution):
    return {
        "cdf": distribution.cdf(2.5),
        "survival": distribution.survival(2.5),
        "log_prob": distribution.log_prob(3.0),
        "prob": distribution.prob(2.0),
        "variance": distribution.variance(),
        "stddev": distribution.stddev(),
        "mean": distribution.mean(),
        "mean_abs_error": distribution.mean_abs_error(3.0),
        "mean_squared_error": distribution.mean_squared_error(4.0),
        "low": distribution.interval(0.5)[0],
        "quantile": distribution.quantile(jnp.array([[0.5], [2.0]])),
    }


def test_every_method_of_exact_and_refused_answers():
    found = summary(LaplaceAnswers(jnp.array([3.0, 3.0, 3.0]), jnp.array([0.0, 2.0, jnp.inf])))
    found = {name: np.asarray(value) for name, value in found.items()}
    assert all(np.isnan(value[..., 2]).all() for value in found.values())  # no answer
    half = np.exp(-0.25) / 2
    expected = {
        "cdf": [0.0, half],
        "survival": [1.0, 1 - half],
        "log_prob": [np.inf, -np.log(4)],
        "prob": [0.0, np.exp(-0.5) / 4],
        "variance": [0.0, 8.0],
        "stddev": [0.0, 8**0.5],
        "mean": [3.0, 3.0],
        "mean_abs_error": [0.0, 2.0],
        "mean_squared_error": [1.0, 9.0],
        "low": [3.0, 3 - 2 * np.log(2)],
        "quantile": [[3.0, 3.0], [np.nan, np.nan]],
    }
    for name, value in expected.items():
        np.testing.assert_allclose(found[name][..., :2], value, rtol=1e-5, err_msg=name)


@pytest.mark.slow
def test_the_distribution_of_draws():
    distribution = metric_laplace(
        [2.0, 0.0, 1.0, 0.0], QUERIES, from_budgets(BUDGETS), strategy="common"
    )
    draws = np.asarray(distribution.sample(jax.random.key(1), (20_000,)))
    for k in range(2):
        standard = (draws[:, k] - float(np.asarray(distribution.values)[k])) / float(
            np.asarray(distribution.scales)[k]
        )
        assert_follows(standard, laplace_cdf)
        assert_rejected(standard * 1.2, laplace_cdf)


def test_no_draw_is_silently_without_noise():
    scales = jnp.array([0.2, 0.2, 8.0, 0.0])
    values = jnp.array([1e5, 5e7, 5e7, 5e7])
    draws = np.asarray(
        jax.jit(lambda d: d.sample(jax.random.key(0), (200,)))(LaplaceAnswers(values, scales))
    )
    assert np.isnan(draws[:, 1]).all()
    assert np.unique(draws[:, 0]).size > 50  # steps of 1/128
    assert np.unique(draws[:, 2]).size > 5  # steps of 4
    assert (draws[:, 3] == 5e7).all()
    added = np.float32(5e7) + 0.2 * np.random.default_rng(0).laplace(size=200).astype(np.float32)
    assert np.unique(added).size == 1  # control: floats that are just added up


def laplace_cdf(z):
    return np.where(z < 0, np.exp(-np.abs(z)) / 2, 1 - np.exp(-np.abs(z)) / 2)


def test_bad_counts_are_no_records_and_batches_broadcast():
    metric = from_budgets(BUDGETS)
    hostile = np.array([[2.0, np.nan, -3.0, np.inf], [2.0, 0.0, 0.0, 0.0]], np.float32)
    scales = noise_scales(QUERIES, metric, strategy="common")
    distribution = metric_laplace(hostile, QUERIES, metric, scales=scales)
    assert distribution.batch_shape == (2, 2)
    np.testing.assert_array_equal(distribution.values[0], distribution.values[1])


def test_scales_that_overspend_are_refused():
    metric = from_budgets(BUDGETS)
    x = [2.0, 0.0, 1.0, 0.0]
    with pytest.raises(ValueError, match="must have a load of at most 1"):
        metric_laplace(x, QUERIES, metric, scales=[0.1, 0.1])
    assert np.isnan(metric_laplace(x, QUERIES, metric, scales=jnp.array([0.1, 0.1])).mean()).all()
    with pytest.raises(ValueError, match="x must count 4 elements"):
        metric_laplace(x[:3], QUERIES, metric, strategy="common")
    with pytest.raises(ValueError, match="strategy must be one of"):
        metric_laplace(x, QUERIES, metric, strategy="none", scales=[9.0, 9.0])


def test_the_guarantee_is_that_of_the_metric():
    known = from_points([[0.0], [1.0], [3.0]], epsilon=0.5)
    assert metric_laplace.guarantee(known).guarantee(neighbors="swap").epsilon == pytest.approx(1.5)
    private = metric_laplace.guarantee(known.with_absence(0.75)).guarantee(neighbors="add_remove")
    assert (private.epsilon, private.bounded_range) == (pytest.approx(0.75), pytest.approx(1.5))


@pytest.mark.slow
def test_one_program_serves_a_sweep_over_epsilon(x64):
    points = jnp.asarray(np.random.default_rng(0).uniform(size=(5, 2)))
    queries = jnp.asarray(np.random.default_rng(1).uniform(size=(2, 5)))
    x, epsilon = jnp.arange(5.0), jnp.array([0.1, 1.0, 10.0])
    traces = []

    @functools.partial(jax.jit, static_argnames="strategy")
    def errors(x, epsilon, strategy="optimal"):
        traces.append(1)
        distribution = metric_laplace(
            x, queries, from_points(points, epsilon=epsilon), strategy=strategy
        )
        return distribution.mean_abs_error(distribution.values)

    found = np.asarray(errors(x, epsilon))
    errors(x + 1, epsilon * 2)
    assert len(traces) == 1
    assert found.shape == (3, 2)
    np.testing.assert_allclose(found[0], 10 * found[1], rtol=1e-9)
    # That the optimum may be mapped is seen in test_scales.py.
    mapped = jax.vmap(lambda e: errors(x, e, strategy="common"))(epsilon)
    np.testing.assert_allclose(mapped, errors(x, epsilon, strategy="common"), rtol=1e-9)


def test_a_constant_that_is_answered_exactly_does_not_round_neighbors_apart():
    """Its scale is 0, so one unit in the last place between neighbors is an infinite loss."""
    metric, query = uniform(3, epsilon=1.0), [[0.1, 0.1, 0.1]]
    answers = [
        metric_laplace(x, query, metric, strategy="common")
        for x in ([7, 0, 0], [6, 1, 0], [5, 2, 0])
    ]
    assert [np.asarray(answer.scales).tolist() for answer in answers] == [[0.0]] * 3
    assert len({np.asarray(answer.values).item() for answer in answers}) == 1
    tenth = np.float32(0.1)  # control: summed as they come, they differ
    assert tenth * np.float32(7) != tenth * np.float32(6) + tenth
