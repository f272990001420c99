"""The benchmark of noise scales runs, and compares what agrees; how fast anything is, no test can
tell.
"""

import json
import pathlib
import subprocess
import sys

import pytest

FOLDER = pathlib.Path(__file__).parent.parent.parent / "benchmarks"


@pytest.mark.slow
def test_it_checks_before_it_times(tmp_path):
    out = tmp_path / "metric_privacy.json"
    command = [sys.executable, str(FOLDER / "metric_privacy.py"), "--quick", "--out", str(out)]
    run = subprocess.run(command, capture_output=True, text=True, cwd=FOLDER.parent)
    assert run.returncode == 0, run.stderr
    document = json.loads(out.read_text())
    assert len(document["checks"]) == 9  # four strategies of two sizes, and one large universe
    assert all(check["passed"] for check in document["checks"])
    assert {line["contestant"] for line in document["rows"]} == {"dpjax", "NumPy"}
