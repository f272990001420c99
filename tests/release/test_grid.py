"""The map to the grid: exact, total, one record at a time."""

import math
from fractions import Fraction

import jax.numpy as jnp
import numpy as np
import pytest

from dpjax import release


def between(lower, upper, resolution):
    """The grid of a statistic of records."""
    return release.Median(lower, upper, resolution).records_grid


def codes_of(x):
    """Ids as numbers."""
    return release.DistinctCount(1, 9).read(x)


HUGE = between(0, (2**31 - 3) * 2**30, 2**30)
GRIDS = [
    between(0, 120, 1),
    between(-3.5, 4.3046875, 2.0**-7),
    between(-(2**20), 3 * 2**20, 2**10),
    between(0, Fraction(2**31 - 3, 2**40), Fraction(1, 2**40)),
    between(-0.5, 1.25, Fraction(1, 4)),
]
DECIMALS = [
    between(0, 0.3, 0.1),
    between(-7.07, 1000, "0.01"),
    between(-21, 70, Fraction(7, 30)),
]


def nearest(value, grid):
    """The number of the nearest multiple, of two the upper one, counted from the lower bound."""
    number = Fraction(value) / grid.resolution
    # The float below 1/2 is rounded up
    number = Fraction(float(number) + 0.5) if abs(number) < 1 else number + Fraction(1, 2)
    return min(max(math.floor(number) - grid.start, 0), grid.size - 1)


@pytest.mark.parametrize("grid", GRIDS, ids=str)
def test_exact_against_fractions(grid):
    rng = np.random.default_rng(0)
    inside = grid.lower + (grid.upper - grid.lower) * rng.uniform(-0.1, 1.1, 300)
    numbers = grid.start + rng.integers(0, grid.size, 100)
    lines = np.array([float(int(number) * grid.resolution) for number in numbers])
    halves = np.array(
        [float((int(number) + Fraction(1, 2)) * grid.resolution) for number in numbers]
    )
    next_to = [np.nextafter(x, end) for x in (lines, halves) for end in (-np.inf, np.inf)]
    x = np.concatenate([inside, lines, halves, *next_to, [-0.0, 5e-324, -5e-324, 1e300, -1e300]])
    cells, there = grid.numbers_of(x)
    assert there.all()
    assert cells.tolist() == [nearest(value, grid) for value in x]
    inner = (numbers >= grid.start) & (numbers < grid.start + grid.size - 1)
    assert (grid.numbers_of(halves)[0][inner] + grid.start).tolist() == (numbers + 1)[
        inner
    ].tolist()
    # The control
    assert (
        grid.numbers_of(halves)[0] != np.floor((halves - grid.lower) / float(grid.resolution))
    ).any()
    with np.errstate(over="ignore"):
        single = x.astype(np.float32)
    single = single[np.isfinite(single)]
    assert grid.numbers_of(single)[0].tolist() == [nearest(float(value), grid) for value in single]


@pytest.mark.parametrize("grid", DECIMALS, ids=str)
def test_decimals_are_exact(grid):
    """0.29 is 29 hundredths, though it is no binary fraction, in float64 and in float32; only a tie
    can go either way.
    """
    rng = np.random.default_rng(1)
    numbers = np.unique(np.concatenate([[0, 1, grid.size - 1], rng.integers(0, grid.size, 300)]))
    written = [float((grid.start + int(number)) * grid.resolution) for number in numbers]
    for x in (
        written,
        np.array(written),
        np.array(written, np.float32),
        np.nextafter(written, np.inf),
        np.nextafter(written, 0),
    ):
        assert grid.numbers_of(x)[0].tolist() == numbers.tolist()
    x = grid.lower + (grid.upper - grid.lower) * rng.uniform(-0.1, 1.1, 3000)
    from_tie = [
        abs(abs(v / grid.resolution - round(v / grid.resolution)) - Fraction(1, 2))
        for v in map(Fraction, x)
    ]
    clear = np.array([float(distance) for distance in from_tie]) > 1e-9
    assert clear.mean() > 0.99
    assert grid.numbers_of(x)[0][clear].tolist() == [nearest(value, grid) for value in x[clear]]
    assert (grid.lower, grid.upper) == (written[0], written[-1])


