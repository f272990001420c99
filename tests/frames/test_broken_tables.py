"""What was broken once, each in the smallest table: labels that Python takes for equal, ids that
are missing, names, zero rows.
"""

import datetime
import itertools

import numpy as np
import pytest

from dpjax import frames, release
from tests.support.tables import Opened

narwhals = pytest.importorskip("narwhals")
pandas = pytest.importorskip("pandas")
polars = pytest.importorskip("polars")
pyarrow = pytest.importorskip("pyarrow")
duckdb = pytest.importorskip("duckdb")

DAY = datetime.timedelta(days=1)
BOUNDS = {"lower": 0, "upper": 100, "resolution": 1, "neighbors": "add_remove"}
CERTAIN = BOUNDS | {"epsilon": 60.0}
UNKNOWN = frames.PrivateGroups(30.0, 1e-6)


def as_duckdb(columns):
    arrow = pyarrow.table(columns)
    return duckdb.from_arrow(arrow)


CONTAINERS = [pandas.DataFrame, polars.DataFrame, pyarrow.table, as_duckdb, dict]


def released(frame, **options):
    return list(frames.release(frame, "x", **CERTAIN | options).columns["released"])


def tally_of(frame, statistic, neighbors="add_remove", persons=None):
    return Opened(frame, "x", statistic, neighbors=neighbors, persons=persons).tally()


def sizes_for_a_person(frame):
    """How many records a table of one person has in each group that a person's two groups make."""
    opened = Opened(
        frame, "x", release.Median(0, 100, 1), by="g", groups=UNKNOWN, persons=("who", None, 2)
    )
    return opened.sizes()[1].tolist()


def test_labels_that_python_takes_for_equal_never_hold_one_person_twice():
    whole = polars.Series([1_600_000_000_000_000_000 + k for k in (1, 2)])
    # 2:30 in Berlin, twice
    clocks = [datetime.datetime(2023, 10, 29, hour, 30, tzinfo=datetime.UTC) for hour in (0, 1)]
    for labels in (
        whole.cast(polars.Datetime("ns")),
        whole.cast(polars.Duration("ns")),
        polars.Series([1, 2]).cast(polars.Time),
        polars.Series(clocks).dt.convert_time_zone("Europe/Berlin"),
        polars.Series(["a", "b"]),
    ):
        frame = polars.DataFrame({"x": [1.0, 1.0], "who": [1, 1], "g": labels})
        arrow = frame.to_arrow()
        kinds = [frame, frame.lazy(), arrow, arrow.to_pandas(types_mapper=pandas.ArrowDtype)]
        refused = labels.dtype in (polars.Time, polars.Duration)
        kinds += [] if refused else [duckdb.from_arrow(arrow)]
        for each in kinds:
            assert max(sizes_for_a_person(each), default=0) <= 1
    assert sizes_for_a_person(
        polars.DataFrame({"x": [1.0, 1.0], "who": [1, 2], "g": ["a", "a"]})
    ) == [2]  # the control: two persons
    with pytest.raises(TypeError, match="column 'g'"):
        sizes_for_a_person(duckdb.sql("select 1.0 x, 1 who, '10:00:00+01'::timetz g"))


def test_persons_that_pandas_takes_for_equal_are_not_put_together():
    arrow = pyarrow.table(
        {"x": [1.0, 99.0], "who": pyarrow.array([0, 1], pyarrow.int64()).cast(pyarrow.time64("ns"))}
    )
    tally = tally_of(
        arrow.to_pandas(types_mapper=pandas.ArrowDtype),
        release.Median(0, 100, 1),
        persons=("who",),
    )
    assert tally.position.tolist() == [1]  # of the one that Python can tell


