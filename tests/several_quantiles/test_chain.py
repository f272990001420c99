"""The sums over blocks of slots: both ways against their definition, and their derivatives where
two terms are equal.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpjax.several_quantiles import chain

J, RATE = 19, 0.5
WAYS = {"in turns": chain.block_sums, "by doubling": chain.block_sums_by_doubling}
WINDOWS = (1, 3, 4, 5, J, 2 * J)
FOUND = {
    "different": np.random.default_rng(0).normal(size=J),
    # Each step of one slot takes what was summed to the same size
    "equal where they meet": np.arange(J) * RATE,
    "equal from above": -np.arange(J) * RATE,
}


def weights_of(window):
    """What the three sums weigh the exponentials with, by their definition, in float64."""
    i, j = np.arange(J), np.arange(J)[:, None]
    same, below = i // window == j // window, i < j
    return np.array(
        [
            np.where(below, np.exp(-RATE * (j - 1 - i)), 0.0),
            np.where(below & same, np.exp(RATE * (j - 1 - i)), 0.0),
            np.where(~below & same, np.exp(-RATE * (i - j)), 0.0),
        ]
    )


@functools.cache
def computed(way):
    """The three sums and their derivatives, for all that is added up and all windows."""

    def sums(found, window):
        parts = WAYS[way](
            jnp.full((1, 1), RATE), found[:, None, None], jnp.full((1, 1), window, jnp.int32)
        )
        return jnp.exp(jnp.stack([part[:, 0, 0] for part in parts]))

    def both(found, window):
        return sums(found, window), jax.jacobian(sums)(found, window)

    every = jax.jit(jax.vmap(jax.vmap(both, (None, 0)), (0, None)))
    return every(jnp.array(list(FOUND.values())), jnp.array(WINDOWS, jnp.int32))


@pytest.mark.parametrize("name", FOUND)
@pytest.mark.parametrize("way", WAYS)
def test_sums_and_their_derivatives_are_those_of_the_definition(way, name, x64):
    found, number = FOUND[name], list(FOUND).index(name)
    values, slopes = (np.asarray(some)[number] for some in computed(way))
    for some, slope, window in zip(values, slopes, WINDOWS, strict=True):
        weights = weights_of(window)
        np.testing.assert_allclose(some, weights @ np.exp(found), rtol=1e-12)
        np.testing.assert_allclose(slope, weights * np.exp(found), rtol=1e-10, atol=1e-12)
    # The control: other blocks
    three = values[WINDOWS.index(3)]
    assert np.max(np.abs(three - weights_of(4) @ np.exp(found))) > 0.1


def test_a_tie_is_shared():
    assert jax.grad(chain.add, (0, 1))(1.0, 1.0) == (0.5, 0.5)
