"""Rows as a readable text or as JSON, and what every report says of privacy."""

from __future__ import annotations

import json
import math
import textwrap
from collections.abc import Sequence
from dataclasses import replace
from decimal import ROUND_CEILING, Context, Decimal
from typing import Any

import jax
import numpy as np

from dpjax.accounting import Guarantee
from dpjax.command_line.estimate import Question, Row
from dpjax.release.api import cost_of
from dpjax.version import __version__

SIMULATION = (
    "Simulation: float draws reveal low-order bits of the records, and error bars, sizes, ties and group names are read from the "
    "data. None of this is a private release."
)


def as_text(rows: Sequence[Row], question: Question, by: str | None) -> str:
    """Return a header, the table with the columns that differ, notes, guarantees and the word on simulation."""
    several = len({row.column for row in rows}) > 1
    missing, many, tied = any(row.missing for row in rows), question.draws > 1, any(row.tied for row in rows)
    digits = {column: _decimals([row for row in rows if row.column == column]) for column in {row.column for row in rows}}
    fields = {
        "column": several and [row.column for row in rows],
        "group": by is not None and [row.group or "(empty)" for row in rows],
        "n": [str(row.n) for row in rows],
        "missing": missing and [str(row.missing) for row in rows],
        "mechanism": [row.mechanism for row in rows],
        "epsilon": [promised(row.epsilon) for row in rows],
        "first draw" if many else "draw": [_fixed(row.draws[0], digits[row.column]) for row in rows],
        "mean |error|": [_fixed(row.mean_abs_error, digits[row.column]) for row in rows],
        "measured": many and [_fixed(row.measured_error, digits[row.column]) for row in rows],
        "95 % interval": ["[{}, {}]".format(*(_fixed(end, digits[row.column]) for end in row.interval95)) for row in rows],
        "": tied and ["*" if row.tied else "" for row in rows],
    }
    table = aligned({name: cells for name, cells in fields.items() if cells}, left=("column", "group", "mechanism", ""))
    notes = (_header(rows, question, by), _legend(rows, question), _costs(rows, question, by), [SIMULATION])
    header, legend, costs, simulation = ("\n".join(map(wrapped, lines)) for lines in notes)
    return "\n\n".join([header, "\n".join(table), legend, costs, simulation])


def as_json(rows: Sequence[Row], question: Question) -> str:
    """Return one JSON object; a number that is not finite is null."""
    answer = {
        "simulation": True,
        "statistic": question.statistic,
        "quantile": float(question.q),
        "neighbors": question.neighbors,
        "definition": question.definition,
        "rho": question.rho,
        "seed": question.seed,
        **versions(),
        "rows": [
            {
                "column": row.column,
                "group": row.group,
                "n": row.n,
                "missing": row.missing,
                "mechanism": row.mechanism,
                "epsilon": row.epsilon,
                "lower": row.lower,
                "upper": row.upper,
                "draws": [number(draw) for draw in row.draws],
                "mean_abs_error": number(row.mean_abs_error),
                "interval95": [number(end) for end in row.interval95],
                "tied_share": number(row.tied_share),
                "guarantee": {
                    **guarantee_fields(row.guarantee),
                    "total_epsilon": cost_of(row.guarantee.epsilon, question.draws, row.guarantee.neighbors).epsilon,
                },
            }
            for row in rows
        ],
    }
    return json.dumps(answer, indent=2, allow_nan=False)


def versions() -> dict[str, str]:
    """Return what computed a report: the versions of dpjax and JAX, and the device."""
    device = jax.devices()[0]
    name = device.platform if device.device_kind == device.platform else f"{device.platform} ({device.device_kind})"
    return {"dpjax_version": __version__, "jax_version": jax.__version__, "device": name}


def guarantee_fields(guarantee: Guarantee) -> dict[str, Any]:
    """Return a guarantee as JSON has it."""
    return {"epsilon": guarantee.epsilon, "bounded_range": guarantee.bounded_range, "neighbors": guarantee.neighbors}


def promised(epsilon: float, times: int = 1) -> str:
    """Return a privacy parameter as text of at most six digits, so many times, rounded up: no promise is printed too small.

    The parameter is read as the shortest decimal that stands for it, so that 0.1 stays 0.1, and three times 0.1 is 0.3.

    >>> promised(0.5), promised(0.1, 3), promised(0.12345649), promised(0.33333349, 3), promised(1e-7), promised(float("inf"))
    ('0.5', '0.3', '0.123457', '1.00001', '1e-07', 'inf')
    """
    if not math.isfinite(epsilon):
        return f"{epsilon:g}"
    exact = Context(prec=60).multiply(Decimal(repr(float(epsilon))), times)
    return f"{float(Context(prec=6, rounding=ROUND_CEILING).plus(exact)):g}"


def said_of(guarantee: Guarantee) -> str:
    """Return the words of a guarantee without a delta, with its numbers as of :func:`promised`.

    >>> said_of(Guarantee(0.12345649, 0.25, "swap"))
    '0.123457-DP and 0.25-bounded-range under swap neighbors'
    """
    epsilon, bounded_range, zcdp = (float(promised(v)) for v in (guarantee.epsilon, guarantee.bounded_range, guarantee.zcdp))
    return str(replace(guarantee, epsilon=epsilon, bounded_range=bounded_range, zcdp=zcdp))


