"""What all distributions say of themselves: the shape of an event, the ends of the support, and the
logarithm of the cdf.
"""

import inspect

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import special

import dpjax
from dpjax import distributions
from dpjax.distributions import Distribution

X = np.random.default_rng(0).normal(3.0, 2.0, size=(2, 40)).round(2).astype(np.float32)
KNOWN = {"lower": -5.0, "upper": 11.0, "neighbors": "swap"}
EPSILON = np.array([0.5, 2.0], np.float32)


def asked(**more):
    return dpjax.quantiles(X, [0.25, 0.5, 0.75], **KNOWN, **more)


def profile(**more):
    return dpjax.median(X, **KNOWN, **more)


ON_THE_LINE = {
    "PiecewiseExponential": lambda: dpjax.piecewise_laplace(profile(), EPSILON),
    "PiecewiseExponential with tails": lambda: dpjax.laplace(X[:, 0], EPSILON, sensitivity=1.0),
    "Rounded": lambda: dpjax.piecewise_laplace(profile(resolution=0.5), EPSILON),
    "Finite": lambda: dpjax.Finite(
        jnp.array([4.0, 1.0, 2.0, 9.0]), jnp.array([0.0, 1.0, 2.0, np.inf]), jnp.asarray(EPSILON)
    ),
    "Gaussian": lambda: dpjax.gaussian(X[:, 0], 2.0),
    "Cauchy": lambda: dpjax.Cauchy(jnp.asarray(X[:, 0]), jnp.asarray(EPSILON)),
    "LaplaceLogNormal": lambda: dpjax.LaplaceLogNormal(
        jnp.asarray(X[:, 0]), jnp.asarray(EPSILON), jnp.asarray(0.5)
    ),
    "DiscreteLaplace": lambda: dpjax.laplace(dpjax.count(X), EPSILON),
    "SubsampledLaplace": lambda: dpjax.subsampled_laplace(
        np.array([3, 8]), EPSILON, probability=0.3, most=10
    ),
    "Clamped": lambda: dpjax.Clamped.of(dpjax.gaussian(X[:, 0], 2.0), lower=2.5, upper=5.0),
    "Transformed": lambda: dpjax.Transformed(dpjax.gaussian(X[:, 0], 0.5), dpjax.Log()),
    "QuantileMarginals": lambda: dpjax.joint_quantiles(asked(), EPSILON).marginals(),
    "QuantileMarginals on multiples": lambda: dpjax.joint_quantiles(
        asked(resolution=0.5), EPSILON
    ).marginals(),
    "QuantileCdf": lambda: dpjax.private_cdf(jax.random.key(0), asked(), EPSILON),
}
OF_SEVERAL = {
    "Radial": lambda: dpjax.k_norm(X[:, :3], EPSILON, sensitivity=1.0, p=1),
    "SphericalGaussian": lambda: dpjax.spherical_gaussian(X[:, :3], 1.0),
    "JointQuantiles": lambda: dpjax.joint_quantiles(asked(), EPSILON),
    "JointQuantiles on multiples": lambda: dpjax.joint_quantiles(asked(resolution=0.5), EPSILON),
    "NestedQuantiles": lambda: dpjax.nested_quantiles(asked(), EPSILON),
    "RecursiveQuantiles": lambda: dpjax.recursive_quantiles(asked(), EPSILON),
    "IndependentQuantiles": lambda: dpjax.independent_quantiles(asked(), EPSILON),
    "ConfidenceInterval": lambda: dpjax.confidence_interval(
        X, 0.5, 2.0, resolution=0.5, coverage=0.5, ties=1, **KNOWN
    ),
}
UNBOUNDED = {
    *(
        "PiecewiseExponential with tails",
        "Gaussian",
        "Cauchy",
        "LaplaceLogNormal",
        "DiscreteLaplace",
        "SubsampledLaplace",
    ),
    *("Radial", "SphericalGaussian"),
}
ALL = ON_THE_LINE | OF_SEVERAL


def outside(draws, ends):
    """The share of draws that are not between the two ends."""
    low, high = (
        np.asarray(end).reshape(end.shape + (1,) * (draws.ndim - 1 - end.ndim)) for end in ends
    )
    return np.mean((draws < low) | (draws > high))


def test_every_public_distribution_is_here():
    public = {
        name
        for name in dir(dpjax)
        if inspect.isclass(getattr(dpjax, name)) and hasattr(getattr(dpjax, name), "sample")
    }
    here = {name.partition(" ")[0] for name in ALL}
    # A pair of two kinds, and an answer or none
    assert public - here == {"AboveThreshold", "ProposeTestRelease"}
    assert {
        each for each in distributions.__all__ if hasattr(getattr(distributions, each), "sample")
    } - here == {"Distribution"}


