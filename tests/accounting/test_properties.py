"""Properties of guarantees for any numbers: totals are rounded up and no further, in any order."""

from fractions import Fraction
from math import inf, nextafter

import pytest

from dpjax.accounting import Guarantee, epsilon_per_query, for_groups
from tests.support.properties import given, st

EPSILONS = st.floats(1e-300, 1e3)
COUNTS = st.integers(1, 10**6)


@st.composite
def guarantees(draw):
    """Pure and bounded-range mechanisms, with zCDP or without."""
    epsilon = draw(EPSILONS)
    spread = draw(st.sampled_from([1.0, 1.5, 2.0, inf])) * epsilon
    return Guarantee(epsilon, spread, "swap", zcdp=draw(st.sampled_from([inf, epsilon**2 / 2])))


def is_the_next_float(found, exact):
    """Whether a float is the smallest that is not below an exact number."""
    return Fraction(nextafter(found, 0.0)) < exact <= Fraction(found)


@given(st.lists(st.tuples(EPSILONS, COUNTS), min_size=1, max_size=8))
def test_epsilons_add_up_and_are_rounded_up_once(parts):
    total = sum(count * Guarantee(epsilon, inf, "swap") for epsilon, count in parts)
    exact = sum(count * Fraction(epsilon) for epsilon, count in parts)
    assert is_the_next_float(total.epsilon, exact)
    assert not is_the_next_float(nextafter(total.epsilon, inf), exact)  # the control


@given(guarantees(), guarantees(), guarantees(), COUNTS)
def test_the_order_of_a_sum_does_not_matter(a, b, c, count):
    for one, other in (
        ((a + b) + c, a + (b + c)),
        (a + b, b + a),
        (count * a + a, (count + 1) * a),
        (count * (a + b), count * a + count * b),
    ):
        for name in ("epsilon", "bounded_range", "zcdp"):
            assert getattr(one, name) == getattr(other, name)


@given(guarantees(), st.integers(1, 50), st.integers(1, 50))
def test_groups_of_groups_are_groups(one, few, many):
    whole = for_groups(one, size=few * many)
    assert is_the_next_float(whole.epsilon, few * many * Fraction(one.epsilon))
    twice = for_groups(for_groups(one, size=few), size=many)
    for name in ("epsilon", "bounded_range", "zcdp"):
        assert getattr(twice, name) == pytest.approx(getattr(whole, name), rel=1e-14)
        # zCDP may follow from the range of a smaller group, which is rounded less
        assert name == "zcdp" or getattr(twice, name) >= getattr(whole, name)


@given(EPSILONS, COUNTS)
def test_even_shares_never_pass_the_whole(epsilon, count):
    each = epsilon_per_query(count=count, epsilon=epsilon, delta=0)
    assert count * Fraction(each) <= Fraction(epsilon) < count * Fraction(nextafter(each, inf))
