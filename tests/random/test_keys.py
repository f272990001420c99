"""Keys: which are refused, and their words."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpjax import DiscreteLaplace
from dpjax.random import check_key, words


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
    draw = DiscreteLaplace(jnp.float32(0), jnp.float32(1), jnp.float32(1)).sample
    for call in (check_key, draw):
        with pytest.raises(error, match=match):
            call(key)


def test_threefry_that_is_not_partitionable_is_refused():
    """Its words depend on how many are drawn."""
    jax.config.update("jax_threefry_partitionable", False)
    try:
        with pytest.raises(ValueError, match="partitionable"):
            check_key(jax.random.key(0))
    finally:
        jax.config.update("jax_threefry_partitionable", True)


def test_words_do_not_depend_on_further_rows_and_are_all_different():
    key, run = jax.random.key(12345), jax.jit(words, static_argnums=1)
    found = np.asarray(run(key, (4, 3, 101)))
    assert found.dtype == np.uint32
    np.testing.assert_array_equal(found, run(key, (9, 3, 101))[:4])
    assert len(np.unique(found)) == found.size
    assert not np.isin(found, run(jax.random.key(12346), (4, 3, 101))).any()
    # Every bit is as often 0 as 1, within 6 standard deviations
    bits = np.unpackbits(found.view(np.uint8)).reshape(-1, 32)
    assert (np.abs(bits.mean(axis=0) - 0.5) < 3 / np.sqrt(found.size)).all()
