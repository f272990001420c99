"""The same call simulates and releases: its options, its distribution, its notes, and what is
refused in both.
"""

import subprocess
import sys
from functools import partial
from statistics import NormalDist

import jax
import numpy as np
import pytest

import dpjax
from dpjax import frames, release
from tests.support.statistics import (
    FALSE_POSITIVE_RATE,
    assert_counts_follow,
    assert_counts_rejected,
)

pytest.importorskip("narwhals")
pandas = pytest.importorskip("pandas")

KEY = 3
AGES = np.random.default_rng(5).integers(20, 60, 60).astype(float)
PEOPLE = pandas.DataFrame({"age": AGES, "region": ["north", "south"] * 30})
BOUNDS = {"lower": 0, "upper": 120, "resolution": 1, "epsilon": 0.3, "neighbors": "add_remove"}
SWAP = BOUNDS | {"neighbors": "swap"}
FREE = {"epsilon": 4.0, "neighbors": "add_remove"}
CRITICAL = NormalDist().inv_cdf(1 - FALSE_POSITIVE_RATE / 2)
QUARTILES = [0.25, 0.5, 0.75]

CALLS = {
    "permute_and_flip": BOUNDS | {"mechanism": "permute_and_flip"},
    "permute_and_flip, q": SWAP
    | {"statistic": dpjax.quantile, "q": 0.8, "mechanism": "permute_and_flip"},
    "floats": FREE | {"grid": release.Floats(digits=2)},
    "maximum": BOUNDS | {"statistic": release.maximum, "tau": 9},
    "nonnegative_sum": {k: v for k, v in SWAP.items() if k != "lower"}
    | {"statistic": release.nonnegative_sum, "tau": 9},
    "median": BOUNDS,
    "inverse_sensitivity": BOUNDS | {"mechanism": "inverse_sensitivity"},
    "linear": SWAP | {"definition": "linear"},
    "joint": BOUNDS
    | {"statistic": dpjax.quantiles, "qs": QUARTILES, "max_records": 100, "epsilon": 2.0},
    "nested": BOUNDS | {"statistic": dpjax.nested_quantiles, "qs": QUARTILES, "epsilon": 2.0},
    "recursive": BOUNDS
    | {"statistic": release.recursive_quantiles, "qs": QUARTILES, "epsilon": 1.0},
    "mode": FREE | {"statistic": release.mode, "candidates": [21, 25, 40, 59, 99], "epsilon": 1.0},
    "sum": SWAP | {"statistic": release.sum},
    "mean": SWAP | {"statistic": dpjax.mean},
    "count": FREE | {"statistic": dpjax.count, "epsilon": 0.5},
}
CALLS["nonnegative_sum"]["upper"] = 5000


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_a_release_is_off_by_what_its_simulation_says(call):
    """Same names of options, same columns but for what is not private, and the error of the draws
    themselves.
    """
    draws = 4000
    planned = frames.simulate(KEY, PEOPLE, "age", draws=draws, **call)
    found = frames.release(PEOPLE, "age", draws=draws, **call)
    wrong_epsilon = (2.0 if "candidates" in call else 1.5) * call["epsilon"]
    other = frames.simulate(KEY, PEOPLE, "age", **call | {"epsilon": wrong_epsilon})
    assert [name for name in planned.frame if name in found.frame] == [
        name for name in found.frame if name != "released"
    ]
    assert (
        found.guarantee.epsilon
        == pytest.approx(planned.guarantee.epsilon)
        == pytest.approx(draws * call["epsilon"])
    )
    levels = len(call.get("qs", [0]))
    wrong = []
    for k in range(levels):
        said, drawn, control = (result.frame.iloc[k::levels] for result in (planned, found, other))
        error = said["mean_abs_error"].iloc[0]
        measured = "qs" in call  # on 1000 draws
        for values in (said["simulated"], drawn["released"]):
            errors = np.abs(values.to_numpy() - said["value"].iloc[0])
            deviation = np.std(errors) * np.sqrt(1 / draws + measured / 1000)
            assert abs(np.mean(errors) - error) <= CRITICAL * deviation, (
                k,
                np.mean(errors),
                error,
                deviation,
            )
            within = np.mean(
                (values >= said["lower95"].iloc[0]) & (values <= said["upper95"].iloc[0])
            )
            assert within >= 0.95 - CRITICAL * np.sqrt(0.05 * 0.95 * (1 / draws + measured / 1000))
        wrong.append(
            abs(np.mean(errors) - control["mean_abs_error"].iloc[0]) > CRITICAL * deviation
        )
    assert any(wrong)


