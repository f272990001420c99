"""Which piece is chosen, and where the draw is placed in it: the device against the CPU, method by
method, and against NumPy.

The rows go from epsilon 1e-6 to 1e9; some have ties, one has a NaN, one has no width. Like is
compared with like: Gumbel-max with Gumbel-max, races with races, and tables with tables.
"""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dpjax
from dpjax.distributions import sampling
from dpjax.random.keys import fold_in_range, row_words
from dpjax.random.uniforms import uniform_from_words
from tests.support.distributions import of_one_size

EPSILONS = np.geomspace(1e-6, 1e9, 31).astype(np.float32)
METHODS = ("gumbel", "tree", "table")
DRAWS = 32
PIECES = 32
HARD = 3  # rows that come first: with a NaN, without width, with long ties
# An exchange of two pieces needs scores that agree to what rounding moves them by. A weight, a
# product of three factors, is off by 16 units of 2^-24 at most, a Gumbel variate by 4 units of its
# own and of 1, and both are below 128 in absolute value where a piece is ever the best: together
# less than 2^-14 in float32. The density of the gap between the best two is at most 1, so that a
# draw is exchanged with a probability below 2^-13; of the 1088 here 0.13 on average, and more than
# 5 with one below 1e-8.
EXCHANGED = 5


def distribution(epsilon=EPSILONS, dtype=np.float32):
    """Medians of hard rows, then of plain ones, made on the host."""
    rows = len(epsilon)
    x = np.random.default_rng(0).normal(size=(HARD + rows, 21))
    x[1], x[2, :15] = -3.0, 0.25
    rate = np.concatenate([np.full(HARD, 1.0), epsilon]).astype(dtype)
    upper = np.full(HARD + rows, 3.0)
    upper[1] = -3.0
    profile = dpjax.median(
        x.astype(dtype),
        lower=-3.0,
        upper=np.maximum(upper, -2.9999).astype(dtype),
        neighbors="swap",
    )
    made = of_one_size(dpjax.piecewise_laplace(profile, rate), PIECES)
    values = np.asarray(made.upper.values).copy()
    values[0, 3] = np.nan
    values[1] = values[1, :1]
    upper = type(made.upper)(jnp.asarray(values), made.upper.cost_near, made.upper.cost_far)
    lower = np.asarray(made.lower.values).copy()
    lower[1] = values[1, 0]
    lower = type(made.lower)(jnp.asarray(lower), made.lower.cost_near, made.lower.cost_far)
    return dpjax.PiecewiseExponential.from_sides(lower, upper, made.rate, made.tails)


@partial(jax.jit, static_argnames="method")
def draw(key, distribution, method):
    """The chosen pieces, counted outwards on their side, and the points, both (rows, draws)."""
    return tuple(
        jnp.moveaxis(part, 0, -1) for part in sampling.draw(key, distribution.line(), DRAWS, method)
    )


def differing(one, other):
    """How many draws are in another piece, or at another place of it; of rows that have a
    distribution.

    The share of a piece is off by 32 units in the last place at most: a few for each of four
    functions; and no piece is wider than 6.
    """
    slots, points = (np.stack([draws[part][2:] for draws in (one, other)]) for part in (0, 1))
    return int(
        np.sum(
            (slots[0] != slots[1])
            | ~(np.abs(points[0] - points[1]) <= 6 * 32 * np.finfo(points.dtype).eps)
        )
    )


@pytest.mark.parametrize("method", METHODS)
def test_the_same_pieces_and_places_are_drawn(method, under_test, on_cpu):
    key, made = jax.random.key(0), distribution()
    found, expected = (on(draw, key, made, method=method) for on in (under_test, on_cpu))
    assert differing(found, expected) <= EXCHANGED
    for _, points in (found, expected):  # a NaN, or no width at all, is a row's own affair
        assert np.isnan(points[:2]).all()
        assert np.isfinite(points[2:]).all()
    # Controls: an epsilon that is off by 1 percent, and another key.
    assert (
        differing(
            on_cpu(draw, key, distribution(EPSILONS * np.float32(1.01)), method=method), expected
        )
        > 10 * EXCHANGED
    )
    assert differing(on_cpu(draw, jax.random.key(1), made, method=method), expected) > 300


