"""What every distribution shares, on the smallest one that there is."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dpjax
from dpjax.distributions.base import Distribution


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

    def quantile(self, p):
        return p * self.width

    def mean(self):
        return self.width / 2

    def variance(self):
        return self.width**2 / 12

    def _sample(self, key, shape, first=0):
        return jnp.zeros(shape + self.batch_shape, self.dtype)


UNIFORM = Uniform(jnp.array([1.0, 4.0]))


def test_what_follows_from_the_other_methods():
    np.testing.assert_allclose(UNIFORM.prob(2), [0, 0.25])
    np.testing.assert_allclose(UNIFORM.stddev(), np.array([1, 4]) / np.sqrt(12), rtol=1e-6)
    np.testing.assert_allclose(
        UNIFORM.mean_squared_error([[0], [2.0]]), [[1 / 3, 16 / 3], [7 / 3, 4 / 3]], rtol=1e-6
    )
    np.testing.assert_allclose(UNIFORM.interval(0.5), [[0.25, 1], [0.75, 3]])


@pytest.mark.parametrize(
    ("shape", "wanted"), [((), (2,)), (3, (3, 2)), ([3, 0], (3, 0, 2)), (np.int64(1), (1, 2))]
)
def test_the_shape_of_draws_is_an_integer_or_several(shape, wanted):
    assert UNIFORM.sample(jax.random.key(0), shape).shape == wanted


def test_bad_keys_and_shapes_are_refused():
    for shape in (-1, 1.5, (2, -1), True):
        with pytest.raises(ValueError, match="shape must be an integer from 0 on"):
            UNIFORM.sample(jax.random.key(0), shape)
    with pytest.raises(TypeError, match="typed key"):
        UNIFORM.sample(0)


def test_repr_is_short_and_prints_no_array():
    wanted = "Uniform(batch_shape=(2,), dtype=float32)"
    assert repr(UNIFORM) == wanted
    seen = []
    jax.jit(lambda distribution: seen.append(repr(distribution)))(UNIFORM)
    assert seen == [wanted]
    assert repr(jax.tree.map(lambda _: 0, UNIFORM)) == "Uniform(...)"


def test_probabilities_in_percent_are_refused():
    """One number at once; in an array, which may be traced, it gives NaN."""
    records = np.arange(9.0)
    for distribution in (
        dpjax.laplace(0.0, 1.0, sensitivity=1.0),
        dpjax.piecewise_laplace(dpjax.median(records, lower=0, upper=9, neighbors="swap"), 1.0),
        dpjax.piecewise_laplace(
            dpjax.median(records, lower=0, upper=9, resolution=1, neighbors="swap"), 1.0
        ),
    ):
        for ask in (distribution.interval, distribution.quantile):
            for wrong in (95, -0.5, np.float32(1.5)):
                with pytest.raises(ValueError, match="between 0 and 1"):
                    ask(wrong)
        assert np.isfinite(distribution.quantile(0.95))
        assert np.isnan(distribution.quantile(jnp.array([0.5, 95.0]))).tolist() == [False, True]
