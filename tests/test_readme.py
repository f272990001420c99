"""The README: its examples run as pasted, the numbers in them are right; and what
``tests/README.md`` and ``.ci/run`` name is there.
"""

import contextlib
import pathlib
import pkgutil
import re
import shlex
import sys
import tomllib

import pytest

import dpjax
from dpjax.command_line.main import main

ROOT = pathlib.Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
SOURCES = (ROOT / "tests" / "README.md").read_text()
EXTRAS = {
    "test",
    "notebooks",
    "benchmarks",
    "databases",
    "docs",
    "numpyro",
    "frames",
    "spark",
    "dask",
    "accounting",
    "lint",
}
CODE = re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)
COMMANDS = re.findall(r"^\.venv/bin/python -m dpjax ((?:.*\\\n)*.*)$", README, flags=re.MULTILINE)


def words(text):
    return re.findall(r"[-+\w.]+", text)


def says(printed, comment):
    """Whether a line that was printed is what stands before the colon of its comment, rounded as it
    stands there.
    """
    told, drawn = (
        comment.partition(": ")[0].removeprefix("for example "),
        comment.startswith("for example "),
    )
    found, stated = words(printed), words(told)
    return len(found) == len(stated) > 0 and all(
        abs(float(x) - float(y))
        <= (float("inf") if drawn else 0.6 * 10.0 ** -len(y.partition(".")[2]))
        for x, y in zip(found, stated, strict=True)
    )


def untrue(block):
    """The lines of a block whose print shows something else than their comment; all of them have
    one.
    """
    shown = []

    def show(*values):
        shown.append((sys._getframe(1).f_lineno, " ".join(map(str, values))))

    exec(compile(block, "README.md", "exec"), {"print": show})
    lines = block.splitlines()
    wrong = [
        number
        for number, printed in shown
        if not says(printed, lines[number - 1].rpartition("  # ")[2])
    ]
    never = {number for number, line in enumerate(lines, 1) if "print(" in line} - {
        number for number, _ in shown
    }
    return [lines[number - 1] for number in [*wrong, *never]]


@pytest.mark.slow
def test_every_example_runs_alone_and_prints_what_it_says(monkeypatch, tmp_path, capsys):
    # One of them writes a table and a ledger, which the command then reads
    monkeypatch.chdir(tmp_path)
    assert (len(CODE), len(COMMANDS)) == (4, 1)
    assert [line for block in CODE for line in untrue(block)] == []
    assert len(CODE[0].strip().splitlines()) <= 10
    for command in COMMANDS:
        assert main(shlex.split(command.replace("\\\n", " "))) in (0, None)
    shown = capsys.readouterr().out
    assert "for one person with all records" in shown
    assert "remaining epsilon 1 of 3" in shown


def test_control_a_wrong_number_is_noticed():
    assert untrue("print(1.0, 2.2514)  # 1.0 2.251: both\n") == []
    assert untrue("print([3.5])  # for example [2.]\n") == []
    wrong = ["print(2.2526)  # 2.251: one", "print(1, 2)  # 1: of two", "print(1)"]
    for line in [*wrong, "print([1, 2])  # for example [1]", "0 and print(1)  # 1"]:
        assert untrue(line + "\n") == [line]


def test_it_is_one_page():
    assert len(README.splitlines()) <= 200
    assert len(README.encode()) <= 12_000


def broken(text):
    """The links of a page to files that are not there, and to headings that it or another page does
    not have.
    """
    missing = []
    for path, _, anchor in (
        link.partition("#") for link in re.findall(r"\]\(([^)\s]+)\)", text) if "://" not in link
    ):
        page = text if not path else (ROOT / path).read_text() if (ROOT / path).is_file() else None
        headings = re.findall(r"^#+ (.*)$", page or "", flags=re.MULTILINE)
        anchors = {
            re.sub(r"[^\w -]", "", heading).lower().replace(" ", "-") for heading in headings
        }
        if page is None or (anchor and anchor not in anchors):
            missing.append(f"{path}#{anchor}" if anchor else path)
    return missing


