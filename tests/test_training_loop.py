"""A training loop with private clipping norms: 200 steps, its noise, scale and guarantee."""

from dataclasses import dataclass
from math import log

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.scipy.stats import norm

import dpjax
from tests.support import training_loop
from tests.support.statistics import assert_follows, assert_rejected

RUNS = 32


@dataclass(frozen=True)
class Linear(dpjax.distributions.Transform):
    """What there is without another scale."""

    def forward(self, x):
        return x

    def inverse(self, z):
        return z

    def log_derivative(self, x):
        return jnp.zeros_like(x)


@pytest.fixture(scope="module")
def recipe():
    return dict(vars(training_loop))


def trained(recipe, **changes):
    """The runs of a recipe in which some of the numbers are others: their losses and the draws'
    mean errors.
    """
    changed = recipe | changes
    step = type(recipe["step"])(recipe["step"].__code__, changed)

    @jax.jit
    def train(key):
        weights, (clips, medians) = jax.lax.scan(step, jnp.zeros(10), jax.random.split(key, 200))
        loss = jax.vmap(recipe["loss"], (None, 0, 0))(weights, recipe["inputs"], recipe["labels"])
        return jnp.mean(loss), jnp.mean(jnp.abs(clips - medians)), weights

    return [
        np.array(part)
        for part in zip(
            *(train(key) for key in jax.random.split(jax.random.key(1), RUNS)), strict=True
        )
    ]


@pytest.mark.slow
def test_200_steps_learn_and_the_linear_scale_does_not(recipe):
    """Most runs learn. A single run may draw a far norm in some step, in one of ten runs by enough
    for a mean error above 0.5.
    """
    losses, errors, _ = trained(recipe)
    assert np.mean(losses < 0.65) > 0.8  # of log(2) at the start, and 0.45 at best
    assert errors.mean() < 0.3
    bad_losses, bad_errors, _ = trained(recipe, scale=Linear(lower=0.0, upper=100.0))
    assert bad_errors.mean() > 20 * errors.mean()
    assert np.mean(bad_losses > log(2)) > 0.8


@pytest.mark.slow
def test_the_noise_is_there(recipe):
    """Gradients of 0 leave nothing but the noise, and the clipping norm it is scaled by."""
    nothing = recipe | {"inputs": jnp.zeros_like(recipe["inputs"])}
    step = jax.jit(jax.vmap(type(recipe["step"])(recipe["step"].__code__, nothing), (None, 0)))
    weights, (clips, medians) = step(jnp.zeros(10), jax.random.split(jax.random.key(2), 2000))
    assert (medians == 0).all()
    assert clips.std() > 0
    noise = np.ravel(weights * recipe["batch"] / (recipe["noise"] * clips[:, None]))
    assert_follows(noise, norm.cdf)
    assert_rejected(noise * 1.1, norm.cdf)


def test_the_guarantee_of_the_run():
    """Against quadrature of the worst pairs: losses t and t - epsilon of the draw, for every t,
    with Gaussian noise, subsampled.
    """
    p, epsilon, deviation = training_loop.probability, training_loop.epsilon, training_loop.noise
    # What ``help(dpjax.accounting)`` says, with the draws and without
    stated, without, delta = 2.71, 2.69, 1e-5
    z = np.linspace(-10 * deviation, 14 * deviation, 3001)[:, None]
    gaussian = (
        np.exp(-np.square(z / deviation) / 2) / (np.sqrt(2 * np.pi) * deviation) * (z[1] - z[0])
    )
    orders = np.arange(2, 40)

    def whole(epsilon):
        t = np.linspace(0, epsilon, 13)[1:-1, None]
        rare = -np.expm1(t - epsilon) / (np.exp(t) * -np.expm1(-epsilon))
        chance = np.stack([rare, 1 - rare], axis=-1) * gaussian
        ratio = np.exp(np.stack([t, t - epsilon], axis=-1) + (2 * z - 1) / (2 * deviation**2))
        mixed = 1 - p + p * ratio
        # Both directions
        powers = [mixed ** np.stack([a, 1 - a])[:, None, None, None] for a in orders.astype(float)]
        worst = [np.sum(chance * power, axis=(2, 3)).max() for power in powers]
        bounds = 200 * np.log(worst) / (orders - 1)
        # Canonne, Kamath and Steinke
        bounds += (np.log(1 / delta) - np.log(orders)) / (orders - 1) + np.log1p(-1 / orders)
        return bounds.min()

    draw, noise = (
        dpjax.Guarantee(epsilon, epsilon, "add_remove"),
        dpjax.Guarantee(neighbors="add_remove", zcdp=1 / (2 * deviation**2)),
    )
    found = (200 * dpjax.accounting.poisson_subsample(draw + noise, probability=p)).epsilon_at(
        delta
    )
    assert whole(epsilon) - 1e-6 < found < whole(epsilon) * 1.002
    assert f"\n{stated}\n" in dpjax.accounting.__doc__
    assert f" {without} " in dpjax.accounting.__doc__
    assert found == pytest.approx(stated, abs=0.005)
    assert whole(1e-6) == pytest.approx(without, abs=0.005)
    # On the same batch, adding up what each would cost on a batch of its own promises too little.
    apart = sum(
        200 * dpjax.accounting.poisson_subsample(each, probability=p) for each in (draw, noise)
    )
    assert apart.epsilon_at(delta) < whole(epsilon) - 1e-3
