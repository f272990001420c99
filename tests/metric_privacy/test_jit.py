"""Public data of NumPy inside of a jitted function, where only the budget is traced, make what they
make outside.
"""

import datetime

import jax
import numpy as np
import pytest

from dpjax import metric_privacy as mp

rng = np.random.default_rng(0)
N = 6
WHERE = np.stack([np.linspace(0, 5, N), rng.uniform(size=N)], axis=-1)
QUERIES = rng.uniform(size=(3, N))
COUNTS = np.arange(1, N + 1) * 10
EDGES = np.stack([np.arange(N - 1), np.arange(1, N)], axis=-1)
RECORDS = np.array([[i // 2, i % 2] for i in range(N)])
BUDGETS = np.abs(np.arange(N)[:, None] - np.arange(N)).astype(float)
DAYS = [datetime.date(2020, 1, 1 + i) for i in range(N)]
MONTHS = np.array(
    ["2020-01", "2020-02", "2020-04", "2020-05", "2020-09", "2021-01"], "datetime64[M]"
)


def line(eps):
    return mp.from_points(np.arange(N)[:, None], epsilon=eps)


METRICS = {
    **{
        f"points, {distance}": lambda eps, distance=distance: mp.from_points(
            WHERE, epsilon=eps, distance=distance
        )
        for distance in ("euclidean", "manhattan", "chebyshev", "hamming", "great_circle")
    },
    "weighted points": lambda eps: mp.from_points(WHERE, epsilon=eps, weights=np.array([1.0, 2.0])),
    "coordinates": lambda eps: mp.point_metric(WHERE, epsilon=eps),
    "integers": lambda eps: mp.point_metric(np.arange(N)[:, None] + 2**40, epsilon=eps),
    "lists": lambda eps: mp.from_points(WHERE.tolist(), epsilon=eps),
    "null record, caps": lambda eps: line(eps).with_absence(np.linspace(1, 2, N)),
    "budgets": lambda eps: mp.from_budgets(BUDGETS) * eps,
    "uniform": lambda eps: mp.uniform(N, epsilon=eps),
    "hamming": lambda eps: mp.weighted_hamming(RECORDS, budgets=np.array([1.0, 2.0])) * eps,
    "labels": lambda eps: mp.weighted_hamming(RECORDS.astype(str), budgets=[1.0, 2.0]) * eps,
    "values": lambda eps: (
        mp.value_budgets(
            RECORDS, budgets=[np.array([1.0, 2.0, 3.0]), np.array([1.0, 2.0])], rule="sum"
        )
        * eps
    ),
    "dates": lambda eps: mp.from_dates(DAYS, epsilon=eps),
    "months": lambda eps: mp.from_dates(MONTHS, epsilon=eps),
    "graph": lambda eps: mp.from_graph(EDGES, size=N, budgets=np.arange(1.0, N)) * eps,
    "blowfish": lambda eps: mp.blowfish(
        mp.point_metric(WHERE, epsilon=1.0), epsilon=eps, threshold=2.0
    ),
    "smooth threshold": lambda eps: mp.smooth_threshold(
        line(1.0), epsilon=eps, threshold=np.array(2.0)
    ),
    "product": lambda eps: mp.product(
        mp.uniform(2, epsilon=1.0), mp.from_points(np.arange(3)[:, None], epsilon=eps)
    ),
    "spanning tree": lambda eps: mp.spanning_tree(line(1.0), budget=np.array(2.0)) * eps,
    "closure": lambda eps: mp.blowfish(line(1.0), epsilon=eps, threshold=2.0).closure(),
}


QUICK_METRICS = ("points, euclidean", "coordinates", "null record, caps", "blowfish")


@pytest.mark.parametrize(
    "name",
    [
        name if name in QUICK_METRICS else pytest.param(name, marks=pytest.mark.slow)
        for name in METRICS
    ],
)
def test_metrics(name):
    def budgets(eps):
        return METRICS[name](eps).dense().budgets

    np.testing.assert_allclose(jax.jit(budgets)(0.5), budgets(0.5), rtol=1e-5)


# A matrix, and coordinates with a threshold
@pytest.mark.parametrize("name", ["points, euclidean", "blowfish"])
def test_what_goes_over_all_pairs(name):
    def largest(eps):
        metric = METRICS[name](eps)
        return mp.single_query_scale(QUERIES[0], metric), metric.largest

    for one, other in zip(jax.jit(largest)(0.5), largest(0.5), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5)


ANSWERS = {
    "laplace": lambda eps: mp.metric_laplace(COUNTS, QUERIES, line(eps)).mean_abs_error(
        np.zeros(3)
    ),
    "laplace, null record": lambda eps: mp.metric_laplace(
        COUNTS, QUERIES, line(eps).with_absence(1.0)
    ).mean_abs_error(np.zeros(3)),
    "laplace, own scales": lambda eps: (
        mp.metric_laplace(COUNTS, QUERIES, line(eps), scales=np.full(3, 100.0)).scales
    ),
    "optimum": lambda eps: mp.optimal_scales(QUERIES, line(eps)).scales,
    "shares": lambda eps: mp.parameter_selection(QUERIES, line(eps)),
    "load": lambda eps: mp.load(QUERIES, np.ones(3), line(eps)),
    "factor": lambda eps: mp.improvement_factor(QUERIES, np.ones(3), line(eps)),
    "exponential": lambda eps: mp.metric_exponential(
        np.arange(4), line(eps), sensitivity=BUDGETS
    ).probabilities(),
    "selection": lambda eps: mp.linear_selection(
        COUNTS, line(eps), weights=QUERIES
    ).probabilities(),
    "lipschitz": lambda eps: mp.lipschitz_queries(QUERIES, line(eps)).scale,
    "envelope": lambda eps: mp.lipschitz_envelope(QUERIES, line(eps), scale=np.array(0.1)).values,
    "mwem": lambda eps: mp.mwem(
        jax.random.key(0), COUNTS, mp.lipschitz_queries(QUERIES, line(eps)), rounds=2, shape=(2,)
    ),
    "small": lambda eps: mp.small_db(
        COUNTS, mp.lipschitz_queries(QUERIES, line(eps)), size=3
    ).probabilities(),
    "selection scale": lambda eps: mp.selection_scale(QUERIES, line(eps)),
    "strategies": lambda eps: mp.noise_scales(QUERIES, line(eps), strategy="common"),
    "planar laplace": lambda eps: mp.planar_laplace(WHERE[:, :2], eps).mean_norm_error(),
    "nearest point": lambda eps: mp.nearest_point(
        mp.planar_laplace(WHERE[:, :2], eps).sample(jax.random.key(0)), WHERE[:, :2]
    ),
    "fit (8)": lambda eps: (
        mp.fit_lipschitz_queries(QUERIES, line(eps), num_records=100, price=np.array(2.0)).values
    ),
    "fit (6)": lambda eps: mp.fit_queries(QUERIES[:1], line(eps), num_records=100).scales,
    "fit (13)": lambda eps: mp.fit_statistics(WHERE.T, line(eps), num_records=100).scales,
    "fit (14)": lambda eps: mp.fit_marginals(WHERE[:, 0], line(eps), num_records=100).scales,
}


QUICK = ("load", "lipschitz")


@pytest.mark.parametrize(
    "name",
    [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in ANSWERS],
)
def test_answers(name):
    np.testing.assert_allclose(
        jax.jit(ANSWERS[name])(0.5), ANSWERS[name](0.5), rtol=1e-4, atol=1e-5
    )


def test_there_is_a_case_for_every_function():
    taken = {
        name
        for cases in (METRICS, ANSWERS)
        for case in cases.values()
        for name in case.__code__.co_names
    }
    without_a_case = {
        "single_query_scale",
        "fold_rows",
        "mismatch",
        "small_databases",
        "small_db_size",
        "validate",
    }
    without_a_case |= {"marginal_queries", "range_queries"}  # of static numbers alone
    assert {name for name in mp.__all__ if name[0].islower()} == taken & set(
        mp.__all__
    ) | without_a_case
