"""Permute and flip on the multiples of a resolution: it is what a release draws by default, private
over all small datasets, and drawn as it says, by races and by its probabilities.
"""

from dataclasses import replace
from fractions import Fraction
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from dpjax import (
    Guarantee,
    from_radii,
    median,
    order_statistic,
    permute_and_flip,
    piecewise_laplace,
    quantile,
)
from dpjax.distributions._permute_and_flip import least_of
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
CASES.remove(("maximum", "swap"))


@cache
def law(name, neighbors):
    """The distributions of all datasets, for each epsilon, and the multiples that they may draw."""
    x, count = padded(DATASETS[neighbors], 4)
    profile = PROFILES[name](x, num_records=count, neighbors=neighbors, **PUBLIC)
    values = np.arange((2 * TOP if name == "midpoint" else TOP) + 1) * float(profile.resolution)
    return permute_and_flip(profile, EPSILONS[:, None]), values


def shares_of(distribution, values):
    return np.moveaxis(jax.jit(lambda y: distribution.prob(y))(values[:, None, None]), 0, -1)


@pytest.mark.parametrize(("name", "neighbors"), CASES)
def test_it_is_the_distribution_of_a_release(name, neighbors, x64):
    shares = shares_of(*law(name, neighbors))
    for epsilon, found in zip(EPSILONS, shares, strict=True):
        wanted = pmf(STATISTICS[name], DATASETS[neighbors], epsilon, neighbors)
        assert_allclose(found, wanted, rtol=1e-12)
    # Control: another epsilon, and another mechanism with the same costs
    other = pmf(STATISTICS[name], DATASETS[neighbors], 0.33, neighbors)
    third = pmf(STATISTICS[name], DATASETS[neighbors], 0.3, neighbors, "piecewise_laplace")
    for wrong in (other, third):
        assert np.abs(shares[0] / wrong - 1).max() > 0.01


@pytest.mark.parametrize("epsilon", [0.5, 3.0])
def test_long_runs_are_those_of_a_release(epsilon):
    """Runs of up to 10^6 multiples, in float32, and an epsilon that is not known to the program."""
    x = np.random.default_rng(3).normal(4e5, 1e5, 51).round()
    known = {"lower": 0, "upper": 10**6, "resolution": 1}
    profile = median(jnp.float32(x), neighbors="swap", **known)
    profile = profile.truncate(jumps.far_of(Fraction(epsilon), 10**6 + 1))
    released = Median(**known).distribution(x, epsilon=epsilon, neighbors="swap")
    found = permute_and_flip(profile, epsilon)
    y = np.linspace(0, 10**6, 401).round()
    traced = jax.jit(lambda epsilon: permute_and_flip(profile, epsilon).prob(y))(epsilon)
    for shares in (found.prob(y), traced):
        assert_allclose(shares, released.pmf(y), rtol=1e-4, atol=1e-12)
    assert_allclose(found.cdf(y), released.cdf(y), atol=2e-6)
    assert_allclose(found.survival(y), 1 - released.cdf(y), atol=2e-6)
    error = released.mean_abs_error(released.value)
    assert_allclose(found.mean_abs_error(profile.value), error, rtol=1e-4)
    p = np.array([0.1, 0.5, 0.9])
    assert_allclose(found.quantile(p), released.quantile(p), rtol=1e-4)


@pytest.mark.parametrize(("name", "neighbors"), CASES)
def test_it_is_private_over_all_small_datasets(name, neighbors, x64):
    distribution, values = law(name, neighbors)
    pairs = pairs_of(DATASETS[neighbors], neighbors)
    cost = np.asarray(distribution.cost_left)
    wrong = jnp.asarray(np.where(cost == cost.min(-1, keepdims=True), cost - 1, cost))
    mistaken = replace(distribution, cost_left=wrong, cost_right=wrong)
    right, control = (
        [loss_and_range(shares, pairs) for shares in shares_of(law, values)]
        for law in (distribution, mistaken)
    )
    for epsilon, (loss, spread) in zip(EPSILONS, right, strict=True):
        assert loss <= epsilon * (1 + 1e-9)
        assert spread <= 2 * epsilon * (1 + 1e-9)
        assert loss >= 0.7 * epsilon
    # A value that is one change deeper than it is
    assert all(loss > 1.1 * epsilon for epsilon, (loss, _) in zip(EPSILONS, control, strict=True))


