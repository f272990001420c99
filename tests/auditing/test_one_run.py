"""One run: the published bound against independent sums, its exact confidence over all counts, and
our own mechanisms.
"""

from decimal import Decimal, getcontext
from fractions import Fraction
from itertools import accumulate
from math import comb

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import binom

from dpjax import Finite
from dpjax.auditing import audit_in_one_run, epsilon_lower_bound, p_value
from tests.support.statistics import (
    FALSE_POSITIVE_RATE,
    assert_counts_follow,
    assert_counts_rejected,
)

EPSILON = 1.0
SURE = 1 - FALSE_POSITIVE_RATE
# Computed with 30 digits apart from this library and before it: (guesses, correct) at 95 %.
GOLDEN = {
    (100, 50): 0.0,
    (100, 70): 0.471671861630479,
    (100, 90): 1.63082319274097,
    (100, 100): 3.49296543115229,
    (1000, 700): 0.73201086235739,
}


def exact_tails(guesses, epsilon):
    """P[at least v correct] for randomized response, v = 0..guesses; the accuracy is cut to 80
    bits.
    """
    getcontext().prec = 50
    right = int(2**80 / (1 + (-Decimal(epsilon)).exp()))
    masses = [
        comb(guesses, k) * right**k * (2**80 - right) ** (guesses - k) for k in range(guesses + 1)
    ]
    return [Fraction(tail, 2 ** (80 * guesses)) for tail in list(accumulate(masses[::-1]))[::-1]]


def test_golden_bounds_are_where_an_independent_tail_is_the_error():
    for (guesses, correct), epsilon in GOLDEN.items():
        assert epsilon_lower_bound(correct, guesses) == pytest.approx(epsilon, abs=1e-10)
        if epsilon > 0 and guesses == 100:
            tail = float(exact_tails(guesses, epsilon)[correct])
            assert tail == pytest.approx(0.05, rel=1e-10)
            assert tail <= p_value(correct, guesses, epsilon=epsilon) <= tail * (1 + 3e-10)


def test_the_correction_for_delta_is_that_of_the_theorem():
    """Theorem 5.2 with the maximum over all canaries, not only up to v, from fractions."""
    guesses, canaries = 30, 50
    for epsilon in (0.0, 0.7, 2.0):
        tails = exact_tails(guesses, epsilon)
        for delta in (1e-6, 1e-3):
            wanted = []
            for v in range(guesses + 1):
                gains = [(tails[max(v - i, 0)] - tails[v]) / i for i in range(1, canaries + 1)]
                wanted.append(float(tails[v] + 2 * canaries * Fraction(delta) * max(gains)))
            found = p_value(
                np.arange(guesses + 1), guesses, epsilon=epsilon, canaries=canaries, delta=delta
            )
            np.testing.assert_allclose(found, np.minimum(wanted, 1), rtol=1e-9)


def test_p_values_and_bounds_are_monotone_and_agree():
    bounds = epsilon_lower_bound(np.arange(101), 100)
    assert (np.diff(bounds) >= 0).all()
    assert bounds[58] == 0 < bounds[59]
    at = p_value(np.arange(59, 101), 100, epsilon=bounds[59:])
    assert (at <= 1 - 0.95).all()
    np.testing.assert_allclose(at, 0.05, rtol=1e-9)
    changed = [{"confidence": 0.99}, {"canaries": 1000, "delta": 1e-5}]
    less, with_delta = (float(epsilon_lower_bound(70, 100, **options)) for options in changed)
    assert 0 < less < bounds[70]
    assert 0.3 < with_delta < bounds[70]
    # 2 m delta is 2: nothing can be shown
    assert epsilon_lower_bound(70, 100, canaries=1000, delta=1e-3) == 0


def exceedance(guesses, epsilon, bounds, extra=0.0):
    """P[bound > epsilon] over all counts, for randomized response that tells the truth outright
    with probability ``extra``.
    """
    truthful = 1 / (1 + np.exp(-epsilon))
    chances = binom.pmf(np.arange(guesses + 1), guesses, truthful + extra * (1 - truthful))
    return chances[bounds > epsilon].sum()


