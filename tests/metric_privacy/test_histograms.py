"""Scores in float32 of many records: what rounding may not tell about one record."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpjax.metric_privacy import (
    LipschitzQueries,
    from_budgets,
    linear_selection,
    lipschitz_queries,
    metric_exponential,
    small_databases,
    small_db,
)

BUDGETS = np.array([[0, 1, 2, 3], [1, 0, 1.5, 2], [2, 1.5, 0, 0.5], [3, 2, 0.5, 0]])


def datasets(seed=0):
    """Histograms of up to 10^7 records, and for each move their neighbor: ``x``, ``x'``, budget."""
    random = np.random.default_rng(seed)
    before, moved = [], []
    for n in np.repeat([10, 10**3, 10**5, 10**7], 40):
        before.append(random.multinomial(n, random.dirichlet(np.ones(4))) + 1)
        moved.append(random.choice(4, 2, replace=False))
    (i, j), one = np.transpose(moved), np.eye(4, dtype=np.int64)
    return np.array(before), np.array(before) + one[j] - one[i], BUDGETS[i, j]


BEFORE, AFTER, SPENT = datasets()


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


def test_the_null_record_counts_what_is_missing():
    queries = LipschitzQueries(jnp.array([[0.0, 0.0, 1.0]]), jnp.array(1.0), "add_remove")
    cost = jax.jit(lambda x: small_db(x, queries, size=1, public_n=2**20).cost)
    # Databases of one record: all are null records, or none
    assert cost(jnp.array([2**19 + 1, 6])).tolist() == [14.0, 0.0, 0.0]


def test_scores_too_far_for_a_difference():
    pair = np.array([[0.0, 1.0], [1.0, 0.0]])
    far = metric_exponential([3e38, -3e38, -np.inf], from_budgets(pair / 2), sensitivity=pair)
    assert far.probabilities().tolist() == [1, 0, 0]
