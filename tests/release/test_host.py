"""The release as a user calls it: its law, what it refuses, what data cannot do, and the doubtful lanes."""

from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpjax.release import (
    Distinct,
    Grid,
    Maximum,
    Mode,
    OrderStatistic,
    Quantile,
    Total,
    exact_law,
    host,
    lanes,
    log_pmf,
    order_knots,
    release,
    sum_knots,
    to_grid,
)
from dpjax.release.draw import Draw
from dpjax.statistics.quantiles import ranks_of_quantile
from tests.support.statistics import assert_counts_follow, assert_counts_rejected

GRID = Grid(log2_step=0, lower=10, size=21)
RECORDS = np.array([12, 14, 14, 15, 19, 22, 28])


def exact_of_median(epsilon, law="owned_cell", neighbors="add_remove"):
    ranks = ranks_of_quantile(0.5, definition="linear", neighbors=neighbors)
    high = 20 + (law == "cell")
    knots = order_knots(RECORDS[None] - 10, np.ones((1, 7), bool), ranks, high=high, count_is_public=False)
    refined = np.arange(2 * high + (law == "owned_cell"))
    fine = np.exp(log_pmf(type(knots)(knots.lower[0], knots.upper[0]), epsilon, refined, law=law))
    return np.bincount(refined // ranks.denominator, fine, minlength=21)


@pytest.mark.slow
@pytest.mark.parametrize("law", ["owned_cell", "cell"])
def test_the_median_follows_its_law(law):
    found = release([RECORDS] * 3, statistic="median", epsilon=1.5, grid=GRID, neighbors="add_remove", law=law, draws=30_000)
    assert found.cells.shape == (30_000, 3)
    np.testing.assert_array_equal(found.values, found.cells + 10.0)
    counts = np.bincount(found.cells.ravel(), minlength=21)
    assert_counts_follow(counts, exact_of_median(1.5, law))
    assert_counts_rejected(counts, exact_of_median(1.7, law))
    for row in range(3):  # lanes are independent: one row alone follows too
        assert_counts_follow(np.bincount(found.cells[:, row], minlength=21), exact_of_median(1.5, law))
    assert not np.array_equal(found.cells[:, 0], found.cells[:, 1])


def test_sums_and_means_under_swap():
    grid = Grid(log2_step=-2, lower=-1, size=9)
    x = np.array([0.0, 0.3, 1.0, -1.0])
    knots = sum_knots(np.array([[4, 5, 8, 0]]), high=8)
    for statistic, scale in (("sum", 1), ("mean", 4)):
        found = release(x, statistic=statistic, epsilon=2.0, grid=grid, neighbors="swap", law="owned_cell", draws=20_000)
        counts = np.bincount(found.cells, minlength=33)
        exact = np.exp(log_pmf(type(knots)(knots.lower[0], knots.upper[0]), 2.0, np.arange(33), law="owned_cell"))
        assert_counts_follow(counts, exact)
        np.testing.assert_allclose(found.values, (found.cells * 0.25 - 4) / scale, rtol=0)


@pytest.mark.slow
def test_two_calls_differ_and_guarantees_add_up():
    arguments = {"statistic": "median", "epsilon": 0.25, "grid": Grid(0, 0, 2**20), "neighbors": "swap", "draws": 8}
    first, second = (release(np.arange(100) * 10_000, **arguments) for _ in range(2))
    assert not np.array_equal(first.cells, second.cells)
    assert first.guarantee.epsilon == first.guarantee.bounded_range == 2.0
    assert first.guarantee.neighbors == "swap"
    assert (first.law, first.draws) == ("owned_cell", 8)
    assert release(np.arange(100.0), **arguments).law == release(jnp.arange(100.0), **arguments).law == "cell"
    # The dtype of a list would depend on its records.
    assert release([1, 2, 3], **arguments).law == release([1, 2.5, float("nan")], **arguments).law == "owned_cell"


def test_doubtful_lanes_are_drawn_exactly(monkeypatch):
    """If no lane is certified, all of them come from the host, and they are those of the device: the same bits."""
    seed = bytes(range(32))
    monkeypatch.setattr(lanes.os, "urandom", lambda n: seed[:n])
    arguments = {"statistic": Quantile(0.25), "epsilon": 1.0, "grid": Grid(-4, 0, 1000), "neighbors": "swap", "draws": 20}
    plain = release(np.linspace(0, 60, 9), **arguments)
    device = host.certified_draw

    def never(*args, **kwargs):
        drawn = device(*args, **kwargs)
        return Draw(jnp.full_like(drawn.cell, -5), jnp.zeros_like(drawn.certified))

    monkeypatch.setattr(host, "certified_draw", never)
    np.testing.assert_array_equal(release(np.linspace(0, 60, 9), **arguments).cells, plain.cells)


HOSTILE = {
    "nan": np.full(5, np.nan),
    "infinite": np.array([np.inf, -np.inf, np.inf, 0, 0]),
    "denormal": np.array([5e-324, -5e-324, -0.0, 0.0, 1e-310]),
    "far": np.array([1e300, -1e300, 1e308, 2.0, 3.0]),
    "all equal": np.full(5, 7.0),
    "at the bounds": np.array([10.0, 10.0, 31.0, 31.0, 31.0]),
    "below a line": np.nextafter(np.arange(11.0, 16.0), 0),
}


@pytest.mark.parametrize("neighbors", ["add_remove", "swap"])
def test_data_never_raise_nor_change_a_shape_or_a_program(neighbors, monkeypatch):
    traces = []
    device = host.certified_draw
    monkeypatch.setattr(
        host, "certified_draw", lambda *args, **kw: traces.append([np.shape(a) for a in args[1:]]) or device(*args, **kw)
    )
    for data in HOSTILE.values():
        for law in ("cell", "owned_cell"):
            found = release(data, statistic="median", epsilon=1.0, grid=GRID, neighbors=neighbors, law=law, draws=3)
            assert found.cells.shape == (3,)
            assert found.cells.dtype == np.int64
            assert ((found.cells >= 0) & (found.cells < 21)).all()
    assert all(trace == traces[0] for trace in traces)


@pytest.mark.slow
def test_absent_records_wherever_they_stand():
    """Padding first, last or in between, by NaN, mask or n_max: the same law. With the same entropy, the same draws."""
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
            patch.setattr(lanes.os, "urandom", lambda n, entropy=entropy: entropy[:n])
            common = {"statistic": "median", "epsilon": 1.0, "grid": GRID, "neighbors": "add_remove", "draws": 50, "law": "cell"}
            cells = [release(data, **options, **common).cells.tolist() for options, data in versions]
        assert all(other == cells[0] for other in cells)
    assert release(np.zeros((4, 0)), statistic="median", epsilon=1.0, grid=GRID, neighbors="add_remove").cells.shape == (1, 4)


def test_bad_parameters_and_traces_are_refused():
    common = {"statistic": "median", "epsilon": 1.0, "grid": GRID, "neighbors": "swap"}
    for change, message in (
        ({"epsilon": 65.0}, "epsilon"),
        ({"epsilon": float("nan")}, "epsilon"),
        ({"neighbors": "edge"}, "neighbors|swap"),
        ({"law": "point"}, "law"),
        ({"draws": 0}, "draws"),
        ({"statistic": "mode"}, "statistic"),
        ({"statistic": OrderStatistic(9)}, "rank"),
        ({"statistic": Quantile(1.5)}, "between 0 and 1"),
        ({"statistic": Quantile(Fraction(1, 2**28 + 1)), "grid": Grid(0, 0, 100)}, "denominator"),
        ({"statistic": Quantile(Fraction(1, 2**20 + 1)), "grid": Grid(0, 0, 2**12)}, "2\\^31.*smaller denominator"),
        ({"statistic": "sum", "neighbors": "add_remove"}, "swap"),
        ({"n_max": 9}, "add_remove"),
        ({"neighbors": "add_remove", "n_max": 3}, "n_max"),
    ):
        with pytest.raises(ValueError, match=message):
            release(RECORDS, **(common | change))
    with pytest.raises(TypeError, match="Grid"):
        release(RECORDS, **(common | {"grid": 4}))
    for n_max in (9.7, "x", True, np.array([9])):
        with pytest.raises(TypeError, match="n_max must be an integer"):
            release(RECORDS, **(common | {"neighbors": "add_remove", "n_max": n_max}))
    for run in (
        lambda: jax.jit(lambda x: release(x, **common).values)(RECORDS),
        lambda: jax.jit(lambda: release(RECORDS, **common).values)(),
        lambda: jax.vmap(lambda x: release(x, **common).values)(RECORDS[None]),
    ):
        with pytest.raises(TypeError, match="jit"):
            run()


@pytest.mark.parametrize("neighbors", ["add_remove", "swap"])
def test_modes_follow_the_exponential_mechanism(neighbors):
    votes = np.array([[3, 3, 5, 9, 3, 5, 7, -1], [9, 9, 9, 9, 9, 9, 9, 9]])
    candidates = (3.0, 5.0, 8.0, 9.0)
    found = release(votes, statistic=Mode(candidates), epsilon=0.7, neighbors=neighbors, draws=20_000)
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
    with pytest.raises(ValueError, match="candidates"):
        release(votes, statistic=Mode(candidates), epsilon=0.7, neighbors=neighbors, grid=GRID)
    for bad in ((), (1.0, 1.0), (2.0, 1.0), (float("nan"),)):
        with pytest.raises(ValueError, match="candidates"):
            Mode(bad)


def test_modes_count_what_equals_a_candidate_exactly():
    odd = 2**53 + 1  # float64 would round it to 2^53
    common = {"statistic": Mode((0, 2**53)), "epsilon": 5.0, "neighbors": "swap", "draws": 200}
    for other in (np.int64, np.uint64, object, list, np.longdouble):
        exact = other is not np.longdouble or np.longdouble(odd) != np.longdouble(2**53)  # some have no more digits than float64
        for value, equal in ((odd, not exact), (2**53, True)):
            x = [[value] * 40] if other is list else np.array([[value] * 40], other)
            assert (np.mean(release(x, **common).values == 2**53) > 0.9) == equal
    counts = host.counts_of
    for x in (np.array([3, 200], np.uint8), np.array([3.0, 200.0], np.float16), [3, 200.0], np.array([3, 200], object)):
        assert counts(x, (-1.0, 2.5, 3.0, 200.0, 256.0, 1e300), None).tolist() == [0, 0, 1, 1, 0, 0]
    assert counts([2**2000, None, "x", float("nan"), 3], (0.0, 3.0), None).tolist() == [0, 1]
    assert counts(np.array([True, False, True]), (0.0, 1.0), None).tolist() == [1, 2]
    assert counts(np.array([0x7FF0000000000001], np.uint64).view(np.float64), (0.0,), None).tolist() == [0]
    for candidates in ((0, odd), (np.int64(odd), 2.0**60)):
        with pytest.raises(ValueError, match="float64 holds"):
            Mode(candidates)


def test_masks_that_do_not_fit_are_named():
    for statistic, grid in ((Mode((1.0, 2.0)), None), ("median", GRID)):
        common = {"statistic": statistic, "grid": grid, "epsilon": 1.0, "neighbors": "add_remove"}
        with pytest.raises(ValueError, match=r"mask of shape \(2,\) does not fit x of shape \(3,\)"):
            release(np.ones(3), mask=[True, False], **common)
        with pytest.raises(TypeError, match="masked arrays"):
            release(np.ones(3), mask=np.ma.array([True, False, True]), **common)
        assert release(np.ones((2, 3)), mask=[True, False, True], **common).cells.shape == (1, 2)


def test_the_law_of_arrays_that_numpy_does_not_know():
    class Foreign:
        dtype = "Float64"

        def __array__(self, dtype=None, copy=None):
            return np.array([12.0, None, 14.0], dtype=dtype)

    common = {"statistic": "median", "epsilon": 1.0, "grid": GRID, "neighbors": "swap"}
    for x, law in ((jnp.ones(3, jnp.bfloat16), "cell"), (jnp.ones(3, jnp.int4), "owned_cell"), (Foreign(), "owned_cell")):
        assert release(x, **common).law == exact_law(x, **common).law == law


STATISTICS = {
    "order statistic": OrderStatistic(6),
    "maximum": Maximum(2),
    "total": Total(1, 200),
    "quantile": Quantile(0.9),
}


@pytest.mark.parametrize("name", ["total", *(pytest.param(n, marks=pytest.mark.slow) for n in STATISTICS if n != "total")])
def test_releases_follow_the_law_that_is_evaluated_beforehand(name):
    grid = Grid(0, 0, 30)
    common = {"statistic": STATISTICS[name], "epsilon": 1.2, "grid": grid, "neighbors": "add_remove"}
    law = exact_law(RECORDS, **common)
    every = np.arange(law.size)
    np.testing.assert_allclose(law.pmf(every).sum(), 1.0, rtol=1e-12)
    found = release(RECORDS, **common, draws=20_000)
    counts = np.bincount(found.cells, minlength=law.size)
    assert_counts_follow(counts, law.pmf(every))
    assert_counts_rejected(counts, exact_law(RECORDS, **(common | {"epsilon": 1.6})).pmf(every))
    measured = np.abs(found.cells - 20)
    assert abs(measured.mean() - law.mean_abs_error(20)) < 5 * measured.std() / np.sqrt(measured.size)
    assert (law.pmf([-1, law.size, 10**9]) == 0).all()


def test_what_exact_law_refuses():
    common = {"epsilon": 1.0, "grid": GRID, "neighbors": "add_remove"}
    with pytest.raises(ValueError, match="one dataset"):
        exact_law([RECORDS], statistic="median", **common)
    with pytest.raises(ValueError, match="mode"):
        exact_law(RECORDS, statistic=Mode((1.0, 2.0)), **common)
    with pytest.raises(ValueError, match="starts at 0"):
        exact_law(RECORDS, statistic=Total(1, 100), **common)
    with pytest.raises(ValueError, match="tau"):
        exact_law(RECORDS, statistic=Maximum(0), **common)
    with pytest.raises(ValueError, match="coarser"):
        exact_law([1.0], statistic="median", **(common | {"grid": Grid(0, 0, 2**23)})).mean_abs_error(0)


@pytest.mark.slow
def test_records_that_are_no_numbers_are_missing():
    common = {"epsilon": 1.0, "neighbors": "add_remove"}
    for records in ([31, 40, None], ["x", 40.0, 2**70], np.array([31, None, 2.5], object)):
        data = np.asarray(records, object)
        assert release(data, statistic="median", grid=GRID, **common).cells.shape == (1,)
        assert release(data, statistic=Mode((1.0, 31.0)), **common).cells.shape == (1,)
    assert release([1, 2, 2**70], statistic=Mode((1.0, 2.0)), **common).values[0] in (1.0, 2.0)
    assert release(np.zeros((2, 0)), statistic=Maximum(3), grid=GRID, **common).cells.shape == (1, 2)


def test_the_cells_of_a_list_do_not_depend_on_each_other():
    """NumPy would make floats of all of it for one fraction, and round 2^60 - 1 up; or text, for one word."""
    grid = Grid(30, 0, 2**31 - 2)
    for other in (1, 2.5, float("nan"), None, "x", 2**70):
        assert to_grid([2**60 - 1, other], grid)[0][0] == 2**30 - 1
    assert np.asarray([2**60 - 1, 2.5])[0] == 2**60  # the control
    with pytest.raises(ValueError, match="different lengths"):
        release([[1, 2], [3]], statistic="median", epsilon=1.0, grid=GRID, neighbors="swap")


def test_ranks_that_would_overflow_are_refused():
    """A float 1/3 has a denominator of 10^16: products with it wrap around in 64 bits."""
    for definition in ("lower", "linear"):
        with pytest.raises(ValueError, match=r"denominator 10000000000000000.*Fraction\(1, 3\)"):
            release(np.zeros(3000), statistic=Quantile(1 / 3, definition), epsilon=1.0, grid=GRID, neighbors="swap")
    x = np.full(3000, np.nan)
    x[:2767] = 20.0
    third = Quantile(Fraction(1, 3), "lower")
    found = release(x, statistic=third, epsilon=1.0, grid=GRID, neighbors="add_remove", law="owned_cell", draws=1000)
    assert ((found.cells >= 0) & (found.cells < 21)).all()
    assert np.mean(found.cells == 10) > 0.3


@pytest.mark.slow
def test_sums_that_float64_cannot_hold_and_promises_that_would_be_rounded_down():
    for grid in (Grid(0, 2.0**52, 10), Grid(0, 2.0**53 - 4, 3)):
        with pytest.raises(ValueError, match="every sum"):
            release(np.zeros(2048), statistic="sum", epsilon=1.0, grid=grid, neighbors="swap")
    for epsilon, draws in ((0.1, 5), (0.1, 9), (0.3, 3), (0.25, 4)):
        found = release(RECORDS, statistic="median", epsilon=epsilon, grid=GRID, neighbors="swap", draws=draws)
        assert Fraction(found.guarantee.epsilon) >= Fraction(epsilon) * draws
    for change in ({"n_max": 10}, {"epsilon": 33.0}):
        with pytest.raises(ValueError, match="mode"):
            release(RECORDS, **({"statistic": Mode((1.0, 2.0)), "epsilon": 1.0, "neighbors": "add_remove"} | change))


@pytest.mark.slow
def test_distinct_ids_and_totals_of_persons():
    ids = ["a", "b", "b", 7, 7, 7, None, 2**80, float("nan")]
    common = {"epsilon": 1.5, "neighbors": "add_remove"}
    for data in (ids, [1, 2, 2, 3, 3, 3, None, 5], np.array([1, 2, 2, 3, 3, 3, 5]), np.array(list("abbcccd"))):
        law = exact_law(data, statistic=Distinct(1, 20), **common)
        assert law.knots.upper.tolist()[:3] == [3, 4, 19]  # four ids, of which two are held by one person each
        assert law.knots.lower.tolist()[:5] == [3, 2, 2, 1, 1]
    found = release(ids, statistic=Distinct(1, 20), draws=20_000, **common)
    counts = np.bincount(found.cells, minlength=20)
    exact = exact_law(ids, statistic=Distinct(1, 20), **common)
    assert_counts_follow(counts, exact.pmf(np.arange(20)))
    assert_counts_rejected(counts, exact_law(ids[:6], statistic=Distinct(1, 20), **common).pmf(np.arange(20)))
    np.testing.assert_array_equal(found.values, found.cells)

    amounts, persons = [[5, 1, 2.5, 9, 4]], [7, "x", 7, None, "x"]
    grid = Grid(-1, 0, 100)
    law = exact_law(amounts[0], statistic=Total(1, 60), grid=grid, persons=persons, **common)
    assert law.knots.lower.tolist()[:3] == [10, 0, 0]  # in halves: 7.5 and 5.0, without the larger one
    assert law.knots.upper.tolist() == [10, 25, 59]
    drawn = release(amounts, statistic=Total(1, 60), grid=grid, persons=persons, draws=20_000, **common)
    assert_counts_follow(np.bincount(drawn.cells[:, 0], minlength=60), law.pmf(np.arange(60)))
    masked = exact_law(
        amounts[0], statistic=Total(1, 60), grid=grid, persons=persons, mask=[True, True, False, True, True], n_max=8, **common
    )
    assert masked.knots.upper.tolist() == [10, 20, 59]

    for change, error, message in (
        ({"persons": [1, 2]}, ValueError, "persons"),
        ({"persons": np.ones(5)}, TypeError, "ids"),
        ({"neighbors": "swap"}, ValueError, "add_remove"),
        ({"statistic": Maximum(2)}, ValueError, "Total"),
        ({"statistic": Mode((1.0, 2.0)), "grid": None}, ValueError, "Total"),
    ):
        options = {"statistic": Total(1, 60), "grid": grid, "persons": persons} | common | change
        with pytest.raises(error, match=message):
            release(amounts[0], **options)
    for change, error, message in (({"grid": grid}, ValueError, "grid"), ({"x": np.ones(3)}, TypeError, "ids")):
        options = {"x": ids, "statistic": Distinct(1, 20)} | common | change
        with pytest.raises(error, match=message):
            release(options.pop("x"), **options)
