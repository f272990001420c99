"""Cauchy and Laplace-log-normal noise, and clamped, against quadrature of their densities; draws
against their exact cdf.
"""

import itertools
from functools import partial
from math import gamma as gamma_function

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpjax import laplace
from dpjax.distributions.cauchy import Cauchy
from dpjax.distributions.clamped import Clamped
from dpjax.distributions.laplace_log_normal import LaplaceLogNormal
from dpjax.random import UniformPair
from tests.support.statistics import assert_follows, assert_rejected

NODES, WEIGHTS = np.polynomial.legendre.leggauss(16)
POINTS = np.array([0.0, 1e-9, 0.003, 0.3, 0.999, 1.0, 1.001, 3.0, 40.0, 1e4, 1e8])
SIGMAS = np.array([0.0, 0.05, 0.3, 1.0, 2.0])


def integrate(function, low, high, panels=600):
    """Composite Gauss-Legendre, ``low`` and ``high`` arrays of one shape."""
    cuts = np.linspace(low, high, panels + 1, axis=-1)
    half = np.diff(cuts, axis=-1)[..., None] / 2
    at = cuts[..., :-1, None] + half * (NODES + 1)
    return np.sum(half * WEIGHTS * function(at), axis=(-2, -1))


def cauchy_oracle(gamma, z, moment=0):
    """The integrals of t^moment * density from 0 to z and (moment 0) from z on, in the logarithm of
    t.
    """
    total = 2 * gamma_function(1 / gamma) * gamma_function(1 - 1 / gamma) / gamma

    def weight(w):
        return np.exp((moment + 1) * w - np.logaddexp(0, gamma * w))

    with np.errstate(divide="ignore"):
        w = np.maximum(np.log(z), -60.0)
    below = np.where(z > 0, integrate(weight, np.full_like(w, -60.0), w), 0.0)
    far = np.maximum(w, 0) + 45 / (gamma - 1)
    return below / total, None if moment else integrate(weight, w, far, 2000) / total


def lln_oracle(z, sigma, power=0):
    """E[e^(power sigma Y) exp(-z e^(-sigma Y))] by a fine trapezoid rule without any centring."""
    y = np.arange(-20, 45, 1 / 256)
    return (
        np.sum(np.exp(-y * y / 2 + power * sigma * y - z[..., None] * np.exp(-sigma * y)), axis=-1)
        / 256
        / np.sqrt(2 * np.pi)
    )


@pytest.mark.slow
@pytest.mark.parametrize("gamma", [1.75, 1.2, 2.0, 2.0001, 4.5])
def test_cauchy_agrees_with_quadrature(gamma, x64):
    noise = Cauchy(jnp.zeros(()), jnp.ones(()), gamma)
    body, tail = cauchy_oracle(gamma, POINTS)
    partial_mean, _ = cauchy_oracle(gamma, POINTS, moment=1)
    levels = np.array([1e-19, 1e-9, 0.01, 0.2, 0.24, 0.26, 0.49, 0.5])

    @jax.jit
    def known(noise, points, levels):
        """Functions of points, those of quantiles and moments."""
        quantiles, (low, high) = noise.quantile(levels), noise.interval(0.6)
        at = noise.survival(points), noise.cdf(-points), noise.cdf(points), noise.prob(points)
        error = noise.clamped_mean_abs_error(0.0, -points, points)
        ends = jnp.stack([noise.cdf(low), noise.survival(high)])
        moments = noise.mean(), noise.variance(), noise.mean_abs_error(jnp.array([0.0, 0.3]))
        return (
            (*at, error),
            (quantiles, noise.cdf(quantiles), noise.quantile(1 - levels), ends),
            moments,
        )

    at, (quantiles, at_quantiles, of_complements, ends), moments = jax.tree.map(
        np.asarray, known(noise, POINTS, levels)
    )
    survival, cdf_below, cdf, prob, clamped_error = at
    mean, variance, (error, error_aside) = moments
    np.testing.assert_allclose(survival, tail, rtol=1e-12)
    np.testing.assert_allclose(cdf_below, tail, rtol=1e-12)
    np.testing.assert_allclose(cdf, 0.5 + body, rtol=1e-12)
    total = 2 * gamma_function(1 / gamma) * gamma_function(1 - 1 / gamma) / gamma
    np.testing.assert_allclose(prob, 1 / (1 + POINTS**gamma) / total, rtol=1e-12)
    np.testing.assert_allclose(clamped_error, 2 * (partial_mean + POINTS * tail), rtol=1e-12)
    np.testing.assert_allclose(at_quantiles, levels, rtol=1e-12)
    np.testing.assert_allclose(of_complements[2:], -quantiles[2:], atol=1e-13)
    np.testing.assert_allclose(ends, 0.2, rtol=1e-12)
    if gamma > 3:
        second = (
            2
            * integrate(
                lambda w: np.exp(3 * w - np.logaddexp(0, gamma * w)),
                np.array(-40.0),
                np.array(30.0),
                2000,
            )
            / total
        )
        first = (
            2
            * integrate(
                lambda w: np.exp(2 * w - np.logaddexp(0, gamma * w)),
                np.array(-40.0),
                np.array(20.0),
                2000,
            )
            / total
        )
        np.testing.assert_allclose([variance, error], [second, first], rtol=1e-11)
        assert mean == 0
    else:
        assert np.isinf(variance)
    if gamma <= 2:
        assert np.isnan(mean)
        assert np.isinf(error_aside)


