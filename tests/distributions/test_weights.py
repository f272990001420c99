"""Heights against exact arithmetic, far beyond the range of a float32 exponential."""

from decimal import MAX_EMAX, MIN_EMIN, Decimal, localcontext

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpjax.distributions.weights import Heights


@jax.jit
def heights_of(costs, rates):
    return Heights.of(costs, jnp.zeros_like(costs), rates[:, None])


@jax.jit
def weights_of(costs, rates, widths):
    """Relative to a base of their own."""
    heights = heights_of(costs, rates)
    base = heights.base(widths)
    return heights.weight(widths, base), base


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_heights_are_exact_to_a_few_units_at_any_cost(dtype, x64):
    costs = np.array(
        [0, 1, 2.5, 31, 87.5, 1001, 50_000, 123_456, -1, -2.5, -8, -1001, -123_456], dtype
    )
    rates = np.array([0.05, 0.5, 3.7, 150.0], dtype)
    heights = heights_of(costs, rates)
    # log2(e) is rounded once, in the rate: the same for all costs, as if epsilon were off by one
    # part in 2^24 or 2^53.
    bits = rates * np.dtype(dtype).type(1.4426950408889634)
    with localcontext() as context:
        context.prec, context.Emin, context.Emax = 80, MIN_EMIN, MAX_EMAX
        for (row, place), mantissa in np.ndenumerate(np.asarray(heights.mantissa)):
            exact = Decimal(2) ** -(Decimal(float(bits[row])) * Decimal(float(costs[place])))
            power = Decimal(2) ** -int(np.broadcast_to(heights.exponent, (4, 13))[row, place])
            found = Decimal(float(mantissa)) * power
            assert abs(found / exact - 1) < 8 * Decimal(float(np.finfo(dtype).eps))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_weights_count_from_the_lowest_cost_at_any_cost_and_any_rate(dtype, x64):
    """Exponents are kept modulo 2^32: the products of costs and rates here go up to 10^45."""
    rates, info = np.array([0.3, 150.0, 5e8, 3e38], dtype), np.finfo(dtype)
    for lowest in (1.0, 1001.0, 123_456.5, 2.0**24 - 8):
        steps = np.array([0, 0.5, 1, 7])
        costs = np.append(lowest + steps, [2.0**24 + 2.0**10, 2.0**31]).astype(dtype)
        ones = np.ones(len(costs), dtype)
        weights, base = weights_of(costs, rates, ones)
        weights = np.float64(weights) * np.exp(np.float64(base.log_unit))
        # log2(e) is rounded once, as if epsilon were off by that much: up to 700 nats times one
        # unit.
        exact = np.exp(-rates.astype(np.float64)[:, None] * (np.float64(costs) - costs[0]))
        exact = np.where(exact < 4 * info.tiny, 0, exact)
        close = {"rtol": 800 * info.eps, "atol": 4 * float(info.tiny)}
        np.testing.assert_allclose(weights, exact, **close)
        control, base = weights_of(costs, rates * np.array(1.001, dtype), ones)
        control = np.float64(control) * np.exp(np.float64(base.log_unit))
        assert not np.allclose(control[0], exact[0], rtol=1e-4, atol=0)
