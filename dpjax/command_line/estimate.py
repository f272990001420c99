"""``dpjax median`` and ``dpjax quantile``: draws, exact error bars and guarantees for every column and group of a file."""

from __future__ import annotations

import argparse
import math
import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from itertools import product
from math import lcm
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from dpjax import checks
from dpjax.accounting import Guarantee
from dpjax.command_line.errors import UserError
from dpjax.command_line.parser import MECHANISMS
from dpjax.command_line.programs import run_kept
from dpjax.command_line.table import LARGEST, read_table, source_of
from dpjax.command_line.text import SIMULATION, aligned, as_json, promised, report, rounded_up, versions, words_of, wrapped
from dpjax.distributions import PiecewiseExponential, Rounded
from dpjax.mechanisms import inverse_sensitivity, joint_quantiles, laplace, piecewise_laplace
from dpjax.numerics.multiples import most_multiples
from dpjax.sensitivity import SensitivityProfile
from dpjax.statistics import quantile, quantiles
from dpjax.statistics.records import levels_needed

TIED_SHARE = 0.1  # from this share of the records on, a row says that its statistic is tied
JOINT = "joint_quantiles"  # of several quantiles together
_AT_A_TIME = 2**22  # records of each group


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


def guarantee_of(mechanism: str, profile: Any, epsilon: float) -> Guarantee:
    """Return what one draw of :func:`distribution_of` costs, as the mechanism's own file states it."""
    if mechanism == "laplace":
        return laplace.guarantee(profile, epsilon, bounded=True)
    if mechanism == "inverse_sensitivity":
        return inverse_sensitivity.guarantee(profile, epsilon)
    if mechanism == JOINT:
        return joint_quantiles.guarantee(profile, epsilon)
    return piecewise_laplace.guarantee(profile, epsilon)


