"""Heights against exact arithmetic, far beyond the range of a float32 exponential."""

from decimal import MIN_EMIN, Decimal, localcontext

import jax.numpy as jnp
import numpy as np
import pytest

from dpjax.distributions.weights import Heights


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("rate", [0.05, 0.5, 3.7, 150.0])
def test_heights_are_exact_to_a_few_units_at_any_cost(dtype, rate, x64):
    costs = np.array([0, 1, 2.5, 31, 87.5, 1001, 50_000, 123_456], dtype)
    assert rate * costs.max() > 2**12 or rate < 0.1
    rate = np.dtype(dtype).type(rate)
    heights = Heights.of(jnp.asarray(costs), jnp.zeros(len(costs), dtype), jnp.asarray(rate))
    with localcontext() as context:
        context.prec, context.Emin = 80, MIN_EMIN
        for cost, mantissa, exponent in zip(costs, np.asarray(heights.mantissa), np.asarray(heights.exponent), strict=True):
            # log2(e) is rounded once, in the rate: the same for all costs, as if epsilon were off by one part in 2^24 or 2^53.
            scale = np.dtype(dtype).type(1.4426950408889634)
            exact = Decimal(2) ** -(Decimal(float(rate * scale)) * Decimal(float(cost)))
            got = Decimal(float(mantissa)) * Decimal(2) ** -int(exponent)
            assert abs(got / exact - 1) < 8 * Decimal(float(np.finfo(dtype).eps))


@pytest.mark.parametrize("rate", [0.3, 25.0, 150.0])
def test_heights_fall_with_the_cost_up_to_the_largest_exponent_and_stay_there(rate):
    """Neighbouring costs are told apart up to 3.7e8 nats; what is more costs as much as that, never less."""
    costs = np.unique(np.concatenate([np.arange(2**24 - 2000, 2**24), np.logspace(0, 30, 3000)])).astype(np.float32)
    costs = np.unique(costs)
    heights = Heights.of(jnp.asarray(costs), jnp.zeros(len(costs)), jnp.float32(rate))
    bits = np.asarray(heights.exponent) - np.log2(np.asarray(heights.mantissa, np.float64))
    exact = np.minimum(costs.astype(np.float64) * float(np.float32(rate) * np.float32(1.4426950408889634)), 2.0**29)
    np.testing.assert_allclose(bits, exact, rtol=2.0**-23, atol=1e-5)
    assert (np.diff(bits) >= 0).all()
    assert (heights.weight(jnp.ones(len(costs)), jnp.int32(-(2**29)))[-10:] == 1).all()  # all at the cap, and no overflow


def test_weights_count_from_the_base_and_vanish_far_below_it():
    heights = Heights.of(jnp.array([0.0, 1000.0, 1001.0, 1500.0]), jnp.zeros(4), jnp.float32(1.0))
    widths = jnp.array([0.0, 1.0, 1.0, 1.0])
    base = jnp.max(heights.log2_weight(widths))
    weights = heights.weight(widths, base)
    assert float(weights[0]) == 0
    assert float(weights[3]) == 0  # 500 nats below
    assert float(weights[2] / weights[1]) == pytest.approx(np.exp(-1.0), rel=1e-6)
    assert 0.5 <= float(weights[1]) <= 4
    assert (heights.weight(widths, jnp.int32(0))[1:] == 0).all()  # the control: counted from cost 0 nothing is left


def test_a_nan_stays_visible():
    for cost, decay, rate in ((np.nan, 0.0, 1.0), (1.0, 0.0, np.nan), (1.0, np.nan, 1.0)):
        heights = Heights.of(jnp.float32(cost), jnp.float32(decay), jnp.float32(rate))
        assert bool(jnp.isnan(heights.weight(jnp.float32(1.0), jnp.int32(0))))
