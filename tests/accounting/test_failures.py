"""Conditioning and retrying against exact enumeration of every pair of distributions that (epsilon,
delta)-DP allows.

Any two distributions that are (epsilon, delta)-indistinguishable are a post-processing of one
canonical pair with four outcomes (Kairouz, Oh and Viswanath 2015). A success set after
post-processing accepts outcome i with some probability a_i, and the distribution given success is a
post-processing of i given acceptance. So all acceptance vectors a in [0, 1]^4, here a grid, are all
mechanisms there are.
"""

import itertools
from fractions import Fraction
from math import exp, inf, log, tanh

import numpy as np
import pytest

from dpjax.accounting import Guarantee, absorb_failure, condition_on_success, retry_until_success

STEPS = (0.0, 0.05, 0.2, 0.5, 0.8, 0.95, 1.0)
ACCEPTANCE = np.array(list(itertools.product(STEPS, repeat=4)))
CASES = [(epsilon, delta) for epsilon in (0.1, 1.0, 3.0) for delta in (0.0, 1e-3, 0.1)]
ONE = Guarantee(1.0, 1.0, "swap")


def canonical(epsilon, delta):
    """The two distributions: delta of each is impossible for the other, the rest is randomized
    response.
    """
    common = (1 - delta) / (1 + exp(epsilon))
    p = np.array([delta, exp(epsilon) * common, common, 0.0])
    return p, p[::-1]


def hockey_stick(p, q, epsilon):
    """Exactly, in both directions, one epsilon a row."""
    grown = np.exp(epsilon)[..., None]
    return np.maximum(np.maximum(p - grown * q, 0).sum(-1), np.maximum(q - grown * p, 0).sum(-1))


def conditioned(p, q):
    return p / p.sum(-1, keepdims=True), q / q.sum(-1, keepdims=True)


def retried(mass, attempts, fallback):
    """The distribution of the first success, with outcomes beyond the four for the fallback."""
    failure = 1 - mass.sum(-1, keepdims=True)
    repeats = sum(failure**number for number in range(attempts))
    return np.concatenate([mass * repeats, failure**attempts * np.array(fallback)], axis=-1)


def assert_covered(function, answers, lost=0.0):
    """For all acceptance vectors the claim covers what is answered, exactly.

    Args:
        function: of a guarantee and a failure probability; returns the claim.
        answers: of the masses of both that are accepted; returns two distributions.
        lost: beside the failures and delta; a function of delta and failures.
    """
    for epsilon, delta in CASES:
        p, q = (distribution * ACCEPTANCE for distribution in canonical(epsilon, delta))
        failure = np.clip(1 - np.minimum(p.sum(-1), q.sum(-1)), 0.0, None)
        possible = (failure + delta < 0.999) & (delta + lost(delta, failure) < 0.99)
        p, q, failure = p[possible], q[possible], failure[possible]
        one = Guarantee(epsilon, inf, "swap", delta=delta)
        # Many acceptance vectors have the same
        different, which = np.unique(failure, return_inverse=True)
        found = [function(one, float(each)) for each in different]
        claim = np.array([(g.epsilon, g.delta) for g in found])[which].T
        exact = hockey_stick(*answers(p, q), claim[0])
        assert (exact <= claim[1] * (1 + 1e-9) + 1e-12).all(), (epsilon, delta)


def test_conditioning_covers_every_pair():
    assert_covered(condition_on_success, conditioned, lambda delta, failure: 0)


@pytest.mark.parametrize(
    ("fallback", "ends"), [("public", ((1, 0), (1, 0))), ("private", ((1, 0), (0, 1)))]
)
@pytest.mark.parametrize("attempts", [1, 2, 5])
def test_a_fixed_number_of_attempts_covers_every_pair(fallback, ends, attempts):
    assert_covered(
        lambda one, failure: retry_until_success(
            one, failure, attempts=attempts, fallback=fallback
        ),
        lambda *both: [retried(mass, attempts, end) for mass, end in zip(both, ends, strict=True)],
        lambda delta, failure: delta * (attempts - 1) + failure**attempts,
    )


