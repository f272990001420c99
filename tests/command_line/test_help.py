"""The help says in sentences what a newcomer needs, and every example in it is a command that
works.
"""

import gzip
import shlex

import pytest

import dpjax
from dpjax.command_line.parser import parsed

COMMANDS = ("median", "quantile", "release", "ledger", "demo")


@pytest.fixture
def help_of(run, capsys):
    def help_of(*arguments):
        with pytest.raises(SystemExit) as stop:
            run(*arguments, "--help")
        assert stop.value.code == 0
        return capsys.readouterr().out

    return help_of


@pytest.fixture
def examples(help_of):
    return [
        shlex.split(line)[1:]
        for command in COMMANDS
        for line in help_of(command).replace("\\\n", " ").splitlines()
        if line.startswith("  dpjax ")
    ]


def test_what_is_said(help_of):
    for part in (
        "Everything printed is a simulation and not a private release.",
        "The bounds are public: choose them without looking at the data.",
    ):
        assert part in " ".join(help_of("median").split())
    assert all(command in help_of() for command in COMMANDS)


def test_every_example_can_be_given(examples):
    assert len(examples) > 10
    for words in examples:
        assert parsed(words).command == words[0], words


def test_the_examples_of_releases_run(tmp_path, monkeypatch, run, examples):
    monkeypatch.chdir(tmp_path)
    people = "age,income,region\n" + "31,1000,north\n45,2000,south\n" * 9
    (tmp_path / "people.csv").write_text(people)
    (tmp_path / "people.csv.gz").write_bytes(gzip.compress(people.encode()))
    (tmp_path / "trips.csv").write_text(
        "rider,borough,fare\n" + "Ann,Bronx,7.5\nAnn,Queens,9\nBob,Queens,12\n" * 9
    )
    some = [words for words in examples if words[0] == "release"]
    assert {option for words in some for option in words} >= {
        "--unit",
        "--max-groups",
        "--ledger",
        "--total-epsilon",
    }
    for words in some:
        assert run(*words).code == 0, words
    ledger = run("ledger", "people.ledger")
    said = " ".join(ledger.out.split())  # where a line breaks depends on the length of the path
    assert (ledger.code, "remaining epsilon 1 of 3" in said) == (0, True)


def test_version(run, capsys):
    with pytest.raises(SystemExit) as stop:
        run("--version")
    assert stop.value.code == 0
    assert capsys.readouterr().out == f"dpjax {dpjax.__version__}\n"
