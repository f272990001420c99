"""The same call simulates and releases: its options, its distribution, its ties, and what is refused in both."""

from statistics import NormalDist

import jax
import numpy as np
import pytest

import dpjax
from dpjax import frames, release
from dpjax.frames.statistics import released_as
from tests.support.statistics import FALSE_POSITIVE_RATE

pytest.importorskip("narwhals")
pandas = pytest.importorskip("pandas")

KEY = jax.random.key(3)
AGES = np.random.default_rng(5).integers(20, 60, 60).astype(float)
PEOPLE = pandas.DataFrame({"age": AGES, "region": ["north", "south"] * 30})
BOUNDS = {"lower": 0, "upper": 120, "resolution": 1, "epsilon": 0.3, "neighbors": "add_remove"}
SWAP = BOUNDS | {"neighbors": "swap"}
FREE = {"epsilon": 4.0, "neighbors": "add_remove"}
CRITICAL = NormalDist().inv_cdf(1 - FALSE_POSITIVE_RATE / 2)
QUARTILES = [0.25, 0.5, 0.75]

CALLS = {
    "permute_and_flip": BOUNDS | {"mechanism": "permute_and_flip"},
    "permute_and_flip, q": SWAP | {"statistic": dpjax.quantile, "q": 0.8, "mechanism": "permute_and_flip"},
    "floats": FREE | {"grid": release.Floats(digits=2)},
    "maximum": BOUNDS | {"statistic": release.maximum, "tau": 9},
    "nonnegative_sum": {k: v for k, v in SWAP.items() if k != "lower"} | {"statistic": release.nonnegative_sum, "tau": 9},
}
COMPILED = {
    "median": BOUNDS,
    "linear": SWAP | {"definition": "linear"},
    "joint": BOUNDS | {"statistic": dpjax.quantiles, "qs": QUARTILES, "n_max": 100, "epsilon": 2.0},
    "recursive": BOUNDS | {"statistic": release.recursive_quantiles, "qs": QUARTILES, "epsilon": 1.0},
    "mode": FREE | {"statistic": release.mode, "candidates": [21, 25, 40, 59, 99], "epsilon": 1.0},
    "sum": SWAP | {"statistic": release.sum},
    "mean": SWAP | {"statistic": dpjax.mean},
    "count": FREE | {"statistic": dpjax.count, "epsilon": 0.5},
}
CALLS["nonnegative_sum"]["upper"] = 5000


@pytest.mark.parametrize(
    "call",
    [pytest.param(call, id=name) for name, call in CALLS.items()]
    + [pytest.param(call, id=name, marks=pytest.mark.slow) for name, call in COMPILED.items()],
)
def test_a_release_is_off_by_what_its_simulation_says(call):
    """Same names of options, same columns but for what is not private, and the error of the draws themselves."""
    draws = 4000
    planned = frames.simulate(KEY, PEOPLE, "age", draws=draws, **call)
    found = frames.release(PEOPLE, "age", draws=draws, **call)
    wrong_epsilon = (2.0 if "candidates" in call else 1.5) * call["epsilon"]
    other = frames.simulate(KEY, PEOPLE, "age", **call | {"epsilon": wrong_epsilon})
    assert [name for name in planned.frame if name in found.frame] == [name for name in found.frame if name != "released"]
    assert found.guarantee.epsilon == pytest.approx(planned.guarantee.epsilon) == pytest.approx(draws * call["epsilon"])
    levels = len(call.get("qs", [0]))
    wrong = []
    for k in range(levels):
        said, drawn, control = (result.frame.iloc[k::levels] for result in (planned, found, other))
        error = said["mean_abs_error"].iloc[0]
        measured = "qs" in call and call["statistic"] is release.recursive_quantiles  # on 1000 draws
        for values in (said["simulated"], drawn["released"]):
            errors = np.abs(values.to_numpy() - said["value"].iloc[0])
            deviation = np.std(errors) * np.sqrt(1 / draws + measured / 1000)
            assert abs(np.mean(errors) - error) <= CRITICAL * deviation, (k, np.mean(errors), error, deviation)
            within = np.mean((values >= said["lower95"].iloc[0]) & (values <= said["upper95"].iloc[0]))
            assert within >= 0.95 - CRITICAL * np.sqrt(0.05 * 0.95 * (1 / draws + measured / 1000))
        wrong.append(abs(np.mean(errors) - control["mean_abs_error"].iloc[0]) > CRITICAL * deviation)
    assert any(wrong)


