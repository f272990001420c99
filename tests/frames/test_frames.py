"""Frames of every kind in and out, against arrays; what one row more can change; and what is
refused.
"""

import datetime
from collections import Counter
from decimal import Decimal
from fractions import Fraction

import jax
import numpy as np
import pytest

import dpjax
from dpjax import frames, release
from dpjax.accounting import PrivacyFilter
from tests.support.tables import Opened

narwhals = pytest.importorskip("narwhals")
pandas = pytest.importorskip("pandas")

REGIONS = ["north", "south", "north", None, "south", "north", "east"]
AGES = [34.0, 51.0, 34.0, 9.0, None, 34.0, 70.0]
BOUNDS = {"lower": 0, "upper": 120, "resolution": 1, "neighbors": "add_remove"}
CERTAIN = BOUNDS | {"epsilon": 64.0}


def many(values):
    return [value for value in values for _ in range(8)]


def from_pandas(**columns):
    return pandas.DataFrame(columns)


def from_nullable_pandas(**columns):
    ages = pandas.array(
        [None if age is None else int(age) for age in columns["age"]], dtype="Int64"
    )
    return pandas.DataFrame({"region": pandas.Categorical(columns["region"]), "age": ages})


def from_polars(**columns):
    return pytest.importorskip("polars").DataFrame(columns)


def from_lazy_polars(**columns):
    return pytest.importorskip("polars").LazyFrame(columns)


def from_pyarrow(**columns):
    return pytest.importorskip("pyarrow").table(columns)


def from_duckdb(**columns):
    table = from_pyarrow(**columns)
    return pytest.importorskip("duckdb").from_arrow(table)


KINDS = [
    from_pandas,
    from_nullable_pandas,
    from_polars,
    from_lazy_polars,
    from_pyarrow,
    from_duckdb,
]


def rows_of(frame):
    known = narwhals.from_native(frame)
    return (known.collect() if isinstance(known, narwhals.LazyFrame) else known).rows(named=True)


@pytest.mark.parametrize("kind", KINDS)
def test_a_frame_of_the_same_kind_comes_back(kind):
    people = kind(region=many(REGIONS), age=many(AGES))
    found = frames.release(people, "age", by="region", groups=["south", "north"], **CERTAIN)
    assert type(found.frame) is type(people)
    promise = "64-DP and 64-bounded-range under add_remove neighbors, for a row"
    common = {"column": "age", "epsilon": 64.0}
    assert rows_of(found.frame) == [
        {"region": "south", "released": 51.0} | common,
        {"region": "north", "released": 34.0} | common,
    ]
    assert str(found.guarantee) == promise
    simulated = rows_of(frames.simulate(0, people, "age", by="region", **CERTAIN).frame)
    seen = [
        (row["region"], row["records"], row["missing"], row["value"], row["simulated"])
        for row in simulated
    ]
    assert seen == [
        ("east", 8, 0, 70.0, 70.0),
        ("north", 24, 0, 34.0, 34.0),
        ("south", 16, 8, 51.0, 51.0),
    ]


def test_several_columns_groups_and_options_of_their_own():
    people = from_pandas(
        region=many("abab"),
        sex=many([1, 1, 2, 2]),
        x=many([1.0, 2, 3, 4]),
        y=many([10.0, 20, 30, 40]),
    )
    columns = {
        "x": {"upper": 120, "resolution": 1},
        "y": {"upper": 240, "resolution": 10, "epsilon": 32.0},
    }
    options = {"lower": 0, "epsilon": 64.0, "neighbors": "add_remove"}
    found = frames.release(
        people,
        columns,
        by=["sex", "region"],
        groups=np.array([(2, "b"), (1, "a")], object),
        **options,
    )
    rows = [
        (row["sex"], row["region"], row["column"], row["released"], row["epsilon"])
        for row in rows_of(found.frame)
    ]
    assert rows == [
        (2, "b", "x", 4.0, 64.0),
        (1, "a", "x", 1.0, 64.0),
        (2, "b", "y", 40.0, 32.0),
        (1, "a", "y", 10.0, 32.0),
    ]
    assert found.guarantee.epsilon == 96.0


