"""Closed forms of PiecewiseExponential against quadrature, in float64 and float32."""

from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpjax import PiecewiseExponential, Tails, from_radii, laplace, piecewise_laplace
from tests.support.distributions import of_one_size
from tests.support.oracle import Distribution

ROWS, PIECES = 120, 11


def random_distributions(seed=0, ties=True):
    """A batch of distributions with arbitrary edges and costs (rising, falling, flat; many ties in half the rows), and oracles."""
    rng = np.random.default_rng(seed)
    edges, left, right, rates, oracles = [], [], [], [], []
    for row in range(ROWS):
        grid = np.linspace(-3, 5, 6 if ties and row % 2 else 97)
        edge = np.sort(rng.choice(grid, PIECES + 1))
        edge[-1] += 0.5  # never empty
        a, b = rng.integers(0, 9, (2, PIECES)) + rng.choice([0.0, 0.5], (2, PIECES))
        b = np.where(rng.random(PIECES) < 0.3, a, b)
        rate = float(rng.choice([0.01, 0.5, 3.0, 20.0]))
        for values, value in ((edges, edge), (left, a), (right, b), (rates, rate)):
            values.append(value)
        oracles.append(Distribution(list(zip(edge[:-1], edge[1:], a, b, strict=True)), rate))
    fields = [np.array(values) for values in (edges, left, right, rates)]
    return PiecewiseExponential(*map(jnp.asarray, fields), center=5), oracles, fields


def random_distribution(row):
    _, oracles, fields = random_distributions(ties=False)
    return PiecewiseExponential(*(jnp.asarray(field[row]) for field in fields), center=5), oracles[row]


@pytest.mark.slow
def test_closed_forms_agree_with_quadrature(x64):
    distribution, exact, _ = random_distributions()
    points = np.random.default_rng(1).uniform(-3.5, 6, (7, ROWS))
    close = {"rtol": 1e-10, "atol": 1e-12}

    def each(function, where=points):
        return [[function(oracle, y) for oracle, y in zip(exact, row, strict=True)] for row in where]

    np.testing.assert_allclose(distribution.log_normalizer(), [oracle.log_normalizer for oracle in exact], **close)
    np.testing.assert_allclose(distribution.log_prob(points), each(Distribution.log_prob), **close)
    np.testing.assert_allclose(distribution.prob(points), np.exp(each(Distribution.log_prob)), **close)
    np.testing.assert_allclose(distribution.cdf(points), each(Distribution.cdf), **close)
    np.testing.assert_allclose(distribution.survival(points), 1 - np.array(each(Distribution.cdf)), **close)
    mean = np.array([oracle.expectation(lambda y: y) for oracle in exact])
    variance = [oracle.expectation(lambda y, mu=mu: (y - mu) ** 2) for oracle, mu in zip(exact, mean, strict=True)]
    np.testing.assert_allclose(distribution.mean(), mean, **close)
    np.testing.assert_allclose(distribution.variance(), variance, **close)
    np.testing.assert_allclose(distribution.stddev(), np.sqrt(variance), **close)
    errors = each(lambda oracle, c: oracle.expectation(lambda y: abs(y - c), [c]))
    np.testing.assert_allclose(distribution.mean_abs_error(points), errors, **close)
    squares = each(lambda oracle, c: oracle.expectation(lambda y: (y - c) ** 2))
    np.testing.assert_allclose(distribution.mean_squared_error(points), squares, **close)
    entropies = [-oracle.expectation(np.vectorize(oracle.log_prob)) for oracle in exact]
    np.testing.assert_allclose(distribution.entropy(), entropies, rtol=1e-9, atol=1e-9)
    p = np.broadcast_to(np.linspace(0.001, 0.999, 23)[:, None], (23, ROWS))
    np.testing.assert_allclose(each(Distribution.cdf, np.asarray(distribution.quantile(p))), p, rtol=1e-9, atol=1e-12)
    low, high = distribution.interval(0.9)
    np.testing.assert_allclose(each(Distribution.cdf, np.array([low, high])), [[0.05] * ROWS, [0.95] * ROWS], rtol=1e-9)


