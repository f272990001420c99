"""Closed forms of PiecewiseExponential against quadrature, in float64 and float32."""

from dataclasses import replace
from functools import cache, partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpjax import PiecewiseExponential, Tails, from_radii, laplace, piecewise_laplace
from dpjax.distributions.line import Side
from tests.support.distributions import of_one_size
from tests.support.oracle import Distribution

ROWS, PIECES = 120, 11


@cache
def random_fields(ties):
    """A batch of distributions with arbitrary edges and costs (rising, falling, flat; many ties in
    half the rows), and oracles.
    """
    rng = np.random.default_rng(0)
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
    return [np.array(values) for values in (edges, left, right, rates)], oracles


def distribution_of(fields, dtype=np.float64):
    """Made of NumPy: each field would be sliced by a program otherwise."""
    edges, left, right, rate = (np.asarray(field, dtype) for field in fields)
    lower = Side(
        *(np.flip(field[..., :end], -1) for field, end in ((edges, 6), (right, 5), (left, 5)))
    )
    distribution = PiecewiseExponential.from_sides(
        lower, Side(edges[..., 5:], left[..., 5:], right[..., 5:]), rate
    )
    return jax.tree.map(jnp.asarray, distribution)


def random_distribution(row):
    return distribution_of([field[row] for field in random_fields(ties=False)[0]])


