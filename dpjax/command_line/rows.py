"""The rows of a simulation: as a table with its notes, as JSON, and as lines of CSV."""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from dpjax.accounting import Guarantee
from dpjax.command_line.text import (
    SIMULATION,
    aligned,
    as_json,
    group_as_json,
    group_as_text,
    plain,
    promised,
    rounded_up,
    versions,
    words_of,
    wrapped,
)
from dpjax.frames.ties import words_of_ties


@dataclass(frozen=True)
class Row:
    """One distribution: a column, a group (None without grouping), a mechanism and an epsilon.

    Attributes:
        group: its label in each column of groups.
        quantile: which one.
        present: records of the group that have a value.
        missing: records of the group that have none.
        infinite: how many of the present ones are; they count as the bounds.
        value: the statistic itself.
        draws: float ``(draws,)``.
        mean_abs_error: E|draw - statistic|, exact.
        measured_error: the mean of |draw - statistic| over ``draws``.
        interval95: the exact central interval that holds 95 % of the draws.
        tied_share: share of the records that equal the statistic.
        tied: whether that share is large enough to spoil the distribution.
        guarantee: of one draw, for several quantiles of all of them together.
    """

    column: str
    group: tuple[str, ...] | None
    quantile: Fraction
    present: int
    missing: int
    infinite: int
    mechanism: str
    epsilon: float
    lower: float
    upper: float
    value: np.floating
    draws: np.ndarray
    mean_abs_error: np.floating
    measured_error: float
    interval95: tuple[np.floating, np.floating]
    tied_share: float
    tied: bool
    guarantee: Guarantee


def json_of(rows: Sequence[Row], asked: argparse.Namespace) -> str:
    """Everything that was asked, and the rows."""
    answer = {
        "simulation": True,
        "statistic": asked.command,
        "quantiles": [float(q) for q in asked.quantile],
        **{name: getattr(asked, name) for name in ("neighbors", "definition", "seed")},
        "resolution": None if asked.resolution is None else str(asked.resolution),
        **versions(),
        "rows": [
            _fields(row)
            | {"group": group_as_json(row.group, asked.by), "guarantee": plain(row.guarantee) | _total(row, asked.draws)}
            for row in rows
        ],
    }
    return as_json(answer)


def _total(row: Row, draws: int) -> dict[str, float]:
    return {"total_epsilon": rounded_up(Fraction(row.guarantee.epsilon) * draws)}


def _fields(row: Row) -> dict[str, Any]:
    names = [name for name in Row.__dataclass_fields__ if name not in ("measured_error", "tied", "guarantee")]
    return {name: getattr(row, name) for name in names} | {"quantile": float(row.quantile)}


def record_of(row: Row) -> dict[str, Any]:
    """A line of a CSV file: one for each draw."""
    fields = _fields(row)
    low, high = fields.pop("interval95")
    return fields | {"lower95": low, "upper95": high, "guarantee": words_of(row.guarantee)}


def text_of(rows: Sequence[Row], asked: argparse.Namespace) -> str:
    """A header, the table with the columns that differ, notes, guarantees and the word on simulation."""
    several, many = len({row.column for row in rows}) > 1, asked.draws > 1
    digits = {column: _decimals([row for row in rows if row.column == column]) for column in {row.column for row in rows}}

    def fixed(row: Row, value: float | np.floating) -> str:
        return f"{float(value):.{digits[row.column]}f}"

    def error(row: Row, value: float | np.floating) -> str:
        small = 0 < value < 0.5 * 10 ** -digits[row.column]  # it is not 0
        return f"{float(value):.2g}" if small else fixed(row, value)

    def point(row: Row, value: float | np.floating) -> str:
        if asked.resolution is None or row.mechanism == "laplace":
            return fixed(row, value)
        return f"{float(value):.{_places(asked.resolution / (1 if asked.definition == 'lower' else row.quantile.denominator))}f}"

    table = aligned(
        {
            "column": [row.column for row in rows] if several else None,
            "group": [group_as_text(row.group) for row in rows] if asked.by else None,
            "quantile": [f"{float(row.quantile):g}" for row in rows] if len(asked.quantile) > 1 else None,
            "present": [str(row.present) for row in rows],
            "missing": [str(row.missing) for row in rows] if any(row.missing for row in rows) else None,
            "infinite": [str(row.infinite) for row in rows] if any(row.infinite for row in rows) else None,
            "mechanism": [row.mechanism for row in rows],
            "epsilon": [promised(row.epsilon) for row in rows],
            "value": [point(row, row.value) for row in rows],
            "first draw" if many else "draw": [point(row, row.draws[0]) for row in rows],
            "mean |error|": [error(row, row.mean_abs_error) for row in rows],
            "measured": [error(row, row.measured_error) for row in rows] if many else None,
            "95 % interval": [f"[{point(row, row.interval95[0])}, {point(row, row.interval95[1])}]" for row in rows],
            "tied": [f"{100 * row.tied_share:.0f} %" for row in rows] if asked.resolution is not None else None,
            "": ["*" if row.tied else "" for row in rows] if any(row.tied for row in rows) else None,
        },
        left=("column", "group", "mechanism", ""),
    )
    header, legend, costs = (wrapped(*lines) for lines in (_header(rows, asked), _legend(rows, asked), _costs(rows, asked)))
    return "\n\n".join([header, table, legend, costs, wrapped(SIMULATION)])


