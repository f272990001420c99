"""Noise on smooth sensitivity: every dataset on a small grid, every neighbor, exactly; and
mutations that must be caught.

Cauchy: the supremum of the log-density ratio over a grid of outputs out to 10^6 scales, and its
limits at infinity. Laplace: the exact hockey-stick divergence. Laplace-log-normal: Renyi
divergences by quadrature.
"""

from dataclasses import replace
from functools import cache, partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from dpjax import (
    local_sensitivity,
    smooth_cauchy,
    smooth_laplace,
    smooth_laplace_log_normal,
    smooth_sensitivity,
)
from dpjax.accounting import zcdp_of
from dpjax.mechanisms import optimal_beta, optimal_sigma
from tests.mechanisms.test_privacy import DATASETS, EPSILONS, GRID, ROUNDING
from tests.support.audit import neighboring_rows, padded
from tests.support.hockey_stick import hockey_stick
from tests.support.removals import renyi

OUTPUTS = np.concatenate(
    [np.linspace(-40, 60, 801), 10 + np.outer([-1, 1], np.geomspace(50, 4e8, 100)).ravel()]
)


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


NOISES = {
    "cauchy": smooth_cauchy,
    "laplace": lambda smooth, epsilon, delta: smooth_laplace(smooth, epsilon, delta=delta),
    "log normal": lambda smooth, zcdp, sigma: smooth_laplace_log_normal(smooth, zcdp, sigma=sigma),
}


@partial(jax.jit, static_argnames="noise")
def noisy(noise, local, beta, *budget):
    """With the smooth sensitivity and with two that are none: the local sensitivity itself, kept
    positive; and that of a larger beta than was paid for.
    """
    right, large = local.smooth(beta), replace(local.smooth(3.0), beta=jnp.asarray(beta))
    unsmooth = replace(right, bound=jnp.maximum(local.at_distance[:, 0], 1e-3))
    return [NOISES[noise](smooth, *budget) for smooth in (right, unsmooth, large)]


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
    right, *others = noisy("cauchy", local, 0.02 * epsilon, epsilon)
    # Alpha doubled, or a quarter too large
    less = [replace(right, scale=np.asarray(right.scale) / factor) for factor in (2, 1.25)]
    for distribution, least in zip([*less, *others], (1.2, 1.02, 1.2, 1.2), strict=True):
        assert (cauchy_loss(distribution, neighbors) > least * EPSILONS).all()


def test_published_constants_and_the_tail_bound(x64):
    failure = np.array([1e-9, 0.01, 0.5, 0.9])

    @jax.jit
    def known_of(x):
        smooth = smooth_sensitivity(x, 0.1, lower=0, upper=9, neighbors="swap")
        found = smooth_cauchy(smooth, 1.2, calibration="published")
        return found.scale, smooth.bound, found.interval(1 - failure)[1] - 4.0

    scale, bound, error = known_of(np.arange(9.0))
    assert_allclose(scale, 6 * bound / 1.2, rtol=1e-14)
    # Equation 4
    assert_allclose(error, 6 * bound / 1.2 * np.tan(np.pi / 2 * (1 - failure)), rtol=1e-6)
    # A beta of exactly the published constant is admissible in float32 too, one beyond it is not.
    single = jax.tree.map(np.float32, local_of("swap"))
    scale = jax.jit(
        lambda local, beta: smooth_cauchy(local.smooth(beta), 1.2, calibration="published").scale
    )(single, np.float32([[0.2], [0.21]]))
    assert_array_equal(np.isfinite(scale).all(axis=-1), [True, False])


@pytest.mark.parametrize("neighbors", DATASETS)
def test_laplace_is_private_by_its_exact_hockey_stick(neighbors, x64):
    local, pairs = local_of(neighbors), pairs_of(neighbors)
    for epsilon, delta in ((0.5, 1e-3), (2.0, 1e-3), (1.0, 0.3)):
        beta = np.asarray(best_laplace(epsilon, delta))
        several = [noisy("laplace", local, f * beta, epsilon, delta) for f in (0.3, 1.0, 1.5)]
        found = [hockey_stick(right, pairs, epsilon) for right, *_ in several]
        assert np.min(found) >= -1e-15
        assert np.max(found) <= delta
        if delta == 0.3:
            continue
        assert np.max(found) > 0  # delta is used at all
        right, *others = several[1]
        for control in (replace(right, rate=2 * np.asarray(right.rate)), *others):
            assert hockey_stick(control, pairs, epsilon).max() > 1.2 * delta


@jax.jit
def best_laplace(epsilon, delta):
    return optimal_beta(epsilon, noise="laplace", delta=delta)


def largest_renyi(distribution, neighbors):
    """The largest divergence over its order, of all pairs, by the trapezoid rule in asinh(y)."""
    t = np.linspace(-18, 18, 401)
    values = np.asarray(density(distribution, 0.5 + 2 * np.sinh(t)[:, None]))
    logs = (values + np.log(2 * np.cosh(t) * (t[1] - t[0]))[:, None]).T
    return max(renyi(logs, pairs_of(neighbors), order) / order for order in (1.05, 2.0, 6.0))