def test_laplace_log_normal_agrees_with_quadrature(x64):
    noise = LaplaceLogNormal(jnp.zeros(()), jnp.ones(()), jnp.asarray(SIGMAS))
    z, sigma = np.broadcast_arrays(POINTS[:9, None], SIGMAS)
    z, sigma = z.copy(), sigma[..., None]
    z[z > 100 * np.exp(8 * SIGMAS)] = 1.0  # where even a trapezoid rule underflows
    close, levels = {"rtol": 3e-12}, np.array([1e-15, 1e-4, 0.3, 0.5])[:, None]

    @jax.jit
    def known(noise, z, levels):
        at = {
            name: getattr(noise, name)(z)
            for name in ("survival", "prob", "log_prob", "mean_abs_error")
        }
        clamped = noise.clamped_mean_abs_error(0.0, -z, z)
        return at | {
            "clamped": clamped,
            "variance": noise.variance(),
            "of quantiles": noise.cdf(noise.quantile(levels)),
        }

    found = jax.tree.map(np.asarray, known(noise, z, levels))
    np.testing.assert_allclose(found["survival"], lln_oracle(z, sigma) / 2, **close)
    np.testing.assert_allclose(found["prob"], lln_oracle(z, sigma, -1) / 2, **close)
    errors = lln_oracle(np.zeros_like(z), sigma, 1) - lln_oracle(z, sigma, 1)
    np.testing.assert_allclose(found["clamped"], errors, rtol=1e-11, atol=1e-14)
    np.testing.assert_allclose(found["mean_abs_error"], z + lln_oracle(z, sigma, 1), **close)
    np.testing.assert_allclose(found["variance"], 2 * np.exp(2 * SIGMAS**2), **close)
    np.testing.assert_allclose(found["of quantiles"], np.broadcast_to(levels, (4, 5)), rtol=1e-11)
    plain = laplace(0.0, 1.0, sensitivity=1.0)
    np.testing.assert_allclose(found["log_prob"][:, 0], plain.log_prob(z[:, 0]), rtol=1e-13)


def test_laplace_log_normal_far_out_and_at_large_sigma(x64):
    """Against 60 standard deviations at a step of 1/2048."""
    sigma, z = np.array([0.2, 0.5, 4.0]), np.array([50.0, 1e5, 1e12])
    y = np.arange(-30, 60, 1 / 2048)
    terms = -y * y / 2 - z[:, None] * np.exp(-sigma[:, None] * y)
    top = terms.max(-1)
    wanted = (
        top
        + np.log(np.sum(np.exp(terms - top[:, None]), -1) / 2048 / np.sqrt(2 * np.pi))
        - np.log(2)
    )
    noise = LaplaceLogNormal(jnp.zeros(()), jnp.ones(()), jnp.asarray(sigma))
    np.testing.assert_allclose(jnp.log(noise.survival(z)), wanted, atol=1e-12)


