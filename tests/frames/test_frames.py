"""Releases and simulations of tables: what they return, cost, say and refuse."""

import datetime
import os
import re
from functools import partial
from statistics import NormalDist

import numpy as np
import pytest

from dpjax import frames, release
from dpjax.accounting import BudgetExceeded, Ledger, PrivacyFilter
from dpjax.release import Count, DistinctCount, Floats, Median, Mode, NonnegativeSum, Quantiles, Sum
from tests.support.statistics import FALSE_POSITIVE_RATE
from tests.support.tables import (
    IN_MEMORY,
    OTHERS,
    as_dask,
    as_duckdb,
    as_lazy_polars,
    as_polars,
    as_spark,
    counted,
    narwhals,
    polars,
    pyarrow,
)

pytestmark = [
    pytest.mark.filterwarnings("ignore:Dask support is moving"),
    pytest.mark.filterwarnings("ignore:os.fork"),  # PySpark, where JAX was used before
]
ADD, SWAP = {"neighbors": "add_remove"}, {"neighbors": "swap"}
SURE = ADD | {"epsilon": 64.0}
TO_120 = {"lower": 0, "upper": 120, "resolution": 1}
AGE = Median(**TO_120)
DAY = datetime.timedelta(days=1)
UNKNOWN = frames.PrivateGroups(1.0, 1e-3)
ROWS = pyarrow.table(
    {
        "region": ["north", "south", "north", None, "south", "north", "east"] * 8,
        "age": [34.0, 51.0, 34.0, 9.0, None, 34.0, 70.0] * 8,
        "who": [0, 0, 1, 2, 3, 3, 4] * 8,
    }
)
PEOPLE = as_polars(ROWS)
REGIONS = {"by": "region", "groups": ["south", "north", "west"]}
FOUND = REGIONS | {"groups": UNKNOWN}
PERSONS = REGIONS | {"unit": "who"}


@pytest.mark.parametrize("kind", [*IN_MEMORY, *OTHERS])
def test_a_frame_of_the_same_library_comes_back_or_of_polars(kind):
    people = kind(ROWS)
    found = frames.release(people, {"age": AGE}, by="region", groups=["south", "north"], **SURE)
    assert str(found.guarantee) == "64-DP under add_remove neighbors, for a row"
    assert found.rows.columns == ["region", "column", "released", "epsilon"]
    assert found.rows.rows() == [("south", "age", 51.0, 64.0), ("north", "age", 34.0, 64.0)]
    kept = kind not in (as_polars, as_lazy_polars, as_dask, as_spark)
    assert type(found.frame) is (type(people) if kept else polars.DataFrame)
    again = narwhals.from_native(found.frame).lazy().collect("polars").to_native()
    assert again.equals(found.rows)
    simulated = frames.simulate(0, people, {"age": AGE}, by="region", **SURE).rows
    assert simulated.select("region", "records", "missing", "value", "simulated").rows() == [
        ("east", 8, 0, 70.0, 70.0),
        ("north", 24, 0, 34.0, 34.0),
        ("south", 8, 8, 51.0, 51.0),
    ]


CALLS = {  # a statistic, its relation of neighbors, and epsilon
    "median": (AGE, SWAP, 0.3),
    "piecewise Laplace": (AGE, ADD | {"mechanism": "piecewise_laplace"}, 0.3),
    "floats": (release.Quantile(0.9, grid=Floats(1, -1, 3)), ADD, 0.5),
    "maximum": (release.Maximum(9, **TO_120), ADD, 0.3),
    "nonnegative sum": (NonnegativeSum(9, 5000, 1), SWAP, 0.3),
    "mean": (release.Mean(**TO_120), SWAP, 0.3),
    "count": (Count(), ADD, 0.5),
    "distinct": (DistinctCount(2, 60), SWAP, 1.0),
    "quantiles": (Quantiles((0.25, 0.5, 0.75), **TO_120), ADD, 2.0),
    "quantiles of as many": (Quantiles((0.2, 0.5), **TO_120), SWAP, 1.0),
}
AGES = np.random.default_rng(5).integers(20, 60, 60).astype(float)
GROUPED = polars.DataFrame({"age": AGES + [0, 9] * 30, "region": ["north", "south"] * 30})
CRITICAL = NormalDist().inv_cdf(1 - FALSE_POSITIVE_RATE / 2)
DRAWS = 1000


