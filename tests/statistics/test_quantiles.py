"""Profiles of order statistics: against breadth-first search, against edited datasets, and on
degenerate data.
"""

from fractions import Fraction
from math import ceil

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpjax import median, order_statistic, quantile
from tests.support import oracle
from tests.support.audit import padded

GRID = (0.0, 1.0, 5.0, 6.0, 20.0)
QUANTILES = [Fraction(1, 4), Fraction(1, 3), Fraction(1, 2), Fraction(2, 3), Fraction(9, 10)]
SIZES = {"add_remove": range(4), "swap": [1, 2, 3]}


def at_level(side, level):
    """The value at a level; past the last one nothing changes."""
    return side[..., min(level, side.shape[-1] - 1)]


def is_exact(q, definition, neighbors, n, level):
    """Where the profile is exact, and not only a valid outer bound: everywhere, but for a linear
    quantile that is not the median, under add/remove, at levels that could empty the dataset (the
    empty dataset's value lies within what X reads there).
    """
    return definition == "lower" or neighbors == "swap" or q == Fraction(1, 2) or level < n


@pytest.mark.slow
@pytest.mark.parametrize("definition", ["linear", "lower"])
@pytest.mark.parametrize("neighbors", ["add_remove", "swap"])
def test_quantiles_are_exact_by_breadth_first_search(neighbors, definition, x64):
    datasets = oracle.all_datasets(SIZES[neighbors], GRID)
    x, count = padded(datasets, 3)
    for q in QUANTILES:
        profile = quantile(
            x,
            q,
            lower=GRID[0],
            upper=GRID[-1],
            neighbors=neighbors,
            definition=definition,
            num_records=count,
        )
        upper, lower = np.asarray(profile.upper), np.asarray(profile.lower)
        for row, data in enumerate(datasets):
            levels = min(len(data) + 1, 4)
            largest, smallest = oracle.reachable(
                data,
                levels,
                lambda d, q=q: oracle.quantile(d, q, definition, GRID[0], GRID[-1]),
                neighbors,
                GRID,
            )
            for level in range(levels + 1):
                above = float(at_level(upper[row], level) - largest[level])
                below = float(smallest[level] - at_level(lower[row], level))
                assert min(above, below) > -1e-12, (q, data, level)
                if is_exact(q, definition, neighbors, len(data), level):
                    assert max(above, below) < 1e-12, (q, data, level)


@pytest.mark.parametrize("neighbors", ["add_remove", "swap"])
def test_order_statistics_are_exact_by_breadth_first_search(neighbors, x64):
    datasets = oracle.all_datasets(SIZES[neighbors], GRID)
    x, count = padded(datasets, 3)
    for rank in (1, 2, 3):
        profile = order_statistic(
            x, rank, lower=GRID[0], upper=GRID[-1], neighbors=neighbors, num_records=count
        )
        upper, lower = np.asarray(profile.upper), np.asarray(profile.lower)
        for row, data in enumerate(datasets):
            if neighbors == "swap" and len(data) < rank:
                continue
            largest, smallest = oracle.reachable(
                data,
                4,
                lambda d, rank=rank: d[rank - 1] if len(d) >= rank else GRID[-1],
                neighbors,
                GRID,
            )
            for level in range(5):
                assert at_level(upper[row], level) == largest[level], (rank, data, level)
                # Under add/remove, x[rank] of a short dataset comes down from the bound as records
                # arrive.
                assert at_level(lower[row], level) == smallest[level], (rank, data, level)