@pytest.mark.slow
@pytest.mark.parametrize("mechanism", ["inverse_sensitivity", "laplace"])
def test_mechanisms_by_name_have_the_bars_of_the_arrays(mechanism):
    found = frames.simulate(KEY, PEOPLE, "age", mechanism=mechanism, **BOUNDS).frame
    options = {name: BOUNDS[name] for name in ("lower", "upper", "resolution", "neighbors")}
    profile = dpjax.median(AGES, **options)
    exact = dpjax.inverse_sensitivity(profile, 0.3)
    if mechanism == "laplace":
        exact = dpjax.laplace(profile.value, 0.3, sensitivity=120.0, lower=0.0, upper=120.0)
    bars = [exact.mean_abs_error(profile.value), *exact.interval(0.95)]
    np.testing.assert_allclose(found[["mean_abs_error", "lower95", "upper95"]].to_numpy()[0], bars, rtol=1e-4)
    assert abs(float(dpjax.piecewise_laplace(profile, 0.3).mean_abs_error(profile.value)) / float(bars[0]) - 1) > 1e-3  # control


@pytest.mark.slow
def test_ties_are_said_where_they_spoil_a_draw():
    tied = pandas.DataFrame({"age": [30.0] * 30 + list(range(31, 51)) + [None] * 9, "hours": np.arange(59.0)})
    options = {"lower": 0, "upper": 120, "epsilon": 1.0, "neighbors": "add_remove"}
    plain = frames.simulate(KEY, tied, ["age", "hours"], **options)
    assert plain.frame["tied_share"].tolist() == [0.6, pytest.approx(1 / 59)]
    assert "60 % of the records are tied: they equal the statistic." in plain.note
    assert "Give the resolution of the data as resolution= (1 for integers)" in plain.note
    assert plain.note.split(" A continuous")[0] in repr(plain)
    with_resolution = frames.simulate(KEY, tied, ["age", "hours"], resolution=1, **options)
    assert with_resolution.frame["tied_share"].tolist() == [0.6, pytest.approx(1 / 59)]
    assert (with_resolution.note, frames.simulate(KEY, tied, "hours", **options).note) == ("", "")
    assert "tied_share" not in frames.simulate(KEY, tied, "age", statistic=dpjax.mean, **options).frame


SAME = [
    ({"n_max": 100}, "n_max is for joint_quantiles"),
    ({"mask": AGES > 30}, "mask= is for arrays"),
    ({"counts": AGES}, "counts= is for arrays"),
    ({"mechanism": "permute and flip"}, "mechanism must be one of 'piecewise_laplace'"),
    ({"mechanism": "permute_and_flip", "resolution": None}, "needs lower, upper and (a )?resolution"),
    ({"grid": release.Floats(digits=2)}, "give no lower, upper or resolution beside it"),
    ({"statistic": release.median, "resolution": None}, "needs lower, upper and resolution"),
    ({"statistic": release.median, "mechanism": "laplace"}, "mechanism must be one of 'piecewise_laplace', 'permute_and_flip'"),
    ({"statistic": release.sum}, "neighbors must be 'swap': sums and means are released under swap only; got 'add_remove'"),
    ({"statistic": release.mean}, "sums and means are released under swap only"),
    ({"by": "region", "groups": "Male"}, r"groups must be a list of labels, such as \['Male'\]; got 'Male'"),
    ({"statistic": dpjax.quantiles, "qs": QUARTILES, "n": 60}, "sizes are private. Give n_max="),
    ({"statistic": dpjax.quantiles, "qs": QUARTILES, "n_max": 9, "neighbors": "swap"}, "n_max is for add_remove"),
    ({"statistic": dpjax.count, "neighbors": "swap"}, "count needs neighbors='add_remove'"),
    ({"statistic": release.mode, "candidates": [2, 1], "lower": None, "upper": None}, "increas"),
    ({"statistic": dpjax.quantile, "q": 0.5, "epsilon": 0.0}, "epsilon"),
]


@pytest.mark.parametrize(("changes", "message"), SAME, ids=lambda item: None if isinstance(item, str) else ", ".join(item))
def test_what_one_call_refuses_the_other_refuses_too(changes, message):
    call = {name: value for name, value in (BOUNDS | changes).items() if value is not None}
    for run in (lambda: frames.simulate(KEY, PEOPLE, "age", **call), lambda: frames.release(PEOPLE, "age", **call)):
        with pytest.raises((TypeError, ValueError), match=message):
            run()


