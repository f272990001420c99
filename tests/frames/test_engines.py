"""One adversarial table has the same counts in every library, and as in a plain reference."""

import datetime
import functools
import math
from collections import Counter

import numpy as np
import pytest

from dpjax.release import Count, Median
from tests.support.tables import IN_MEMORY, OTHERS, as_duckdb, as_ibis, as_spark, counted, pyarrow

pytestmark = [
    # Its name for the package that it moves Dask to is not on every index yet.
    pytest.mark.filterwarnings("ignore:Dask support is moving out of Narwhals"),
    # PySpark warns where another test of the process has used JAX.
    pytest.mark.filterwarnings("ignore:os.fork"),
]
DATABASES = [as_duckdb, as_ibis, as_spark]
DAY, MICROSECOND = datetime.timedelta(days=1), datetime.timedelta(microseconds=1)
START, END = datetime.date(2013, 1, 1), datetime.date(2014, 1, 1)
UTC = datetime.UTC
NUMBERS = [0.5, 1.5, 2.5, -0.5, 0.49999999999999994, 1e300, -1e300, math.inf, -math.inf, math.nan]
NUMBERS += [None, 0.1, 7.25, 119.5, 120.0, 3.0]
INTEGERS = [0, 1, 2, 3, -5, 2**62, -(2**62), None, 119, 120, 121, 7, 8]
DAYS = [START + k * DAY for k in (-400, -1, 0, 1, 50, 364, 365, 366, 4000)] + [None]
MOMENTS = [
    None if day is None else datetime.datetime(day.year, day.month, day.day, hour)
    for day in DAYS
    for hour in (0, 11, 12, 23)
]
LENGTHS = [k * MICROSECOND for k in (0, 1, 500_000, 1_500_000, 2_500_000, 10**9, -(10**9))]
COLUMNS = {  # names, types of Arrow and cells
    "region": ("string", ["b", "a", None, "c", "", "a,b", 'q"', "-x", "é", "B"]),
    "code": ("int64", [1, 2, 3, None, -1]),
    "share": ("float64", [0.1, 0.2, -0.0, 0.0, math.nan, None]),
    "flag": ("bool", [True, False, None]),
    "x": ("float64", NUMBERS),
    "i": ("int64", INTEGERS),
    "day": ("date32", DAYS),
    "moment": (pyarrow.timestamp("us"), MOMENTS),
    "instant": (pyarrow.timestamp("us", "UTC"), [m and m.replace(tzinfo=UTC) for m in MOMENTS]),
    "length": (pyarrow.duration("us"), [None, *LENGTHS]),
    "who": ("int64", [*range(60), None]),
}


def some_rows(number=500):
    """Rows of any cells, and two of a person who has no value."""
    rng, last = np.random.default_rng(0), {"region": "a", "who": 99}
    return {
        name: [cells[k] for k in rng.integers(0, len(cells), number)] + [last.get(name)] * 2
        for name, (_, cells) in COLUMNS.items()
    }


ROWS = some_rows()
TABLE = pyarrow.table(
    {
        name: pyarrow.array(cells, COLUMNS[name][0], from_pandas=False)
        for name, cells in ROWS.items()
    }
)
TO_120 = Median(0, 120, 1)
DATES = Median(START, END, DAY)
ASKED = {
    "x": [TO_120, Median(-1, 3, "1/10")],
    "i": [TO_120],
    "flag": [Median(0, 1, 1)],
    "day": [DATES],
    "moment": [Median(*(datetime.datetime(year, 1, 1) for year in (2013, 2014)), DAY)],
    "instant": [Median(*(datetime.datetime(y, 1, 1, tzinfo=UTC) for y in (2013, 2014)), DAY)],
    "length": [Median(0 * DAY, 3 * DAY, datetime.timedelta(seconds=1))],
}


def is_missing(value):
    return value is None or value != value


def in_units(value):
    """A value as a number: times in microseconds."""
    if isinstance(value, datetime.timedelta):
        return value / MICROSECOND
    if isinstance(value, datetime.date):
        moment = datetime.datetime(*value.timetuple()[:6])
        return (moment - datetime.datetime(1970, 1, 1)) / MICROSECOND
    return float(value)


def number_of(value, statistic, bits=0):
    """The cell of a value, counted from 0, or the integer of a row, as the rule says."""
    step = statistic.resolution
    times, over = (10.0, 1.0) if step == "1/10" else (1.0, in_units(step))
    ends = (statistic.lower, statistic.upper)
    low, high = (round(in_units(end) * times / over) for end in ends)
    scaled = min(max(in_units(value) * times / over, low), high)
    return math.floor(scaled * 2.0**bits + 0.5) - low * 2**bits


