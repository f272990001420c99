"""The discrete Laplace distribution against sums over its values, in float64."""

import jax.numpy as jnp
import numpy as np
import pytest

from dpjax import Clamped, Log, Transformed
from dpjax.distributions import DiscreteLaplace

K = np.arange(-4000, 4001)


@pytest.mark.parametrize("rate", [0.02, 0.7, 5.0, 200.0])
def test_all_methods_are_sums_over_the_values(rate, x64):
    loc, scale = 3.0, 0.5
    distribution = DiscreteLaplace(*(jnp.asarray(number) for number in (loc, scale, rate)))
    p = np.exp(-rate * np.abs(K))
    p, values = p / p.sum(), loc + scale * K
    y = np.array([0.5, 1.1, 2.5, 2.9, 3.0, 3.2, 3.5, 9.0])
    np.testing.assert_allclose(
        distribution.prob(y), [np.sum(p[values == at]) for at in y], rtol=1e-10, atol=1e-300
    )
    np.testing.assert_allclose(
        distribution.cdf(y), [np.sum(p[values <= at]) for at in y], rtol=1e-10, atol=1e-200
    )
    np.testing.assert_allclose(
        distribution.survival(y), [np.sum(p[values > at]) for at in y], rtol=1e-10, atol=1e-200
    )
    errors = [np.sum(p * np.abs(values - at)) for at in y]
    np.testing.assert_allclose(distribution.mean_abs_error(y), errors, rtol=1e-9)
    np.testing.assert_allclose(
        distribution.mean_squared_error(y), [np.sum(p * (values - at) ** 2) for at in y], rtol=1e-9
    )
    q = np.array([1e-6, 0.1, 0.3, 0.5, 0.8, 1 - 1e-6])
    np.testing.assert_allclose(
        distribution.quantile(q), [values[np.argmax(np.cumsum(p) >= at)] for at in q]
    )
    assert np.isnan(distribution.quantile(np.array(1.5)))
    clipped = np.clip(values, 2.75, 4.0)
    clamped = Clamped.of(distribution, lower=2.75, upper=4.0)
    np.testing.assert_allclose(
        clamped.mean_abs_error(3.2), np.sum(p * np.abs(clipped - 3.2)), rtol=1e-9
    )


def test_it_has_no_density_to_transform():
    with pytest.raises(TypeError, match="density on the real line"):
        Transformed(DiscreteLaplace(*jnp.ones(3)), Log())
