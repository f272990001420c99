"""Composition theorems: golden numbers, brute force over outcomes, and pairs that attain them."""

import json
import pathlib
from fractions import Fraction

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
    fixed = float(value["delta_formula"])  # of queries that do not depend on answers
    for part, name in ((1, "optimal_DP_eps"), (0.5, "optimal_DP_half_eps")):
        pure = optimal_pure_delta(part * each, count=count, epsilon=epsilon)
        assert pure == pytest.approx(float(value[name]), rel=1e-12)
    adaptive = bounded_range_delta(each, count=count, epsilon=epsilon)
    assert fixed < adaptive < float(value["zcdp_bound"])
    if value["adaptive_float"] is not None:  # a search from below; ours is an upper bound
        assert 0 < adaptive / float(value["adaptive_float"]) - 1 < 3e-4
        # What the formula for fixed queries would leave out
        assert count == 2 or fixed < 0.98 * adaptive


def test_ends_of_bounded_range():
    assert bounded_range_epsilon(0.5, delta=0.0, count=4) == 2.0
    assert bounded_range_delta(0.5, epsilon=2.0, count=4) < 1e-12
    assert bounded_range_epsilon(0.5, delta=0.999, count=4) == pytest.approx(0, abs=0.02)
    assert 0.99 < bounded_range_delta(64.0, count=2, epsilon=3.0) <= 1
    for r in (1e-300, 1e-3):
        assert bounded_range_delta(r, epsilon=1.5 * r, count=4) > 0
        assert 1.5 * r < bounded_range_epsilon(r, delta=r / 100, count=4) <= 4.1 * r
    # No total is rounded down
    r = 0.7609624449125756
    assert 9 * Fraction(r) > Fraction(9 * r)  # the control: the product is
    for function in (bounded_range_epsilon, optimal_pure_epsilon):
        found = function(r, count=9, delta=0)
        assert 9 * Fraction(r) <= found == pytest.approx(9 * r)


def test_wide_ranges_are_pure_and_many_are_not_cheap():
    for r in (300.0, 1e4):
        found = bounded_range_delta(r, count=3, epsilon=2.5 * r)
        assert 0 < found <= optimal_pure_delta(r, count=3, epsilon=2.5 * r)
    with pytest.raises(ValueError, match="count must be below"):
        optimal_pure_delta(0.1, count=10**7, epsilon=1.0)
    many = optimal_pure_delta(1e-3, count=10**6, epsilon=5.0)
    assert many == pytest.approx(5.793345416e-7, rel=1e-9)  # 30 digits, computed apart
