"""Retrying: the exact distribution against all sequences of attempts, draws against it, and its
privacy over all small datasets.
"""

import itertools
from dataclasses import replace
from math import inf

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpjax.accounting.failures import retry_until_success
from dpjax.accounting.guarantee import Guarantee
from dpjax.distributions.finite import Finite
from dpjax.mechanisms import exponential, never_fail, never_fail_distribution, permute_and_flip
from dpjax.random import exponential as exponential_noise
from tests.support.removals import log_probabilities
from tests.support.statistics import assert_counts_follow, assert_counts_rejected

VALUES = np.array([1.0, 2.0, 3.0, 4.0])
MASSES = np.array([0.1, 0.2, 0.3, 0.4])
ACCEPTANCE = np.array(
    [
        [1, 0, 1, 0],
        [0.5, 0.25, 0, 1],
        [1, 1, 1, 1],
        [0, 0, 0, 0],
        [0, 0, 0, 1e-12],
        [1e-12, 1, 1, 1],
    ]
)


def small_distribution(dtype="float64"):
    return Finite(
        jnp.asarray(VALUES, dtype), -jnp.log(jnp.asarray(MASSES, dtype)), jnp.ones((), dtype)
    )


def sequences(masses, acceptance, attempts):
    """The distribution of the first accepted candidate, by walking through all sequences of
    attempts; last the fallback.
    """
    found = np.zeros(len(masses) + 1)
    steps = [(i, mass * a, a) for i, (mass, a) in enumerate(zip(masses, acceptance, strict=True))]
    alive = [1.0]
    for _ in range(attempts):
        rejected = []
        for weight in alive:
            for i, mass, _a in steps:
                found[i] += weight * mass
            rejected += [weight * masses[i] * (1 - a) for i, _, a in steps]
        alive = rejected
    found[-1] = np.sum(alive)
    return found


@pytest.mark.parametrize("attempts", [4, pytest.param(1, marks=pytest.mark.slow)])
def test_the_distribution_is_that_of_all_sequences(attempts, x64):
    distribution = never_fail_distribution(
        small_distribution(), ACCEPTANCE, fallback=np.arange(6.0), attempts=attempts
    )
    expected = [sequences(MASSES, row, attempts) for row in ACCEPTANCE]
    np.testing.assert_allclose(
        np.exp(log_probabilities(distribution)), expected, rtol=1e-12, atol=1e-300
    )
    np.testing.assert_array_equal(distribution.values[:, -1], np.arange(6.0))
    np.testing.assert_array_equal(distribution.values[:, :-1], np.broadcast_to(VALUES, (6, 4)))


@pytest.mark.slow
def test_many_attempts_and_rare_successes(x64):
    """1 - (1 - p)^m without cancellation, and the distribution given success in the limit."""
    distribution = never_fail_distribution(
        small_distribution(),
        np.array([[0, 0, 0, 1e-12], [1, 0, 0.5, 0]]),
        fallback=0.0,
        attempts=1000,
    )
    found = np.exp(log_probabilities(distribution))
    # 1000 times 4e-13, but for its square
    np.testing.assert_allclose(found[0, 3], 4e-10, rtol=1e-9)
    np.testing.assert_allclose(found[1], [0.4, 0, 0.6, 0, 0.75**1000], rtol=1e-12)
    odd = never_fail_distribution(
        small_distribution(), np.array([[7.0, -1.0, np.nan, 0.0]]), fallback=0.0, attempts=2
    )
    np.testing.assert_allclose(
        np.exp(log_probabilities(odd))[0], sequences(MASSES, [1, 0, 0, 0], 2), rtol=1e-12
    )
    nothing = replace(small_distribution(), cost=jnp.full(4, jnp.nan))
    assert np.isnan(
        log_probabilities(never_fail_distribution(nothing, np.ones(4), fallback=0.0, attempts=2))
    ).all()


def retry(key, distribution, attempts, draws):
    """Candidates 0 and 2 succeed; the outcome comes with a second array that tells the same."""

    def draw(key):
        index = distribution.sample_index(key, (draws,))
        return index, jnp.stack([index, index + 1], axis=-1).astype(jnp.float32)

    fallback = (4, jnp.array([4.0, 5.0]))
    return never_fail(
        key,
        draw,
        succeeded=lambda pair: (pair[0] == 0) | (pair[0] == 2),
        fallback=fallback,
        attempts=attempts,
    )


