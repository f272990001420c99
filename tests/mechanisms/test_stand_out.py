"""The candidate that stands out: its probability by the recurrence, and the exact delta over all
small score vectors.
"""

import itertools
from fractions import Fraction
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
# How far the differences of two rows are apart: a common shift of all scores is no change
SPREAD = np.ptp(POINTS[:, None] - POINTS, axis=-1)


def test_the_exact_delta_is_the_one_stated_and_smaller_units_leak(x64):
    anything = np.argwhere((SPREAD > 0) & (SPREAD <= 2)).T  # all scores change by at most 1
    one_more = np.argwhere(SPREAD == 1).T  # a record more: one count grows by 1
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


def test_a_tie_a_single_candidate_and_rows_without_a_distribution():
    none = [[np.nan, 0, 0], [np.inf, 0, 0], [-np.inf] * 3]
    scores = np.array([[2, 2, 0], [4, -np.inf, -np.inf], *none], np.float32)
    found = np.asarray(compiled(scores, *np.float32([1e38, 1e-30, 1])))
    assert_array_equal(found[:2], [[0, 0, 0, 1], [1, 0, 0, 0]])
    assert np.isnan(found[2:]).all()


def deltas_of_leads(dtype):
    """The delta that each budget needs over the stated one, over all leads that differ by a step;
    budgets at which the minimum of the recurrence turns, and smaller than what is rounded.
    """
    exponents = np.array([1e-7, 1e-5, 0.003, 0.3, 1, 8, 20, 40, 100, 1e38])
    turns = 1 / (1 + np.exp(exponents[exponents < 60]))
    small = [1e-30, 1e-12, 1e-9, 1e-7, 1e-6, 0.01, 0.5, 0.9]
    budgets = [*itertools.product(exponents, small), *zip(exponents, turns, strict=False)]
    epsilon, delta = np.array(budgets, dtype).T
    lead = np.concatenate([np.arange(400), np.repeat(np.geomspace(400, 3e4, 200).round(), 2)])
    lead[401::2] += 1
    points = 2 * np.stack([lead, 0 * lead, 0 * lead], axis=-1).astype(dtype)
    found = jax.jit(
        lambda *given: stand_out(
            points, given[0], delta=given[1], fallback=-1.0, sensitivity=dtype(1)
        ).log_probabilities()
    )(epsilon[:, None], delta[:, None])
    both = np.exp(np.asarray(found, np.float64)[..., [0, 3]])
    factor = np.exp(np.minimum(epsilon.astype(np.float64), 700))[:, None, None]
    one, other = both[:, 1:], both[:, :-1]
    needed = [np.maximum(a - factor * b, 0).sum(-1) for a, b in ((one, other), (other, one))]
    worst = (np.max(needed, axis=0) * (np.diff(lead) == 1)).max(-1)
    return np.maximum(worst, both[:, 1, 0]) / delta


def test_every_delta_is_kept_by_the_floats_in_single_precision():
    found = deltas_of_leads(np.float32)
    assert (found <= 1).all()
    assert np.median(found) > 0.99


def test_every_delta_is_kept_by_the_floats(x64):
    assert (deltas_of_leads(np.float64) <= 1).all()


def test_control_the_recurrence_rounded_to_single_precision_leaks():
    p = answers(0.3, 1e-9, 399).astype(np.float32).astype(np.float64)
    assert np.max(p[1:] - np.exp(0.3) * p[:-1]) > 2e-9


def neighbors_on_a_grid(unit, dtype):
    """Pairs of three scores near multiples of a unit, whose changes are at most it, exactly."""
    random = np.random.default_rng(0)
    steps = random.integers(0, 60, (3999, 3)) * [1, 0, 1]
    one = (steps * unit).astype(dtype)
    other = ((steps + random.integers(-1, 2, steps.shape)) * unit).astype(dtype)
    exact = [
        all(abs(Fraction(a) - Fraction(b)) <= Fraction(unit) for a, b in zip(*pair, strict=True))
        for pair in zip(one.tolist(), other.tolist(), strict=True)
    ]
    assert sum(exact) > 1000
    other[~np.array(exact)] = one[~np.array(exact)]
    return one, other


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_leads_near_a_multiple_are_compared_exactly(dtype, x64):
    """Neither the difference of two scores nor its quotient may be rounded across a multiple."""
    epsilon, delta, least = dtype(1), dtype(1e-6), 4 * np.finfo(dtype).eps / 2
    # Leads of 4 - least and 8 - least, of which the second is rounded to 8
    rounded = [[4, least, -9]], [[6, -2 + least, -9]]
    near = {unit: neighbors_on_a_grid(unit, dtype) for unit in map(float, dtype([0.1, 0.3, 0.7]))}
    for unit, pair in (
        {2.0: [np.tile(row, (3999, 1)).astype(dtype) for row in rounded]} | near
    ).items():
        one, other = (np.float64(compiled(rows, epsilon, delta, dtype(unit))) for rows in pair)
        for p, q in ((one, other), (other, one)):
            assert np.maximum(p - np.e * q, 0).sum(-1).max() <= 1e-6 * (1 + 1e-6)