def test_what_only_one_of_them_can_do_says_so():
    for changes, message in (
        ({"mechanism": "inverse_sensitivity"}, "mechanism must be one of 'piecewise_laplace', 'permute_and_flip'"),
        ({"epsilon": [0.5, 1.0]}, "a release has one epsilon"),
        ({"by": "region"}, "groups are public labels"),
        ({"statistic": dpjax.quantiles, "qs": QUARTILES}, "needs n_max="),
    ):
        with pytest.raises(ValueError, match=message):
            frames.release(PEOPLE, "age", **BOUNDS | changes)
    for changes, message in (
        ({"statistic": dpjax.quantiles, "qs": QUARTILES, "mechanism": "laplace"}, "give no mechanism"),
        ({"statistic": dpjax.local_sensitivity, "resolution": None}, "must return a SensitivityProfile"),
        ({"statistic": dpjax.mean, "resolution": None, "mechanism": "laplace"}, "laplace takes a profile with steps"),
        ({"mechanism": "gaussian"}, "'inverse_sensitivity', 'laplace', 'permute_and_flip'; got"),
        ({"statistic": dpjax.mean, "mechanism": "gaussian", "neighbors": "swap"}, "'inverse_sensitivity', 'permute_and_flip'; got"),
        ({"statistic": dpjax.mean, "mechanism": "gaussian", "resolution": None}, "'inverse_sensitivity'; got"),  # add/remove
        ({"resolution": None, "mechanism": "permute_and_flip"}, "^permute_and_flip needs lower, upper and a resolution"),
        ({"statistic": release.mode, "candidates": [20, 30]}, "^mode: got an unexpected keyword argument 'lower'"),
    ):
        with pytest.raises((TypeError, ValueError), match=message):
            frames.simulate(KEY, PEOPLE, "age", **{k: v for k, v in (BOUNDS | changes).items() if v is not None})


@pytest.mark.slow
@pytest.mark.parametrize("name", ["joint_quantiles", "recursive_quantiles"])
def test_the_mechanism_of_several_quantiles_stands_for_their_release(name):
    """In both calls; the other one is not the same."""
    call = SWAP | {"qs": QUARTILES}
    other = {"joint_quantiles": "recursive_quantiles", "recursive_quantiles": "joint_quantiles"}[name]
    planned = [
        frames.simulate(KEY, PEOPLE, "age", statistic=statistic, **call).frame["simulated"].tolist()
        for statistic in (getattr(dpjax, name), getattr(release, name), getattr(release, other))
    ]
    assert planned[0] == planned[1] != planned[2]
    assert released_as(getattr(dpjax, name)) is getattr(release, name)
    found = frames.release(PEOPLE, "age", statistic=getattr(dpjax, name), **call).frame
    assert found["quantile"].tolist() == QUARTILES


def test_a_result_prints_in_a_hundred_columns_with_everything():
    pytest.importorskip("polars")
    rng = np.random.default_rng(2)
    columns = {"region": np.repeat(["north", "south"], 200), "sex": np.tile(["f", "m"], 200)}
    columns |= {"age": rng.normal(50, 9, 400), "income": np.exp(rng.normal(10, 1, 400))}
    options = {"lower": 0, "epsilon": [0.5, 1.0], "neighbors": "add_remove", "mechanism": "permute_and_flip", "resolution": 1}
    for kind in (pandas.DataFrame, pytest.importorskip("polars").DataFrame):
        asked = {"age": {"upper": 120}, "income": {"upper": 10_000, "resolution": 100}}
        found = frames.simulate(KEY, kind(columns), asked, by=["region", "sex"], **options)
        lines = repr(found).splitlines()
        assert max(map(len, lines)) <= 100
        for name in found.frame.columns:
            assert sum(name in line.split() for line in lines) >= 1, name
        assert len([line for line in lines if line.startswith(("north", "south"))]) == 16 * (1 + ("" in lines))
        assert lines[-2:] == ["missing 0", str(found.guarantee)]
        assert set(found.guarantees) == {(column, epsilon) for column in asked for epsilon in (0.5, 1.0)}
        assert found.guarantees["age", 0.5].bounded_range == 1.0
        assert found.guarantee.epsilon == 3.0
        assert "<table" in found._repr_html_()
        assert str(found.guarantee) in found._repr_html_()


def test_long_results_say_how_many_rows_are_left():
    people = pandas.DataFrame({"group": np.arange(30), "age": 30.0})
    found = frames.release(people, "age", by="group", groups=range(30), **BOUNDS)
    lines = repr(found).splitlines()
    assert len(lines) == 1 + 20 + 3
    assert lines[21:] == ["... and 10 rows more", "column age, epsilon 0.3", str(found.guarantee)]
