"""The release of many quantiles: the distribution of the simulation, exact draws, and edges."""

import itertools
from fractions import Fraction
from math import ceil, floor, log2

import jax.numpy as jnp
import numpy as np
import pytest

import dpjax
from dpjax import release
from tests.support import reach_sets, statistics

GRID = {"lower": 0, "upper": 3, "resolution": 1}
LEVELS = ["0.25", "0.5", "0.7"]
TUPLES = list(itertools.combinations_with_replacement(range(4), len(LEVELS)))


def part_probabilities(records, low, high, q, epsilon, neighbors):
    """The lower quantile of some records between two positions: the pointwise distribution, from
    its definition.
    """
    u, v, n = q.numerator, q.denominator, len(records)
    step = v if neighbors == "swap" else max(u, v - u)

    def value(level):
        rank = -(-(u * n + step * level) // v)
        return low if rank < 1 else high if rank > n else records[rank - 1]

    levels = range(2 * n * v + 3)
    sides = {1: [value(level) for level in levels], -1: [value(-level) for level in levels]}
    depth = next(
        level for level in levels if sides[1][level] != value(0) or sides[-1][level] != value(0)
    )

    def cost(y):
        if y == value(0):
            return 1 - depth
        sign = 1 if y > value(0) else -1
        level = next(level for level in levels if sign * sides[sign][level] >= sign * y)
        before, through = sides[sign][level - 1], sides[sign][level]
        return level - 1 + (y - before) / (through - before)

    weights = np.exp([-epsilon / 2 * cost(y) for y in range(low, high + 1)])
    return dict(zip(range(low, high + 1), (weights / weights.sum()).tolist(), strict=True))


def chances_of_splits(below, equal, above, q, epsilon, neighbors):
    """The probability that 0, 1, ... of the equal records go to the left: noise decides how many
    more than their share.
    """
    units = 8 if neighbors == "swap" else ceil(8 * max(q, 1 - q))
    decay = np.exp(-epsilon / units)
    mean = floor(8 * (q * above - (1 - q) * below))

    def up_to(number):  # P(noise <= number)
        return (
            1 - decay ** (number + 1) / (1 + decay) if number >= 0 else decay**-number / (1 + decay)
        )

    ends = [up_to(8 * (some + 1 - ceil(equal * q)) - 5 - mean) for some in range(equal)]
    return np.diff([0.0, *ends, 1.0])


def probabilities(
    records, epsilon, neighbors, levels=LEVELS, top=3, share=Fraction(1, 2), noise=Fraction(1, 12)
):
    """Those of all tuples: the middle level first, and of equal records its share and what a noisy
    number says to the left.
    """
    levels = [Fraction(0), *map(Fraction, levels), Fraction(1)]
    depths = ceil(log2(len(levels) - 1))
    each, found = epsilon * 11 / 12 / depths, {}

    def draw(parts, chosen, chance):
        if not parts:
            key = tuple(chosen[i] for i in range(1, len(levels) - 1))
            found[key] = found.get(key, 0) + chance
            return
        (first, last, own), *rest = parts
        middle = (first + last) // 2
        q = (levels[middle] - levels[first]) / (levels[last] - levels[first])
        whole = last - first == len(levels) - 1
        relation = neighbors if whole else "add_remove"
        part = 1 if whole or neighbors == "add_remove" else share
        low, high = chosen[first], chosen[last]
        options = (
            {low: 1.0}
            if low == high
            else part_probabilities(own, low, high, q, float(each * part), relation)
        )
        for y, p in options.items():
            below, equal = sum(r < y for r in own), sum(r == y for r in own)
            epsilon_of_noise = float(epsilon * noise / max(depths - 1, 1) * part)
            splits = chances_of_splits(
                below, equal, len(own) - below - equal, q, epsilon_of_noise, relation
            )
            for some, share_of_it in enumerate(
                splits.tolist() if middle - first > 1 or last - middle > 1 else [1.0]
            ):
                cut = below + some
                sides = [
                    (first, middle, [min(r, y) for r in own[:cut]]),
                    (middle, last, [max(r, y) for r in own[cut:]]),
                ]
                sides = [side for side in sides if side[1] - side[0] > 1]
                draw([*rest, *sides], chosen | {middle: y}, chance * p * share_of_it)

    draw([(0, len(levels) - 1, sorted(records))], {0: 0, len(levels) - 1: top}, 1.0)
    return found


@pytest.mark.parametrize("neighbors", ["add_remove", "swap"])
def test_draws_follow_their_definition(neighbors):
    rows = np.array([[0, 1, 1, 3, 3], [2, 2, 2, 2, 2]])
    expected = [probabilities(row.tolist(), 2.0, neighbors) for row in rows]
    found = release.recursive_quantiles(
        rows, LEVELS, epsilon=2.0, neighbors=neighbors, draws=4000, **GRID
    )
    assert found.values.shape == (4000, 2, 3)
    number = {values: i for i, values in enumerate(TUPLES)}
    counts = [
        np.bincount(
            [number[tuple(y)] for y in found.multiples[:, row].tolist()], minlength=len(number)
        )
        for row in (0, 1)
    ]
    expected = [np.array([one.get(values, 0.0) for values in TUPLES]) for one in expected]
    for row in (0, 1):
        np.testing.assert_allclose(expected[row].sum(), 1, rtol=1e-12)
        statistics.assert_counts_follow(counts[row], expected[row])
    statistics.assert_counts_rejected(counts[0], expected[1])


@pytest.mark.parametrize("neighbors", ["add_remove", "swap"])
def test_no_neighbor_loses_more_than_epsilon(neighbors):
    """All datasets of up to four records on four values; under swap parts of them change by two
    records, and have half each.
    """
    universe = reach_sets.Universe(4, 3, 4)
    every = [[r for r in row if r >= 0] for row in universe.records.tolist()]
    losses = []
    # The controls: parts under swap that have the whole of a depth and more, and depths that have
    # the whole epsilon.
    for epsilon, share in (
        (2.0, Fraction(1, 2)),
        (2.0, Fraction(9, 5)) if neighbors == "swap" else (4.0, Fraction(1)),
    ):
        found = [
            probabilities(records, epsilon, neighbors, ("1/4", "1/2", "3/4"), share=share)
            for records in every
        ]
        logs = np.log([[one[values] for one in found] for values in TUPLES])
        losses.append(reach_sets.worst(logs, universe.pairs(neighbors))[0])
    assert 1.0 < losses[0] <= 2 * (1 + 1e-12)
    assert losses[1] > 2.2


@pytest.mark.slow
@pytest.mark.parametrize("neighbors", ["add_remove", "swap"])
def test_the_simulation_has_the_same_probabilities(neighbors, x64):
    rows = np.array([[0.0, 1, 1, 3, 3], [2, 2, 2, 2, 2]])
    asked = dpjax.quantiles(rows, LEVELS, neighbors=neighbors, **GRID)
    points, numbers = jnp.asarray(np.array(TUPLES, float))[:, None, None, :], np.arange(-99, 100)
    noisy = jnp.asarray(np.tile(numbers[:, None, None], 3))
    simulated = np.exp(np.asarray(dpjax.recursive_quantiles(asked, 2.0).log_prob(points, noisy)))
    # The rate of the noise for the median, which is drawn first.
    rate = 2 / 12 / (8 if neighbors == "swap" else 4)
    simulated = simulated.sum(axis=1) + simulated[:, [0, -1]].sum(axis=1) * np.exp(
        -rate
    ) / -np.expm1(-rate)
    for row in (0, 1):
        expected = probabilities(rows[row].astype(int).tolist(), 2.0, neighbors)
        np.testing.assert_allclose(
            simulated[:, row], [expected.get(values, 0.0) for values in TUPLES], rtol=1e-9
        )


def test_every_row_its_own_records():
    """Many rows, draws and a large epsilon: each draw is the quantile of its row, up to ties."""
    x = np.random.default_rng(0).permuted(
        np.arange(1.0, 101.0) + 100 * np.arange(4)[:, None], axis=1
    )
    options = {"lower": 0, "upper": 500, "resolution": 1, "neighbors": "add_remove"}
    found = release.recursive_quantiles(x, [0.25, 0.5, 0.75], epsilon=60.0, draws=3, **options)
    expected = np.array([25.0, 50.0, 75.0]) + 100 * np.arange(4)[:, None]
    assert np.abs(found.values - expected).max() <= 4
    counted = release.recursive_quantiles(
        [1.0, 2.0, 3.0], [0.5], epsilon=60.0, counts=[[100, 0, 0], [0, 10, 100]], **options
    )
    assert counted.values.tolist() == [[[1.0], [3.0]]]
    absent = {"counts": [9, 50, 60], "mask": [True, True, False]} | options
    assert release.recursive_quantiles(
        [1.0, float("nan"), 3.0], [0.5], epsilon=60.0, **absent
    ).values.tolist() == [[1.0]]
    assert found.guarantee.epsilon == 180.0
    assert found.guarantee.bounded_range == 360.0
    assert counted.guarantee.bounded_range == 60.0


def test_data_never_raise_and_bad_parameters_do():
    wild = [[float("nan"), float("inf"), -float("inf"), 1e300], [float("nan")] * 4]
    for neighbors in ("add_remove", "swap"):
        found = release.recursive_quantiles(wild, LEVELS, epsilon=1.0, neighbors=neighbors, **GRID)
        assert found.values.min() >= 0
        assert found.values.max() <= 3
        assert (np.diff(found.values, axis=-1) >= 0).all()
    grid = release.Floats(digits=1, smallest=-1, largest=1)
    floats = release.recursive_quantiles(wild, LEVELS, epsilon=1.0, neighbors="swap", grid=grid)
    assert floats.resolution is None
    assert np.isin(floats.values, grid.values_of(np.arange(grid.size))).all()
    for bad in (
        {"qs": []},
        {"qs": [0.5, 0.2]},
        {"epsilon": 0.0},
        {"epsilon": 200.0},
        {"draws": 0},
        {"resolution": 2},
    ):
        options = {"x": [1, 2], "qs": [0.5], "epsilon": 1.0, "neighbors": "swap"} | GRID | bad
        with pytest.raises(ValueError, match=r"qs|epsilon|draws|multiples"):
            release.recursive_quantiles(**options)
    with pytest.raises(TypeError, match="resolution"):
        release.recursive_quantiles([1, 2], [0.5], epsilon=1.0, neighbors="swap")


def test_levels_whose_ranks_pass_64_bits_are_refused_before_a_record_is_read():
    """Levels of 15 digits times some ten thousand records did: quantiles were wrong, and other ones
    with one record more.
    """
    levels = np.linspace(0, 1, 8)[1:-1]
    options = {
        "lower": 0,
        "upper": 999,
        "resolution": 1,
        "epsilon": 64.0,
        "neighbors": "add_remove",
    }
    for records in ([], [1, 2], np.arange(50_000) % 1000):
        with pytest.raises(ValueError, match="too large for exact ranks"):
            release.recursive_quantiles(records, levels, **options)
    exact = [Fraction(k, 7) for k in range(1, 7)]
    found = release.recursive_quantiles(np.arange(50_000) % 1000, exact, **options)
    np.testing.assert_allclose(found.values[0], 1000 * levels, atol=3)
    for levels in (
        ["0.9999", "0.99999", "0.999999"],
        [Fraction(1, 2**22 - 1)],
        [Fraction(1, 2**21), Fraction(3, 2**21)],
    ):
        numbers = [2**40, 2**40, 2**40]
        found = release.recursive_quantiles([1, 500, 900], levels, counts=numbers, **options)
        assert set(found.values.ravel().tolist()) == ({900.0} if len(levels) == 3 else {1.0})
