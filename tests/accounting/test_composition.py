"""Composition theorems: golden numbers, brute force over outcomes, and pairs that attain them."""

import itertools
import json
import pathlib
from fractions import Fraction
from math import comb, exp, expm1, inf

import numpy as np
import pytest

from dpjax.accounting import Guarantee, epsilon_per_query, for_groups
from dpjax.accounting import composition_theorems as composition

GOLDEN = json.loads(
    (pathlib.Path(__file__).parents[1] / "golden" / "F_accounting.json").read_text()
)["br_composition"]
CASES = {key: [float(part.split("=")[1]) for part in key.split(",")] for key in GOLDEN}


@pytest.mark.parametrize("key", CASES)
def test_golden_compositions(key):
    count, each, epsilon = CASES[key]
    count, value = int(count), GOLDEN[key]
    fixed = composition.bounded_range_delta(each, count=count, epsilon=epsilon, queries="fixed")
    np.testing.assert_allclose(fixed, float(value["delta_formula"]), rtol=1e-12)
    for part, name in ((1, "optimal_DP_eps"), (0.5, "optimal_DP_half_eps")):
        pure = composition.optimal_pure_delta([part * each], [count], epsilon=epsilon)
        np.testing.assert_allclose(pure, float(value[name]), rtol=1e-12)
    adaptive = composition.bounded_range_delta(
        each, count=count, epsilon=epsilon, queries="adaptive"
    )
    assert fixed < adaptive < float(value["zcdp_bound"])
    if value["adaptive_float"] is not None:  # a search from below; ours is an upper bound
        assert 0 < adaptive / float(value["adaptive_float"]) - 1 < 3e-4
        # What the formula for fixed queries would leave out
        assert count == 2 or fixed < 0.98 * adaptive


