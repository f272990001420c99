"""The posts' utility statements against exact failure probabilities: each holds on every dataset
tried, and half of it does not.
"""

import itertools
from math import log, sqrt

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpjax import laplace, median, order_statistic
from dpjax.bounds.finite_ranges import local_sensitivity_error, loss_bound, shifted_interval
from dpjax.distributions.finite import Finite
from dpjax.mechanisms import (
    noisy_binary_search,
    search_rounds,
    search_shift_for,
    shift_for,
    shifted_inverse,
)
from dpjax.mechanisms.candidates import removals
from dpjax.statistics.monotone import maximum, nonnegative_sum
from tests.support import oracle
from tests.support.removals import log_probabilities

TOP = 15
VALUES = np.arange(TOP + 1.0)
SETTINGS = list(itertools.product((0.5, 2.0), (0.01, 0.3)))


def datasets(n, rows=60):
    """Records on the candidates, from tied to spread, the last rows all equal."""
    rng = np.random.default_rng(0)
    x = np.minimum(rng.geometric(rng.uniform(0.1, 0.9, (rows, 1)), (rows, n)), TOP).astype(
        np.float64
    )
    x[-3:] = np.array([[0.0], [1.0], [8.0]])
    return x


def changes_to_reach(profile):
    """len(y) from the definition, for an order statistic, which can become any y between its
    extremes.
    """
    upper, lower = np.asarray(profile.upper), np.asarray(profile.lower)
    width = max(upper.shape[-1], lower.shape[-1])
    upper, lower = (
        np.pad(side, [(0, 0), (0, width - side.shape[-1])], mode="edge") for side in (upper, lower)
    )
    inside = (lower[:, None] <= VALUES[:, None]) & (VALUES[:, None] <= upper[:, None])
    return inside.argmax(-1)


def inverse_sensitivity_on_candidates(n):
    profile = order_statistic(
        datasets(n), (n + 1) // 2, lower=0.0, upper=float(TOP), neighbors="swap"
    )
    return profile, changes_to_reach(profile)


@pytest.mark.parametrize("n", [9, pytest.param(41, marks=pytest.mark.slow)])
def test_inverse_sensitivity_lemma_3_and_theorem_4(n, x64):
    profile, changes = inverse_sensitivity_on_candidates(n)
    error = np.abs(VALUES - np.asarray(profile.value)[:, None])
    failed_by_half = False
    for epsilon, beta in SETTINGS:
        distribution = Finite(
            jnp.asarray(VALUES), jnp.asarray(changes * 1.0), jnp.asarray(epsilon / 2)
        )
        mass = np.exp(log_probabilities(distribution))
        bound = loss_bound(epsilon, num_candidates=len(VALUES), failure=beta)
        assert (np.sum(mass * (changes >= bound), -1) <= beta).all()
        failed_by_half |= (np.sum(mass * (changes >= bound / 2), -1) > beta).any()
        promised = local_sensitivity_error(
            profile, epsilon, num_candidates=len(VALUES), failure=beta
        )
        assert (np.sum(mass * (error > np.asarray(promised)[:, None]), -1) <= beta).all()
    assert failed_by_half
    # And half of Theorem 4's k: far fewer changes move a spread-out median by less than the error
    # of its distribution.
    halves = [
        local_sensitivity_error(profile, 2 * epsilon, num_candidates=len(VALUES), failure=beta)
        for epsilon, beta in SETTINGS
    ]
    masses = [
        np.asarray(
            Finite(
                jnp.asarray(VALUES), jnp.asarray(changes * 1.0), jnp.asarray(epsilon / 2)
            ).probabilities()
        )
        for epsilon, _ in SETTINGS
    ]
    assert any(
        (np.sum(mass * (error > np.asarray(half)[:, None]), -1) > beta).any()
        for (_, beta), mass, half in zip(SETTINGS, masses, halves, strict=True)
    )


def test_local_sensitivity_is_that_of_all_datasets_within_k_changes(x64):
    grid = (0.0, 1.0, 4.0, 5.0)
    for data in oracle.all_datasets([3], grid):
        profile = order_statistic(np.array(data), 2, lower=0.0, upper=5.0, neighbors="swap")
        most, least = oracle.reachable(data, 3, lambda d: sorted(d)[1], "swap", grid)
        for k in range(1, 4):
            # loss_bound(epsilon) = k + 1/2 for this epsilon, so that k = floor(loss_bound)
            epsilon = 2 / (k + 0.5) * log(4 / 0.1)
            exact = max(most[k] - most[0], most[0] - least[k])
            assert (
                float(local_sensitivity_error(profile, epsilon, num_candidates=4, failure=0.1))
                == exact
            )


