"""What JAX simulates on a grid is what a release draws from: the same probabilities, errors and
intervals.
"""

import functools

import jax
import numpy as np
import pytest

import dpjax
from dpjax import release

GRID = {"lower": -3, "upper": 40, "resolution": 1}
CASES = {
    "median": (
        lambda x, n: dpjax.median(x, **GRID, neighbors=n),
        release.Median(**GRID),
        ("add_remove", "swap"),
    ),
    "quantile": (
        lambda x, n: dpjax.quantile(x, 0.9, **GRID, neighbors=n),
        release.Quantile(0.9, **GRID),
        ("add_remove", "swap"),
    ),
    "order statistic": (
        lambda x, n: dpjax.order_statistic(x, 4, **GRID, neighbors=n),
        release.OrderStatistic(4, **GRID),
        ("add_remove", "swap"),
    ),
    "sum": (
        lambda x, n: dpjax.statistics.sum(x, **GRID, neighbors=n),
        release.Sum(**GRID),
        ("swap",),
    ),
    "mean": (lambda x, n: dpjax.mean(x, **GRID, neighbors=n), release.Mean(**GRID), ("swap",)),
}
MECHANISMS = {
    "piecewise_laplace": dpjax.piecewise_laplace,
    "inverse_sensitivity": dpjax.inverse_sensitivity,
}


def rows():
    """Ordinary, tied, constant, at a bound."""
    generator = np.random.default_rng(5)
    ordinary = generator.integers(-3, 41, 23)
    return np.stack(
        [ordinary, np.where(np.arange(23) < 15, 7, ordinary), np.full(23, 12), np.full(23, 40)]
    ).astype(float)


POINTS = 60 * 4  # values at which probabilities are compared, some of them again


@jax.jit
def computed(distribution, values, center):
    """Probabilities, the error from a center, and the ends of intervals: one program for all
    distributions of as many pieces.
    """
    ends = distribution.interval(0.9)
    return distribution.prob(values), distribution.mean_abs_error(center), *ends


@functools.partial(jax.jit, static_argnums=(2, 3, 4))
def simulated(x, epsilon, name, mechanism, neighbors):
    return MECHANISMS[mechanism](CASES[name][0](x, neighbors), epsilon)


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize(
    "name",
    # The others have further shapes, which are compiled, and the same branches
    [
        pytest.param(name, marks=[pytest.mark.slow] * (name in ("quantile", "sum")))
        for name in CASES
    ],
)
def test_probabilities_errors_and_intervals_agree(name, mechanism, x64):
    _, statistic, relations = CASES[name]
    x = rows()
    for neighbors in relations:
        for epsilon in (0.3, 2.0):
            asked = {"neighbors": neighbors, "mechanism": mechanism}
            released = release.exact_distribution(statistic, x, epsilon=epsilon, **asked)
            found = [released.quantile(p) for p in np.linspace(0, 1, 60)]
            values = np.resize(np.unique(found), POINTS)[:, None]
            exact = released.pmf(values)
            assert exact.sum() > 1
            found = simulated(x, epsilon, name, mechanism, neighbors)
            prob, error, low, high = computed(found, values, released.value)
            np.testing.assert_allclose(prob, exact, atol=1e-12)
            np.testing.assert_allclose(
                error, released.mean_abs_error(released.value), rtol=1e-9, atol=1e-12
            )
            np.testing.assert_allclose((low, high), released.interval(0.9), atol=1e-9)
            # The control: another epsilon is told apart.
            other = release.exact_distribution(statistic, x, epsilon=1.01 * epsilon, **asked)
            assert np.max(np.abs(other.pmf(values) - exact)) > 1e-6
