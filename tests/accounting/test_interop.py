"""The same pipelines through Google's dp-accounting (the extra ``accounting``), and what it cannot
take.
"""

from math import inf

import numpy as np
import pytest

from dpjax.accounting import (
    Guarantee,
    dp_accounting_relation,
    optimal_pure_delta,
    poisson_subsample,
    to_dp_event,
)

library = pytest.importorskip("dp_accounting", reason="the extra accounting is not installed")
rdp = pytest.importorskip("dp_accounting.rdp")
pld = pytest.importorskip("dp_accounting.pld")

RANGE = Guarantee(0.3, 0.3, "add_remove")
PURE = Guarantee(0.3, inf, "swap")
NOISE = Guarantee(neighbors="add_remove", zcdp=0.5)
ORDERS = 1 + np.geomspace(1e-2, 200, 100)


def by_rdp(spent, delta=1e-6):
    accountant = rdp.RdpAccountant(ORDERS, dp_accounting_relation(spent))
    accountant.compose(to_dp_event(spent, accountant="rdp"))
    return accountant.get_epsilon(delta)


def test_rdp_of_a_pipeline_both_ways():
    """The accountant is never tighter than ours, and as tight where only zCDP is known, or pure DP
    under replacement, which is randomised response.
    """
    noise = Guarantee(neighbors="add_remove", zcdp=0.01)
    spent = 40 * RANGE + 10 * Guarantee(0.5, 1.0, "add_remove") + noise
    ours = spent.rules_at(1e-6)["rdp"]
    assert ours <= by_rdp(spent) < 1.25 * ours  # theirs know the rho of pure DP, not its curve
    for only in (7 * noise, 12 * PURE):
        assert by_rdp(only) == pytest.approx(only.rules_at(1e-6)["rdp"], rel=2e-3)
    assert isinstance(to_dp_event(PURE, accountant="rdp"), library.RandomizedResponseDpEvent)
    event = to_dp_event(RANGE, accountant="rdp")
    assert event == library.ZCDpEvent(0.3**2 / 8)
    loop = rdp.RdpAccountant(ORDERS, dp_accounting_relation(RANGE))
    for _ in range(25):
        loop.compose(event)
    assert by_rdp(25 * RANGE) == pytest.approx(loop.get_epsilon(1e-6), rel=1e-12)


def test_pld_of_pure_dp_is_the_optimal_composition():
    """Events are repeated: a count of randomised responses is ignored by release 0.6.0."""
    spent = 6 * PURE + 3 * Guarantee(0.5, inf, "swap")
    accountant = pld.PLDAccountant(dp_accounting_relation(spent))
    accountant.compose(to_dp_event(spent, accountant="pld"))
    for epsilon in (0.5, 1.0, 2.0):
        exact = optimal_pure_delta([0.3, 0.5], [6, 3], epsilon=epsilon)
        assert accountant.get_delta(epsilon) == pytest.approx(exact, rel=2e-3)


def test_what_has_no_event():
    assert dp_accounting_relation(Guarantee(1.0, 1.0, "edge")).name == "ADD_OR_REMOVE_ONE"
    loose = Guarantee(1.0, inf, "swap", delta=1e-6)
    for spent, accountant, message in (
        (RANGE, "pld", "under swap neighbors only"),
        (Guarantee(neighbors="swap", zcdp=0.1), "pld", "pure DP only"),
        (loose, "rdp", "no event"),
        (loose, "pld", "pure DP only"),
        (10**9 * PURE, "pld", "too many"),
        (poisson_subsample(NOISE, probability=0.1), "rdp", "curve"),
    ):
        with pytest.raises(ValueError, match=message):
            to_dp_event(spent, accountant=accountant)


def test_subsampled_gaussian_noise():
    """Their Renyi divergences at our orders."""
    ours = poisson_subsample(NOISE, probability=0.05)
    theirs = rdp.RdpAccountant([order for order, _ in ours.renyi if order < 300])
    theirs.compose(library.PoissonSampledDpEvent(0.05, library.GaussianDpEvent(1.0)), 200)
    assert (200 * ours).epsilon_at(1e-5) == pytest.approx(theirs.get_epsilon(1e-5), rel=1e-6)