@pytest.mark.slow
@pytest.mark.parametrize("definition", ["linear", "lower"])
@pytest.mark.parametrize("neighbors", ["add_remove", "swap"])
def test_larger_datasets_against_edited_ones(neighbors, definition, x64):
    rng = np.random.default_rng(5)
    lower, upper, n_max = -2.0, 3.0, 50
    sizes = [0, 1, 2, 3, 10, 11, 49, 50] if neighbors == "add_remove" else [1, 2, 3, 10, 11, 49, 50]
    datasets = [
        np.clip(rng.normal(size=n), lower, upper) if i % 2 else rng.choice([-2.0, 0.0, 0.5, 3.0], n)
        for i, n in enumerate(sizes)
    ]
    x, count = padded(datasets, n_max)
    for q in [*QUANTILES[1::2], Fraction(1, 2)]:
        profile = quantile(
            x,
            q,
            lower=lower,
            upper=upper,
            neighbors=neighbors,
            definition=definition,
            num_records=count,
        )
        for row, data in enumerate(datasets):
            levels = len(data) + 1
            largest, smallest = oracle.extremes(
                data.tolist(),
                levels,
                lambda d, q=q: oracle.quantile(d, q, definition, lower, upper),
                neighbors,
                lower,
                upper,
            )
            got = [
                [float(at_level(side[row], level)) for level in range(levels + 1)]
                for side in (profile.upper, profile.lower)
            ]
            exact = [
                is_exact(q, definition, neighbors, len(data), level) for level in range(levels + 1)
            ]
            wanted = np.where(exact, [largest, smallest], got)
            np.testing.assert_allclose(
                got, wanted, rtol=1e-12, atol=1e-12, err_msg=f"{q} n={len(data)}"
            )
            assert (got[0] >= largest - 1e-12).all()
            assert (got[1] <= smallest + 1e-12).all()
            assert sum(exact) >= len(data)


@pytest.mark.slow
@pytest.mark.parametrize("neighbors", ["add_remove", "swap"])
@pytest.mark.parametrize("definition", ["linear", "lower"])
def test_every_profile_goes_outwards_and_ends_at_the_bounds(neighbors, definition):
    x = jax.random.normal(jax.random.key(0), (64, 33))
    count = jnp.arange(64) % 34
    for q in QUANTILES[2:]:
        profile = quantile(
            x,
            q,
            lower=-1.5,
            upper=2.0,
            neighbors=neighbors,
            definition=definition,
            num_records=count,
        )
        assert (jnp.diff(profile.upper) >= 0).all()
        assert (jnp.diff(profile.lower) <= 0).all()
        assert (profile.upper[:, 0] == profile.lower[:, 0]).all()
        assert (profile.upper[:, -1] == 2).all()
        assert (profile.lower[:, -1] == -1.5).all()


def test_median_is_the_quantile_at_one_half_and_numpy_s_default():
    x = np.random.default_rng(0).normal(size=(9, 12)).astype(np.float32)
    for neighbors in ("add_remove", "swap"):
        a = median(x, lower=-9, upper=9, neighbors=neighbors)
        for b in (
            quantile(x, q, lower=-9, upper=9, neighbors=neighbors)
            for q in (0.5, "1/2", Fraction(1, 2), np.float32(0.5))
        ):
            for left, right in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
                np.testing.assert_array_equal(left, right)
        np.testing.assert_allclose(a.value, np.median(np.asarray(x), axis=-1), rtol=1e-6)
        np.testing.assert_allclose(
            quantile(x, 0.9, lower=-9, upper=9, neighbors=neighbors).value,
            np.quantile(np.asarray(x), 0.9, axis=-1),
            rtol=1e-6,
        )


def test_ranks_are_exact_where_floating_point_is_not():
    """ceil(q n) for decimal q: in floating point 0.1 * 30, 0.7 * 10 and many others land on the
    wrong side of an integer.
    """
    n, traps = 100, [Fraction(k, 100) for k in range(1, 100) if ceil(k / 100 * 100) != k]
    x = np.arange(1.0, n + 1, dtype=np.float32)
    assert traps  # the trap exists
    for q in [*traps[:3], Fraction(1, 10), Fraction(7, 10)]:
        profile = quantile(x, float(q), lower=0, upper=n + 1, neighbors="swap", definition="lower")
        assert float(profile.value) == q * n


def test_pieces_under_swap_are_not_padded_to_twice_their_number():
    profile = median(jnp.arange(1001.0), lower=0, upper=1001, neighbors="swap")
    assert profile.upper.shape[-1] + profile.lower.shape[-1] - 2 == 1002
    profile = order_statistic(jnp.arange(1001.0), 10, lower=0, upper=1001, neighbors="swap")
    assert (profile.upper.shape[-1], profile.lower.shape[-1]) == (993, 11)


