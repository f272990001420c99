"""Scores in float32 of many records: what rounding may not tell about one record."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpjax.metric_privacy import LipschitzQueries, from_budgets, metric_exponential, small_db


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
