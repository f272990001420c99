"""Pairs of tables that differ in one row or one person, with the worst cells there are: nothing but
the draws may differ.
"""

import datetime
import math
import warnings
from decimal import Decimal
from functools import partial

import numpy as np
import pytest

from dpjax import frames
from dpjax.release import Count, DistinctCount, Floats, Median, Mode
from tests.support.tables import (
    IN_MEMORY,
    as_dask,
    as_duckdb,
    as_ibis,
    as_pandas,
    as_polars,
    as_spark,
    counted,
    narwhals,
    polars,
    pyarrow,
    sized,
)

pandas = pytest.importorskip("pandas")

pytestmark = pytest.mark.filterwarnings("ignore:Dask support is moving")
DAY, START = datetime.timedelta(days=1), datetime.date(2020, 1, 1)
FAR = 2**31 - 2  # days; one more is infinite in DuckDB
NUMBERS = [math.nan, -0.0, 0.0, math.inf, -math.inf, 1e308, -1e308, 5e-324, -5e-324, 0.5, 99.5]
NUMBERS += [2.0**53 + 2, None, 1.0, 50.0]
SINGLE = [x if x is None else float(np.float32(np.clip(x, -3e38, 3e38))) for x in NUMBERS]
SIGNALING = float(np.uint64(0x7FF0000000000001).view(np.float64))  # NumPy warns of this NaN
INTEGERS = [2**63 - 1, -(2**63), 2**53 + 1, 0, -1, 50, None]
TEXTS = ["", " ", "a", "A", "a ", "é", "e\u0301", "a\0b", "'", '"', "\\", "%", "a,b", "\n", None]
TEXTS += ["x" * 100_000, "nan", "None", "1", "\U0001f600"]
MOMENT = 1_577_836_800_000_000  # microseconds until START
TICKS = [2**63 - 2, -(2**63) + 2, 0, 1, -1, 10**15, 1000 * MOMENT, MOMENT, None]
CLOCKS = [1_698_539_400_000_000, 1_698_543_000_000_000, *TICKS]  # 2:30 in Berlin, twice
DECIMALS = [Decimal(text) for text in ("0.00", "-0.01", f"{'9' * 35}.99", "50.00")] + [None]
LABELS = {  # types of Arrow of which groups and persons can be, what their cells are; public labels
    "float64": ([*NUMBERS, SIGNALING], [0, 50]),
    "float32": (SINGLE, [0, 50]),
    "int64": (INTEGERS, [0, 50]),
    "uint64": ([2**64 - 1, 2**63, 0, 50, None], [0, 50]),
    "int8": ([-128, 127, 50, None], [0, 50]),
    "bool": ([True, False, None], [True, False]),
    "string": (TEXTS, ["a", "é", "1"]),
    "date32": ([FAR, -FAR, 18_262, 18_263, 0, None], [START]),
}
TIMES = {  # as integers, which Python need not hold
    pyarrow.timestamp("us"): TICKS,
    pyarrow.timestamp("ns"): TICKS,
    pyarrow.timestamp("us", "Europe/Berlin"): CLOCKS,
}
LENGTHS = pyarrow.duration("us")
TIMES[LENGTHS] = TICKS
REFUSED = {as_duckdb: [LENGTHS], as_ibis: [LENGTHS]}
REFUSED[as_spark] = [LENGTHS, "uint64", pyarrow.timestamp("ns")]
CELLS = {kind: cells for kind, (cells, _) in LABELS.items()} | TIMES
CELLS[pyarrow.decimal128(38, 2)] = DECIMALS
OBJECTS = [*NUMBERS, *INTEGERS, *TEXTS, *DECIMALS, 10**5000, Decimal("sNaN"), Decimal("Infinity")]
OBJECTS += [b"\xff", 1j, (1,), [1], object(), pandas.NA, pandas.NaT, datetime.date.max, True]
OBJECTS += [datetime.datetime.min, np.float64("nan"), np.datetime64("NaT", "s"), np.array(3)]
OBJECTS += ["\ud800", START, datetime.datetime(2020, 1, 1), pandas.Timestamp(START)]
OF_NUMBERS = [Median(0, 100, 1), Median(grid=Floats(2)), Mode((0, 50)), Count()]


def statistics_of(kind):
    """Those that a column of this type can have; some several times, as they are asked for more."""
    if kind in TIMES or kind == "date32":
        if "duration" in str(kind):
            ends = 0 * DAY, 10 * DAY
        else:
            made = datetime.date if kind == "date32" else datetime.datetime
            zone = {"tzinfo": datetime.UTC} if "tz=" in str(kind) else {}
            ends = made(2020, 1, 1, **zone), made(2021, 1, 1, **zone)
        return [Median(*ends, DAY), Median(*ends, DAY), Count()]
    if kind == "string":
        return [Count(), DistinctCount(1, 9)]
    return [*OF_NUMBERS, OF_NUMBERS[0], *[DistinctCount(1, 9)] * (kind in LABELS)]


