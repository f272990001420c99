"""Conversions against their formulas by many orders, against quadrature, and against numbers
computed apart.
"""

import json
import pathlib

import numpy as np
import pytest

from dpjax import accounting
from dpjax.accounting import zcdp_of

GOLDEN = json.loads(
    (pathlib.Path(__file__).parents[1] / "golden" / "F_accounting.json").read_text()
)

ORDERS = 1 + np.exp(np.linspace(-6, 40, 50_001))[:, None]


def log_delta(rho, epsilon):
    """The smallest log delta of rho-zCDP at epsilon, over the orders."""
    a = ORDERS
    return np.min((a - 1) * (a * rho - epsilon) - np.log(a - 1) + a * np.log1p(-1 / a), axis=0)


def of(name, pick=float):
    """Arguments ``(number, cases)`` and values of one table of golden numbers."""
    keys = [[float(part.split("=")[-1]) for part in key.split(",")] for key in GOLDEN[name]]
    return np.array(keys).T, np.array([float(pick(value)) for value in GOLDEN[name].values()])


def line(rho):
    """The Renyi divergences of rho of zCDP."""
    return lambda order: rho[:, None] * order


CURVES = {
    "pdp_to_rdp": accounting.rdp_of_pure,
    "laplace_rdp": accounting.rdp_of_laplace,
    "br_rdp_tight": accounting.rdp_of_bounded_range,
}


@pytest.mark.parametrize("name", CURVES)
def test_renyi_divergences_have_their_golden_values(name):
    curve = CURVES[name]
    (epsilon, order), expected = of(name, lambda value: value[0] if name[0] == "b" else value)
    np.testing.assert_allclose(curve(epsilon, order=order), expected, rtol=1e-12)
    # What one percent of epsilon changes
    assert np.abs(curve(1.01 * epsilon, order=order) / expected - 1).min() > 1e-4


def test_golden_values():
    for name, promise in (("pdp_to_zcdp", "epsilon"), ("br_to_zcdp_eps2_8", "bounded_range")):
        (epsilon,), expected = of(name)
        found = [accounting.Guarantee(**{promise: e}, neighbors="swap").zcdp for e in epsilon]
        np.testing.assert_allclose(found, expected, rtol=1e-12)
    (rho, delta), expected = of("zcdp_to_eps", lambda value: value["tight_eps_alpha"][0])
    found = np.asarray(accounting.epsilon_of_rdp(line(rho), delta=delta))
    np.testing.assert_allclose(found, expected, rtol=1e-11)
    np.testing.assert_allclose(accounting.delta_of_rdp(line(rho), epsilon=found), delta, rtol=1e-9)
    np.testing.assert_allclose(zcdp_of(found, delta=delta), rho, rtol=1e-10)
    assert (found < of("zcdp_to_eps", lambda value: value["classical"])[1]).all()
    (rho, epsilon), expected = of("zcdp_to_delta", lambda value: value["tight"][0])
    found = np.asarray(accounting.delta_of_rdp(line(rho), epsilon=epsilon))
    np.testing.assert_allclose(found, expected, rtol=1e-11)
    assert (found > of("zcdp_to_delta", lambda v: v["gaussian_exact_lower_bound"])[1]).all()
    # Near order 1, where differences cancel, it is rounded up to the Kullback-Leibler divergence
    (epsilon,), expected = of("br_max_KL")
    near_one = np.asarray(accounting.rdp_of_bounded_range(epsilon, order=1 + 1e-9))
    assert ((near_one >= expected) & (near_one <= expected * (1 + 1e-4))).all()
    laplace = np.asarray(accounting.rdp_of_laplace(epsilon, order=1 + 1e-8))
    limit = epsilon + np.expm1(-epsilon)
    assert ((laplace >= limit * (1 - 1e-15)) & (laplace <= limit * (1 + 1e-7))).all()


EPSILON, DELTA = (
    v.ravel() for v in np.meshgrid([1e-6, 1e-4, 1e-3, 0.1, 1.0, 10.0], [1e-30, 1e-12, 1e-6, 1e-2])
)


def test_a_rho_implies_its_epsilon_and_no_larger_rho_does():
    tight, nats = zcdp_of(EPSILON, delta=DELTA), -np.log(DELTA)
    classical = (EPSILON / (np.sqrt(nats + EPSILON) + np.sqrt(nats))) ** 2
    assert (log_delta(tight, EPSILON) - np.log(DELTA) <= -1e-6 * np.log(DELTA)).all()
    assert (log_delta(1.001 * tight, EPSILON) > np.log(DELTA)).all()  # control
    assert (tight >= classical).all()


def test_curves_at_the_ends():
    """Between 0 and epsilon, finite, and monotone in the order and in epsilon."""
    epsilon = np.array([1e-300, 1e-6, 1e-3, 0.3, 3.0, 80.0, 1e4, 1e300])[:, None]
    order = np.array([1 + 1e-12, 1.001, 1.5, 20.0, 300.0, 1e4, 1e12])[None]
    for curve in CURVES.values():
        assert (curve(0.0, order=order) == 0).all()
        assert (curve(np.inf, order=order) == np.inf).all()
        for wrong in (-1.0, np.nan):
            with pytest.raises(ValueError, match="epsilon must be at least 0"):
                curve(wrong, order=2.0)
        found = curve(epsilon, order=order)
        assert ((found >= 0) & (found <= epsilon * (1 + 1e-12))).all()
        assert (np.diff(found, axis=0) >= -1e-9 * found[1:]).all()
        assert (np.diff(found, axis=1) >= -2e-4 * found[:, 1:]).all()


def test_curves_convert_at_their_best_order():
    """A sum of curves against the search over many orders."""
    delta, order = 1e-6, ORDERS[:25_000, 0]

    def curve(order):
        return 12 * accounting.rdp_of_bounded_range(0.4, order=order) + 0.02 * order

    found = accounting.epsilon_of_rdp(curve, delta=delta)
    share = (order - 1) * np.log1p(-1 / order) - np.log(order)
    by_hand = np.min(curve(order) + (share - np.log(delta)) / (order - 1))
    assert abs(found - by_hand) < 1e-6
    assert accounting.delta_of_rdp(curve, epsilon=found) == pytest.approx(delta, rel=1e-9)
