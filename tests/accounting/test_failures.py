"""Conditioning and retrying against exact enumeration of every pair of distributions that (epsilon,
delta)-DP allows.

Any two distributions that are (epsilon, delta)-indistinguishable are a post-processing of one
canonical pair with four outcomes (Kairouz, Oh and Viswanath 2015). A success set after
post-processing accepts outcome i with some probability a_i, and the distribution given success is a
post-processing of i given acceptance. So all acceptance vectors a in [0, 1]^4, here a grid, are all
mechanisms there are.
"""

import itertools
import json
import pathlib
from math import exp, inf, log

import numpy as np
import pytest

from dpjax.accounting.failures import (
    absorb_failure,
    attempts_for,
    condition_on_success,
    retry_until_success,
)
from dpjax.accounting.guarantee import Guarantee

GOLDEN = json.loads(
    (pathlib.Path(__file__).parent.parent / "golden" / "F_accounting.json").read_text()
)
PUBLISHED = GOLDEN["conditioning_thm1"]["eb=0.5,db=1e-6,beta=0.5"]
STEPS = (0.0, 0.05, 0.2, 0.5, 0.8, 0.95, 1.0)
ACCEPTANCE = np.array(list(itertools.product(STEPS, repeat=4)))
CASES = [(epsilon, delta) for epsilon in (0.1, 1.0, 3.0) for delta in (0.0, 1e-3, 0.1)]


def canonical(epsilon, delta):
    """The two distributions: delta of each is impossible for the other, the rest is randomized
    response.
    """
    common = (1 - delta) / (1 + exp(epsilon))
    p = np.array([delta, exp(epsilon) * common, common, 0.0])
    return p, p[::-1]


def pairs(epsilon, delta):
    """Accepted masses of all acceptance vectors under both, ``(vectors, 4)`` each, and the larger
    failure probability.
    """
    p, q = (distribution * ACCEPTANCE for distribution in canonical(epsilon, delta))
    failure = 1 - np.minimum(p.sum(-1), q.sum(-1))
    possible = failure + delta < 0.999
    return p[possible], q[possible], np.clip(failure[possible], 0.0, None)


def hockey_stick(p, q, epsilon):
    """Exactly, in both directions, one epsilon a row."""
    grown = np.exp(epsilon)[:, None]
    return np.maximum(np.maximum(p - grown * q, 0).sum(-1), np.maximum(q - grown * p, 0).sum(-1))


def guarantees(function, failures, **options):
    """Epsilon and delta of a guarantee at each failure probability; many acceptance vectors have
    the same.
    """
    different, which = np.unique(failures, return_inverse=True)
    found = [function(failure=float(failure), **options) for failure in different]
    return np.array([g.epsilon for g in found])[which], np.array([g.delta for g in found])[which]


def conditioned(p, q):
    return p / p.sum(-1, keepdims=True), q / q.sum(-1, keepdims=True)


def retried(mass, attempts, fallback):
    """The distribution of the first success, with outcomes beyond the four for the fallback."""
    failure = 1 - mass.sum(-1, keepdims=True)
    repeats = sum(failure**number for number in range(attempts))
    leftover = failure**attempts * np.array(
        {"public": [1.0, 0.0], "private p": [1.0, 0.0], "private q": [0.0, 1.0]}[fallback]
    )
    return np.concatenate([mass * repeats, leftover], axis=-1)


def test_the_published_case():
    found = condition_on_success(Guarantee(0.5, inf, "swap", delta=1e-6), 0.5, bound="published")
    assert (found.epsilon, found.delta) == pytest.approx([float(x) for x in PUBLISHED], rel=1e-12)
    for epsilon, delta, failure in itertools.product(
        (0.1, 1.0, 4.0), (0.0, 1e-6, 0.1), (0.0, 0.3, 0.8)
    ):
        found = condition_on_success(
            Guarantee(epsilon, inf, "swap", delta=delta), failure, bound="published"
        )
        assert found.epsilon == pytest.approx(
            2 * epsilon - log(1 - delta / (1 - failure)), rel=1e-12
        )
        assert found.delta == pytest.approx(delta / (1 - failure), rel=1e-12)


