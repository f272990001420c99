"""The sums over blocks of slots: both ways against their definition, and their derivatives where
two terms are equal.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpjax.several_quantiles import chain

J, RATE = 19, 0.5
WAYS = {"in turns": chain._block_sums, "by doubling": chain._block_sums_by_doubling}
FOUND = {
    "different": np.random.default_rng(0).normal(size=J),
    # Each step of one slot takes what was summed to the same size
    "equal where they meet": np.arange(J) * RATE,
    "equal from above": -np.arange(J) * RATE,
}


def defined(found, window):
    """The three sums by their definition, in float64."""
    i, j = np.arange(J), np.arange(J)[:, None]
    same, below = i // window == j // window, i < j
    weights = (
        np.where(below, np.exp(-RATE * (j - 1 - i)), 0.0),
        np.where(below & same, np.exp(RATE * (j - 1 - i)), 0.0),
        np.where(~below & same, np.exp(-RATE * (i - j)), 0.0),
    )
    return [weight @ np.exp(found) for weight in weights], weights


def summed(way, found, window):
    lanes = jnp.full((1, 1), window, jnp.int32)
    return [
        jnp.exp(part[:, 0, 0])
        for part in WAYS[way](jnp.full((1, 1), RATE), found[:, None, None], lanes)
    ]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("window", [1, 4, 5, J, 2 * J])
def test_sums_are_those_of_the_definition(way, window, x64):
    for found in FOUND.values():
        for one, expected in zip(
            summed(way, jnp.asarray(found), window), defined(found, window)[0], strict=True
        ):
            np.testing.assert_allclose(one, expected, rtol=1e-12)
    # The control: other blocks
    assert np.max(np.abs(summed(way, jnp.asarray(found), 3)[2] - defined(found, 4)[0][2])) > 0.1


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", FOUND)
def test_derivatives_are_those_of_the_definition(way, name, x64):
    found, window = FOUND[name], 4
    for one, weights in zip(range(3), defined(found, window)[1], strict=True):
        slopes = jax.jacobian(lambda found, one=one: summed(way, found, window)[one])(
            jnp.asarray(found)
        )
        np.testing.assert_allclose(slopes, weights * np.exp(found), rtol=1e-10, atol=1e-12)


def test_a_tie_is_shared():
    assert jax.grad(chain.add, (0, 1))(1.0, 1.0) == (0.5, 0.5)
