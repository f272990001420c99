"""Trade-off curves: exact ones against all likelihood ratio tests, and what guarantees promise of
them.
"""

from math import exp, inf

import numpy as np
from scipy.stats import norm

from dpjax import Guarantee, laplace
from dpjax.accounting import trade_off_bound
from dpjax.auditing import privacy_loss, trade_off

RATES = np.array([0.01, 0.05, 0.2, 0.3, 0.5, 0.9])


def by_likelihood_ratio(p, q, rates=RATES):
    """The false negative rates of randomised likelihood ratio tests of vectors p against q."""
    order = np.argsort(-q / np.maximum(p, 1e-300))
    rejected, missed = np.append(0, np.cumsum(p[order])), 1 - np.append(0, np.cumsum(q[order]))
    return np.interp(rates, rejected, missed)


def test_finite_pairs():
    rng = np.random.default_rng(0)
    p, q = rng.dirichlet(np.ones(6), (2, 5))
    p[0, 0] = q[1, 3] = 0  # outcomes that one of them has alone
    p, q = p / p.sum(-1, keepdims=True), q / q.sum(-1, keepdims=True)
    with np.errstate(divide="ignore"):
        loss = privacy_loss(np.log(p), np.log(q))
    ways = ("forward", "backward", "both")
    forward, backward, both = (trade_off(loss, RATES[:, None], direction=way).T for way in ways)
    for found, first, second in ((forward, p, q), (backward, q, p)):
        exact = [by_likelihood_ratio(*rows) for rows in zip(first, second, strict=True)]
        np.testing.assert_allclose(found, exact, atol=1e-9)
    np.testing.assert_allclose(both, np.minimum(forward, backward), atol=1e-15)
    assert np.abs(forward - backward).max() > 0.05


def laplace_curve():
    """Dong, Roth and Su (2022), Equation 6."""
    steep, flat = 1 - exp(1) * RATES, exp(-1) * (1 - RATES)
    return np.where(exp(-1) / 2 > RATES, steep, np.where(RATES <= 0.5, exp(-1) / (4 * RATES), flat))


def test_laplace_noise_in_closed_form(x64):
    pair = (laplace(value, 1.0, sensitivity=1.0) for value in (0.0, 1.0))
    np.testing.assert_allclose(trade_off(privacy_loss(*pair), RATES), laplace_curve(), atol=1e-12)


def test_what_laplace_noise_promises():
    exact = laplace_curve()
    assert (trade_off_bound(Guarantee(1.0, inf, "swap"), RATES) <= exact + 1e-12).all()
    lost = exact - trade_off_bound(Guarantee(1.0, 2.0, "swap", laplace=1.0), RATES)
    assert ((lost >= -1e-12) & (lost < 0.01)).all()
    assert (trade_off_bound(Guarantee(0.9, inf, "swap"), RATES) > exact).any()  # control


def test_what_guarantees_promise():
    response = np.array([exp(0.7), 1]) / (1 + exp(0.7))
    for spent, exact in (
        (Guarantee(0.7, inf, "swap"), by_likelihood_ratio(response, response[::-1])),
        (4 * Guarantee(neighbors="swap", gdp=0.5), norm.cdf(norm.ppf(1 - RATES) - 1.0)),
        (
            Guarantee(0.5, inf, "swap", delta=0.1),
            np.maximum(0, np.maximum(0.9 - exp(0.5) * RATES, exp(-0.5) * (0.9 - RATES))),
        ),
        (Guarantee(neighbors="swap"), np.zeros(RATES.size)),
    ):
        np.testing.assert_allclose(trade_off_bound(spent, RATES), exact, atol=1e-9)
    ends = trade_off_bound(Guarantee(1.0, 1.0, "swap"), [0.0, 1.0])
    np.testing.assert_allclose(ends, [1.0, 0.0], atol=1e-12)
    p, right = np.ones(1), 1 / (1 + exp(-0.3))
    for _ in range(10):
        p = np.outer(p, [right, 1 - right]).ravel()
    exact, each = by_likelihood_ratio(p, p[::-1]), Guarantee(0.3, inf, "swap")
    ten = trade_off_bound(10 * each, RATES)
    assert ((ten <= exact + 1e-12) & (exact - ten < 0.02)).all()
    assert (trade_off_bound(9 * each, RATES) > exact).any()  # control


def test_gaussian_noise_at_tiny_rates():
    """Phi(Phi^-1(1 - a) - mu) where 1 - a is 1; by 40 digits."""
    for mu, rate, exact in (
        (9.0, 1e-20, 0.603470371590465),
        (6.0, 1e-9, 0.499125126267519),
    ):
        found = float(trade_off_bound(Guarantee(neighbors="swap", gdp=mu), rate))
        assert exact * (1 - 1e-9) <= found <= exact * (1 + 1e-12)
