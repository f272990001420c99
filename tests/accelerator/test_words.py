"""Random words are the same bits on every device, and so are uniform variates, made of them by
exact steps and one rounding.
"""

from functools import partial

import jax
import numpy as np
import pytest

from dpjax import random

words = jax.jit(partial(random.words, shape=(3, 5, 41)))


@pytest.mark.parametrize("seed", [0, 2**31 - 1])
def test_words_are_the_same_bits(seed, under_test, on_cpu):
    key, other = jax.random.key(seed), jax.random.key(seed + 1)
    found, expected, another = under_test(words, key), on_cpu(words, key), on_cpu(words, other)
    np.testing.assert_array_equal(found, expected)
    assert np.mean(found == another) < 0.1  # two words of 32 bits are hardly ever equal


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_uniform_variates_are_the_same_bits(dtype, under_test, on_cpu, x64):
    """Products by powers of two are exact, so that a product and a sum in one rounding are the same
    as in two.
    """
    uniforms = jax.jit(partial(random.uniforms, shape=(10_000,), dtype=dtype))
    found, expected = (on(uniforms, jax.random.key(0)) for on in (under_test, on_cpu))
    assert found.dtype == dtype
    np.testing.assert_array_equal(found, expected)
    assert (found[1:] != expected[:-1]).any()  # the control: another place has another number
