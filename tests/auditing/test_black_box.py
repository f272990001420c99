"""Bounds from draws: below the claim where it holds, above it where it is broken, and as sure as
they say.

Tests that depend on draws fail with probability at most 1e-6 over the keys, which are fixed.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpjax import laplace
from dpjax.auditing.black_box import log_ratio, lower_bound
from dpjax.numerics.binomial import lower_limit, upper_limit, upper_tail
from tests.auditing.pairs import BROKEN, EPSILON, HONEST, binomial, of_one_shape
from tests.support.statistics import FALSE_POSITIVE_RATE

SURE = 1 - FALSE_POSITIVE_RATE
DRAWS = 50_000
CONFIDENCE = 0.95


def draws_of(distribution):
    draws = np.asarray(of_one_shape(distribution).sample(jax.random.key(7), (DRAWS,)))
    return draws[:, 0], draws[:, 1]


@pytest.mark.slow
@pytest.mark.parametrize("name", HONEST)
def test_honest_mechanisms_stay_below_the_claim(name):
    p, q = draws_of(HONEST[name]())
    assert float(lower_bound(p, q, confidence=SURE).epsilon) <= EPSILON
    tightness = float(lower_bound(p, q, confidence=CONFIDENCE).epsilon) / EPSILON
    assert tightness >= {"laplace": 0.95, "piecewise_laplace": 0.7, "permute_and_flip": 0.9}.get(
        name, 0.6
    )


@pytest.mark.parametrize(
    "name",
    [
        n if n == "laplace at too high a rate" else pytest.param(n, marks=pytest.mark.slow)
        for n in BROKEN
    ],
)
def test_control_broken_mechanisms_are_caught(name):
    p, q = draws_of(BROKEN[name]())
    assert float(lower_bound(p, q, confidence=SURE).epsilon) > 1.1 * EPSILON


def test_the_exact_log_ratio_is_as_sharp_and_its_last_bits_are_a_leak_of_floating_point():
    distribution = HONEST["laplace"]()
    p, q = draws_of(distribution)
    scores = log_ratio(
        laplace(0.0, EPSILON, sensitivity=1.0), laplace(1.0, EPSILON, sensitivity=1.0)
    )
    rounded = lower_bound(p, q, confidence=SURE, score=scores)
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
    return (
        float(
            upper_tail(np.count_nonzero(exceeded), trials=exceeded.size, probability=1 - CONFIDENCE)
        )
        < FALSE_POSITIVE_RATE
    )


@pytest.mark.parametrize("delta", [0.0, pytest.param(0.05, marks=pytest.mark.slow)])
def test_the_confidence_holds_in_simulated_runs(delta):
    """Randomized response that tells the truth outright with probability delta: epsilon and delta
    are its exact parameters.
    """
    rng, runs, draws, epsilon = np.random.default_rng(0), 4000, 400, 1.0
    p, q = randomized_response(rng, epsilon, draws, runs)
    p, q = p | (rng.random(p.shape) < delta), q & (rng.random(q.shape) >= delta)
    found = lower_bound(p.astype(float), q.astype(float), confidence=CONFIDENCE, delta=delta)
    assert not exceeded_too_often(found.epsilon > epsilon)
    assert np.mean(found.epsilon) > 0.5 * epsilon
    plug_in = np.log((p.mean(axis=0) - delta) / np.maximum(q.mean(axis=0), 1e-9))
    # The control: without the limits it is above in half of the runs
    assert exceeded_too_often(plug_in > epsilon)


def test_the_confidence_of_one_event_summed_over_all_counts():
    """P[bound > epsilon] for randomized response and its own event, without simulation."""
    tested, counts = 200, np.arange(201)
    low, high = (
        limit(counts, trials=tested, error=(1 - CONFIDENCE) / 2)
        for limit in (lower_limit, upper_limit)
    )
    for epsilon in (0.2, 1.0, 3.0):
        p = 1 / (1 + np.exp(-epsilon))
        both = binomial(tested, p)[:, None] * binomial(tested, 1 - p)[None, :]
        chance = both[low[:, None] > np.exp(epsilon) * high[None, :]].sum()
        assert 0 < chance <= 1 - CONFIDENCE
        plug_in = both[counts[:, None] > np.exp(epsilon) * counts[None, :]].sum()
        assert plug_in > 0.4


def test_control_choosing_and_testing_on_the_same_draws_is_optimistic():
    """At 50 % the bound is above epsilon in 17 % of runs, since both limits must fail; without the
    split in 43 %.
    """
    rng, epsilon, draws, rows = np.random.default_rng(1), 1.0, 300, 2000
    p, q = (
        truth + rng.random((draws, rows))
        for truth in randomized_response(rng, epsilon, draws, rows)
    )
    split = lower_bound(p, q, confidence=0.5).epsilon > epsilon
    reused = (
        lower_bound(np.concatenate([p, p]), np.concatenate([q, q]), confidence=0.5).epsilon
        > epsilon
    )
    assert np.mean(split) < 0.25
    assert np.mean(reused) > 0.33


def test_every_kind_of_event_is_found():
    """An interval, a complement and either tail, in either direction; rows are answered together as
    they are one by one.
    """
    rng, n = np.random.default_rng(2), 4000
    flat = rng.random((n, 6))
    other = rng.random((n, 6))
    lies = rng.random((n, 6)) < 0.4
    there = rng.random((n, 6))
    targets = [0.4 + 0.1 * there, 0.95 + 0.05 * there, 0.05 * there]
    targets = [np.where(lies, target, other) for target in targets]
    # Values below 0.1 or above 0.9.
    outside = np.where(lies, np.where(there < 0.5, 0.2 * there, 0.8 + 0.2 * there), other)
    p = np.stack(
        [
            targets[0][:, 0],
            targets[1][:, 1],
            targets[2][:, 2],
            outside[:, 3],
            flat[:, 4],
            flat[:, 5],
        ],
        axis=1,
    )
    q = np.stack(
        [flat[:, 0], flat[:, 1], flat[:, 2], flat[:, 3], targets[0][:, 4], other[:, 5]], axis=1
    )
    found = lower_bound(p.reshape(n, 2, 3), q.reshape(n, 2, 3))
    assert found.epsilon.shape == found.low.shape == found.count_q.shape == (2, 3)
    epsilon = found.epsilon.ravel()
    assert (epsilon[[0, 1, 2, 4]] > 1.2).all()
    assert 0.7 < epsilon[3] < np.log(0.52 / 0.2)
    assert not found.inside[1, 0]
    assert epsilon[5] == 0
    assert found.forward.ravel().tolist()[:5] == [True, True, True, True, False]
    assert found.inside.ravel()[:3].all()
    assert np.allclose(found.low.ravel()[[0, 4]], 0.4, atol=0.03)
    assert np.allclose(found.high.ravel()[[0, 4]], 0.5, atol=0.03)
    for i in range(6):
        alone = lower_bound(p[:, i], q[:, i])
        assert float(alone.epsilon) == epsilon[i]
    assert found.tested_p == found.tested_q == n // 2
    in_event = ((p[n // 2 :, 0] >= found.low[0, 0]) & (p[n // 2 :, 0] <= found.high[0, 0])).sum()
    assert found.count_p[0, 0] == in_event


def test_the_bound_is_the_formula_of_its_own_counts():
    rng = np.random.default_rng(3)
    p, q = randomized_response(rng, 2.0, 1001, 3)
    found = lower_bound(p[:900].astype(float), q.astype(float), delta=0.01, confidence=0.9)
    top, base = np.where(
        found.forward, [found.count_p, found.count_q], [found.count_q, found.count_p]
    )
    sizes = np.where(found.forward, [[450] * 3, [501] * 3], [[501] * 3, [450] * 3])
    limits = (
        lower_limit(top, trials=sizes[0], error=0.05) - 0.01,
        upper_limit(base, trials=sizes[1], error=0.05),
    )
    np.testing.assert_allclose(found.epsilon, np.log(limits[0] / limits[1]), rtol=1e-12)
    assert (found.confidence, found.delta, found.tested_p, found.tested_q) == (0.9, 0.01, 450, 501)


def test_hostile_draws_are_outcomes_like_others():
    n = 200
    nan, inf = np.full(n, np.nan), np.full(n, np.inf)
    p = np.stack([nan, inf, nan, -inf, np.zeros(n)], axis=1)
    q = np.stack([nan, inf, np.zeros(n), inf, np.ones(n)], axis=1)
    found = lower_bound(p, q)
    assert found.epsilon[:2].tolist() == [0, 0]
    assert (found.epsilon[2:] > 3).all()
    assert np.isfinite(found.epsilon).all()
    tiny = lower_bound(np.zeros(2), np.ones(2))
    assert tiny.epsilon.shape == ()
    assert tiny.epsilon == 0


def test_an_empty_batch_has_an_empty_bound():
    for shape in ((0,), (3, 0), (0, 2)):
        found = lower_bound(np.zeros((4, *shape)), np.zeros((5, *shape)), delta=0.1)
        for name in ("epsilon", "low", "high", "inside", "forward", "count_p", "count_q"):
            assert getattr(found, name).shape == shape
        assert (found.tested_p, found.tested_q) == (2, 3)
        assert found.epsilon.dtype == found.low.dtype == np.float64
        assert found.inside.dtype == found.forward.dtype == bool


def test_mistakes_raise():
    x = np.zeros((10, 2))
    for arguments, words in (
        ((x[:1], x), "draws_p needs at least two draws"),
        ((x, np.float64(0)), "draws_q needs at least two draws"),
        ((x, x[:, :1]), "the same batch shape"),
    ):
        with pytest.raises(ValueError, match=words):
            lower_bound(*arguments)
    for options, words in (
        ({"confidence": 1.0}, "confidence must be strictly between 0 and 1, got 1.0"),
        ({"confidence": float("nan")}, "confidence"),
        ({"delta": -0.1}, "delta must be at least 0"),
        ({"delta": 1.0}, "delta must be at least 0 and below 1"),
        ({"score": lambda y: y[0]}, "score must keep the shape"),
    ):
        with pytest.raises(ValueError, match=words):
            lower_bound(x, x, **options)
    with pytest.raises(ValueError, match="resolution"):
        log_ratio(
            laplace(0.0, 1.0, sensitivity=1.0), laplace(1.0, 1.0, sensitivity=1.0), resolution=0.0
        )
