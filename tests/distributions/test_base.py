"""What every distribution shares, on the smallest one that there is, and what is refused."""

from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dpjax
from dpjax import (
    Clamped,
    PiecewiseExponential,
    inverse_sensitivity,
    laplace,
    median,
    piecewise_laplace,
)
from dpjax.distributions import (
    Cauchy,
    DiscreteLaplace,
    Distribution,
    Finite,
    LaplaceLogNormal,
    Log,
    Prior,
    Transformed,
)


@jax.tree_util.register_dataclass
@dataclass(frozen=True, repr=False)
class Uniform(Distribution):
    """On [0, width]."""

    width: jax.Array

    @property
    def batch_shape(self):
        return self.width.shape

    @property
    def dtype(self):
        return self.width.dtype

    def log_prob(self, y):
        return jnp.where((y >= 0) & (y <= self.width), -jnp.log(self.width), -jnp.inf)

    def cdf(self, y):
        return jnp.clip(y / self.width, 0.0, 1.0)

    def quantile(self, p):
        return p * self.width

    def mean(self):
        return self.width / 2

    def variance(self):
        return self.width**2 / 12

    def _sample(self, key, shape):
        return jnp.zeros(shape + self.batch_shape, self.dtype)


def plain(profile, epsilon):
    return Clamped(laplace(profile.value, epsilon, sensitivity=2.0), np.zeros(4), np.full(4, 9.0))


@pytest.mark.parametrize("resolution", [None, 1])
def test_distributions_and_profiles_may_leave_vmap_and_scan(resolution):
    """Also where there are as many rows as epsilons: axes are not taken for one another."""
    x, epsilons = np.random.default_rng(0).uniform(0, 9, (4, 7)), np.geomspace(0.1, 10, 4)
    known = {"lower": 0.0, "upper": 9.0, "neighbors": "add_remove", "resolution": resolution}

    @jax.jit
    def run(x, epsilons):
        profile = median(x, **known)
        found = {}
        for mechanism in (piecewise_laplace, inverse_sensitivity, plain):
            name, of = mechanism.__name__, partial(mechanism, profile)
            _, scanned = jax.lax.scan(lambda none, epsilon, of=of: (none, of(epsilon)), 0, epsilons)
            whole = of(epsilons[:, None]).cdf(4.0)
            found[name] = jax.vmap(of)(epsilons).cdf(4.0), scanned.cdf(4.0), whole
        rows = jax.vmap(lambda n: median(x, **known, num_records=n))(np.arange(4, 8))
        alone = median(x, **known, num_records=np.arange(4, 8)[:, None])
        found["profile"] = [piecewise_laplace(each, 1.0).cdf(4.0) for each in (rows, rows, alone)]
        return found

    for name, (mapped, scanned, whole) in run(x, epsilons).items():
        assert whole.shape == (4, 4), name
        np.testing.assert_allclose(mapped, whole, rtol=1e-6, err_msg=name)
        np.testing.assert_allclose(scanned, whole, rtol=1e-6, err_msg=name)


def test_numbers_of_python_are_parameters_of_a_batch():
    edges, costs = np.float32([[0, 1, 3], [0, 2, 3]]), np.float32([0, 1])
    for rate in (1, 1.0, np.float32(1)):
        found = PiecewiseExponential(edges, costs, costs, rate)
        assert (found.batch_shape, found.mean().dtype) == ((2,), np.float32)


UNIFORM = Uniform(jnp.array([1.0, 4.0]))


def test_what_follows_from_the_other_methods():
    np.testing.assert_allclose(UNIFORM.prob(2), [0, 0.25])
    np.testing.assert_allclose(UNIFORM.survival(0.5), [0.5, 0.875])
    np.testing.assert_allclose(UNIFORM.log_cdf(0.5), np.log([0.5, 0.125]), rtol=1e-6)
    np.testing.assert_allclose(UNIFORM.stddev(), np.array([1, 4]) / np.sqrt(12), rtol=1e-6)
    np.testing.assert_allclose(
        UNIFORM.mean_squared_error([[0], [2.0]]), [[1 / 3, 16 / 3], [7 / 3, 4 / 3]], rtol=1e-6
    )
    np.testing.assert_allclose(UNIFORM.interval(0.5), [[0.25, 1], [0.75, 3]])
    assert UNIFORM.event_shape == ()
    assert np.array(UNIFORM.support).tolist() == [[-np.inf] * 2, [np.inf] * 2]


@pytest.mark.parametrize(
    ("shape", "wanted"), [((), (2,)), (3, (3, 2)), ([3, 0], (3, 0, 2)), (np.int64(1), (1, 2))]
)
def test_the_shape_of_draws_is_an_integer_or_several(shape, wanted):
    assert UNIFORM.sample(jax.random.key(0), shape).shape == wanted


NOISE = dpjax.laplace(0.0, 1.0, sensitivity=1.0)
ONES = jnp.ones(3)
REFUSED = {
    "percent": (lambda: NOISE.interval(95), ValueError, "between 0 and 1"),
    "negative": (lambda: NOISE.quantile(np.float32(-0.5)), ValueError, "between 0 and 1"),
    "pieces": (
        lambda: PiecewiseExponential(ONES, ONES, ONES, ONES[0]).batch_shape,
        ValueError,
        "cost_left",
    ),
    "candidates": (lambda: Finite(ONES, ONES[:2], ONES[0]).batch_shape, ValueError, "last axis"),
    "density": (lambda: Transformed(DiscreteLaplace(*ONES), Log()), TypeError, "density"),
    "no range on the scale": (
        lambda: dpjax.on_scale(
            dpjax.median,
            ONES,
            transform=Prior(jnp.sign, jnp.sign, jnp.sign, lower=1.0, upper=2.0),
            neighbors="swap",
        ),
        ValueError,
        "lower",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_defines_no_distribution_is_refused(name):
    call, error, match = REFUSED[name]
    with pytest.raises(error, match=match):
        call()


@pytest.mark.parametrize("scale", [1e-25, 1e25])
def test_stddev_where_the_variance_underflows_or_overflows(scale):
    def noises(scale):
        loc, scale = jnp.zeros(1), jnp.float32([scale])
        values = scale * jnp.arange(3.0)
        yield Cauchy(loc, scale, 4.5)
        yield LaplaceLogNormal(loc, scale, jnp.float32(0.4))
        yield Finite(values, jnp.arange(3.0), jnp.ones(1))
        yield PiecewiseExponential(values, jnp.ones(2), jnp.array([1.0, 4.0]), jnp.ones(1))

    known = jax.jit(lambda scale: [(d.stddev(), d.variance()) for d in noises(scale)])
    for (found, variance), (wanted, _) in zip(known(scale), known(1.0), strict=True):
        np.testing.assert_allclose(np.float64(found) / scale, np.float64(wanted), rtol=1e-5)
        assert float(variance[0]) in (0, np.inf)  # the control: a root of it would be wrong


def test_moments_of_fields_with_different_axes_have_the_shape_of_the_batch():
    few = LaplaceLogNormal(jnp.float32(0), jnp.ones(2), jnp.ones((3, 1)))
    moments = jax.eval_shape(lambda d: (d.mean(), d.variance(), d.stddev()), few)
    assert {moment.shape for moment in moments} == {few.batch_shape} == {(3, 2)}
