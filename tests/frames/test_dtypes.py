"""Which dtypes are taken and which are refused, by the dtype alone and before a record is read; and
which labels are equal.
"""

import datetime
from decimal import Decimal

import pytest

from dpjax import frames
from dpjax.release import Count, DistinctCount, Median
from tests.support.tables import (
    as_arrow,
    as_arrow_in_pandas,
    as_duckdb,
    as_lazy_polars,
    polars,
    pyarrow,
    spark,
)

pandas = pytest.importorskip("pandas")

ALL = [as_arrow_in_pandas, as_arrow, as_lazy_polars, as_duckdb]
DAY, START = datetime.timedelta(days=1), datetime.date(2020, 1, 1)
MOMENT = datetime.datetime(2020, 1, 1)
FAR = 2**63 - 2
UNKNOWN = frames.PrivateGroups(30.0, 1e-6)
OPTIONS = {"epsilon": 60.0, "neighbors": "add_remove"}
QUESTIONS = {
    "numbers": ({"c": Median(0, 100, 1)}, {}),
    "dates": ({"c": Median(START, START + 9 * DAY, DAY)}, {}),
    "times": ({"c": Median(MOMENT, MOMENT + 9 * DAY, DAY)}, {}),
    "durations": ({"c": Median(0 * DAY, 9 * DAY, DAY)}, {}),
    "count": ({"c": Count()}, {}),
    "distinct": ({"c": DistinctCount(1, 9)}, {}),
    "label": ({"x": Count()}, {"by": "c", "groups": UNKNOWN}),
    "person": ({"x": Count()}, {"unit": "c"}),
}
EQUAL = {"count", "distinct", "label", "person"}
TAKEN = {
    "numbers": {"numbers"} | EQUAL,
    "text": EQUAL,
    "dates": {"dates"} | EQUAL,
    "decimals": {"numbers", "count"},
    "times": {"dates", "times", "count"},
    "durations": {"durations", "count"},
    "nothing": set(),
}


def in_pandas(dtype):
    def table(*cells):
        return pandas.DataFrame({"c": pandas.Series(cells, dtype=dtype), "x": 1.0})

    return table


def in_arrow(dtype, kind=as_arrow):
    def table(*cells):
        made = pyarrow.array(cells, dtype)
        return kind(pyarrow.table({"c": made, "x": [1.0] * len(cells)}))

    return table


def in_polars(dtype):
    def table(*cells):
        column = polars.Series("c", cells, dtype, strict=False)
        return polars.DataFrame([column, polars.Series("x", [1.0] * len(cells))]).lazy()

    return table


def in_duckdb(dtype):
    def table(*cells):
        rows = (f"select {cell}::{dtype} c, 1.0 x" for cell in cells)
        return pytest.importorskip("duckdb").sql(" union all ".join(rows))

    return table


class Hostile:
    def __str__(self):
        raise ValueError

    def __ne__(self, other):
        raise ValueError

    __hash__ = None


