"""The d-private exponential mechanism, audited over every histogram of a few records and every
move.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpjax.metric_privacy import linear_selection, metric_exponential, selection_scale
from dpjax.metric_privacy.metrics import from_budgets, uniform
from dpjax.metric_privacy.points import from_points, point_metric
from tests.support.histograms import histograms, losses, moves

ROWS = histograms(3, 5)
BUDGETS = np.array([[0.0, 0.7, 1.2], [0.7, 0.0, 0.9], [1.2, 0.9, 0.0]])
R = 4


def some_weights(count=40):
    random = np.random.default_rng(0)
    weights = random.normal(size=(count, R, 3)) * np.geomspace(0.01, 100, count)[:, None, None]
    weights[1::4] = np.sign(weights[1::4])
    weights[2::4, 1:] = 0  # one score moves and the others do not
    return weights


def theorem_3(weights, budgets):
    """The scale as printed."""
    i, j = np.triu_indices(3, 1)
    return (np.abs(weights[..., i] - weights[..., j]).max(axis=-2) / budgets[i, j]).max(axis=-1)


@jax.jit
def distribution_of(weights, metric, rows):
    distribution = linear_selection(rows, metric, weights=weights)
    return distribution.log_probabilities(), 1 / (2 * distribution.rate)


def log_probabilities(weights, metric, rows):
    return distribution_of(weights, metric, rows)[0]


def test_linear_selection_is_private_and_attains_the_range(x64):
    weights, metric = some_weights(), from_budgets(BUDGETS)
    logs, scale = distribution_of(weights[:, None], metric, ROWS)
    loss, spread = losses(logs, ROWS, BUDGETS)
    assert (loss <= 1 + 1e-9).all()
    np.testing.assert_allclose(spread, 1.0, rtol=1e-9)
    assert loss.max() > 0.95
    scale = np.asarray(scale)[:, 0]
    assert (scale <= theorem_3(weights, BUDGETS) * (1 + 1e-12)).all()
    np.testing.assert_allclose(scale[2::4], theorem_3(weights, BUDGETS)[2::4] / 2, rtol=1e-12)
    # Controls: half of the scale, and the scale of a tenth more budget.
    for factor in (2.0, 1.1):
        loss, spread = losses(
            log_probabilities(weights[:, None], metric * factor, ROWS), ROWS, BUDGETS
        )
        np.testing.assert_allclose(spread, factor, rtol=1e-9)
        assert loss.max() > 1.04


def test_given_sensitivities(x64):
    """Scores that are not linear: minus the largest of two counts, |count - 2|, and a product; the
    sensitivities by search.
    """
    scores = np.stack(
        [-np.max(ROWS[:, :2], -1), np.abs(ROWS[:, 2] - 2), ROWS[:, 0] * ROWS[:, 1] / 2], axis=-1
    )
    a, b, i, j = moves(ROWS)
    largest = np.zeros((3, 3))
    half_range = np.zeros((3, 3))
    change = scores[b] - scores[a]
    np.maximum.at(largest, (i, j), np.abs(change).max(-1))
    np.maximum.at(half_range, (i, j), (change.max(-1) - change.min(-1)) / 2)
    for sensitivity in (largest, half_range):
        logs = metric_exponential(
            scores, from_budgets(BUDGETS), sensitivity=sensitivity
        ).log_probabilities()
        loss, spread = losses(logs, ROWS, BUDGETS)
        assert loss <= 1 + 1e-9
        assert spread <= 1 + 1e-9
    assert spread > 1 - 1e-9
    loss, spread = losses(
        metric_exponential(
            scores, from_budgets(BUDGETS), sensitivity=half_range / 1.1
        ).log_probabilities(),
        ROWS,
        BUDGETS,
    )
    assert spread == pytest.approx(1.1, rel=1e-9)


@pytest.mark.slow
def test_the_null_record_makes_n_private(x64):
    """Counts against a constant: a record more costs its budget; without the null record the
    constant score tells n.
    """
    weights = np.array([[1.0, 0.0, 1.0], [0.0, 1.0, 1.0], [0.0, 0.0, 0.0]])
    rows = np.concatenate([histograms(3, n) for n in range(5)])
    absent = np.array([0.5, 0.8, 1.0])
    metric = from_budgets(BUDGETS).with_absence(absent)
    # Null records counted: a move is a move
    padded = np.concatenate([rows, 10 - rows.sum(-1, keepdims=True)], axis=-1)
    whole = np.asarray(metric.budgets)
    loss, spread = losses(log_probabilities(weights, metric, rows), padded, whole)
    assert loss <= 1 + 1e-9
    assert spread == pytest.approx(1.0, rel=1e-9)
    # Control: scores that count all records cost little where n is public.
    constant = np.array([[1.0] * 3, [0.0] * 3, [-1.0, -1.0, -0.9]])
    assert losses(log_probabilities(constant, metric, rows), padded, whole)[0] <= 1 + 1e-9
    assert losses(log_probabilities(constant, from_budgets(BUDGETS), rows), padded, whole)[0] > 5


@pytest.mark.slow
def test_extreme_budgets(x64):
    """Unprotected pairs are void; a pair without budget makes the distribution uniform; nothing to
    protect makes it the argmax.
    """
    x = np.array([4.0, 1.0, 0.0])
    weights = np.eye(3)
    apart = np.array([[0, np.inf, np.inf], [np.inf, 0, 2.0], [np.inf, 2.0, 0]])
    np.testing.assert_allclose(selection_scale(weights, from_budgets(apart)), 0.5, rtol=1e-12)
    nothing = from_budgets(np.zeros((3, 3)))
    np.testing.assert_allclose(
        linear_selection(x, nothing, weights=weights).probabilities(), np.full(3, 1 / 3)
    )
    free = from_budgets(np.where(np.eye(3) == 1, 0, np.inf))
    np.testing.assert_array_equal(
        linear_selection(x, free, weights=weights).probabilities(), [1, 0, 0]
    )
    # A tie that rounding would break stays a tie: 0.1 + 0.1 + 0.1 is not 0.3 in floats.
    tied = linear_selection([1.0, 2.0, 0.0], free, weights=[[0.1, 0.1, 0], [0.15, 0.075, 0]])
    np.testing.assert_allclose(tied.probabilities(), [0.5, 0.5], rtol=1e-7)
    assert np.isnan(metric_exponential(x, free, sensitivity=np.ones((3, 3))).probabilities()).all()


@pytest.mark.slow
def test_points_sweeps_and_hostile_counts(x64):
    points = np.random.default_rng(3).uniform(size=(50, 2))
    weights = np.random.default_rng(4).normal(size=(6, 50))
    dense, lazy = (make(points, epsilon=3.0) for make in (from_points, point_metric))
    np.testing.assert_allclose(
        selection_scale(weights, lazy), selection_scale(weights, dense), rtol=1e-12
    )
    x = np.random.default_rng(5).poisson(2, (7, 50)).astype(float)
    budgets = dense * np.array([0.5, 1.0])[:, None]
    sweep = linear_selection(x, budgets, weights=weights)
    assert sweep.batch_shape == (2, 7)
    np.testing.assert_allclose(
        np.asarray(sweep.log_probabilities())[1],
        linear_selection(x, lazy, weights=weights).log_probabilities(),
        rtol=1e-9,
    )
    bad = x.copy()
    bad[:, :4] = [np.nan, -3.0, np.inf, -np.inf]
    zero = x.copy()
    zero[:, :4] = 0
    np.testing.assert_array_equal(
        linear_selection(bad, budgets, weights=weights).log_probabilities(),
        linear_selection(zero, budgets, weights=weights).log_probabilities(),
    )
    slope = jax.grad(lambda e: linear_selection(x[0], dense * e, weights=weights).mean())(1.0)
    assert np.isfinite(slope)


def test_errors_and_guarantee(x64):
    metric = from_budgets(BUDGETS)
    promised = metric_exponential.guarantee(metric).guarantee(neighbors="swap")
    assert (promised.epsilon, promised.bounded_range) == (pytest.approx(1.2), pytest.approx(1.2))
    for call, match in (
        (
            lambda: linear_selection([1.0, 2.0], metric, weights=np.eye(3)),
            "x must count 3 elements",
        ),
        (
            lambda: linear_selection([1.0, 2.0, 3.0], metric, weights=np.eye(4)),
            "elements as the metric, got 4",
        ),
        (lambda: linear_selection([1.0, 2.0, 3.0], metric, weights=[1.0, 2.0, 3.0]), "shape"),
        (lambda: linear_selection([1.0, 2.0, 3.0], metric, weights=[[1.0, np.nan, 3.0]]), "finite"),
        (
            lambda: linear_selection([1.0, 2.0, 3.0], metric, weights=np.eye(3), candidates=[1.0]),
            "candidates",
        ),
        (
            lambda: metric_exponential([1.0, 2.0], metric, sensitivity=np.ones((2, 2))),
            "sensitivity must be of shape",
        ),
        (
            lambda: metric_exponential([1.0, 2.0], metric, sensitivity=-np.ones((3, 3))),
            "not negative",
        ),
        (
            lambda: metric_exponential(1.0, metric, sensitivity=np.ones((3, 3))),
            "at least one candidate",
        ),
        (lambda: metric_exponential.guarantee(metric * jnp.ones(2)), "batch"),
    ):
        with pytest.raises(ValueError, match=match):
            call()


def test_the_rounding_of_many_records_is_taken_from_the_budgets():
    """Where a record is less than a unit in the last place of a cost, what moves by rounding moves
    by that.
    """
    random, three = np.random.default_rng(0), 1 - np.eye(3)
    x = (
        random.multinomial(10**8, np.ones(3) / 3, size=(40, 1)) + np.array([[0, 0, 0], [-1, 1, 0]])
    ).astype(np.int32)
    weights = random.uniform(-1, 1, (40, 1, 4, 3))
    budgets = np.array([1e-4, 1e-5, 1e-6])[:, None, None]

    def loss(scale):
        """The largest log-ratio of what draws reach, over the budget, by the costs as they are."""
        cost = np.asarray(
            linear_selection(x, from_budgets(three), weights=weights).cost, np.float64
        )
        exponents = -cost / (2 * np.asarray(scale, np.float64)[..., None])
        logs = exponents - np.logaddexp.reduce(exponents, axis=-1, keepdims=True)
        reached = (logs > -42).all(axis=-2)
        return (
            np.where(reached, np.abs(logs[..., 0, :] - logs[..., 1, :]), 0).max(axis=(-1, -2))
            / budgets[:, 0, 0]
        )

    found = jnp.stack(
        [selection_scale(weights, from_budgets(three * budget)) for budget in budgets]
    )
    assert found.dtype == jnp.float32
    assert loss(found).max() <= 1
    # Control: the scale of exact numbers.
    change = weights[..., :, None] - weights[..., None, :]
    exact = np.ptp(change, axis=-3).max(axis=(-1, -2)) / 2 / budgets
    assert loss(exact)[2] > 2


def test_differences_that_cancel_are_not_missing_from_the_scale():
    weights = np.array([[-0.3, 1e6], [-0.31, 1e6]])
    assert float(selection_scale(weights, uniform(2, epsilon=1e-6))) >= 5000
