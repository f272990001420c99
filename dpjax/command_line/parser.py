"""The command-line arguments: their definitions, help texts and validation."""

from __future__ import annotations

import argparse
import datetime
import math
import re
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any, NoReturn, TypeVar

from dpjax.command_line.errors import UserError
from dpjax.version import __version__

T = TypeVar("T")
NEIGHBORS = ("add_remove", "swap")  # as in dpjax.checks, which would load NumPy
PER_UNIT = ("mean", "sum", "min", "max", "count")
# With a resolution.
GRID_MECHANISMS = ("piecewise_laplace", "inverse_sensitivity", "permute_and_flip")
LINE_MECHANISMS = ("piecewise_laplace", "inverse_sensitivity", "laplace")  # without a resolution
MARKS = {"comma": ",", "point": ".", "blank": " ", "apostrophe": "'"}
LARGEST = 50_000_000  # the maximal number of draws in a result
DELIMITERS = {"comma": ",", "semicolon": ";", "tab": "\t", "pipe": "|", "space": " "}

_EXAMPLES = {
    "median": """
  dpjax median people.csv --column age --by region --lower 0 --upper 100 --neighbors add_remove
  dpjax median people.csv --column hours --lower 0 --upper 80 --neighbors swap --resolution 1 \\
      --epsilon 0.5 1 2
  dpjax median people.parquet --column age --by region sex --lower 0 --upper 100 \\
      --neighbors add_remove --output medians.csv
  cut -f 2 people.tsv | dpjax median - --lower 0 --upper 100 --neighbors swap
""",
    "quantile": """
  dpjax quantile people.csv --quantile 0.9 --column income --lower 0 --upper 1e6 \\
      --neighbors add_remove
  dpjax quantile spine.dat --quantile 1/3 --no-header --delimiter space --column 1 2 --by 7 \\
      --lower 0 --upper 180 100 --neighbors swap --json
""",
    "release": """
  dpjax release people.csv --column age --lower 0 --upper 128 --resolution 1 --neighbors add_remove
  dpjax release people.csv.gz --column age income --quantile 0.1 0.5 0.9 --lower 0 \\
      --upper 128 1000000 --resolution 1 100 --neighbors add_remove --max-records 10000 \\
      --by region --groups north south --epsilon 0.5 --output found.csv

  A rider has many trips: privacy is per rider, who counts in at most two boroughs,
  with the mean fare in each.
  dpjax release trips.csv --column fare --lower 0 --upper 100 --resolution 0.5 \\
      --neighbors add_remove --by borough --groups Bronx Queens --unit rider --max-groups 2

  All releases with one ledger stay within its total, here 3: the first command creates it,
  and later ones name it.
  dpjax release people.csv --column age --lower 0 --upper 128 --resolution 1 \\
      --neighbors add_remove --ledger people.ledger --total-epsilon 3
  dpjax release people.csv --column age --lower 0 --upper 128 --resolution 1 \\
      --neighbors add_remove --quantile 0.9 --ledger people.ledger
""",
    "ledger": """
  dpjax ledger people.ledger
  dpjax ledger people.ledger --json
""",
    "demo": """
  dpjax demo
  dpjax demo --datasets 1000 --points 101 --epsilon 2 --neighbors swap
""",
}
_SIMULATION = "Everything printed is a simulation and not a private release."
_NEIGHBORS = (
    "The neighbor relation: add_remove adds or removes a record, swap replaces one and treats the "
    "number of records as public."
)


class Parser(argparse.ArgumentParser):
    """An argument parser whose errors are :class:`UserError`."""

    def error(self, message: str) -> NoReturn:
        """Raise the message with a hint to the help."""
        hint = ", before the options" if message.endswith("required: FILE") else ""
        raise UserError(f"{message}{hint} (see {self.prog} --help)")


def parsed(words: Sequence[str]) -> argparse.Namespace:
    """Parse the arguments of a command line."""
    asked, rest = parser().parse_known_args(words)
    if not rest:
        return asked
    for option in ("--epsilon", "--mechanism") if asked.command == "release" else ():
        given = words[words.index(option) + 1 :][:2] if option in words else []
        if len(given) == 2 and not given[1].startswith("-"):
            raise UserError(
                f"a release takes one {option}; dpjax median and dpjax quantile, which simulate, "
                "take several."
            )
    raise UserError(f"unrecognized arguments: {' '.join(rest)} (see dpjax {asked.command} --help)")


