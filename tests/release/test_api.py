"""The releases as a user calls them: their distributions, what they refuse, what data cannot do, and the doubtful lanes."""

import json
from decimal import Decimal
from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from dpjax.release.candidates import counts_of
from dpjax.release.integer_profiles import IntegerProfile, order_statistic, sum_of_records
from dpjax.release.sampler import Draw
from dpjax.release.tables import exact_epsilon, level_weights

from dpjax import release
from dpjax.release import GridDistribution, drawing, exact_distribution, words
from dpjax.release.grid import Multiples, as_reals
from dpjax.several_quantiles.ranks import ranks_of_quantile
from tests.support.statistics import assert_counts_follow, assert_counts_rejected

BOUNDS = {"lower": 10, "upper": 30, "resolution": 1}
RECORDS = np.array([12, 14, 14, 15, 19, 22, 28])


def bounds(upper, lower=0, resolution=1):
    return {"lower": lower, "upper": upper, "resolution": resolution}


def exact_of_median(epsilon, neighbors="add_remove"):
    """Of the halves from 10 to 30."""
    ranks = ranks_of_quantile(0.5, definition="linear", neighbors=neighbors)
    profile = order_statistic(RECORDS[None] - 10, np.ones((1, 7), bool), ranks, high=20, count_is_public=False)
    return GridDistribution(IntegerProfile(profile.lower[0], profile.upper[0]), epsilon).pmf(np.arange(41))


@pytest.mark.slow
def test_the_median_follows_its_distribution():
    found = release.median([RECORDS] * 3, epsilon=1.5, **BOUNDS, neighbors="add_remove", definition="linear", draws=30_000)
    assert found.multiples.shape == (30_000, 3)
    assert found.resolution == Fraction(1, 2)
    np.testing.assert_array_equal(found.values, found.multiples / 2)
    cells = found.multiples - 20
    counts = np.bincount(cells.ravel(), minlength=41)
    assert_counts_follow(counts, exact_of_median(1.5))
    assert_counts_rejected(counts, exact_of_median(1.7))
    for row in range(3):  # lanes are independent: one row alone follows too
        assert_counts_follow(np.bincount(cells[:, row], minlength=41), exact_of_median(1.5))
    assert not np.array_equal(cells[:, 0], cells[:, 1])


@pytest.mark.slow
def test_sums_and_means_under_swap():
    x = np.array([0.0, 0.3, 1.0, -1.0])
    profile = sum_of_records(np.array([[4, 5, 8, 0]]), high=8)
    exact = GridDistribution(IntegerProfile(profile.lower[0], profile.upper[0]), 2.0).pmf(np.arange(33))
    for statistic, scale in ((release.sum, 1), (release.mean, 4)):
        options = bounds(1, -1, 0.25) | {"epsilon": 2.0, "neighbors": "swap"}
        found = statistic(x, **options, draws=20_000)
        assert_counts_follow(np.bincount(found.multiples + 16, minlength=33), exact)
        assert_counts_rejected(np.bincount(found.multiples + 16, minlength=33), np.roll(exact, 1))
        assert found.resolution == Fraction(1, 4 * scale)
        np.testing.assert_allclose(found.values, found.multiples * 0.25 / scale, rtol=0)
        evaluated = exact_distribution(statistic, x, **options)
        np.testing.assert_allclose(evaluated.values, np.arange(-16, 17) * 0.25 / scale, rtol=0)
        np.testing.assert_allclose(evaluated.pmf(evaluated.values), exact, rtol=1e-12)


@pytest.mark.slow
def test_means_are_multiples_of_the_resolution_over_the_number_of_records():
    """Three records of cents: thirds of a cent, each the float that is nearest to it."""
    found = release.mean([[0.1, 0.25, 0.29]], **bounds(1, 0, 0.01), epsilon=8.0, neighbors="swap", draws=300)
    assert found.resolution == Fraction(1, 300)
    assert found.values.tolist() == [[float(Fraction(int(number), 300))] for (number,) in found.multiples]
    assert len(set(found.multiples.ravel().tolist())) > 50


@pytest.mark.slow
def test_two_calls_differ_and_guarantees_add_up():
    arguments = {"epsilon": 0.25, **bounds(2**20 - 1), "neighbors": "swap", "draws": 8}
    first, second = (release.median(np.arange(100) * 10_000, **arguments) for _ in range(2))
    assert not np.array_equal(first.multiples, second.multiples)
    assert first.guarantee.epsilon == first.guarantee.bounded_range == 2.0
    assert first.guarantee.neighbors == "swap"
    assert first.draws == 8


class Column:
    """An array of another library, as pandas has them: a dtype of its own, and NumPy's protocol."""

    dtype = "Float64"

    def __init__(self, values):
        self.values = values

    def __array__(self, dtype=None, copy=None):
        return np.array(self.values, dtype=dtype)


