"""Planar Laplace noise: its radius in closed form, the exact loss between places, and remapping."""

import jax
import numpy as np
import pytest
from scipy.spatial.distance import cdist

from dpjax.metric_privacy import nearest_point, planar_laplace
from tests.support.statistics import assert_follows, assert_rejected

PLACES = np.array([[0.0, 0.0], [30.0, 40.0], [-10.0, 5.0]])


def test_the_radius_of_the_paper(x64):
    """P(distance <= r) = 1 - (1 + epsilon r) exp(-epsilon r)."""
    noisy, r = planar_laplace(PLACES, 0.1), np.array([1.0, 20.0, 90.0])
    np.testing.assert_allclose(noisy.norm_cdf(r), 1 - (1 + 0.1 * r) * np.exp(-0.1 * r), rtol=1e-12)
    np.testing.assert_allclose(noisy.prob(PLACES), 0.01 / (2 * np.pi), rtol=1e-12)


@pytest.mark.parametrize(
    ("distance", "metric"),
    [("euclidean", "euclidean"), ("manhattan", "cityblock"), ("chebyshev", "chebyshev")],
)
def test_the_loss_is_the_distance(distance, metric, x64):
    """It is reached at the places themselves; a scale that is too small is seen."""
    y = np.concatenate([PLACES, np.random.default_rng(0).normal(0, 60, (200, 2))])[:, None]
    budgets = 0.1 * cdist(PLACES, PLACES, metric)

    def largest(epsilon):
        log = np.asarray(planar_laplace(PLACES, epsilon, distance=distance).log_prob(y))
        return np.max(log[:, :, None] - log[:, None, :], axis=0)

    np.testing.assert_allclose(largest(0.1), budgets, rtol=1e-9, atol=1e-12)
    assert np.all(largest(0.11)[budgets > 0] > 1.05 * budgets[budgets > 0])
    promised = planar_laplace.guarantee(PLACES, 0.1, distance=distance)
    assert promised.between(0, 1) == pytest.approx(budgets[0, 1], rel=1e-6)


def test_draws_are_remapped_to_the_nearest_point():
    grid = np.stack(
        np.meshgrid(np.arange(-60, 61, 20.0), np.arange(-60, 61, 20.0)), axis=-1
    ).reshape(-1, 2)
    draws = np.asarray(
        planar_laplace(PLACES.astype(np.float32), 0.1).sample(jax.random.key(4), (2000,))
    )
    assert draws.shape == (2000, 3, 2)
    for distance, metric in (
        ("euclidean", "euclidean"),
        ("manhattan", "cityblock"),
        ("chebyshev", "chebyshev"),
    ):
        found = np.asarray(nearest_point(draws, grid, distance=distance))
        apart = cdist(draws.reshape(-1, 2), grid, metric).reshape(2000, 3, -1)
        np.testing.assert_allclose(
            np.take_along_axis(apart, found[..., None], -1)[..., 0], apart.min(axis=-1), atol=1e-4
        )
    radius = np.linalg.norm(draws - PLACES, axis=-1)
    assert_follows(radius, lambda r: 1 - (1 + 0.1 * r) * np.exp(-0.1 * r))
    assert_rejected(radius, lambda r: 1 - (1 + 0.11 * r) * np.exp(-0.11 * r))
    assert nearest_point(np.full(2, np.nan), grid) == 0


def test_what_does_not_fit_is_named():
    with pytest.raises(ValueError, match=r"points must be \(N, D\)"):
        nearest_point(PLACES, PLACES[:, :1])
    with pytest.raises(ValueError, match="distance must be one of"):
        planar_laplace(PLACES, 0.1, distance="great_circle")
