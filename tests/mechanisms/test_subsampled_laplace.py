"""The subsampled Laplace mechanism: its distribution by enumeration, its loss exactly, its draws,
and when sampling is free.
"""

import itertools
from dataclasses import replace
from math import exp

import jax
import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.stats import laplace as scipy_laplace

from dpjax import subsampled_laplace
from dpjax.accounting import Guarantee, epsilon_before_sampling, poisson_subsample
from tests.support import statistics

MOST = 6


def mixture(count, p, epsilon):
    """All subsamples: the places of the noise, their chances and its scale."""
    taken = np.array(list(itertools.product((0, 1), repeat=count))).sum(-1)
    scale = 1 / (p * float(epsilon_before_sampling(epsilon, probability=p)))
    return scipy_laplace(taken / p, scale), p**taken * (1 - p) ** (count - taken), scale


def test_the_density_is_that_of_the_mixture(x64):
    """By enumeration of all subsamples of five records; with all of them, plain Laplace noise."""
    y, chance = np.array([-30.0, -1.0, 0.0, 4.0, 5.1, 60.0])[:, None], np.array([0.3, 1.0])
    noisy = jax.jit(lambda p: subsampled_laplace(5.0, 1.2, probability=p, most=MOST).prob(y))
    found = noisy(chance)
    for row, p in enumerate(chance):
        noise, chances, _ = mixture(5, p, 1.2)
        assert_allclose(found[:, row], noise.pdf(y) @ chances, rtol=1e-10)


@pytest.mark.parametrize("p", [0.1, 0.7])
def test_the_loss_exactly(x64, p):
    """Between all neighboring counts at all places, where the supremum is; noise for epsilon / p
    is too small.
    """
    epsilon, before = 0.8, float(epsilon_before_sampling(0.8, probability=p))
    counts = np.arange(MOST + 1.0)
    noisy = jax.jit(lambda p: subsampled_laplace(counts, epsilon, probability=p, most=MOST))(p)
    density = jax.jit(lambda noisy, y: noisy.log_prob(y))

    def losses(noisy):
        logs = density(noisy, np.arange(MOST + 1)[:, None] / p)
        return np.abs(np.diff(np.asarray(logs), axis=-1)).max(axis=0)

    found = losses(noisy)
    assert found[0] == pytest.approx(epsilon, rel=1e-12)  # attained
    assert (found <= epsilon * (1 + 1e-12)).all()
    # Control: Equation 3's approximation
    assert losses(replace(noisy, scale=np.asarray(1 / epsilon)))[0] > epsilon
    pytest.importorskip("dp_accounting", reason="the extra accounting is not installed")
    noise = Guarantee(before, 2 * before, "add_remove", laplace=before)
    dominating = poisson_subsample(noise, probability=p)
    y = np.linspace(-60, 90, 60_001)
    masses = np.exp(np.asarray(density(noisy, y[:, None]))) * (y[1] - y[0])
    for level in (0.1, 0.5):
        exact = np.maximum(masses[:, 1:] - exp(level) * masses[:, :-1], 0).sum(axis=0)
        assert exact.max() <= dominating.delta_at(level) * 1.001
        assert exact[0] == pytest.approx(dominating.delta_at(level), rel=0.01)


def test_draws():
    noisy = subsampled_laplace(np.array([0.0, 3.0, 6.0], "f4"), 1.0, probability=0.4, most=MOST)
    draws = np.asarray(noisy.sample(jax.random.key(0), (6_000,)))
    for row, count in ((1, 3), (2, 6)):
        for p, agrees in ((0.4, statistics.assert_follows), (0.5, statistics.assert_rejected)):
            noise, chances, scale = mixture(count, 0.4, 1.0)
            noise = scipy_laplace(noise.args[0] * 0.4 / p, scale)
            agrees(draws[:, row], lambda t, noise=noise: noise.cdf(t[:, None]) @ chances)  # noqa: B023
