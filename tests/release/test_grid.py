"""The map to the grid: exact, total, one record at a time."""

from fractions import Fraction
from math import floor

import numpy as np
import pytest

from dpjax.release.grid import Grid, to_grid

GRIDS = [Grid(0, 0, 121), Grid(-7, -3.5, 1000), Grid(10, -(2**20), 4096), Grid(-40, 0, 2**31 - 2)]


def exact_cell(value, grid):
    return min(max(floor((Fraction(value) - Fraction(grid.lower)) / Fraction(grid.step)), 0), grid.size - 1)


@pytest.mark.parametrize("grid", GRIDS, ids=str)
def test_exact_against_fractions(grid):
    rng = np.random.default_rng(0)
    inside = grid.lower + (grid.upper - grid.lower) * rng.uniform(-0.1, 1.1, 300)
    lines = grid.values(rng.integers(0, grid.size, 100))
    x = np.concatenate(
        [inside, lines, np.nextafter(lines, -np.inf), np.nextafter(lines, np.inf), [-0.0, 5e-324, -5e-324, 1e300, -1e300]]
    )
    cells, there = to_grid(x, grid)
    assert there.all()
    assert cells.tolist() == [exact_cell(value, grid) for value in x]
    with np.errstate(over="ignore"):
        single = x.astype(np.float32)
    single = single[np.isfinite(single)]
    assert to_grid(single, grid)[0].tolist() == [exact_cell(float(value), grid) for value in single]


def test_records_that_are_no_numbers_or_far_away():
    grid = Grid(0, 10, 5)
    signaling = np.array([0x7FF0000000000001], np.uint64).view(np.float64)
    x = np.concatenate([[np.nan, np.inf, -np.inf, 1e308], signaling])
    cells, there = to_grid(x, grid)
    assert cells.tolist() == [0, 4, 0, 4, 0]
    assert there.tolist() == [False, True, True, True, False]
    assert to_grid([2**100, -(2**100), 12], grid)[0].tolist() == [4, 0, 2]
    assert to_grid([2**2000, 12.5, -(2**2000)], grid)[0].tolist() == [4, 2, 0]
    assert to_grid(np.array([2**63 - 1, -(2**63), 11], np.int64), grid)[0].tolist() == [4, 0, 1]
    assert to_grid(np.array([200, 12, 3], np.uint8), grid)[0].tolist() == [4, 2, 0]
    assert to_grid(np.array([2**60 - 1]), Grid(30, 0, 2**31 - 2))[0].tolist() == [2**30 - 1]
    assert to_grid(np.array([None, "x", 12], object), grid)[1].tolist() == [False, False, True]
    large = Grid(0, 2**52, 2**20)
    assert to_grid(np.array([2**52 + 12345]), large)[0].tolist() == [12345]


def test_bad_grids_are_named():
    for arguments, message in (
        ((0, 0.5, 10), "multiple"),
        ((0, 0, 0), "size"),
        ((0, 0, 2**31 - 1), "size"),
        ((0, float("nan"), 10), "finite"),
        ((-60, 1, 10), "float64"),
        ((2000, 0, 10), "log2_step"),
    ):
        with pytest.raises(ValueError, match=message):
            Grid(*arguments)
    with pytest.raises(TypeError, match="integer"):
        Grid(0.5, 0, 10)
    with pytest.raises(TypeError, match="real numbers"):
        to_grid(np.array(["a"]), Grid(0, 0, 10))
    assert not to_grid(["a"], Grid(0, 0, 10))[1].any()  # a record in a list is missing: the list has no dtype that is public
