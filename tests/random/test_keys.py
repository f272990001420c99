"""Keys: which are refused, one for each row, and words of their streams."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpjax.random import check_key, gumbel, row_keys, words
from dpjax.random.keys import fold_in_range, row_words


@pytest.mark.parametrize(
    ("key", "error", "match"),
    [
        (0, TypeError, "typed key"),
        (np.array([0, 1], np.uint32), TypeError, "typed key"),
        (jax.random.PRNGKey(0), TypeError, "typed key"),
        (jax.random.key(0, impl="rbg"), ValueError, "threefry2x32"),
        (jax.random.split(jax.random.key(0)), ValueError, "vmap"),
    ],
)
def test_keys_that_are_not_one_typed_threefry_key_are_refused(key, error, match):
    """Others repeat their words under vmap."""
    for call in (check_key, gumbel):
        with pytest.raises(error, match=match):
            call(key)


def test_threefry_that_is_not_partitionable_is_refused():
    """Its words depend on how many are drawn."""
    jax.config.update("jax_threefry_partitionable", False)
    try:
        with pytest.raises(ValueError, match="partitionable"):
            words(jax.random.key(0), (3,))
    finally:
        jax.config.update("jax_threefry_partitionable", True)


def test_row_keys_are_nested_folds_of_which_others_do_not_depend():
    """Neither on further rows, nor on the device that holds a part of them; keys of the first axes
    are taken as they are.
    """

    @jax.jit
    def known(key):
        keys, fold = row_keys(key, (4, 5)), jax.random.fold_in
        found = [keys, row_keys(key, (7, 9))[:4, :5], keys[2, 3], fold(fold(key, 2), 3)]
        found += [row_keys(key, ()), key, keys[1:], row_keys(key, (3, 5), first=1)]
        found += [row_keys(keys[:, 0], (4, 2, 3))[3, 1, 2], fold(fold(keys[3, 0], 1), 2)]
        return [jax.random.key_data(each) for each in [*found, row_keys(keys, (4, 5)), keys]]

    found = list(map(np.asarray, known(jax.random.key(3))))
    for one, same in zip(found[::2], found[1::2], strict=True):
        np.testing.assert_array_equal(one, same)
    assert len(np.unique(found[0].reshape(20, 2), axis=0)) == 20


def test_words_are_those_of_jax_s_own_threefry_whatever_their_number():
    key, run = jax.random.key(12345), jax.jit(words, static_argnums=1)
    ours = np.stack(run(key, (1000,)), axis=-1)
    assert ours.dtype == np.uint32
    np.testing.assert_array_equal(ours, jax.random.key_data(jax.random.split(key, 1000)))
    assert not np.any(ours == np.stack(run(jax.random.key(12346), (1000,)), axis=-1))
    np.testing.assert_array_equal(np.stack(run(key, (2, 5)), axis=-1), ours[:10].reshape(2, 5, 2))
    with pytest.raises(ValueError, match="fewer than 2\\^32"):
        words(key, (2**16, 2**16))


def test_streams_of_a_key_are_different_and_the_first_is_the_one_of_fold_in():
    @jax.jit
    def known(key):
        rows = row_words(key, ())
        streams = [jnp.stack(fold_in_range(rows, 9, stream=number)) for number in range(3)]
        own = jax.random.key_data(jax.vmap(lambda i: jax.random.fold_in(key, i))(jnp.arange(9)))
        return streams, jnp.stack(fold_in_range(rows, 4, first=5, stream=2)), own

    streams, later, own = known(jax.random.key(2))
    np.testing.assert_array_equal(streams[0].T, own)
    assert len(np.unique(np.stack(streams))) == 3 * 2 * 9
    np.testing.assert_array_equal(later, streams[2][:, 5:])
