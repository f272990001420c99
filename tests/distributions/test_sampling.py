"""Draws from pieces against the exact cdf, with negative controls; words that reach far; rows
without a distribution.
"""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpjax import (
    PiecewiseExponential,
    Tails,
    inverse_sensitivity,
    laplace,
    median,
    piecewise_laplace,
    sample_intervals,
)
from dpjax.distributions.many import is_upper
from dpjax.random import Words, uniform_from_words
from tests.support.distributions import of_one_size
from tests.support.statistics import (
    assert_counts_follow,
    assert_counts_rejected,
    assert_follows,
    assert_rejected,
)

DRAWS = 100_000
DATA = np.float32([0.1, 0.3, 0.3, 0.35, 0.5, 0.52, 0.6, 0.6, 0.6, 0.8, 0.95])


def of_data(mechanism, epsilon):
    profile = median(DATA, lower=0, upper=1, neighbors="add_remove")
    return of_one_size(mechanism(profile, epsilon, rho=0.03), 14)


def mixed(scale):
    """Pieces that fall either way, and a lower tail."""
    tails = Tails(*map(jnp.float32, (2, scale, 1.5, 0)))
    costs = jnp.array([0.0, 3.0, 1.0]), jnp.array([2.0, 0.5, 1.0])
    return PiecewiseExponential(jnp.arange(4.0), *costs, jnp.float32(1.5), tails, center=1)


CASES = {
    "piecewise Laplace": (partial(of_data, piecewise_laplace), 1.0, 1.15),
    "inverse sensitivity": (partial(of_data, inverse_sensitivity), 1.0, 1.15),
    "Laplace": (lambda epsilon: laplace(jnp.float32(3), epsilon, sensitivity=1.0), 2.0, 2.3),
    "mixed": (mixed, 1.0, 1.5),
}
BY_TREE = ("piecewise Laplace", "mixed")


@pytest.mark.parametrize(
    ("name", "method"),
    [
        pytest.param(
            n, m, marks=[pytest.mark.slow] * ((m, n) not in [("tree rows", c) for c in BY_TREE])
        )
        for n in CASES
        for m in ("tree rows", "table", "gumbel", "gumbel rows")
    ],
)
def test_draws_follow_the_exact_cdf(name, method):
    of, *parameters = CASES[name]
    name, _, rows = method.partition(" ")  # one draw from each of many equal rows

    @jax.jit
    def known(distribution, other):
        rate = jnp.broadcast_to(distribution.rate, (DRAWS,) if rows else ())
        many = PiecewiseExponential.from_sides(
            distribution.lower, distribution.upper, rate, distribution.tails
        )
        draws = many.sample(jax.random.key(0), () if rows else (DRAWS,), method=name)
        draws = jnp.sort(draws)
        return draws, distribution.cdf(draws), other.cdf(draws)

    draws, own, control = map(np.asarray, known(*map(of, parameters)))
    assert_follows(draws, lambda _: own)
    assert_rejected(draws, lambda _: control)


@pytest.mark.parametrize(
    "method", ["tree", *(pytest.param(m, marks=pytest.mark.slow) for m in ("table", "gumbel"))]
)
def test_all_mass_may_lie_behind_millions_of_nats(method):
    """Long ties: 2^24 bits and more below cost 0 the pieces 0, 1, 2 have the chances that the
    difference of their costs says; and a long piece whose height no float holds has its share.
    """
    lowest = np.float32([[0.0], [100_000.0], [500_000.0], [1_000_000.0]])
    costs = lowest + np.float32([0.0, 0.0625, 0.125])
    edges = np.tile(np.float32([0.0, 1.0, 2.0, 3.0]), (5, 1))
    # A share of 2^-128.5, and 2^100 long, beside one of 2^-30.
    costs = np.vstack([costs, np.float32([1.0, 128.5 / 30, 128.5 / 30]) * np.log(2)])
    edges[4] = [0.0, 1.0, 1.0 + 2.0**100, 1.0 + 2.0**100]
    rates = np.float32([30, 30, 30, 30, 30])

    @jax.jit
    def known(costs, rates):
        d = PiecewiseExponential(jnp.asarray(edges), costs, costs, rates, center=0)
        return d.sample(jax.random.key(7), (20_000,), method=method), d.cdf(
            jnp.array([[1.0], [2.0]])
        )

    draws, below = map(np.asarray, known(costs, rates))
    _, control = known(costs, rates * np.float32([1.5, 1.5, 1.5, 1.5, 1.02]))
    for row, points in enumerate(draws.T):
        counts = np.histogram(points, [-1.0, 1.0, 2.0, np.inf])[0]
        for found, assert_ in ((below, assert_counts_follow), (control, assert_counts_rejected)):
            assert_(counts, np.diff(found[:, row], prepend=0.0, append=1.0))
    assert 0.2 < below[0, 4] < 0.3
    weights = np.exp(-30 * np.array([0.0, 0.0625, 0.125]))
    wanted = np.cumsum(weights / weights.sum())[:2]
    np.testing.assert_allclose(below[:, :4], np.tile(wanted[:, None], 4), rtol=1e-5)


@pytest.mark.optimized
@pytest.mark.slow
def test_neighboring_lengths_of_a_long_tie_have_neighboring_draws():
    @jax.jit
    def run(count):
        same = jnp.full((999_936,), 20.0, jnp.float32)
        profile = median(
            same, lower=0, upper=100, neighbors="add_remove", definition="lower", num_records=count
        )
        distribution = piecewise_laplace(profile, 100.0)
        return distribution.cdf(30.0), distribution.sample(jax.random.key(0), (300,))

    for n in (999_934, 999_935, 999_936):
        below, draws = run(jnp.int32(n))
        assert float(below) == 1
        assert float(draws.max()) < 30


