"""Noise on smooth sensitivity: every dataset on a small grid, every neighbor, exactly; and
mutations that must be caught.

Cauchy: the supremum of the log-density ratio over a grid of outputs out to 10^6 scales, and its
limits at infinity. Laplace: the exact hockey-stick divergence. Laplace-log-normal: Renyi
divergences by quadrature.
"""

from dataclasses import replace
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpjax import (
    local_sensitivity,
    smooth_cauchy,
    smooth_laplace,
    smooth_laplace_log_normal,
    smooth_sensitivity,
)
from dpjax.accounting import zcdp_of
from dpjax.mechanisms import cauchy_tail_bound, optimal_beta, optimal_sigma
from tests.support import oracle
from tests.support.audit import neighboring_rows, padded
from tests.support.hockey_stick import hockey_stick

GRID = (0.0, 1.0, 5.0, 6.0, 20.0)
DATASETS = {
    "add_remove": oracle.all_datasets(range(5), GRID),
    "swap": oracle.all_datasets([4], GRID),
}
OUTPUTS = np.concatenate(
    [np.linspace(-40, 60, 801), 10 + np.outer([-1, 1], np.geomspace(50, 4e8, 100)).ravel()]
)
ROUNDING = 1e-9
EPSILONS = np.array([0.5, 2.0])


def pairs_of(neighbors):
    """Both orders of every neighboring pair."""
    rows = neighboring_rows(tuple(DATASETS[neighbors]), neighbors, GRID)
    return np.concatenate([rows, rows[::-1]], axis=1)


@cache
def local_of(neighbors):
    """Local sensitivities of the lower medians of all datasets."""
    x, count = padded(DATASETS[neighbors], 4)
    known = {"lower": GRID[0], "upper": GRID[-1], "neighbors": neighbors, "definition": "lower"}
    return jax.tree.map(np.asarray, local_sensitivity(x, num_records=count, **known))


def mistaken(local, beta):
    """Smooth sensitivities that are none: the local sensitivity itself, kept positive; and a larger
    beta than was paid for.
    """
    smooth = local.smooth(beta)
    bound = jnp.maximum(local.at_distance[:, 0], 1e-3)
    return replace(smooth, bound=bound), replace(local.smooth(3.0), beta=smooth.beta)


@jax.jit
def density(distribution, y):
    return distribution.log_prob(y)


def cauchy_loss(distribution, neighbors):
    """For each leading index."""
    first, second = pairs_of(neighbors)
    outputs = OUTPUTS.reshape(-1, *(1,) * len(distribution.batch_shape))
    values = np.asarray(density(distribution, outputs))
    scale = np.log(np.broadcast_to(distribution.scale, distribution.batch_shape))
    at_infinity = (distribution.gamma - 1) * np.abs(scale[..., first] - scale[..., second])
    ratio = np.abs(values[..., first] - values[..., second])
    return np.maximum(ratio.max(axis=(0, -1)), at_infinity.max(axis=-1))


def constants(gamma):
    """By how much a density 1 / (1 + |z|^gamma) changes with a shift and a stretch of z."""
    return (gamma - 1) ** ((gamma - 1) / gamma), max(1.0, gamma - 1)


@pytest.mark.parametrize(
    ("neighbors", "gamma"), [("add_remove", 2.0), ("add_remove", 4.0), ("swap", 2.0)]
)
def test_cauchy_is_private_and_nearly_tight(neighbors, gamma, x64):
    local, epsilon = local_of(neighbors), EPSILONS[:, None]
    shares = np.array([0.02, 0.5, 0.97])[:, None, None]  # of epsilon, for beta
    least = np.broadcast_to(epsilon / (2 * (gamma + 1)), (3, 2, 1))

    @jax.jit
    def both(local):
        tight = local.smooth(shares * epsilon / constants(gamma)[1]), "tight"
        published = local.smooth(least), "published"
        return [
            smooth_cauchy(smooth, epsilon, gamma=gamma, calibration=how)
            for smooth, how in (tight, published)
        ]

    tight, published = (cauchy_loss(found, neighbors) / EPSILONS for found in both(local))
    assert (tight <= 1 + ROUNDING).all()
    assert gamma != 2 or (tight.max(axis=0) >= [0.95, 0.85]).all()
    assert (published <= 0.5).all()


@pytest.mark.parametrize("neighbors", DATASETS)
def test_control_cauchy_mutations_are_caught(neighbors, x64):
    local, epsilon = local_of(neighbors), EPSILONS[:, None]

    @jax.jit
    def controls(local):
        # Alpha doubled, or a quarter too large
        right = smooth_cauchy(local.smooth(0.02 * epsilon), epsilon)
        noisy = [smooth_cauchy(smooth, epsilon) for smooth in mistaken(local, 0.02 * epsilon)]
        return [
            *(replace(right, scale=right.scale / factor) for factor in (2, 1.25)),
            *noisy,
        ]

    for distribution, least in zip(controls(local), (1.2, 1.02, 1.2, 1.2), strict=True):
        assert (cauchy_loss(distribution, neighbors) > least * EPSILONS).all()


