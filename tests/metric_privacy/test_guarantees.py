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
QUERY = POINTS[:, 0]


def scale(query, budgets):
    """The Laplace scale of one query: the largest difference per budget."""
    difference, off = np.abs(query[:, None] - query), ~np.eye(len(query), dtype=bool)
    return np.max(difference[off] / np.asarray(budgets)[off])


def test_the_audit_of_laplace_noise(x64):
    """The loss for two histograms is |q(x) - q(y)| / c, and the range twice that."""
    metric = from_points(POINTS, epsilon=0.5)
    promise = MetricGuarantee(metric)
    c = scale(QUERY, metric.budgets)
    worst, half_is_too_little = 0.0, False
    for x, y in itertools.combinations(histograms(4, 3), 2):
        loss, moves = abs(QUERY @ (x - y)) / c, np.abs(x - y).sum() // 2
        assert loss <= promise.group_epsilon(x, y) + 1e-12
        half_is_too_little |= loss > promise.group_epsilon(x, y) / 2 + 1e-12
        if moves == 1:
            i, j = np.flatnonzero(x > y)[0], np.flatnonzero(y > x)[0]
            assert loss <= promise.between(i, j) + 1e-12
            assert promise.group_epsilon(x, y) == promise.between(i, j)
            worst = max(worst, loss)
    assert half_is_too_little  # the control
    total = promise.guarantee(neighbors="swap")
    # Tight, for the query that grows with the distance from the first
    assert worst == pytest.approx(total.epsilon)
    assert (total.epsilon, total.bounded_range) == (3.5, 7.0)


def test_a_public_n_is_told_and_the_null_record_hides_it(x64):
    """A constant query: nothing moves it but n. Without the null record its scale is 0, an exact
    answer.
    """
    metric = from_points(POINTS, epsilon=0.5)
    constant = np.ones(4)
    assert scale(constant, metric.budgets) == 0
    assert MetricGuarantee(metric).group_epsilon([1, 0, 0, 0], [1, 1, 0, 0]) == np.inf
    hidden = metric.with_absence(np.array([0.5, 0.4, 0.3, 0.2]))
    promise = MetricGuarantee(hidden)
    swap, add_remove = (promise.guarantee(neighbors=n).epsilon for n in ("swap", "add_remove"))
    rows = np.concatenate([histograms(4, n) for n in range(4)])
    for query in (constant, QUERY):
        c = scale(np.append(query, 0.0), hidden.budgets)
        for x, y in itertools.combinations(rows, 2):
            loss = abs(query @ (x - y)) / c
            assert loss <= promise.group_epsilon(x, y) + 1e-12
            if np.abs(x - y).sum() == 1:
                assert loss <= promise.between(np.flatnonzero(x != y)[0], 4) + 1e-12
                assert loss <= add_remove + 1e-12
            elif np.abs(x - y).sum() == 2 and x.sum() == y.sum():
                assert loss <= swap + 1e-12
    # The second is 0.5 + 0.3, by way of the null record
    assert (add_remove, swap) == (0.5, pytest.approx(0.8))


MECHANISMS = {  # and their range as a multiple of the budgets
    "metric_laplace": (2, metric_laplace.guarantee),
    "metric_exponential": (1, metric_exponential.guarantee),
    "linear_selection": (1, linear_selection.guarantee),
    "small_db": (1, lambda metric: small_db.guarantee(ask(metric), metric)),
    "mwem": (2, lambda metric: mwem.guarantee(ask(metric), metric)),
}


def ask(metric):
    return LipschitzQueries(jnp.array([[0.0, 0.5, 1.0]]), jnp.array(2.0), metric.neighbors)


@pytest.mark.parametrize("name", MECHANISMS)
def test_the_guarantees_of_mechanisms(name, x64):
    times, of = MECHANISMS[name]
    known = [[0.0, 0.5, 1.5], [0.5, 0.0, 1.0], [1.5, 1.0, 0.0]]
    # The same matrix of three values, or of two and the null record
    for neighbors, epsilon in (("swap", 1.5), ("add_remove", 1.5)):
        metric = Metric(known, neighbors)
        promised = of(metric).guarantee(neighbors=neighbors)
        assert promised == Guarantee(epsilon, times * epsilon, neighbors)
    places = planar_laplace.guarantee([[0.0, 0.0], [3.0, 4.0]], 0.1, distance="manhattan")
    assert places.between(0, 1) == pytest.approx(0.7)


