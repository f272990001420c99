"""Recursive quantiles: the joint law against its definition, audited over all small datasets, and
draws from it.
"""

import functools
import itertools
import operator
from fractions import Fraction
from math import ceil

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpjax import piecewise_laplace, quantile, quantiles, recursive_quantiles
from dpjax.several_quantiles.halving import Part, equal_on_the_left, to_the_left
from tests.support import oracle, statistics
from tests.support.audit import padded

GRID = (0, 1, 2, 3)
THIRDS = (Fraction(1, 3), Fraction(2, 3))
QUARTERS = (Fraction(1, 4), Fraction(1, 2), Fraction(3, 4))
EPSILONS = np.array([0.5, 3.0])
# Up to 3 records, no loss tells records that are in both parts
SIZES = {"add_remove": (0, 1, 2, 3, 4, 5), "swap": (4,)}
# Noisy ones; beyond them all equal records go to one side, and losses are what they are at the ends
NUMBERS = np.arange(-52, 53)


@functools.cache
def of_part(records, low, high, q, epsilon, neighbors):
    """The probabilities of low, ..., high for the quantile of a part, by piecewise Laplace as it is
    defined.
    """
    if low == high:
        return (1.0,)
    # Nobody can be replaced; the last level reaches the bounds all the same
    if neighbors == "swap" and not records:
        extremes = [low, high], [low, low]
    else:
        statistic = functools.partial(
            oracle.quantile, q=q, definition="lower", lower=low, upper=high
        )
        extremes = oracle.extremes(records, 2 * len(records) + 4, statistic, neighbors, low, high)
    sides = [[(level, int(value)) for level, value in enumerate(side)] for side in extremes]
    values, costs = oracle.costs_on_grid(*sides, "piecewise_laplace")
    assert values == list(range(low, high + 1))
    return tuple(oracle.probabilities(costs, epsilon))


