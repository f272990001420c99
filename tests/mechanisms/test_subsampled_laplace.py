"""The subsampled Laplace mechanism: its distribution by enumeration, its loss exactly, its draws,
and when sampling is free.
"""

import itertools
from dataclasses import replace
from math import exp

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import binom
from scipy.stats import laplace as scipy_laplace

from dpjax import mechanisms, subsampled_laplace
from dpjax.accounting import Guarantee, epsilon_before_sampling, poisson_subsample
from tests.support import statistics

MOST = 6


def test_closed_forms_are_those_of_the_mixture(x64):
    """By enumeration of all subsamples of five records."""
    p, epsilon, count = 0.3, 1.2, 5
    noisy = subsampled_laplace(float(count), epsilon, probability=p, most=MOST)
    scale = 1 / (p * float(epsilon_before_sampling(epsilon, probability=p)))
    places, chances = [], []
    for taken in itertools.product((0, 1), repeat=count):
        places.append(sum(taken) / p)
        chances.append(p ** sum(taken) * (1 - p) ** (count - sum(taken)))
    y = np.array([-30.0, -1.0, 0.0, 4.0, 5.1, 60.0])
    noise = scipy_laplace(np.array(places), scale)
    np.testing.assert_allclose(
        noisy.prob(y), [np.dot(chances, noise.pdf(at)) for at in y], rtol=1e-10
    )
    np.testing.assert_allclose(
        noisy.cdf(y), [np.dot(chances, noise.cdf(at)) for at in y], rtol=1e-10
    )
    np.testing.assert_allclose(
        noisy.survival(y), [np.dot(chances, noise.sf(at)) for at in y], rtol=1e-10
    )
    np.testing.assert_allclose(
        noisy.cdf(noisy.quantile(np.array([1e-9, 0.2, 0.5, 0.99]))),
        [1e-9, 0.2, 0.5, 0.99],
        rtol=1e-8,
    )
    error = [scale * (z + exp(-z)) for z in np.abs(np.array(places) - 4) / scale]
    assert float(noisy.mean_abs_error(4.0)) == pytest.approx(np.dot(chances, error), rel=1e-10)
    assert float(noisy.variance()) == pytest.approx(count * (1 - p) / p + 2 * scale**2, rel=1e-10)
    whole = subsampled_laplace(5.0, epsilon, probability=1.0, most=MOST)
    np.testing.assert_allclose(whole.cdf(y), scipy_laplace(5, 1 / epsilon).cdf(y), rtol=1e-9)
    assert np.isnan(subsampled_laplace(5.0, jnp.asarray(-1.0), probability=p, most=MOST).cdf(1.0))
    with pytest.raises(ValueError, match="probability"):
        subsampled_laplace(5.0, 1.0, probability=0.0, most=MOST)


@pytest.mark.parametrize("p", [0.1, 0.7])
def test_the_loss_exactly(x64, p):
    """Between all neighboring counts at all places, where the supremum is; noise for epsilon / p
    is too small.
    """
    epsilon = 0.8
    noisy = subsampled_laplace(jnp.arange(MOST + 1.0), epsilon, probability=p, most=MOST)

    def losses(noisy):
        at = noisy.log_prob(noisy.places[:, None])
        return np.abs(np.diff(np.asarray(at), axis=-1)).max(axis=0)

    found = losses(noisy)
    assert found[0] == pytest.approx(epsilon, rel=1e-12)  # attained
    assert (found <= epsilon * (1 + 1e-12)).all()
    # Control: Equation 3's approximation
    assert losses(replace(noisy, scale=jnp.asarray(1 / epsilon)))[0] > epsilon
    pytest.importorskip("dp_accounting", reason="the extra accounting is not installed")
    before = float(epsilon_before_sampling(epsilon, probability=p))
    noise = Guarantee(before, 2 * before, "add_remove", noise=("laplace", before, 1.0))
    dominating = poisson_subsample(noise, probability=p)
    y = np.linspace(-60, 90, 60_001)
    density = np.asarray(noisy.prob(y[:, None]))
    for level in (0.1, 0.5):
        exact = np.maximum(density[:, 1:] - exp(level) * density[:, :-1], 0).sum(axis=0) * (
            y[1] - y[0]
        )
        assert exact.max() <= dominating.delta_at(level) * 1.001
        assert exact[0] == pytest.approx(dominating.delta_at(level), rel=0.01)
    assert mechanisms.subsampled_laplace.guarantee("add_remove", epsilon).epsilon == epsilon


def test_draws():
    noisy = subsampled_laplace(jnp.array([0.0, 3.0, 6.0]), 1.0, probability=0.4, most=MOST)
    draws = noisy.sample(jax.random.key(0), (6_000,))
    for row in (1, 2):
        exact = subsampled_laplace(3.0 * row, 1.0, probability=0.4, most=MOST)
        statistics.assert_follows(draws[:, row], exact.cdf)
        # Control
        statistics.assert_rejected(draws[:, row], replace(exact, probability=jnp.asarray(0.5)).cdf)
    one = subsampled_laplace(3.0, 1.0, probability=0.4, most=MOST).sample(jax.random.key(1))
    assert one.shape == ()
    exact = binom(6, 0.4).pmf(np.arange(7))
    np.testing.assert_allclose(np.exp(noisy._log_weights()[2]), exact, rtol=1e-5)