@pytest.mark.parametrize("name", ALL)
def test_shapes_and_ends(name):
    distribution = ALL[name]()
    # These are for error bars: draws come from the joint distribution.
    if name.startswith("QuantileMarginals"):
        draws = np.asarray(
            ALL[name.replace("QuantileMarginals", "JointQuantiles")]().sample(
                jax.random.key(1), (500,)
            )
        )
    else:
        draws = np.asarray(distribution.sample(jax.random.key(1), (500,)))
    assert draws.shape == (500, *distribution.batch_shape, *distribution.event_shape)
    assert (distribution.event_shape == ()) == (name in ON_THE_LINE)
    ends = distribution.support
    for end in ends:
        assert end.shape == distribution.batch_shape
        assert end.dtype == distribution.dtype
    assert np.all(np.isinf(ends)) == (name in UNBOUNDED)
    assert outside(draws, ends) == 0
    if name in ON_THE_LINE and name not in UNBOUNDED:
        low, high = ends
        width = np.asarray(high - low)
        np.testing.assert_allclose(distribution.cdf(high), 1.0, rtol=2e-6)
        assert np.all(np.asarray(distribution.cdf(low - 1e-3 * (1 + np.abs(low)))) == 0)
        assert np.all(np.asarray(distribution.cdf(low + 0.49 * width)) > 0)
        # Control: ends that are too narrow leave draws out.
        median = np.asarray(distribution.quantile(0.5))
        assert outside(draws, (low, median)) > 0 or np.all(median == high)
        assert outside(draws, (jnp.nextafter(jnp.asarray(median), jnp.inf), high)) > 0


@pytest.mark.parametrize("name", ON_THE_LINE)
def test_the_logarithm_of_the_cdf(name):
    distribution = ON_THE_LINE[name]()
    rest = (1,) * len(distribution.batch_shape)
    y = distribution.quantile(
        np.array([1e-3, 0.1, 0.4, 0.6, 0.9, 0.999], np.float32).reshape(-1, *rest)
    )
    below = np.asarray(distribution.cdf(y), np.float64)
    found = np.asarray(distribution.log_cdf(y))
    assert found.shape == below.shape
    np.testing.assert_allclose(found, np.log(below), rtol=2e-5, atol=2e-7)
    if name not in UNBOUNDED:
        low, high = distribution.support
        np.testing.assert_allclose(distribution.log_cdf(high), 0.0, atol=2e-6)
        assert np.all(np.asarray(distribution.log_cdf(low - 1.0)) == -np.inf)
    # Control: the logarithm of the density is another function.
    if hasattr(distribution, "log_prob"):
        assert np.max(np.abs(np.asarray(distribution.log_prob(y)) - np.log(below))) > 0.1


def test_the_logarithm_is_exact_far_out():
    z = np.array([-40.0, -5.0, 0.0, 5.0, 6.0], np.float32)
    noise = dpjax.gaussian(np.float32(0.0), np.float32(1.0))
    np.testing.assert_allclose(noise.log_cdf(z), special.log_ndtr(z.astype(float)), rtol=2e-5)
    laplace = dpjax.laplace(np.float32(0.0), np.float32(1.0), sensitivity=1.0)
    far = np.array([20.0, 30.0], np.float32)
    np.testing.assert_allclose(laplace.log_cdf(far), -np.exp(-far.astype(float)) / 2, rtol=2e-5)
    assert np.all(np.log(np.asarray(laplace.cdf(far))) == 0)  # control: a cdf that was rounded to 1
    assert jax.grad(noise.log_cdf)(0.0) == pytest.approx(np.sqrt(2 / np.pi), rel=1e-5)


def test_the_default_of_a_distribution_of_ones_own():
    class Uniform(Distribution):
        batch_shape, dtype = (), jnp.float32

        def cdf(self, y):
            return jnp.clip(self._points("y", y), 0.0, 1.0)

    one = Uniform()
    assert one.event_shape == ()
    assert [float(end) for end in one.support] == [-np.inf, np.inf]
    np.testing.assert_allclose(
        one.log_cdf(np.array([0.25, 0.75], np.float32)), np.log([0.25, 0.75]), rtol=1e-6
    )


def test_support_of_an_answer_that_may_be_withheld():
    local = dpjax.local_sensitivity(X, **KNOWN)
    found = dpjax.propose_test_release(local, 2.0, delta=1e-3, proposal=0.5)
    assert found.event_shape == ()
    assert [end.shape for end in found.support] == [(2,), (2,)]