def test_counts_beyond_every_record_and_integers_beyond_64_bits():
    for count in (2**40, np.array(2**32 + 1), 3):
        assert (
            float(
                median(
                    jnp.array([1.0, 2.0, 5.0]),
                    lower=0,
                    upper=10,
                    neighbors="swap",
                    num_records=count,
                ).value
            )
            == 2.0
        )
    assert float(median([1, 2**64, 3], lower=0, upper=10, neighbors="swap").value) == 3.0


@pytest.mark.parametrize("dtype", [np.uint8, np.int8, np.int16, np.uint32])
def test_counts_of_any_integer_dtype(dtype):
    x = jnp.concatenate([jnp.ones(5), jnp.full(295, 9.0)])
    assert (
        float(
            median(
                x, lower=0, upper=10, neighbors="add_remove", num_records=np.array(5, dtype)
            ).value
        )
        == 1.0
    )


def test_nan_is_absent_under_add_remove_and_the_lower_bound_under_swap():
    x = jnp.array([3.0, jnp.nan, 1.0, 2.0])
    absent = median(jnp.array([3.0, 1.0, 2.0]), lower=0, upper=9, neighbors="add_remove")
    profile = median(x, lower=0, upper=9, neighbors="add_remove")
    np.testing.assert_array_equal(profile.upper[:5], absent.upper)
    assert profile.upper.shape[-1] == absent.upper.shape[-1] + 1  # its length is public: that of x
    np.testing.assert_array_equal(
        median(x, lower=0, upper=9, neighbors="swap").upper,
        median(jnp.array([3.0, 0.0, 1.0, 2.0]), lower=0, upper=9, neighbors="swap").upper,
    )


def test_count_and_mask_select_the_same_records_wherever_they_stand():
    x = np.random.default_rng(0).normal(size=(5, 8)).astype(np.float32)
    count = np.array([0, 1, 4, 7, 8])
    mask = np.arange(8)[None, :] < count[:, None]
    for neighbors in ("add_remove", "swap"):
        counted = median(x, lower=-3, upper=3, neighbors=neighbors, num_records=count)
        masked = median(x, lower=-3, upper=3, neighbors=neighbors, mask=mask)
        backwards = median(x[:, ::-1], lower=-3, upper=3, neighbors=neighbors, mask=mask[:, ::-1])
        for a, b, c in zip(*map(jax.tree.leaves, (counted, masked, backwards)), strict=True):
            np.testing.assert_array_equal(a, b)
            np.testing.assert_array_equal(a, c)
        trimmed = median(x[2, :4], lower=-3, upper=3, neighbors=neighbors)
        np.testing.assert_array_equal(
            np.asarray(counted.upper)[2, : trimmed.upper.size], trimmed.upper
        )
        np.testing.assert_array_equal(
            np.asarray(counted.lower)[2, : trimmed.lower.size], trimmed.lower
        )


