"""Distributions on another scale: maps, and the exact loss between neighbors. All methods against
quadrature are in ``test_quadrature.py``.
"""

from dataclasses import dataclass
from functools import partial
from itertools import combinations_with_replacement

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.scipy.stats import logistic

import dpjax
from dpjax import Asinh, Log, LogCauchy, Prior, Transformed, median, on_scale, piecewise_laplace
from dpjax.distributions import Transform
from tests.support.audit import neighboring_rows, padded


@dataclass(frozen=True)
class CubeRoot(Transform):
    """A map of a user's own."""

    def forward(self, x):
        return jnp.cbrt(x)

    def inverse(self, z):
        return z**3

    def log_derivative(self, x):
        return -jnp.log(3 * jnp.square(jnp.cbrt(x)))


LOGISTIC = Prior(logistic.cdf, logistic.ppf, logistic.logpdf, lower=-12.0, upper=20.0)
# Each with the map in NumPy.
MAPS = {
    "log": (Log(lower=1e-3, upper=1e4), np.log),
    "asinh": (Asinh(2.0, lower=-1e3, upper=1e4), lambda x: np.arcsinh(x / 2)),
    "log-cauchy": (
        LogCauchy(0.5, lower=-1e3, upper=1e4),
        lambda x: 2 / np.pi * np.arctan(np.arcsinh(2 * x)),
    ),
    "logistic prior": (LOGISTIC, lambda x: 1 / (1 + np.exp(-x))),
    "cube root": (CubeRoot(lower=0.0, upper=1e3), np.cbrt),
}


@partial(jax.jit, static_argnames="transform")
def mapped(transform, x):
    z = transform.forward(x)
    return z, transform.inverse(z), transform.log_derivative(x)


@pytest.mark.parametrize("name", MAPS)
def test_a_map_its_inverse_and_its_derivative_belong_together(name, x64):
    transform, forward = MAPS[name]
    x = np.concatenate([np.linspace(transform.lower, transform.upper, 40)[1:-1], [0.01, 0.1, 1.0]])
    z, back, log_derivative = map(np.asarray, mapped(transform, x))
    np.testing.assert_allclose(z, forward(x), rtol=1e-13)
    np.testing.assert_allclose(back, x, rtol=1e-6 if name == "logistic prior" else 1e-10)
    h = 1e-5 * np.abs(x)
    slope = (forward(x + h) - forward(x - h)) / (2 * h)
    inner = slope > 1e-6  # elsewhere the difference has no digits
    np.testing.assert_allclose(np.exp(log_derivative)[inner], slope[inner], rtol=1e-5)
    assert inner.sum() > 10


@pytest.mark.parametrize(
    ("transform", "far", "near"),
    [(Log(), 4e-6, 1e-6), (Asinh(), 4e-6, 1.1e-6), (LogCauchy(0.1), 2.2e-4, 4e-5)],
)
def test_float32_resolves_what_is_stated(transform, far, near):
    for size, wanted in ((1e15, far), (1e5, near)):
        x = (size * np.linspace(0.5, 1.0, 100)).astype(np.float32)
        z, back, _ = mapped(transform, x)
        np.testing.assert_allclose(back, x, rtol=wanted)
        if transform.lower < 0:
            np.testing.assert_array_equal(mapped(transform, -x)[0], -np.asarray(z))


@pytest.mark.parametrize("neighbors", ["add_remove", "swap"])
def test_neighbors_differ_by_at_most_epsilon(neighbors, x64):
    """All datasets of up to three records on an uneven grid, near both ends of every piece; the
    control has a scale of the data.
    """
    grid, epsilon, transform = (-7.0, 0.0, 1.0, 30.0), 1.2, LogCauchy(3.0)
    sizes = (3,) if neighbors == "swap" else (0, 1, 2, 3)
    datasets = [data for size in sizes for data in combinations_with_replacement(grid, size)]
    x, count = padded(datasets, 3)
    first, second = neighboring_rows(tuple(datasets), neighbors, grid)

    @jax.jit
    def distribution(x):
        given = {"num_records": jnp.asarray(count)} if neighbors == "add_remove" else {}
        profile = on_scale(median, x, transform=transform, neighbors=neighbors, **given)
        return Transformed(piecewise_laplace(profile, epsilon), transform)

    @jax.jit
    def look(whole, near, scale):
        """At y, when both the records and the draws are divided by a scale before and multiplied
        after.
        """
        y = transform.inverse(near)[:, None] / scale
        half_lines = jnp.log(jnp.concatenate([whole.cdf(y), whole.survival(y)]))
        return whole.log_prob(y) - jnp.log(scale), half_lines

    def worst_losses(whole, scale):
        found = (np.asarray(array).T for array in look(whole, near, scale))
        return [np.abs(array[first] - array[second]).max() for array in found]

    whole = distribution(x)
    edges = np.unique(np.round(np.asarray(whole.distribution.edges), 12))
    near = np.concatenate([edges[:-1] + 1e-9, edges[1:] - 1e-9, (edges[:-1] + edges[1:]) / 2])
    losses = worst_losses(whole, np.ones(len(datasets)))
    assert max(losses) < epsilon * (1 + 1e-6)
    assert losses[0] > 0.65 * epsilon
    scale = np.array([1 + np.mean(np.abs(data)) if data else 1.0 for data in datasets])
    assert worst_losses(distribution(x / scale[:, None]), scale)[0] > 1.2 * epsilon


def test_beyond_the_bounds_there_is_nothing_and_records_are_clamped():
    """NaN records are absent, or the lower bound."""
    transform = Log(lower=0.5, upper=40.0)
    beyond = np.float32([-np.inf, -1.0, 0.0, 0.4, 41.0, np.inf])
    records = np.float32([[1.0, 2.0, 3.0], [np.nan, 2.0, np.nan], [-1.0, 1e-45, np.inf]])

    @jax.jit
    def known(records):
        swapped, counted = (
            on_scale(median, records, transform=transform, neighbors=neighbors)
            for neighbors in ("swap", "add_remove")
        )
        values = transform.inverse(jnp.stack([swapped.value, counted.value]))
        distribution = Transformed(piecewise_laplace(swapped, 1.0), transform)[0]
        slopes = jax.vmap(jax.grad(distribution.log_prob))(beyond)
        return values, distribution.log_prob(beyond), slopes

    values, log_prob, slope = known(records)
    np.testing.assert_allclose(values, [[2.0, 0.5, 0.5], [2.0, 2.0, 0.5]], rtol=1e-5)
    np.testing.assert_array_equal(log_prob, np.full(6, -np.inf))
    assert np.isfinite(slope[2])


def test_q_and_a_mask_reach_the_statistic():
    x = np.float32([[1.0, 10.0, 100.0, 5.0], [2.0, 4.0, 8.0, 1e9]])
    mask = np.array([[True] * 4, [True, True, True, False]])
    scale, options = Log(), {"neighbors": "add_remove", "definition": "lower"}

    @jax.jit
    def known(x, mask):
        found = on_scale(dpjax.quantile, x, 0.75, transform=scale, mask=mask, **options)
        return scale.inverse(found.value)

    np.testing.assert_allclose(known(x, mask), [10.0, 8.0], rtol=1e-6)
