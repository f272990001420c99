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
def test_both_ends_are_precise_and_never_zero_and_so_is_an_exponential(dtype, x64):
    @jax.jit
    def known(words):
        pair = uniform_from_words(words, dtype)
        return *pair, exponential_from_uniform(pair)

    found = known(ALL_WORDS)
    assert {part.dtype for part in found} == {np.dtype(dtype)}
    unit = float(np.finfo(dtype).eps)
    with localcontext() as context:
        context.prec = 60
        for (high, low), *parts in zip(ALL_PAIRS.tolist(), *map(np.float64, found), strict=True):
            value, complement, drawn = map(float, parts)
            exact = Fraction(2 * (high * 2**32 + low) + 1, 2**65)
            assert 0 < min(value, complement) <= max(value, complement) <= 1
            assert abs(Fraction(value) - exact) <= 2 * Fraction(unit) * exact
            assert abs(Fraction(complement) - (1 - exact)) <= 2 * Fraction(unit) * (1 - exact)
            nats = -(Decimal(exact.numerator) / Decimal(exact.denominator)).ln()
            assert abs(Decimal(drawn) / nats - 1) < 6 * Decimal(unit)


def test_tails_reach_45_nats_in_float32():
    ends = jnp.uint32([0, 2**32 - 1])
    pair = uniform_from_words(Words(ends, ends), jnp.float32)
    found = exponential_from_uniform(pair)[0], gumbel_from_uniform(pair)[1]
    np.testing.assert_allclose(found, 65 * np.log(2), rtol=1e-6)


@pytest.mark.parametrize("dtype", ["float32", pytest.param("float64", marks=pytest.mark.slow)])
def test_draws_follow_their_distributions(dtype, x64):
    laws = {
        uniform: lambda y, rate: y**rate,
        exponential: lambda y, rate: -np.expm1(-rate * y),
        gumbel: lambda y, rate: np.exp(-rate * np.exp(-y)),
    }
    for draw, cdf in laws.items():
        drawn = jax.jit(lambda key, draw=draw: draw(key, (200_000,), dtype))(jax.random.key(7))
        drawn = drawn.value if draw is uniform else drawn
        assert_follows(drawn, lambda y, cdf=cdf: cdf(y, 1.0))
        assert_rejected(drawn, lambda y, cdf=cdf: cdf(y, 1.1))


def test_other_dtypes_are_refused():
    """Half precision has no 2^-65."""
    key = jax.random.key(0)
    for dtype in (jnp.bfloat16, jnp.int32):
        for draw in (uniform, exponential, gumbel):
            with pytest.raises(TypeError, match="float32 or float64"):
                draw(key, (4,), dtype)
    assert gumbel(key, (4,), float).dtype == jnp.float32
