"""Permute and flip on the multiples of a resolution: it is what a release draws by default, private
over all small datasets, and drawn as it says, by races and by its probabilities.
"""

from dataclasses import replace
from fractions import Fraction
from functools import cache, partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from dpjax import (
    from_radii,
    median,
    order_statistic,
    permute_and_flip,
    piecewise_laplace,
    quantile,
)
from dpjax.distributions.flips import least_of
from dpjax.release import Median, jumps
from dpjax.statistics.monotone import maximum
from tests.support.audit import padded
from tests.support.oracle import all_datasets
from tests.support.releases import GRID, PUBLIC, STATISTICS, TOP, loss_and_range, pairs_of, pmf
from tests.support.statistics import (
    assert_counts_follow,
    assert_counts_rejected,
    assert_follows,
    assert_rejected,
)

DATASETS = {"swap": all_datasets([4], GRID), "add_remove": all_datasets(range(5), GRID)}
EPSILONS = np.array([0.3, 1.0, 2.0, 4.0])
PROFILES = {
    "median": median,
    "midpoint": lambda x, **known: median(x, definition="linear", **known),
    "3/4": lambda x, **known: quantile(x, Fraction(3, 4), **known),
    "1/3": lambda x, **known: quantile(x, Fraction(1, 3), **known),
    "maximum": lambda x, neighbors, **known: maximum(x, **known).shift(1),
}
CASES = [(name, neighbors) for name in PROFILES for neighbors in DATASETS]
CASES = [case for case in CASES if case not in (("maximum", "swap"), ("1/3", "swap"))]


@cache
def shares(name, neighbors):
    """The probabilities of all multiples, for each epsilon and dataset, and wrong ones."""

    @jax.jit
    def run(x, count):
        profile = PROFILES[name](x, num_records=count, neighbors=neighbors, **PUBLIC)
        y = np.arange((2 * TOP if name == "midpoint" else TOP) + 1) * float(profile.resolution)
        right = permute_and_flip(profile, EPSILONS[:, None])
        cost = right.cost_left
        # Of a value that is one change deeper than it is
        deeper = jnp.where(cost == jnp.min(cost, axis=-1, keepdims=True), cost - 1, cost)
        costs = jnp.stack([cost, deeper])
        both = replace(right, cost_left=costs, cost_right=costs)
        return both.prob(y[:, None, None, None])

    found = jax.device_get(run(*padded(DATASETS[neighbors], 4)))
    return np.moveaxis(found, 0, -1)


@pytest.mark.parametrize(("name", "neighbors"), CASES)
def test_it_is_the_distribution_of_a_release(name, neighbors, x64):
    right = shares(name, neighbors)[0]
    for epsilon, found in zip(EPSILONS, right, strict=True):
        wanted = pmf(STATISTICS[name], DATASETS[neighbors], epsilon, neighbors)
        assert_allclose(found, wanted, rtol=1e-12)
    # Control: another epsilon, and another mechanism with the same costs
    other = pmf(STATISTICS[name], DATASETS[neighbors], 0.33, neighbors)
    third = pmf(STATISTICS[name], DATASETS[neighbors], 0.3, neighbors, "piecewise_laplace")
    for wrong in (other, third):
        assert np.abs(right[0] / wrong - 1).max() > 0.01


@pytest.mark.parametrize("epsilon", [0.5, pytest.param(3.0, marks=pytest.mark.slow)])
def test_long_runs_are_those_of_a_release(epsilon):
    """Runs of up to 10^6 multiples, in float32."""
    x = np.random.default_rng(3).normal(4e5, 1e5, 51).round()
    known = {"lower": 0, "upper": 10**6, "resolution": 1}
    y, p = np.linspace(0, 10**6, 401).round(), np.array([0.1, 0.5, 0.9])
    released = Median(**known).distribution(x, epsilon=epsilon, neighbors="swap")

    @jax.jit
    def run(x, rate):
        profile = median(x, neighbors="swap", **known)
        law = permute_and_flip(profile.truncate(jumps.far_of(Fraction(epsilon), 10**6 + 1)), rate)
        error = law.mean_abs_error(profile.value)
        return law.prob(y), law.cdf(y), law.survival(y), error, law.quantile(p)

    shares, below, above, error, quantiles = run(np.float32(x), epsilon)
    assert_allclose(shares, released.pmf(y), rtol=1e-4, atol=1e-12)
    assert_allclose(below, released.cdf(y), atol=2e-6)
    assert_allclose(above, 1 - released.cdf(y), atol=2e-6)
    assert_allclose(error, released.mean_abs_error(released.value), rtol=1e-4)
    assert_allclose(quantiles, released.quantile(p), rtol=1e-4)


