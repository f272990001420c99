"""The paper's utility bounds against its exact tails, on datasets of many kinds; each with a
control that is violated.
"""

from decimal import Decimal, localcontext

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpjax import median
from dpjax.bounds.duff import (
    corollary_1,
    corollary_1_beta,
    lambert_w,
    level_measure,
    proposition_4,
    theorem_1,
)
from dpjax.mechanisms import duff
from dpjax.statistics import mode
from tests.support import oracle

N = 25
EPSILONS = np.array([0.1, 0.5, 1.0, 4.0])[:, None]
GRID = (0.0, 1.0, 4.0, 9.0)


def rows():
    """Data in [0, 1]: even, uniform, at few values, near both ends, and close to the middle; odd
    and even numbers of them.
    """
    rng = np.random.default_rng(0)
    x = [np.arange(1, N + 1) / (N + 1), np.full(N, 0.5)]
    for _ in range(6):
        x += [
            rng.random(N),
            np.round(rng.random(N) * 4) / 4,
            rng.beta(0.2, 0.2, N),
            0.5 + 0.01 * rng.normal(size=N),
        ]
    return np.sort(np.clip(np.array(x), 0, 1), axis=-1)


def counts(x):
    return np.where(np.arange(len(x)) % 2 == 0, N, N - 1)


