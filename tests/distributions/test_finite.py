"""Finite distributions: costs, rates and masses that floats hardly hold, and hostile rows. All
methods against sums are in ``test_quadrature.py``.
"""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpjax.distributions import Finite
from tests.support import statistics

INF, NAN = np.inf, np.nan
VALUES = jnp.array([3.0, -1.0, 2.0, 2.0, 7.0, 0.5])
COSTS = [
    [0.0, 1.0, 2.0, 0.5, 3.0, 1.5],
    [5.0, 5.0, 5.0, 5.0, 5.0, 5.0],  # ties
    [1e5, 1e5 + 1, 1e5 + 4, 1e5 + 2, 2e5, 1e5 + 3],  # far from 0
    [-700.0, INF, -699.0, -698.0, INF, INF],  # negative ones, and excluded candidates
    [2.0**30, 2.0**30 + 128, INF, INF, INF, INF],
]
RATES = np.float32([0.7, 0.7, 0.7, 0.7, 1 / 128])
WAYS = pytest.mark.parametrize(("rows", "draws"), [(2048, 32), (1, 65_536)])
NO_DISTRIBUTION = [[INF] * 6, [0.0, NAN, 1, 1, 1, 1], [0.0, -INF, 1, 1, 1, 1], COSTS[0]]


def exact(costs, rate):
    """Probabilities in float64, for finite rows."""
    costs = np.asarray(costs, np.float64)
    mass = np.exp(-rate * (costs - costs.min(axis=-1, keepdims=True)))
    return mass / mass.sum(axis=-1, keepdims=True)


@partial(jax.jit, static_argnums=(2, 3))
def drawn(costs, rates, rows, draws):
    """Indices and values, ``(draws, 5, rows)``, and probabilities."""
    repeated = Finite(VALUES, costs[:, None], jnp.broadcast_to(rates[:, None], (5, rows)))
    index = repeated.sample_index(jax.random.key(1), draws)
    return index, repeated.sample(jax.random.key(1), draws), repeated.probabilities()[:, 0]


def assert_drawn(costs, rates, controls, rows, draws):
    index, draws, found = map(
        np.asarray, drawn(jnp.float32(costs), jnp.float32(rates), rows, draws)
    )
    np.testing.assert_array_equal(draws, np.asarray(VALUES)[index])
    for row, (own, rate) in enumerate(zip(np.float32(costs), np.float64(rates), strict=True)):
        p = exact(own, min(rate, 1e270))
        np.testing.assert_allclose(found[row], p, rtol=1e-5, atol=1e-30)
        counts = np.bincount(index[:, row].ravel(), minlength=6)
        assert (counts[p == 0] == 0).all()
        if np.sum(p > 1e-6) > 1:
            statistics.assert_counts_follow(counts, p)
            statistics.assert_counts_rejected(counts, controls[row])


@WAYS
def test_draws_follow_the_probabilities_of_costs_of_any_size(rows, draws):
    """A cost of 10^5 times a rate rounds by 0.4 percent in float32: costs are counted from the
    smallest.
    """
    controls = exact(COSTS, 1.1 * np.float64(RATES)[:, None])
    controls[1] = exact([0, 0, 0, 0, 0, 0.2], 0.7)
    assert_drawn(COSTS, RATES, controls, rows, draws)


@WAYS
def test_draws_at_a_huge_rate(rows, draws):
    """Products of costs and rate overflow, and at last the rate itself (an epsilon divided by a
    small sensitivity).
    """
    close = [0.0, 2e-8, 1e-8, 3e-8, 0.5e-8, 1.0]
    costs = [close, close, [-1e30, 1e30, -1e30, 0.0, 1e30, INF], COSTS[0], COSTS[1]]
    rates = np.float32([5e7, 1e8, 1e30, INF, np.finfo(np.float32).max])
    controls = [exact(close, 3e7), exact(close, 5e7), *exact([[0, 1, 2, 3, 4, 5]] * 3, 0.1)]
    assert_drawn(costs, rates, controls, rows, draws)


def test_candidates_of_mass_2_to_the_minus_28_are_drawn():
    """4095 candidates of 2^-28 each, which a float32 cumulative sum behind a large one does not
    have.
    """
    k = 1 << 12
    cost = jnp.asarray(np.append(0.0, np.full(k - 1, 28 * np.log(2.0))), jnp.float32)
    distribution = Finite(jnp.arange(k, dtype=jnp.float32), cost, jnp.float32(1.0))
    index = np.asarray(distribution.sample_index(jax.random.key(2), (1 << 20,)))
    others = np.sum(index > 0)
    assert 1 <= others <= 60  # 16 expected
    assert len(set(index[index > 0])) > others // 2  # and not the same one again and again


def test_rows_without_a_distribution():
    """NaN, and the index -1; a neighboring row is not touched."""

    @jax.jit
    def known(distribution):
        plain = ("probabilities", "log_probabilities", "mean", "variance", "stddev", "entropy")
        at = ("cdf", "survival", "prob", "log_prob", "mean_abs_error", "mean_squared_error")
        found = {name: getattr(distribution, name)() for name in plain}
        found |= {name: getattr(distribution, name)(3.0) for name in at}
        for name, draws in (("few", 1), ("many", 100)):
            indices = distribution.sample_index(jax.random.key(0), (draws,))
            points = distribution.sample(jax.random.key(0), (draws,))
            found |= {name: points.T, name + " indices": jnp.where(indices == -1, jnp.nan, 0.0).T}
        return found | {"quantile": distribution.quantile(0.5)}

    for name, value in known(Finite(VALUES, jnp.array(NO_DISTRIBUTION), jnp.ones(4))).items():
        missing = np.isnan(np.asarray(value)).reshape(4, -1)
        assert (missing == [[True], [True], [True], [False]]).all(), name
