"""Records of any kind, one at a time: none raises, warns, or changes a shape, a dtype or another
record; and what is public raises by its type.
"""

import warnings
from collections import Counter, deque
from datetime import date, datetime, timedelta
from decimal import Decimal
from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np
import pandas
import polars
import pyarrow
import pytest

from dpjax import release
from dpjax.release import Counts, Floats

BOUNDS = {"lower": 10, "upper": 30, "resolution": 1}
MEDIAN = release.Median(**BOUNDS)
EVERY = {
    "median": MEDIAN,
    "midpoint": release.Median(**BOUNDS, definition="linear"),
    "quantile": release.Quantile(0.9, **BOUNDS),
    "floats": release.Median(grid=Floats(digits=2)),
    "maximum": release.Maximum(1, **BOUNDS),
    "total": release.NonnegativeSum(1, upper=100, resolution=1),
    "distinct": release.DistinctCount(1, upper=9),
    "sum": release.Sum(**BOUNDS),
    "mean": release.Mean(**BOUNDS),
    "mode": release.Mode((3, 14)),
    "count": release.Count(),
    "histogram": release.Histogram(edges=(0, 14, 20)),
}


class Evil(float):
    """A record that raises wherever it is looked at."""

    __float__ = __str__ = ndim = property(lambda _: 1 / 0)


ABSENT = [np.nan, Decimal("sNaN"), "x", None, [1], np.ma.masked, date(2020, 1, 1), 1 + 2j]
ABSENT += [
    pandas.NA,
    pandas.NaT,
    np.timedelta64(3, "D"),
    np.datetime64("NaT", "D"),
    b"3",
    {},
    object(),
]
ABSENT += [datetime(9999, 12, 31), timedelta.max, np.array("x"), float, ..., np.ones(3), "14", ()]
ABSENT += [np.ma.array(3, mask=True), np.complex64(14), Decimal("NaN"), np.float32("nan")]
ABSENT += [Evil(14)]
LOW = [-np.inf, -(10**5000), Decimal("-Infinity"), np.float32(-1e38), 10.49, False, -0.0, 5e-324]
LOW += [np.bool_(True), Fraction(-(10**400)), np.nextafter(10.5, 0), np.int8(-3), jnp.float32(3)]
HIGH = [np.inf, 10**5000, Decimal("1e999999"), np.uint64(2**64 - 1), 30.4, np.longdouble("inf")]
HIGH += [Fraction(10**5000, 3), np.array(31), 29.5, jnp.bfloat16(256.0), 1e300]
ARRAYS = [
    np.array([2**63 - 1, -(2**63), 14]),
    np.array([2**64 - 1, 0, 2**63], np.uint64),
    np.array([1e300, -1e300, 0], np.longdouble) ** 2,
    np.array([0x7FF0000000000001, 0, 1], np.uint64).view(np.float64),
    np.array([0x7FA00000, 0, 1], np.uint32).view(np.float32),
    np.array([5e-324, -0.0, 1e-310]),
    np.array([True, False, True]),
    jnp.array([1.0, jnp.nan, 20.0], jnp.bfloat16),
    jnp.array([1.0, jnp.inf, 20.0]),
]


def law_of(x, neighbors):
    law = MEDIAN.distribution(x, epsilon=1.0, neighbors=neighbors)
    return law.pmf(np.arange(10.0, 31)).tolist()


@pytest.mark.parametrize("name", EVERY)
def test_no_record_raises_or_warns_or_changes_a_shape_or_a_dtype(name):
    statistic = EVERY[name]
    last = (2,) if isinstance(statistic, release.Histogram) else ()
    hostile = [*ABSENT, *LOW, *HIGH]
    inputs = [[14, record, 15] for record in hostile[:: 1 if name == "median" else 7]]
    inputs += [hostile, np.array([14, None, "x"], object), deque(hostile), range(3, 9)]
    inputs += ARRAYS if name != "distinct" else ARRAYS[:2]
    cases = [(x, ()) for x in inputs] + [([hostile[:3], [14] * 3, hostile[-3:]], (3,))]
    for neighbors in statistic.relations:
        for x, batch in cases:
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                found = statistic.release(x, epsilon=1.0, neighbors=neighbors, draws=2).values
            assert found.shape == (2, *batch, *last)
            assert found.dtype == np.float64
            assert np.isfinite(found).all()


def test_empty_rows_and_no_rows_have_releases():
    for name, statistic in EVERY.items():
        for neighbors in statistic.relations:
            for shape in ((4, 0), (0, 3), (0, 0)):
                if name != "mean" or shape[1]:
                    x = np.zeros(shape, int)
                    found = statistic.release(x, epsilon=1.0, neighbors=neighbors)
                    assert found.values.shape[:2] == (1, shape[0])


