"""The functions of one piece against 60-digit decimals, from decay 1e-300 to 700."""

from decimal import Decimal, localcontext

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpjax.distributions import truncated_exponential as piece

DECAYS = [
    0.0,
    1e-100,
    1e-20,
    1e-9,
    1e-7,
    1e-5,
    9e-4,
    1.1e-3,
    0.01,
    0.25,
    0.9,
    0.999,
    1.0,
    1.001,
    2.0,
    7.0,
    30.0,
    88.0,
    200.0,
    700.0,
]
FRACTIONS = [0.0, 1e-20, 1e-6, 0.1, 0.4999, 0.5001, 0.9, 0.999999, 1.0]


@pytest.fixture(autouse=True)
def many_digits():
    with localcontext() as context:
        context.prec = 400  # 1/s - 1/(e^s - 1) at s = 1e-100 cancels 200 digits
        yield


def exact(s):
    """Phi0, mean and variance of density proportional to exp(-s r) on [0, 1]."""
    s = Decimal(s)
    if s == 0:
        return Decimal(1), Decimal("0.5"), Decimal(1) / 12
    e = (-s).exp()
    return (1 - e) / s, 1 / s - e / (1 - e), 1 / s**2 - e / (1 - e) ** 2


@pytest.mark.parametrize(("dtype", "units"), [("float32", 8), ("float64", 8)])
def test_mass_mean_and_variance(dtype, units, x64):
    s = jnp.array([d for d in DECAYS if dtype == "float64" or d == 0 or d > 1e-30], dtype)
    unit = Decimal(float(np.finfo(dtype).eps))
    mass, mean, variance = (
        piece.log_mass_fraction(s),
        piece.mean_fraction(s),
        piece.variance_fraction(s),
    )
    for i, decay in enumerate(np.asarray(s, np.float64)):
        phi, mu, var = exact(decay)
        assert (
            abs(Decimal(float(mass[i])) - phi.ln()) <= units * unit * max(Decimal(1), -phi.ln()) / 2
        ), decay
        assert abs(Decimal(float(mean[i])) / mu - 1) <= units * unit, decay
        assert abs(Decimal(float(variance[i])) / var - 1) <= units * 4 * unit, decay


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_height_at_the_far_end(dtype, x64):
    """Within s + 4 units, down to the smallest normal number; its derivative, s times which is that
    of its logarithm, within 20.
    """
    info = np.finfo(dtype)
    s = jnp.array([d for d in DECAYS if dtype == "float64" or d == 0 or d > 1e-30], dtype)
    found, slope = piece.far_height(s), jax.vmap(jax.grad(piece.far_height))(s)
    for i, decay in enumerate(np.asarray(s, np.float64)):
        own = Decimal(decay)
        height = own / (own.exp() - 1) if decay else Decimal(1)
        bound = Decimal(float(info.eps)) * height * (own + 4) + Decimal(float(info.tiny)) * (
            own + 1
        )
        assert abs(Decimal(float(found[i])) - height) <= bound, decay
        _, mean, _ = exact(decay)
        assert abs(Decimal(float(slope[i])) - height * (mean - 1)) <= 5 * bound, decay
    ends = jax.vmap(jax.value_and_grad(piece.far_height))(jnp.array([1e9, info.max], dtype))
    np.testing.assert_array_equal(ends, np.zeros((2, 2)))
    assert jnp.isnan(piece.far_height(jnp.array(jnp.nan, dtype)))


def test_cdf_and_quantile_invert_each_other(x64):
    for s in DECAYS:
        for p in FRACTIONS:
            r = float(
                piece.quantile_fraction(
                    jnp.float64(p), jnp.float64(1 - p), piece.Decay.of(jnp.float64(s))
                )
            )
            assert 0 <= r <= 1
            if s == 0:
                assert r == p
                continue
            e = Decimal(1) - (-Decimal(s)).exp()
            back = (1 - (-Decimal(s) * Decimal(r)).exp()) / e
            # The inverse is as good as its own argument: an error of one unit in r moves p by its
            # density.
            slack = Decimal("4e-16") * (
                1 + Decimal(s) * (-Decimal(s) * Decimal(r)).exp() / e * Decimal(r)
            )
            assert abs(back - Decimal(p)) <= slack, (s, p)
            assert abs(
                Decimal(float(piece.cdf_fraction(jnp.float64(r), jnp.float64(s)))) - back
            ) < Decimal("1e-15")


def test_small_probabilities_keep_their_relative_precision():
    tiny = jnp.float32(2.0**-60)
    near = piece.quantile_fraction(tiny, jnp.float32(1), piece.Decay.of(jnp.float32(3)))
    far = piece.quantile_fraction(jnp.float32(1), tiny, piece.Decay.of(jnp.float32(60)))
    assert float(near) == pytest.approx(2.0**-60 * -np.expm1(-3.0) / 3, rel=1e-6)
    assert float(far) == pytest.approx(60 * np.log(2) / 60, rel=1e-6)


@pytest.mark.parametrize(
    "function", [piece.log_mass_fraction, piece.mean_fraction, piece.variance_fraction]
)
def test_gradients_are_finite_and_right_across_the_switch_to_series(function, x64):
    for s in [0.0, 1e-12, 5e-4, 0.9999, 1.0001, 5.0, 300.0]:
        gradient = float(jax.grad(function)(jnp.float64(s)))
        h = 1e-4
        a, b = (float(function(jnp.float64(abs(s + d)))) for d in (h, -h))
        central = (a - b) / (2 * h) if s > h else (a - float(function(jnp.float64(0.0)))) / h
        assert np.isfinite(gradient)
        assert gradient == pytest.approx(central, rel=1e-3, abs=2e-5)