def parser() -> Parser:
    """Return the parser of ``dpjax``; the parsed ``module`` is the module that runs the command."""
    top = Parser(
        prog="dpjax",
        description="Simulate differentially private medians and quantiles, with exact error "
        "bars; or release them, without. "
        "Only the output of dpjax release is private: the other commands simulate releases.",
        allow_abbrev=False,
    )
    top.add_argument("--version", action="version", version=f"dpjax {__version__}")
    commands = top.add_subparsers(dest="command", metavar="COMMAND", required=True)

    def command(
        name: str, module: str, summary: str, note: str = _SIMULATION
    ) -> Callable[..., Any]:
        made = commands.add_parser(
            name,
            help=summary,
            description=f"{summary}\n{note}",
            epilog=f"examples:{_EXAMPLES[name]}",
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )
        made.set_defaults(module=module, quantile=[Fraction(1, 2)])
        return made.add_argument

    add = command("median", "estimate", "Draw private medians of the columns of a file.")
    _add_estimate_options(add)
    add = command("quantile", "estimate", "Draw private quantiles of the columns of a file.")
    _add_estimate_options(add)
    _add_quantile(add, required=True)
    summary = "Release private medians or quantiles of the columns of a file."
    note = "Records that cannot be read count as missing, without a message."
    _add_release_options(command("release", "release_command", summary, note))
    summary = "Show what was spent of a budget, on what, and what is left."
    note = (
        "A ledger is a file with a budget and its charges. It contains no records, and is not "
        "changed."
    )
    _add_ledger_options(command("ledger", "ledger_command", summary, note))
    _add_demo_options(
        command("demo", "demo", "Measure private medians of simulated normal data; needs no file.")
    )
    return top


def _add_file_options(add: Callable[..., Any]) -> None:
    add(
        "file",
        metavar="FILE",
        help="Delimited text, gzipped or not; or Parquet, named .parquet or .pq, which needs "
        "narwhals with Polars, DuckDB or "
        "PyArrow; - reads text from standard input. Give it before the options.",
    )
    add(
        "--delimiter",
        type=_delimiter,
        default=",",
        metavar="D",
        help=f"One character, or one of {', '.join(DELIMITERS)} (default comma). space splits on "
        "any run of blanks.",
    )
    add(
        "--decimal",
        type=lambda text: {"point": ".", "comma": ","}.get(text, text),
        choices=(".", ","),
        default=".",
        metavar="MARK",
        help="The decimal mark: point (default) or comma.",
    )
    add(
        "--thousands",
        type=lambda text: MARKS.get(text, text),
        choices=tuple(MARKS.values()),
        default="",
        metavar="MARK",
        help=f"The mark between groups of three digits, one of {', '.join(MARKS)}: 1,200 is then "
        "1200 (default: there is none).",
    )
    add(
        "--records",
        choices=("csv", "lines"),
        default="csv",
        help="What a record is: csv (default), a record of well-formed CSV (RFC 4180), in which a "
        "quoted cell may contain line "
        "breaks and blank lines are skipped, and any other file is refused; or lines, each line, "
        "whatever it contains.",
    )
    add(
        "--encoding",
        default="utf-8",
        metavar="NAME",
        help="The encoding of the text, such as latin-1 or utf-16 (default utf-8).",
    )
    add(
        "--missing",
        nargs="+",
        default=[],
        metavar="WORD",
        help="Words for a missing value, in any case, in addition to an empty cell, NA and nan.",
    )
    add(
        "--output",
        metavar="PATH",
        help="Write the rows to this file: JSON if it ends with .json, and CSV otherwise.",
    )
    add(
        "--no-header",
        action="store_true",
        help="The first line holds records; columns are then named 1, 2, 3, ...",
    )
    add("--neighbors", choices=NEIGHBORS, required=True, help=_NEIGHBORS)
    add(
        "--definition",
        choices=("linear", "lower"),
        help="linear interpolates between records (the midpoint median), lower takes the record "
        "of rank ceil(Q n). "
        "The default is linear, and with a resolution lower.",
    )
    add(
        "--draws",
        type=_integer(1),
        default=1,
        metavar="K",
        help="The number of draws of each value; each costs epsilon (default 1).",
    )
    add("--json", action="store_true", help="Print one JSON object instead of the table.")


