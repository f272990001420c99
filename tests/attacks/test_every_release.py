"""Every release: what it draws from rows follows its distribution, no neighbor of a small dataset
loses more than it promises, and no value that one dataset can have is impossible for a neighbor.

A statistic that is added to the release without an example fails here.
"""

import inspect

import jax
import numpy as np
import pytest

from dpjax import median, piecewise_laplace, release
from tests.support.oracle import all_datasets, neighbors_of
from tests.support.statistics import assert_counts_follow, assert_counts_rejected

GRID = (0, 1, 2)
BOUNDS = {"lower": 0, "upper": 2, "resolution": 1}
ONE_VALUE = {
    "Median": release.Median(**BOUNDS, definition="linear"),
    "Quantile": release.Quantile(0.9, **BOUNDS),
    "Maximum": release.Maximum(1, **BOUNDS),
    "NonnegativeSum": release.NonnegativeSum(1, upper=4, resolution=1),
    "DistinctCount": release.DistinctCount(1, upper=3),
    "Mode": release.Mode(GRID),
    "Sum": release.Sum(1, 2, 1),  # whose noise is not that of the other relation
    "Mean": release.Mean(1, 2, 1),
    "Count": release.Count(),
    "Histogram": release.Histogram(edges=(*GRID, len(GRID))),
}
# Several values of a row have no pmf: their audits are with them
SEVERAL = {"Quantiles", "ConfidenceInterval"}
CASES = [
    (name, neighbors, mechanism)
    for name, statistic in ONE_VALUE.items()
    for neighbors in statistic.relations
    for mechanism in statistic.mechanisms or (None,)
]


def test_every_release_has_an_example():
    public = {name: getattr(release, name) for name in release.__all__}
    kinds = {name for name, value in public.items() if inspect.isclass(value)}
    statistics = {name for name in kinds if issubclass(public[name], release.Statistic)}
    assert statistics - SEVERAL - {"Statistic"} == ONE_VALUE.keys()
    functions = {name for name, value in public.items() if inspect.isfunction(value)}
    assert functions == {"metric_laplace"}  # it has its own audit


def values_of(name, records):
    """Values that a release can have, some of them very unlikely."""
    if name in ("Sum", "Mean", "Count", "Histogram"):
        return np.arange(-40, 41) / (records if name == "Mean" else 1)
    return np.arange(0, 9) / 2


def shares(name, x, options):
    """The probability of each value, on the last axis."""
    at = values_of(name, len(x))
    at = at[:, None] if name == "Histogram" else at
    return np.moveaxis(ONE_VALUE[name].distribution(list(x), **options).pmf(at), 0, -1)


@pytest.mark.parametrize(("name", "neighbors", "mechanism"), CASES)
def test_no_value_tells_more_than_is_promised(name, neighbors, mechanism):
    options = {"epsilon": 0.7, "neighbors": neighbors, "mechanism": mechanism}
    largest = 0
    law = {data: shares(name, data, options) for data in all_datasets(range(1, 4), GRID)}
    for data, one in law.items():
        for other in neighbors_of(data, neighbors, GRID) & law.keys():
            another = law[other]
            np.testing.assert_array_equal(one > 0, another > 0)
            known = one > 0
            loss = np.log(one[known] / another[known])
            if name == "Histogram":  # independent bins: their largest losses add up
                loss = np.abs(np.log(one / another)).max(axis=-1).sum()
            largest = max(largest, np.max(loss))
    assert 0.3 < largest <= 0.7 * 1.0000000001


@pytest.mark.parametrize(("name", "neighbors", "mechanism"), CASES)
def test_what_is_drawn_follows_the_distribution(name, neighbors, mechanism):
    x = (0, 0, 0, 2, 2)
    options = {"epsilon": 0.7, "neighbors": neighbors, "mechanism": mechanism}
    found = ONE_VALUE[name].release([x] * 2, **options, draws=3000).values
    at = values_of(name, len(x))
    wrong = shares(name, x, options | {"epsilon": 2.0})
    for row in range(2):
        drawn = found[:, row, 0] if name == "Histogram" else found[:, row]
        counts = (np.abs(drawn[:, None] - at) < 1e-9).sum(axis=0)
        assert counts.sum() > 2950
        laws = (law[0] if name == "Histogram" else law for law in (shares(name, x, options), wrong))
        assert_counts_follow(counts, next(laws))
        assert_counts_rejected(counts, next(laws))


# Neighbors under swap: one record moves, and with it the lower median of nine.
FIRST = np.array([0.1, 0.2, 0.3, 0.5, 0.61, 0.7, 0.8, 0.9, 0.95])
SECOND = np.array([0.1, 0.2, 0.3, 0.5, 0.03, 0.7, 0.8, 0.9, 0.95])


def is_difference(y, inner):
    """Whether a float32 sampler that returns inner - offset, with a float32 offset, can return y at
    all: the difference is a multiple of half the unit of the offset.
    """
    offset = np.minimum(np.abs(np.float32(inner) - y), np.float32(inner))
    unit = np.spacing(offset.astype(np.float32)).astype(np.float64) / 2
    return np.mod(y.astype(np.float64), unit) == 0


@pytest.mark.slow
def test_control_float_draws_give_the_dataset_away():
    """Draws below the smallest record start at it for one dataset and at another record for the
    other.
    """
    low = []
    for data in (FIRST, SECOND):
        law = median(data.astype(np.float32), lower=0, upper=1, neighbors="swap")
        draws = np.asarray(piecewise_laplace(law, 0.1).sample(jax.random.key(0), (200_000,)))
        low.append(draws[(draws > 0) & (draws < 0.03)])
    assert low[0].size > 1000
    assert is_difference(low[0], 0.1).all()
    assert not is_difference(low[1], 0.1).mean() > 0.99


def test_every_value_of_a_release_is_possible_for_every_neighbor():
    statistic = release.Median(lower=0, upper=1, resolution=2.0**-10, definition="linear")
    options = {"epsilon": 0.1, "neighbors": "swap"}
    values = np.arange(2049) / 2048  # the midpoint of two records has half the resolution
    laws = [statistic.distribution(data, **options).pmf(values) for data in (FIRST, SECOND)]
    assert 0.01 < np.abs(np.log(laws[0] / laws[1])).max() <= 0.1 * (1 + 1e-12)
    drawn = statistic.release([FIRST, SECOND], **options, draws=2000).values
    assert np.isin(drawn, values).all()
