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

from dpjax.accounting import zcdp_of
from dpjax.distributions.cauchy import Cauchy
from dpjax.distributions.clamped import Clamped
from dpjax.mechanisms import (
    cauchy_tail_bound,
    optimal_beta,
    optimal_sigma,
    smooth_cauchy,
    smooth_laplace,
    smooth_laplace_log_normal,
)
from dpjax.mechanisms._smooth_cauchy import constants
from dpjax.statistics import local_sensitivity, smooth_sensitivity
from tests.support import oracle
from tests.support.audit import padded
from tests.support.hockey_stick import hockey_stick

GRID = (0.0, 1.0, 5.0, 6.0, 20.0)
DATASETS = {
    "add_remove": oracle.all_datasets(range(5), GRID),
    "swap": oracle.all_datasets([4], GRID),
}
OUTPUTS = np.concatenate(
    [np.linspace(-40, 60, 2001), 10 + np.outer([-1, 1], np.geomspace(50, 4e8, 300)).ravel()]
)
ROUNDING = 1e-9
NEIGHBORS = ["add_remove", pytest.param("swap", marks=pytest.mark.slow)]


def pairs_of(neighbors):
    """Both orders of every neighboring pair."""
    index = {data: row for row, data in enumerate(DATASETS[neighbors])}
    found = [
        (row, index[z])
        for data, row in index.items()
        for z in oracle.neighbors_of(data, neighbors, GRID)
        if z in index
    ]
    return np.array(found).T


def local_of(neighbors, definition="lower"):
    x, count = padded(DATASETS[neighbors], 4)
    return local_sensitivity(
        x,
        lower=GRID[0],
        upper=GRID[-1],
        neighbors=neighbors,
        definition=definition,
        num_records=count,
    )


def with_local_sensitivity(smooth, local):
    """The mutation: the local sensitivity itself, kept positive."""
    return replace(smooth, bound=jnp.maximum(local.at_distance[:, 0], 1e-3))


def cauchy_loss(distribution, neighbors):
    values = np.asarray(distribution.log_prob(OUTPUTS[:, None]))
    first, second = pairs_of(neighbors)
    scale = np.log(np.asarray(jnp.broadcast_to(distribution.scale, distribution.batch_shape)))
    at_infinity = (distribution.gamma - 1) * np.abs(scale[first] - scale[second])
    return float(max(np.max(np.abs(values[:, first] - values[:, second])), at_infinity.max()))


@pytest.mark.parametrize(
    "gamma",
    [2.0, pytest.param(1.4, marks=pytest.mark.slow), pytest.param(4.0, marks=pytest.mark.slow)],
)
@pytest.mark.parametrize("neighbors", NEIGHBORS)
def test_cauchy_is_private_and_nearly_tight(neighbors, gamma, x64):
    local = local_of(neighbors)
    for epsilon in (0.5, 2.0):
        losses = {}
        for share in (0.02, 0.5, 0.97):  # of epsilon, for beta
            smooth = local.smooth(share * epsilon / constants(gamma)[1])
            losses[share] = (
                cauchy_loss(smooth_cauchy(smooth, epsilon, gamma=gamma), neighbors) / epsilon
            )
        assert max(losses.values()) <= 1 + ROUNDING, losses
        if gamma == 2:
            assert max(losses.values()) >= (0.95 if epsilon < 1 else 0.85), losses
        published = smooth_cauchy(
            local.smooth(epsilon / (2 * (gamma + 1))), epsilon, gamma=gamma, calibration="published"
        )
        assert cauchy_loss(published, neighbors) <= 0.5 * epsilon


@pytest.mark.parametrize("neighbors", NEIGHBORS)
def test_control_cauchy_mutations_are_caught(neighbors, x64):
    local = local_of(neighbors)
    for epsilon in (0.5, 2.0):
        small = local.smooth(0.02 * epsilon)
        distribution = smooth_cauchy(small, epsilon)
        # alpha doubled
        assert (
            cauchy_loss(Cauchy(distribution.loc, distribution.scale / 2), neighbors) > 1.2 * epsilon
        )
        assert (
            cauchy_loss(Cauchy(distribution.loc, distribution.scale / 1.25), neighbors)
            > 1.02 * epsilon
        )
        assert (
            cauchy_loss(smooth_cauchy(with_local_sensitivity(small, local), epsilon), neighbors)
            > 1.2 * epsilon
        )
        # A larger beta than was paid for
        rough = replace(local.smooth(3.0), beta=np.float64(0.02 * epsilon))
        assert cauchy_loss(smooth_cauchy(rough, epsilon), neighbors) > 1.2 * epsilon