def as_objects(arrow):
    """The columns of groups and persons hold any objects, of which they have the numbers."""
    found = as_pandas(arrow)
    for name in ("g", "who"):
        column = np.empty(arrow.num_rows, object)
        column[:] = [OBJECTS[place] for place in arrow[name].to_pylist()]
        found[name] = pandas.Series(column, dtype=object)
    return found


def as_categories(arrow):
    found = as_pandas(arrow)
    plain = [name for name in ("g", "who") if name in found and found[name].dtype.kind != "M"]
    return found.astype(dict.fromkeys(plain, "category"))


SLOW = pytest.param(as_dask, marks=pytest.mark.slow)
MAKERS = [*IN_MEMORY, as_objects, as_categories, as_duckdb, as_ibis, SLOW]
SIZES = [(0, 10), *(pytest.param(seed, 250, marks=pytest.mark.slow) for seed in (1, 2))]


def array_of(kind, cells):
    as_integers = {"date32": "int32"} | dict.fromkeys(TIMES, "int64")
    return pyarrow.array(cells, as_integers.get(kind, kind), from_pandas=False).cast(kind)


def arrow_of(kinds, rows):
    columns = {name: [row[name] for row in rows] for name in kinds}
    return pyarrow.table({name: array_of(kinds[name], cells) for name, cells in columns.items()})


def some_pair(seed, case, maker):
    """The types of columns, and two lists of rows of which one has one row, or one person, more;
    and the public options of a call; with the generator that they are from.
    """
    rng = np.random.default_rng([seed, case, *maker.__name__.encode()])
    refused = REFUSED.get(maker, ())
    labels, values = ([kind for kind in kinds if kind not in refused] for kinds in (LABELS, CELLS))
    kinds = {name: labels[rng.integers(len(labels))] for name in ("g", "who")}
    kinds["x"] = values[rng.integers(len(values))]
    cells = {name: CELLS[kind] for name, kind in kinds.items()}
    groups = LABELS[kinds["g"]][1]
    if maker is as_objects:
        kinds |= dict.fromkeys(("g", "who"), "int64")
        cells |= dict.fromkeys(("g", "who"), range(len(OBJECTS)))
        groups = ["a", "50"]

    def some(number):
        picked = {name: rng.integers(len(each), size=number) for name, each in cells.items()}
        each = ([cells[name][place] for place in places] for name, places in picked.items())
        return [dict(zip(picked, row, strict=True)) for row in zip(*each, strict=True)]

    rows, more = some(rng.integers(1, 12)), some(rng.integers(1, 4))
    more = [row | {"who": more[0]["who"]} for row in more]
    statistics = statistics_of(kinds["x"])
    statistic = statistics[rng.integers(len(statistics))]
    call = {"by": ["g"], "groups": groups} if rng.random() < 0.7 else {}
    if rng.random() < 0.6:
        rules = ["min", "max"]
        if isinstance(statistic, Median) and statistic.grid is None:
            rules += ["mean"] + ["count"] * isinstance(statistic.lower, int)
        call["persons"] = ("who", rules[rng.integers(len(rules))], 1 + ("by" in call))
    who = person(maker, more[0])
    rows = [row for row in rows if person(maker, row) != who]
    return rng, (kinds, rows, more, statistic, call)


def person(maker, row):
    """Who a row is of: of two objects whose texts begin alike, perhaps one."""
    if maker is not as_objects:
        return row["who"]
    try:
        return str(OBJECTS[row["who"]])[:10]
    except ValueError:  # an integer of too many digits
        return None


def pairs(seed, number, maker):
    """Pairs of tables as ``some_pair`` says, of which the second has more."""
    for case in range(number):
        rng, (kinds, rows, more, statistic, call) = some_pair(seed, case, maker)
        more = more if "persons" in call else more[:1]
        place = int(rng.integers(len(rows) + 1))
        both = rows, [*rows[:place], *more, *rows[place:]]
        yield [maker(arrow_of(kinds, each)) for each in both], statistic, call