OBJECTS = ["a", 10**5000, Decimal("sNaN"), 1j, [1], b"\xff", "\ud800", pandas.NA, Hostile()]
MIXED = pandas.CategoricalDtype(["a", 1, 1j, b"a"])
WORDS = pyarrow.dictionary(pyarrow.uint32(), pyarrow.string())
INSTANT = pyarrow.timestamp("us", "America/New_York")
BEYOND = "interval 2147483647 months"
REFUSED = [  # of every library of tables of Arrow
    (pyarrow.binary(), b"\xff"),
    (pyarrow.time64("us"), 86_400_000_000),
    (pyarrow.timestamp("ms"), FAR),
    (pyarrow.duration("ms"), FAR),
    (pyarrow.list_(pyarrow.int64()), [1]),
    (pyarrow.struct([("a", pyarrow.int64())]), {"a": 1}),
    (pyarrow.map_(pyarrow.string(), pyarrow.int64()), [("a", 1)]),
]
CASES = {  # dtypes, the cell of one table, and those that a hostile one has more
    "numbers": [
        *((in_pandas(dtype), 1, 0) for dtype in ("float16", "Float32", "bool", "boolean")),
        (in_pandas("UInt64"), 1, 2**64 - 1),
        (in_polars(polars.Int128), 1, 2**127 - 1, -(2**127)),
        (in_polars(polars.UInt128), 1, 2**128 - 1),
        (in_duckdb("float"), 1, "'-inf'", "'nan'"),
    ],
    "text": [
        *((in_pandas(dtype), "a", None) for dtype in ("str", "string", "string[python]")),
        (in_pandas(object), "a", *OBJECTS),
        (in_pandas(MIXED), 1, "a", 1j, b"a", None),
        *((in_arrow(WORDS, kind), "a", "\0") for kind in ALL),
        (in_arrow(pyarrow.large_string()), "a", None),
        (in_polars(polars.Categorical), "a", ""),
        (in_polars(polars.Enum(["a", "b"])), "a", "b"),
        (in_duckdb("enum('a', 'b')"), "'a'", "'b'"),
        (in_duckdb("json"), "'1'", "'1.0'"),
    ],
    "dates": [(in_duckdb("date"), "'2020-01-01'", "'infinity'", "'290000-01-01 (BC)'")],
    "decimals": [
        (in_duckdb("hugeint"), 1, 2**127 - 1),
        (in_duckdb("uhugeint"), 1, 2**128 - 1),
        *((in_arrow(pyarrow.decimal128(38, 2), kind), 1, Decimal(10) ** 35) for kind in ALL),
    ],
    "times": [
        *(
            (in_duckdb(dtype), "'2020-01-01'", "'infinity'")
            for dtype in ("timestamp", "timestamptz")
        ),
        (in_duckdb("timestamp_ns"), "'2020-01-01'", "'-infinity'"),
        *((in_arrow(INSTANT, kind), 0, FAR) for kind in ALL),
        (in_pandas("M8[ns, America/New_York]"), 0, -FAR),
    ],
    "durations": [(in_polars(polars.Duration("ns")), 0, FAR), (in_pandas("m8[us]"), 0, FAR)],
    "nothing": [
        *((in_pandas(dtype), 1, 2) for dtype in ("complex64", "longdouble", "Sparse[float64]")),
        *((in_pandas(f"{kind}[s]"), 0, 10**11) for kind in ("M8", "m8")),
        (in_pandas("period[M]"), pandas.Period("2020-01"), None),
        (in_pandas("interval"), pandas.Interval(0, 1), pandas.Interval(-0.0, 1.0)),
        *((in_arrow(dtype, kind), None, cell) for dtype, cell in REFUSED for kind in ALL),
        (in_arrow(pyarrow.decimal256(76, 2)), 1, Decimal(10) ** 70),
        *((in_polars(dtype), None, None) for dtype in (polars.Time, polars.Object, polars.Null)),
        *((in_duckdb(kind), "null", cell) for kind, cell in (("bit", "'1'"), ("interval", BEYOND))),
        (in_duckdb("timetz"), "'10:00:00+01'", "null", "'24:00:00+02'"),
        (in_duckdb("timestamp_s"), "'2020-01-01'", "'290000-01-01'"),
    ],
}


def said(frame):
    """What each question is answered: nothing, or the message."""
    found = {}
    for name, (columns, options) in QUESTIONS.items():
        try:
            frames.release(frame, columns, **options, **OPTIONS).rows.rows()
            found[name] = ""
        except TypeError as error:
            found[name] = str(error)
    return found


@pytest.mark.parametrize(
    ("kind", "case"), [(kind, case) for kind, cases in CASES.items() for case in cases]
)
def test_a_dtype_is_taken_or_refused_whatever_the_records_are(kind, case):
    make, plain, *hostile = case
    found = said(make(plain, plain))
    assert {name for name, text in found.items() if not text} == TAKEN[kind]
    for text in filter(None, found.values()):
        assert text.startswith("column 'c' holds ")
        assert "cast it to " in text
    assert said(make(plain, plain, *hostile, *hostile)) == found


