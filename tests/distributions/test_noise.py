"""Symmetric noise in float32, far out; its laws are in ``test_quadrature.py``."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpjax import laplace
from dpjax.distributions import (
    Cauchy,
    Clamped,
    DiscreteLaplace,
    Gaussian,
    LaplaceLogNormal,
    noise,
)

ZERO, ONE = jnp.float32(0), jnp.float32(1)


def test_words_reach_both_tails(monkeypatch):
    """Words of all zeros and of all ones are the quantiles 2^-65 and 1 - 2^-65."""
    ends = jnp.uint32([[0, 0], [2**32 - 1, 2**32 - 1]])
    monkeypatch.setattr(noise, "words", lambda key, shape: ends)
    tail, sign = noise.tail_and_sign(jax.random.key(0), (2,), jnp.float32)
    assert tail.tolist() == [2.0**-65] * 2
    assert sign.tolist() == [-1, 1]
    nats = 65 * np.log(2)
    # Far out the density is that of a power, over twice the integral of 1 / (1 + z^2.5).
    steep = (3 * 0.4 * np.pi / np.sin(0.4 * np.pi) * 2.0**-65) ** (-2 / 3)
    for law, wanted, rtol in (
        (Cauchy(ZERO, ONE), 2.0**65 / np.pi, 1e-6),
        (Cauchy(ZERO, ONE, gamma=2.5), steep, 1e-6),
        (Gaussian(ZERO, ONE), 9.155293772686072, 1e-6),
        (DiscreteLaplace(ZERO, ONE, jnp.float32(0.01)), 100 * (nats - np.log(2)), 1e-3),
        (LaplaceLogNormal(ZERO, ONE, jnp.float32(0.0)), nats - np.log(2), 1e-6),
    ):
        # Not by ``sample``, whose programs may be there already.
        drawn = jax.jit(law._sample, static_argnums=1)(jax.random.key(0), (2,))
        np.testing.assert_allclose(drawn, [-wanted, wanted], rtol=rtol)


def test_a_word_in_the_middle_is_near_the_median(monkeypatch):
    """Of the two words of a variate the first one counts; the tail is at most 1/2."""
    middle = jnp.uint32([[2**31 - 1, 2**32 - 1], [2**31, 0]])
    monkeypatch.setattr(noise, "words", lambda key, shape: middle)
    tail, sign = noise.tail_and_sign(jax.random.key(0), (2,), jnp.float32)
    assert tail.tolist() == [0.5, 0.5]
    assert sign.tolist() == [-1, 1]


@pytest.mark.slow
def test_clamped_means_keep_their_digits_between_distant_bounds():
    narrow = laplace(jnp.float32(0.37), 100.0, sensitivity=1.0)
    heavy = Cauchy(jnp.float32(0.37), jnp.float32(1e-3), 4.0)
    far = laplace(-20.0, 1.0, sensitivity=1.0)

    @jax.jit
    def known(width):
        means = [Clamped(law, -width, width).mean() for law in (narrow, heavy)]
        half = Clamped(far, jnp.zeros_like(width), width)
        return jnp.stack([*means, half.mean(), half.mean_abs_error(0.0)], axis=-1)

    wanted = [0.37, 0.37, np.exp(-20) / 2, np.exp(-20) / 2]
    found = known(jnp.float32([1e2, 1e3, 1e7]))
    np.testing.assert_allclose(found, np.tile(wanted, (3, 1)), rtol=1e-5)
    np.testing.assert_allclose(found[:, 0], 0.37, rtol=1e-6)


def test_far_quantiles_stay_on_the_curve():
    """Where the density underflows in float32."""
    p = np.float32([1e-3, 1e-19, 1e-21, 1e-30])
    known = jax.jit(lambda law: (law.quantile(p), law.cdf(law.quantile(p))))
    np.testing.assert_allclose(known(Cauchy(ZERO, ONE))[0], -1 / (np.pi * p), rtol=1e-4)
    for law in (
        Cauchy(ZERO, ONE, gamma=1.9),
        Cauchy(ZERO, ONE, gamma=1.3),
        LaplaceLogNormal(ZERO, ONE, jnp.float32(2.0)),
    ):
        found, shares = (np.asarray(part, np.float64) for part in known(law))
        assert not np.isnan(found).any()
        assert (found[1:] <= found[:-1]).all()
        inside = found > -8e37  # beyond it, float32 has no 1/z
        assert inside[0]
        np.testing.assert_allclose(shares[inside], p[inside], rtol=2e-2)


def test_logarithms_and_long_tails_keep_their_digits():
    """Where a cdf is rounded to 1, where a mass underflows, and far from the median."""
    far = np.float32([3.0, 19.0, 20.0, 22.0, 30.0, 40.0])
    line, piece = (
        laplace(ZERO, rate, sensitivity=1.0, **ends)
        for rate, ends in ((1.0, {}), (2.0, {"lower": -45.0, "upper": 45.0}))
    )
    known = jax.jit(lambda y: (line.log_cdf(y), line.cdf(y), piece.survival(y), piece.cdf(-y)))
    log_cdf, cdf, *tails = known(far)
    exact = np.exp(-far.astype(np.float64)) / 2
    np.testing.assert_allclose(log_cdf, np.log1p(-exact), rtol=2e-5)
    assert np.all(np.log(np.asarray(cdf[2:])) == 0)  # the control
    for tail in tails:
        np.testing.assert_allclose(tail, (2 * exact - np.exp(-45.0)) / 2, rtol=2e-5)
