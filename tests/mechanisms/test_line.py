"""The three mechanisms against the independent oracle, and the theorems that relate them."""

from fractions import Fraction
from functools import partial

import jax
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from dpjax import inverse_sensitivity, laplace, median, order_statistic, piecewise_laplace
from tests.support import oracle
from tests.support.audit import padded
from tests.support.distributions import of_one_size

MECHANISMS = {"piecewise_laplace": piecewise_laplace, "inverse_sensitivity": inverse_sensitivity}
LOW, HIGH = -2.0, 3.0


@partial(jax.jit, static_argnames=("name", "statistic", "support"))
def made(name, statistic, x, epsilon, rho, support, known):
    """The value of a statistic and the distribution of a mechanism."""
    profile = statistic(x, **known)
    options = {} if rho is None else {"rho": rho, "support": support}
    return profile.value, MECHANISMS[name](profile, epsilon, **options)


@jax.jit
def of_oracle(distribution, value, points):
    """What the oracle knows, in one program."""
    return {
        "error": distribution.mean_abs_error(value),
        "cdf": distribution.cdf(points),
        "log_prob": distribution.log_prob(points),
        "survival": distribution.survival(points),
    }


ROWS = 20


def known_of(name, statistic, x, epsilon, points, rho=None, support="restricted", **known):
    """The same of a mechanism, with all rows on one axis."""
    value, distribution = made(name, statistic, x, epsilon, rho, support, known)
    distribution = of_one_size(distribution, 128)
    batch = distribution.batch_shape
    found = of_oracle(distribution, np.broadcast_to(value, batch), points)
    return {
        key: np.asarray(part).reshape(*part.shape[: part.ndim - len(batch)], -1)
        for key, part in found.items()
    }


def random_datasets(neighbors, definition, rng):
    """Normal, heavily tied, at the bounds; sizes 0 (add/remove) to 15."""
    smallest = 0 if neighbors == "add_remove" and definition == "lower" else 1
    sizes = np.concatenate([[smallest, 1, 2, 3, 15], rng.integers(1, 16, 5)])
    kinds = [
        lambda n: np.clip(rng.normal(size=n), LOW, HIGH),
        lambda n: rng.choice([-2.0, 0.0, 0.5, 3.0], n),
        lambda n: rng.choice([-2.0, 3.0], n),
    ]
    return [kinds[i % 3](n) for i, n in enumerate(sizes)]


@pytest.mark.parametrize(("neighbors", "definition"), [("add_remove", "linear"), ("swap", "lower")])
def test_exact_agreement_with_the_oracle(neighbors, definition, x64):
    """Ten random datasets, each with both mechanisms, sharp and smooth."""
    rng = np.random.default_rng([len(neighbors), len(definition)])
    datasets = random_datasets(neighbors, definition, rng)
    x, count = padded(datasets, 15)
    middle = partial(median, neighbors=neighbors, definition=definition)

    def statistic(data):
        return oracle.quantile(data, Fraction(1, 2), definition, LOW, HIGH)

    reached = [
        oracle.extremes(data.tolist(), len(data) + 1, statistic, neighbors, LOW, HIGH)
        for data in datasets
    ]
    close = {"rtol": 1e-10, "atol": 1e-12}
    for name in MECHANISMS:
        epsilon, rho = rng.choice([0.1, 0.5, 1.0, 4.0], 10), np.array([[0.0], [0.1]])
        points = rng.uniform(LOW - 0.1, HIGH + 0.1, (2, 1, 10))
        known = {"lower": LOW, "upper": HIGH, "num_records": count}
        got = known_of(name, middle, x, epsilon, points, rho, **known)
        for each in range(20):
            row = each % 10
            exact = oracle.mechanism(*reached[row], epsilon[row], name, rho=rho[each // 10, 0])
            f, own = statistic(datasets[row]), points[:, 0, row]
            error = exact.expectation(lambda y, f=f: abs(y - f), [f])
            assert_allclose(got["error"][each], error, **close)
            for method in ("cdf", "log_prob"):
                expected = [getattr(exact, method)(y) for y in own]
                assert_allclose(got[method][:2, each], expected, **close)


def test_piecewise_laplace_dominates_inverse_sensitivity(x64):
    """Theorem 2 under swap, exactly: P(|error| > alpha) is never larger, on random datasets with
    ties.
    """
    rng = np.random.default_rng(0)
    x = np.where(
        rng.random((ROWS, 11)) < 0.5, rng.normal(size=(ROWS, 11)), rng.integers(-2, 3, (ROWS, 11))
    )
    epsilon, alpha = np.resize([0.1, 1.0, 8.0], ROWS), np.linspace(0.01, 3.0, 10)[:, None]
    points = np.median(x, axis=-1) + np.concatenate([-alpha, alpha])
    middle, outside = partial(median, neighbors="swap"), []
    for name in MECHANISMS:
        got = known_of(name, middle, x, epsilon, points, lower=-3.0, upper=3.0)
        outside.append(got["cdf"][:10] + got["survival"][10:])
    assert (outside[0] <= outside[1] + 1e-13).all()
    assert (outside[0] < outside[1] - 1e-6).any()


def test_the_theorem_does_not_extend_to_rho_and_the_docstring_is_right_to_say_so(x64):
    x = np.array([0.0, 0.205, 0.48, 0.66, 0.735, 0.755])
    least = partial(order_statistic, rank=1, neighbors="swap")
    points, within = 0.04708333333333334 * np.array([[-1], [1]]), []
    for name in MECHANISMS:
        known = {"support": "extended", "lower": 0.0, "upper": 1.0}
        below, above = known_of(name, least, x, np.array([4.0]), points, 0.02, **known)["cdf"][:2]
        within.append((above - below)[0])
    assert_allclose(within, [0.4362981028565655, 0.5960788815307859], atol=1e-9)


def test_laplace_on_an_interval(x64):
    """A value beyond the bounds is clamped."""
    y = np.linspace(-1.5, 4.5, 9)

    @jax.jit
    def cdf(value):
        noisy = laplace(value, 2.0, sensitivity=3.0, lower=-1.0, upper=4.0)
        return noisy.cdf(y[:, None])

    found = cdf(np.array([2.0, 99.0, 4.0]))
    exact = oracle.Distribution([(-1.0, 2.0, 1.0, 0.0), (2.0, 4.0, 0.0, 2 / 3)], 1.0)
    assert_allclose(found[:, 0], [exact.cdf(v) for v in y], rtol=1e-12, atol=1e-15)
    assert_array_equal(found[:, 1], found[:, 2])
