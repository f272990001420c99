"""A private draw in a NumPyro model: the same density and draws, and a posterior that is known."""

import jax
import numpy as np
import pytest

import dpjax
from dpjax.distributions import to_numpyro

numpyro = pytest.importorskip("numpyro", reason="needs the extra 'numpyro'")
log_density = numpyro.infer.util.log_density


@pytest.fixture(autouse=True)
def _promotion():
    """NumPyro's own arithmetic is not strict."""
    with jax.numpy_dtype_promotion("standard"):
        yield


def model(released):
    theta = numpyro.sample("theta", numpyro.distributions.Normal(0.0, 2.0))
    numpyro.sample("released", to_numpyro(dpjax.gaussian(theta, 1.0)), obs=released)


def test_the_likelihood_is_exact():
    @jax.jit
    def joint(theta):
        return log_density(model, (3.0,), {}, {"theta": theta})[0]

    theta = 0.7
    wanted = [-(theta**2) / 8 - np.log(2), -((3 - theta) ** 2) / 2]
    assert float(joint(theta)) == pytest.approx(sum(wanted) - np.log(2 * np.pi), rel=1e-6)
    assert float(jax.grad(joint)(theta)) == pytest.approx(-theta / 4 + 3 - theta, rel=1e-5)


def test_draws_shapes_and_supports():
    rows = dpjax.laplace(np.zeros(3), 1.0, sensitivity=1.0)
    of_numpyro = to_numpyro(rows)
    assert (of_numpyro.batch_shape, of_numpyro.event_shape, of_numpyro.is_discrete) == (
        (3,),
        (),
        False,
    )
    for key in (jax.random.key(4), jax.random.PRNGKey(4)):
        assert (
            of_numpyro.sample(key, (2,)).tolist() == rows.sample(jax.random.key(4), (2,)).tolist()
        )
    vectors = to_numpyro(dpjax.spherical_gaussian(np.zeros((2, 4)), 1.0))
    assert (vectors.batch_shape, vectors.event_shape, vectors.event_dim) == ((2,), (4,), 1)
    assert to_numpyro(dpjax.laplace(jax.jit(dpjax.count)(np.zeros(4)), 1.0)).is_discrete
    passed = jax.jit(lambda d: d.log_prob(1.0))(of_numpyro)
    np.testing.assert_allclose(passed, rows.log_prob(1.0), rtol=1e-6)
    with pytest.raises(TypeError, match="log_prob"):
        to_numpyro(dpjax.Clamped.of(rows, lower=-1, upper=1))
