"""Retrying: the exact distribution against all sequences of attempts, and draws against it."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from numpy.testing import assert_allclose, assert_array_equal

from dpjax import Finite, never_fail
from dpjax.mechanisms import never_fail_distribution
from tests.support.statistics import assert_counts_follow, assert_counts_rejected

MASSES = np.array([0.1, 0.2, 0.3, 0.4])
ONE = Finite(np.arange(1.0, 5.0), -np.log(MASSES), np.ones(()))
ACCEPTANCE = np.array(
    [
        [1, 0, 1, 0],
        [0.5, 0.25, 0, 1],
        [1, 1, 1, 1],
        [0, 0, 0, 0],
        [0, 0, 0, 1e-12],
        [1e-12, 1, 1, 1],
        [7.0, -1.0, np.nan, 0.0],  # as 1, 0, 0, 0
    ]
)


@partial(jax.jit, static_argnames="attempts")
def compiled(one, acceptance, attempts):
    found = never_fail_distribution(one, acceptance, fallback=-1.0, attempts=attempts)
    return found.values, found.log_probabilities()


def log_probabilities(*given):
    return np.asarray(compiled(*given)[1])


def sequences(masses, acceptance, attempts):
    """The distribution of the first accepted candidate, by walking through all sequences of
    attempts; last the fallback.
    """
    found = np.zeros(len(masses) + 1)
    alive = [1.0]
    for _ in range(attempts):
        for weight in alive:
            found[:-1] += weight * masses * acceptance
        alive = [weight * rest for weight in alive for rest in masses * (1 - acceptance)]
    found[-1] = np.sum(alive)
    return found


def test_the_distribution_is_that_of_all_sequences(x64):
    values, logs = compiled(ONE, ACCEPTANCE, 4)
    clipped = np.clip(np.nan_to_num(ACCEPTANCE), 0, 1)
    expected = [sequences(MASSES, row, 4) for row in clipped]
    assert_allclose(np.exp(logs), expected, rtol=1e-12, atol=1e-300)
    assert_array_equal(values.ravel(), [1, 2, 3, 4, -1])


def test_many_attempts_and_rare_successes(x64):
    """1 - (1 - p)^m without cancellation, and the distribution given success in the limit."""
    found = np.exp(log_probabilities(ONE, np.array([[0, 0, 0, 1e-12], [1, 0, 0.5, 0]]), 1000))
    # 1000 times 4e-13, but for its square
    assert_allclose(found[0, 3], 4e-10, rtol=1e-9)
    assert_allclose(found[1], [0.4, 0, 0.6, 0, 0.75**1000], rtol=1e-12)


def test_draws_follow_the_distribution_and_what_comes_with_them_stays_together():
    """Candidates 0 and 2 succeed; the outcome comes with a second array that tells the same."""

    def draw(key):
        index = jax.random.choice(key, 4, (20_000,), p=jnp.asarray(MASSES, jnp.float32))
        return index, jnp.stack([index, index + 1], axis=-1).astype(jnp.float32)

    @jax.jit
    def retry(key):
        return never_fail(
            key,
            draw,
            succeeded=lambda pair: (pair[0] == 0) | (pair[0] == 2),
            fallback=(4, jnp.array([4.0, 5.0])),
            attempts=3,
        )

    index, both = retry(jax.random.key(0))
    assert_array_equal(both, np.stack([index, index + 1], axis=-1))
    counts = np.bincount(index, minlength=5)
    assert_counts_follow(counts, sequences(MASSES, ACCEPTANCE[0], 3))
    # One attempt more is another distribution
    assert_counts_rejected(counts, sequences(MASSES, ACCEPTANCE[0], 4))
