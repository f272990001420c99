"""The candidate that stands out: its probability by the recurrence, and the exact delta over all
small score vectors.
"""

import itertools
from math import exp

import jax
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from dpjax import stand_out

BUDGETS = np.array([(0.4, 0.02), (1.0, 1e-3), (3.0, 0.1), (0.02, 0.05)])
TOP = 16


def answers(epsilon, delta, count):
    """p(0), p(1), ... by the recurrence."""
    found = [0.0]
    for _ in range(count):
        p = found[-1]
        found.append(min(exp(epsilon) * p + delta, 1 - exp(-epsilon) * (1 - p - delta), 1.0))
    return np.array(found)


@jax.jit
def compiled(points, epsilon, delta, sensitivity):
    return stand_out(
        points, epsilon, delta=delta, fallback=-1.0, sensitivity=sensitivity
    ).probabilities()


def probabilities(points, sensitivity):
    """Of three candidates and the fallback, ``(budget, row, 4)``."""
    epsilon, delta = BUDGETS.T[..., None]
    return np.asarray(compiled(points, epsilon, delta, sensitivity))


def deltas(found, pairs):
    """The exact delta of the worst pair for each budget over the stated one, over all sets of
    outcomes.
    """
    factor = np.exp(BUDGETS[:, 0])[:, None, None]
    one, other = found[:, pairs[0]], found[:, pairs[1]]
    return np.maximum(one - factor * other, 0).sum(-1).max(-1) / BUDGETS[:, 1]


POINTS = np.array(
    [point for point in itertools.product(range(TOP + 1), repeat=3) if min(point) == 0], float
)
INDEX = {tuple(point): row for row, point in enumerate(POINTS)}


def pairs_of(changes):
    """Rows that differ by a change, in both directions; a common shift brings them back onto the
    grid.
    """
    others = POINTS[:, None] + np.array(list(changes))
    others = (others - others.min(-1, keepdims=True)).reshape(len(POINTS), -1, 3)
    found = [
        (row, INDEX[other])
        for row, near in enumerate(others)
        for other in map(tuple, near)
        if other in INDEX
    ]
    return np.array(found + [pair[::-1] for pair in found]).T


def test_the_exact_delta_is_the_one_stated_and_smaller_units_leak(x64):
    anything = pairs_of(itertools.product((-1, 0, 1), repeat=3))
    one_more = pairs_of(np.eye(3))  # a record more: one count grows by 1
    found, half = (probabilities(POINTS, sensitivity) for sensitivity in (1.0, 0.5))
    assert_allclose(found.sum(-1), 1, rtol=1e-12)
    assert_allclose(deltas(found, anything), 1, rtol=1e-9)
    # Control: the lead may change by 2
    assert (deltas(half, anything) > 1.5).all()
    assert_allclose(deltas(half, one_more), 1, rtol=1e-9)
    twice = probabilities(POINTS + (POINTS.max(-1, keepdims=True) == POINTS), 0.5)
    assert (deltas(twice, one_more) > 1.2).all()


def test_probabilities_are_the_largest_solution_of_the_recurrence(x64):
    lead = np.arange(0, 600.0)
    found = probabilities(np.stack([lead, 0 * lead, 0 * lead - 3], axis=-1), 0.5)
    for row, (epsilon, delta) in enumerate(BUDGETS):
        expected = answers(epsilon, delta, 599)
        assert_allclose(found[row, :, 0], expected, rtol=1e-9)
        assert_allclose(found[row, :, 3], 1 - expected, atol=1e-9 * delta)
    assert (found[:, :, 1:3] == 0).all()
    assert (found[:, -1, 0] == 1).all()


@pytest.mark.parametrize(
    ("epsilon", "delta"), [(1e-4, 1e-6), (1.0, 1e-6), (1e4, 0.5), (1e38, 1e-30)]
)
def test_single_precision_extreme_budgets_and_rows_without_a_distribution(epsilon, delta):
    none = [[np.nan, 0, 0], [np.inf, 0, 0], [-np.inf] * 3]
    scores = np.array([[9, 2, 2], [2, 2, 0], [4, -np.inf, -np.inf], *none], np.float32)
    found = np.asarray(compiled(scores, np.float32(epsilon), np.float32(delta), np.float32(1)))
    assert np.isnan(found[3:]).all()
    assert_array_equal(found[1:3], [[0, 0, 0, 1], [1, 0, 0, 0]])
    expected = answers(min(epsilon, 300.0), delta, 3)[-1]
    assert_allclose(found[0, 0], expected, rtol=1e-5)
