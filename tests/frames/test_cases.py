"""Cases that failed before, each for a kind: what people bring, in every container, with the right
value.
"""

import datetime
from decimal import Decimal

import numpy as np
import pytest

from dpjax import accounting, frames, release

pandas = pytest.importorskip("pandas")
polars = pytest.importorskip("polars")
pyarrow = pytest.importorskip("pyarrow")
duckdb = pytest.importorskip("duckdb")

BOUNDS = {"lower": 0, "upper": 100, "resolution": 1, "neighbors": "add_remove"}
CERTAIN = BOUNDS | {"epsilon": 60.0}
HALVES = [50.0, 60.0] * 200


def as_duckdb(columns):
    arrow = pyarrow.table(columns)
    return duckdb.from_arrow(arrow)


def as_arrays(columns):
    return {name: np.array(column) for name, column in columns.items()}


CONTAINERS = [
    pandas.DataFrame,
    polars.DataFrame,
    polars.LazyFrame,
    pyarrow.table,
    as_duckdb,
    as_arrays,
]


def released(frame, **options):
    return list(frames.release(frame, "i", **CERTAIN | options).columns["released"])


def by_group(frame, groups, **options):
    return released(frame, by="g", groups=groups, **options)


def far_dates(more):
    days = polars.Series(
        [18_262, 18_263] * 200 + [19_723 + 365 * 18_200] * more, dtype=polars.Int32
    ).cast(polars.Date)
    return polars.DataFrame({"g": days, "i": HALVES + [7.0] * more})


@pytest.mark.parametrize("more", [0, 1])
def test_one_date_that_python_does_not_hold_decides_nothing(more):
    days = [datetime.date(2020, 1, 1), datetime.date(2020, 1, 2)]
    frame = far_dates(more)
    arrow = frame.to_arrow()
    numpy = {"g": np.array(frame["g"].to_physical(), "M8[D]"), "i": frame["i"].to_numpy()}
    for container in (frame, frame.lazy(), arrow, duckdb.from_arrow(arrow), numpy):
        assert by_group(container, days) == [50.0, 60.0]
        known = frames.release(
            container, "i", by="g", groups=frames.PrivateGroups(30.0, 1e-6), **CERTAIN
        ).columns
        assert (list(known["g"]), list(known["released"])) == (days, [50.0, 60.0])
    seconds = numpy | {"g": numpy["g"].astype("M8[s]")}
    moments = [datetime.datetime(day.year, day.month, day.day) for day in days]
    for container in (seconds, pandas.DataFrame(seconds)):
        assert by_group(container, moments) == [50.0, 60.0]


@pytest.mark.slow
@pytest.mark.parametrize("size", [2**23, 2**23 + 1])
def test_a_mode_has_no_limit_on_its_records(size):
    options = {"statistic": release.Mode((0, 1)), "epsilon": 1.0, "neighbors": "add_remove"}
    for kind in (pandas.DataFrame, polars.DataFrame):
        found = frames.release(kind({"x": np.ones(size, np.int8)}), "x", **options)
        assert list(found.columns["released"]) == [1.0]


NO_LABELS = [
    10**5000,
    Decimal("sNaN"),
    float("nan"),
    object(),
    (1, 2),
    b"\xff",
    "x" * 10**6,
    pandas.NaT,
    pandas.NA,
    1j,
    [],
]


@pytest.mark.parametrize("label", NO_LABELS, ids=map(str, range(len(NO_LABELS))))
def test_no_label_of_an_object_column_raises(label):
    frame = pandas.DataFrame(
        {"g": pandas.Series(["a", "b"] * 200 + [label], dtype=object), "i": [*HALVES, 7.0]}
    )
    assert by_group(frame, ["a", "b"]) == [50.0, 60.0]
    assert by_group(
        frame.to_dict("series") | {"g": frame["g"].to_numpy(), "i": frame["i"].to_numpy()},
        ["a", "b"],
    ) == [50.0, 60.0]
    assert len(released(frame, unit="g")) == 1


def test_a_list_is_no_record_of_a_list_and_no_column_of_a_table():
    options = {
        "lower": 0,
        "upper": 100,
        "resolution": 1,
        "epsilon": 60.0,
        "neighbors": "add_remove",
    }
    assert float(release.median([50] * 200 + [[1, 2]], **options)) == 50.0
    for column in (
        [50] * 200,
        [50] * 200 + [None],
        [50] * 200 + [[1, 2]],
        np.ma.masked_array([50.0] * 9),
    ):
        with pytest.raises(
            TypeError,
            match="column 'i' must be a NumPy array, whose dtype does not depend on the records",
        ):
            released({"i": column})


