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
    a, b = numbers(np.float32, 1000)
    terms = DoubleFloat(jnp.asarray(a).reshape(8, 125), jnp.asarray(b * 2.0**-20).reshape(8, 125))
    terms = single(terms.high).plus(single(terms.low))
    exact = np.array(rational(terms), object).reshape(8, 125)
    whole, running = jax.jit(sum_of)(terms), jax.jit(prefix_sums)(terms)
    for row, parts in enumerate(exact):
        unit = float(sum(abs(part) for part in parts)) * 2.0**-44
        sums = [sum(parts[:k]) for k in range(126)]
        assert abs(rational(whole)[row] - sums[-1]) <= unit
        assert all(
            abs(u - v) <= unit
            for u, v in zip(rational(running.at(slice(0, 126)))[row * 126 :], sums, strict=False)
        )
    assert (sum_of(single(jnp.zeros((3, 0)))).value == 0).all()


def test_the_larger_of_two_and_the_size_of_one():
    a, b = (
        DoubleFloat(jnp.array([2.0, 2.0, -3.0]), jnp.array([-1e-9, 1e-9, 1e-9])),
        single(jnp.array([2.0, 2.0, -3.0])),
    )
    np.testing.assert_array_equal(larger(a, b).low, np.float32([0, 1e-9, 1e-9]))
    np.testing.assert_array_equal(abs(a).high, [2, 2, 3])
    np.testing.assert_array_equal(abs(a).low, np.float32([-1e-9, 1e-9, -1e-9]))
