"""The release of many quantiles: draws against the definition, and edges."""

from fractions import Fraction

import numpy as np
import pytest

from dpjax import release
from tests.several_quantiles import test_recursive as recursive
from tests.several_quantiles.test_recursive import QUARTERS, SIZES, tuples_of
from tests.support import oracle, statistics

GRID = {"lower": 0, "upper": 3, "resolution": 1}
LEVELS = ["0.25", "0.5", "0.7"]
TUPLES = tuples_of(LEVELS)


def law_of(records, levels, epsilon, neighbors, fault=None):
    """The probabilities of all tuples, whatever the noisy numbers are, which stay secret."""
    found = recursive.by_definition(records, levels, epsilon, neighbors, fault)
    return found.reshape(len(TUPLES), -1).sum(axis=-1)


@pytest.mark.parametrize("neighbors", SIZES)
def test_no_neighbor_loses_more_than_epsilon(neighbors):
    """All datasets of up to five records on four values, or of four under swap."""
    datasets = oracle.all_datasets(SIZES[neighbors], recursive.GRID)
    one, other = recursive.pairs(datasets, neighbors)

    def largest(fault=None):
        logs = np.log([law_of(data, QUARTERS, 3.0, neighbors, fault) for data in datasets])
        return (logs[one] - logs[other]).max() / 3

    assert 0.5 < largest() <= 1 + 1e-12
    assert largest("epsilon for each depth") > 1.1  # the control


@pytest.mark.parametrize("neighbors", ["add_remove", "swap"])
def test_draws_follow_their_definition(neighbors):
    rows = np.array([[0, 1, 1, 3, 3], [2, 2, 2, 2, 2]])
    levels = tuple(map(Fraction, LEVELS))
    expected = [law_of(row.tolist(), levels, 2.0, neighbors) for row in rows]
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
    for row in (0, 1):
        np.testing.assert_allclose(expected[row].sum(), 1, rtol=1e-12)
        statistics.assert_counts_follow(counts[row], expected[row])
    statistics.assert_counts_rejected(counts[0], expected[1])


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


def test_data_never_raise():
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
