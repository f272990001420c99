"""Distributions on another scale: every method against brute force in data units, and medians
without bounds.
"""

from dataclasses import dataclass
from functools import partial
from itertools import combinations_with_replacement

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.scipy.stats import logistic

import dpjax
from dpjax import (
    Asinh,
    Cauchy,
    Log,
    LogCauchy,
    Prior,
    Transformed,
    inverse_sensitivity,
    laplace,
    median,
    on_scale,
    piecewise_laplace,
)
from dpjax.distributions import Transform
from tests.support.audit import padded
from tests.support.distributions import of_one_size
from tests.support.oracle import neighbors_of
from tests.support.statistics import assert_follows, assert_rejected


@dataclass(frozen=True)
class CubeRoot(Transform):
    """A map of a user's own."""

    def forward(self, x):
        return jnp.cbrt(x)

    def inverse(self, z):
        return z**3

    def log_derivative(self, x):
        return -jnp.log(3 * jnp.square(jnp.cbrt(x)))


LOGISTIC = Prior(logistic.cdf, logistic.ppf, logistic.logpdf, lower=-12.0, upper=20.0)
# Each with the map and its inverse in NumPy.
MAPS = {
    "log": (Log(lower=1e-3, upper=1e4), np.log, np.exp),
    "asinh": (
        Asinh(2.0, lower=-1e3, upper=1e4),
        lambda x: np.arcsinh(x / 2),
        lambda z: 2 * np.sinh(z),
    ),
    "log-cauchy": (
        LogCauchy(0.5, lower=-1e3, upper=1e4),
        lambda x: 2 / np.pi * np.arctan(np.arcsinh(2 * x)),
        lambda z: np.sinh(np.tan(np.pi / 2 * z)) / 2,
    ),
    "logistic prior": (
        LOGISTIC,
        lambda x: 1 / (1 + np.exp(-x)),
        lambda z: np.log(z) - np.log1p(-z),
    ),
    "cube root": (CubeRoot(lower=0.0, upper=1e3), np.cbrt, lambda z: z**3),
}
RECORDS = np.array([[0.5, 1.0, 1.5, 4.0, 9.0, 9.5], [2.0, 2.0, 2.0, 3.0, 7.0, 0.7]])


@partial(jax.jit, static_argnames="transform")
def mapped(transform, x):
    return transform.forward(x), transform.log_derivative(x)


@partial(jax.jit, static_argnames="transform")
def mapped_back(transform, z):
    return transform.inverse(z)


@pytest.mark.parametrize("name", MAPS)
def test_a_map_its_inverse_and_its_derivative_belong_together(name, x64):
    transform, forward, inverse = MAPS[name]
    x = np.concatenate([np.linspace(transform.lower, transform.upper, 40)[1:-1], [0.01, 0.1, 1.0]])
    z, log_derivative = map(np.asarray, mapped(transform, x))
    np.testing.assert_allclose(z, forward(x), rtol=1e-13)
    np.testing.assert_allclose(
        mapped_back(transform, z), x, rtol=1e-6 if name == "logistic prior" else 1e-10
    )
    np.testing.assert_allclose(inverse(z), x, rtol=1e-6 if name == "logistic prior" else 1e-10)
    h = 1e-5 * np.abs(x)
    slope = (forward(x + h) - forward(x - h)) / (2 * h)
    inner = slope > 1e-6  # elsewhere the difference has no digits
    np.testing.assert_allclose(np.exp(log_derivative)[inner], slope[inner], rtol=1e-5)
    assert inner.sum() > 10


@pytest.mark.parametrize(
    ("transform", "far", "near"),
    [(Log(), 4e-6, 1e-6), (Asinh(), 4e-6, 1.1e-6), (LogCauchy(0.1), 2.2e-4, 4e-5)],
)
def test_float32_resolves_what_is_stated(transform, far, near):
    for size, wanted in ((1e15, far), (1e5, near)):
        x = (size * np.linspace(0.5, 1.0, 100)).astype(np.float32)
        z, _ = mapped(transform, x)
        np.testing.assert_allclose(mapped_back(transform, z), x, rtol=wanted)
        if transform.lower < 0:
            np.testing.assert_array_equal(mapped(transform, -x)[0], -np.asarray(z))


