"""Vectors: radii and K-norm noise, audited exactly in the plane, with the mistakes that the audit
must see.

A log-density ratio of two datasets depends on the two distances (r, s) of a point only, and is
linear where neither passes an edge. So its supremum is at a corner of that arrangement, and a point
a little to every side of each corner finds it.
"""

from dataclasses import replace
from itertools import combinations_with_replacement, product

import jax.numpy as jnp
import numpy as np
import pytest

from dpjax import (
    Guarantee,
    from_vector_radii,
    inverse_sensitivity,
    k_norm,
    mechanisms,
    piecewise_laplace,
)

EPSILON = 2.0
MECHANISMS = [piecewise_laplace, inverse_sensitivity]
SIDES = 1e-7 * np.array(list(product((-2, -1, 1, 2), repeat=2)))  # never at an edge itself


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


def audit(distribution):
    """The loss and the range of rows 2i against 2i+1 in the Euclidean plane, the largest of all
    pairs.
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
    log = np.asarray(distribution.log_prob(np.repeat(np.stack(points, axis=1), 2, axis=1)))
    ratio = log[:, 0::2] - log[:, 1::2]
    high, low = np.nanmax(ratio, axis=0), np.nanmin(ratio, axis=0)
    return float(np.max(np.maximum(high, -low))), float(np.max(high - low))


def pairs_of_radii(count):
    """Random neighbors (f, R) and (f', R') in the plane with Definition 5.1 and nothing more."""
    rng = np.random.default_rng(1)
    values, radii = rng.normal(0, 2, (count, 2, 2)), np.zeros((count, 2, 3))
    radii[..., 0] = np.linalg.norm(values[:, 0] - values[:, 1], axis=-1)[:, None]
    radii[..., 0] += rng.exponential(2, (count, 2)) * rng.integers(0, 2, (count, 2))
    for level in (1, 2):
        floor = radii[..., level - 1].max(axis=-1, keepdims=True)
        radii[..., level] = floor + rng.exponential(3, (count, 2)) * rng.integers(0, 2, (count, 2))
    return values.reshape(-1, 2), radii.reshape(-1, 3)


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_radii_that_keep_definition_5_1_and_nothing_more(mechanism, x64):
    values, radii = pairs_of_radii(60)
    profile = from_vector_radii(values, radii, p=2, step=60.0, neighbors="swap")
    distribution = mechanism(profile, EPSILON)
    loss, spread = audit(distribution)
    assert 0.5 * EPSILON < loss <= EPSILON * (1 + 1e-6)
    assert 0.9 * EPSILON < spread <= EPSILON * (1 + 1e-6)
    # Controls: the rate of Laplace noise; steps below the global sensitivity; radii that shrink.
    assert audit(replace(distribution, rate=2 * distribution.rate))[1] > 1.5 * EPSILON
    assert audit(replace(distribution, step=jnp.asarray(0.5)))[1] > 1.2 * EPSILON
    shrunk = mechanism(
        from_vector_radii(values, radii[:, ::-1], p=2, step=60.0, neighbors="swap"), EPSILON
    )
    assert audit(shrunk)[1] > 1.2 * EPSILON
    assert mechanisms.piecewise_laplace.guarantee(profile, EPSILON) == Guarantee(
        EPSILON, EPSILON, "swap"
    )


def datasets_of_three():
    """All datasets of three points of a small grid, their coordinate-wise medians, neighbors and
    local sensitivities A_0..A_2.
    """
    points = np.array(list(product((0.0, 1.0, 4.0), (0.0, 2.0))))
    sets = list(combinations_with_replacement(range(len(points)), 3))
    value = np.array([np.median(points[list(s)], axis=0) for s in sets])
    common = np.array(
        [[sum(min(a.count(i), b.count(i)) for i in range(len(points))) for b in sets] for a in sets]
    )
    near = common == 2
    moved = np.linalg.norm(value[:, None] - value[None], axis=-1)
    local = np.max(np.where(near, moved, 0), axis=1)
    at = np.stack([np.max(np.where(common >= 3 - k, local, 0), axis=1) for k in range(3)], axis=-1)
    return value, at, np.argwhere(np.triu(near))


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_median_in_the_plane(mechanism, x64):
    """All pairs of neighbors; the local sensitivity at distance 0 in the place of those further
    away loses too much.
    """
    value, at, pairs = datasets_of_three()
    assert len(pairs) == 315
    rows = pairs.ravel()
    step = at.max()
    distribution = mechanism(
        from_vector_radii(value[rows], at[rows], p=2, step=step, neighbors="swap"), EPSILON
    )
    loss, spread = audit(distribution)
    assert loss <= EPSILON * (1 + 1e-6)
    assert 0.5 * EPSILON < spread <= EPSILON * (1 + 1e-6)
    constant = np.broadcast_to(at[rows, :1], at[rows].shape)
    wrong = mechanism(
        from_vector_radii(value[rows], constant, p=2, step=step, neighbors="swap"), EPSILON
    )
    assert audit(wrong)[1] > 1.2 * EPSILON


def test_k_norm_loses_epsilon_and_no_more(x64):
    value = np.array([[0.0, 0.0], [0.6, 0.8], [3.0, 0.0], [3.0, 0.5]])
    distribution = k_norm(value, EPSILON, sensitivity=1.0, p=2)
    assert audit(distribution) == pytest.approx((EPSILON, 2 * EPSILON), rel=1e-6)
    assert audit(k_norm(value, EPSILON, sensitivity=0.8, p=2))[0] > 1.2 * EPSILON
    assert mechanisms.k_norm.guarantee("swap", EPSILON) == Guarantee(EPSILON, 2 * EPSILON, "swap")
    assert float(jnp.log(distribution.prob(value[0])[0])) == pytest.approx(
        np.log(EPSILON**2 / (2 * np.pi)), rel=1e-12
    )


def test_radii_and_steps():
    profile = from_vector_radii(
        jnp.zeros((4, 3)), jnp.array([-1.0, 2.0, 9.0]), p=1, step=5.0, neighbors="add_remove"
    )
    assert profile.radii.tolist() == [0, 0, 2, 7]
    assert (profile.batch_shape, profile.p, profile.neighbors) == ((4,), 1.0, "add_remove")
    y = jnp.zeros((2, 1, 3)).at[:, 0, 0].set(jnp.array([0.5, 1.5]))
    slope, flat = (
        jnp.diff(mechanism(profile, 1.0).log_prob(y)[:, 0])[0] for mechanism in MECHANISMS
    )
    # 1/2 of a level of 2
    assert (float(slope), float(flat)) == (
        pytest.approx(-0.25, abs=1e-6),
        pytest.approx(0, abs=1e-6),
    )


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: from_vector_radii(1.0, [1.0], p=2, step=1.0, neighbors="swap"), "must be vectors"),
        (lambda: from_vector_radii([1.0], 1.0, p=2, step=1.0, neighbors="swap"), "axis of levels"),
        (
            lambda: from_vector_radii([1.0], [1.0], p=0.5, step=1.0, neighbors="swap"),
            "p must be a static number from 1 to inf",
        ),
        (
            lambda: from_vector_radii(
                np.ones((2, 3)), np.ones((3, 1)), p=1, step=1.0, neighbors="swap"
            ),
            "does not broadcast",
        ),
        (
            lambda: from_vector_radii([1.0], [1.0], p=1, step=0.0, neighbors="swap"),
            "step must be finite and positive",
        ),
        (lambda: k_norm(1.0, 1.0, sensitivity=1.0, p=2), "must be vectors"),
        (
            lambda: k_norm([1.0], 1.0, sensitivity=-1.0, p=2),
            "sensitivity must be finite and positive",
        ),
    ],
)
def test_bad_arguments_are_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_vector_has_no_rho(mechanism):
    profile = from_vector_radii([1.0, 2.0], [1.0], p=2, step=1.0, neighbors="swap")
    for options in ({"rho": 0.1}, {"rho": jnp.zeros(())}, {"support": "extended"}):
        with pytest.raises(ValueError, match="profile of a vector"):
            mechanism(profile, 1.0, **options)
