"""What guarantees promise, against the exact losses of Laplace noise on all small histograms."""

import itertools
from fractions import Fraction

import jax.numpy as jnp
import numpy as np
import pytest

from dpjax.accounting import Guarantee
from dpjax.metric_privacy import (
    LipschitzQueries,
    Metric,
    MetricGuarantee,
    from_budgets,
    from_points,
    linear_selection,
    metric_exponential,
    metric_laplace,
    mwem,
    planar_laplace,
    small_db,
    uniform,
)
from tests.support.histograms import histograms

POINTS = np.array([[0.0], [1.0], [3.0], [7.0]])
ROWS = np.concatenate([histograms(4, n) for n in range(4)])


def scale(query, budgets):
    """The Laplace scale of one query: the largest difference per budget."""
    difference, off = np.abs(query[:, None] - query), ~np.eye(len(query), dtype=bool)
    return np.max(difference[off] / budgets[off])


def test_the_audit_of_laplace_noise():
    """The loss for two histograms is |q(x) - q(y)| / c: of the points themselves, and of the number
    of records, which the null record hides.
    """
    hidden = from_points(POINTS, epsilon=0.5).with_absence(np.array([0.5, 0.4, 0.3, 0.2]))
    promise = MetricGuarantee(hidden)
    half_is_too_little = False
    for query in (POINTS[:, 0], np.ones(4)):
        c = scale(np.append(query, 0.0), hidden.budgets)
        for x, y in itertools.combinations(ROWS, 2):
            loss, moved = abs(query @ (x - y)) / c, np.append(x - y, np.sum(y - x))
            assert loss <= promise.group_epsilon(x, y) + 1e-12
            half_is_too_little |= loss > promise.group_epsilon(x, y) / 2 + 1e-12
            if np.abs(moved).sum() == 2:
                i, j = np.flatnonzero(moved)
                assert loss <= promise.between(i, j) + 1e-12
                assert promise.group_epsilon(x, y) == promise.between(i, j)
    assert half_is_too_little  # the control
    # The second is 0.5 + 0.3, by way of the null record
    found = [promise.guarantee(neighbors=n).epsilon for n in ("add_remove", "swap")]
    assert found == [0.5, pytest.approx(0.8)]
    # Without the null record n is told
    public = MetricGuarantee(from_points(POINTS, epsilon=0.5))
    assert scale(np.ones(4), public.metric.budgets) == 0
    assert public.group_epsilon([1, 0, 0, 0], [1, 1, 0, 0]) == np.inf
    assert public.guarantee(neighbors="swap") == Guarantee(3.5, 7.0, "swap")


MECHANISMS = {  # and their range as a multiple of the budgets
    metric_laplace: 2,
    metric_exponential: 1,
    linear_selection: 1,
    small_db: 1,
    mwem: 2,
}


@pytest.mark.parametrize("neighbors", ["swap", "add_remove"])
def test_the_guarantees_of_mechanisms(neighbors, x64):
    """On the same matrix of three values, or of two and the null record."""
    metric = Metric([[0.0, 0.5, 1.5], [0.5, 0.0, 1.0], [1.5, 1.0, 0.0]], neighbors)
    asked = LipschitzQueries(jnp.array([[0.0, 0.5, 1.0]]), jnp.array(2.0), neighbors)
    for mechanism, times in MECHANISMS.items():
        given = (asked, metric) if mechanism in (small_db, mwem) else (metric,)
        promised = mechanism.guarantee(*given).guarantee(neighbors=neighbors)
        assert promised == Guarantee(1.5, times * 1.5, neighbors)
    places = planar_laplace.guarantee([[0.0, 0.0], [3.0, 4.0]], 0.1)
    assert places.between(0, 1) == pytest.approx(0.5)


def test_composition():
    one = MetricGuarantee(from_points(POINTS, epsilon=0.1))
    other = MetricGuarantee(uniform(4, epsilon=0.5), ranges=1)
    both = sum([one, 3 * other])
    expected = one.metric.budgets + 1.5 * (1 - np.eye(4))
    np.testing.assert_allclose(both.metric.budgets, expected, rtol=1e-15)
    total = both.guarantee(neighbors="swap")
    assert (total.epsilon, total.bounded_range) == (pytest.approx(2.2), pytest.approx(4.4))
    assert [(n * other).ranges for n in (1, 2)] == [1, 2]


def test_the_paths_of_a_sum_are_the_sum_of_the_paths():
    """Two policies, each 1-DP by way of a third element: their sum alone would promise nothing."""
    inf = np.inf
    first = from_budgets([[0, 0.5, inf], [0.5, 0, 0.5], [inf, 0.5, 0]])
    second = from_budgets([[0, inf, 0.5], [inf, 0, 0.5], [0.5, 0.5, 0]])
    both = MetricGuarantee(first) + MetricGuarantee(second)
    assert [both.between(*pair) for pair in ((0, 1), (1, 2), (0, 2))] == [1.5, 1.0, 1.5]
    assert np.isinf((first + second).closure().budgets[0, 1])  # the control


@pytest.mark.parametrize("count", [5, 7, 2**29 + 2])
def test_multiples_are_rounded_up(count):
    exact = Fraction(1 / 3) * count
    total = (count * MetricGuarantee(uniform(2, epsilon=1 / 3))).between(0, 1)
    assert Fraction(total) >= exact
    assert total == pytest.approx(float(exact), rel=1e-14)
    assert Fraction(1 / 3 * count) < exact  # the control: the nearest float is too small


def test_sums_of_small_promises_are_not_lost_beside_a_large_one():
    """300 times 5e-14 beside 1000 would round to nothing."""
    spent, small = (MetricGuarantee(uniform(2, epsilon=e)) for e in (1000.0, 5e-14))
    lost = 1000.0
    for _ in range(300):
        spent, lost = spent + small, lost + 5e-14
    assert 1000 + 1e-10 > spent.between(0, 1) >= 1000 + 300 * 5e-14 > lost == 1000
    assert spent.between(0, 0) == 0


def test_unprotected_pairs():
    split = from_budgets([[0, 1, np.inf], [1, 0, np.inf], [np.inf, np.inf, 0]])
    promise = MetricGuarantee(split)
    assert promise.guarantee(neighbors="swap") == Guarantee(np.inf, np.inf, "swap")
    assert "budgets 1 to inf, n public: no promise" in str(promise)
    assert promise.group_epsilon([2, 0, 1], [1, 1, 1]) == 1.0
    assert promise.group_epsilon([2, 0, 1], [2, 1, 0]) == np.inf
    # With the null record there is always a way.
    hidden = MetricGuarantee(split.with_absence(0.75))
    assert hidden.guarantee(neighbors="swap").epsilon == 1.5