@pytest.mark.parametrize(("records", "read"), [(ABSENT, None), (LOW, 10), (HIGH, 30)])
def test_hostile_records_are_read_as_they_are_said_to_be(records, read):
    """What is no number is absent under add/remove, and the lower bound under swap."""
    for record in records:
        for neighbors in ("add_remove", "swap"):
            absent = read is None and neighbors == "add_remove"
            same = [14, 15] if absent else [14, 10 if read is None else read, 15]
            assert law_of([14, record, 15], neighbors) == law_of(same, neighbors), record


def test_records_of_a_list_do_not_depend_on_each_other():
    """NumPy would make floats of all of it for one fraction, and text for one word."""
    grid = release.Median(lower=0, upper=(2**31 - 3) * 2**30, resolution=2**30)
    for other in (1, 2.5, float("nan"), None, "x", 2**70):
        for value in (2**60 - 1, 2**61 - 2**32):
            assert grid.read([value, other])[0][0] == grid.read([value])[0][0]
    for other in (None, 2.5, "x", [1]):
        assert release.DistinctCount(1, 9).read([2**53, 2**53 + 1, other])[0][:2].tolist() == [0, 1]
    assert np.asarray([2**53 + 1, 2.5])[0] == 2**53  # the control


COLUMNS = {
    "pandas": lambda cells: pandas.Series(cells, dtype="Int64"),
    "an array of pandas": lambda cells: pandas.array(cells, dtype="Int64"),
    "Polars": polars.Series,
    "PyArrow": pyarrow.array,
    "chunks": lambda cells: pyarrow.chunked_array([cells[:1], cells[1:]]),
}


@pytest.mark.parametrize("library", COLUMNS)
def test_a_missing_number_of_a_column_changes_no_other(library):
    column, ids = COLUMNS[library], release.DistinctCount(1, 9)
    for last in (14, None):
        cells = [2**53, 2**53 + 1, last]
        for statistic in (MEDIAN, ids):
            np.testing.assert_array_equal(statistic.read(column(cells)), statistic.read(cells))
        assert ids.read(column(cells))[0][:2].tolist() == [0, 1]
        options = {"counts": column(cells), "epsilon": 1.0, "neighbors": "add_remove"}
        assert MEDIAN.release([12, 20, 30], **options).values.shape == (1,)