@dataclass(frozen=True)
class Row:
    """One distribution: a column, a group (None without grouping), a mechanism and an epsilon.

    Attributes:
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
    group: str | None
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


def run(asked: argparse.Namespace) -> tuple[str, int]:
    """Return the report and the exit code."""
    for column in asked.column or ():
        if asked.column.count(column) > 1:
            raise UserError(f"--column names {column!r} twice.")
    _complete(asked)
    table = read_table(source_of(asked), columns=asked.column, by=asked.by)
    bounds = bounds_of(asked.lower, asked.upper, list(table.columns))
    groups, sweep = len(table.grouping.labels), len(asked.epsilon)
    total = len(bounds) * groups * len(asked.mechanism) * sweep * len(asked.quantile)
    if asked.draws * total > LARGEST:
        raise UserError(f"{asked.draws} draws for each of {total} rows are too many: at most {LARGEST} in all.")
    if sweep > 1 and table.grouping.codes.size * sweep > LARGEST:
        raise UserError(f"{sweep} epsilons are too many for a table of this size: give fewer at a time.")
    try:
        dtype = jnp.result_type(float)
        for pair in bounds if asked.resolution is not None else ():
            refined = 1 if asked.definition == "lower" else lcm(*(q.denominator for q in asked.quantile))
            checks.resolution(asked.resolution, pair, most_multiples(dtype) // refined)
        # Under a trace, public numbers are checked and nothing is computed.
        jax.eval_shape(
            lambda: [checks.bounds(*pair, dtype) for pair in bounds] + [checks.positive("epsilon", asked.epsilon, dtype)]
        )
        rows: dict[tuple[int, int], list[Row]] = {}
        for number, batch in enumerate(table.grouping.batches()):
            for place, (column, values) in enumerate(table.columns.items()):
                answers = _answers(batch.padded(values), batch.sizes, place + number * len(bounds), *bounds[place], asked)
                for row, group in enumerate(batch.groups.tolist()):
                    label = ", ".join(table.grouping.labels[group]) if asked.by else None
                    rows[place, group] = list(_rows(answers, row, column, label, *bounds[place], asked))
    except ValueError as error:  # the library speaks of public parameters only: data never raises
        raise UserError(str(error)) from error
    ordered = [row for place in range(len(bounds)) for group in range(groups) for row in rows[place, group]]
    return report(asked, ordered, _json, _text, _record), 0


def _complete(asked: argparse.Namespace) -> None:
    """Fill in what was not asked, and refuse what does not fit."""
    asked.quantile = sorted(set(asked.quantile)) if asked.command == "quantile" else [Fraction(1, 2)]
    asked.mechanism, asked.epsilon = list(dict.fromkeys(asked.mechanism)), list(dict.fromkeys(asked.epsilon))
    if len(asked.quantile) > 1:
        if asked.mechanism != [MECHANISMS[0]] or asked.definition:
            raise UserError("several quantiles are drawn together, by joint quantiles: without --mechanism and --definition.")
        asked.mechanism = [JOINT]
    asked.definition = asked.definition or ("linear" if asked.resolution is None else "lower")
    asked.seed = secrets.randbits(32) if asked.seed is None else asked.seed


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


class _Answers(NamedTuple):
    """Of one column and the groups of a batch: what is the same for all mechanisms, and what each of them found.

    Attributes:
        counts: how many records are present, missing and infinite, and the share and the number of those that are tied, each
            ``(groups,)``, the last two ``(groups, quantiles)``.
        profile: of one row or more, for the guarantee.
        found: by mechanism: values ``(groups, quantiles)``, draws ``(draws, epsilons, groups, quantiles)``, and without the axis of
            draws errors and both ends of intervals.
    """

    counts: tuple[np.ndarray, ...]
    profile: Any
    found: dict[str, list[np.ndarray]]


def _answers(
    records: np.ndarray, count: np.ndarray, stream: int, lower: float, upper: float, asked: argparse.Namespace
) -> _Answers:
    missing = count - np.sum(~np.isnan(records), axis=-1)
    infinite = np.sum(np.isinf(records), axis=-1)
    records = np.clip(records, lower, upper, out=records)  # in float64: no record overflows in float32. NaN stays.
    found = {name: _answer(name, records, count, stream, lower, upper, asked) for name in asked.mechanism}
    profile, value = next(iter(found.values()))[:2]
    tied = _ties(records, count, value, asked.resolution, lower if asked.neighbors == "swap" else None)
    return _Answers((count - missing, missing, infinite, *tied), profile, {name: answer[1:] for name, answer in found.items()})


def _rows(
    answers: _Answers, group: int, column: str, label: str | None, lower: float, upper: float, asked: argparse.Namespace
) -> Iterator[Row]:
    present, missing, infinite, share, number = (part[group] for part in answers.counts)
    for mechanism, (value, draws, exact, low, high) in answers.found.items():
        for (i, epsilon), (k, q) in product(enumerate(asked.epsilon), enumerate(asked.quantile)):
            at = i, group, k
            spoiled = asked.resolution is None and share[k] >= TIED_SHARE and number[k] > 1
            yield Row(
                column=column,
                group=label,
                quantile=q,
                present=int(present),
                missing=int(missing),
                infinite=int(infinite),
                mechanism=mechanism,
                epsilon=epsilon,
                lower=lower,
                upper=upper,
                value=value[group, k],
                draws=draws[:, *at],
                mean_abs_error=exact[at],
                measured_error=float(np.mean(np.abs(draws[:, *at] - value[group, k]), dtype=np.float64)),
                interval95=(low[at], high[at]),
                tied_share=float(share[k]),
                tied=bool(spoiled) and mechanism != "laplace",
                guarantee=guarantee_of(mechanism, answers.profile, epsilon),
            )


def _answer(
    mechanism: str, records: np.ndarray, count: np.ndarray, stream: int, lower: float, upper: float, asked: argparse.Namespace
) -> list[Any]:
    """The profile of every group; then, with an axis of quantiles, what :class:`_Answers` says."""
    numbers = {
        "seed": np.uint32(asked.seed),
        "stream": np.uint32(stream),
        # A mechanism's key goes by its own number: its draws are the same whichever others are asked for.
        "number": np.uint32(MECHANISMS.index(mechanism) if mechanism in MECHANISMS else len(MECHANISMS)),
        "lower": jnp.result_type(float).type(lower),
        "upper": jnp.result_type(float).type(upper),
        "epsilon": np.array(asked.epsilon)[:, None],
    }
    options = {name: getattr(asked, name) for name in ("neighbors", "definition", "resolution", "draws")}
    options["most"] = levels_needed(min(asked.epsilon))  # as a release does
    records = records.astype(numbers["lower"].dtype)
    profile, *found = run_kept(
        asked.programs, _program, records, count, numbers, mechanism=mechanism, qs=tuple(asked.quantile), **options
    )
    return [profile, *(np.asarray(part) if mechanism == JOINT else np.asarray(part)[..., None] for part in found)]


@partial(jax.jit, static_argnames=("mechanism", "qs", "neighbors", "definition", "resolution", "draws", "most"))
def _program(
    records: jax.Array,
    count: jax.Array,
    numbers: dict[str, jax.Array],
    *,
    mechanism: str,
    qs: tuple[Fraction, ...],
    neighbors: checks.Neighbors,
    definition: Literal["linear", "lower"],
    resolution: Fraction | None,
    draws: int,
    most: int,
) -> tuple[Any, ...]:
    """One program for everything, to be kept as one."""
    lower, upper = numbers["lower"], numbers["upper"]
    options: Any = {"lower": lower, "upper": upper, "neighbors": neighbors, "resolution": resolution, "count": count}
    key = jax.random.fold_in(jax.random.fold_in(jax.random.key(numbers["seed"]), numbers["stream"]), numbers["number"])
    if mechanism == JOINT:
        asked = quantiles(records, qs, **options)
        joint = joint_quantiles.joint_quantiles(asked, numbers["epsilon"])
        drawn, bars = joint.sample(key, (draws,)), joint.marginals()
        return asked, asked.value, drawn, bars.mean_abs_error(asked.value), *bars.interval(0.95)
    profile = quantile(records, qs[0], definition=definition, truncate=most, **options)
    distribution = distribution_of(mechanism, profile, numbers["epsilon"], lower=lower, upper=upper)
    drawn = distribution.sample(key, (draws,))
    return profile, profile.value, drawn, distribution.mean_abs_error(profile.value), *distribution.interval(0.95)


def _ties(
    records: np.ndarray, count: np.ndarray, value: np.ndarray, resolution: Fraction | None, missing: float | None
) -> tuple[np.ndarray, np.ndarray]:
    """How many of each group's records equal each of its statistics, as a share and as a number; NaN counts as ``missing``."""
    tied, present = np.zeros(value.shape, np.int64), np.zeros(len(count), np.int64)
    for start in range(0, records.shape[-1], _AT_A_TIME):
        some = records[:, start : start + _AT_A_TIME]
        there = np.arange(start, start + some.shape[-1]) < count[:, None]
        if missing is not None:
            some = np.where(np.isnan(some), missing, some)
        if resolution is not None:
            some = np.rint(some * resolution.denominator / resolution.numerator) * resolution.numerator / resolution.denominator
        there &= ~np.isnan(some)
        present += np.sum(there, axis=-1)
        some = some.astype(value.dtype)
        tied += np.stack([np.sum(there & (some == value[:, k, None]), axis=-1) for k in range(value.shape[1])], axis=-1)
    return tied / np.maximum(present, 1)[:, None], tied