def outcome(run, frame, statistic, call):
    """All that can be seen of a call but what is drawn."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        try:
            found = run(frame, statistic, **call)
            dtypes = narwhals.from_native(found).collect_schema()
            length = len(found) if hasattr(found, "__len__") else found.shape
            seen = type(found), [(name, str(dtype)) for name, dtype in dtypes.items()], length
        except Exception as error:
            seen = type(error).__name__, str(error)
    return seen, sorted({(warning.category.__name__, str(warning.message)) for warning in said})


def differences(run, seed, number, maker):
    """The pairs of which a call ``run(frame, statistic, **call)`` says more than what is drawn."""
    found = []
    for tables, *asked in pairs(seed, number, maker):
        before, after = (outcome(run, table, *asked) for table in tables)
        if before != after:
            found.append((*asked, before, after))
    return found


def released(frame, statistic, by=(), groups=None, persons=None):
    unit = dict(zip(("unit", "per_unit", "max_groups"), persons or (), strict=False))
    options = {"by": by, "groups": groups, "epsilon": 1.0, "neighbors": "add_remove"} | unit
    return frames.release(frame, {"x": statistic}, **options).frame


@pytest.mark.parametrize("maker", MAKERS)
@pytest.mark.parametrize(("seed", "number"), SIZES)
def test_one_row_or_person_more_changes_nothing_that_is_not_drawn(maker, seed, number):
    drawn = []

    def run(*given, **call):
        drawn.append(released(*given, **call))
        return drawn[-1]

    assert differences(run, seed, number, maker) == []
    assert len(drawn) == 2 * number  # the control: none is refused


def test_a_cast_that_raises_on_one_record_or_warns_is_seen():
    """The control of the test above."""

    def cells_of(frame):
        return np.where(frame["x"].is_null(), math.nan, 0.0)

    def strict(frame, statistic, **call):
        return polars.DataFrame({"x": cells_of(frame)}).select(polars.col("x").cast(polars.Int64))

    def careless(frame, statistic, **call):
        return polars.DataFrame({"x": cells_of(frame).astype(np.int64)})

    for run in (strict, careless):
        assert len(differences(run, 0, 60, as_polars)) > 3
    assert "RuntimeWarning" in str(differences(careless, 0, 60, as_polars))


def too_much(seed, number, maker, most=None):
    """The pairs that differ by more than one record in each of ``max_groups`` groups, by default as
    many as the call says.
    """
    found = []
    for tables, statistic, call in pairs(seed, number, maker):
        if isinstance(statistic, DistinctCount):
            continue  # ids are numbered anew in each table
        few = call.get("persons", ("who", "min", 1))[2] if most is None else most
        asked = [partial(counted, **call)]
        if "by" in call:
            others = {name: value for name, value in call.items() if name != "groups"}
            asked += [partial(counted, **others), partial(sized, **others)]
        for count in asked:
            before, after = (count(table, "x", statistic) for table in tables)
            changed = [key for key in before | after if before[key] != after[key]]
            records = [key for key in changed if key[-1:] != (None,)]  # not rows without a value
            one_each = all(after[key] - before[key] == 1 for key in records)
            if (
                not one_each
                or len({key[0] for key in records}) < len(records)
                or len(records) > few
            ):
                found.append((statistic, call, before, after))
    return found


@pytest.mark.parametrize("maker", MAKERS)
@pytest.mark.parametrize(("seed", "number"), SIZES)
def test_one_row_or_person_more_is_one_record_in_each_of_few_groups(maker, seed, number):
    assert too_much(seed, number, maker) == []
    assert too_much(seed, 6, maker, most=0)  # the control: the promise of fewer groups


def disagreements(seed, number, maker, changed=0):
    """The tables of which a library has other counts than Arrow has."""
    found = []
    for case in range(number):
        _, (kinds, rows, more, statistic, call) = some_pair(seed, case, maker)
        if isinstance(statistic, DistinctCount):
            continue
        expected = counted(arrow_of(kinds, [*rows, *more][changed:]), "x", statistic, **call)
        seen = counted(maker(arrow_of(kinds, [*rows, *more])), "x", statistic, **call)
        if seen != expected:
            found.append((kinds, statistic, call, expected, seen))
    return found


@pytest.mark.parametrize("maker", [maker for maker in MAKERS if maker is not as_objects])
@pytest.mark.parametrize(("seed", "number"), SIZES)
def test_every_library_counts_the_worst_cells_alike(maker, seed, number):
    assert disagreements(seed, number, maker) == []
    assert disagreements(seed, 8, maker, changed=1)  # the control: one row less


@pytest.mark.filterwarnings("ignore:os.fork")  # PySpark, where JAX was used before
def test_tables_of_spark_keep_all_three_promises():
    test_one_row_or_person_more_changes_nothing_that_is_not_drawn(as_spark, 0, 8)
    test_one_row_or_person_more_is_one_record_in_each_of_few_groups(as_spark, 0, 8)
    test_every_library_counts_the_worst_cells_alike(as_spark, 0, 8)
