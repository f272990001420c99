"""Random words are the same bits on every device, and so are uniform variates, made of them by
exact steps and one rounding.
"""

from functools import partial

import jax
import numpy as np
import pytest

from dpjax import random


@jax.jit
def words(key):
    rows = random.row_keys(key, (3, 5), first=np.uint32(2**32 - 20))
    folded = jax.random.fold_in(key, 2**32 - 1)
    return *map(jax.random.key_data, (rows, folded)), *random.words(key, (40,))


@pytest.mark.parametrize("seed", [0, 2**31 - 1])
def test_words_are_the_same_bits(seed, under_test, on_cpu):
    key, other = jax.random.key(seed), jax.random.key(seed + 1)
    found, expected, another = under_test(words, key), on_cpu(words, key), on_cpu(words, other)
    for one, same, different in zip(found, expected, another, strict=True):
        np.testing.assert_array_equal(one, same)
        assert np.mean(one == different) < 0.1  # two words of 32 bits are hardly ever equal


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_uniform_variates_are_the_same_bits(dtype, under_test, on_cpu, x64):
    """Products by powers of two are exact, so that a product and a sum in one rounding are the same
    as in two.
    """
    uniforms = jax.jit(partial(random.uniform, shape=(10_000,), dtype=dtype))
    found, expected = (on(uniforms, jax.random.key(0)) for on in (under_test, on_cpu))
    for one, same in zip(found, expected, strict=True):
        assert one.dtype == dtype
        np.testing.assert_array_equal(one, same)
        assert (one[1:] != same[:-1]).any()  # the control: another place has another number