def test_draws_follow_the_distribution_and_what_comes_with_them_stays_together():
    distribution = small_distribution("float32")
    index, both = jax.jit(lambda key: retry(key, distribution, 3, 50_000))(jax.random.key(0))
    assert (index.dtype, both.dtype) == (jnp.int32, jnp.float32)
    np.testing.assert_array_equal(both, np.stack([index, index + 1], axis=-1))
    counts = np.bincount(np.asarray(index), minlength=5)
    right, four = (sequences(MASSES, ACCEPTANCE[0], attempts) for attempts in (3, 4))
    assert_counts_follow(counts, right)
    assert_counts_rejected(counts, four)  # one attempt more is another distribution


@pytest.mark.slow
def test_the_distribution_does_not_change_with_further_rows_or_excluded_candidates():
    scores = jax.random.normal(jax.random.key(333), (2048, 333))
    accepted = jnp.where(jnp.arange(333) % 3 == 0, jnp.float32(0.7), 0.0)

    def costs(scores, accepted):
        distribution = never_fail_distribution(
            exponential(scores, 1.0, sensitivity=1.0), accepted, fallback=0.0, attempts=5
        )
        return np.asarray(distribution.cost)

    plain = costs(scores[:7], accepted)
    np.testing.assert_array_equal(costs(scores, accepted)[:7], plain)
    np.testing.assert_array_equal(costs(scores[:1], accepted), plain[:1])
    wider = costs(
        jnp.pad(scores[:7], [(0, 0), (0, 200)], constant_values=-jnp.inf),
        jnp.pad(accepted, (0, 200)),
    )
    np.testing.assert_array_equal(np.delete(wider, np.s_[333:533], axis=1), plain)


def test_keys_map_and_single_draws_are_those_of_the_batch():
    def draw(key):
        return exponential_noise(key, ())

    def one(key):
        return never_fail(key, draw, succeeded=lambda y: y < 1, fallback=-1.0, attempts=2)

    keys = jax.random.split(jax.random.key(3), 2000)
    found = np.asarray(jax.jit(jax.vmap(one))(keys))
    assert found[7] == pytest.approx(float(one(keys[7])), rel=1e-6)
    assert (found < 1).all()
    leftover = np.exp(-2.0)
    assert_counts_follow([np.sum(found == -1), np.sum(found >= 0)], [leftover, 1 - leftover])
    assert_counts_rejected(
        [np.sum(found == -1), np.sum(found >= 0)], [np.exp(-1.0), 1 - np.exp(-1.0)]
    )


def test_nan_is_what_the_test_says_and_the_number_of_draws_is_fixed():
    traced = []

    def draw(key):
        traced.append(key)
        return jnp.full((3,), jnp.nan)

    with jax.checking_leaks():
        found = jax.jit(
            lambda key: never_fail(
                key, draw, succeeded=lambda y: y == y, fallback=jnp.arange(3.0), attempts=5
            )
        )
    np.testing.assert_array_equal(found(jax.random.key(0)), [0, 1, 2])
    assert len(traced) <= 3  # a loop, not five copies
    text = found.lower(jax.random.key(0)).as_text()
    assert "while" in text


def vectors():
    """All scores 0..2 of four candidates, and all pairs whose scores each change by at most 1."""
    points = np.array(list(itertools.product(range(3), repeat=4)))
    near = (np.abs(points[:, None] - points[None]) <= 1).all(-1)
    first, second = np.nonzero(near)
    return points, np.array([first, second])[:, first != second]


def hockey_stick(logs, pairs, epsilon):
    p, q = np.exp(logs[pairs[0]]), np.exp(logs[pairs[1]])
    return np.maximum(p - np.exp(epsilon) * q, 0).sum(-1).max()


