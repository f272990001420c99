"""What guarantees promise, against the exact losses of Laplace noise on all small histograms."""

import itertools
from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpjax.accounting.guarantee import Guarantee
from dpjax.metric_privacy.guarantees import MetricGuarantee, times
from dpjax.metric_privacy.metrics import Metric, from_budgets, uniform
from dpjax.metric_privacy.points import from_points, point_metric
from dpjax.release.metric import metric_laplace

POINTS = np.array([[0.0], [1.0], [3.0], [7.0]])
QUERY = POINTS[:, 0]


def histograms(sizes, elements=4):
    return [
        np.bincount(d, minlength=elements)
        for n in sizes
        for d in itertools.combinations_with_replacement(range(elements), n)
    ]


def scale(query, budgets):
    """The Laplace scale of one query: the largest difference per budget."""
    difference, off = np.abs(query[:, None] - query), ~np.eye(len(query), dtype=bool)
    return np.max(difference[off] / np.asarray(budgets)[off])


def test_the_audit_of_laplace_noise(x64):
    """The loss for two histograms is |q(x) - q(y)| / c, and the range twice that."""
    metric = from_points(POINTS, epsilon=0.5)
    promise = MetricGuarantee(metric)
    c = scale(QUERY, metric.budgets)
    worst = 0.0
    for x, y in itertools.combinations(histograms([3]), 2):
        loss, moves = abs(QUERY @ (x - y)) / c, np.abs(x - y).sum() // 2
        assert loss <= promise.group_epsilon(x, y) + 1e-12
        if moves == 1:
            i, j = np.flatnonzero(x > y)[0], np.flatnonzero(y > x)[0]
            assert loss <= promise.between(i, j) + 1e-12
            assert promise.group_epsilon(x, y) == promise.between(i, j)
            worst = max(worst, loss)
    total = promise.guarantee(neighbors="swap")
    assert worst <= total.epsilon == 3.5
    assert 2 * worst <= total.bounded_range == 7.0
    # Tight, for the query that grows with the distance from the first
    assert worst == pytest.approx(3.5)
    # The controls: a hundredth less noise, and half the moves, are caught.
    assert worst * 1.01 > total.epsilon
    assert any(
        abs(QUERY @ (x - y)) / c > promise.group_epsilon(x, y) / 2 + 1e-12
        for x, y in itertools.combinations(histograms([3]), 2)
    )


def test_a_public_n_is_told_and_the_null_record_hides_it(x64):
    """A constant query: nothing moves it but n. Without the null record its scale is 0, an exact
    answer.
    """
    metric = from_points(POINTS, epsilon=0.5)
    constant = np.ones(4)
    assert scale(constant, metric.budgets) == 0
    promise = MetricGuarantee(metric)
    assert promise.group_epsilon([1, 0, 0, 0], [1, 1, 0, 0]) == np.inf
    with pytest.raises(ValueError, match="needs a metric with the null record"):
        promise.guarantee(neighbors="add_remove")
    hidden = metric.with_absence(np.array([0.5, 0.4, 0.3, 0.2]))
    promise = MetricGuarantee(hidden)
    for query in (constant, QUERY):
        columns = np.asarray(hidden.columns(jnp.asarray(query)))
        c = scale(columns, hidden.budgets)
        assert c > 0
        for x, y in itertools.combinations(histograms([0, 1, 2, 3]), 2):
            loss = abs(query @ (x - y)) / c
            assert loss <= promise.group_epsilon(x, y) + 1e-12
            if np.abs(x - y).sum() == 1:
                assert loss <= promise.between(np.flatnonzero(x != y)[0], 4) + 1e-12
                assert loss <= promise.guarantee(neighbors="add_remove").epsilon + 1e-12
            elif np.abs(x - y).sum() == 2 and x.sum() == y.sum():
                assert loss <= promise.guarantee(neighbors="swap").epsilon + 1e-12
    assert promise.guarantee(neighbors="add_remove").epsilon == 0.5
    # 0.5 + 0.3, by way of the null record
    assert promise.guarantee(neighbors="swap").epsilon == pytest.approx(0.8)