def row_of(distribution, row):
    """One row of two, with its fields in NumPy."""
    leaves, tree = jax.tree.flatten(distribution)
    leaves = [np.asarray(leaf) for leaf in leaves]
    return jax.tree.unflatten(
        tree, [leaf[row] if leaf.ndim and leaf.shape[0] == 2 else leaf for leaf in leaves]
    )


def nodes_of(distribution, map_back, cuts=()):
    """Points in the units of the data and their probabilities: Gauss-Legendre in small panels of
    every piece.
    """
    y, weights = np.polynomial.legendre.leggauss(20)
    edges, costs_left, costs_right = map(
        np.asarray, (distribution.edges, distribution.cost_left, distribution.cost_right)
    )
    rate, points, masses = float(distribution.rate), [], []
    for a, b, left, right in zip(edges[:-1], edges[1:], costs_left, costs_right, strict=True):
        panels = np.unique(
            np.concatenate([np.linspace(a, b, 60), [cut for cut in cuts if a < cut < b]])
        )
        z = (panels[:-1, None] + panels[1:, None] + np.diff(panels)[:, None] * y) / 2
        cost = float(left) + (float(right) - float(left)) * (z - a) / (b - a if b > a else 1.0)
        points.append(map_back(z).ravel())
        masses.append((np.diff(panels)[:, None] / 2 * weights * np.exp(-rate * cost)).ravel())
    points, masses = np.concatenate(points), np.concatenate(masses)
    return points, masses / masses.sum()


@jax.jit
def described(distribution, y, center):
    found = {name: getattr(distribution, name)(y) for name in ("log_prob", "cdf", "survival")}
    found |= {
        "mean": distribution.mean(),
        "stddev": distribution.stddev(),
        "mean_abs_error": distribution.mean_abs_error(center),
    }
    return found


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "mechanism"),
    [
        ("asinh", inverse_sensitivity),
        ("log-cauchy", piecewise_laplace),
        *(
            pytest.param(name, piecewise_laplace, marks=pytest.mark.slow)
            for name in ("log", "asinh", "logistic prior", "cube root")
        ),
    ],
)
def test_every_method_agrees_with_brute_force(name, mechanism, x64):
    transform, forward, back = MAPS[name]
    profile = on_scale(median, RECORDS, transform=transform, neighbors="swap")
    on_the_scale = mechanism(profile, jnp.asarray([1.5, 4.0]))
    distribution = Transformed(on_the_scale, transform)
    y = np.array([0.3, 1.2, 2.1, 5.0, 9.7, 15.0])
    p = np.array([0.01, 0.3, 0.5, 0.9, 0.999])
    center = np.array([[0.2], [1.3], [2.0], [18.0]])
    h = 1e-6 * y
    quantiles = np.concatenate(
        [distribution.quantile(p[:, None]), np.stack(distribution.interval(0.8))]
    )
    at = np.concatenate(
        [np.broadcast_to(np.concatenate([y, y + h, y - h])[:, None], (3 * y.size, 2)), quantiles]
    )
    found = jax.tree.map(np.asarray, described(distribution, at, center))
    cdf, cdf_above, cdf_below, of_quantiles = np.split(found["cdf"], np.arange(1, 4) * y.size)
    survival, survival_above, survival_below, _ = np.split(
        found["survival"], np.arange(1, 4) * y.size
    )
    # It has one structure for all maps.
    on_scale_log_prob = np.asarray(on_the_scale.log_prob(forward(y)[:, None]))
    slopes = np.where(cdf < 0.5, cdf_above - cdf_below, survival_below - survival_above) / (
        2 * h[:, None]
    )
    for row in range(2):
        x, mass = nodes_of(
            row_of(on_the_scale, row), back, forward(np.concatenate([y, center[:, 0]]))
        )
        np.testing.assert_allclose(found["mean"][row], mass @ x, rtol=1e-5)
        np.testing.assert_allclose(
            found["stddev"][row], np.sqrt(mass @ (x - mass @ x) ** 2), rtol=1e-5
        )
        for i, c in enumerate(center[:, 0]):
            np.testing.assert_allclose(
                found["mean_abs_error"][i, row], mass @ np.abs(x - c), rtol=1e-5
            )
        below = np.array([mass[x <= at].sum() for at in y])
        np.testing.assert_allclose(cdf[:, row], below, rtol=1e-9)
        np.testing.assert_allclose(survival[:, row], 1 - below, rtol=1e-9, atol=1e-14)
        # The density is the slope of the cdf in the units of the data. The density on the scale is
        # not.
        density = np.exp(found["log_prob"])[: y.size, row]
        np.testing.assert_allclose(density, slopes[:, row], rtol=1e-5)
        assert np.abs(np.exp(on_scale_log_prob)[:, row] / slopes[:, row] - 1).max() > 0.05
    wanted = np.append(p, [0.1, 0.9])[:, None]
    np.testing.assert_allclose(of_quantiles, np.broadcast_to(wanted, quantiles.shape), rtol=1e-9)


