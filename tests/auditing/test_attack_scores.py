"""Attack scores of real trainings: as sure as they say with the choice of the guesses, and controls
that go above the claim.
"""

import numpy as np

from dpjax.auditing import audit_scores, epsilon_lower_bound, p_value
from dpjax.numerics import solve as limits
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
    assert audit_scores([0.5, 0.1, 0.2], [True, True, False]).guesses == 2