def clamped_error(noise, center, lower, upper):
    """E|clip(Y) - center|, from the integral of the tails, whatever the distribution."""

    # The center is one, or outside
    cuts = np.unique(np.clip([lower, center, float(noise.quantile(0.5)), upper], lower, upper))
    tails = [noise.survival if a >= center else noise.cdf for a in cuts[:-1]]
    inside = sum(
        float(integrate(tail, np.array(a), np.array(b), 200))
        for tail, (a, b) in zip(tails, itertools.pairwise(cuts), strict=True)
    )
    return inside + max(lower - center, 0) + max(center - upper, 0)


NOISES = {
    "laplace": lambda loc, scale: laplace(loc, 1 / scale, sensitivity=1.0),
    "cauchy": lambda loc, scale: Cauchy(loc, scale),
    "heavy": lambda loc, scale: Cauchy(loc, scale, 1.3),
    "laplace-log-normal": lambda loc, scale: LaplaceLogNormal(
        loc, scale, jnp.asarray(0.4, loc.dtype)
    ),
}


def some(*quick):
    return pytest.mark.parametrize(
        "name", [n if n in quick else pytest.param(n, marks=pytest.mark.slow) for n in NOISES]
    )


@some("cauchy")
def test_clamped_distributions_agree_with_quadrature(name, x64):
    for scale in (0.01, 3.0):
        noise = NOISES[name](jnp.asarray(0.5), jnp.asarray(scale))
        clamped = Clamped.of(noise, lower=-1.0, upper=2.0)
        for center in (0.5, 0.7, -1.0, 2.0, 5.0, -4.0):
            np.testing.assert_allclose(
                clamped.mean_abs_error(center), clamped_error(noise, center, -1.0, 2.0), rtol=1e-6
            )
        np.testing.assert_allclose(
            clamped.mean(), clamped_error(noise, -1.0, -1.0, 2.0) - 1, rtol=1e-6
        )
    assert float(clamped.cdf(2.0)) == float(clamped.survival(-1.001)) == 1
    assert float(clamped.cdf(-1.001)) == float(clamped.survival(2.0)) == 0
    np.testing.assert_allclose(clamped.cdf(-1.0), noise.cdf(-1.0))
    assert [float(q) for q in clamped.interval(0.9999)] == [-1.0, 2.0]


def test_clamped_error_of_cauchy_noise_is_the_published_closed_form(x64):
    scale, low, high, loc = 0.7, -2.0, 5.0, 1.0

    def one_side(c):
        return c / 2 - (c * np.arctan(c / scale) - scale / 2 * np.log(1 + c * c / scale**2)) / np.pi

    error = Cauchy(jnp.asarray(loc), jnp.asarray(scale)).clamped_mean_abs_error(loc, low, high)
    np.testing.assert_allclose(error, one_side(high - loc) + one_side(loc - low), rtol=1e-12)


DRAWS = 40_000


@some("cauchy")
def test_draws_follow_the_exact_cdf(name):
    locs, scales = (1.0, -3.0), (0.1, 20.0)
    draws = np.asarray(
        NOISES[name](jnp.asarray(locs), jnp.asarray(scales)).sample(jax.random.key(3), (DRAWS,))
    )
    assert draws.shape == (DRAWS, 2)
    standard = NOISES[name](jnp.asarray(0.0), jnp.asarray(1.0))
    for row, (loc, scale) in enumerate(zip(locs, scales, strict=True)):
        z = (draws[:, row] - loc) / scale
        assert_follows(z, standard.cdf)
        assert_rejected(z * 1.3, standard.cdf)
        assert_rejected(np.abs(z), standard.cdf)
    ranks = np.argsort(np.argsort(draws, axis=0), axis=0)
    assert abs(np.corrcoef(ranks.T)[0, 1]) < 5 / np.sqrt(DRAWS)


def test_injected_words_reach_both_tails():
    """A pair of words of all zeros and of all ones: the quantiles 2^-65 and 1 - 2^-65."""
    tail = jnp.float32(2.0**-65)
    pairs = [UniformPair(jnp.stack([tail, jnp.float32(1)]), jnp.stack([jnp.float32(1), tail]))] * 2
    cauchy = Cauchy(jnp.zeros(()), jnp.ones(()))._standard(pairs.__getitem__)
    np.testing.assert_allclose(cauchy, np.array([-1, 1]) * 2.0**65 / np.pi, rtol=1e-6)
    other = LaplaceLogNormal(jnp.zeros(()), jnp.ones(()), jnp.asarray(0.3))._standard(
        pairs.__getitem__
    )
    np.testing.assert_allclose(
        np.asarray(other) * [-np.exp(0.3 * 9.0), np.exp(-0.3 * 9.0)], 64 * np.log(2), rtol=0.05
    )