def _json(rows: Sequence[Row], asked: argparse.Namespace) -> str:
    def cost(row: Row) -> dict[str, object]:
        total = {"total_epsilon": rounded_up(Fraction(row.guarantee.epsilon) * asked.draws)}
        return {
            "epsilon": row.guarantee.epsilon,
            "bounded_range": row.guarantee.bounded_range,
            "neighbors": asked.neighbors,
        } | total

    answer = {
        "simulation": True,
        "statistic": asked.command,
        "quantiles": [float(q) for q in asked.quantile],
        **{name: getattr(asked, name) for name in ("neighbors", "definition", "seed")},
        "resolution": None if asked.resolution is None else str(asked.resolution),
        **versions(),
        "rows": [_fields(row) | {"guarantee": cost(row)} for row in rows],
    }
    return as_json(answer)


def _fields(row: Row) -> dict[str, Any]:
    names = [name for name in Row.__dataclass_fields__ if name not in ("measured_error", "tied", "guarantee")]
    return {name: getattr(row, name) for name in names} | {"quantile": float(row.quantile)}


def _record(row: Row) -> dict[str, Any]:
    """A line of a CSV file: one for each draw."""
    fields = _fields(row)
    low, high = fields.pop("interval95")
    return fields | {"lower95": low, "upper95": high, "guarantee": words_of(row.guarantee)}


def _text(rows: Sequence[Row], asked: argparse.Namespace) -> str:
    """A header, the table with the columns that differ, notes, guarantees and the word on simulation."""
    several, many = len({row.column for row in rows}) > 1, asked.draws > 1
    digits = {column: _decimals([row for row in rows if row.column == column]) for column in {row.column for row in rows}}

    def fixed(row: Row, value: float | np.floating) -> str:
        return f"{float(value):.{digits[row.column]}f}"

    def point(row: Row, value: float | np.floating) -> str:
        if asked.resolution is None or row.mechanism == "laplace":
            return fixed(row, value)
        return f"{float(value):.{_places(asked.resolution / (1 if asked.definition == 'lower' else row.quantile.denominator))}f}"

    table = aligned(
        {
            "column": [row.column for row in rows] if several else None,
            "group": [row.group or "(empty)" for row in rows] if asked.by else None,
            "quantile": [f"{float(row.quantile):g}" for row in rows] if len(asked.quantile) > 1 else None,
            "present": [str(row.present) for row in rows],
            "missing": [str(row.missing) for row in rows] if any(row.missing for row in rows) else None,
            "infinite": [str(row.infinite) for row in rows] if any(row.infinite for row in rows) else None,
            "mechanism": [row.mechanism for row in rows],
            "epsilon": [promised(row.epsilon) for row in rows],
            "value": [point(row, row.value) for row in rows],
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