def test_the_sharp_bound_is_never_above_the_theorem_and_is_attained_by_pure_mechanisms():
    for (epsilon, delta), failure in itertools.product(CASES, (0.0, 1e-9, 0.05, 0.3, 0.6, 0.85)):
        one = Guarantee(epsilon, inf, "swap", delta=delta)
        sharp, lost = condition_on_success(one, failure), delta / (1 - failure)
        assert sharp.epsilon <= (2 * epsilon - log(1 - lost)) * (1 + 1e-12)
        assert sharp.delta == pytest.approx(lost)
        # Failures where p is the larger: with p = q e^epsilon there, q' is failure e^-epsilon.
        p, q = canonical(epsilon, 0.0)
        if delta == 0 < failure <= min(p[1], 0.7):
            accepted = np.array([1, 1 - failure / p[1], 1, 1])
            worst = epsilon + log((q * accepted).sum() / (p * accepted).sum())
            assert sharp.epsilon == pytest.approx(worst, rel=1e-12)
    wide = condition_on_success(Guarantee(900.0, inf, "swap"), 0.5)
    assert wide.epsilon == pytest.approx(900 + log(2))
    for epsilon, failure, exact in ((1e-16, 0.9, 1e-15), (1e-9, 0.3, 1e-9 / 0.7)):
        found = condition_on_success(Guarantee(epsilon, inf, "swap"), failure).epsilon
        # Both success probabilities on their bounds: r = (1 - e^-eps failure) / success.
        assert min(exact, 2 * epsilon) * (1 - 1e-7) <= found <= 2 * epsilon


def test_a_bounded_range_survives_conditioning():
    """Distributions of range 1 whose loss is 1 too: every two masses, every set of successes."""
    for shift, a in itertools.product(
        np.linspace(0.01, 0.99, 9), itertools.product(STEPS, repeat=2)
    ):
        # Losses shift and shift - 1 leave no choice
        first = (1 - exp(shift - 1)) / (exp(shift) - exp(shift - 1))
        q = np.array([first, 1 - first])
        p, q = (one * np.array(a) for one in (q * np.exp([shift, shift - 1]), q))
        if min(p.sum(), q.sum()) < 1e-6:
            continue
        possible = p > 0
        ratio = np.log(np.divide(*conditioned(p[possible], q[possible])))
        claim = condition_on_success(ONE, float(np.clip(1 - min(p.sum(), q.sum()), 0, None)))
        assert (claim.epsilon <= 1.0, claim.bounded_range, claim.delta) == (True, 1.0, 0.0)
        assert np.abs(ratio).max() <= claim.epsilon * (1 + 1e-9) + 1e-12
        assert np.ptp(ratio) <= 1 + 1e-9


def test_control_an_understated_failure_breaks_the_guarantee():
    """The pair that attains the bound fails half the time, and is said to fail a tenth of it."""
    p, q = canonical(1.0, 0.0)
    accepted = np.array([1, 1 - 0.5 / p[1], 1, 1])
    pure = Guarantee(1.0, inf, "swap")
    said, right = (condition_on_success(pure, failure).epsilon for failure in (0.1, 0.5))
    pair = conditioned(p * accepted, q * accepted)
    assert hockey_stick(*pair, np.array(said)) >= 0.05
    assert hockey_stick(*pair, np.array(right)) <= 1e-12
    # The leftover, too: five attempts that mostly fail, and are said to fail in a tenth.
    said = retry_until_success(pure, 0.1, attempts=5, fallback="private")
    mass = np.array([0.3, 0.0, 0.0, 0.0])
    pair = retried(mass, 5, (1, 0)), retried(mass * exp(-1), 5, (0, 1))
    assert hockey_stick(*pair, np.array(said.epsilon)) >= 1e4 * said.delta
    # Successes that depend on the data: each of two neighbors accepts the outcome that it likes.
    pair = conditioned(p * [0, 1, 0, 0], q * [0, 0, 1, 0])
    assert hockey_stick(*pair, np.array(2.0)) == 1.0


