"""The releases as a user calls them: their distributions, what they refuse, what data cannot do, and the doubtful lanes."""

from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpjax import release
from dpjax.release import Grid, GridDistribution, api, exact_distribution, to_grid, words
from dpjax.release.candidates import counts_of
from dpjax.release.grid import as_reals
from dpjax.release.integer_profiles import IntegerProfile, order_statistic, sum_of_records
from dpjax.release.sampler import Draw
from dpjax.statistics.quantiles import ranks_of_quantile
from tests.support.statistics import assert_counts_follow, assert_counts_rejected

GRID = Grid(log2_step=0, lower=10, size=21)
RECORDS = np.array([12, 14, 14, 15, 19, 22, 28])


def exact_of_median(epsilon, variant="owned_cell", neighbors="add_remove"):
    ranks = ranks_of_quantile(0.5, definition="linear", neighbors=neighbors)
    high = 20 + (variant == "cell")
    profile = order_statistic(RECORDS[None] - 10, np.ones((1, 7), bool), ranks, high=high, count_is_public=False)
    refined = np.arange(2 * high + (variant == "owned_cell"))
    fine = GridDistribution(IntegerProfile(profile.lower[0], profile.upper[0]), epsilon, variant).pmf(refined)
    return np.bincount(refined // ranks.denominator, fine, minlength=21)


@pytest.mark.slow
@pytest.mark.parametrize("variant", ["owned_cell", "cell"])
def test_the_median_follows_its_distribution(variant):
    found = release.median([RECORDS] * 3, epsilon=1.5, grid=GRID, neighbors="add_remove", variant=variant, draws=30_000)
    assert found.cells.shape == (30_000, 3)
    np.testing.assert_array_equal(found.values, found.cells + 10.0)
    counts = np.bincount(found.cells.ravel(), minlength=21)
    assert_counts_follow(counts, exact_of_median(1.5, variant))
    assert_counts_rejected(counts, exact_of_median(1.7, variant))
    for row in range(3):  # lanes are independent: one row alone follows too
        assert_counts_follow(np.bincount(found.cells[:, row], minlength=21), exact_of_median(1.5, variant))
    assert not np.array_equal(found.cells[:, 0], found.cells[:, 1])


@pytest.mark.slow
def test_sums_and_means_under_swap():
    grid = Grid(log2_step=-2, lower=-1, size=9)
    x = np.array([0.0, 0.3, 1.0, -1.0])
    profile = sum_of_records(np.array([[4, 5, 8, 0]]), high=8)
    for statistic, scale in ((release.sum, 1), (release.mean, 4)):
        found = statistic(x, epsilon=2.0, grid=grid, neighbors="swap", variant="owned_cell", draws=20_000)
        counts = np.bincount(found.cells, minlength=33)
        one = GridDistribution(IntegerProfile(profile.lower[0], profile.upper[0]), 2.0, "owned_cell")
        assert_counts_follow(counts, one.pmf(np.arange(33)))
        np.testing.assert_allclose(found.values, (found.cells * 0.25 - 4) / scale, rtol=0)
        np.testing.assert_array_equal(found.grid.values(found.cells), found.values * scale)


@pytest.mark.slow
def test_two_calls_differ_and_guarantees_add_up():
    arguments = {"epsilon": 0.25, "grid": Grid(0, 0, 2**20), "neighbors": "swap", "draws": 8}
    first, second = (release.median(np.arange(100) * 10_000, **arguments) for _ in range(2))
    assert not np.array_equal(first.cells, second.cells)
    assert first.guarantee.epsilon == first.guarantee.bounded_range == 2.0
    assert first.guarantee.neighbors == "swap"
    assert (first.variant, first.draws) == ("owned_cell", 8)
    for x in (np.arange(100.0), jnp.arange(100.0)):
        assert release.median(x, **arguments).variant == "cell"
    # The dtype of a list would depend on its records.
    for x in ([1, 2, 3], [1, 2.5, float("nan")]):
        assert release.median(x, **arguments).variant == "owned_cell"


def test_doubtful_lanes_are_drawn_exactly(monkeypatch):
    """If no lane is certified, all of them come from the host, and they are those of the device: the same bits."""
    seed = bytes(range(32))
    monkeypatch.setattr(words.os, "urandom", lambda n: seed[:n])
    arguments = {"epsilon": 1.0, "grid": Grid(-4, 0, 1000), "neighbors": "swap", "draws": 20}
    plain = release.quantile(np.linspace(0, 60, 9), 0.25, **arguments)
    device = api.certified_draw

    def never(*args, **kwargs):
        drawn = device(*args, **kwargs)
        return Draw(jnp.full_like(drawn.cell, -5), jnp.zeros_like(drawn.certified))

    monkeypatch.setattr(api, "certified_draw", never)
    np.testing.assert_array_equal(release.quantile(np.linspace(0, 60, 9), 0.25, **arguments).cells, plain.cells)


HOSTILE = {
    "nan": np.full(5, np.nan),
    "infinite": np.array([np.inf, -np.inf, np.inf, 0, 0]),
    "denormal": np.array([5e-324, -5e-324, -0.0, 0.0, 1e-310]),
    "far": np.array([1e300, -1e300, 1e308, 2.0, 3.0]),
    "all equal": np.full(5, 7.0),
    "at the bounds": np.array([10.0, 10.0, 31.0, 31.0, 31.0]),
    "below a line": np.nextafter(np.arange(11.0, 16.0), 0),
}


@pytest.mark.parametrize("neighbors", ["add_remove", pytest.param("swap", marks=pytest.mark.slow)])
def test_data_never_raise_nor_change_a_shape_or_a_program(neighbors, monkeypatch):
    traces = []
    device = api.certified_draw
    monkeypatch.setattr(
        api, "certified_draw", lambda *args, **kw: traces.append([np.shape(a) for a in args[1:]]) or device(*args, **kw)
    )
    for data in HOSTILE.values():
        for variant in ("cell", "owned_cell"):
            found = release.median(data, epsilon=1.0, grid=GRID, neighbors=neighbors, variant=variant, draws=3)
            assert found.cells.shape == (3,)
            assert found.cells.dtype == np.int64
            assert ((found.cells >= 0) & (found.cells < 21)).all()
    assert all(trace == traces[0] for trace in traces)


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
            common = {"epsilon": 1.0, "grid": GRID, "neighbors": "add_remove", "draws": 50, "variant": "cell"}
            cells = [release.median(data, **options, **common).cells.tolist() for options, data in versions]
        assert all(other == cells[0] for other in cells)
    assert release.median(np.zeros((4, 0)), epsilon=1.0, grid=GRID, neighbors="add_remove").cells.shape == (1, 4)


def test_bad_parameters_and_traces_are_refused():
    common = {"epsilon": 1.0, "grid": GRID, "neighbors": "swap"}
    for change, message in (
        ({"epsilon": 65.0}, "epsilon"),
        ({"epsilon": float("nan")}, "epsilon"),
        ({"neighbors": "edge"}, "neighbors|swap"),
        ({"variant": "point"}, "variant"),
        ({"definition": "continuous"}, "definition"),
        ({"draws": 0}, "draws"),
        ({"q": 1.5}, "between 0 and 1"),
        ({"q": Fraction(1, 2**28 + 1), "grid": Grid(0, 0, 100)}, "denominator"),
        ({"q": Fraction(1, 2**20 + 1), "grid": Grid(0, 0, 2**12)}, "2\\^31.*smaller denominator"),
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
    for grid in (4, None):
        with pytest.raises(TypeError, match="Grid"):
            release.median(RECORDS, **(common | {"grid": grid}))
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
        drawn = np.bincount(found.cells[:, row], minlength=4)
        assert_counts_follow(drawn, weights / weights.sum())
        wrong = np.exp(0.9 * np.log(weights))
        assert row == 1 or not np.allclose(wrong / wrong.sum(), weights / weights.sum())
    assert_counts_rejected(np.bincount(found.cells[:, 1], minlength=4), wrong / wrong.sum())
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
    for statistic, options in ((release.mode, {"candidates": (1.0, 2.0)}), (release.median, {"grid": GRID})):
        common = options | {"epsilon": 1.0, "neighbors": "add_remove"}
        with pytest.raises(ValueError, match=r"mask of shape \(2,\) does not fit x of shape \(3,\)"):
            statistic(np.ones(3), mask=[True, False], **common)
        with pytest.raises(TypeError, match="masked arrays"):
            statistic(np.ones(3), mask=np.ma.array([True, False, True]), **common)
        with pytest.raises(ValueError, match="mask must be bool"):
            statistic(np.ones(3), mask=[1, 0, 1], **common)
        assert statistic(np.ones((2, 3)), mask=[True, False, True], **common).cells.shape == (1, 2)


@pytest.mark.slow
def test_the_variant_of_arrays_that_numpy_does_not_know():
    class Foreign:
        dtype = "Float64"

        def __array__(self, dtype=None, copy=None):
            return np.array([12.0, None, 14.0], dtype=dtype)

    common = {"epsilon": 1.0, "grid": GRID, "neighbors": "swap"}
    for x, variant in ((jnp.ones(3, jnp.bfloat16), "cell"), (jnp.ones(3, jnp.int4), "owned_cell"), (Foreign(), "owned_cell")):
        assert release.median(x, **common).variant == exact_distribution(release.median, x, **common).variant == variant


STATISTICS = {
    "order statistic": (release.order_statistic, {"rank": 6}),
    "maximum": (release.maximum, {"tau": 2}),
    "total": (release.nonnegative_sum, {"tau": 1, "size": 200}),
    "quantile": (release.quantile, {"q": 0.9}),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", STATISTICS)
def test_releases_follow_the_distribution_that_is_evaluated_beforehand(name):
    statistic, options = STATISTICS[name]
    common = options | {"epsilon": 1.2, "grid": Grid(0, 0, 30), "neighbors": "add_remove"}
    exact = exact_distribution(statistic, RECORDS, **common)
    every = np.arange(exact.size)
    np.testing.assert_allclose(exact.pmf(every).sum(), 1.0, rtol=1e-12)
    found = statistic(RECORDS, **common, draws=20_000)
    counts = np.bincount(found.cells, minlength=exact.size)
    assert_counts_follow(counts, exact.pmf(every))
    assert_counts_rejected(counts, exact_distribution(statistic, RECORDS, **(common | {"epsilon": 1.6})).pmf(every))
    measured = np.abs(found.cells - 20)
    assert abs(measured.mean() - exact.mean_abs_error(20)) < 5 * measured.std() / np.sqrt(measured.size)
    assert (exact.pmf([-1, exact.size, 10**9]) == 0).all()


def test_what_exact_distribution_refuses():
    common = {"epsilon": 1.0, "grid": GRID, "neighbors": "add_remove"}
    with pytest.raises(ValueError, match="one dataset"):
        exact_distribution(release.median, [RECORDS], **common)
    with pytest.raises(ValueError, match="candidates"):
        exact_distribution(release.mode, RECORDS, candidates=(1.0, 2.0), epsilon=1.0, neighbors="swap")
    with pytest.raises(ValueError, match="starts at 0"):
        exact_distribution(release.nonnegative_sum, RECORDS, tau=1, size=100, **common)
    with pytest.raises(ValueError, match="tau"):
        exact_distribution(release.maximum, RECORDS, tau=0, **common)
    with pytest.raises(ValueError, match="coarser"):
        exact_distribution(release.median, [1.0], **(common | {"grid": Grid(0, 0, 2**23)})).mean_abs_error(0)


@pytest.mark.slow
def test_records_that_are_no_numbers_are_missing():
    common = {"epsilon": 1.0, "neighbors": "add_remove"}
    for records in ([31, 40, None], ["x", 40.0, 2**70], np.array([31, None, 2.5], object)):
        data = np.asarray(records, object)
        assert release.median(data, grid=GRID, **common).cells.shape == (1,)
        assert release.mode(data, candidates=(1.0, 31.0), **common).cells.shape == (1,)
    assert release.mode([1, 2, 2**70], candidates=(1.0, 2.0), **common).values[0] in (1.0, 2.0)
    assert release.maximum(np.zeros((2, 0)), tau=3, grid=GRID, **common).cells.shape == (1, 2)


def test_the_cells_of_a_list_do_not_depend_on_each_other():
    """NumPy would make floats of all of it for one fraction, and round 2^60 - 1 up; or text, for one word."""
    grid = Grid(30, 0, 2**31 - 2)
    for other in (1, 2.5, float("nan"), None, "x", 2**70):
        assert to_grid([2**60 - 1, other], grid)[0][0] == 2**30 - 1
    assert np.asarray([2**60 - 1, 2.5])[0] == 2**60  # the control
    with pytest.raises(ValueError, match="different lengths"):
        release.median([[1, 2], [3]], epsilon=1.0, grid=GRID, neighbors="swap")


@pytest.mark.slow
def test_ranks_that_would_overflow_are_refused():
    """A float 1/3 has a denominator of 10^16: products with it wrap around in 64 bits."""
    common = {"epsilon": 1.0, "grid": GRID}
    for definition in ("lower", "linear"):
        with pytest.raises(ValueError, match=r"denominator 10000000000000000.*Fraction\(1, 3\)"):
            release.quantile(np.zeros(3000), 1 / 3, definition=definition, neighbors="swap", **common)
    x = np.full(3000, np.nan)
    x[:2767] = 20.0
    options = common | {"definition": "lower", "neighbors": "add_remove", "variant": "owned_cell", "draws": 1000}
    found = release.quantile(x, Fraction(1, 3), **options)
    assert ((found.cells >= 0) & (found.cells < 21)).all()
    assert np.mean(found.cells == 10) > 0.3


@pytest.mark.slow
def test_sums_that_float64_cannot_hold_and_promises_that_would_be_rounded_down():
    for grid in (Grid(0, 2.0**52, 10), Grid(0, 2.0**53 - 4, 3)):
        with pytest.raises(ValueError, match="every value"):
            release.sum(np.zeros(2048), epsilon=1.0, grid=grid, neighbors="swap")
    for epsilon, draws in ((0.1, 5), (0.1, 9), (0.3, 3), (0.25, 4)):
        found = release.median(RECORDS, epsilon=epsilon, grid=GRID, neighbors="swap", draws=draws)
        assert Fraction(found.guarantee.epsilon) >= Fraction(epsilon) * draws
    with pytest.raises(ValueError, match="epsilon / sensitivity"):
        release.mode(RECORDS, candidates=(1.0, 2.0), epsilon=33.0, neighbors="add_remove")


@pytest.mark.slow
def test_distinct_ids_and_totals_of_persons():
    ids = ["a", "b", "b", 7, 7, 7, None, 2**80, float("nan")]
    common = {"epsilon": 1.5, "neighbors": "add_remove"}
    counted = common | {"tau": 1, "size": 20}
    for data in (ids, [1, 2, 2, 3, 3, 3, None, 5], np.array([1, 2, 2, 3, 3, 3, 5]), np.array(list("abbcccd"))):
        profile = exact_distribution(release.distinct_count, data, **counted).profile
        assert profile.upper.tolist()[:3] == [3, 4, 19]  # four ids, of which two are held by one person each
        assert profile.lower.tolist()[:5] == [3, 2, 2, 1, 1]
    found = release.distinct_count(ids, draws=20_000, **counted)
    counts = np.bincount(found.cells, minlength=20)
    exact = exact_distribution(release.distinct_count, ids, **counted)
    assert_counts_follow(counts, exact.pmf(np.arange(20)))
    assert_counts_rejected(counts, exact_distribution(release.distinct_count, ids[:6], **counted).pmf(np.arange(20)))
    np.testing.assert_array_equal(found.values, found.cells)

    amounts, persons = [[5, 1, 2.5, 9, 4]], [7, "x", 7, None, "x"]
    summed = common | {"tau": 1, "size": 60, "grid": Grid(-1, 0, 100), "person_ids": persons}
    exact = exact_distribution(release.user_sum, amounts[0], **summed)
    assert exact.profile.lower.tolist()[:3] == [10, 0, 0]  # in halves: 7.5 and 5.0, without the larger one
    assert exact.profile.upper.tolist() == [10, 25, 59]
    drawn = release.user_sum(amounts, draws=20_000, **summed)
    assert_counts_follow(np.bincount(drawn.cells[:, 0], minlength=60), exact.pmf(np.arange(60)))
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
