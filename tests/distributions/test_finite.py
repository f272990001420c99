"""Finite distributions against fractions and plain NumPy, their draws against their probabilities,
and hostile rows.
"""

from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpjax.distributions.finite import Finite
from tests.support import statistics

INF, NAN = np.inf, np.nan
VALUES = [3.0, -1.0, 2.0, 2.0, 7.0, 0.5]
COSTS = [
    [0.0, 1.0, 2.0, 0.5, 3.0, 1.5],
    [5.0, 5.0, 5.0, 5.0, 5.0, 5.0],  # ties
    [1e5, 1e5 + 1, 1e5 + 4, 1e5 + 2, 2e5, 1e5 + 3],  # far from 0
    [-700.0, INF, -699.0, -698.0, INF, INF],  # negative ones, and excluded candidates
    [INF, INF, INF, 4.0, INF, INF],  # one is left
]
NO_DISTRIBUTION = [
    [INF] * 6,
    [0.0, NAN, 1.0, 1.0, 1.0, 1.0],
    [0.0, -INF, 1.0, 1.0, 1.0, 1.0],
]


def distribution_of(costs, rate=0.7, dtype="float32"):
    return Finite(jnp.asarray(VALUES, dtype), jnp.asarray(costs, dtype), jnp.asarray(rate, dtype))


def exact(costs, rate=0.7):
    """Probabilities in float64, for finite rows."""
    costs = np.asarray(costs, np.float64)
    mass = np.exp(-rate * (costs - costs.min(axis=-1, keepdims=True)))
    return mass / mass.sum(axis=-1, keepdims=True)


@jax.jit
def summaries(distribution, points):
    plain = ("probabilities", "log_probabilities", "mean", "variance", "stddev", "entropy")
    at = ("cdf", "survival", "prob", "log_prob", "mean_abs_error", "mean_squared_error")
    return {name: getattr(distribution, name)() for name in plain} | {
        name: getattr(distribution, name)(points) for name in at
    }


@pytest.mark.parametrize("dtype", ["float32", pytest.param("float64", marks=pytest.mark.slow)])
def test_every_method_against_sums(dtype, x64):
    distribution, p, v = distribution_of(COSTS, dtype=dtype), exact(COSTS), np.array(VALUES)
    points = np.array([-2.0, -1.0, 0.7, 2.0, 3.0, 7.0, 8.0])
    found = summaries(distribution, jnp.asarray(points[:, None], dtype))
    close = {"rtol": 1e-12, "atol": 1e-14} if dtype == "float64" else {"rtol": 2e-6, "atol": 1e-6}
    np.testing.assert_allclose(found["probabilities"], p, **close)
    np.testing.assert_allclose(found["mean"], p @ v, **close)
    np.testing.assert_allclose(
        found["variance"], p @ v**2 - (p @ v) ** 2, **(close | {"atol": 1e-5})
    )
    np.testing.assert_allclose(
        found["stddev"], np.sqrt(np.maximum(p @ v**2 - (p @ v) ** 2, 0)), **(close | {"atol": 1e-3})
    )
    with np.errstate(divide="ignore", invalid="ignore"):
        np.testing.assert_allclose(
            found["entropy"], -np.sum(np.where(p > 0, p * np.log(p), 0), axis=-1), **close
        )
    for method, test in (("cdf", np.less_equal), ("survival", np.greater), ("prob", np.equal)):
        wanted = np.sum(p[None] * test(v[None, None], points[:, None, None]), axis=-1)
        np.testing.assert_allclose(found[method], wanted, **close)
    np.testing.assert_allclose(found["mean_abs_error"], np.abs(v - points[:, None]) @ p.T, **close)
    np.testing.assert_allclose(
        found["mean_squared_error"], (v - points[:, None]) ** 2 @ p.T, **close
    )
    assert all(value.dtype == dtype for value in found.values())
    # A survival far in the tail is no difference from 1.
    assert 0 <= found["survival"][4, 2] < 1e-30


def test_quantiles_are_the_smallest_candidate_that_reaches_p(x64):
    distribution, p, v = distribution_of(COSTS, dtype="float64"), exact(COSTS), np.array(VALUES)
    for level in (0.0, 0.1, 0.33, 0.5, 0.9, 1.0):
        wanted = [
            min(x for x in v[row > 0] if row[v <= x].sum() >= min(level, 1 - 1e-12)) for row in p
        ]
        np.testing.assert_array_equal(distribution.quantile(level), wanted)
    low, high = distribution.interval(0.8)
    np.testing.assert_array_equal(low, distribution.quantile(0.1))
    np.testing.assert_array_equal(high, distribution.quantile(0.9))
    assert np.isnan(distribution.quantile([[-0.1], [1.1], [NAN]])).all()


