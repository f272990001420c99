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
    LipschitzQueries,
    from_budgets,
    linear_selection,
    lipschitz_queries,
    metric_exponential,
    metric_laplace,
    noise_scales,
    small_databases,
    small_db,
)

BUDGETS = np.array([[0, 1, 2, 3], [1, 0, 1.5, 2], [2, 1.5, 0, 0.5], [3, 2, 0.5, 0]])
PAIR = np.array([[0.0, 1.0], [1.0, 0.0]])


def datasets(seed=0):
    """Histograms of many sizes, int64, and for each move their neighbor: ``x``, ``x'``, budget."""
    random = np.random.default_rng(seed)
    before, moved = [], []
    for n in np.repeat([10, 10**3, 10**5, 10**7, 10**9], 40):
        before.append(random.multinomial(n, random.dirichlet(np.ones(4))) + 1)
        moved.append(random.choice(4, 2, replace=False))
    (i, j), one = np.transpose(moved), np.eye(4, dtype=np.int64)
    return np.array(before), np.array(before) + one[j] - one[i], BUDGETS[i, j]


BEFORE, AFTER, SPENT = datasets()


@jax.jit
def answers(queries, scales):
    """Of all datasets and their neighbors, their log-densities near the answers and far out, and
    those of rounded answers, as a control.
    """
    x = jnp.stack([BEFORE, AFTER])
    found = metric_laplace(x, queries, from_budgets(BUDGETS), scales=scales)
    at = found.values[0] + 4 * jnp.arange(-16, 17, dtype=found.dtype)[:, None, None, None]
    rounded = LaplaceAnswers(found.values, found.scales)
    return found.values, found.rest, [one.log_prob(at) for one in (found, rounded)]


@pytest.mark.parametrize("offset", [0.0, 1e6])
def test_the_loss_of_laplace_answers_stays_within_the_budget(offset):
    """Through the log-densities in float32: answers have twice its digits."""
    queries = np.array([[0.0, 1.0, 0.25, 0.5], [1.0, 0.125, 0.125, 0.375]]) + offset
    queries = queries.astype(np.float32)
    scales = noise_scales(queries, from_budgets(BUDGETS), strategy="common")
    *parts, logs = answers(queries, scales)
    high, low = (np.asarray(part[0], np.float64) for part in parts)
    for row, counts in enumerate(BEFORE):
        for k, query in enumerate(queries):
            terms = zip(query, counts, strict=True)
            answer = sum(Fraction(float(value)) * int(count) for value, count in terms)
            unit = float(np.abs(query).max() * counts.sum())
            assert abs(Fraction(high[row, k]) + Fraction(low[row, k]) - answer) <= unit * 2.0**-44
    losses = []
    for log in np.asarray(logs, np.float64):
        # Farther out, rounding is large beside the noise, and nothing is drawn
        drawn = (log > -100).all(1)
        change = np.where(drawn, np.abs(log[:, 0] - log[:, 1]), 0.0)
        losses.append((change.max(0).sum(-1) / SPENT).max())
    assert 0.98 < losses[0] <= 1 + 1e-4
    assert losses[1] > (1.05 if offset == 0 else 1.5)


def worst_loss(logs, other):
    """The largest log-ratio of what float32 can draw, over the budgets."""
    logs, other = (np.asarray(part, np.float64) for part in (logs, other))
    ratio = np.where((logs > -85) & (other > -85), np.abs(logs - other), 0.0)
    return (ratio.max(axis=-1) / (SPENT * 1e-2)).max()


def softmax_logs(exponents):
    return exponents - np.logaddexp.reduce(exponents, axis=-1, keepdims=True)


@pytest.mark.parametrize(
    "mechanism", ["linear_selection", pytest.param("small_db", marks=pytest.mark.slow)]
)
def test_the_loss_of_selections_stays_within_the_budget(mechanism):
    metric, random = from_budgets(BUDGETS * 1e-2), np.random.default_rng(2)
    if mechanism == "linear_selection":
        # Close to each other: with scores far apart the best would have all the probability,
        # whatever the rounding.
        weights = random.normal(size=(5, 4)).astype(np.float32)
        weights[1:] = weights[:1] + weights[1:] * np.float32(1e-6)
        of = jax.jit(lambda x: linear_selection(x, metric, weights=weights))
        scores = [np.float64(np.float32(x) @ weights.T) for x in (BEFORE, AFTER)]
    else:
        values = random.uniform(-1, 1, size=(4, 1)) + 1e-6 * random.uniform(-1, 1, size=(4, 4))
        values = values.astype(np.float32)
        queries = lipschitz_queries(values, metric)
        of = jax.jit(lambda x: small_db(x, queries, size=6))
        y = np.float32(small_databases(4, 6) * (BEFORE.sum(-1) / 6)[:, None, None]) @ values.T
        answers = [(np.float32(x) @ values.T)[:, None] for x in (BEFORE, AFTER)]
        scores = [-np.abs(answer - y).astype(np.float64).max(-1) for answer in answers]
    found = [of(x) for x in (BEFORE, AFTER)]
    logs = [distribution.log_probabilities() for distribution in found]
    assert 0.1 < worst_loss(*logs) <= 1 + 1e-2
    # Control: scores in float32 as they come
    rate = np.asarray(found[0].rate, np.float64)[..., None]
    assert worst_loss(*(softmax_logs(rate * each) for each in scores)) > 1.5


