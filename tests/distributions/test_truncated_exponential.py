"""The functions of one piece against 400-digit decimals, from decay 1e-300 to 700."""

from decimal import Decimal, localcontext

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpjax.distributions import truncated_exponential as piece

DECAYS = np.array(
    [
        *(0.0, 1e-100, 1e-20, 1e-9, 1e-7, 1e-5, 9e-4, 1.1e-3, 0.01, 0.25),
        *(0.9, 0.999, 1.0, 1.001, 2.0, 7.0, 30.0, 88.0, 200.0, 700.0),
    ]
)
FRACTIONS = np.array([0.0, 1e-20, 1e-6, 0.1, 0.4999, 0.5001, 0.9, 0.999999, 1.0])
MOMENTS = (piece.mass_fraction, piece.mean_fraction, piece.variance_fraction)


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


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_mass_mean_variance_and_height_at_the_far_end(dtype, x64):
    """The height within s + 4 units, down to the smallest normal number; its derivative, s times
    which is that of its logarithm, within 20.
    """
    info = np.finfo(dtype)
    unit, tiny = Decimal(float(info.eps)), Decimal(float(info.tiny))
    decays = DECAYS[(DECAYS == 0) | ((1e-30 if dtype == "float32" else 0) < DECAYS)].astype(dtype)
    ends = np.array([1e9, info.max, np.nan], dtype)

    @jax.jit
    def known(s, ends):
        heights = jax.vmap(jax.value_and_grad(piece.far_height))
        return [of(s) for of in MOMENTS], heights(s), heights(ends)

    moments, heights, at_ends = known(decays, ends)
    columns = [np.float64(column) for column in (*moments, *heights)]
    for s, mass, mean, variance, found, derivative in zip(
        map(Decimal, np.float64(decays)), *columns, strict=True
    ):
        phi, mu, var = exact(s)
        assert abs(Decimal(mass) / phi - 1) <= 4 * unit, s
        assert abs(Decimal(mean) / mu - 1) <= 8 * unit, s
        assert abs(Decimal(variance) / var - 1) <= 32 * unit, s
        own = s / (s.exp() - 1) if s else Decimal(1)
        bound = unit * own * (s + 4) + tiny * (s + 1)
        assert abs(Decimal(found) - own) <= bound, s
        assert abs(Decimal(derivative) - own * (mu - 1)) <= 5 * bound, s
    np.testing.assert_array_equal(np.array(at_ends)[:, :2], np.zeros((2, 2)))
    assert np.isnan(at_ends[0][2])


def test_cdf_and_quantile_invert_each_other(x64):
    @jax.jit
    def known(s, p):
        r = piece.quantile_fraction(p, 1 - p, s)
        return r, piece.cdf_fraction(r, s)

    places, reached = map(np.asarray, known(DECAYS[:, None], FRACTIONS))
    for (row, column), r in np.ndenumerate(places):
        s, p, r = (Decimal(float(x)) for x in (DECAYS[row], FRACTIONS[column], r))
        assert 0 <= r <= 1
        if s == 0:
            assert r == p
            continue
        e = 1 - (-s).exp()
        back, density = (1 - (-s * r).exp()) / e, s * (-s * r).exp() / e
        # The inverse is as good as its own argument: an error of one unit in r moves p by its
        # density.
        assert abs(back - p) <= Decimal("4e-16") * (1 + density * r), (s, p)
        assert abs(Decimal(float(reached[row, column])) - back) < Decimal("1e-15")


def test_small_probabilities_keep_their_relative_precision():
    tiny, one = jnp.float32(2.0**-60), jnp.float32(1)
    near = piece.quantile_fraction(tiny, one, jnp.float32(3))
    far = piece.quantile_fraction(one, tiny, jnp.float32(60))
    assert float(near) == pytest.approx(2.0**-60 * -np.expm1(-3.0) / 3, rel=1e-6)
    assert float(far) == pytest.approx(60 * np.log(2) / 60, rel=1e-6)