def test_equation_8_needs_the_logarithm_of_1_over_beta():
    for beta in (0.01, 0.2):
        distribution = laplace(0.0, 2.0, sensitivity=3.0)
        printed, right = (3.0 / 2.0 * log(1 / tail) for tail in (2 * beta, beta))
        assert float(2 * distribution.survival(printed)) == pytest.approx(2 * beta, rel=1e-5)
        assert float(2 * distribution.survival(right)) == pytest.approx(beta, rel=1e-5)


def failures(distribution, down, tau):
    """The exact probability of missing [h(2 tau), f(x)] for every row."""
    low, high = (np.asarray(end)[:, None] for end in shifted_interval(down, tau=tau))
    values = np.asarray(distribution.values)
    return np.sum(np.exp(log_probabilities(distribution)) * ((values < low) | (values > high)), -1)


STATISTICS = {
    "max": lambda x: maximum(x, lower=0.0, upper=float(TOP)),
    "sum": lambda x: nonnegative_sum(x, upper=float(TOP)),
}
CANDIDATES = np.arange(-1.0, TOP + 1)  # one below the range in front, for the search


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "sizes"),
    [
        ("max", (12,)),
        *(pytest.param(name, (12, 40), marks=pytest.mark.slow) for name in STATISTICS),
    ],
)
def test_shifted_inverse_theorem_4(name, sizes, x64):
    half_fails = plain_loss_fails = False
    for n in sizes:
        down = STATISTICS[name](datasets(n))
        to_at_most = jax.jit(removals)(down, jnp.asarray(VALUES))[0]
        for epsilon, beta in SETTINGS:
            tau = shift_for(epsilon, num_candidates=len(VALUES), failure=beta)
            distribution = shifted_inverse(down, epsilon, tau=tau, candidates=VALUES)
            assert (failures(distribution, down, tau) <= beta).all()
            half = max(tau // 2, 1)
            short = shifted_inverse(down, epsilon, tau=half, candidates=VALUES)
            half_fails |= (failures(short, down, half) > beta).any()
            plain = Finite(distribution.values, jnp.abs(to_at_most - tau), distribution.rate)
            plain_loss_fails |= (failures(plain, down, tau) > beta).any()
    assert half_fails
    assert plain_loss_fails  # |l - tau| without footnote 4: constant data have no target


@pytest.mark.slow
@pytest.mark.parametrize(
    ("noise", "sizes"),
    [
        ("theorem 5", (12,)),
        *(
            pytest.param(noise, (12, 40), marks=pytest.mark.slow)
            for noise in ("epsilon", "zcdp", "theorem 5")
        ),
    ],
)
def test_noisy_binary_search_theorem_5(noise, sizes, x64):
    half_fails, size = False, len(CANDIDATES)
    for n in sizes:
        down = maximum(datasets(n), lower=0.0, upper=float(TOP))
        for cost, beta in SETTINGS:
            # Theorem 5 as printed but for the rounds: Laplace noise, its scale sqrt(R / (2 rho))
            # and tau from rho.
            given = (
                {"epsilon": sqrt(2 * search_rounds(size) * cost)}
                if noise == "theorem 5"
                else {noise: cost}
            )
            tau = search_shift_for(num_candidates=size, failure=beta, **given)
            if noise == "theorem 5":
                scale = sqrt(search_rounds(size) / (2 * cost))
                assert tau == pytest.approx(scale * log(search_rounds(size) / beta))
            distribution = noisy_binary_search(down, tau=tau, candidates=CANDIDATES, **given)
            assert (failures(distribution, down, tau) <= beta).all()
            short = noisy_binary_search(down, tau=tau / 2, candidates=CANDIDATES, **given)
            half_fails |= (failures(short, down, tau / 2) > beta).any()
    assert half_fails


def test_theorem_5_fails_where_f_is_the_first_candidate(x64):
    down = maximum(np.zeros((1, 9)), lower=0.0, upper=float(TOP))
    tau = search_shift_for(num_candidates=len(VALUES), failure=0.01, epsilon=2.0)
    assert failures(
        noisy_binary_search(down, tau=tau, candidates=VALUES, epsilon=2.0), down, tau
    ) == pytest.approx(1.0)


def test_bad_parameters_raise():
    for bad in ({"num_candidates": 0, "failure": 0.1}, {"num_candidates": 5, "failure": 0.0}):
        with pytest.raises(ValueError, match=r"num_candidates|failure"):
            loss_bound(1.0, **bad)
    fractional = median(jnp.ones(4), lower=0.0, upper=2.0, neighbors="swap").truncate(1, step=1.0)
    with pytest.raises(ValueError, match="levels"):
        local_sensitivity_error(fractional, 1.0, num_candidates=5, failure=0.1)
    with pytest.raises(ValueError, match="tau"):
        shifted_interval(maximum(jnp.ones(3), lower=0.0, upper=2.0), tau=0)
