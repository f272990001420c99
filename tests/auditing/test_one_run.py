"""One run: the published bound against independent sums, its exact confidence over all counts, and
our own mechanisms.
"""

from decimal import Decimal, getcontext
from fractions import Fraction
from functools import partial
from itertools import accumulate
from math import comb

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpjax import Finite
from dpjax.auditing.one_run import audit_in_one_run, correct_guesses, epsilon_lower_bound, p_value
from tests.auditing.pairs import BROKEN, EPSILON, HONEST, binomial, of_one_shape, row
from tests.support.statistics import (
    FALSE_POSITIVE_RATE,
    assert_counts_follow,
    assert_counts_rejected,
)

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
    """P[at least v correct] for randomized response, v = 0..guesses, integers over their total; the
    accuracy is cut to 80 bits.
    """
    getcontext().prec = 50
    right = int(2**80 / (1 + (-Decimal(epsilon)).exp()))
    masses = [
        comb(guesses, k) * right**k * (2**80 - right) ** (guesses - k) for k in range(guesses + 1)
    ]
    return list(accumulate(masses[::-1]))[::-1], 2 ** (80 * guesses)


def test_golden_bounds():
    guesses, correct = np.array(list(GOLDEN)).T
    np.testing.assert_allclose(
        epsilon_lower_bound(correct, guesses), list(GOLDEN.values()), rtol=0, atol=1e-10
    )


def test_golden_bounds_are_where_an_independent_tail_is_the_error():
    for (guesses, correct), epsilon in GOLDEN.items():
        if epsilon > 0:
            tails, total = exact_tails(guesses, epsilon)
            tail = float(Fraction(tails[correct], total))
            assert tail == pytest.approx(0.05, rel=1e-10)
            found = p_value(correct, guesses, epsilon=epsilon)
            assert tail <= found <= tail * (1 + 3e-10)


def test_the_correction_for_delta_is_that_of_the_theorem():
    """Theorem 5.2 with the maximum over all canaries, not only up to v, from fractions."""
    guesses, canaries = 30, 50
    for epsilon in (0.0, 0.7, 2.0):
        tails, total = exact_tails(guesses, epsilon)
        tails = [Fraction(tail, total) for tail in tails]
        for delta in (1e-6, 1e-3):
            wanted = []
            for v in range(guesses + 1):
                gains = [(tails[max(v - i, 0)] - tails[v]) / i for i in range(1, canaries + 1)]
                wanted.append(
                    min(1.0, float(tails[v] + 2 * canaries * Fraction(delta) * max(gains)))
                )
            found = p_value(
                np.arange(guesses + 1), guesses, epsilon=epsilon, canaries=canaries, delta=delta
            )
            np.testing.assert_allclose(found, wanted, rtol=1e-9)


def test_p_values_and_bounds_are_monotone_and_agree():
    correct = np.arange(101)
    bounds = epsilon_lower_bound(correct, 100)
    assert (np.diff(bounds) >= 0).all()
    assert bounds[58] == 0
    assert bounds[59] > 0
    shown = bounds > 0
    at = p_value(correct[shown], 100, epsilon=bounds[shown])
    assert (at <= 1 - 0.95).all()
    np.testing.assert_allclose(at, 0.05, rtol=1e-9)
    values = p_value(70, 100, epsilon=np.linspace(0, 5, 50))
    assert (np.diff(values) > -1e-12).all()
    assert (
        epsilon_lower_bound(70, 100, confidence=0.99)
        < bounds[70]
        < epsilon_lower_bound(70, 100, confidence=0.9)
    )
    with_delta = [
        float(epsilon_lower_bound(70, 100, canaries=1000, delta=delta))
        for delta in (0.0, 1e-7, 1e-5, 1e-3)
    ]
    assert with_delta[0] == bounds[70]
    assert with_delta == sorted(with_delta, reverse=True)
    assert with_delta[2] > 0.3
    assert with_delta[3] == 0  # 2 m delta is 2: nothing can be shown


def exceedance(guesses, epsilon, bounds, extra=0.0):
    """P[bound > epsilon] over all counts, for randomized response that tells the truth outright
    with probability ``extra``.
    """
    truthful = 1 / (1 + np.exp(-epsilon))
    return binomial(guesses, truthful + extra * (1 - truthful))[bounds > epsilon].sum()


@pytest.mark.parametrize("guesses", [1, 20, pytest.param(1000, marks=pytest.mark.slow)])
def test_the_confidence_holds_over_the_exact_distribution_of_the_count(guesses):
    counts = np.arange(guesses + 1)
    bounds = epsilon_lower_bound(counts, guesses)
    chances = [exceedance(guesses, epsilon, bounds) for epsilon in np.linspace(0, 4, 41)]
    assert max(chances) <= 0.05
    if guesses == 1000:
        assert max(chances) > 0.04
        with np.errstate(divide="ignore"):
            plug_in = np.log(counts / (guesses - counts))
        assert exceedance(guesses, 1.0, plug_in) > 0.4  # the control
    if guesses == 1:
        assert (bounds == 0).all()


def test_the_confidence_with_delta():
    """Each coin is told outright with probability delta. Without the correction the bound would be
    above too often.
    """
    guesses, epsilon, delta = 200, 0.5, 0.05
    counts = np.arange(guesses + 1)
    ignored = epsilon_lower_bound(counts, guesses)
    assert exceedance(guesses, epsilon, ignored, extra=delta) > 0.1
    kept = epsilon_lower_bound(counts, guesses, canaries=guesses, delta=delta)
    assert exceedance(guesses, epsilon, kept, extra=delta) <= 0.05
    small = epsilon_lower_bound(counts, guesses, canaries=guesses, delta=1e-6)
    assert 0 < exceedance(guesses, epsilon, small, extra=1e-6) <= 0.05