@pytest.mark.slow
@pytest.mark.parametrize("definition", ["linear", "lower"])
def test_cauchy_audits_of_both_medians_at_the_optimal_beta(definition, x64):
    for neighbors in DATASETS:
        for epsilon in (0.1, 1.0, 5.0):
            smooth = local_of(neighbors, definition).smooth(optimal_beta(epsilon, noise="cauchy"))
            assert cauchy_loss(smooth_cauchy(smooth, epsilon), neighbors) <= epsilon * (
                1 + ROUNDING
            )


def test_published_constants_and_the_tail_bound(x64):
    smooth = smooth_sensitivity(np.arange(9.0), 0.1, lower=0, upper=9, neighbors="swap")
    distribution = smooth_cauchy(smooth, 1.2, calibration="published")
    np.testing.assert_allclose(distribution.scale, 6 * smooth.bound / 1.2, rtol=1e-14)
    for failure in (1e-9, 0.01, 0.5, 0.9):
        error = cauchy_tail_bound(smooth, 1.2, failure=failure)
        np.testing.assert_allclose(
            distribution.survival(4.0 + error) + distribution.cdf(4.0 - error), failure, rtol=1e-12
        )
    # A beta of exactly the published constant is admissible in float32 too, one beyond it is not.
    for beta in (np.float32(0.2), 0.2):
        assert np.isfinite(
            smooth_cauchy(local_of("swap").smooth(beta), 1.2, calibration="published").scale
        ).all()
    with pytest.raises(ValueError, match="exhausts epsilon"):
        smooth_cauchy(local_of("swap").smooth(0.21), 1.2, calibration="published")


DELTA = 1e-3


@pytest.mark.parametrize("neighbors", NEIGHBORS)
def test_laplace_is_private_by_its_exact_hockey_stick(neighbors, x64):
    local, pairs = local_of(neighbors), pairs_of(neighbors)
    for epsilon, delta in ((0.5, DELTA), (2.0, DELTA), (1.0, 0.3)):
        worst = 0.0
        for factor in (0.3, 1.0, 1.5):
            smooth = local.smooth(
                factor * float(optimal_beta(epsilon, noise="laplace", delta=delta))
            )
            found = hockey_stick(smooth_laplace(smooth, epsilon, delta=delta), pairs, epsilon)
            assert found.min() >= -1e-15
            worst = max(worst, found.max() / delta)
        assert worst <= 1
        if delta == DELTA:
            assert worst > 0  # delta is used at all

    smooth = local.smooth(float(optimal_beta(2.0, noise="laplace", delta=DELTA)))
    distribution = smooth_laplace(smooth, 2.0, delta=DELTA)
    doubled = replace(distribution, rate=2 * distribution.rate)
    unsmooth = smooth_laplace(with_local_sensitivity(smooth, local), 2.0, delta=DELTA)
    rough = smooth_laplace(replace(local.smooth(3.0), beta=smooth.beta), 2.0, delta=DELTA)
    for control in (doubled, unsmooth, rough):
        assert hockey_stick(control, pairs, 2.0).max() > 1.2 * DELTA


@pytest.mark.slow
def test_the_hockey_stick_agrees_with_quadrature(x64):
    distribution = smooth_laplace(local_of("swap").smooth(0.1), 1.0, delta=DELTA)
    y = np.linspace(-2e3, 2e3, 2_000_001)
    rows = np.array([[3, 40, 7], [9, 2, 7]])
    scale = np.asarray(distribution.tails.upper_scale / distribution.rate)
    p, q = (
        np.exp(-np.abs(y[:, None] - np.asarray(distribution.edges[r, 0])) / scale[r])
        / (2 * scale[r])
        for r in rows
    )
    wanted = np.trapezoid(np.maximum(p - np.exp(0.3) * q, 0), y, axis=0)
    np.testing.assert_allclose(hockey_stick(distribution, rows, 0.3), wanted, atol=1e-8)


