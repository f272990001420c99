"""The posts' utility statements against exact failure probabilities: each holds on every dataset
tried, and half of it does not.
"""

import itertools
from math import log, sqrt

import jax
import numpy as np
import pytest
from scipy.stats import laplace

from dpjax import (
    maximum,
    noisy_binary_search,
    nonnegative_sum,
    order_statistic,
    search_shift_for,
    shift_for,
    shifted_inverse,
)
from dpjax.bounds import finite_ranges
from dpjax.mechanisms import search_rounds

TOP, N = 15, 12
VALUES = np.arange(TOP + 1.0)
CANDIDATES = np.arange(-1.0, TOP + 1)  # one below the range in front, for the search
SETTINGS = list(itertools.product((0.5, 2.0), (0.01, 0.3)))


def datasets(n, rows=60):
    """Records on the candidates, from tied to spread, the last rows all equal."""
    rng = np.random.default_rng(0)
    x = np.minimum(rng.geometric(rng.uniform(0.1, 0.9, (rows, 1)), (rows, n)), float(TOP))
    x[-3:] = np.array([[0.0], [1.0], [8.0]])
    return x


def test_inverse_sensitivity_lemma_3_and_theorem_4(x64):
    """Of the lower median, which can become any y between its extremes."""
    whole = {"lower": 0.0, "upper": float(TOP), "neighbors": "swap"}
    profile = jax.jit(lambda: order_statistic(datasets(9), 5, **whole))()
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
            bound = finite_ranges.loss_bound(epsilon, **facts) / part
            errors = finite_ranges.local_sensitivity_error(profile, epsilon * part, **facts)
            missed = np.sum(mass * (changes >= bound), -1)
            far = np.sum(mass * (error > errors[:, None]), -1)
            fails |= {(name, k) for k, p in enumerate((missed, far)) if (p > beta).any()}
    assert fails == {("half", 0), ("half", 1)}


def test_local_sensitivity_is_that_of_k_changes(x64):
    x, whole = np.arange(9.0) ** 2, {"lower": 0.0, "upper": 99.0, "neighbors": "swap"}
    profile = jax.jit(lambda: order_statistic(x, 5, **whole))()
    facts = {"num_candidates": 4, "failure": 0.1}
    for k, farthest in ((1, 25), (2, 36), (9, 99)):
        epsilon = 2 / (k + 0.5) * log(4 / 0.1)  # k = floor(loss_bound(epsilon))
        found = finite_ranges.local_sensitivity_error(profile, epsilon, **facts)
        assert found == farthest - 16


def test_equation_8_needs_the_logarithm_of_1_over_beta():
    printed, right = (2 * laplace.sf(log(1 / tail)) for tail in (2 * 0.01, 0.01))
    assert (printed, right) == (pytest.approx(2 * 0.01), pytest.approx(0.01))


@jax.jit
def probabilities(distribution):
    return distribution.probabilities()


def fails(distribution, down, tau, beta):
    """Whether [h(2 tau), f(x)] is missed too often, for every row, exactly."""
    low, high = (end[:, None] for end in finite_ranges.shifted_interval(down, tau=tau))
    values = np.asarray(distribution.values)
    outside = (values < low) | (values > high)
    return np.sum(np.asarray(probabilities(distribution)) * outside, -1) > beta


@pytest.mark.parametrize("statistic", [maximum, nonnegative_sum])
def test_shifted_inverse_theorem_4(statistic, x64):
    public = {"upper": float(TOP)} | ({"lower": 0.0} if statistic is maximum else {})
    down, half_fails = jax.jit(lambda: statistic(datasets(N), **public))(), False
    for epsilon, beta in SETTINGS:
        tau = shift_for(epsilon, num_candidates=len(VALUES), failure=beta)
        half = max(tau // 2, 1)
        whole, short = (
            shifted_inverse(down, epsilon, tau=shift, candidates=VALUES) for shift in (tau, half)
        )
        assert not fails(whole, down, tau, beta).any()
        half_fails |= fails(short, down, half, beta).any()
    assert half_fails


@pytest.mark.parametrize("noise", ["theorem 5", "zcdp"])
def test_noisy_binary_search_theorem_5(noise, x64):
    half_fails, size = False, len(CANDIDATES)
    rounds = search_rounds(size)
    down = jax.jit(lambda: maximum(datasets(N), lower=0.0, upper=float(TOP)))()
    for cost, beta in SETTINGS:
        # Theorem 5 as printed but for the rounds: Laplace noise, its scale sqrt(R / (2 rho))
        # and tau from rho.
        given = {"epsilon": sqrt(2 * rounds * cost)} if noise == "theorem 5" else {noise: cost}
        tau = search_shift_for(num_candidates=size, failure=beta, **given)
        if noise == "theorem 5":
            assert tau == pytest.approx(sqrt(rounds / (2 * cost)) * log(rounds / beta))
        whole, short = (
            noisy_binary_search(down, tau=shift, candidates=CANDIDATES, **given)
            for shift in (tau, tau / 2)
        )
        assert not fails(whole, down, tau, beta).any()
        half_fails |= fails(short, down, tau / 2, beta).any()
    assert half_fails
    # Where f is the first candidate, which the search cannot return, it fails.
    from_0 = np.sort(np.append(VALUES, 0.5))
    wrong = noisy_binary_search(down, tau=tau, candidates=from_0, **given)
    assert fails(wrong, down, tau, 1 - 1e-9)[-3]