def test_published_constants_and_the_tail_bound(x64):
    failure = np.array([1e-9, 0.01, 0.5, 0.9])

    @jax.jit
    def known_of(x):
        smooth = smooth_sensitivity(x, 0.1, lower=0, upper=9, neighbors="swap")
        found = smooth_cauchy(smooth, 1.2, calibration="published")
        error = cauchy_tail_bound(smooth, 1.2, failure=failure)
        outside = found.survival(4.0 + error) + found.cdf(4.0 - error)
        return found.scale, smooth.bound, outside

    scale, bound, outside = known_of(np.arange(9.0))
    np.testing.assert_allclose(scale, 6 * bound / 1.2, rtol=1e-14)
    np.testing.assert_allclose(outside, failure, rtol=1e-12)
    # A beta of exactly the published constant is admissible in float32 too, one beyond it is not.
    single = jax.tree.map(np.float32, local_of("swap"))
    scale = jax.jit(
        lambda local, beta: smooth_cauchy(local.smooth(beta), 1.2, calibration="published").scale
    )(single, np.float32([[0.2], [0.21]]))
    np.testing.assert_array_equal(np.isfinite(scale).all(axis=-1), [True, False])


@jax.jit
def laplace_of(local, factor, epsilon, delta):
    """Of a multiple of the best beta, and mistakes."""
    beta = factor * optimal_beta(epsilon, noise="laplace", delta=delta)
    right = smooth_laplace(local.smooth(beta), epsilon, delta=delta)
    unsmooth, rough = (
        smooth_laplace(smooth, epsilon, delta=delta) for smooth in mistaken(local, beta)
    )
    return right, (replace(right, rate=2 * right.rate), unsmooth, rough)


@pytest.mark.parametrize("neighbors", DATASETS)
def test_laplace_is_private_by_its_exact_hockey_stick(neighbors, x64):
    local, pairs = local_of(neighbors), pairs_of(neighbors)
    for epsilon, delta in ((0.5, 1e-3), (2.0, 1e-3), (1.0, 0.3)):
        found = [
            hockey_stick(laplace_of(local, factor, epsilon, delta)[0], pairs, epsilon)
            for factor in (0.3, 1.0, 1.5)
        ]
        assert np.min(found) >= -1e-15
        assert np.max(found) <= delta
        assert delta == 0.3 or np.max(found) > 0  # delta is used at all
    for control in laplace_of(local, 1.0, 2.0, 1e-3)[1]:
        assert hockey_stick(control, pairs, 2.0).max() > 1.2e-3


def largest_renyi(distribution, neighbors):
    """The largest divergence over its order, of all pairs, by the trapezoid rule in asinh(y).

    Rows with the same center and scale have the same density, and pairs of such rows the same
    divergence: each is computed once.
    """
    t = np.linspace(-18, 18, 401)
    y = 0.5 + 2 * np.sinh(t)
    fields = [np.asarray(field) for field in (distribution.loc, distribution.scale)]
    _, kept, same = np.unique(np.stack(fields), axis=1, return_index=True, return_inverse=True)
    assert len(kept) <= 64  # of one shape
    kept = np.resize(kept, 64)
    loc, scale = (field[kept] for field in fields)
    short = replace(distribution, loc=loc, scale=scale)
    values = np.asarray(density(short, y[:, None])) + np.log(2 * np.cosh(t))[:, None]
    first, second = np.unique(same.reshape(-1)[pairs_of(neighbors)], axis=1)
    largest = 0.0
    for order in (1.05, 2.0, 6.0):
        exponent = order * values[:, first] + (1 - order) * values[:, second]
        top = exponent.max(axis=0)
        sums = np.log(np.sum(np.exp(exponent - top), axis=0) * (t[1] - t[0])) + top
        largest = max(largest, float(sums.max()) / (order - 1) / order)
    return largest


@jax.jit
def log_normal_of(local, beta, zcdp, sigma):
    right = smooth_laplace_log_normal(local.smooth(beta), zcdp, sigma=sigma)
    wrong = (
        smooth_laplace_log_normal(smooth, zcdp, sigma=sigma) for smooth in mistaken(local, beta)
    )
    # The bound is loose: the scale must be four times too small
    return right, (replace(right, scale=right.scale / 4), *wrong)


def test_laplace_log_normal_is_concentrated_by_renyi_divergences(x64):
    neighbors = "add_remove"
    local = local_of(neighbors)
    for zcdp, sigma in ((0.02, 0.4), (0.5, 0.8)):
        beta = 0.3 * sigma * np.sqrt(2 * zcdp)
        used = largest_renyi(log_normal_of(local, beta, zcdp, sigma)[0], neighbors) / zcdp
        assert 0.03 < used <= 1, used
    for control in log_normal_of(local, 0.05, 0.5, 0.3)[1]:
        assert largest_renyi(control, neighbors) / 0.5 > 1.2