@pytest.mark.slow
def test_binomial_probabilities_are_those_of_fractions():
    for trials in (1, 2, 7, 16, 100):
        for probability in (1e-9, 0.01, 0.3, 0.5, 0.77, 1 - 1e-7):
            p = Fraction(probability)
            successes = sorted({0, 1, trials // 3, trials // 2, trials - 1, trials})
            each = [float(comb(trials, k) * p**k * (1 - p) ** (trials - k)) for k in successes]
            found = composition._binomial(trials, probability, float(1 - p))
            np.testing.assert_allclose(found[successes], each, rtol=1e-12, atol=1e-300)
    assert composition._binomial(5, 0.0, 1.0).tolist() == [1, 0, 0, 0, 0, 0]
    assert composition._binomial(5, 1.0, 0.0).tolist() == [0, 0, 0, 0, 0, 1]
    # A complement that 1 - probability cannot express.
    assert composition._binomial(10**7, 1.0, 1e-20)[-2] == pytest.approx(1e-13, rel=1e-6)


def outcomes(epsilons):
    """Probabilities of all outcomes of independent randomised responses, under both inputs."""
    p, q = [], []
    for signs in itertools.product((1, 0), repeat=len(epsilons)):
        yes = [exp(e) / (1 + exp(e)) for e in epsilons]
        p.append(np.prod([y if s else 1 - y for y, s in zip(yes, signs, strict=True)]))
        q.append(np.prod([1 - y if s else y for y, s in zip(yes, signs, strict=True)]))
    return np.array(p), np.array(q)


def test_pure_composition_is_that_of_randomised_responses():
    epsilons = [0.3, 0.3, 0.7, 1.1, 0.7, 0.05]
    p, q = outcomes(epsilons)
    for epsilon in (0.0, 0.4, 1.0, 2.5, 3.1):
        found = composition.optimal_pure_delta([0.3, 0.7, 1.1, 0.05], [2, 2, 1, 1], epsilon=epsilon)
        np.testing.assert_allclose(found, np.maximum(p - exp(epsilon) * q, 0).sum(), rtol=1e-12)
        if found > 0:
            back = composition.optimal_pure_epsilon(epsilons, [1] * 6, delta=found)
            assert epsilon - 1e-9 <= back <= epsilon + 1e-9
    assert composition.optimal_pure_delta([0.3], [2], epsilon=0.61) == 0
    assert composition.optimal_pure_epsilon([0.3], [2], delta=0.0) == 0.6
    at = {"count": 50, "delta": 1e-6}
    optimal = composition.optimal_pure_epsilon([0.1], [50], delta=1e-6)
    assert optimal < composition.advanced_epsilon(0.1, **at) < 2 * optimal
    with pytest.raises(ValueError, match="outcomes"):
        composition.optimal_pure_delta(list(np.linspace(0.1, 0.2, 30)), [1] * 30, epsilon=1.0)


def fixed_pair(each, count, epsilon, t):
    """The excess of k mechanisms with losses t and t - each."""
    up = expm1(t - each) / expm1(-each)
    excess = 0.0
    for wrong in range(count + 1):
        loss = count * t - wrong * each
        excess += (
            comb(count, wrong)
            * up ** (count - wrong)
            * (1 - up) ** wrong
            * max(1 - exp(epsilon - loss), 0)
        )
    return excess


@pytest.mark.parametrize(
    ("each", "count", "epsilon"), [(0.4, 6, 0.7), (2.0, 3, 1.0), (0.05, 40, 0.0)]
)
def test_fixed_queries_attain_the_formula_and_no_pair_passes_it(each, count, epsilon):
    found = composition.bounded_range_delta(each, count=count, epsilon=epsilon, queries="fixed")
    tried = np.array(
        [fixed_pair(each, count, epsilon, t) for t in np.linspace(1e-9, each - 1e-9, 4001)]
    )
    assert tried.max() <= found * (1 + 1e-12)
    assert tried.max() > 0.9999 * found
    back = composition.bounded_range_epsilon(each, count=count, delta=found, queries="fixed")
    assert abs(back - epsilon) < 1e-7


def adaptive_by_search(each, count, epsilon, points):
    """The recursion over a grid of t: from below, since the best t may lie between."""
    if count == 0:
        return max(-expm1(epsilon), 0.0)
    best = 0.0
    for t in np.linspace(0, each, points):
        up = expm1(t - each) / expm1(-each)
        later = [
            adaptive_by_search(each, count - 1, epsilon - loss, points) for loss in (t, t - each)
        ]
        best = max(best, up * later[0] + (1 - up) * later[1])
    return best


@pytest.mark.parametrize(
    ("each", "count", "epsilon"),
    [
        (3.0, 2, 1.0),
        *(pytest.param(*case, marks=pytest.mark.slow) for case in ((0.4, 3, 0.3), (1.0, 3, 0.0))),
    ],
)
def test_adaptive_queries_stay_below_the_recursion(each, count, epsilon):
    found = composition.bounded_range_delta(each, count=count, epsilon=epsilon, queries="adaptive")
    by_search = adaptive_by_search(each, count, epsilon, 41)
    assert by_search <= found <= 1.01 * by_search
    fixed = composition.bounded_range_delta(each, count=count, epsilon=epsilon, queries="fixed")
    assert fixed <= found * (1 + 1e-12)
    back = composition.bounded_range_epsilon(each, count=count, delta=found, queries="adaptive")
    assert abs(back - epsilon) < 2e-3 * each
    assert back >= epsilon - 1e-4 * each


def test_ends_of_bounded_range():
    for queries in ("fixed", "adaptive"):
        at = {"count": 4, "queries": queries}
        assert composition.bounded_range_epsilon(0.5, delta=0.0, **at) == 2.0
        assert composition.bounded_range_delta(0.5, epsilon=2.0, **at) < 1e-12
        assert composition.bounded_range_epsilon(0.5, delta=0.999, **at) == pytest.approx(
            0, abs=0.02
        )
        large = composition.bounded_range_delta(64.0, count=2, epsilon=3.0, queries=queries)
        assert 0.99 < large <= 1


def test_what_composition_refuses():
    at = {"count": 3, "epsilon": 0.5}
    with pytest.raises(TypeError, match="queries"):
        # No one gets the formula for fixed queries by default
        composition.bounded_range_delta(0.5, **at)
    for call, message in (
        (lambda: composition.bounded_range_delta(0.5, **at, queries="non-adaptive"), "queries"),
        (lambda: composition.bounded_range_delta(-0.5, **at, queries="fixed"), "positive"),
        (
            lambda: composition.bounded_range_delta(0.5, count=0, epsilon=0.5, queries="fixed"),
            "counts",
        ),
        (
            lambda: composition.bounded_range_delta(0.5, count=3, epsilon=-0.5, queries="fixed"),
            "epsilon",
        ),
        (
            lambda: composition.bounded_range_epsilon(0.5, count=3, delta=1.0, queries="fixed"),
            "delta",
        ),
        (lambda: composition.optimal_pure_delta([0.5], [1, 2], epsilon=0.5), "count"),
        (lambda: composition.advanced_epsilon(0.5, count=3, delta=0.0), "delta"),
    ):
        with pytest.raises(ValueError, match=message):
            call()


def test_narrow_types_and_extreme_ranges():
    exact = composition.bounded_range_delta(0.5, count=127, epsilon=1.0, queries="fixed")
    assert (
        composition.bounded_range_delta(
            np.float32(0.5), count=np.int8(127), epsilon=1.0, queries="fixed"
        )
        == exact
    )
    assert composition.advanced_epsilon(
        0.1, count=np.uint8(200), delta=1e-6
    ) == composition.advanced_epsilon(0.1, count=200, delta=1e-6)
    for r in (1e-300, 1e-12, 1e-3):
        fixed, adaptive = (
            composition.bounded_range_delta(r, count=2, epsilon=1.5 * r, queries=q)
            for q in ("fixed", "adaptive")
        )
        assert 0 < fixed <= adaptive
        epsilons = [
            composition.bounded_range_epsilon(r, count=3, delta=r / 100, queries=q)
            for q in ("fixed", "adaptive")
        ]
        assert 1.5 * r < epsilons[0] <= epsilons[1] * (1 + 1e-9) <= 3.1 * r
    for r in (300.0, 1e4):
        fixed, adaptive = (
            composition.bounded_range_delta(r, count=3, epsilon=2.5 * r, queries=q)
            for q in ("fixed", "adaptive")
        )
        pure = composition.optimal_pure_delta([r], [3], epsilon=2.5 * r)
        assert 0 < fixed <= adaptive <= pure
    many = composition.optimal_pure_delta([1e-3], [10**6], epsilon=5.0)
    assert many == pytest.approx(5.793345416e-7, rel=1e-9)  # 30 digits, computed apart
    for bad in ("0.5", True):
        with pytest.raises(TypeError, match="must be one number"):
            composition.bounded_range_epsilon(bad, count=2, delta=0.0, queries="fixed")


def test_no_total_is_rounded_down():
    """At a delta that only the sum of all epsilons reaches, it is that sum."""
    r = 0.7609624449125756
    assert 9 * Fraction(r) > Fraction(9 * r)  # the control: the product is rounded down
    for found in (
        composition.optimal_pure_epsilon([r], [9], delta=0),
        composition.bounded_range_epsilon(r, count=9, delta=0, queries="adaptive"),
        composition.bounded_range_epsilon(r, count=9, delta=0, queries="fixed"),
    ):
        assert found == pytest.approx(9 * r)
        assert Fraction(found) >= 9 * Fraction(r)
    assert composition.bounded_range_delta(r, count=9, epsilon=9 * r, queries="adaptive") > 0
    many = 2 * Guarantee(30.0, inf, "swap") + 20 * Guarantee(0.1, inf, "swap")
    assert Fraction(many.epsilon_at(1e-30)) >= 60 + 20 * Fraction(0.1)


def test_a_delta_that_underflows_is_no_pure_promise():
    assert composition.optimal_pure_delta([0.01], [1500], epsilon=14.9) > 0
    assert (1500 * Guarantee(0.01, inf, "swap")).delta_at(14.9) > 0
    assert (2000 * Guarantee(1e-3, 2e-3, "swap")).delta_at(1.9) > 0
    assert composition.optimal_pure_delta([0.01], [1500], epsilon=15.1) == 0  # the control
    assert Guarantee(5e-324, 5e-324, "swap").rho > 0


def test_groups_and_even_shares_are_rounded_to_the_safe_side():
    rng = np.random.default_rng(0)
    short = 0
    for _ in range(300):
        epsilon, size = float(rng.uniform(0, 3)), int(rng.integers(2, 20))
        short += Fraction(size * epsilon) < size * Fraction(epsilon)
        assert Fraction(for_groups(Guarantee(epsilon, inf, "swap"), size=size).epsilon) >= (
            size * Fraction(epsilon)
        )
        each = epsilon_per_query(count=size, epsilon=epsilon, delta=0)
        assert size * Fraction(each) <= Fraction(epsilon)
        assert each == pytest.approx(epsilon / size)
    assert short > 10  # the control: products are rounded down