@pytest.mark.parametrize("neighbors", ["add_remove", pytest.param("swap", marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    "data",
    [
        [2.0] * 6,
        [0.0] * 6,
        [5.0] * 6,
        [np.nan] * 6,
        [np.inf, -np.inf, 1e30, -1e30, np.nan, 2.0],
        [2.0] * 5 + [3.0],
        [1.0],
        [],
        [-0.0, 0.0, 1e-45, -1e-45, 1e-38, 5.0],
    ],
)
def test_degenerate_data_give_finite_profiles_of_the_same_shape(neighbors, data):
    x = np.array(data, np.float32)
    for q in (Fraction(1, 2), Fraction(9, 10)):
        for definition in ("linear", "lower"):
            profile = quantile(
                x, q, lower=0.0, upper=5.0, neighbors=neighbors, definition=definition
            )
            plain = quantile(
                np.linspace(1, 4, x.size, dtype=np.float32),
                q,
                lower=0.0,
                upper=5.0,
                neighbors=neighbors,
                definition=definition,
            )
            for side, other in ((profile.upper, plain.upper), (profile.lower, plain.lower)):
                assert side.shape == other.shape
                side = np.asarray(side)
                assert np.isfinite(side).all()
                assert ((side >= 0) & (side <= 5)).all()


def test_huge_bounds_and_integers():
    profile = median(np.array([1, 2, 2**40], np.int64), lower=-1e30, upper=1e30, neighbors="swap")
    assert profile.upper.tolist() == [2.0, 2.0**40, np.float32(1e30)]
    assert median(np.array([1e300, -1e300, 0.0]), lower=-1, upper=1, neighbors="swap").value == 0
    assert median([True, False, True], lower=0, upper=1, neighbors="swap").value == 1


def test_bounds_may_differ_by_row_and_a_bad_row_stays_alone():
    x = np.ones((3, 4), np.float32)
    profile = median(
        x, lower=jnp.array([0.0, 2.0, 3.0]), upper=jnp.array([1.5, 4.0, 1.0]), neighbors="swap"
    )
    assert np.asarray(profile.value)[:2].tolist() == [1.0, 2.0]
    assert np.isnan(profile.upper).all(axis=-1).tolist() == [False, False, True]


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (
            {"lower": 5.0, "upper": 5.0},
            ValueError,
            "lower must be below upper.*lower=5.0, upper=5.0",
        ),
        ({"lower": 6.0}, ValueError, "lower must be below upper"),
        ({"lower": 0.0, "upper": 2e-38}, ValueError, "lower must be below upper, by 4.93e-32 to"),
        ({"lower": float("nan")}, ValueError, "lower must be finite"),
        ({"upper": float("inf")}, ValueError, "upper must be finite"),
        ({"lower": -3e38, "upper": 3e38}, ValueError, "by .* to 2.03e\\+31 in float32"),
        ({"upper": 1e300}, ValueError, "upper must be finite.*float32"),
        ({"upper": "ten"}, TypeError, "upper must be a real number"),
        ({"q": 0}, ValueError, "strictly between 0 and 1"),
        ({"q": 1.0}, ValueError, "strictly between 0 and 1"),
        ({"q": float("nan")}, ValueError, "a level must be a number"),
        ({"q": "half"}, ValueError, "a level must be a number"),
        ({"q": 1 / 3}, ValueError, r"Fraction\(1, 3\)"),
        ({"q": jnp.float32(0.5)}, TypeError, "static"),
        (
            {"neighbors": "replace"},
            ValueError,
            "neighbors must be one of 'add_remove', 'swap'; got 'replace'",
        ),
        ({"definition": "higher"}, ValueError, "definition must be one of 'linear', 'lower'"),
        ({"x": 3.0}, ValueError, "axis of individuals"),
        ({"x": ["a", "b"]}, TypeError, "x must hold real numbers"),
        ({"x": jnp.array([1j])}, TypeError, "x must hold real numbers"),
        ({"num_records": 2, "mask": jnp.ones(3, bool)}, ValueError, "num_records and mask"),
        ({"num_records": 2.0}, ValueError, "num_records must be integers"),
        ({"mask": jnp.ones(2, bool)}, ValueError, "mask must be bool with last axis 3"),
        ({"mask": jnp.ones(3)}, ValueError, "mask must be bool"),
    ],
)
def test_bad_arguments_are_named(change, error, message):
    arguments = {
        "x": jnp.arange(3.0),
        "q": 0.5,
        "lower": 0.0,
        "upper": 5.0,
        "neighbors": "swap",
        **change,
    }
    with pytest.raises(error, match=message):
        quantile(arguments.pop("x"), arguments.pop("q"), **arguments)


@pytest.mark.parametrize("rank", [0, 4, -1, 1.5, True])
def test_bad_ranks_are_named(rank):
    with pytest.raises(ValueError, match="rank must be an integer from 1 to the 3 records"):
        order_statistic(jnp.arange(3.0), rank, lower=0, upper=5, neighbors="swap")


def test_there_is_no_default_relation():
    with pytest.raises(TypeError, match="neighbors"):
        median(jnp.arange(3.0), lower=0, upper=5)
