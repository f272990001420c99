"""The paper's utility bounds against its exact tails, on datasets of many kinds; each with a
control that is violated.
"""

from decimal import Decimal, localcontext

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpjax import bounds, duff, median, mode
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


X = rows()
COUNTS = np.where(np.arange(len(X)) % 2 == 0, N, N - 1)
DATA = [row[:n] for row, n in zip(X, COUNTS, strict=True)]


def reaches(data, low=0.0, high=1.0):
    """The paper's median and how far l changes move it, for l = 0..n+1: x[ceil((n+l)/2)] and
    x[ceil((n-l)/2)].
    """
    n = len(data)

    def x(j):
        return low if j <= 0 else high if j > n else data[j - 1]

    return np.array(
        [[x(-(-(n + sign * level) // 2)) for level in range(n + 2)] for sign in (1, -1)]
    )


ENDS = [reaches(own) for own in DATA]
VALUES = np.array([up[0] for up, _ in ENDS])


def smooth_sensitivity(row, beta):
    """The maximum of exp(-beta k) A_k; k changes make room for a local sensitivity of A_k = the
    reach of k+1 changes.
    """
    up, down = ENDS[row]
    return np.max((up - down)[1:] * np.exp(-beta * np.arange(len(DATA[row]) + 1)))


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


@jax.jit
def line(low, high, levels):
    """P(Y < low or Y > high), which has no atoms, for each epsilon and dataset, and the measures of
    levels.
    """
    profile = median(
        X, lower=0.0, upper=1.0, neighbors="add_remove", definition="lower", num_records=COUNTS
    )
    distribution = duff(profile, EPSILONS)
    outside = distribution.cdf(low) + distribution.survival(high)
    return outside, bounds.duff.level_measure(profile, levels)


def exact_outside(low, high, levels=0.0):
    """One shape for all, so that it compiles once."""
    arrays = np.broadcast_arrays(low, high, levels, np.zeros((1, len(EPSILONS), len(DATA))))[:3]
    shape = arrays[0].shape
    parts = line(*(np.resize(array, (24, *shape[1:])) for array in arrays))
    return [np.asarray(part)[: shape[0]] for part in parts]


def test_proposition_4_on_the_line(x64):
    levels = np.arange(1, 25)
    # u <= -t is outside of what t-1 changes reach.
    up, down = (
        np.array([[end[side][t - 1] for end in ENDS] for t in levels])[:, None] for side in (0, 1)
    )
    t = levels[:, None, None].astype(float)
    exact, measures = exact_outside(down, up, t / 2)
    reached = [[(up - down)[t // 2] for up, down in ENDS] for t in levels]
    np.testing.assert_allclose(measures[:, 0], reached, atol=1e-15)

    @jax.jit
    def bound(epsilon, support):
        return bounds.duff.proposition_4(t, epsilon, support=support, level_measure=measures)

    own = np.asarray(bound(EPSILONS, 1.0))
    assert (exact <= own * (1 + 1e-12)).all()
    assert ((own < 1) & (own > 0)).mean() > 0.3  # the bounds say something
    # Controls: a quarter of it, and the exponent of a mechanism without the factor 1/2
    assert (exact > bound(EPSILONS, 0.25)).any()
    assert (exact > bound(2 * EPSILONS, 1.0)).any()


def test_proposition_4_over_candidates(x64):
    rng = np.random.default_rng(1)
    x = np.floor(rng.exponential(3.0, (40, 60)))
    t = np.arange(1.0, 25.0)[:, None, None]

    @jax.jit
    def tails(x):
        scores = mode(x, candidates=np.arange(12), neighbors="add_remove")
        u = scores.scores
        missed = (u[None] <= -t).astype(u.dtype)
        exact = jax.vmap(duff(scores, EPSILONS).expectation)(missed)
        level = jnp.sum(u[None] >= -t / 2, axis=-1)[:, None]
        supports = np.array([12.0, 2.0])[:, None, None, None]  # the other is the control
        return exact, bounds.duff.proposition_4(t, EPSILONS, support=supports, level_measure=level)

    exact, (bound, sixth) = tails(x)
    assert (exact <= bound * (1 + 1e-12)).all()
    assert (exact > sixth).any()


def test_theorem_1(x64):
    betas = np.array([0.02, 0.05, 0.1, 0.2, 0.45, 1.0])
    smooth = np.array([[smooth_sensitivity(row, beta) for row in range(len(X))] for beta in betas])
    local = np.array([smooth_sensitivity(row, 50.0) for row in range(len(X))])
    level = exact_outside(0.0, 1.0, 1 / (2 * betas)[:, None, None])[1]

    def check(sensitivity):
        bound = bounds.duff.theorem_1(
            betas[:, None, None],
            EPSILONS,
            smooth_sensitivity=sensitivity,
            support=1.0,
            level_measure=level,
        )
        threshold = np.broadcast_to(np.asarray(bound.threshold), bound.probability.shape)
        exact, _ = exact_outside(VALUES - threshold, VALUES + threshold)
        return exact, np.asarray(bound.probability)

    exact, bound = check(smooth[:, None])
    assert (exact <= bound * (1 + 1e-12)).all()
    assert ((bound < 1) & (exact > 0)).any()  # some of the bounds say something
    exact, bound = check(np.broadcast_to(local, smooth.shape)[:, None])
    assert (exact > bound).any()  # control: the local sensitivity instead of the smooth one


def test_corollary_1_and_its_constant(x64):
    etas = np.array([0.2, 0.01, 1e-4])[:, None, None]

    def bound_of(growth, measured=True):
        """For C that broadcasts to (eta, epsilon, row)."""
        common = {"support": 1.0, "growth": growth}
        beta = np.asarray(bounds.duff.corollary_1_beta(etas, EPSILONS, **common))
        beta = np.broadcast_to(beta, (3, len(EPSILONS), len(DATA)))
        smooth = [smooth_sensitivity(i % len(DATA), b) for i, b in enumerate(beta.ravel())]
        level = exact_outside(0.0, 1.0, 1 / (2 * beta))[1] if measured else np.full(beta.shape, 1e9)
        threshold = np.asarray(
            bounds.duff.corollary_1(
                etas,
                EPSILONS,
                smooth_sensitivity=np.reshape(smooth, beta.shape),
                level_measure=level,
                **common,
            ).threshold
        )
        exact, _ = exact_outside(VALUES - threshold, VALUES + threshold)
        return np.where(np.isfinite(threshold), exact, 0.0), threshold

    exact, threshold = bound_of(0.75 / (N + 1))
    assert (exact <= etas).all()
    # Evenly spaced data fulfil the condition at 3/4 of a gap
    assert np.isfinite(threshold[:, :, 0]).any()
    assert (threshold[:, -1] < 1).any()  # and some of the bounds say something
    # The constant printed for evenly spaced data, 2(b-a)/n, is twice too large: the condition fails
    # everywhere.
    assert np.isinf(bound_of(2 / N)[1][:, :, 0]).all()
    # Control: an unchecked C is no bound: 25 tied records have no level set before the last level.
    exact, _ = bound_of(1.0, measured=False)
    assert (exact[..., 1] > etas[..., 0]).any()
    assert np.isinf(bound_of(1.0)[1][..., 1]).all()


def exact_w(z):
    z = Decimal(float(z))
    w = z if z < Decimal("0.1") else (1 + z).ln()
    for _ in range(12):
        w = w * (1 + (z / w).ln()) / (1 + w)
    return w


@pytest.mark.parametrize(("dtype", "most"), [("float32", 38), ("float64", 300)])
def test_lambert_w_against_decimals(dtype, most, x64):
    lambert_w = bounds.duff.lambert_w
    z = np.concatenate([np.logspace(-most + 1, most, 60), np.logspace(-1, 2, 30), [np.e, np.inf]])
    z = z.astype(dtype)
    w, slope = jax.jit(jax.vmap(jax.value_and_grad(lambert_w)))(z)
    *w, endless = np.asarray(w, np.float64)
    assert endless == np.inf
    with localcontext() as context:
        context.prec = 40
        off = [abs(Decimal(float(a)) / exact_w(b) - 1) for a, b in zip(w, z[:-1], strict=True)]
    assert max(off) <= 2 * Decimal(float(np.finfo(dtype).eps))
    derivative = np.array(w) / (z[:-1].astype(float) * (1 + np.array(w)))
    np.testing.assert_allclose(slope[:-1], derivative, rtol=1e3 * np.finfo(dtype).eps, atol=1e-37)