CONTAINERS = {
    "list": list,
    "tuple": tuple,
    "float64": np.float64,
    "float32": np.float32,
    "float16": np.float16,
    "objects": lambda values: np.array(values, object),
    "JAX": lambda values: jnp.asarray(values, jnp.float32),
    "column": Column,
    "column of objects": lambda values: Column(np.array(values, object)),
    "list of arrays": lambda values: [np.array(value) for value in values],
    "list of both": lambda values: [np.float32(value) if i % 2 else value for i, value in enumerate(values)],
    "fractions": lambda values: [Fraction(value) for value in values],
}
WHOLE = {
    **{kind.__name__: kind for kind in (np.int64, np.int32, np.int16, np.uint8, np.uint64)},
    "integers": lambda values: [int(value) for value in values],
    "column of integers": lambda values: Column([int(value) for value in values]),
    "JAX's integers": lambda values: jnp.asarray(values, jnp.int32),
    "bfloat16": lambda values: jnp.asarray(values, jnp.bfloat16),
}
PROFILED = {
    "median": (release.median, {}),
    "lower quantile": (release.quantile, {"q": 0.9, "definition": "lower"}),
    "maximum": (release.maximum, {"tau": 1}),
    "order statistic": (release.order_statistic, {"rank": 2}),
    "total": (release.nonnegative_sum, {"tau": 1}),
    "persons": (release.user_sum, {"tau": 1, "person_ids": [1, 1, 2, 3, 4, 4]}),
    "sum": (release.sum, {}),
}


@pytest.mark.parametrize("name", PROFILED)
def test_the_container_of_the_records_changes_nothing(name):
    """Ties, halves between two multiples, and what lies beyond the bounds: the values alone decide."""
    function, options = PROFILED[name]
    common = options | {"upper": 20, "resolution": 1, "epsilon": 1.0, "neighbors": "swap" if name == "sum" else "add_remove"}
    if name not in ("total", "persons"):
        common["lower"] = 0

    def profile_of(x):
        found = exact_distribution(function, x, **common)
        return [side.tolist() for side in found.profile], found.resolution, found.start, found.log_pmf([0, 3, 3.5]).tolist()

    for values, kinds in (([2.5, 3.5, 14, 14.25, 30, 0.5], CONTAINERS), ([14.0, 3, 14, 14, 30, 0], CONTAINERS | WHOLE)):
        expected = profile_of(list(values))
        for make in kinds.values():
            x = np.array(values, make) if isinstance(make, type) and issubclass(make, np.generic) else make(values)
            assert profile_of(x) == expected
        assert profile_of([9, *values[1:-1], 9]) != expected  # the control


def test_decimals_in_single_precision_are_the_same_records():
    x = [0.29, 0.07, 0.58, 1.1, 0.57]
    common = {**bounds(2, 0, 0.01), "epsilon": 1.0, "neighbors": "swap", "definition": "linear"}
    expected = exact_distribution(release.median, x, **common)
    assert expected.resolution == Fraction(1, 200)
    assert expected.profile.upper[0] == 114
    for other in (np.array(x), np.array(x, np.float32), jnp.asarray(x, jnp.float32), Column(x)):
        assert exact_distribution(release.median, other, **common).profile.upper.tolist() == expected.profile.upper.tolist()


@pytest.mark.slow
def test_the_container_of_the_records_changes_no_draw(monkeypatch):
    monkeypatch.setattr(words.os, "urandom", lambda n: bytes(range(n)))
    values = [12.0, 14, 14, 15.5, 19, 22, 28]
    arguments = {"epsilon": 1.0, **BOUNDS, "neighbors": "swap", "draws": 20}
    drawn = [
        release.median(x, **arguments).multiples.tolist()
        for x in (values, np.array(values), np.array(values, np.float32), jnp.asarray(values, jnp.float32), Column(values))
    ]
    assert all(other == drawn[0] for other in drawn)


@pytest.mark.slow
@pytest.mark.parametrize("neighbors", ["add_remove", "swap"])
def test_what_is_released_in_words(neighbors):
    """As text, as lists and numbers, and as JSON."""
    x = np.tile(RECORDS, (30, 1))
    found = release.quantile(x, 0.25, **bounds(30, 10, 0.1), epsilon=1.0, neighbors=neighbors, definition="linear", draws=2)
    read = json.loads(found.to_json())
    assert read == found.to_dict()
    assert read["resolution"] == "1/40"
    assert np.array_equal(read["values"], found.values)
    assert np.array_equal(read["multiples"], found.multiples)
    assert np.array_equal(found.values, found.multiples / 40)
    assert read["guarantee"]["epsilon"] == read["guarantee"]["bounded_range"] == 2.0
    assert (read["guarantee"]["neighbors"], read["guarantee"]["promise"]) == (neighbors, str(found.guarantee))
    lines = str(found).split("\n")
    assert len(lines) == 22
    assert [float(value) for value in lines[19].split()] == found.values[:, 19].tolist()
    assert lines[20:] == ["... and 10 rows more", f"2-DP and 2-bounded-range under {neighbors} neighbors"]
    chosen = release.mode(RECORDS, candidates=(14.0, 28.0), epsilon=1.0, neighbors=neighbors)
    assert chosen.to_dict()["resolution"] is None
    assert str(chosen).split("\n")[0] in ("14", "28")


