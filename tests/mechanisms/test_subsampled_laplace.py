"""The subsampled Laplace mechanism: its loss exactly, and its draws."""

from dataclasses import replace

import jax
import numpy as np
import pytest
from scipy.stats import binom, laplace

from dpjax import subsampled_laplace
from dpjax.accounting import epsilon_before_sampling
from tests.support import statistics

MOST = 6


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
    scale = 1 / (0.4 * float(epsilon_before_sampling(1.0, probability=0.4)))
    for row, count in ((1, 3), (2, 6)):
        taken = np.arange(count + 1)
        for p, agrees in ((0.4, statistics.assert_follows), (0.5, statistics.assert_rejected)):
            noise, chances = laplace(taken / p, scale), binom.pmf(taken, count, 0.4)
            agrees(draws[:, row], lambda t, n=noise, c=chances: n.cdf(t[:, None]) @ c)