def _add_column_options(
    add: Callable[..., Any], *, private: bool, column: str, by: str, resolution: str
) -> None:
    """Add the options about the columns of a file, which a simulation and a release share."""
    add("--column", nargs="+", required=private, metavar="NAME", help=f"Columns of numbers{column}")
    add(
        "--by",
        nargs="+",
        default=[],
        metavar="NAME",
        help=f"Split every column into groups by this column{by} Records without a label are in "
        "no group.",
    )
    add(
        "--groups",
        nargs="+",
        action="extend",
        metavar="LABEL",
        help="The groups: public, not read from the file; other records are left out. With "
        "several columns, such as north,women; a "
        """label with a comma is quoted, '"a,b"'; labels that begin with a dash are given as """
        "--groups=-low --groups=-high.",
    )
    add(
        "--unit",
        metavar="NAME",
        help="The column that identifies the person, for files with several records of one "
        "person: all of them in a group are "
        "combined into one, and privacy is per person. Without it privacy is per record.",
    )
    add(
        "--per-unit",
        choices=PER_UNIT,
        metavar="WHAT",
        help=f"How records are combined: one of {', '.join(PER_UNIT)} (default mean).",
    )
    add(
        "--max-groups",
        type=_integer(1),
        default=1,
        metavar="K",
        help="The maximal number of groups that a person counts in, those with most of the "
        "person's records (default 1); each "
        "costs epsilon.",
    )
    add(
        "--lower",
        nargs="+",
        type=_bound,
        required=True,
        metavar="A",
        help="Lower bound of the data, one for all columns or one for each. Records are clamped "
        "to the bounds. "
        "The bounds are public: choose them without looking at the data. Dates are 2024-01-31, "
        "times 2024-01-31T12:00.",
    )
    add(
        "--upper",
        nargs="+",
        type=_bound,
        required=True,
        metavar="B",
        help="Upper bound of the data; as --lower.",
    )
    add(
        "--resolution",
        nargs="+",
        type=_step,
        required=private,
        metavar="R",
        help="The public resolution of the data, such as 1 for integers, 0.01 for cents, 1d (or "
        "h, min, s) for dates. One for all "
        "columns or one for each. "
        "Records are rounded to its multiples, and draws lie on them; the bounds are multiples "
        f"of it.{resolution}",
    )
    several = {"nargs": 1} if private else {"nargs": "+"}
    many = "" if private else ", one or several"
    add(
        "--epsilon",
        **several,
        type=_positive,
        default=[1.0],
        metavar="E",
        help=f"Privacy of one draw{many} (default 1).",
    )
    add(
        "--max-records",
        type=_integer(1),
        metavar="N",
        help="A guess of the size of the largest group: public, not read from the file; for "
        "several quantiles with a resolution "
        "under add_remove.",
    )


def _add_quantile(add: Callable[..., Any], *, required: bool) -> None:
    add(
        "--quantile",
        nargs="+",
        type=_quantile,
        required=required,
        metavar="Q",
        help="The level of the quantile, strictly between 0 and 1: a decimal such as 0.9, or a "
        "fraction such as 1/3 "
        f"({'needed' if required else 'default 1/2, the median'}). Several are drawn together, "
        "under one epsilon; with a "
        "resolution add_remove needs --max-records.",
    )


def _add_estimate_options(add: Callable[..., Any]) -> None:
    _add_file_options(add)
    _add_column_options(
        add,
        private=False,
        column=", one dataset each. Needed if the file has several columns.",
        by=", or by several: one dataset for each group.",
        resolution=" Draws and error bars are then those of dpjax release. Without it records are "
        "not rounded, for data "
        "without ties: a continuous distribution has no mass on a single value. laplace does "
        "not use it.",
    )
    add(
        "--mechanism",
        nargs="+",
        choices=tuple(dict.fromkeys((*LINE_MECHANISMS, *GRID_MECHANISMS))),
        default=[GRID_MECHANISMS[0]],
        metavar="M",
        help=f"One or several of {', '.join(LINE_MECHANISMS)} and, with a resolution, "
        f"{GRID_MECHANISMS[-1]} (default "
        f"{GRID_MECHANISMS[0]}). laplace is the classical mechanism, with the worst-case "
        "sensitivity B - A of a quantile.",
    )
    add(
        "--seed",
        type=_SEED,
        metavar="S",
        help="Seed of the draws. The same seed gives the same output. By default a random seed is "
        "drawn and printed.",
    )