@pytest.mark.parametrize(("name", "neighbors"), CASES)
def test_it_is_private_over_all_small_datasets(name, neighbors, x64):
    pairs = pairs_of(DATASETS[neighbors], neighbors)
    right, control = (
        [loss_and_range(found, pairs) for found in law] for law in shares(name, neighbors)
    )
    for epsilon, (loss, spread) in zip(EPSILONS, right, strict=True):
        assert loss <= epsilon * (1 + 1e-9)
        assert spread <= 2 * epsilon * (1 + 1e-9)
        assert loss >= 0.7 * epsilon
    assert all(loss > 1.1 * epsilon for epsilon, (loss, _) in zip(EPSILONS, control, strict=True))


def test_draws_have_its_probabilities_whatever_their_number():
    rows = 20_000

    @jax.jit
    def run(x, key):
        profile = median(x, lower=0, upper=20, neighbors="swap", resolution=1)
        right, other = permute_and_flip(profile, 0.8), permute_and_flip(profile, 1.0)
        laws = (right, other, piecewise_laplace(profile, 0.8))
        raced = permute_and_flip(profile, jnp.full(rows, 0.8)).sample(key)
        shares = [law.prob(jnp.arange(21.0)) for law in laws]
        return (raced, right.sample(key, (rows,))), shares

    found, (right, *wrong) = run(np.array([3.0, 4.0, 4.0, 7.0, 12.0]), jax.random.key(4))
    for draws in found:
        counts = np.bincount(np.asarray(draws, int), minlength=21)
        assert_counts_follow(counts, right)
        for control in wrong:
            assert_counts_rejected(counts, control)


def test_draws_from_long_runs():
    x, public = np.array([1e6, 1e6, 3e6]), {"lower": 0, "upper": 4e6, "neighbors": "swap"}

    def law(epsilon):
        return permute_and_flip(order_statistic(x, 2, resolution=1, **public), epsilon)

    sample = jax.jit(lambda key: law(jnp.full(20_000, 3.0)).sample(key))
    raced = np.asarray(sample(jax.random.key(0)))
    cdf = jax.jit(lambda y, epsilon: law(epsilon).cdf(y))
    assert_follows(raced, lambda y: cdf(y, 3.0))
    assert_rejected(raced, lambda y: cdf(y, 3.6))
    assert_array_equal(raced, np.round(raced))
    # Every place of a run
    assert np.bincount(np.asarray(raced, int) % 4).min() > 0


def test_the_least_of_many_uniforms_is_precise_at_both_ends():
    number = 2.0 ** np.array([0, 1, 10, 24])[:, None]
    variates = np.array([2.0**-65, 2.0**-40, 1e-3, 0.5, 0.75, 1 - 2.0**-23])
    power = np.log1p(-variates) / number
    # 1 - exp(power), by a series of its own near 0
    wanted = np.where(power > -1e-4, -power - power**2 / 2 - power**3 / 6, 1 - np.exp(power))
    found = jax.jit(least_of)(np.float32(variates), np.float32(number))
    assert_allclose(found, wanted, rtol=1e-6)
    # Control: by the power itself
    naive = 1 - (1 - np.float32(variates)) ** (1 / np.float32(number))
    assert np.abs(naive / wanted - 1).max() > 0.1


def test_far_multiples_and_sharp_rates():
    """Probabilities far below the least float, and an epsilon that leaves only the value."""

    @jax.jit
    def run(x, epsilon):
        profile = median(x, lower=0, upper=1000, neighbors="swap", resolution=1)
        law = permute_and_flip(profile, epsilon)
        values = (law.sample(jax.random.key(0)), law.mean(), profile.value)
        return law.log_prob(1000.0), values, law.prob(500.0)

    x = np.linspace(0, 1000, 1001)
    assert_allclose(run(x, 2.0)[0], -500, rtol=0.01)
    _, values, share = run(x, 1e9)
    assert values == (500, 500, 500)
    assert share == 1


def test_what_it_takes():
    x, public = np.arange(5.0), {"lower": 0, "upper": 9, "neighbors": "swap"}
    profile = median(x, resolution=1, **public)
    with pytest.raises(ValueError, match="resolution"):
        permute_and_flip(median(x, **public), 1.0)
    unbounded = jax.jit(partial(from_radii, neighbors="swap", step=1.0))(1.0, np.ones(2))
    with pytest.raises(ValueError, match="bounds"):
        permute_and_flip(unbounded, 1.0)
    hull = replace(profile, interpolable=False)
    with pytest.raises(ValueError, match="interpolable"):
        permute_and_flip(hull, 1.0)
    with pytest.raises(ValueError, match="sensitivity"):
        permute_and_flip(profile, 1.0, sensitivity=1.0)