@pytest.mark.slow
def test_float32_stays_within_its_rounding_of_float64(x64):
    distribution, _, _ = random_distributions()
    small = jax.tree.map(lambda a: a.astype(jnp.float32), distribution)
    points = np.random.default_rng(2).uniform(-3.5, 6, (5, ROWS))
    # A sum of 11 masses, each with a rounding of its edges (relative to their magnitude of 5, against widths of 1/12 at least).
    unit = float(np.finfo(np.float32).eps)
    assert small.cdf(points).dtype == jnp.float32
    np.testing.assert_allclose(small.cdf(points), distribution.cdf(points), atol=5 * 12 * 11 * unit)
    np.testing.assert_allclose(small.mean(), distribution.mean(), atol=8 * 5 * 12 * 11 * unit)
    np.testing.assert_allclose(small.mean_abs_error(points), distribution.mean_abs_error(points), atol=8 * 5 * 12 * 11 * unit)
    np.testing.assert_allclose(small.variance(), distribution.variance(), atol=64 * 5 * 12 * 11 * unit)


@pytest.mark.slow
def test_ends_of_the_support(x64):
    distribution, _ = random_distribution(3)
    bottom, top = float(distribution.edges[0]), float(distribution.edges[-1])
    assert float(distribution.cdf(bottom)) == 0
    assert float(distribution.cdf(top)) == 1
    assert float(distribution.quantile(0.0)) == bottom
    assert float(distribution.quantile(1.0)) == top
    assert np.isfinite(distribution.log_prob(np.array([bottom, top]))).all()
    assert np.isneginf(distribution.log_prob(np.array([bottom - 1e-9, top + 1e-9]))).all()
    assert np.isnan(distribution.quantile(np.array([-0.1, 1.1, np.nan]))).all()
    assert np.isnan(distribution.log_prob(np.nan))
    assert np.isnan(distribution.cdf(np.nan))


def tailed(lower_scale=2.0, upper_scale=0.5):
    """Two pieces and two tails."""
    edges, left, right = jnp.array([0.0, 1.0, 3.0]), jnp.array([2.0, 1.0]), jnp.array([1.0, 2.5])
    tails = Tails(*(jnp.asarray(v, edges.dtype) for v in (2.0, lower_scale, 2.5, upper_scale)))
    return PiecewiseExponential(edges, left, right, jnp.asarray(0.75, edges.dtype), tails, center=1)


@pytest.mark.slow
@pytest.mark.parametrize("scales", [(2.0, 0.5), (2.0, 0.0), (0.0, 0.5)])
def test_tails_agree_with_long_pieces(scales, x64):
    distribution = tailed(*scales)
    reach = 60.0
    segments = [(0.0, 1.0, 2.0, 1.0), (1.0, 3.0, 1.0, 2.5)]
    if scales[0]:
        segments.insert(0, (-reach * scales[0], 0.0, 2.0 + reach, 2.0))
    if scales[1]:
        segments.append((3.0, 3.0 + reach * scales[1], 2.5, 2.5 + reach))
    exact = Distribution(segments, 0.75)
    close = {"rtol": 1e-10, "atol": 1e-13}
    points = np.array([-20.0, -3.0, -0.1, 0.5, 1.0, 2.9, 3.2, 6.0])
    inside = points[(points >= segments[0][0]) & (points < segments[-1][1])]
    np.testing.assert_allclose(distribution.log_normalizer(), exact.log_normalizer, **close)
    np.testing.assert_allclose(distribution.log_prob(inside), [exact.log_prob(y) for y in inside], **close)
    np.testing.assert_allclose(distribution.cdf(points), [exact.cdf(y) for y in points], **close)
    np.testing.assert_allclose(distribution.survival(points), [1 - exact.cdf(y) for y in points], rtol=1e-9, atol=1e-12)
    mean = exact.expectation(lambda y: y)
    np.testing.assert_allclose(distribution.mean(), mean, **close)
    np.testing.assert_allclose(distribution.variance(), exact.expectation(lambda y: (y - mean) ** 2), **close)
    errors = [exact.expectation(lambda y, c=c: abs(y - c), [c]) for c in points]
    np.testing.assert_allclose(distribution.mean_abs_error(points), errors, **close)
    np.testing.assert_allclose(distribution.entropy(), -exact.expectation(np.vectorize(exact.log_prob)), rtol=1e-9)
    p = np.array([1e-9, 0.001, 0.2, 0.5, 0.8, 0.999, 1 - 1e-9])
    np.testing.assert_allclose(distribution.cdf(distribution.quantile(p)), p, rtol=1e-9, atol=1e-15)
    cut = distribution.restrict(-1.0, 3.5)
    mass = distribution.cdf(3.5) - distribution.cdf(-1.0)
    np.testing.assert_allclose(
        cut.cdf(points), np.clip((distribution.cdf(points) - distribution.cdf(-1.0)) / mass, 0, 1), rtol=1e-12, atol=1e-15
    )
    assert cut.tails is None