def test_records_that_are_no_numbers_or_far_away():
    grid = between(10, 14, 1)
    signaling = np.array([0x7FF0000000000001], np.uint64).view(np.float64)
    x = np.concatenate([[np.nan, np.inf, -np.inf, 1e308], signaling])
    before = x.tobytes()
    cells, there = grid.numbers_of(x)
    assert x.tobytes() == before  # data are not written to
    assert cells.tolist() == [0, 4, 0, 4, 0]
    assert there.tolist() == [False, True, True, True, False]
    assert grid.numbers_of([2**100, -(2**100), 12])[0].tolist() == [4, 0, 2]
    assert grid.numbers_of([2**2000, 12.5, -(2**2000), 13.5])[0].tolist() == [4, 3, 0, 4]
    assert grid.numbers_of(np.array([2**63 - 1, -(2**63), 11], np.int64))[0].tolist() == [4, 0, 1]
    assert grid.numbers_of(np.array([200, 12, 3], np.uint8))[0].tolist() == [4, 2, 0]
    assert HUGE.numbers_of(np.array([2**60 - 1, 2**60 + 2**29 + 2**10]))[0].tolist() == [
        2**30,
        2**30 + 1,
    ]
    assert grid.numbers_of(np.array([None, "x", 12], object))[1].tolist() == [False, False, True]
    large = between(2**50, 2**50 + 2**20, 1)
    assert large.numbers_of(np.array([2**50 + 12345]))[0].tolist() == [12345]


@pytest.mark.parametrize(
    ("lower", "upper", "resolution"),
    [
        (0.5, 10, 1),
        (0, 1, Fraction(2, 3)),
        (0, 2**31 - 2, 1),
        (0, 1, 2.0**-40),
        (2**53, 2**53 + 1, 1),
        (0, 10**400, 1),
        (-1, 1, Fraction(1, 2**60)),
    ],
)
def test_grids_on_which_records_are_not_whole_numbers_are_refused(lower, upper, resolution):
    with pytest.raises(ValueError, match=r"resolution|more than"):
        between(lower, upper, resolution)


def test_text_is_refused_by_its_dtype_and_missing_in_a_list():
    grid = between(0, 9, 1)
    with pytest.raises(TypeError, match="real numbers"):
        grid.numbers_of(np.array(["a"]))
    assert not grid.numbers_of(["a"])[1].any()


@pytest.mark.parametrize(
    "resolution", [1e-310, Fraction(1, 2**1074), 10**400], ids=["1e-310", "2^-1074", "10^400"]
)
def test_grids_that_floats_cannot_hold_are_refused(resolution):
    with pytest.raises(ValueError, match="float"):
        between(0, 4 * Fraction(str(resolution)), resolution).numbers_of([0.0])


@pytest.mark.parametrize(
    "resolution", [Fraction(1, 100), Fraction(1, 1000), Fraction(7, 30), Fraction(1)], ids=str
)
def test_as_far_as_a_grid_may_go_every_value_is_its_own(resolution):
    """The farthest that is not refused: a record that is the float of a multiple counts as that
    multiple.
    """
    for most in (2**50, 2**51, 2**52, 2**53):
        try:
            grid = between((most - 1000) * resolution, most * resolution, resolution)
        except ValueError:
            break
        written = np.array([float((grid.start + number) * resolution) for number in range(1001)])
        assert grid.numbers_of(written)[0].tolist() == list(range(1001))
    assert grid.start >= 2**50 - 1000
    with pytest.raises(ValueError, match="use a coarser resolution"):
        between((most - 1000) * resolution, most * resolution, resolution)