def test_every_link_and_anchor_leads_somewhere():
    assert len(re.findall(r"\]\(", README)) > 10
    assert broken(README) == []
    assert broken("# A b, c\n[x](gone.md) [y](#a-b-c) [z](#a-b) [w](README.md#how-fast)") == [
        "gone.md",
        "#a-b",
    ]


def test_every_notebook_has_its_line():
    for path in (ROOT / "notebooks").glob("*.ipynb"):
        assert f"(notebooks/{path.name})" in README, path.name


def test_every_test_that_the_script_names_is_there():
    named = re.findall(r"tests/[\w/.]+", (ROOT / ".ci" / "run").read_text())
    assert len(named) > 5
    assert [path for path in named if not (ROOT / path).exists()] == []


@pytest.mark.parametrize("end", ["demo", "pytest"])
def test_each_command_is_one_line(end):
    assert len(re.findall(rf"^python3 -m venv .* {end}$", README, flags=re.MULTILINE)) == 1


def test_every_name_in_the_tables_is_there():
    rows = [line for line in README.splitlines() if line.startswith("| ")]
    names = {name for row in rows for name in re.findall(r"`(?:dpjax\.)?([\w.]+)`", row)} - EXTRAS
    assert len(names) > 40
    assert {name for name in names if not _resolves(f"dpjax.{name}")} == set()


def test_every_extra_is_named():
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"][
        "optional-dependencies"
    ]
    assert set(declared) == EXTRAS
    assert {extra for extra in EXTRAS if f"`{extra}`" not in README} == set()


def test_the_citation_has_the_version():
    citation = (ROOT / "CITATION.cff").read_text()
    assert f"\nversion: {dpjax.__version__}\n" in citation


def missing_in(row):
    """What a row of the table of sources names that is not there, names that none of its tests has,
    places with none of them.
    """
    names = re.findall(r"`(dpjax\.[\w.]+)`", row)
    last = [re.compile(rf"\b{name.rpartition('.')[2]}\b") for name in names]
    paths = [f"tests/{path}" for path in re.findall(r"`((?:\w+/)?test_\w+\.py)`", row)]
    places = [f"benchmarks/{path}" for path in re.findall(r"`(experiments/\w+\.py)`", row)]
    places += [f"notebooks/{number}_*.ipynb" for number in re.findall(r"notebook (\d\d)", row)]
    text = {
        path: "".join(found.read_text() for found in ROOT.glob(path)) for path in paths + places
    }
    tests = "".join(text[path] for path in paths)
    found = [path for path in text if not text[path]]
    found += [name for name in names if not _resolves(name)]
    found += [
        f"{name} in its tests"
        for name, word in zip(names, last, strict=True)
        if not word.search(tests)
    ]
    return found + [
        f"any name in {path}"
        for path in places
        if names and not any(word.search(text[path]) for word in last)
    ]


def _resolves(name):
    with contextlib.suppress(ImportError, AttributeError):
        pkgutil.resolve_name(name)
        return True
    return False


def test_every_source_has_its_names_tests_and_places():
    rows = [
        line
        for line in SOURCES.splitlines()
        if re.match(r"\| .*(`dpjax|test_\w+\.py|experiments/)", line)
    ]
    assert len(rows) > 80
    assert {row: missing for row in rows if (missing := missing_in(row))} == {}


def test_control_what_is_not_there_is_missing():
    assert missing_in("| `dpjax.median_of` | `mechanisms/test_line.py` |") == [
        "dpjax.median_of",
        "dpjax.median_of in its tests",
    ]
    gone = [
        "tests/mechanisms/test_gone.py",
        "benchmarks/experiments/gone.py",
        "notebooks/99_*.ipynb",
    ]
    assert missing_in("| `mechanisms/test_gone.py` | `experiments/gone.py`, notebook 99 |") == gone
    assert missing_in("| `dpjax.mode` | `mechanisms/test_duff.py` | notebook 06 |") == [
        "any name in notebooks/06_*.ipynb"
    ]


def test_every_folder_of_tests_is_described():
    for folder in {path.parent.name for path in (ROOT / "tests").glob("*/*.py")}:
        assert f"`tests/{folder}`" in SOURCES, folder