@pytest.mark.parametrize("name", CALLS)
def test_a_release_is_off_by_what_its_simulation_says(name):
    """Of every group and level: the error of the draws, and how many are in the interval."""
    statistic, call, epsilon = CALLS[name]
    by = {"by": "region", "groups": ["south", "north"]} if call["neighbors"] == "add_remove" else {}
    parts = [GROUPED.filter(region=name) for name in by["groups"]] if by else [GROUPED]
    own = np.array([part["age"] for part in parts], int)
    exact = statistic.distribution(own, epsilon=epsilon, **call)
    value, error = exact.value, exact.mean_abs_error(exact.value)
    low, high = exact.interval(0.95)
    given = GROUPED, {"age": statistic}
    options = {"epsilon": epsilon, "draws": DRAWS} | call | by
    planned, found = frames.simulate(3, *given, **options), frames.release(*given, **options)
    assert found.guarantee == planned.guarantee
    assert found.guarantee.epsilon == pytest.approx(DRAWS * epsilon)

    def cells(result, name):  # of draws, groups and levels
        groups = result.rows[name].to_numpy().reshape(len(parts), DRAWS, *value.shape[1:])
        return np.swapaxes(groups, 0, 1)

    bars = {"value": value, "mean_abs_error": error, "lower95": low, "upper95": high}
    for name, bar in bars.items():
        np.testing.assert_allclose(cells(planned, name)[0], bar, rtol=1e-9)
    noise = 1 / DRAWS + isinstance(statistic, Quantiles) / 1000  # whose bars are measured
    for drawn in (cells(planned, "simulated"), cells(found, "released")):
        errors = np.abs(drawn - value)
        margin = CRITICAL * errors.std(axis=0) * np.sqrt(noise)
        assert np.all(np.abs(errors.mean(axis=0) - error) <= margin)
        within = ((low <= drawn) & (drawn <= high)).mean(axis=0)
        assert np.all(within >= 0.95 - CRITICAL * np.sqrt(0.05 * 0.95 * noise))
    wrong = statistic.distribution(own, epsilon=10 * epsilon, **call).mean_abs_error(value)
    assert np.any(np.abs(errors.mean(axis=0) - wrong) > margin)  # the control


def test_several_statistics_of_several_columns():
    asked = {"age": [AGE, Count()], "who": Quantiles((0.25, "1/2"), 0, 120, 1)}
    found = frames.release(PEOPLE, asked, draws=2, **REGIONS, **SURE)
    rows = found.rows.filter(region="north")
    names = ["column", "statistic", "quantile", "draw", "released"]
    assert rows.select(names).rows() == [
        *(("age", "Median", None, draw, 34.0) for draw in (1, 2)),
        *(("age", "Count", None, draw, 24.0) for draw in (1, 2)),
        *(("who", "Quantiles", q, draw, 4 * q - 1) for draw in (1, 2) for q in (0.25, 0.5)),
    ]
    assert found.rows.columns == ["region", *names, "epsilon"]
    assert found.guarantee.epsilon == 64 * 2 * 3


COSTS = [  # options, and what all costs at epsilon 1/2
    ({}, 0.5),
    (REGIONS, 0.5),
    ({"draws": 3}, 1.5),
    ({"unit": "who"}, 0.5),
    ({"unit": "who", "max_groups": 2}, 0.5),
    (PERSONS, 0.5),
    (PERSONS | {"max_groups": 2, "draws": 3}, 3.0),
    (PERSONS | {"max_groups": 10}, 1.5),  # nobody is in more groups than there are
    (FOUND, 1.5),
    (PERSONS | {"groups": UNKNOWN, "max_groups": 2}, 3.0),
    (REGIONS | {"groups": [], "unit": "who", "max_groups": 2}, 0.5),
]


