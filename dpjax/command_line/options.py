r"""The options of all commands, and texts as values.

Most options are the fields of the statistic objects of :mod:`dpjax.release`: a new statistic that is
named in ``STATISTICS`` has its options at once.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable
from dataclasses import MISSING, fields
from datetime import date, datetime, timedelta
from typing import Any, NoReturn

from dpjax.release import Statistic
from dpjax.version import __version__

STATISTICS = (
    "Median",
    "Quantile",
    "Quantiles",
    "OrderStatistic",
    "Mode",
    "Maximum",
    "NonnegativeSum",
    "Sum",
    "Mean",
    "Count",
    "DistinctCount",
)
_SEVERAL = ("qs", "candidates")
_MARKS = {
    "comma": ",",
    "point": ".",
    "semicolon": ";",
    "tab": "\t",
    "pipe": "|",
    "space": " ",
    "apostrophe": "'",
}
_UNITS = {
    "d": "days",
    "h": "hours",
    "min": "minutes",
    "s": "seconds",
    "ms": "milliseconds",
    "us": "microseconds",
}
# Few digits, so that Python's and Polars' durations hold whatever is written
_AMOUNT = re.compile(r"(-?\d{1,7}(?:\.\d{1,9})?)(d|h|min|s|ms|us)", re.ASCII)
_CLOCK = re.compile(
    r"(-?)(?:(\d{1,7}) days?,? ?)?(?:(\d{1,7}):(\d\d):(\d\d(?:\.\d{1,9})?))?", re.ASCII
)
_RELEASE = """examples:
  dpjax release people.csv --column age --lower 0 --upper 120 --resolution 1 \\
      --neighbors add_remove --epsilon 1
  dpjax release people.csv.gz --column income --statistic Quantiles --qs 0.25 0.75 --lower 0 \\
      --upper 100000 --resolution 100 --neighbors add_remove --epsilon 1 \\
      --ledger people.ledger --total-epsilon 3 --note "March, quartiles"
  dpjax release trips.csv --column fare --statistic Median Count --lower 0 --upper 500 \\
      --resolution 0.5 --by borough --groups Bronx Queens --unit rider --max-groups 2 \\
      --neighbors add_remove --epsilon 0.5 --ledger people.ledger --dry-run
  dpjax release trips.csv --column day --lower 2024-01-01 --upper 2024-12-31 --resolution 1d \\
      --by borough --group-epsilon 1 --group-delta 1e-6 --neighbors add_remove --epsilon 1
"""
_SIMULATE = """examples:
  dpjax simulate people.csv --column age --lower 0 --upper 120 --resolution 1 \\
      --by region --neighbors add_remove --epsilon 1
  dpjax simulate people.csv --column age income --statistic Maximum --tau 5 --lower 0 \\
      --upper 100000 --resolution 1 --neighbors add_remove --epsilon 2 --draws 3 --seed 7 \\
      --format csv
