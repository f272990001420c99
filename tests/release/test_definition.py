"""Distributions against their definitions, and their functions against sums over the grid."""

from fractions import Fraction

import numpy as np
import pytest

from dpjax.release import Floats, Maximum, Median, Mode, Quantile
from tests.support.releases import (
    CASES,
    GRID,
    MECHANISMS,
    SMALL,
    STATISTICS,
    after,
    counts_of,
    law_of,
    pmf,
    probabilities,
)


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize(("name", "neighbors"), CASES)
def test_probabilities_of_all_small_datasets(name, neighbors, mechanism):
    for epsilon in (0.3, 2.0, 16.0, 64.0):
        case = STATISTICS[name], SMALL, epsilon, neighbors, mechanism
        np.testing.assert_allclose(pmf(*case), law_of(*case), rtol=1e-11)


@pytest.mark.parametrize(
    "variant",
    [
        {"changed": lambda *case: after(*case[:3], case[3] + 1)},
        {"changed": lambda statistic, data, _, s: after(statistic, data, "swap", s)},
        {"depths": 2},
    ],
)
def test_control_other_definitions_have_other_probabilities(variant):
    case = STATISTICS["median"], SMALL, 0.3, "add_remove", "permute_and_flip"
    assert np.abs(pmf(*case) / law_of(*case, **variant) - 1).max() > 0.01


def test_modes_of_all_small_datasets():
    counts = counts_of(SMALL)
    scores = np.array([[data.count(value) for value in GRID] for data in SMALL])
    cost = scores.max(axis=1, keepdims=True) - scores
    for neighbors, rate in (("add_remove", 0.7), ("swap", 0.35)):
        for mechanism in Mode.mechanisms:
            options = {"epsilon": 0.7, "neighbors": neighbors, "mechanism": mechanism}
            law = Mode(GRID).distribution(counts, **options)
            found = law.pmf(np.arange(5.0)[:, None]).T
            np.testing.assert_allclose(found, probabilities(cost, rate, mechanism), rtol=1e-12)
            np.testing.assert_array_equal(law.value, scores.argmax(axis=1))


def test_values_are_the_statistics_themselves():
    for name, statistic in STATISTICS.items():
        law = statistic.distribution(counts_of(SMALL), epsilon=1.0, neighbors="add_remove")
        own = {"sum": lambda data: min(sum(data), 4), "distinct": lambda data: min(len({*data}), 4)}
        largest = own.get(name, lambda data: max(data, default=0))
        for value, data in zip(law.value, SMALL, strict=True):
            shifted = name in own or isinstance(statistic, Maximum)
            half = 2 if name == "midpoint" else 1
            at = after(statistic, data, "add_remove", 0) / half
            assert value == (largest(data) if shifted else at)


GRIDS = {
    "multiples": Median(lower=-2, upper=3, resolution=Fraction(1, 4)),
    "floats": Quantile(0.8, grid=Floats(digits=1, smallest=-2, largest=1)),
    "candidates": Mode((-3.0, 0.5, 2.0, 7.25)),
}


@pytest.mark.parametrize("mechanism", [0, 1])
@pytest.mark.parametrize("name", GRIDS)
def test_functions_of_a_distribution_are_sums_over_its_grid(name, mechanism):
    statistic = GRIDS[name]
    x = np.array([[[0.5, 2, 2, -3, 0.5, 7.25]], [[0.5, 0.5, 1, 2, 9, 2]]])
    mechanism = statistic.mechanisms[mechanism]
    law = statistic.distribution(x, epsilon=0.7, neighbors="swap", mechanism=mechanism)
    grid = statistic.records_grid.values_of(np.arange(statistic.records_grid.size))
    shares = law.pmf(grid)
    assert law.value.shape == (2, 1)
    assert shares.shape == (2, len(grid))
    np.testing.assert_allclose(shares.sum(axis=1), 1, rtol=1e-12)
    through = np.cumsum(shares, axis=1)
    np.testing.assert_allclose(law.cdf(grid), through, atol=1e-12)
    between = grid[:-1] + np.diff(grid) / 3
    np.testing.assert_allclose(law.cdf(between), through[:, :-1], atol=1e-12)
    outside = np.array([grid[0] - 1, grid[-1] + 1, np.nan])
    assert (law.pmf(np.append(between, outside)) == 0).all()
    np.testing.assert_allclose(law.cdf(outside[:2]), [[0, 1]] * 2)
    for p in (1e-9, 0.01, 0.37, 0.52, 0.99, 1 - 1e-9):
        least = grid[(through >= p * (1 - 1e-12)).argmax(axis=1)]
        np.testing.assert_array_equal(law.quantile(p)[:, 0], least)
    np.testing.assert_array_equal(law.quantile([0.0, 1.0]), [[grid[0], grid[-1]]] * 2)
    assert np.isnan(law.quantile([-0.1, 1.1, np.nan])).all()
    for end, p in zip(law.interval(0.8), (0.1, 0.9), strict=True):
        np.testing.assert_array_equal(end, law.quantile(p))
    centers = np.array([-5.0, 0.5, 1.7, 20.0])
    errors = shares @ np.abs(grid[:, None] - centers)
    np.testing.assert_allclose(law.mean_abs_error(centers), errors, rtol=1e-12)
    np.testing.assert_allclose(law.mean_abs_error(centers[:, None, None])[..., 0].T, errors)


def test_raw_rows_have_the_law_of_their_counts():
    """Of many records only those near the rank are counted one by one."""
    x = np.random.default_rng(1).integers(0, 10**6, (3, 400))
    options = {"epsilon": 48.0, "neighbors": "add_remove"}
    public = {"lower": 0, "upper": 10**6, "resolution": 1}
    several = [Quantile(q, **public) for q in (0.05, 0.5, 0.9)]
    for statistic in (*several, Median(**public, definition="linear")):
        known = statistic.distribution(x, counts=np.ones(400, int), **options)
        found = statistic.distribution(x, **options)
        for name in ("starts", "first", "length", "cost", "value"):
            np.testing.assert_array_equal(getattr(found, name), getattr(known, name))