@pytest.mark.parametrize(("options", "cost"), COSTS)
def test_a_budget_is_charged_what_all_costs_and_before_anything_is_drawn(
    options, cost, monkeypatch
):
    asked, before, urandom, of = [], [], os.urandom, {"epsilon": 0.5} | ADD
    monkeypatch.setattr("os.urandom", lambda size: asked.append(size) or urandom(size))

    class Watched(PrivacyFilter):
        def charge(self, *given):
            before.append(list(asked))
            super().charge(*given)

    budget = Watched(cost, 0.9, "add_remove", mechanism_delta=0.9)
    found = frames.release(PEOPLE, {"age": AGE}, budget=budget, **of, **options)
    assert found.guarantee.epsilon == pytest.approx(cost, rel=1e-12)
    assert found.guarantee.unit == ("person" if "unit" in options else "row")
    assert before == [[]]
    assert asked or not options.get("groups", True)
    assert budget.remaining == pytest.approx(0, abs=1e-9)
    private = isinstance(options.get("groups"), frames.PrivateGroups)
    assert (found.guarantee.delta > 0) == private
    asked.clear()
    with pytest.raises(BudgetExceeded):
        frames.release(PEOPLE, {"age": AGE}, budget=budget, **of, **options)
    assert not asked


def test_a_ledger_says_what_was_released(tmp_path):
    ledger = Ledger(tmp_path / "people.ledger", epsilon=9.0, delta=0.1)
    options = SURE | {"epsilon": 1.0, "budget": ledger, "by": "region", "unit": "who"}
    frames.release(PEOPLE, {"age": [AGE, Count()]}, groups=iter(["north"]), **options)
    options["budget"] = ledger.part("north").noted("2026-03")
    frames.release(PEOPLE, {"age": AGE}, groups=UNKNOWN, **options)
    with pytest.raises(ValueError, match="who"):  # persons of another column
        frames.release(PEOPLE, {"age": AGE}, **options | {"groups": ["north"], "unit": "age"})
    one, two = (str(entry["what"]) for entry in ledger.entries)
    assert f"age: {AGE}" in one
    assert "2026-03" in two
    assert [entry["part"] for entry in ledger.entries] == ["", "north"]


def test_private_groups_have_the_sizes_of_persons_who_count_in_few():
    rows = {"who": [*range(40)] * 3, "g": ["b"] * 40 + ["a"] * 80, "x": 1.0}
    groups, asked = frames.PrivateGroups(30.0, 1e-9), {"x": Count()}
    for most, sizes in ((1, [("a", 40)]), (2, [("a", 40), ("b", 40)])):
        options = {"by": "g", "groups": groups, "unit": "who", "max_groups": most} | SURE
        found = frames.release(polars.DataFrame(rows), asked, **options).rows
        assert found.select("g", "noisy_size").rows() == sizes
        planned = frames.simulate(0, polars.DataFrame(rows), asked, **options).rows
        assert planned.select("g", "probability_kept").rows() == [(g, 1.0) for g, _ in sizes]


def test_means_and_sums_of_persons_do_not_depend_on_the_order_of_rows():
    """A sum of floats does, and an engine's order may depend on the rows of others."""
    cells, seen, sums = [2.0**20, -(2.0**20), 0.7, 0.9, 0.9], set(), set()
    statistic = Median(-(2**20), 2**20, 1)
    for seed in range(12):
        x = np.random.default_rng(seed).permutation(cells)
        for rule in ("mean", "sum"):
            options = SURE | {"unit": "who", "per_unit": rule}
            found = frames.simulate(
                0, polars.DataFrame({"x": x, "who": 1}), {"x": statistic}, **options
            )
            seen.add((rule, found.rows["value"][0]))
        sums.add(sum(x.tolist()) >= 2.5)
    assert seen == {("mean", 1.0), ("sum", 3.0)}
    assert len(sums) == 2  # the control


def test_every_group_of_many_blocks_has_its_own_records():
    groups = np.arange(9000)
    people = polars.DataFrame({"g": np.tile(groups, 3), "age": np.tile(groups % 100, 3)})
    found = frames.simulate(0, people, {"age": AGE}, by="g", **SURE).rows
    np.testing.assert_array_equal(found["simulated"], groups % 100)
    drawn = frames.release(people, {"age": AGE}, by="g", groups=groups[::-1], **SURE).rows
    np.testing.assert_array_equal(drawn["released"], groups[::-1] % 100)