def panels_of(distribution, transform, back):
    """Points all over the range, with the edges among the ends of the panels, and their weights."""
    y, weights = np.polynomial.legendre.leggauss(12)
    cuts = np.unique(
        np.concatenate(
            [
                back(np.asarray(distribution.edges)),
                np.geomspace(1e-3, 1e4, 200),
                -np.geomspace(1e-3, 1e3, 200),
            ]
        )
    )
    cuts = cuts[(cuts >= transform.lower) & (cuts <= transform.upper)]
    x = (cuts[:-1, None] + cuts[1:, None] + np.diff(cuts)[:, None] * y) / 2
    return x.ravel(), (np.diff(cuts)[:, None] / 2 * weights).ravel()


@pytest.mark.slow
def test_the_density_has_mass_one_and_the_entropy_is_its_own(x64):
    transform, forward, back = MAPS["asinh"]
    whole = piecewise_laplace(
        on_scale(median, RECORDS[0], transform=transform, neighbors="swap"), 2.0
    )
    distribution = Transformed(whole, transform)

    @jax.jit
    def known(distribution, y, z):
        moments = (
            distribution.variance(),
            distribution.stddev(),
            distribution.mean_squared_error(3.0),
            distribution.entropy(),
        )
        return moments, distribution.log_prob(y), distribution.distribution.log_prob(z)

    whole = jax.tree.map(np.asarray, whole)
    (points, weights), (x, mass) = panels_of(whole, transform, back), nodes_of(whole, back)
    moments, log_density, without_derivative = known(
        distribution, np.concatenate([points, x]), forward(points)
    )
    log_density = np.asarray(log_density)
    assert weights @ np.exp(log_density[: points.size]) == pytest.approx(1, rel=1e-9)
    # The control: without the derivative it has not.
    assert abs(weights @ np.exp(np.asarray(without_derivative)) - 1) > 0.1
    variance, stddev, square, entropy = map(float, moments)
    expected = float(mass @ (x - mass @ x) ** 2)
    np.testing.assert_allclose([variance, stddev**2], expected, rtol=1e-6)
    assert square == pytest.approx(float(mass @ (x - 3) ** 2), rel=1e-6)
    assert entropy == pytest.approx(float(-mass @ log_density[points.size :]), rel=1e-7)


@pytest.mark.slow
def test_draws_follow_the_cdf_and_no_bit_depends_on_the_batch():
    transform = Asinh(0.5)
    rows = np.random.default_rng(0).standard_t(2, (5, 9)).astype(np.float32)

    def distribution(x):
        return Transformed(
            piecewise_laplace(
                on_scale(median, x, transform=transform, neighbors="add_remove"), 3.0
            ),
            transform,
        )

    @jax.jit
    def draw_all(key, x):
        whole = distribution(x)
        return whole.sample(key, (2000,)), whole

    @jax.jit
    def some_rows(key, x, first):
        return distribution(x)._sample(key, (2000,), first)

    draws, whole = draw_all(jax.random.key(0), rows)
    draws = np.asarray(draws)
    assert draws.shape == (2000, 5)

    def cdf(y, scale=transform):
        return np.asarray(Transformed(whole.distribution, scale).cdf(y[:, None]))[:, 1]

    assert_follows(draws[:, 1], cdf)
    assert_rejected(draws[:, 1], lambda y: cdf(y, Asinh(0.6)))
    assert_rejected(draws[:, 0], cdf)
    np.testing.assert_array_equal(some_rows(jax.random.key(0), rows[:3], 0), draws[:, :3])
    np.testing.assert_array_equal(some_rows(jax.random.key(0), rows[2:], 2), draws[:, 2:])


