"""The paper's utility bounds against exact tails, on datasets of many kinds; each with a control
that is violated.
"""

import jax
import numpy as np
import pytest

from dpjax import duff, local_sensitivity, median
from dpjax.bounds import duff as theorems

N = 25
EPSILONS = np.array([0.1, 0.5, 1.0, 4.0])[:, None]
WHOLE = {"lower": 0.0, "upper": 1.0, "neighbors": "add_remove", "definition": "lower"}


def rows():
    """Data in [0, 1]: even, equal, uniform, at few values, near both ends, close to the middle."""
    rng = np.random.default_rng(0)
    x = [np.arange(1, N + 1) / (N + 1), np.full(N, 0.5)]
    for _ in range(6):
        x += [
            rng.random(N),
            np.round(rng.random(N) * 4) / 4,
            rng.beta(0.2, 0.2, N),
            0.5 + 0.01 * rng.normal(size=N),
        ]
    return np.clip(np.array(x), 0, 1)


X = rows()


@jax.jit
def missed(low, high):
    """P(Y < low or Y > high), which has no atoms, for each epsilon and dataset."""
    distribution = duff(median(X, **WHOLE), EPSILONS)
    return distribution.cdf(low) + distribution.survival(high)


def exact(low, high):
    """One shape for all, so that it compiles once."""
    shape = (24, len(EPSILONS), len(X))
    both = [np.broadcast_to(end, (len(low), *shape[1:])) for end in (low, high)]
    return np.asarray(missed(*(np.resize(end, shape) for end in both)))[: len(low)]


def smooth_sensitivity(beta):
    return np.asarray(local_sensitivity(X, **WHOLE).smooth(beta).bound)


def test_level_measures(x64):
    profile = median(X, **WHOLE)
    for t in (0, 1, 7, N + 1, 90):
        least, most = (
            side[:, min(t, side.shape[-1] - 1)] for side in (profile.lower, profile.upper)
        )
        for level in (t, t + 0.5):
            found = theorems.level_measure(profile, level)
            np.testing.assert_allclose(found, most - least, atol=1e-15)


def test_proposition_4_on_the_line(x64):
    profile, t = median(X, **WHOLE), np.arange(1, 25)
    # u <= -t is outside of what t - 1 changes reach.
    low, high = (np.asarray(side)[:, t - 1].T[:, None] for side in (profile.lower, profile.upper))
    outside, t = exact(low, high), t[:, None, None]

    def bound(epsilon, support):
        level = theorems.level_measure(profile, t / 2)
        return theorems.proposition_4(t, epsilon, support=support, level_measure=level)

    own = bound(EPSILONS, 1.0)
    assert (outside <= own * (1 + 1e-12)).all()
    assert ((own < 1) & (own > 0)).mean() > 0.3  # the bounds say something
    # Controls: a quarter of it, and the exponent of a mechanism without the factor 1/2
    assert (outside > bound(EPSILONS, 0.25)).any()
    assert (outside > bound(2 * EPSILONS, 1.0)).any()


def test_proposition_4_over_candidates():
    rng, t, sensitivity = np.random.default_rng(1), np.arange(1.0, 25.0)[:, None], 2.0
    u = -np.floor(rng.exponential(3.0, (40, 1, 12)))
    u -= u.max(-1, keepdims=True)
    mass = np.exp(u / (2 * sensitivity))
    tail = (mass * (u <= -t)).sum(-1) / mass.sum(-1)
    level = (u >= -t / 2).sum(-1)
    of, sixth = (
        theorems.proposition_4(
            t[:, 0], 1.0, support=support, level_measure=level, sensitivity=sensitivity
        )
        for support in (12, 2)
    )
    assert (tail <= of).all()
    assert (tail > sixth).any()


def test_theorem_1(x64):
    betas = np.array([0.02, 0.05, 0.1, 0.2, 0.45, 1.0])[:, None, None]
    profile = median(X, **WHOLE)

    def check(sensitivity):
        bound = theorems.theorem_1(
            betas,
            EPSILONS,
            smooth_sensitivity=sensitivity,
            support=1.0,
            level_measure=theorems.level_measure(profile, 1 / (2 * betas)),
        )
        ends = (profile.value + sign * bound.threshold for sign in (-1, 1))
        return exact(*ends), bound.probability

    outside, bound = check(smooth_sensitivity(betas))
    assert (outside <= bound * (1 + 1e-12)).all()
    assert ((bound < 1) & (outside > 0)).any()  # some of the bounds say something
    outside, bound = check(smooth_sensitivity(np.full_like(betas, 50.0)))
    assert (outside > bound).any()  # control: the local sensitivity instead of the smooth one


def test_corollary_1_and_its_constant(x64):
    etas = np.array([0.2, 0.01, 1e-4])[:, None, None]
    profile = median(X, **WHOLE)

    def bound_of(growth, measured=True):
        beta = theorems.corollary_1_beta(etas, EPSILONS, support=1.0, growth=growth)
        level = theorems.level_measure(profile, 1 / (2 * beta)) if measured else 1e9
        bound = theorems.corollary_1(
            etas,
            EPSILONS,
            support=1.0,
            growth=growth,
            smooth_sensitivity=smooth_sensitivity(beta),
            level_measure=level,
        ).threshold
        return exact(profile.value - bound, profile.value + bound), bound

    outside, bound = bound_of(0.75 / (N + 1))
    assert (outside <= etas).all()
    # Evenly spaced data fulfil the condition at 3/4 of a gap
    assert np.isfinite(bound[:, :, 0]).any()
    assert (bound[:, -1] < 1).any()  # and some of the bounds say something
    # The constant printed for evenly spaced data, 2(b-a)/n, is twice too large.
    assert np.isinf(bound_of(2 / N)[1][:, :, 0]).all()
    # Control: an unchecked C is no bound: 25 tied records have no level set before the last level.
    outside, _ = bound_of(1.0, measured=False)
    assert (outside[..., 1] > etas[..., 0]).any()
    assert np.isinf(bound_of(1.0)[1][..., 1]).all()


def test_the_constants():
    known = {"smooth_sensitivity": 3.0, "support": 9.0, "level_measure": 1e9}
    beta = theorems.corollary_1_beta(0.1, 0.5, support=9.0, growth=2.0)
    w = 0.5 / (4 * beta)
    assert w * np.exp(w) == pytest.approx(0.5 * 9 / (2 * 0.1), rel=1e-12)
    for bound in (
        theorems.theorem_1(beta, 0.5, **known),
        theorems.corollary_1(0.1, 0.5, growth=2.0, **known),
    ):
        assert bound.threshold == pytest.approx((np.e - 1) * 3 / beta, rel=1e-12)


def test_nothing_is_promised_without_a_level_set():
    assert theorems.proposition_4(50.0, 1.0, support=9.0, level_measure=0.0) == 1
    with pytest.raises(ValueError, match="epsilon must be finite and positive"):
        theorems.proposition_4(50.0, [1.0, 0.0], support=9.0, level_measure=0.0)
    unknown = {"smooth_sensitivity": np.nan, "level_measure": np.nan}  # data never raise
    assert np.isnan(theorems.theorem_1(0.1, 1.0, support=9.0, **unknown).threshold)