@pytest.mark.parametrize("more", [18_262, 2**31 - 2, -(2**31) + 2, 10**8, None])
def test_a_date_that_ends_polars_is_no_label(more):
    days = polars.Series([18_262] * 60 + [more], dtype=polars.Int32).cast(polars.Date)
    for labels in (
        days,
        days.cast(polars.Datetime("ms")),
        days.cast(polars.Datetime("ms")).dt.replace_time_zone("UTC"),
    ):
        known = frames.release(
            polars.DataFrame({"g": labels, "x": 50.0}), "x", by="g", groups=UNKNOWN, **CERTAIN
        )
        assert list(known.columns["released"]) == [50.0]


def worst_of_ids(law):
    """The largest loss at epsilon 1 of all lists of six ids that differ in one, which may be
    missing.
    """
    ids = (None, "a", "b", "c")
    every = {rows: law(rows) for rows in itertools.combinations_with_replacement(ids, 6)}
    worst = 0.0
    for rows, place, other in itertools.product(every, range(6), ids):
        changed = tuple(sorted([*rows[:place], other, *rows[place + 1 :]], key=ids.index))
        worst = max(worst, float(np.max(np.abs(every[rows] - every[changed]))))
    return worst


def test_a_missing_id_is_no_other_id():
    statistic = release.DistinctCount(tau=1, upper=4)

    def law(rows, one_of_them=False):
        frame = pandas.DataFrame({"x": pandas.Series(list(rows), dtype="str")})
        tally = tally_of(frame, statistic, "swap")
        if one_of_them:
            tally.position[tally.position < 0] = 0
        return (
            statistic.distribution(tally.counts(statistic, 1, "swap"), 1.0, "swap")
            .log_pmf(np.arange(5.0)[:, None])
            .ravel()
        )

    assert 0.6 < worst_of_ids(law) <= 1 + 1e-12
    # The control: the number of the first one
    assert worst_of_ids(lambda rows: law(rows, one_of_them=True)) > 1.4
    found = release.distinct_count(
        [None, "a", None, "b"] * 50, tau=1, upper=9, epsilon=60.0, neighbors="swap"
    )
    assert float(found) == 0.0 or float(found) == 2.0


def test_records_that_all_count_for_nothing_are_records_under_swap():
    for statistic in (release.Mode((21.0, 25.0)), release.DistinctCount(1, 9)):
        for cells, who in itertools.product(
            ([21.0, 21.0], [np.nan, np.nan], [7.0, 7.0]), ({}, {"unit": "who", "per_unit": "min"})
        ):
            for kind in CONTAINERS:
                frame = kind({"x": np.array(cells), "who": np.arange(2)})
                found = frames.release(
                    frame, "x", statistic=statistic, epsilon=1.0, neighbors="swap", **who
                )
                assert len(found.columns["released"]) == 1
    with pytest.raises(ValueError, match="frame must have records under swap neighbors"):
        frames.release(
            {"x": np.zeros(0)}, "x", statistic=release.Mode((1, 2)), epsilon=1.0, neighbors="swap"
        )


@pytest.mark.parametrize("kind", CONTAINERS)
def test_a_group_that_is_not_asked_for_takes_no_place_of_another_one(kind):
    named = [("a", 1), ("b", 2), ("c", 1), ("c", 3)]
    rows = [("a", 2)] * 3 + [("b", 2), ("c", 2), ("c", 2), ("c", 3)]  # of one person
    frame = kind(
        {
            "a": np.array([a for a, _ in rows]),
            "b": np.array([b for _, b in rows]),
            "x": np.full(7, 50.0),
            "who": np.ones(7),
        }
    )
    found = frames.release(
        frame,
        "x",
        statistic=release.count,
        by=["a", "b"],
        groups=named,
        unit="who",
        max_groups=2,
        epsilon=60.0,
        neighbors="add_remove",
    )
    assert list(found.columns["released"]) == [0.0, 1.0, 0.0, 1.0]


