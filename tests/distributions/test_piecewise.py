"""PiecewiseExponential in float32, at its ends, conditioned, and where costs are high; its closed
forms against quadrature are in ``test_quadrature.py``.
"""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads

from dpjax import (
    PiecewiseExponential,
    from_radii,
    inverse_sensitivity,
    laplace,
    median,
    piecewise_laplace,
)
from tests.distributions.hostile import HOSTILE
from tests.distributions.test_quadrature import of_pieces
from tests.support.distributions import of_one_size
from tests.support.statistics import assert_counts_follow, assert_counts_rejected


def test_ends_of_the_support_and_what_is_conditioned(x64):
    distribution = jax.tree.map(lambda leaf: np.asarray(leaf)[0], of_pieces()[0])
    points = np.array([-4.0, 5.0, np.nextafter(-4.0, -9.0), np.nextafter(5.0, 9.0), np.nan])

    @jax.jit
    def known(distribution):
        low, high = distribution.quantile(np.array([0.2, 0.7]))
        cut, inside = distribution.restrict(low, high), jnp.linspace(low, high, 7)
        ends = distribution.cdf(points), distribution.log_prob(points)
        of_both = [(one.cdf(inside), one.log_prob(inside)) for one in (cut, distribution)]
        return ends, distribution.restrict(90.0, 91.0).mean(), of_both

    (cdf, log_prob), nothing, ((cut, density), (whole, whole_density)) = known(distribution)
    np.testing.assert_array_equal(cdf, [0, 1, 0, 1, np.nan])
    np.testing.assert_array_equal(np.isneginf(log_prob), [False, False, True, True, False])
    assert np.isfinite(log_prob[:2]).all()
    np.testing.assert_allclose(cut, (whole - 0.2) / 0.5, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(density[1:-1], whole_density[1:-1] - np.log(0.5), rtol=1e-10)
    assert np.isnan(nothing)


def test_log_prob_reaches_tails_whose_mass_underflows():
    distribution = piecewise_laplace(
        from_radii(jnp.float32(0), jnp.ones(250, jnp.float32), neighbors="swap", step=1.0), 1.0
    )
    exact = laplace(jnp.float32(0), 0.5, sensitivity=1.0)
    known = jax.jit(lambda one: one.log_prob(np.float32([249.5, 250.5, 400.0])))
    found, wanted = (known(of_one_size(one, 512)) for one in (distribution, exact))
    np.testing.assert_allclose(found, wanted, rtol=1e-5)


@jax.jit
def probabilities(distribution, points):
    return distribution.cdf(points), distribution.survival(points)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", HOSTILE)
def test_probabilities_of_hostile_laws_have_the_digits_of_their_tails(name, dtype, x64):
    """At edges, and inside of pieces; the control is 10 % off."""
    law = HOSTILE[name].rounded(dtype)
    edges, widths, decay, *_ = law.masses()
    near = np.minimum(0.3 * widths, 2 * widths / decay)
    points = np.unique(
        np.concatenate([law.edges, edges[:-1] + near, edges[1:] - near]).astype(dtype)
    )
    padded = np.pad(points, (0, 400 - len(points)), mode="edge")[:, None]
    below, above = map(np.asarray, probabilities(law.distribution(dtype, 1), padded))
    info = np.finfo(dtype)
    # Products of costs and rates are float64 in either dtype.
    nats = law.rate * max(np.abs(law.left).max(initial=1), *np.abs(law.tails or (0, 0)))
    close = {"rtol": 100 * float(info.eps) + 4e-16 * nats, "atol": 1e6 * float(info.tiny)}
    for found, wanted, other in zip(
        (below, above), law.both(points), law.both(points, 1.1), strict=True
    ):
        np.testing.assert_allclose(found[: len(points), 0], wanted, **close)
        assert not np.allclose(wanted, other, **close)


@pytest.mark.parametrize("far", [1e9, 1e30, np.inf])
def test_a_cost_far_above_the_others_leaves_these_alone(far):
    edges, cost = jnp.arange(4, dtype=jnp.float32), jnp.float32([0, 5, far])
    one = PiecewiseExponential(edges, cost, cost, jnp.float32(1))
    shares = np.array([1, np.exp(-5.0), 0.0]) / (1 + np.exp(-5.0))
    np.testing.assert_allclose(probabilities(one, jnp.float32(1))[0], shares[0], rtol=1e-6)
    for rows, draws in ((1000, 20), (1, 20_000)):
        rated = replace(one, rate=jnp.ones(rows))
        found = np.asarray(rated.sample(jax.random.key(0), draws))
        counts = np.bincount(found.astype(int).ravel(), minlength=3)
        assert counts[2] == 0
        assert_counts_follow(counts, shares)
        assert_counts_rejected(counts, shares[[0, 0, 1]] / 2 + shares / 2)


def test_a_density_far_away_loses_no_more_than_draws():
    """The mass of one row is within 2^28 nats of its least cost, that of its neighbor beyond."""
    rows = np.float32([[0] * 5 + [1, 2, 3, 4], [0] * 6 + [2, 3, 4]])
    profile = median(rows, lower=0, upper=10, neighbors="swap")
    found = inverse_sensitivity(profile, 6e8).log_prob(7.0)
    assert 0 < abs(float(found[0] - found[1])) <= 6e8


def test_moments_do_not_depend_on_where_the_data_are():
    known = jax.jit(lambda one, at: (one.variance(), one.mean_abs_error(at)))
    at = jnp.float32([0.0, 1e5, 1e6])
    variance, error = known(laplace(at, 100.0, sensitivity=4.0), at)
    np.testing.assert_allclose(variance, np.full(3, 0.0032), rtol=1e-4)
    np.testing.assert_allclose(error, np.full(3, 0.04), rtol=1e-4)


def test_gradients_agree_with_differences_at_any_cost(x64):
    """Also where all costs are so high that weights are counted from the lowest of them, as in long
    ties; by costs also inside of a flat piece.
    """
    one = jax.tree.map(lambda leaf: np.asarray(leaf)[0], of_pieces()[0])
    above = np.array([[0.0], [3000.0]])

    @jax.jit
    def known(rate, left, right):
        own = replace(one, rate=rate, cost_left=left, cost_right=right)
        inside = own.log_prob(-3.5), own.mean_abs_error(-3.5), own.quantile(1e-3)
        return own.cdf([[-3.5], [-2.0]]), own.mean(), own.variance(), own.entropy(), *inside

    given = 0.7, one.cost_left + above, one.cost_right + above
    check_grads(known, given, 1, ["rev"], rtol=1e-6)


def test_the_gradient_of_the_least_value_is_that_of_the_lowest_edge(x64):
    costs = np.array([1.0, 1.0]), np.array([1.0, 2.0])
    least = jax.grad(lambda e: PiecewiseExponential(e, *costs, jnp.asarray(0.5)).quantile(0.0))
    np.testing.assert_allclose(jax.jit(least)(np.array([0.0, 1.0, 3.0])), [1, 0, 0], atol=1e-9)
