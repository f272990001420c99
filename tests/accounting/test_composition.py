"""Composition theorems: golden numbers, brute force over outcomes, and pairs that attain them."""

import json
import pathlib
from fractions import Fraction
from math import comb, exp, expm1

import numpy as np
import pytest

from dpjax.accounting import (
    bounded_range_delta,
    bounded_range_epsilon,
    optimal_pure_delta,
    optimal_pure_epsilon,
)

GOLDEN = json.loads(
    (pathlib.Path(__file__).parents[1] / "golden" / "F_accounting.json").read_text()
)["br_composition"]


@pytest.mark.parametrize("key", GOLDEN)
def test_golden_compositions(key):
    count, each, epsilon = (float(part.split("=")[1]) for part in key.split(","))
    count, value = int(count), GOLDEN[key]
    at = {"count": count, "epsilon": epsilon}
    fixed = bounded_range_delta(each, **at, queries="fixed")
    assert fixed == pytest.approx(float(value["delta_formula"]), rel=1e-12)
    for part, name in ((1, "optimal_DP_eps"), (0.5, "optimal_DP_half_eps")):
        pure = optimal_pure_delta(part * each, count=count, epsilon=epsilon)
        assert pure == pytest.approx(float(value[name]), rel=1e-12)
    adaptive = bounded_range_delta(each, **at, queries="adaptive")
    assert fixed < adaptive < float(value["zcdp_bound"])
    if value["adaptive_float"] is not None:  # a search from below; ours is an upper bound
        assert 0 < adaptive / float(value["adaptive_float"]) - 1 < 3e-4
        # What the formula for fixed queries would leave out
        assert count == 2 or fixed < 0.98 * adaptive


def fixed_pair(each, count, epsilon, t):
    """The excess of k mechanisms with losses t and t - each."""
    up = expm1(t - each) / expm1(-each)
    return sum(
        comb(count, wrong)
        * up ** (count - wrong)
        * (1 - up) ** wrong
        * max(1 - exp(epsilon - count * t + wrong * each), 0)
        for wrong in range(count + 1)
    )


@pytest.mark.parametrize(
    ("each", "count", "epsilon"), [(0.4, 6, 0.7), (2.0, 3, 1.0), (0.05, 40, 0.0)]
)
def test_fixed_queries_attain_the_formula_and_no_pair_passes_it(each, count, epsilon):
    found = bounded_range_delta(each, count=count, epsilon=epsilon, queries="fixed")
    shifts = np.linspace(1e-9, each - 1e-9, 1001)
    tried = max(fixed_pair(each, count, epsilon, t) for t in shifts)
    assert 0.9999 * found < tried <= found * (1 + 1e-12)
    back = bounded_range_epsilon(each, count=count, delta=found, queries="fixed")
    assert abs(back - epsilon) < 1e-7


@pytest.mark.parametrize("queries", ["fixed", "adaptive"])
def test_ends_of_bounded_range(queries):
    at = {"count": 4, "queries": queries}
    assert bounded_range_epsilon(0.5, delta=0.0, **at) == 2.0
    assert bounded_range_delta(0.5, epsilon=2.0, **at) < 1e-12
    assert bounded_range_epsilon(0.5, delta=0.999, **at) == pytest.approx(0, abs=0.02)
    assert 0.99 < bounded_range_delta(64.0, count=2, epsilon=3.0, queries=queries) <= 1
    for r in (1e-300, 1e-3):
        assert bounded_range_delta(r, epsilon=1.5 * r, **at) > 0
        assert 1.5 * r < bounded_range_epsilon(r, delta=r / 100, **at) <= 4.1 * r
    # No total is rounded down
    r = 0.7609624449125756
    assert 9 * Fraction(r) > Fraction(9 * r)  # the control: the product is
    for found in (
        bounded_range_epsilon(r, count=9, delta=0, queries=queries),
        optimal_pure_epsilon(r, count=9, delta=0),
    ):
        assert 9 * Fraction(r) <= found == pytest.approx(9 * r)


def test_wide_ranges_are_pure_and_many_are_not_cheap():
    for r in (300.0, 1e4):
        fixed, adaptive = (
            bounded_range_delta(r, count=3, epsilon=2.5 * r, queries=queries)
            for queries in ("fixed", "adaptive")
        )
        assert 0 < fixed <= adaptive <= optimal_pure_delta(r, count=3, epsilon=2.5 * r)
    with pytest.raises(TypeError, match="queries"):
        # No one gets the formula for fixed queries by default
        bounded_range_delta(0.5, count=3, epsilon=0.5)
    with pytest.raises(ValueError, match="count must be below"):
        optimal_pure_delta(0.1, count=10**7, epsilon=1.0)
    many = optimal_pure_delta(1e-3, count=10**6, epsilon=5.0)
    assert many == pytest.approx(5.793345416e-7, rel=1e-9)  # 30 digits, computed apart