@pytest.mark.parametrize("kind", CONTAINERS)
def test_very_many_groups_of_two_columns(kind):
    size = 5000
    frame = kind(
        {
            "a": np.arange(size),
            "b": np.arange(size) % 7,
            "x": np.full(size, 50.0),
            "who": np.arange(size),
        }
    )
    groups = [(k, k % 7) for k in range(size)]
    assert set(
        released(frame, by=["a", "b"], groups=groups, unit="who", max_groups=2, epsilon=64.0)
    ) <= {*np.arange(101.0)}


@pytest.mark.parametrize("kind", CONTAINERS)
@pytest.mark.parametrize("neighbors", ["add_remove", "swap"])
def test_the_value_that_is_kept_of_a_person_is_the_same_in_every_engine(kind, neighbors):
    cells = {
        "x": np.array([5.0, 21.0, np.nan, 25.0, np.nan, np.nan, 21.0, 99.0]),
        "who": np.array([1, 1, 2, 2, 3, 3, 4, 4]),
    }
    for rule, kept in (("min", [5.0, 25.0, 21.0]), ("max", [21.0, 25.0, 99.0])):
        missing = neighbors == "swap"
        for statistic, right in (
            (release.Mode((21, 25)), [(21, 25).index(x) if x in (21, 25) else -1 for x in kept]),
            (
                release.Median(grid=release.Floats(2)),
                release.Floats(2).numbers_of(np.array(kept))[0].tolist(),
            ),
        ):
            tally = tally_of(kind(cells), statistic, neighbors, persons=("who", rule))
            assert sorted(tally.position.tolist()) == sorted([*right, *[-1] * missing])


@pytest.mark.parametrize("kind", CONTAINERS)
def test_persons_are_counted_whatever_their_rows_become(kind):
    frame = kind({"x": np.array([1.0, 2.0, np.nan, 3.0]), "who": np.array([1, 1, 2, 3])})
    for rule in (None, "mean", "max"):
        found = frames.release(
            frame,
            {"x": release.Count()},
            unit="who",
            per_unit=rule,
            epsilon=60.0,
            neighbors="add_remove",
        )
        assert list(found.columns["released"]) == [2.0]


@pytest.mark.parametrize("kind", CONTAINERS)
@pytest.mark.parametrize("far", [0, 2**50, -(2**50)])
def test_bounds_far_from_zero_thirds_and_large_sums_are_exact(kind, far):
    who = np.repeat(np.arange(60), 2)
    frame = kind({"x": far + np.tile([2.0, 5.0], 60), "who": who})
    for rule, right in (("min", 2), ("max", 5), ("mean", 4)):  # 3.5 is rounded up
        tally = tally_of(frame, release.Median(far, far + 10, 1), persons=("who", rule))
        assert set(tally.position.tolist()) == {right}
    thirds = kind({"x": np.tile([1 / 3, 2 / 3], 60), "who": who})
    for rule, right in (("min", 1), ("max", 2), ("mean", 2), (None, 2), ("sum", 3)):
        tally = tally_of(thirds, release.Median(0, 10, "1/3"), persons=("who", rule))
        assert set(tally.position.tolist()) == {right}
    high = 2**31 - 3
    large = kind({"x": np.full(10**4, float(high)), "who": np.zeros(10**4, np.int64)})
    for rule in ("sum", "mean"):
        tally = tally_of(large, release.Median(0, high, 1), persons=("who", rule))
        assert tally.position.tolist() == [high]


def test_infinite_dates_and_endless_intervals_of_duckdb_decide_nothing():
    for kind, start in (
        ("date", datetime.date(2020, 1, 1)),
        ("timestamp", datetime.datetime(2020, 1, 1)),
    ):
        asked = {"lower": start, "upper": start + 100 * DAY, "resolution": DAY}
        for more in ("2020-01-01", "infinity", "-infinity", "290000-01-01 (BC)"):
            many = (
                f"select 50.0::double y, {kind} '2020-01-01' x from range(60) union all select "
                f"7.0, {kind} '{more}'"
            )
            assert released(duckdb.sql(many), **asked) == [np.datetime64(start)]
            assert frames.release(duckdb.sql(many), "y", by="x", groups=[start], **CERTAIN).columns[
                "released"
            ].tolist() == [50.0]
    lengths = "select interval 1 hour x from range(60) union all select interval 2147483647 months"
    asked = {"lower": 0 * DAY, "upper": DAY, "resolution": DAY / 24}
    assert released(duckdb.sql(lengths), **asked) == [np.timedelta64(1, "h")]


