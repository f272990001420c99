"""What one draw of each mechanism costs: the promise of the call of the registry, by its relation
and budget, and refusals.
"""

import dataclasses
from functools import cache

import pytest

from dpjax import mechanisms
from tests.contracts import calls
from tests.contracts.calls import given
from tests.contracts.public import function, functions
from tests.contracts.test_refusals import accepted

ONCE = {"attempts": 3, "fallback": "public"}
CHOICE = {"epsilon": 0.5, "neighbors": "swap"}
inf = float("inf")
NAMES = [
    name
    for package, name in functions()
    if package == "mechanisms" and hasattr(function(package, name), "guarantee")
]


@cache
def costs():
    """Valid calls of each guarantee, with its epsilon, bounded range and delta."""
    return {
        "above_threshold": (given("swap", 0.5), (0.5, 1.0, 0.0)),
        "best_of": (given(calls.PURE, attempts=(0.5, 0.5)), (0.6336, 1.2672, 0.0)),
        "bounded_loss": (
            given(calls.PURE, epsilon=0.5, delta=1e-3, failure=0.1, **ONCE),
            (1.0683, inf, 0.00211),
        ),
        "bounded_noise_laplace": (given("swap", 0.5, delta=1e-3), (0.5, inf, 1e-3)),
        "decomposable_exponential": (given(calls.X, **CHOICE, sensitivity=1.0), (0.5, 0.5, 0)),
        "duff": (given(calls.median(), 0.5), (0.5, 0.5, 0.0)),
        "exponential": (given("swap", 0.5), (0.5, 0.5, 0.0)),
        "gaussian": (given("swap", 2.0, sensitivity=1.0), (inf, inf, 0.0)),
        "inverse_sensitivity": (given("swap", 0.5), (0.5, 0.5, 0.0)),
        "joint_quantiles": (given(calls.asked(), 0.5), (0.5, 1.0, 0.0)),
        "k_norm": (given("swap", 0.5), (0.5, 1.0, 0.0)),
        "laplace": (given("swap", 0.5), (0.5, 1.0, 0.0)),
        "never_fail": (given(calls.PURE, failure=0.1, **ONCE), (0.5, inf, 1e-3)),
        "noisy_binary_search": (
            given("add_remove", num_candidates=9, epsilon=0.5),
            (0.5, 1.0, 0),
        ),
        "noisy_tree": (given(calls.X, **CHOICE), (0.5, 1.0, 0.0)),
        "permute_and_flip": (given("swap", 0.5), (0.5, 1.0, 0.0)),
        "piecewise_laplace": (given("swap", 0.5), (0.5, 0.5, 0.0)),
        "propose_test_release": (given("swap", 0.5, delta=1e-3), (0.5, inf, 1e-3)),
        "shifted_inverse": (given("add_remove", 0.5), (0.5, 0.5, 0.0)),
        "smooth_cauchy": (given("swap", 0.5), (0.5, 1.0, 0.0)),
        "smooth_laplace": (given("swap", 0.5, delta=1e-3), (0.5, inf, 1e-3)),
        "smooth_laplace_log_normal": (given("swap", 0.5), (inf, inf, 0.0)),
        "spherical_gaussian": (given("swap", 2.0, sensitivity=1.0), (inf, inf, 0.0)),
        "stand_out": (given("swap", 0.5, delta=1e-3), (0.5, inf, 1e-3)),
        "subsampled_laplace": (given("add_remove", 0.5), (0.5, 1.0, 0.0)),
    }


# Of Gaussian noise: rho
ZCDP = {"gaussian": 0.125, "spherical_gaussian": 0.125, "smooth_laplace_log_normal": 0.5}


def cost_of(name, relation=None):
    (first, *arguments), options = costs()[name][0]
    return getattr(mechanisms, name).guarantee(relation or first, *arguments, **options), first


def test_only_mechanisms_have_guarantees():
    costly = {
        package for package, name in functions() if hasattr(function(package, name), "guarantee")
    }
    assert costly == {"mechanisms", "metric_privacy"}
    assert costs().keys() == {*NAMES}


@pytest.mark.parametrize("name", NAMES)
def test_a_draw_costs_what_was_asked_for(name):
    epsilon, bounded_range, delta = costs()[name][1]
    found, first = cost_of(name)
    relation = first if isinstance(first, str) else getattr(first, "neighbors", "swap")
    assert found.neighbors == relation
    assert found.epsilon == pytest.approx(epsilon, rel=1e-4)
    assert found.bounded_range == pytest.approx(bounded_range, rel=1e-4)
    assert found.delta == pytest.approx(delta, rel=1e-9)
    if name in ZCDP:
        assert found.zcdp == pytest.approx(ZCDP[name])
    if name == "subsampled_laplace":  # a promise under one relation is none under another
        with pytest.raises(ValueError, match="relation"):
            cost_of(name, "swap")
    elif isinstance(first, str):
        for other in ("swap", "add_remove"):
            assert cost_of(name, other)[0] == dataclasses.replace(found, neighbors=other)


@pytest.mark.parametrize("name", NAMES)
def test_a_wrong_budget_or_relation_is_named(name):
    assert (
        accepted(getattr(mechanisms, name).guarantee, costs()[name][0], f"{name}.guarantee") == []
    )
