"""Bounds from draws: below the claim where it holds, above it where it is broken, and as sure as
they say.

Tests that depend on draws fail with probability at most 1e-6 over the keys, which are fixed.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpjax import laplace
from dpjax.auditing import log_ratio, lower_bound
from dpjax.numerics import solve as limits
from tests.support.statistics import FALSE_POSITIVE_RATE

EPSILON = 1.0
CENTERS = jnp.array([0.0, 1.0])


def noise(center, rate=EPSILON):
    return laplace(center, rate, sensitivity=1.0)


def draws_of(distribution):
    """Of both rows."""
    return np.asarray(distribution.sample(jax.random.key(7), (50_000,))).T


SURE = 1 - FALSE_POSITIVE_RATE
CONFIDENCE = 0.95


def test_laplace_noise_stays_below_the_claim_and_too_high_a_rate_is_caught():
    honest, broken = (draws_of(noise(CENTERS, rate)) for rate in (EPSILON, 1.4 * EPSILON))
    assert lower_bound(*honest, confidence=SURE).epsilon <= EPSILON
    assert lower_bound(*honest, confidence=CONFIDENCE).epsilon >= 0.95 * EPSILON
    assert lower_bound(*broken, confidence=SURE).epsilon > 1.1 * EPSILON


def test_the_exact_log_ratio_is_as_sharp_and_its_last_bits_are_a_leak_of_floating_point():
    p, q = draws_of(noise(CENTERS))
    rounded = lower_bound(p, q, confidence=SURE, score=log_ratio(*map(noise, CENTERS)))
    assert 0.9 * EPSILON <= float(rounded.epsilon) <= EPSILON
    full = lower_bound(p, q, confidence=SURE, score=lambda y: jnp.abs(y - 1) - jnp.abs(y))
    assert float(full.epsilon) > 3 * EPSILON


def randomized_response(rng, epsilon, draws, rows):
    truthful = 1 / (1 + np.exp(-epsilon))
    return rng.random((draws, rows)) < truthful, rng.random((draws, rows)) < 1 - truthful


def exceeded_too_often(exceeded):
    """Whether a bound that fails in at most 5 % of runs would exceed the truth so often with
    probability at most 1e-6.
    """
    chance = limits.upper_tail(
        np.count_nonzero(exceeded), trials=exceeded.size, probability=1 - CONFIDENCE
    )
    return float(chance) < FALSE_POSITIVE_RATE


@pytest.mark.parametrize("delta", [0.0, 0.05])
def test_the_confidence_holds_in_simulated_runs(delta):
    """Randomized response that tells the truth outright with probability delta: epsilon and delta
    are its exact parameters.
    """
    rng, runs, draws, epsilon = np.random.default_rng(0), 2000, 400, 1.0
    p, q = randomized_response(rng, epsilon, draws, runs)
    p, q = p | (rng.random(p.shape) < delta), q & (rng.random(q.shape) >= delta)
    found = lower_bound(p.astype(float), q.astype(float), confidence=CONFIDENCE, delta=delta)
    assert not exceeded_too_often(found.epsilon > epsilon)
    assert np.mean(found.epsilon) > 0.5 * epsilon
    plug_in = np.log((p.mean(axis=0) - delta) / np.maximum(q.mean(axis=0), 1e-9))
    # The control: without the limits it is above in half of the runs
    assert exceeded_too_often(plug_in > epsilon)


def test_control_choosing_and_testing_on_the_same_draws_is_optimistic():
    """At 50 % the bound is above epsilon in 8 % of runs, since both limits must fail; without the
    split in 21 %.
    """
    rng, epsilon = np.random.default_rng(1), 1.0
    p, q = (
        truth + rng.random((300, 2000)) for truth in randomized_response(rng, epsilon, 300, 2000)
    )
    split, reused = (
        np.mean(lower_bound(*draws, confidence=0.5).epsilon > epsilon)
        for draws in ((p, q), (np.tile(p, (2, 1)), np.tile(q, (2, 1))))
    )
    assert split < 0.25
    assert reused > 1.5 * split + 0.03


def test_every_kind_of_event_is_found():
    """An interval inside or at either end, more likely under P or under Q, and nothing."""
    rng, n = np.random.default_rng(2), 4000
    flat, there = rng.random((2, n, 5))
    inner = np.stack(
        [0.4 + 0.1 * there[:, 0], 0.95 + 0.05 * there[:, 1], 0.05 * there[:, 2]], axis=1
    )
    target = np.concatenate([inner, inner[:, :1], flat[:, :1], flat[:, :1]], axis=1)
    p = np.where(rng.random((n, 6)) < 0.4, target, rng.random((n, 6)))
    q = rng.random((n, 6))
    p[:, 3], q[:, 3] = q[:, 3], p[:, 3].copy()
    found = lower_bound(p.reshape(n, 2, 3), q.reshape(n, 2, 3))
    assert found.epsilon.shape == found.low.shape == found.count_q.shape == (2, 3)
    epsilon = found.epsilon.ravel()
    assert (epsilon[:4] > 1).all()
    assert (epsilon[4:] == 0).all()
    np.testing.assert_array_equal(found.forward.ravel()[:4], [True, True, True, False])
    np.testing.assert_allclose(found.low.ravel()[[0, 3]], 0.4, atol=0.06)
    np.testing.assert_allclose(found.high.ravel()[[0, 3]], 0.5, atol=0.06)


def test_the_bound_of_certain_outcomes_in_closed_form():
    found = lower_bound(np.ones(800), np.zeros(1001), delta=0.01, confidence=0.9)
    exact = np.log((0.05 ** (1 / 400) - 0.01) / (1 - 0.05 ** (1 / 501)))
    assert found.epsilon == pytest.approx(exact, rel=1e-12)


def test_hostile_draws_are_outcomes_like_others():
    n = 200
    nan, inf = np.full(n, np.nan), np.full(n, np.inf)
    p = np.stack([nan, inf, nan, -inf, np.zeros(n)], axis=1)
    q = np.stack([nan, inf, np.zeros(n), inf, np.ones(n)], axis=1)
    found = lower_bound(p, q)
    assert found.epsilon[:2].tolist() == [0, 0]
    assert (found.epsilon[2:] > 3).all()
    assert np.isfinite(found.epsilon).all()
    assert lower_bound(np.zeros(2), np.ones(2)).epsilon == 0
    empty = lower_bound(np.zeros((4, 3, 0)), np.zeros((5, 3, 0)), delta=0.1)
    assert (empty.epsilon.shape, empty.tested_p, empty.tested_q) == ((3, 0), 2, 3)
