"""Permute and flip on a grid: its probabilities, its privacy, and that what is drawn is exactly it."""

from dataclasses import replace
from fractions import Fraction
from itertools import product

import jax.numpy as jnp
import numpy as np
import pytest
from dpjax.release.integer_profiles import IntegerProfile
from dpjax.release.tables import level_weights

import dpjax
from dpjax import release
from dpjax.accounting.guarantee import Guarantee
from dpjax.release import exact_distribution
from dpjax.release.distribution import GridDistribution, depths_of
from dpjax.release.permute_and_flip import candidates, exact_winner, groups_of
from tests.release.test_distribution import EPSILONS, EXHAUSTIVE, exhaustive_audit
from tests.release.test_sampler import more, tied_profile

RECORDS = [31, 40, 28, 35, 52, 33, 47, 29, 38, 35, 35, 36]
OPTIONS = {"lower": 0, "upper": 60, "resolution": 1}
FLIP = "permute_and_flip"
EXTREME = np.array([0, 1, 2**31, 2**32 - 2, 2**32 - 1], np.uint32)


def flips(profile, epsilon, cells):
    return GridDistribution(profile, epsilon, mechanism=FLIP).log_pmf(cells)


def costs_of(profile):
    """The cost of every number from the smallest to the largest value, by counting."""
    lower, upper, value = profile.lower.tolist(), profile.upper.tolist(), int(profile.upper[0])

    def cost(y):
        if y == value:
            return 1 - int(depths_of(profile.lower, profile.upper))
        return next(
            level
            for level in range(len(upper) + len(lower))
            if lower[min(level, len(lower) - 1)] <= y <= upper[min(level, len(upper) - 1)]
        )

    return np.array([cost(y) for y in range(lower[-1], upper[-1] + 1)])


QUICK = [("lower median", "add_remove"), ("upper quantile", "swap")]


@pytest.mark.parametrize(
    ("statistic", "neighbors"), [case if case in QUICK else pytest.param(*case, marks=pytest.mark.slow) for case in EXHAUSTIVE]
)
def test_the_loss_of_all_datasets_of_up_to_six_records(statistic, neighbors):
    for epsilon in EPSILONS:
        loss, spread = exhaustive_audit(statistic, neighbors, epsilon, flips)
        assert 0.5 < loss <= 1 + 1e-12
        assert spread <= 2 + 1e-12


def test_control_the_bounded_range_is_not_epsilon_and_a_deeper_value_is_caught():
    def deeper(profile, epsilon, cells):
        found = flips(profile, epsilon, cells)
        value = cells == profile.upper[0]
        found = np.where(value, found + epsilon / 2 * (depths_of(*profile) - 1), found)
        return found - np.logaddexp.reduce(found)

    assert exhaustive_audit("lower median", "add_remove", 0.3, flips)[1] > 1.3
    assert exhaustive_audit("lower median", "add_remove", 3.0, deeper)[0] > 1.3
    faster = exhaustive_audit("lower median", "add_remove", 3.0, lambda profile, epsilon, cells: flips(profile, 2 * epsilon, cells))
    assert faster[0] > 1.5


@pytest.mark.parametrize("neighbors", ["add_remove", "swap"])
def test_it_is_the_mechanism_for_candidates_on_the_same_costs(neighbors, x64):
    for epsilon in (0.1, 1.0, 8.0):
        found = exact_distribution(release.median, RECORDS, **OPTIONS, epsilon=epsilon, neighbors=neighbors, mechanism=FLIP)
        costs = costs_of(found.profile)
        assert costs.min() == 1 - int(depths_of(*found.profile)) < 0
        expected = dpjax.permute_and_flip(jnp.asarray(-costs, float), epsilon, sensitivity=1.0).probabilities()
        np.testing.assert_allclose(found.pmf(found.values), expected, rtol=1e-9)
        one_by_one = dpjax.exponential(jnp.asarray(-costs, float), epsilon, sensitivity=1.0).probabilities()
        assert found.mean_abs_error(35) < one_by_one @ np.abs(found.values - 35)


def test_probabilities_of_very_many_candidates():
    """In the limit of many candidates of equal cost one wins by chance, and the value as often as 1 / (1 + accepted)."""
    n = 10**6
    profile = IntegerProfile(np.array([0, 0]), np.array([0, n]))
    found = GridDistribution(profile, 2.0, mechanism=FLIP)
    q = np.exp(-1.0)
    np.testing.assert_allclose(np.exp(found.log_pmf(np.array([0.0]))), (1 - (1 - q) ** (n + 1)) / (q * (n + 1)), rtol=1e-9)
    np.testing.assert_allclose(np.exp(found.log_pmf(np.array([1.0, n]))) * n, 1.0, rtol=1e-4)


def test_probabilities_below_those_of_floats_have_logarithms():
    profile = IntegerProfile(np.append(np.full(2999, 50), 0), np.append(np.full(2999, 50), 99))
    found = GridDistribution(profile, 4.0, mechanism=FLIP).log_pmf(np.array([0.0, 50.0, 99.0]))
    assert np.isfinite(found).all()
    assert found[0] < -10_000
    assert abs(found[1]) < 1e-12


