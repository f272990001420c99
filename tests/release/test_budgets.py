"""Whatever draws charges a budget before, exactly what it says it costs; refused or mistaken, it
neither charges nor draws.
"""

import inspect
import json
import os
from fractions import Fraction

import numpy as np
import pytest

from dpjax import release
from dpjax.accounting import BudgetExceeded, Guarantee, Ledger, PrivacyFilter
from dpjax.metric_privacy import from_budgets
from dpjax.release import Statistic

RECORDS = np.array([[3, 4, 4, 6, 9, 1, 2, 2], [3, 1, 4, 1, 5, 9, 2, 6]])
BOUNDS = {"lower": 0, "upper": 10, "resolution": 1}
ADDED, REPLACED = (
    {"epsilon": 0.75, "neighbors": "add_remove"},
    {"epsilon": 0.75, "neighbors": "swap"},
)
PAIRS = from_budgets(np.full((2, 2), 0.5) - 0.5 * np.eye(2))
NO_PAIR = from_budgets([[0.0, np.inf], [np.inf, 0.0]])

CASES = {
    "median": ("median", (RECORDS,), BOUNDS | ADDED),
    "median of one row": ("median", (RECORDS[0],), BOUNDS | REPLACED | {"draws": 3}),
    "median by permute and flip": (
        "median",
        (RECORDS,),
        BOUNDS | ADDED | {"mechanism": "permute_and_flip"},
    ),
    "median of counts": ("median", ([1, 2, 3],), BOUNDS | ADDED | {"counts": [5, 0, 7]}),
    "quantile": ("quantile", (RECORDS, "1/3"), BOUNDS | ADDED | {"draws": 2}),
    "order_statistic": ("order_statistic", (RECORDS, 3), BOUNDS | REPLACED),
    "maximum": ("maximum", (RECORDS,), BOUNDS | ADDED | {"tau": 2}),
    "nonnegative_sum": (
        "nonnegative_sum",
        (RECORDS,),
        ADDED | {"tau": 1, "upper": 99, "resolution": 1},
    ),
    "user_sum": (
        "user_sum",
        (RECORDS, ["a", "b"] * 4),
        ADDED | {"tau": 1, "upper": 99, "resolution": 1, "draws": 2},
    ),
    "distinct_count": ("distinct_count", (RECORDS,), ADDED | {"tau": 1, "upper": 9}),
    "sum": ("sum", (RECORDS,), BOUNDS | REPLACED),
    "mean": ("mean", (RECORDS,), BOUNDS | REPLACED | {"draws": 4}),
    "count": ("count", (RECORDS,), {"epsilon": 0.75, "draws": 2}),
    "histogram": ("histogram", (RECORDS,), {"epsilon": 0.75, "edges": (0, 3, 9)}),
    "mode": ("mode", (RECORDS,), ADDED | {"candidates": (1, 4, 9)}),
    "release_choice": (
        "release_choice",
        (RECORDS,),
        REPLACED | {"sensitivity": Fraction(1, 2), "lower": 0, "upper": 9},
    ),
    "joint_quantiles": (
        "joint_quantiles",
        (RECORDS, [0.25, 0.5]),
        BOUNDS | ADDED | {"draws": 2, "max_records": 20},
    ),
    "joint_quantiles of n": (
        "joint_quantiles",
        (RECORDS, [0.25, 0.5]),
        BOUNDS | ADDED | {"public_n": 8},
    ),
    "recursive_quantiles": (
        "recursive_quantiles",
        (RECORDS, [0.25, 0.5, 0.75]),
        BOUNDS | REPLACED | {"draws": 2},
    ),
    "nested_quantiles": (
        "nested_quantiles",
        (RECORDS, [0.25, 0.5, 0.75]),
        BOUNDS | ADDED | {"draws": 2},
    ),
    "nested_quantiles of n": (
        "nested_quantiles",
        (RECORDS, [0.25, 0.5, 0.75]),
        BOUNDS | ADDED | {"public_n": 8},
    ),
    "private_quantiles": (
        "private_quantiles",
        (RECORDS, [0.25, 0.5]),
        BOUNDS | REPLACED | {"draws": 2},
    ),
    "confidence_interval": (
        "confidence_interval",
        (np.arange(900) % 11, 0.5),
        BOUNDS | REPLACED | {"epsilon": 4.0, "ties": 90},
    ),
    "metric_laplace": ("metric_laplace", ([3, 4], [[1, 0]], PAIRS), {"resolution": 1, "draws": 2}),
    "metric_choice": (
        "metric_choice",
        ([3, 4], PAIRS),
        {"weights": [[1, 0], [0, 1]], "resolution": 1},
    ),
    "small_db": ("small_db", ([3, 4], [[1, 0]], PAIRS), {"size": 2, "resolution": 1, "draws": 3}),
}


