"""What would promise more than it keeps is refused; and a batch element with a bad parameter in a
JAX array has no budgets, while its neighbors keep theirs.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpjax import metric_privacy as mp
from dpjax.accounting import Guarantee

LINE = mp.Metric(jnp.array([[0.0, 1, 3], [1, 0, 2], [3, 2, 0]]))
HIDDEN = mp.Metric(jnp.array([[0.0, 1, 1], [1, 0, 1], [1, 1, 0]]), "add_remove")
ASKED = mp.LipschitzQueries(jnp.array([[0.0, 0.5, 1.0]]), jnp.array(0.5))
PROMISE = mp.MetricGuarantee(LINE)

REFUSED = {
    "asymmetric budgets": (r"d\(1, 0\) = 2", lambda: mp.from_budgets([[0, 1], [2, 0]])),
    "a budget of oneself": (r"d\(1, 1\)", lambda: mp.from_budgets([[0, 1], [1, 0.5]])),
    "a guarantee of them": (
        "symmetric",
        lambda: mp.MetricGuarantee(mp.Metric(jnp.array([[0.0, 1.0], [8.0, 0.0]]))),
    ),
    "a guarantee of nothing known": (
        "NaN",
        lambda: mp.MetricGuarantee(mp.uniform(3, epsilon=jnp.float32(-1))),
    ),
    "n is public": ("null record", lambda: PROMISE.guarantee(neighbors="add_remove")),
    "two relations": ("neighbors", lambda: LINE + HIDDEN),
    "guarantees of two relations": ("one universe", lambda: PROMISE + mp.MetricGuarantee(HIDDEN)),
    "a guarantee without a metric": ("guarantee", lambda: PROMISE + Guarantee(1.0, 1.0, "swap")),
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


@pytest.mark.parametrize("rows", [1, 600])
def test_without_a_budget_there_is_no_draw(rows):
    """Nor with scales that overspend it; in a batch of any size, as maxima may lose a NaN."""

    @jax.jit
    def draws(epsilons, scales):
        metric = mp.from_points(np.arange(9.0, dtype=np.float32)[:, None], epsilon=epsilons)
        x, queries = jnp.ones(9), jnp.linspace(0.0, 1.0, 9)[None]
        found = {
            "laplace": mp.metric_laplace(x, queries, metric),
            "given scales": mp.metric_laplace(x, queries, metric, scales=scales),
            "selection": mp.linear_selection(x, metric, weights=jnp.eye(9)),
            "exponential": mp.metric_exponential(x, metric, sensitivity=1 - jnp.eye(9)),
            "small database": mp.small_db(x, mp.lipschitz_queries(queries, metric), size=2),
        }
        return {
            name: of.sample(jax.random.key(0)).reshape(len(epsilons), -1)
            for name, of in found.items()
        }

    epsilons = np.tile(np.float32([1.0, 0.0, -1.0, np.nan, np.inf]), rows)
    found = draws(epsilons, np.ones((5 * rows, 1), np.float32))
    for name, drawn in found.items():
        np.testing.assert_array_equal(np.isnan(drawn).all(1), epsilons != 1, name)
    few = draws(epsilons, np.full((5 * rows, 1), 0.1, np.float32))["given scales"]
    assert np.isnan(few).all()


def test_a_traced_metric_has_no_guarantee():
    with pytest.raises(TypeError, match="traced"):
        jax.jit(lambda e: mp.MetricGuarantee(mp.uniform(3, epsilon=e)).metric)(1.0)


# Each makes a matrix of budgets from a number that is good, or negative, NaN or infinite
SPOILT = {
    "epsilon": lambda bad: mp.from_points([[0.0], [1.0]], epsilon=bad),
    "points": lambda bad: mp.from_points(jnp.stack([0 * bad, jnp.sqrt(bad)])[:, None], epsilon=1.0),
    "latitude": lambda bad: mp.from_points(
        jnp.stack([jnp.sqrt(bad), 0 * bad])[:, None] * jnp.ones(2),
        epsilon=1.0,
        distance="great_circle",
    ),
    "budgets": lambda bad: mp.from_budgets(jnp.stack([0, bad, bad, 0 * bad]).reshape(2, 2)),
    "absence": lambda bad: mp.uniform(2, epsilon=1.0).with_absence(
        jnp.stack([1.0, bad / bad * bad])
    ),
    "factor": lambda bad: mp.uniform(2, epsilon=1.0) * bad,
    "threshold": lambda bad: mp.blowfish(LINE, epsilon=1, threshold=bad),
    "attributes": lambda bad: mp.weighted_hamming([[0], [0]], budgets=(bad / bad * bad)[None]),
    "values": lambda bad: mp.value_budgets(
        [[0], [0]], budgets=[jnp.stack([1.0, bad / bad * bad])], rule="sum"
    ),
    "codes": lambda bad: mp.value_budgets(
        jnp.stack([0, jnp.where(bad == 1, 1, 2)])[:, None], budgets=[[1.0, 1.0]], rule="sum"
    ),
    "edges": lambda bad: mp.from_graph([[0, 1]], size=2, budgets=bad / bad * bad),
}


def test_a_bad_parameter_spoils_only_itself():
    numbers = jnp.array([1.0, -1.0, np.nan, np.inf])

    @jax.jit
    def budgets(numbers):
        return jax.vmap(lambda bad: {name: make(bad).budgets for name, make in SPOILT.items()})(
            numbers
        )

    for name, found in budgets(numbers).items():
        assert np.isnan(found[1:]).all(), name
        assert not np.isnan(found[0]).any(), name
