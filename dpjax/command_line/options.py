"""The options of all commands in tables, most of them the fields of statistics; texts as values.

What is not given has the default of the library. A new statistic that is named in ``STATISTICS``
has its options at once.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterable
from dataclasses import MISSING, fields
from datetime import date, datetime, timedelta
from typing import Any, NoReturn

from dpjax import release
from dpjax.version import __version__

STATISTICS = (
    "Median",
    "Quantile",
    "Quantiles",
    "Mode",
    "Maximum",
    "NonnegativeSum",
    "Sum",
    "Mean",
    "Count",
    "DistinctCount",
)
_REQUIRED = ("--column", "--epsilon", "--neighbors")
# Whose values are texts
_TEXTS = {
    "--unit": "the column of the person; by default each record is a person's",
    "--per-unit": "how a person's records are combined: mean, the default, sum, min, max or count",
    "--neighbors": "add_remove: one record more or less; swap: another record",
    "--mechanism": "of the statistics, by default the first that they have",
    "--encoding": "such as latin-1; by default utf-8",
    "--strip": "characters that are dropped from numbers, such as '$ %%'",
    "--date-format": "as for strptime, such as %%d/%%m/%%Y; by default that of 2024-01-31",
}
# Whose values are characters, or their names
_CHARACTERS = {
    "--delimiter": "one character, or comma, semicolon, tab, pipe or space, for any run of blanks",
    "--decimal": "the decimal mark: point, the default, or comma",
    "--thousands": "the mark in 1,200: comma, point, space or apostrophe",
}
_NAMED = {
    "comma": ",",
    "point": ".",
    "semicolon": ";",
    "tab": "\t",
    "pipe": "|",
    "space": " ",
    "apostrophe": "'",
}
# Whose values are numbers, dates, times or durations, or else texts
_VALUES = {
    "--epsilon": "the privacy loss of one draw of one statistic of a column",
    "--draws": "the number of draws; each costs epsilon",
    "--group-epsilon": "find the groups whose noisy size is large enough, at this cost",
    "--group-delta": "the probability that a group of one person is found",
    "--max-groups": "the most groups that a person counts in; each costs epsilon",
}
_LISTS = {
    "--column": "columns of values; each statistic of each of them costs epsilon",
    "--by": "the columns of the groups",
    "--groups": "public labels of groups; north,women if there are several columns",
    "--missing": "words for a missing cell",
}
_FLAGS = {
    "--no-header": "columns are named 1, 2, 3, ...",
    "--lines": "each line is a record, whatever it contains; quotes are ordinary characters",
}
_BUDGETS = {
    "--ledger": "the file of the budget that all commands with it share",
    "--note": "what the ledger says of this release, besides the name of the file",
}
_TOTALS = {
    "--total-epsilon": "the total of a new ledger",
    "--total-delta": "its total delta, by default 0; half of it is kept for groups that are found",
}
_SEVERAL = ("--qs", "--candidates")
_LIST: Any = {"nargs": "+", "action": "extend"}
_AMOUNT = r"\d{1,7}(?:\.\d{1,9})?"  # so few digits that all durations can be held
_DURATION = (
    rf"(?a)(?=-?\d)(-?)(?:(?P<days>{_AMOUNT})(?:d| days?,?) ?)?(?:(?P<hours>{_AMOUNT})h ?)?"
    rf"(?:(?P<minutes>{_AMOUNT})min ?)?(?:(?P<seconds>{_AMOUNT})s)?"
)
_RELEASE = """examples:
  dpjax release people.csv --column age --lower 0 --upper 120 --resolution 1 \\
      --neighbors add_remove --epsilon 1
  dpjax release people.csv.gz --column income --statistic Quantile --q 0.9 --lower 0 \\
      --upper 100000 --resolution 100 --neighbors add_remove --epsilon 1 \\
      --ledger people.ledger --total-epsilon 3 --note "incomes in March"
  dpjax release trips.csv --column fare --statistic Sum Count --lower 0 --upper 500 \\
      --resolution 0.5 --by borough --groups Bronx Queens --unit rider --max-groups 2 \\
      --per-unit sum --neighbors add_remove --epsilon 0.5 --ledger trips.ledger \\
      --total-epsilon 4 --dry-run
  dpjax release trips.csv --column day --lower 2024-01-01 --upper 2024-12-31 --resolution 1d \\
      --by borough --group-epsilon 1 --group-delta 1e-6 --neighbors add_remove --epsilon 1 \\
      --ledger days.ledger --total-epsilon 2 --total-delta 2e-6
"""
_SIMULATE = """examples:
  dpjax simulate people.csv --column age --lower 0 --upper 120 --resolution 1 \\
      --by region --neighbors add_remove --epsilon 1
  dpjax simulate people.csv --column age income --statistic Maximum --tau 5 --lower 0 \\
      --upper 100000 --resolution 1 --neighbors add_remove --epsilon 2 --draws 3 --seed 7 \\
      --format csv
