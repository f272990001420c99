"""``dpjax median`` and ``dpjax quantile``: draws, exact error bars and guarantees for every column and group of a file."""

from __future__ import annotations

import argparse
import math
import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from dpjax import checks
from dpjax.accounting import Guarantee
from dpjax.command_line.parser import MECHANISMS
from dpjax.command_line.programs import run_kept
from dpjax.command_line.table import LARGEST, Table, read_table
from dpjax.command_line.text import SIMULATION, UserError, aligned, as_json, promised, total_epsilon, versions, words_of, wrapped
from dpjax.distributions import PiecewiseExponential, Rounded
from dpjax.mechanisms import inverse_sensitivity, laplace, piecewise_laplace
from dpjax.numerics.multiples import most_multiples
from dpjax.sensitivity import SensitivityProfile
from dpjax.statistics import quantile

TIED_SHARE = 0.1  # from this share of the records on, a row says that its statistic is tied
_LEAST = 64  # places for records; twice as many where they do not do, so that few programs serve all sizes


def distribution_of(
    mechanism: str, profile: SensitivityProfile, epsilon: ArrayLike, *, lower: Any, upper: Any
) -> PiecewiseExponential | Rounded:
    """Return the output distribution of a mechanism by its name, on the profile of a quantile of data in ``[lower, upper]``.

    One record can move a quantile from one bound to the other, so ``laplace`` takes ``upper - lower`` as the sensitivity and stays
    within the bounds.
    """
    if mechanism == "laplace":
        return laplace.laplace(profile.value, epsilon, sensitivity=upper - lower, lower=lower, upper=upper)
    if mechanism == "inverse_sensitivity":
        return inverse_sensitivity.inverse_sensitivity(profile, epsilon)
    return piecewise_laplace.piecewise_laplace(profile, epsilon)


def guarantee_of(mechanism: str, profile: SensitivityProfile, epsilon: float) -> Guarantee:
    """Return what one draw of :func:`distribution_of` costs, as the mechanism's own file states it."""
    if mechanism == "laplace":
        return laplace.guarantee(profile, epsilon, bounded=True)
    if mechanism == "inverse_sensitivity":
        return inverse_sensitivity.guarantee(profile, epsilon)
    return piecewise_laplace.guarantee(profile, epsilon)


@dataclass(frozen=True)
class Row:
    """One distribution: a column, a group (None without grouping), a mechanism and an epsilon.

    Attributes:
        n: records in the group, with or without a value.
        missing: how many of them have none.
        draws: float ``(draws,)``.
        mean_abs_error: E|draw - statistic|, exact.
        measured_error: the mean of |draw - statistic| over ``draws``.
        interval95: the exact central interval that holds 95 % of the draws.
        tied_share: share of the records that equal the statistic.
        tied: whether that share is large enough to spoil the distribution.
        guarantee: of one draw.
    """

    column: str
    group: str | None
    n: int
    missing: int
    mechanism: str
    epsilon: float
    lower: float
    upper: float
    draws: np.ndarray
    mean_abs_error: np.floating
    measured_error: float
    interval95: tuple[np.floating, np.floating]
    tied_share: float
    tied: bool
    guarantee: Guarantee