def test_large_costs_are_not_rounded_away():
    """A cost of 10^5 times a rate rounds by 0.4 percent in float32; costs are counted from the
    smallest instead.
    """
    np.testing.assert_allclose(
        distribution_of(COSTS[2]).log_probabilities()[:4], np.log(exact(COSTS[2])[:4]), rtol=1e-6
    )
    farther = Finite(
        jnp.arange(6.0),
        jnp.array([2.0**30, 2.0**30 + 128.0, INF, INF, INF, INF]),
        jnp.float32(1 / 128),
    )
    np.testing.assert_allclose(farther.probabilities()[:2], exact([0, 1], 1.0), rtol=1e-6)


def test_draws_do_not_round_large_costs_away():
    """The sampler's exponents end at 2^24."""
    distribution = Finite(
        jnp.arange(2.0), jnp.array([2.0**30, 2.0**30 + 128.0]), jnp.float32(1 / 128)
    )
    ones = distribution.sample_index(jax.random.key(0), (2000,))
    statistics.assert_counts_follow(np.bincount(ones, minlength=2), exact([0, 1], 1.0))
    statistics.assert_counts_rejected(np.bincount(ones, minlength=2), [0.5, 0.5])


def repeated(costs, rows, rates=0.7, dtype="float32"):
    rates = jnp.broadcast_to(jnp.asarray(rates, dtype), (rows,))
    return Finite(jnp.asarray(VALUES, dtype), jnp.asarray(costs, dtype)[:, None, :], rates)


@pytest.mark.parametrize("shape", [(8000,), pytest.param((50,), marks=pytest.mark.slow)])
def test_draws_follow_the_probabilities(shape):
    """Repeated draws come from a table, few draws from a tree; each distribution is repeated over
    rows to have enough of them.
    """
    rows = 40000 // shape[0]
    distribution = repeated(COSTS, rows)
    index = np.asarray(distribution.sample_index(jax.random.key(1), shape))
    assert index.shape == (*shape, 5, rows)
    for row, p in enumerate(exact(COSTS)):
        counts = np.bincount(index[:, row].ravel(), minlength=6)
        assert (counts[p == 0] == 0).all()
        if np.sum(p > 1e-6) > 1:
            statistics.assert_counts_follow(counts, p)
            statistics.assert_counts_rejected(
                counts, exact(COSTS, 0.8)[row] if row != 1 else exact([0, 0, 0, 0, 0, 0.2], 0.7)
            )
    np.testing.assert_array_equal(
        distribution.sample(jax.random.key(1), shape), np.array(VALUES, np.float32)[index]
    )


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float32", pytest.param("float64", marks=pytest.mark.slow)])
def test_draws_at_a_huge_rate(dtype, request):
    """Products of costs and rate overflow, and at last the rate itself (an epsilon divided by a
    small sensitivity).
    """
    if dtype == "float64":
        request.getfixturevalue("x64")
    rates = np.array([5e7, 5e8, 1e30, float(np.finfo(dtype).max), INF])
    close = np.array([0.0, 2e-8, 1e-8, 3e-8, 0.5e-8, 1.0], dtype)
    costs = [COSTS[0], COSTS[1], [-1e30, 1e30, -1e30, 0.0, 1e30, INF], COSTS[4], close]
    distribution = repeated(costs, 5, rates, dtype)  # the program of the test above
    wanted = np.array([[exact(row, min(rate, 1e270)) for rate in rates] for row in costs])
    np.testing.assert_allclose(distribution.probabilities(), wanted, rtol=1e-5, atol=1e-30)
    index = np.asarray(distribution.sample_index(jax.random.key(5), (8000,)))
    for row, rate in np.ndindex(5, 5):
        counts, p = np.bincount(index[:, row, rate], minlength=6), wanted[row, rate]
        assert (counts[p == 0] == 0).all()
        if np.sum(p > 1e-6) > 1:
            statistics.assert_counts_follow(counts, p)
    statistics.assert_counts_rejected(np.bincount(index[:, 4, 0], minlength=6), exact(close, 3e7))
    best = np.array([3.0, -1.0, 2.0, 2.0, 3.0])  # the least of the best values of each row
    np.testing.assert_array_equal(
        distribution.quantile(0.0)[:, 2:], np.broadcast_to(best[:, None], (5, 3))
    )


