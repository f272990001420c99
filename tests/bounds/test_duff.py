"""Bounds on the error of Duff against its exact tails, on datasets of many kinds; each has a
control that is violated.
"""

from functools import cache

import jax
import numpy as np
import pytest

from dpjax import duff, local_sensitivity, median
from dpjax.bounds import duff as theorems

N = 25
EPSILONS = np.array([0.1, 0.5, 1.0, 4.0])[:, None]
ETAS = np.array([0.2, 0.1, 0.03, 0.01, 1e-3, 1e-4])[:, None, None]
WHOLE = {"lower": 0.0, "upper": 1.0, "neighbors": "add_remove", "definition": "lower"}


def rows():
    """Data in [0, 1]: even, equal, uniform, at few values, near both ends, close to the middle."""
    rng = np.random.default_rng(0)
    uniform = rng.random((6, N))
    kinds = uniform, np.round(uniform * 4) / 4, rng.beta(0.2, 0.2, (6, N)), 0.49 + 0.02 * uniform
    return np.concatenate([[np.arange(1, N + 1) / (N + 1), np.full(N, 0.5)], *kinds])


X = rows()


@cache
def profile():
    return median(X, **WHOLE)


@jax.jit
def missed(low, high):
    """P(Y < low or Y > high), which has no atoms, for each epsilon and dataset."""
    distribution = duff(median(X, **WHOLE), EPSILONS)
    return distribution.cdf(low) + distribution.survival(high)


def exact(low, high):
    return np.asarray(missed(*(np.broadcast_to(end, (6, 4, len(X))) for end in (low, high))))


def smooth_sensitivity(beta):
    return np.asarray(local_sensitivity(X, **WHOLE).smooth(beta).bound)


def proposition_4(wrong):
    """u <= -t is outside of what t - 1 changes reach; wrong: a mechanism without the factor 1/2."""
    t = np.array([1, 2, 5, 8, 14, 24])[:, None, None]
    low, high = (np.asarray(side).T[t[:, 0, 0] - 1, None] for side in reached())
    level = theorems.level_measure(profile(), t / 2)
    epsilon = EPSILONS * (1 + wrong)
    return low, high, theorems.proposition_4(t, epsilon, support=1.0, level_measure=level)


def theorem_1(wrong):
    """Wrong: the local sensitivity instead of the smooth one."""
    betas = np.array([0.02, 0.05, 0.1, 0.2, 0.45, 1.0])[:, None, None]
    smooth = smooth_sensitivity(np.full_like(betas, 50.0) if wrong else betas)
    level = theorems.level_measure(profile(), 1 / (2 * betas))
    bound, probability = theorems.theorem_1(
        betas, EPSILONS, smooth_sensitivity=smooth, support=1.0, level_measure=level
    )
    return profile().value - bound, profile().value + bound, probability


def corollary_1(wrong, growth=0.75 / (N + 1)):
    """Wrong: a growth that is not checked. 25 tied records have no level set before the last."""
    growth = 1.0 if wrong else growth
    beta = theorems.corollary_1_beta(ETAS, EPSILONS, support=1.0, growth=growth)
    level = 1e9 if wrong else theorems.level_measure(profile(), 1 / (2 * beta))
    smooth = smooth_sensitivity(beta)
    known = {"smooth_sensitivity": smooth, "level_measure": level, "support": 1.0}
    bound = theorems.corollary_1(ETAS, EPSILONS, growth=growth, **known)
    return profile().value - bound, profile().value + bound, ETAS


def reached():
    return profile().lower, profile().upper


@pytest.mark.parametrize("theorem", [proposition_4, theorem_1, corollary_1])
def test_errors_are_within_the_bound(theorem, x64):
    low, high, most = theorem(wrong=False)
    assert (exact(low, high) <= most * (1 + 1e-12)).all()
    assert ((most < 1) & (high - low < 2)).any()  # it says something
    low, high, most = theorem(wrong=True)
    assert (exact(low, high) > most).any()  # control


def test_proposition_4_over_candidates():
    """The exponential mechanism in NumPy; a sixth of the bound is none."""
    rng, t, sensitivity = np.random.default_rng(1), np.arange(1.0, 25.0), 2.0
    u = -np.floor(rng.exponential(3.0, (40, 1, 12)))
    u[0] = [0] + 5 * [-12] + 6 * [-24]  # where the sensitivity matters
    u -= u.max(-1, keepdims=True)
    mass = np.exp(u / (2 * sensitivity))
    tail = (mass * (u <= -t[:, None])).sum(-1) / mass.sum(-1)
    common = {"level_measure": (u >= -t[:, None] / 2).sum(-1), "sensitivity": sensitivity}
    assert (tail <= theorems.proposition_4(t, 1.0, support=12, **common)).all()
    assert (tail > theorems.proposition_4(t, 1.0, support=2, **common)).any()


def test_level_measures_and_the_constant_of_evenly_spaced_data(x64):
    for t in (0, 1, 7, N + 1, 90):
        low, high = (side[:, min(t, side.shape[-1] - 1)] for side in reached())
        for level in (t, t + 0.5):
            found = theorems.level_measure(profile(), level)
            np.testing.assert_allclose(found, high - low, atol=1e-15)
    # 3/4 of a gap is enough; the printed 2(b-a)/n is twice too large; ties fulfil no condition.
    for growth, row, holds in ((0.75 / (N + 1), 0, True), (2 / N, 0, False), (1.0, 1, False)):
        _, high, _ = corollary_1(wrong=False, growth=growth)
        assert np.isfinite(high[:, :, row]).any() == holds


def test_constants_and_ends():
    known = {"smooth_sensitivity": 3.0, "support": 9.0, "level_measure": 1e9}
    beta = theorems.corollary_1_beta(0.1, 0.5, support=9.0, growth=2.0)
    w = 0.5 / (4 * beta)
    assert w * np.exp(w) == pytest.approx(0.5 * 9 / (2 * 0.1), rel=1e-12)
    for bound in (
        theorems.theorem_1(beta, 0.5, **known)[0],
        theorems.corollary_1(0.1, 0.5, growth=2.0, **known),
    ):
        assert bound == pytest.approx((np.e - 1) * 3 / beta, rel=1e-12)
    # Nothing is promised without a level set, and data never raise.
    assert theorems.proposition_4(50.0, 1.0, support=9.0, level_measure=0.0) == 1
    with pytest.raises(ValueError, match="epsilon"):
        theorems.proposition_4(50.0, [1.0, 0.0], support=9.0, level_measure=0.0)
    unknown = {"smooth_sensitivity": np.nan, "level_measure": np.nan}
    assert np.isnan(theorems.theorem_1(0.1, 1.0, support=9.0, **unknown)).all()