def chances_of_numbers(below, above, q, epsilon, neighbors, public):
    """The probabilities of noisy numbers, which the last two have for all that are further off."""
    units = 8 if public and neighbors == "swap" else ceil(8 * max(q, 1 - q))
    rate = epsilon / (2 if neighbors == "swap" and not public else 1) / units
    away = np.abs(NUMBERS - (8 * (q * above - (1 - q) * below) // 1)).astype(float)
    chances = np.tanh(rate / 2) * np.exp(-rate * away)
    chances[[0, -1]] /= -np.expm1(-rate)
    return chances


def by_definition(data, levels, epsilon, neighbors, fault=None):
    """The probabilities of all tuples with all noisy numbers of the first draw, by lists of
    records; ``fault`` is a mistake.
    """
    law = law_between(levels, epsilon, neighbors, fault)(
        tuple(data), 0, len(levels) + 1, GRID[0], GRID[-1], 0
    )
    return np.concatenate([law[y] for y in tuples_of(levels)])


@functools.cache
def law_between(levels, epsilon, neighbors, fault):
    """The law of the levels between two others, from the records of their part."""
    depths, ends = len(levels).bit_length(), (Fraction(0), *levels, Fraction(1))

    @functools.cache
    def between(records, left, right, low, high, depth):
        if right - left < 2:
            return {(): np.ones(len(NUMBERS))}
        middle = (left + right) // 2
        q = (ends[middle] - ends[left]) / (ends[right] - ends[left])
        each = epsilon if fault == "epsilon for each depth" else epsilon * 11 / 12 / depths
        public = (neighbors == "swap" and depth == 0) or fault == "public count"
        if neighbors == "swap" and not public and fault != "one change of a swap":
            each = each / 2
        found = {}
        chances = of_part(records, low, high, q, each, "swap" if public else "add_remove")
        for y, chance in zip(range(low, high + 1), chances, strict=True):
            below, equal, above = (
                tuple(r for r in records if compare(r, y))
                for compare in (operator.lt, operator.eq, operator.gt)
            )
            if depth == depths - 1:
                found[(y,)] = chance * np.ones(len(NUMBERS))
                continue
            noisy = epsilon * (2 if fault == "too little noise" else 1) / 12
            numbers = chances_of_numbers(len(below), len(above), q, noisy, neighbors, public)
            shares = np.clip(ceil(q * len(equal)) + (NUMBERS + 4) // 8, 0, len(equal))
            if fault == "as many as the rank says":
                shares[:] = min(max(ceil(q * len(records)) - len(below), 0), len(equal))
            for some in set(shares.tolist()):
                lefts = between(
                    below + (equal if fault == "in both" else equal[:some]),
                    left,
                    middle,
                    low,
                    y,
                    depth + 1,
                )
                rights = between(
                    (equal if fault == "in both" else equal[some:]) + above,
                    middle,
                    right,
                    y,
                    high,
                    depth + 1,
                )
                for (a, p), (b, r) in itertools.product(lefts.items(), rights.items()):
                    found[*a, y, *b] = found.get((*a, y, *b), 0) + np.where(
                        shares == some, chance * numbers * p * r, 0
                    )
        return found

    return between


def tuples_of(levels):
    return list(itertools.combinations_with_replacement(GRID, len(levels)))


@functools.cache
def log_probabilities(levels, neighbors, truncate):
    """Of every tuple with every noisy number for every dataset:
    ``(epsilons, datasets, tuples * numbers)``.
    """
    datasets = oracle.all_datasets(SIZES[neighbors], GRID)
    x, count = padded(datasets, max(SIZES[neighbors]))
    given = {"lower": 0, "upper": 3, "neighbors": neighbors, "resolution": 1}
    points = jnp.asarray(tuples_of(levels), float)[:, None, None, None, :]
    noisy = jnp.asarray(np.tile(NUMBERS[:, None, None, None], len(levels)))

    @jax.jit
    def compute(x, count):
        asked = quantiles(x, levels, num_records=count, **given)
        drawn = recursive_quantiles(asked, EPSILONS[:, None], truncate=truncate)
        return drawn.log_prob(points, noisy)

    found = np.moveaxis(np.asarray(compute(x, count)), (0, 1), (-2, -1))
    q = levels[(len(levels) + 1) // 2 - 1]
    rate = EPSILONS / 12 / (8 if neighbors == "swap" else ceil(8 * max(q, 1 - q)))
    found = found.copy()
    # And all numbers that are further off
    found[..., [0, -1]] -= np.log(-np.expm1(-rate))[:, None, None, None]
    return datasets, found.reshape(*found.shape[:2], -1)


def pairs(datasets, neighbors):
    index = {data: row for row, data in enumerate(datasets)}
    found = [
        (row, index[o])
        for data, row in index.items()
        for o in oracle.neighbors_of(data, neighbors, GRID)
        if o in index
    ]
    return np.array(found).T


def losses(values, datasets, neighbors):
    """The largest loss and the largest range over all neighbors, each over epsilon."""
    one, other = pairs(datasets, neighbors)
    with np.errstate(over="ignore"):
        ratio = values[..., one, :] - values[..., other, :]
    return ratio.max(axis=(-2, -1)) / EPSILONS, (ratio.max(axis=-1) - ratio.min(axis=-1)).max(
        axis=-1
    ) / EPSILONS


CASES = [
    (QUARTERS, "add_remove", None),
    (QUARTERS, "swap", None),
    pytest.param(THIRDS, "swap", None, marks=pytest.mark.slow),
    pytest.param(QUARTERS, "add_remove", 1, marks=pytest.mark.slow),
]


@pytest.mark.parametrize(("levels", "neighbors", "truncate"), CASES)
def test_it_is_private_for_every_small_dataset(levels, neighbors, truncate, x64):
    datasets, found = log_probabilities(levels, neighbors, truncate)
    np.testing.assert_allclose(np.exp(found).sum(axis=-1), 1.0, rtol=1e-12)
    loss, span = losses(found, datasets, neighbors)
    assert (loss <= 1 + 1e-12).all(), loss
    promises = [promise_of(levels, neighbors, epsilon) for epsilon in EPSILONS]
    ranges = np.array([promise.bounded_range for promise in promises])
    assert (span <= ranges / EPSILONS + 1e-9).all(), span
    one, other = pairs(datasets, neighbors)
    zcdp = np.array([promise.zcdp for promise in promises])
    for order in (1.5, 2.0, 8.0, 64.0):
        with np.errstate(over="ignore"):
            moment = np.exp(order * found[:, one] - (order - 1) * found[:, other]).sum(axis=-1)
        divergence = np.log(moment).max(axis=-1) / (order - 1)
        assert (divergence <= order * zcdp).all(), (order, divergence)


def promise_of(levels, neighbors, epsilon):
    asked = quantiles(np.arange(9.0), levels, lower=0, upper=9, neighbors=neighbors)
    return recursive_quantiles.guarantee(asked, float(epsilon))


@pytest.mark.parametrize(
    ("levels", "neighbors", "truncate"),
    [case for case in CASES if getattr(case, "values", case)[2] is None],
)
def test_probabilities_are_those_of_the_definition(levels, neighbors, truncate, x64):
    datasets, found = log_probabilities(levels, neighbors, None)
    some = [row for row, data in enumerate(datasets) if row % 4 == 0 or len(set(data)) == 1]
    for number, epsilon in enumerate(EPSILONS):
        wanted = [by_definition(datasets[row], levels, epsilon, neighbors) for row in some]
        np.testing.assert_allclose(np.exp(found[number, some]), wanted, rtol=1e-9)


FAULTS = [
    ("add_remove", "epsilon for each depth", 1.99),
    ("add_remove", "in both", 1.05),
    ("add_remove", "as many as the rank says", 1.01),
    ("add_remove", "too little noise", 1.05),
    ("swap", "epsilon for each depth", 1.6),
    ("swap", "public count", 1.04),
    ("swap", "one change of a swap", 1.2),
]


@pytest.mark.parametrize(("neighbors", "fault", "least"), FAULTS)
def test_control_mistakes_that_the_audit_finds(neighbors, fault, least):
    datasets = oracle.all_datasets(SIZES[neighbors], GRID)
    values = np.log(
        [
            [by_definition(data, QUARTERS, epsilon, neighbors, fault) for data in datasets]
            for epsilon in EPSILONS
        ]
    )
    assert losses(values, datasets, neighbors)[0].max() > least


def test_the_range_of_all_draws_is_more_than_epsilon():
    """So no range of epsilon is promised: ranges of adaptive draws do not add up."""
    datasets = oracle.all_datasets(SIZES["add_remove"], GRID)
    values = np.log(
        [
            [by_definition(data, QUARTERS, epsilon, "add_remove") for data in datasets]
            for epsilon in EPSILONS
        ]
    )
    assert losses(values, datasets, "add_remove")[1].max() > 1.2


def test_draws_follow_the_joint_law():
    records, given = jnp.array([0.0, 2.0, 2.0]), {"lower": 0, "upper": 3, "resolution": 1}

    @jax.jit
    def draw(records):
        asked = quantiles(records, QUARTERS, neighbors="add_remove", **given)
        return recursive_quantiles(asked, 1.0).sample(jax.random.key(3), (100, 400))

    draws = np.asarray(draw(records)).reshape(-1, 3)
    counts = np.sum(np.all(draws[:, None] == np.array(tuples_of(QUARTERS), float), axis=-1), axis=0)
    assert counts.sum() == len(draws)
    exact, other = (
        by_definition((0, 2, 2), QUARTERS, epsilon, "add_remove").reshape(len(counts), -1).sum(-1)
        for epsilon in (1.0, 1.2)
    )
    statistics.assert_counts_follow(counts, exact)
    statistics.assert_counts_rejected(counts, other)


@pytest.mark.slow
@pytest.mark.parametrize("neighbors", ["add_remove", "swap"])
def test_one_quantile_is_that_of_piecewise_laplace(neighbors, x64):
    x = np.random.default_rng(1).normal(size=(4, 9))
    given = {"lower": -2, "upper": 2, "neighbors": neighbors, "num_records": np.array([9, 5, 1, 9])}
    points = np.linspace(-1.9, 1.9, 12)
    one = recursive_quantiles(quantiles(x, [0.3], **given), 1.5).log_prob(points[:, None, None])
    other = piecewise_laplace(quantile(x, 0.3, **given), 1.5).log_prob(points[:, None])
    np.testing.assert_allclose(one, other, rtol=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("neighbors", ["add_remove", "swap"])
def test_densities_on_the_line_are_private(neighbors, x64):
    """At random points, for random neighbors; a loss near epsilon shows that the search reaches
    far enough.
    """
    random = np.random.default_rng(2)
    x = random.uniform(size=(40, 6)).round(2)
    moved = x.copy()
    moved[:, 5] = random.uniform(size=40)
    given = {"lower": 0, "upper": 1, "neighbors": neighbors}
    points = np.sort(random.uniform(size=(400, 1, 3)), axis=-1)
    epsilon = np.where(np.arange(40) % 2, 1.0, 4.0)
    counts = (
        {} if neighbors == "swap" else {"num_records": np.stack([np.full(40, 6), np.full(40, 5)])}
    )
    asked = quantiles(np.stack([x, moved]), [0.2, 0.5, 0.6], **given, **counts)
    found = np.asarray(recursive_quantiles(asked, epsilon).log_prob(points[:, None]))
    assert np.isfinite(found).all()
    loss = np.abs(found[:, 0] - found[:, 1]).max(axis=0) / epsilon
    assert 0.5 < loss.max() <= 1 + 1e-9


LEVELS = [0.1, 0.2, 0.25, 0.5, 0.7, 0.95]


@pytest.mark.slow
def test_truncation_beyond_what_matters_changes_no_draw():
    asked = quantiles(
        np.random.default_rng(5).normal(size=200), LEVELS, lower=-9, upper=9, neighbors="add_remove"
    )
    whole, cut, short = (
        recursive_quantiles(asked, 9.0, truncate=truncate).sample(jax.random.key(2), 5)
        for truncate in (None, 40, 1)
    )
    np.testing.assert_array_equal(whole, cut)
    assert (np.asarray(short) != np.asarray(whole)).any()


@pytest.mark.slow
def test_many_equal_records_are_split_where_the_rank_is():
    """Six of ten records are 40, five sixths of the others below: shares of the equal ones would be
    off by thousands of ranks.
    """
    random = np.random.default_rng(6)
    below = random.random(20000) < 5 / 6
    x = np.where(
        random.random(20000) < 0.6,
        40,
        np.where(below, random.integers(1, 40, 20000), random.integers(41, 99, 20000)),
    )
    levels = [Fraction(i, 10) for i in range(1, 10)]
    asked = quantiles(
        x.astype(np.float32), levels, lower=0, upper=99, neighbors="add_remove", resolution=1
    )
    draw = jax.jit(
        lambda asked: recursive_quantiles(asked, 1.0, truncate=320).sample(jax.random.key(0), 40)
    )
    draws = np.asarray(draw(asked))
    ordered, aim = np.sort(x), np.array([float(q) * len(x) for q in levels])
    below, through = (np.searchsorted(ordered, draws, side) for side in ("left", "right"))
    assert np.mean(np.max(np.maximum(np.maximum(below - aim, aim - through), 0), axis=-1)) < 40


@pytest.mark.parametrize(("u", "v"), [(1, 3), (1, 2), (4, 5), (7, 8)])
def test_one_more_record_is_in_one_part(u, v):
    """For every noisy number, one record more is one more on one side, and the number changes by
    its sensitivity at most.
    """
    part = Part(0, 1, 2, Fraction(u, v), "add_remove", Fraction(1))
    noisy = np.arange(-99, 100)
    for equal in range(12):
        grown = equal_on_the_left(u, v, equal + 1, noisy, np) - equal_on_the_left(
            u, v, equal, noisy, np
        )
        assert set(grown.tolist()) <= {0, 1}
        assert set(grown[[0, -1]].tolist()) == {0, 1}
    below, above = np.meshgrid(np.arange(9), np.arange(9))
    number = to_the_left(u, v, below, above)
    assert np.array_equal(
        number,
        np.vectorize(lambda b, a: 8 * (Fraction(u, v) * a - (1 - Fraction(u, v)) * b) // 1)(
            below, above
        ),
    )
    changes = np.concatenate([np.abs(np.diff(number, axis=axis)).ravel() for axis in (0, 1)])
    assert changes.max() == part.sensitivity
    swapped = np.abs(to_the_left(u, v, below + 1, above) - to_the_left(u, v, below, above + 1))
    assert swapped.max() == Part(0, 1, 2, Fraction(u, v), "swap", Fraction(1)).sensitivity == 8


def test_a_delta_is_for_larger_draws():
    asked = quantiles(np.arange(9.0), LEVELS, lower=0, upper=9, neighbors="swap")
    pure, loose = (recursive_quantiles.guarantee(asked, 1.2, delta=delta) for delta in (0.0, 1e-6))
    assert (pure.bounded_range, pure.zcdp) == (pytest.approx(2.0), pytest.approx(3 * 0.4**2 / 8))
    each = float(recursive_quantiles(asked, 1.2, delta=1e-6).epsilon)
    assert each > 0.4
    assert loose.zcdp == pytest.approx(3 * each**2 / 8, rel=1e-5)