def drawn_groups(weights, groups, words):
    """Which group each lane is certain of, by the bounds, and whether it is."""
    left = candidates(weights, groups.level, groups.width, words[:, None])[:, 0]
    return left, left.sum(axis=0) == 1


def far(epsilon, groups, words):
    """Groups that cannot win, (rows, G), of a logarithm above another's by 1e-6 or more: floats here are off by 1e-12 at most.

    Exact arithmetic of each would say the same, and takes most of the time.
    """
    value = (words[:-2:2].astype(np.uint64) << np.uint64(32) | words[1:-2:2]).T
    empty, width, one = groups.width <= 0, np.maximum(groups.width, 1), np.uint64(1)

    def logarithm(v, rest):
        """That of (1 - (1 - V)^(1/w)) e^(lam cost) from V and 1 - V, of which the smaller one is exact."""
        with np.errstate(divide="ignore"):  # at the ends 0 and 1
            stays = np.where(v < 0.5, np.log1p(-np.minimum(v, 0.5)), np.log(rest)) / width
            return np.log(-np.expm1(stays)) + epsilon / 2 * groups.level

    below = logarithm(value * 2.0**-64, (~value + one) * 2.0**-64)
    above = logarithm((value + 1.0) * 2.0**-64, ~value * 2.0**-64)
    return empty | (below > np.where(empty, np.inf, above).min(axis=-1, keepdims=True) + 1e-6)


def assert_equals_exact(epsilon, profile, words, weights=None, rows=None):
    """All lanes against exact arithmetic over all groups but the far ones; returns the share that the bounds decide."""
    levels = max(profile.lower.shape[-1], profile.upper.shape[-1]) - 1
    weights = level_weights(epsilon, 2 * levels + 1) if weights is None else weights
    groups = groups_of(profile)
    left, certain = drawn_groups(weights, groups, words)
    near = ~far(epsilon, groups, words)
    for row in range(words.shape[-1]) if rows is None else rows:
        costs, widths = groups.level[row].tolist(), groups.width[row].tolist()
        rivals = np.flatnonzero(near[row]).tolist()
        exact, _ = exact_winner(Fraction(epsilon) / 2, costs, widths, words[:, row].tolist(), rivals, more=more)
        assert left[exact, row], (row, costs, widths)
    return certain.mean()


def words_for(rng, profile):
    groups = profile.lower.shape[-1] + profile.upper.shape[-1] - 1
    return rng.integers(0, 2**32, (2 * groups + 2, profile.lower.shape[0]), dtype=np.uint32)


@pytest.mark.parametrize("epsilon", [1.0, 2.0**-30, 0.05, 64.0])
def test_far_groups_never_win(epsilon):
    """In exact arithmetic of all groups; and few are near."""
    rng = np.random.default_rng(3)
    profile = tied_profile(rng, 60, 4, 2**29, 4)
    words = words_for(rng, profile)
    words[:, ::2] = rng.choice(EXTREME, words[:, ::2].shape)
    groups = groups_of(profile)
    near = ~far(epsilon, groups, words)
    for row in range(60):
        costs, widths = groups.level[row].tolist(), groups.width[row].tolist()
        every = [i for i, width in enumerate(widths) if width > 0]
        exact, _ = exact_winner(Fraction(epsilon) / 2, costs, widths, words[:, row].tolist(), every, more=more)
        assert near[row, exact]
    assert 1 <= near.sum(axis=1).mean() < 2


@pytest.mark.parametrize("epsilon", [1.0, 2.0**-30, 0.05, 64.0])
def test_the_bounds_never_leave_out_the_winner(epsilon):
    rng = np.random.default_rng(0)
    for size in (3, 40, 2**29):
        profile = tied_profile(rng, 40, 12, size, 9)
        assert assert_equals_exact(epsilon, profile, words_for(rng, profile)) > 0.5


@pytest.mark.slow
@pytest.mark.parametrize("epsilon", [1.0, 0.01, 64.0])
def test_ten_thousand_adversarial_lanes(epsilon):
    rng = np.random.default_rng(1)
    profile = tied_profile(rng, 3334, 4, 2**29, 4)
    words = words_for(rng, profile)
    words[::2, ::2] = rng.choice(EXTREME, words[::2, ::2].shape)
    words[:, ::4] = rng.choice(EXTREME, words[:, ::4].shape)
    assert 0.1 < assert_equals_exact(epsilon, profile, words) < 1  # ties of the first words, which only further words decide


def test_control_a_table_that_is_off_is_seen():
    rng = np.random.default_rng(2)
    profile = tied_profile(rng, 300, 4, 40, 3)
    weights = level_weights(1.0, 60)
    shifted = weights._replace(high=np.roll(weights.high, 1), low=np.roll(weights.low, 1), scale=np.roll(weights.scale, 1))
    with pytest.raises(AssertionError):
        assert_equals_exact(1.0, profile, words_for(rng, profile), shifted)


