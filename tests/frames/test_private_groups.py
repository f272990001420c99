"""Groups by a threshold on noisy sizes: its exact (epsilon, delta), what is kept, and that nothing
else is seen.
"""

from decimal import Decimal, localcontext
from fractions import Fraction
from itertools import pairwise
from math import exp, expm1, log1p

import numpy as np
import pytest

from dpjax import frames
from dpjax.frames import PrivateGroups
from dpjax.release import Median
from tests.support.noisy_sizes import divergence, outcomes
from tests.support.statistics import assert_counts_follow, assert_counts_rejected

PUBLIC = [(1.0, 1e-6), (0.1, 1e-4), (3.0, 0.01), (0.5, 0.9), (20.0, 1e-9)]


def worst_delta(epsilon, threshold):
    """The largest hockey-stick divergence of sizes n and n + 1."""
    sizes = range(threshold + 20)
    rows = [outcomes(size, epsilon, threshold, threshold + 40) for size in sizes]
    return max(divergence(p, q, epsilon) for p, q in pairwise(rows))


@pytest.mark.parametrize(("epsilon", "delta"), PUBLIC)
def test_the_delta_is_exact_and_the_threshold_the_least(epsilon, delta):
    groups = PrivateGroups(epsilon, delta)
    found = worst_delta(epsilon, groups.threshold)
    assert found == pytest.approx(groups.guarantee.delta, rel=1e-9, abs=1e-14)
    assert groups.guarantee.delta <= delta
    with localcontext(prec=60):  # delta is rounded up
        decay = (-Decimal(epsilon)).exp()
        assert Decimal(groups.guarantee.delta) >= decay ** (groups.threshold - 1) / (1 + decay)
    assert groups.guarantee.epsilon == epsilon
    # The float of 1/3 is less.
    assert Fraction(PrivateGroups(Fraction(1, 3), delta).guarantee.epsilon) >= Fraction(1, 3)
    if groups.threshold > 1:  # a lower threshold would not do, and neither would half the noise
        assert worst_delta(epsilon, groups.threshold - 1) > delta
        sizes, most = (groups.threshold - 1, groups.threshold), groups.threshold + 40
        p, q = (outcomes(size, 2 * epsilon, groups.threshold, most) for size in sizes)
        assert divergence(p, q, epsilon) > delta


@pytest.mark.parametrize(("epsilon", "max_groups"), [(1.0, 10**5), (1e-4, 100), (2.0**-30, 2)])
def test_the_threshold_of_many_groups_and_of_much_noise_is_the_least(epsilon, max_groups):
    groups = PrivateGroups(epsilon, 1e-6, max_groups)

    def delta(above):
        kept = exp(-epsilon * above) / (1 + exp(-epsilon))
        return -expm1(max_groups * log1p(-kept))

    assert groups.guarantee.delta == pytest.approx(delta(groups.threshold - 1), rel=1e-9)
    assert delta(groups.threshold - 1) <= 1e-6 < delta(groups.threshold - 2)


def test_an_epsilon_at_which_nothing_is_left_of_a_coin():
    """1 / (1 + e^-64) is 1 in floats."""
    assert PrivateGroups(64.0, 1e-9, max_groups=2).threshold == 2


def test_the_probability_to_be_kept_is_that_of_the_noise():
    groups = PrivateGroups(0.7, 1e-3)
    sizes, most = np.arange(1, 25), groups.threshold + 60
    exact = [1 - outcomes(size, 0.7, groups.threshold, most)[0] for size in sizes]
    np.testing.assert_allclose(groups.probability_kept(sizes), exact, rtol=1e-9)


def test_groups_are_kept_as_often_as_they_should_be():
    groups, size = PrivateGroups(0.7, 1e-3), 8
    kept, noisy = groups.release(np.full(20_000, size))
    assert np.all(noisy >= groups.threshold)
    counts = np.bincount(np.minimum(noisy, groups.threshold + 10) - groups.threshold, minlength=11)
    counts = np.array([20_000 - kept.size, *counts])
    assert_counts_follow(counts, outcomes(size, 0.7, groups.threshold, groups.threshold + 10))
    assert_counts_rejected(counts, outcomes(size, 0.85, groups.threshold, groups.threshold + 10))


def test_groups_that_are_not_kept_leave_no_trace():
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("narwhals")
    regions = ["big"] * 60 + ["rare secret"] + [None] * 60
    people = pandas.DataFrame({"region": pandas.Categorical(regions), "age": [34.0] * 121})
    groups = PrivateGroups(2.0, 1e-12)
    options = {"by": "region", "groups": groups, "epsilon": 64.0, "neighbors": "add_remove"}
    found = frames.release(people, {"age": Median(0, 120, 1)}, **options)
    assert found.frame[["region", "released"]].to_numpy().tolist() == [["big", 34.0]]
    assert abs(found.frame["noisy_size"][0] - 60) < 40
    # The categories of people are all that there are.
    assert found.frame["region"].dtype != people["region"].dtype
    none = frames.release(people[60:], {"age": Median(0, 120, 1)}, **options)
    assert none.frame.shape == (0, 5)
    assert none.guarantee == found.guarantee


@pytest.mark.parametrize(
    ("epsilon", "delta", "word"),
    [(0.0, 1e-6, "epsilon"), (100.0, 1e-6, "epsilon"), (1.0, 0.0, "delta"), (1.0, 1.0, "delta")],
)
def test_a_threshold_needs_a_budget(epsilon, delta, word):
    with pytest.raises(ValueError, match=word):
        PrivateGroups(epsilon, delta)