@pytest.mark.slow
def test_a_simulation_has_the_numbers_of_the_arrays():
    rng = np.random.default_rng(0)
    groups = {name: rng.uniform(0, 100, size) for name, size in (("b", 40), ("a", 7), ("c", 64))}
    people = from_pandas(
        g=np.repeat(list(groups), [len(x) for x in groups.values()]),
        x=np.concatenate([*groups.values()]),
    )
    options = {"lower": 0, "upper": 100, "neighbors": "add_remove"}
    found = frames.simulate(jax.random.key(1), people, "x", by="g", epsilon=[0.5, 2.0], **options)
    rows = rows_of(found.frame)
    assert {
        found.frame[name].dtype for name in ("value", "simulated", "mean_abs_error", "upper95")
    } == {np.dtype(np.float64)}
    assert [(row["g"], row["epsilon"]) for row in rows] == [
        (g, e) for g in "abc" for e in (0.5, 2.0)
    ]
    padded = np.stack(
        [np.pad(groups[g], (0, 64 - len(groups[g])), constant_values=np.nan) for g in "abc"]
    )
    profile = dpjax.median(padded, **options)
    exact = dpjax.piecewise_laplace(profile, np.array([[0.5], [2.0]]))
    bars = [exact.mean_abs_error(profile.value), *exact.interval(0.95)]
    for name, bar in zip(("mean_abs_error", "lower95", "upper95"), bars, strict=True):
        np.testing.assert_allclose(
            [row[name] for row in rows], np.asarray(bar).T.ravel(), rtol=1e-5
        )
    for row in rows:
        assert row["value"] == pytest.approx(np.median(groups[row["g"]]), rel=1e-6)
        assert 0 <= row["simulated"] <= 100
    assert found.guarantee.epsilon == 2.5
    again = frames.simulate(jax.random.key(1), people, "x", by="g", epsilon=[0.5, 2.0], **options)
    assert rows_of(again.frame) == rows
    other = frames.simulate(jax.random.key(2), people, "x", by="g", epsilon=[0.5, 2.0], **options)
    assert rows_of(other.frame) != rows


def test_joint_quantiles_need_a_public_guess_of_sizes():
    options = {
        "qs": [0.25, 0.5],
        "epsilon": 60.0,
        "lower": 0,
        "upper": 200,
        "resolution": 1,
        "neighbors": "add_remove",
    }
    people = from_pandas(x=np.arange(101.0))
    for statistic, wrong in (
        (release.joint_quantiles, {}),
        (release.joint_quantiles, {"public_n": 50}),
        (release.recursive_quantiles, {"max_records": 9}),
        (release.nested_quantiles, {"max_records": 9, "qs": [0.25, 0.5, 0.75]}),
    ):
        with pytest.raises((TypeError, ValueError), match="max_records"):
            frames.release(people, "x", statistic=statistic, **(options | wrong))
    found = frames.release(
        people, "x", statistic=release.joint_quantiles, max_records=100, **options
    )
    assert [row["released"] for row in rows_of(found.frame)] == [25.0, 50.0]


def test_percentiles_of_groups():
    """By the function and by an object that chooses a method, drawn and simulated."""
    rng = np.random.default_rng(0)
    people = from_pandas(
        x=np.concatenate([rng.integers(0, 500, 4000), rng.integers(300, 400, 4000)]),
        g=np.repeat([0, 1], 4000),
    )
    percents = [Fraction(k, 100) for k in range(1, 100)]
    public = {"lower": 0, "upper": 500, "resolution": 1}
    call = {"by": "g", "groups": [0, 1], "neighbors": "add_remove", "epsilon": 4.0}
    every = {"statistic": release.Quantiles(percents, **public, method="auto")}
    some = {"statistic": release.Quantiles(percents[24::25], **public, method="nested")}
    function = {"statistic": release.nested_quantiles, "qs": percents[4::5]} | public
    expected = np.arange(1, 100) * np.array([[5], [1]]) + np.array([[0], [300]])
    drawn = [
        (frames.release(people, "x", **call, **every), "released", expected),
        (frames.release(people, "x", **call, **function), "released", expected[:, 4::5]),
        (frames.simulate(3, people, "x", **call, **some), "simulated", expected[:, 24::25]),
    ]
    for found, column, truth in drawn:
        values = np.array([row[column] for row in rows_of(found.frame)]).reshape(truth.shape)
        assert np.all(np.diff(values) >= 0)
        assert np.abs(values - truth).max() < 15


