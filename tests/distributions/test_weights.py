"""Heights against exact arithmetic, far beyond the range of a float32 exponential."""

from decimal import MAX_EMAX, MIN_EMIN, Decimal, localcontext

import jax.numpy as jnp
import numpy as np
import pytest

from dpjax.distributions.weights import Base, Heights


@pytest.mark.parametrize("dtype", ["float32", pytest.param("float64", marks=pytest.mark.slow)])
@pytest.mark.parametrize("rate", [0.05, 0.5, 3.7, 150.0])
def test_heights_are_exact_to_a_few_units_at_any_cost(dtype, rate, x64):
    costs = np.array(
        [0, 1, 2.5, 31, 87.5, 1001, 50_000, 123_456, -1, -2.5, -8, -1001, -123_456], dtype
    )
    assert rate * costs.max() > 2**12 or rate < 0.1
    rate = np.dtype(dtype).type(rate)
    heights = Heights.of(jnp.asarray(costs), jnp.zeros(len(costs), dtype), jnp.asarray(rate)[None])
    with localcontext() as context:
        context.prec, context.Emin, context.Emax = 80, MIN_EMIN, MAX_EMAX
        for cost, mantissa, exponent in zip(
            costs, np.asarray(heights.mantissa), np.asarray(heights.exponent), strict=True
        ):
            # log2(e) is rounded once, in the rate: the same for all costs, as if epsilon were off
            # by one part in 2^24 or 2^53.
            scale = np.dtype(dtype).type(1.4426950408889634)
            exact = Decimal(2) ** -(Decimal(float(rate * scale)) * Decimal(float(cost)))
            got = Decimal(float(mantissa)) * Decimal(2) ** -int(exponent)
            assert abs(got / exact - 1) < 8 * Decimal(float(np.finfo(dtype).eps))


@pytest.mark.parametrize("dtype", ["float32", pytest.param("float64", marks=pytest.mark.slow)])
@pytest.mark.parametrize("rate", [0.3, 150.0, 5e8, 3e38])
def test_weights_count_from_the_lowest_cost_at_any_cost_and_any_rate(dtype, rate, x64):
    """Exponents are kept modulo 2^32: the products of costs and rates here go up to 10^45."""
    for lowest in (1.0, 1001.0, 123_456.5, 2.0**24 - 8):
        costs = np.array(
            [lowest, lowest + 0.5, lowest + 1, lowest + 7, 2.0**24 + 2.0**10, 2.0**31], dtype
        )
        rates = np.array([rate], dtype)
        heights = Heights.of(jnp.asarray(costs), jnp.zeros(len(costs), dtype), jnp.asarray(rates))
        base = heights.base(jnp.ones(len(costs), dtype))
        weights = np.asarray(heights.weight(jnp.ones(len(costs), dtype), base), np.float64)
        weights = weights * np.exp(np.asarray(base.log_unit, np.float64))
        # log2(e) is rounded once, as if epsilon were off by that much: up to 700 nats times one
        # unit.
        exact = np.exp(-float(rates[0]) * (costs.astype(np.float64) - float(costs[0])))
        tiny = float(np.finfo(dtype).tiny)
        np.testing.assert_allclose(
            weights,
            np.where(exact < 4 * tiny, 0, exact),
            rtol=800 * np.finfo(dtype).eps,
            atol=4 * tiny,
        )
        control = Heights.of(
            jnp.asarray(costs), jnp.zeros(len(costs), dtype), jnp.asarray(rates * 1.001)
        )
        assert rate > 1 or not np.allclose(
            control.weight(jnp.ones(len(costs), dtype), base), weights, rtol=1e-4, atol=0
        )


@pytest.mark.slow
def test_weights_vanish_far_below_the_base():
    heights = Heights.of(jnp.array([0.0, 1000.0, 1001.0, 1500.0]), jnp.zeros(4), jnp.array([1.0]))
    widths = jnp.array([0.0, 1.0, 1.0, 1.0])
    base = heights.base(widths)
    assert float(base.cost[0]) == 1000
    weights = heights.weight(widths, base)
    assert float(weights[0]) == 0
    assert float(weights[3]) == 0  # 500 nats below
    assert float(weights[2] / weights[1]) == pytest.approx(np.exp(-1.0), rel=1e-6)
    assert 0.5 <= float(weights[1]) <= 4
    # The control: counted from cost 0 nothing is left
    assert (heights.weight(widths, Base.zero((1,), jnp.float32))[1:] == 0).all()
    assert (widths * heights.from_zero() == 0).all()


def test_a_nan_stays_visible():
    for cost, decay, rate in ((np.nan, 0.0, 1.0), (1.0, 0.0, np.nan), (1.0, np.nan, 1.0)):
        heights = Heights.of(jnp.float32([cost]), jnp.float32([decay]), jnp.float32([rate]))
        assert bool(jnp.isnan(heights.weight(jnp.ones(1), Base.zero((1,), jnp.float32)))[0])
        assert bool(jnp.isnan(heights.weight(jnp.ones(1), heights.base(jnp.ones(1))))[0])
        assert bool(jnp.isnan(heights.from_zero()[0]))
