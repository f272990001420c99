"""Attack scores of real trainings: as sure as they say with the choice of the guesses, and controls
that go above the claim.
"""

import numpy as np
import pytest

from dpjax.auditing import audit_scores, epsilon_lower_bound, p_value, roc_lower_bound
from dpjax.numerics import solve as limits
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


def test_the_choice_of_the_guesses_is_paid_for():
    runs, canaries, epsilon = 400, 64, 0.5
    scores, present = responses(np.random.default_rng(0), (runs, canaries), epsilon)
    sizes = np.arange(1, canaries // 2 + 1)
    pairs = list(zip(sizes, sizes, strict=True))
    ascending = np.take_along_axis(present, np.argsort(scores, axis=-1), axis=-1)
    highest, lowest = np.cumsum(ascending[:, ::-1], axis=-1), np.cumsum(~ascending, axis=-1)
    correct = (highest + lowest)[:, : sizes.size]
    corrected, plain = (
        epsilon_lower_bound(correct, 2 * sizes, confidence=1 - error).max(axis=-1)
        for error in (0.05 / sizes.size, 0.05)
    )
    for row in range(3):
        found = audit_scores(scores[row], present[row], guesses=pairs)
        assert found.epsilon == corrected[row]
        assert (found.tried, found.canaries) == (sizes.size, canaries)
        best = p_value(found.correct, found.guesses, epsilon=1.0)
        assert found.p_value(1.0) == min(1.0, sizes.size * best)
    # The control: the best as if it were alone
    for bounds, too_often in ((corrected, False), (plain, True)):
        times = np.count_nonzero(bounds > epsilon)
        chance = limits.upper_tail(times, trials=runs, probability=0.05)
        assert (chance < FALSE_POSITIVE_RATE) == too_often


def test_numbers_of_guesses_and_ties():
    scores, present = responses(np.random.default_rng(1), 2000, 1.0)
    found = audit_scores(scores, present)
    assert found.tried == 8  # 1000 on either side, 500, ..., 7
    assert 0.5 < found.epsilon < 1
    assert audit_scores(-scores, present).epsilon == 0  # the wrong way round
    # Who claims epsilon 1 and spends 1.5 is refuted
    louder = responses(np.random.default_rng(1), 2000, 1.5)
    assert audit_scores(scores, present, confidence=SURE).epsilon <= 1
    assert audit_scores(*louder, confidence=SURE, guesses=[(1000, 1000)]).epsilon > 1
    # Scores without a difference show nothing, whatever the order of the canaries.
    for coins in (np.arange(100) < 50, np.arange(100) >= 50):
        assert audit_scores(np.zeros(100), coins).epsilon == 0
    ties = audit_scores([1, 1, 1, 0, 0], [False, True, True, True, False], guesses=[(1, 1), (2, 0)])
    assert (ties.correct, ties.guesses) == (0, 2)
    assert audit_scores([0.5], [True]).guesses == 1


def test_the_confidence_of_many_runs_over_all_counts():
    """Both shares binomial, at the rates of randomized response: the exact probability that the
    bound is above epsilon.
    """
    epsilon, trials = 1.0, 20
    rate, counts = 1 / (1 + np.exp(-epsilon)), np.arange(trials + 1)
    chance = np.outer(binomial(trials, rate), binomial(trials, 1 - rate))
    present, scores = np.arange(2 * trials) < trials, np.tile(np.arange(trials), 2)
    bounds = [
        [
            roc_lower_bound(scores < np.where(present, hits, wrong), present, thresholds=1.0)
            for wrong in counts
        ]
        for hits in counts
    ]
    assert 0 < chance[np.array(bounds) > epsilon].sum() <= 0.05
    # The control: shares instead of their limits
    shares = (counts + 0.5) / (trials + 1)
    assert chance[np.log(shares[:, None] / shares) > epsilon].sum() > 0.3


def test_thresholds_hold_together_and_a_loud_mechanism_is_caught():
    rng = np.random.default_rng(2)
    present = np.arange(20_000) % 2 == 0
    thresholds = [-1.0, 0.5, 2.0, 99.0]
    scores = present + rng.laplace(size=present.size)  # epsilon 1

    def bound(scores, **options):
        given = {"thresholds": thresholds, "confidence": SURE} | options
        return roc_lower_bound(scores, present, **given)

    found = bound(scores)
    assert found[3] == 0
    assert 0.7 < found.max() <= 1
    # Clopper and Pearson's limits, two of them for each of four thresholds
    shown = [[np.sum(scores[of] >= t) for t in thresholds] for of in (present, ~present)]
    at = {"trials": present.size / 2, "error": FALSE_POSITIVE_RATE / 8}
    true, false = limits.lower_limit(shown[0], **at), limits.upper_limit(shown[1], **at)
    exact = np.log(np.maximum(true / false, (1 - false) / (1 - true)))
    np.testing.assert_allclose(found, np.maximum(exact, 0), rtol=1e-9)
    assert (bound(scores, delta=0.05)[:3] < found[:3]).all()
    # The control: epsilon is 1.43
    assert bound(present + rng.laplace(scale=0.7, size=present.size)).max() > 1
    with pytest.raises(ValueError, match="runs without it"):
        roc_lower_bound([1, 2], [True, True], thresholds=1.0)