SHAPES = {
    "incomes": (lambda g: np.exp(10.5 + 0.7 * g.normal(size=(8, 1000))), 0, 1e6),
    "normal": (lambda g: g.normal(size=(8, 1000)), -10, 10),
    "Pareto": (lambda g: 1 + g.pareto(1.5, (8, 1000)), 1, 1000),
}


@jax.jit
def error_at(distribution, center):
    return jnp.mean(distribution.mean_abs_error(center))


@pytest.mark.slow
@pytest.mark.parametrize("neighbors", ["add_remove", "swap"])
def test_a_median_without_bounds_is_within_two_percent_of_one_with_good_bounds(neighbors):
    """The exact mean errors at epsilon = 0.2 of 8 datasets of 1000 records each."""
    ratios = {}
    for name, (draw, lower, upper) in SHAPES.items():
        x = draw(np.random.default_rng(0)).astype(np.float32)
        center = np.median(x, axis=1)
        profile = median(x, lower=np.float32(lower), upper=np.float32(upper), neighbors=neighbors)
        known = float(error_at(of_one_size(piecewise_laplace(profile, 0.2), 1008), center))
        for transform in (Asinh(), LogCauchy(), Asinh(1e-3)):
            whole = piecewise_laplace(
                on_scale(median, x, transform=transform, neighbors=neighbors), 0.2
            )
            ratios[name, transform] = (
                float(error_at(Transformed(of_one_size(whole, 1008), transform), center)) / known
            )
    assert all(
        0.98 < ratio < 1.02 for (_, transform), ratio in ratios.items() if transform != Asinh(1e-3)
    )
    # The control: on both sides of 0, a scale that is far too small costs more than that.
    assert abs(ratios["normal", Asinh(1e-3)] - 1) > 0.02


def worst_losses(log_probs, log_cdfs, datasets, neighbors, grid):
    """The largest difference between neighbors of log-densities and of log-probabilities of
    half-lines.
    """
    index = {data: row for row, data in enumerate(datasets)}
    pairs = [
        (index[a], index[b])
        for a in datasets
        for b in neighbors_of(a, neighbors, grid)
        if b in index
    ]
    first, second = np.array(pairs).T
    return tuple(np.abs(array[first] - array[second]).max() for array in (log_probs, log_cdfs))


@pytest.mark.parametrize("neighbors", [pytest.param("add_remove", marks=pytest.mark.slow), "swap"])
def test_neighbors_differ_by_at_most_epsilon(neighbors, x64):
    """All datasets of up to three records on an uneven grid, near both ends of every piece; the
    control has a scale of the data.
    """
    grid, epsilon, transform = (-7.0, 0.0, 1.0, 30.0), 1.2, LogCauchy(3.0)
    sizes = (3,) if neighbors == "swap" else (0, 1, 2, 3)
    datasets = [data for size in sizes for data in combinations_with_replacement(grid, size)]
    x, count = padded(datasets, 3)

    @jax.jit
    def distribution(x):
        given = {"num_records": jnp.asarray(count)} if neighbors == "add_remove" else {}
        return Transformed(
            piecewise_laplace(
                on_scale(median, x, transform=transform, neighbors=neighbors, **given), epsilon
            ),
            transform,
        )

    @jax.jit
    def look(whole, y, scale):
        """At y, when both the records and the draws are divided by a scale before and multiplied
        after.
        """
        y = y[:, None] / scale
        return whole.log_prob(y) - jnp.log(scale), jnp.log(whole.cdf(y)), jnp.log(whole.survival(y))

    whole = distribution(x)
    edges = np.unique(np.round(np.asarray(whole.distribution.edges), 12))
    near = np.concatenate([edges[:-1] + 1e-9, edges[1:] - 1e-9, (edges[:-1] + edges[1:]) / 2])
    y = np.asarray(mapped_back(transform, near))
    density, below, above = (
        np.asarray(array).T for array in look(whole, y, np.ones(len(datasets)))
    )
    half_lines = np.concatenate([below, above], axis=1)
    losses = worst_losses(density, half_lines, datasets, neighbors, grid)
    assert max(losses) < epsilon * (1 + 1e-6)
    assert losses[0] > 0.65 * epsilon
    scale = np.array([1 + np.mean(np.abs(data)) if data else 1.0 for data in datasets])
    density, below, above = (
        np.asarray(array).T for array in look(distribution(x / scale[:, None]), y, scale)
    )
    assert (
        worst_losses(density, np.concatenate([below, above], axis=1), datasets, neighbors, grid)[0]
        > 1.2 * epsilon
    )


