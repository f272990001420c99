"""A loss that never exceeds its bound: the exact distribution over all small datasets, its privacy,
draws.
"""

from math import exp

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose

from dpjax import Finite, Guarantee, bounded_noise_laplace, exponential
from dpjax.mechanisms import bounded_loss, bounded_loss_distribution, loss_margin
from tests.support import oracle
from tests.support.removals import neighboring
from tests.support.statistics import assert_counts_follow, assert_counts_rejected

GRID = (0.0, 1.0, 2.0)
SIZE = 10
DATASETS = oracle.all_datasets([SIZE], GRID)
PAIRS = neighboring(DATASETS, neighbors="swap", grid=GRID)
PAIRS = np.concatenate([PAIRS, PAIRS[::-1]], axis=-1)
# People who chose something else
LOSSES = SIZE - np.array([[data.count(value) for value in GRID] for data in DATASETS], float)
NOISE = {"epsilon": 1.5, "delta": 0.1}
ATTEMPTS = 8


@jax.jit
def compiled(target, epsilon, delta):
    """Probabilities of one attempt and of the mechanism for every dataset."""
    one = exponential(LOSSES * -1, epsilon, sensitivity=1.0, candidates=GRID)
    options = {"target": target, "epsilon": 1.5, "delta": delta, "attempts": ATTEMPTS}
    many = bounded_loss_distribution(one, LOSSES, **options, fallback=-1.0)
    return one.probabilities(), many.probabilities()


def excess(target, one, many, epsilon, delta):
    """What neighbors have beyond e^epsilon, for the claimed epsilon, over the claimed delta; all
    targets are met as often as is claimed.
    """
    missed = np.where(np.reshape(target, (-1, 1)) < LOSSES, one, 0.0).sum(-1)
    claim = bounded_loss.guarantee(
        Guarantee(epsilon, epsilon, "swap"),
        epsilon=1.5,
        delta=delta,
        failure=float(missed.max()),
        attempts=ATTEMPTS,
        fallback="public",
    )
    beyond = np.maximum(many[PAIRS[0]] - exp(claim.epsilon) * many[PAIRS[1]], 0)
    return beyond.sum(-1).max() / claim.delta


def cdf_of_noise(t):
    """Truncated Laplace noise, from its definition."""
    tau, rate = loss_margin(**NOISE), NOISE["epsilon"]
    whole = 1 - np.exp(-rate * tau)
    t = np.clip(t, -tau, tau)
    half = (1 - np.exp(-rate * np.abs(t))) / whole / 2
    return 0.5 + np.sign(t) * half


TAU = loss_margin(**NOISE)


@pytest.mark.parametrize("target", [7.0, 6.0, 8.5 - 2 * TAU])
def test_the_distribution_its_bound_and_its_privacy_over_all_datasets(target, x64):
    """Somebody chose the most frequent of three: its loss is at most 6."""
    masses, found = map(np.asarray, compiled(target, 1.0, 0.1))
    accepted = cdf_of_noise(target + TAU - LOSSES)
    rejected = (masses * (1 - accepted)).sum(-1, keepdims=True)
    kept = masses * accepted * sum(rejected**i for i in range(ATTEMPTS))
    expected = np.append(kept, rejected**ATTEMPTS, axis=-1)
    assert_allclose(found, expected, rtol=1e-9, atol=1e-14)
    assert (found[:, :-1][target + 2 * TAU + 1e-9 < LOSSES] == 0).all()
    if target >= 6:  # a lower one may be missed by nearly every attempt
        assert excess(target, masses, found, 1.0, 0.1) <= 1


def test_control_a_target_that_depends_on_the_data(x64):
    """Everything is accepted for an even count of zeros, only what is near the best for an odd
    one.
    """
    even = np.array([data.count(0.0) % 2 == 0 for data in DATASETS])
    own, public = np.where(even, SIZE, LOSSES.min(-1)), np.full(len(DATASETS), 6.0)
    broken, right = (
        excess(target, *map(np.asarray, compiled(target, 0.2, 0.01)), 0.2, 0.01)
        for target in (own, public)
    )
    assert right <= 1
    assert broken > 4


def test_draws_follow_the_distribution():
    """Outcomes with losses 0, 1, 2, 3, NaN, ..., each of two rows 8,000 times; they are drawn as
    the noise is, which would show if both had one key.
    """
    drawn = bounded_noise_laplace(np.zeros((), np.float32), sensitivity=1.0, **NOISE)
    losses = jnp.asarray(np.where(np.arange(8) == 4, np.nan, np.arange(8)), np.float32)
    walls = np.linspace(-1.2, 1.2, 7, dtype=np.float32)
    masses = np.diff(cdf_of_noise(np.array([-np.inf, *walls, np.inf])))
    one = Finite(np.arange(8, dtype="f4"), -np.log(masses).astype("f4"), np.ones((), "f4"))
    given = {"target": 0.0, "fallback": 8, **NOISE}

    @jax.jit
    def sampled(key):
        return bounded_loss(
            key,
            lambda key: jnp.searchsorted(walls, drawn.sample(key, (8_000, 2))),
            loss=lambda index: losses[index],
            attempts=3,
            **given,
        )

    @jax.jit
    def exact(one):
        several = [bounded_loss_distribution(one, losses, attempts=m, **given) for m in (3, 4)]
        return [distribution.probabilities() for distribution in several]

    right, four = exact(one)
    for row in np.asarray(sampled(jax.random.key(1))).T:
        counts = np.bincount(row, minlength=9)
        assert_counts_follow(counts, right)
        assert_counts_rejected(counts, four)
        assert counts[4:8].sum() == 0  # twice the margin is 3.9; NaN is no loss
