"""One adversarial table has the same counts in every engine and container, and as a plain reference
in Python.
"""

import datetime
import math
import shutil
from collections import Counter

import numpy as np
import pytest

from dpjax import release
from tests.support.tables import Opened

pytest.importorskip("narwhals")
pandas = pytest.importorskip("pandas")

DAY, UTC = datetime.timedelta(days=1), datetime.UTC
START, END = datetime.date(2013, 1, 1), datetime.date(2014, 1, 1)
REGIONS = ["b", "a", None, "c", "", "a,b", 'q"', "-x", "é", "B"]
VALUES = [
    0.5,
    1.5,
    2.5,
    -0.5,
    0.49999999999999994,
    1e300,
    -1e300,
    math.inf,
    -math.inf,
    math.nan,
    None,
    0.1,
    7.25,
    119.5,
    120.0,
    3.0,
]
INTEGERS = [0, 1, 2, 3, -5, 2**62, -(2**62), None, 119, 120, 121, 7, 8]
DAYS = [START + k * DAY for k in (-400, -1, 0, 1, 50, 364, 365, 366, 4000)] + [None]
MOMENTS = [
    None if day is None else datetime.datetime(day.year, day.month, day.day, hour)
    for day in DAYS
    for hour in (0, 11, 12, 23)
]
LENGTHS = [
    None,
    *(
        datetime.timedelta(microseconds=k)
        for k in (0, 1, 500_000, 1_500_000, 2_500_000, 10**9, -(10**9))
    ),
]


def rows(n=2000, seed=0):
    rng = np.random.default_rng(seed)

    def some(values):
        return [values[k] for k in rng.integers(0, len(values), n)]

    return {
        "region": some(REGIONS),
        "code": some([1, 2, 3, None, -1]),
        "share": some([0.1, 0.2, -0.0, 0.0, math.nan, None]),
        "flag": some([True, False, None]),
        "x": some(VALUES),
        "i": some(INTEGERS),
        "day": some(DAYS),
        "moment": some(MOMENTS),
        "length": some(LENGTHS),
        "who": some([*range(60), None]),
    }


def as_arrow(table):
    pyarrow = pytest.importorskip("pyarrow")
    kinds = {
        "code": "int64",
        "share": "float64",
        "flag": "bool",
        "x": "float64",
        "i": "int64",
        "day": "date32",
        "who": "int64",
    }
    kinds |= {
        "region": "string",
        "moment": pyarrow.timestamp("us"),
        "length": pyarrow.duration("us"),
    }
    return pyarrow.table(
        {
            name: pyarrow.array(column, type=kinds[name], from_pandas=False)
            for name, column in table.items()
        }
    )


def as_pandas(table):
    numbers = {name: pandas.array(table[name], dtype="Int64") for name in ("code", "i", "who")}
    floats = {
        name: np.array([np.nan if x is None else x for x in table[name]]) for name in ("share", "x")
    }
    times = {name: np.array(table[name], "datetime64[us]") for name in ("day", "moment")}
    others = {
        "flag": pandas.array(table["flag"], dtype="boolean"),
        "region": pandas.array(table["region"], dtype="str"),
    }
    return pandas.DataFrame(
        numbers | floats | times | others | {"length": np.array(table["length"], "timedelta64[us]")}
    )


def as_mapping(table):
    frame = as_pandas(table)
    numbers = {
        name: frame[name].to_numpy(np.float64, na_value=np.nan)
        for name in ("code", "share", "x", "i", "who")
    }
    times = {name: frame[name].to_numpy() for name in ("day", "moment", "length")}
    numbers["flag"] = frame["flag"].to_numpy(np.float64, na_value=np.nan)
    return numbers | times | {"region": np.array(table["region"], object)}


def as_polars(table):
    return pytest.importorskip("polars").from_arrow(as_arrow(table))


def as_lazy_polars(table):
    return as_polars(table).lazy()