@pytest.mark.slow
@pytest.mark.parametrize("transform", [Log(), Asinh(), LOGISTIC])
def test_data_never_raise_or_make_nan(transform):
    """NaN records are absent, or the lower bound; all others are clamped. Warnings are errors in
    this suite.
    """
    x = np.array(
        [[np.nan] * 3, [np.inf, -np.inf, 0.0], [-1.0, 1e-45, 3e38], [np.nan, 2.0, np.nan]],
        np.float32,
    )
    for neighbors in ("add_remove", "swap"):
        profile = on_scale(median, x, transform=transform, neighbors=neighbors)
        distribution = Transformed(
            of_one_size(piecewise_laplace(profile, np.array([0.1, 30.0])[:, None])), transform
        )
        draws = np.asarray(distribution.sample(jax.random.key(0), (9,)))
        assert draws.shape == (9, 2, 4)
        assert (
            (draws >= np.float32(transform.lower)) & (draws <= np.float32(transform.upper))
        ).all()
        assert np.isfinite(distribution.mean_abs_error(1.0)).all()
        value = mapped_back(transform, np.asarray(profile.value)[3])
        np.testing.assert_allclose(
            value, 2.0 if neighbors == "add_remove" else transform.lower, rtol=1e-5
        )


def test_beyond_the_bounds_there_is_nothing():
    transform = Log(lower=0.5, upper=40.0)
    profile = on_scale(median, [1.0, 2.0, 3.0], transform=transform, neighbors="swap")
    distribution = Transformed(piecewise_laplace(profile, 1.0), transform)
    beyond = np.array([-np.inf, -1.0, 0.0, 0.4, 41.0, np.inf, np.nan], np.float32)
    nan = np.array([np.nan])

    @jax.jit
    def known(distribution, y, p):
        slope = jax.vmap(jax.grad(distribution.log_prob))(y)
        return (
            distribution.log_prob(y),
            distribution.cdf(y),
            distribution.survival(y),
            distribution.quantile(p),
            slope,
        )

    log_prob, cdf, survival, quantile, slope = known(
        distribution, beyond, np.array([0.0, 1.0, 1.5], np.float32)
    )
    np.testing.assert_array_equal(log_prob, np.append(np.full(6, -np.inf), nan))
    np.testing.assert_array_equal(cdf, np.append([0, 0, 0, 0, 1, 1], nan))
    np.testing.assert_array_equal(survival, np.append([1, 1, 1, 1, 0, 0], nan))
    np.testing.assert_allclose(quantile, [0.5, 40.0, np.nan], rtol=1e-6)
    assert np.isfinite(slope[2])