REFUSED = {
    "different lengths": ([[1.0, 2.0], [3.0]], ValueError, "different lengths"),
    "a frame": (pandas.DataFrame({"a": [1]}), TypeError, "DataFrame"),
    "a masked array": (np.ma.array([1, 2], mask=[0, 1]), TypeError, "masked"),
    "text": (np.array(["a", "b"]), TypeError, "numbers"),
    "categories": (pandas.Series(["a"], dtype="category"), TypeError, "frames"),
    "a column of text": (polars.Series(["a"]), TypeError, "frames"),
    "a column of dates": (pyarrow.array([1], pyarrow.date32()), TypeError, "frames"),
    "dates": (np.array(["2020-01-01"], "M8[D]"), TypeError, "numbers"),
    "bytes": (np.array([b"1"], "V1"), TypeError, "numbers"),
    "a number": (3.0, ValueError, "axis"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_no_array_of_records_raises_by_its_type(name):
    x, error, words = REFUSED[name]
    with pytest.raises(error, match=words):
        MEDIAN.release(x, epsilon=1.0, neighbors="swap")


def test_no_message_has_the_length_of_the_longest_text():
    def said(text):
        with pytest.raises(TypeError) as raised:
            MEDIAN.release(np.array(["a", text]), epsilon=1.0, neighbors="swap")
        return str(raised.value)

    assert said("a") == said("abc")


def test_releases_are_not_traced():
    def traced(x):
        return MEDIAN.release(x, epsilon=1.0, neighbors="swap").values

    def closed(_):
        return MEDIAN.release([1, 2], epsilon=1.0, neighbors="swap").values

    for function in (traced, closed):
        with pytest.raises(TypeError, match="jit"):
            jax.jit(function)(jnp.ones(3))


def test_counts_of_records_repeat_them():
    x = np.array([[12, 20, np.nan, 20], [11, 12, 13, 14]])
    number = np.array([3, 1, 7, 2])
    for counts in (number, number.tolist(), jnp.array(number), number.astype(np.uint8)):
        found = MEDIAN.distribution(x, counts=counts, epsilon=1.0, neighbors="add_remove")
        for row, values in enumerate(np.repeat(x, number, axis=1).tolist()):
            shares = found.pmf(np.arange(10.0, 31)[:, None])[:, row]
            assert shares.tolist() == law_of(values, "add_remove")
    options = {"epsilon": 1.0, "neighbors": "add_remove"}
    assert MEDIAN.release(x[0], counts=np.ones((5, 4), int), **options).values.shape == (1, 5)
    hostile = [[10**400, -3, None, 2.5], ["x", np.nan, [1], np.float16(2)]]
    with np.errstate(all="raise"):
        assert MEDIAN.release(x[0], counts=hostile, **options).values.shape == (1, 2)
    for most in (2**62, 2**64 - 1):
        law = MEDIAN.distribution([12, 20], counts=np.array([3, most], np.uint64), **options)
        assert law.pmf(20.0) == pytest.approx(1)
    for counts, error in (
        (np.ones(4), TypeError),
        (np.ones((3, 4), int), ValueError),
        (1, ValueError),
        (np.ma.array([1, 1, 1, 1]), TypeError),
    ):
        with pytest.raises(error, match="counts"):
            MEDIAN.release(x, counts=counts, **options)
    with pytest.raises(ValueError, match="swap"):
        MEDIAN.release(x, counts=number, epsilon=1.0, neighbors="swap")


def test_sums_take_no_memory_for_records_that_change_nothing():
    for x, tau in (([0, 1], 2**40), ([0, 50], 3), ([0, 0], 2**40)):
        statistic = release.NonnegativeSum(tau, upper=100, resolution=1)
        counts = np.array([2**40, 2**40])
        law = statistic.distribution(x, counts=counts, epsilon=2.0**-30, neighbors="add_remove")
        assert len(law.first) < 500
        assert law.value == (100 if x[1] else 0)
    for tau, upper, epsilon in ((2**40, 10**8, 1.0), (1, 10**8, 2.0**-30)):
        statistic = release.NonnegativeSum(tau, upper=upper, resolution=1)
        with pytest.raises(ValueError, match="must be at most"):
            statistic.release([1], epsilon=epsilon, neighbors="swap")


def entries(counts):
    return Counter(
        {
            key: number
            for *key, number in zip(counts.group, counts.values, counts.counts, strict=True)
            for key in [tuple(map(int, key))]
        }
    )


def test_counts_are_those_of_a_table_in_any_order():
    assert entries(Counts.of_rows([0, 0], [1, 1], [2, 3], groups=1)) == {(0, 1): 5}
    rng = np.random.default_rng(0)
    for groups, top, rows in ((1, 1, 0), (3, 4, 30), (5, 2**40, 8)):
        group, value = rng.integers(-1, groups + 1, rows), rng.integers(0, top, rows)
        used = (group >= 0) & (group < groups)
        pairs = list(zip(group[used].tolist(), value[used].tolist(), strict=True))
        found = Counts.of_rows(group, value, np.ones_like(group), groups=groups)
        assert entries(found) == Counter(pairs)
        assert found.totals.sum() == len(pairs)
        number = rng.integers(-1, 9, rows)
        table = Counter()
        for key, times in zip(pairs, number[used].tolist(), strict=True):
            table[key] += max(times, 0)
        found = Counts.of_rows(group, value, number, groups=groups)
        assert entries(found) == +table
        some = found.some(1, groups)
        assert entries(some) == {(g - 1, v): n for (g, v), n in (+table).items() if g > 0}


def test_grids_round_each_record_to_the_nearest_value():
    grid = Floats(digits=1, smallest=-1, largest=1)
    tenths = np.arange(1, 10) / 10
    positive = [*tenths, *range(1, 10), 10]
    assert grid.values.tolist() == [*(-value for value in reversed(positive)), 0, *positive]
    x = np.random.default_rng(0).normal(0, 3, 200)
    found = grid.values[grid.positions_of(x)[0]]
    assert (np.abs(found - x) == np.abs(grid.values[:, None] - x).min(axis=0)).all()
    narrow = release.Median(lower=-0.3, upper=0.3, resolution=0.1).records_grid
    assert narrow.positions_of([-0.3, -0.05, 0.05, 0.15, 0.1, 9])[0].tolist() == [0, 3, 4, 5, 4, 6]
    for digits, smallest, largest in ((7, 1, 2), (3, 2, 2), (3, -301, 1), (6, -30, 30)):
        with pytest.raises(ValueError, match=r"digits|smallest|largest"):
            Floats(digits, smallest, largest)


TIMES = {
    "Date": (date(2020, 1, 1), date(2020, 1, 31), timedelta(1)),
    "Datetime": (datetime(2020, 1, 1), datetime(2020, 1, 2), timedelta(hours=1)),
    "Duration": (timedelta(0), timedelta(1), timedelta(minutes=30)),
}


@pytest.mark.parametrize("kind", TIMES)
def test_dates_times_and_durations_bound_a_grid(kind):
    lower, upper, resolution = TIMES[kind]
    statistic = release.Median(lower=lower, upper=upper, resolution=resolution)
    assert statistic.records_grid.size == (upper - lower) // resolution + 1
    with pytest.raises(TypeError, match="frame"):
        statistic.release([lower], epsilon=1.0, neighbors="swap")
    with pytest.raises(TypeError, match=r"dates|timedelta"):
        release.Median(lower=lower, upper=upper, resolution=1)