SIMULATED = {
    "median": (release.Median(0, 120, 1), "swap"),
    "between records": (release.Quantile(0.3, 0, 120, 1, definition="linear"), "add_remove"),
    "floats": (
        release.Quantile(0.9, grid=release.Floats(digits=1, smallest=-1, largest=3)),
        "add_remove",
    ),
    "order": (release.OrderStatistic(3, 0, 120, 1), "swap"),
    "maximum": (release.Maximum(2, 0, 120, 1), "add_remove"),
    "sum": (release.NonnegativeSum(2, 5000, 1), "add_remove"),
    "mean": (release.Mean(0, 120, 1), "swap"),
    "mode": (release.Mode((21, 25, 40, 59, 99)), "add_remove"),
}


@pytest.mark.parametrize(("statistic", "neighbors"), SIMULATED.values(), ids=SIMULATED)
@pytest.mark.parametrize("mechanism", [None, "permute_and_flip"])
def test_a_simulation_is_the_release_probability_by_probability(statistic, neighbors, mechanism):
    """Error bars of every group are those of its exact distribution, and a seed decides the draw by
    the same probabilities.
    """
    asked = {"epsilon": 0.7, "neighbors": neighbors, "mechanism": mechanism}
    regions = ["north", "south"] if neighbors == "add_remove" else [None]
    by = {"by": "region"} if neighbors == "add_remove" else {}
    found = frames.simulate(KEY, PEOPLE, {"age": statistic}, draws=3000, **by, **asked).frame
    for region in regions:
        own = PEOPLE if region is None else PEOPLE[PEOPLE["region"] == region]
        rows = found if region is None else found[found["region"] == region]
        exact = release.exact_distribution(statistic, own["age"].to_numpy(), **asked)
        value = rows["value"].iloc[0]
        bars = [exact.mean_abs_error(value), *exact.interval(0.95)]
        np.testing.assert_allclose(
            rows[["mean_abs_error", "lower95", "upper95"]].to_numpy()[0], bars, rtol=1e-9
        )
        values = exact.values
        pmf = exact.pmf(values)
        assert pmf.sum() == pytest.approx(1, abs=1e-9)
        seen, there = np.searchsorted(values, rows["simulated"]), pmf > 0
        np.testing.assert_array_equal(values[seen], rows["simulated"])
        assert_counts_follow(
            np.bincount(seen, minlength=values.size)[there], pmf[there] / pmf.sum()
        )
        wrong = statistic.distribution(counted(statistic, own), 2.1, neighbors, mechanism=mechanism)
        other = wrong.pmf(values).reshape(-1)
        assert_counts_rejected(
            np.bincount(seen, minlength=values.size)[there], other[there] / other[there].sum()
        )


def test_groups_that_are_worked_on_together_or_apart_are_the_same():
    """3000 groups of about 40 different records are more than fit into the cache."""
    rng = np.random.default_rng(1)
    group, size = rng.integers(0, 3000, 120_000), rng.integers(0, 10_000, 120_000)
    people = pandas.DataFrame({"g": group, "x": size})
    statistic = release.Median(0, 10_000, 1)
    found = frames.simulate(
        0, people, {"x": statistic}, by="g", epsilon=1.0, neighbors="add_remove"
    ).frame
    assert found["g"].tolist() == list(range(3000))
    for place in (0, 1, 1499, 1700, 2998, 2999):
        exact = release.exact_distribution(
            statistic, size[group == place], epsilon=1.0, neighbors="add_remove"
        )
        bars = [exact.value, exact.mean_abs_error(exact.value), *exact.interval(0.95)]
        np.testing.assert_allclose(
            found.iloc[place][["value", "mean_abs_error", "lower95", "upper95"]].to_numpy(float),
            bars,
            rtol=1e-9,
        )
        assert found.iloc[place]["records"] == np.sum(group == place)


def counted(statistic, people):
    positions, present = statistic.read(people["age"].to_numpy()[None])
    return release.Counts.of_records(positions, present)