def test_composition(x64):
    one = MetricGuarantee(from_points(POINTS, epsilon=0.1))
    other = MetricGuarantee(uniform(4, epsilon=0.5), ranges=uniform(4, epsilon=0.5))
    both = sum([one, 3 * other])
    np.testing.assert_allclose(
        both.metric.budgets, one.metric.budgets + 1.5 * (1 - np.eye(4)), rtol=1e-15
    )
    total = both.guarantee(neighbors="swap")
    assert (total.epsilon, total.bounded_range) == (
        pytest.approx(0.7 + 1.5),
        pytest.approx(2 * 0.7 + 2 * 1.5),  # answers of the others may decide what is asked
    )
    # The paths of a sum are longer than the sum of the paths, which is what both mechanisms
    # promise.
    far = np.where(np.eye(4), 0.0, 9.0)
    direct, around = far.copy(), far.copy()
    direct[0, 2] = direct[2, 0] = around[0, 1] = around[1, 0] = around[1, 2] = around[2, 1] = 1
    a, b = from_budgets(around), from_budgets(direct)
    together = (MetricGuarantee(a) + MetricGuarantee(b)).between(0, 2)
    assert together == 3.0 == MetricGuarantee(a).between(0, 2) + MetricGuarantee(b).between(0, 2)
    assert MetricGuarantee(a + b).between(0, 2) == 10.0
    for bad in (0, -1, 1.5, True):
        with pytest.raises(ValueError, match="integer from 1 on"):
            one * bad
    with pytest.raises(ValueError, match="one universe, got"):
        one + MetricGuarantee(uniform(3, epsilon=1))
    with pytest.raises(TypeError):
        one + 1.0
    for mix in (
        lambda: one + Guarantee(1.0, 1.0, "swap"),
        lambda: one + 2 * Guarantee(1.0, 1.0, "swap"),
    ):
        with pytest.raises(TypeError, match=r"by .guarantee\(neighbors=...\) first"):
            mix()
    assert (one.guarantee(neighbors="swap") + Guarantee(1.0, 1.0, "swap")).epsilon == pytest.approx(
        1.7
    )
    with pytest.raises(IndexError, match="elements are 0 to 3"):
        one.between(0, -1)


def test_two_policies_that_protect_different_pairs():
    """Each of them is 1-DP by way of the third element; the sum of their budgets alone would
    promise nothing.
    """
    first = from_budgets([[0, 0.5, np.inf], [0.5, 0, 0.5], [np.inf, 0.5, 0]])
    second = from_budgets([[0, np.inf, 0.5], [np.inf, 0, 0.5], [0.5, 0.5, 0]])
    both = MetricGuarantee(first) + MetricGuarantee(second)
    assert both.guarantee(neighbors="swap").epsilon == 1.5
    assert [both.between(*pair) for pair in ((0, 1), (1, 2), (0, 2))] == [1.5, 1.0, 1.5]


@pytest.mark.parametrize("count", [5, 7, 2**29 + 1, 1.5])
def test_multiples_are_rounded_up(count):
    budget = np.float32(0.1 if count != 1.5 else 0.7)
    exact = Fraction(float(budget)) * Fraction(count)
    total = times(uniform(2, epsilon=budget), count).budgets[0, 1]
    assert Fraction(float(total)) >= exact
    assert float(total) == pytest.approx(float(exact), rel=1e-6)
    # Control: the nearest float is too small
    assert Fraction(float(np.float32(float(exact)))) < exact
    if count != 1.5:
        assert (count * MetricGuarantee(uniform(2, epsilon=budget))).between(0, 1) == float(total)


def test_unprotected_pairs():
    split = from_budgets([[0, 1, np.inf], [1, 0, np.inf], [np.inf, np.inf, 0]])
    promise = MetricGuarantee(split)
    assert promise.guarantee(neighbors="swap") == Guarantee(np.inf, np.inf, "swap")
    assert (promise.between(0, 1), promise.between(0, 2)) == (1.0, np.inf)
    assert promise.group_epsilon([2, 0, 1], [1, 1, 1]) == 1.0
    assert promise.group_epsilon([2, 0, 1], [2, 1, 0]) == np.inf
    assert str(promise) == (
        "d-privacy on 3 elements with budgets 1 to 1, n public: no promise for 2 of 3 pairs, so no "
        "DP under swap neighbors"
    )
    # Blowfish on a line: far pairs are protected through the elements between them.
    line = MetricGuarantee(from_budgets([[0, 1, np.inf], [1, 0, 1], [np.inf, 1, 0]]))
    assert line.guarantee(neighbors="swap").epsilon == 2.0
    # With the null record there is always a way.
    hidden = MetricGuarantee(split.with_absence(0.75))
    assert hidden.guarantee(neighbors="swap").epsilon == 1.5
    assert str(hidden) == (
        "d-privacy on 4 elements with budgets 0.75 to 1.5, with the null record, n private: "
        "0.75-DP and 1.5-bounded-range under add_remove neighbors"
    )