def run(asked: argparse.Namespace) -> tuple[str, int]:
    """Return the report and the exit code."""
    for column in asked.column or ():
        if asked.column.count(column) > 1:
            raise UserError(f"--column names {column!r} twice.")
    table = read_table(asked.file, columns=asked.column, by=asked.by, delimiter=asked.delimiter, header=not asked.no_header)
    asked.quantile = asked.quantile if asked.command == "quantile" else Fraction(1, 2)
    asked.mechanism, asked.epsilon = list(dict.fromkeys(asked.mechanism)), list(dict.fromkeys(asked.epsilon))
    asked.definition = asked.definition or ("linear" if asked.resolution is None else "lower")
    asked.seed = secrets.randbits(32) if asked.seed is None else asked.seed
    bounds = bounds_of(asked.lower, asked.upper, table.columns)
    groups, sweep = len(table.groups), len(asked.epsilon)
    total = len(table.columns) * groups * len(asked.mechanism) * sweep
    if asked.draws * total > LARGEST:
        raise UserError(f"{asked.draws} draws for each of {total} rows are too many: at most {LARGEST} in all.")
    if groups * table.records.shape[-1] * sweep > LARGEST:
        raise UserError(f"{sweep} epsilons are too many for a table of this size: give fewer at a time.")
    try:
        dtype = jnp.result_type(float)
        for pair in bounds if asked.resolution is not None else ():
            refined = 1 if asked.definition == "lower" else asked.quantile.denominator
            checks.resolution(asked.resolution, pair, most_multiples(dtype) // refined)
        # Under a trace, public numbers are checked and nothing is computed.
        jax.eval_shape(
            lambda: [checks.bounds(*pair, dtype) for pair in bounds] + [checks.positive("epsilon", asked.epsilon, dtype)]
        )
        rows = [row for column in range(len(table.columns)) for row in _rows_of_column(table, column, *bounds[column], asked)]
    except ValueError as error:  # the library speaks of public parameters only: data never raises
        raise UserError(str(error)) from error
    return (_json(rows, asked) if asked.json else _text(rows, asked)), 0


def bounds_of(lower: list[float], upper: list[float], columns: Sequence[str]) -> list[tuple[float, float]]:
    """Return one pair of bounds for each column."""
    for name, given in (("--lower", lower), ("--upper", upper)):
        if len(given) not in (1, len(columns)):
            raise UserError(f"{name} has {len(given)} values for {len(columns)} columns: give one, or one for each.")
    bounds = list(zip(*(given * (len(columns) // len(given)) for given in (lower, upper)), strict=True))
    for column, (low, high) in zip(columns, bounds, strict=True):
        if not low < high:
            raise UserError(f"--lower must be below --upper: got {low:g} and {high:g} for {column}.")
    return bounds


def _rows_of_column(table: Table, column: int, lower: float, upper: float, asked: argparse.Namespace) -> Iterator[Row]:
    # Clamped in float64, so that no record overflows in float32. NaN stays.
    records = np.clip(table.records[column], lower, upper)
    answers = {name: _answer(name, records, table.count, column, lower, upper, asked) for name in asked.mechanism}
    profile, value = next(iter(answers.values()))[:2]
    if asked.resolution is not None:
        records = np.rint(records * asked.resolution.denominator / asked.resolution.numerator)
        records = records * asked.resolution.numerator / asked.resolution.denominator
    share, number = _ties(records, table.count, value, lower if asked.neighbors == "swap" else None)
    missing = table.missing[column]
    for group, label in enumerate(table.groups):
        for mechanism, (_, _, draws, exact, low, high) in answers.items():
            spoiled = asked.resolution is None and share[group] >= TIED_SHARE and number[group] > 1
            for i, epsilon in enumerate(asked.epsilon):
                distance = np.abs(draws[:, i, group] - value[group])
                yield Row(
                    column=table.columns[column],
                    group=label,
                    n=int(table.count[group]),
                    missing=int(missing[group]),
                    mechanism=mechanism,
                    epsilon=epsilon,
                    lower=lower,
                    upper=upper,
                    draws=draws[:, i, group],
                    mean_abs_error=exact[i, group],
                    measured_error=float(np.mean(distance, dtype=np.float64)),
                    interval95=(low[i, group], high[i, group]),
                    tied_share=float(share[group]),
                    tied=bool(spoiled) and mechanism != "laplace",
                    guarantee=guarantee_of(mechanism, profile, epsilon),
                )


def _answer(
    mechanism: str, records: np.ndarray, count: np.ndarray, column: int, lower: float, upper: float, asked: argparse.Namespace
) -> tuple[Any, ...]:
    """The profile of every group, its value, draws ``(draws, epsilons, groups)``; then errors and both ends of intervals."""
    n = records.shape[-1]
    places = max(_LEAST, 2 ** (n - 1).bit_length())
    if asked.quantile.denominator * (places + 2) < 2**31:  # otherwise its ranks would not be exact
        records = np.pad(records, [(0, 0), (0, places - n)], constant_values=np.nan)
    numbers = {
        "seed": np.uint32(asked.seed),
        "column": np.uint32(column),
        # A mechanism's key goes by its own number: its draws are the same whichever others are asked for.
        "number": np.uint32(MECHANISMS.index(mechanism)),
        "lower": jnp.result_type(float).type(lower),
        "upper": jnp.result_type(float).type(upper),
        "epsilon": np.array(asked.epsilon)[:, None],
    }
    options = {name: getattr(asked, name) for name in ("neighbors", "definition", "resolution", "draws")} | {"q": asked.quantile}
    profile, *found = run_kept(asked.programs, _program, records, count, numbers, mechanism=mechanism, **options)
    return profile, *map(np.asarray, found)


@partial(jax.jit, static_argnames=("mechanism", "q", "neighbors", "definition", "resolution", "draws"))
def _program(
    records: jax.Array,
    count: jax.Array,
    numbers: dict[str, jax.Array],
    *,
    mechanism: str,
    q: Fraction,
    neighbors: checks.Neighbors,
    definition: Literal["linear", "lower"],
    resolution: Fraction | None,
    draws: int,
) -> tuple[Any, ...]:
    """One program for everything, to be kept as one."""
    lower, upper = numbers["lower"], numbers["upper"]
    options: Any = {"neighbors": neighbors, "resolution": resolution, "definition": definition, "count": count}
    profile = quantile(records, q, lower=lower, upper=upper, **options)
    distribution = distribution_of(mechanism, profile, numbers["epsilon"], lower=lower, upper=upper)
    key = jax.random.fold_in(jax.random.fold_in(jax.random.key(numbers["seed"]), numbers["column"]), numbers["number"])
    drawn = distribution.sample(key, (draws,))
    return profile, profile.value, drawn, distribution.mean_abs_error(profile.value), *distribution.interval(0.95)


def _ties(records: np.ndarray, count: np.ndarray, value: np.ndarray, missing: float | None) -> tuple[np.ndarray, np.ndarray]:
    """How many of each group's records equal the statistic, as a share and as a number; where records are ``missing``, this is."""
    present = np.arange(records.shape[-1]) < count[:, None]
    if missing is not None:
        records = np.where(np.isnan(records), missing, records)
    present &= ~np.isnan(records)
    tied = np.sum(present & (records.astype(value.dtype) == value[:, None]), axis=-1)
    return tied / np.maximum(np.sum(present, axis=-1), 1), tied


def _json(rows: Sequence[Row], asked: argparse.Namespace) -> str:
    def cost(row: Row) -> dict[str, object]:
        total = {"total_epsilon": total_epsilon(row.guarantee.epsilon, asked.draws)}
        return {
            "epsilon": row.guarantee.epsilon,
            "bounded_range": row.guarantee.bounded_range,
            "neighbors": asked.neighbors,
        } | total

    names = [name for name in Row.__dataclass_fields__ if name not in ("measured_error", "tied", "guarantee")]
    answer = {
        "simulation": True,
        "statistic": asked.command,
        "quantile": float(asked.quantile),
        **{name: getattr(asked, name) for name in ("neighbors", "definition", "seed")},
        "resolution": None if asked.resolution is None else str(asked.resolution),
        **versions(),
        "rows": [{name: getattr(row, name) for name in names} | {"guarantee": cost(row)} for row in rows],
    }
    return as_json(answer)


def _text(rows: Sequence[Row], asked: argparse.Namespace) -> str:
    """A header, the table with the columns that differ, notes, guarantees and the word on simulation."""
    several, many = len({row.column for row in rows}) > 1, asked.draws > 1
    digits = {column: _decimals([row for row in rows if row.column == column]) for column in {row.column for row in rows}}

    def fixed(row: Row, value: float | np.floating) -> str:
        return f"{float(value):.{digits[row.column]}f}"

    def point(row: Row, value: float | np.floating) -> str:
        if asked.resolution is None or row.mechanism == "laplace":
            return fixed(row, value)
        return f"{float(value):.{_places(asked.resolution / (1 if asked.definition == 'lower' else asked.quantile.denominator))}f}"

    table = aligned(
        {
            "column": [row.column for row in rows] if several else None,
            "group": [row.group or "(empty)" for row in rows] if asked.by is not None else None,
            "n": [str(row.n) for row in rows],
            "missing": [str(row.missing) for row in rows] if any(row.missing for row in rows) else None,
            "mechanism": [row.mechanism for row in rows],
            "epsilon": [promised(row.epsilon) for row in rows],
            "first draw" if many else "draw": [point(row, row.draws[0]) for row in rows],
            "mean |error|": [fixed(row, row.mean_abs_error) for row in rows],
            "measured": [fixed(row, row.measured_error) for row in rows] if many else None,
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
    groups = {row.group: row.n for row in rows}
    name = asked.command.capitalize() + (f" {float(asked.quantile):g}" if asked.command == "quantile" else "")
    grouped = "" if asked.by is None else f" by {asked.by} ({len(groups)} groups)"
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
    lines = ["mean |error|: exact expected distance of a draw from the statistic. 95 % interval: holds 95 % of all draws."]
    if asked.draws > 1:
        lines.append(f"measured: the distance from the statistic, averaged over the {asked.draws} draws.")
    if asked.resolution is not None:
        lines.append("tied: the share of the records that equal the statistic.")
    if asked.resolution is not None and "laplace" in asked.mechanism:
        lines.append("laplace draws real numbers around the statistic of the rounded records.")
    shares = [row.tied_share for row in rows if row.tied]
    if shares:
        low, high = (f"{100 * share:.0f}" for share in (min(shares), max(shares)))
        lines.append(
            f"* {low if low == high else f'{low} to {high}'} % of the records are tied: they equal the statistic. A continuous "
            "distribution has no mass on a single value, so the draws spread over the gaps between distinct values, or up to the "
            "bounds. Give the resolution of the data as --resolution (1 for integers); like the bounds it is public."
        )
    return lines


def _costs(rows: Sequence[Row], asked: argparse.Namespace) -> list[str]:
    by_promise: dict[tuple[float, str], dict[str, None]] = {}
    for row in rows:
        by_promise.setdefault((row.epsilon, words_of(row.guarantee)), {})[row.mechanism] = None
    lines = ["Guarantee of one draw:"]
    lines += [f"  epsilon {promised(epsilon)}: {promise} ({', '.join(names)})" for (epsilon, promise), names in by_promise.items()]
    if asked.draws > 1:
        totals = ", ".join(f"{promised(epsilon, asked.draws)}-DP" for epsilon in asked.epsilon)
        lines.append(f"{asked.draws} draws from the same data cost {asked.draws} times that: {totals} in total.")
    if len({(row.column, row.mechanism, row.epsilon) for row in rows}) > 1:
        lines.append("Every further column, mechanism or epsilon asked of the same records adds its own cost.")
    if asked.by is not None:
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
