"""The README: its examples run as pasted, the numbers in them are right, and its two commands are single lines that CI can find."""

import contextlib
import io
import pathlib
import re

import pytest

import dpjax

README = (pathlib.Path(__file__).parent.parent / "README.md").read_text()
CODE = re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)


@pytest.mark.slow
def test_every_example_runs_alone_and_prints_what_it_says():
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


@pytest.mark.parametrize("end", ["demo", "pytest"])
def test_each_command_is_one_line(end):
    assert len(re.findall(rf"^python3 -m venv .* {end}$", README, flags=re.MULTILINE)) == 1


def test_the_table_names_everything_public():
    modules = {
        "accounting",
        "auditing",
        "bounds",
        "distributions",
        "frames",
        "mechanisms",
        "metric_privacy",
        "random",
        "release",
        "sensitivity",
        "simulation",
        "statistics",
    }
    for name in set(dpjax.__all__) - modules - {"__version__", "Guarantee", "SensitivityProfile", "Tails"}:
        assert f"`{name}" in README, name


def test_the_citation_has_the_version():
    citation = (pathlib.Path(__file__).parent.parent / "CITATION.cff").read_text()
    assert f"\nversion: {dpjax.__version__}\n" in citation
