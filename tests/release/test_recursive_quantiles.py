"""The release of many quantiles: the distribution that the simulation has, exact draws, and edges."""

import itertools

import jax.numpy as jnp
import numpy as np
import pytest

import dpjax
from dpjax import release
from tests.support import statistics

GRID = {"lower": 0, "upper": 3, "resolution": 1}
LEVELS = ["0.25", "0.5", "0.7"]
TUPLES = list(itertools.combinations_with_replacement(range(4), len(LEVELS)))


@pytest.mark.parametrize("neighbors", ["add_remove", pytest.param("swap", marks=pytest.mark.slow)])
def test_draws_have_the_probabilities_of_the_simulation(neighbors, x64):
    rows = np.array([[0.0, 1, 1, 3, 3], [2, 2, 2, 2, 2]])
    asked = dpjax.quantiles(rows, LEVELS, neighbors=neighbors, **GRID)
    points = jnp.asarray(np.array(TUPLES, float))[:, None, :]
    expected = np.exp(np.asarray(dpjax.recursive_quantiles(asked, 2.0).log_prob(points)))
    np.testing.assert_allclose(expected.sum(0), 1, rtol=1e-9)
    found = release.recursive_quantiles(rows, LEVELS, epsilon=2.0, neighbors=neighbors, draws=4000, **GRID)
    assert found.values.shape == (4000, 2, 3)
    number = {values: i for i, values in enumerate(TUPLES)}
    counts = [np.bincount([number[tuple(y)] for y in found.multiples[:, row].tolist()], minlength=len(number)) for row in (0, 1)]
    for row in (0, 1):
        statistics.assert_counts_follow(counts[row], expected[:, row])
    statistics.assert_counts_rejected(counts[0], expected[:, 1])


def test_every_row_its_own_records():
    """Many rows, draws and a large epsilon: each draw is the quantile of its row, up to ties."""
    x = np.random.default_rng(0).permuted(np.arange(1.0, 101.0) + 100 * np.arange(4)[:, None], axis=1)
    options = {"lower": 0, "upper": 500, "resolution": 1, "neighbors": "add_remove"}
    found = release.recursive_quantiles(x, [0.25, 0.5, 0.75], epsilon=60.0, draws=3, **options)
    expected = np.array([25.0, 50.0, 75.0]) + 100 * np.arange(4)[:, None]
    assert np.abs(found.values - expected).max() <= 4
    counted = release.recursive_quantiles(
        [1.0, 2.0, 3.0], [0.5], epsilon=60.0, counts=[[100, 0, 0], [0, 10, 100]], n_max=200, **options
    )
    assert counted.values.tolist() == [[[1.0], [3.0]]]
    # Neither what is no number nor what is masked counts against the capacity.
    absent = {"counts": [9, 50, 60], "mask": [True, True, False], "n_max": 9} | options
    assert release.recursive_quantiles([1.0, float("nan"), 3.0], [0.5], epsilon=60.0, **absent).values.tolist() == [[1.0]]
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
    for bad in ({"qs": []}, {"qs": [0.5, 0.2]}, {"epsilon": 0.0}, {"epsilon": 200.0}, {"draws": 0}, {"resolution": 2}):
        options = {"x": [1, 2], "qs": [0.5], "epsilon": 1.0, "neighbors": "swap"} | GRID | bad
        with pytest.raises(ValueError, match=r"qs|epsilon|draws|multiples"):
            release.recursive_quantiles(**options)
    with pytest.raises(TypeError, match="resolution"):
        release.recursive_quantiles([1, 2], [0.5], epsilon=1.0, neighbors="swap")
