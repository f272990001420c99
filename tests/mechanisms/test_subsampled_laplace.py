"""The subsampled Laplace mechanism: its loss exactly, and its draws."""

import itertools
from dataclasses import replace

import jax
import numpy as np
import pytest
from scipy.stats import laplace as scipy_laplace

from dpjax import subsampled_laplace
from dpjax.accounting import epsilon_before_sampling
from tests.support import statistics

MOST = 6


def mixture(count, p, epsilon):
    """All subsamples: the places of the noise, their chances and its scale."""
    taken = np.array(list(itertools.product((0, 1), repeat=count))).sum(-1)
    scale = 1 / (p * float(epsilon_before_sampling(epsilon, probability=p)))
    return scipy_laplace(taken / p, scale), p**taken * (1 - p) ** (count - taken), scale


@pytest.mark.parametrize("p", [0.1, 0.7])
def test_the_loss_exactly(x64, p):
    """Between all neighboring counts at all places, where the supremum is; noise for epsilon / p
    is too small.
    """
    epsilon, counts = 0.8, np.arange(MOST + 1.0)
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


def test_draws():
    noisy = subsampled_laplace(np.array([0.0, 3.0, 6.0], "f4"), 1.0, probability=0.4, most=MOST)
    draws = np.asarray(noisy.sample(jax.random.key(0), (6_000,)))
    for row, count in ((1, 3), (2, 6)):
        for p, agrees in ((0.4, statistics.assert_follows), (0.5, statistics.assert_rejected)):
            noise, chances, scale = mixture(count, 0.4, 1.0)
            noise = scipy_laplace(noise.args[0] * 0.4 / p, scale)
            agrees(draws[:, row], lambda t, noise=noise: noise.cdf(t[:, None]) @ chances)  # noqa: B023