# One program for all distributions: they have one shape
density = jax.jit(lambda distribution, y: distribution.log_prob(y))


def largest_renyi(distribution, pairs):
    """The largest divergence over its order, of all pairs, by the trapezoid rule in asinh(y), on
    4001 points.

    Rows with the same center and scale have the same density, and pairs of such rows the same
    divergence: each is computed once.
    """
    t = np.linspace(-18, 18, 4001)
    y = 0.5 + 2 * np.sinh(t)
    fields, structure = jax.tree.flatten(distribution)
    rows = np.stack(
        [np.broadcast_to(np.asarray(field), distribution.batch_shape) for field in fields], axis=-1
    )
    _, kept, same = np.unique(rows, axis=0, return_index=True, return_inverse=True)
    short = structure.unflatten(
        [field[kept] if np.shape(field) == distribution.batch_shape else field for field in fields]
    )
    values = np.asarray(density(short, y[:, None])) + np.log(2 * np.cosh(t))[:, None]
    first, second = np.unique(same.reshape(-1)[np.asarray(pairs)], axis=1)
    largest = 0.0
    for order in (1.05, 2.0, 6.0):
        exponent = order * values[:, first] + (1 - order) * values[:, second]
        top = exponent.max(axis=0)
        divergence = (np.log(np.sum(np.exp(exponent - top), axis=0) * (t[1] - t[0])) + top) / (
            order - 1
        )
        largest = max(largest, float(divergence.max()) / order)
    return largest


@pytest.mark.optimized
@pytest.mark.parametrize("neighbors", [pytest.param(n, marks=pytest.mark.slow) for n in DATASETS])
def test_laplace_log_normal_is_concentrated_by_renyi_divergences(neighbors, x64):
    local, pairs = local_of(neighbors), pairs_of(neighbors)
    for zcdp, sigma in ((0.02, 0.4), (0.5, 0.3), (0.5, 0.8)):
        smooth = local.smooth(0.3 * sigma * np.sqrt(2 * zcdp))
        distribution = smooth_laplace_log_normal(smooth, zcdp, sigma=sigma)
        used = largest_renyi(distribution, pairs) / zcdp
        assert 0.03 < used <= 1, used
    distribution = smooth_laplace_log_normal(local.smooth(0.05), 0.5, sigma=0.3)
    unsmooth = smooth_laplace_log_normal(
        with_local_sensitivity(local.smooth(0.05), local), 0.5, sigma=0.3
    )
    rough = smooth_laplace_log_normal(
        replace(local.smooth(3.0), beta=np.float64(0.05)), 0.5, sigma=0.3
    )
    for control in (
        replace(distribution, scale=distribution.scale / 4),
        unsmooth,
        rough,
    ):  # the bound is loose: s must be four times too large
        assert largest_renyi(control, pairs) / 0.5 > 1.2


def test_optimal_parameters_are_optimal_for_dense_data(x64):
    def best(cost, at):
        assert cost(at) <= min(cost(at * f) for f in (0.5, 0.8, 0.95, 1.05, 1.2, 2.0)), at

    for epsilon in (0.1, 1.0, 4.0):
        for gamma in (1.5, 2.0, 4.0):
            shift, stretch = constants(gamma)

            def cauchy(beta, epsilon=epsilon, shift=shift, stretch=stretch):
                return (
                    np.exp(beta) / beta / (epsilon - stretch * beta) * shift
                    if stretch * beta < epsilon
                    else np.inf
                )

            beta = float(optimal_beta(epsilon, noise="cauchy", gamma=gamma))
            if beta < np.log(2) - 1e-9:
                best(cauchy, beta)

        def laplace(beta, epsilon=epsilon):
            alpha = epsilon - np.expm1(beta) * np.log(1e6) + beta
            return np.exp(beta) / beta / alpha if alpha > 0 else np.inf

        best(laplace, float(optimal_beta(epsilon, noise="laplace", delta=1e-6)))
        rho = float(zcdp_of(epsilon, delta=1e-6))
        beta = float(optimal_beta(epsilon, noise="laplace_log_normal", delta=1e-6))

        def both(beta, sigma, rho=rho):
            s = np.sqrt(2 * rho) - beta / sigma
            return np.exp(beta + 2 * sigma**2) / beta / s if s > 0 else np.inf

        best(lambda sigma, beta=beta: both(beta, sigma), float(optimal_sigma(rho, beta=beta)))
        best(lambda beta, rho=rho: both(beta, float(optimal_sigma(rho, beta=beta))), beta)


