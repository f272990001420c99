"""The rows of a simulation: as fields for JSON and CSV, and as a table with its notes."""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from dpjax.accounting import Guarantee
from dpjax.command_line.text import SIMULATION, aligned, group_as_text, name_of, promised, words_of, wrapped

BEYOND = 0.25  # from this share of the records at or beyond a bound on, it is said


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
        interval95: the exact central interval that holds 95 % of the draws.
        tied_share: share of the records that equal the statistic.
        guarantee: of one draw, for several quantiles of all of them together.
        tied: whether that share is large enough to spoil the distribution.
        step: what the statistic and draws are multiples of; None for real numbers.
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
    interval95: tuple[np.floating, np.floating]
    tied_share: float
    guarantee: Guarantee
    tied: bool
    step: Fraction | None

    @property
    def fields(self) -> dict[str, Any]:
        """What JSON and CSV say of it."""
        return {name: getattr(self, name) for name in Row.__dataclass_fields__ if name not in ("tied", "step")} | {
            "quantile": float(self.quantile)
        }

    @property
    def measured_error(self) -> float:
        """The mean of |draw - statistic| over the draws."""
        return float(np.mean(np.abs(self.draws - self.value), dtype=np.float64))


def text_of(rows: Sequence[Row], beyond: dict[str, float], asked: argparse.Namespace) -> str:
    """The table with the columns that differ, what it is of, notes, guarantees and the word on simulation.

    ``beyond`` is the share of the records of each column that are at or beyond a bound.
    """
    several, many, on_a_grid = len({row.column for row in rows}) > 1, asked.draws > 1, asked.resolution is not None
    digits = {column: _decimals([row for row in rows if row.column == column]) for column in {row.column for row in rows}}

    def fixed(row: Row, value: float | np.floating) -> str:
        return f"{float(value):.{digits[row.column]}f}"

    def error(row: Row, value: float | np.floating) -> str:
        small = 0 < value < 0.5 * 10 ** -digits[row.column]  # it is not 0
        return f"{float(value):.2g}" if small else fixed(row, value)

    def point(row: Row, value: float | np.floating) -> str:
        return fixed(row, value) if row.step is None else f"{float(value):.{_places(row.step)}f}"

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
            "tied": [f"{100 * row.tied_share:.0f} %" for row in rows] if on_a_grid else None,
            "": ["*" if row.tied else "" for row in rows] if any(row.tied for row in rows) else None,
        },
        left=("column", "group", "mechanism", ""),
    )
    legend = wrapped(*_legend(rows, beyond, asked))
    return "\n\n".join([table, wrapped(*_head(rows, asked)), legend, wrapped(*_costs(rows, asked)), wrapped(SIMULATION)])


def _head(rows: Sequence[Row], asked: argparse.Namespace) -> list[str]:
    columns = {row.column: row for row in rows}
    groups = {row.group: row.present + row.missing for row in rows}
    grouped = f" by {', '.join(asked.by)} ({len(groups)} groups)" if asked.by else ""
    missing = sum({(row.column, row.group): row.missing for row in rows}.values())
    treatment = "absent" if asked.neighbors == "add_remove" else "counted as the lower bound"
    bounds = {column: f"[{row.lower:.12g}, {row.upper:.12g}]" for column, row in columns.items()}
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


def _legend(rows: Sequence[Row], beyond: dict[str, float], asked: argparse.Namespace) -> list[str]:
    lines = ["value: the statistic itself. mean |error|: exact expected distance of a draw from it."]
    lines[0] += " 95 % interval: holds 95 % of all draws."
    if asked.draws > 1:
        lines.append(f"measured: the distance from the statistic, averaged over the {asked.draws} draws.")
    if asked.resolution is not None:
        lines.append("tied: the share of the records that equal the statistic.")
    if asked.resolution is not None and "laplace" in asked.mechanism:
        lines.append("laplace draws real numbers around the statistic of the rounded records.")
    far = [(f"{100 * share:.0f} % of the records", column) for column, share in beyond.items() if share >= BEYOND]
    lines += [
        f"{share}{f' of {column}' if len(beyond) > 1 else ''} are at or beyond a bound: if that is not what you expect of such "
        "data, choose wider bounds (without looking at the data for a release)."
        for share, column in far
    ]
    shares = [row.tied_share for row in rows if row.tied]
    if shares:
        low, high = (f"{100 * share:.0f}" for share in (min(shares), max(shares)))
        lines.append(
            f"* {low if low == high else f'{low} to {high}'} % of the records are tied: they equal the statistic. A continuous "
            "distribution has no mass on a single value, so the draws spread over the gaps between distinct values, or up to the "
            "bounds. Give the resolution of the data as --resolution (1 for integers); like the bounds it is public."
        )
    return [*lines, _to_release(asked)]


def _to_release(asked: argparse.Namespace) -> str:
    """How dpjax release differs, which would print what is simulated here."""
    if asked.resolution is None:
        return "dpjax release needs a --resolution, and draws otherwise: give it here, too, to plan a release."
    others = ["no --seed"]
    others += ["one --mechanism"] * (len(asked.mechanism) > 1) + ["no laplace"] * ("laplace" in asked.mechanism)
    if asked.by:
        swap = asked.neighbors == "swap"
        others.append("no --by under swap" if swap else "--groups (or --group-epsilon and --group-delta) beside --by")
    if len(asked.quantile) > 1 and asked.neighbors == "add_remove":
        others.append("--n-max, by which the error changes")
    return f"dpjax release draws from such a distribution by the same options, with these differences: {'; '.join(others)}."


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
    """Three significant digits of the smallest error, for every number of one column of the file.

    On multiples of a step an error below a thousandth of it says no more than that the draw is the value.
    """
    errors = [(float(row.mean_abs_error), 0.0 if row.step is None else float(row.step) / 1000) for row in rows]
    smallest = min((error for error, least in errors if error > least), default=1.0)
    return min(max(2 - math.floor(math.log10(smallest)), 0), 9) if math.isfinite(smallest) else 3
