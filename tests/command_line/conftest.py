"""The command line in this process: arguments in, exit code and both streams out."""

import json
from typing import Any, NamedTuple

import pytest

from dpjax.command_line.main import main


class Outcome(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        def refuse(constant):
            raise ValueError(f"{constant} is not JSON")

        assert (self.code, self.err) == (0, "")
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
    """Run words and options: ``upper=9`` is --upper 9, and lists are several values."""

    def run(*words, **options) -> Outcome:
        given = [str(word) for word in words]
        for name, values in options.items():
            if values is not None:
                values = values if isinstance(values, list) else [values]
                given += [f"--{name.replace('_', '-')}", *map(str, values)]
        return Outcome(main(given), *capsys.readouterr())

    return run


@pytest.fixture
def write(tmp_path):
    def write(content, name="data.csv") -> str:
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return str(path)

    return write
