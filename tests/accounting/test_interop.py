"""The same pipelines through Google's dp-accounting (the extra ``accounting``), and what it cannot
take.
"""

from math import inf

import numpy as np
import pytest

from dpjax.accounting import (
    Guarantee,
    composition_theorems,
    dp_accounting_relation,
    poisson_subsample,
    rdp_of_pure,
    to_dp_event,
)

library = pytest.importorskip("dp_accounting", reason="the extra accounting is not installed")
rdp = pytest.importorskip("dp_accounting.rdp")
pld = pytest.importorskip("dp_accounting.pld")

RANGE = Guarantee(0.3, 0.3, "add_remove")
PURE = Guarantee(0.3, inf, "swap")
NOISE = Guarantee(neighbors="add_remove", zcdp=0.5)
ORDERS = np.concatenate([1 + np.geomspace(1e-2, 200, 200)])


def by_rdp(spent, delta, *, events=None):
    accountant = rdp.RdpAccountant(ORDERS, dp_accounting_relation(spent))
    for event in events or [to_dp_event(spent, accountant="rdp")]:
        accountant.compose(event)
    return accountant.get_epsilon(delta)


def test_rdp_of_a_pipeline_both_ways():
    """zCDP events: the accountant is never tighter than ours, and as tight where only zCDP is
    known.
    """
    spent = (
        40 * RANGE
        + 10 * Guarantee(0.5, 1.0, "add_remove")
        + Guarantee(neighbors="add_remove", zcdp=0.01)
    )
    theirs = by_rdp(spent, 1e-6)
    ours = spent.rules_at(1e-6)["rdp"]
    assert ours <= theirs < 1.25 * ours  # their events know the rho of pure DP, not its curve
    only = 7 * Guarantee(neighbors="add_remove", zcdp=0.01)
    # Equal at their orders.
    assert by_rdp(only, 1e-6) == pytest.approx(only.rules_at(1e-6)["rdp"], rel=1e-3)


def test_self_composition_equals_the_loop():
    event = to_dp_event(RANGE, accountant="rdp")
    assert event == library.ZCDpEvent(0.3**2 / 8)
    composed, loop = by_rdp(25 * RANGE, 1e-6), by_rdp(RANGE, 1e-6, events=[event] * 25)
    assert composed == pytest.approx(loop, rel=1e-12)
    assert by_rdp(RANGE, 1e-6) < 0.5 * composed  # an event whose count is ignored would give this


def test_pure_dp_under_replacement_is_randomised_response():
    spent = 12 * PURE
    accountant = rdp.RdpAccountant(ORDERS, dp_accounting_relation(spent))
    event = to_dp_event(PURE, accountant="rdp")
    assert isinstance(event, library.RandomizedResponseDpEvent)
    accountant.compose(to_dp_event(spent, accountant="rdp"))
    np.testing.assert_allclose(
        accountant._rdp, 12 * np.asarray(rdp_of_pure(0.3, order=ORDERS)), rtol=2e-3
    )
    assert accountant.get_epsilon(1e-6) == pytest.approx(spent.rules_at(1e-6)["rdp"], rel=2e-3)


def test_pld_of_pure_dp_is_the_optimal_composition():
    spent = 6 * PURE + 3 * Guarantee(0.5, inf, "swap")
    accountant = pld.PLDAccountant(dp_accounting_relation(spent))
    accountant.compose(to_dp_event(spent, accountant="pld"))
    for epsilon in (0.5, 1.0, 2.0):
        exact = composition_theorems.optimal_pure_delta([0.3, 0.5], [6, 3], epsilon=epsilon)
        assert accountant.get_delta(epsilon) == pytest.approx(exact, rel=2e-3)
    # Why events are repeated there: a count of randomised responses is ignored by release 0.6.0.
    once, counted = (pld.PLDAccountant(dp_accounting_relation(spent)) for _ in range(2))
    event = to_dp_event(PURE, accountant="pld")
    once.compose(event)
    counted.compose(library.SelfComposedDpEvent(event, 6))
    if counted.get_delta(0.1) == once.get_delta(0.1):
        assert len(to_dp_event(6 * PURE, accountant="pld").events) == 6


def test_what_has_no_event():
    assert dp_accounting_relation(Guarantee(1.0, 1.0, "edge")).name == "ADD_OR_REMOVE_ONE"
    for spent, accountant, message in (
        (RANGE, "pld", "under swap neighbors only"),
        (Guarantee(neighbors="swap", zcdp=0.1), "pld", "pure DP only"),
        (Guarantee(1.0, inf, "swap", delta=1e-6), "rdp", "no event"),
        (Guarantee(1.0, inf, "swap", delta=1e-6), "pld", "pure DP only"),
        (RANGE, "gdp", "accountant"),
        (10**9 * PURE, "pld", "too many"),
        (poisson_subsample(NOISE, probability=0.1), "rdp", "curve"),
    ):
        with pytest.raises(ValueError, match=message):
            to_dp_event(spent, accountant=accountant)


def test_subsampled_gaussian_noise():
    """Their Renyi divergences at our orders, and their privacy loss distribution, which is smaller
    than what follows from them.
    """
    ours = poisson_subsample(NOISE, probability=0.05)
    orders = [order for order, _ in ours.renyi if order < 300]
    by_order, by_loss = rdp.RdpAccountant(orders), pld.PLDAccountant()
    for accountant in (by_order, by_loss):
        accountant.compose(library.PoissonSampledDpEvent(0.05, library.GaussianDpEvent(1.0)), 200)
    np.testing.assert_allclose(200 * ours.rdp(orders), by_order._rdp, rtol=1e-9)
    whole = (200 * ours).epsilon_at(1e-5)
    assert whole == pytest.approx(by_order.get_epsilon(1e-5), rel=1e-6)
    assert by_loss.get_epsilon(1e-5) < whole < 1.2 * by_loss.get_epsilon(1e-5)