def drawn(name, **more):
    function, given, public = CASES[name]
    return getattr(release, function)(*given, **public, **more)


def plain(guarantee):
    """The guarantee, or the one that follows from a metric."""
    return (
        guarantee
        if isinstance(guarantee, Guarantee)
        else guarantee.guarantee(neighbors=guarantee.neighbors)
    )


@pytest.fixture
def no_entropy(monkeypatch):
    def fails(size):
        raise AssertionError("something was drawn")

    monkeypatch.setattr(os, "urandom", fails)


def test_every_function_that_draws_takes_a_budget():
    functions = {name for name in release.__all__ if "draws" in _parameters(name)}
    assert functions == {function for function, _, _ in CASES.values()}
    for name in functions:
        assert _parameters(name)["budget"].default is None


def _parameters(name):
    value = getattr(release, name)
    return inspect.signature(value).parameters if inspect.isfunction(value) else {}


@pytest.mark.parametrize("name", CASES)
def test_a_budget_is_charged_the_guarantee(name, tmp_path):
    ledger = Ledger(
        tmp_path / "ledger",
        epsilon=40.0,
        neighbors=CASES[name][2].get("neighbors", _relation(name)),
    )
    budget = PrivacyFilter(40.0, 0.0, ledger.totals["neighbors"])
    known = plain(drawn(name, budget=ledger).guarantee)
    (entry,) = ledger.entries
    assert Guarantee.from_dict(entry["guarantee"]) == known
    assert set(entry["what"]) == {"statistic", "draws"}
    assert entry["what"]["draws"] == CASES[name][2].get("draws", 1)
    assert json.dumps(entry["what"]["statistic"]["statistic"])
    assert plain(drawn(name, budget=budget).guarantee) == known
    assert budget.spent == ledger.spent == min(known.epsilon, known.bounded_range)


def _relation(name):
    return (
        "swap"
        if CASES[name][0] in ("metric_laplace", "metric_choice", "small_db")
        else "add_remove"
    )


def test_the_ledger_has_the_statistic(tmp_path):
    ledger = Ledger(tmp_path / "ledger", epsilon=40.0)
    for name in ("median", "quantile", "joint_quantiles", "histogram"):
        drawn(name, budget=ledger)
    kinds = [Statistic.from_dict(entry["what"]["statistic"]) for entry in ledger.entries]
    assert kinds[0] == release.Median(0, 10, 1)
    assert kinds[1] == release.Quantile("1/3", 0, 10, 1)
    assert [type(kind).__name__ for kind in kinds] == [
        "Median",
        "Quantile",
        "Quantiles",
        "Histogram",
    ]


@pytest.mark.parametrize("name", CASES)
def test_what_is_refused_is_neither_charged_nor_drawn(name, no_entropy):
    budget = PrivacyFilter(1e-3, 0.0, CASES[name][2].get("neighbors", _relation(name)))
    with pytest.raises(BudgetExceeded, match=r"exceeds the remaining epsilon 0.001 of 0.001"):
        drawn(name, budget=budget)
    assert budget.spent == 0
    with pytest.raises(TypeError, match="a PrivacyFilter or a Ledger"):
        drawn(name, budget=1.0)
    with pytest.raises(AssertionError, match="something was drawn"):  # the control
        drawn(name)


