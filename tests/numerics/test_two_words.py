"""Two-word arithmetic against Python's integers."""

import jax.numpy as jnp
import numpy as np

from dpjax.numerics import two_words as two
from dpjax.numerics.two_words import Words

RNG = np.random.default_rng(0)
ENDS = [0, 1, 2**31, 2**32 - 1, 2**32, 2**32 + 1, 2**63 - 1, 2**63, 2**64 - 2**32, 2**64 - 1]
NUMBERS = ENDS + [
    int(RNG.integers(0, 2**64, dtype=np.uint64)) >> int(RNG.integers(0, 64)) for _ in range(50)
]
PAIRS = [(a, b) for a in NUMBERS for b in NUMBERS]
A, B = ([pair[i] for pair in PAIRS] for i in (0, 1))


def words(numbers):
    return Words(
        *(
            jnp.array([part(n) for n in numbers], jnp.uint32)
            for part in (lambda n: n >> 32, lambda n: n & (2**32 - 1))
        )
    )


def numbers(pair):
    return [int(high) * 2**32 + int(low) for high, low in zip(*map(np.asarray, pair), strict=True)]


def test_sums_differences_and_order():
    assert numbers(two.add(words(A), words(B))) == [(a + b) % 2**64 for a, b in PAIRS]
    assert numbers(two.subtract(words(A), words(B))) == [(a - b) % 2**64 for a, b in PAIRS]
    assert two.at_most(words(A), words(B)).tolist() == [a <= b for a, b in PAIRS]
    assert numbers(two.select(jnp.array([a <= b for a, b in PAIRS]), words(A), words(B))) == [
        min(pair) for pair in PAIRS
    ]


def test_the_upper_half_of_a_product():
    assert numbers(two.upper_product(words(A), words(B))) == [a * b >> 64 for a, b in PAIRS]
    assert numbers(two.multiply(words(A).low, words(B).low)) == [
        (a % 2**32) * (b % 2**32) for a, b in PAIRS
    ]


def test_floats_both_ways(x64):
    for dtype in (np.float32, np.float64):
        floats = np.asarray(two.to_float(words(NUMBERS), dtype))
        assert floats.dtype == dtype
        np.testing.assert_allclose(
            floats.astype(np.float64), np.array(NUMBERS, np.float64), rtol=2 * np.finfo(dtype).eps
        )
        below = np.array([n for n in NUMBERS if n < 2**63], np.uint64).astype(dtype)
        below = np.concatenate([below, np.array([0.25, 0.99, 1.5, 7.75], dtype)])
        assert numbers(two.from_float(jnp.asarray(below))) == [int(x) for x in below]