def scores(key, made):
    """Log-weights plus Gumbel variates in float64, from the words and the definition of a weight:
    (rows, draws, pieces).
    """
    masses = []
    for side in (made.lower, made.upper):
        values, near, far = (
            np.asarray(field, np.float64) for field in (side.values, side.cost_near, side.cost_far)
        )
        rate = np.asarray(made.rate, np.float64)[:, None]
        rise = np.abs(rate * (far - near))
        small = np.where(rise < 1e-4, 1 - rise / 2, -np.expm1(-rise) / np.where(rise == 0, 1, rise))
        with np.errstate(divide="ignore"):
            # The mass from cost 1 on.
            masses.append(
                np.log(np.abs(np.diff(values))) - rate * (np.minimum(near, far) - 1) + np.log(small)
            )
    rows = row_words(key, made.batch_shape)
    noise = []
    for side, size in enumerate(mass.shape[-1] for mass in masses):
        own = fold_in_range(rows, DRAWS, stream=3 + side)
        pair = uniform_from_words(fold_in_range(own, size), made.dtype)
        value, rest = (np.asarray(part, np.float64) for part in pair)
        noise.append(-np.log(np.where(value <= rest, -np.log(value), -np.log1p(-rest))))
    return np.concatenate(masses, axis=-1)[:, None] + np.concatenate(noise, axis=-1)


def test_gumbel_max_chooses_what_numpy_chooses_but_for_near_ties(under_test, on_cpu):
    """Every piece that is chosen has the best score of NumPy's, or one that is below it by less
    than rounding can move it.
    """
    key, made = jax.random.key(0), distribution()
    expected = on_cpu(scores, key, made)[2:]
    best = expected.max(axis=-1)
    for on in (under_test, on_cpu):
        slots, _ = on(draw, key, made, method="gumbel")
        places = slots[2:, :, None].astype(np.int64)
        chosen = np.maximum(
            *(np.take_along_axis(expected, places + side, axis=-1)[..., 0] for side in (0, PIECES))
        )
        gap = best - chosen
        assert (gap <= 2.0**-20 * (1 + np.abs(best))).all()
        assert np.sum(gap > 0) <= EXCHANGED
    second = np.sort(expected, axis=-1)[..., -2]
    # The control: the second best would not pass
    assert np.mean(best - second > 2.0**-20 * (1 + np.abs(best))) > 0.99


def test_the_automatic_choice_is_that_of_the_cpu(under_test):
    """Races for few draws, a table for many, and Gumbel-max for neither, as the draws say."""
    key, made = jax.random.key(0), distribution()
    found, by_gumbel, by_tree = (
        under_test(draw, key, made, method=method) for method in ("auto", "gumbel", "tree")
    )
    for one, same in zip(found, by_tree, strict=True):
        np.testing.assert_array_equal(one, same)
    assert differing(found, by_gumbel) > 300
    many = jax.jit(
        lambda key, made, method: made.sample(key, 65, method=method), static_argnames="method"
    )
    np.testing.assert_array_equal(
        under_test(many, key, made, method="auto"), under_test(many, key, made, method="table")
    )


@pytest.mark.parametrize("method", ["auto", *METHODS])
def test_draws_are_the_same_bits_under_padding_and_further_rows(method, under_test):
    key, made = jax.random.key(0), distribution()
    points = under_test(draw, key, made, method=method)[1]
    wider = of_one_size(made, PIECES + 7)
    np.testing.assert_array_equal(under_test(draw, key, wider, method=method)[1], points)
    fewer = jax.tree.map(lambda leaf: leaf[:11], made)
    np.testing.assert_array_equal(under_test(draw, key, fewer, method=method)[1], points[:11])
    assert not np.array_equal(
        under_test(draw, key, jax.tree.map(lambda leaf: leaf[-11:], made), method=method)[1],
        points[-11:],
    )


def test_in_float64_the_same_pieces_are_chosen(under_test, on_cpu, x64):
    """The bound of an exchange is 2^-29 times that of float32: there is none."""
    key, made = jax.random.key(0), distribution(dtype=np.float64)
    for method in METHODS:
        found, expected = (on(draw, key, made, method=method) for on in (under_test, on_cpu))
        assert found[1].dtype == np.float64
        assert differing(found, expected) == 0
    assert (
        differing(
            on_cpu(draw, jax.random.key(1), made, method="tree"),
            on_cpu(draw, key, made, method="tree"),
        )
        > 300
    )