"""
_COMMANDS = {
    "release": (
        "Release private statistics of columns, drawn exactly; print nothing else of the data.",
        _RELEASE,
    ),
    "simulate": (
        "Simulate a release, with exact statistics and error bars; nothing of it is private.",
        _SIMULATE,
    ),
    "ledger": ("Show what was spent of a budget, and what is left.", None),
    "demo": ("Draw thousands of private medians in one call, of random data.", None),
}


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """Raise ``ValueError``, as for all mistakes of a user."""
        raise ValueError(f"{message} (see {self.prog} --help).")


def parser() -> argparse.ArgumentParser:
    """Return the parser of all commands."""
    top = _Parser(prog="dpjax", description="Differentially private statistics of files.")
    top.add_argument("--version", action="version", version=f"dpjax {__version__}")
    commands = top.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name, (text, examples) in _COMMANDS.items():
        command = commands.add_parser(
            name,
            help=text,
            description=text,
            epilog=examples,
            allow_abbrev=False,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        if name == "ledger":
            command.add_argument("file", help="what --ledger named")
        if examples:  # of tables
            _of_tables(command)
        if name == "simulate":
            _add(command, {"--seed": "of the draws, by default 0"}, type=value, default=0)
        if name == "release":
            _add(command, _BUDGETS)
            _add(command, _TOTALS, type=float)
            _add(command, {"--dry-run": "print the cost; read no record"}, action="store_true")
    return top


def _of_tables(command: argparse.ArgumentParser) -> None:
    """Add the options that releases and simulations share."""
    command.add_argument(
        "file", help="CSV, .csv.gz, .parquet or .pq, or - for CSV from standard input"
    )
    takers: dict[str, list[str]] = {}
    for kind in STATISTICS:
        for name in _fields(kind):
            takers.setdefault(f"--{name.replace('_', '-')}", []).append(kind)
    command.add_argument(
        "--statistic",
        choices=STATISTICS,
        metavar="NAME",
        help="some of %(choices)s; by default Median",
        **_LIST,
    )
    for option, kinds in takers.items():
        how = _LIST if option in _SEVERAL else {}
        _add(command, {option: "of " + ", ".join(kinds)}, type=value, **how)
    _add(command, _LISTS, **_LIST)
    _add(command, _VALUES, type=value)
    _add(command, _TEXTS)
    _add(command, _CHARACTERS, type=lambda text: _NAMED.get(text, text))
    _add(command, _FLAGS, action="store_true")
    _add(command, {"--format": "of what is printed"}, choices=("table", "csv", "json"))


def _add(command: argparse.ArgumentParser, table: dict[str, str], **how: Any) -> None:
    for option, text in table.items():
        command.add_argument(option, help=text, required=option in _REQUIRED, **how)


def _fields(kind: str) -> dict[str, Any]:
    """Return the fields of a statistic that are options, and their defaults."""
    known = fields(getattr(release, kind))
    return {field.name: field.default for field in known if field.name != "grid"}


def given(asked: argparse.Namespace, names: Iterable[str]) -> dict[str, Any]:
    """Return the options with these names that are given."""
    return {name: getattr(asked, name) for name in names if getattr(asked, name) is not None}


def statistics(asked: argparse.Namespace) -> list[release.Statistic]:
    """Return the statistic objects that are asked for.

    Raises:
        ValueError: one lacks an option, or none of them takes an option that is given.
    """
    asked.statistic = asked.statistic or ["Median"]  # to a default, argparse would add the others
    found, unused = [], set(given(asked, {name for kind in STATISTICS for name in _fields(kind)}))
    for kind in asked.statistic:
        options = given(asked, _fields(kind))
        for name, default in _fields(kind).items():
            if default is MISSING and name not in options:
                raise ValueError(f"{kind} needs {name}=.")
        found.append(getattr(release, kind)(**options))
        unused -= set(options)
    if unused:
        raise ValueError(f"{min(unused)}= is no option of {', '.join(asked.statistic)}.")
    return found


def value(text: str) -> Any:
    """Return the number, duration, date or time that a text is, or else the text."""
    kinds: Any = (int, float, duration, date.fromisoformat, datetime.fromisoformat)
    for read in kinds:
        try:
            return read(text.strip())
        except ValueError:
            continue
    return text


def duration(text: str) -> timedelta:
    """Return the duration that a text such as 1d, 90s, 00:12:30 or 2 days 00:12:30 is.

    Raises:
        ValueError: it is none.
    """
    clock = re.sub(r"(\d+):(\d\d):(\d\d)", r"\1h\2min\3", text + "s" * (":" in text))
    if (found := re.fullmatch(_DURATION, clock)) is None:
        raise ValueError(f"{text!r} is not a duration, such as 1d or 00:12:30.")
    parts = found.groupdict("0").items()
    length = timedelta(**{unit: float(amount) for unit, amount in parts})
    return -length if found[1] else length
