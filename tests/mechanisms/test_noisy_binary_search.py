"""The noisy binary search: its rounds, its exact probabilities, its losses over all small datasets,
and the published constant.
"""

from functools import cache, partial
from math import ceil, erfc, exp, log, log2, sqrt

import jax
import numpy as np
import pytest
from numpy.testing import assert_allclose

from dpjax import DownSensitivity, noisy_binary_search
from dpjax.mechanisms import search_rounds, search_shift_for
from tests.support.golden import golden
from tests.support.removals import (
    DATASETS,
    losses_of,
    minima,
    neighboring,
    renyi,
)

GOLDEN = golden("H_binary_search")
ROUNDING = 1e-9
CANDIDATES = np.array([-1.0, 0.0, 0.5, 1.0, 2.0, 3.0, 4.0, 4.5, 5.0, 6.0, 7.0])
NOISE = {
    "epsilon": lambda t: exp(t) / 2 if t <= 0 else 1 - exp(-t) / 2,
    "zcdp": lambda t: erfc(-t / sqrt(2)) / 2,
}


@partial(jax.jit, static_argnames="noise")
def compiled(noise, values, candidates, tau, budget):
    """Log-probabilities of the search where nothing is above the last candidate."""
    down = DownSensitivity(values, candidates[-1])
    return noisy_binary_search(
        down, tau=tau, candidates=candidates, **{noise: budget}
    ).log_probabilities()


def search(*given):
    """The same as an array of NumPy."""
    return np.asarray(compiled(*given))


def pseudocode(loss, size, tau, scale, cdf, low=0, high=None):
    """The post's loop with both branches taken: the probability of every candidate and the largest
    number of rounds.
    """
    high = size - 1 if high is None else high
    if not low + 1 < high:
        return {high: 1.0}, 0
    k = (low + high) // 2
    left = cdf((tau - loss(k)) / scale)
    right = cdf((loss(k) - tau) / scale)
    (a, deep), (b, deeper) = (
        pseudocode(loss, size, tau, scale, cdf, *half) for half in ((low, k), (k, high))
    )
    return {leaf: left * p for leaf, p in a.items()} | {
        leaf: right * p for leaf, p in b.items()
    }, 1 + max(deep, deeper)


def test_rounds_of_the_table_of_the_formula_and_of_the_loop():
    assert search_rounds(1) == 0
    for row in GOLDEN["rounds"]:
        k = row["Y"]
        simulated = pseudocode(lambda k: 0.0, k, 1.0, 1.0, NOISE["epsilon"])[1]
        assert search_rounds(k) == simulated == row["worst_rounds"] == row["correct"]
        assert ceil(log2(k)) - 1 == row["blog_bound"]
    assert any(row["blog_bound"] < row["correct"] for row in GOLDEN["rounds"])
    for k in (2**20 + 1, 2**20 + 2):
        assert search_rounds(k) == ceil(log2(k - 1))


@pytest.mark.parametrize("size", [1, 2, 11])
@pytest.mark.parametrize("noise", NOISE)
def test_probabilities_are_those_of_the_loop(noise, size, x64):
    h = -np.sort(-np.random.default_rng(0).integers(0, size + 1, (4, 30)) * 1.0, axis=-1)
    h[:, -1] = 1.0  # candidate 0 lies below every value of f
    costs, tau = np.array([0.3, 2.0, 1.0, 1.0]), np.array([2.0, 1.0, 7.5, 300.0])
    found = search(noise, h, np.arange(float(size)), tau, costs)
    each = max(search_rounds(size), 1) / costs
    scale = each if noise == "epsilon" else np.sqrt(each / 2)
    for row in range(4):
        exact, _ = pseudocode(
            lambda k, own=h[row]: float(np.sum(own > k)), size, tau[row], scale[row], NOISE[noise]
        )
        expected = np.array([exact.get(k, 0.0) for k in range(size)])
        assert_allclose(np.exp(found[row]), expected, rtol=1e-9, atol=1e-300)


