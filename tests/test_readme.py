"""The README's examples run as pasted, and print the numbers that stand beside them."""

import pathlib
import re
import shlex
import sys

import pytest

from dpjax.accounting import trade_off_bound
from dpjax.command_line import main as command_line
from dpjax.mechanisms import laplace
from dpjax.release import Median

README = (pathlib.Path(__file__).parent.parent / "README.md").read_text()
CODE = re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)
COMMANDS = re.findall(r"^\.venv/bin/python -m dpjax ((?:.*\\\n)*.*)$", README, flags=re.MULTILINE)


def says(printed, comment):
    """Whether a line that was printed is what stands before the colon of its comment, rounded as it
    stands there.
    """
    told = comment.partition(": ")[0]
    drawn = told.startswith("for example ")
    found, stated = (re.findall(r"[-+]?\w[-+\w.]*", text) for text in (printed, told))
    stated = stated[2:] if drawn else stated
    return len(found) == len(stated) > 0 and all(
        drawn or abs(float(x) - float(y)) <= 0.6 * 10.0 ** -len(y.partition(".")[2])
        for x, y in zip(found, stated, strict=True)
    )


def untrue(block):
    """The lines of a block whose print shows something else than their comment, or nothing."""
    lines, right = block.splitlines(), set()

    def show(*values):
        number = sys._getframe(1).f_lineno - 1
        if says(" ".join(map(str, values)), lines[number].rpartition("  # ")[2]):
            right.add(number)

    exec(compile(block, "README.md", "exec"), {"print": show})
    return [line for k, line in enumerate(lines) if "print(" in line and k not in right]


@pytest.mark.slow
def test_every_example_runs_alone_and_prints_what_it_says(monkeypatch, tmp_path, capsys):
    # One of them writes a table and a ledger, which the command then reads
    monkeypatch.chdir(tmp_path)
    assert (len(CODE), len(COMMANDS)) == (4, 1)
    assert [line for block in CODE for line in untrue(block)] == []
    assert len(CODE[0].strip().splitlines()) <= 10
    assert command_line.main(shlex.split(COMMANDS[0].replace("\\\n", " "))) == 0
    assert "remaining epsilon 1 of 3" in capsys.readouterr().out


def test_the_table_of_epsilons_is_computed():
    epsilons, found, errors = (
        [float(cell.strip(" %")) for cell in line.split("|")[2:-1]]
        for line in README.splitlines()
        if line.startswith(("| epsilon in all", "| found at most", "| mean error of"))
    )
    ages = eval(re.search(r"^ages = (.*)  #", README, flags=re.MULTILINE)[1])
    median = Median(lower=0, upper=120, resolution=1)
    for epsilon, share, error in zip(epsilons, found, errors, strict=True):
        promise = laplace.guarantee("add_remove", epsilon=epsilon)
        assert round(100 * (1 - trade_off_bound(promise, 0.05))) == share
        planned = median.distribution(ages, epsilon=epsilon, neighbors="add_remove")
        assert planned.mean_abs_error(35) == pytest.approx(error, rel=0.1)


def test_control_a_wrong_number_is_noticed():
    assert untrue("print(1.0, 2.2514)  # 1.0 2.251: both\n") == []
    assert untrue("print([3.5])  # for example [2.]\n") == []
    wrong = ["print(2.2526)  # 2.251: one", "print(1, 2)  # 1: of two", "print(1)"]
    for line in [*wrong, "print([1, 2])  # for example [1]", "0 and print(1)  # 1"]:
        assert untrue(line + "\n") == [line]
