"""What JAX simulates on a grid is what a release draws from: the same probabilities, errors and
intervals.
"""

import jax
import jax.numpy as jnp
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


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("name", CASES)
def test_probabilities_errors_and_intervals_agree(name, mechanism, x64):
    simulated_profile, statistic, relations = CASES[name]
    x = rows()
    for neighbors in relations:
        for epsilon in (0.3, 2.0):
            simulated = MECHANISMS[mechanism](simulated_profile(jnp.asarray(x), neighbors), epsilon)
            released = release.exact_distribution(
                statistic, x, epsilon=epsilon, neighbors=neighbors, mechanism=mechanism
            )
            values = np.unique(
                np.concatenate([released.quantile(p) for p in np.linspace(0, 1, 60)])
            )[:, None]
            exact = released.pmf(values)
            assert exact.sum() > 1
            np.testing.assert_allclose(
                jax.jit(lambda d, y: d.prob(y))(simulated, values), exact, atol=1e-12
            )
            center = released.value
            np.testing.assert_allclose(
                simulated.mean_abs_error(center),
                released.mean_abs_error(center),
                rtol=1e-9,
                atol=1e-12,
            )
            for ours, theirs in zip(simulated.interval(0.9), released.interval(0.9), strict=True):
                np.testing.assert_allclose(ours, theirs, atol=1e-9)
            # The control: another epsilon is told apart.
            other = release.exact_distribution(
                statistic, x, epsilon=1.01 * epsilon, neighbors=neighbors, mechanism=mechanism
            )
            assert np.max(np.abs(other.pmf(values) - exact)) > 1e-6
