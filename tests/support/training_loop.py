"""A training loop with private clipping norms: 200 steps of logistic regression in one program, as
a user writes it.

DP-SGD clips the gradient of each example. Here the clipping norm of each step is a private median
of the norms in the batch, on a logarithmic scale. The batch is a Poisson subsample, as a mask, so
that shapes are fixed. Notebook 06 has the same with optax.
"""

import jax
import jax.numpy as jnp
import numpy as np

import dpjax

rng = np.random.default_rng(8)
inputs = rng.normal(size=(2000, 10)).astype(np.float32)
labels = (rng.random(2000) < 1 / (1 + np.exp(-inputs @ np.linspace(-1, 1, 10)))).astype(np.float32)
# Public; batch is about how many are taken
probability, batch, epsilon, noise = 0.075, 150, 0.1, 2.0
scale = dpjax.Log(lower=1e-2, upper=1e2)


def loss(weights, x, y):
    return jnp.logaddexp(0.0, x @ weights) - y * (x @ weights)


def step(weights, key):
    key_batch, key_norm, key_noise = jax.random.split(key, 3)
    taken = jax.random.bernoulli(key_batch, probability, labels.shape)
    gradients = jax.vmap(jax.grad(loss), (None, 0, 0))(weights, inputs, labels)
    norms = jnp.linalg.norm(gradients, axis=1)
    profile = dpjax.on_scale(
        dpjax.median, norms, transform=scale, mask=taken, neighbors="add_remove"
    )
    clip = dpjax.Transformed(dpjax.piecewise_laplace(profile, epsilon), scale).sample(key_norm)
    total = jnp.sum(
        jnp.where(taken, clip / jnp.maximum(norms, clip), 0.0)[:, None] * gradients, axis=0
    )
    total = total + noise * clip * jax.random.normal(key_noise, weights.shape)
    return weights - total / batch, (clip, jnp.nanmedian(jnp.where(taken, norms, jnp.nan)))