@pytest.mark.slow
def test_survival_is_precise_where_one_minus_cdf_is_not(x64):
    distribution = tailed()
    far = 3.0 + 0.5 / 0.75 * 80
    assert float(distribution.survival(far) / distribution.survival(3.0)) == pytest.approx(np.exp(-80), rel=1e-12)


@pytest.mark.slow
def test_log_prob_reaches_tails_whose_mass_underflows():
    distribution = piecewise_laplace(from_radii(jnp.float32(0), jnp.ones(250, jnp.float32), neighbors="swap", step=1.0), 1.0)
    exact = laplace(jnp.float32(0), 0.5, sensitivity=1.0)
    found, wanted = (of_one_size(one, 256).log_prob(np.array([249.5, 250.5, 400.0])) for one in (distribution, exact))
    np.testing.assert_allclose(found, wanted, rtol=1e-5)


def test_tails_of_long_pieces_keep_their_relative_precision():
    distribution = laplace(jnp.float32(0), 2.0, sensitivity=1.0, lower=-45.0, upper=45.0)
    y = np.array([3.0, 19.0, 20.0, 22.0, 23.0, 40.0], np.float32)
    exact = 0.5 * (np.exp(-y.astype(np.float64)) - np.exp(-45.0))
    np.testing.assert_allclose(distribution.survival(y), exact, rtol=2e-5)
    np.testing.assert_allclose(distribution.cdf(-y), exact, rtol=2e-5)


@pytest.mark.slow
def test_moments_do_not_depend_on_where_the_data_are():
    for at in (0.0, 1e5, 1e6):
        distribution = laplace(jnp.float32(at), 100.0, sensitivity=4.0)
        np.testing.assert_allclose([distribution.variance(), distribution.mean_abs_error(at)], [0.0032, 0.04], rtol=1e-4)


def test_an_empty_batch_has_empty_results():
    distribution = PiecewiseExponential(jnp.zeros((0, 4)), jnp.ones(3), jnp.ones(3), jnp.asarray(1.0))
    for result in (
        distribution.cdf(0.5),
        distribution.log_prob(0.5),
        distribution.quantile(0.5),
        distribution.mean(),
        distribution.survival(0.5),
    ):
        assert result.shape == (0,)


