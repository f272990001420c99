"""The best of a random number of attempts: its exact distribution, losses of the worst attempts,
and what is claimed of them.
"""

import itertools
from math import exp, log, pi, sqrt

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import special

from dpjax import Finite, Guarantee, best_of
from dpjax.mechanisms import best_of_distribution, negative_binomial, poisson
from tests.support.removals import log_probabilities, losses_of, renyi
from tests.support.statistics import assert_counts_follow, assert_counts_rejected

FAMILIES = {
    "eta -1/2": negative_binomial(40, eta=-0.5),
    "logarithmic": negative_binomial(40),
    "geometric": negative_binomial(40, eta=1.0),
    "thinned": negative_binomial(40, eta=1.0, gamma=0.2),
    "poisson": poisson(40, mean=6.0),
    "own": np.r_[0.2, np.zeros(6), 0.5, 0.0, 0.3],
    # Geometric numbers above five taken for five: most are five then
    "cut": np.append(0.99 ** np.arange(4) * 0.01, 0.99**4),
}


PAIR = np.array([[0], [1]])


def test_numbers_of_attempts():
    """Gamma(k + eta) (1 - gamma)^k / k!, and mean^k / k!."""
    k = np.arange(1, 41)
    for name, logs in (
        ("eta -1/2", special.gammaln(k - 0.5)),
        ("logarithmic", special.gammaln(k)),
        ("thinned", special.gammaln(k + 1) + k * log(0.8)),
        ("poisson", k * log(6)),
    ):
        weights = np.exp(logs - special.gammaln(k + 1))
        assert_allclose(FAMILIES[name], weights / weights.sum(), rtol=1e-12)


def attempt_of(mass):
    """One attempt, with these probabilities of its outcomes."""
    cost = -np.log(np.asarray(mass))
    return Finite(np.arange(cost.shape[-1], dtype=cost.dtype), cost, np.ones((), cost.dtype))


def best_by_enumeration(mass, scores, attempts):
    """All sequences of attempts, of which the first of the best scores is kept."""
    found = np.zeros(len(mass))
    for length, p in enumerate(attempts, 1):
        for drawn in itertools.product(range(len(mass)), repeat=length):
            best = max(drawn, key=lambda y: (scores[y], -drawn.index(y)))
            found[best] += p * np.prod(mass[list(drawn)])
    return found


def test_probabilities_are_those_of_all_sequences(x64):
    mass = np.array([[0.1, 0.4, 0.2, 0.2, 0.1], [0.6, 0.1, 0.1, 0.1, 0.1]])
    scores = np.array([[3, 1, 2, 0, 9], [1, 2, 1, 2, 1], [np.nan, 0, -np.inf, 0, 0]])
    attempts = [0.3, 0.1, 0.4, 0.2]
    found = best_of_distribution(attempt_of(mass), scores[:, None], attempts=attempts)
    ordered = np.where(np.isnan(scores), -np.inf, scores)
    expected = [[best_by_enumeration(row, own, attempts) for row in mass] for own in ordered]
    assert_allclose(np.exp(log_probabilities(found)), expected, rtol=1e-12)


def worst_attempts(spread):
    """Pairs of attempts of epsilon 1 that attain the bound: two groups of outcomes of ratios e^t
    and e^(t - range), in all orders.
    """
    split, pairs = np.array([0.5, 0.3, 0.19, 0.01]), []
    for t in np.linspace(spread - 1, 1, 7)[1:-1] if spread < 2 else [1.0]:
        few = (exp(-t) - exp(-spread)) / (1 - exp(-spread))
        for places in itertools.combinations(range(8), 4):
            up = np.isin(np.arange(8), places)
            p = np.empty(8)
            p[up], p[~up] = few * split, (1 - few) * split
            pairs.append((p * np.where(up, exp(t), exp(t - spread)), p))
    return np.array(pairs)


def cost_of(name, spread=2.0):
    """Of one attempt of epsilon 1."""
    return best_of.guarantee(Guarantee(1.0, spread, "swap"), attempts=FAMILIES[name])