@pytest.mark.optimized
@some("cauchy")
def test_draws_are_bitwise_unchanged_by_further_rows_and_draws(name):
    @partial(jax.jit, static_argnames=("shape",))
    def draw(loc, scale, shape=()):
        return NOISES[name](loc, scale).sample(jax.random.key(1), shape)

    loc, scale = jnp.linspace(-1, 1, 37), jnp.linspace(0.1, 3, 37)
    whole, few = draw(loc, scale), draw(loc[:5], scale[:5])
    np.testing.assert_array_equal(whole[:5], few)
    many = draw(loc, scale, (40,))
    np.testing.assert_array_equal(many[:, :5], draw(loc[:5], scale[:5], (40,)))
    np.testing.assert_array_equal(many[:33], draw(loc, scale, (33,)))
    part = jax.jit(
        lambda loc, scale: NOISES[name](loc, scale)._sample(jax.random.key(1), (40,), 5)
    )(loc[5:9], scale[5:9])
    np.testing.assert_array_equal(many[:, 5:9], part)
    assert not np.array_equal(many[:, :4], part)


@pytest.mark.slow
def test_clamped_means_keep_their_digits_between_distant_bounds():
    noise = laplace(jnp.asarray(0.37), 100.0, sensitivity=1.0)
    for width in (1.0, 1e3, 1e7, 1e12):
        np.testing.assert_allclose(
            Clamped.of(noise, lower=-width, upper=width).mean(), 0.37, rtol=1e-6
        )
        cauchy = Cauchy(jnp.asarray(0.37), jnp.asarray(1e-3), 4.0)
        np.testing.assert_allclose(
            Clamped.of(cauchy, lower=-width, upper=width).mean(), 0.37, rtol=1e-5
        )
    far = Clamped.of(laplace(-20.0, 1.0, sensitivity=1.0), lower=0, upper=100)
    np.testing.assert_allclose(far.mean_abs_error(0.0), np.exp(-20) / 2, rtol=1e-5)
    np.testing.assert_allclose(far.mean(), np.exp(-20) / 2, rtol=1e-5)


def test_bad_rows_are_nan_and_alone():
    noise = Cauchy(jnp.zeros(3), jnp.array([1.0, jnp.nan, 1.0]))
    np.testing.assert_array_equal(np.isnan(noise.sample(jax.random.key(0))), [False, True, False])
    np.testing.assert_array_equal(np.isnan(noise.cdf(1.0)), [False, True, False])
    np.testing.assert_array_equal(
        np.isnan(noise.quantile(jnp.array([-0.1, 0.5, 1.1]))), [True, True, True]
    )
    ends = Cauchy(jnp.zeros(4), jnp.ones(())).interval(jnp.array([-0.1, 0.0, 1.0, 1.1]))
    np.testing.assert_array_equal(ends, [[np.nan, 0, -np.inf, np.nan], [np.nan, 0, np.inf, np.nan]])
    with pytest.raises(ValueError, match="gamma must be a static number above 1"):
        Cauchy(jnp.zeros(()), jnp.ones(()), 1.0)
    with pytest.raises(ValueError, match="lower must be below upper"):
        Clamped.of(noise, lower=1, upper=0)


def test_moments_of_a_sigma_with_fewer_axes_than_the_batch():
    scale = np.array([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], np.float32)
    sigma = np.array([0.0, 0.5, 1.0], np.float32)

    @jax.jit
    def moments(noise):
        centers = jnp.float32(1.0), jnp.ones((4, 1, 1))
        return (
            noise.mean(),
            noise.variance(),
            noise.stddev(),
            [noise.mean_squared_error(center) for center in centers],
        )

    for loc in (
        np.zeros((), np.float32),
        np.zeros((2, 3), np.float32),
        np.zeros((1, 3), np.float32),
    ):
        noise, whole = (
            LaplaceLogNormal(loc, scale, sigma),
            LaplaceLogNormal(loc, scale, np.broadcast_to(sigma, (2, 3))),
        )
        jax.tree.map(np.testing.assert_array_equal, moments(noise), moments(whole))
    few = jax.eval_shape(
        moments, LaplaceLogNormal(np.zeros((), np.float32), np.ones((), np.float32), sigma[:, None])
    )
    assert few[0].shape == few[1].shape == (3, 1)