@pytest.mark.parametrize("bound", ["sharp", "published"])
def test_conditioning_covers_every_pair(bound):
    for epsilon, delta in CASES:
        p, q, failures = pairs(epsilon, delta)
        claim = guarantees(
            condition_on_success,
            failures,
            guarantee=Guarantee(epsilon, inf, "swap", delta=delta),
            bound=bound,
        )
        exact = hockey_stick(*conditioned(p, q), claim[0])
        assert (exact <= claim[1] * (1 + 1e-9) + 1e-12).all(), (epsilon, delta)


def test_the_sharp_bound_is_never_above_the_theorem_and_is_attained_by_pure_mechanisms():
    for epsilon, delta in CASES:
        for failure in (0.0, 1e-9, 0.05, 0.3, 0.6, 0.85):
            one = Guarantee(epsilon, inf, "swap", delta=delta)
            sharp, published = (
                condition_on_success(one, failure, bound=bound) for bound in ("sharp", "published")
            )
            assert sharp.epsilon <= published.epsilon * (1 + 1e-12)
            assert sharp.delta == published.delta
            if delta == 0 and 0 < failure <= 0.7:
                # Failures where p is the larger: with p = q e^epsilon there, q' is failure
                # e^-epsilon.
                p, q = canonical(epsilon, 0.0)
                if failure <= p[1]:
                    accepted = np.array([1, 1 - failure / p[1], 1, 1])
                    worst = epsilon + log((q * accepted).sum() / (p * accepted).sum())
                    assert sharp.epsilon == pytest.approx(worst, rel=1e-12)
    assert condition_on_success(Guarantee(1.0, inf, "swap"), 0.0).epsilon == 1.0
    assert condition_on_success(Guarantee(900.0, inf, "swap"), 0.5).epsilon == pytest.approx(
        900 + log(2)
    )


def test_a_bounded_range_survives_conditioning():
    """Distributions of range 1 whose loss is 1 too: every two masses, every set of successes."""
    one, claims = Guarantee(1.0, 1.0, "swap"), set()
    for shift in np.linspace(0.01, 0.99, 9):
        # Losses shift and shift - 1 leave no choice
        first = (1 - exp(shift - 1)) / (exp(shift) - exp(shift - 1))
        q = np.array([first, 1 - first])
        p = q * np.exp([shift, shift - 1])
        assert p.sum() == pytest.approx(1)
        for a in itertools.product(STEPS, repeat=2):
            accepted = np.array(a)
            if min((p * accepted).sum(), (q * accepted).sum()) < 1e-6:
                continue
            with np.errstate(invalid="ignore", divide="ignore"):
                ratio = np.log((p * accepted) / (p * accepted).sum()) - np.log(
                    (q * accepted) / (q * accepted).sum()
                )
            ratio = ratio[accepted > 0]
            failure = float(np.clip(1 - min((p * accepted).sum(), (q * accepted).sum()), 0, None))
            claim = condition_on_success(one, failure)
            claims.add((claim.epsilon <= 1.0, claim.bounded_range, claim.delta))
            assert np.abs(ratio).max() <= claim.epsilon * (1 + 1e-9) + 1e-12
            assert np.ptp(ratio) <= 1 + 1e-9
    assert claims == {(True, 1.0, 0.0)}


def test_renyi_divergences_given_success():
    """Random pairs on four outcomes, of which the first is a failure; without what is added for the
    condition they pass it.
    """
    orders, rng, passed = 1 + np.geomspace(1e-2, 1e2, 60), np.random.default_rng(0), 0

    def divergences(p, q):
        return np.log(np.sum(p ** orders[:, None] * q ** (1 - orders[:, None]), axis=1)) / (
            orders - 1
        )

    for failure in (0.1, 0.3, 0.9):
        others = rng.dirichlet(3 * np.ones(3), size=(20, 2)) * (1 - failure)
        for p, q in np.insert(others, 0, failure, axis=-1):
            attempt = Guarantee(
                neighbors="swap",
                zcdp=max((divergences(*both) / orders).max() for both in ((p, q), (q, p))),
            )
            found = condition_on_success(attempt, failure).rdp(orders)
            exact = divergences(p[1:] / (1 - failure), q[1:] / (1 - failure))
            assert (exact <= found * (1 + 1e-9)).all()
            passed += int((exact > attempt.rdp(orders) * (1 + 1e-9)).sum())
    assert passed > 100  # control
    with pytest.raises(ValueError, match="finite epsilon"):
        condition_on_success(Guarantee(neighbors="swap", delta=1e-6, zcdp=0.1), 0.1)