@pytest.mark.slow
def test_closed_forms_agree_with_quadrature(x64):
    fields, exact = random_fields(ties=True)
    points = np.random.default_rng(1).uniform(-3.5, 6, (7, ROWS))
    p = np.broadcast_to(np.linspace(0.001, 0.999, 23)[:, None], (23, ROWS))
    distribution = distribution_of(fields)
    close = {"rtol": 1e-10, "atol": 1e-12}

    def each(function, where=points):
        return [
            [function(oracle, y) for oracle, y in zip(exact, row, strict=True)] for row in where
        ]

    np.testing.assert_allclose(
        distribution.log_normalizer(), [oracle.log_normalizer for oracle in exact], **close
    )
    np.testing.assert_allclose(distribution.log_prob(points), each(Distribution.log_prob), **close)
    np.testing.assert_allclose(
        distribution.prob(points), np.exp(each(Distribution.log_prob)), **close
    )
    np.testing.assert_allclose(distribution.cdf(points), each(Distribution.cdf), **close)
    np.testing.assert_allclose(
        distribution.survival(points), 1 - np.array(each(Distribution.cdf)), **close
    )
    mean = np.array([oracle.expectation(lambda y: y) for oracle in exact])
    variance = [
        oracle.expectation(lambda y, mu=mu: (y - mu) ** 2)
        for oracle, mu in zip(exact, mean, strict=True)
    ]
    np.testing.assert_allclose(distribution.mean(), mean, **close)
    np.testing.assert_allclose(distribution.variance(), variance, **close)
    np.testing.assert_allclose(distribution.stddev(), np.sqrt(variance), **close)
    errors = each(lambda oracle, c: oracle.expectation(lambda y: abs(y - c), [c]))
    np.testing.assert_allclose(distribution.mean_abs_error(points), errors, **close)
    squares = each(lambda oracle, c: oracle.expectation(lambda y: (y - c) ** 2))
    np.testing.assert_allclose(distribution.mean_squared_error(points), squares, **close)
    entropies = [-oracle.expectation(np.vectorize(oracle.log_prob)) for oracle in exact]
    np.testing.assert_allclose(distribution.entropy(), entropies, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(
        each(Distribution.cdf, np.asarray(distribution.quantile(p))), p, rtol=1e-9, atol=1e-12
    )
    np.testing.assert_allclose(
        each(Distribution.cdf, np.array(distribution.interval(0.9))),
        [[0.05] * ROWS, [0.95] * ROWS],
        rtol=1e-9,
    )


def test_float32_stays_within_its_rounding_of_float64(x64):
    points = np.random.default_rng(2).uniform(-3.5, 6, (7, ROWS))
    distributions = (
        distribution_of(random_fields(ties=True)[0], dtype) for dtype in (np.float32, np.float64)
    )
    single, double = (
        (one.cdf(points), one.mean(), one.mean_abs_error(points), one.variance())
        for one in distributions
    )
    # A sum of 11 masses, each with a rounding of its edges (relative to their magnitude of 5,
    # against widths of 1/12 at least).
    unit = float(np.finfo(np.float32).eps)
    assert single[0].dtype == jnp.float32
    for found, expected, factor in zip(single, double, (1, 8, 8, 64), strict=True):
        np.testing.assert_allclose(found, expected, atol=factor * 5 * 12 * 11 * unit)


def test_ends_of_the_support(x64):
    edges = random_fields(ties=False)[0][0][3]
    bottom, top = edges[0], edges[-1]
    known = jax.jit(lambda one, y, p: (one.cdf(y), one.log_prob(y), one.quantile(p)))
    points, levels = (
        np.array([bottom, top, bottom - 1e-9, top + 1e-9, np.nan]),
        np.array([0.0, 1.0, -0.1, 1.1, np.nan]),
    )
    cdf, log_prob, quantile = map(np.asarray, known(random_distribution(3), points, levels))
    assert cdf[:2].tolist() == [0, 1]
    assert quantile[:2].tolist() == [bottom, top]
    assert np.isfinite(log_prob[:2]).all()
    assert np.isneginf(log_prob[2:4]).all()
    assert np.isnan(quantile[2:]).all()
    assert np.isnan(log_prob[4])
    assert np.isnan(cdf[4])


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
    log_prob = np.asarray(distribution.log_prob(points))[np.isin(points, inside)]
    np.testing.assert_allclose(log_prob, [exact.log_prob(y) for y in inside], **close)
    cdf = np.asarray(distribution.cdf(points))
    np.testing.assert_allclose(cdf, [exact.cdf(y) for y in points], **close)
    np.testing.assert_allclose(
        distribution.survival(points), [1 - exact.cdf(y) for y in points], rtol=1e-9, atol=1e-12
    )
    mean = exact.expectation(lambda y: y)
    np.testing.assert_allclose(distribution.mean(), mean, **close)
    np.testing.assert_allclose(
        distribution.variance(), exact.expectation(lambda y: (y - mean) ** 2), **close
    )
    errors = [exact.expectation(lambda y, c=c: abs(y - c), [c]) for c in points]
    np.testing.assert_allclose(distribution.mean_abs_error(points), errors, **close)
    np.testing.assert_allclose(
        distribution.entropy(), -exact.expectation(np.vectorize(exact.log_prob)), rtol=1e-9
    )
    p = np.array([1e-9, 0.001, 0.2, 0.5, 0.8, 0.9, 0.999, 1 - 1e-9])  # as many as points
    np.testing.assert_allclose(distribution.cdf(distribution.quantile(p)), p, rtol=1e-9, atol=1e-15)
    cut = distribution.restrict(-1.0, 3.5)
    at_low, at_high = np.asarray(distribution.cdf(np.repeat([-1.0, 3.5], 4)))[[0, -1]]
    np.testing.assert_allclose(
        cut.cdf(points), np.clip((cdf - at_low) / (at_high - at_low), 0, 1), rtol=1e-12, atol=1e-15
    )
    assert cut.tails is None


def test_survival_is_precise_where_one_minus_cdf_is_not(x64):
    distribution = tailed()
    far = 3.0 + 0.5 / 0.75 * 80
    assert float(distribution.survival(far) / distribution.survival(3.0)) == pytest.approx(
        np.exp(-80), rel=1e-12
    )


def test_log_prob_reaches_tails_whose_mass_underflows():
    distribution = piecewise_laplace(
        from_radii(jnp.float32(0), jnp.ones(250, jnp.float32), neighbors="swap", step=1.0), 1.0
    )
    exact = laplace(jnp.float32(0), 0.5, sensitivity=1.0)
    found, wanted = (
        of_one_size(one, 256).log_prob(np.array([249.5, 250.5, 400.0]))
        for one in (distribution, exact)
    )
    np.testing.assert_allclose(found, wanted, rtol=1e-5)


def test_tails_of_long_pieces_keep_their_relative_precision():
    distribution = laplace(jnp.float32(0), 2.0, sensitivity=1.0, lower=-45.0, upper=45.0)
    y = np.array([3.0, 19.0, 20.0, 22.0, 23.0, 40.0], np.float32)
    exact = 0.5 * (np.exp(-y.astype(np.float64)) - np.exp(-45.0))
    np.testing.assert_allclose(distribution.survival(y), exact, rtol=2e-5)
    np.testing.assert_allclose(distribution.cdf(-y), exact, rtol=2e-5)


def test_moments_do_not_depend_on_where_the_data_are():
    for at in (0.0, 1e5, 1e6):
        distribution = laplace(jnp.float32(at), 100.0, sensitivity=4.0)
        np.testing.assert_allclose(
            [distribution.variance(), distribution.mean_abs_error(at)], [0.0032, 0.04], rtol=1e-4
        )


def test_an_empty_batch_has_empty_results():
    distribution = PiecewiseExponential(
        jnp.zeros((0, 4)), jnp.ones(3), jnp.ones(3), jnp.asarray(1.0)
    )
    for result in (
        distribution.cdf(0.5),
        distribution.log_prob(0.5),
        distribution.quantile(0.5),
        distribution.mean(),
        distribution.survival(0.5),
    ):
        assert result.shape == (0,)


def test_restrict_conditions_the_distribution(x64):
    distribution = random_distribution(11)

    @jax.jit
    def known(distribution):
        low, high = distribution.quantile(np.array([0.2, 0.7]))
        cut = distribution.restrict(low, high)
        points = jnp.linspace(low, high, 7)
        nothing = distribution.restrict(90.0, 91.0).mean()
        return nothing, [(one.cdf(points), one.log_prob(points)) for one in (cut, distribution)]

    nothing, ((cdf, log_prob), (whole_cdf, whole_log_prob)) = jax.tree.map(
        np.asarray, known(distribution)
    )
    np.testing.assert_allclose(cdf, (whole_cdf - 0.2) / 0.5, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(log_prob[1:-1], whole_log_prob[1:-1] - np.log(0.5), rtol=1e-10)
    assert np.isnan(nothing)


def test_reflection_is_an_involution(x64):
    distribution = tailed()
    points = np.array([-4.0, 0.3, 2.0, 5.0])
    np.testing.assert_allclose(
        distribution.reflect().cdf(-points), distribution.survival(points), rtol=1e-14
    )
    for a, b in zip(
        jax.tree.leaves(distribution),
        jax.tree.leaves(distribution.reflect().reflect()),
        strict=True,
    ):
        np.testing.assert_array_equal(a, b)


@pytest.mark.slow
def test_batches_broadcast_and_a_sweep_shares_its_pieces():
    edges = np.sort(np.random.default_rng(0).normal(size=(5, 8))).astype(np.float32)
    cost = np.abs(np.arange(7, dtype=np.float32) - 3)
    rate = np.array([0.5, 1.0, 2.0], np.float32)[:, None]
    distribution = PiecewiseExponential(edges, cost, cost, rate, center=3)
    assert distribution.batch_shape == (3, 5)

    def shapes(distribution):
        draws = (
            distribution.sample(jax.random.key(1)),
            distribution.sample(jax.random.key(1), (2, 6)),
        )
        return (
            *draws,
            distribution.cdf(0.0),
            distribution.quantile(np.linspace(0.1, 0.9, 4).reshape(4, 1, 1)),
        )

    assert [a.shape for a in jax.eval_shape(shapes, distribution)] == [
        (3, 5),
        (2, 6, 3, 5),
        (3, 5),
        (4, 3, 5),
    ]

    @jax.jit
    def known(distribution, points):
        moments = [
            getattr(distribution, method)()
            for method in ("mean", "variance", "entropy", "log_normalizer")
        ]
        return moments, [
            getattr(distribution, method)(points)
            for method in ("cdf", "log_prob", "survival", "mean_abs_error")
        ]

    points = np.linspace(-1.0, 1.0, 5, dtype=np.float32)
    one = PiecewiseExponential(edges[2], cost, cost, rate[1, 0], center=3)
    batch, alone = known(distribution, points), known(one, points[2])
    for found, expected, rtol in zip(batch, alone, (1e-6, 2e-6), strict=True):
        for a, b in zip(found, expected, strict=True):
            assert a.shape == (3, 5)
            np.testing.assert_allclose(np.asarray(a)[1, 2], b, rtol=rtol)


@pytest.mark.slow
def test_a_row_of_nan_stays_alone():
    edges = jnp.array([[0.0, 1.0, 2.0], [0.0, jnp.nan, 2.0], [0.0, 1.0, 3.0]])
    distribution = PiecewiseExponential(
        edges, jnp.ones(2), jnp.ones(2), jnp.array([1.0, 1.0, jnp.nan]), center=1
    )

    @jax.jit
    def known(distribution):
        draws = (
            distribution.sample(jax.random.key(0)),
            distribution.sample(jax.random.key(0), (50,)),
        )
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
    with pytest.raises(
        ValueError,
        match=r"cost_left and cost_right must have one element "
        r"fewer.*\(2,\), \(3,\) and \(4,\)",
    ):
        PiecewiseExponential(jnp.arange(4.0), jnp.ones(2), jnp.ones(3), jnp.asarray(1.0))


@pytest.mark.slow
@pytest.mark.parametrize(
    "method",
    ["mean", "variance", "entropy", "log_normalizer"],
)
def test_gradients_by_rate_agree_with_finite_differences(method, x64):
    """Also where all costs are so high that weights are counted from the lowest of them, as in long
    ties.
    """
    distribution = random_distribution(17)

    @jax.jit
    @partial(jax.value_and_grad, argnums=0)
    def at(rate, above):
        costs = {
            "cost_left": distribution.cost_left + above,
            "cost_right": distribution.cost_right + above,
        }
        return getattr(replace(distribution, rate=rate, **costs), method)()

    h = 1e-5
    for cost in (0.0, 3000.0):
        (above, _), (below, _), (_, gradient) = (
            at(jnp.float64(rate), cost) for rate in (0.7 + h, 0.7 - h, 0.7)
        )
        assert float(gradient) == pytest.approx(
            (float(above) - float(below)) / (2 * h), rel=1e-6, abs=1e-8
        )
