"""The entry point: arguments to a subcommand, its report to standard output, the user's mistakes to one line."""

from __future__ import annotations

import argparse
import os
import re
import secrets
import sys
from collections.abc import Sequence
from fractions import Fraction

from dpjax.command_line import audit, demo, release, report
from dpjax.command_line.arguments import parser
from dpjax.command_line.errors import UserError
from dpjax.command_line.estimate import Question, estimate
from dpjax.command_line.tables import read_table


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line.

    Args:
        arguments: without the program's name; ``sys.argv[1:]`` if None.

    Returns:
        The exit code: 0, or 2 for a mistake of the user, or 1 if the reader of the output went away or an audit found a loss above
        its claim.
    """
    try:
        asked = parser().parse_args([_negative(word) for word in (sys.argv[1:] if arguments is None else arguments)])
        if asked.command == "audit":
            return _audit(asked)
        commands = {"demo": _demo, "release": release.run}
        _print(commands.get(asked.command, _estimate)(asked))
    except UserError as error:
        print(f"dpjax: error: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    except BrokenPipeError:
        # Python flushes standard output once more at exit: give it somewhere to go.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    return 0


def _estimate(asked: argparse.Namespace) -> str:
    for column in asked.column or ():
        if asked.column.count(column) > 1:
            raise UserError(f"--column names {column!r} twice.")
    table = read_table(asked.file, columns=asked.column, by=asked.by, delimiter=asked.delimiter, header=not asked.no_header)
    question = Question(
        statistic=asked.command,
        q=asked.quantile if asked.command == "quantile" else Fraction(1, 2),
        bounds=_bounds(asked.lower, asked.upper, table.columns),
        neighbors=asked.neighbors,
        definition=asked.definition,
        mechanisms=tuple(dict.fromkeys(asked.mechanism)),
        epsilons=tuple(dict.fromkeys(asked.epsilon)),
        rho=asked.rho,
        draws=asked.draws,
        seed=secrets.randbits(32) if asked.seed is None else asked.seed,
    )
    rows = estimate(table, question)
    return report.as_json(rows, question) if asked.json else report.as_text(rows, question, asked.by)


def _demo(asked: argparse.Namespace) -> str:
    ((lower, upper),) = _bounds([asked.lower], [asked.upper], ("the data",))
    setting = demo.Setting(asked.datasets, asked.points, asked.epsilon, asked.neighbors, lower, upper, asked.seed)
    measurements = demo.measure(setting)
    return demo.as_json(setting, measurements) if asked.json else demo.as_text(setting, measurements)


def _audit(asked: argparse.Namespace) -> int:
    setting = audit.Setting(asked.epsilon, asked.neighbors, asked.draws, asked.seed)
    audits = audit.measure(setting)
    _print(audit.as_json(setting, audits) if asked.json else audit.as_text(setting, audits))
    return 0 if all(found.holds for found in audits) else 1


def _bounds(lower: list[float], upper: list[float], columns: Sequence[str]) -> tuple[tuple[float, float], ...]:
    """One pair for each column."""
    for name, given in (("--lower", lower), ("--upper", upper)):
        if len(given) not in (1, len(columns)):
            raise UserError(f"{name} has {len(given)} values for {len(columns)} columns: give one, or one for each.")
    pairs = zip(*(given * (len(columns) // len(given)) for given in (lower, upper)), strict=True)
    bounds = tuple(pairs)
    for column, (low, high) in zip(columns, bounds, strict=True):
        if not low < high:
            raise UserError(f"--lower must be below --upper: got {low:g} and {high:g} for {column}.")
    return bounds


def _negative(word: str) -> str:
    """Keep argparse from reading -1e6 or -5. as an option: it knows negative numbers with digits last and no exponent only."""
    return f" {word}" if re.fullmatch(r"-((\d+\.?\d*|\.\d+)[eE][+-]?\d+|\d+\.)", word) else word


def _print(text: str) -> None:
    encoding = sys.stdout.encoding or "utf-8"
    sys.stdout.write(text.encode(encoding, "backslashreplace").decode(encoding) + "\n")
    sys.stdout.flush()
