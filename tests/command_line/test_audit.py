"""The audit command: its rows, its numbers beside the suite's own audit, and its verdict on a
mechanism that is broken.
"""

from dataclasses import replace

import jax
import numpy as np
import pytest

from dpjax import exponential, median, piecewise_laplace
from dpjax.accounting import Guarantee
from dpjax.command_line import audit as command
from dpjax.metric_privacy import MetricGuarantee, from_points
from tests.support import oracle
from tests.support.audit import audit

MECHANISMS = command.MECHANISMS
HONEST = "exponential, mode"


@pytest.fixture
def claims(monkeypatch):
    """Let these mechanisms be audited."""
    return lambda **named: monkeypatch.setattr(command, "MECHANISMS", named)


def twice_epsilon(family, epsilon):
    distribution, guarantee = MECHANISMS[HONEST](family, epsilon)
    return type(distribution)(
        distribution.values, distribution.cost, 2 * distribution.rate
    ), guarantee


@pytest.mark.slow
def test_the_text_and_the_verdict(run, claims):
    claims(**{HONEST: MECHANISMS[HONEST]})
    outcome = run("audit", "--draws", 20000, "--neighbors", "swap")
    assert (outcome.code, outcome.err) == (0, "")
    for part in (
        "Audit at epsilon 1 under swap neighbors: all 70 datasets of 4 records from {0, 1, 5, 6, "
        "20}, all 350 neighboring pairs",
        "mechanism claimed epsilon exact loss from draws claimed range exact range worst pair",
        "exponential, mode 1 0.7210 ",
        "{5, 5, 5, 5} and {5, 5, 5, 20}",
        "20000 draws of each distribution of the worst pair",
        "95 % confidence each (Clopper-Pearson; seed 0)",
        "No exact loss or range is above its claim.",
    ):
        assert part in outcome.words
    claims(**{HONEST: MECHANISMS[HONEST]}, broken=twice_epsilon)
    outcome = run("audit", "--draws", 20000, "--neighbors", "swap")
    assert (outcome.code, outcome.err) == (1, "")
    assert (
        "BROKEN: broken claims 1-DP and 1-bounded-range under swap neighbors, but "
        "its exact loss is 1.8202 and its range 2.0000." in outcome.words
    )
    assert "BROKEN: exponential" not in outcome.words


@pytest.mark.slow
def test_json_of_one_mechanism(run, answer, claims):
    claims(**{HONEST: MECHANISMS[HONEST]})
    found = answer("audit", "--draws", 20000, "--neighbors", "swap", "--epsilon", 0.5, "--seed", 3)
    asked = {
        "epsilon": 0.5,
        "neighbors": "swap",
        "draws": 20000,
        "seed": 3,
        "confidence": 0.95,
        "holds": True,
    }
    assert {name: found[name] for name in asked} == asked
    (row,) = found["rows"]
    assert row["guarantee"] == {"epsilon": 0.5, "bounded_range": 0.5, "neighbors": "swap"}
    assert row["exact_range"] == pytest.approx(0.5, rel=1e-5)
    counts = [[float(data.count(v)) for v in command.VALUES] for data in row["worst_pair"]]
    logs = jax.jit(lambda x: exponential(x, 0.5, sensitivity=1.0).log_probabilities())
    p, q = np.asarray(logs(np.array(counts, np.float32)))
    assert row["exact_loss"] == pytest.approx(np.abs(p - q).max(), rel=1e-5)
    assert 0.6 * row["exact_loss"] < row["from_draws"] <= row["exact_loss"]


def hopeful(family, epsilon):
    """Never_fail as if an attempt failed a tenth of the time, where on some datasets it is up to
    half of it.
    """
    distribution, guarantee = MECHANISMS["never_fail, mode"](family, epsilon)
    return distribution, replace(guarantee, delta=1e-5)