def absorbed(epsilon, delta, left, right):
    """The exact delta of a mechanism and its neighbor with private answers wherever the outcome is
    rejected.
    """
    p, q = canonical(epsilon, delta)
    pair = [
        np.append(distribution * a, np.array(ends) * (distribution * (1 - a)).sum())
        for distribution, a, ends in ((p, left, (1, 0)), (q, right, (0, 1)))
    ]
    failure = max((p * (1 - left)).sum(), (q * (1 - right)).sum())
    return hockey_stick(*pair, np.array(epsilon)), float(failure)


def test_absorbing_covers_every_pair():
    """A grid of tests for both, which need not agree."""
    near = np.array(list(itertools.product((0.8, 0.98, 1.0), repeat=4)))[::-3]
    for epsilon, delta in CASES:
        one, covered = Guarantee(epsilon, epsilon, "swap", delta=delta, zcdp=1e-3), 0
        for left, right in itertools.product(near, repeat=2):
            exact, failure = absorbed(epsilon, delta, left, right)
            for test in ("private", "public") if (left == right).all() else ("private",):
                if delta + (1 + exp(epsilon)) * failure < 1:
                    claim = absorb_failure(one, failure, test=test)
                    assert exact <= claim.delta * (1 + 1e-9) + 1e-12
                    assert (claim.epsilon, claim.laplace) == (epsilon, inf)
                    assert claim.bounded_range == (inf if claim.delta else epsilon)
                    covered += 1
        assert covered >= 5


def test_control_the_published_delta_of_a_private_test():
    """What one of two neighbors replaces the other one keeps, with e^epsilon times the
    probability; and both replace something.
    """
    failure = 0.01
    p, q = canonical(1.0, 0.0)
    replace = np.array([1, 1 - failure / q[1], 1, 1])
    exact, found = absorbed(1.0, 0.0, np.ones(4), replace)
    assert found == pytest.approx(failure)
    assert exact == pytest.approx(exp(1.0) * failure, rel=1e-9)
    assert exact > 2.7 * absorb_failure(ONE, failure, test="public").delta
    exact, found = absorbed(1.0, 0.0, np.array([1, 1, 1 - failure / p[2], 1]), replace)
    assert exact == pytest.approx(absorb_failure(ONE, failure).delta, rel=1e-9)


def test_fields_of_the_results():
    one = Guarantee(1.0, 1.0, "edge", zcdp=0.125)
    for failure, attempts, fallback, delta, spread, zcdp in (
        (0.5, 1, "public", 0.0, 1.0, 0.125),
        (0.5, 1, "private", 0.5, inf, tanh(0.5)),
        (0.5, 20, "public", 2.0**-20, inf, tanh(0.5)),
        (0.0, 3, "public", 0.0, 1.0, 0.125),
    ):
        found = retry_until_success(one, failure, attempts=attempts, fallback=fallback)
        assert (found.epsilon, found.bounded_range, found.neighbors) == (1.0, spread, "edge")
        assert (found.delta, found.zcdp) == (pytest.approx(delta, rel=1e-12), pytest.approx(zcdp))
    wide = condition_on_success(Guarantee(1.0, 3.0, "edge"), 0.9)
    assert (wide.bounded_range, wide.epsilon) == (2.0, pytest.approx(2.0, rel=1e-12))
    # A leftover that underflows
    assert retry_until_success(ONE, 0.5, attempts=1100, fallback="private").delta > 0


def test_no_delta_is_rounded_down():
    """The control: quotients are."""
    below = 0
    for delta, failure in np.random.default_rng(0).uniform(0, 0.4, (200, 2)).tolist():
        one = Guarantee(0.5, inf, "swap", delta=delta)
        exact = Fraction(delta) / (1 - Fraction(failure))
        assert exact <= condition_on_success(one, failure).delta
        below += delta / (1 - failure) < exact
        added = absorb_failure(one, failure, test="public").delta
        assert Fraction(delta) + Fraction(failure) <= added
    assert below > 50
