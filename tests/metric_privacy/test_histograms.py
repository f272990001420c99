"""Scores in float32 of many records: what rounding may not tell about one record."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpjax.metric_privacy import (
    LipschitzQueries,
    from_budgets,
    linear_selection,
    metric_exponential,
    small_db,
)

BUDGETS = np.array([[0, 1, 2, 3], [1, 0, 1.5, 2], [2, 1.5, 0, 0.5], [3, 2, 0.5, 0]]) * 1e-2


def test_the_loss_of_selections_stays_within_the_budget():
    """For histograms of up to 10^7 records, and for a neighbor of each."""
    metric, random = from_budgets(BUDGETS), np.random.default_rng(2)
    sizes = np.repeat([10, 10**3, 10**5, 10**7], 40)
    before = np.array([random.multinomial(n, random.dirichlet(np.ones(4))) + 1 for n in sizes])
    i, j = random.permuted(np.tile(np.arange(4), (160, 1)), axis=1)[:, :2].T
    both = before, before + np.eye(4, dtype=int)[j] - np.eye(4, dtype=int)[i]
    # Weights close to each other: with scores far apart the best would have all the probability.
    weights = np.float32(random.normal(size=(1, 4)) + 1e-6 * random.normal(size=(5, 4)))
    of = jax.jit(lambda x: linear_selection(x, metric, weights=weights))
    scores = [np.float64(np.float32(x) @ weights.T) for x in both]

    def worst_loss(exponents):
        """The largest log-ratio of what float32 can draw, over the budgets."""
        logs = [e - np.logaddexp.reduce(e, axis=-1, keepdims=True) for e in exponents]
        drawn = (logs[0] > -85) & (logs[1] > -85)
        ratio = np.abs(logs[0] - logs[1], where=drawn, out=np.zeros(drawn.shape))
        return (ratio.max(axis=-1) / BUDGETS[i, j]).max()

    found = [of(x) for x in both]
    rate = np.float64(found[0].rate)
    assert 0.1 < worst_loss([np.float64(d.log_probabilities()) for d in found]) <= 1 + 1e-2
    # Control: scores in float32 as they come
    assert worst_loss([rate * each for each in scores]) > 1.5


def test_the_null_record_counts_what_is_missing():
    queries = LipschitzQueries(jnp.array([[0.0, 0.0, 1.0]]), jnp.array(1.0), "add_remove")
    cost = jax.jit(lambda x: small_db(x, queries, size=1, public_n=2**20).cost)
    # Databases of one record: all are null records, or none
    assert cost(jnp.array([2**19 + 1, 6])).tolist() == [14.0, 0.0, 0.0]


def test_scores_too_far_for_a_difference():
    pair = np.array([[0.0, 1.0], [1.0, 0.0]])
    far = metric_exponential([3e38, -3e38, -np.inf], from_budgets(pair / 2), sensitivity=pair)
    assert far.probabilities().tolist() == [1, 0, 0]


def test_only_distances_of_scores_are_rounded():
    """Of integers that float32 does not have."""
    metric, options = from_budgets([[0, 1], [1, 0]]), {"sensitivity": [[0, 1], [1, 0]]}
    near, far = ([a, b] for a, b in ((2, 3), (2**25 + 2, 2**25 + 3)))
    wanted, found, rounded = (
        np.asarray(metric_exponential(scores, metric, **options).probabilities())
        for scores in (near, far, jnp.float32(far))
    )
    np.testing.assert_array_equal(found, wanted)
    assert abs(rounded - wanted).max() > 0.1  # the control
    queries = LipschitzQueries(jnp.array([[1.0, 0.0]]), jnp.array(1.0), "add_remove")
    with pytest.raises(ValueError, match="public_n must be positive and at most 16777216"):
        small_db([3.0], queries, size=6, public_n=2.0**25)