def test_nothing_is_read_before_a_refusal():
    read = []

    def step(frame):
        read.append(frame)
        return frame

    whole = polars.DataFrame({"x": [1.0], "c": [DAY]})
    frame = whole.lazy().map_batches(step, projection_pushdown=False)
    for columns, options in (QUESTIONS["label"], QUESTIONS["distinct"]):
        with pytest.raises(TypeError, match="'c'"):
            frames.release(frame, columns, **options, **OPTIONS)
    with pytest.raises(ValueError, match="'z'"):
        frames.release(frame, {"z": Count()}, **OPTIONS)
    assert not read
    frames.release(frame, {"c": Count()}, **OPTIONS)  # the control
    assert len(read) == 1


def test_what_the_steps_of_a_lazy_frame_raise_shows_no_record(tmp_path):
    duckdb, path = pytest.importorskip("duckdb"), tmp_path / "lazy.csv"
    path.write_text("c,x\n" + "a,1\n" * 30_000 + "a,secret\n")
    far = polars.Series([2**31 - 2], dtype=polars.Int32).cast(polars.Date)
    panics = polars.LazyFrame({"c": far}).with_columns(x=polars.col("c").cast(polars.String))
    for frame in (polars.scan_csv(path), duckdb.read_csv(str(path), sample_size=100), panics):
        with pytest.raises(RuntimeError, match="message is withheld") as raised:
            frames.release(frame, {"x": Count()}, **OPTIONS)
        assert raised.value.__suppress_context__
        with pytest.raises(BaseException, match=r"secret|out-of-range"):  # the control
            frame.collect() if isinstance(frame, polars.LazyFrame) else frame.fetchall()


def labels_of(frame, **call):
    """The number of records of each group that has some."""
    found = frames.simulate(0, frame, {"x": Count()}, by="c", **call, **OPTIONS).rows
    return dict(found.select("c", "records").rows())


ZEROS = [[-0.0, 0.0, 1.0], [0.0, -0.0, 1.0], [-0.0, -0.0, 1.0], [0.0, 0.0, 1.0]]


@pytest.mark.parametrize("kind", ALL)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_both_zeros_are_one_label_shown_alike_and_nan_is_none(kind, dtype):
    for cells in ZEROS:
        found = labels_of(in_arrow(dtype, kind)(*cells, float("nan"), None))
        assert str(found) == "{0.0: 2, 1.0: 1}"
    tied = in_arrow(dtype, kind)(0.0, -0.0)
    asked = frames.release(tied, {"c": DistinctCount(1, 9)}, **OPTIONS).rows
    assert asked["released"].to_list() == [1]
    assert frames.release(tied, {"x": Count()}, unit="c", **OPTIONS).rows["released"].to_list() == [
        1
    ]


SAME = [  # cells of which the first decides a category of pandas, and their label
    ([0.0] * 9, [-0.0] + [0.0] * 9, 0.0),
    ([1] * 9, [1] * 9 + [None], 1),
    (["1"] * 9, [True] + ["1"] * 9, "1"),
    (["1"] * 9, [True] + ["1"] * 9, "True"),
]


@pytest.mark.parametrize(("fewer", "more", "label"), SAME)
def test_one_more_record_does_not_change_the_label_of_a_category(fewer, more, label):
    for cells in (fewer, more):
        table = in_pandas(None)(*cells).astype({"c": "category"})
        found = frames.release(table, {"x": Count()}, by="c", groups=[label], **OPTIONS).rows
        assert found["released"].to_list() == [sum(cell == label for cell in cells)]