def test_laplace_log_normal_is_concentrated_by_renyi_divergences(x64):
    local = local_of("add_remove")
    for zcdp, sigma in ((0.02, 0.4), (0.5, 0.8)):
        right, *_ = noisy("log normal", local, 0.3 * sigma * np.sqrt(2 * zcdp), zcdp, sigma)
        assert 0.03 < largest_renyi(right, "add_remove") / zcdp <= 1
    right, *others = noisy("log normal", local, 0.05, 0.5, 0.3)
    # The bound is loose: the scale must be four times too small
    for control in (replace(right, scale=np.asarray(right.scale) / 4), *others):
        assert largest_renyi(control, "add_remove") / 0.5 > 1.2


def test_optimal_parameters_are_optimal_for_dense_data(x64):
    """What is left of the budget, over e^beta / beta of the smooth sensitivity, is the most at the
    first of several factors of each.
    """
    epsilon, delta = np.array([0.1, 1.0, 4.0]), 1e-6
    rho = zcdp_of(epsilon, delta=delta)
    factors = np.array([1, 0.5, 0.8, 0.95, 1.05, 1.2, 2])[:, None]

    def left(beta, sigma):
        return (np.sqrt(2 * rho) - beta / sigma) * np.exp(-2 * sigma**2)

    @jax.jit
    def sigma_of(beta):
        return optimal_sigma(rho, beta=beta)

    found = {
        ("cauchy", None, gamma): lambda beta, gamma=gamma: epsilon - max(1, gamma - 1) * beta
        for gamma in (1.5, 2.0, 4.0)
    } | {
        ("laplace", delta, 2.0): lambda beta: epsilon + np.expm1(beta) * np.log(delta) + beta,
        ("laplace_log_normal", delta, 2.0): lambda beta: left(beta, np.asarray(sigma_of(beta))),
    }
    for (noise, failure, gamma), rest in found.items():
        best = np.asarray(optimal_beta(epsilon, noise=noise, delta=failure, gamma=gamma))
        beta, inside = factors * best, best < np.log(2) - 1e-9
        assert inside.any()
        assert ((rest(beta) * beta * np.exp(-beta)).argmax(axis=0) == 0)[inside].all()
    sigmas = factors * np.asarray(sigma_of(beta))[0]
    assert (left(best, sigmas).argmax(axis=0) == 0).all()


@jax.jit
def scales_of(smooth, epsilon, delta):
    """NaN where there is no distribution."""
    cauchy, laplace = smooth_cauchy(smooth, epsilon), NOISES["laplace"](smooth, 5 * epsilon, delta)
    return cauchy.scale, laplace.rate, NOISES["log normal"](smooth, epsilon, 0.4).scale


def test_what_would_leak_is_no_distribution():
    """Without noise, with an infinite budget or a delta of 1, the draws would be the statistic;
    beta may take all of a budget; and the scale of 8 records would fit into float32 where that of 7
    would not: a distribution for one of them tells them apart.
    """
    known = {"lower": 0, "upper": 3e29, "neighbors": "add_remove", "definition": "lower"}
    records = np.full(12, 5.0, np.float32)
    narrow = smooth_sensitivity(records, 0.2, num_records=np.arange(13), **known)
    wide = replace(narrow, upper=jnp.float32(3e38), bound=narrow.bound * np.float32(1e9))
    for smooth, epsilon, delta, bad in (
        (narrow, 0.4, 0.3, [False] * 3),
        (narrow, np.inf, 0.3, [True] * 3),
        (narrow, 0.05, 0.3, [True, False, True]),
        (narrow, 0.4, 1.0, [False, True, False]),
        (wide, 0.4, 0.3, [True] * 3),
    ):
        for part, none in zip(
            scales_of(smooth, *map(np.float32, (epsilon, delta))), bad, strict=True
        ):
            assert_array_equal(np.isnan(part), none)


def test_long_ties_do_not_make_the_noise_collapse():
    """In float32 e^(-beta k) underflows at k = 870: with a gap of 1e9 the bound is far above what
    is left of it there.
    """
    zeros, upper = np.arange(1860, 1890), 1e9
    # Each zero takes the gap one step further away
    records = np.where(np.arange(2900) < zeros[:, None], 0.0, np.float32(upper))
    known = {"lower": 0, "upper": upper, "neighbors": "add_remove", "definition": "lower"}
    smooth = smooth_sensitivity(records, 0.1, num_records=zeros + 1000, **known)
    steps = np.abs(np.diff(np.log(np.asarray(smooth.bound, np.float64))))
    assert steps.max() <= 0.1 * (1 + 1e-3)
    assert steps.min() > 0.01  # the datasets do differ