@some()
def test_gradients_agree_with_differences(name, x64):
    """With respect to loc and scale, of everything that is smooth in them."""

    def summary(parameters):
        noise = NOISES[name](parameters[0], parameters[1])
        clamped = Clamped(noise, jnp.asarray(-1.0), jnp.asarray(2.0))
        return (
            noise.cdf(0.9)
            + noise.survival(-3.0)
            + noise.quantile(0.9)
            + noise.log_prob(40.0)
            + clamped.mean_abs_error(0.5)
        )

    at, steps = np.array([0.3, 0.8]), 1e-5 * np.eye(2)
    at_the_center = [0.5, 0.8]  # of the mean absolute error, which has a kink there
    points = np.concatenate([at + steps, at - steps, [at, at_the_center]])
    values, gradients = jax.jit(jax.vmap(jax.value_and_grad(summary)))(points)
    np.testing.assert_allclose(
        gradients[4], (values[:2] - values[2:4]) / 2e-5, rtol=1e-7, atol=1e-9
    )
    assert np.isfinite(gradients[5]).all()


@some()
def test_float32_stays_near_float64(name, x64):
    points = np.array([-1e6, -30.0, 0.2, 0.5, 1.0, 70.0, 1e6])
    single, double = (
        NOISES[name](jnp.asarray(0.5, t), jnp.asarray(0.3, t)) for t in ("float32", "float64")
    )
    methods = ("cdf", "survival", "log_prob")
    known = jax.jit(lambda noise, points: [getattr(noise, method)(points) for method in methods])
    for method, found, wanted in zip(
        methods, known(single, points.astype(np.float32)), known(double, points), strict=True
    ):
        assert found.dtype == jnp.float32
        # Exp and log of arguments up to 100 in a tail of that many nats; below 1e-37 a probability
        # is subnormal.
        np.testing.assert_allclose(
            found, wanted, rtol=1e-4 if method != "log_prob" else 1e-5, atol=1e-37
        )
    for t in (single, double):
        assert np.isfinite(Clamped.of(t, lower=-9, upper=9).mean_abs_error(0.1))


@pytest.mark.parametrize("scale", [1e-25, 1e25])
def test_stddev_where_the_variance_underflows_or_overflows(scale):
    for noise in (
        Cauchy(jnp.zeros(()), jnp.float32(scale), 4.5),
        LaplaceLogNormal(jnp.zeros(()), jnp.float32(scale), jnp.float32(0.4)),
    ):
        np.testing.assert_allclose(
            noise.stddev() / jnp.float32(scale), jnp.sqrt(noise._mean_square()), rtol=1e-6
        )
        assert float(noise.variance()) in (0, np.inf)  # the control: a root of it would be wrong


def test_far_quantiles_stay_on_the_curve():
    """Where the density underflows in float32."""
    p = np.array([1e-3, 1e-19, 1e-21, 1e-30])
    one, zero = jnp.float32(1.0), jnp.float32(0.0)
    np.testing.assert_allclose(Cauchy(zero, one).quantile(p), -1 / (np.pi * p), rtol=1e-4)
    np.testing.assert_allclose(Cauchy(zero, one).interval(1.0)[1], np.inf)
    for noise in (
        Cauchy(zero, one, gamma=1.9),
        Cauchy(zero, one, gamma=1.3),
        LaplaceLogNormal(zero, one, jnp.float32(2.0)),
    ):
        found = np.asarray(noise.quantile(p), np.float64)
        assert not np.isnan(found).any()
        assert (found[1:] <= found[:-1]).all()
        inside = np.isfinite(found)
        assert inside[0]
        np.testing.assert_allclose(np.asarray(noise.cdf(found))[inside], p[inside], rtol=2e-2)
