"""``dpjax median`` and ``dpjax quantile``: draws, exact error bars and guarantees for every column and group of a file."""

from __future__ import annotations

import argparse
import secrets
from collections import defaultdict
from collections.abc import Iterator, Sequence
from fractions import Fraction
from functools import partial
from itertools import product
from math import lcm
from typing import Any, Literal, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from dpjax import checks
from dpjax.command_line.errors import UserError
from dpjax.command_line.kept import Counted, Listed, Table
from dpjax.command_line.parser import MECHANISMS
from dpjax.command_line.programs import run_kept
from dpjax.command_line.rows import Row, json_of, record_of, text_of
from dpjax.command_line.table import LARGEST, near_of, read_table, source_of
from dpjax.command_line.text import report
from dpjax.frames.draws import drawn_of, guarantee_of
from dpjax.frames.grouping import shapes_of
from dpjax.frames.ties import TIED_SHARE
from dpjax.mechanisms import joint_quantiles
from dpjax.numerics.multiples import most_multiples
from dpjax.release.grid import Multiples
from dpjax.several_quantiles.ranks import levels_needed
from dpjax.statistics import quantile, quantiles

T = TypeVar("T")
JOINT = "joint_quantiles"  # of several quantiles together


def run(asked: argparse.Namespace) -> tuple[str, int]:
    """Return the report and the exit code."""
    for column in asked.column or ():
        if asked.column.count(column) > 1:
            raise UserError(f"--column names {column!r} twice.")
    _complete(asked)
    table = read_table(source_of(asked), columns=asked.column, by=asked.by, keep=partial(_checked, asked))
    asked.bounds = bounds_of(asked.lower, asked.upper, table.columns)
    columns, groups, sweep = len(table.columns), len(table.labels), len(asked.epsilon)
    total = columns * groups * len(asked.mechanism) * sweep * len(asked.quantile)
    if asked.draws * total > LARGEST:
        raise UserError(f"{asked.draws} draws for each of {total} rows are too many: at most {LARGEST} in all.")
    if sweep > 1 and np.sum(table.sizes) * sweep > LARGEST:
        raise UserError(f"{sweep} epsilons are too many for a table of this size: give fewer at a time.")
    rows: dict[tuple[int, int], list[Row]] = defaultdict(list)
    try:
        for number, (members, sizes, places) in enumerate(shapes_of(table.sizes)):
            for column in range(columns):
                for group, row in _rows(table, column, members, (len(sizes), places), column + number * columns, asked):
                    rows[column, group].append(row)
    except ValueError as error:  # the library speaks of public parameters only: data never raises
        raise UserError(str(error)) from error
    ordered = [row for column in range(columns) for group in range(groups) for row in rows[column, group]]
    return report(asked, ordered, json_of, text_of, record_of), 0


