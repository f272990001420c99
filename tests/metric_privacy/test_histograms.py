"""Answers and scores in float32 of many records and of values far from 0: what rounding may not
tell about one record.
"""

from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpjax.metric_privacy import (
    LaplaceAnswers,
    linear_selection,
    metric_exponential,
    metric_laplace,
    small_databases,
    small_db,
)
from dpjax.metric_privacy._multiplicative_weights import selection_distribution
from dpjax.metric_privacy.histograms import counts_of, linear_answers, whole_histogram
from dpjax.metric_privacy.lipschitz import lipschitz_queries
from dpjax.metric_privacy.metrics import from_budgets
from dpjax.metric_privacy.scales import noise_scales

BUDGETS = np.array([[0, 1, 2, 3], [1, 0, 1.5, 2], [2, 1.5, 0, 0.5], [3, 2, 0.5, 0]])
RECORDS = (10, 10**3, 10**5, 10**7, 10**9)


def datasets(seed=0):
    """Histograms of many sizes, int64, and for each move their neighbor: ``x``, ``x'``, budget."""
    random = np.random.default_rng(seed)
    before, after, budget = [], [], []
    for n in RECORDS:
        for _ in range(40):
            x = random.multinomial(n, random.dirichlet(np.ones(4))) + 1
            i, j = random.choice(4, 2, replace=False)
            before.append(x)
            after.append(x + np.eye(4, dtype=np.int64)[j] - np.eye(4, dtype=np.int64)[i])
            budget.append(BUDGETS[i, j])
    return np.array(before), np.array(after), np.array(budget)


def counted(x):
    return counts_of(x, jnp.float32, np.shape(x)[-1])


def exact(queries, x):
    """Answers in rational numbers."""
    return [
        sum(Fraction(float(q)) * int(c) for q, c in zip(query, x, strict=True)) for query in queries
    ]


@pytest.mark.parametrize("offset", [0.0, 1e6])
def test_answers_have_twice_the_digits(offset):
    queries = (np.random.default_rng(1).normal(size=(3, 4)) + offset).astype(np.float32)
    x = datasets()[0]
    high, low = (
        np.asarray(part, np.float64)
        for part in jax.jit(linear_answers)(jnp.asarray(queries), counted(x))
    )
    plain = x.astype(np.float32) @ queries.T
    for row, counts in enumerate(x):
        for k, answer in enumerate(exact(queries, counts)):
            unit = float(np.abs(queries[k]).max() * counts.sum())
            assert abs(Fraction(high[row, k]) + Fraction(low[row, k]) - answer) <= unit * 2.0**-44
    # Control: float32 as it comes
    assert np.abs(plain - (high + low)).max() > np.abs(high + low).max() * 2.0**-30


@pytest.mark.parametrize("offset", [0.0, 1e6])
def test_the_loss_of_laplace_answers_stays_within_the_budget(offset):
    """Through the log-densities in float32, near the answers and far out."""
    before, after, budget = datasets()
    metric = from_budgets(BUDGETS)
    queries = (np.array([[0.0, 1.0, 0.25, 0.5], [1.0, 0.125, 0.125, 0.375]]) + offset).astype(
        np.float32
    )
    scales = noise_scales(queries, metric, strategy="common")

    def loss(distribution, other):
        answer = np.asarray(distribution.values)
        points = answer + np.float32(4.0) * np.arange(-16, 17, dtype=np.float32)[:, None, None]
        logs = np.stack(
            [np.asarray(one.log_prob(points), np.float64) for one in (distribution, other)]
        )
        # Farther out, rounding is large beside the noise, and nothing is drawn
        drawn = (logs > -100).all(0)
        return np.where(drawn, np.abs(logs[0] - logs[1]), 0.0).max(0).sum(-1)

    distributions = [metric_laplace(x, queries, metric, scales=scales) for x in (before, after)]
    assert distributions[0].dtype == jnp.float32
    found = loss(*distributions) / budget
    assert found.max() <= 1 + 1e-4
    assert found.max() > 0.98
    control = (
        loss(
            *(
                LaplaceAnswers(distribution.values, distribution.scales)
                for distribution in distributions
            )
        )
        / budget
    )  # rounded answers
    assert control.max() > (1.05 if offset == 0 else 1.5)


