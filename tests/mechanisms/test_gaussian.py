"""Gaussian noise on the line and in R^d: SciPy's functions, draws against the exact laws, and an
audit by the density itself.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import special

from dpjax import Gaussian, SphericalGaussian, gaussian, spherical_gaussian
from dpjax.accounting import gdp_of
from dpjax.random import UniformPair
from tests.support.statistics import assert_follows, assert_rejected

POINTS = np.array([-30.0, -8.0, -2.5, -0.3, 0.0, 1e-6, 0.7, 4.0, 12.0])


def test_on_the_line_against_scipy(x64):
    noise = gaussian(np.array(1.0), 2.0)
    z = (POINTS - 1.0) / 2.0
    np.testing.assert_allclose(noise.cdf(POINTS), special.ndtr(z), rtol=1e-13)
    np.testing.assert_allclose(noise.survival(POINTS), special.ndtr(-z), rtol=1e-13)
    density = np.exp(-z * z / 2) / np.sqrt(2 * np.pi)
    np.testing.assert_allclose(noise.prob(POINTS), density / 2, rtol=1e-13)
    error = 2 * (z * (2 * special.ndtr(z) - 1) + 2 * density)
    np.testing.assert_allclose(noise.mean_abs_error(POINTS), error, rtol=1e-13)
    levels = np.array([2.0**-64, 1e-9, 0.2, 0.5, 0.999])
    np.testing.assert_allclose(noise.quantile(levels), 1 + 2 * special.ndtri(levels), rtol=1e-13)
    np.testing.assert_allclose(
        noise.interval(0.95), 1 + 2 * special.ndtri(0.975) * np.array([-1, 1]), rtol=1e-13
    )
    np.testing.assert_allclose(
        [noise.mean(), noise.variance(), noise.mean_squared_error(4.0)],
        [1.0, 4.0, 13.0],
        rtol=1e-15,
    )
    # E|clip(Y)| from the integral of the tails.
    y = np.linspace(0, 3, 30_001)
    upper = np.trapezoid(special.ndtr(-(y - 1) / 2), y)
    lower = np.trapezoid(special.ndtr((-y[:20_001] - 1) / 2), y[:20_001])
    np.testing.assert_allclose(
        noise.clamped_mean_abs_error(0.0, -2.0, 3.0), upper + lower, rtol=1e-8
    )


def test_draws_follow_and_another_sigma_is_rejected():
    noise = gaussian(np.array([0.0, 5.0], np.float32), np.array([1.0, 3.0]))
    draws = np.asarray(noise.sample(jax.random.key(0), (20_000,)))
    for row, (loc, scale) in enumerate(((0, 1), (5, 3))):
        assert_follows(
            draws[:, row], lambda y, loc=loc, scale=scale: special.ndtr((y - loc) / scale)
        )
        assert_rejected(
            draws[:, row], lambda y, loc=loc, scale=scale: special.ndtr((y - loc) / scale / 1.1)
        )
    assert draws.dtype == np.float32


def test_both_tails_are_reached_to_the_last_word():
    """The smallest uniform is 2^-65: jax.random.normal in float32 stops at 5.4 deviations."""
    tail, rest = jnp.float32(2.0**-65), jnp.float32(1.0)
    noise = Gaussian(jnp.zeros(()), jnp.ones(()))
    lowest, highest = (
        float(noise._standard(lambda _, pair=pair: UniformPair(*pair)))
        for pair in ((tail, rest), (rest, tail))
    )
    assert lowest == -highest == pytest.approx(special.ndtri(2.0**-65), rel=1e-6)
    assert float(noise._standard(lambda _: UniformPair(jnp.float32(0.5), jnp.float32(0.5)))) == 0


def test_vectors_against_scipy(x64):
    d, scale = 7, 1.5
    noise = spherical_gaussian(np.arange(7.0), scale)
    r = np.array([1e-3, 0.5, 3.0, 10.0, 60.0])
    half = (r / scale) ** 2 / 2
    np.testing.assert_allclose(noise.norm_cdf(r), special.gammainc(d / 2, half), rtol=1e-12)
    np.testing.assert_allclose(noise.norm_survival(r), special.gammaincc(d / 2, half), rtol=1e-10)
    for level in (1e-12, 0.3, 0.5, 0.99, 1 - 1e-9):
        wanted = scale * np.sqrt(2 * special.gammaincinv(d / 2, level))
        np.testing.assert_allclose(noise.norm_quantile(level), wanted, rtol=1e-9)
    assert [float(noise.norm_quantile(p)) for p in (0.0, 1.0)] == [0.0, np.inf]
    assert np.isnan(noise.norm_quantile(1.5))
    nodes, weights = np.polynomial.legendre.leggauss(200)
    at = 10 * (nodes + 1)
    density = at ** (d - 1) * np.exp(-((at / scale) ** 2) / 2)
    np.testing.assert_allclose(
        noise.mean_norm_error(),
        np.sum(weights * at * density) / np.sum(weights * density),
        rtol=1e-12,
    )
    y = np.linspace(-1, 8, 14).reshape(2, 7)
    np.testing.assert_allclose(
        noise.log_prob(y), np.sum(noise.coordinates.log_prob(y), axis=-1), rtol=1e-13
    )
    with pytest.raises(ValueError, match=r"size 7 \(coordinates\)"):
        noise.log_prob(np.zeros(6))
    with pytest.raises(ValueError, match="must be vectors"):
        spherical_gaussian(1.0, 1.0)


def test_vectors_as_drawn():
    noise = spherical_gaussian(np.zeros((2, 5), np.float32), np.array([1.0, 2.0], np.float32))
    draws = noise.sample(jax.random.key(1), (4000,))
    assert draws.shape == (4000, 2, 5)
    assert (noise.batch_shape, noise.event_shape, noise.norm_cdf(1.0).shape) == ((2,), (5,), (2,))
    norms = np.linalg.norm(np.asarray(draws, np.float64), axis=-1)
    for row, scale in enumerate((1.0, 2.0)):
        assert_follows(
            norms[:, row], lambda r, scale=scale: special.gammainc(2.5, (r / scale) ** 2 / 2)
        )
        # The control: norms in R^4.
        assert_rejected(
            norms[:, row], lambda r, scale=scale: special.gammainc(2.0, (r / scale) ** 2 / 2)
        )
    assert isinstance(noise, SphericalGaussian)


@pytest.mark.parametrize("sigma", [0.7, 2.0])
def test_the_promise_is_the_hockey_stick_of_the_densities(sigma, x64):
    """For two neighbors as far apart as the sensitivity, exactly; less noise than was paid for
    breaks it.
    """
    cost = gaussian.guarantee("swap", sigma, sensitivity=1.5)
    y = np.linspace(-14 * sigma, 14 * sigma + 1.5, 40_001)

    def delta(epsilon, sigma):
        log_p, log_q = (
            np.asarray(gaussian(value, sigma).log_prob(y))
            for value in (np.array(1.5), np.array(0.0))
        )
        return np.trapezoid(np.maximum(np.exp(log_p) - np.exp(epsilon + log_q), 0), y)

    for epsilon in (0.0, 0.5, 3.0):
        assert delta(epsilon, sigma) == pytest.approx(cost.delta_at(epsilon), rel=1e-4)
        assert delta(epsilon, 0.9 * sigma) > 1.05 * cost.delta_at(epsilon)
    assert cost.rho == pytest.approx(1.5**2 / (2 * sigma**2))
    assert gaussian.guarantee("swap", 1.5 / gdp_of(2.0, delta=1e-5), sensitivity=1.5).epsilon_at(
        1e-5
    ) == pytest.approx(2, rel=1e-9)


def test_a_vector_costs_what_its_longest_direction_does(x64):
    """Log-densities of neighbors differ by a Gaussian of the Euclidean distance: drawn losses
    against the exact law.
    """
    noise, moved = (
        spherical_gaussian(np.zeros(3), 2.0),
        spherical_gaussian(np.array([1.0, -2.0, 2.0]), 2.0),
    )
    y = noise.sample(jax.random.key(3), (4000,))
    loss, mu = np.asarray(noise.log_prob(y) - moved.log_prob(y)), 3 / 2
    assert_follows(loss, lambda t: special.ndtr((t - mu**2 / 2) / mu))
    # The control: the loss of the largest coordinate, mu = sqrt 2.
    assert_rejected(loss, lambda t: special.ndtr((t - 1) / np.sqrt(2)))


def test_bad_parameters():
    for sigma in (0.0, -1.0, np.inf, np.nan):
        with pytest.raises(ValueError, match="sigma must be finite and positive"):
            gaussian(0.0, sigma)
        with pytest.raises(ValueError, match="sigma must be finite and positive"):
            gaussian.guarantee("swap", sigma, sensitivity=1.0)
    assert np.isnan(gaussian(0.0, jnp.array([1.0, -1.0])).scale).tolist() == [False, True]
