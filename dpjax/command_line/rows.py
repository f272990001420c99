"""The rows of a simulation as a table with its notes."""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from dpjax.command_line.text import SIMULATION, aligned, group_as_text, name_of, promised, words_of, wrapped
from dpjax.frames.drawn import MEASURED
from dpjax.frames.notes import BOUND_SHARE, TIED_SHARE, words_of_bounds, words_of_ties

Row = dict[str, Any]


def text_of(rows: Sequence[Row], beyond: dict[str, float], asked: argparse.Namespace) -> str:
    """Return the table with the columns that differ, what it is of, notes, guarantees and the word on simulation.

    ``beyond`` is the share of the records of each column that are at or beyond a bound.
    """
    many, on_a_grid = asked.draws > 1, asked.resolution is not None
    columns = list(dict.fromkeys(row["column"] for row in rows))
    tied = [_is_tied(row, asked) for row in rows]
    places = {column: _decimals([row for row in rows if row["column"] == column], asked) for column in columns}

    def error(row: Row, value: float) -> str:
        decimals = places[row["column"]]
        return f"{value:.2g}" if 0 < value < 0.5 * 10**-decimals else f"{value:.{decimals}f}"  # only 0 is printed as 0

    def point(row: Row, value: float) -> str:
        step = _step(row, asked)
        return f"{value:.{places[row['column']] if step is None else _places(step)}f}"

    def measured(row: Row) -> float:
        return float(np.mean(np.abs(row["draws"] - row["value"]), dtype=np.float64))

    def numbers(name: str) -> list[str] | None:
        return [str(row[name]) for row in rows] if any(row[name] for row in rows) else None

    table = aligned(
        {
            "column": [row["column"] for row in rows] if len(columns) > 1 else None,
            "group": [group_as_text(row["group"]) for row in rows] if asked.by else None,
            "quantile": [f"{row['quantile']:g}" for row in rows] if asked.several else None,
            "present": [str(row["present"]) for row in rows],
            "missing": numbers("missing"),
            "infinite": numbers("infinite"),
            "mechanism": [row["mechanism"] for row in rows],
            "epsilon": [promised(row["epsilon"]) for row in rows],
            "value": [point(row, row["value"]) for row in rows],
            "first draw" if many else "draw": [point(row, row["draws"][0]) for row in rows],
            "mean |error|": [error(row, row["mean_abs_error"]) for row in rows],
            "measured": [error(row, measured(row)) for row in rows] if many else None,
            "95 % interval": [f"[{', '.join(point(row, end) for end in row['interval95'])}]" for row in rows],
            "tied": [f"{100 * row['tied_share']:.0f} %" for row in rows] if on_a_grid else None,
            "": ["*" * here for here in tied] if any(tied) else None,
        },
        left=("column", "group", "mechanism", ""),
    )
    shares = [row["tied_share"] for row, here in zip(rows, tied, strict=True) if here]
    ties = [f"* {words_of_ties(shares, '--resolution')}"] if shares else []
    said = _head(rows, columns, asked), [*_legend(beyond, asked), *ties, _to_release(asked)], _costs(rows, asked)
    return "\n\n".join([table, *(wrapped(*lines) for lines in said), wrapped(SIMULATION)])


def _is_tied(row: Row, asked: argparse.Namespace) -> bool:
    """Whether so many records equal the statistic that a continuous distribution of it is spoilt."""
    share = row["tied_share"]
    number = share * (row["present"] + (row["missing"] if asked.neighbors == "swap" else 0))
    return bool(asked.resolution is None and row["mechanism"] != "laplace" and share >= TIED_SHARE and number > 1.5)


def _step(row: Row, asked: argparse.Namespace) -> Fraction | None:
    """What the statistic and the draws of a row are multiples of; None for real numbers."""
    if asked.resolution is None or row["mechanism"] == "laplace":
        return None
    step = Fraction(asked.statistics[row["column"]].statistic.resolution)
    return step / asked.quantile[0].denominator if asked.definition == "linear" else step


