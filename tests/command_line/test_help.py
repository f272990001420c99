"""The help says in sentences what a newcomer needs, and every example in it is a command that
works.
"""

import gzip
import shlex

import pytest

from dpjax.command_line.main import main
from dpjax.command_line.parser import parsed, parser
from dpjax.version import __version__

COMMANDS = parser()._subparsers._group_actions[0].choices
EXAMPLES = [
    shlex.split(line)[1:]
    for command in COMMANDS.values()
    for line in command.epilog.replace("\\\n", " ").splitlines()
    if line.startswith("  dpjax ")
]


def help_of(*arguments, capsys):
    with pytest.raises(SystemExit) as stop:
        main([*arguments, "--help"])
    assert stop.value.code == 0
    return " ".join(capsys.readouterr().out.split())


def test_what_is_said(capsys):
    for part in (
        "Everything printed is a simulation and not a private release.",
        "The bounds are public: choose them without looking at the data.",
        "data without ties: a continuous distribution has no mass on a single value",
        "The public resolution of the data, such as 1 for integers, 0.01 for cents, 1d (or h, "
        "min, s) for dates.",
    ):
        assert part in help_of("median", capsys=capsys)
    assert "labels that begin with a dash are given as --groups=-low --groups=-high." in help_of(
        "release", capsys=capsys
    )
    assert all(command in help_of(capsys=capsys) for command in COMMANDS)


def test_every_option_has_a_sentence():
    for command in COMMANDS.values():
        for action in command._actions:
            if action.dest != "help":
                assert action.help[0].isupper() or action.help.startswith("linear")
                assert action.help.endswith(".")


@pytest.mark.parametrize("words", EXAMPLES, ids=" ".join)
def test_every_example_can_be_given(words):
    assert parsed(words).command == words[0]


def test_the_examples_of_releases_run(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    people = "age,income,region\n" + "31,1000,north\n45,2000,south\n" * 9
    (tmp_path / "people.csv").write_text(people)
    (tmp_path / "people.csv.gz").write_bytes(gzip.compress(people.encode()))
    (tmp_path / "trips.csv").write_text(
        "rider,borough,fare\n" + "Ann,Bronx,7.5\nAnn,Queens,9\nBob,Queens,12\n" * 9
    )
    some = [words for words in EXAMPLES if words[0] == "release"]
    assert {option for words in some for option in words} >= {
        "--unit",
        "--max-groups",
        "--ledger",
        "--total-epsilon",
    }
    for words in some:
        assert main(words) == 0, words
    assert main(["ledger", "people.ledger"]) == 0
    assert "remaining epsilon 1 of 3" in capsys.readouterr().out


def test_version(capsys):
    with pytest.raises(SystemExit) as stop:
        main(["--version"])
    assert stop.value.code == 0
    assert capsys.readouterr().out == f"dpjax {__version__}\n"