LARGE = 2**24 + 1
HOSTILE = np.array([[np.nan, 3.0], [-np.inf, 2.0**41], [-1e30, 1e30]])
SIGNALING = np.array([0x7FA00000, 0x40000000] * 3, np.uint32).view(np.float32).reshape(3, 2)
COUNTS = {
    "lists": (
        [[LARGE, 10**400], [-(2**70), 2**40 - 9], [2**80, 7]],
        [[LARGE, 0], [0, 2**40 - 9], [2**40, 7]],
    ),
    "hostile": (HOSTILE, [[0, 3], [0, 2**40], [0, 2**40]]),
    "signaling NaN": (SIGNALING, [[0, 2]] * 3),
    "JAX integers": (jnp.asarray(np.full((3, 2), LARGE, np.int32)), np.full((3, 2), LARGE)),
    "JAX floats": (jnp.asarray(HOSTILE, jnp.float32), [[0, 3], [0, 2**40], [0, 2**40]]),
}


@pytest.mark.parametrize("kind", COUNTS)
def test_counts_of_every_kind_of_number(kind):
    x, expected = COUNTS[kind]
    found = metric_laplace(x, np.eye(2), from_budgets(PAIR), scales=jnp.full(2, 2.0))
    counted = np.asarray(found.values, np.float64) + np.asarray(found.rest, np.float64)
    np.testing.assert_array_equal(counted, expected)


def test_the_null_record_counts_exactly_what_is_missing():
    """Databases of one record: the null record's misses 2^24 + 7 null records of 2^25 less than
    2^24 - 7, and float32 would round.
    """
    queries = LipschitzQueries(jnp.array([[0.0, 0.0, 1.0]]), jnp.array(1.0), "add_remove")
    cost = jax.jit(lambda x: small_db(x, queries, size=1, public_n=2**25).cost)
    assert cost(jnp.array([2**24 + 1, 6])).tolist() == [14.0, 0.0, 0.0]


def test_queries_that_could_overflow_have_no_answer_for_any_dataset():
    """Where some histograms have a finite answer and their neighbors none, that alone tells them
    apart.
    """
    rows = jnp.array([[8, 2], [9, 1], [5, 5], [0, 0]])
    sizes = np.array([2e37, 1e18, 1e-25, 1e-27], np.float32)[:, None, None]
    wide = sizes * np.array([[-1, 1], [0, 0]], np.float32)  # (4, K, N)

    @jax.jit
    def found(wide):
        metric = from_budgets(jnp.asarray(PAIR))
        scales = jnp.max(4 * wide, axis=-1) + 1
        answers = metric_laplace(rows, wide[:, None], metric, scales=scales[:, None])
        return answers.values, linear_selection(rows, metric, weights=wide[:, None]).probabilities()

    values, chosen = (np.isfinite(part) for part in found(wide))
    for size, answered in enumerate((False, True, True, False)):
        assert (values[size] == [answered, True]).all()
        assert (chosen[size] == answered).all()


def test_integer_scores_are_not_rounded():
    """Counts above 2^24, whose neighbors float32 would move by 2 or by nothing."""
    metric, large = from_budgets(PAIR / 2), 2**24
    scores = [[large + 1, large + 23], [large + 2, large + 22]]
    logs_of = jax.jit(lambda distribution: distribution.log_probabilities())
    for array in (np.array, jnp.array):
        logs = np.asarray(logs_of(metric_exponential(array(scores), metric, sensitivity=PAIR)))
        np.testing.assert_allclose(logs[0, 0] - logs[0, 1], -22 / 4, rtol=1e-4)
        assert np.abs(logs[0] - logs[1]).max() <= 0.5
    rounded = np.float32([large + 1, large + 2])
    assert rounded[0] + 1 != rounded[1]  # control
    far = metric_exponential([3e38, -3e38, -np.inf], metric, sensitivity=PAIR)
    assert np.exp(logs_of(far)).tolist() == [1, 0, 0]  # too far for a difference