@pytest.mark.parametrize("scale", [1e-25, 1e25])
def test_stddev_where_the_variance_underflows_or_overflows(scale):
    points = jnp.zeros((7, 1))  # the shapes of the first test
    usual, found = (
        summaries(Finite(jnp.asarray(values), jnp.asarray(COSTS), jnp.float32(0.7)), points)
        for values in (VALUES, scale * np.array(VALUES))
    )
    np.testing.assert_allclose(
        np.asarray(found["stddev"], np.float64) / scale, usual["stddev"], rtol=1e-5, atol=1e-5
    )
    # The control: a root of it would be wrong
    assert np.isin(found["variance"][:3], [0, INF]).all()


def test_candidates_of_mass_2_to_the_minus_28_are_drawn():
    """4095 candidates of 2^-28 each, which a float32 cumulative sum behind a large one does not
    have.
    """
    k = 1 << 12
    cost = jnp.full((k,), 28 * np.log(2.0)).at[0].set(0.0)  # together 2^-16
    distribution = Finite(jnp.arange(float(k)), cost, jnp.float32(1.0))
    index = np.asarray(distribution.sample_index(jax.random.key(2), (1 << 20,)))
    others = np.sum(index > 0)
    assert 1 <= others <= 60  # 16 expected
    assert len(set(index[index > 0])) > others // 2  # and not the same one again and again


def test_rows_without_a_distribution():
    """NaN, and the index -1; a neighboring row is not touched."""
    repeats = repeated([*NO_DISTRIBUTION, COSTS[0], COSTS[1]], 5)
    assert (np.asarray(repeats.sample_index(jax.random.key(0), (8000,)))[:, :3] == -1).all()
    draws = np.asarray(repeats.sample(jax.random.key(0), (8000,)))
    assert np.isnan(draws[:, :3]).all()
    assert np.isfinite(draws[:, 3:]).all()
    distribution = distribution_of([*NO_DISTRIBUTION, COSTS[0], COSTS[1]])
    # The shapes of the test above
    found = summaries(distribution, jnp.asarray([[3.0]] * 6 + [[NAN]]))
    for name, value in found.items():
        rows = value[0] if value.ndim == 2 and value.shape[0] == 7 else value
        assert np.isnan(rows[:3]).all(), name
        assert np.isfinite(rows[3:]).all(), name
    for name in ("cdf", "survival", "log_prob"):
        assert np.isnan(found[name][6]).all()
    assert np.isnan(distribution.quantile(0.5)).tolist() == [True] * 3 + [False] * 2


def test_rows_without_a_distribution_by_few_draws_and_by_a_bad_rate():
    distribution = distribution_of([*NO_DISTRIBUTION, COSTS[0]])
    assert np.isnan(distribution.sample(jax.random.key(0))).tolist() == [True, True, True, False]
    bad_rate = distribution_of(COSTS[:2], jnp.array([NAN, 1.0]))
    assert (bad_rate.sample_index(jax.random.key(0)) == -1).tolist() == [True, False]
    assert np.isnan(bad_rate.mean()).tolist() == [True, False]


def test_gradients_are_finite_with_ties_and_infinite_costs():
    def total(values, costs, rate):
        d = Finite(values, costs, rate)
        parts = (
            d.mean() + d.variance() + d.entropy() + d.cdf(2.0) + d.survival(2.0) + d.quantile(0.4)
        )
        return jnp.sum(parts + d.prob(2.0) + d.prob(7.0) + jnp.sum(d.probabilities(), axis=-1))

    arguments = jnp.asarray(VALUES), jnp.asarray(COSTS).at[:, 5].set(INF), jnp.float32(0.7)
    for gradient in jax.jit(jax.grad(total, argnums=(0, 1, 2)))(*arguments):
        assert jnp.isfinite(gradient).all()


def test_gradients_agree_with_differences(x64):
    cost, direction = jnp.asarray(COSTS[0], jnp.float64), jnp.array([0.3, -1.0, 0.2, 0.5, 0.0, 1.0])

    def along(h):
        distribution = Finite(jnp.asarray(VALUES, jnp.float64), cost + h * direction, 0.7 + h)
        return distribution.mean() + distribution.entropy() + distribution.log_prob(2.0)

    h = 1e-5
    values = jax.jit(along)
    assert float(jax.jit(jax.grad(along))(0.0)) == pytest.approx(
        float(values(h) - values(-h)) / (2 * h), rel=1e-8
    )