TINY, SMALL = {"epsilon": 2.0**-20}, {"epsilon": 2.0**-29}
FINE = {"lower": 0, "upper": 2**31 - 4, "resolution": 1}
SHARP = from_budgets([[0.0, 2.0**25], [2.0**25, 0.0]])

MISTAKES = {
    "too small for permute and flip": lambda **b: drawn_with(
        "median by permute and flip", TINY, **b
    ),
    "bounds": lambda **b: drawn_with("median", {"upper": 0}, **b),
    "epsilon": lambda **b: drawn_with("median", {"epsilon": 100.0}, **b),
    "draws": lambda **b: drawn_with("median", {"draws": 0}, **b),
    "mask": lambda **b: drawn_with("median", {"mask": [True, False]}, **b),
    "rows of text": lambda **b: release.median(np.array(["a"]), **BOUNDS, **ADDED, **b),
    "persons": lambda **b: release.user_sum(
        [1, 2], [1, 2, 3], tau=1, upper=9, resolution=1, **ADDED, **b
    ),
    "no records": lambda **b: release.mean(np.zeros((2, 0)), **BOUNDS, **REPLACED, **b),
    "too many records": lambda **b: release.sum(np.zeros((1, 2**23)), **FINE, **REPLACED, **b),
    "a choice too sharp": lambda **b: drawn_with("mode", {"epsilon": 60.0}, **b),
    "scores": lambda **b: release.release_choice(
        [[0.5]], sensitivity=1, lower=0, upper=1, **REPLACED, **b
    ),
    "sensitivity": lambda **b: drawn_with("release_choice", {"sensitivity": Fraction(1, 100)}, **b),
    "no max_records": lambda **b: release.joint_quantiles(
        [1, 2], [0.25, 0.5], **BOUNDS, **ADDED, **b
    ),
    "denominators": lambda **b: release.joint_quantiles(
        [[1, 2]], ["1/12289", "1/12281"], max_records=9, **BOUNDS, **ADDED, **b
    ),
    "terms": lambda **b: drawn_with("joint_quantiles", {"terms": 1}, **b),
    "n": lambda **b: drawn_with("joint_quantiles", {"public_n": -1}, **b),
    "too small for a recursion": lambda **b: drawn_with("recursive_quantiles", SMALL, **b),
    "too small for half of it": lambda **b: drawn_with(
        "recursive_quantiles", {"epsilon": 2.0**-28.5}, **b
    ),
    "coverage": lambda **b: drawn_with("confidence_interval", {"epsilon": 0.01}, **b),
    "noise too small": lambda **b: release.metric_laplace(
        [3, 4], [[1, 0]], SHARP, resolution=1, **b
    ),
    "a metric without budgets": lambda **b: release.metric_laplace(
        [3, 4], [[1, 0]], NO_PAIR, resolution=1, **b
    ),
    "too many scores": lambda **b: release.metric_choice(
        [10**16, 0], PAIRS, weights=[[1, 0], [0, 1]], resolution=1, **b
    ),
    "a size": lambda **b: drawn_with("small_db", {"size": 0}, **b),
}


def drawn_with(name, changes, **more):
    function, given, public = CASES[name]
    return getattr(release, function)(*given, **(public | changes), **more)


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_not_charged(name):
    budgets = [PrivacyFilter(1e9, 0.0, neighbors) for neighbors in ("add_remove", "swap")]
    raised = []
    for budget in budgets:
        with pytest.raises((ValueError, TypeError)) as found:
            MISTAKES[name](budget=budget)
        raised.append(str(found.value))
    assert (
        not any("this budget is under" in message for message in raised)
        or name == "a metric without budgets"
    )
    assert [budget.spent for budget in budgets] == [0, 0]