EPSILONS, RHOS = np.array([0.5, 2.0]), np.array([0.1, 2.0])
TAUS = np.array([0.5, 3.0, 20.0])[:, None, None]


@cache
def logs_of(noise):
    """Of all statistics and datasets, ``(budget, tau, statistic, dataset, candidate)``, and the
    guarantees.
    """
    budgets = EPSILONS if noise == "epsilon" else RHOS

    costs = [
        noisy_binary_search.guarantee("add_remove", num_candidates=11, **{noise: budget})
        for budget in budgets
    ]
    return search(noise, minima(), CANDIDATES, TAUS, budgets[:, None, None, None]), costs


@pytest.mark.parametrize("neighbors", ["add_remove", "swap"])
def test_the_loss_of_laplace_noise_stays_within_epsilon(neighbors, x64):
    """Over all datasets and neighbors, exactly; the range is twice that at most."""
    logs, costs = logs_of("epsilon")
    loss, spread = losses_of(logs, neighboring(neighbors=neighbors))
    for own, wide, cost in zip(loss, spread, costs, strict=True):
        assert own.max() <= cost.epsilon * (1 + ROUNDING)
        assert wide.max() <= cost.bounded_range * (1 + ROUNDING)
        assert own[:, 0].max() >= (0.7 if neighbors == "add_remove" else 0.4) * cost.epsilon


@pytest.mark.parametrize("noise", NOISE)
def test_renyi_divergences_of_both_noises(noise, x64):
    """What the guarantee says of zCDP, with Gaussian noise by design."""
    logs, costs = logs_of(noise)
    for own, cost in zip(logs, costs, strict=True):
        for order in (1.001, 2.0, 16.0, 64.0):
            divergence = renyi(own, neighboring(), order).max()
            assert divergence <= order * cost.zcdp * (1 + ROUNDING)


# All records at the lowest of six candidates, and one more person at the highest.
ONE_MORE = np.array([[1.0] * 6, [6.0] + [1.0] * 5]), np.arange(1.0, 7.0)
PAIR = np.array([[0], [1]])


def test_control_the_published_scale(x64):
    """The loss with the scale log2(k)/epsilon is above epsilon, by as much as was computed."""
    epsilon = np.array([[0.5], [2.0]])
    tau = np.array([1.0, 3.0])[:, None, None]
    published = epsilon * search_rounds(6) / log2(6)
    wrong = GOLDEN["loss_with_the_published_scale"]["6"]
    for given, factor in ((epsilon, 1.0), (published, wrong)):
        loss, _ = losses_of(search("epsilon", *ONE_MORE, tau, given), PAIR)
        assert_allclose(loss, np.broadcast_to(factor * epsilon.T, (2, 2)), rtol=1e-9)


def test_control_gaussian_noise_for_the_published_rounds(x64):
    """With deviation 1 the divergence of order alpha is nearly R alpha / 2 at tau = alpha: too few
    rounds in the scale show.
    """
    rho, alpha = search_rounds(6) / 2, 32.0
    budgets = rho * np.array([[1], [3 / log2(6)]])
    right, published = renyi(search("zcdp", *ONE_MORE, alpha, budgets), PAIR, alpha)
    assert 0.98 * alpha * rho <= right <= alpha * rho
    assert published >= 1.1 * alpha * rho


def test_control_a_threshold_that_depends_on_the_data(x64):
    people = np.array([len(data) for data in DATASETS])
    logs = search("epsilon", minima()[0], CANDIDATES, 1.0 + 3.0 * people, 2.0)
    assert losses_of(logs, neighboring())[0] >= 1.2 * 2.0


def test_shifts():
    laplace = search_shift_for(num_candidates=6, failure=0.1, epsilon=0.5)
    assert laplace == pytest.approx(3 / 0.5 * log(3 / 0.1))
    gaussian = search_shift_for(num_candidates=6, failure=0.1, zcdp=0.5)
    assert gaussian == pytest.approx(sqrt(3 / 0.5 * log(3 / 0.1)))