def test_objects_functions_and_names_of_columns_are_one():
    """A function with its options is the object, and a mapping of objects is a shared one."""
    public = {"lower": 0, "upper": 120, "resolution": 1}
    common = {
        "epsilon": 1.0,
        "neighbors": "add_remove",
        "by": "region",
        "groups": ["south", "north"],
    }
    for function, object_, options in (
        (release.median, release.Median(**public), public),
        (dpjax.quantile, release.Quantile("1/3", **public), public | {"q": "1/3"}),
        (
            dpjax.quantiles,
            release.Quantiles((0.2, 0.5), max_records=90, **public),
            public | {"qs": [0.2, 0.5], "max_records": 90},
        ),
        (dpjax.count, release.Count(), {}),
        (dpjax.candidate_counts, release.Mode((21, 25)), {"candidates": [21, 25]}),
    ):
        assert release.Statistic.from_json(object_.to_json()) == object_
        calls = (
            ("age", {"statistic": function, **options}),
            ("age", {"statistic": object_}),
            ({"age": object_}, {}),
            ({"age": release.Statistic.from_json(object_.to_json())}, {}),
            ({"age": options}, {"statistic": function}),
        )
        found = [
            frames.simulate(KEY, PEOPLE, columns, **asked, **common).frame.to_dict()
            for columns, asked in calls
        ]
        assert all(each == found[0] for each in found)
        assert (
            frames.simulate(KEY + 1, PEOPLE, {"age": object_}, **common, draws=9).frame.to_dict()
            != found[0]
        )
        drawn = [frames.release(PEOPLE, columns, **asked, **common) for columns, asked in calls]
        assert (
            len(
                {
                    (str(each.guarantee), tuple(each.frame.columns), len(each.frame))
                    for each in drawn
                }
            )
            == 1
        )


def test_several_statistics_in_one_call():
    asked = {
        "age": release.Quantiles((0.25, 0.75), 0, 120, 1, max_records=99),
        "hours": release.Count(),
    }
    people = PEOPLE.assign(hours=1.0)
    found = frames.release(
        people, asked, by="region", groups=["north"], epsilon=60.0, neighbors="add_remove"
    ).frame
    assert found["column"].tolist() == ["age", "age", "hours"]
    assert found["quantile"].tolist()[:2] == [0.25, 0.75]
    assert np.isnan(found["quantile"].iloc[2])
    assert found["released"].iloc[2] == 30.0


def test_a_seed_decides_a_simulation_and_a_typed_key_is_one():
    def drawn(key):
        return frames.simulate(key, PEOPLE, "age", draws=20, **BOUNDS).frame["simulated"].tolist()

    assert drawn(5) == drawn(5) == drawn(np.int64(5)) != drawn(6)
    assert drawn(jax.random.key(5)) == drawn(jax.random.key(5)) != drawn(jax.random.key(6))
    for wrong in (jax.random.PRNGKey(0), jax.random.split(jax.random.key(0))):
        with pytest.raises((TypeError, ValueError), match="key must be"):
            drawn(wrong)


PROGRAM = """
import sys
import pandas
from dpjax import frames, release
people = pandas.DataFrame({"region": ["a", "b"] * 30, "age": range(60)})
public = {"lower": 0, "upper": 120, "resolution": 1, "epsilon": 1.0, "neighbors": "add_remove"}
regions = {"by": "region", "groups": ["a", "c"]}
several = {"qs": [0.25, 0.5], "max_records": 50}
for call in (
    {}, {"statistic": release.count, "lower": None, "upper": None, "resolution": None},
    {"statistic": release.joint_quantiles, **several},
    {"statistic": release.recursive_quantiles, "qs": [0.2, 0.9]},
    {"statistic": release.maximum, "tau": 2},
    {"statistic": release.nested_quantiles, "qs": [0.2, 0.5, 0.9]},
    {"mechanism": "permute_and_flip"}, {"mechanism": "inverse_sensitivity"},
):
    frames.release(people, "age", **public | regions | call)
    frames.simulate(0, people, "age", **public | regions | call)
frames.release(people, "age", by="region", groups=frames.PrivateGroups(1.0, 1e-6), **public)
print("jax" in sys.modules, "scipy" in sys.modules)
"""