def test_mistakes_raise():
    for arguments, words in (
        ({"correct": 11, "guesses": 10}, "correct must be integers from 0 to guesses"),
        ({"correct": -1, "guesses": 10}, "correct must be"),
        ({"correct": 1.5, "guesses": 10}, "correct must be"),
        ({"correct": 1, "guesses": 10, "canaries": 9}, "at most canaries"),
        ({"correct": 1, "guesses": 10, "delta": 1e-6}, "canaries must be given"),
        ({"correct": 1, "guesses": 10, "delta": 1.0}, "delta must be"),
        ({"correct": 1, "guesses": 10, "confidence": 0.0}, "confidence must be"),
    ):
        with pytest.raises(ValueError, match=words):
            epsilon_lower_bound(**arguments)
    with pytest.raises(ValueError, match="epsilon must not be negative"):
        p_value(1, 2, epsilon=-1.0)


def randomized_response(canaries, epsilon):
    """The distributions of one coin of randomized response, with the canary and without it."""
    costs = jnp.array([[1.0, 0.0], [0.0, 1.0]])
    return [
        Finite(jnp.arange(2.0), jnp.broadcast_to(cost, (canaries, 2)), epsilon * jnp.ones(()))
        for cost in costs
    ]


@pytest.mark.slow
def test_audits_of_randomized_response():
    with_canary, without_canary = randomized_response(20_000, EPSILON)
    found = audit_in_one_run(
        jax.random.key(0), with_canary, without_canary, guesses=20_000, confidence=SURE
    )
    assert 0.85 * EPSILON < found.epsilon <= EPSILON
    assert (found.guesses, found.canaries, found.confidence, found.delta) == (
        20_000,
        20_000,
        SURE,
        0.0,
    )
    assert found.epsilon == epsilon_lower_bound(found.correct, 20_000, confidence=SURE)
    assert found.p_value(0.5 * EPSILON) < FALSE_POSITIVE_RATE < found.p_value(EPSILON)
    with_delta = audit_in_one_run(
        jax.random.key(0), with_canary, without_canary, guesses=20_000, confidence=SURE, delta=1e-12
    )
    assert 0.8 * EPSILON < with_delta.epsilon < found.epsilon
    broken = randomized_response(20_000, 1.2 * EPSILON)  # the control
    assert (
        audit_in_one_run(jax.random.key(0), *broken, guesses=20_000, confidence=SURE).epsilon
        > EPSILON
    )
    for guesses in (0, 20_001, 1.5):
        with pytest.raises(
            ValueError, match="guesses must be an integer from 1 to the 20000 canaries"
        ):
            audit_in_one_run(jax.random.key(0), with_canary, without_canary, guesses=guesses)
    with pytest.raises(ValueError, match="one batch shape"):
        audit_in_one_run(
            jax.random.key(0), with_canary, randomized_response(3, EPSILON)[1], guesses=2
        )
    with pytest.raises(TypeError, match="typed key"):
        audit_in_one_run(0, with_canary, without_canary, guesses=2)


@pytest.mark.slow
def test_the_number_of_correct_guesses_of_many_runs():
    with_canary, without_canary = randomized_response(50, EPSILON)
    run = jax.jit(
        jax.vmap(
            partial(
                correct_guesses, with_canary=with_canary, without_canary=without_canary, guesses=30
            )
        )
    )
    correct = np.asarray(run(jax.random.split(jax.random.key(1), 20_000)))
    counts = np.bincount(correct, minlength=31)
    for claim, agree in ((EPSILON, assert_counts_follow), (1.1 * EPSILON, assert_counts_rejected)):
        agree(counts, binomial(30, 1 / (1 + np.exp(-claim))))
    assert np.mean(epsilon_lower_bound(correct, 30) > EPSILON) <= 0.05


def audit_of(distribution, guesses=2000, canaries=40_000):
    distribution = of_one_shape(distribution)
    with_canary, without_canary = (row(distribution, index, (canaries,)) for index in (0, 1))
    return audit_in_one_run(
        jax.random.key(2), with_canary, without_canary, guesses=guesses, confidence=SURE
    ).epsilon


@pytest.mark.slow
@pytest.mark.parametrize("name", HONEST)
def test_honest_mechanisms_stay_below_the_claim(name):
    found = audit_of(HONEST[name]())
    assert 0.4 * EPSILON <= found <= EPSILON


@pytest.mark.slow
@pytest.mark.parametrize("name", BROKEN)
def test_control_broken_mechanisms_are_caught(name):
    assert audit_of(BROKEN[name]()) > EPSILON


@pytest.mark.slow
def test_hostile_scores_are_guesses_like_others():
    """Rows whose distributions are NaN, equal, or of disjoint supports: an answer without a
    warning, certain rows first.
    """
    cost = (
        jnp.zeros((20_000, 2))
        .at[:4]
        .set(jnp.array([[jnp.nan, 0.0], [0.0, 0.0], [jnp.inf, 0.0], [0.0, 1.0]]))
    )
    with_canary, without_canary = (
        Finite(jnp.arange(2.0), costs, jnp.ones(())) for costs in (cost, cost[:, ::-1])
    )
    for seed in range(3):
        # The third row gives itself away
        assert int(correct_guesses(jax.random.key(seed), with_canary, without_canary, 1)) == 1
    assert audit_in_one_run(jax.random.key(0), with_canary, without_canary, guesses=4).epsilon == 0