def losses(name, spread=2.0):
    """The largest log-ratio, and the Renyi divergences of some orders, of the worst attempts."""
    pairs, attempts = worst_attempts(spread), FAMILIES[name]
    # The distribution whose attempts are compiled into its program is the same for all families
    attempts = np.pad(attempts, (0, 40 - len(attempts)))
    best = best_of_distribution(attempt_of(pairs), np.arange(8.0), attempts=attempts)
    logs = log_probabilities(best)
    orders = {order: renyi(logs, PAIR, order).max() for order in (1.05, 2, 10, 60)}
    return losses_of(logs, PAIR)[0].max(), orders


@pytest.mark.parametrize("name", FAMILIES)
def test_the_worst_attempts_stay_within_the_bound_and_come_near_it(name, x64):
    found, (loss, divergences) = cost_of(name), losses(name)
    assert 0.93 * found.epsilon <= loss <= found.epsilon
    for order, divergence in divergences.items():
        assert divergence <= float(found.rdp(order))
    assert divergences[60] >= 0.9 * float(found.rdp(60.0))
    assert found.bounded_range == 2 * found.epsilon


@pytest.mark.parametrize("spread", [1.0, 1.4])
@pytest.mark.parametrize("name", ["eta -1/2", "logarithmic", "own"])
def test_attempts_of_bounded_range_stay_within_their_bound(name, spread, x64):
    """The bound is attained where the slope is one number, and nearly without an end; many attempts
    of range epsilon, as those of the exponential mechanism, cost as much as one.
    """
    found, (loss, divergences) = cost_of(name, spread), losses(name, spread)
    assert 0.55 * found.epsilon <= loss <= found.epsilon
    assert (found.epsilon <= 1.002) == (spread == 1.0 and name in ("eta -1/2", "logarithmic"))
    for order, divergence in divergences.items():
        assert divergence <= float(found.rdp(order))


def test_gaussian_attempts_stay_within_their_curve(x64):
    """Scores of N(0, 1) and N(0.4, 1) in fine cells, the larger or the smaller the better."""
    points = np.linspace(-9.8, 10.2, 1001)
    masses = np.exp(-((points - np.array([[0.0], [0.4]])) ** 2) / 2) * 0.02 / sqrt(2 * pi)
    one = Guarantee(neighbors="swap", zcdp=0.08)
    found = best_of.guarantee(one, attempts=FAMILIES["geometric"])
    places = points * np.array([[[1.0]], [[-1.0]]])
    best = best_of_distribution(attempt_of(masses), places, attempts=FAMILIES["geometric"])
    logs = log_probabilities(best)
    for order in (1.5, 4.0, 12.0):
        divergence = renyi(logs, PAIR, order).max()
        assert divergence <= float(found.rdp(order))
    assert divergence > 1.2 * 0.08 * 12  # control: more than one attempt
    assert divergence > 0.3 * float(found.rdp(12.0))


def test_control_a_distribution_whose_tail_is_cut_off_is_another_one(x64):
    """It costs five times as much as one attempt, not three times."""
    assert losses("cut")[0] > 3.2


def test_draws_follow_the_distribution():
    scores = jnp.array([1.0, 2.0, 1.0, jnp.nan])
    one, attempts = attempt_of(np.array([0.2, 0.3, 0.4, 0.1], np.float32)), [0.3, 0.2, 0.1, 0.4]

    @jax.jit
    def draws(key):
        def draw(key):
            index = one.sample_index(key, (10_000,))
            return {"index": index, "score": scores[index]}

        return best_of(key, draw, score=lambda found: found["score"], attempts=attempts)["index"]

    counts = np.bincount(draws(jax.random.key(0)), minlength=4)
    right, wrong = (
        np.exp(log_probabilities(best_of_distribution(one, scores, attempts=number)))
        for number in (attempts, [0.4, 0.2, 0.1, 0.3])
    )
    assert_counts_follow(counts, right)
    assert_counts_rejected(counts, wrong)