def test_several_quantiles_under_one_epsilon_and_several_draws():
    people = from_pandas(x=np.arange(101.0))
    options = {"lower": 0, "upper": 200, "resolution": 1, "neighbors": "swap"}
    found = frames.release(
        people,
        "x",
        statistic=release.joint_quantiles,
        qs=[0.25, "1/2"],
        epsilon=60.0,
        draws=2,
        **options,
    )
    rows = [(row["quantile"], row["draw"], row["released"]) for row in rows_of(found.frame)]
    assert rows == [(0.25, 1, 25.0), (0.5, 1, 50.0), (0.25, 2, 25.0), (0.5, 2, 50.0)]
    assert found.guarantee.epsilon == 120.0


def test_counts_of_values():
    people = from_pandas(g=list("aab"), x=[1.0, None, 2.0])
    found = frames.release(
        people,
        "x",
        statistic=release.count,
        by="g",
        groups=["b", "a", "c"],
        neighbors="add_remove",
        epsilon=64.0,
    )
    assert found.frame["released"].tolist() == [1.0, 1.0, 0.0]
    with pytest.raises(ValueError, match="'add_remove' for Count"):
        frames.release(people, "x", statistic=release.count, neighbors="swap", epsilon=1.0)


@pytest.mark.slow
def test_simulated_quantiles_have_the_bars_of_their_marginals():
    people = from_pandas(x=np.arange(40.0))
    options = {"lower": 0, "upper": 200, "neighbors": "add_remove"}
    found = frames.simulate(
        jax.random.key(0),
        people,
        "x",
        statistic=dpjax.quantiles,
        qs=[0.25, 0.5],
        epsilon=[1.0, 4.0],
        **options,
    )
    rows = rows_of(found.frame)
    asked = dpjax.quantiles(
        np.pad(np.arange(40.0), (0, 24), constant_values=np.nan), [0.25, 0.5], **options
    )
    for i, epsilon in enumerate((1.0, 4.0)):
        exact = dpjax.joint_quantiles(asked, epsilon).marginals().mean_abs_error(asked.value)
        part = rows[2 * i : 2 * i + 2]
        assert [(row["quantile"], row["value"], row["epsilon"]) for row in part] == [
            (0.25, 9.75, epsilon),
            (0.5, 19.5, epsilon),
        ]
        np.testing.assert_allclose([row["mean_abs_error"] for row in part], exact, rtol=1e-3)
    assert found.guarantee.epsilon == 5.0  # all quantiles cost one epsilon


NASTY = [
    ("north", None),
    (None, 3.0),
    ("north", float("nan")),
    ("north", float("inf")),
    ("", -1e300),
    ("east", 5.0),
    (7, 2.0),
]


@pytest.mark.parametrize("row", NASTY)
@pytest.mark.parametrize("named", [["north", "south"], None])
def test_one_row_more_adds_one_record_to_one_group(row, named):
    options = {"lower": -4, "upper": 120, "resolution": 1}

    def records(rows):
        frame = from_pandas(region=[r for r, _ in rows], age=[a for _, a in rows])
        opened = Opened(frame, "age", release.median, options, by="region", groups=named)
        groups, tally = opened.groups(bounded=False), opened.tally(bounded=False)
        return {
            label: Counter(tally.position[tally.group == group].tolist())
            for group, label in enumerate(groups.names)
        }

    people = [("north", 1.0), ("south", 2.0), ("north", 3.0), ("south", None)]
    before = records(people)
    for place in range(len(people) + 1):
        after = records([*people[:place], row, *people[place:]])
        assert set(before) <= set(after)
        more = [after[group] - before.get(group, Counter()) for group in after]
        assert all(not before[group] - after[group] for group in before)
        assert sum(count for part in more for count in part.values()) <= 1


@pytest.mark.parametrize(
    "statistic", [dpjax.median, dpjax.mean, dpjax.quantiles, release.median, release.sum]
)
@pytest.mark.parametrize("kind", [from_pandas, from_polars, from_pyarrow])
def test_a_frame_is_refused_where_an_array_belongs(kind, statistic):
    asked = {"qs": [0.5]} if statistic is dpjax.quantiles else {}
    asked |= {"epsilon": 1.0, "resolution": 1} if "release" in statistic.__module__ else {}
    with pytest.raises(
        TypeError,
        match="rows",
    ):
        statistic(kind(a=[1.0, 2.0], b=[3.0, 4.0]), lower=0, upper=9, neighbors="swap", **asked)


