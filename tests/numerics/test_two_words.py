"""Two-word arithmetic against Python's integers."""

import jax
import numpy as np

from dpjax.numerics import two_words as two

RNG = np.random.default_rng(0)
ENDS = [0, 1, 2**31, 2**32 - 1, 2**32, 2**32 + 1, 2**63 - 1, 2**63, 2**64 - 2**32, 2**64 - 1]
NUMBERS = ENDS + [
    int(RNG.integers(0, 2**64, dtype=np.uint64)) >> int(RNG.integers(0, 64)) for _ in range(50)
]
PAIRS = [(a, b) for a in NUMBERS for b in NUMBERS]
A, B = ([pair[i] for pair in PAIRS] for i in (0, 1))


def words(numbers):
    return two.Words(
        *(
            np.array([part(n) for n in numbers], np.uint32)
            for part in (lambda n: n >> 32, lambda n: n & (2**32 - 1))
        )
    )


def numbers(pair):
    return [int(high) * 2**32 + int(low) for high, low in zip(*map(np.asarray, pair), strict=True)]


def test_sums_differences_order_and_the_upper_half_of_a_product():
    @jax.jit
    def known(a, b):
        less = two.at_most(a, b)
        halves = two.upper_product(a, b), two.multiply(a.low, b.low)
        return less, (two.add(a, b), two.subtract(a, b), two.select(less, a, b), *halves)

    less, found = known(words(A), words(B))
    assert less.tolist() == [a <= b for a, b in PAIRS]
    for pair, exact in zip(
        found,
        (
            lambda a, b: (a + b) % 2**64,
            lambda a, b: (a - b) % 2**64,
            min,
            lambda a, b: a * b >> 64,
            lambda a, b: (a % 2**32) * (b % 2**32),
        ),
        strict=True,
    ):
        assert numbers(pair) == [exact(a, b) for a, b in PAIRS]


def test_floats_both_ways(x64):
    back = jax.jit(two.from_float)
    for dtype in (np.float32, np.float64):
        floats = jax.jit(lambda pair, dtype=dtype: two.to_float(pair, dtype))(words(NUMBERS))
        assert floats.dtype == dtype
        wanted = np.array(NUMBERS, np.float64)
        np.testing.assert_allclose(np.float64(floats), wanted, rtol=2 * np.finfo(dtype).eps)
        below = np.array([n for n in NUMBERS if n < 2**63], np.uint64).astype(dtype)
        below = np.concatenate([below, np.array([0.25, 0.99, 1.5, 7.75], dtype)])
        assert numbers(back(below)) == [int(x) for x in below]