@pytest.mark.slow
def test_errors_come_in_tiers():
    local = local_of("add_remove")
    with pytest.raises(ValueError, match="exhausts epsilon = 1"):
        smooth_cauchy(local.smooth(1.5), 1.0)
    with pytest.raises(ValueError, match="exhausts epsilon = 1"):
        smooth_laplace(local.smooth(0.2), 1.0, delta=1e-3)
    with pytest.raises(ValueError, match="exhausts zcdp"):
        smooth_laplace_log_normal(local.smooth(0.2), 0.1, sigma=0.3)
    with pytest.raises(ValueError, match="epsilon must be finite and positive"):
        smooth_cauchy(local.smooth(0.1), -1.0)
    with pytest.raises(ValueError, match="delta must be positive and below 1"):
        smooth_laplace(local.smooth(0.1), 1.0, delta=1.0)
    with pytest.raises(ValueError, match="delta must be given for"):
        optimal_beta(1.0, noise="cauchy", delta=0.1)
    with pytest.raises(ValueError, match="gamma must be a static number above 1"):
        smooth_cauchy(local.smooth(0.1), 1.0, gamma=1.0)
    # As JAX arrays, the bad element alone becomes NaN.
    distribution = smooth_cauchy(local.smooth(0.3), jnp.array([0.2, 1.0])[:, None])
    np.testing.assert_array_equal(np.isnan(distribution.scale[:, 0]), [True, False])
    distribution = smooth_laplace(local.smooth(jnp.array([0.3, 0.05])[:, None]), 1.0, delta=1e-3)
    np.testing.assert_array_equal(np.isnan(distribution.rate[:, 0]), [True, False])


@pytest.mark.slow
def test_an_infinite_budget_or_a_delta_beyond_1_is_no_distribution():
    """Without noise the draws would be the statistic itself."""
    smooth, key = local_of("swap").smooth(0.1), jax.random.key(0)
    for bad in (jnp.inf, jnp.float32(1e38) * 10):
        assert np.isnan(smooth_cauchy(smooth, jnp.asarray(bad)).sample(key)).all()
        assert np.isnan(smooth_laplace(smooth, jnp.asarray(bad), delta=1e-3).sample(key)).all()
        assert np.isnan(
            smooth_laplace_log_normal(smooth, jnp.asarray(bad), sigma=0.3).sample(key)
        ).all()
    for delta in (1.0, 2.0, 50.0):
        assert np.isnan(smooth_laplace(smooth, 1.0, delta=jnp.asarray(delta)).sample(key)).all()
    assert np.isfinite(
        smooth_laplace(smooth, jnp.asarray(3.0), delta=jnp.asarray(0.1)).sample(key)
    ).all()


def test_files_say_what_they_cost():
    smooth = local_of("swap").smooth(0.1)
    assert smooth_cauchy.guarantee(smooth, 1.0).epsilon == 1
    assert smooth_laplace.guarantee(smooth, 1.0, delta=1e-6).delta == 1e-6


