"""A loss that never exceeds its bound: the margin, the exact distribution over all small datasets,
its privacy, draws.
"""

import json
import pathlib
from math import exp, inf

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpjax.accounting.guarantee import Guarantee
from dpjax.distributions.finite import Finite
from dpjax.mechanisms import bounded_loss, bounded_loss_distribution, exponential, loss_margin
from tests.support import oracle
from tests.support.removals import log_probabilities, neighboring
from tests.support.statistics import assert_counts_follow, assert_counts_rejected

GOLDEN = json.loads(
    (pathlib.Path(__file__).parent.parent / "golden" / "F_accounting.json").read_text()
)
GRID = (0.0, 1.0, 2.0)
SIZE = 10
DATASETS = oracle.all_datasets([SIZE], GRID)
PAIRS = neighboring(DATASETS, neighbors="swap", grid=GRID)
PAIRS = np.concatenate([PAIRS, PAIRS[::-1]], axis=-1)
# People who chose something else
LOSSES = SIZE - np.array([[data.count(value) for value in GRID] for data in DATASETS], float)
EPSILON, NOISE = 1.0, {"epsilon": 1.5, "delta": 0.1}
TARGET = 7.0  # somebody chose the most frequent of three: its loss is at most 6


def test_the_margin_is_the_golden_half_width():
    for name, width in GOLDEN["trunc_laplace_halfwidth"].items():
        epsilon, delta = (float(part.split("=")[1]) for part in name.split(","))
        assert loss_margin(epsilon=epsilon, delta=delta) == pytest.approx(float(width), rel=1e-12)
        assert loss_margin(epsilon=epsilon, delta=delta, sensitivity=2.0) == pytest.approx(
            2 * float(width), rel=1e-12
        )
    with pytest.raises(ValueError, match="below 1/2"):
        loss_margin(epsilon=1.0, delta=0.5)


def distributions(target=TARGET, attempts=4, epsilon=EPSILON, noise=NOISE):
    """The mechanism on every dataset, its worst failure probability, and what becomes of it."""
    one = exponential(-LOSSES, epsilon, sensitivity=1.0, candidates=GRID)
    target = np.broadcast_to(target, len(DATASETS))
    missed = np.where(target[:, None] < LOSSES, np.asarray(one.probabilities()), 0.0).sum(-1)
    distribution = bounded_loss_distribution(
        one, LOSSES, target=target, **noise, fallback=-1.0, attempts=attempts
    )
    return one, float(missed.max()), distribution


def hockey_stick(distribution, epsilon):
    probabilities = np.exp(log_probabilities(distribution))
    return (
        np.maximum(probabilities[PAIRS[0]] - exp(epsilon) * probabilities[PAIRS[1]], 0)
        .sum(-1)
        .max()
    )


def cdf_of_noise(t):
    """Truncated Laplace noise, from its definition."""
    tau, rate = loss_margin(**NOISE), NOISE["epsilon"]
    whole = 1 - np.exp(-rate * tau)
    t = np.clip(t, -tau, tau)
    half = (1 - np.exp(-rate * np.abs(t))) / whole / 2
    return 0.5 + np.sign(t) * half


def test_the_distribution_its_bound_and_its_privacy_over_all_datasets(x64):
    tau = loss_margin(**NOISE)
    for target, attempts in ((TARGET, 4), (6.0, 4), (TARGET - 2 * tau + 1.5, 4)):
        one, failure, distribution = distributions(target, attempts)
        accepted = cdf_of_noise(target + tau - LOSSES)
        masses = np.asarray(one.probabilities())
        rejected = (masses * (1 - accepted)).sum(-1, keepdims=True)
        expected = np.append(
            masses * accepted * sum(rejected**i for i in range(attempts)),
            rejected**attempts,
            axis=-1,
        )
        found = np.exp(log_probabilities(distribution))
        np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-14)
        assert (found[:, :-1][target + 2 * tau + 1e-9 < LOSSES] == 0).all()
        if failure < 0.8:
            # What is within the target is never rejected
            assert (rejected <= failure + 1e-12).all()
            for bound in ("sharp", "published"):
                claim = bounded_loss.guarantee(
                    Guarantee(EPSILON, EPSILON, "swap"),
                    **NOISE,
                    failure=failure,
                    attempts=attempts,
                    fallback="public",
                    bound=bound,
                )
                assert hockey_stick(distribution, claim.epsilon) <= claim.delta


def test_control_a_target_that_depends_on_the_data(x64):
    """Everything is accepted for an even count of zeros, only what is near the best for an odd one:
    outputs become impossible.

    Every dataset meets its own target with the stated probability; only that the target is not
    public is wrong.
    """
    even = np.array([data.count(0.0) % 2 == 0 for data in DATASETS])
    noise = {"epsilon": 1.5, "delta": 0.01}
    for target, broken in (
        (np.where(even, SIZE, LOSSES.min(-1)), True),
        (np.full(len(DATASETS), 6.0), False),
    ):
        _, failure, distribution = distributions(target, attempts=8, epsilon=0.2, noise=noise)
        claim = bounded_loss.guarantee(
            Guarantee(0.2, 0.2, "swap"), **noise, failure=failure, attempts=8, fallback="public"
        )
        assert claim.delta < 0.1
        found = hockey_stick(distribution, claim.epsilon)
        assert found > 4 * claim.delta if broken else found <= claim.delta