@pytest.mark.parametrize("container", CONTAINERS)
def test_text_does_not_match_numbers_and_numbers_not_text(container):
    for labels, wrong in (
        (["1", "2"], [1, 2]),
        ([1, 2], ["1", "2"]),
        ([True, False], ["True", "False"]),
        ([0.5, 1.5], ["0.5"]),
    ):
        frame = container({"g": labels * 200, "i": HALVES})
        assert by_group(frame, labels) == [50.0, 60.0]
        with pytest.raises(ValueError, match=r"column 'g' holds .*, so no group is"):
            by_group(frame, wrong)


def test_categories_match_as_what_they_are_made_of():
    texts, numbers = ["1", "2"] * 200, [1, 2] * 200
    dictionary = pyarrow.array(texts).dictionary_encode()
    unsigned = pyarrow.DictionaryArray.from_arrays(
        dictionary.indices.cast("uint32"), dictionary.dictionary
    )
    enum = duckdb.sql(
        "select (1 + n % 2)::varchar::enum('2', '1') g, (50 + 10 * (n % 2))::double i from "
        "range(400) t(n)"
    )
    for frame in (
        pandas.DataFrame({"g": pandas.Categorical(texts), "i": HALVES}),
        polars.DataFrame({"g": polars.Series(texts, dtype=polars.Categorical), "i": HALVES}),
        polars.DataFrame({"g": polars.Series(texts, dtype=polars.Enum(["2", "1"])), "i": HALVES}),
        pyarrow.table({"g": dictionary, "i": HALVES}),
        pyarrow.table({"g": unsigned, "i": HALVES}),
        polars.DataFrame(
            {"g": polars.Series(texts, dtype=polars.Categorical), "i": HALVES}
        ).to_arrow(),
        enum,
    ):
        assert by_group(frame, ["1", "2"]) == [50.0, 60.0]
        with pytest.raises(ValueError, match="column 'g' holds text, so no group is 1"):
            by_group(frame, [1, 2])
    frame = pandas.DataFrame({"g": pandas.Categorical(numbers), "i": HALVES})
    assert by_group(frame, [1, 2]) == [50.0, 60.0]
    with pytest.raises(ValueError, match="column 'g' holds numbers, so no group is '1'"):
        by_group(frame, ["1", "2"])


@pytest.mark.parametrize("container", CONTAINERS)
def test_numbers_match_by_value(container):
    whole, halves = (
        container({"g": [1, 2] * 200, "i": HALVES}),
        container({"g": [1.0, 2.5] * 200, "i": HALVES}),
    )
    for labels in (
        [1, 2],
        [1.0, 2.0],
        [True, 2],
        [Decimal(1), 2.0],
        np.array([1, 2], np.uint8),
        [np.float32(1), np.int64(2)],
    ):
        assert by_group(whole, labels) == [50.0, 60.0]
    for labels in ([1, 2.5], [Decimal(1), 2.5], [True, Decimal("2.5")], [1.0, 2.5]):
        assert by_group(halves, labels) == [50.0, 60.0]
    # These have no record, and take none from the others
    for absent in (2.5, -1, 2**70, float("inf"), -(2**63) - 1):
        assert by_group(whole, [absent, 1, 2])[1:] == [50.0, 60.0]
    with pytest.raises(ValueError, match="no group is 1j"):
        by_group(whole, [1j])
    single = as_arrays({"g": [0.1, 0.2] * 200, "i": HALVES})
    single["g"] = single["g"].astype(np.float32)
    if container in (pandas.DataFrame, polars.DataFrame, as_arrays):
        assert by_group(container(single), [0.1, 0.2]) == [50.0, 60.0]


def test_decimals_match_as_they_are_written():
    arrow = pyarrow.table(
        {"g": pyarrow.array([Decimal("0.10"), Decimal("2.00")] * 200), "i": HALVES}
    )
    as_pandas = arrow.to_pandas(types_mapper=pandas.ArrowDtype)
    for frame in (arrow, polars.from_arrow(arrow), duckdb.from_arrow(arrow), as_pandas):
        for labels in ([0.1, 2], [Decimal("0.1"), Decimal(2)], [Decimal("0.1000"), 2.0]):
            assert by_group(frame, labels) == [50.0, 60.0]


