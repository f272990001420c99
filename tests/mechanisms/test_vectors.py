"""Vectors: radii and K-norm noise, audited exactly in the plane, with the mistakes that the audit
must see.

A log-density ratio of two datasets depends on the two distances (r, s) of a point only, and is
linear where neither passes an edge. So its supremum is at a corner of that arrangement, and a point
a little to every side of each corner finds it.
"""

from dataclasses import replace
from functools import partial
from itertools import product

import jax
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from dpjax import from_vector_radii, inverse_sensitivity, k_norm, piecewise_laplace

EPSILON = 2.0
MECHANISMS = [piecewise_laplace, inverse_sensitivity]
SIDES = 1e-7 * np.array(list(product((-2, -1, 1, 2), repeat=2)))  # never at an edge itself
ROUNDING = 1e-6


def corners(edges, delta):
    """Distances (r, s) beside all corners, ``(2, corners)``; NaN where no point of the plane has
    them.
    """
    own, other = (np.append(e, e[-1] + 30) for e in edges)
    shifted = [np.stack([e, abs(e + move)]) for move in (delta, -delta) for e in (own, other)]
    found = np.concatenate(
        [
            np.stack(np.meshgrid(own, other)).reshape(2, -1),
            *shifted[::2],
            *(s[::-1] for s in shifted[1::2]),
        ],
        axis=1,
    )
    found = (found[:, :, None] + SIDES.T[:, None, :]).reshape(2, -1)
    r, s = found
    return np.where((r >= 0) & (s >= 0) & (abs(r - s) <= delta) & (r + s >= delta), found, np.nan)


@jax.jit
def log_density(distribution, points):
    return distribution.log_prob(points)


def audit(distribution):
    """The loss and the range of rows 2i against 2i+1 in the Euclidean plane, over epsilon, the
    largest of all pairs.
    """
    loc, radii = np.asarray(distribution.loc), np.asarray(distribution.radii)
    radii = np.broadcast_to(radii, (*loc.shape[:-1], radii.shape[-1]))
    points = []
    for center, (one, other), edges in zip(
        loc[0::2], loc.reshape(-1, 2, 2), radii.reshape(-1, 2, radii.shape[-1]), strict=True
    ):
        delta = np.linalg.norm(other - one)
        r, s = corners(edges, delta)
        along = (other - one) / delta if delta else np.array([1.0, 0.0])
        x = (r**2 - s**2 + delta**2) / (2 * delta) if delta else r
        y = np.sqrt(np.maximum(r**2 - x**2, 0.0))
        points.append(center + x[:, None] * along + y[:, None] * np.array([-along[1], along[0]]))
    log = np.asarray(log_density(distribution, np.repeat(np.stack(points, axis=1), 2, axis=1)))
    ratio = log[:, 0::2] - log[:, 1::2]
    high, low = np.nanmax(ratio, axis=0), np.nanmin(ratio, axis=0)
    return np.max(np.maximum(high, -low)) / EPSILON, np.max(high - low) / EPSILON


def radii_of(values, rng):
    """Radii of random neighbors f and f', ``(pairs, 2, d)``, that keep Definition 5.1 and nothing
    more; the last one is the global one.
    """
    count = len(values)
    floor, radii = np.linalg.norm(values[:, 0] - values[:, 1], axis=-1)[:, None], []
    for mean in (2, 3, 3):
        more = rng.exponential(mean, (count, 2)) * rng.integers(0, 2, (count, 2))
        radii.append(floor + more)
        floor = radii[-1].max(axis=-1, keepdims=True)
    return np.stack(radii, axis=-1).reshape(-1, 3)


@partial(jax.jit, static_argnames="mechanism")
def of_radii(mechanism, values, radii, step):
    return mechanism(from_vector_radii(values, radii, p=2, step=step, neighbors="swap"), EPSILON)


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_radii_that_keep_definition_5_1_and_nothing_more(mechanism, x64):
    rng = np.random.default_rng(1)
    pairs = rng.normal(0, 2, (60, 2, 2))
    values, radii = pairs.reshape(-1, 2), radii_of(pairs, rng)
    distribution = of_radii(mechanism, values, radii, 60.0)
    loss, spread = audit(distribution)
    assert 0.5 < loss <= 1 + ROUNDING
    assert 0.9 < spread <= 1 + ROUNDING
    # Controls: the rate of Laplace noise; steps below the global sensitivity; radii that shrink.
    assert audit(replace(distribution, rate=2 * np.asarray(distribution.rate)))[1] > 1.5
    assert audit(replace(distribution, step=np.asarray(0.5)))[1] > 1.2
    assert audit(of_radii(mechanism, values, radii[:, ::-1], 60.0))[1] > 1.2


def test_k_norm_loses_epsilon_and_no_more(x64):
    value = np.array([[0.0, 0.0], [0.6, 0.8], [3.0, 0.0], [3.0, 0.5]])
    distribution = k_norm(value, EPSILON, sensitivity=1.0, p=2)
    assert audit(distribution) == pytest.approx((1, 2), rel=1e-6)
    assert audit(replace(distribution, step=np.asarray(0.8)))[0] > 1.2
    logs = np.asarray(log_density(distribution, np.repeat(value[:1], 4, axis=0)))
    assert logs[0] == pytest.approx(np.log(EPSILON**2 / (2 * np.pi)), rel=1e-12)


def test_radii_and_steps():
    """They add up, and those that are negative are none: half of a level of 2."""
    radii, y = np.array([-1.0, 2.0, 9.0]), np.zeros((2, 1, 3))
    y[:, 0, 0] = [0.5, 1.5]

    @jax.jit
    def known(values):
        given = {"p": 1, "step": 5.0, "neighbors": "add_remove"}
        profile = from_vector_radii(values, radii, **given)
        return profile.radii, [mechanism(profile, 1.0).log_prob(y) for mechanism in MECHANISMS]

    found, (slope, flat) = known(np.zeros((4, 3)))
    assert_array_equal(found, [[0, 0, 2, 7]])
    assert_allclose(slope[1] - slope[0], -0.25, atol=1e-6)
    assert_allclose(flat[1] - flat[0], 0, atol=1e-6)