def test_composition(x64):
    one = MetricGuarantee(from_points(POINTS, epsilon=0.1))
    other = MetricGuarantee(uniform(4, epsilon=0.5), ranges=uniform(4, epsilon=0.5))
    both = sum([one, 3 * other])
    expected = one.metric.budgets + 1.5 * (1 - np.eye(4))
    np.testing.assert_allclose(both.metric.budgets, expected, rtol=1e-15)
    total = both.guarantee(neighbors="swap")
    # Answers of the others may decide what is asked
    assert (total.epsilon, total.bounded_range) == (pytest.approx(2.2), pytest.approx(4.4))
    loose = MetricGuarantee(uniform(3, epsilon=1), ranges=uniform(3, epsilon=9))
    assert loose.guarantee(neighbors="swap").bounded_range == 2.0  # at most twice the loss


def test_the_paths_of_a_sum_are_the_sum_of_the_paths():
    """Which both mechanisms promise, and not the longer paths of the sum of their budgets."""
    around = MetricGuarantee(from_budgets([[0, 1, 9], [1, 0, 1], [9, 1, 0]]))
    direct = MetricGuarantee(from_budgets([[0, 9, 1], [9, 0, 9], [1, 9, 0]]))
    assert (around + direct).between(0, 2) == around.between(0, 2) + direct.between(0, 2) == 3.0
    # Two policies, each 1-DP by way of the third element: their sum alone would promise nothing.
    inf = np.inf
    first = from_budgets([[0, 0.5, inf], [0.5, 0, 0.5], [inf, 0.5, 0]])
    second = from_budgets([[0, inf, 0.5], [inf, 0, 0.5], [0.5, 0.5, 0]])
    both = MetricGuarantee(first) + MetricGuarantee(second)
    assert both.guarantee(neighbors="swap").epsilon == 1.5
    assert [both.between(*pair) for pair in ((0, 1), (1, 2), (0, 2))] == [1.5, 1.0, 1.5]


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
    assert (promise.between(0, 1), promise.between(0, 2)) == (1.0, np.inf)
    assert promise.group_epsilon([2, 0, 1], [1, 1, 1]) == 1.0
    assert promise.group_epsilon([2, 0, 1], [2, 1, 0]) == np.inf
    # With the null record there is always a way.
    hidden = MetricGuarantee(split.with_absence(0.75))
    assert hidden.guarantee(neighbors="swap").epsilon == 1.5


def test_the_range_of_mechanisms_whose_queries_depend_on_answers():
    """Two exponential mechanisms, the second with weights that depend on the first answer: the
    ranges alone do not add up.
    """
    each = MetricGuarantee(uniform(2, epsilon=1.0), ranges=uniform(2, epsilon=1.0))
    first = np.array([[1.0, 0.0], [0.0, 1.0]])
    second = {1: np.array([[1.0, 0.0], [-20.0, -19.0]]), 0: np.array([[-19.0, -20.0], [0.0, 1.0]])}

    def log_law(weights, x):
        scores = weights @ x / 2
        return scores - np.logaddexp.reduce(scores)

    x, y = np.array([1.0, 1.0]), np.array([0.0, 2.0])  # a record moved
    losses = [
        (log_law(first, y) - log_law(first, x))[a]
        + (log_law(second[a], y) - log_law(second[a], x))[b]
        for a, b in itertools.product((0, 1), repeat=2)
    ]
    spread = max(losses) - min(losses)
    assert spread > 2.99  # the control: the sum of the ranges is 2
    known = Guarantee(1.0, 1.0, "swap")
    for number in (2, 3, 7):
        range_of_sum = (number * known).bounded_range
        for total in (number * each, sum([each] * number)):
            promised = total.guarantee(neighbors="swap")
            assert promised.bounded_range == pytest.approx(range_of_sum)
            if number == 2:
                assert max(np.abs(losses)) <= promised.epsilon == 2.0
                assert spread <= promised.bounded_range == pytest.approx(3.0)
