"""The committed notebooks: outputs and no errors in them, no path of a machine, one first cell that
installs, one style.
"""

import importlib.util
import json
import pathlib
import re
import subprocess
from types import SimpleNamespace

import pytest

ROOT = pathlib.Path(__file__).parent.parent
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))


def code_of(path):
    return [
        "".join(cell["source"])
        for cell in json.loads(path.read_text())["cells"]
        if cell["cell_type"] == "code"
    ]


def test_one_story():
    assert [path.name[:2] for path in NOTEBOOKS] == [
        f"{number:02}" for number in range(len(NOTEBOOKS))
    ]
    first = json.loads(NOTEBOOKS[0].read_text())["cells"][0]["source"]
    assert re.findall(r"`(\d\d_\w+)`", "".join(first)) == [path.stem for path in NOTEBOOKS[1:]]
    installs = {re.sub(r"for package in \(.*\):", "", code_of(path)[0]) for path in NOTEBOOKS}
    styles = {code_of(path)[2] for path in NOTEBOOKS}
    assert len(installs) == len(styles) == 1
    assert "COLORS" in styles.pop()


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_committed_with_outputs_and_without_errors(path):
    notebook = json.loads(path.read_text())
    assert "".join(notebook["cells"][0]["source"]).startswith("# ")
    code = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert [cell["execution_count"] for cell in code] == list(range(1, len(code) + 1))
    outputs = [output for cell in code for output in cell["outputs"]]
    assert any("image/png" in output.get("data", {}) for output in outputs)
    for output in outputs:
        assert output["output_type"] != "error"
        assert output.get("name") != "stderr", output.get("text")
    for word in ("/tmp/", "/home/", "/root/"):
        assert word not in path.read_text()


def test_the_first_cell_installs_what_is_missing(monkeypatch):
    """From the package index, or where REPOSITORY says, and says so where neither is there."""
    install, missing, calls, code = code_of(NOTEBOOKS[0])[0], {"dpjax"}, [], 0
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name in missing else name)

    def run(command, **_):
        calls.append(command[-1])
        return SimpleNamespace(returncode=code, stderr="No matching distribution")

    monkeypatch.setattr(subprocess, "run", run)
    exec(install, {})
    exec(install.replace('REPOSITORY = ""', 'REPOSITORY = "https://somewhere"'), {})
    assert calls == ["dpjax", "git+https://somewhere"]
    code = 1
    with pytest.raises(ImportError, match=r"set REPOSITORY above[\s\S]*No matching distribution"):
        exec(install, {})
    missing.clear()
    exec(install, {})  # with everything there, pip is not called: it would fail
