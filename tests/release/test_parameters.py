"""Public parameters raise one sentence before a budget is charged; budgets are charged once, before
anything is drawn; and plots.
"""

import json
import os
from fractions import Fraction
from itertools import product

import jax.numpy as jnp
import numpy as np
import pytest

from dpjax import frames, release
from dpjax.accounting import BudgetExceeded, Guarantee, Ledger, PrivacyFilter
from dpjax.release import Floats, Histogram, Maximum, Median, Mode, Quantile

BOUNDS = {"lower": 0, "upper": 10, "resolution": 1}
STATISTICS = {
    "median": Median(**BOUNDS),
    "mode": Mode((1, 4)),
    "sum": release.Sum(**BOUNDS),
    "mean": release.Mean(**BOUNDS),
    "count": release.Count(),
    "histogram": Histogram(edges=(0, 5, 10)),
    "distinct": release.DistinctCount(1, upper=9),
    "total": release.NonnegativeSum(1, upper=9, resolution=1),
}
HUGE = 10**400

WRONG = {
    "epsilon": [HUGE, np.nan, 0, -1.0, 2.0**-40, 65, "one", True, None, np.ones(2), [1.0]],
    "draws": [HUGE, 0, -1, True, 1.0, "one", None, np.array([1, 2])],
    "mechanism": ["laplace", 3, "", ["piecewise_laplace"]],
    "neighbors": ["edge", None, 1, ["swap"]],
}


@pytest.mark.parametrize("name", WRONG)
def test_what_every_release_takes_is_checked_before_the_charge(name):
    for statistic, value in product(STATISTICS.values(), WRONG[name]):
        budget = PrivacyFilter(9.0, 0.0, statistic.relations[-1])
        options = {"epsilon": 1.0, "neighbors": statistic.relations[-1], "budget": budget}
        with pytest.raises((TypeError, ValueError), match=f"{name} must be .*"):
            statistic.release([1, 4], **options | {name: value})
        assert budget.spent == 0


@pytest.mark.parametrize("name", STATISTICS)
def test_mechanisms_and_relations_of_each_statistic(name):
    statistic = STATISTICS[name]
    for neighbors in {"add_remove", "swap"} - {*statistic.relations}:
        with pytest.raises(ValueError, match="neighbors must be"):
            statistic.release([1, 4], epsilon=1.0, neighbors=neighbors)
    for neighbors in statistic.relations:
        options = {"epsilon": 0.1, "neighbors": neighbors, "draws": 3}
        default = statistic.release([1, 4], **options).guarantee
        assert default == Guarantee(default.epsilon, 2 * default.epsilon, neighbors)
        assert Fraction(default.epsilon) >= 3 * Fraction(0.1) > Fraction(default.epsilon) * 0.999
        third = statistic.cost(Fraction(1, 3), 1, neighbors).epsilon
        assert float(Fraction(1, 3)) < Fraction(1, 3) <= third
        for mechanism in statistic.mechanisms[1:]:
            found = statistic.release([1, 4], **options, mechanism=mechanism).guarantee
            assert found == statistic.cost(0.1, 3, neighbors, mechanism)
            assert found.bounded_range == found.epsilon == default.epsilon
    others = {"permute_and_flip", "piecewise_laplace", "exponential"} - {*statistic.mechanisms}
    for mechanism in others:
        with pytest.raises(ValueError, match="mechanism"):
            statistic.cost(1.0, 1, statistic.relations[0], mechanism)


BAD_FIELDS = [
    *((Median, BOUNDS | {"resolution": wrong}) for wrong in (HUGE, 5e-324, 0.3)),
    *((Median, BOUNDS | {"upper": wrong}) for wrong in (HUGE, np.inf, 0)),
    (Median, BOUNDS | {"lower": jnp.array(0.0)}),
    (Median, BOUNDS | {"grid": Floats()}),
    (Median, {"grid": 3}),
    (Median, {"grid": Floats(), "definition": "linear"}),
    (Median, {"lower": 0, "upper": 2**31, "resolution": 1}),
    (Median, {"lower": 2**60, "upper": 2**60 + 2**10, "resolution": 2**9}),
    (Median, {}),
    *((Quantile, BOUNDS | {"q": wrong}) for wrong in (0, HUGE, [0.5])),
    *((Maximum, BOUNDS | {"tau": wrong}) for wrong in (2**64, 0, 1.5)),
    *((Mode, {"candidates": wrong}) for wrong in (5, [2, 1], [], ["a"], [HUGE], [1, np.nan])),
    *((Histogram, {"edges": wrong}) for wrong in (5, [1], [2, 1], [1, np.inf], ["a", "b"])),
    (release.DistinctCount, {"tau": 1, "upper": 0}),
    (release.NonnegativeSum, {"tau": 1, "upper": -1, "resolution": 1}),
]


