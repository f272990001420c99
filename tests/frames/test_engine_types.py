"""Types of engines: no value that a column can hold raises or changes what others count as."""

import datetime
import shutil
import warnings
from decimal import Decimal

import numpy as np
import pytest

from dpjax import frames, release
from dpjax.accounting import Ledger, PrivacyFilter

narwhals = pytest.importorskip("narwhals")
duckdb = pytest.importorskip("duckdb")
pyarrow = pytest.importorskip("pyarrow")

START, DAY = datetime.datetime(2020, 1, 1), datetime.timedelta(days=1)
MOMENTS = release.Median(lower=START, upper=START + 100 * DAY, resolution=DAY)
NUMBERS = release.Median(lower=0, upper=100, resolution=1)
CERTAIN = {"epsilon": 64.0, "neighbors": "add_remove"}


def as_duckdb(sql, *before):
    connection = duckdb.connect()
    for each in before:
        connection.execute(each)
    connection.execute(f"create table known as {sql}")
    return connection.table("known")


def as_ibis(sql, *before):
    ibis = pytest.importorskip("ibis")
    connection = ibis.duckdb.connect()
    for each in before:
        connection.raw_sql(each)
    connection.raw_sql(f"create table known as {sql}")
    with warnings.catch_warnings():  # Ibis calls a function of DuckDB that is deprecated
        warnings.simplefilter("ignore", DeprecationWarning)
        return connection.table("known")


ENGINES = [as_duckdb, as_ibis]


def of_arrow(kind, table):
    if kind is as_ibis:
        return pytest.importorskip("ibis").memtable(table)
    return duckdb.connect().from_arrow(table)