"""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """Raise ``ValueError``, as for the other mistakes of a user."""
        raise ValueError(f"{message} (see {self.prog} --help).")


def parser() -> argparse.ArgumentParser:
    """Return the parser of all commands."""
    top = _Parser(prog="dpjax", description="Differentially private statistics of files.")
    top.add_argument("--version", action="version", version=f"dpjax {__version__}")
    commands = top.add_subparsers(dest="command", metavar="COMMAND", required=True)

    def command(name: str, text: str, examples: str = "") -> argparse.ArgumentParser:
        return commands.add_parser(
            name,
            help=text,
            description=text,
            epilog=examples,
            allow_abbrev=False,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )

    text = "Release private statistics of columns, drawn exactly; nothing else is printed."
    release = command("release", text, _RELEASE)
    _of_tables(release)
    add = release.add_argument_group("budget").add_argument
    add("--ledger", metavar="FILE", help="The budget that all commands with this file share.")
    add("--total-epsilon", type=float, help="The total of a new ledger.")
    add("--total-delta", type=float, help="The total delta of a new ledger, by default 0.")
    add("--note", help="What the ledger says of this release, besides the name of the file.")
    add(
        "--dry-run",
        action="store_true",
        help="Check all options, and the file's header; read no record and spend nothing.",
    )
    text = "Simulate a release, with exact statistics and error bars; nothing of it is private."
    simulate = command("simulate", text, _SIMULATE)
    _of_tables(simulate)
    simulate.add_argument("--seed", type=int, default=0, help="The seed of the draws.")
    ledger = command("ledger", "Show what was spent of a budget, and what is left.")
    ledger.add_argument("file", help="The file that --ledger named.")
    _format(ledger)
    command("demo", "Thousands of private medians in one call, on data that are made for it.")
    return top


def _of_tables(command: argparse.ArgumentParser) -> None:
    """Add the options that a release and a simulation share."""
    add = command.add_argument
    add("file", help="CSV, gzipped if named .gz, or Parquet, named .parquet; - is standard input.")
    add("--neighbors", choices=("add_remove", "swap"), required=True, help="One more, or other.")
    add("--epsilon", type=float, required=True, help="Of each draw of each statistic.")
    add("--draws", type=int, default=1, help="The number of draws; each costs epsilon.")
    add("--mechanism", help="Of the statistic; by default its first.")
    _format(command)
    add = command.add_argument_group("statistics; bounds are public, chosen without the data")
    _of_statistics(add.add_argument)
    add = command.add_argument_group("groups and persons").add_argument
    add("--by", nargs="+", default=[], metavar="NAME", help="The columns of the groups.")
    add("--groups", nargs="+", metavar="LABEL", help="Public; north,women for several columns.")
    add("--group-epsilon", type=float, help="Find the groups whose noisy size is large enough.")
    add("--group-delta", type=float, help="The probability that a person alone is found.")
    add("--unit", metavar="NAME", help="The column of the person; by default a record is one.")
    add("--per-unit", help="How a person's records are combined: mean, sum, min, max or count.")
    add("--max-groups", type=int, default=1, help="The groups that a person counts in at most.")
    add = command.add_argument_group("the file's format").add_argument
    marks = "; or " + ", ".join(_MARKS)
    add("--delimiter", type=_mark, default=",", help=f"One character{marks}.")
    add("--encoding", default="utf-8", help="Such as latin-1.")
    add("--no-header", action="store_true", help="Columns are named 1, 2, 3, ...")
    add("--lines", action="store_true", help="Each line is a record, whatever it contains.")
    add("--decimal", type=_mark, default=".", help="The decimal mark: point or comma.")
    add("--thousands", type=_mark, default="", help="The mark in 1,200: comma, point, space, ...")
    add("--strip", default="", help="Characters around a number that are dropped, as in '$%%'.")
    add("--date-format", help="As for strptime, such as %%d/%%m/%%Y; by default 2024-01-31.")
    add("--missing", nargs="+", default=[], metavar="WORD", help="Words for a missing cell.")


def _of_statistics(add: Callable[..., Any]) -> None:
    """Add an option for each field of a statistic."""
    add("--column", nargs="+", required=True, metavar="NAME", help="Each costs epsilon.")
    add(
        "--statistic",
        nargs="+",
        choices=STATISTICS,
        default=["Median"],
        metavar="NAME",
        help=f"Each costs epsilon: {', '.join(STATISTICS)}.",
    )
    takers: dict[str, list[str]] = {}
    for kind in STATISTICS:
        for name in _fields(kind):
            takers.setdefault(name, []).append(kind)
    for name, kinds in takers.items():
        several = "+" if name in _SEVERAL else None
        add(option(name), type=_value, nargs=several, help=f"Of {', '.join(kinds)}.")


def _format(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--format", choices=("table", "csv", "json"), default="table", help="Of what is printed."
    )


def _fields(kind: str) -> dict[str, Any]:
    """Return the fields of a statistic that are options, and their defaults."""
    known: Any = Statistic.kinds[kind]
    return {field.name: field.default for field in fields(known) if field.name != "grid"}


def option(name: str) -> str:
    """Return the option of an argument of the library."""
    return f"--{name.replace('_', '-')}"


def statistics(asked: argparse.Namespace) -> list[Statistic]:
    """Return the statistic objects that are asked for.

    Raises:
        ValueError: one lacks an option, or none takes an option that is given.
    """
    takers = {kind: _fields(kind) for kind in asked.statistic}
    for name, given in vars(asked).items():
        known = any(name in _fields(kind) for kind in STATISTICS)
        if known and given is not None and not any(name in taken for taken in takers.values()):
            raise ValueError(f"{option(name)} is no option of {', '.join(takers)}.")
    found = []
    for kind, taken in takers.items():
        given = {name: getattr(asked, name) for name in taken if getattr(asked, name) is not None}
        for name, default in taken.items():
            if default is MISSING and name not in given:
                raise ValueError(f"{kind} needs {option(name)}.")
        found.append(Statistic.kinds[kind](**given))
    return found


def _mark(text: str) -> str:
    return _MARKS.get(text, text)


def _value(text: str) -> Any:
    """Return the number, duration, date or time that a text is, or else the text."""
    kinds: tuple[Callable[[str], Any], ...] = (
        int,
        float,
        duration,
        date.fromisoformat,
        datetime.fromisoformat,
    )
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
    if found := _AMOUNT.fullmatch(text):
        return timedelta(**{_UNITS[found[2]]: float(found[1])})
    if not text or not (found := _CLOCK.fullmatch(text)):
        raise ValueError(f"{text!r} is not a duration, such as 1d or 00:12:30.")
    sign, *parts = found.groups(default="0")
    days, hours, minutes, seconds = map(float, parts)
    length = timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds)
    return -length if sign == "-" else length
