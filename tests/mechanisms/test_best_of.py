"""The best of a random number of attempts: its exact distribution, losses of the worst attempts,
and what is claimed of them.
"""

import itertools
from math import exp, inf, log, pi, sqrt

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dpjax
from dpjax import Finite, Guarantee, best_of, exponential
from dpjax.mechanisms import best_of_distribution, negative_binomial, poisson
from tests.support.removals import log_probabilities
from tests.support.statistics import assert_counts_follow, assert_counts_rejected

FAMILIES = {
    "eta -1/2": negative_binomial(40, eta=-0.5),
    "logarithmic": negative_binomial(40),
    "geometric": negative_binomial(40, eta=1.0),
    "thinned": negative_binomial(40, eta=1.0, gamma=0.2),
    "poisson": poisson(40, mean=6.0),
    "own": np.r_[0.2, np.zeros(6), 0.5, 0.0, 0.3],
}


def attempt_of(mass):
    """One attempt, with these probabilities of its outcomes."""
    cost = -jnp.log(jnp.asarray(mass))
    return Finite(jnp.arange(cost.shape[-1], dtype=cost.dtype), cost, jnp.ones((), cost.dtype))


def best_by_enumeration(mass, scores, attempts):
    """All sequences of attempts, of which the first of the best scores is kept."""
    found = np.zeros(len(mass))
    for length, p in enumerate(attempts, 1):
        for drawn in itertools.product(range(len(mass)), repeat=length):
            best = max(drawn, key=lambda y: (scores[y], -drawn.index(y)))
            found[best] += p * np.prod(mass[list(drawn)])
    return found


def test_probabilities_are_those_of_all_sequences(x64):
    mass = np.array([[0.1, 0.4, 0.2, 0.3, 0.0], [0.6, 0.1, 0.1, 0.1, 0.1]])
    attempts = [0.3, 0.1, 0.4, 0.2]
    for scores in (
        [3.0, 1.0, 2.0, 0.0, 9.0],
        [1.0, 2.0, 1.0, 2.0, 1.0],
        [np.nan, 0.0, -np.inf, 0.0, 0.0],
    ):
        found = best_of_distribution(attempt_of(mass), scores, attempts=attempts)
        ordered = np.where(np.isnan(scores), -np.inf, scores)
        expected = [best_by_enumeration(row, ordered, attempts) for row in mass]
        np.testing.assert_allclose(found.probabilities(), expected, rtol=1e-12)


def worst_attempts(epsilon, spread=None):
    """Pairs of attempts that attain the bound: two groups of outcomes of ratios e^t and e^(t -
    range), in all orders.
    """
    if spread is not None:
        return np.concatenate(
            [worst_groups(t, spread) for t in np.linspace(spread - epsilon, epsilon, 7)[1:-1]]
        )
    return worst_groups(epsilon, 2 * epsilon)


def worst_groups(t, spread):
    few = (exp(-t) - exp(-spread)) / (1 - exp(-spread))
    split = np.array([0.5, 0.3, 0.19, 0.01])
    pairs = []
    for places in itertools.combinations(range(8), 4):
        up = np.isin(np.arange(8), places)
        p = np.empty(8)
        p[up], p[~up] = few * split, (1 - few) * split
        pairs.append((p * np.where(up, exp(t), exp(t - spread)), p))
    return np.array(pairs)


@pytest.fixture(scope="module")
def costs():
    """Of one attempt of epsilon 1, for every family."""
    return {
        name: best_of.guarantee(Guarantee(1.0, 2.0, "swap"), attempts=attempts)
        for name, attempts in FAMILIES.items()
    }


def losses(pairs, attempts):
    """The largest log-ratio, and the Renyi divergences of some orders."""
    attempts = np.pad(attempts, (0, 40 - len(attempts)))
    logs = log_probabilities(
        best_of_distribution(attempt_of(pairs), np.arange(8.0), attempts=attempts)
    )
    p, q = np.concatenate([logs, logs[:, ::-1]]).transpose(1, 0, 2)
    orders = {
        order: float(np.max(np.log(np.exp(order * p + (1 - order) * q).sum(-1))) / (order - 1))
        for order in (1.05, 2, 10, 60)
    }
    return float(np.abs(p - q).max()), orders