@pytest.mark.slow
def test_restrict_conditions_the_distribution(x64):
    distribution, _ = random_distribution(11)
    low, high = distribution.quantile(np.array([0.2, 0.7])).tolist()
    cut = distribution.restrict(low, high)
    points = np.linspace(low, high, 7)
    np.testing.assert_allclose(cut.cdf(points), (np.asarray(distribution.cdf(points)) - 0.2) / 0.5, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(
        cut.log_prob(points[1:-1]), np.asarray(distribution.log_prob(points[1:-1])) - np.log(0.5), rtol=1e-10
    )
    assert np.isnan(distribution.restrict(90.0, 91.0).mean())


@pytest.mark.slow
def test_reflection_is_an_involution(x64):
    distribution = tailed()
    points = np.array([-4.0, 0.3, 2.0, 5.0])
    np.testing.assert_allclose(distribution.reflect().cdf(-points), distribution.survival(points), rtol=1e-14)
    for a, b in zip(jax.tree.leaves(distribution), jax.tree.leaves(distribution.reflect().reflect()), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.slow
def test_batches_broadcast_and_a_sweep_shares_its_pieces():
    edges = jnp.sort(jax.random.normal(jax.random.key(0), (5, 8)))
    cost = jnp.abs(jnp.arange(7.0) - 3)
    rate = jnp.array([0.5, 1.0, 2.0])[:, None]
    distribution = PiecewiseExponential(edges, cost, cost, rate, center=3)
    assert distribution.batch_shape == (3, 5)

    def shapes(distribution):
        draws = distribution.sample(jax.random.key(1)), distribution.sample(jax.random.key(1), (2, 6))
        return *draws, distribution.cdf(0.0), distribution.quantile(np.linspace(0.1, 0.9, 4).reshape(4, 1, 1))

    assert [a.shape for a in jax.eval_shape(shapes, distribution)] == [(3, 5), (2, 6, 3, 5), (3, 5), (4, 3, 5)]

    @jax.jit
    def known(distribution, points):
        moments = [getattr(distribution, method)() for method in ("mean", "variance", "entropy", "log_normalizer")]
        return moments, [getattr(distribution, method)(points) for method in ("cdf", "log_prob", "survival", "mean_abs_error")]

    points = jnp.linspace(-1.0, 1.0, 5)
    one = PiecewiseExponential(edges[2], cost, cost, rate[1, 0], center=3)
    batch, alone = known(distribution, points), known(one, points[2])
    for found, expected, rtol in zip(batch, alone, (1e-6, 2e-6), strict=True):
        for a, b in zip(found, expected, strict=True):
            assert a.shape == (3, 5)
            np.testing.assert_allclose(a[1, 2], b, rtol=rtol)


@pytest.mark.slow
def test_a_row_of_nan_stays_alone():
    edges = jnp.array([[0.0, 1.0, 2.0], [0.0, jnp.nan, 2.0], [0.0, 1.0, 3.0]])
    distribution = PiecewiseExponential(edges, jnp.ones(2), jnp.ones(2), jnp.array([1.0, 1.0, jnp.nan]), center=1)

    @jax.jit
    def known(distribution):
        draws = distribution.sample(jax.random.key(0)), distribution.sample(jax.random.key(0), (50,))
        return draws, (
            distribution.mean(),
            distribution.cdf(0.5),
            distribution.log_prob(0.5),
            distribution.quantile(0.5),
            distribution.entropy(),
        )

    (draw, draws), results = known(distribution)
    for result in (draw, *results):
        assert np.isnan(result).tolist() == [False, True, True]
    assert np.isnan(draws).all(axis=0).tolist() == [False, True, True]


def test_shapes_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match=r"m\+1 edges need m costs.*\(4,\), \(2,\) and \(3,\)"):
        PiecewiseExponential(jnp.arange(4.0), jnp.ones(2), jnp.ones(3), jnp.asarray(1.0))


@pytest.mark.slow
@pytest.mark.parametrize(
    "method",
    ["mean", "variance", "entropy", "log_normalizer"],
)
def test_gradients_by_rate_agree_with_finite_differences(method, x64):
    """Also where all costs are so high that weights are counted from the lowest of them, as in long ties."""
    distribution, _ = random_distribution(17)

    @jax.jit
    @partial(jax.value_and_grad, argnums=0)
    def at(rate, above):
        costs = {"cost_left": distribution.cost_left + above, "cost_right": distribution.cost_right + above}
        return getattr(replace(distribution, rate=rate, **costs), method)()

    h = 1e-5
    for cost in (0.0, 3000.0):
        (above, _), (below, _), (_, gradient) = (at(jnp.float64(rate), cost) for rate in (0.7 + h, 0.7 - h, 0.7))
        assert float(gradient) == pytest.approx((float(above) - float(below)) / (2 * h), rel=1e-6, abs=1e-8)