@pytest.mark.parametrize("kind", ENGINES)
@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_no_time_is_too_far_for_the_unit_of_its_column(kind, unit):
    known = int((START - datetime.datetime(1970, 1, 1)).total_seconds())
    known *= {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[unit]
    for more in (2**63 - 2, -(2**63) + 2, 2**63 - 1, 253_402_300_800_000, 0):
        ticks = pyarrow.array([known] * 60 + [more], pyarrow.int64())
        table = pyarrow.table(
            {
                "x": ticks.cast(pyarrow.timestamp(unit)),
                "y": pyarrow.array([50.0] * 61),
                "who": pyarrow.array(range(61)),
            }
        )
        frame = of_arrow(kind, table)
        infinite = more == 2**63 - 1 and unit in ("us", "ns")
        for persons in ({}, {"unit": "who"}):
            found = frames.release(frame, {"x": MOMENTS}, **CERTAIN, **persons)
            assert found.columns["released"].tolist() == [START]
            found = frames.release(frame, {"x": release.Count()}, **CERTAIN, **persons)
            assert found.columns["released"].tolist() == [60 if infinite else 61]
            for groups in ([START], frames.PrivateGroups(64.0, 1e-9)):
                found = frames.release(
                    frame, {"y": release.Count()}, by="x", groups=groups, **CERTAIN, **persons
                )
                assert list(found.columns["x"]) == [START]
                assert found.columns["released"].tolist() == [60]
        frames.release(frame, {"x": release.DistinctCount(2, 100)}, **CERTAIN)
        frames.release(frame, {"y": NUMBERS}, unit="x", **CERTAIN)


@pytest.mark.parametrize("kind", [as_duckdb, None])
def test_the_time_24_00_is_no_label_and_no_person_counts_twice_for_it(kind):
    # 24:00 and 0:00 are different in an engine, and equal in Python
    late = pyarrow.array([0, 86_400_000_000] * 20, pyarrow.int64()).cast(pyarrow.time64("us"))
    table = pyarrow.table(
        {"x": [1.0] * 40, "who": [k // 2 for k in range(40)], "g": late, "other": list(range(40))}
    )
    if kind is None:
        frame = table
    else:
        sql = (
            "select 1.0::double x, range // 2 who, range other, "
            "case when range % 2 = 0 then time '00:00:00' else time '24:00:00' end g from range(40)"
        )
        frame = kind(sql)
    for groups in (frames.PrivateGroups(64.0, 1e-9), [datetime.time(0)]):
        for most in (1, 2):
            asked = {"by": "g", "groups": groups, "unit": "who", "max_groups": most}
            found = frames.release(frame, {"x": release.Count()}, **asked, **CERTAIN)
            assert list(found.columns["g"]) == [datetime.time(0)]
            if most == 2 or isinstance(groups, list):
                assert found.columns["released"].tolist() == [20]
                assert found.columns.get("noisy_size", [20])[0] == 20
    found = frames.release(frame, {"x": release.Count()}, unit="g", **CERTAIN)
    assert found.columns["released"].tolist() == [1]


@pytest.mark.parametrize("kind", [*ENGINES, "polars", "lazy polars"])
@pytest.mark.parametrize(
    "labels",
    [
        "range",
        "range::varchar",
        "date '2020-01-01' + range::integer",
        "range::double",
        "timestamp_s '2020-01-01'",
        "time '01:00:00'",
        "range::decimal(9, 3)",
        "range = 1",
    ],
)
def test_no_group_that_is_kept_is_a_result_without_rows(kind, labels):
    sql = f"select 50.0::double x, range who, {labels} a, range b from range(3)"
    if isinstance(kind, str):
        polars = pytest.importorskip("polars")
        frame = polars.from_arrow(as_duckdb(sql).to_arrow_table())
        frame = frame.lazy() if "lazy" in kind else frame
    else:
        frame = kind(sql)
    for by in (["a", "b"], ["b", "a"], "a"):
        if kind is as_ibis and "time " in labels:
            continue  # refused
        for persons in ({}, {"unit": "who"}):
            groups = frames.PrivateGroups(64.0, 1e-300)  # those of 12 rows are kept
            found = frames.release(
                frame, {"x": NUMBERS}, by=by, groups=groups, **persons, **CERTAIN
            )
            assert found.columns["released"].tolist() == []


@pytest.mark.parametrize("kind", ENGINES)
def test_durations_of_databases_are_no_labels_before_anything_is_charged(kind, tmp_path):
    frame = kind("select 50.0::double x, interval 1 hour g from range(60)")
    ledger = Ledger(tmp_path / "ledger.jsonl", epsilon=1000.0, delta=0.1)
    asked = {"by": "g", "groups": frames.PrivateGroups(64.0, 1e-9), "budget": ledger}
    with pytest.raises(TypeError, match="which cannot be used as labels: convert"):
        frames.release(frame, {"x": NUMBERS}, **asked, **CERTAIN)
    assert not ledger.entries


@pytest.mark.parametrize("kind", [*ENGINES, "pandas", "pyarrow", "polars"])
def test_labels_from_two_to_the_63rd_are_kept(kind):
    known = {7: 30, 2**63 + 5: 31, 2**64 - 1: 32}
    sql = "select 50.0::double x, g::ubigint g from (" + " union all ".join(
        f"select {label} g from range({rows})" for label, rows in known.items()
    )
    frame = (as_duckdb if isinstance(kind, str) else kind)(sql + ")")
    if isinstance(kind, str):
        table = frame.to_arrow_table()
        frame = {
            "pandas": table.to_pandas,
            "pyarrow": lambda: table,
            "polars": lambda: pytest.importorskip("polars").from_arrow(table),
        }[kind]()
    groups = frames.PrivateGroups(64.0, 1e-9)
    for labels in (groups, list(known)):
        found = frames.release(frame, {"x": release.Count()}, by="g", groups=labels, **CERTAIN)
        assert list(map(float, found.columns["g"])) == list(map(float, known))
        assert found.columns["released"].tolist() == list(known.values())


LARGE = [
    ("hugeint", 2**127 - 1),
    ("hugeint", -(2**127)),
    ("decimal(38, 0)", 10**38 - 1),
    ("decimal(38, 2)", 10**36 - 1),
    ("decimal(10, 4)", 999_999),
    ("ubigint", 2**64 - 1),
    ("bigint", -(2**63)),
]


@pytest.mark.parametrize("kind", ENGINES)
@pytest.mark.parametrize(("dtype", "more"), LARGE)
def test_no_number_is_too_large_for_a_label(kind, dtype, more):
    sql = (
        f"select 50.0::double x, range who, 1::{dtype} g, 2::{dtype} h from range(60) union all "
        f"select 7.0, 99, ({more})::{dtype}, ({more})::{dtype}"
    )
    frame = kind(sql)
    counts = {"x": release.Count()}
    for persons in ({}, {"unit": "who"}):
        for one, two in ((1, 2), (1.0, Decimal(2)), (Decimal("1.0"), 2)):
            found = frames.release(frame, counts, by="g", groups=[one], **persons, **CERTAIN)
            assert found.columns["released"].tolist() == [60]
            both = {"by": ["g", "h"], "groups": [(one, two), (two, one), (more, more)]}
            found = frames.release(frame, counts, **both, **persons, **CERTAIN)
            held = not (kind is as_ibis and abs(more) >= 10**38)  # a decimal there
            assert found.columns["released"].tolist() == [60, 0, int(held)]
        private = {"by": "g", "groups": frames.PrivateGroups(64.0, 1e-9)}
        found = frames.release(frame, counts, **private, **persons, **CERTAIN)
        assert list(found.columns["g"]) == [1]
        assert found.columns["released"].tolist() == [60]
    assert frames.release(frame, counts, unit="g", **CERTAIN).columns["released"].tolist() == [2]


@pytest.mark.parametrize("kind", ENGINES)
def test_decimals_are_the_labels_that_are_written_alike(kind):
    frame = kind(
        "select 50.0::double x, g::decimal(10, 4) g from "
        "(select unnest([1.2345, 0.0000, -0.0100, 100.0000, 1.2345, null]) g)"
    )
    labels = [1.2345, Decimal("-0.01"), 0, 100, 1.23456, 10**9]
    found = frames.release(frame, {"x": release.Count()}, by="g", groups=labels, **CERTAIN)
    assert found.columns["released"].tolist() == [2, 1, 1, 1, 0, 0]


@pytest.mark.parametrize("kind", ENGINES)
@pytest.mark.parametrize("asked", [{"by": "g", "groups": [1]}, {"unit": "g"}])
def test_integers_of_128_bits_without_a_sign_are_no_labels(kind, asked):
    for more in (1, 2**127 + 5):  # by dtype, whatever the records are
        frame = kind(f"select 50.0::double x, {more}::uhugeint g from range(60)")
        with pytest.raises(TypeError, match=r"column 'g' holds U.*: cast it to text"):
            frames.release(frame, {"x": NUMBERS}, **asked, **CERTAIN)


@pytest.mark.parametrize("kind", ["pyarrow", "pandas", "polars", "duckdb"])
def test_chunks_of_categories_may_have_more_categories_together_than_one_can_number(kind):
    names = [[f"{letter}{k}" for k in range(100)] for letter in "ab"]
    chunks = [
        pyarrow.DictionaryArray.from_arrays(pyarrow.array([*range(100), None], "int8"), each)
        for each in names
    ]
    table = pyarrow.table({"x": [50.0] * 202, "g": pyarrow.chunked_array(chunks)})
    frame = {
        "pyarrow": lambda: table,
        "pandas": lambda: table.to_pandas(types_mapper=pytest.importorskip("pandas").ArrowDtype),
        "polars": lambda: pytest.importorskip("polars").from_arrow(table),
        "duckdb": lambda: duckdb.connect().from_arrow(table),
    }[kind]()
    asked = {"by": "g", "groups": ["a1", "b99", "c"]}
    found = frames.release(frame, {"x": release.Count()}, **asked, **CERTAIN)
    assert found.columns["released"].tolist() == [1, 1, 0]
    found = frames.release(frame, {"x": release.Count()}, unit="g", **CERTAIN)
    assert found.columns["released"].tolist() == [200]


@pytest.mark.parametrize("asked", [{"by": "g", "groups": [1]}, {"unit": "g"}])
def test_complex_numbers_of_pandas_are_no_labels(asked):
    pandas = pytest.importorskip("pandas")
    for more in (1 + 0j, 2j, complex("nan")):
        for dtype in ("complex128", "complex64", "category"):
            labels = pandas.Series([1 + 0j] * 60 + [more], dtype="complex128").astype(dtype)
            frame = pandas.DataFrame({"x": [50.0] * 61, "g": labels})
            with pytest.raises(TypeError, match="column 'g' holds complex"):
                frames.release(frame, {"x": NUMBERS}, **asked, **CERTAIN)


SPELLINGS = "select 50.0::double x, range who, case when range < 20 then 'A' else 'a' end"
COLLATED = {
    "column": ([], f"{SPELLINGS} collate nocase g from range(60)"),
    "accents": ([], f"{SPELLINGS} collate nocase.noaccent g from range(60)"),
    "enum": ([], f"select * replace (g::enum('a', 'A') as g) from ({SPELLINGS} g from range(60))"),
    "default": (["set default_collation='nocase'"], f"{SPELLINGS} g from range(60)"),
}
COLLATED["enum and default"] = (COLLATED["default"][0], COLLATED["enum"][1])


@pytest.mark.parametrize("kind", ENGINES)
@pytest.mark.parametrize("name", COLLATED)
def test_labels_are_compared_by_their_bytes_whatever_the_collation(kind, name):
    before, sql = COLLATED[name]
    frame = kind(sql, *before)
    counts, private = {"x": release.Count()}, frames.PrivateGroups(64.0, 1e-9)
    if kind is as_ibis and before:
        for labels in ({"by": "g", "groups": ["a"]}, {"by": "g", "groups": private}, {"unit": "g"}):
            with pytest.raises(TypeError, match=r"collation nocase.*: run reset default_collation"):
                frames.release(frame, counts, **labels, **CERTAIN)
        return
    for persons in ({}, {"unit": "who"}):
        for groups in (private, ["A", "a"]):
            found = frames.release(frame, counts, by="g", groups=groups, **persons, **CERTAIN)
            assert list(found.columns["g"]) == ["A", "a"]
            assert found.columns["released"].tolist() == [20, 40]
        two = {"by": ["g", "x"], "groups": [("a", 50.0), ("A", 50.0), ("a", 1.0)]}
        found = frames.release(frame, counts, **two, **persons, **CERTAIN)
        assert found.columns["released"].tolist() == [40, 20, 0]
    found = frames.release(frame, counts, unit="g", **CERTAIN)
    assert found.columns["released"].tolist() == [2]
    many = frames.release(frame, {"g": release.DistinctCount(1, 9)}, **CERTAIN)
    assert many.columns["released"].tolist() == [2]


@pytest.mark.filterwarnings("ignore:The 'future.infer_string' option")  # of Ibis, with pandas 3
def test_tables_of_sqlite_are_refused_as_any_cell_may_hold_anything():
    """1, 1.25 and 1.5 in a column of integers are different there, and one label in Python."""
    ibis = pytest.importorskip("ibis")
    connection = ibis.sqlite.connect()
    connection.raw_sql("create table known (x integer, g text collate nocase)")
    for asked in ({}, {"by": "g", "groups": ["a"]}, {"unit": "x"}):
        with pytest.raises(TypeError, match="SQLite, whose columns may hold values of any type"):
            frames.release(connection.table("known"), {"x": NUMBERS}, **asked, **CERTAIN)
    read = connection.table("known").to_pandas()
    assert len(frames.release(read, {"x": release.Count()}, **CERTAIN).frame) == 1


@pytest.mark.parametrize("large", [10**38, 10**38 + 1, -(10**38) - 1])
def test_decimals_of_polars_with_39_digits_are_no_labels(large):
    """Polars gives them to Python rounded to 38 digits, so that two of them would be one group in
    which a person counts twice.
    """
    pytest.importorskip("polars")
    frame = duckdb.connect().sql(
        f"select 1 x, 7 who, g from (values ({large}::hugeint), ({10**38}::hugeint), (5)) t(g)"
    )
    known = frames.simulate(
        0, frame.pl(), {"x": release.Count()}, by="g", unit="who", max_groups=3, **CERTAIN
    )
    assert [int(label) for label in known.columns["g"]] == [5]
    exact = frames.simulate(  # the control: DuckDB has them all
        0, frame, {"x": release.Count()}, by="g", unit="who", max_groups=3, **CERTAIN
    )
    assert {int(label) for label in exact.columns["g"]} == {5, 10**38, large}


def test_what_the_steps_of_a_lazy_frame_raise_shows_no_record(tmp_path):
    polars = pytest.importorskip("polars")
    path = tmp_path / "lazy.csv"
    path.write_text("g,x\n" + "a,1\n" * 30_000 + "a,secret\n")
    for frame in (polars.scan_csv(path), duckdb.connect().read_csv(str(path), sample_size=100)):
        for groups in (["a"], frames.PrivateGroups(1.0, 1e-6)):
            with pytest.raises(RuntimeError, match="message is withheld") as raised:
                frames.release(frame, {"x": NUMBERS}, by="g", groups=groups, **CERTAIN)
            assert raised.value.__cause__ is None
            assert raised.value.__suppress_context__
        with pytest.raises(Exception, match="secret"):  # the control
            narwhals.from_native(frame).lazy().collect()


NESTED = {
    "list": pyarrow.list_(pyarrow.int64()),
    "struct": pyarrow.struct([("a", pyarrow.int64())]),
    "map": pyarrow.map_(pyarrow.string(), pyarrow.int64()),
}


@pytest.mark.parametrize("kind", NESTED)
@pytest.mark.parametrize("engine", ["pyarrow", "polars", "duckdb"])
def test_nested_cells_are_refused_by_their_dtype_and_before_anything_is_charged(kind, engine):
    cell = {"list": [1], "struct": {"a": 1}, "map": [("a", 1)]}[kind]
    for cells in ([], [None], [cell]):
        table = pyarrow.table({"x": pyarrow.array(cells, NESTED[kind]), "g": ["a"] * len(cells)})
        frame = {
            "pyarrow": lambda table=table: table,
            "polars": lambda table=table: pytest.importorskip("polars").from_arrow(table),
            "duckdb": lambda table=table: duckdb.connect().from_arrow(table),
        }[engine]()
        for asked in ({}, {"by": "g", "groups": frames.PrivateGroups(1.0, 1e-6)}):
            budget = PrivacyFilter(100.0, 0.5, "add_remove", mechanism_delta=0.25)
            with pytest.raises(TypeError, match="cannot be used as labels"):
                frames.release(
                    frame, {"x": release.DistinctCount(1, 9)}, budget=budget, **asked, **CERTAIN
                )
            assert budget.spent == 0


def of_arrow_in_pandas(ticks, dtype):
    pandas = pytest.importorskip("pandas")
    return pandas.Series(pandas.arrays.ArrowExtensionArray(pyarrow.array(ticks).cast(dtype)))


def of_pandas(ticks, dtype):
    return pytest.importorskip("pandas").Series(ticks.astype(dtype))


TIMES_OF_DASK = {  # a column of integers in this unit
    "datetime64": lambda ticks, unit: of_pandas(ticks, f"M8[{unit}]"),
    "datetime64 with a zone": lambda ticks, unit: (
        of_pandas(ticks, f"M8[{unit}]").dt.tz_localize("UTC").dt.tz_convert("Europe/Berlin")
    ),
    "timedelta64": lambda ticks, unit: of_pandas(ticks, f"m8[{unit}]"),
    "timestamp": lambda ticks, unit: of_arrow_in_pandas(ticks, pyarrow.timestamp(unit)),
    "timestamp with a zone": lambda ticks, unit: of_arrow_in_pandas(
        ticks, pyarrow.timestamp(unit, "Europe/Berlin")
    ),
    "duration": lambda ticks, unit: of_arrow_in_pandas(ticks, pyarrow.duration(unit)),
}


@pytest.mark.filterwarnings("ignore:Dask support is moving")
@pytest.mark.parametrize("unit", ["s", "us", "ns"])
@pytest.mark.parametrize("kind", TIMES_OF_DASK)
def test_times_of_dask_never_raise_or_are_refused_by_their_dtype(kind, unit):
    pandas = pytest.importorskip("pandas")
    dask = pytest.importorskip("dask.dataframe")
    span = kind in ("timedelta64", "duration")
    moments = release.Median(
        lower=START - START if span else START, upper=DAY if span else START + DAY, resolution=DAY
    )
    private = {"by": "c", "groups": frames.PrivateGroups(1.0, 1e-6)}
    calls = [
        ({"c": moments}, {}),
        ({"c": release.Count()}, {}),
        ({"c": release.DistinctCount(1, 9)}, {}),
        ({"x": NUMBERS}, {"unit": "c"}),
        ({"x": NUMBERS}, private),
    ]
    seen = []
    for more in ([], [2**63 - 1], [-(2**63) + 1], [10**12]):
        ticks = np.array([0, 0, *more], np.int64)
        table = pandas.DataFrame({"c": TIMES_OF_DASK[kind](ticks, unit), "x": ticks})
        said = []
        for asked, options in calls:
            try:
                frames.release(
                    dask.from_pandas(table, npartitions=1),
                    asked,
                    **options,
                    epsilon=1.0,
                    neighbors="add_remove",
                )
                said.append("drawn")
            except TypeError as error:
                said.append(str(error))
        seen.append(said)
    assert all(said == seen[0] for said in seen)
    assert seen[0].count("drawn") == {"datetime64": 5, "timedelta64": 5}.get(
        kind, 2 if kind == "datetime64 with a zone" else 0
    )


def test_text_of_a_database_that_ignores_case_is_no_label(monkeypatch):
    ibis = pytest.importorskip("ibis")
    monkeypatch.setattr(ibis.sqlite.connect().__class__, "name", "mysql")
    table = ibis.sqlite.connect().create_table("known", schema={"x": "int64", "g": "string"})
    with pytest.raises(TypeError, match="collation of mysql, by which different labels may be"):
        frames.release(table, {"x": NUMBERS}, by="g", groups=["a"], **CERTAIN)


@pytest.mark.filterwarnings("ignore:os.fork")  # PySpark, where JAX was used before
def test_collations_of_spark_are_no_labels():
    sql = pytest.importorskip("pyspark.sql")
    if shutil.which("java") is None:
        pytest.skip("Spark needs Java")
    builder = sql.SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    session = builder.config("spark.sql.session.timeZone", "UTC").getOrCreate()
    frame = session.sql("select 50.0D x, 'a' collate UTF8_LCASE g, 'a' h from range(60)")
    with pytest.raises(TypeError, match=r"UTF8_LCASE.*cast it to string collate UTF8_BINARY"):
        frames.release(frame, {"x": NUMBERS}, by="g", groups=["a"], **CERTAIN)
    found = frames.release(frame, {"x": NUMBERS}, by="h", groups=["a"], **CERTAIN)
    assert found.columns["released"].tolist() == [50.0]


@pytest.mark.parametrize("dtype", ["time", "timetz"])
def test_times_of_ibis_which_may_have_zones_are_no_labels(dtype):
    frame = as_ibis(f"select 50.0::double x, '10:00:00'::{dtype} g from range(60)")
    private = {"by": "g", "groups": frames.PrivateGroups(64.0, 1e-9)}
    for asked in (private, {"by": "g", "groups": [datetime.time(10)]}, {"unit": "g"}):
        with pytest.raises(TypeError, match="holds times of Ibis, which may have time zones"):
            frames.release(frame, {"x": NUMBERS}, **asked, **CERTAIN)


@pytest.mark.parametrize("cell", ["'101'::bit", "null::bit", "interval 1 hour"])
def test_distinct_values_that_ibis_cannot_fetch_are_refused_by_dtype(cell):
    frame = as_ibis(f"select {cell} x, 'a' g from range(60)")
    for asked in ({}, {"by": "g", "groups": frames.PrivateGroups(64.0, 1e-9)}):
        with pytest.raises(TypeError, match="whose distinct values cannot be counted"):
            frames.release(frame, {"x": release.DistinctCount(1, 9)}, **asked, **CERTAIN)