@pytest.mark.slow
@pytest.mark.optimized
def test_a_record_that_moves_between_equal_values_changes_no_bit():
    """Answers without noise, where only some pairs are protected: one bit would be an infinite
    loss.
    """
    budgets = np.full((6, 6), np.inf)
    for first in (0, 2, 4):
        budgets[first : first + 2, first : first + 2] = 1 - np.eye(2)
    budgets[np.arange(6), np.arange(6)] = 0
    query = np.repeat(np.array([1e-9, 0.1, 7e8], np.float32), 2)[None]
    random = np.random.default_rng(0)
    x = random.integers(1, 10**6, size=(200, 6))
    other = x + np.where(random.integers(2, size=(200, 3)) == 0, 1, -1).repeat(
        2, axis=1
    ) * np.array([1, -1] * 3)
    distributions = [
        metric_laplace(counts, query, from_budgets(budgets), strategy="common")
        for counts in (x, other)
    ]
    assert (distributions[0].scales == 0).all()
    np.testing.assert_array_equal(distributions[0].values, distributions[1].values)
    np.testing.assert_array_equal(distributions[0].rest, distributions[1].rest)
    plain = [(counts.astype(np.float32) * query).sum(-1, dtype=np.float32) for counts in (x, other)]
    assert (plain[0] != plain[1]).any()  # control


def seen(distribution):
    """Log-probabilities of what float32 can draw."""
    logs = np.asarray(distribution.log_probabilities(), np.float64)
    return np.where(logs > -85, logs, np.nan)


def loss(distribution, other):
    return np.nanmax(np.abs(seen(distribution) - seen(other)), axis=-1)


def test_the_loss_of_selections_stays_within_the_budget():
    before, after, budget = datasets()
    metric = from_budgets(BUDGETS * 1e-2)
    # Close to each other: with scores far apart the best would have all the probability, whatever
    # the rounding.
    weights = (
        np.random.default_rng(2).normal(size=(5, 4))
        * np.array([[1.0], [1e-6], [1e-6], [1e-6], [1e-6]])
    ).astype(np.float32)
    weights[1:] += weights[:1]
    found = loss(*(linear_selection(x, metric, weights=weights) for x in (before, after))) / (
        budget * 1e-2
    )
    assert found.max() <= 1 + 2e-3
    distribution = linear_selection(before, metric, weights=weights)
    rate = np.asarray(distribution.rate)
    plain = [np.float32(x) @ weights.T for x in (before, after)]
    logs = [
        rate * scores
        - np.log(np.exp(rate * (scores - scores.max(-1, keepdims=True))).sum(-1, keepdims=True))
        for scores in plain
    ]
    tops = [rate * scores.max(-1, keepdims=True) for scores in plain]
    control = np.abs((logs[0] - tops[0]) - (logs[1] - tops[1]))[:, 1:].max(-1) / (budget * 1e-2)
    assert control.max() > 1.5


@pytest.mark.slow
@pytest.mark.parametrize("mechanism", ["small_db", "mwem"])
def test_the_loss_of_synthetic_data_stays_within_the_budget(mechanism):
    before, after, budget = datasets()
    metric = from_budgets(BUDGETS * 1e-2)
    values = np.random.default_rng(3).uniform(-1, 1, size=(4, 4)).astype(np.float32)
    queries = lipschitz_queries(values, metric)

    def distribution(x):
        if mechanism == "small_db":
            return small_db(x, queries, size=6)
        return selection_distribution(x, before.astype(np.float32)[:, ::-1], queries, rounds=1)

    found = loss(distribution(before), distribution(after)) / (budget * 1e-2)
    assert found.max() <= (1 if mechanism == "small_db" else 0.5) * (1 + 1e-2)
    assert found.max() > 0.1
    # Control: scores of answers in float32 as they come.
    y = (
        small_databases(4, 6) * (before.sum(-1) / 6)[:, None, None]
        if mechanism == "small_db"
        else before[:, None, ::-1]
    )
    of_y = np.float32(y) @ values.T
    sign, of_what = (-1, -1) if mechanism == "small_db" else (0.5, None)
    logs = []
    for x in (before, after):
        miss = np.abs((np.float32(x) @ values.T)[:, None] - of_y).astype(np.float64)
        log = (
            sign
            / (2 * float(queries.scale))
            * (miss[:, 0] if of_what is None else miss.max(of_what))
        )
        log -= log.max(-1, keepdims=True)
        logs.append(log - np.log(np.exp(log).sum(-1, keepdims=True)))
    assert (np.abs(logs[0] - logs[1]).max(-1) / (budget * 1e-2)).max() > 1.5


