"""Planar Laplace noise: its radius in closed form, the exact loss between places, and remapping."""

import jax
import numpy as np
import pytest
from scipy.spatial.distance import cdist

from dpjax.metric_privacy import nearest_point, planar_laplace
from tests.support.statistics import assert_follows, assert_rejected

PLACES = np.array([[0.0, 0.0], [30.0, 40.0], [-10.0, 5.0]])
NAMES = {"euclidean": "euclidean", "manhattan": "cityblock", "chebyshev": "chebyshev"}


def radius_cdf(r, epsilon=0.1):
    """P(distance <= r) of the paper."""
    return 1 - (1 + epsilon * r) * np.exp(-epsilon * r)


@pytest.mark.parametrize("distance", NAMES)
def test_the_loss_is_the_distance(distance, x64):
    """It is reached at the places themselves; a scale that is too small is seen."""
    y = np.concatenate([PLACES, np.random.default_rng(0).normal(0, 60, (200, 2))])[:, None, None]
    r = np.array([1.0, 20.0, 90.0])[:, None, None]
    budgets = 0.1 * cdist(PLACES, PLACES, NAMES[distance])

    @jax.jit
    def log_probs(epsilon):
        noisy = planar_laplace(PLACES, epsilon[:, None], distance=distance)
        return noisy.log_prob(y), noisy.norm_cdf(r)

    log, cdf = (np.asarray(part) for part in log_probs(np.array([0.1, 0.11])))
    np.testing.assert_allclose(cdf[:, 0, 0], radius_cdf(r[:, 0, 0]), rtol=1e-12)
    own, larger = np.max(log[..., :, None] - log[..., None, :], axis=0)
    np.testing.assert_allclose(own, budgets, rtol=1e-9, atol=1e-12)
    assert np.all(larger[budgets > 0] > 1.05 * budgets[budgets > 0])


def test_draws_are_remapped_to_the_nearest_point():
    grid = np.stack(np.meshgrid(np.arange(-60, 61, 20.0), np.arange(-60, 61, 20.0)), axis=-1)
    grid = grid.reshape(-1, 2)

    @jax.jit
    def drawn(key):
        draws = planar_laplace(PLACES.astype(np.float32), 0.1).sample(key, (2000,))
        return draws, [nearest_point(draws, grid, distance=distance) for distance in NAMES]

    draws, found = drawn(jax.random.key(4))
    for nearest, name in zip(found, NAMES.values(), strict=True):
        apart = cdist(np.asarray(draws).reshape(-1, 2), grid, name)
        chosen = np.take_along_axis(apart, np.asarray(nearest).reshape(-1, 1), -1)[:, 0]
        np.testing.assert_allclose(chosen, apart.min(axis=-1), atol=1e-4)
    radius = np.linalg.norm(draws - PLACES, axis=-1)
    assert_follows(radius, radius_cdf)
    assert_rejected(radius, lambda r: radius_cdf(r, 0.11))