@jax.jit
def best_parameters(epsilon, delta):
    """Of Cauchy noise of three kinds, Laplace noise, and both of Laplace-log-normal noise."""
    cauchy = [optimal_beta(epsilon, noise="cauchy", gamma=gamma) for gamma in GAMMAS]
    laplace, log_normal = (
        optimal_beta(epsilon, noise=noise, delta=delta)
        for noise in ("laplace", "laplace_log_normal")
    )
    rho = zcdp_of(epsilon, delta=delta)
    betas = log_normal * jnp.expand_dims(FACTORS, 1)
    return cauchy, laplace, log_normal, rho, optimal_sigma(rho, beta=betas)


GAMMAS = (1.5, 2.0, 4.0)
FACTORS = np.array([1.0, 0.5, 0.8, 0.95, 1.05, 1.2, 2.0])


def test_optimal_parameters_are_optimal_for_dense_data(x64):
    """The scale of the noise is least at the first of several factors of each."""
    epsilon, delta = np.array([0.1, 1.0, 4.0]), 1e-6
    found = jax.tree.map(np.asarray, best_parameters(epsilon, delta))
    cauchy, laplace, log_normal, rho, sigma = found
    factors = FACTORS[:, None]

    def best(beta, budget, stretch=1.0):
        """By the bound e^beta / beta of the smooth sensitivity; no budget, no noise."""
        cost = np.where(budget > 0, np.exp(beta) / beta / np.where(budget > 0, budget, 1), np.inf)
        return (cost * stretch).argmin(axis=0)

    for gamma, found in zip(GAMMAS, cauchy, strict=True):
        beta = factors * found
        inside = found < np.log(2) - 1e-9
        assert (best(beta, epsilon - constants(gamma)[1] * beta)[inside] == 0).all()
    beta = factors * laplace
    assert (best(beta, epsilon + np.expm1(beta) * np.log(delta) + beta) == 0).all()
    beta, s = factors * log_normal, np.sqrt(2 * rho)
    assert (best(beta, s - beta / sigma, np.exp(2 * sigma**2)) == 0).all()
    spread = factors * sigma[0]
    assert (best(beta[:1], s - beta[0] / spread, np.exp(2 * spread**2)) == 0).all()


@jax.jit
def all_noises(smooth, epsilon=0.4, delta=0.3):
    """What would be NaN in a draw."""
    return (
        smooth_cauchy(smooth, epsilon).scale,
        smooth_laplace(smooth, 5 * epsilon, delta=delta).rate,
        smooth_laplace_log_normal(smooth, epsilon, sigma=0.4).scale,
    )


def test_an_infinite_budget_or_a_delta_of_1_is_no_distribution():
    """Without noise the draws would be the statistic itself."""
    smooth = smooth_sensitivity(
        np.arange(9.0, dtype=np.float32), 0.1, lower=0, upper=9, neighbors="swap"
    )
    for epsilon, delta, bad in ((0.4, 0.3, False), (np.inf, 0.3, True)):
        found = all_noises(smooth, jnp.float32(epsilon), jnp.float32(delta))
        np.testing.assert_array_equal(np.isnan(found), bad)
    for delta in (1.0, 2.0):
        assert np.isnan(all_noises(smooth, jnp.float32(0.4), jnp.float32(delta))[1])


def test_bounds_that_overflow_are_bad_for_every_dataset():
    """The scale of 8 records would fit into float32, that of 7 would not: a distribution for one of
    them tells them apart.
    """
    narrow = smooth_sensitivity(
        np.full(12, 5.0, np.float32),
        0.2,
        lower=0,
        upper=3e29,
        neighbors="add_remove",
        definition="lower",
        num_records=np.arange(13),
    )
    smooth = replace(narrow, upper=jnp.float32(3e38), bound=narrow.bound * np.float32(1e9))
    assert np.isfinite(all_noises(narrow)[0]).all()
    for found in all_noises(smooth):
        assert np.isnan(found).all()


@pytest.mark.parametrize("upper", [1e9, 1e30])
def test_long_ties_do_not_make_the_noise_collapse(upper):
    """In float32 e^(-beta k) underflows at k = 870: with a gap of 1e9 the bound is far above what
    is left of it there.
    """
    zeros = np.arange(1860, 1890)
    # Each zero takes the gap one step further away
    records = np.where(np.arange(2900) < zeros[:, None], 0.0, np.float32(upper))
    known = {"lower": 0, "upper": upper, "neighbors": "add_remove", "definition": "lower"}
    smooth = smooth_sensitivity(records, 0.1, num_records=zeros + 1000, **known)
    steps = np.abs(np.diff(np.log(np.asarray(smooth.bound, np.float64))))
    assert steps.max() <= 0.1 * (1 + 1e-3)
    assert steps.min() > 0.01  # the datasets do differ