PEOPLE = {"region": ["a", "b"], "age": [1.0, 2.0], "code": [1, 2]}


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"columns": ["age", "age"]}, "different names"),
        ({"columns": "region"}, "dtype"),
        ({"groups": None}, "groups"),
        ({"groups": ["a", "a"]}, "twice"),
        ({"by": ["region", "code"]}, "tuples"),
        ({"by": "code"}, "no group is"),
        ({"neighbors": "swap"}, "add_remove"),
        ({"statistic": release.Median(0, 120, 1)}, "options"),
        ({"statistic": release.histogram}, "arrays"),
    ],
)
def test_what_does_not_belong_together_is_refused(changes, word):
    asked = {"frame": from_pandas(**PEOPLE), "columns": "age", "by": "region", "groups": ["a"]}
    asked |= BOUNDS | {"epsilon": 1.0} | changes
    with pytest.raises((TypeError, ValueError), match=word):
        frames.release(asked.pop("frame"), asked.pop("columns"), **asked)


def test_without_narwhals_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "narwhals", None)
    with pytest.raises(ImportError, match=r"pip install 'dpjax\[frames\]'"):
        frames.release(from_pandas(**PEOPLE), "age", **CERTAIN)


def test_an_object_column_is_text_whatever_is_in_it_first():
    options = {"statistic": release.count, "neighbors": "add_remove", "epsilon": 60.0, "by": "g"}
    sizes = []
    for cells in (["x"] * 100 + [7] * 300, [7] + ["x"] * 100 + [7] * 299):
        people = pandas.DataFrame({"g": pandas.Series(cells, dtype=object), "a": 1.0})
        sizes.append(
            [
                row["released"]
                for row in rows_of(frames.release(people, "a", groups=["7", "x"], **options).frame)
            ]
        )
    assert sizes == [[300.0, 100.0]] * 2
    unknown = frames.PrivateGroups(epsilon=30.0, delta=1e-6)
    for labels in (["x"] * 50 + [None], ["x"] * 50 + [pandas.NA]):
        for dtype in ("string", object):
            people = pandas.DataFrame({"g": pandas.Series(labels, dtype=dtype), "a": 1.0})
            found = frames.release(people, "a", groups=unknown, **options)
            assert [(row["g"], row["released"]) for row in rows_of(found.frame)] == [("x", 50.0)]
    numbers = pandas.DataFrame({"g": pandas.Series([3] * 50 + [None], dtype="Int64"), "a": 1.0})
    assert [
        row["g"] for row in rows_of(frames.release(numbers, "a", groups=unknown, **options).frame)
    ] == [3]


def test_what_is_refused_depends_on_dtypes_and_not_on_records():
    polars = pytest.importorskip("polars")
    for cells in ([None] * 3, [None, None, [1]]):
        people = polars.DataFrame(
            {"g": polars.Series(cells, dtype=polars.List(polars.Int64)), "a": [1.0, 2.0, 3.0]}
        )
        with pytest.raises(TypeError, match="cannot identify a group"):
            frames.release(
                people,
                "a",
                by="g",
                groups=[1],
                statistic=release.count,
                neighbors="add_remove",
                epsilon=1.0,
            )


@pytest.mark.parametrize("n", [2048, 2049])
def test_levels_are_refused_or_not_at_every_size(n):
    people, options = (
        from_pandas(x=np.full(n, 3.0)),
        {"lower": 0, "upper": 9, "resolution": 1, "neighbors": "add_remove"},
    )
    found = frames.release(
        people, "x", statistic=release.quantile, q=0.999999, epsilon=64.0, **options
    )
    assert 3 <= rows_of(found.frame)[0]["released"] <= 9
    fine = {
        "statistic": release.joint_quantiles,
        "qs": [0.00001, 0.5],
        "max_records": 9,
        "epsilon": 64.0,
    }
    assert len(rows_of(frames.release(people, "x", **fine, **options).frame)) == 2
    with pytest.raises(ValueError, match="too large for exact ranks"):
        frames.release(
            people, "x", statistic=release.quantile, q="0.9999999999", epsilon=1.0, **options
        )