@pytest.mark.slow
def test_counts_of_every_kind_of_number():
    large = 2**24 + 1
    for x in (
        [large, 0],
        np.array([large, 0]),
        np.array([large, 0], np.uint32),
        jnp.array([large, 0]),
        jnp.array([large, 0], jnp.uint32),
    ):
        found = counted(x)
        assert found.high.dtype == jnp.float32
        assert int(found.high[0]) + int(found.low[0]) == large
    for x in (
        np.array([200, 7], np.uint8),
        jnp.array([200, 7], jnp.uint8),
        jnp.array([200.0, 7.0], jnp.bfloat16),
    ):
        np.testing.assert_array_equal(counted(x).value, [200, 7])
    hostile = [np.nan, np.inf, -np.inf, -1.0, -1e30, 1e30, 2.0**41]
    for x in (hostile, np.array(hostile), jnp.array(hostile)):
        np.testing.assert_array_equal(counted(x).value, [0, 0, 0, 0, 0, 2.0**40, 2.0**40])
    np.testing.assert_array_equal(counted([2**80, 10**400, -(2**70)]).value, [2.0**40, 0, 0])
    np.testing.assert_array_equal(counted(jnp.array([2**31 - 1, -(2**31), -5])).low, [-1, 0, 0])
    for mixed in ([2**80, np.int64(3), 0, np.float32(0.5)], [5, np.int64(3), 0, np.float32(0.5)]):
        np.testing.assert_array_equal(counted(mixed).value[1:], [3, 0, 0.5])
    signaling = np.array([0x7FA00000, 0x40000000], np.uint32).view(np.float32)
    np.testing.assert_array_equal(counted(signaling).value, [0, 2])
    near = counted([2**40 - 100, 2**40, 2**40 + 2**20])
    np.testing.assert_array_equal(
        np.float64(near.high) + np.float64(near.low), [2**40 - 100, 2**40, 2**40]
    )
    with pytest.raises(TypeError, match="x must hold real numbers"):
        counted(["a"])
    with pytest.raises(ValueError, match="elements on its last axis"):
        counts_of(3, jnp.float32, 1)


def test_the_null_record_counts_exactly_what_is_missing():
    counts, total = whole_histogram([2**24 + 1, 5], 3, "add_remove", jnp.float32, 2**25)
    null_record = int(counts.high[2]) + int(counts.low[2])
    assert null_record == 2**25 - 2**24 - 6
    assert float(total) == 2**25
    counts, total = whole_histogram(np.full((3, 2), 2**24 + 1), 2, "swap", jnp.float32, None)
    np.testing.assert_array_equal(total, np.float32(2**25 + 2))
    assert counts.high.shape == (3, 2)


def test_queries_that_could_overflow_have_no_answer_for_any_dataset():
    """Where some histograms have a finite answer and their neighbors none, that alone tells them
    apart.
    """
    metric = from_budgets([[0, 1], [1, 0]])
    rows = np.array([[8, 2], [9, 1], [5, 5], [0, 0]])
    for size, answered in ((2e37, False), (1e18, True), (1e-25, True), (1e-27, False)):
        distribution = metric_laplace(
            rows, [[-size, size], [0.0, 1.0]], metric, scales=jnp.array([4 * size, 2.0])
        )
        np.testing.assert_array_equal(np.isfinite(distribution.values), [[answered, True]] * 4)
        distribution = linear_selection(rows, metric, weights=[[-size, size], [0.0, 0.0]])
        np.testing.assert_array_equal(
            np.isnan(distribution.probabilities()), [[not answered] * 2] * 4
        )


def test_integer_scores_are_not_rounded():
    """Counts above 2^24, whose neighbors float32 would move by 2 or by nothing."""
    metric, large = from_budgets([[0, 0.5], [0.5, 0]]), 2**24
    for array in (np.array, jnp.array):
        distributions = [
            metric_exponential(array(s), metric, sensitivity=[[0, 1], [1, 0]])
            for s in ([large + 1, large + 23], [large + 2, large + 22])
        ]
        logs = [np.asarray(distribution.log_probabilities()) for distribution in distributions]
        np.testing.assert_allclose(logs[0][0] - logs[0][1], -22 / 4, rtol=1e-4)
        assert np.abs(logs[0] - logs[1]).max() <= 0.5
    rounded = np.float32([large + 1, large + 2])
    assert rounded[0] + 1 != rounded[1]  # control


@pytest.mark.slow
def test_no_datasets_and_scores_too_far_for_a_difference():
    metric = from_budgets([[0, 1], [1, 0]])
    none = np.zeros((0, 2))
    assert metric_laplace(none, [[0.0, 1.0]], metric, strategy="common").mean().shape == (0, 1)
    assert linear_selection(none, metric, weights=[[0.0, 1.0]]).batch_shape == (0,)
    assert small_db(none, lipschitz_queries([[0.0, 1.0]], metric), size=2).batch_shape == (0,)
    distribution = metric_exponential([3e38, -3e38, -np.inf], metric, sensitivity=[[0, 1], [1, 0]])
    np.testing.assert_array_equal(distribution.probabilities(), [1, 0, 0])