def test_resolutions_are_read_as_they_are_written():
    for resolution in (0.1, "0.1", Fraction(1, 10), np.float64(0.1)):
        grid = between(-0.3, 1.2, resolution)
        assert (grid.resolution, grid.start, grid.size) == (Fraction(1, 10), -3, 16)
    thirds = between(Fraction(1, 3), 1, Fraction(1, 3))
    assert (thirds.resolution, thirds.start, thirds.size) == (Fraction(1, 3), 1, 3)
    assert between(0, 2**31 - 3, 1).size == 2**31 - 2


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
        cells, there = between(0, 7, 1).numbers_of(records)
        assert there.tolist() == [[True, False, records[0][2] == 3]]
        assert cells[0, :2].tolist() == [records[0][0] * 4 // 3, 0]
    assert codes_of([7, NO_NUMBERS[name], "x"])[1].tolist() == [True, False, True]


def test_numbers_in_arrays_without_axes_are_numbers():
    for value, cell in (
        (np.array(2**60 - 1), 2**30),
        (np.array(2.0**60), 2**30),
        (np.ma.array(2**31), 2),
        (np.True_, 0),
    ):
        cells, there = HUGE.numbers_of([[value, 2**30]])
        assert cells.tolist() == [[cell, 1]]
        assert there.all()
    codes, there = codes_of([np.array(3), 3, np.array("3"), "3"])
    assert codes.tolist() == [0, 0, 1, 1]
    assert there.all()
    for records in (
        [np.ones(2), np.ones(3)],
        [np.ones((2, 3)), np.ones((2, 4))],
        [[1, 2], [3]],
        [[[1], [2]], [[3], [4, 5]]],
    ):
        with pytest.raises(ValueError, match="different lengths"):
            between(0, 7, 1).numbers_of(records)
    one = np.empty(2, object)
    one[:] = [np.ones(1), 3]
    assert between(0, 7, 1).numbers_of(one)[1].tolist() == [False, True]


@pytest.mark.parametrize("dtype", ["bfloat16", "float8_e4m3fn", "float16", "int4", "bool"])
def test_narrow_numbers(dtype):
    assert between(0, 3.5, 0.5).numbers_of(jnp.array([0, 1, 1], dtype))[0].tolist() == [
        0,
        2,
        2,
    ]
    assert between(0, 3.5, 0.5).numbers_of(np.asarray(jnp.array([0, 1, 1], dtype)))[0].tolist() == [
        0,
        2,
        2,
    ]


def test_arrays_of_other_libraries_are_arrays_of_objects():
    # Results have one dtype, whatever the records are.
    for values in ([2**60 - 1, 2, 3], [2**60 - 1, None, 3]):
        cells, there = HUGE.numbers_of(Foreign(values))
        assert cells.tolist() == [2**30, 0, 0]
        assert there.tolist() == [True, values[1] is not None, True]
    codes, there = codes_of(Foreign(["a", None, "b", "a"]))
    assert codes[there].tolist() == [0, 1, 0]
    assert there.tolist() == [True, False, True, True]


def test_a_list_as_a_record_is_missing():
    """Alone, among others, and in rows: the axes are those that all lists have."""
    grid = between(0, 7, 1)
    for records, shape, there in (
        ([1, [2], 3], (3,), [True, False, True]),
        ([1.0, jnp.ones(2)], (2,), [True, False]),
        ([(), 4], (2,), [False, True]),
        ([[1, 2, [3]], [4, 5, 6]], (2, 3), [True, True, False, True, True, True]),
        ([[[1], [2]], [3, 4]], (2, 2), [False, False, True, True]),
        ([np.array([1, [2, 3]], object), [4, 5]], (2, 2), [True, False, True, True]),
        ([[[1, 2]], [[3, 4]]], (2, 1, 2), [True] * 4),
        ([[], []], (2, 0), []),
    ):
        cells, found = grid.numbers_of(records)
        assert cells.shape == found.shape == shape
        assert found.ravel().tolist() == there
        assert codes_of(records)[0].shape == shape


def test_masked_arrays_are_refused():
    masked = np.ma.array([1.0, 2.0, 3.0], mask=[True, False, False])
    for x in (masked, [masked, masked], [[masked]], np.ma.array([1, 2])):
        with pytest.raises(TypeError, match=r"mask.*filled\(np\.nan\)"):
            between(0, 7, 1).numbers_of(x)
    assert between(0, 7, 1).numbers_of(masked.filled(np.nan))[1].tolist() == [
        False,
        True,
        True,
    ]
    assert between(0, 7, 1).numbers_of([1.0, np.ma.masked])[1].tolist() == [
        True,
        False,
    ]  # one record of a list is data