def number(value: float | np.floating) -> float | None:
    """Return the shortest decimal that reads back as ``value`` in its own precision, or None if it is not finite.

    >>> number(np.float32(0.1)), number(np.float32("nan"))
    (0.1, None)
    """
    return float(str(value)) if math.isfinite(value) else None


def aligned(fields: dict[str, list[str]], *, left: Sequence[str] = ()) -> list[str]:
    r"""Return the lines of a table: a header, then one line for each entry; numbers to the right.

    Args:
        fields: the columns by name, of equal length.
        left: names of the columns of text, which stay to the left.

    >>> print("\n".join(aligned({"name": ["a", "bcdef"], "n": ["1", "20"]}, left=("name",))))
    name    n
    a       1
    bcdef  20
    """
    columns = []
    for name, cells in fields.items():
        cells = [name, *(cell if cell.isprintable() else ascii(cell) for cell in cells)]
        width = max(map(len, cells))
        columns.append([cell.ljust(width) if name in left else cell.rjust(width) for cell in cells])
    return ["  ".join(line).rstrip() for line in zip(*columns, strict=True)]


def wrapped(text: str) -> str:
    """Return a paragraph as lines of at most 118 characters, the further ones indented by two."""
    return textwrap.fill(text, 118, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)


def _header(rows: Sequence[Row], question: Question, by: str | None) -> list[str]:
    columns = {row.column: row for row in rows}
    groups = {row.group: row.n for row in rows}
    name = question.statistic.capitalize() + (f" {float(question.q):g}" if question.statistic == "quantile" else "")
    grouped = "" if by is None else f" by {by} ({len(groups)} groups)"
    missing = sum({(row.column, row.group): row.missing for row in rows}.values())
    treatment = "absent" if question.neighbors == "add_remove" else "counted as the lower bound"
    bounds = {column: f"[{row.lower:.12g}, {row.upper:.12g}]" for column, row in columns.items()}
    if len(set(bounds.values())) == 1:
        bounds = {"": next(iter(bounds.values()))}
    return [
        f"{name} (definition {question.definition}) of column{'s' if len(columns) > 1 else ''} {', '.join(columns)}{grouped}, "
        f"{sum(groups.values())} records" + (f", {missing} missing ({treatment})." if missing else "."),
        f"Neighbors {question.neighbors}; bounds " + ", ".join(f"{column} {pair}".strip() for column, pair in bounds.items()) + ".",
        f"rho {question.rho:.12g}; seed {question.seed}; {question.draws} draw{'s' if question.draws > 1 else ''} of each row.",
    ]


def _legend(rows: Sequence[Row], question: Question) -> list[str]:
    lines = ["mean |error|: exact expected distance of a draw from the statistic. 95 % interval: holds 95 % of all draws."]
    if question.draws > 1:
        lines.append(f"measured: the distance from the statistic, averaged over the {question.draws} draws.")
    if question.rho > 0 and "laplace" in question.mechanisms:
        lines.append("laplace has no use for rho.")
    shares = [row.tied_share for row in rows if row.tied]
    if shares:
        low, high = (f"{100 * share:.0f}" for share in (min(shares), max(shares)))
        lines.append(
            f"* {low if low == high else f'{low} to {high}'} % of the records are tied: they equal the statistic. A continuous law "
            "has no mass on a single value, so the draws spread over the gaps between distinct values, or up to the bounds. "
            "Half the resolution of the data as --rho (0.5 for whole numbers) puts mass there; like the bounds it is public."
        )
    return lines


def _costs(rows: Sequence[Row], question: Question, by: str | None) -> list[str]:
    lines = ["Guarantee of one draw:"]
    by_promise: dict[tuple[float, str], list[str]] = {}
    for row in rows:
        names = by_promise.setdefault((row.epsilon, said_of(row.guarantee)), [])
        if row.mechanism not in names:
            names.append(row.mechanism)
    lines += [f"  epsilon {promised(epsilon)}: {promise} ({', '.join(names)})" for (epsilon, promise), names in by_promise.items()]
    if question.draws > 1:
        totals = ", ".join(f"{promised(epsilon, question.draws)}-DP" for epsilon in question.epsilons)
        lines.append(f"{question.draws} draws from the same data cost {question.draws} times that: {totals} in total.")
    if len({(row.column, row.mechanism, row.epsilon) for row in rows}) > 1:
        lines.append("Every further column, mechanism or epsilon asked of the same records adds its own cost.")
    if by is not None and question.neighbors == "add_remove":
        lines.append(
            "Groups share no record: all of them together cost the maximum over groups, not the sum (parallel composition). "
            "The list of groups counts as public."
        )
    elif by is not None:
        lines.append(
            "A swapped record can leave one group and enter another: all groups together cost 2x one group, not the sum. "
            "The list of groups counts as public."
        )
    return lines


def _decimals(rows: Sequence[Row]) -> int:
    """Three significant digits of the smallest error, for every number of one column of the file."""
    smallest = min((float(row.mean_abs_error) for row in rows if row.mean_abs_error > 0), default=1.0)
    return min(max(2 - math.floor(math.log10(smallest)), 0), 9) if math.isfinite(smallest) else 3


def _fixed(value: float | np.floating, decimals: int) -> str:
    return f"{float(value):.{decimals}f}"
