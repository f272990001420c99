"""Every public distribution has its law somewhere, and those of several values say between which
ends they are.
"""

import inspect

import jax
import numpy as np
import pytest

import dpjax
from dpjax import distributions
from tests.distributions.test_quadrature import KINDS

X = np.random.default_rng(0).normal(3.0, 2.0, size=(2, 40)).round(2).astype(np.float32)
KNOWN = {"lower": -5.0, "upper": 11.0, "neighbors": "swap"}
EPSILON = np.array([0.5, 2.0], np.float32)
ENDLESS = (-np.inf, np.inf)


def several(mechanism, **more):
    def make(x, epsilon):
        return mechanism(dpjax.quantiles(x, [0.25, 0.5, 0.75], **KNOWN, **more), epsilon)

    return make, (-5.0, 11.0)


OF_SEVERAL = {
    "Radial": (lambda x, eps: dpjax.k_norm(x[:, :3], eps, sensitivity=1.0, p=1), ENDLESS),
    "SphericalGaussian": (lambda x, _: dpjax.spherical_gaussian(x[:, :3], 1.0), ENDLESS),
    "JointQuantiles": several(dpjax.joint_quantiles),
    "JointQuantiles on multiples": several(dpjax.joint_quantiles, resolution=0.5),
}
ELSEWHERE = {
    "Rounded",  # test_rounded.py
    "PermuteAndFlip",  # test_permute_and_flip.py
    "AboveThreshold",  # a pair of two kinds
    "ProposeTestRelease",  # an answer or none
    "Clamped",  # test_quadrature.py, with each that it takes
    "Distribution",
}


def test_every_public_distribution_is_here():
    public = {
        name
        for module in (dpjax, distributions)
        for name in dir(module)
        if inspect.isclass(getattr(module, name)) and hasattr(getattr(module, name), "sample")
    }
    here = {name.partition(" ")[0] for name in [*KINDS, *OF_SEVERAL]}
    assert public - here == ELSEWHERE


@pytest.mark.parametrize("name", OF_SEVERAL)
def test_shapes_and_ends(name):
    make, ends = OF_SEVERAL[name]

    @jax.jit
    def asked(x, epsilon):
        distribution = make(x, epsilon)
        return distribution, distribution.support

    distribution, support = asked(X, EPSILON)
    draws = jax.eval_shape(lambda d: d.sample(jax.random.key(1), (5,)), distribution)
    assert distribution.batch_shape == (2,)
    assert draws.shape == (5, 2, *distribution.event_shape)
    assert len(distribution.event_shape) == 1
    for end, wanted in zip(support, ends, strict=True):
        assert end.dtype == distribution.dtype
        np.testing.assert_array_equal(end, [wanted] * 2)
