"""The choice among the mechanisms for several quantiles, and the cdf through their draws."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dpjax
from dpjax.mechanisms import private_cdf, private_quantiles

X = np.random.default_rng(0).normal(size=(2, 60)).astype(np.float32)


def asked(levels, **options):
    return dpjax.quantiles(X, levels, lower=-4, upper=4, **{"neighbors": "add_remove"} | options)


def test_the_number_of_levels_decides():
    for m, kind in [
        (1, "IndependentQuantiles"),
        (2, "JointQuantiles"),
        (32, "JointQuantiles"),
        (33, "NestedQuantiles"),
    ]:
        levels = [f"{k / 100}" for k in range(1, m + 1)]
        # The type and the shape of the result.
        found = jax.eval_shape(lambda levels=levels: dpjax.private_quantiles(asked(levels), 1.0))
        assert type(found).__name__ == kind
        assert found.event_shape == (m,)
    for method in ("joint", "nested", "recursive", "independent"):
        found = dpjax.private_quantiles(asked(["0.2", "0.5", "0.8"]), 1.0, method=method)
        assert type(found).__name__.lower().startswith(method)


def test_guarantees_are_those_of_the_mechanism():
    few, many = asked(["0.2", "0.5"]), asked([f"{k / 100}" for k in range(1, 40)])
    assert private_quantiles.guarantee(few, 1.0).bounded_range == 1.0
    assert private_quantiles.guarantee(many, 1.0).bounded_range > 1.0
    assert private_cdf.guarantee(few, 1.0) == private_quantiles.guarantee(few, 1.0)
    assert private_cdf.guarantee(few, 1.0, method="recursive") == private_quantiles.guarantee(
        few, 1.0, method="recursive"
    )


@pytest.mark.slow
def test_a_cdf_goes_through_the_draws():
    records, key = asked(["0.25", "0.5"], resolution=0.5), jax.random.key(0)
    epsilon = jnp.array([1.0, 0.1])
    cdf = dpjax.private_cdf(key, records, epsilon, method="recursive")
    draws = dpjax.private_quantiles(records, epsilon, method="recursive").sample(key)
    np.testing.assert_array_equal(cdf.values[:, 1:-1], draws)
    assert cdf.values[:, [0, -1]].tolist() == [[-4.0, 4.0]] * 2
    np.testing.assert_allclose(cdf.histogram([-4, 0, 4]).sum(-1), 1, rtol=1e-6)
    assert (np.diff(cdf.cdf(np.linspace(-5, 5, 50, dtype=np.float32)[:, None]), axis=0) >= 0).all()
