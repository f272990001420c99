"""The demo with small sizes: measured beside exact, for every mechanism, as JSON and as text."""

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