@pytest.mark.parametrize(("statistic", "fields"), BAD_FIELDS)
def test_the_fields_of_a_statistic_are_checked_in_one_sentence(statistic, fields):
    with pytest.raises((TypeError, ValueError)) as caught:
        statistic(**fields)
    message = str(caught.value)
    assert message.endswith(".")
    assert message[0].islower() or message[0].isdigit()


def test_budgets_are_charged_once_after_the_checks_and_before_the_draws(monkeypatch, tmp_path):
    spent = []
    entropy = os.urandom
    monkeypatch.setattr("os.urandom", lambda size: spent.append(budget.spent) or entropy(size))
    for number, statistic in enumerate(STATISTICS.values()):
        neighbors = statistic.relations[0]
        options = {"epsilon": 0.5, "neighbors": neighbors, "draws": 2}
        budget = PrivacyFilter(1.5, 0.0, neighbors)
        statistic.release([[1, 4], [4, 4]], **options, budget=budget)
        assert budget.spent == 1.0
        drawn = len(spent)
        with pytest.raises(BudgetExceeded):
            statistic.release([1, 4], **options, budget=budget)
        assert len(spent) == drawn > number
        with pytest.raises(TypeError, match=r"a PrivacyFilter \(or a Ledger"):
            statistic.release([1, 4], **options, budget=1.0)
        assert budget.spent == 1.0
        ledger = Ledger(tmp_path / str(number), epsilon=2.0, neighbors=neighbors)
        statistic.release([1, 4], **options, budget=ledger)
        (entry,) = ledger.entries
        assert entry["what"] == {"statistic": repr(statistic), "draws": 2}
    assert set(spent) == {1.0}


def test_a_release_shows_its_values_and_its_guarantee():
    found = STATISTICS["median"].release([3] * 99, epsilon=9.0, neighbors="swap")
    assert float(found) == 3.0
    assert str(found) == "3\n9-DP under swap neighbors"
    assert json.loads(found.to_json())["values"] == [3.0]
    with pytest.raises(TypeError, match="not one number"):
        float(STATISTICS["median"].release([[3], [3]], epsilon=9.0, neighbors="swap"))


PUBLIC = {"epsilon": 1.0, "neighbors": "add_remove"}
PLOTS = {  # what is plotted, and the names in its legend
    "sure": (lambda: Median(**BOUNDS).distribution([3] * 99, **PUBLIC), []),
    "bins": (lambda: Histogram((0, 5, 10)).distribution([[3]], **PUBLIC), ["0, 0", "0, 1"]),
    "table": (
        lambda: frames.simulate(
            0,
            pytest.importorskip("polars").DataFrame({"g": [*"aab"], "x": [1, 2, 3]}),
            {"x": [Median(**BOUNDS), release.Count()]},
            by="g",
            groups=frames.PrivateGroups(64, 1e-9),  # b, of one row, is hardly ever kept
            **PUBLIC,
        ),
        ["x Median", "x Count"],
    ),
}


@pytest.mark.parametrize("style", ["default", "dark_background"])
@pytest.mark.parametrize("name", PLOTS)
def test_plots_name_what_they_show_and_can_be_seen(name, style):
    pyplot = pytest.importorskip("matplotlib.pyplot", reason="plots need the extra 'notebooks'")
    pyplot.switch_backend("agg")
    shown, legend = PLOTS[name]
    with pyplot.style.context(style):
        axes = shown().plot()
    assert [text.get_text() for text in getattr(axes.get_legend(), "texts", ())] == legend
    assert "b" not in [text.get_text() for text in axes.get_xticklabels()]
    assert axes.get_xlabel() in ("released value", "g")
    assert axes.get_ylabel() in ("probability", "simulated")
    (low, high), back = axes.get_ylim(), axes.patch.get_facecolor()
    for line in axes.lines:
        assert pyplot.matplotlib.colors.to_rgba(line.get_color()) != back
        assert np.all((low <= line.get_ydata()) & (line.get_ydata() < high))
    pyplot.close("all")
