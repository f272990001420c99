import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpjax.random import check_key, gumbel, row_keys, words
from dpjax.random.keys import fold_in_range, row_words


@pytest.mark.parametrize(
    ("key", "error", "message"),
    [
        (0, TypeError, "jax.random.key"),
        (np.array([0, 1], np.uint32), TypeError, "typed key.*wrap_key_data"),
        (jnp.array([0, 1], jnp.uint32), TypeError, "typed key.*wrap_key_data"),
    ],
)
def test_untyped_keys_are_refused(key, error, message):
    with pytest.raises(error, match=message):
        check_key(key)


def test_rbg_keys_and_key_batches_are_refused():
    with pytest.raises(ValueError, match="threefry2x32"):
        gumbel(jax.random.key(0, impl="rbg"))
    with pytest.raises(ValueError, match=r"jax\.vmap"):
        gumbel(jax.random.split(jax.random.key(0)))


def test_threefry_that_is_not_partitionable_is_refused():
    jax.config.update("jax_threefry_partitionable", False)
    try:
        with pytest.raises(ValueError, match="partitionable"):
            words(jax.random.key(0), (3,))
    finally:
        jax.config.update("jax_threefry_partitionable", True)


def test_row_keys_are_nested_folds_that_further_rows_leave_alone():
    key = jax.random.key(3)
    keys = row_keys(key, (4, 5))
    expected = jax.random.fold_in(jax.random.fold_in(key, 2), 3)
    assert keys.shape == (4, 5)
    np.testing.assert_array_equal(jax.random.key_data(keys[2, 3]), jax.random.key_data(expected))
    np.testing.assert_array_equal(
        jax.random.key_data(row_keys(key, (7, 9)))[:4, :5], jax.random.key_data(keys)
    )
    assert len(np.unique(np.asarray(jax.random.key_data(keys)).reshape(20, -1), axis=0)) == 20
    np.testing.assert_array_equal(jax.random.key_data(row_keys(key, ())), jax.random.key_data(key))


def test_a_part_of_a_batch_has_the_keys_of_its_rows():
    whole, part = row_keys(jax.random.key(3), (9, 2)), row_keys(jax.random.key(3), (4, 2), first=5)
    np.testing.assert_array_equal(jax.random.key_data(whole)[5:], jax.random.key_data(part))


def test_keys_of_the_first_axes_are_taken_as_they_are():
    keys = row_keys(jax.random.key(3), (4, 5))
    np.testing.assert_array_equal(
        jax.random.key_data(row_keys(keys[:, 0], (4, 2, 3))[3, 1, 2]),
        jax.random.key_data(jax.random.fold_in(jax.random.fold_in(keys[3, 0], 1), 2)),
    )
    np.testing.assert_array_equal(
        jax.random.key_data(row_keys(keys, (4, 5))), jax.random.key_data(keys)
    )


def test_words_are_those_of_jax_s_own_threefry():
    key = jax.random.key(12345)
    ours = words(key, (1000,))
    np.testing.assert_array_equal(
        np.stack(ours, axis=-1), jax.random.key_data(jax.random.split(key, 1000))
    )
    other = words(jax.random.key(12346), (1000,))
    assert not np.any(np.asarray(ours.high) == np.asarray(other.high))


def test_words_of_a_stream_do_not_depend_on_its_length():
    short, long = words(jax.random.key(1), (7,)), words(jax.random.key(1), (1000,))
    np.testing.assert_array_equal(short.low, long.low[:7])
    np.testing.assert_array_equal(
        words(jax.random.key(1), (2, 5)).high, long.high[:10].reshape(2, 5)
    )
    assert short.high.dtype == jnp.uint32
    with pytest.raises(ValueError, match="fewer than 2\\^32"):
        words(jax.random.key(1), (2**16, 2**16))


def test_streams_of_a_key_are_different_and_the_first_is_the_one_of_fold_in():
    key = jax.random.key(2)
    streams = [np.stack(fold_in_range(row_words(key, ()), 9, stream=number)) for number in range(3)]
    np.testing.assert_array_equal(
        streams[0].T,
        jax.random.key_data(jax.vmap(lambda i: jax.random.fold_in(key, i))(jnp.arange(9))),
    )
    assert len(np.unique(np.stack(streams))) == 3 * 2 * 9
    later = fold_in_range(row_words(key, ()), 4, first=5, stream=2)
    np.testing.assert_array_equal(np.stack(later), streams[2][:, 5:])