def test_doubtful_lanes_are_drawn_exactly(monkeypatch):
    """If no lane is certified, all of them come from the host, and they are those of the device: the same bits.

    The host has the levels that there are, the device a round number of them.
    """
    seed = bytes(range(32))
    monkeypatch.setattr(words.os, "urandom", lambda n: seed[:n])
    # Nearly no ties, and nothing but ties, also at the bounds; epsilon is such that the value has neither all the mass nor none.
    every = [
        (np.linspace(0, 60, 9), 1.0),
        *((np.full(9, value), epsilon) for value, epsilon in ((20.0, 3.0), (0.0, 1.0), (62.5, 3.0))),
    ]

    def drawn():
        public = {**bounds(62.5, 0, 0.0625), "neighbors": "swap", "draws": 200}
        return [release.quantile(x, 0.25, epsilon=epsilon, **public).multiples for x, epsilon in every]

    plain, device = drawn(), drawing.certified_draw

    def never(*args, **kwargs):
        drawn = device(*args, **kwargs)
        return Draw(jnp.full_like(drawn.cell, -5), jnp.zeros_like(drawn.certified))

    monkeypatch.setattr(drawing, "certified_draw", never)
    np.testing.assert_array_equal(drawn(), plain)
    monkeypatch.setattr(drawing, "certified_draw", lambda tables, *sides: device(tables, *map(deeper, sides[:2]), sides[2]))
    assert np.any(np.array(drawn()) != plain, axis=-1).all()  # control


def deeper(side):
    """A side that stays at its value for one more change."""
    return np.concatenate([side[:, :1], side[:, :-1]], axis=-1)


HOSTILE = {
    "nan": np.full(5, np.nan),
    "infinite": np.array([np.inf, -np.inf, np.inf, 0, 0]),
    "denormal": np.array([5e-324, -5e-324, -0.0, 0.0, 1e-310]),
    "far": np.array([1e300, -1e300, 1e308, 2.0, 3.0]),
    "all equal": np.full(5, 7.0),
    "at the bounds": np.array([10.0, 10.0, 30.0, 30.0, 30.0]),
    "beyond a bound": np.array([10.0, 10.0, 31.0, 31.0, 31.0]),
    "below a line": np.nextafter(np.arange(11.0, 16.0), 0),
    "halfway": np.arange(11.5, 16.0),
    "below a half": np.nextafter(np.arange(11.5, 16.0), 0),
}


@pytest.mark.parametrize("neighbors", ["add_remove", pytest.param("swap", marks=pytest.mark.slow)])
def test_data_never_raise_nor_change_a_shape_or_a_program(neighbors, monkeypatch):
    traces = []
    device = drawing.certified_draw
    monkeypatch.setattr(
        drawing, "certified_draw", lambda *args, **kw: traces.append([np.shape(a) for a in args[1:]]) or device(*args, **kw)
    )
    for data in HOSTILE.values():
        found = release.median(data, epsilon=1.0, **BOUNDS, neighbors=neighbors, draws=3)
        assert found.multiples.shape == (3,)
        assert found.multiples.dtype == np.int64
        assert ((found.values >= 10) & (found.values <= 30)).all()
    assert len(traces) == len(HOSTILE)
    assert all(trace == traces[0] for trace in traces)


def test_datasets_of_about_the_same_size_share_a_program(monkeypatch):
    shapes = []
    device = drawing.certified_draw
    monkeypatch.setattr(drawing, "certified_draw", lambda *args: shapes.append(jax.tree.map(np.shape, args)) or device(*args))
    for n in (20, 40, 200):
        found = release.median(np.linspace(10, 30, n), epsilon=64.0, **BOUNDS, neighbors="swap")
        assert np.abs(found.values - 20).max() <= 1  # the wide program has the values of the narrow one
    assert shapes[0] == shapes[1] != shapes[2]


@pytest.mark.slow
def test_absent_records_wherever_they_stand():
    """Padding first, last or in between, by NaN, mask or n_max: the same distribution; with the same entropy, the same draws."""
    x = RECORDS.astype(float)
    absent = np.nan
    versions = [
        ({}, [*x, absent, absent]),
        ({}, [absent, *x, absent]),
        ({}, [x[0], absent, *x[1:6], absent, x[6]]),
        ({"n_max": 9}, x),
        ({"mask": [True] * 7 + [False] * 2}, [*x, 99.0, 11.0]),
    ]
    for entropy in (bytes(32), bytes(range(32))):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(words.os, "urandom", lambda n, entropy=entropy: entropy[:n])
            common = {"epsilon": 1.0, **BOUNDS, "neighbors": "add_remove", "draws": 50}
            cells = [release.median(data, **options, **common).multiples.tolist() for options, data in versions]
        assert all(other == cells[0] for other in cells)
    assert release.median(np.zeros((4, 0)), epsilon=1.0, **BOUNDS, neighbors="add_remove").values.shape == (1, 4)