@pytest.mark.parametrize("name", FAMILIES)
def test_the_worst_attempts_stay_within_the_bound_and_come_near_it(name, costs, x64):
    found, (loss, divergences) = costs[name], losses(worst_attempts(1.0), FAMILIES[name])
    assert 0.93 * found.epsilon <= loss <= found.epsilon
    for order, divergence in divergences.items():
        assert divergence <= float(found.rdp(order))
    assert divergences[60] >= 0.9 * float(found.rdp(60.0))
    assert found.bounded_range == 2 * found.epsilon


@pytest.mark.slow
@pytest.mark.parametrize("name", FAMILIES)
def test_attempts_of_bounded_range_stay_within_their_bound(name, x64):
    """Ranges of epsilon and of 1.4 epsilon; the bound is attained where the slope is one number,
    and nearly without an end.
    """
    for spread in (1.0, 1.4):
        found = best_of.guarantee(Guarantee(1.0, spread, "swap"), attempts=FAMILIES[name])
        loss, divergences = losses(worst_attempts(1.0, spread), FAMILIES[name])
        assert 0.55 * found.epsilon <= loss <= found.epsilon
        assert all(
            divergence <= float(found.rdp(order)) for order, divergence in divergences.items()
        )


def test_gaussian_attempts_stay_within_their_curve(x64):
    """Scores of N(0, 1) and N(0.4, 1) in fine cells, the larger or the smaller the better."""
    points = np.linspace(-9.8, 10.2, 1001)
    masses = np.exp(-((points - np.array([[0.0], [0.4]])) ** 2) / 2) * 0.02 / sqrt(2 * pi)
    found = best_of.guarantee(
        Guarantee(neighbors="swap", zcdp=0.08), attempts=FAMILIES["geometric"]
    )
    places = points * np.array([[[1.0]], [[-1.0]]])
    logs = log_probabilities(
        best_of_distribution(attempt_of(masses), places, attempts=FAMILIES["geometric"])
    )
    for order in (1.5, 4.0, 12.0):
        for p, q in ((0, 1), (1, 0)):
            terms = order * logs[:, p] + (1 - order) * logs[:, q]
            divergences = np.log(np.exp(terms).sum(-1)) / (order - 1)
            assert (divergences <= float(found.rdp(order))).all()
    assert divergences.max() > 1.2 * 0.08 * 12  # control: more than one attempt
    assert divergences.max() > 0.3 * float(found.rdp(12.0))


def test_the_bound_is_that_of_the_literature_where_there_is_no_end(costs):
    assert costs["logarithmic"].epsilon <= 2 * 1.002
    assert costs["geometric"].epsilon <= 3 * 1.002
    assert costs["eta -1/2"].epsilon <= 1.5 * 1.002
    long = best_of.guarantee(
        Guarantee(1.0, 2.0, "swap"), attempts=negative_binomial(1500, eta=1.0, gamma=0.01)
    )
    exact = 1 + 2 * log((exp(1) + 0.01) / (1 + 0.01 * exp(1)))
    assert exact <= long.epsilon <= 1.002 * exact
    # Theorem 2 of Papernot and Steinke, at the best second order.
    one, a = Guarantee(neighbors="swap", zcdp=0.02), np.array([2.0, 10.0, 50.0])
    found = best_of.guarantee(one, attempts=negative_binomial(1500, eta=1.0, gamma=0.01))
    second = 1 + np.geomspace(1e-2, 1e3, 500)[:, None]
    published = (
        one.rdp(a)
        + 2 * (1 - 1 / second) * one.rdp(second)
        + 2 * log(100) / second
        + log(100) / (a - 1)
    )
    assert found.epsilon == inf
    assert (found.rdp(a) <= published.min(axis=0) * 1.002).all()
    assert (found.rdp(a) > 1.5 * one.rdp(a)).all()


def test_control_a_distribution_whose_tail_is_cut_off_is_another_one(x64):
    """Geometric numbers above five taken for five: most are five then, and cost five times as much,
    not three times.
    """
    geometric = 0.99 ** np.arange(4) * 0.01
    loss, _ = losses(worst_attempts(1.0), np.append(geometric, 1 - geometric.sum()))
    assert loss > 3.2
    assert (
        best_of.guarantee(
            Guarantee(1.0, 2.0, "swap"), attempts=np.append(geometric, 1 - geometric.sum())
        ).epsilon
        >= loss
    )


