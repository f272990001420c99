"""The audit command: its rows, its numbers beside the suite's own audit, and its verdict on a mechanism that is broken."""

import jax.numpy as jnp
import numpy as np
import pytest

from dpjax import exponential, median, piecewise_laplace
from dpjax.command_line import audit as command
from dpjax.command_line.audit import MECHANISMS
from tests.support import oracle
from tests.support.audit import audit

HONEST = "exponential, mode"


def twice_epsilon(family, epsilon):
    distribution, guarantee = MECHANISMS[HONEST](family, epsilon)
    return type(distribution)(distribution.values, distribution.cost, 2 * distribution.rate), guarantee


@pytest.mark.slow
def test_the_text_and_the_verdict(run, monkeypatch):
    monkeypatch.setattr(command, "MECHANISMS", {HONEST: MECHANISMS[HONEST]})
    outcome = run("audit", "--draws", 20000, "--neighbors", "swap")
    assert (outcome.code, outcome.err) == (0, "")
    for part in (
        "Audit at epsilon 1 under swap neighbors: all 70 datasets of 4 records from {0, 1, 5, 6, 20}, all 350 neighbouring pairs",
        "mechanism claimed epsilon exact loss from draws claimed range exact range worst pair",
        "exponential, mode 1 0.7210 ",
        "{5, 5, 5, 5} and {5, 5, 5, 20}",
        "20000 draws from each distribution of the worst pair",
        "95 % confidence each (Clopper-Pearson; seed 0)",
        "No exact loss or range is above its claim.",
    ):
        assert part in outcome.words
    monkeypatch.setattr(command, "MECHANISMS", {HONEST: MECHANISMS[HONEST], "broken": twice_epsilon})
    outcome = run("audit", "--draws", 20000, "--neighbors", "swap")
    assert (outcome.code, outcome.err) == (1, "")
    assert (
        "BROKEN: broken claims 1-DP and 1-bounded-range under swap neighbors, and its exact loss is 1.8202, its range 2.0000."
        in outcome.words
    )
    assert "BROKEN: exponential" not in outcome.words


@pytest.mark.slow
def test_json_of_one_mechanism(run, answer, monkeypatch):
    monkeypatch.setattr(command, "MECHANISMS", {HONEST: MECHANISMS[HONEST]})
    found = answer("audit", "--draws", 20000, "--neighbors", "swap", "--epsilon", 0.5, "--seed", 3)
    asked = {"epsilon": 0.5, "neighbors": "swap", "draws": 20000, "seed": 3, "confidence": 0.95, "holds": True}
    assert {name: found[name] for name in asked} == asked
    (row,) = found["rows"]
    assert row["guarantee"] == {"epsilon": 0.5, "bounded_range": 0.5, "neighbors": "swap"}
    assert row["exact_range"] == pytest.approx(0.5, rel=1e-5)
    p, q = (
        np.asarray(exponential(jnp.array([data.count(v) for v in command.VALUES]), 0.5, sensitivity=1.0).log_probabilities())
        for data in row["worst_pair"]
    )
    assert row["exact_loss"] == pytest.approx(np.abs(p - q).max(), rel=1e-5)
    assert 0.6 * row["exact_loss"] < row["from_draws"] <= row["exact_loss"]
    assert run("audit", "--draws", 1).err == (
        "dpjax: error: argument --draws: must be from 2 to 100000000, got 1 (see dpjax audit --help)\n"
    )


@pytest.mark.parametrize("neighbors", ["add_remove", "swap"])
def test_the_family_is_all_neighbouring_pairs(neighbors):
    family = command.family_of(neighbors)
    index = {data: row for row, data in enumerate(family.datasets)}
    wanted = {
        (row, index[other])
        for data, row in index.items()
        for other in oracle.neighbours_of(data, neighbors, command.VALUES)
        if other in index and index[other] > row
    }
    assert set(map(tuple, family.pairs.T.tolist())) == wanted


@pytest.mark.slow
@pytest.mark.parametrize("neighbors", ["add_remove", "swap"])
def test_every_mechanism_holds_its_claim(answer, neighbors):
    """The seed is fixed: each bound from draws is above the exact loss with probability at most 5 % over seeds."""
    found = answer("audit", "--draws", 50000, "--neighbors", neighbors)
    assert found["holds"]
    rows = {row["mechanism"]: row for row in found["rows"]}
    assert set(MECHANISMS) - set(rows) == (set() if neighbors == "add_remove" else set(command.ADD_REMOVE_ONLY))
    for row in rows.values():
        assert 0.4 < row["from_draws"] < row["exact_loss"] <= 1 + 1e-4
        assert row["exact_range"] <= row["guarantee"]["bounded_range"] * (1 + 1e-4)
        assert row["guarantee"]["neighbors"] == neighbors
    assert rows["laplace, sum"]["exact_range"] == pytest.approx(2, rel=1e-4)
    assert rows["permute_and_flip, mode"]["exact_range"] > 1.4
    family = command.family_of(neighbors)
    distribution = piecewise_laplace(median(family.x, **family.known), 1.0)
    own = audit(distribution, family.datasets, neighbors, command.VALUES)
    first = rows["piecewise_laplace, median"]
    assert (first["exact_loss"], first["exact_range"]) == (pytest.approx(own.loss, abs=1e-4), pytest.approx(own.range, abs=1e-4))
