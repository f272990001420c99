"""Attack scores of real trainings: as sure as they say with the choice of the guesses, and controls
that go above the claim.
"""

from math import comb

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpjax.accounting import epsilon_of_gdp
from dpjax.auditing import audit_scores, epsilon_lower_bound, p_value, roc_lower_bound
from tests.auditing.pairs import binomial
from tests.support.statistics import FALSE_POSITIVE_RATE

SURE = 1 - FALSE_POSITIVE_RATE


def responses(rng, shape, epsilon):
    """Coins, and scores of random size with a sign from randomized response: no attack can meet a
    better one.
    """
    present = rng.random(shape) < 0.5
    truthful = rng.random(shape) < 1 / (1 + np.exp(-epsilon))
    return rng.random(shape) * np.where(present == truthful, 1, -1), present


def exceeded_too_often(times, runs, error):
    return (
        sum(comb(runs, k) * error**k * (1 - error) ** (runs - k) for k in range(times, runs + 1))
        < FALSE_POSITIVE_RATE
    )


def test_the_choice_of_the_guesses_is_paid_for():
    runs, canaries, epsilon = 400, 64, 0.5
    scores, present = responses(np.random.default_rng(0), (runs, canaries), epsilon)
    pairs = [(i, i) for i in range(1, canaries // 2 + 1)]
    ascending = np.take_along_axis(present, np.argsort(scores, axis=-1), axis=-1)
    highest, lowest = np.cumsum(ascending[:, ::-1], axis=-1), np.cumsum(~ascending, axis=-1)
    correct = (highest + lowest)[:, : len(pairs)]
    made = np.array([sum(pair) for pair in pairs])
    corrected, plain = (
        epsilon_lower_bound(correct, made, confidence=c).max(axis=-1)
        for c in (1 - 0.05 / len(pairs), 0.95)
    )
    for row in range(3):
        found = audit_scores(scores[row], present[row], guesses=pairs)
        assert found.epsilon == corrected[row]
        assert (found.tried, found.canaries) == (len(pairs), canaries)
        best = p_value(found.correct, found.guesses, epsilon=1.0)
        assert found.p_value(1.0) == min(1.0, len(pairs) * best)
    assert not exceeded_too_often(np.count_nonzero(corrected > epsilon), runs, 0.05)
    # The control: the best as if it were alone
    assert exceeded_too_often(np.count_nonzero(plain > epsilon), runs, 0.05)


def test_numbers_of_guesses_and_ties():
    scores, present = responses(np.random.default_rng(1), 2000, 1.0)
    found = audit_scores(scores, present)
    assert found.tried == 8  # 1000 on either side, 500, ..., 7
    assert 0.5 < found.epsilon < 1
    assert audit_scores(-scores, present).epsilon == 0  # the wrong way round
    one = audit_scores(scores, present, guesses=[(2000 - found.guesses, found.guesses)], delta=1e-6)
    assert (one.tried, one.guesses, one.delta) == (1, 2000, 1e-6)
    # Scores without a difference show nothing, whatever the order of the canaries.
    assert audit_scores(np.zeros(100), np.arange(100) < 50).epsilon == 0
    assert audit_scores(np.zeros(100), np.arange(100) >= 50).epsilon == 0
    ties = audit_scores([1, 1, 1, 0, 0], [False, True, True, True, False], guesses=[(1, 1), (2, 0)])
    assert (ties.correct, ties.guesses) == (0, 2)
    assert audit_scores([0.5], [True]).guesses == 1


@jax.jit
def train(key, inputs, labels, present, noise):
    """Ten steps of logistic regression on clipped gradients of norm 1, each with Gaussian noise."""

    def step(weights, key):
        gradients = (jax.nn.sigmoid(inputs @ weights) - labels)[:, None] * inputs
        clipped = gradients / jnp.maximum(1.0, jnp.linalg.norm(gradients, axis=1))[:, None]
        total = jnp.sum(jnp.where(present[:, None], clipped, 0.0), axis=0)
        return weights - 0.1 * (total + noise * jax.random.normal(key, weights.shape)), None

    return jax.lax.scan(step, jnp.zeros(inputs.shape[1]), jax.random.split(key, 10))[0]


@pytest.mark.slow
def test_a_training_with_noise_and_one_with_too_little():
    """200 records and 500 canaries, each with an input of its own; the score is the margin of its
    label in the trained model.
    """
    key_inputs, key_labels, key_coins, key_train = jax.random.split(jax.random.key(0), 4)
    records, canaries, delta = 200, 500, 1e-10
    inputs = (
        jnp.zeros((records + canaries, 10 + canaries))
        .at[:records, :10]
        .set(jax.random.normal(key_inputs, (records, 10)))
    )
    inputs = inputs.at[records:, 10:].set(4 * jnp.eye(canaries))
    labels = jax.random.bernoulli(key_labels, 0.5, (records + canaries,)).astype(float)
    coins = jax.random.bernoulli(key_coins, 0.5, (canaries,))
    present = jnp.concatenate([jnp.ones(records, bool), coins])

    def audit(noise):
        weights = train(key_train, inputs, labels, present, noise)
        margin = ((2 * labels - 1) * (inputs @ weights))[records:]
        return audit_scores(margin, coins, confidence=SURE, delta=delta).epsilon

    claims = {noise: epsilon_of_gdp(10**0.5 / noise, delta=delta) for noise in (0.6, 10.0)}
    # Who claims noise of 10 and adds 0.6 is refuted
    assert audit(10.0) <= claims[10.0] < 2 < audit(0.6) <= claims[0.6]


def runs_of(hits, trials, false_hits, others):
    scores = np.concatenate([np.arange(trials) < hits, np.arange(others) < false_hits]).astype(
        float
    )
    return scores, np.arange(trials + others) < trials


def test_the_confidence_of_many_runs_over_all_counts():
    """Both shares binomial, at the rates of randomized response: the exact probability that the
    bound is above epsilon.
    """
    epsilon, trials = 1.0, 20
    rate = 1 / (1 + np.exp(-epsilon))
    chance = np.outer(binomial(trials, rate), binomial(trials, 1 - rate))
    counts = range(trials + 1)
    bounds = np.array(
        [
            [roc_lower_bound(*runs_of(t, trials, f, trials), thresholds=1.0) for f in counts]
            for t in counts
        ]
    )
    assert 0 < chance[bounds > epsilon].sum() <= 0.05
    # The control: shares instead of their limits
    shares = (np.arange(trials + 1) + 0.5) / (trials + 1)
    assert chance[np.log(shares[:, None] / shares) > epsilon].sum() > 0.3


def test_thresholds_hold_together_and_a_loud_mechanism_is_caught():
    rng = np.random.default_rng(2)
    present = np.arange(20_000) % 2 == 0
    thresholds = [-1.0, 0.5, 2.0, 99.0]
    scores = present + rng.laplace(size=present.size)  # epsilon 1
    found = roc_lower_bound(scores, present, thresholds=thresholds, confidence=SURE)
    assert found[3] == 0
    assert (found <= 1).all()
    assert found.max() > 0.7
    alone = [
        roc_lower_bound(scores, present, thresholds=t, confidence=1 - FALSE_POSITIVE_RATE / 4)
        for t in thresholds
    ]
    np.testing.assert_allclose(found, alone, rtol=1e-9)
    with_delta = roc_lower_bound(
        scores, present, thresholds=thresholds, confidence=SURE, delta=0.05
    )
    assert (with_delta[:3] < found[:3]).all()
    broken = roc_lower_bound(
        present + rng.laplace(scale=0.7, size=present.size),
        present,
        thresholds=thresholds,
        confidence=SURE,
    )
    assert broken.max() > 1  # the control: epsilon is 1.43


def test_mistakes_raise():
    coins = np.array([True, False, True])
    for function in (audit_scores, lambda *given: roc_lower_bound(*given, thresholds=0.0)):
        for scores, present in (
            ([1, 2], coins),
            ([1, 2, np.nan], coins),
            ([1, 2, 3], [1, 0, 1]),
            (np.ones((3, 1)), coins),
        ):
            with pytest.raises(ValueError, match="present booleans"):
                function(scores, present)
    for guesses in ([], [(0, 0)], [(2, 2)], [(-1, 2)]):
        with pytest.raises(ValueError, match="from 1 to the number of canaries, 3"):
            audit_scores([1, 2, 3], coins, guesses=guesses)
    with pytest.raises(ValueError, match="confidence"):
        audit_scores([1, 2, 3], coins, confidence=1.0)
    with pytest.raises(ValueError, match="runs without it"):
        roc_lower_bound([1, 2], [True, True], thresholds=1.0)
    for thresholds in ([], np.nan, [[1.0]]):
        with pytest.raises(ValueError, match="thresholds must be"):
            roc_lower_bound([1, 2, 3], coins, thresholds=thresholds)