LINE = """\
frames.simulate(0, people, "age", lower=0, upper=120, epsilon=1.0, neighbors="swap")
print("jax" in sys.modules)"""


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ("", "False False"),
        pytest.param(LINE, "True", marks=pytest.mark.slow, id="control: on the line"),
    ],
)
def test_a_new_process_imports_no_jax(more, expected):
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM + more],
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )
    assert done.stdout.strip().splitlines()[-1] == expected


@pytest.mark.slow
def test_laplace_noise_has_the_bars_of_the_arrays():
    found = frames.simulate(KEY, PEOPLE, "age", mechanism="laplace", **BOUNDS)
    options = {name: BOUNDS[name] for name in ("lower", "upper", "resolution", "neighbors")}
    profile = dpjax.median(AGES, **options)
    exact = dpjax.laplace(profile.value, 0.3, sensitivity=120.0, lower=0.0, upper=120.0)
    bars = [exact.mean_abs_error(profile.value), *exact.interval(0.95)]
    np.testing.assert_allclose(
        found.frame[["mean_abs_error", "lower95", "upper95"]].to_numpy()[0], bars, rtol=1e-4
    )
    # Control
    assert (
        abs(
            float(dpjax.piecewise_laplace(profile, 0.3).mean_abs_error(profile.value))
            / float(bars[0])
            - 1
        )
        > 1e-3
    )
    assert found.note == "A release needs another mechanism in addition."


@pytest.mark.slow
def test_ties_are_said_where_they_spoil_a_draw():
    tied = pandas.DataFrame(
        {"age": [30.0] * 30 + list(range(31, 51)) + [None] * 9, "hours": np.arange(59.0)}
    )
    options = {"lower": -1, "upper": 120, "epsilon": 1.0, "neighbors": "add_remove"}
    plain = frames.simulate(KEY, tied, ["age", "hours"], **options)
    assert plain.frame["tied_share"].tolist() == [0.6, pytest.approx(1 / 59)]
    assert "60 % of the records are tied: they equal the statistic." in plain.note
    assert "Give the resolution of the data as resolution= (1 for integers)" in plain.note
    assert plain.note.endswith("A release needs resolution= in addition.")
    assert plain.note.split(" A continuous")[0] in repr(plain)
    with_resolution = frames.simulate(KEY, tied, ["age", "hours"], resolution=1, **options)
    assert with_resolution.frame["tied_share"].tolist() == [0.6, pytest.approx(1 / 59)]
    assert with_resolution.note == ""
    assert (
        frames.simulate(KEY, tied, "hours", **options).note
        == "A release needs resolution= in addition."
    )
    assert (
        "tied_share" not in frames.simulate(KEY, tied, "age", statistic=dpjax.mean, **options).frame
    )


def test_many_records_at_or_beyond_a_bound_are_said():
    people = pandas.DataFrame({"age": [*range(1, 14), *range(31, 118)], "g": ["a", "b"] * 50})
    asked = {"lower": 0, "resolution": 1, "epsilon": 1.0, "neighbors": "add_remove"}
    for statistic in (release.median, release.maximum):
        more = {"tau": 1} if statistic is release.maximum else {}
        found = frames.simulate(KEY, people, "age", statistic=statistic, upper=30, **asked, **more)
        assert (
            found.note
            == "87 % of the records are at or beyond a bound, and count as that bound: are the "
            "bounds wide enough?"
        )
        assert found.note[:40] in repr(found)
        # 22 %
        assert (
            frames.simulate(KEY, people, "age", statistic=statistic, upper=96, **asked, **more).note
            == ""
        )
    assert (
        "86 to 88 % of the records"
        in frames.simulate(
            KEY, people, "age", by="g", groups=["a", "b", "c"], upper=30, **asked
        ).note
    )
    assert (
        frames.simulate(
            KEY,
            people,
            "age",
            statistic=release.nonnegative_sum,
            tau=1,
            upper=30,
            resolution=1,
            epsilon=1.0,
            neighbors="swap",
        ).note
        == ""
    )