@pytest.mark.parametrize(
    "mechanism", [exponential, pytest.param(permute_and_flip, marks=pytest.mark.slow)]
)
def test_private_over_all_score_vectors(mechanism, x64):
    """A bounded range stays as it is, and keeps the loss below it."""
    points, pairs = vectors()
    epsilon, ranges = 1.0, []
    distribution = mechanism(jnp.asarray(points, jnp.float64), epsilon, sensitivity=1.0)
    one = Guarantee(epsilon, epsilon if mechanism is exponential else 2 * epsilon, "swap")
    masses = np.exp(log_probabilities(distribution))
    sets = np.array([[1, 0, 0, 0], [1, 1, 0, 0], [0, 1, 1, 0], [1, 1, 1, 0]])
    for attempts in (2, 1000):
        distributions = log_probabilities(
            never_fail_distribution(
                distribution, jnp.asarray(sets, float)[:, None], fallback=-1.0, attempts=attempts
            )
        )
        for accepted, logs in zip(sets, distributions, strict=True):
            failure = 1 - (masses * accepted).sum(-1).min()
            claim = never_fail.guarantee(one, failure=failure, attempts=attempts, fallback="public")
            assert hockey_stick(logs, pairs, claim.epsilon) <= claim.delta * (1 + 1e-9) + 1e-12
            if attempts == 1000:
                there = logs[:, :4][:, accepted > 0]
                ratios = there[pairs[0]] - there[pairs[1]]
                assert np.abs(ratios).max() <= claim.epsilon * (1 + 1e-9)
                ranges.append(np.ptp(ratios, axis=-1).max())
    if mechanism is exponential:
        assert max(ranges) == pytest.approx(epsilon, rel=1e-9)
    else:
        assert 1.4 * epsilon <= max(ranges) <= 2 * epsilon


def test_control_a_success_that_depends_on_the_data(x64):
    """The best candidate of each dataset is its success: what a neighbor returns becomes
    impossible.
    """
    points, pairs = vectors()
    distribution = exponential(jnp.asarray(points, jnp.float64), 1.0, sensitivity=1.0)
    best = points == points.max(-1, keepdims=True)
    masses = np.exp(log_probabilities(distribution))
    failure = 1 - (masses * best).sum(-1).min()
    claim = retry_until_success(
        Guarantee(1.0, 1.0, "swap"), failure, attempts=40, fallback="public"
    )
    logs = log_probabilities(
        never_fail_distribution(distribution, jnp.asarray(best, float), fallback=-1.0, attempts=40)
    )
    assert hockey_stick(logs, pairs, claim.epsilon) >= 0.3 > 100 * claim.delta


def test_derivatives_are_those_of_the_formula(x64):
    accepted = jnp.array([1.0, 0.0, 0.5, 0.0])

    def chance(epsilon, acceptance=accepted):
        distribution = never_fail_distribution(
            Finite(jnp.arange(4.0), jnp.arange(4.0), epsilon), acceptance, fallback=9.0, attempts=3
        )
        return distribution.mean()

    gradient = jax.jit(jax.grad(chance))
    for epsilon in (0.3, 2.0):
        central = (chance(epsilon + 1e-5) - chance(epsilon - 1e-5)) / 2e-5
        assert float(gradient(jnp.asarray(epsilon))) == pytest.approx(float(central), rel=1e-7)
    for edge in (jnp.ones(4), jnp.zeros(4)):
        assert jnp.isfinite(jax.grad(chance)(jnp.asarray(1.0), edge))


def test_errors():
    key, distribution = jax.random.key(0), small_distribution("float32")
    good = {"succeeded": lambda y: y > 0, "fallback": 0.0, "attempts": 2}
    for wrong, match in (
        ({"attempts": 0}, "attempts"),
        ({"fallback": (0.0, 1.0)}, "pytree structure of"),
        ({"succeeded": lambda y: jnp.ones(3, bool)}, "begin with the axes"),
    ):
        with pytest.raises(ValueError, match=match):
            never_fail(key, lambda key: exponential_noise(key, (2,)), **(good | wrong))
    with pytest.raises(TypeError, match="booleans"):
        never_fail(
            key, lambda key: exponential_noise(key, (2,)), **(good | {"succeeded": lambda y: y})
        )
    with pytest.raises(TypeError, match="typed key"):
        never_fail(0, lambda key: exponential_noise(key, (2,)), **good)
    with pytest.raises(TypeError, match="Finite"):
        never_fail_distribution(VALUES, VALUES, fallback=0.0, attempts=1)
    with pytest.raises(ValueError, match="4 candidates"):
        never_fail_distribution(distribution, np.ones(3), fallback=0.0, attempts=1)
    assert (
        never_fail.guarantee(
            Guarantee(1.0, 1.0, "swap"), failure=0.5, attempts=2, fallback="private"
        ).bounded_range
        == inf
    )