@pytest.mark.parametrize("guesses", [1, 20, 200])
def test_the_confidence_holds_over_the_exact_distribution_of_the_count(guesses):
    counts = np.arange(guesses + 1)
    bounds = epsilon_lower_bound(counts, guesses)
    chances = [exceedance(guesses, epsilon, bounds) for epsilon in np.linspace(0, 4, 41)]
    assert max(chances) <= 0.05
    assert (bounds > 0).any() == (guesses > 1)
    if guesses == 200:
        assert max(chances) > 0.04
        with np.errstate(divide="ignore"):
            plug_in = np.log(counts / (guesses - counts))
        assert exceedance(guesses, 1.0, plug_in) > 0.4  # the control


def test_the_confidence_with_delta():
    """Each coin is told outright with probability delta. Without the correction the bound would be
    above too often.
    """
    guesses, epsilon, delta = 200, 0.5, 0.05
    counts = np.arange(guesses + 1)
    ignored = epsilon_lower_bound(counts, guesses)
    assert exceedance(guesses, epsilon, ignored, extra=delta) > 0.1
    for extra, some in ((delta, False), (1e-6, True)):
        kept = epsilon_lower_bound(counts, guesses, canaries=guesses, delta=extra)
        assert exceedance(guesses, epsilon, kept, extra=extra) <= 0.05
        assert (kept > 0).any() == some


def responses(canaries, epsilon):
    """The distributions of coins of randomized response, with the canary and without it."""
    costs = jnp.array([[1.0, 0.0], [0.0, 1.0]])
    return [
        Finite(jnp.arange(2.0), jnp.broadcast_to(cost, (canaries, 2)), jnp.asarray(epsilon))
        for cost in costs
    ]


def audited(pair, guesses, seed=0, **options):
    return audit_in_one_run(
        jax.random.key(seed), *pair, guesses=guesses, confidence=SURE, **options
    )


def test_audits_of_randomized_response():
    coins = 20_000
    pair = responses(coins, EPSILON)
    found = audited(pair, coins)
    assert 0.85 * EPSILON < found.epsilon <= EPSILON
    assert (found.guesses, found.canaries, found.confidence) == (coins, coins, SURE)
    assert found.epsilon == epsilon_lower_bound(found.correct, coins, confidence=SURE)
    assert found.p_value(0.5 * EPSILON) < FALSE_POSITIVE_RATE < found.p_value(EPSILON)
    assert 0.8 * EPSILON < audited(pair, coins, delta=1e-12).epsilon < found.epsilon
    assert audited(responses(coins, 1.2 * EPSILON), coins).epsilon > EPSILON  # the control
    for guesses in (0, coins + 1):
        with pytest.raises(ValueError, match="guesses"):
            audited(pair, guesses)


@pytest.mark.slow
def test_the_number_of_correct_guesses_of_many_runs():
    pair = responses(50, EPSILON)
    correct = [audited(pair, 30, seed).correct for seed in range(500)]
    counts = np.bincount(correct, minlength=31)
    for claim, agree in ((EPSILON, assert_counts_follow), (2 * EPSILON, assert_counts_rejected)):
        agree(counts, binom.pmf(np.arange(31), 30, 1 / (1 + np.exp(-claim))))


@pytest.mark.slow
def test_hostile_scores_are_guesses_like_others():
    """Rows whose distributions are NaN, equal, or of disjoint supports: an answer without a
    warning, certain rows first.
    """
    cost = np.zeros((20_000, 2))
    cost[:4] = [[np.nan, 0.0], [0.0, 0.0], [np.inf, 0.0], [0.0, 1.0]]
    pair = [Finite(jnp.arange(2.0), jnp.asarray(c), jnp.ones(())) for c in (cost, cost[:, ::-1])]
    for seed in range(8):
        assert audited(pair, 1, seed).correct == 1  # the third row gives itself away
    assert audited(pair, 4).epsilon == 0
