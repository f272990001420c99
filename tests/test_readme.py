"""The README: its examples run as pasted, the numbers in them are right; and what ``tests/README.md`` and
``.ci/run`` name is there."""

import contextlib
import inspect
import io
import pathlib
import pkgutil
import re

import pytest

import dpjax

ROOT = pathlib.Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
SOURCES = (ROOT / "tests" / "README.md").read_text()
CODE = re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)


@pytest.mark.slow
def test_every_example_runs_alone_and_prints_what_it_says(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)  # one of them writes a ledger
    printed = []
    for block in CODE:
        with contextlib.redirect_stdout(io.StringIO()) as out:
            exec(compile(block, "README.md", "exec"), {})
        printed.append(out.getvalue())
    assert len(CODE[0].strip().splitlines()) <= 10
    assert "nan" not in "".join(printed)
    (ties,) = (number for number, block in enumerate(CODE) if "constant = " in block)
    stated = [float(number) for number in re.findall(r"print\(.*\)  # ([0-9.]+)", CODE[ties])]
    assert [float(line) for line in printed[ties].split()] == pytest.approx(stated, rel=5e-3)
    (costs,) = (number for number, block in enumerate(CODE) if "epsilon_per_query" in block)
    assert [float(word) for word in printed[costs].split()] == pytest.approx([10.0, 2.251, 0.153], rel=5e-3)
    assert all(f"{number}" in README for number in ("# 10.0 ", "2.251 at", "# 0.153 "))
    (worst,) = (number for number, block in enumerate(CODE) if "worst_neighbor" in block)
    assert 0.7 < float(printed[worst]) <= 1 + 1e-4


def test_every_test_that_the_script_names_is_there():
    named = re.findall(r"tests/[\w/.]+", (ROOT / ".ci" / "run").read_text())
    assert len(named) > 5
    assert [path for path in named if not (ROOT / path).exists()] == []


@pytest.mark.parametrize("end", ["demo", "pytest"])
def test_each_command_is_one_line(end):
    assert len(re.findall(rf"^python3 -m venv .* {end}$", README, flags=re.MULTILINE)) == 1


def test_the_table_names_everything_public():
    modules = {name for name in dir(dpjax) if inspect.ismodule(getattr(dpjax, name))}
    for name in set(dir(dpjax)) - modules - {"__version__", "Guarantee", "SensitivityProfile", "Tails"}:
        assert f"`{name}" in README, name


def test_the_citation_has_the_version():
    citation = (ROOT / "CITATION.cff").read_text()
    assert f"\nversion: {dpjax.__version__}\n" in citation


def missing_in(row):
    """What a row of the table of sources names that is not there, names that none of its tests has, places with none of them."""
    names = re.findall(r"`(dpjax\.[\w.]+)`", row)
    last = [re.compile(rf"\b{name.rpartition('.')[2]}\b") for name in names]
    paths = [f"tests/{path}" for path in re.findall(r"`((?:\w+/)?test_\w+\.py)`", row)]
    places = [f"benchmarks/{path}" for path in re.findall(r"`(experiments/\w+\.py)`", row)]
    places += [f"notebooks/{number}_*.ipynb" for number in re.findall(r"notebook (\d\d)", row)]
    text = {path: "".join(found.read_text() for found in ROOT.glob(path)) for path in paths + places}
    tests = "".join(text[path] for path in paths)
    found = [path for path in text if not text[path]]
    found += [name for name in names if not _resolves(name)]
    found += [f"{name} in its tests" for name, word in zip(names, last, strict=True) if not word.search(tests)]
    return found + [f"any name in {path}" for path in places if names and not any(word.search(text[path]) for word in last)]


def _resolves(name):
    with contextlib.suppress(ImportError, AttributeError):
        pkgutil.resolve_name(name)
        return True
    return False


def test_every_source_has_its_names_tests_and_places():
    rows = [line for line in SOURCES.splitlines() if re.match(r"\| .*(`dpjax|test_\w+\.py|experiments/)", line)]
    assert len(rows) > 80
    assert {row: missing for row in rows if (missing := missing_in(row))} == {}


def test_control_what_is_not_there_is_missing():
    assert missing_in("| `dpjax.median_of` | `mechanisms/test_line.py` |") == ["dpjax.median_of", "dpjax.median_of in its tests"]
    gone = ["tests/mechanisms/test_gone.py", "benchmarks/experiments/gone.py", "notebooks/99_*.ipynb"]
    assert missing_in("| `mechanisms/test_gone.py` | `experiments/gone.py`, notebook 99 |") == gone
    assert missing_in("| `dpjax.mode` | `mechanisms/test_duff.py` | notebook 06 |") == ["any name in notebooks/06_*.ipynb"]


def test_every_folder_of_tests_is_described():
    for folder in {path.parent.name for path in (ROOT / "tests").glob("*/*.py")}:
        assert f"`tests/{folder}`" in SOURCES, folder