@pytest.mark.slow
def test_a_function_of_a_users_own_is_drawn_by_jax():
    found = frames.simulate(KEY, PEOPLE, "age", statistic=partial(dpjax.quantile, q=0.5), **BOUNDS)
    assert found.frame["value"].tolist() == [float(np.sort(AGES)[29])]
    assert found.note == "A release needs another statistic in addition."
    assert "tied_share" not in found.frame


def test_what_a_release_lacks_is_said():
    assert (
        frames.simulate(KEY, PEOPLE, "age", by="region", **BOUNDS).note
        == "A release needs groups= in addition."
    )
    assert frames.simulate(KEY, PEOPLE, "age", by="region", groups=["north"], **BOUNDS).note == ""
    assert (
        frames.simulate(
            KEY, PEOPLE, "age", by="region", groups=frames.PrivateGroups(1.0, 1e-6), **BOUNDS
        ).note
        == ""
    )


SEVERAL = {"statistic": dpjax.quantiles, "qs": QUARTILES}
NO_GRID = dict.fromkeys(("lower", "upper", "resolution"))
SAME = [
    ({"mask": AGES > 30}, "mask="),
    ({"counts": AGES}, "counts="),
    ({"mechanism": "permute_and_flip", "resolution": None}, "resolution"),
    ({"statistic": release.median, "resolution": None}, "resolution"),
    ({"statistic": release.median, "mechanism": "laplace"}, "mechanism"),
    ({"statistic": release.sum}, "swap"),
    ({"statistic": release.mean}, "swap"),
    ({"by": "region", "groups": "Male"}, "list of labels"),
    (SEVERAL | {"public_n": 60, "max_records": 60}, "max_records="),
    (SEVERAL | {"max_records": 9, "neighbors": "swap"}, "add_remove"),
    ({"statistic": release.joint_quantiles, "qs": QUARTILES}, "max_records="),
    (NO_GRID | {"statistic": dpjax.count, "neighbors": "swap"}, "add_remove"),
]


@pytest.mark.parametrize(("changes", "word"), SAME)
def test_what_one_call_refuses_the_other_refuses_too(changes, word):
    call = {name: value for name, value in (BOUNDS | changes).items() if value is not None}
    for run in (
        lambda: frames.simulate(KEY, PEOPLE, "age", **call),
        lambda: frames.release(PEOPLE, "age", **call),
    ):
        with pytest.raises((TypeError, ValueError), match=word):
            run()


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"epsilon": [0.5, 1.0]}, "one number"),
        ({"by": "region"}, "groups="),  # public ones, and not those of the rows
        (SEVERAL, "max_records="),
    ],
)
def test_what_only_a_simulation_can_do(changes, word):
    with pytest.raises(ValueError, match=word):
        frames.release(PEOPLE, "age", **BOUNDS | changes)


@pytest.mark.parametrize("name", ["joint_quantiles", "nested_quantiles", "recursive_quantiles"])
def test_the_mechanism_of_several_quantiles_stands_for_their_release(name):
    """In both calls; the other one is not the same."""
    call = SWAP | {"qs": QUARTILES}
    other = "recursive_quantiles" if name == "joint_quantiles" else "joint_quantiles"
    planned = [
        frames.simulate(KEY, PEOPLE, "age", statistic=statistic, **call).frame["simulated"].tolist()
        for statistic in (getattr(dpjax, name), getattr(release, name), getattr(release, other))
    ]
    assert planned[0] == planned[1] != planned[2]
    found = frames.release(PEOPLE, "age", statistic=getattr(dpjax, name), **call).frame
    assert found["quantile"].tolist() == QUARTILES


@pytest.mark.slow
@pytest.mark.parametrize("name", ["joint_quantiles", "nested_quantiles", "recursive_quantiles"])
def test_several_quantiles_without_a_resolution_come_from_jax(name):
    call = {
        "lower": 0,
        "upper": 120,
        "neighbors": "add_remove",
        "epsilon": [1.0, 2.0],
        "statistic": getattr(dpjax, name),
        "qs": QUARTILES,
    }
    found = frames.simulate(KEY, PEOPLE, "age", by="region", **call)
    assert found.frame.shape[0] == 12
    lacking = (
        "resolution=, max_records=, groups="
        if name == "joint_quantiles"
        else "resolution=, groups="
    )
    assert found.note.endswith(f"A release needs {lacking} in addition.")
    assert found.frame["simulated"].between(0, 120).all()