def test_bad_parameters_and_traces_are_refused():
    common = {"epsilon": 1.0, **BOUNDS, "neighbors": "swap"}
    for change, message in (
        ({"epsilon": 65.0}, "epsilon"),
        ({"epsilon": float("nan")}, "epsilon"),
        ({"neighbors": "edge"}, "neighbors|swap"),
        ({"lower": 10.5}, "multiples of the resolution 1, got 10.5"),
        ({"lower": 30}, "lower below upper"),
        ({"upper": float("inf")}, "finite"),
        ({"resolution": 0}, "resolution must be a positive number"),
        ({"resolution": Fraction(1, 2**40)}, "coarser resolution"),
        ({"definition": "continuous"}, "definition"),
        ({"draws": 0}, "draws"),
        ({"q": 1.5}, "between 0 and 1"),
        ({"q": Fraction(1, 2**31 + 1), **bounds(99)}, "denominator"),
        ({"q": Fraction(1, 2**20 + 1), **bounds(2**12 - 1), "definition": "linear"}, "2\\^31.*smaller denominator"),
        ({"n_max": 9}, "add_remove"),
        ({"neighbors": "add_remove", "n_max": 3}, "n_max"),
        *(({"neighbors": "add_remove", "n_max": n_max}, "n_max must be an integer") for n_max in (9.7, "x", True, np.array([9]))),
    ):
        with pytest.raises(ValueError, match=message):
            release.quantile(RECORDS, **({"q": 0.5} | common | change))
    with pytest.raises(ValueError, match="rank"):
        release.order_statistic(RECORDS, 9, **common)
    for statistic in (release.sum, release.mean):
        with pytest.raises(ValueError, match="swap"):
            statistic(RECORDS, **(common | {"neighbors": "add_remove"}))
    with pytest.raises(TypeError, match="not a JAX array"):
        release.median(RECORDS, **(common | {"resolution": jnp.float32(1)}))
    for gone in ("variant", "law"):
        with pytest.raises(TypeError, match=gone):
            release.median(RECORDS, **common, **{gone: None})
    for needed in BOUNDS:
        with pytest.raises(TypeError, match=needed):
            release.median(RECORDS, **{key: value for key, value in common.items() if key != needed})
    for run in (
        lambda: jax.jit(lambda x: release.median(x, **common).values)(RECORDS),
        lambda: jax.jit(lambda: release.median(RECORDS, **common).values)(),
        lambda: jax.vmap(lambda x: release.median(x, **common).values)(RECORDS[None]),
    ):
        with pytest.raises(TypeError, match="jit"):
            run()


@pytest.mark.parametrize("neighbors", [pytest.param("add_remove", marks=pytest.mark.slow), "swap"])
def test_modes_follow_the_exponential_mechanism(neighbors):
    votes = np.array([[3, 3, 5, 9, 3, 5, 7, -1], [9, 9, 9, 9, 9, 9, 9, 9]])
    candidates = (3.0, 5.0, 8.0, 9.0)
    found = release.mode(votes, candidates=candidates, epsilon=0.7, neighbors=neighbors, draws=20_000)
    assert set(np.unique(found.values)) <= set(candidates)
    counts = np.stack([np.sum(votes == c, axis=-1) for c in candidates], axis=-1)
    for row in range(2):
        weights = np.exp((0.7 if neighbors == "add_remove" else 0.35) * counts[row])
        drawn = np.bincount(found.multiples[:, row], minlength=4)
        assert_counts_follow(drawn, weights / weights.sum())
        wrong = np.exp(0.9 * np.log(weights))
        assert row == 1 or not np.allclose(wrong / wrong.sum(), weights / weights.sum())
    assert_counts_rejected(np.bincount(found.multiples[:, 1], minlength=4), wrong / wrong.sum())
    assert found.guarantee.epsilon == pytest.approx(0.7 * 20_000)
    for bad in ((), (1.0, 1.0), (2.0, 1.0), (float("nan"),)):
        with pytest.raises(ValueError, match="candidates"):
            release.mode(votes, candidates=bad, epsilon=0.7, neighbors=neighbors)


