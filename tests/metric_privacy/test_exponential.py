"""The d-private exponential mechanism, audited over every histogram of a few records and every
move.
"""

import numpy as np
import pytest

from dpjax.metric_privacy import (
    from_budgets,
    linear_selection,
    metric_exponential,
    selection_scale,
    uniform,
)
from tests.support.histograms import histograms, losses, moves

ROWS = histograms(3, 5)
BUDGETS = np.array([[0.0, 0.7, 1.2], [0.7, 0.0, 0.9], [1.2, 0.9, 0.0]])


def some_weights(count=12):
    random = np.random.default_rng(0)
    weights = random.normal(size=(count, 4, 3)) * np.geomspace(0.01, 100, count)[:, None, None]
    weights[1::4] = np.sign(weights[1::4])
    weights[2::4, 1:] = 0  # one score moves and the others do not
    return weights


def theorem_3(weights):
    """The scale as printed."""
    i, j = np.triu_indices(3, 1)
    return (np.abs(weights[..., i] - weights[..., j]).max(axis=-2) / BUDGETS[i, j]).max(axis=-1)


def distribution_of(weights, metric, rows):
    distribution = linear_selection(rows, metric, weights=weights)
    return distribution.log_probabilities(), 1 / (2 * float(distribution.rate))


def test_linear_selection_is_private_and_attains_the_range(x64):
    weights, metric = some_weights(), from_budgets(BUDGETS)
    # Controls: half of the scale, and the scale of a tenth more budget.
    for factor in (1.0, 2.0, 1.1):
        found = [distribution_of(each, metric * factor, ROWS) for each in weights]
        audits = [losses(logs, ROWS, BUDGETS) for logs, _ in found]
        loss, spread = np.transpose(audits)
        np.testing.assert_allclose(spread, factor, rtol=1e-9)
        if factor > 1:
            assert loss.max() > 1.04
            continue
        assert (loss <= 1 + 1e-9).all()
        assert loss.max() > 0.95
        scale, printed = np.array([scale for _, scale in found]), theorem_3(weights)
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
    for sensitivity, expected in zip(
        np.tril([*found, found[1] / 1.1]),  # of one way, for both
        (None, 1.0, 1.1),
        strict=True,
    ):
        distribution = metric_exponential(scores, from_budgets(BUDGETS), sensitivity=sensitivity)
        loss, spread = losses(distribution.log_probabilities(), ROWS, BUDGETS)
        if expected is None:
            assert max(loss, spread) <= 1 + 1e-9
        else:
            assert spread == pytest.approx(expected, rel=1e-9)
            assert expected > 1 or loss <= 1 + 1e-9


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
    rows = np.array([1.0, 2.0, 0.0])
    for budgets, expected in ((np.zeros((3, 3)), [1 / 3] * 3), (free, [0.5, 0.5, 0.0])):
        found = linear_selection(rows, from_budgets(budgets), weights=weights)
        np.testing.assert_allclose(found.probabilities(), expected, rtol=1e-7)
    # Unprotected pairs do not count.
    half = np.array([[0, np.inf, np.inf], [np.inf, 0, 2.0], [np.inf, 2.0, 0]])
    np.testing.assert_allclose(selection_scale(np.eye(3), from_budgets(half)), 0.5, rtol=1e-12)


def test_the_rounding_of_many_records_is_taken_from_the_budgets():
    """Where a record is less than a unit in the last place of a cost, what moves by rounding moves
    by that.
    """
    random, three = np.random.default_rng(0), from_budgets(1 - np.eye(3))
    worst, control = [], []
    for _ in range(20):
        before = random.multinomial(10**8, np.ones(3) / 3)
        x = np.stack([before, before + np.array([-1, 1, 0])]).astype(np.int32)
        weights = np.float32(random.uniform(-1, 1, (4, 3)))
        cost = np.asarray(linear_selection(x, three, weights=weights).cost, np.float64)
        change = weights[..., :, None] - weights[..., None, :]
        exact = np.ptp(change, axis=-3).max() / 2

        def loss(scale, budget, cost=cost):
            """The largest log-ratio of what draws reach, over the budget, by costs as they are."""
            exponents = -cost / (2 * float(scale))
            logs = exponents - np.logaddexp.reduce(exponents, axis=-1, keepdims=True)
            reached = (logs > -42).all(axis=0)
            return np.where(reached, np.abs(logs[0] - logs[1]), 0).max() / budget

        for budget in (1e-4, 1e-5):
            found = selection_scale(weights, three * budget)
            worst.append(0 if found == np.inf else loss(found, budget))
        control.append(loss(exact / 1e-6, 1e-6))
    assert max(worst) <= 1
    assert max(control) > 1.5  # the scale of exact numbers


def test_differences_that_cancel_are_not_missing_from_the_scale():
    weights = np.array([[-0.3, 1e6], [-0.31, 1e6]])
    assert float(selection_scale(weights, uniform(2, epsilon=1e-6))) >= 5000
