"""The benchmarks check what they time: a contestant with a wrong distribution is not timed, and
ends the program with an error. How fast anything is, no test can tell.
"""

import argparse
import importlib
import json
import pathlib

import numpy as np
import pytest

FOLDER = pathlib.Path(__file__).parent.parent / "benchmarks"
pytestmark = [pytest.mark.slow, pytest.mark.nightly]


def test_a_wrong_contestant_is_never_timed_and_ends_the_program(monkeypatch, tmp_path, capsys):
    monkeypatch.syspath_prepend(str(FOLDER))
    harness = importlib.import_module("harness")
    checked, timed = harness.Case(2048, 33, "swap", seed=1), []

    def at_the_median(case):
        if case is not checked:
            timed.append(case)
        return harness.Built(lambda turn: np.median(case.data, axis=1), case.rows)

    wrong = harness.Contestant("the median", at_the_median, harness.by_cdf)
    rows, checks = harness.contest(
        "draws", [wrong], harness.Case(8, 101, "swap"), checked, 1, "median"
    )
    assert [row["status"] for row in rows] == ["rejected: wrong distribution"]
    assert timed == []
    document = tmp_path / "out.json"
    args = argparse.Namespace(quick=True, out=str(document))
    with pytest.raises(SystemExit, match="the median"):
        harness.finish("benchmark", args, rows, checks)
    assert "| rejected: wrong distribution |" in capsys.readouterr().out
    assert [check["passed"] for check in json.loads(document.read_text())["checks"]] == [False]
    # What must be rejected is no failure.
    harness.finish("benchmark", args, rows, [check | {"control": True} for check in checks])