@pytest.mark.slow
def test_modes_count_what_equals_a_candidate_exactly():
    odd = 2**53 + 1  # float64 would round it to 2^53
    for other in (np.int64, np.uint64, object, list, np.longdouble):
        exact = other is not np.longdouble or np.longdouble(odd) != np.longdouble(2**53)  # some have no more digits than float64
        for value, equal in ((odd, not exact), (2**53, True)):
            x = [[value] * 40] if other is list else np.array([[value] * 40], other)
            found = release.mode(x, candidates=(0, 2**53), epsilon=5.0, neighbors="swap", draws=200)
            assert (np.mean(found.values == 2**53) > 0.9) == equal

    def counts(x, labels):
        return counts_of(as_reals(x), np.True_, labels).tolist()

    for x in (np.array([3, 200], np.uint8), np.array([3.0, 200.0], np.float16), [3, 200.0], np.array([3, 200], object)):
        assert counts(x, (-1.0, 2.5, 3.0, 200.0, 256.0, 1e300)) == [0, 0, 1, 1, 0, 0]
    assert counts([2**2000, None, "x", float("nan"), 3], (0.0, 3.0)) == [0, 1]
    assert counts(np.array([True, False, True]), (0.0, 1.0)) == [1, 2]
    assert counts(np.array([0x7FF0000000000001], np.uint64).view(np.float64), (0.0,)) == [0]
    for candidates in ((0, odd), (np.int64(odd), 2.0**60)):
        with pytest.raises(ValueError, match="float64 holds"):
            release.mode([1, 2], candidates=candidates, epsilon=5.0, neighbors="swap")


@pytest.mark.slow
def test_masks_that_do_not_fit_are_named():
    for statistic, options in ((release.mode, {"candidates": (1.0, 2.0)}), (release.median, BOUNDS)):
        common = options | {"epsilon": 1.0, "neighbors": "add_remove"}
        with pytest.raises(ValueError, match=r"mask of shape \(2,\) does not fit x of shape \(3,\)"):
            statistic(np.ones(3), mask=[True, False], **common)
        with pytest.raises(TypeError, match="masked arrays"):
            statistic(np.ones(3), mask=np.ma.array([True, False, True]), **common)
        with pytest.raises(ValueError, match="mask must be bool"):
            statistic(np.ones(3), mask=[1, 0, 1], **common)
        assert statistic(np.ones((2, 3)), mask=[True, False, True], **common).multiples.shape == (1, 2)


@pytest.mark.slow
def test_arrays_that_numpy_does_not_know():
    common = {"epsilon": 1.0, **BOUNDS, "neighbors": "swap"}
    for x, same in (
        (jnp.full(3, 12, jnp.bfloat16), [12] * 3),
        (jnp.ones(3, jnp.int4), [1] * 3),
        (Column([12.0, None, 14.0]), [12.0, float("nan"), 14.0]),
    ):
        assert release.median(x, **common).values.shape == (1,)
        found, expected = (exact_distribution(release.median, data, **common).profile for data in (x, same))
        assert [side.tolist() for side in found] == [side.tolist() for side in expected]