def test_a_universe_of_one():
    alone = MetricGuarantee(uniform(1, epsilon=1))
    assert alone.guarantee(neighbors="swap").epsilon == 0
    assert (
        str(alone)
        == "d-privacy on 1 elements, n public: 0-DP and 0-bounded-range under swap neighbors"
    )


def test_ranges_are_at_most_twice_the_loss():
    loose = MetricGuarantee(uniform(3, epsilon=1), ranges=uniform(3, epsilon=9))
    assert loose.guarantee(neighbors="swap").bounded_range == 2.0


def test_a_guarantee_is_about_one_concrete_metric():
    with pytest.raises(TypeError, match="takes a Metric"):
        MetricGuarantee(np.eye(2))
    assert MetricGuarantee(point_metric(POINTS, epsilon=1)).between(0, 3) == 7
    with pytest.raises(ValueError, match=r"got a batch of shape \(2,\)"):
        MetricGuarantee(uniform(3, epsilon=[1.0, 2.0]))
    with pytest.raises(ValueError, match="must not be NaN"):
        MetricGuarantee(uniform(3, epsilon=jnp.float32(-1)))
    with pytest.raises(ValueError, match="ranges must be on the 3 elements"):
        MetricGuarantee(uniform(3, epsilon=1), ranges=uniform(2, epsilon=1))
    with pytest.raises(TypeError, match="got a traced one"):
        jax.jit(lambda e: MetricGuarantee(uniform(3, epsilon=e)).metric)(1.0)
    with pytest.raises(ValueError, match="histograms must have 3 elements"):
        MetricGuarantee(uniform(3, epsilon=1)).group_epsilon([1, 2], [2, 1])
    with pytest.raises(ValueError, match="nonnegative"):
        MetricGuarantee(uniform(2, epsilon=1)).group_epsilon([-1, 1], [0, 0])
    with pytest.raises(ValueError, match="neighbors must be one of"):
        MetricGuarantee(uniform(3, epsilon=1)).guarantee(neighbors="edge")
    with pytest.raises(IndexError):
        MetricGuarantee(uniform(3, epsilon=1)).between(0, 3)


def test_sums_of_small_promises_are_not_lost_beside_a_large_one():
    """In float32, 300 times 3e-5 beside 1000 would round to nothing."""
    spent, small = (
        MetricGuarantee(uniform(2, epsilon=1000.0)),
        MetricGuarantee(uniform(2, epsilon=3e-5)),
    )
    lost = np.float32(1000)
    for _ in range(300):
        spent, lost = spent + small, lost + np.float32(3e-5)
    assert spent.between(0, 1) >= 1000 + 300 * 3e-5 > lost == 1000
    assert spent.between(0, 1) < 1000.05
    assert spent.between(0, 0) == 0


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
    for sum_of_two in (each + each, 2 * each):
        promised = sum_of_two.guarantee(neighbors="swap")
        assert max(np.abs(losses)) <= promised.epsilon == 2.0
        assert spread <= promised.bounded_range == pytest.approx(3.0)
    known = Guarantee(1.0, 1.0, "swap")
    for number in (2, 3, 7):
        range_of_sum = (number * known).bounded_range
        for total in (number * each, sum([each] * number)):
            assert total.guarantee(neighbors="swap").bounded_range == pytest.approx(range_of_sum)


@pytest.mark.parametrize(
    "budgets", [[[0.0, -1.0], [-1.0, 0.0]], [[0.0, 1.0], [8.0, 0.0]], [[1.0, 1.0], [1.0, 0.0]]]
)
def test_invalid_budgets_have_no_guarantee(budgets):
    metric = Metric(jnp.array(budgets))
    with pytest.raises(ValueError, match="symmetric, nonnegative and 0 on the diagonal"):
        MetricGuarantee(metric)
    with pytest.raises(ValueError, match="symmetric, nonnegative"):
        metric_laplace([50, 50], [[0, 1]], metric, resolution=1, scales=[1.0])