MICROSECOND, EPOCH = datetime.timedelta(microseconds=1), datetime.datetime(1970, 1, 1)
NEAR_1970 = Median(EPOCH - 5 * MICROSECOND, EPOCH + 5 * MICROSECOND, MICROSECOND)
IDS = [0, None, 50, 50, None]
COUNTED = {  # cells, a statistic, how persons are combined, and the records of each position
    "a missing id is no other id": (IDS, DistinctCount(1, 9), None, {0: 1, 1: 2, None: 2}),
    "a missing label is no other": (IDS, Mode((0, 50)), None, {0: 1, 1: 2, None: 2}),
    "nanoseconds before 1970 are floored to microseconds": (
        polars.Series([-1, -1000, 999], dtype=polars.Datetime("ns")),
        NEAR_1970,
        None,
        {4: 2, 5: 1},
    ),
    "means are rounded to the nearest third, 1/2 up": (
        [0.0, 1.0, 0.67, 0.7],
        Median(0, 2, "1/3"),
        ("who", "mean"),
        {2: 3},
    ),
}


@pytest.mark.parametrize("name", COUNTED)
def test_the_counts_of_a_column(name):
    cells, statistic, persons, wanted = COUNTED[name]
    people = polars.DataFrame({"x": cells}).with_row_index("who")
    people = people.with_columns(who=polars.max_horizontal("who", 1))
    for neighbors in ("add_remove", "swap") if persons is None else ("add_remove",):
        found = counted(people, "x", statistic, persons=persons, neighbors=neighbors)
        assert found == {((), place): number for place, number in wanted.items()}


def test_a_seed_decides_a_simulation():
    def drawn(seed, **more):
        found = frames.simulate(seed, PEOPLE, {"age": AGE}, epsilon=0.1, draws=20, **ADD, **more)
        return found.rows["simulated"].to_list()

    assert drawn(5) == drawn(np.int64(5)) != drawn(6)
    for wrong in (-1, 0.5, None):
        with pytest.raises((TypeError, ValueError), match="seed"):
            drawn(wrong)


NEW_YEAR = datetime.datetime(2013, 1, 1)
AWARE = NEW_YEAR.replace(tzinfo=datetime.UTC)
KINDS = [  # the type of Arrow, the first value, and the public resolution
    ("date32", NEW_YEAR.date(), DAY),
    (pyarrow.timestamp("us"), NEW_YEAR, DAY / 24),
    (pyarrow.timestamp("ns"), NEW_YEAR, DAY),
    (pyarrow.timestamp("us", "America/New_York"), AWARE, DAY / 24),
    (pyarrow.timestamp("us", "+05:00"), AWARE, DAY),
    (pyarrow.duration("us"), 0 * DAY, DAY),
]


@pytest.mark.parametrize("kind", [*IN_MEMORY, as_duckdb])
@pytest.mark.parametrize(("dtype", "start", "step"), KINDS)
def test_dates_times_and_durations_come_back_as_what_they_are(kind, dtype, start, step):
    cells = pyarrow.array([start + k * DAY for k in range(101)] + [None], dtype)
    if kind is as_duckdb and pyarrow.types.is_duration(cells.type):
        return  # refused: test_dtypes
    table, asked = kind(pyarrow.table({"x": cells})), {"x": Median(start, start + 364 * DAY, step)}
    found = frames.simulate(0, table, asked, epsilon=1.0, **ADD).rows.row(0, named=True)
    for name in ("value", "lower95", "upper95", "simulated"):
        assert type(found[name]) is type(start)
        assert found[name] + 0 * DAY - start >= 0 * DAY  # with a zone or without, as it was
    assert found["value"] == start + 50 * DAY
    assert found["lower95"] < found["value"] < found["upper95"]
    assert 0 * DAY < found["mean_abs_error"] < 20 * DAY
    drawn = frames.release(table, asked, **SURE).rows["released"][0]
    assert abs(drawn - found["value"]) <= DAY


