"""The d-private exponential mechanism, audited over every histogram of a few records and every
move.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpjax.metric_privacy import (
    from_budgets,
    from_points,
    linear_selection,
    metric_exponential,
    point_metric,
    selection_scale,
    uniform,
)
from tests.support.histograms import histograms, losses, moves

ROWS = histograms(3, 5)
BUDGETS = np.array([[0.0, 0.7, 1.2], [0.7, 0.0, 0.9], [1.2, 0.9, 0.0]])


def some_weights(count=40):
    random = np.random.default_rng(0)
    weights = random.normal(size=(count, 4, 3)) * np.geomspace(0.01, 100, count)[:, None, None]
    weights[1::4] = np.sign(weights[1::4])
    weights[2::4, 1:] = 0  # one score moves and the others do not
    return weights


def theorem_3(weights):
    """The scale as printed."""
    i, j = np.triu_indices(3, 1)
    return (np.abs(weights[..., i] - weights[..., j]).max(axis=-2) / BUDGETS[i, j]).max(axis=-1)


@jax.jit
def distribution_of(weights, metric, rows):
    distribution = linear_selection(rows, metric, weights=weights)
    return distribution.log_probabilities(), 1 / (2 * distribution.rate)


def test_linear_selection_is_private_and_attains_the_range(x64):
    weights, metric = some_weights(), from_budgets(BUDGETS)
    # Controls: half of the scale, and the scale of a tenth more budget.
    for factor in (1.0, 2.0, 1.1):
        logs, scale = distribution_of(weights[:, None], metric * factor, ROWS)
        loss, spread = losses(logs, ROWS, BUDGETS)
        np.testing.assert_allclose(spread, factor, rtol=1e-9)
        if factor > 1:
            assert loss.max() > 1.04
            continue
        assert (loss <= 1 + 1e-9).all()
        assert loss.max() > 0.95
        scale, printed = np.asarray(scale)[:, 0], theorem_3(weights)
        assert (scale <= printed * (1 + 1e-12)).all()
        np.testing.assert_allclose(scale[2::4], printed[2::4] / 2, rtol=1e-12)


def test_given_sensitivities(x64):
    """Scores that are not linear: minus the largest of two counts, |count - 2|, and a product; the
    sensitivities by search: the largest change, half of the range of changes, and, as a control,
    less than that.
    """
    scores = np.stack(
        [-np.max(ROWS[:, :2], -1), np.abs(ROWS[:, 2] - 2), ROWS[:, 0] * ROWS[:, 1] / 2], axis=-1
    )
    a, b, i, j = moves(ROWS)
    change = scores[b] - scores[a]
    found = np.zeros((2, 3, 3))
    np.maximum.at(found[0], (i, j), np.abs(change).max(-1))
    np.maximum.at(found[1], (i, j), np.ptp(change, axis=-1) / 2)
    sensitivities = np.tril([*found, found[1] / 1.1])[:, None]  # of one way, for both
    distribution = metric_exponential(scores, from_budgets(BUDGETS), sensitivity=sensitivities)
    loss, spread = losses(distribution.log_probabilities(), ROWS, BUDGETS)
    assert (loss[:2] <= 1 + 1e-9).all()
    assert spread[0] <= 1 + 1e-9
    np.testing.assert_allclose(spread[1:], [1.0, 1.1], rtol=1e-9)


def test_the_null_record_makes_n_private(x64):
    """Counts against a constant: a record more costs its budget; without the null record the
    constant score tells n.
    """
    rows = np.concatenate([histograms(3, n) for n in range(5)])
    hidden = from_budgets(BUDGETS).with_absence(np.array([0.5, 0.8, 1.0]))
    # Null records counted: a move is a move
    padded = np.concatenate([rows, 10 - rows.sum(-1, keepdims=True)], axis=-1)

    def worst(weights, metric):
        logs, _ = distribution_of(np.array(weights), metric, rows)
        return losses(logs, padded, hidden.budgets)

    loss, spread = worst([[1.0, 0.0, 1.0], [0.0, 1.0, 1.0], [0.0, 0.0, 0.0]], hidden)
    assert loss <= 1 + 1e-9
    assert spread == pytest.approx(1.0, rel=1e-9)
    # Control: scores that count all records cost little where n is public.
    constant = [[1.0, 1.0, 1.0], [0.0, 0.0, 0.0], [-1.0, -1.0, -0.9]]
    assert worst(constant, hidden)[0] <= 1 + 1e-9
    assert worst(constant, from_budgets(BUDGETS))[0] > 5


@pytest.mark.slow
def test_extreme_budgets(x64):
    """A pair without budget makes the distribution uniform; nothing to protect makes it the argmax,
    where a tie that rounding would break stays a tie: 0.1 + 0.1 + 0.1 is not 0.3 in floats.
    """
    free = np.where(np.eye(3) == 1, 0, np.inf)
    weights = np.array([[0.1, 0.1, 0.0], [0.15, 0.075, 0.0], [0.0, 0.0, 0.1]])
    metric = from_budgets(np.stack([np.zeros((3, 3)), free]))
    logs, _ = distribution_of(weights, metric, np.array([1.0, 2.0, 0.0]))
    np.testing.assert_allclose(np.exp(logs), [[1 / 3] * 3, [0.5, 0.5, 0.0]], rtol=1e-7)
    # Unprotected pairs do not count, and coordinates are the matrix.
    half = np.array([[0, np.inf, np.inf], [np.inf, 0, 2.0], [np.inf, 2.0, 0]])
    np.testing.assert_allclose(selection_scale(np.eye(3), from_budgets(half)), 0.5, rtol=1e-12)
    points = np.random.default_rng(3).uniform(size=(3, 2))
    lazy, dense = (
        selection_scale(weights, make(points, epsilon=3.0)) for make in (point_metric, from_points)
    )
    np.testing.assert_allclose(lazy, dense, rtol=1e-12)


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
    cost = np.asarray(linear_selection(x, from_budgets(three), weights=weights).cost, np.float64)

    def loss(scale):
        """The largest log-ratio of what draws reach, over the budget, by the costs as they are."""
        exponents = -cost / (2 * np.asarray(scale, np.float64)[..., None])
        logs = exponents - np.logaddexp.reduce(exponents, axis=-1, keepdims=True)
        reached = (logs > -42).all(axis=-2)
        apart = np.where(reached, np.abs(logs[..., 0, :] - logs[..., 1, :]), 0)
        return apart.max(axis=(-1, -2)) / budgets[:, 0, 0]

    found = selection_scale(weights, from_budgets(three * budgets[:, None, None]))
    assert found.dtype == jnp.float32
    assert loss(found).max() <= 1
    # Control: the scale of exact numbers.
    change = weights[..., :, None] - weights[..., None, :]
    exact = np.ptp(change, axis=-3).max(axis=(-1, -2)) / 2 / budgets
    assert loss(exact)[2] > 2


def test_differences_that_cancel_are_not_missing_from_the_scale():
    weights = np.array([[-0.3, 1e6], [-0.31, 1e6]])
    assert float(selection_scale(weights, uniform(2, epsilon=1e-6))) >= 5000
