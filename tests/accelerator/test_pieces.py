"""Which piece is chosen, and where the draw is placed in it: the device against the CPU, few draws
by races and many by a table.

The rows go from epsilon 1e-6 to 1e9; some have ties, one has a NaN, one has no width.
"""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dpjax
from dpjax.distributions.sampler import FEW

EPSILONS = np.geomspace(1e-6, 1e9, 31).astype(np.float32)
WAYS = (FEW, FEW + 1)
HARD = 3  # rows that come first: with a NaN, without width, with long ties
# An exchange of two pieces needs quotients that agree to what rounding moves them by. A weight, a
# product of three factors, is off by 16 units of 2^-24 at most, and a noise by 4: together less
# than 2^-19 of the quotient. The density of the gap between the logarithms of the best two is at
# most 1, so that one of 2 * 1120 draws is exchanged with a probability below 0.005, and more than 5
# with one below 1e-8. A table has 53 bits.
EXCHANGED = 5


def distribution(epsilon=EPSILONS, dtype=np.float32):
    """Medians of hard rows, then of plain ones."""
    x = np.random.default_rng(0).normal(size=(HARD + len(epsilon), 21)).clip(-3, 3)
    x[2, :15] = 0.25
    edges = np.sort(np.pad(x, ((0, 0), (1, 1)), constant_values=[(0, 0), (-3, 3)]), axis=-1)
    edges[0, 3], edges[1] = np.nan, -3.0
    rate = np.concatenate([np.ones(HARD), epsilon / 2]).astype(dtype)
    cost = np.abs(np.arange(23, dtype=dtype) - 11)
    parts = (edges.astype(dtype), cost[:-1], cost[1:], rate)
    return dpjax.PiecewiseExponential(*map(jnp.asarray, parts))


@partial(jax.jit, static_argnames="draws")
def draw(key, distribution, draws):
    return distribution.sample(key, draws)


def differing(one, other):
    """How many draws are at another place, of rows that have a distribution.

    The share of a piece is off by 32 units in the last place at most: a few for each of four
    functions; and no piece is wider than 6.
    """
    one, other = one[:, 2:], other[:, 2:]
    return int(np.sum(~(np.abs(one - other) <= 6 * 32 * np.finfo(one.dtype).eps)))


@pytest.mark.parametrize("draws", WAYS)
def test_the_same_pieces_and_places_are_drawn(draws, under_test, on_cpu):
    key, made = jax.random.key(0), distribution()
    found, expected = (on(draw, key, made, draws=draws) for on in (under_test, on_cpu))
    assert differing(found, expected) <= EXCHANGED
    for points in (found, expected):  # a NaN, or no width at all, is a row's own affair
        assert np.isnan(points[:, :2]).all()
        assert np.isfinite(points[:, 2:]).all()
    # Controls: an epsilon that is off by 1 percent, and another key.
    moved = distribution(EPSILONS * np.float32(1.01))
    assert differing(on_cpu(draw, key, moved, draws=draws), expected) > 10 * EXCHANGED
    assert differing(on_cpu(draw, jax.random.key(1), made, draws=draws), expected) > 300


def test_in_float64_the_same_pieces_are_chosen(under_test, on_cpu, x64):
    """The bound of an exchange is 2^-29 times that of float32: there is none."""
    made = distribution(dtype=np.float64)
    for draws in WAYS:
        found, expected = (
            on(draw, jax.random.key(0), made, draws=draws) for on in (under_test, on_cpu)
        )
        assert found.dtype == np.float64
        assert differing(found, expected) == 0