def test_a_group_without_values_has_no_value():
    table = polars.DataFrame({"g": ["a", "b"], "x": [5.0, None]})
    options = ADD | {"by": "g", "groups": ["b", "c"], "epsilon": 1.0}
    asked = [AGE, Mode((1, 2)), Count(), NonnegativeSum(2, 9, 1), DistinctCount(1, 9)]
    found = frames.simulate(0, table, {"x": asked}, **options).rows
    assert found["records"].to_list() == [0] * 10
    assert found["missing"].to_list() == [1, 0] * 5
    assert found["value"].to_list() == [None] * 4 + [0.0] * 6
    assert found["mean_abs_error"].null_count() == 4
    assert found["simulated"].null_count() == 0


def test_many_records_at_or_beyond_a_bound_are_said():
    people = polars.DataFrame({"age": [*range(1, 14), *range(31, 118)]})

    def note(statistic):
        return frames.simulate(0, people, {"age": statistic}, epsilon=1.0, **ADD).note

    assert note(Median(0, 96, 1)) == ""  # 22 %
    assert re.search("87 %.* age ", note(Median(0, 30, 1)))
    assert re.search("87 %.* age ", note(Sum(0, 30, 1)))
    assert note(Sum(0, 1, 1)) == ""  # zeros and ones are at the bounds
    assert frames.release(people, {"age": Median(0, 30, 1)}, **SURE).note == ""


def test_rows_that_do_not_count_are_said_by_a_simulation_alone():
    asked, left = (PEOPLE, {"age": [AGE, Count()]}), "of 56 rows of age do not count: they are of"
    no_group = f"16 {left} no group or no person."
    for most, more in ((2, ""), (1, f" 8 {left} further groups than max_groups.")):
        options = SURE | PERSONS | {"max_groups": most}
        assert frames.simulate(0, *asked, **options).note == no_group + more
        assert frames.release(*asked, **options).note == ""


def test_all_digits_that_are_released_are_printed():
    cents = polars.DataFrame({"fare": [12345.67] * 400, "g": [f"<{k % 25}>" for k in range(400)]})
    asked = {"fare": Median(0, 100000, "0.01")}
    one = frames.release(cents, asked, **SURE)
    many = polars.select(x=polars.repeat(1, 1_234_567))
    counts = frames.simulate(0, many, {"x": Count()}, **SURE)
    for found, text in ((one, "12345.67"), (counts, "1234567")):
        for shown in (repr(found), found.table(), found._repr_html_()):
            assert re.search(rf"\b{text}( |$)", shown, re.MULTILINE)
    groups = frames.release(cents, asked, by="g", groups=cents["g"].unique(), **SURE)
    assert len(groups.table(rows=None).splitlines()) == 26
    assert "<1" not in groups._repr_html_()


NAMES = ["row", "0", "1", "times", "who", "group", "rows", "there"]


@pytest.mark.parametrize("kind", [*IN_MEMORY, as_duckdb])
def test_columns_may_have_the_names_that_are_used_inside(kind):
    cells = {name: ["a", "b"] * 60 for name in NAMES} | {"x": [50.0, 60.0] * 60}
    table = kind(pyarrow.table(cells | {"y": cells["0"], "id": range(120)}))
    for name in NAMES:
        for more in ({}, {"unit": "id", "max_groups": 2}):
            asked = {"by": [name, "y"], "groups": [("a", "b"), ("a", "a")]} | more
            found = frames.simulate(0, table, {"x": AGE, name: Count()}, **asked, **SURE).rows
            assert found["records"].to_list() == [0, 60, 0, 60]
            assert found[name].to_list() == ["a"] * 4


def test_columns_of_pandas_are_named_by_anything():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({0: [50.0, 60.0] * 50, 1: [5, 6] * 50, ("a", 1): 50.0})
    found = frames.release(frame, {0: AGE, ("a", 1): AGE}, by=1, groups=[5, 6], **SURE)
    assert found.frame[1].tolist() == [5, 6, 5, 6]
    assert found.frame["released"].tolist() == [50.0, 60.0, 50.0, 50.0]


