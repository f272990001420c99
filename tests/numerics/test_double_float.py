"""Pairs of floats against rational numbers."""

from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpjax.numerics.double_float import (
    DoubleFloat,
    exact_product,
    larger,
    prefix_sums,
    single,
    sum_of,
)

pytestmark = pytest.mark.optimized


def rational(pair):
    return [
        Fraction(float(high)) + Fraction(float(low))
        for high, low in zip(np.ravel(pair.high), np.ravel(pair.low), strict=True)
    ]


def numbers(dtype, count=4000):
    """Many sizes and signs, and last digits of every kind."""
    random = np.random.default_rng(0)
    a, b = (
        random.normal(size=count) * 2.0 ** random.integers(-20, 20, size=count) for _ in range(2)
    )
    digits = np.finfo(dtype).nmant
    a[: count // 4] = 2.0**digits + random.integers(2**digits, size=count // 4)
    b[: count // 8] = 2.0 ** (digits + 1) - random.integers(1, 64, size=count // 8)
    return a.astype(dtype), b.astype(dtype)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_products_lose_nothing(x64, dtype):
    a, b = numbers(dtype)
    found = jax.jit(exact_product)(a, b)
    assert found.high.dtype == dtype
    assert rational(found) == [
        Fraction(float(u)) * Fraction(float(v)) for u, v in zip(a, b, strict=True)
    ]
    np.testing.assert_array_equal(found.high, a * b)
    assert np.count_nonzero(found.low) > 3000


def test_sums_have_twice_the_digits():
    a, b = (part.reshape(8, 125) for part in numbers(np.float32, 1000))

    @jax.jit
    def known(a, b):
        terms = single(a).plus(single(b * jnp.float32(2.0**-20)))
        nothing = sum_of(single(jnp.zeros((3, 0)))).value
        return terms, sum_of(terms), prefix_sums(terms).at(slice(0, 126)), nothing

    terms, whole, running, nothing = known(a, b)
    exact = np.array(rational(terms), object).reshape(8, 125)
    sums = np.cumsum(np.hstack([np.full((8, 1), Fraction(0)), exact]), axis=1)
    units = np.abs(exact).sum(axis=1).astype(float) * 2.0**-44
    assert (np.abs(np.array(rational(whole), object) - sums[:, -1]) <= units).all()
    found = np.array(rational(running), object).reshape(8, -1)
    assert (np.abs(found - sums[:, : found.shape[1]]) <= units[:, None]).all()
    assert found.shape[1] >= 125
    assert (nothing == 0).all()


def test_the_larger_of_two_and_the_size_of_one():
    high, low = np.float32([2.0, 2.0, -3.0]), np.float32([-1e-9, 1e-9, 1e-9])
    run = jax.jit(lambda a: (larger(a, single(a.high)).low, *abs(a)))
    found = run(DoubleFloat(high, low))
    np.testing.assert_array_equal(found, np.float32([[0, 1e-9, 1e-9], [2, 2, 3], low * [1, 1, -1]]))