@pytest.mark.slow
def test_figure_1_of_the_duff_paper_at_fixed_parameters(x64):
    """Clamped errors over 100 normal datasets: published and tight Cauchy constants, and a Laplace
    beta fixed beforehand.

    The expectations are those of other 100 datasets: four standard errors of the mean are allowed.
    """
    x = np.random.default_rng(1).normal(size=(100, 1000))
    for epsilon, published, tight, laplace in (
        (0.1, 4.702, 1.143, 2.271),
        (1.0, 0.1931, 0.03959, 0.02898),
    ):
        local = local_sensitivity(
            x, lower=-10, upper=10, neighbors="add_remove", definition="lower"
        )
        distributions = (
            (smooth_cauchy(local.smooth(epsilon / 6), epsilon, calibration="published"), published),
            (smooth_cauchy(local.smooth(epsilon / 2), epsilon), tight),
        )
        for distribution, expected in distributions:
            errors = np.asarray(
                Clamped.of(distribution, lower=-10, upper=10).mean_abs_error(local.value)
            )
            assert abs(errors.mean() - expected) <= 6 * errors.std() / 10, (
                epsilon,
                errors.mean(),
                expected,
            )
        low, high = 1e-9, 1.0
        for _ in range(200):  # the beta whose alpha is epsilon/2
            middle = (low + high) / 2
            low, high = (
                (middle, high)
                if np.expm1(middle) * np.log(1e3) - middle < epsilon / 2
                else (low, middle)
            )
        distribution = smooth_laplace(local.smooth(low), epsilon, delta=1e-3)
        errors = np.asarray(
            Clamped.of(distribution, lower=-10, upper=10).mean_abs_error(local.value)
        )
        assert abs(errors.mean() - laplace) <= 6 * errors.std() / 10, (
            epsilon,
            errors.mean(),
            laplace,
        )


@pytest.mark.parametrize(
    "distribution",
    [
        "cauchy",
        *(
            pytest.param(distribution, marks=pytest.mark.slow)
            for distribution in ("laplace", "laplace-log-normal")
        ),
    ],
)
def test_bounds_that_overflow_are_bad_for_every_dataset(distribution):
    """The scale of 8 records would fit into float32, that of 7 would not: a distribution for one of
    them tells them apart.
    """
    count = np.arange(13)
    narrow = smooth_sensitivity(
        np.full(12, 5.0, np.float32),
        0.2,
        lower=0,
        upper=3e29,
        neighbors="add_remove",
        definition="lower",
        num_records=count,
    )
    smooth = replace(narrow, upper=jnp.float32(3e38), bound=narrow.bound * np.float32(1e9))
    mechanisms = {
        "cauchy": lambda smooth: smooth_cauchy(smooth, 0.4).scale,
        "laplace": lambda smooth: smooth_laplace(smooth, 2.0, delta=0.3).mean_abs_error(5.0),
        "laplace-log-normal": lambda smooth: (
            smooth_laplace_log_normal(smooth, 0.5, sigma=0.3).scale
        ),
    }
    assert np.isnan(mechanisms[distribution](smooth)).all()
    assert np.isfinite(mechanisms[distribution](narrow)).all()


def test_long_ties_do_not_make_the_noise_collapse():
    """In float32 e^(-beta k) underflows at k = 870: with a gap of 1e9 the bound is far above what
    is left of it there.
    """
    zeros = np.arange(1860, 1890)
    for upper in (1e9, 1e30):
        records = np.where(
            np.arange(2900) < zeros[:, None], 0.0, np.float32(upper)
        )  # each zero takes the gap one step further away
        smooth = smooth_sensitivity(
            records,
            0.1,
            lower=0,
            upper=upper,
            neighbors="add_remove",
            definition="lower",
            num_records=zeros + 1000,
        )
        steps = np.diff(np.log(np.asarray(smooth.bound, np.float64)))
        assert np.abs(steps).max() <= 0.1 * (1 + 1e-3)
        assert np.abs(steps).min() > 0.01  # the datasets do differ


@cache
def beta_at_one(noise, delta):
    return float(optimal_beta(1.0, noise=noise, delta=delta))


@pytest.mark.slow
@pytest.mark.parametrize(
    "dtype",
    [
        *(pytest.param(dtype, marks=pytest.mark.slow) for dtype in (jnp.int32, jnp.bfloat16)),
        jnp.float16,
    ],
)
def test_best_parameters_of_narrow_arrays_are_float32(dtype):
    one = jnp.asarray(1, dtype)
    for noise, delta in (("cauchy", None), ("laplace", 1e-6), ("laplace_log_normal", 1e-6)):
        found = optimal_beta(one, noise=noise, delta=delta)
        assert found.dtype == jnp.float32
        assert found == beta_at_one(noise, delta)
    assert optimal_sigma(one, beta=0.1).dtype == jnp.float32
    assert optimal_sigma(one, beta=0.1) == optimal_sigma(1.0, beta=0.1) != 0
    assert optimal_sigma(1.0, beta=one) == optimal_sigma(1.0, beta=1.0)
