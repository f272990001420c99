"""Bounds of selections from candidates against exact distributions: each holds on every dataset
tried, and half of it does not.
"""

import itertools
from functools import partial
from math import e, log, sqrt

import jax
import numpy as np
import pytest
from scipy.stats import norm

from dpjax import (
    exponential,
    maximum,
    noisy_binary_search,
    noisy_tree,
    nonnegative_sum,
    order_statistic,
    search_shift_for,
    shift_for,
    shifted_inverse,
)
from dpjax.bounds import selection
from dpjax.mechanisms import search_rounds

TOP = 15
VALUES = np.arange(TOP + 1.0)
CANDIDATES = np.arange(-1.0, TOP + 1)  # one below the range in front, for the search
SETTINGS = list(itertools.product((0.5, 2.0), (0.01, 0.3)))
KNOWN = {"lower": 0.0, "upper": float(TOP)}


def datasets(n, rows=60):
    """Records on the candidates, from tied to spread, the last rows all equal."""
    rng = np.random.default_rng(0)
    x = np.minimum(rng.geometric(rng.uniform(0.1, 0.9, (rows, 1)), (rows, n)), float(TOP))
    x[-3:] = np.array([[0.0], [1.0], [8.0]])
    return x


def test_inverse_sensitivity_lemma_3_and_theorem_4(x64):
    """Of the lower median, which can become any y between its extremes."""
    profile = jax.jit(lambda: order_statistic(datasets(9), 5, neighbors="swap", **KNOWN))()
    upper, lower = (np.asarray(side)[:, None] for side in (profile.upper, profile.lower))
    y = VALUES[:, None]
    changes = ((lower <= y) & (y <= upper)).argmax(-1)  # len(y) from the definition
    error = np.abs(VALUES - np.asarray(profile.value)[:, None])
    fails = set()
    for epsilon, beta in SETTINGS:
        mass = np.exp(-changes * epsilon / 2)
        mass /= mass.sum(-1, keepdims=True)
        facts = {"num_candidates": len(VALUES), "failure": beta}
        for name, part in (("whole", 1), ("half", 2)):
            bound = selection.loss_bound(epsilon, **facts) / part
            errors = selection.local_sensitivity_error(profile, epsilon * part, **facts)
            missed = np.sum(mass * (changes >= bound), -1)
            far = np.sum(mass * (error > errors[:, None]), -1)
            fails |= {(name, k) for k, p in enumerate((missed, far)) if (p > beta).any()}
    assert fails == {("half", 0), ("half", 1)}
    for k in (1, 2, 5):  # as far as k = floor(loss_bound(epsilon)) changes take it
        epsilon = 2 / (k + 0.5) * log(4 / 0.1)
        found = selection.local_sensitivity_error(profile, epsilon, num_candidates=4, failure=0.1)
        sides = upper[:, 0, k] - profile.value, profile.value - lower[:, 0, k]
        np.testing.assert_array_equal(found, np.maximum(*sides))


@jax.jit
def probabilities(distribution):
    return distribution.probabilities()


def fails(distribution, down, tau, beta):
    """Whether [h(2 tau), f(x)] is missed too often, for every row, exactly."""
    low, high = (end[:, None] for end in selection.shifted_interval(down, tau=tau))
    values = np.asarray(distribution.values)
    outside = (values < low) | (values > high)
    return np.sum(np.asarray(probabilities(distribution)) * outside, -1) > beta


def test_shifted_inverse_theorem_4(x64):
    down, half_fails = jax.jit(lambda: nonnegative_sum(datasets(12), upper=float(TOP)))(), False
    inverse = jax.jit(partial(shifted_inverse, candidates=VALUES), static_argnames="tau")
    for epsilon, beta in SETTINGS:
        tau = shift_for(epsilon, num_candidates=len(VALUES), failure=beta)
        whole, short = (
            fails(inverse(down, epsilon, tau=t), down, t, beta) for t in (tau, max(tau // 2, 1))
        )
        assert not whole.any()
        half_fails |= short.any()
    assert half_fails


@pytest.mark.parametrize("noise", ["epsilon", "zcdp"])
def test_noisy_binary_search_theorem_5(noise, x64):
    """As printed but for the rounds: Laplace noise, its scale sqrt(R / (2 rho)), and tau from rho;
    and with Gaussian noise.
    """
    down, half_fails = jax.jit(lambda: maximum(datasets(12), **KNOWN))(), False
    size = len(CANDIDATES)
    for rho, beta in SETTINGS:
        given = {noise: rho if noise == "zcdp" else sqrt(2 * search_rounds(size) * rho)}
        tau = search_shift_for(num_candidates=size, failure=beta, **given)
        whole, short = (
            fails(noisy_binary_search(down, tau=t, candidates=CANDIDATES, **given), down, t, beta)
            for t in (tau, tau / 2)
        )
        assert not whole.any()
        half_fails |= short.any()
    assert half_fails
    # Where f is the first candidate, which the search cannot return, it fails.
    from_0 = np.sort(np.append(VALUES, 0.5))
    wrong = noisy_binary_search(down, tau=tau, candidates=from_0, **given)
    assert fails(wrong, down, tau, 1 - 1e-9)[-3]


WORST_AT = {"zcdp": 0.7517915247, "epsilon": 1.0}  # max of v P[noise >= v] is there


def test_the_constants():
    gaussian = WORST_AT["zcdp"] * norm.sf(WORST_AT["zcdp"])
    assert max(v * norm.sf(v) for v in np.linspace(0, 10, 1001)) <= gaussian
    found = selection.noisy_tree_excess(16, zcdp=0.5)
    assert found == pytest.approx(2 * gaussian * 4**1.5, rel=1e-14)
    found = selection.noisy_tree_excess(9, epsilon=0.5, sensitivity=3.0)
    assert found == pytest.approx(16 / (0.5 * e) * 3, rel=1e-14)
    with pytest.raises(ValueError, match="exactly one of epsilon"):
        selection.noisy_tree_excess(9)


@pytest.mark.parametrize("noise", WORST_AT)
def test_losses_that_count_wrong_decisions_attain_the_bound(noise, x64):
    """Every node then has the worst query; other losses, and other scales of these, stay below."""
    size, budget = 16, 0.4
    scale = sqrt(4 / (2 * budget)) if noise == "zcdp" else 4 / budget
    ones = np.array([bin(i).count("1") for i in range(size)], float)
    random = np.random.default_rng(0).exponential(size=(200, size))
    random *= np.geomspace(0.1, 100, 200)[:, None]
    worst = 2 * scale * WORST_AT[noise] * ones * np.array([[1.0], [0.7], [1.4]])
    losses = np.concatenate([worst, random])

    @jax.jit
    def expected(losses):
        tree = noisy_tree(-losses, sensitivity=1.0, **{noise: budget})
        other = exponential(-losses, 1.0, sensitivity=1.0)
        return tree.expectation(losses), other.expectation(losses)

    of_tree, of_exponential = (np.asarray(mean) - losses.min(-1) for mean in expected(losses))
    bound = selection.noisy_tree_excess(size, **{noise: budget})
    assert of_tree[0] == pytest.approx(bound, rel=1e-12)
    assert (of_tree[1:] < bound * (1 - 1e-3)).all()
    assert of_exponential.max() <= selection.exponential_excess(size, 1.0)
    assert of_exponential.max() > selection.exponential_excess(size, 3.5)  # control
