"""Which piece is chosen, and where the draw is placed in it: the device against the CPU, method by
method.

The rows go from epsilon 1e-6 to 1e9; some have ties, one has a NaN, one has no width. Like is
compared with like: Gumbel-max with Gumbel-max, races with races, and tables with tables.
"""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dpjax
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


@partial(jax.jit, static_argnames=("method", "count"))
def draw(key, distribution, method, count=DRAWS):
    return distribution.sample(key, count, method=method)


def differing(one, other):
    """How many draws are at another place, of rows that have a distribution.

    The share of a piece is off by 32 units in the last place at most: a few for each of four
    functions; and no piece is wider than 6.
    """
    one, other = one[:, 2:], other[:, 2:]
    return int(np.sum(~(np.abs(one - other) <= 6 * 32 * np.finfo(one.dtype).eps)))


@pytest.mark.parametrize("method", METHODS)
def test_the_same_pieces_and_places_are_drawn(method, under_test, on_cpu):
    key, made = jax.random.key(0), distribution()
    found, expected = (on(draw, key, made, method=method) for on in (under_test, on_cpu))
    assert differing(found, expected) <= EXCHANGED
    for points in (found, expected):  # a NaN, or no width at all, is a row's own affair
        assert np.isnan(points[:, :2]).all()
        assert np.isfinite(points[:, 2:]).all()
    # Controls: an epsilon that is off by 1 percent, and another key.
    moved = distribution(EPSILONS * np.float32(1.01))
    assert differing(on_cpu(draw, key, moved, method=method), expected) > 10 * EXCHANGED
    assert differing(on_cpu(draw, jax.random.key(1), made, method=method), expected) > 300


def test_the_automatic_choice_is_that_of_the_cpu(under_test):
    """Races for few draws, a table for many, and Gumbel-max for neither, as the draws say."""
    key, made = jax.random.key(0), distribution()
    few, by_gumbel, by_tree = (
        under_test(draw, key, made, method=method) for method in ("auto", "gumbel", "tree")
    )
    np.testing.assert_array_equal(few, by_tree)
    assert differing(few, by_gumbel) > 300
    many, by_table = (
        under_test(draw, key, made, method=method, count=65) for method in ("auto", "table")
    )
    np.testing.assert_array_equal(many, by_table)


def test_in_float64_the_same_pieces_are_chosen(under_test, on_cpu, x64):
    """The bound of an exchange is 2^-29 times that of float32: there is none."""
    key, made = jax.random.key(0), distribution(dtype=np.float64)
    for method in METHODS:
        found, expected = (on(draw, key, made, method=method) for on in (under_test, on_cpu))
        assert found.dtype == np.float64
        assert differing(found, expected) == 0
    assert differing(on_cpu(draw, jax.random.key(1), made, method="table"), expected) > 300