def _checked(asked: argparse.Namespace, columns: Sequence[str]) -> Counted | Listed:
    """Check what is asked of columns of these names; return where their records go."""
    bounds = bounds_of(asked.lower, asked.upper, columns)
    dtype, step = jnp.result_type(float), asked.resolution
    try:
        for pair in bounds if step is not None else ():
            refined = 1 if asked.definition == "lower" else lcm(*(q.denominator for q in asked.quantile))
            checks.resolution(step, pair, most_multiples(dtype) // refined)
        # Under a trace, public numbers are checked and nothing is computed.
        jax.eval_shape(
            lambda: [checks.bounds(*pair, dtype) for pair in bounds] + [checks.positive("epsilon", asked.epsilon, dtype)]
        )
        # Whose multiples are floats that are rounded to themselves: in float32 they always are.
        if step is not None and all(max(map(abs, pair)) <= 2**30 * step for pair in bounds):
            return Counted([Multiples.between(*pair, step) for pair in bounds], asked.neighbors)
    except ValueError as error:
        raise UserError(str(error)) from error
    return Listed(bounds, asked.neighbors, dtype, step)


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
    bounds = list(zip(one_for_each("--lower", lower, columns), one_for_each("--upper", upper, columns), strict=True))
    for column, (low, high) in zip(columns, bounds, strict=True):
        if not low < high:
            raise UserError(f"--lower must be below --upper: got {low:g} and {high:g} for {column}.")
    return bounds


def one_for_each(name: str, given: list[T], columns: Sequence[str]) -> list[T]:
    """Return a value for each column, where one was given for all or one for each."""
    if len(given) not in (1, len(columns)):
        raise UserError(f"{name} has {len(given)} values for {len(columns)} columns: give one, or one for each.")
    return given * (len(columns) // len(given))


def _rows(
    table: Table, column: int, some: np.ndarray, shape: tuple[int, int], stream: int, asked: argparse.Namespace
) -> Iterator[tuple[int, Row]]:
    """The rows of one column and the groups of a batch, each with the number of its group."""
    lower, upper = asked.bounds[column]
    records, count = table.padded(column, some, shape, near_of(asked), jnp.result_type(float))
    found = {name: _answer(name, records, count, stream, lower, upper, asked) for name in asked.mechanism}
    values = next(iter(found.values()))[1]
    for row, group in enumerate(some.tolist()):
        tied = table.kept.ties(column, table.groups[group], values[row])
        share = tied / max(int(table.present(column)[group]), 1)
        missing = int(table.missing[column, group])
        for mechanism, (profile, value, draws, exact, low, high) in found.items():
            for (i, epsilon), (k, q) in product(enumerate(asked.epsilon), enumerate(asked.quantile)):
                at = i, row, k
                spoiled = asked.resolution is None and share[k] >= TIED_SHARE and tied[k] > 1
                answer = Row(
                    column=table.columns[column],
                    group=table.labels[group] if asked.by else None,
                    quantile=q,
                    present=int(table.sizes[group]) - missing,
                    missing=missing,
                    infinite=int(table.infinite[column, group]),
                    mechanism=mechanism,
                    epsilon=epsilon,
                    lower=lower,
                    upper=upper,
                    value=value[row, k],
                    draws=draws[:, *at],
                    mean_abs_error=exact[at],
                    measured_error=float(np.mean(np.abs(draws[:, *at] - value[row, k]), dtype=np.float64)),
                    interval95=(low[at], high[at]),
                    tied_share=float(share[k]),
                    tied=bool(spoiled) and mechanism != "laplace",
                    guarantee=guarantee_of(mechanism, profile, epsilon, within=mechanism == "laplace"),
                )
                yield group, answer


def _answer(
    mechanism: str, records: np.ndarray, count: np.ndarray, stream: int, lower: float, upper: float, asked: argparse.Namespace
) -> list[Any]:
    """The profile, for the guarantee; values ``(groups, quantiles)``; draws ``(draws, epsilons, groups, quantiles)``.

    Then, without the axis of draws, errors and both ends of intervals.
    """
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
    options["most"], options["near"] = levels_needed(min(asked.epsilon)), None
    records = records.astype(numbers["lower"].dtype)
    if mechanism == JOINT:
        options["near"] = joint_quantiles.records_near(
            asked.quantile, asked.resolution, min(asked.epsilon), (lower, upper), records, count
        )
    profile, *found = run_kept(
        asked.programs, _program, records, count, numbers, mechanism=mechanism, qs=tuple(asked.quantile), **options
    )
    return [profile, *(np.asarray(part) if mechanism == JOINT else np.asarray(part)[..., None] for part in found)]


@partial(jax.jit, static_argnames=("mechanism", "qs", "neighbors", "definition", "resolution", "draws", "most", "near"))
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
    near: tuple[int, int] | None,
) -> tuple[Any, ...]:
    """One program for everything, to be kept as one."""
    lower, upper = numbers["lower"], numbers["upper"]
    options: Any = {"lower": lower, "upper": upper, "neighbors": neighbors, "resolution": resolution, "count": count}
    key = jax.random.fold_in(jax.random.fold_in(jax.random.key(numbers["seed"]), numbers["stream"]), numbers["number"])
    if mechanism == JOINT:
        profile: Any = quantiles(records, qs, **options)
    else:
        profile = quantile(records, qs[0], definition=definition, truncate=most, **options)
    within = (lower, upper) if mechanism == "laplace" else None
    return profile, *drawn_of(key, mechanism, profile, numbers["epsilon"], draws, within, near, {})