MIDNIGHT = [datetime.datetime(2020, 1, 1), datetime.datetime(2020, 1, 2)]
DATES = [START, START + DAY]
OF_ALL = [  # types of Arrow, their cells, and a label that no such column can hold
    ("string", ["a", "b"], None),
    ("int64", [1, 2], "1"),
    ("date32", DATES, MIDNIGHT[0]),
    ("bool", [True, False], "a"),
    ("float32", [0.1, 2], "0.1"),
]
MATCHES = [  # the cells of a column, public labels that are these, and one that it cannot hold
    *((in_arrow(t, kind), x, x, no) for t, x, no in OF_ALL for kind in ALL),
    (in_pandas(pandas.CategoricalDtype([2, 1])), [1, 2], [1, 2], None),
    (in_pandas(object), [7, "x"], ["7", "x"], None),
    (in_pandas(object), ["x", 7], ["x", 7], None),
    (in_pandas(object), DATES, list(pandas.date_range("2020-01-01", periods=2)), None),
    (in_pandas(object), MIDNIGHT, DATES, None),
    (in_pandas(object), DATES, ["2020-01-01", "2020-01-02"], None),
    (in_polars(polars.Int128), [2**100, -(2**100)], [2**100, -(2**100)], 2**127),
    (in_polars(polars.Enum(["b", "a"])), ["a", "b"], ["a", "b"], None),
]


@pytest.mark.parametrize("case", MATCHES)
def test_public_labels_match_those_of_the_column_and_others_are_refused(case):
    make, cells, groups, wrong = case
    frame = make(cells[0], cells[1], cells[1], None)
    asked = {"by": "c", **OPTIONS}
    found = frames.release(frame, {"x": Count()}, groups=iter(groups), **asked)
    assert found.rows["released"].to_list() == [1, 2]
    for other in (wrong, None, float("nan")):
        with pytest.raises(ValueError, match="'c'"):
            frames.release(frame, {"x": Count()}, groups=[groups[0], other], **asked)


SPELLINGS = "select 1.0::double x, range who, case when range < 20 then 'A' else 'a' end"
COLLATED = {
    "column": f"{SPELLINGS} collate nocase c from range(60)",
    "enum": f"select * replace (c::enum('a', 'A') as c) from ({SPELLINGS} c from range(60))",
    "default": f"{SPELLINGS} c from range(60)",
}


@pytest.mark.parametrize("name", COLLATED)
def test_labels_of_duckdb_are_compared_by_their_bytes_whatever_the_collation(name):
    connection = pytest.importorskip("duckdb").connect()
    connection.execute(f"set default_collation='{'nocase' * (name == 'default')}'")
    frame = connection.sql(COLLATED[name])
    assert labels_of(frame) == {"A": 20, "a": 40}
    assert labels_of(frame, unit="who") == {"A": 20, "a": 40}
    assert labels_of(frame, groups=["a"]) == {"a": 40}
    for columns, options in (QUESTIONS["person"], QUESTIONS["distinct"]):
        found = frames.release(frame, columns, **options, **OPTIONS)
        assert found.rows["released"].to_list() == [2]
    assert connection.sql(f"select distinct c from ({COLLATED['column']})").shape[0] == 1  # control


@pytest.mark.filterwarnings("ignore:os.fork")  # PySpark, where JAX was used before
def test_labels_of_spark_are_compared_by_their_bytes_whatever_the_collation():
    cells = "case when id < 20 then 'A' else 'a' end collate UTF8_LCASE"
    frame = spark().sql(f"select 1.0D x, {cells} c from range(60)")
    assert frame.distinct().count() == 1  # the control
    assert labels_of(frame) == {"A": 20, "a": 40}


@pytest.mark.filterwarnings("ignore:The 'future.infer_string' option")  # of Ibis, with pandas 3
def test_tables_of_sqlite_are_refused_as_any_cell_may_hold_anything():
    connection = pytest.importorskip("ibis").sqlite.connect()
    connection.raw_sql("create table known (x integer)")
    with pytest.raises(TypeError, match="SQLite"):
        frames.release(connection.table("known"), {"x": Count()}, **OPTIONS)
