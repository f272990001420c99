"""The d-private exponential mechanism, audited over every histogram of a few records and every
move.
"""

import jax
import numpy as np
import pytest

from dpjax.metric_privacy import from_budgets, linear_selection, metric_exponential
from tests.support.histograms import histograms, losses, moves

ROWS = np.concatenate([histograms(3, n) for n in range(4)])
BUDGETS = np.array([[0.0, 0.7, 1.2], [0.7, 0.0, 0.9], [1.2, 0.9, 0.0]])


@jax.jit
def log_probabilities(distribution):
    return distribution.log_probabilities()


def scale_of(weights, budgets, x=(1, 0, 0)):
    """The c of a selection."""
    found = linear_selection(x, from_budgets(budgets), weights=weights)
    return 0.5 / float(found.rate)


def selected(weights, budgets=BUDGETS, absence=None):
    metric = from_budgets(budgets)
    metric = metric if absence is None else metric.with_absence(absence)
    return np.asarray(log_probabilities(linear_selection(ROWS, metric, weights=weights)))


def test_linear_selection_is_private_and_attains_the_range(x64):
    random, found = np.random.default_rng(0), []
    for number, size in enumerate(np.geomspace(0.01, 100, 12)):
        weights = random.normal(size=(4, 3)) * size
        if number % 4 == 2:
            weights[1:] = 0  # one score moves and the others do not
        i, j = np.triu_indices(3, 1)
        largest = np.abs(weights[:, i] - weights[:, j]).max(axis=0)
        printed = (largest / BUDGETS[i, j]).max()  # Theorem 3
        scale = scale_of(weights, BUDGETS)
        assert scale <= printed * (1 + 1e-12)
        assert number % 4 != 2 or scale == pytest.approx(printed / 2, rel=1e-12)
        loss, spread = losses(selected(weights), ROWS, BUDGETS)
        assert loss <= 1 + 1e-9
        assert spread == pytest.approx(1, rel=1e-9)
        # The control: the scale of a tenth more budget
        control = losses(selected(weights, BUDGETS * 1.1), ROWS, BUDGETS)
        assert control[1] == pytest.approx(1.1, rel=1e-9)
        found.append(loss)
    assert max(found) > 0.85


def test_given_sensitivities(x64):
    """Scores that are not linear; the sensitivities by search: the largest change, half of the
    range of changes, and, as a control, less than that.
    """
    a, b, c = ROWS.T
    scores = np.stack([-np.maximum(a, b), np.abs(c - 2), a * b / 2, 0 * a], axis=-1)
    before, after, i, j = moves(ROWS)
    change = scores[after] - scores[before]
    found = np.zeros((2, 3, 3))
    np.maximum.at(found[0], (i, j), np.abs(change).max(-1))
    np.maximum.at(found[1], (i, j), np.ptp(change, axis=-1) / 2)
    largest, half, less = np.tril([*found, found[1] / 1.1])  # of one way, for both
    for sensitivity, most in ((largest, 1), (half, 1), (less, 1.1)):
        distribution = metric_exponential(scores, from_budgets(BUDGETS), sensitivity=sensitivity)
        loss, spread = losses(log_probabilities(distribution), ROWS, BUDGETS)
        assert max(loss, spread) <= most + 1e-9
        assert sensitivity is largest or spread == pytest.approx(most, rel=1e-9)


def test_the_null_record_makes_n_private(x64):
    """Scores that count all records: a record more costs its budget; without the null record they
    tell n.
    """
    absence = np.array([0.5, 0.8, 1.0])
    whole = from_budgets(BUDGETS).with_absence(absence).budgets
    padded = np.column_stack([ROWS, 10 - ROWS.sum(-1)])  # null records counted: a move is a move
    counts = np.array([[1.0, 0.0, 1.0], [0.0, 1.0, 1.0], [0.0, 0.0, 0.0], [0.0, 0.0, 0.0]])
    everyone = np.array([[1.0, 1.0, 1.0], [0.0, 0.0, 0.0], [-1.0, -1.0, -0.9], [0.0, 0.0, 0.0]])
    loss, spread = losses(selected(counts, absence=absence), padded, whole)
    assert loss <= 1 + 1e-9
    assert spread == pytest.approx(1.0, rel=1e-9)
    assert losses(selected(everyone, absence=absence), padded, whole)[0] <= 1 + 1e-9
    assert losses(selected(everyone), padded, whole)[0] > 5  # the control


def test_extreme_budgets(x64):
    """A pair without budget makes the distribution uniform; nothing to protect makes it the argmax,
    where a tie that rounding would break stays a tie: 0.1 + 0.1 + 0.1 is not 0.3 in floats.
    """
    weights = np.array([[0.1, 0.1, 0.0], [0.15, 0.075, 0.0], [0.0, 0.0, 0.1], [0.0, 0.0, 0.0]])
    row = ROWS.tolist().index([1, 2, 0])
    free = np.where(np.eye(3) == 1, 0, np.inf)
    for budgets, expected in ((np.zeros((3, 3)), [0.25] * 4), (free, [0.5, 0.5, 0.0, 0.0])):
        np.testing.assert_allclose(np.exp(selected(weights, budgets)[row]), expected, rtol=1e-7)
    # Unprotected pairs do not count.
    half = np.array([[0, np.inf, np.inf], [np.inf, 0, 2.0], [np.inf, 2.0, 0]])
    assert scale_of(np.eye(3), half) == pytest.approx(0.5, rel=1e-12)


def test_the_rounding_of_many_records_is_taken_from_the_budgets():
    """Where a record is less than a unit in the last place of a cost, what moves by rounding moves
    by that.
    """
    random, three = np.random.default_rng(0), 1 - np.eye(3)
    worst, control = [], []
    for _ in range(20):
        before = random.multinomial(10**8, np.ones(3) / 3)
        x = np.stack([before, before + np.array([-1, 1, 0])]).astype(np.int32)
        weights = np.float32(random.uniform(-1, 1, (4, 3)))
        cost = np.asarray(
            linear_selection(x, from_budgets(three), weights=weights).cost, np.float64
        )
        exact = np.ptp(weights[:, :, None] - weights[:, None], axis=0).max() / 2
        for scale, budget, ratios in (
            (scale_of(weights, three * 1e-4), 1e-4, worst),
            (exact / 1e-6, 1e-6, control),  # the scale of exact numbers
        ):
            exponents = -cost / (2 * scale)
            logs = exponents - np.logaddexp.reduce(exponents, axis=-1, keepdims=True)
            reached = (logs > -42).all(axis=0)  # by a draw
            ratios.append(np.where(reached, np.abs(logs[0] - logs[1]), 0).max() / budget)
    assert max(worst) <= 1
    assert max(control) > 1.5


def test_differences_that_cancel_are_not_missing_from_the_scale(x64):
    weights = np.array([[-0.3, 1e6], [-0.31, 1e6]])
    assert scale_of(weights, 1e-6 * (1 - np.eye(2)), (1, 0)) >= 5000
