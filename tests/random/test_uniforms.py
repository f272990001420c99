from decimal import Decimal, localcontext
from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpjax.random import (
    Words,
    exponential,
    exponential_from_uniform,
    gumbel,
    gumbel_from_uniform,
    uniform,
    uniform_from_words,
)
from tests.support.statistics import assert_follows, assert_rejected

EDGES = [0, 1, 2, 2**24 - 1, 2**24 + 1, 2**31 - 1, 2**31, 2**31 + 1, 2**32 - 2, 2**32 - 1]
ALL_PAIRS = np.array([(high, low) for high in EDGES for low in EDGES], np.uint32)
ALL_WORDS = Words(jnp.asarray(ALL_PAIRS[:, 0]), jnp.asarray(ALL_PAIRS[:, 1]))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_both_ends_of_a_uniform_are_precise_and_never_zero(dtype, x64):
    pair = uniform_from_words(ALL_WORDS, dtype)
    assert pair.value.dtype == dtype
    unit = float(np.finfo(dtype).eps)
    for (high, low), value, complement in zip(
        ALL_PAIRS.tolist(), *map(np.asarray, pair), strict=True
    ):
        exact = Fraction(2 * (high * 2**32 + low) + 1, 2**65)
        assert 0 < value <= 1
        assert 0 < complement <= 1
        assert abs(Fraction(float(value)) - exact) <= 2 * Fraction(unit) * exact
        assert abs(Fraction(float(complement)) - (1 - exact)) <= 2 * Fraction(unit) * (1 - exact)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_exponential_is_relatively_precise_at_both_ends(dtype, x64):
    drawn = exponential_from_uniform(uniform_from_words(ALL_WORDS, dtype))
    with localcontext() as context:
        context.prec = 60
        assert_relatively_precise(drawn, dtype)


def assert_relatively_precise(drawn, dtype):
    for (high, low), value in zip(ALL_PAIRS.tolist(), np.asarray(drawn), strict=True):
        exact = -(Decimal(2 * (high * 2**32 + low) + 1) / Decimal(2**65)).ln()
        assert abs(Decimal(float(value)) / exact - 1) < 6 * Decimal(float(np.finfo(dtype).eps))


def test_tails_reach_45_nats_in_float32():
    lowest, highest = (Words(end, end) for end in (jnp.uint32(0), jnp.uint32(2**32 - 1)))
    assert float(
        exponential_from_uniform(uniform_from_words(lowest, jnp.float32))
    ) == pytest.approx(65 * np.log(2), rel=1e-6)
    assert float(gumbel_from_uniform(uniform_from_words(highest, jnp.float32))) == pytest.approx(
        65 * np.log(2), rel=1e-6
    )


@pytest.mark.parametrize("dtype", ["float32", pytest.param("float64", marks=pytest.mark.slow)])
def test_draws_follow_their_distributions(dtype, x64):
    shape, key = (200_000,), jax.random.key(7)
    assert_follows(uniform(key, shape, dtype).value, lambda y: y)
    assert_follows(exponential(key, shape, dtype), lambda y: -np.expm1(-y))
    assert_follows(gumbel(key, shape, dtype), lambda y: np.exp(-np.exp(-y)))
    assert_rejected(exponential(key, shape, dtype), lambda y: -np.expm1(-1.1 * y))
    assert_rejected(gumbel(key, shape, dtype), lambda y: np.exp(-1.1 * np.exp(-y)))


SELDOM = (jnp.float16, jnp.uint32, jnp.bool_, jnp.complex64)


@pytest.mark.parametrize(
    "dtype",
    [jnp.bfloat16, jnp.int32, *(pytest.param(dtype, marks=pytest.mark.slow) for dtype in SELDOM)],
)
def test_other_dtypes_are_refused(dtype):
    key = jax.random.key(0)
    for draw in (uniform, exponential, gumbel):
        with pytest.raises(TypeError, match="float32 or float64"):
            draw(key, (4,), dtype)
    with pytest.raises(TypeError, match="float32 or float64"):
        uniform_from_words(ALL_WORDS, dtype)
    assert gumbel(key, (4,), float).dtype == jnp.float32
