"""What would promise more than it keeps is refused."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpjax import metric_privacy as mp
from dpjax.accounting import Guarantee

LINE = mp.Metric([[0.0, 1, 3], [1, 0, 2], [3, 2, 0]])
HIDDEN = mp.Metric([[0.0, 1, 1], [1, 0, 1], [1, 1, 0]], "add_remove")
ASKED = mp.LipschitzQueries(jnp.array([[0.0, 0.5, 1.0]]), jnp.array(0.5))
PROMISE = mp.MetricGuarantee(LINE)

REFUSED = {
    "asymmetric budgets": (r"d\(1, 0\) = 2", lambda: mp.from_budgets([[0, 1], [2, 0]])),
    "budgets of no number": ("nan", lambda: mp.Metric([[0, np.nan], [np.nan, 0]])),
    "a traced metric": ("traced", lambda: jax.jit(lambda e: mp.uniform(3, epsilon=e).size)(1.0)),
    "an attribute without a budget": (
        "2 attributes",
        lambda: mp.weighted_hamming([[0, 1]], budgets=[1, 2, 3]),
    ),
    "an unknown record": ("NaN", lambda: mp.weighted_hamming([[np.nan, 1]], budgets=1)),
    "a value without a budget": (
        "codes",
        lambda: mp.value_budgets([[0], [2**32 + 1]], budgets=[[1.0, 1.0]]),
    ),
    "a node out of the graph": (
        "nodes",
        lambda: mp.from_graph(np.array([[0, 2**32]]), size=2, budgets=1.0),
    ),
    "n is public": ("null record", lambda: PROMISE.guarantee(neighbors="add_remove")),
    "guarantees of two relations": ("same elements", lambda: PROMISE + mp.MetricGuarantee(HIDDEN)),
    "a guarantee without a metric": (
        "MetricGuarantee",
        lambda: PROMISE + Guarantee(1.0, 1.0, "swap"),
    ),
    "a policy with one": ("null record", lambda: mp.blowfish(HIDDEN, epsilon=1, threshold=1)),
    "a fit of a private n": (
        "public",
        lambda: mp.fit_queries([[0.0, 1.0]], HIDDEN, num_records=1.0),
    ),
    "longitude first": (
        "latitude",
        lambda: mp.from_points([[118.2, 34.1]], epsilon=1.0, distance="great_circle"),
    ),
    "too little noise": (
        "load",
        lambda: mp.metric_laplace([1, 2, 3], [[0.0, 1.0, 2.0]], LINE, scales=[0.9]),
    ),
    "a scale too small": (
        "2 times",
        lambda: mp.small_db.guarantee(mp.LipschitzQueries(ASKED.values, ASKED.scale / 2), LINE),
    ),
    "queries of another relation": ("neighbors", lambda: mp.mwem.guarantee(ASKED, HIDDEN)),
    "databases beyond memory": ("352716", lambda: mp.small_databases(12, 10)),
    "a private n": (
        "public_n",
        lambda: mp.mwem(
            jax.random.key(0), [1, 2], mp.lipschitz_queries([[0.0, 1.0]], HIDDEN), rounds=1
        ),
    ),
    "values that would be rounded": (
        "the dtype of the queries, float64",
        lambda: mp.small_db(np.float32([1]), mp.LipschitzQueries(np.eye(1), 1.0), size=2),
    ),
    "n from the data": (
        "public_n",
        lambda: mp.small_db([1, 2], mp.lipschitz_queries([[0.0, 1.0]], HIDDEN), size=2),
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refusals(name):
    word, call = REFUSED[name]
    with pytest.raises((ValueError, TypeError), match=word):
        call()
