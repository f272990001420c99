"""``dpjax median`` and ``dpjax quantile``: draws, exact error bars and guarantees for every column and group of a file.

With a resolution everything is of the distributions that a release draws from, for all groups at once, in NumPy; without one, and
for several quantiles, of those of the array side, in JAX (``on_the_line.py``).
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator, Sequence
from functools import partial
from importlib import import_module
from itertools import product
from typing import NamedTuple

import numpy as np

from dpjax.command_line.asked import bounds_of, complete, statistics_of
from dpjax.command_line.errors import UserError
from dpjax.command_line.kept import Keeper, Table
from dpjax.command_line.parser import GRID_MECHANISMS
from dpjax.command_line.rows import Row, text_of
from dpjax.command_line.table import LARGEST, read_table, source_of
from dpjax.command_line.text import report, versions
from dpjax.command_line.truncated_laplace import TruncatedLaplace
from dpjax.release import Counts, GridDistribution, Quantile
from dpjax.release.counts import sums_of
from dpjax.release.result import cost_of

JOINT = "joint_quantiles"  # of several quantiles together
_NUMBERS = ("piecewise_laplace", "inverse_sensitivity", "laplace", JOINT, "permute_and_flip")  # of a mechanism, in the seed


class Found(NamedTuple):
    """What one mechanism at one epsilon draws from all groups, and its error bars: arrays whose last axes are groups, quantiles."""

    value: np.ndarray
    draws: np.ndarray
    error: np.ndarray
    low: np.ndarray
    high: np.ndarray


class Ties(NamedTuple):
    """Which share of the records equals each statistic, ``(groups, quantiles)``, and whether that spoils its distribution."""

    share: np.ndarray
    spoils: np.ndarray


def run(asked: argparse.Namespace) -> tuple[str, int]:
    """Return the report and the exit code."""
    complete(asked)
    joint = len(asked.quantile) > 1
    if asked.resolution is None and "permute_and_flip" in asked.mechanism:
        raise UserError("permute_and_flip draws on the multiples of a resolution: give a --resolution.")
    asked.mechanism = [JOINT] if joint else asked.mechanism
    asked.seed = int.from_bytes(os.urandom(4), "little") if asked.seed is None else asked.seed
    table = read_table(source_of(asked), columns=asked.column, by=asked.by, keep=partial(_checked, asked))
    columns, groups, sweep = len(table.columns), len(table.labels), len(asked.epsilon)
    total = columns * groups * len(asked.mechanism) * sweep * len(asked.quantile)
    if asked.draws * total > LARGEST:
        raise UserError(f"{asked.draws} draws for each of {total} rows are too many: at most {LARGEST} in all.")
    if sweep > 1 and np.sum(table.sizes) * sweep > LARGEST:
        raise UserError(f"{sweep} epsilons are too many for a table of this size: give fewer at a time.")
    in_jax = table.codes is not None
    estimates = import_module("dpjax.command_line.on_the_line").estimate if in_jax else _estimate
    try:
        rows = [row for column in range(columns) for row in _rows(table, column, asked, *estimates(table, column, asked))]
    except ValueError as error:  # the library speaks of public parameters only: data never raises
        raise UserError(str(error)) from error
    present = np.maximum(np.sum(table.sizes - table.missing, axis=-1), 1)
    beyond = dict(zip(table.columns, (np.sum(table.beyond, axis=-1) / present).tolist(), strict=True))
    facts = {
        "simulation": True,
        "statistic": asked.command,
        "quantiles": [float(q) for q in asked.quantile],
        **{name: getattr(asked, name) for name in ("neighbors", "definition", "seed")},
        "resolution": None if asked.resolution is None else ", ".join(map(str, asked.resolution)),
        "beyond_bounds": beyond,
        **versions(jax=in_jax),
    }
    return report(asked, [row.fields for row in rows], facts, lambda: text_of(rows, beyond, asked)), 0


def _checked(asked: argparse.Namespace, columns: Sequence[str]) -> Keeper:
    """Check what is asked of columns of these names; return where their records go."""
    asked.bounds, swap = bounds_of(asked.lower, asked.upper, columns), asked.neighbors == "swap"
    try:
        if asked.resolution is not None:
            asked.statistics = statistics_of(asked, columns)
        if asked.resolution is None or len(asked.quantile) > 1:
            import_module("dpjax.command_line.on_the_line").check(asked)
            return Keeper(columns, asked.bounds, None, swap=swap)
        one = Counts.of_rows([0], [0], [1], groups=1)
        for statistic, mechanism, epsilon in product(asked.statistics, asked.mechanism, asked.epsilon):
            _distribution(statistic, one, epsilon, mechanism, asked.neighbors)
    except ValueError as error:
        raise UserError(str(error)) from error
    return Keeper(columns, asked.bounds, [statistic.records_grid for statistic in asked.statistics], swap=swap)


def _distribution(
    statistic: Quantile, counts: Counts, epsilon: float, mechanism: str, neighbors: str
) -> GridDistribution | TruncatedLaplace:
    """The distribution of all groups."""
    on_grid = mechanism if mechanism in GRID_MECHANISMS else None
    found = statistic.distribution(counts, epsilon, neighbors, mechanism=on_grid)
    if on_grid:
        return found
    grid = statistic.records_grid
    low, high = grid.values_of(np.array([0, grid.size - 1])).tolist()
    return TruncatedLaplace(found.value, epsilon / 2 / (high - low), low, high)


def _estimate(table: Table, column: int, asked: argparse.Namespace) -> tuple[dict[tuple[str, float], Found], Ties]:
    """By mechanism and epsilon, what a release of each group of a column draws from."""
    statistic, counts = asked.statistics[column], table.kept[column]
    found = {}
    for mechanism, (place, epsilon) in product(asked.mechanism, enumerate(asked.epsilon)):
        distribution = _distribution(statistic, counts, epsilon, mechanism, asked.neighbors)
        # The seed of a draw goes by the mechanism's own number: it is the same whichever others are asked for.
        seed = np.random.default_rng([asked.seed, column, _NUMBERS.index(mechanism), place])
        draws, value = distribution.sample(seed, (asked.draws,)), distribution.value
        bars = draws, distribution.mean_abs_error(value), *distribution.interval(0.95)
        found[mechanism, epsilon] = Found(*(part[..., None] for part in (value, *bars)))
    return found, _ties(statistic, counts, asked.neighbors)


def _ties(statistic: Quantile, counts: Counts, neighbors: str) -> Ties:
    refined = statistic.ranks(neighbors).refinement
    place = statistic.profile(counts, neighbors, 1).value
    same = sums_of(np.where(counts.values * refined == place[counts.group], counts.counts, 0), counts.starts)
    share = (same / np.maximum(counts.totals, 1))[:, None]
    return Ties(share, np.zeros(share.shape, bool))


def _rows(table: Table, column: int, asked: argparse.Namespace, found: dict[tuple[str, float], Found], ties: Ties) -> Iterator[Row]:
    """The rows of one column, group by group."""
    lower, upper = asked.bounds[column]
    step = None
    if asked.resolution is not None:
        step = asked.resolution[column if len(asked.resolution) > 1 else 0]
        step /= asked.quantile[0].denominator if asked.definition == "linear" else 1
    for group, label in enumerate(table.labels):
        missing = int(table.missing[column, group])
        for mechanism, epsilon, (k, q) in product(asked.mechanism, asked.epsilon, enumerate(asked.quantile)):
            value, draws, error, low, high = found[mechanism, epsilon]
            yield Row(
                column=table.columns[column],
                group=label if asked.by else None,
                quantile=q,
                present=int(table.sizes[group]) - missing,
                missing=missing,
                infinite=int(table.infinite[column, group]),
                mechanism=mechanism,
                epsilon=epsilon,
                lower=lower,
                upper=upper,
                value=value[group, k],
                draws=draws[:, group, k],
                mean_abs_error=error[group, k],
                interval95=(low[group, k], high[group, k]),
                tied_share=float(ties.share[group, k]),
                guarantee=cost_of(epsilon, 1, asked.neighbors, ranges=2 if mechanism == "permute_and_flip" else 1),
                tied=bool(ties.spoils[group, k]) and mechanism != "laplace",
                step=None if mechanism == "laplace" else step,
            )