def as_duckdb(table):
    arrow = as_arrow(table)
    return pytest.importorskip("duckdb").from_arrow(arrow)


def as_ibis(table):
    return pytest.importorskip("ibis").memtable(as_arrow(table))


def as_dask(table):
    return pytest.importorskip("dask.dataframe").from_pandas(as_pandas(table), npartitions=3)


def as_spark(table):
    sql = pytest.importorskip("pyspark.sql")
    if shutil.which("java") is None:
        pytest.skip("Spark needs Java")
    builder = sql.SparkSession.builder.master("local[2]").config(
        "spark.sql.shuffle.partitions", "4"
    )
    session = (
        builder.config("spark.ui.enabled", "false")
        .config("spark.sql.session.timeZone", "UTC")
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("ERROR")
    return session.createDataFrame(as_arrow(table).drop_columns(["length"])).repartition(3)


# Its name for the package that it moves Dask to is not on every index yet.
pytestmark = [
    pytest.mark.filterwarnings("ignore:Dask support is moving out of Narwhals"),
    # PySpark warns where another test of the process has used JAX.
    pytest.mark.filterwarnings("ignore:os.fork"),
]
KINDS = [
    as_mapping,
    as_pandas,
    as_arrow,
    as_polars,
    as_lazy_polars,
    as_duckdb,
    as_ibis,
    as_dask,
    as_spark,
]
NUMBERS = {"lower": 0, "upper": 120, "resolution": 1}
SMALL = {"lower": -1, "upper": 3, "resolution": "1/10"}
DATES = {"lower": START, "upper": END, "resolution": DAY}
ASKED = {
    "x": NUMBERS,
    "i": NUMBERS,
    "flag": {"lower": 0, "upper": 1, "resolution": 1},
    "day": DATES,
    "moment": {
        "lower": datetime.datetime(2013, 1, 1),
        "upper": datetime.datetime(2014, 1, 1),
        "resolution": DAY,
    },
    "length": {
        "lower": datetime.timedelta(0),
        "upper": 3 * DAY,
        "resolution": datetime.timedelta(seconds=1),
    },
}


def is_missing(value):
    return value is None or value != value


def microseconds(value):
    if isinstance(value, datetime.timedelta):
        return value / datetime.timedelta(microseconds=1)
    if isinstance(value, datetime.date):
        start = datetime.datetime(1970, 1, 1)
        return (datetime.datetime(*value.timetuple()[:6]) - start) / datetime.timedelta(
            microseconds=1
        )
    return float(value)


def number_of(value, options, bits=0):
    """The cell of a value, counted from 0, or the integer of a row, as the rule says."""
    step = options["resolution"]
    step = (1, 10) if step == "1/10" else (microseconds(step), 1)
    times, over = float(step[1]), float(step[0])
    low, high = (round(microseconds(options[name]) * times / over) for name in ("lower", "upper"))
    scaled = min(max(microseconds(value) * times / over, low), high)
    return math.floor(scaled * 2.0**bits + 0.5) - low * 2**bits


def reference(table, column, options, by, unit=None, rule="mean", most=1, named=None):
    """How many records of which group have which position: -1 for a missing value, which a person
    does not have.
    """
    labels = (
        list(zip(*(table[name] for name in by), strict=True)) if by else [()] * len(table[column])
    )
    records, persons = Counter(), {}
    for label, value, who in zip(labels, table[column], table["who"], strict=True):
        if any(map(is_missing, label)) or (named is not None and label not in named):
            continue
        if unit is None:
            records[label, -1 if is_missing(value) else number_of(value, options)] += 1
        elif not is_missing(who) and not is_missing(value):
            persons.setdefault(who, {}).setdefault(label, []).append(value)
    for groups in persons.values():
        for label in sorted(groups, key=lambda label: (-len(groups[label]), label))[:most]:
            records[label, person(groups[label], options, rule)] += 1
    return records


def person(values, options, rule):
    high = number_of(options["upper"], options)
    if rule in ("min", "max"):
        return {"min": min, "max": max}[rule](number_of(value, options) for value in values)
    if rule == "count":
        return number_of(len(values), options)
    bits = 31 - high.bit_length()
    return math.floor(
        sum(number_of(value, options, bits) for value in values) / (len(values) * 2.0**bits) + 0.5
    )


def counted(frame, column, options, by, persons=None, named=None):
    given = {"by": list(by) if by else None, "groups": named, "persons": persons}
    opened = Opened(frame, column, release.median, options, **given)
    groups, tally = opened.groups(bounded=False), opened.tally(bounded=False)
    found = Counter()
    weight = np.ones_like(tally.group) if tally.weight is None else tally.weight
    for group, position, count in zip(tally.group, tally.position, weight, strict=True):
        if group >= 0:
            label = groups.names[group]
            label = label if by and len(by) > 1 else (label,) if by else ()
            found[label, int(position)] += int(count)
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_every_engine_has_the_counts_of_a_plain_reference(kind):
    table = rows()
    frame = kind(table)
    for column, options in ASKED.items():
        if column == "length" and kind is as_ibis:
            with pytest.raises(TypeError, match="durations of Ibis"):
                counted(frame, column, options, ())
        if column == "length" and kind in (as_spark, as_ibis):
            continue  # Spark takes none from Arrow
        expected = reference(table, column, options, ("region",))
        assert counted(frame, column, options, ("region",)) == expected, column
        assert counted(frame, column, options, ()) == reference(table, column, options, ()), column
    assert counted(frame, "x", SMALL, ()) == reference(table, "x", SMALL, ())
    for by in (("code",), ("share",), ("flag",), ("region", "code"), ("day",)):
        expected = reference(table, "x", NUMBERS, by)
        found = counted(frame, "x", NUMBERS, by)
        assert len(found) == len(expected)
        assert sorted(found.values()) == sorted(expected.values()), by
    named = [("a",), ("a,b",), ("z",)]
    expected = reference(table, "x", NUMBERS, ("region",), named=named)
    assert (
        counted(frame, "x", NUMBERS, ("region",), named=[label for (label,) in named]) == expected
    )
    wrong = dict(NUMBERS, upper=119)  # the control
    assert counted(frame, "x", wrong, ("region",)) != reference(table, "x", NUMBERS, ("region",))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("rule", ["mean", "min", "max", "count", "sum"])
def test_persons_count_alike_in_every_engine(kind, rule):
    table = rows()
    frame = kind(table)
    for column, options in (("x", NUMBERS), ("i", NUMBERS), ("day", DATES)):
        if rule in ("sum", "count") and column != "i":
            continue
        if rule == "sum":
            table = dict(table, i=[None if value is None else value % 7 for value in table["i"]])
            frame = kind(table)
        for by, most, named in (
            ((), 1, None),
            (("region",), 1, None),
            (("region",), 2, ["a", "B", "c"]),
            (("region", "code"), 3, None),
        ):
            if kind is as_dask and by:
                with pytest.raises(TypeError, match="Dask, which has no window"):
                    counted(frame, column, options, by, ("who", rule, most), named)
                continue
            labels = None if named is None else [(label,) for label in named]
            expected = (
                reference(
                    table,
                    column,
                    options,
                    by,
                    "who",
                    rule if rule != "sum" else "sum",
                    most,
                    labels,
                )
                if rule != "sum"
                else None
            )
            found = counted(frame, column, options, by, ("who", rule, most), named)
            if rule == "sum":
                assert found == counted(
                    as_pandas(table), column, options, by, ("who", rule, most), named
                )
            else:
                assert found == expected, (column, by, most)
    if kind is not as_dask and rule == "mean":  # the control: one group more
        assert counted(frame, "x", NUMBERS, ("region",), ("who", rule, 2)) != reference(
            table, "x", NUMBERS, ("region",), "who", rule, 3
        )