REFUSED = [  # what is wrong, the word that the message has
    ({"frame": "people.csv"}, "read the file first"),
    ({"frame": {"age": AGE}, "columns": PEOPLE}, "columns"),
    ({"columns": {"age": []}}, "columns"),
    ({"columns": {"age": release.Histogram((0, 1))}}, "'age'"),
    ({"columns": {"wage": AGE}}, "'wage'"),
    ({"columns": {"age": AGE, "who": Median(0 * DAY, DAY, DAY)}}, "columns"),
    ({"by": "region", "groups": "north"}, "groups"),
    ({"by": ["region", "who"], "groups": [("a",)]}, "tuples"),
    ({"by": "who", "groups": ["north"]}, "'who'"),
    ({"by": "who", "groups": [None]}, "'who'"),
    ({"groups": ["north"]}, "by"),
    ({"by": "epsilon", "groups": ["a"]}, "by"),
    ({"by": "region", "groups": ["a"]} | SWAP, "by"),
    ({"columns": {"age": Count()}} | SWAP, "neighbors"),
    ({"frame": PEOPLE[:0], "columns": {"age": release.Mean(**TO_120)}} | SWAP, "record"),
    ({"per_unit": "mean"}, "unit"),
    ({"frame": PEOPLE.to_pandas().set_axis(["age", "age", "who"], axis=1)}, "'age'"),
    ({"unit": "*", "frame": PEOPLE.rename({"who": "*"})}, "pattern"),
    ({"unit": "who", "columns": {"age": Mode((1, 2))}}, "per_unit"),
    (
        {"unit": "who", "columns": {"age": Median(2**40, 2**40 + 9, 1)}, "per_unit": "sum"},
        "resolution",
    ),
    (
        {"unit": "who", "columns": {"age": Median(AWARE, AWARE + DAY, DAY)}, "per_unit": "sum"},
        "per_unit",
    ),
    ({"epsilon": 0.0}, "epsilon"),
    ({"draws": 2**25}, "draws"),
    ({"mechanism": "exponential", "columns": {"age": Count()}}, "mechanism"),
]


@pytest.mark.parametrize(("changes", "word"), REFUSED)
def test_a_mistake_is_one_sentence_and_charges_nothing(changes, word):
    asked = {"frame": PEOPLE, "columns": {"age": AGE}, "epsilon": 0.5} | ADD | changes
    relation = "swap" if asked["neighbors"] == "swap" else "add_remove"
    budget = PrivacyFilter(1.0, 0.5, relation)
    texts = []
    for run in (partial(frames.release, budget=budget), partial(frames.simulate, 0)):
        with pytest.raises((TypeError, ValueError), match=word) as raised:
            run(**asked)
        texts.append(str(raised.value))
    assert texts[0] == texts[1]
    assert texts[0].endswith(".")
    assert "\n" not in texts[0]
    assert budget.spent == 0


def test_only_a_simulation_finds_groups_in_the_data_itself():
    with pytest.raises(ValueError, match="groups"):
        frames.release(PEOPLE, {"age": AGE}, by="region", **SURE)
    with pytest.raises(TypeError, match=r"^simulate\(\) .* 'budget'"):
        frames.simulate(0, PEOPLE, {"age": AGE}, budget=None, **SURE)


@pytest.mark.parametrize("groups", [[], frames.PrivateGroups(1.0, 1e-12)])
def test_no_group_and_no_row_are_results_without_rows(groups):
    for table in (PEOPLE[:0], PEOPLE[:1]):
        for more in ({}, {"unit": "who", "max_groups": 2}):
            asked = {"age": [AGE, Quantiles((0.2, 0.5, 0.8), **TO_120)]}
            found = frames.release(table, asked, by="region", groups=groups, **SURE, **more)
            assert len(found.rows) == 0
            assert "released" in found.rows.columns


@pytest.mark.parametrize("module", ["narwhals", "polars", "pyarrow"])
def test_without_its_libraries_the_extra_is_named(module, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, module, None)
    monkeypatch.delitem(__import__("sys").modules, "dpjax.frames.tables")
    with pytest.raises(ImportError, match=r"dpjax\[frames\]"):
        frames.release(PEOPLE, {"age": AGE}, **SURE)
