"""``dpjax median`` and ``dpjax quantile``: draws, error bars and guarantees for every column and group of a file.

With a resolution they are of the distributions that a release draws from, for all groups at once, in NumPy; without one of those of
the array side, in JAX. Both are those of :func:`dpjax.frames.simulate`.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from importlib import import_module
from itertools import product
from typing import Any

import numpy as np

from dpjax.command_line.asked import complete, keeper_of, statistics_of
from dpjax.command_line.errors import UserError
from dpjax.command_line.kept import Keeper, Table
from dpjax.command_line.rows import text_of
from dpjax.command_line.table import LARGEST, read_table, source_of
from dpjax.command_line.text import report, versions
from dpjax.frames.drawn import Drawn, drawn_from_counts
from dpjax.release.result import cost_of

JOINT = "joint_quantiles"  # of several quantiles together
_NUMBERS = ("piecewise_laplace", "inverse_sensitivity", "laplace", JOINT, "permute_and_flip")  # of a mechanism, in the seed


def run(asked: argparse.Namespace) -> tuple[str, int]:
    """Return the report and the exit code."""
    complete(asked)
    if asked.resolution is None and "permute_and_flip" in asked.mechanism:
        raise UserError("permute_and_flip draws on the multiples of a resolution: give a --resolution.")
    asked.mechanism = [JOINT] if asked.several else asked.mechanism
    asked.seed = int.from_bytes(os.urandom(4), "little") if asked.seed is None else asked.seed
    table = read_table(source_of(asked), columns=asked.column, by=asked.by, keep=partial(_keeper, asked))
    sweep = len(asked.epsilon)
    total = len(table.columns) * len(table.labels) * len(asked.mechanism) * sweep * len(asked.quantile)
    if asked.draws * total > LARGEST:
        raise UserError(f"{asked.draws} draws for each of {total} rows are too many: at most {LARGEST} in all.")
    if sweep > 1 and np.sum(table.sizes) * sweep > LARGEST:
        raise UserError(f"{sweep} epsilons are too many for a table of this size: give fewer at a time.")
    try:
        rows = [row for place in range(len(table.columns)) for row in _rows(table, place, asked)]
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
        **versions(jax=asked.resolution is None),
    }
    return report(asked, rows, facts, lambda: text_of(rows, beyond, asked)), 0


def _keeper(asked: argparse.Namespace, columns: Sequence[str]) -> Keeper:
    """Check what is asked of columns of these names; return where their records go."""
    try:
        asked.statistics = statistics_of(asked, columns)
        if asked.resolution is None:
            for one in asked.statistics.values():
                import_module("dpjax.frames.draws").check(one)
    except ValueError as error:
        raise UserError(str(error)) from error
    return keeper_of(asked.statistics, asked.neighbors)


def _drawn(table: Table, place: int, mechanism: str, asked: argparse.Namespace) -> Drawn:
    """Draw from every group of the column at this place."""
    # Draws go by the mechanism's own number: they are the same whichever others are asked for.
    own, stream = asked.statistics[table.columns[place]], place * len(_NUMBERS) + _NUMBERS.index(mechanism)
    own = own if mechanism == JOINT else replace(own, mechanism=mechanism)
    if table.codes is None:
        return drawn_from_counts(own, table.kept[place], asked.neighbors, np.random.default_rng([asked.seed, stream]))
    draw = import_module("dpjax.frames.draws").drawn_by_jax
    found: Drawn = draw(asked.seed, stream, table.kept[place], table.codes, len(table.labels), own, asked.neighbors)
    return found


def _rows(table: Table, place: int, asked: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Yield what is said of each group, mechanism, epsilon and quantile of a column."""
    column = table.columns[place]
    lower, upper = asked.statistics[column].bounds
    drawn = {mechanism: _drawn(table, place, mechanism, asked) for mechanism in asked.mechanism}
    for group, mechanism, (number, epsilon), (k, q) in product(
        range(len(table.labels)), asked.mechanism, enumerate(asked.epsilon), enumerate(asked.quantile)
    ):
        found, missing = drawn[mechanism], int(table.missing[place, group])
        tied: Any = found.tied
        error, *interval = found.bars[:, group, number, k]
        yield {
            "column": column,
            "group": table.labels[group] if asked.by else None,
            "quantile": float(q),
            "present": int(table.sizes[group]) - missing,
            "missing": missing,
            "infinite": int(table.infinite[place, group]),
            "mechanism": mechanism,
            "epsilon": epsilon,
            "lower": lower,
            "upper": upper,
            "value": found.value[group, k],
            "draws": found.draws[group, number, :, k],
            "mean_abs_error": error,
            "interval95": tuple(interval),
            "tied_share": float(tied[group, k]),
            "guarantee": cost_of(epsilon, 1, asked.neighbors, ranges=2 if mechanism == "permute_and_flip" else 1),
        }