def test_theorem_2():
    one = Guarantee(1.0, inf, "swap", delta=1e-6)
    found = bounded_loss.guarantee(
        one,
        epsilon=1.0,
        delta=1e-6,
        failure=0.5,
        attempts=None,
        fallback="public",
        bound="published",
    )
    assert found.epsilon == pytest.approx(4 - np.log1p(-4e-6), rel=1e-12)
    assert found.delta == pytest.approx(4e-6, rel=1e-12)
    assert (
        bounded_loss.guarantee(
            one, epsilon=1.0, delta=1e-6, failure=0.5, attempts=None, fallback="public"
        ).epsilon
        < 2.7
    )


def sampled(key, epsilon, attempts=3):
    """One of eight candidates with losses 0, 1, ..., 7, each of two rows 20,000 times."""
    losses = jnp.arange(8.0)
    distribution = Finite(losses, jnp.zeros((2, 8)), jnp.ones(()))
    return bounded_loss(
        key,
        lambda key: distribution.sample_index(key, (20_000,)),
        loss=lambda index: losses[index],
        target=0.0,
        epsilon=epsilon,
        delta=0.1,
        fallback=8,
        attempts=attempts,
    )


@pytest.mark.slow
def test_draws_follow_the_distribution():
    distribution = Finite(jnp.arange(8.0), jnp.zeros(8), jnp.ones(()))
    options = {"target": 0.0, "epsilon": 1.0, "delta": 0.1, "fallback": 8.0}
    right, four = (
        bounded_loss_distribution(
            distribution, jnp.arange(8.0), attempts=m, **options
        ).probabilities()
        for m in (3, 4)
    )
    draws = np.asarray(jax.jit(lambda key: sampled(key, 1.0))(jax.random.key(1)))
    assert draws.shape == (20_000, 2)
    for row in draws.T:
        counts = np.bincount(row, minlength=9)
        assert_counts_follow(counts, right)
        assert_counts_rejected(counts, four)
        assert counts[5:8].sum() == 0  # twice the margin is 4.5


def test_public_parameters_do_not_widen_the_loss():
    good = {"target": 1.0, "epsilon": 1.0, "delta": 0.1, "sensitivity": 1.0}
    for shape, wide in (((), (2,)), ((3,), (2, 3)), ((3,), (2,))):
        options = {
            "draw": lambda key, shape=shape: jax.random.uniform(key, shape),
            "loss": lambda y: y,
        }
        for name, value in good.items():
            with pytest.raises(
                ValueError,
                match=f"^{name} of shape .* does not broadcast to the shape .* of the loss",
            ):
                bounded_loss(
                    jax.random.key(0),
                    **options,
                    **(good | {name: jnp.full(wide, value)}),
                    fallback=0.0,
                    attempts=2,
                )


@pytest.mark.slow
def test_a_bad_parameter_spoils_its_own_row():
    def run(key, epsilon, target):
        draw = lambda key: jax.random.uniform(key, (5, 2))  # noqa: E731
        options = {"epsilon": epsilon, "delta": 0.1, "fallback": 9.0, "attempts": 3}
        return bounded_loss(key, draw, loss=lambda y: 10 * y, target=target, **options)

    found = jax.jit(run)(
        jax.random.key(0), jnp.array([1.0, -1.0]), jnp.array([[1.0]] * 4 + [[jnp.inf]])
    )
    np.testing.assert_array_equal(np.isnan(found), [[False, True]] * 4 + [[True, True]])
    assert jnp.isfinite(run(jax.random.key(0), jnp.array([1.0, 2.0]), 1.0)).all()
    distribution = Finite(jnp.arange(3.0), jnp.zeros(3), jnp.ones(()))
    epsilon = jnp.array([1.0, jnp.nan])[:, None]
    rows = bounded_loss_distribution(
        distribution,
        jnp.arange(3.0),
        target=np.zeros(3),
        epsilon=epsilon,
        delta=0.1,
        fallback=0.0,
        attempts=2,
    )
    assert rows.batch_shape == (2, 3)
    np.testing.assert_array_equal(np.isnan(rows.mean()), [[False] * 3, [True] * 3])
    nan_losses = bounded_loss_distribution(
        distribution,
        [jnp.nan, 0.0, jnp.inf],
        target=0.0,
        epsilon=1.0,
        delta=0.1,
        fallback=9.0,
        attempts=2,
    )
    np.testing.assert_allclose(nan_losses.probabilities(), [0, 5 / 9, 0, 4 / 9], rtol=1e-6)
    for bad in ({"epsilon": 0.0}, {"delta": 0.5}, {"target": inf}, {"sensitivity": -1.0}):
        good = {"target": 0.0, "epsilon": 1.0, "delta": 0.1, "fallback": 0.0, "attempts": 2}
        with pytest.raises(ValueError, match=next(iter(bad))):
            bounded_loss_distribution(distribution, jnp.arange(3.0), **(good | bad))
