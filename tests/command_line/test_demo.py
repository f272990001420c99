"""The demonstration: for each mechanism the measured error is the exact one."""

import re

import pytest


@pytest.mark.slow
def test_the_measured_error_is_the_exact_one(run):
    done = run("demo")
    assert (done.code, done.err) == (0, "")
    rows = re.findall(r"(\w+) +([\d.]+) +([\d.]+) \+- ([\d.]+)\n", done.out)
    errors = {name: float(expected) for name, expected, _, _ in rows}
    assert list(errors) == ["piecewise_laplace", "inverse_sensitivity", "laplace"]
    assert errors["laplace"] > 20 * errors["piecewise_laplace"]
    for _, expected, measured, error in rows:
        assert abs(float(measured) - float(expected)) < 5 * float(error)