@pytest.mark.parametrize("container", CONTAINERS[:-1])
def test_times_with_and_without_a_zone_do_not_match(container):
    naive = [datetime.datetime(2020, 1, 1, 1), datetime.datetime(2020, 1, 2)]
    aware = [moment.replace(tzinfo=datetime.UTC) for moment in naive]
    moved = [moment.astimezone(datetime.timezone(datetime.timedelta(hours=5))) for moment in aware]
    for cells, right, wrong in ((naive, [naive], [aware]), (aware, [aware, moved], [naive])):
        frame = container({"g": cells * 200, "i": HALVES})
        for labels in right:
            assert by_group(frame, labels) == [50.0, 60.0]
        for labels in wrong:
            with pytest.raises(
                ValueError,
                match=r"column 'g' holds times with.* a time zone, so "
                r"no group is",
            ):
                by_group(frame, labels)


@pytest.mark.parametrize("container", CONTAINERS[:-1])
def test_a_missing_label_is_refused_and_its_rows_are_in_no_group(container):
    frame = container({"g": ["a", None] * 200, "i": HALVES})
    assert by_group(frame, ["a"]) == [50.0]
    with pytest.raises(ValueError, match="missing labels are in no group"):
        by_group(frame, ["a", None])
    known = frames.release(
        frame, "i", by="g", groups=frames.PrivateGroups(30.0, 1e-6), **CERTAIN
    ).columns
    assert (list(known["g"]), list(known["released"])) == (["a"], [50.0])


def test_dates_times_and_durations_are_values():
    day = datetime.timedelta(days=1)
    days = polars.DataFrame({"i": [datetime.date(2013, 1, 1) + k * day for k in range(101)]})
    bounds = {
        "lower": datetime.date(2013, 1, 1),
        "upper": datetime.date(2013, 12, 31),
        "resolution": day,
        "epsilon": 64.0,
    }
    moments = days.select(polars.col("i").cast(polars.Datetime("ms")))
    times = {"lower": datetime.datetime(2013, 1, 1), "upper": datetime.datetime(2013, 12, 31)}
    lengths = moments.select(polars.col("i") - datetime.datetime(2013, 1, 1))
    spans = {"lower": 0 * day, "upper": 365 * day}
    for frame, options, right in (
        (days, {}, np.datetime64("2013-02-20")),
        (moments, times, np.datetime64("2013-02-20T00:00:00", "us")),
        (lengths, spans, np.timedelta64(50, "D")),
    ):
        for each in (
            frame,
            frame.lazy(),
            frame.to_arrow(),
            frame.to_pandas(),
            frame.to_arrow().to_pandas(types_mapper=pandas.ArrowDtype),
        ):
            assert abs(released(each, **bounds | options)[0] - right) <= np.timedelta64(1, "D")
        assert (
            frames.release(frame, "i", **BOUNDS | bounds | options)
            .frame["released"]
            .dtype.is_temporal()
        )


@pytest.mark.parametrize("kind", ["s", "ms", "us", "ns"])
def test_times_of_the_day_are_read_alike_in_every_unit(kind):
    cells = [*range(10, 19), None]
    seconds = pyarrow.array(cells, type=pyarrow.time32("s"))
    arrow = pyarrow.table(
        {"i": seconds.cast(pyarrow.time32(kind) if kind in ("s", "ms") else pyarrow.time64(kind))}
    )
    asked = {
        "lower": datetime.time(0, 0, 9),
        "upper": datetime.time(0, 0, 20),
        "resolution": datetime.timedelta(seconds=1),
    }
    for frame in (arrow, arrow.to_pandas(types_mapper=pandas.ArrowDtype), polars.from_arrow(arrow)):
        assert list(frames.simulate(0, frame, "i", **CERTAIN | asked).columns["value"]) == [
            datetime.time(0, 0, 14)
        ]


@pytest.mark.parametrize("container", CONTAINERS)
def test_a_person_with_many_rows_counts_once(container):
    frame = container({"who": [*range(999), *[999] * 1500], "i": [20.0] * 999 + [90.0] * 1500})
    found = frames.release(frame, "i", unit="who", **CERTAIN)
    assert list(found.columns["released"]) == [20.0]
    assert found.guarantee.unit == "person"
    assert released(frame) == [90.0]  # the control: of rows


