"""A grid of floats in their own order: what it holds, how records are rounded to it, and what a
release without bounds costs.
"""

from itertools import combinations_with_replacement

import numpy as np
import pytest

from dpjax import release
from dpjax.release import Floats, exact_distribution
from tests.support.statistics import assert_counts_follow, assert_counts_rejected

SMALL = Floats(digits=1, smallest=-1, largest=1)
HOSTILE = (-np.inf, -3.14, -0.0, 0.04, 0.051, 2.5, 1e9, np.nan)


def test_the_values_are_all_decimals_of_so_many_digits():
    grid = Floats(digits=2, smallest=-2, largest=3)
    values = grid.values_of(np.arange(grid.size))
    positive = sorted(float(f"{m}e{e}") for e in range(-3, 2) for m in range(10, 100))
    np.testing.assert_array_equal(
        values, [*(-v for v in reversed([*positive, 1e3])), 0.0, *positive, 1e3]
    )
    assert Floats().size == 2 * 54_001 + 1


def test_records_are_rounded_to_the_nearest_value():
    grid = Floats(digits=2, smallest=-2, largest=3)
    values = grid.values_of(np.arange(grid.size))
    x = np.concatenate(
        [np.random.default_rng(0).lognormal(0, 5, 2000) * np.tile([1, -1], 1000), values]
    )
    numbers, present = grid.numbers_of(x)
    distances = np.abs(values[:, None] - x)
    np.testing.assert_array_equal(np.abs(values[numbers] - x), distances.min(axis=0))
    np.testing.assert_array_equal(values[numbers[2000:]], values)
    assert present.all()
    order = np.argsort(x, kind="stable")
    assert (np.diff(numbers[order]) >= 0).all()


def test_what_is_no_finite_number_has_a_place():
    numbers, present = SMALL.numbers_of([*HOSTILE, 10**400, -(10**400), None])
    values = SMALL.values_of(numbers)
    assert values[present].tolist() == [-10.0, -3.0, 0.0, 0.0, 0.1, 2.0, 10.0, 10.0, -10.0]
    assert present.tolist() == [True] * 7 + [False, True, True, False]
    as_array, there = SMALL.numbers_of(np.array(HOSTILE))
    np.testing.assert_array_equal(as_array, numbers[:8])
    np.testing.assert_array_equal(there, present[:8])


def test_no_dtype_of_the_records_warns():
    """Numbers that float64 does not hold, a signaling NaN, and integers of any width; warnings are
    errors here.
    """
    wide = np.array([1e300, 2.0], np.longdouble) ** 2
    assert SMALL.values_of(SMALL.numbers_of(wide)[0]).tolist() == [10.0, 4.0]
    signaling = np.array([0x7FA00000, 0x40000000], np.uint32).view(np.float32)
    assert SMALL.numbers_of(signaling)[1].tolist() == [False, True]
    for dtype in (np.int8, np.uint8, np.int64, np.uint64):
        ends = np.array([0, np.iinfo(dtype).max], dtype)
        assert SMALL.values_of(SMALL.numbers_of(ends)[0]).tolist() == [0.0, 10.0]


@pytest.mark.parametrize("neighbors", ["add_remove", "swap"])
@pytest.mark.parametrize(
    "mechanism", ["piecewise_laplace", "inverse_sensitivity", "permute_and_flip"]
)
def test_all_neighbors_of_small_sets_of_floats(neighbors, mechanism):
    """Infinite records and NaN among them: NaN is absent under add/remove, and the smallest value
    under swap.
    """
    epsilon, values = 1.0, np.arange(SMALL.size)
    sizes = range(4) if neighbors == "add_remove" else [3]
    sets = [data for n in sizes for data in combinations_with_replacement(HOSTILE, n)]
    options = {"epsilon": epsilon, "neighbors": neighbors, "mechanism": mechanism}
    padded = [[*data, *[np.nan] * (3 - len(data))] for data in sets]
    found = exact_distribution(release.Median(grid=SMALL), padded, **options)
    logs = dict(zip(sets, found.log_pmf(SMALL.values_of(values)[:, None]).T, strict=True))
    for data in sets:
        assert np.exp(logs[data]).sum() == pytest.approx(1, rel=1e-12)

    def worst(relation):
        found = 0.0
        for data in sets:
            for i in range(len(data)):
                rest = data[:i] + data[i + 1 :]
                others = (
                    [rest]
                    if relation == "add_remove"
                    else [tuple(sorted((*rest, v), key=HOSTILE.index)) for v in HOSTILE]
                )
                found = max(found, *(np.abs(logs[data] - logs[other]).max() for other in others))
        return found

    assert 0.5 * epsilon < worst(neighbors) <= epsilon * (1 + 1e-12)
    if neighbors == "add_remove":  # control: a record replaced is two changes
        assert worst("swap") > 1.2 * epsilon


def test_without_bounds_the_median_is_nearly_as_good():
    """Within 2 % of the error between good bounds, with a finer resolution than the digits give."""
    generator = np.random.default_rng(1)
    for x, upper, resolution in (
        (generator.lognormal(10, 1, 1001), 10**6, 50),
        (generator.exponential(3e-7, 1001), 1e-4, 1e-9),
        (generator.normal(170, 10, 1001), 300, 1),
    ):
        common = {"epsilon": 0.2, "neighbors": "add_remove"}
        bounded = exact_distribution(release.Median(0, upper, resolution), x, **common)
        free = exact_distribution(release.Median(grid=Floats()), x, **common)
        true = float(np.median(x))
        assert free.mean_abs_error(true) <= 1.02 * bounded.mean_abs_error(true)


def test_draws_are_values_and_follow_the_distribution():
    x = [0.2, 0.5, 0.7, 1.4, 6.0]
    options, statistic = {"epsilon": 1.0, "neighbors": "swap"}, release.Median(grid=SMALL)
    found = release.median(x, grid=SMALL, **options, draws=20_000)
    exact = exact_distribution(statistic, x, **options)
    assert found.resolution is None
    np.testing.assert_array_equal(found.values, SMALL.values_of(found.multiples))
    counts = np.bincount(found.multiples, minlength=SMALL.size)
    assert_counts_follow(counts, exact.pmf(exact.values))
    assert_counts_rejected(
        counts, exact_distribution(statistic, x, **options | {"epsilon": 1.3}).pmf(exact.values)
    )
    assert exact.pmf([0.15, 99.0]).tolist() == [0.0, 0.0]
    assert found.to_dict()["resolution"] is None


def test_other_statistics_and_what_is_refused():
    x, options = (
        [1.0] * 30 + [2.0] * 30 + [3.0] * 60 + [400.0] * 20,
        {"epsilon": 30.0, "neighbors": "add_remove"},
    )
    assert release.quantile(x, 0.75, grid=Floats(), **options).values.tolist() == [3.0]
    assert release.order_statistic(x, 45, grid=Floats(), **options).values.tolist() == [2.0]
    assert release.maximum(x, tau=1, grid=Floats(), **options).values.shape == (1,)
    assert release.median(
        [2.0, 7.0], counts=[30, 10], grid=Floats(), **options
    ).values.tolist() == [2.0]
    with pytest.raises(ValueError, match="more than"):
        Floats(digits=6, smallest=-300, largest=300)
