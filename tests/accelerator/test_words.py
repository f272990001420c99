"""Random words are the same bits on every device, and so are uniform variates, made of them by
exact steps and one rounding.
"""

import jax
import numpy as np
import pytest

from dpjax.random.keys import fold_in_range, row_words
from dpjax.random.uniforms import uniform_from_words


@jax.jit
def words(key):
    rows = row_words(key, (3, 5), first=7)
    streams = [
        fold_in_range(rows, 40, np.uint32(2**32 - 20), np.uint32(stream))
        for stream in (1, 2**31, 2**32 - 1)
    ]
    return (
        rows,
        streams,
        fold_in_range(rows, 33, stream=3),
        jax.random.key_data(jax.random.fold_in(key, 9)),
    )


@pytest.mark.parametrize("seed", [0, 2**31 - 1])
def test_words_are_the_same_bits(seed, under_test, on_cpu):
    found, expected = (
        jax.tree.leaves(on(words, jax.random.key(seed))) for on in (under_test, on_cpu)
    )
    other = jax.tree.leaves(on_cpu(words, jax.random.key(seed + 1)))
    assert len(found) == 2 + 3 * 2 + 2 + 1
    for one, same, another in zip(found, expected, other, strict=True):
        np.testing.assert_array_equal(one, same)
        assert np.mean(one == another) < 0.05  # two words of 32 bits are hardly ever equal


def uniforms(dtype):
    return jax.jit(lambda key: uniform_from_words(fold_in_range(row_words(key, ()), 10_000), dtype))


def test_uniform_variates_are_the_same_bits(under_test, on_cpu, x64):
    """Products by powers of two are exact, so that a product and a sum in one rounding are the same
    as in two.
    """
    for dtype in (np.float32, np.float64):
        found, expected = (on(uniforms(dtype), jax.random.key(0)) for on in (under_test, on_cpu))
        for one, same in zip(found, expected, strict=True):
            assert one.dtype == dtype
            np.testing.assert_array_equal(one, same)
            assert (one[1:] != same[:-1]).any()  # the control: another place has another number
