"""Bounded noise: its delta by the exact hockey-stick divergence, at shifts up to the sensitivity; a
smaller range is caught.
"""

import json
import pathlib
from math import expm1, log1p

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpjax.mechanisms import bounded_noise_laplace
from tests.support.hockey_stick import hockey_stick
from tests.support.statistics import assert_follows, assert_rejected

GOLDEN = json.loads(
    (pathlib.Path(__file__).parent.parent / "golden" / "F_accounting.json").read_text()
)
SENSITIVITY = 2.5
SHIFTS = np.array([0.0, 0.1, 1.0, SENSITIVITY])
PAIRS = np.array([[0, 0, 0, 1, 2, 3], [1, 2, 3, 0, 0, 0]])


def deltas(epsilon, delta, at):
    distribution = bounded_noise_laplace(10 + SHIFTS, epsilon, sensitivity=SENSITIVITY, delta=delta)
    return hockey_stick(distribution, PAIRS, at)


@pytest.mark.parametrize(
    "epsilon",
    [1.0, pytest.param(0.1, marks=pytest.mark.slow), pytest.param(6.0, marks=pytest.mark.slow)],
)
def test_the_delta_is_exact_and_no_smaller_one_holds(epsilon, x64):
    for delta in (1e-6, 1e-3, 0.3):
        found = deltas(epsilon, delta, epsilon)
        np.testing.assert_allclose(found.max(), delta, rtol=1e-8)
        # Attained at a shift of the whole sensitivity
        np.testing.assert_allclose(found[[2, 5]], delta, rtol=1e-8)
        # Control: a range made for three times the delta.
        assert deltas(epsilon, 3 * delta if delta < 0.1 else 0.45, epsilon).max() > 1.2 * delta


def test_the_range_is_the_published_one_and_holds_the_draws(x64):
    for epsilon in (1e-9, 0.3, 2.0, 30.0):
        distribution = bounded_noise_laplace(0.0, epsilon, sensitivity=SENSITIVITY, delta=1e-4)
        reach = SENSITIVITY / epsilon * log1p(expm1(epsilon) / 2e-4)
        np.testing.assert_allclose(distribution.edges, [-reach, 0, reach], rtol=1e-9)
    assert jnp.isfinite(bounded_noise_laplace(0.0, 500.0, sensitivity=1.0, delta=1e-30).edges).all()
    distribution = bounded_noise_laplace(jnp.zeros(()), 1.0, sensitivity=1.0, delta=0.01)
    draws = np.asarray(distribution.sample(jax.random.key(0), (20_000,)))
    assert np.abs(draws).max() <= float(distribution.edges[-1])
    assert_follows(draws, distribution.cdf)
    assert_rejected(1.1 * draws, distribution.cdf)


def test_the_golden_half_widths(x64):
    golden = GOLDEN["trunc_laplace_halfwidth"]
    epsilon, delta = np.array(
        [[float(part.split("=")[1]) for part in name.split(",")] for name in golden]
    ).T
    edges = bounded_noise_laplace(0.0, epsilon, sensitivity=1.0, delta=delta).edges
    np.testing.assert_allclose(edges[:, 2], [float(width) for width in golden.values()], rtol=1e-12)
    np.testing.assert_array_equal(edges[:, 0], -edges[:, 2])


def test_parameters_are_checked():
    for bad in ({"delta": 0.5}, {"delta": 0.0}, {"sensitivity": 0.0}, {"epsilon": -1.0}):
        given = {"epsilon": 1.0, "sensitivity": 1.0, "delta": 1e-3, **bad}
        with pytest.raises(ValueError, match=next(iter(bad))):
            bounded_noise_laplace(0.0, given.pop("epsilon"), **given)
    distribution = bounded_noise_laplace(
        jnp.zeros(2), jnp.array([1.0, jnp.nan]), sensitivity=1.0, delta=1e-3
    )
    np.testing.assert_array_equal(np.isnan(distribution.mean_abs_error(0.0)), [False, True])


def test_noise_below_the_spacing_of_floats_stays_near_the_value():
    values = np.array([1e8, -1e8, 1e7, 0.0], np.float32)
    draws = np.asarray(
        bounded_noise_laplace(values, 1.0, sensitivity=0.5, delta=1e-3).sample(
            jax.random.key(0), (100,)
        )
    )
    assert (np.abs(draws.astype(np.float64) - values) <= 8).all()


def test_guarantees_take_a_delta_between_0_and_1():
    for delta in (0.0, 1.0, 7.0):
        with pytest.raises(ValueError, match="delta"):
            bounded_noise_laplace.guarantee("swap", 1.0, delta=delta)
    with pytest.raises(ValueError, match="sensitivity"):
        bounded_noise_laplace(0.0, 1.0, sensitivity=1e-39, delta=1e-3)
