"""The posts' utility statements against exact failure probabilities: each holds on every dataset
tried, and half of it does not.
"""

import itertools
from math import log, sqrt

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpjax import (
    Finite,
    laplace,
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
from tests.support import oracle

TOP, N = 15, 12
VALUES = np.arange(TOP + 1.0)
CANDIDATES = np.arange(-1.0, TOP + 1)  # one below the range in front, for the search
SETTINGS = list(itertools.product((0.5, 2.0), (0.01, 0.3)))


def datasets(n, rows=60):
    """Records on the candidates, from tied to spread, the last rows all equal."""
    rng = np.random.default_rng(0)
    x = np.minimum(rng.geometric(rng.uniform(0.1, 0.9, (rows, 1)), (rows, n)), TOP).astype(
        np.float64
    )
    x[-3:] = np.array([[0.0], [1.0], [8.0]])
    return x


def test_inverse_sensitivity_lemma_3_and_theorem_4(x64):
    """Of the lower median, which can become any y between its extremes."""
    profile = order_statistic(datasets(9), 5, lower=0.0, upper=float(TOP), neighbors="swap")
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
            # Half of Theorem 4's k: far fewer changes move a spread-out median by less than the
            # error of its distribution.
            errors = finite_ranges.local_sensitivity_error(profile, epsilon * part, **facts)
            missed = np.sum(mass * (changes >= bound), -1)
            far = np.sum(mass * (error > np.asarray(errors)[:, None]), -1)
            fails |= {(name, k) for k, p in enumerate((missed, far)) if (p > beta).any()}
    assert fails == {("half", 0), ("half", 1)}


def test_local_sensitivity_is_that_of_all_datasets_within_k_changes(x64):
    grid = (0.0, 1.0, 4.0, 5.0)
    every = oracle.all_datasets([3], grid)
    profile = order_statistic(np.array(every), 2, lower=0.0, upper=5.0, neighbors="swap")
    reached = [oracle.reachable(data, 3, lambda d: sorted(d)[1], "swap", grid) for data in every]
    for k in range(1, 4):
        # loss_bound(epsilon) = k + 1/2 for this epsilon, so that k = floor(loss_bound)
        epsilon = 2 / (k + 0.5) * log(4 / 0.1)
        found = finite_ranges.local_sensitivity_error(
            profile, epsilon, num_candidates=4, failure=0.1
        )
        exact = [max(most[k] - most[0], most[0] - least[k]) for most, least in reached]
        np.testing.assert_array_equal(found, exact)


def test_equation_8_needs_the_logarithm_of_1_over_beta():
    survival = jax.jit(laplace(0.0, 2.0, sensitivity=3.0).survival)
    for beta in (0.01, 0.2):
        printed, right = (2 * float(survival(1.5 * log(1 / tail))) for tail in (2 * beta, beta))
        assert (printed, right) == (
            pytest.approx(2 * beta, rel=1e-5),
            pytest.approx(beta, rel=1e-5),
        )


@jax.jit
def probabilities(distribution):
    return distribution.probabilities()


def failures(distribution, down, tau):
    """The exact probability of missing [h(2 tau), f(x)] for every row."""
    ends = finite_ranges.shifted_interval(down, tau=tau)
    low, high = (np.asarray(end)[:, None] for end in ends)
    values = np.asarray(distribution.values)
    return np.sum(np.asarray(probabilities(distribution)) * ((values < low) | (values > high)), -1)


@pytest.mark.parametrize("name", ["max", "sum"])
def test_shifted_inverse_theorem_4(name, x64):
    x, half_fails, plain_fails = datasets(N), False, False
    down = (
        maximum(x, lower=0.0, upper=float(TOP))
        if name == "max"
        else nonnegative_sum(x, upper=float(TOP))
    )
    for epsilon, beta in SETTINGS:
        tau = shift_for(epsilon, num_candidates=len(VALUES), failure=beta)
        found = shifted_inverse(down, epsilon, tau=tau, candidates=VALUES)
        assert (failures(found, down, tau) <= beta).all()
        half = max(tau // 2, 1)
        short = shifted_inverse(down, epsilon, tau=half, candidates=VALUES)
        half_fails |= (failures(short, down, half) > beta).any()
        removed = np.sum(x[:, None] > VALUES[:, None], -1)  # to at most y
        plain = Finite(found.values, jnp.asarray(np.abs(removed - tau) * 1.0), found.rate)
        plain_fails |= (failures(plain, down, tau) > beta).any()
    assert half_fails
    # |l - tau| without footnote 4: constant data have no target
    assert plain_fails or name == "sum"


@pytest.mark.parametrize("noise", ["theorem 5", "zcdp"])
def test_noisy_binary_search_theorem_5(noise, x64):
    half_fails, size = False, len(CANDIDATES)
    rounds = search_rounds(size)
    down = maximum(datasets(N), lower=0.0, upper=float(TOP))
    for cost, beta in SETTINGS:
        # Theorem 5 as printed but for the rounds: Laplace noise, its scale sqrt(R / (2 rho))
        # and tau from rho.
        given = {"epsilon": sqrt(2 * rounds * cost)} if noise == "theorem 5" else {noise: cost}
        tau = search_shift_for(num_candidates=size, failure=beta, **given)
        if noise == "theorem 5":
            assert tau == pytest.approx(sqrt(rounds / (2 * cost)) * log(rounds / beta))
        found = noisy_binary_search(down, tau=tau, candidates=CANDIDATES, **given)
        assert (failures(found, down, tau) <= beta).all()
        short = noisy_binary_search(down, tau=tau / 2, candidates=CANDIDATES, **given)
        half_fails |= (failures(short, down, tau / 2) > beta).any()
    assert half_fails
    # Where f is the first candidate, which the search cannot return, it fails.
    wrong = noisy_binary_search(down, tau=tau, candidates=VALUES, **given)
    assert failures(wrong, down, tau)[-3] == pytest.approx(1.0)