def test_exact_winner_by_hand():
    """Single candidates: U e^(lam cost) of each is compared; and a tie of two is decided by the words that follow."""
    half, quarter, tiny = [2**31, 0], [2**30, 0], [0, 1]

    def winner(costs, *uniforms, further=lambda role, i: 0):
        words = [word for uniform in uniforms for word in uniform] + [0, 0]
        return exact_winner(Fraction(1), costs, [1] * len(costs), words, list(range(len(costs))), more=further)[0]

    assert winner([0, 1], half, quarter) == 0  # .5 against .25 e = .68
    assert winner([0, 0], half, quarter) == 1
    assert winner([0, 30], half, tiny) == 1  # 2^-64 e^30 = 5.8e-7
    assert winner([0, 50], half, tiny) == 0  # 2^-64 e^50 = 281
    assert winner([0, 0], half, half, further=lambda role, i: role * (i == 1)) == 0
    assert winner([0, 0], half, half, further=lambda role, i: (1 - role) * (i == 1)) == 1


@pytest.mark.parametrize(("neighbors", "epsilon", "resolution"), list(product(["add_remove", "swap"], [0.7, 1.2], [1, 0.5])))
def test_draws_follow_the_probabilities(neighbors, epsilon, resolution):
    options = {**OPTIONS, "resolution": resolution, "epsilon": epsilon, "neighbors": neighbors}
    exact = exact_distribution(release.median, RECORDS, **options, mechanism=FLIP)
    drawn = release.median(RECORDS, **options, mechanism=FLIP, draws=20_000).values
    observed = np.array([np.sum(drawn == value) for value in exact.values])

    def statistic(distribution):
        """Chi-square with few expected draws in one class, normalised."""
        expected = distribution.pmf(exact.values) * drawn.size
        rare = np.zeros(expected.shape, bool)
        rare[np.argsort(expected)[: np.searchsorted(np.cumsum(np.sort(expected)), 10) + 1]] = True  # at least 10 of them
        pooled = [np.append(a[~rare], a[rare].sum()) for a in (observed, expected)]
        classes = len(pooled[0]) - 1
        return (np.sum((pooled[0] - pooled[1]) ** 2 / pooled[1]) - classes) / np.sqrt(2 * classes)

    assert statistic(exact) < 6
    assert statistic(replace(exact, mechanism="piecewise_laplace")) > 6  # control


def test_every_statistic_takes_it_and_says_what_it_costs():
    common = {"epsilon": 1.0, "mechanism": FLIP, "draws": 2}
    grid = OPTIONS | common | {"neighbors": "swap"}
    bounded = {name: grid[name] for name in grid if name != "lower"}
    found = [
        release.median(RECORDS, **grid, definition="linear"),
        release.quantile(RECORDS, 0.9, **grid),
        release.order_statistic(RECORDS, 2, **grid),
        release.maximum(RECORDS, tau=1, **grid),
        release.nonnegative_sum(RECORDS, tau=1, **bounded | {"upper": 600}),
        release.user_sum(RECORDS, RECORDS, tau=1, **bounded | {"upper": 600, "neighbors": "add_remove"}),
        release.distinct_count(RECORDS, tau=1, upper=20, neighbors="swap", **common),
        release.sum(RECORDS, **grid),
        release.mean(RECORDS, **grid),
        release.mode(RECORDS, candidates=(35, 36, 60), neighbors="swap", **common),
        release.release_choice([[3, 4], [9, 2]], sensitivity=1, lower=0, upper=9, neighbors="swap", **common),
    ]
    for one in found:
        assert one.guarantee == Guarantee(2.0, 4.0, one.guarantee.neighbors)
        assert one.values.shape[0] == 2
    for statistic in (release.median, partial_mode):
        with pytest.raises(ValueError, match="mechanism"):
            statistic(RECORDS, **grid | {"mechanism": "laplace"})


def partial_mode(x, *, lower, upper, resolution, **options):
    return release.mode(x, candidates=(35, 36), **options)


def test_choices_follow_the_probabilities_of_the_simulation():
    scores, options = [3, 5, 4, 0], {"sensitivity": 1, "lower": 0, "upper": 10, "neighbors": "swap"}
    drawn = release.release_choice(scores, epsilon=1.0, mechanism=FLIP, draws=40_000, **options).multiples
    expected = np.asarray(dpjax.permute_and_flip(jnp.array(scores, float), 1.0, sensitivity=1.0).probabilities()) * drawn.size
    assert np.sum((np.bincount(drawn.ravel()) - expected) ** 2 / expected) < 35  # 3 degrees of freedom
    other = np.asarray(dpjax.exponential(jnp.array(scores, float), 1.0, sensitivity=1.0).probabilities()) * drawn.size
    assert np.sum((np.bincount(drawn.ravel()) - other) ** 2 / other) > 35  # control