def test_there_are_no_weights_and_a_sentence_says_why():
    frame = pandas.DataFrame({"i": [10, 20, 30], "w": [1, 5, 2]})
    for name in ("weights", "sample_weight"):
        with pytest.raises(
            TypeError,
            match=f"{name}= is not supported: each person counts once, by one row, or with unit=",
        ):
            released(frame, **{name: "w"})
        with pytest.raises(TypeError, match="is not supported: each person counts once"):
            frames.simulate(0, frame, "i", **CERTAIN, **{name: "w"})
    with pytest.raises(TypeError, match="no option 'wages'"):
        released(frame, wages="w")


def test_columns_of_pandas_are_named_by_anything():
    frame = pandas.DataFrame({0: HALVES, 1: [5, 6] * 200, ("a", 1): 50.0})
    found = frames.release(frame, 0, by=1, groups=[5, 6], **CERTAIN)
    assert found.frame[["released"]].to_numpy().ravel().tolist() == [50.0, 60.0]
    assert found.frame[1].tolist() == [5, 6]
    assert frames.release(frame, [("a", 1)], **CERTAIN).frame["released"].tolist() == [50.0]
    for names in (["i", "i"], [0, 0]):
        with pytest.raises(ValueError, match="several columns with the same name"):
            frames.release(pandas.DataFrame([[1, 2]], columns=names), names[0], **CERTAIN)


def test_integers_of_128_bits_are_numbers():
    column = polars.Series([50] * 200, dtype=polars.Int128)
    assert float(release.median(column, **CERTAIN)) == 50.0
    frame = polars.DataFrame(
        {"i": column, "g": polars.Series([2**100, -(2**100)] * 100, dtype=polars.Int128)}
    )
    assert released(frame) == [50.0]
    assert by_group(frame, [2**100, -(2**100)]) == [50.0, 50.0]
    assert released(duckdb.sql("select unnest([50, 50, 50, 50])::hugeint i")) == [50.0]


@pytest.mark.slow
def test_a_mean_of_many_records_takes_a_second():
    records = np.full(2**24 + 1, 5, np.int8)
    options = {"lower": 0, "upper": 100, "resolution": 1, "epsilon": 60.0, "neighbors": "swap"}
    assert float(release.mean(records, **options)) == pytest.approx(5.0, abs=1e-6)
    for kind in (pandas.DataFrame, polars.DataFrame):
        assert released(kind({"i": records}), **options, statistic=release.mean) == [
            pytest.approx(5.0, abs=1e-6)
        ]


@pytest.mark.parametrize("kind", ["pandas", "polars"])
def test_persons_need_what_a_release_has_in_every_kind_of_table(kind):
    make = pytest.importorskip(kind).DataFrame
    trips = make(
        {
            "who": [1, 1, 2] * 30,
            "borough": ["a", "b", "a"] * 30,
            "day": [datetime.date(2024, 1, 1)] * 90,
        }
    )
    boroughs = {
        "by": "borough",
        "groups": ["a", "b"],
        "unit": "who",
        "max_groups": 2,
        "neighbors": "add_remove",
    }
    found = frames.release(trips, "borough", statistic=release.count, epsilon=40.0, **boroughs)
    # Persons, of a column of text
    assert [float(value) for value in found.columns["released"]] == [2.0, 1.0]
    assert found.guarantee.unit == "person"
    with pytest.raises(ValueError, match="unit= needs a statistic with a resolution"):
        frames.simulate(
            0, trips, "who", unit="who", lower=0, upper=9, epsilon=1.0, neighbors="add_remove"
        )
    if kind == "polars":
        days = release.Median(
            datetime.date(2024, 1, 1), datetime.date(2025, 1, 1), datetime.timedelta(days=1)
        )
        with pytest.raises(ValueError, match="per_unit='count' is not a date"):
            frames.release(
                trips,
                {"day": days},
                unit="who",
                per_unit="count",
                epsilon=1.0,
                neighbors="add_remove",
            )


def test_groups_that_can_be_read_once_are_written_into_the_ledger(tmp_path):
    people = pandas.DataFrame({"g": ["a", "b"] * 50, "x": [50.0, 60.0] * 50})
    ledger = accounting.Ledger(tmp_path / "people.ledger", epsilon=60.0)
    asked = {
        "by": "g",
        "groups": (label for label in "ab"),
        "epsilon": 30.0,
        "neighbors": "add_remove",
        "budget": ledger,
    }
    found = frames.release(people, {"x": release.Median(0, 100, 1)}, **asked)
    assert [float(value) for value in found.columns["released"]] == [50.0, 60.0]
    assert ledger.entries[0]["what"]["groups"] == ["a", "b"]