@pytest.mark.parametrize("labels", [["a", "b"], [3, 4], [True, False], [0.1, 0.2]])
@pytest.mark.parametrize("kind", [from_pandas, from_polars, from_pyarrow, from_duckdb])
def test_every_dtype_of_labels_matches_its_own_and_refuses_others(kind, labels):
    people = kind(g=labels * 50, x=[50.0, 60.0] * 50)
    for given in (labels, np.array(labels), tuple(labels)):
        found = frames.release(people, "x", by="g", groups=given, **CERTAIN)
        assert [row["released"] for row in rows_of(found.frame)] == [50.0, 60.0]
    numbers = not isinstance(labels[0], str | bool)
    with pytest.raises(ValueError, match=r"column 'g' holds .*, so no group is"):
        frames.release(people, "x", by="g", groups=[str(labels[0])] if numbers else [1], **CERTAIN)


def test_labels_of_categories_halves_and_times():
    polars, pyarrow = pytest.importorskip("polars"), pytest.importorskip("pyarrow")
    values, days = [50.0, 60.0] * 50, [datetime.date(2020, 1, 1), datetime.date(2020, 1, 2)]
    times = [datetime.datetime(2020, 1, 1), datetime.datetime(2020, 1, 2)]
    for column, right, wrong in (
        (pandas.Categorical(["a", "b"] * 50), ["a", "b"], [1]),
        (pandas.Categorical([1, 2] * 50), [1, 2], ["1"]),
        (pandas.Series(times * 50), times, ["2020-01-01"]),
        (pandas.Series(times * 50), np.array(times, "datetime64[ns]"), [1]),
        (pandas.array([1, 2] * 50, dtype="Int64"), [1.0, 2], ["1"]),
        (polars.Series([0.1, 0.2] * 50, dtype=polars.Float32), [0.1, 0.2], ["0.1"]),
        (polars.Series(days * 50), days, times),
        (polars.Series(times * 50), times, days),
        (polars.Series(["a", "b"] * 50, dtype=polars.Enum(["a", "b"])), ["a", "b"], [1]),
        (pyarrow.array(["a", "b"] * 50).dictionary_encode(), ["a", "b"], [1]),
    ):
        make = {"polars": polars.DataFrame, "pyarrow": pyarrow.table}.get(
            type(column).__module__.partition(".")[0], pandas.DataFrame
        )
        people = make({"g": column, "x": values})
        found = rows_of(frames.release(people, "x", by="g", groups=right, **CERTAIN).frame)
        assert [row["released"] for row in found] == [50.0, 60.0]
        unknown = frames.PrivateGroups(epsilon=30.0, delta=1e-6)
        assert [
            row["released"]
            for row in rows_of(frames.release(people, "x", by="g", groups=unknown, **CERTAIN).frame)
        ] == [
            50.0,
            60.0,
        ]
        with pytest.raises(ValueError, match="so no group is"):
            frames.release(people, "x", by="g", groups=wrong, **CERTAIN)


@pytest.mark.parametrize("more", [0, 1])
def test_a_label_that_python_does_not_hold_changes_nothing(more):
    polars = pytest.importorskip("polars")
    days = polars.Series([18_262] * 60 + [19_723 + 365 * 18_200] * more, dtype=polars.Int32).cast(
        polars.Date
    )
    numbers = pandas.Series([3] * 60 + [10**5000] * more, dtype=object)
    asked = {"by": "g", "epsilon": 60.0, "neighbors": "add_remove", "statistic": release.count}
    for people, label in (
        (polars.DataFrame({"g": days, "x": [1.0] * len(days)}), datetime.date(2020, 1, 1)),
        (pandas.DataFrame({"g": numbers, "x": 1.0}), 3),
        (
            pandas.DataFrame(
                {"g": pandas.Series(["b"] * 60 + [Decimal("sNaN")] * more, dtype=object), "x": 1.0}
            ),
            "b",
        ),
        (pyarrow_nulls(60 + more), "a"),
    ):
        known = frames.release(people, "x", groups=[label], **asked)
        there = 0.0 if label == "a" else 60.0
        assert [row["released"] for row in rows_of(known.frame)] == [there]
        unknown = frames.release(people, "x", groups=frames.PrivateGroups(30.0, 1e-6), **asked)
        assert [(str(row["g"]), row["released"]) for row in rows_of(unknown.frame)] == [
            (str(label), 60.0)
        ] * bool(there)