def generous(family, epsilon):
    """The selection of a metric with twice the budgets, and the promise of the metric."""
    distribution, _ = MECHANISMS["linear_selection, median"](family, 2 * epsilon)
    return distribution, MECHANISMS["linear_selection, median"](family, epsilon)[1]


@pytest.mark.slow
def test_a_delta_and_a_metric(run, claims):
    """Budgets of pairs and probabilities are held to, and who claims less is found."""
    honest = {name: MECHANISMS[name] for name in ("never_fail, mode", "linear_selection, median")}
    claims(**honest, hopeful=hopeful, generous=generous)
    outcome = run("audit", "--draws", 2000, "--neighbors", "swap", "--json")
    assert outcome.code == 1
    never_fail, selection, hoping, giving = outcome.json["rows"]
    assert (never_fail["holds"], selection["holds"], hoping["holds"], giving["holds"]) == (
        True,
        True,
        False,
        False,
    )
    assert never_fail["guarantee"] == {
        "epsilon": 1,
        "bounded_range": None,
        "neighbors": "swap",
        "delta": 0.5**5,
    }
    assert hoping["exact_loss"] > 1.5
    assert giving["exact_range"] == pytest.approx(2 * selection["exact_range"], rel=1e-3)


@pytest.mark.parametrize("neighbors", ["add_remove", "swap"])
def test_the_budgets_of_pairs(neighbors):
    family = command.family_of(neighbors)
    sums = np.array([sum(data) for data in family.datasets])[family.pairs]
    metric = from_points(np.array(command.VALUES)[:, None], epsilon=1.0)
    found = command.budgets(
        MetricGuarantee(metric if neighbors == "swap" else metric.with_absence(20.0)), family
    )
    np.testing.assert_allclose(
        found, np.abs(sums[0] - sums[1]) if neighbors == "swap" else 20.0, rtol=1e-6
    )
    assert (command.budgets(Guarantee(0.5, 1.0, neighbors), family) == 0.5).all()


@pytest.mark.parametrize("neighbors", ["add_remove", "swap"])
def test_the_family_is_all_neighboring_pairs(neighbors):
    family = command.family_of(neighbors)
    index = {data: row for row, data in enumerate(family.datasets)}
    wanted = {
        (row, index[other])
        for data, row in index.items()
        for other in oracle.neighbors_of(data, neighbors, command.VALUES)
        if other in index and index[other] > row
    }
    assert set(map(tuple, family.pairs.T.tolist())) == wanted


@pytest.mark.slow
@pytest.mark.parametrize("neighbors", ["add_remove", "swap"])
def test_every_mechanism_holds_its_claim(answer, neighbors):
    """The seed is fixed: each bound from draws is above the exact loss with probability at most 5 %
    over seeds.
    """
    found = answer("audit", "--draws", 50000, "--neighbors", neighbors)
    assert found["holds"]
    rows = {row["mechanism"]: row for row in found["rows"]}
    assert set(MECHANISMS) - set(rows) == (
        set() if neighbors == "add_remove" else set(command.ADD_REMOVE_ONLY)
    )
    for row in rows.values():
        assert 0.4 < row["from_draws"] < row["exact_loss"] <= 1 + 1e-4
        claim = row["guarantee"]["bounded_range"]  # None stands for infinity
        assert claim is None or row["exact_range"] <= claim * (1 + 1e-4)
        assert row["guarantee"]["neighbors"] == neighbors
    assert rows["laplace, sum"]["exact_range"] == pytest.approx(2, rel=1e-4)
    assert rows["permute_and_flip, mode"]["exact_range"] > 1.4
    family = command.family_of(neighbors)
    distribution = piecewise_laplace(median(family.x, **family.known), 1.0)
    own = audit(distribution, family.datasets, neighbors, command.VALUES)
    first = rows["piecewise_laplace, median"]
    assert (first["exact_loss"], first["exact_range"]) == (
        pytest.approx(own.loss, abs=1e-4),
        pytest.approx(own.range, abs=1e-4),
    )
