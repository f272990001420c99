"""Bounded noise: its delta by the exact hockey-stick divergence, at shifts up to the sensitivity; a
smaller range is caught.
"""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from dpjax import bounded_noise_laplace
from dpjax.mechanisms import loss_margin
from tests.support.golden import golden
from tests.support.hockey_stick import hockey_stick

GOLDEN = golden("F_accounting")
SENSITIVITY = 2.5
SHIFTS = np.array([0.0, 0.1, 1.0, SENSITIVITY])
PAIRS = np.array([[0, 0, 0, 1, 2, 3], [1, 2, 3, 0, 0, 0]])


def deltas(epsilon, delta):
    distribution = bounded_noise_laplace(10 + SHIFTS, epsilon, sensitivity=SENSITIVITY, delta=delta)
    return hockey_stick(distribution, PAIRS, epsilon)


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 6.0])
def test_the_delta_is_exact_and_no_smaller_one_holds(epsilon, x64):
    for delta in (1e-6, 1e-3, 0.3):
        found = deltas(epsilon, delta)
        assert_allclose(found.max(), delta, rtol=1e-8)
        # Attained at a shift of the whole sensitivity
        assert_allclose(found[[2, 5]], delta, rtol=1e-8)
        # Control: a range made for three times the delta.
        assert deltas(epsilon, 3 * delta if delta < 0.1 else 0.45).max() > 1.2 * delta


def test_the_golden_half_widths(x64):
    golden = GOLDEN["trunc_laplace_halfwidth"]
    given = [[float(part.split("=")[1]) for part in name.split(",")] for name in golden]
    epsilon, delta = np.array(given).T
    edges = bounded_noise_laplace(0.0, epsilon, sensitivity=1.0, delta=delta).edges
    assert_allclose(edges[:, 2], [float(width) for width in golden.values()], rtol=1e-12)
    assert_array_equal(edges[:, 0], -edges[:, 2])
    for rate, failure, reach in zip(epsilon, delta, edges[:, 2], strict=True):
        margin = loss_margin(epsilon=rate, delta=failure, sensitivity=2.0)
        assert margin == pytest.approx(2 * float(reach), rel=1e-12)
    extreme = bounded_noise_laplace(0.0, 500.0, sensitivity=1.0, delta=1e-30).edges
    assert_allclose(extreme[2], 2 - np.log(2e-30) / 500 - 1, rtol=1e-12)


def test_the_range_of_noise_below_the_spacing_of_floats_holds_more_than_the_value():
    """And ends near it."""
    values = np.array([1e8, -1e8, 1e7, 0.0], np.float32)
    edges = bounded_noise_laplace(values, 1.0, sensitivity=0.5, delta=1e-3).edges
    steps = np.diff(np.asarray(edges, np.float64), axis=-1)
    assert ((steps > 0) & (steps <= 8)).all()
