"""Trade-off curves: exact ones against all likelihood ratio tests, and what guarantees promise of
them.
"""

from math import exp, inf

import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import norm

from dpjax import Finite, Guarantee, laplace
from dpjax.accounting import trade_off_bound
from dpjax.auditing import privacy_loss, trade_off

RATES = np.array([0.01, 0.05, 0.2, 0.5, 0.9])


def by_likelihood_ratio(p, q, rates):
    """The false negative rates of randomised likelihood ratio tests of vectors p against q."""
    order = np.argsort(-q / np.maximum(p, 1e-300))
    rejected, missed = np.append(0, np.cumsum(p[order])), 1 - np.append(0, np.cumsum(q[order]))
    return np.interp(rates, rejected, missed)


def test_finite_pairs(x64):
    rng = np.random.default_rng(0)
    p, q = rng.dirichlet(np.ones(6), 5), rng.dirichlet(np.ones(6), 5)
    p[0, 0] = q[1, 3] = 0  # outcomes that one of them has alone
    p, q = p / p.sum(-1, keepdims=True), q / q.sum(-1, keepdims=True)
    with np.errstate(divide="ignore"):
        pair = [Finite(jnp.arange(6.0), -jnp.log(one), jnp.asarray(1.0)) for one in (p, q)]
    loss = privacy_loss(*pair)
    forward, backward = (
        np.asarray(trade_off(loss, RATES[:, None], direction=d)).T for d in ("forward", "backward")
    )
    for row in range(5):
        np.testing.assert_allclose(
            forward[row], by_likelihood_ratio(p[row], q[row], RATES), atol=1e-9
        )
        np.testing.assert_allclose(
            backward[row], by_likelihood_ratio(q[row], p[row], RATES), atol=1e-9
        )
    np.testing.assert_array_equal(trade_off(loss, RATES[:, None]), np.minimum(forward, backward).T)
    assert np.abs(forward - backward).max() > 0.05
    for bad in (0.0, 1.0):
        with pytest.raises(ValueError, match="false_positive"):
            trade_off(loss, bad)
    with pytest.raises(ValueError, match="direction"):
        trade_off(loss, 0.5, direction="up")


def laplace_curve(rates, mu):
    """Dong, Roth and Su (2022), Equation 6."""
    low, high = exp(-mu) / 2, 0.5
    middle = exp(-mu) / (4 * np.maximum(rates, 1e-12))
    return np.where(
        rates < low, 1 - exp(mu) * rates, np.where(rates <= high, middle, exp(-mu) * (1 - rates))
    )


def test_laplace_noise_in_closed_form(x64):
    loss = privacy_loss(laplace(0.0, 1.0, sensitivity=1.0), laplace(1.0, 1.0, sensitivity=1.0))
    rates = np.append(RATES, 0.3)
    exact = laplace_curve(rates, 1.0)
    np.testing.assert_allclose(trade_off(loss, rates), exact, atol=1e-12)
    assert (trade_off_bound(Guarantee(1.0, inf, "swap"), rates) <= exact + 1e-12).all()
    lost = exact - trade_off_bound(Guarantee(1.0, 2.0, "swap", noise=("laplace", 1.0, 1.0)), rates)
    assert (lost >= -1e-12).all()
    assert (lost < 0.01).all()
    assert (trade_off_bound(Guarantee(0.9, inf, "swap"), rates) > exact).any()  # control


def test_what_guarantees_promise():
    response = np.array([exp(0.7), 1]) / (1 + exp(0.7))
    np.testing.assert_allclose(
        trade_off_bound(Guarantee(0.7, inf, "swap"), RATES),
        by_likelihood_ratio(response, response[::-1], RATES),
        atol=1e-9,
    )
    np.testing.assert_allclose(
        trade_off_bound(4 * Guarantee(neighbors="swap", gdp=0.5), RATES),
        norm.cdf(norm.ppf(1 - RATES) - 1.0),
        rtol=1e-9,
    )
    approximate = np.maximum(0.9 - exp(0.5) * RATES, exp(-0.5) * (0.9 - RATES))
    np.testing.assert_allclose(
        trade_off_bound(Guarantee(0.5, inf, "swap", delta=0.1), RATES),
        np.maximum(approximate, 0),
        atol=1e-9,
    )
    ten = trade_off_bound(10 * Guarantee(0.3, inf, "swap"), RATES)
    p, q = np.ones(1), np.ones(1)
    for _ in range(10):
        right = 1 / (1 + exp(-0.3))
        p, q = np.outer(p, [right, 1 - right]).ravel(), np.outer(q, [1 - right, right]).ravel()
    exact = by_likelihood_ratio(p, q, RATES)
    assert (ten <= exact + 1e-12).all()
    assert (exact - ten < 0.02).all()
    assert (trade_off_bound(9 * Guarantee(0.3, inf, "swap"), RATES) > exact).any()  # control
    ends = trade_off_bound(Guarantee(1.0, 1.0, "swap"), [0.0, 1.0])
    np.testing.assert_allclose(ends, [1.0, 0.0], atol=1e-12)
    np.testing.assert_array_equal(trade_off_bound(Guarantee(neighbors="swap"), RATES), 0.0)
    for bad in (-0.1, 1.1, float("nan")):
        with pytest.raises(ValueError, match="false_positive"):
            trade_off_bound(Guarantee(1.0, 1.0, "swap"), bad)


def test_gaussian_noise_at_tiny_rates():
    """Phi(Phi^-1(1 - a) - mu) where 1 - a is 1; by 40 digits."""
    for mu, rate, exact in (
        (9.0, 1e-20, 0.603470371590465),
        (8.0, 1e-17, 0.689273890497647),
        (6.0, 1e-9, 0.499125126267519),
    ):
        found = float(trade_off_bound(Guarantee(neighbors="swap", gdp=mu), rate))
        assert exact * (1 - 1e-9) <= found <= exact * (1 + 1e-12)
