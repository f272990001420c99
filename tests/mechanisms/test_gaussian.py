"""Gaussian noise on the line and in R^d: SciPy's functions, draws against the exact laws, and an
audit by the density itself.
"""

import jax
import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import special

from dpjax import gaussian, spherical_gaussian
from dpjax.accounting import gdp_of
from tests.support.statistics import assert_follows, assert_rejected


def test_draws_follow_and_another_sigma_is_rejected():
    """On the line and in R^5; the control there are norms in R^4."""
    sigma = np.array([1.0, 3.0], np.float32)
    draws = np.asarray(
        gaussian(np.array([0.0, 5.0], np.float32), sigma).sample(jax.random.key(0), (20_000,))
    )
    noise = spherical_gaussian(np.zeros((2, 5), np.float32), sigma)
    vectors = np.asarray(noise.sample(jax.random.key(1), (4000,)))
    assert (draws.dtype, vectors.shape) == (np.float32, (4000, 2, 5))
    standard = (draws - [0, 5]) / sigma
    norms, first = np.linalg.norm(vectors, axis=-1) / sigma, vectors[..., 0] / sigma
    for row in range(2):
        assert_follows(standard[:, row], special.ndtr)
        assert_rejected(standard[:, row] / 1.1, special.ndtr)
        assert_follows(first[:, row], special.ndtr)
        assert_follows(norms[:, row], lambda r: special.gammainc(2.5, r**2 / 2))
        assert_rejected(norms[:, row], lambda r: special.gammainc(2.0, r**2 / 2))


def test_vectors_against_scipy(x64):
    scale, r = 1.5, np.array([1e-3, 0.5, 3.0, 10.0, 60.0])
    levels = np.array([1e-12, 0.3, 0.5, 0.99, 1 - 1e-9])
    y = np.linspace(-1, 8, 14).reshape(2, 7)

    @jax.jit
    def known(value, r, levels, y):
        noise = spherical_gaussian(value, scale)
        tails = noise.norm_cdf(r), noise.norm_survival(r)
        return tails, noise.norm_quantile(levels), noise.mean_norm_error(), noise.log_prob(y)

    tails, quantiles, mean, logs = known(np.arange(7.0), r, levels, y)
    half = (r / scale) ** 2 / 2
    expected = special.gammainc(3.5, half), special.gammaincc(3.5, half)
    assert_allclose(tails, expected, rtol=1e-10)
    wanted = scale * np.sqrt(2 * special.gammaincinv(3.5, levels))
    assert_allclose(quantiles, wanted, rtol=1e-9)
    chi = np.sqrt(2) * np.exp(special.gammaln(4) - special.gammaln(3.5))
    assert float(mean) == pytest.approx(scale * chi, rel=1e-12)
    z = (y - np.arange(7)) / scale
    density = -np.sum(z**2, axis=-1) / 2 - 7 * np.log(scale * np.sqrt(2 * np.pi))
    assert_allclose(logs, density, rtol=1e-13)


def test_the_promise_is_the_hockey_stick_of_the_densities(x64):
    """For two neighbors as far apart as the sensitivity, exactly; less noise than was paid for
    breaks it.
    """
    sigma, y = np.array([0.7, 2.0]), np.linspace(-28, 29.5, 40_001)
    factors = np.array([1.0, 0.9])[:, None]

    @jax.jit
    def densities(y):
        return [gaussian(np.array(value), factors * sigma).log_prob(y) for value in (1.5, 0.0)]

    p, q = (np.asarray(part) for part in densities(y[:, None, None]))
    for epsilon in (0.0, 0.5, 3.0):
        excess = np.maximum(np.exp(p) - np.exp(epsilon + q), 0)
        delta, less_noise = np.trapezoid(excess, y, axis=0)
        costs = [gaussian.guarantee("swap", each, sensitivity=1.5) for each in sigma]
        stated = np.array([cost.delta_at(epsilon) for cost in costs])
        assert_allclose(delta, stated, rtol=1e-4)
        assert (less_noise > 1.05 * stated).all()
    assert costs[0].zcdp == pytest.approx(1.5**2 / (2 * 0.7**2))
    cost = gaussian.guarantee("swap", 1.5 / gdp_of(2.0, delta=1e-5), sensitivity=1.5)
    assert cost.epsilon_at(1e-5) == pytest.approx(2, rel=1e-9)
