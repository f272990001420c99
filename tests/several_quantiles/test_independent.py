"""Independent quantiles: each is that of one quantile, together they keep their budget, and draws
ascend.
"""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpjax import (
    IndependentQuantiles,
    independent_quantiles,
    piecewise_laplace,
    quantile,
    quantiles,
)
from dpjax.accounting import bounded_range_epsilon
from tests.several_quantiles.test_recursive import GRID, QUARTERS, pairs
from tests.support import oracle, statistics
from tests.support.audit import padded

LEVELS = ("0.1", "0.3", "0.9")
DATA = np.random.default_rng(0).normal(size=(4, 15)).round(1)


@pytest.mark.parametrize("neighbors", [pytest.param("add_remove", marks=pytest.mark.slow), "swap"])
@pytest.mark.parametrize(
    ("resolution", "truncate"), [(None, None), pytest.param("0.1", 3, marks=pytest.mark.slow)]
)
def test_each_is_that_of_its_quantile(neighbors, resolution, truncate):
    given = {
        "lower": -2,
        "upper": 2,
        "neighbors": neighbors,
        "resolution": resolution,
        "num_records": np.array([15, 6, 1, 14]),
    }
    asked = quantiles(DATA, LEVELS, **given)
    drawn = jax.jit(lambda asked: independent_quantiles(asked, 3.0, truncate=truncate))(asked)
    each = jax.jit(
        lambda data: [
            piecewise_laplace(quantile(data, q, truncate=truncate, **given), 1.0) for q in LEVELS
        ]
    )(DATA)
    for number in range(len(LEVELS)):
        wanted, found = each[number], drawn.unsorted
        for one, other in ((found.lower, wanted.lower), (found.upper, wanted.upper)):
            values, k = np.asarray(one.values)[:, number], other.size
            np.testing.assert_allclose(values[:, : k + 1], other.values, rtol=0, atol=2e-6)
            # Pieces without width
            np.testing.assert_array_equal(
                values[:, k:], values[:, -1:] + np.zeros_like(values[:, k:])
            )
            costs = np.broadcast_to(one.cost_far, (4, 3, one.size))[:, number, :k]
            np.testing.assert_array_equal(costs, np.broadcast_to(other.cost_far, (4, k)))
    assert float(np.ravel(found.rate)[0]) == float(wanted.rate) == 0.5


def log_probabilities(neighbors, epsilon, **options):
    """Of every tuple before it is sorted: ``(datasets, tuples)``."""
    datasets = oracle.all_datasets({"add_remove": (0, 1, 2, 3), "swap": (4,)}[neighbors], GRID)
    each = _log_probabilities(*padded(datasets, 4), neighbors, epsilon, **options)
    tuples = np.array(list(itertools.product(range(4), repeat=3)))
    return datasets, np.asarray(each)[tuples, :, np.arange(3)].sum(axis=1).T


@functools.partial(jax.jit, static_argnames=("neighbors", "epsilon", "delta"))
def _log_probabilities(x, count, neighbors, epsilon, delta=0.0):
    given = {"neighbors": neighbors, "resolution": 1, "num_records": count}
    asked = quantiles(x, QUARTERS, lower=0, upper=3, **given)
    unsorted = independent_quantiles(asked, epsilon, delta=delta).unsorted
    return unsorted.log_prob(np.array(GRID)[:, None, None])


@pytest.mark.parametrize("neighbors", [pytest.param("add_remove", marks=pytest.mark.slow), "swap"])
def test_they_are_private_for_every_small_dataset(neighbors, x64):
    for epsilon, delta in ((1.5, 0.0), (1.5, 0.02)):
        datasets, found = log_probabilities(neighbors, epsilon, delta=delta)
        np.testing.assert_allclose(np.exp(found).sum(axis=-1), 1.0, rtol=1e-12)
        one, other = pairs(datasets, neighbors)
        excess = (
            np.maximum(np.exp(found[one]) - np.exp(epsilon + found[other]), 0.0).sum(axis=-1).max()
        )
        assert excess <= delta + 1e-12
        whole = independent_quantiles.guarantee(
            quantiles(DATA, QUARTERS, lower=0, upper=3, neighbors=neighbors), epsilon, delta=delta
        )
        ratio = found[one] - found[other]
        assert (ratio.max(axis=-1) - ratio.min(axis=-1)).max() <= whole.bounded_range * (1 + 1e-9)
        # The control: three times the budget.
        _, found = log_probabilities(neighbors, 3 * epsilon)
        assert (found[one] - found[other]).max() > 1.5 * epsilon


@pytest.mark.slow
def test_draws_are_sorted_and_follow_their_law():
    asked = quantiles(
        jnp.array([0.0, 2.0, 2.0]),
        ["0.3", "0.5"],
        lower=0,
        upper=3,
        neighbors="add_remove",
        resolution=1,
    )
    drawn = independent_quantiles(asked, 1.0)
    assert isinstance(drawn, IndependentQuantiles)
    assert (drawn.batch_shape, drawn.event_shape, drawn.dtype) == ((), (2,), jnp.float32)
    draws = np.asarray(drawn.sample(jax.random.key(3), (100, 400)))
    assert draws.shape == (100, 400, 2)
    assert (draws[..., 0] <= draws[..., 1]).all()
    counts = np.bincount((draws @ [4, 1]).astype(int).ravel(), minlength=16).reshape(4, 4)
    one, other = np.asarray(drawn.unsorted.prob(np.array(GRID)[:, None])).T
    joint = np.outer(one, other)
    wanted = np.triu(joint + joint.T) - np.diag(np.diag(joint))
    statistics.assert_counts_follow(counts.ravel(), wanted.ravel())
    statistics.assert_counts_rejected(counts.ravel(), joint.ravel() + 1e-12)


def test_guarantees():
    asked = quantiles(DATA, LEVELS, lower=-2, upper=2, neighbors="swap")
    pure, loose = (
        independent_quantiles.guarantee(asked, 1.2),
        independent_quantiles.guarantee(asked, 1.2, delta=1e-3),
    )
    assert (pure.epsilon, pure.bounded_range, pure.delta, pure.neighbors) == (1.2, 1.2, 0.0, "swap")
    assert pure.zcdp == pytest.approx(3 * 0.4**2 / 8)
    each = loose.bounded_range / 3
    assert (loose.epsilon, loose.delta) == (1.2, 1e-3)
    assert (
        1.2 * (1 - 1e-5) < bounded_range_epsilon(each, count=3, delta=1e-3, queries="fixed") <= 1.2
    )
    rates = independent_quantiles(asked, np.array([[1.2], [2.4]]), delta=1e-3).unsorted.rate
    assert float(2 * rates[0, 0, 0]) == pytest.approx(each, rel=1e-6)
    assert rates.shape == (2, 1, 1)