def _add_release_options(add: Callable[..., Any]) -> None:
    _add_file_options(add)
    _add_column_options(
        add, private=True, column="; each costs epsilon.", by=", or by several.", resolution=""
    )
    add(
        "--group-epsilon",
        type=_positive,
        metavar="E",
        help="Find the groups instead, those whose noisy size reaches a threshold.",
    )
    add(
        "--group-delta",
        type=_positive,
        metavar="D",
        help="The maximal probability that a group of one record is found, such as 1e-8.",
    )
    _add_quantile(add, required=False)
    add(
        "--dry-run",
        action="store_true",
        help="Check the options, the file and its columns, without reading records or "
        "spending budget.",
    )
    add(
        "--ledger",
        metavar="PATH",
        help="A file that records what all commands with it spent on the same data, and refuses "
        "what would exceed its total. "
        "dpjax ledger shows it.",
    )
    add("--total-epsilon", type=_positive, metavar="E", help="The total of a new ledger.")
    add(
        "--total-delta",
        type=_positive,
        metavar="D",
        help="The total delta of a new ledger (default 0); half of it is for groups that "
        "are found.",
    )
    add(
        "--mechanism",
        nargs=1,
        choices=GRID_MECHANISMS,
        default=[GRID_MECHANISMS[0]],
        metavar="M",
        help=f"One of {', '.join(GRID_MECHANISMS)} (default {GRID_MECHANISMS[0]}). "
        "permute_and_flip has up to half the error at "
        "the same epsilon, and twice the bounded range: for a single release.",
    )


def _add_ledger_options(add: Callable[..., Any]) -> None:
    add("file", metavar="FILE", help="The ledger, as dpjax.accounting.Ledger makes it.")
    add("--json", action="store_true", help="Print one JSON object instead of the table.")


def _add_demo_options(add: Callable[..., Any]) -> None:
    add("--json", action="store_true", help="Print one JSON object instead of the table.")
    add(
        "--datasets",
        type=_integer(2),
        default=4096,
        metavar="N",
        help="The number of datasets (default 4096).",
    )
    add(
        "--points",
        type=_integer(1),
        default=1001,
        metavar="N",
        help="The number of records in each (default 1001).",
    )
    add(
        "--epsilon",
        type=_positive,
        default=1.0,
        metavar="E",
        help="Privacy of one draw (default 1).",
    )
    add(
        "--neighbors",
        choices=NEIGHBORS,
        default="add_remove",
        help=f"{_NEIGHBORS} The default is add_remove.",
    )
    add(
        "--seed",
        type=_SEED,
        default=0,
        metavar="S",
        help="Seed of the data and of the draws (default 0).",
    )
    add(
        "--lower",
        type=_finite,
        default=-10.0,
        metavar="A",
        help="Lower bound of the data (default -10).",
    )
    add(
        "--upper",
        type=_finite,
        default=10.0,
        metavar="B",
        help="Upper bound of the data (default 10).",
    )


def _number(
    kind: Callable[[str], T], what: str, must: str, test: Callable[[T], bool]
) -> Callable[[str], T]:
    def number(text: str) -> T:
        try:
            value = kind(text)
        except (ValueError, ZeroDivisionError):
            raise argparse.ArgumentTypeError(f"must be {what}, got {text!r}") from None
        if not test(value):
            raise argparse.ArgumentTypeError(f"must be {must}, got {text}")
        return value

    return number


def _integer(lowest: int, highest: float = math.inf) -> Callable[[str], int]:
    must = f"at least {lowest}" if highest == math.inf else f"from {lowest} to {highest}"
    return _number(int, "an integer", must, lambda value: lowest <= value <= highest)


_SEED = _integer(0, 2**32 - 1)
_finite = _number(float, "a number", "finite", math.isfinite)
_positive = _number(float, "a number", "finite and positive", lambda value: 0 < value < math.inf)
_resolution = _number(Fraction, "a number or a fraction", "positive", lambda value: value > 0)
_quantile = _number(
    Fraction, "a number or a fraction", "strictly between 0 and 1", lambda value: 0 < value < 1
)


def _bound(text: str) -> Any:
    """Parse a number, a date or a time."""
    for kind in (datetime.date, datetime.datetime):
        if re.match(r"\d{4}-\d", text):
            try:
                return kind.fromisoformat(text)
            except ValueError:
                continue
    return _finite(text)


def _step(text: str) -> Any:
    """Parse a number, or a duration: a number of days, hours, minutes or seconds."""
    if found := re.fullmatch(r"(\d{1,9})(d|h|min|s)", text):
        units = {"d": "days", "h": "hours", "min": "minutes", "s": "seconds"}
        step = datetime.timedelta(**{units[found[2]]: int(found[1])})
        if step:
            return step
    return _resolution(text)


def _delimiter(text: str) -> str:
    character = DELIMITERS.get(text, text)
    if len(character) != 1 or character in '\r\n"':
        raise argparse.ArgumentTypeError(
            f"must be one character or one of {', '.join(DELIMITERS)}, got {text!r}"
        )
    return character
