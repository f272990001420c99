"""The command line in this process: arguments in, exit code and both streams out."""

import io
import json
from typing import Any, NamedTuple

import pytest

from dpjax.command_line.main import main

# No tie, three of five, all
AGES = {"a": [23, 35, 41, 62, 64, 29.5, 18], "b": [50, 51, 51, 60, 51], "c": [44, 44]}


class Outcome(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def words(self) -> str:
        """The text with every run of blanks and line ends as one blank."""
        return " ".join(self.out.split())

    @property
    def json(self) -> Any:
        def refuse(constant):
            raise ValueError(f"{constant} is not JSON")

        return json.loads(self.out, parse_constant=refuse)

    @property
    def mistake(self) -> str:
        """The one line of a mistake of the user, which has no output."""
        assert (self.code, self.out) == (2, "")
        assert self.err.startswith("dpjax: error: ")
        assert self.err.index("\n") == len(self.err) - 1
        return self.err[len("dpjax: error: ") : -1]


@pytest.fixture
def run(capsys):
    def run(*arguments) -> Outcome:
        code = main([str(argument) for argument in arguments])
        return Outcome(code, *capsys.readouterr())

    return run


@pytest.fixture
def stdin(monkeypatch):
    """Let standard input hold these bytes."""

    def stdin(content):
        binary = io.BytesIO(content) if isinstance(content, bytes) else content
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(binary))

    return stdin


@pytest.fixture
def answer(run):
    """Run with ``--json`` and return the object."""

    def answer(*arguments):
        outcome = run(*arguments, "--json")
        assert (outcome.code, outcome.err) == (0, "")
        return outcome.json

    return answer


@pytest.fixture
def write(tmp_path):
    def write(content, name="data.csv") -> str:
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return str(path)

    return write


@pytest.fixture
def ten(write):
    """A file of one column ``x`` with ten records."""

    def ten(values=range(10)) -> str:
        values = list(values)
        assert len(values) == 10
        return write("x\n" + "".join(f"{value}\n" for value in values), "ten.csv")

    return ten


@pytest.fixture
def ages(write):
    lines = [f"{group},{age}\n" for group, members in AGES.items() for age in members]
    return write("group,age\n" + "".join(lines[::-1]), "ages.csv")