@pytest.mark.slow
def test_gradients_and_maps_go_through(x64):
    transform = Asinh()

    @jax.jit
    def error(x, epsilon):
        whole = piecewise_laplace(
            on_scale(median, x, transform=transform, neighbors="swap"), epsilon
        )
        return Transformed(whole, transform).mean_abs_error(1.7)

    def error_at(x, epsilon):
        return np.asarray(error(x, np.float64(epsilon)))

    mapped = jax.jit(jax.vmap(error, in_axes=(0, None)))(RECORDS, 4.0)
    np.testing.assert_allclose(mapped, error_at(RECORDS, 4.0), rtol=1e-12)
    by_data, by_epsilon = jax.jit(
        jax.grad(lambda x, epsilon: error(x, epsilon)[0], argnums=(0, 1))
    )(RECORDS, 4.0)
    difference = (error_at(RECORDS, 4.0 + 1e-5) - error_at(RECORDS, 4.0 - 1e-5)) / 2e-5
    assert float(by_epsilon) == pytest.approx(difference[0], rel=1e-5)
    step = np.zeros_like(RECORDS)
    step[0, 3] = 1e-5
    difference = (error_at(RECORDS + step, 4.0) - error_at(RECORDS - step, 4.0)) / 2e-5
    by_data = np.asarray(by_data)
    assert by_data[0, 3] == pytest.approx(difference[0], rel=1e-5)
    assert np.isfinite(by_data).all()


@pytest.mark.slow
def test_moments_have_gradients(x64):
    transform = LogCauchy()
    profile = on_scale(median, RECORDS, transform=transform, neighbors="swap")

    def moments(epsilon):
        whole = Transformed(piecewise_laplace(profile, epsilon), transform)
        return jnp.stack(
            [
                whole.stddev(),
                whole.mean(),
                whole.quantile(0.3),
                whole.entropy(),
                whole.log_prob(1.2),
            ]
        )

    @jax.jit
    def values_and_derivatives(epsilon):
        """Forwards and backwards."""
        values, forwards = jax.linearize(moments, epsilon)
        backwards = jax.linear_transpose(forwards, epsilon)
        each = jnp.eye(values.size).reshape(values.size, *values.shape)
        return (
            values,
            forwards(jnp.ones_like(epsilon)),
            jax.vmap(backwards)(each)[0].reshape(values.shape),
        )

    (above, *_), (below, *_), (_, *derivatives) = (
        values_and_derivatives(jnp.asarray(4.0 + step)) for step in (1e-5, -1e-5, 0.0)
    )
    difference = (np.asarray(above) - np.asarray(below)) / 2e-5
    for derivative in derivatives:
        np.testing.assert_allclose(derivative, difference, rtol=1e-4)


def test_laplace_noise_on_a_logarithmic_scale_has_the_moments_of_a_log_laplace(x64):
    """E e^(b X) = 1 / (1 - b^2) for a standard Laplace X."""
    b, top = np.array([0.2, 0.4]), np.exp(2.0)
    distribution = Transformed(
        laplace(jnp.full(2, 2.0), 1 / b, sensitivity=1.0), Log(lower=1e-30, upper=1e30)
    )
    mean, square = top / (1 - b**2), top**2 / (1 - 4 * b**2)
    c = 2 * top  # inside the upper tail
    known = jax.jit(
        lambda whole, centers: (whole.mean(), whole.variance(), whole.mean_abs_error(centers))
    )
    found_mean, variance, (at_top, at_c) = known(distribution, np.array([[top], [c]]))
    np.testing.assert_allclose(found_mean, mean, rtol=1e-9)
    np.testing.assert_allclose(variance, square - mean**2, rtol=1e-9)
    np.testing.assert_allclose(at_top, top * (1 / (1 - b) - 1 / (1 + b)) / 2, rtol=1e-9)
    # E|Y - c| = c - E Y + 2 E max(Y - c, 0)
    beyond = top * 0.5 * 2 ** (1 - 1 / b) * b / (1 - b)
    np.testing.assert_allclose(at_c, c - mean + 2 * beyond, rtol=1e-3)


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
def test_symmetric_noise_on_another_scale(dtype, x64):
    """The median of |Z| is 1: half of the draws are between the images of loc - 1 and loc + 1.
    Moments are of clamped draws.
    """
    transform = Asinh(lower=-50.0, upper=80.0)
    noise = Cauchy(jnp.asarray([0.0, 1.0], dtype), jnp.ones(2, dtype))
    distribution = Transformed(noise, transform)
    centers = np.array([[1.0], [7.0], [-3.0]], dtype)
    known = jax.jit(
        lambda whole, centers: (whole.interval(0.5), whole.mean(), whole.mean_abs_error(centers))
    )
    (low, high), mean, errors = known(distribution, centers)
    np.testing.assert_allclose(low, np.sinh([-1.0, 0.0]), atol=1e-5)
    np.testing.assert_allclose(high, np.sinh([1.0, 2.0]), rtol=1e-5)
    z = np.tan(np.pi * (np.arange(400_000) + 0.5) / 400_000 - np.pi / 2)
    x = np.clip(np.sinh(np.clip(z[:, None] + [0.0, 1.0], -9, 9)), -50, 80)
    np.testing.assert_allclose(mean, x.mean(axis=0), rtol=1e-3)
    for center, found in zip(centers, np.asarray(errors), strict=True):
        np.testing.assert_allclose(found, np.abs(x - center).mean(axis=0), rtol=1e-3)
    assert mean.dtype == dtype