def _header(rows: Sequence[Row], asked: argparse.Namespace) -> list[str]:
    columns = {row.column: row for row in rows}
    groups = {row.group: row.present + row.missing for row in rows}
    levels = ", ".join(f"{float(q):g}" for q in asked.quantile)
    name = "Median" if asked.command == "median" else f"Quantile{'s' if len(asked.quantile) > 1 else ''} {levels}"
    grouped = f" by {', '.join(asked.by)} ({len(groups)} groups)" if asked.by else ""
    missing = sum({(row.column, row.group): row.missing for row in rows}.values())
    treatment = "absent" if asked.neighbors == "add_remove" else "counted as the lower bound"
    bounds = {column: f"[{row.lower:.12g}, {row.upper:.12g}]" for column, row in columns.items()}
    if len(set(bounds.values())) == 1:
        bounds = {"": next(iter(bounds.values()))}
    resolution = "No resolution" if asked.resolution is None else f"Resolution {asked.resolution}"
    return [
        f"{name} (definition {asked.definition}) of column{'s' if len(columns) > 1 else ''} {', '.join(columns)}{grouped}, "
        f"{sum(groups.values())} records" + (f", {missing} missing ({treatment})." if missing else "."),
        f"Neighbors {asked.neighbors}; bounds " + ", ".join(f"{column} {pair}".strip() for column, pair in bounds.items()) + ".",
        f"{resolution}; seed {asked.seed}; {asked.draws} draw{'s' if asked.draws > 1 else ''} of each row.",
    ]


def _legend(rows: Sequence[Row], asked: argparse.Namespace) -> list[str]:
    lines = ["value: the statistic itself. mean |error|: exact expected distance of a draw from it."]
    lines[0] += " 95 % interval: holds 95 % of all draws."
    if asked.draws > 1:
        lines.append(f"measured: the distance from the statistic, averaged over the {asked.draws} draws.")
    if asked.resolution is not None:
        lines.append("tied: the share of the records that equal the statistic.")
    if asked.resolution is not None and "laplace" in asked.mechanism:
        lines.append("laplace draws real numbers around the statistic of the rounded records.")
    shares = [row.tied_share for row in rows if row.tied]
    if shares:
        lines.append(f"* {words_of_ties(shares, '--resolution')}")
    return lines


def _costs(rows: Sequence[Row], asked: argparse.Namespace) -> list[str]:
    by_promise: dict[tuple[float, str], dict[str, None]] = {}
    for row in rows:
        by_promise.setdefault((row.epsilon, words_of(row.guarantee)), {})[row.mechanism] = None
    lines = ["Guarantee of one draw:"]
    lines += [f"  epsilon {promised(epsilon)}: {promise} ({', '.join(names)})" for (epsilon, promise), names in by_promise.items()]
    if asked.draws > 1:
        totals = ", ".join(f"{promised(epsilon, times=asked.draws)}-DP" for epsilon in asked.epsilon)
        lines.append(f"{asked.draws} draws from the same data cost {asked.draws} times that: {totals} in total.")
    if len(asked.quantile) > 1:
        lines.append("All quantiles of one draw cost that together.")
    if len({(row.column, row.mechanism, row.epsilon) for row in rows}) > 1:
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


def _decimals(rows: Sequence[Row]) -> int:
    """Three significant digits of the smallest error, for every number of one column of the file."""
    smallest = min((float(row.mean_abs_error) for row in rows if row.mean_abs_error > 0), default=1.0)
    return min(max(2 - math.floor(math.log10(smallest)), 0), 9) if math.isfinite(smallest) else 3