@pytest.mark.parametrize("fallback", ["public", "private"])
def test_a_fixed_number_of_attempts_covers_every_pair(fallback):
    for (epsilon, delta), attempts in itertools.product(CASES, (1, 2, 5)):
        p, q, failures = pairs(epsilon, delta)
        rest = (
            delta * attempts + failures**attempts < 0.99
            if attempts > 1
            else delta + failures < 0.99
        )
        p, q, failures = p[rest], q[rest], failures[rest]
        one = Guarantee(epsilon, inf, "swap", delta=delta)
        claim = guarantees(
            retry_until_success, failures, guarantee=one, attempts=attempts, fallback=fallback
        )
        ends = ("public", "public") if fallback == "public" else ("private p", "private q")
        distributions = [
            retried(mass, attempts, end) for mass, end in zip((p, q), ends, strict=True)
        ]
        exact = hockey_stick(*distributions, claim[0])
        assert (exact <= claim[1] * (1 + 1e-9) + 1e-12).all(), (epsilon, delta, attempts)


def test_control_an_understated_failure_breaks_the_guarantee():
    """The pair that attains the bound fails half the time, and is said to fail a tenth of it."""
    epsilon = 1.0
    p, q = canonical(epsilon, 0.0)
    accepted = np.array([1, 1 - 0.5 / p[1], 1, 1])
    said = condition_on_success(Guarantee(epsilon, inf, "swap"), 0.1)
    distributions = conditioned((p * accepted)[None], (q * accepted)[None])
    assert hockey_stick(*distributions, np.array([said.epsilon]))[0] >= 0.05
    right = condition_on_success(Guarantee(epsilon, inf, "swap"), 0.5)
    assert hockey_stick(*distributions, np.array([right.epsilon]))[0] <= 1e-12
    # The leftover, too: five attempts that mostly fail, and are said to fail in a tenth.
    p, q = np.array([[0.3, 0.0, 0.0, 0.0]]), np.array([[0.3 * exp(-1), 0.0, 0.0, 0.0]])
    said = retry_until_success(Guarantee(1.0, inf, "swap"), 0.1, attempts=5, fallback="private")
    distributions = retried(p, 5, "private p"), retried(q, 5, "private q")
    assert hockey_stick(*distributions, np.array([said.epsilon]))[0] >= 1e4 * said.delta


def test_control_successes_that_depend_on_the_data_break_it():
    """Each of two neighbors accepts the outcome that it likes: nothing of what one returns is
    possible for the other.
    """
    p, q = canonical(1.0, 0.0)
    distributions = conditioned((p * [0, 1, 0, 0])[None], (q * [0, 0, 1, 0])[None])
    assert hockey_stick(*distributions, np.array([2.0]))[0] == 1.0


def absorbed(epsilon, delta, left, right):
    """The exact delta of a mechanism and its neighbor with private answers wherever the outcome is
    rejected.
    """
    p, q = canonical(epsilon, delta)
    distributions = [
        np.concatenate([distribution * a, np.array(ends) * (distribution * (1 - a)).sum()])[None]
        for distribution, a, ends in ((p, left, (1, 0)), (q, right, (0, 1)))
    ]
    failure = max((p * (1 - left)).sum(), (q * (1 - right)).sum())
    return hockey_stick(*distributions, np.array([epsilon]))[0], float(failure)


def test_absorbing_covers_every_pair():
    """A grid of tests for both, which need not agree."""
    near = np.array(list(itertools.product((0.8, 0.98, 1.0), repeat=4)))[::-3]
    for epsilon, delta in CASES:
        one, covered = Guarantee(epsilon, 0.3, "swap", delta=delta, zcdp=1.0), 0
        for left, right in itertools.product(near, repeat=2):
            exact, failure = absorbed(epsilon, delta, left, right)
            for test in ("private", "public") if (left == right).all() else ("private",):
                if delta + (1 + exp(epsilon)) * failure < 1:
                    claim = absorb_failure(one, failure, test=test)
                    assert exact <= claim.delta * (1 + 1e-9) + 1e-12
                    assert (claim.epsilon, claim.bounded_range, claim.zcdp) == (epsilon, inf, inf)
                    covered += 1
        assert covered >= 5


