"""The map to the grid: exact, total, one record at a time."""

from fractions import Fraction
from math import floor

import jax.numpy as jnp
import numpy as np
import pytest

from dpjax.release.grid import Grid, as_array, to_grid
from dpjax.release.integer_profiles import codes_of

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
        ((0.5, 0, 10), "log2_step must be an integer"),
    ):
        with pytest.raises(ValueError, match=message):
            Grid(*arguments)
    with pytest.raises(TypeError, match="real numbers"):
        to_grid(np.array(["a"]), Grid(0, 0, 10))
    assert not to_grid(["a"], Grid(0, 0, 10))[1].any()  # a record in a list is missing: the list has no dtype that is public


class Hostile:
    """An object that fails however it is asked for its value."""

    def __float__(self):
        raise ZeroDivisionError

    @property
    def dtype(self):
        raise KeyError


class Foreign:
    """An array of another library: a dtype of its own, and a conversion by NumPy's protocol."""

    dtype = "Int64"

    def __init__(self, values):
        self.values = values

    def __array__(self, dtype=None, copy=None):
        return np.array(self.values, dtype=dtype)


NO_NUMBERS = {
    "days": np.timedelta64(1, "D"),
    "nanoseconds": np.timedelta64(1, "ns"),
    "a date": np.datetime64("2020-01-01", "ns"),
    "complex": 1 + 2j,
    "NumPy's complex": np.complex128(1 + 2j),
    "complex in an array": np.array(1j),
    "complex in an array of objects": np.array(np.complex128(1j), object),
    "JAX's complex": jnp.complex64(1j),
    "masked": np.ma.masked,
    "masked in an array": np.ma.array(1.0, mask=True),
    "a record": np.zeros(1, "f8,f8")[0],
    "hostile": Hostile(),
}


@pytest.mark.parametrize("name", NO_NUMBERS)
def test_an_object_that_is_no_real_number_is_missing(name):
    """Without an error or a warning, and whatever stands beside it."""
    for records in ([[1, NO_NUMBERS[name], 3]], [[1.5, NO_NUMBERS[name], "x"]]):
        cells, there = to_grid(records, Grid(0, 0, 8))
        assert there.tolist() == [[True, False, records[0][2] == 3]]
        assert cells[0, :2].tolist() == [1, 0]
    assert codes_of([7, NO_NUMBERS[name], "x"])[1].tolist() == [True, False, True]


def test_numbers_in_arrays_without_axes_are_numbers():
    grid = Grid(30, 0, 2**31 - 2)
    for value, cell in ((np.array(2**60 - 1), 2**30 - 1), (np.array(2.0**60), 2**30), (np.ma.array(2**31), 2), (np.True_, 0)):
        cells, there = to_grid([[value, 2**30]], grid)
        assert cells.tolist() == [[cell, 1]]
        assert there.all()
    codes, there = codes_of([np.array(3), 3, np.array("3"), "3"])
    assert codes.tolist() == [0, 0, 1, 1]
    assert there.all()
    for records in ([np.ones(2), np.ones(3)], [np.ones((2, 3)), np.ones((2, 4))], [1.0, jnp.ones(2)], [[1, 2], [3]]):
        with pytest.raises(ValueError, match="different lengths"):
            to_grid(records, Grid(0, 0, 8))
    one = np.empty(2, object)
    one[:] = [np.ones(1), 3]
    assert to_grid(one, Grid(0, 0, 8))[1].tolist() == [False, True]


@pytest.mark.parametrize("dtype", ["bfloat16", "float8_e4m3fn", "float16", "int4", "bool"])
def test_narrow_numbers(dtype):
    assert to_grid(jnp.array([0, 1, 1], dtype), Grid(-1, 0, 8))[0].tolist() == [0, 2, 2]
    assert to_grid(np.asarray(jnp.array([0, 1, 1], dtype)), Grid(-1, 0, 8))[0].tolist() == [0, 2, 2]


def test_arrays_of_other_libraries_are_arrays_of_objects():
    for values in ([2**60 - 1, 2, 3], [2**60 - 1, None, 3]):  # of one dtype, whatever the records are
        array = as_array(Foreign(values))
        assert array.dtype == object
        cells, there = to_grid(Foreign(values), Grid(30, 0, 2**31 - 2))
        assert cells.tolist() == [2**30 - 1, 0, 0]
        assert there.tolist() == [True, values[1] is not None, True]
    assert codes_of(Foreign(["a", None, "b", "a"]))[0].tolist() == [0, -1, 1, 0]


def test_masked_arrays_are_refused():
    masked = np.ma.array([1.0, 2.0, 3.0], mask=[True, False, False])
    for x in (masked, [masked, masked], [[masked]], np.ma.array([1, 2])):
        with pytest.raises(TypeError, match=r"mask.*filled\(np\.nan\)"):
            to_grid(x, Grid(0, 0, 8))
    assert to_grid(masked.filled(np.nan), Grid(0, 0, 8))[1].tolist() == [False, True, True]
    assert to_grid([1.0, np.ma.masked], Grid(0, 0, 8))[1].tolist() == [True, False]  # one record of a list is data
