"""Nested quantiles: the law against its definition, and draws from it; it is audited where it is
released.
"""

import functools
import itertools
from fractions import Fraction
from math import ceil

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpjax import nested_quantiles, quantiles
from dpjax.release.exact_chain import Parameters
from dpjax.several_quantiles.nesting import Nesting, Shares
from tests.support import oracle, statistics
from tests.support.audit import padded
from tests.support.joint_quantiles import places, probabilities, tuples

GRID = (0, 1, 2)
NINTHS = tuple(Fraction(k, 9) for k in range(1, 9))  # two first, and two in each of three parts
SIXTHS = tuple(Fraction(k, 6) for k in range(1, 6))  # two first, and one in each of three parts
SIZES = {"add_remove": (0, 1, 2, 3, 4), "swap": (4,)}
NUMBER = 3  # what is known of the number of records under add/remove


def tuples_of(levels, cells=3):
    return tuples(len(levels), cells)


@functools.cache
def of_part(records, low, high, levels, epsilon, neighbors, number):
    """The probabilities of all tuples from low to high, by one joint draw as it is defined."""
    cells = high - low + 1
    law = Parameters.of(
        levels, epsilon, neighbors, cells, neighbors != "swap", 0, 2, max(len(records), 1)
    )
    found = probabilities([r - low for r in records], law, number - 1)
    return {
        tuple(low + v for v in y): float(p)
        for y, p in zip(tuples_of(levels, cells), found, strict=True)
    }


