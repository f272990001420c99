"""The noisy tree: its exact probabilities, its losses over all small score vectors, excluded
candidates.
"""

import itertools
from math import erfc, exp, log, sqrt

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpjax.accounting.guarantee import Guarantee
from dpjax.mechanisms import noisy_tree, tree_rounds
from dpjax.sensitivity.scores import CandidateScores
from dpjax.statistics import candidate_counts
from tests.support.removals import finite_losses, log_probabilities
from tests.support.statistics import assert_counts_follow, assert_counts_rejected

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


@pytest.mark.parametrize(
    "size", [5, *(pytest.param(k, marks=pytest.mark.slow) for k in (1, 2, 3, 8, 37))]
)
@pytest.mark.parametrize("noise", NOISE)
def test_probabilities_are_those_of_the_walk(noise, size, x64):
    rng = np.random.default_rng(0)
    scores = rng.normal(size=(4, size)) * np.array([[0.1], [1.0], [5.0], [40.0]])
    scores[1:, size // 2 :][rng.uniform(size=scores[1:, size // 2 :].shape) < 0.3] = -np.inf
    budget, sensitivity = np.array([0.3, 1.0, 2.0, 1.0]), np.array([1.0, 0.5, 1.0, 2.0])
    rounds = (size - 1).bit_length()
    assert tree_rounds(size) == rounds
    distribution = noisy_tree(jnp.asarray(scores), sensitivity=sensitivity, **{noise: budget})
    found = np.exp(log_probabilities(distribution))
    for row in range(4):
        unit = (
            max(rounds, 1) / budget[row]
            if noise == "epsilon"
            else sqrt(max(rounds, 1) / (2 * budget[row]))
        )
        losses = [-x if np.isfinite(x) else None for x in scores[row]] + [None] * (2**rounds - size)
        if all(x is None for x in losses):
            assert np.isnan(found[row]).all()
            continue
        expected = np.array(walk(losses, NOISE[noise], unit * sensitivity[row])[:size])
        expected[np.isneginf(scores[row])] = 0.0
        np.testing.assert_allclose(found[row], expected, rtol=1e-9, atol=1e-300)
        assert found[row].sum() == pytest.approx(1, rel=1e-12)


def vectors(size, top):
    """All scores 0..top of so many candidates, and all pairs in which each score changes by at most
    1.
    """
    points = np.array(list(itertools.product(range(top + 1), repeat=size)))
    first, second = [], []
    for shift in itertools.product((-1, 0, 1), repeat=size):
        other = points + np.array(shift)
        inside = ((other >= 0) & (other <= top)).all(-1)
        first.append(np.flatnonzero(inside))
        second.append(other[inside] @ (top + 1) ** np.arange(size - 1, -1, -1))
    pairs = np.array([np.concatenate(first), np.concatenate(second)])
    return jnp.asarray(points, jnp.float64), pairs[:, pairs[0] < pairs[1]]


@pytest.mark.parametrize("size", [5, *(pytest.param(k, marks=pytest.mark.slow) for k in (2, 4, 6))])
def test_the_loss_of_laplace_noise_stays_within_epsilon(size, x64):
    """Over all score vectors and all changes by at most 1, exactly; control: noise for one query
    less.
    """
    points, pairs = vectors(size, 2 if size > 5 else 3)
    rounds = tree_rounds(size)
    for epsilon in (0.5, 3.0):
        loss, spread = finite_losses(noisy_tree(points, epsilon=epsilon, sensitivity=1.0), pairs)
        assert loss <= epsilon * (1 + ROUNDING)
        assert spread <= 2 * epsilon * (1 + ROUNDING)
        if size <= 5:
            # Not all queries can change by 1 where all decisions are unlikely: what all of them
            # lose but the one at the root.
            one = epsilon / rounds
            assert loss == pytest.approx(one + (rounds - 1) * log(2 - exp(-one)), rel=ROUNDING)
    if rounds > 1:
        fewer = noisy_tree(points, epsilon=0.5 * rounds / (rounds - 1), sensitivity=1.0)
        assert finite_losses(fewer, pairs)[0] >= 1.2 * 0.5


def renyi(distribution, pairs, order):
    logs = log_probabilities(distribution)
    terms = order * logs[pairs[0]] + (1 - order) * logs[pairs[1]]
    top = terms.max(axis=-1)
    return float(np.max(top + np.log(np.exp(terms - top[:, None]).sum(-1)))) / (order - 1)


def test_renyi_divergences_of_both_noises(x64):
    points, pairs = vectors(5, 3)
    pairs = np.concatenate([pairs, pairs[::-1]], axis=-1)
    rho = 0.3
    gaussian = noisy_tree(points, zcdp=rho, sensitivity=1.0)
    laplace = noisy_tree(points, epsilon=sqrt(2 * 3 * rho), sensitivity=1.0)
    for order in (1.001, 2.0, 8.0, 64.0):
        for distribution in (gaussian, laplace):
            assert renyi(distribution, pairs, order) <= order * rho * (1 + ROUNDING)


def test_control_gaussian_noise_for_one_query_less(x64):
    """Far in the tail a Gaussian decision is its whole likelihood: with noise for one of two
    queries the root alone spends it all.

    The first of four candidates has the smaller loss of the left half by 2, and a larger one than
    the right half by 32.
    """
    order, rho = 16.0, 0.5
    scores = np.array([0.0, -2.0, 32.0, 32.0])
    points = jnp.asarray([scores, scores + np.array([-1, 1, 1, 1])], jnp.float64)
    pair = np.array([[0], [1]])
    right = renyi(noisy_tree(points, zcdp=rho, sensitivity=1.0), pair, order)
    wrong = renyi(noisy_tree(points, zcdp=2 * rho, sensitivity=1.0), pair, order)
    assert right <= order * rho * (1 + ROUNDING)
    assert wrong >= 1.03 * order * rho


def test_control_a_common_shift_is_free_and_a_sensitivity_is_not(x64):
    points, pairs = vectors(4, 3)
    shifted = points + jnp.arange(256.0)[:, None]
    still, wrong = (
        finite_losses(noisy_tree(x, epsilon=1.0, sensitivity=s), pairs)[0]
        for x, s in ((shifted, 1.0), (points, 0.5))
    )
    assert still == pytest.approx(
        finite_losses(noisy_tree(points, epsilon=1.0, sensitivity=1.0), pairs)[0], rel=ROUNDING
    )
    assert wrong >= 1.3


def test_rows_without_a_distribution_and_excluded_candidates():
    scores = jnp.array(
        [
            [1.0, jnp.nan, 0.0],
            [jnp.inf, 0.0, 0.0],
            [-jnp.inf] * 3,
            [-jnp.inf, -jnp.inf, 2.0],
            [0.0, 0.0, 0.0],
        ]
    )
    found = np.asarray(noisy_tree(scores, epsilon=1.0, sensitivity=1.0).probabilities())
    np.testing.assert_allclose(
        found, [[np.nan] * 3] * 3 + [[0, 0, 1], [0.25, 0.25, 0.5]], rtol=1e-6
    )
    bad = noisy_tree(scores, zcdp=jnp.array([1.0, -1.0])[:, None], sensitivity=1.0)
    np.testing.assert_array_equal(np.isnan(bad.mean()), [[True] * 3 + [False] * 2, [True] * 5])
    assert bad.batch_shape == (2, 5)


@pytest.mark.slow
def test_derivatives_are_finite_and_those_of_the_formula(x64):
    scores = jnp.array([1.0, 1.0, -jnp.inf, 3.0, 0.0])

    for noise in NOISE:

        @jax.jit
        def mean(budget, scores, noise=noise):
            return noisy_tree(scores, sensitivity=1.0, **{noise: budget}).mean()

        gradients = jax.jit(jax.grad(mean, argnums=(0, 1)))(jnp.asarray(0.7), scores)
        central = (mean(0.7 + 1e-5, scores) - mean(0.7 - 1e-5, scores)) / 2e-5
        assert float(gradients[0]) == pytest.approx(float(central), rel=1e-6)
        assert jnp.isfinite(gradients[1]).all()
        step = jnp.zeros(5).at[3].set(1e-5)
        central = (mean(0.7, scores + step) - mean(0.7, scores - step)) / 2e-5
        assert float(gradients[1][3]) == pytest.approx(float(central), rel=1e-6)


@pytest.mark.slow
def test_draws_follow_the_distribution_and_do_not_change_with_further_rows():
    scores = np.random.default_rng(1).normal(size=(3, 21)).astype(np.float32)
    distribution, other = (
        noisy_tree(scores, epsilon=epsilon, sensitivity=0.2) for epsilon in (2.0, 2.4)
    )
    index = np.asarray(distribution.sample_index(jax.random.key(0), (100_000,)))
    for row in range(3):
        counts = np.bincount(index[:, row], minlength=21)
        assert_counts_follow(counts, distribution.probabilities()[row])
        assert_counts_rejected(counts, other.probabilities()[row])

    @jax.jit
    def draw(scores):
        return noisy_tree(scores, zcdp=1.0, sensitivity=0.2).sample(jax.random.key(0), (50,))

    np.testing.assert_array_equal(draw(np.concatenate([scores, scores + 1]))[:, :3], draw(scores))


@pytest.mark.slow
def test_float32_agrees_with_float64(x64):
    scores = np.random.default_rng(3).normal(size=(2, 37))
    for noise in NOISE:
        single, double = (
            noisy_tree(jnp.asarray(scores, t), sensitivity=0.1, **{noise: 1.0})
            for t in ("float32", "float64")
        )
        assert single.dtype == single.cost.dtype == jnp.float32
        np.testing.assert_allclose(single.cost, double.cost, rtol=2e-5)


def test_guarantees_and_errors():
    scores = CandidateScores(jnp.zeros(5), jnp.arange(5.0), neighbors="edge")
    assert noisy_tree.guarantee(scores, epsilon=0.6) == Guarantee(0.6, 1.2, "edge", zcdp=0.06)
    infinite = float("inf")
    assert noisy_tree.guarantee(jnp.zeros(5), zcdp=0.5, neighbors="swap") == Guarantee(
        infinite, infinite, "swap", zcdp=0.5
    )
    assert noisy_tree.guarantee(jnp.zeros(1), epsilon=2.0, neighbors="swap").epsilon == 2.0
    with pytest.raises(TypeError, match="relation"):
        noisy_tree.guarantee(jnp.zeros(5), epsilon=0.5)
    for options, match in (
        ({}, "exactly one"),
        ({"epsilon": 1.0, "zcdp": 1.0}, "exactly one"),
        ({"epsilon": 0.0}, "epsilon"),
        ({"zcdp": -1.0}, "zcdp"),
        ({"epsilon": 1.0, "sensitivity": 1.0}, "carry their"),
    ):
        with pytest.raises(ValueError, match=match):
            noisy_tree(scores, **options)
    with pytest.raises(ValueError, match="num_candidates"):
        tree_rounds(0)


@pytest.mark.slow
def test_scores_of_a_statistic():
    counts = candidate_counts(
        jnp.array([0.0, 1.0, 1.0]), candidates=[0.0, 1.0, 2.0], neighbors="add_remove"
    )
    assert float(noisy_tree(counts, epsilon=50.0).prob(1.0)) > 0.99