def test_draws_have_its_probabilities_whatever_their_number():
    x = jnp.array([3.0, 4.0, 4.0, 7.0, 12.0])
    profile = median(x, lower=0, upper=20, neighbors="swap", resolution=1)
    rows, key = 20_000, jax.random.key(4)
    raced = permute_and_flip(profile, jnp.full(rows, 0.8)).sample(key)
    found, other = permute_and_flip(profile, 0.8), permute_and_flip(profile, 1.0)
    for draws in (raced, found.sample(key, (rows,))):
        counts = np.bincount(np.asarray(draws, int), minlength=21)
        assert_counts_follow(counts, found.prob(np.arange(21.0)))
        for wrong in (other, piecewise_laplace(profile, 0.8)):
            assert_counts_rejected(counts, wrong.prob(np.arange(21.0)))


def test_draws_from_long_runs():
    profile = order_statistic(
        jnp.array([1e6, 1e6, 3e6]), 2, lower=0, upper=4e6, neighbors="swap", resolution=1
    )
    raced = permute_and_flip(profile, jnp.full(20_000, 3.0)).sample(jax.random.key(0))
    assert_follows(raced, permute_and_flip(profile, 3.0).cdf)
    assert_rejected(raced, permute_and_flip(profile, 3.6).cdf)
    assert_array_equal(raced, np.round(raced))
    # Every place of a run
    assert np.bincount(np.asarray(raced, int) % 4).min() > 0


def test_the_least_of_many_uniforms_is_precise_at_both_ends():
    number = 2.0 ** np.array([0, 1, 10, 24])[:, None]
    variates = np.array([2.0**-65, 2.0**-40, 1e-3, 0.5, 0.75, 1 - 2.0**-23])
    power = np.log1p(-variates) / number
    # 1 - exp(power), by a series of its own near 0
    wanted = np.where(power > -1e-4, -power - power**2 / 2 - power**3 / 6, 1 - np.exp(power))
    found = least_of(jnp.float32(variates), jnp.float32(number))
    assert_allclose(found, wanted, rtol=1e-6)
    # Control: by the power itself
    naive = 1 - (1 - np.float32(variates)) ** (1 / np.float32(number))
    assert np.abs(naive / wanted - 1).max() > 0.1


def test_rows_programs_and_gradients():
    x = jnp.array([[3.0, 4.0, 4.0, 7.0, 12.0], [1.0, 9.0, 9.0, 9.0, 20.0]])
    public = {"lower": 0, "upper": 20, "neighbors": "add_remove", "resolution": 1}
    key = jax.random.key(1)

    def error(epsilon, x=x):
        return permute_and_flip(median(x, **public), epsilon).mean_abs_error(5.0)

    sweep = jnp.array([0.4, 1.3, 2.5])
    assert_allclose(jax.jit(jax.vmap(error))(sweep), error(sweep[:, None]), rtol=1e-5)
    slope = jax.grad(lambda epsilon: error(epsilon).sum())(1.3)
    assert_allclose(slope, (error(1.31) - error(1.29)).sum() / 0.02, rtol=1e-2)
    few, many = (permute_and_flip(median(rows, **public), 1.0) for rows in (x[:1], x))
    assert_array_equal(few.sample(key, (3,)), many.sample(key, (3,))[:, :1])
    broken = permute_and_flip(median(x, **public), jnp.array([1.0, jnp.nan]))
    for draws in (broken.sample(key), broken.sample(key, 100), broken.mean(), broken.prob(4.0)):
        assert_array_equal(np.isnan(draws.reshape(-1, 2)[0]), [False, True])


def test_far_multiples_and_sharp_rates():
    """Probabilities far below the least float, and an epsilon that leaves only the value."""
    x = jnp.linspace(0, 1000, 1001)
    profile = median(x, lower=0, upper=1000, neighbors="swap", resolution=1)
    assert_allclose(permute_and_flip(profile, 2.0).log_prob(1000.0), -500, rtol=0.01)
    sharp = permute_and_flip(profile, 1e9)
    assert sharp.sample(jax.random.key(0)) == sharp.mean() == profile.value == 500
    assert sharp.prob(500.0) == 1


def test_what_it_takes_and_promises():
    x, public = jnp.arange(5.0), {"lower": 0, "upper": 9, "neighbors": "swap"}
    profile = median(x, resolution=1, **public)
    assert permute_and_flip.guarantee(profile, 0.5) == Guarantee(0.5, 1.0, "swap")
    with pytest.raises(ValueError, match="resolution"):
        permute_and_flip(median(x, **public), 1.0)
    with pytest.raises(ValueError, match="bounds"):
        permute_and_flip(from_radii(jnp.array(1.0), jnp.ones(2), neighbors="swap", step=1.0), 1.0)
    hull = replace(profile, interpolable=False)
    with pytest.raises(ValueError, match="interpolable"):
        permute_and_flip(hull, 1.0)
    with pytest.raises(ValueError, match="sensitivity"):
        permute_and_flip(profile, 1.0, sensitivity=1.0)
