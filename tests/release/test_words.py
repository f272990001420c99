"""ChaCha20 against the vectors of RFC 8439, on the device and on the host."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from dpjax.release.words import chacha20, chacha20_on_host, further_word, words_of

KEY = np.frombuffer(bytes(range(32)), "<u4").astype(np.uint32)


def test_the_block_of_section_2_3_2():
    nonce = np.frombuffer(bytes.fromhex("000000090000004a00000000"), "<u4").astype(np.uint32)
    expected = bytes.fromhex(
        "10f1e7e4d13b5915500fdd1fa32071c4c7d1f4c733c068030422aa9ac3d46c4e"
        "d2826446079faa0914c2d705d98b02a2b5129cd1de164eb9cbd083e8a2503c4e"
    )
    for found in (chacha20(KEY, nonce, jnp.uint32(1)), chacha20_on_host(KEY, nonce, np.uint32(1))):
        assert np.asarray(found).astype("<u4").tobytes() == expected


def test_the_keystream_of_appendix_a_1():
    zero = np.zeros(8, np.uint32), np.zeros(3, np.uint32)
    blocks = np.asarray(chacha20(*zero, jnp.arange(2, dtype=jnp.uint32))).astype("<u4")
    assert blocks[:, 0].tobytes().hex().startswith("76b8e0ada0f13d90405d6ae55386bd28bdd219b8a08ded1aa836efcc8b770dc7")
    assert blocks[:, 1].tobytes().hex().startswith("9f07e7be5551387a98ba977c732d080dcb0f29a048e3656912c6533e32ee7aed")


@pytest.mark.slow
def test_device_and_host_agree_under_jit_and_not():
    counter = np.array([[0, 1, 2**31], [2**32 - 1, 7, 5]], np.uint32)
    nonce = np.array([3, 2**32 - 1, 8], np.uint32)
    host = chacha20_on_host(KEY, nonce, counter)
    np.testing.assert_array_equal(chacha20(KEY, nonce, counter), host)
    with jax.disable_jit():
        np.testing.assert_array_equal(chacha20(jnp.asarray(KEY), jnp.asarray(nonce), jnp.asarray(counter[0, :1])), host[:, 0, :1])
    many = np.arange(2**32 - 5000, 2**32 + 4000).astype(np.uint32)  # more than one chunk, over the end of the counter
    np.testing.assert_array_equal(chacha20(KEY, nonce, many), chacha20_on_host(KEY, nonce, many))


def test_few_words_and_many_are_the_same():
    entropy, lanes = np.arange(8, dtype=np.uint32), np.arange(3000, dtype=np.uint32)
    many = words_of(entropy, lanes, 27)
    few = words_of(entropy, lanes[:2000], 27)
    assert isinstance(few, np.ndarray)
    assert isinstance(many, jax.Array)
    np.testing.assert_array_equal(few, many[:, :2000])


@pytest.mark.parametrize("lanes", [10, pytest.param(50, marks=pytest.mark.slow)])
def test_no_word_is_read_twice(lanes):
    """Neither by two lanes, nor by two chunks, nor by what a doubtful lane reads on."""
    entropy = np.arange(8, dtype=np.uint32)
    first, second = (np.asarray(words_of(entropy, np.arange(a, a + lanes, dtype=np.uint32), 27)) for a in (0, lanes))
    further = [further_word(entropy, np.uint32(lane), role, i) for lane in range(lanes) for role in range(26) for i in range(2)]
    read = [*first.ravel().tolist(), *second.ravel().tolist(), *further]
    assert len(set(read)) >= len(read) - 2 == 106 * lanes - 2  # two of so many uniform words are equal with a probability of 0.3 %
    single = np.asarray(words_of(entropy, np.asarray(7, np.uint32), 27))
    np.testing.assert_array_equal(single, first[:, 7])
    assert words_of(entropy, np.uint32(7), 27).tolist() == single.tolist()
