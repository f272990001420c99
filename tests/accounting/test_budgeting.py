"""Budgets the other way: an epsilon for k queries, for an error, and the split over queries."""

from functools import cache
from math import inf

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dpjax
from dpjax.accounting import (
    Guarantee,
    allocate,
    bounded_range_delta,
    bounded_range_of_zcdp,
    epsilon_for_error,
    epsilon_per_query,
    zcdp_of,
)


@pytest.mark.parametrize("promise", ["pure", "bounded_range"])
@pytest.mark.parametrize(
    ("count", "epsilon", "delta"),
    [(1, 1.0, 1e-6), pytest.param(8, 0.7, 1e-5, marks=pytest.mark.slow), (300, 2.0, 1e-8)],
)
def test_per_query(promise, count, epsilon, delta):
    each = epsilon_per_query(count=count, epsilon=epsilon, delta=delta, promise=promise)

    def spent(scale):
        one = scale * each
        return (
            count * Guarantee(one, one if promise == "bounded_range" else inf, "swap")
        ).epsilon_at(delta)

    assert spent(1.0) <= epsilon < spent(1 + 1e-5)
    assert each >= epsilon / count
    if promise == "bounded_range":
        by_zcdp = float(bounded_range_of_zcdp(zcdp_of(epsilon, delta=delta) / count))
        assert each >= 0.999 * by_zcdp
        assert each > epsilon_per_query(count=count, epsilon=epsilon, delta=delta, promise="pure")


def test_fixed_queries_get_more():
    for count, epsilon, delta in ((1, 1.0, 1e-6), (9, 0.7, 1e-5)):
        at = {"count": count, "epsilon": epsilon, "delta": delta}
        each = epsilon_per_query(**at, queries="fixed")
        spent = [
            bounded_range_delta(scale * each, count=count, epsilon=epsilon, queries="fixed")
            for scale in (1.0, 1 + 1e-5)
        ]
        assert spent[0] <= delta < spent[1]
        assert each >= epsilon_per_query(**at) * (1 - 1e-5)
    assert each > 1.005 * epsilon_per_query(**at)
    assert epsilon_per_query(count=4, epsilon=1.0, delta=0.0, queries="fixed") == 0.25


def test_per_query_refusals():
    assert epsilon_per_query(count=4, epsilon=1.0, delta=0.0) == 0.25
    for change in (
        {"count": 0},
        {"epsilon": 0.0},
        {"delta": 1.0},
        {"promise": "rdp"},
        {"queries": "none"},
    ):
        with pytest.raises(ValueError, match=next(iter(change))):
            epsilon_per_query(**({"count": 4, "epsilon": 1.0, "delta": 1e-6} | change))


@pytest.mark.slow
def test_epsilon_for_error():
    x = np.random.default_rng(0).normal(size=(5, 41)).astype(np.float32)
    profile = dpjax.median(x, lower=-5, upper=5, neighbors="add_remove")
    target = np.array([[0.05], [0.5]], np.float32)
    found = epsilon_for_error(profile, dpjax.piecewise_laplace, target)
    assert found.shape == (2, 5)
    errors = jax.jit(
        lambda epsilon: dpjax.piecewise_laplace(profile, epsilon).mean_abs_error(
            profile.value[None]
        )
    )
    np.testing.assert_allclose(errors(found), np.broadcast_to(target, (2, 5)), rtol=1e-4)
    assert (np.asarray(errors(np.float32(0.99) * np.asarray(found))) > target * (1 + 1e-4)).all()
    limited = epsilon_for_error(
        profile, dpjax.piecewise_laplace, jnp.array([1e-30, 4.9, -1.0, jnp.nan, 0.5]), upper=20.0
    )
    np.testing.assert_array_equal(np.isnan(limited), [True, False, True, True, False])
    assert limited[1] == pytest.approx(1e-4)  # the range alone is that good
    for change in ({"target": -1.0}, {"target": 1.0, "lower": 2.0, "upper": 1.0}):
        with pytest.raises(ValueError, match=r"target|lower"):
            epsilon_for_error(profile, dpjax.piecewise_laplace, change.pop("target"), **change)


@cache
def errors_of_columns():
    """Of medians of columns of different spread, a function of their epsilons that is compiled
    once.
    """
    spread = np.array([0.1, 1.0, 4.0, 10.0])
    x = (spread[:, None] * np.random.default_rng(1).normal(size=(4, 101))).astype(np.float32)
    profile = dpjax.median(x, lower=-50, upper=50, neighbors="add_remove")
    return jax.jit(
        lambda epsilon: dpjax.piecewise_laplace(profile, epsilon).mean_abs_error(profile.value)
    )


@pytest.mark.slow
@pytest.mark.parametrize("budget", ["epsilon", "zcdp"])
def test_allocation_of_exact_errors(budget):
    """Medians of columns of different spread: better than an even split, and no shift of budget
    between two improves it.
    """
    errors = errors_of_columns()

    def of(share):
        return 2.0 * share ** (1.0 if budget == "epsilon" else 0.5)

    def error(epsilon):
        return float(np.asarray(errors(epsilon.astype(np.float32))).sum())

    found = np.asarray(allocate(errors, 2.0, queries=4, budget=budget))
    share = (found / 2.0) ** (1.0 if budget == "epsilon" else 2.0)
    np.testing.assert_allclose(share.sum(), 1.0, rtol=1e-5)
    least, even = error(found), error(of(np.full(4, 0.25)))
    assert least < 0.95 * even
    for i in range(4):
        for j in range(4):
            moved = share + 0.02 * share[i] * (np.eye(4)[i] - np.eye(4)[j])
            if i != j and moved[j] > 0:
                assert error(of(moved)) > least * (1 - 1e-4)


def test_allocation_of_rows_and_refusals():
    rows = jnp.array([[1.0, 4.0], [9.0, 1.0]])
    found = allocate(lambda epsilon: rows / epsilon, jnp.array([3.0, 4.0]), queries=2)
    np.testing.assert_allclose(found, [[1.0, 2.0], [3.0, 1.0]], rtol=1e-5)
    for change, message in (
        ({"total": -1.0}, "total"),
        ({"queries": 0}, "queries"),
        ({"budget": "rdp"}, "budget"),
    ):
        with pytest.raises(ValueError, match=message):
            allocate(lambda e: 1 / e, **({"total": 1.0, "queries": 2} | change))


@pytest.mark.parametrize("dtype", [jnp.int32, jnp.bfloat16, jnp.float16])
def test_a_narrow_total_is_split_in_float32(dtype):
    def errors(epsilon):
        return jnp.array([1.0, 4.0, 9.0]) / epsilon

    found = allocate(errors, jnp.asarray(6, dtype), queries=3)
    assert found.dtype == jnp.float32
    np.testing.assert_array_equal(found, allocate(errors, 6.0, queries=3))
