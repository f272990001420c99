"""The candidate that stands out: its probability by the recurrence, and the exact delta over all
small score vectors.
"""

import itertools
from math import exp

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpjax import CandidateScores, Guarantee, stand_out
from tests.support.removals import log_probabilities

BUDGETS = np.array([(0.4, 0.02), (1.0, 1e-3), (3.0, 0.1), (0.02, 0.05)])
TOP = 24


def answers(epsilon, delta, count):
    """p(0), p(1), ... by the recurrence."""
    found = [0.0]
    for _ in range(count):
        p = found[-1]
        found.append(min(exp(epsilon) * p + delta, 1 - exp(-epsilon) * (1 - p - delta), 1.0))
    return np.array(found)


def probabilities(points, sensitivity):
    """Of three candidates and the fallback, ``(budget, row, 4)``."""
    epsilon, delta = BUDGETS.T[..., None]
    found = stand_out(
        jnp.asarray(points), epsilon, delta=delta, fallback=-1.0, sensitivity=sensitivity
    )
    return np.exp(log_probabilities(found))


def deltas(found, pairs):
    """The exact delta of the worst pair for each budget, over all sets of outcomes."""
    factor = np.exp(BUDGETS[:, 0])[:, None, None]
    one, other = found[:, pairs[0]], found[:, pairs[1]]
    return np.maximum(one - factor * other, 0).sum(-1).max(-1)


POINTS = np.array(
    [point for point in itertools.product(range(TOP + 1), repeat=3) if min(point) == 0], float
)
INDEX = {tuple(point): row for row, point in enumerate(POINTS)}


def pairs_of(changes):
    """Rows that differ by a change, in both directions; a common shift brings them back onto the
    grid.
    """
    found = []
    for row, point in enumerate(POINTS):
        for change in changes:
            other = point + change
            other = tuple(other - other.min())
            if other in INDEX:
                found += [(row, INDEX[other]), (INDEX[other], row)]
    return np.array(found).T


def test_the_exact_delta_is_the_one_stated_and_smaller_units_leak(x64):
    anything = pairs_of(itertools.product((-1, 0, 1), repeat=3))
    found = probabilities(POINTS, 1.0)
    np.testing.assert_allclose(found.sum(-1), 1, rtol=1e-12)
    exact = deltas(found, anything)
    assert (exact <= BUDGETS[:, 1] * (1 + 1e-9)).all()
    np.testing.assert_allclose(exact, BUDGETS[:, 1], rtol=1e-9)  # and no smaller
    # Control: the lead may change by 2
    assert (deltas(probabilities(POINTS, 0.5), anything) > 1.5 * BUDGETS[:, 1]).all()
    one_more = pairs_of(np.eye(3))  # a record more: one count grows by 1
    np.testing.assert_allclose(
        deltas(probabilities(POINTS, 0.5), one_more), BUDGETS[:, 1], rtol=1e-9
    )
    assert (
        deltas(probabilities(POINTS + (POINTS.max(-1, keepdims=True) == POINTS), 0.5), one_more)
        > 1.2 * BUDGETS[:, 1]
    ).all()


def test_probabilities_are_the_largest_solution_of_the_recurrence(x64):
    lead = np.arange(0, 600.0)
    scores = np.stack([lead, 0 * lead, 0 * lead - 3], axis=-1)
    found = probabilities(scores, 0.5)
    for row, (epsilon, delta) in enumerate(BUDGETS):
        expected = answers(epsilon, delta, 599)
        np.testing.assert_allclose(found[row, :, 0], expected, rtol=1e-9)
        np.testing.assert_allclose(found[row, :, 3], 1 - expected, atol=1e-9 * delta)
    assert (found[:, :, 1:3] == 0).all()
    assert (found[:, -1, 0] == 1).all()


def test_single_precision_extreme_budgets_and_rows_without_a_distribution():
    scores = np.array(
        [
            [9, 2, 2],
            [2, 2, 0],
            [4, -np.inf, -np.inf],
            [np.nan, 0, 0],
            [np.inf, 0, 0],
            [-np.inf] * 3,
        ],
        np.float32,
    )
    for epsilon, delta in ((1e-4, 1e-6), (1.0, 1e-6), (1e4, 0.5), (1e38, 1e-30)):
        found = np.asarray(
            stand_out(scores, epsilon, delta=delta, fallback=7.0, sensitivity=1.0).probabilities()
        )
        assert np.isnan(found[3:]).all()
        np.testing.assert_array_equal(found[1:3], [[0, 0, 0, 1], [1, 0, 0, 0]])
        np.testing.assert_allclose(
            found[0, 0], answers(min(epsilon, 300.0), delta, 3)[-1], rtol=1e-5
        )
    slopes = jax.grad(
        lambda *given: (
            stand_out(scores[:3], given[0], delta=given[1], fallback=7.0, sensitivity=1.0)
            .mean()[:3]
            .sum()
        ),
        (0, 1),
    )
    assert np.isfinite(slopes(1.0, 1e-3)).all()
    swept = jax.jit(
        lambda epsilon: stand_out(
            scores[:2], epsilon, delta=1e-3, fallback=7.0, sensitivity=1.0
        ).mean()
    )(jnp.array([[1.0], [-1.0]]))
    np.testing.assert_array_equal(np.isnan(swept), [[False] * 2, [True] * 2])


def test_guarantee_and_errors():
    scores = CandidateScores(jnp.zeros(5), jnp.arange(5.0), neighbors="edge")
    assert stand_out.guarantee(scores, 0.6, delta=1e-6) == Guarantee(
        0.6, float("inf"), "edge", delta=1e-6
    )
    for options in (
        {"epsilon": 0.0, "delta": 0.1},
        {"epsilon": 1.0, "delta": 0.0},
        {"epsilon": 1.0, "delta": 1.0},
    ):
        with pytest.raises(ValueError, match=r"epsilon|delta"):
            stand_out(scores, fallback=0.0, **options)