def by_definition(data, levels, epsilon, neighbors, number):
    """The probability of every tuple: of each first one with places, then parts between them, from
    lists of records.
    """
    nesting = Nesting.of(levels)
    shares, k = Shares.of(nesting, neighbors, neighbors == "add_remove"), len(nesting.first)
    law = Parameters.of(
        tuple(levels[i] for i in nesting.first),
        epsilon * shares.first,
        neighbors,
        3,
        neighbors != "swap",
        0,
        2,
        9,
    )
    aims = np.diff([1, *(ceil(q * number) for q in law.levels), number])
    rate = float(epsilon * shares.first / (4 if neighbors == "swap" else 2))
    weights = {}
    for draws in tuples_of(nesting.first):
        for ranks, volume in places(data, draws):
            cost = np.abs(np.diff([1, *ranks, len(data)]) - aims).sum()
            key = draws, tuple(int(rank // 1) for rank in ranks)
            weights[key] = weights.get(key, 0) + volume * np.exp(-rate * cost)
    found = {}
    for (draws, cuts), weight in weights.items():
        laws = []
        for i, part in enumerate(nesting.parts):
            low, high = (draws[i - 1] if i else 0), (draws[i] if i < k else 2)
            inside = data[cuts[i - 1] if i else 0 : cuts[i] if i < k else len(data)]
            taken = max(int(part.share * number), 1)
            laws.append(
                of_part(
                    tuple(np.clip(inside, low, high).astype(int).tolist()),
                    low,
                    high,
                    part.levels,
                    epsilon * shares.second,
                    "add_remove",
                    taken,
                )
            )
        for inner in itertools.product(*(law.items() for law in laws)):
            y, p = [], weight / sum(weights.values())
            for (values, share), draw in itertools.zip_longest(inner, draws):
                y += [*values, draw] if draw is not None else values
                p *= share
            found[tuple(y)] = found.get(tuple(y), 0) + p
    return [found.get(y, 0.0) for y in tuples_of(levels)]


def simulated(levels, neighbors, epsilon, number=NUMBER):
    """The log-probabilities of all tuples for all datasets, ``(datasets, tuples)``, with all ranks
    of places added up.
    """
    datasets, log_prob = _simulated(levels, neighbors)
    every = np.asarray(log_prob(float(epsilon), np.int32(number)))
    return datasets, np.logaddexp.reduce(every, axis=1).T


@functools.cache
def _simulated(levels, neighbors):
    datasets = oracle.all_datasets(SIZES[neighbors], GRID)
    rows, count = padded(datasets, max(map(len, datasets)))
    given = {"lower": 0, "upper": GRID[-1], "neighbors": neighbors, "resolution": 1}

    @jax.jit
    def log_prob(epsilon, number):
        asked = quantiles(rows, levels, num_records=count, **given)
        public = {} if neighbors == "swap" else {"public_n": number}
        return with_all_ranks(nested_quantiles(asked, epsilon, **public), levels)

    return datasets, log_prob


def with_all_ranks(distribution, levels):
    """The log-probabilities of all tuples and of all ranks of their places."""
    k, n, batch = (
        len(distribution.nesting.first),
        distribution.asked.values.shape[-1],
        distribution.batch_shape,
    )
    points = jnp.array(tuples_of(levels), float).reshape(-1, 1, *[1] * len(batch), len(levels))
    ranks = jnp.array(list(itertools.combinations_with_replacement(range(n + 1), k)), jnp.int32)
    return distribution.log_prob(points, ranks.reshape(-1, *[1] * len(batch), k))


@pytest.mark.parametrize("neighbors", SIZES)
def test_probabilities_are_those_of_the_definition(neighbors, x64):
    number = NUMBER if neighbors == "add_remove" else 4
    for epsilon in (1, 4):
        datasets, found = simulated(SIXTHS, neighbors, epsilon)
        np.testing.assert_allclose(np.exp(found).sum(axis=-1), 1.0, rtol=1e-11)
        some = [row for row, data in enumerate(datasets) if row % 3 == 0 or len(set(data)) == 1]
        wanted = [
            by_definition(datasets[row], SIXTHS, Fraction(epsilon), neighbors, number)
            for row in some
        ]
        np.testing.assert_allclose(np.exp(found[some]), wanted, rtol=1e-8)
        wrong = [
            by_definition(datasets[row], SIXTHS, Fraction(epsilon), neighbors, number + 3)
            for row in some
        ]
        assert np.max(np.abs(np.exp(found[some]) / wrong - 1)) > 1e-3  # the control


def test_draws_follow_their_law(x64):
    """The parts are drawn given the first draw, and nothing else of it."""
    datasets, logs = simulated(SIXTHS, "swap", 4)
    row = datasets.index((0, 1, 1, 2))
    given = {"lower": 0, "upper": 2, "neighbors": "swap", "resolution": 1}

    @jax.jit
    def draw(records):
        asked = quantiles(records, SIXTHS, **given)
        return nested_quantiles(asked, 4.0).sample(jax.random.key(5), 8000)

    draws = np.asarray(draw(jnp.array(datasets[row], float)))
    number = {y: i for i, y in enumerate(tuples_of(SIXTHS))}
    found = [number[tuple(y)] for y in draws.astype(int).tolist()]
    counts = np.bincount(found, minlength=len(number))
    statistics.assert_counts_follow(counts, np.exp(logs[row]))
    other = np.exp(simulated(SIXTHS, "swap", 2)[1][row])
    statistics.assert_counts_rejected(counts, other)


@pytest.mark.slow
def test_a_number_that_is_drawn_is_a_mixture():
    """Draws with a private number of records follow the laws for all numbers, weighted by the
    noise; the control has no noise.
    """
    data, epsilon = jnp.array([0.0, 1.0, 1.0, 2.0]), 4.0
    asked = quantiles(data, SIXTHS, lower=0, upper=2, neighbors="add_remove", resolution=1)
    shares, points = (
        Shares.of(Nesting.of(SIXTHS), "add_remove", False),
        jnp.array(tuples_of(SIXTHS), float),
    )
    draws = np.asarray(nested_quantiles(asked, epsilon).sample(jax.random.key(5), 20000))
    counts = np.sum(np.all(draws[:, None] == np.asarray(points), axis=-1), axis=0)
    assert counts.sum() == len(draws)
    rate, numbers = epsilon * float(shares.number), np.arange(-150, 160)
    noise = np.tanh(rate / 2) * np.exp(-rate * np.abs(numbers - 4))
    kept = 1 - float(shares.number)  # with a public number all of epsilon is for the two draws
    every = nested_quantiles(asked, epsilon * kept, public_n=np.maximum(numbers, 0))
    laws = np.exp(np.asarray(with_all_ranks(every, SIXTHS), np.float64)).sum(axis=1)
    statistics.assert_counts_follow(counts, laws @ noise / noise.sum())
    statistics.assert_counts_rejected(counts, laws[:, numbers == 4][:, 0])


ROWS = np.random.default_rng(0).normal(size=(5, 300)).astype(np.float32)
ROWS[1, 1:], ROWS[2], ROWS[3] = np.nan, 2.0, np.nan
ROWS[4, :3], ROWS[4, 9:] = (-np.inf, np.inf, 1e30), np.nan


@pytest.mark.slow
def test_draws_on_the_line_ascend_between_the_bounds_and_are_near_the_quantiles():
    """Of any records; 63 levels of 5000 are in the test of the release."""
    asked = quantiles(ROWS, NINTHS, lower=-20, upper=20, neighbors="add_remove")
    draw = jax.jit(lambda asked: nested_quantiles(asked, 8.0).sample(jax.random.key(0), 20))
    draws = np.asarray(draw(asked))
    assert draws.shape == (20, 5, 8)
    assert np.all(np.diff(draws) >= 0)
    assert np.all(np.abs(draws) <= 20)
    ranks = np.searchsorted(np.sort(ROWS[0]), draws[:, 0])
    assert np.mean(np.abs(ranks - np.array([float(q) * 300 for q in NINTHS]))) < 8


def test_a_public_number_is_for_private_sizes():
    asked = quantiles(np.arange(9.0), SIXTHS, lower=0, upper=9, neighbors="swap")
    with pytest.raises(ValueError, match="under swap"):
        nested_quantiles(asked, 1.0, public_n=9)


@jax.jit
def _log_prob(asked, epsilon, guess, y):
    return nested_quantiles(asked, epsilon, public_n=guess).log_prob(y)


@pytest.mark.parametrize("epsilon", [0.05, 0.5, 2.0])
def test_a_part_that_gets_as_long_as_the_room_for_it_draws_by_the_same_number(epsilon, x64):
    """A guess that is far too large, and one record more, here or in another row: then a part takes
    the room of all records.
    """
    n, room, levels = 300, 264, [f"{k}/9" for k in range(1, 9)]

    def rows(*held):
        x = np.where(np.arange(n) < np.array(held)[:, None], np.arange(n), np.nan)
        return quantiles(jnp.asarray(x), levels, lower=-100, upper=400, neighbors="add_remove")

    ends = [-90.0, -80.0, -1.5], [300.5, 310.0, 320.0]  # all records are in the middle part
    y = jnp.array(
        [[*ends[0], *inside, *ends[1]] for inside in ((87.5, 175.5), (99.5, 166.5), (20.5, 30.5))]
    )[:, None]

    def law(guess, *held):
        return np.asarray(_log_prob(rows(*held), epsilon, np.int32(guess), y))

    shorter, longer, beside = (
        law(100_000, *held) for held in ((room,) * 2, (room + 1,) * 2, (room, room + 1))
    )
    assert np.max(np.abs(longer - shorter)) <= epsilon
    np.testing.assert_allclose(beside[:, :1], shorter[:, :1], atol=1e-9)
    told = law(20, room + 1, room + 1)  # the control: a guess that follows the data
    assert np.max(np.abs(told - shorter)) > epsilon