@pytest.mark.parametrize("within", ["exponential", "uniform"])
def test_intervals_have_their_exact_probabilities(within):
    """Those without a length, of a negative one, or infinitely far are never chosen."""
    widths = np.float32([0.0, 0.5, 0.02, 3.0, -2.0, 0.3, 1.0])
    levels = np.float32([0.0, 1.0, 2.0, 3.0, 4.0, 4.5, np.inf])
    weights = np.maximum(widths, 0) * np.exp(-0.5 * levels)
    off_by_one = np.maximum(widths, 0) * np.exp(-0.5 * np.array([0, 1, 1, 2, 3, 3.5, np.inf]))
    run = jax.jit(
        lambda widths, shape: sample_intervals(
            jax.random.key(5), widths, levels, epsilon=1.0, within=within, shape=shape
        ),
        static_argnums=1,
    )
    index, offset = map(np.asarray, run(widths, (DRAWS,)))
    counts = np.bincount(index, minlength=7)
    assert counts[[0, 4, 6]].sum() == 0
    assert_counts_follow(counts, weights / weights.sum())
    assert_counts_rejected(counts, off_by_one / off_by_one.sum())
    inside = offset[index == 3] / 3
    sloped, flat = (lambda r: np.expm1(-0.5 * r) / np.expm1(-0.5)), (lambda r: r)
    assert_follows(inside, sloped if within == "exponential" else flat)
    assert_rejected(inside, flat if within == "exponential" else sloped)
    # Rows without a length, or with a NaN, have no point and yet an index.
    rows = np.stack([0 * widths, widths, widths])
    rows[2, 3] = np.nan
    index, offset = map(np.asarray, run(rows, (6,)))
    assert ((index >= 0) & (index <= 6)).all()
    assert np.isnan(offset).all(axis=0).tolist() == [True, False, True]
    assert np.isfinite(offset[:, 1]).all()


@pytest.mark.slow
def test_many_draws_from_a_thousand_pieces_fit_in_memory_and_the_first_stay():
    """The product of pieces and draws would be 10^9 numbers; and the mean agrees with the exact one
    within five standard errors.
    """
    x = jax.random.normal(jax.random.key(0), (1001,))
    distribution = piecewise_laplace(median(x, lower=-4.0, upper=4.0, neighbors="add_remove"), 1.0)
    draws = distribution.sample(jax.random.key(2), (1_000_000,))
    mean, deviation = float(distribution.mean()), float(distribution.stddev())
    assert abs(float(draws.mean()) - mean) < 5 * deviation / 1000
    # Up to 64 draws from a row are made in one way, more in another
    for fewer, more in ((5, 40), (70, 5000)):
        some, all_of_them = (distribution.sample(jax.random.key(2), (n,)) for n in (fewer, more))
        np.testing.assert_array_equal(some, all_of_them[:fewer])


@pytest.mark.parametrize(
    "method", ["tree", "table", pytest.param("gumbel", marks=pytest.mark.slow)]
)
def test_a_row_with_a_nan_has_no_draws_at_any_epsilon(method):
    """Where the NaN has no mass, too, and beside a row that has to be weighed again; the others
    have draws.
    """
    values = np.tile(np.linspace(0.0, 1.0, 12, dtype=np.float32), (3, 1))
    values[1, 7], values[2, :9] = np.nan, 0.0
    levels, key = jnp.arange(11.0), jax.random.key(0)
    run = jax.jit(
        lambda values, rate: PiecewiseExponential(values, levels, levels, rate, center=0).sample(
            key, (5,), method=method
        )
    )
    for rate in (1e9, 1.0):
        for rows in ([0, 1, 2], [0, 1, 0]):
            draws = np.asarray(run(values[rows], np.float32(rate)))
            assert np.isnan(draws).all(axis=0).tolist() == [False, True, False]
            assert np.isfinite(draws[:, [0, 2]]).all()


def test_without_pieces_the_tails_have_their_shares():
    below, above = np.float32([[1.0, 3.0, 0.0, 1.0], [3.0, 1.0, 1.0, 0.0]])

    @jax.jit
    def run(below, above):
        cost, nothing = jnp.full(4, 2.0), jnp.zeros(0)
        line = (jnp.zeros(1), nothing, nothing, jnp.ones(4), Tails(cost, below, cost, above))
        return PiecewiseExponential(*line).sample(jax.random.key(0), (20_000,))

    draws, shares = np.asarray(run(below, above)), np.stack([below, above]) / (below + above)
    counts = np.stack([np.sum(draws < 0, axis=0), np.sum(draws > 0, axis=0)])
    for row in (0, 1):
        assert_counts_follow(counts[:, row], shares[:, row])
        assert_counts_rejected(counts[:, row], shares[::-1, row])
    np.testing.assert_array_equal(counts[:, 2:], 20_000 * shares[:, 2:])


def test_a_tail_of_mass_two_to_the_minus_forty_is_reached():
    low = jnp.uint32([2**23, 2**24 - 2**10, 2**24 + 2**10])
    uniform = uniform_from_words(Words(jnp.zeros_like(low), low), jnp.float32)
    weights = jnp.array([[2.0**-40, 1.0], [1.0, 2.0**-40]])
    found = jax.jit(is_upper)(weights, uniform)
    assert found.tolist() == [[False, False, True], [True, True, False]]
