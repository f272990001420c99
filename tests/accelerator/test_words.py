"""Random words are the same bits on every device, and so are uniform variates, made of them by
exact steps and one rounding.
"""

from functools import partial

import jax
import numpy as np
import pytest

from dpjax import random

words = jax.jit(lambda key: random.words(key, (3, 5, 41)))


@pytest.mark.parametrize("seed", [0, 2**31 - 1])
def test_words_are_the_same_bits(seed, under_test, on_cpu):
    key, other = jax.random.key(seed), jax.random.key(seed + 1)
    same = on_cpu(words, key)
    np.testing.assert_array_equal(under_test(words, key), same)
    assert np.mean(same == on_cpu(words, other)) < 0.1  # two words are hardly ever equal


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_uniform_variates_are_the_same_bits(dtype, under_test, on_cpu, x64):
    """Products by powers of two are exact, so that a product and a sum in one rounding are the same
    as in two.
    """
    uniforms = jax.jit(partial(random.uniforms, shape=(10_000,), dtype=dtype))
    one, same = (on(uniforms, jax.random.key(0)) for on in (under_test, on_cpu))
    assert one.dtype == dtype
    np.testing.assert_array_equal(one, same)
    assert (one[1:] != same[:-1]).any()  # the control: another place has another number