def pyarrow_nulls(rows):
    pyarrow = pytest.importorskip("pyarrow")
    return pyarrow.table({"g": pyarrow.nulls(rows), "x": [1.0] * rows})


def test_a_missing_label_is_in_no_group_in_every_kind():
    asked = {"by": "region", "statistic": release.count, "epsilon": 60.0, "neighbors": "add_remove"}
    for kind in KINDS:
        people = kind(region=["a", None] * 50, age=[50.0, 60.0] * 50)
        assert [
            row["released"]
            for row in rows_of(frames.release(people, "age", groups=["a"], **asked).frame)
        ] == [50.0]
        for missing in (None, float("nan")):
            with pytest.raises(ValueError, match="missing labels are in no group"):
                frames.release(people, "age", groups=["a", missing], **asked)


def test_groups_of_any_size_are_released():
    people = from_pandas(x=np.ones(2**23 + 1, bool))  # from here on 0.2 raised
    found = frames.release(
        people, "x", statistic=release.mode, candidates=[0, 1], epsilon=1.0, neighbors="add_remove"
    )
    assert rows_of(found.frame)[0]["released"] == 1.0


def test_numbers_of_different_ids_in_each_group():
    people = from_pandas(g=list("aabbbb"), id=["x", "x", "y", None, "z", "w"])
    found = frames.simulate(
        0,
        people,
        "id",
        by="g",
        statistic=release.DistinctCount(tau=1, upper=9),
        epsilon=60.0,
        neighbors="add_remove",
    )
    assert [(row["value"], row["records"], row["missing"]) for row in rows_of(found.frame)] == [
        (1.0, 2, 0),
        (3.0, 4, 1),
    ]


def test_a_path_in_the_place_of_a_frame_or_a_budget_is_told_what_to_give(tmp_path):
    asked = {"lower": 0, "upper": 10, "resolution": 1, "epsilon": 1, "neighbors": "add_remove"}
    for path in ("people.csv", tmp_path / "people.csv"):
        with pytest.raises(TypeError, match="read the file first"):
            frames.release(path, "age", **asked)
        with pytest.raises(TypeError, match="pass Ledger"):
            frames.release({"age": np.array([1, 2])}, "age", budget=path, **asked)


PERCENTS = tuple(f"{k}/100" for k in range(1, 100))


@pytest.mark.parametrize(
    ("epsilon", "options"),
    [
        (1e-3, {"qs": PERCENTS, "method": "nested"}),
        (2.0**-29, {"qs": ("1/4", "1/2"), "method": "recursive"}),
        (1.0, {"qs": ("1/4", "1/2")}),
        (1.0, {"qs": ("1/16411", "1/16387"), "max_records": 9}),
        (1e-6, {"qs": ("1/4", "1/2"), "max_records": 10**9}),
    ],
)
def test_what_is_refused_for_its_public_parameters_is_not_charged(epsilon, options):
    statistic = release.Quantiles(lower=0, upper=10, resolution=1, **options)
    budget = PrivacyFilter(10.0, 0.0, "add_remove")
    asked = {"epsilon": epsilon, "neighbors": "add_remove", "budget": budget}
    for frame in ({"x": np.zeros(0)}, {"x": np.arange(9)}):
        with pytest.raises(ValueError, match=r"epsilon|max_records|denominator"):
            frames.release(frame, {"x": statistic}, **asked)
    assert budget.spent == 0
    frames.release(frame, {"x": release.Median(0, 10, 1)}, **asked)
    assert budget.spent == epsilon


@pytest.mark.parametrize("method", ["nested", "recursive"])
def test_quantiles_of_no_group(method):
    statistic = release.Quantiles(("1/4", "1/2", "3/4"), 0, 10, 1, method=method)
    asked = {"by": "g", "epsilon": 1.0, "neighbors": "add_remove"}
    for frame in (
        {"g": np.array([], str), "x": np.zeros(0)},
        {"g": np.array(["a"]), "x": np.ones(1)},
    ):
        for groups in ([], frames.PrivateGroups(epsilon=1.0, delta=1e-12)):
            found = frames.release(frame, {"x": statistic}, groups=groups, **asked)
            assert found.frame["released"].size == 0