@pytest.mark.parametrize("zone", ["UTC", "America/New_York"])
def test_an_instant_is_the_same_whatever_the_clock_of_the_session(zone):
    connection = duckdb.connect()
    connection.execute(f"set timezone='{zone}'")
    start = datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC)
    frame = connection.sql("select '2020-01-01 05:00:00+00'::timestamptz x from range(60)")
    asked = {"lower": start, "upper": start + DAY, "resolution": DAY / 24}
    assert released(frame, **asked) == [start + DAY * 5 / 24]


ZERO = {"x": np.zeros(0), "g": np.zeros(0, "U1"), "who": np.zeros(0, np.int64)}
MISSING = {"x": np.full(5, np.nan), "g": np.full(5, "a"), "who": np.arange(5)}
CALLS = [
    {},
    {"by": "g", "groups": ["a"]},
    {"by": "g", "groups": []},
    {"by": "g", "groups": frames.PrivateGroups(1.0, 1e-9)},
    {"unit": "who"},
    {"by": "g", "groups": ["a"], "unit": "who", "max_groups": 2},
    {"by": "g", "groups": frames.PrivateGroups(1.0, 1e-9), "unit": "who", "max_groups": 2},
]


@pytest.mark.parametrize("kind", CONTAINERS)
@pytest.mark.parametrize("columns", [ZERO, MISSING], ids=["no row", "no value"])
def test_no_rows_and_no_values_are_released_like_others(kind, columns):
    for call in CALLS:
        found = frames.release(kind(columns), "x", **BOUNDS | {"epsilon": 1.0} | call)
        public = "groups" not in call or call["groups"] == ["a"]
        assert len(found.columns["released"]) == public


@pytest.mark.parametrize("kind", CONTAINERS)
def test_columns_may_have_the_names_that_are_used_inside(kind):
    names = ["value", "unit", "count", "group0", "rows", "there", "place", "fewer"]
    cells = {name: np.array(["a", "b"] * 60) for name in names} | {
        "x": np.full(120, 50.0),
        "who": np.arange(120),
    }
    for by in names:
        for call in (
            {"by": by, "groups": ["a"]},
            {"by": ["unit", by], "groups": [("a", "a")], "unit": "who", "max_groups": 2},
        ):
            assert released(kind(cells), **call) == [50.0]
    swapped = {
        "unit": np.full(120, 50.0),
        "value": np.arange(120),
        "group0": np.array(["a", "b"] * 60),
    }
    found = frames.release(
        kind(swapped), "unit", by="group0", groups=["b"], unit="value", **CERTAIN
    )
    assert list(found.columns["released"]) == [50.0]
    taken = {"epsilon": np.array(["a"] * 9), "x": np.zeros(9)}
    with pytest.raises(ValueError, match="by must not be 'epsilon'"):
        released(kind(taken), by="epsilon", groups=["a"])


def test_frames_of_narwhals_are_taken_and_columns_are_not():
    frame = pandas.DataFrame({"x": [50.0] * 100})
    for given in (
        narwhals.from_native(frame),
        narwhals.from_native(polars.from_pandas(frame).lazy()),
    ):
        assert released(given) == [50.0]
    for wrong in (frame["x"], np.ones(3), [1.0], None, polars.Series([1.0])):
        with pytest.raises(TypeError, match="frame must be of pandas, Polars"):
            released(wrong)
    for scalar in (np.array(3.0), np.ones((2, 2))):
        with pytest.raises(ValueError, match="column 'x' must be an array of one axis"):
            released({"x": scalar})