def _head(rows: Sequence[Row], columns: Sequence[str], asked: argparse.Namespace) -> list[str]:
    groups = {row["group"]: row["present"] + row["missing"] for row in rows}
    grouped = f" by {', '.join(asked.by)} ({len(groups)} groups)" if asked.by else ""
    missing = sum({(row["column"], row["group"]): row["missing"] for row in rows}.values())
    treatment = "absent" if asked.neighbors == "add_remove" else "counted as the lower bound"
    bounds = {row["column"]: f"[{row['lower']:.12g}, {row['upper']:.12g}]" for row in rows}
    if len(set(bounds.values())) == 1:
        bounds = {"": next(iter(bounds.values()))}
    resolution = "No resolution" if asked.resolution is None else f"Resolution {', '.join(map(str, asked.resolution))}"
    return [
        f"{name_of(asked.quantile)} (definition {asked.definition}) of column{'s' if len(columns) > 1 else ''} "
        f"{', '.join(columns)}{grouped}, {sum(groups.values())} records"
        + (f", {missing} missing ({treatment})." if missing else "."),
        f"Neighbors {asked.neighbors}; bounds " + ", ".join(f"{column} {pair}".strip() for column, pair in bounds.items()) + ".",
        f"{resolution}; seed {asked.seed}; {asked.draws} draw{'s' if asked.draws > 1 else ''} of each row.",
    ]


def _legend(beyond: dict[str, float], asked: argparse.Namespace) -> list[str]:
    exact = not asked.several or asked.resolution is None
    error = "exact expected distance of a draw from it" if exact else "the distance of a draw from it"
    lines = [f"value: the statistic itself. mean |error|: {error}. 95 % interval: holds 95 % of all draws."]
    if not exact:
        lines.append(f"mean |error| and 95 % interval of several quantiles are measured on {MEASURED} draws by the seed.")
    if asked.draws > 1:
        lines.append(f"measured: the distance from the statistic, averaged over the {asked.draws} draws.")
    if asked.resolution is not None:
        lines.append("tied: the share of the records that equal the statistic.")
        if "laplace" in asked.mechanism:
            lines.append("laplace draws real numbers around the statistic of the rounded records.")
    far = {column: words_of_bounds([share]) for column, share in beyond.items() if share >= BOUND_SHARE}
    return lines + [f"{f'{column}: ' if len(beyond) > 1 else ''}{words}" for column, words in far.items()]


def _to_release(asked: argparse.Namespace) -> str:
    """How dpjax release differs, which would print what is simulated here."""
    if asked.resolution is None:
        return "dpjax release needs a --resolution, and draws otherwise: give it here, too, to plan a release."
    others = ["no --seed"]
    others += ["one --mechanism"] * (len(asked.mechanism) > 1) + ["no laplace"] * ("laplace" in asked.mechanism)
    if asked.by:
        swap = asked.neighbors == "swap"
        others.append("no --by under swap" if swap else "--groups (or --group-epsilon and --group-delta) beside --by")
    return f"dpjax release draws from such a distribution by the same options, with these differences: {'; '.join(others)}."


def _costs(rows: Sequence[Row], asked: argparse.Namespace) -> list[str]:
    by_promise: dict[tuple[float, str], dict[str, None]] = {}
    for row in rows:
        by_promise.setdefault((row["epsilon"], words_of(row["guarantee"])), {})[row["mechanism"]] = None
    lines = ["Guarantee of one draw:"]
    lines += [f"  epsilon {promised(epsilon)}: {promise} ({', '.join(names)})" for (epsilon, promise), names in by_promise.items()]
    if asked.draws > 1:
        totals = ", ".join(f"{promised(epsilon, times=asked.draws)}-DP" for epsilon in asked.epsilon)
        lines.append(f"{asked.draws} draws from the same data cost {asked.draws} times that: {totals} in total.")
    if asked.several:
        lines.append("All quantiles of one draw cost that together.")
    if len({(row["column"], row["mechanism"], row["epsilon"]) for row in rows}) > 1:
        lines.append("Every further column, mechanism or epsilon asked of the same records adds its own cost.")
    if asked.by:
        shared = (
            "Groups share no record: all of them together cost the maximum over groups, not the sum (parallel composition)."
            if asked.neighbors == "add_remove"
            else "A swapped record can leave one group and enter another: all groups together cost 2x one group, not the sum."
        )
        lines.append(f"{shared} The list of groups counts as public.")
    return lines


def _places(step: Fraction) -> int:
    """How many decimals the multiples of a step have, at most 9."""
    return next((places for places in range(9) if (step * 10**places).denominator == 1), 9)


def _decimals(rows: Sequence[Row], asked: argparse.Namespace) -> int:
    """Return three significant digits of the smallest error, for every number of one column of the file.

    On multiples of a step an error below a thousandth of it says no more than that the draw is the value.
    """
    errors = [(float(row["mean_abs_error"]), float(_step(row, asked) or 0) / 1000) for row in rows]
    smallest = min((error for error, least in errors if error > least), default=1.0)
    return min(max(2 - math.floor(math.log10(smallest)), 0), 9) if math.isfinite(smallest) else 3