def test_attempts_of_the_exponential_mechanism_cost_no_more_than_one(x64):
    """All small scores of four candidates, all changes by at most 1, all orders; control: attempts
    of range two epsilon.
    """
    points = np.array([[0, 0, 0, 0], [0, 2, 1, 5], [9, 0, 3, 3]], float)
    changes = np.array(list(itertools.product((-1, 0, 1), repeat=4)), float)
    # (point, change, candidate)
    rows = np.concatenate([points[:, None], points[:, None] + changes], axis=1)
    orders = np.array(list(itertools.permutations(range(4))), float)[:, None, None]
    bounds = {
        eta: best_of.guarantee(Guarantee(0.7, 0.7, "swap"), attempts=negative_binomial(40, eta=eta))
        for eta in (0.0, 1.0)
    }
    assert bounds[0.0].epsilon <= 0.7 * 1.002
    assert bounds[1.0].epsilon <= 1.4 * 1.002
    for eta, bound in bounds.items():
        one = exponential(rows, 0.7, sensitivity=1.0)
        logs = log_probabilities(
            best_of_distribution(one, orders, attempts=negative_binomial(40, eta=eta))
        )
        ratio = np.abs(logs[:, :, 1:] - logs[:, :, :1]).max()
        assert 0.7 * bound.epsilon < ratio <= bound.epsilon
    pure, _ = losses(worst_attempts(0.7), negative_binomial(40))
    assert pure > 1.8 * bounds[0.0].epsilon


@pytest.mark.slow
def test_draws_follow_the_distribution():
    scores = jnp.array([1.0, 2.0, 1.0, jnp.nan])
    one, attempts = attempt_of([0.2, 0.3, 0.4, 0.1]), negative_binomial(6, eta=1.0)

    @jax.jit
    def draws(key):
        def draw(key):
            index = one.sample_index(key, (50_000,))
            return {"index": index, "score": scores[index]}

        return best_of(key, draw, score=lambda found: found["score"], attempts=attempts)["index"]

    counts = np.bincount(draws(jax.random.key(0)), minlength=4)
    assert_counts_follow(
        counts, best_of_distribution(one, scores, attempts=attempts).probabilities()
    )
    assert_counts_rejected(
        counts, best_of_distribution(one, scores, attempts=negative_binomial(6)).probabilities()
    )
    assert dpjax.best_of is best_of


def test_what_is_not_a_number_of_attempts_or_has_no_promise():
    for one in (
        Guarantee(1.0, inf, "swap", delta=1e-6),
        Guarantee(neighbors="swap", delta=1e-6, zcdp=0.1),
    ):
        with pytest.raises(ValueError, match="must be a pure, zCDP or Renyi guarantee"):
            best_of.guarantee(one, attempts=[1.0])
    single = best_of.guarantee(Guarantee(1.0, 1.0, "edge"), attempts=[1.0])
    assert single.epsilon == pytest.approx(1.0, rel=1e-6)
    for bad in ([0.5, 0.4], [0.0, 1.0], [-0.1, 1.1], [[1.0]], []):
        with pytest.raises(ValueError, match="probabilities"):
            best_of.guarantee(Guarantee(1.0, 1.0, "swap"), attempts=bad)
    with pytest.raises(TypeError, match="static"):
        best_of.guarantee(Guarantee(1.0, 1.0, "swap"), attempts=jnp.ones(1))
    for call in (
        lambda: negative_binomial(0),
        lambda: negative_binomial(5, eta=-1.0),
        lambda: negative_binomial(5, gamma=1.0),
        lambda: poisson(5, mean=0.0),
    ):
        with pytest.raises(ValueError, match=r"most|eta|gamma|mean"):
            call()
    with pytest.raises(ValueError, match="scores"):
        best_of_distribution(attempt_of([0.5, 0.5]), [1.0], attempts=[1.0])
    with pytest.raises(ValueError, match="axes of score"):
        best_of(
            jax.random.key(0),
            lambda key: jnp.zeros(3),
            score=lambda y: jnp.zeros((3, 2)),
            attempts=[1.0],
        )
