"""The demo with small sizes: measured beside exact, for every mechanism, as JSON and as text."""

import re

import pytest

MECHANISMS = ["piecewise_laplace", "inverse_sensitivity", "laplace"]


@pytest.mark.slow
def test_the_measured_error_is_the_exact_one(answer):
    found = answer("demo", "--datasets", 400, "--points", 31, "--epsilon", 2, "--seed", 5)
    rows = found["rows"]
    assert [row["mechanism"] for row in rows] == MECHANISMS
    for row in rows:
        assert abs(row["measured_abs_error"] - row["mean_abs_error"]) < 6 * row["standard_error"]
        assert 0 < row["standard_error"] < row["mean_abs_error"] / 5
        assert row["medians_per_second"] > 0
        assert row["compile_seconds"] > 0
        assert row["guarantee"] == {"epsilon": 2, "bounded_range": 2, "neighbors": "add_remove"}
    plm, inverse, laplace = (row["mean_abs_error"] for row in rows)
    assert plm < inverse < laplace
    settings = {
        name: found[name]
        for name in (
            "simulation",
            "datasets",
            "points",
            "epsilon",
            "neighbors",
            "lower",
            "upper",
            "seed",
        )
    }
    assert list(settings.values()) == [True, 400, 31, 2, "add_remove", -10, 10, 5]


@pytest.mark.slow
def test_the_text_says_what_was_done(run, monkeypatch):
    # Each one is compiled anew
    monkeypatch.setattr("dpjax.command_line.demo.LINE_MECHANISMS", MECHANISMS[1:2])
    outcome = run(
        "demo",
        "--datasets",
        50,
        "--points",
        4,
        "--lower",
        -3,
        "--upper",
        4.5,
        "--neighbors",
        "swap",
    )
    assert (outcome.code, outcome.err) == (0, "")
    exact, measured, error = re.search(
        r"\ninverse_sensitivity +([\d.]+) +([\d.]+) \+- "
        r"([\d.]+) ",
        outcome.out,
    ).groups()
    assert abs(float(exact) - float(measured)) < 6 * float(error)
    for part in (
        "One private median of each of 50 datasets of 4 points, one call for each mechanism.",
        "Data: standard normal, clamped to the bounds [-3, 4.5]. epsilon 1; neighbors swap; seed "
        "0.",
        "mechanism exact mean |error| measured medians per second compile seconds",
        "Device ",
        "inverse_sensitivity: 1-DP and 1-bounded-range under swap neighbors",
        "None of this is a private release.",
    ):
        assert part in outcome.words