def test_what_is_public_and_wrong_is_refused():
    records = [1.0, 2.0]
    with pytest.raises(TypeError, match="transform must be a Transform"):
        on_scale(median, records, transform=jnp.log, neighbors="swap")
    with pytest.raises(TypeError, match="transform must be a Transform"):
        Transformed(laplace(0.0, 1.0, sensitivity=1.0), Log)
    with pytest.raises(TypeError, match=r"Log\(upper=1e9\)"):
        on_scale(median, records, transform=Log(), upper=3.0, neighbors="swap")
    with pytest.raises(ValueError, match="resolution"):
        on_scale(median, records, transform=Log(), resolution=1, neighbors="swap")
    rounded = piecewise_laplace(
        median(records, lower=0, upper=3, neighbors="swap", resolution=1), 1.0
    )
    with pytest.raises(TypeError, match=r"density on the real line.*got Rounded"):
        Transformed(rounded, Log())
    for wrong in (
        lambda: Asinh(0.0),
        lambda: Asinh(float("nan")),
        lambda: LogCauchy(jnp.ones(2)),
        lambda: Asinh("1"),
        lambda: Asinh(upper=np.inf),
        lambda: Log(lower=0.0),
        lambda: Log(lower=3, upper=2),
        lambda: jax.jit(Asinh)(1.0),
    ):
        with pytest.raises(ValueError, match="must be"):
            wrong()
    far = Prior(logistic.cdf, logistic.ppf, logistic.logpdf, lower=100.0, upper=200.0)  # both at 1
    for call in (lambda x: on_scale(median, x, transform=far, neighbors="swap").value, jax.jit):
        with pytest.raises(ValueError, match="lower must be below upper"):
            (
                call
                if call is not jax.jit
                else jax.jit(lambda x: on_scale(median, x, transform=far, neighbors="swap").value)
            )(jnp.ones(3))
    assert Asinh(2.0) == Asinh(scale=2)
    assert hash(Log()) == hash(Log())


@pytest.mark.slow
def test_other_statistics_on_a_scale():
    """A row with a bad epsilon is NaN and no other; q and a mask reach the statistic."""
    x = np.array([[1.0, 10.0, 100.0, 5.0], [2.0, 4.0, 8.0, 1e9]], np.float32)
    mask = np.array([[True] * 4, [True, True, True, False]])
    scale = Log()
    profile = on_scale(
        dpjax.quantile,
        x,
        0.75,
        transform=scale,
        neighbors="add_remove",
        definition="lower",
        mask=mask,
    )
    np.testing.assert_allclose(scale.inverse(profile.value), [10.0, 8.0], rtol=1e-6)
    geometric = on_scale(dpjax.mean, x, transform=scale, neighbors="swap")
    np.testing.assert_allclose(
        scale.inverse(geometric.value), np.exp(np.log(x).mean(axis=1)), rtol=1e-5
    )
    found = Transformed(
        piecewise_laplace(profile, jnp.array([1.0, jnp.nan])), scale
    ).mean_abs_error(1.0)
    assert jnp.isnan(found).tolist() == [False, True]