def reaches(data, low, high):
    """The paper's median and how far l changes move it, for l = 0..n+1: x[ceil((n+l)/2)] and
    x[ceil((n-l)/2)].
    """
    n = len(data)

    def x(j):
        return low if j <= 0 else high if j > n else data[j - 1]

    return np.array(
        [[x(-(-(n + sign * level) // 2)) for level in range(n + 2)] for sign in (1, -1)]
    )


def smooth_sensitivity(data, low, high, beta):
    """The maximum of exp(-beta k) A_k; k changes make room for a local sensitivity of A_k = the
    reach of k+1 changes.
    """
    up, down = reaches(data, low, high)
    return np.max((up - down)[1:] * np.exp(-beta * np.arange(len(data) + 1)))


def test_the_oracle_of_smooth_sensitivity_against_breadth_first_search():
    def f(data):
        return data[(len(data) + 1) // 2 - 1] if data else GRID[0]

    def local(data):
        return max(
            abs(f(data) - f(other)) for other in oracle.neighbors_of(data, "add_remove", GRID)
        )

    for data in oracle.all_datasets(range(4), GRID):
        found = oracle.reachable(data, 3, local, "add_remove", GRID)[0]
        up, down = reaches(data, GRID[0], GRID[-1])
        np.testing.assert_array_equal(found[: len(data) + 1], (up - down)[1:5][: len(found)])


@pytest.fixture
def setting(x64):
    x = rows()
    n = counts(x)
    profile = median(
        jnp.asarray(x),
        lower=0.0,
        upper=1.0,
        neighbors="add_remove",
        definition="lower",
        num_records=n,
    )
    data = [row[:k] for row, k in zip(x, n, strict=True)]
    return profile, duff(profile, EPSILONS), data


def outside(distribution, low, high):
    """P(Y < low or Y > high); the distribution has no atoms. One shape for all, so that it compiles
    once.
    """
    shape = np.broadcast_shapes(np.shape(low), np.shape(high), (1, *distribution.batch_shape))
    ends = (
        np.resize(np.broadcast_to(end, shape), (24, *distribution.batch_shape))
        for end in (low, high)
    )
    return np.asarray(_outside(distribution, *ends))[: shape[0]]


@jax.jit
def _outside(distribution, low, high):
    return distribution.cdf(low) + distribution.survival(high)


def test_level_sets_of_fractional_levels_are_refused():
    for neighbors in ("swap", "add_remove"):
        continuous = median(
            jnp.array([1.0, 2.0, 4.0, 8.0]),
            lower=0,
            upper=9,
            neighbors=neighbors,
            definition="continuous",
        )
        with pytest.raises(ValueError, match="integer levels"):
            level_measure(continuous, 1.0)


@pytest.mark.slow
def test_level_sets(setting):
    profile, _, data = setting
    levels = np.array([0.0, 0.5, 1.0, 1.9, 2.0, 7.0, 26.0, 100.0])
    found = np.asarray(level_measure(profile, levels[:, None]))
    for row, own in enumerate(data):
        up, down = reaches(own, 0.0, 1.0)
        np.testing.assert_allclose(
            found[:, row], [(up - down)[min(int(t), len(own) + 1)] for t in levels], atol=1e-15
        )
    assert np.isnan(level_measure(profile, jnp.float64(-1.0))).all()
    with pytest.raises(ValueError, match="no steps"):
        level_measure(profile.truncate(1, step=1.0), 1.0)


@pytest.mark.slow
def test_proposition_4_on_the_line(setting):
    profile, distribution, data = setting
    ends = [reaches(own, 0.0, 1.0) for own in data]
    levels = np.arange(1, 25)
    # u <= -t is outside of what t-1 changes reach.
    up, down = (
        np.array([[end[side][t - 1] for end in ends] for t in levels])[:, None] for side in (0, 1)
    )
    exact = outside(distribution, down, up)
    t = levels[:, None, None].astype(float)
    bound = np.asarray(
        proposition_4(t, EPSILONS[None], support=1.0, level_measure=level_measure(profile, t / 2))
    )
    assert (exact <= bound * (1 + 1e-12)).all()
    assert ((bound < 1) & (bound > 0)).mean() > 0.3  # the bounds say something
    assert (exact > bound / 2).any()  # control: half of it is violated
    faster = proposition_4(
        t, 2 * EPSILONS[None], support=1.0, level_measure=level_measure(profile, t / 2)
    )
    # And so is the exponent of a mechanism without the factor 1/2
    assert (exact > np.asarray(faster)).any()


def test_proposition_4_over_candidates(x64):
    rng = np.random.default_rng(1)
    x = np.floor(rng.exponential(3.0, (40, 60)))
    scores = mode(x, candidates=np.arange(12), neighbors="add_remove")
    distribution = duff(scores, EPSILONS)
    t = np.arange(1.0, 25.0)
    u = np.asarray(scores.scores)
    exact = np.stack(
        [np.asarray(distribution.expectation(jnp.asarray((u <= -s).astype(float)))) for s in t]
    )
    level = np.stack([np.sum(u >= -s / 2, axis=-1) for s in t])[:, None]
    bound = np.asarray(
        proposition_4(t[:, None, None], EPSILONS[None], support=12, level_measure=level)
    )
    assert (exact <= bound * (1 + 1e-12)).all()
    assert (exact > bound / 4).any()


def test_theorem_1(setting):
    profile, distribution, data = setting
    betas = np.array([0.02, 0.05, 0.1, 0.2, 0.45, 1.0])
    value = np.asarray(profile.value)
    local, smooth = (
        np.array([[smooth_sensitivity(own, 0.0, 1.0, beta) for own in data] for beta in some])
        for some in ([50.0], betas)
    )
    level = np.asarray(level_measure(profile, 1 / (2 * betas)[:, None]))[:, None]

    def check(sensitivity):
        bound = theorem_1(
            betas[:, None, None],
            EPSILONS[None],
            smooth_sensitivity=sensitivity,
            support=1.0,
            level_measure=level,
        )
        threshold = np.broadcast_to(np.asarray(bound.threshold), bound.probability.shape)
        return outside(distribution, value - threshold, value + threshold), np.asarray(
            bound.probability
        )

    exact, bound = check(smooth[:, None])
    assert (exact <= bound * (1 + 1e-12)).all()
    assert ((bound < 1) & (exact > 0)).any()  # some of the bounds say something
    exact, bound = check(np.broadcast_to(local, smooth.shape)[:, None])
    assert (exact > bound).any()  # control: the local sensitivity instead of the smooth one


@pytest.mark.slow
def test_corollary_1_and_its_constant(setting):
    profile, distribution, data = setting
    etas = np.array([0.2, 0.01, 1e-4])
    value = np.asarray(profile.value)

    def bound_of(growth, check=True):
        """For C that broadcasts to (eta, epsilon, row)."""
        common = {"support": 1.0, "growth": growth}
        beta = np.asarray(corollary_1_beta(etas[:, None, None], EPSILONS[None], **common))
        beta = np.broadcast_to(beta, (3, len(EPSILONS), len(data)))
        gamma = 1 / (2 * beta)
        smooth = np.array(
            [
                smooth_sensitivity(data[i % len(data)], 0.0, 1.0, b)
                for i, b in enumerate(beta.ravel())
            ]
        )
        smooth = smooth.reshape(beta.shape)
        level = np.asarray(level_measure(profile, gamma)) if check else np.full(beta.shape, 1e9)
        bound = corollary_1(
            etas[:, None, None],
            EPSILONS[None],
            smooth_sensitivity=smooth,
            level_measure=level,
            **common,
        )
        threshold = np.asarray(bound.threshold)
        return (
            np.where(
                np.isfinite(threshold),
                outside(distribution, value - threshold, value + threshold),
                0.0,
            ),
            threshold,
            gamma,
        )

    gap = 1 / (N + 1)
    exact, threshold, _ = bound_of(0.75 * gap)
    assert (exact <= etas[:, None, None]).all()
    # Evenly spaced data fulfil the condition at 3/4 of a gap
    assert np.isfinite(threshold[:, :, 0]).any()
    assert (threshold[:, -1] < 1).any()  # and some of the bounds say something
    # The constant printed for evenly spaced data, 2(b-a)/n, is twice too large: the condition fails
    # everywhere.
    _, threshold, gamma = bound_of(2 / N)
    assert np.isinf(threshold[:, :, 0]).all()
    whole = np.floor(gamma[:, :, 0])
    true = np.minimum(whole * gap, 1.0)
    assert (true <= 0.51 * gamma[:, :, 0] * 2 / N).all()
    np.testing.assert_allclose(level_measure(profile, whole[..., None])[..., 0], true, rtol=1e-12)
    # Control: an unchecked C is no bound: 25 tied records have no level set before the last level.
    exact, _, _ = bound_of(1.0, check=False)
    assert (exact[..., 1] > etas[:, None]).any()
    assert np.isinf(bound_of(1.0)[1][..., 1]).all()


def exact_w(z):
    z = Decimal(float(z))
    w = z if z < Decimal("0.1") else (1 + z).ln()
    for _ in range(12):
        w = w * (1 + (z / w).ln()) / (1 + w)
    return w


@pytest.mark.parametrize(("dtype", "most"), [("float32", 38), ("float64", 300)])
def test_lambert_w_against_decimals(dtype, most, x64):
    z = jnp.asarray(
        np.concatenate([np.logspace(-most + 1, most, 60), np.logspace(-1, 2, 30), [np.e]]), dtype
    )
    w, unit = np.asarray(lambert_w(z), np.float64), Decimal(float(np.finfo(dtype).eps))
    with localcontext() as context:
        context.prec = 40
        assert (
            max(
                abs(Decimal(float(a)) / exact_w(b) - 1)
                for a, b in zip(w, np.asarray(z), strict=True)
            )
            <= 2 * unit
        )
    moderate = np.asarray(z, np.float64) < 1e30
    np.testing.assert_allclose(
        (w * np.exp(w))[moderate], np.asarray(z, np.float64)[moderate], rtol=100 * float(unit)
    )


def test_the_ends_of_lambert_w_and_its_derivative(x64):
    assert np.asarray(lambert_w(jnp.array([0.0, jnp.inf]))).tolist() == [0.0, np.inf]
    assert np.isnan(lambert_w(jnp.array([-1.0, jnp.nan]))).all()
    for z, h in ((0.0, 0.0), (0.5, 1e-6), (1e6, 1.0)):
        central = (
            1.0
            if h == 0
            else float(lambert_w(jnp.float64(z + h)) - lambert_w(jnp.float64(z - h))) / (2 * h)
        )
        assert float(jax.grad(lambert_w)(jnp.float64(z))) == pytest.approx(central, rel=1e-8)


def test_bad_arguments_and_bounds_without_content():
    with pytest.raises(ValueError, match="support"):
        proposition_4(1.0, 1.0, support=-1.0, level_measure=1.0)
    with pytest.raises(ValueError, match="level_measure"):
        theorem_1(1.0, 1.0, smooth_sensitivity=1.0, support=1.0, level_measure=-1.0)
    assert float(proposition_4(1.0, 1.0, support=1.0, level_measure=0.0)) == 1.0
    assert np.isnan(proposition_4(jnp.float32(-1.0), 1.0, support=1.0, level_measure=1.0))
    assert np.isnan(
        corollary_1(
            jnp.float32(-1.0),
            1.0,
            smooth_sensitivity=1.0,
            support=1.0,
            growth=1.0,
            level_measure=9.0,
        ).threshold
    )