@pytest.mark.slow
@pytest.mark.parametrize("shape", [(), (130,)])
def test_draws_do_not_depend_on_excluded_candidates_at_the_end_nor_on_further_rows(shape):
    rng = np.random.default_rng(3)
    cost, values = (
        rng.exponential(size=(4, 33)).astype(np.float32),
        np.arange(33.0, dtype=np.float32),
    )
    key, rate = jax.random.key(4), jnp.float32(1.3)
    few = Finite(jnp.asarray(values), jnp.asarray(cost), rate)
    draws = np.asarray(few.sample(key, shape))
    padded = np.pad(cost, [(0, 0), (0, 50)], constant_values=INF)
    wide = Finite(
        jnp.asarray(np.pad(values, (0, 50), constant_values=NAN)), jnp.asarray(padded), rate
    )
    np.testing.assert_array_equal(draws, wide.sample(key, shape))
    longer = Finite(jnp.asarray(values), jnp.asarray(np.concatenate([cost, cost])), rate)
    np.testing.assert_array_equal(draws, longer.sample(key, shape)[..., :4])
    np.testing.assert_array_equal(
        longer.sample(key, shape)[..., 4:], few._sample(key, shape, first=4)
    )
    assert len(set(longer.sample(key, shape).ravel().tolist())) > 3


@pytest.mark.slow
def test_fields_broadcast_and_distributions_pass_through_vmap_and_jit():
    distribution = Finite(jnp.asarray(VALUES), jnp.asarray(COSTS), jnp.array([0.5, 1.0])[:, None])
    assert distribution.batch_shape == (2, 5)
    assert distribution.sample(jax.random.key(0), (3,)).shape == (3, 2, 5)
    assert distribution.sample(jax.random.key(0), (0,)).shape == (0, 2, 5)
    np.testing.assert_allclose(distribution.probabilities()[1, 0], exact(COSTS[0], 1.0), rtol=2e-6)
    own_values = Finite(
        jnp.stack([jnp.asarray(VALUES)] * 5), jnp.asarray(COSTS[0]), jnp.float32(1.0)
    )
    assert own_values.sample(jax.random.key(0)).shape == (5,)
    assert set(own_values.sample(jax.random.key(0), (40,)).ravel().tolist()) <= set(VALUES)

    def of_row(cost):
        return Finite(jnp.asarray(VALUES), cost, jnp.float32(1.0))

    mapped = jax.jit(jax.vmap(of_row))(jnp.asarray(COSTS))
    np.testing.assert_allclose(mapped.mean(), of_row(jnp.asarray(COSTS)).mean(), rtol=1e-6)
    with pytest.raises(ValueError, match="values and cost must have the same last axis"):
        _ = Finite(jnp.zeros(3), jnp.zeros(4), jnp.float32(1.0)).batch_shape


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_fields_of_numpy(dtype):
    """A distribution that was brought to the host, or made there in float64."""
    fields = np.array(VALUES, dtype), np.array(COSTS, dtype), np.asarray(0.5, dtype)
    distribution, same = Finite(*fields), Finite(*map(jnp.asarray, fields))
    key = jax.random.key(0)
    for shape in ((), (3,), (0,)):
        np.testing.assert_array_equal(distribution.sample(key, shape), same.sample(key, shape))
        np.testing.assert_array_equal(
            distribution.sample_index(key, shape), same.sample_index(key, shape)
        )
    assert distribution.dtype == same.dtype == jnp.float32
    for name in ("mean", "variance", "entropy", "probabilities"):
        np.testing.assert_array_equal(getattr(distribution, name)(), getattr(same, name)())
    for name, at in (("cdf", 2.0), ("prob", VALUES[0]), ("quantile", 0.5), ("mean_abs_error", 1.0)):
        np.testing.assert_array_equal(getattr(distribution, name)(at), getattr(same, name)(at))


def test_values_may_be_out_of_order_and_equal(x64):
    """Weights 2^-cost as exact fractions."""
    distribution = Finite(jnp.array([5.0, 1.0, 5.0]), jnp.array([1.0, 2.0, 3.0]), jnp.log(2.0))
    weights = [Fraction(1, 2), Fraction(1, 4), Fraction(1, 8)]
    fives = float((weights[0] + weights[2]) / sum(weights))
    assert float(distribution.prob(5.0)) == pytest.approx(fives, rel=1e-14)
    assert float(distribution.cdf(1.0)) == pytest.approx(1 - fives, rel=1e-14)
    assert float(distribution.log_prob(2.0)) == -INF
