"""The command line in this process: arguments in, exit code and both streams out.

Without a resolution every new shape of a table costs a compilation. So most tests ask for the median of ten records, or of the
three groups below, on whole numbers.
"""

import json
import re
from typing import Any, NamedTuple

import numpy as np
import pytest

from dpjax.command_line.kept import Table
from dpjax.command_line.main import main

AGES = {"a": [23, 35, 41, 62, 64, 29.5, 18], "b": [50, 51, 51, 60, 51], "c": [44, 44]}  # no tie, three of five, all


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
    def table(self) -> list[dict[str, Any]]:
        """The rows of the printed table by the names of its columns, with the ends of the interval and the mark of a tie."""
        lines = self.out.split("\n\n")[0].splitlines()
        names = [name for name in re.split(r"  +", lines[0].strip()) if name != "tied"]
        rows = []
        for line in lines[1:]:
            *cells, low, high, star = re.fullmatch(r"(.*?) *\[ *(\S+), +(\S+)\]( +\*)?(?: +\d+ %)?", line).groups()
            row = dict(zip(names[:-1], re.split(r"  +", cells[0].strip()), strict=True))
            rows.append(row | {names[-1]: (float(low), float(high)), "tied": star is not None})
        return rows


@pytest.fixture
def run(capsys):
    def run(*arguments) -> Outcome:
        code = main([str(argument) for argument in arguments])
        return Outcome(code, *capsys.readouterr())

    return run


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


class Whole:
    """Keeps every record as it was read, in the place of :class:`dpjax.command_line.kept.Keeper`."""

    def __init__(self, columns):
        self.columns, self.blocks = columns, []

    def add(self, columns, codes):
        self.blocks.append((*columns, codes))

    def table(self, labels):
        *kept, codes = (np.concatenate(part) for part in zip(*self.blocks, strict=True)) if self.blocks else ()
        nothing = np.zeros((len(self.columns), len(labels)), np.int64)
        sizes = np.bincount(codes[codes >= 0], minlength=len(labels))
        return Table(self.columns, list(labels), sizes, nothing, nothing, nothing, kept, codes)


def whole(read, *arguments, **options):
    """The records of each column, in the order of the file, by the label of their group: of ``read_table`` or ``read_records``."""
    table = read(*arguments, **options, keep=Whole)
    return {
        label: {name: table.kept[k][table.codes == group] for k, name in enumerate(table.columns)}
        for group, label in enumerate(table.labels)
    }
