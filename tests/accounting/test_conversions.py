"""Conversions against their formulas by many orders, and against numbers computed apart."""

import numpy as np
import pytest

from dpjax.accounting import zcdp_of

ORDERS = 1 + np.exp(np.linspace(-6, 40, 200_001))[:, None]


def log_delta(rho, epsilon):
    """The smallest log delta of rho-zCDP at epsilon, over the orders."""
    a = ORDERS
    return np.min((a - 1) * (a * rho - epsilon) - np.log(a - 1) + a * np.log1p(-1 / a), axis=0)


def test_conversions_to_zcdp(x64):
    """Against the published formula, and against numbers computed apart (delta = 1e-3)."""
    epsilon = np.array([0.1, 1.0, 2.0])
    classical, tight = (zcdp_of(epsilon, delta=1e-3, conversion=c) for c in ("classical", "tight"))
    np.testing.assert_allclose(np.sqrt(2 * classical), [0.02681, 0.25995, 0.50392], atol=6e-6)
    np.testing.assert_allclose(np.sqrt(2 * tight), [0.04862, 0.34464, 0.62179], atol=6e-6)
    np.testing.assert_allclose(classical + 2 * np.sqrt(classical * np.log(1e3)), epsilon, rtol=1e-12)
    # The best of many orders gives this delta, and no order a smaller one.
    np.testing.assert_allclose(log_delta(np.asarray(tight), epsilon), np.log(1e-3), atol=1e-7)


EPSILON, DELTA = (v.ravel() for v in np.meshgrid([1e-6, 1e-4, 1e-3, 0.1, 1.0, 10.0], [1e-30, 1e-12, 1e-6, 1e-2]))


def test_float32_stays_on_the_safe_side():
    """Within its rounding: a part in 10^5 of delta's logarithm, and never below the classical conversion."""
    tight = np.asarray(zcdp_of(EPSILON, delta=DELTA), np.float64)
    assert tight.min() > 0
    excess = log_delta(tight, EPSILON) - np.log(DELTA)
    assert excess.max() < 2e-5 * -np.log(DELTA).min()
    assert (log_delta(1.01 * tight, EPSILON) - np.log(DELTA)).min() > 1e-4  # control: and no larger rho would do
    assert np.all(tight >= np.asarray(zcdp_of(EPSILON, delta=DELTA, conversion="classical")))


def test_bad_arguments():
    with pytest.raises(ValueError, match="delta"):
        zcdp_of(1.0, delta=1.0)
    with pytest.raises(ValueError, match="epsilon"):
        zcdp_of(1e-39, delta=0.5)  # XLA would take it for zero
    with pytest.raises(ValueError, match="conversion"):
        zcdp_of(1.0, delta=0.5, conversion="loose")
