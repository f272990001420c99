"""The help says in sentences what a newcomer needs: what is public, when a resolution matters, that draws are a simulation."""

import pytest

from dpjax.command_line.main import main
from dpjax.command_line.parser import parser
from dpjax.version import __version__


def help_of(*arguments, capsys):
    with pytest.raises(SystemExit) as stop:
        main([*arguments, "--help"])
    assert stop.value.code == 0
    return " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize("command", ["median", "quantile"])
def test_help_of_the_estimates(command, capsys):
    text = help_of(command, capsys=capsys)
    for part in (
        "Everything printed is a simulation and not a private release.",
        "The bounds are public: choose them without looking at the data.",
        "data without ties: a continuous distribution has no mass on a single value",
        "The public resolution of the data, such as 1 for integers or 0.01 for cents.",
        f"examples: dpjax {command} ",
    ):
        assert part in text


def test_help_of_the_demo_and_of_the_program(capsys):
    assert "examples: dpjax demo " in help_of("demo", capsys=capsys)
    text = help_of(capsys=capsys)
    for command in ("median", "quantile", "demo"):
        assert command in text


def test_every_option_has_a_sentence():
    commands = parser()._subparsers._group_actions[0].choices
    for command in commands.values():
        for action in command._actions:
            if action.dest != "help":
                assert action.help[0].isupper() or action.help.startswith("linear")
                assert action.help.endswith(".")


def test_version(capsys):
    with pytest.raises(SystemExit) as stop:
        main(["--version"])
    assert stop.value.code == 0
    assert capsys.readouterr().out == f"dpjax {__version__}\n"
