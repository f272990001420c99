"""The noisy tree: its exact probabilities, its losses over all small score vectors, excluded
candidates.
"""

import itertools
from functools import cache, partial
from math import erfc, exp, sqrt

import jax
import numpy as np
import pytest
from numpy.testing import assert_allclose

from dpjax import noisy_tree
from dpjax.mechanisms import tree_rounds
from tests.support.removals import log_probabilities, losses_of, renyi

NOISE = {
    "epsilon": lambda t: exp(t) / 2 if t <= 0 else 1 - exp(-t) / 2,
    "zcdp": lambda t: erfc(-t / sqrt(2)) / 2,
}
ROUNDING = 1e-9


def walk(losses, cdf, scale):
    """Equation 2 by recursion over a complete binary tree, with absent leaves as None."""
    if len(losses) == 1:
        return [1.0]
    half = len(losses) // 2
    left, right = losses[:half], losses[half:]
    minima = [min((x for x in part if x is not None), default=None) for part in (left, right)]
    if None in minima:
        to_right = 1.0 if minima[0] is None else 0.0
        to_left = 1 - to_right
    else:
        q = (minima[0] - minima[1]) / 2
        to_right, to_left = cdf(q / scale), cdf(-q / scale)
    return [to_left * p for p in walk(left, cdf, scale)] + [
        to_right * p for p in walk(right, cdf, scale)
    ]


@pytest.mark.parametrize("size", [1, 5, 8])
@pytest.mark.parametrize("noise", NOISE)
def test_probabilities_are_those_of_the_walk(noise, size, x64):
    rng = np.random.default_rng(0)
    scores = rng.normal(size=(4, size)) * np.array([[0.1], [1.0], [5.0], [40.0]])
    scores[1:, size // 2 + 1 :][rng.uniform(size=scores[1:, size // 2 + 1 :].shape) < 0.4] = -np.inf
    scores[3, : size // 2] = -np.inf
    budget, sensitivity = np.array([0.3, 1.0, 2.0, 1.0]), np.array([1.0, 0.5, 1.0, 2.0])
    rounds = (size - 1).bit_length()
    assert tree_rounds(size) == rounds
    distribution = noisy_tree(scores, sensitivity=sensitivity, **{noise: budget})
    found = np.exp(log_probabilities(distribution))
    each = max(rounds, 1) / budget
    scale = sensitivity * (each if noise == "epsilon" else np.sqrt(each / 2))
    for row in range(4):
        losses = [-x if np.isfinite(x) else None for x in scores[row]] + [None] * (2**rounds - size)
        expected = np.array(walk(losses, NOISE[noise], scale[row])[:size])
        assert_allclose(found[row], expected, rtol=1e-9, atol=1e-300)
        assert found[row].sum() == pytest.approx(1, rel=1e-12)


SIZE = 5
ROUNDS = tree_rounds(SIZE)
EPSILONS = np.array([0.5, 3.0])
# All scores 0..3 of five candidates; all pairs in which each score changes by at most 1
POINTS = np.array(list(itertools.product(range(4), repeat=SIZE)), float)
PAIRS = np.argwhere(np.triu((np.abs(POINTS[:, None] - POINTS) <= 1).all(axis=-1), 1)).T


@partial(jax.jit, static_argnames="noise")
def compiled(noise, budget, sensitivity):
    return noisy_tree(POINTS, sensitivity=sensitivity, **{noise: budget}).log_probabilities()


@cache
def logs_of(noise, budgets, sensitivity=1.0):
    """Log-probabilities of all vectors, for each budget."""
    return np.asarray(compiled(noise, np.array(budgets)[:, None], sensitivity))


def cost_of(**budget):
    return noisy_tree.guarantee(np.zeros(SIZE), neighbors="swap", **budget)


def test_the_loss_of_laplace_noise_stays_within_epsilon(x64):
    """Over all score vectors and all changes by at most 1, exactly."""
    loss, spread = losses_of(logs_of("epsilon", tuple(EPSILONS)), PAIRS)
    costs = [cost_of(epsilon=epsilon) for epsilon in EPSILONS]
    assert (loss <= [cost.epsilon * (1 + ROUNDING) for cost in costs]).all()
    assert (spread <= [cost.bounded_range * (1 + ROUNDING) for cost in costs]).all()
    # Not all queries can change by 1 where all decisions are unlikely: what all of them lose but
    # the one at the root.
    one = EPSILONS / ROUNDS
    assert_allclose(loss, one + (ROUNDS - 1) * np.log(2 - np.exp(-one)), rtol=1e-9)
    # Controls: noise for one query less, and for half of the sensitivity
    fewer = logs_of("epsilon", tuple(EPSILONS * ROUNDS / (ROUNDS - 1)))
    for wrong in (fewer, logs_of("epsilon", tuple(EPSILONS), 0.5)):
        assert losses_of(wrong, PAIRS)[0][0] >= 1.2 * EPSILONS[0]


def test_renyi_divergences_of_both_noises(x64):
    """What the guarantee says of zCDP, with Gaussian noise by design."""
    for noise, budgets in (("zcdp", (0.3,)), ("epsilon", tuple(EPSILONS))):
        for logs, budget in zip(logs_of(noise, budgets), budgets, strict=True):
            most = cost_of(**{noise: budget}).zcdp * (1 + ROUNDING)
            for order in (1.001, 2.0, 8.0, 64.0):
                assert renyi(logs, PAIRS, order) <= order * most


def test_control_gaussian_noise_for_one_query_less(x64):
    """Far in the tail a Gaussian decision is its whole likelihood: with noise for one of two
    queries the root alone spends it all.

    The first of four candidates has the smaller loss of the left half by 2, and a larger one than
    the right half by 32.
    """
    order, rho = 16.0, 0.5
    scores = np.array([0.0, -2.0, 32.0, 32.0])
    points, pair = np.array([scores, scores + np.array([-1, 1, 1, 1])]), np.array([[0], [1]])
    found = noisy_tree(points, zcdp=rho * np.array([[1], [2]]), sensitivity=1.0)
    right, wrong = renyi(log_probabilities(found), pair, order)
    assert right <= order * rho * (1 + ROUNDING)
    assert wrong >= 1.03 * order * rho


def test_zcdp_of_laplace_noise_is_that_of_its_decisions():
    """Each round is a decision of epsilon / rounds, whose zCDP is half its square; that of all of
    them is at most that of epsilon.
    """
    for size, rounds in ((1, 1), (2, 1), (5, 3), (64, 6)):
        cost = noisy_tree.guarantee(np.zeros(size), epsilon=0.6, neighbors="edge")
        each = rounds * (0.6 / rounds) ** 2 / 2
        assert cost.zcdp == pytest.approx(min(each, 0.6 * np.tanh(0.3)), rel=1e-12)