STATISTICS = {
    "order statistic": (release.order_statistic, {"rank": 6}),
    "maximum": (release.maximum, {"tau": 2}),
    "total": (release.nonnegative_sum, {"tau": 1, "upper": 199}),
    "quantile": (release.quantile, {"q": 0.9}),
    "tied": (release.median, {"definition": "lower", "x": [14, 14, 14, 14, 14, 19, 22, 28]}),
    "not from 0": (release.quantile, {"q": 0.25, "lower": 5, "upper": 30, "resolution": 0.5}),
    "decimals": (release.maximum, {"tau": 1, "lower": -0.3, "upper": 30, "resolution": "0.1", "center": 22}),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", STATISTICS)
def test_releases_follow_the_distribution_that_is_evaluated_beforehand(name):
    statistic, options = STATISTICS[name]
    common = {"epsilon": 1.2, **bounds(29), "neighbors": "add_remove"} | options
    x, center = common.pop("x", RECORDS), common.pop("center", 20)
    if name == "total":
        del common["lower"]
    exact = exact_distribution(statistic, x, **common)
    np.testing.assert_allclose(exact.pmf(exact.values).sum(), 1.0, rtol=1e-12)
    np.testing.assert_allclose(exact.values, (exact.start + np.arange(exact.size)) * float(exact.resolution), rtol=1e-15, atol=0)
    np.testing.assert_allclose(np.log(exact.pmf(exact.values)), exact.log_pmf(exact.values), rtol=1e-12, atol=1e-12)
    found = statistic(x, **common, draws=20_000)
    assert found.resolution == exact.resolution
    np.testing.assert_array_equal(found.values, exact.values[found.multiples - exact.start])
    counts = np.bincount(found.multiples - exact.start, minlength=exact.size)
    assert_counts_follow(counts, exact.pmf(exact.values))
    assert_counts_rejected(counts, exact_distribution(statistic, x, **(common | {"epsilon": 1.6})).pmf(exact.values))
    measured = np.abs(found.values - center)
    assert abs(measured.mean() - exact.mean_abs_error(center)) < 5 * measured.std() / np.sqrt(measured.size)
    step = float(exact.resolution)
    assert (exact.pmf([exact.values[0] - step, exact.values[-1] + step, 10**9, 20 + step / 2, np.nan, np.inf]) == 0).all()
    assert exact.pmf(exact.values[:6].reshape(2, 3)).shape == (2, 3)


def test_what_exact_distribution_refuses():
    common = {"epsilon": 1.0, **BOUNDS, "neighbors": "add_remove"}
    with pytest.raises(ValueError, match="one dataset"):
        exact_distribution(release.median, [RECORDS], **common)
    with pytest.raises(ValueError, match="candidates"):
        exact_distribution(release.mode, RECORDS, candidates=(1.0, 2.0), epsilon=1.0, neighbors="swap")
    for function, options in ((release.nonnegative_sum, {}), (release.user_sum, {"person_ids": RECORDS})):
        with pytest.raises(TypeError, match="lower"):  # it is 0
            exact_distribution(function, RECORDS, tau=1, **options, **common)
    with pytest.raises(ValueError, match="tau"):
        exact_distribution(release.maximum, RECORDS, tau=0, **common)
    with pytest.raises(ValueError, match="coarser"):
        exact_distribution(release.median, [1.0], **(common | bounds(2**23))).mean_abs_error(0)


@pytest.mark.slow
def test_records_that_are_no_numbers_are_missing():
    common = {"epsilon": 1.0, "neighbors": "add_remove"}
    for records in ([31, 40, None], ["x", 40.0, 2**70], np.array([31, None, 2.5], object)):
        data = np.asarray(records, object)
        assert release.median(data, **BOUNDS, **common).values.shape == (1,)
        assert release.mode(data, candidates=(1.0, 31.0), **common).values.shape == (1,)
    assert release.mode([1, 2, 2**70], candidates=(1.0, 2.0), **common).values[0] in (1.0, 2.0)
    assert release.maximum(np.zeros((2, 0)), tau=3, **BOUNDS, **common).values.shape == (1, 2)


def test_the_records_of_a_list_do_not_depend_on_each_other():
    """NumPy would make floats of all of it for one fraction, and text for one word; and wrap around, or refuse, for 2^70."""
    grid = Multiples.between(0, (2**31 - 3) * 2**30, 2**30)
    for other in (1, 2.5, float("nan"), None, "x", 2**70):
        for value in (2**60 - 1, 2**61 - 2**32, 12.0 * 2**30):
            assert grid.numbers_of([value, other])[0][0] == grid.numbers_of([value])[0][0] == round(value / 2**30)
    assert np.asarray([2**60 - 1, 2.5])[0] == 2**60  # the controls
    assert np.asarray([2**60 - 1, "x"]).dtype.kind == "U"
    with pytest.raises(ValueError, match="different lengths"):
        release.median([[1, 2], [3]], epsilon=1.0, **BOUNDS, neighbors="swap")


@pytest.mark.slow
def test_ranks_that_would_overflow_are_refused():
    """A float 1/3 has a denominator of 10^15: products with it wrap around in 64 bits."""
    common = {"epsilon": 1.0, **BOUNDS}
    for definition in ("lower", "linear"):
        with pytest.raises(ValueError, match=r"denominator 1000000000000000.*Fraction\(1, 3\)"):
            release.quantile(np.zeros(3000), 1 / 3, definition=definition, neighbors="swap", **common)
    x = np.full(3000, np.nan)
    x[:2767] = 20.0
    options = common | {"definition": "lower", "neighbors": "add_remove", "draws": 1000}
    found = release.quantile(x, Fraction(1, 3), **options)
    assert ((found.values >= 10) & (found.values <= 30)).all()
    assert np.mean(found.values == 20) > 0.999  # all records are equal


@pytest.mark.parametrize("statistic", ["sum", "mean", "quantile"])
def test_values_that_float64_cannot_hold_are_refused(statistic):
    """The sum of 4096 numbers of 2^52 passes 64 bits, and that of 2^50 the integers that float64 counts; so do thousandths."""
    options = {"epsilon": 1.0, "neighbors": "swap"} | ({"q": 0.999, "definition": "linear"} if statistic == "quantile" else {})
    for records, lower in ((2048, 2**52), (2048, 2**53 - 4), (2048, 2**52 - 9), (4096, 2**50), (4096, -(2**50))):
        with pytest.raises(ValueError, match="float"):
            getattr(release, statistic)(np.zeros(records), **bounds(lower + 9, lower), **options)


@pytest.mark.slow
def test_promises_that_would_be_rounded_down():
    for epsilon, draws in ((0.1, 5), (0.1, 9), (0.3, 3), (0.25, 4)):
        found = release.median(RECORDS, epsilon=epsilon, **BOUNDS, neighbors="swap", draws=draws)
        assert Fraction(found.guarantee.epsilon) >= Fraction(epsilon) * draws
    with pytest.raises(ValueError, match="epsilon / sensitivity"):
        release.mode(RECORDS, candidates=(1.0, 2.0), epsilon=33.0, neighbors="add_remove")


@pytest.mark.slow
def test_distinct_ids_and_totals_of_persons():
    ids = ["a", "b", "b", 7, 7, 7, None, 2**80, float("nan")]
    common = {"epsilon": 1.5, "neighbors": "add_remove"}
    counted = common | {"tau": 1, "upper": 19}
    for data in (ids, [1, 2, 2, 3, 3, 3, None, 5], np.array([1, 2, 2, 3, 3, 3, 5]), np.array(list("abbcccd"))):
        profile = exact_distribution(release.distinct_count, data, **counted).profile
        assert profile.upper.tolist()[:3] == [3, 4, 19]  # four ids, of which two are held by one person each
        assert profile.lower.tolist()[:5] == [3, 2, 2, 1, 1]
    found = release.distinct_count(ids, draws=20_000, **counted)
    counts = np.bincount(found.multiples, minlength=20)
    exact = exact_distribution(release.distinct_count, ids, **counted)
    assert_counts_follow(counts, exact.pmf(np.arange(20)))
    assert_counts_rejected(counts, exact_distribution(release.distinct_count, ids[:6], **counted).pmf(np.arange(20)))
    np.testing.assert_array_equal(found.values, found.multiples)

    amounts, persons = [[5, 1, 2.5, 9, 4]], [7, "x", 7, None, "x"]
    summed = common | {"tau": 1, "upper": 29.5, "resolution": 0.5, "person_ids": persons}
    exact = exact_distribution(release.user_sum, amounts[0], **summed)
    assert exact.profile.lower.tolist()[:3] == [10, 0, 0]  # in halves: 7.5 and 5.0, without the larger one
    assert exact.profile.upper.tolist() == [10, 25, 59]
    drawn = release.user_sum(amounts, draws=20_000, **summed)
    assert_counts_follow(np.bincount(drawn.multiples[:, 0], minlength=60), exact.pmf(np.arange(60) / 2))
    masked = exact_distribution(release.user_sum, amounts[0], mask=[True, True, False, True, True], n_max=8, **summed)
    assert masked.profile.upper.tolist() == [10, 20, 59]

    for change, error, message in (
        ({"person_ids": [1, 2]}, ValueError, "person_ids"),
        ({"person_ids": np.ones(5)}, TypeError, "ids"),
        ({"neighbors": "swap"}, ValueError, "add_remove"),
    ):
        with pytest.raises(error, match=message):
            release.user_sum(amounts[0], **(summed | change))
    with pytest.raises(TypeError, match="ids"):
        release.distinct_count(np.ones(3), **counted)


def test_only_what_is_public_is_listed():
    assert dir(release) == sorted(release.__all__)
    assert all(getattr(release, name).__doc__ for name in release.__all__)


VALUES, NUMBERS = [12, 14, 15.2, 19, 22, 28, 29], [1, 2, 1, 1, 1, 1, 0]  # RECORDS, rounded


@pytest.mark.parametrize(
    ("statistic", "options"),
    [
        (release.median, {"definition": "linear"}),
        (release.quantile, {"q": 0.9}),
        (release.order_statistic, {"rank": 2}),
        (release.maximum, {"tau": 2}),
        (release.nonnegative_sum, {"tau": 1, "upper": 300}),
        (release.distinct_count, {"tau": 1, "upper": 20}),
    ],
)
def test_counts_stand_for_records(statistic, options):
    given = {**BOUNDS, **options, "epsilon": 1.0, "neighbors": "add_remove", "n_max": 11}
    for absent in {release.nonnegative_sum: ["lower"], release.distinct_count: ["lower", "resolution"]}.get(statistic, []):
        del given[absent]
    values = np.rint(VALUES).astype(int) if statistic is release.distinct_count else VALUES
    expected = exact_distribution(statistic, RECORDS, **given)
    for order in (slice(None), slice(None, None, -1)):
        found = exact_distribution(statistic, values[order], counts=NUMBERS[order], **given)
        assert [side.tolist() for side in found.profile] == [side.tolist() for side in expected.profile]
    fewer = exact_distribution(statistic, values, counts=[-3, *NUMBERS[1:]], **given)  # negative ones count as 0
    assert [side.tolist() for side in fewer.profile] != [side.tolist() for side in expected.profile]
    for dtype in (np.int8, np.uint8, np.int64, np.uint64, object):
        own = exact_distribution(statistic, values, counts=np.array(NUMBERS, dtype), **given | {"n_max": 300})
        padded = exact_distribution(statistic, RECORDS, **given | {"n_max": 300})
        assert [side.tolist() for side in own.profile] == [side.tolist() for side in padded.profile]
    drawn = statistic(values, counts=[NUMBERS, [0] * 7, [0, 0, 11, 0, 0, 0, 0]], **given)
    assert drawn.values.shape == (1, 3)


def test_counts_that_do_not_fit_are_refused():
    given = {**BOUNDS, "epsilon": 1.0, "neighbors": "add_remove"}
    with pytest.raises(ValueError, match="counts need n_max"):
        release.median(VALUES, counts=NUMBERS, **given)
    with pytest.raises(ValueError, match="more records than n_max = 6"):
        release.median(VALUES, counts=NUMBERS, n_max=6, **given)
    with pytest.raises(TypeError, match="integers"):
        release.median(VALUES, counts=[1.5] * 7, n_max=20, **given)
    with pytest.raises(ValueError, match="under swap"):
        release.median(VALUES, counts=NUMBERS, **given | {"neighbors": "swap"})


def test_a_database_counts_and_the_release_draws():
    """What the README shows, from the table of people to the draw."""
    duckdb = pytest.importorskip("duckdb", reason="needs the extra 'databases'")
    people = duckdb.connect()
    people.execute("CREATE TABLE people (region VARCHAR, age INTEGER)")
    people.executemany("INSERT INTO people VALUES (?, ?)", [("north", 31)] * 60 + [("north", 28)] * 20 + [("south", 52)] * 50)
    rows = people.sql("SELECT region, age, count(*) AS people FROM people GROUP BY region, age").fetchnumpy()
    regions = ["north", "south", "west"]
    counts = np.zeros((3, 121), int)
    for number, region in enumerate(regions):
        own = rows["region"] == region
        counts[number, rows["age"][own]] = rows["people"][own]
    options = {"lower": 0, "upper": 120, "resolution": 1, "epsilon": 30.0, "neighbors": "add_remove"}
    found = release.median(np.arange(121), counts=counts, n_max=200, **options)
    assert found.values[0, :2].tolist() == [31.0, 52.0]


def test_an_epsilon_of_any_kind_is_that_number():
    common = {**BOUNDS, "neighbors": "swap"}
    for mechanism, times in (("piecewise_laplace", 1), ("permute_and_flip", 2)):
        found = release.median(RECORDS, epsilon=Fraction(3, 10), mechanism=mechanism, **common).guarantee
        assert Fraction(found.epsilon) >= Fraction(3, 10)
        assert Fraction(found.bounded_range) >= times * Fraction(3, 10)
        for epsilon in (jnp.float32(1), np.array(1.0), 1, Fraction(1)):
            assert release.median(RECORDS, epsilon=epsilon, mechanism=mechanism, **common).guarantee.epsilon == 1.0


def test_what_a_newcomer_mistakes_is_named():
    common = {**BOUNDS, "neighbors": "add_remove"}
    for epsilon in ([0.1, 1], np.array([0.1, 1.0])):
        with pytest.raises(TypeError, match=r"epsilon must be one number, got \[0.1,? +1"):
            release.median(RECORDS, epsilon=epsilon, **common)
    with pytest.raises(ValueError, match=r"dpjax.quantiles and dpjax.release.joint_quantiles take several"):
        release.quantile(RECORDS, [0.1, 0.5], epsilon=1.0, **common)
    for qs in (0.5, "0.5", np.array(0.5)):
        with pytest.raises(TypeError, match=r"qs must be several levels such as \[0.25, 0.5\], got"):
            release.joint_quantiles(RECORDS, qs, epsilon=1.0, **common)


def test_columns_of_text_are_refused_by_their_dtype_alone():
    pd = pytest.importorskip("pandas", reason="needs the extra 'frames'")
    common = {**BOUNDS, "neighbors": "add_remove", "epsilon": 1.0}
    text = [np.array(["m"]), np.array([b"m"]), *(pd.Series(["1", "2"], dtype=kind) for kind in ("string", "category"))]
    polars = pytest.importorskip("polars", reason="needs the extra 'frames'")
    text += [polars.Series(["1"]), polars.Series(["1"], dtype=polars.Categorical), polars.Series(["1"], dtype=polars.Enum(["1"]))]
    for x in text:
        with pytest.raises(TypeError, match="x must hold numbers, got dtype"):
            release.median(x, **common)
    for x in (pd.Series(["m", 10**30], dtype=object), ["m", 12], polars.Series([{"a": 1}]), pd.Series([12, None], dtype="Int64")):
        assert release.median(x, **common).draws == 1  # whatever it holds
    ids = polars.Series(["a", "b", "a"])
    assert release.distinct_count(ids, tau=1, upper=9, epsilon=1.0, neighbors="add_remove").draws == 1


def test_tables_are_kept_for_one_number_only():
    one, other = (level_weights(exact_epsilon(epsilon), 300) for epsilon in (Fraction(1, 10), Decimal("0.1")))
    assert (one.low != other.low).any()  # the fraction, and the float that is nearest to it
    with pytest.raises(ValueError, match="read-only"):
        one.low[0] = 1
