from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpjax.random import uniform, uniforms
from tests.support.statistics import assert_follows, assert_rejected

EDGES = [0, 1, 2, 2**24 - 1, 2**24 + 1, 2**31 - 1, 2**31, 2**31 + 1, 2**32 - 2, 2**32 - 1]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_small_ones_are_precise_and_never_zero(dtype, x64):
    pairs = np.array([(high, low) for high in EDGES for low in EDGES], np.uint32)
    found = jax.jit(lambda high, low: uniform(high, low, dtype))(*jnp.asarray(pairs.T))
    assert found.dtype == np.dtype(dtype)
    unit = Fraction(float(np.finfo(dtype).eps))
    for (high, low), value in zip(pairs.tolist(), map(float, found), strict=True):
        exact = Fraction(2 * (high * 2**32 + low) + 1, 2**65)
        assert 0 < value <= 1
        assert abs(Fraction(value) - exact) <= 2 * unit * exact


def test_noise_of_them_has_full_tails_in_float32():
    least = uniform(jnp.uint32(0), jnp.uint32(0), jnp.float32)
    np.testing.assert_allclose(-jnp.log(least), 65 * np.log(2), rtol=1e-6)
    np.testing.assert_allclose(-jnp.log1p(-least), 2.0**-65, rtol=1e-6)


def test_draws_follow_their_distribution():
    drawn = jax.jit(lambda key: uniforms(key, (200_000,), jnp.float32))(jax.random.key(7))
    assert_follows(drawn, lambda y: y)
    assert_rejected(drawn, lambda y: y**1.1)
    # Of those below 2^-10, which have further bits
    small = np.asarray(drawn)[np.asarray(drawn) < 2.0**-10] * 2.0**10
    assert_follows(small, lambda y: y)