def test_control_the_published_delta_of_a_private_test():
    """What one of two neighbors replaces the other one keeps, with e^epsilon times the
    probability; and both replace something.
    """
    epsilon, failure = 1.0, 0.01
    p, q = canonical(epsilon, 0.0)
    keep, replace = np.ones(4), np.array([1, 1 - failure / q[1], 1, 1])
    exact, found = absorbed(epsilon, 0.0, keep, replace)
    assert found == pytest.approx(failure)
    assert exact == pytest.approx(exp(epsilon) * failure, rel=1e-9)
    assert (
        exact > 2.7 * absorb_failure(Guarantee(epsilon, inf, "swap"), failure, test="public").delta
    )
    exact, found = absorbed(epsilon, 0.0, np.array([1, 1, 1 - failure / p[2], 1]), replace)
    assert exact == pytest.approx(
        absorb_failure(Guarantee(epsilon, inf, "swap"), failure).delta, rel=1e-9
    )


def test_fields_of_the_results():
    one = Guarantee(1.0, 1.0, "edge", zcdp=0.125)
    assert retry_until_success(one, 0.5, attempts=1, fallback="public") == one
    assert retry_until_success(one, 0.5, attempts=1, fallback="private") == Guarantee(
        1.0, inf, "edge", delta=0.5
    )
    assert retry_until_success(one, 0.5, attempts=20, fallback="public") == Guarantee(
        1.0, inf, "edge", delta=2.0**-20
    )
    assert retry_until_success(one, 0.0, attempts=3, fallback="public") == Guarantee(
        1.0, 1.0, "edge"
    )
    assert condition_on_success(Guarantee(1.0, 3.0, "edge"), 0.9).bounded_range == 2.0
    assert condition_on_success(Guarantee(1.0, 3.0, "edge"), 0.9).epsilon == pytest.approx(
        2.0, rel=1e-12
    )


def test_attempts_are_the_fewest():
    for failure, leftover in itertools.product(
        (1e-3, 0.25, 0.5, 0.9, 0.999), (0.5, 2.0**-20, 1e-12)
    ):
        count = attempts_for(failure, leftover=leftover)
        assert failure**count <= leftover
        assert count == 1 or failure ** (count - 1) > leftover


def test_bad_parameters_raise():
    one = Guarantee(1.0, 1.0, "swap")
    for failure in (-0.1, 1.0, float("nan")):
        for call in (absorb_failure, condition_on_success):
            with pytest.raises(ValueError, match="failure"):
                call(one, failure)
    for attempts in (0, 1.5, True):
        with pytest.raises(ValueError, match="attempts"):
            retry_until_success(one, 0.5, attempts=attempts, fallback="public")
    with pytest.raises(ValueError, match="fallback"):
        retry_until_success(one, 0.5, attempts=2, fallback="none")
    with pytest.raises(ValueError, match="bound"):
        condition_on_success(one, 0.5, bound="best")
    with pytest.raises(ValueError, match="finite epsilon"):
        retry_until_success(
            Guarantee(neighbors="swap", zcdp=1.0), 0.5, attempts=2, fallback="public"
        )
    with pytest.raises(ValueError, match="below 1 - failure"):
        condition_on_success(Guarantee(1.0, inf, "swap", delta=0.5), 0.5)
    with pytest.raises(ValueError, match="nothing is promised"):
        absorb_failure(Guarantee(1.0, inf, "swap", delta=0.3), 0.2)
    with pytest.raises(ValueError, match="test"):
        absorb_failure(one, 0.2, test="none")
    with pytest.raises(ValueError, match="leftover"):
        attempts_for(0.5, leftover=0.0)
    with pytest.raises(TypeError, match="Guarantee"):
        condition_on_success(1.0, 0.5)


def test_extreme_numbers_promise_nothing_too_small():
    for epsilon in (705.0, 750.0):
        with pytest.raises(ValueError, match="nothing is promised"):
            absorb_failure(Guarantee(epsilon, inf, "swap"), 1e-300)
    assert (
        retry_until_success(
            Guarantee(1.0, 1.0, "swap"), 0.5, attempts=1100, fallback="private"
        ).delta
        > 0
    )
    for epsilon, failure, exact in (
        (1e-16, 0.9, 2e-16 * 5),
        (1e-15, 0.3, 1.0e-15 / 0.7),
        (1e-9, 0.3, 1e-9 / 0.7),
    ):
        found = condition_on_success(Guarantee(epsilon, inf, "swap"), failure).epsilon
        # Both success probabilities on their bounds: r = (1 - e^-eps failure) / success.
        assert min(exact, 2 * epsilon) * (1 - 1e-7) <= found <= 2 * epsilon