def of_person(values, statistic, rule):
    """The position of the record that these values of a person are combined to."""
    if rule in ("min", "max"):
        return {"min": min, "max": max}[rule](number_of(value, statistic) for value in values)
    if rule == "count":
        return number_of(len(values), statistic)
    if rule == "sum":  # of integers from -120 to 120
        clipped = (min(max(value, -120), 120) for value in values)
        return number_of(sum(clipped), statistic)
    bits = 31 - number_of(statistic.upper, statistic).bit_length()
    total = sum(number_of(value, statistic, bits) for value in values)
    return math.floor(total / (len(values) * 2.0**bits) + 0.5)


@functools.cache
def reference(column, statistic, by, unit=None, rule="mean", most=1, groups=None, swap=False):
    """How many records of which label have which position, and how many rows no value; ties among
    the groups of a person are broken by their order.
    """
    found, persons = Counter(), {}
    names = [ROWS[name] for name in by]
    labels = list(zip(*names, strict=True)) if by else [()] * len(ROWS[column])
    asked = {*labels} if groups is None else groups
    for label, value, who in zip(labels, ROWS[column], ROWS["who"], strict=True):
        if any(map(is_missing, label)) or label not in asked or (unit and is_missing(who)):
            continue
        found[label, None] += is_missing(value)
        if unit is None:
            if swap or not is_missing(value):
                found[label, 0 if is_missing(value) else number_of(value, statistic)] += 1
        else:
            rows = persons.setdefault(who, {}).setdefault(label, [])
            rows += [] if is_missing(value) else [value]
    for rows in persons.values():
        rows = rows if swap else {label: values for label, values in rows.items() if values}
        order = sorted(rows) if groups is None else [label for label in groups if label in rows]
        for label in sorted(order, key=lambda label: -len(rows[label]))[:most]:
            there = rows[label]
            found[label, of_person(there, statistic, rule) if there else 0] += 1
    return +found


def frame_of(kind):
    """A frame, and the columns that can be asked for: durations of databases cannot, and times of
    Spark have a zone.
    """
    gone = ["length"] if kind in DATABASES else []
    gone += ["moment"] if kind is as_spark else []
    return kind(TABLE.drop_columns(gone)), [name for name in ASKED if name not in gone]


@pytest.mark.parametrize("kind", [*IN_MEMORY, *OTHERS])
def test_every_library_has_the_counts_of_a_plain_reference(kind):
    frame, columns = frame_of(kind)
    for column in columns:
        for statistic in ASKED[column]:
            expected = reference(column, statistic, ("region",))
            assert counted(frame, column, statistic, ("region",)) == expected, column
            replaced = counted(frame, column, statistic, neighbors="swap")
            assert replaced == reference(column, statistic, (), swap=True), column
    for by in (("code",), ("share",), ("flag",), ("region", "code"), ("day",)):
        assert counted(frame, "x", TO_120, by) == reference("x", TO_120, by), by
    named = ["a", "a,b", "z"]
    given = "x", TO_120, ("region",)
    expected = reference(*given, groups=tuple((name,) for name in named))
    assert counted(frame, *given, named) == expected
    assert counted(frame, *given, named[1:]) != expected  # the control
    for column in ("region", "x"):
        there = [cell for cell in ROWS[column] if not is_missing(cell)]
        assert counted(frame, column, Count())[(), 0] == len(there)


PERSONS = [  # by, max_groups, public groups
    ((), 1, None),
    (("region",), 1, None),
    (("region",), 2, ("a", "B", "c")),
    (("region",), 2, ("c", "B", "a")),
    (("region", "code"), 3, None),
]


@pytest.mark.parametrize("kind", [*IN_MEMORY, *OTHERS])
@pytest.mark.parametrize("rule", ["mean", "min", "max", "count", "sum"])
def test_persons_count_alike_in_every_library(kind, rule):
    frame, _ = frame_of(kind)
    given_rule = None if rule == "mean" else rule  # the default
    asked = {"i": TO_120} if rule in ("sum", "count") else {"x": TO_120, "day": DATES}
    for column, statistic in asked.items():
        for by, most, named in PERSONS:
            groups = named and tuple((name,) for name in named)
            given = column, statistic, by
            expected = reference(*given, "who", rule, most, groups)
            found = counted(frame, *given, named, ("who", given_rule, most))
            assert found == expected, (column, by, most)
        replaced = counted(frame, column, statistic, (), None, ("who", given_rule), "swap")
        assert replaced == reference(column, statistic, (), "who", rule, swap=True)
    control = reference(*given, "who", rule, most + 1)  # one group more
    assert found != control
