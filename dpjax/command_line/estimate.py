"""``dpjax median`` and ``dpjax quantile``: draws, error bars and guarantees.

They are given for each column and group of a file. They call :func:`dpjax.frames.simulate`: with a
resolution, on the distributions of a release, in NumPy; without one, on those of JAX arrays.
"""

from __future__ import annotations

import argparse
import os
from typing import Any

from dpjax.command_line.arguments import (
    check_draws,
    columns_asked,
    complete,
    labels_read,
    persons_asked,
    times_read,
)
from dpjax.command_line.errors import UserError
from dpjax.command_line.file_tables import labels_of, mistakes, source_of, table_of
from dpjax.command_line.text import (
    SIMULATION,
    cost_of_all,
    in_options,
    name_of,
    report,
    versions,
    wrapped,
)
from dpjax.frames import FrameResult, simulate
from dpjax.frames.tables import kinds_of
from dpjax.release import Quantile

_JOINT = "joint_quantiles"  # for several quantiles
# The mechanisms by their index in the seed.
_NUMBERS = ("piecewise_laplace", "inverse_sensitivity", "laplace", _JOINT, "permute_and_flip")


def run(asked: argparse.Namespace) -> tuple[str, int]:
    """Return the report and the exit code."""
    complete(asked)
    if asked.resolution is None and "permute_and_flip" in asked.mechanism:
        raise UserError("--mechanism permute_and_flip needs a --resolution.")
    asked.mechanism = [_JOINT] if asked.several else asked.mechanism
    asked.seed = int.from_bytes(os.urandom(4), "little") if asked.seed is None else asked.seed
    source = source_of(asked)
    if asked.column is not None:  # public numbers are checked before a record is read
        columns_asked(asked, asked.column)
    frame, columns, unread = table_of(source, asked.column, labels_read(asked), times_read(asked))
    by_column, function = columns_asked(asked, columns)
    check_draws(asked, columns)
    shared: Any = {
        "by": asked.by or None,
        "neighbors": asked.neighbors,
        "epsilon": asked.epsilon,
        "draws": asked.draws,
    }
    with mistakes(source):
        groups = (
            None if asked.groups is None else labels_of(asked.groups, asked.by, kinds_of(frame))
        )
        results = [
            # The seed depends on the mechanism only, so that draws do not change with the other
            # mechanisms.
            simulate(
                asked.seed * len(_NUMBERS) + _NUMBERS.index(mechanism),
                frame,
                {column: Quantile(**parameters) for column, parameters in by_column.items()}
                if mechanism == "laplace" and asked.resolution
                else by_column,
                statistic=function,
                groups=groups,
                mechanism=None if asked.several else mechanism,
                **shared,
                **persons_asked(asked),
            )
            for mechanism in asked.mechanism
        ]
    facts = {
        "simulation": True,
        "statistic": asked.command,
        "quantiles": [float(q) for q in asked.quantile],
        **{name: getattr(asked, name) for name in ("neighbors", "definition", "seed", "unit")},
        "resolution": None if asked.resolution is None else ", ".join(map(str, asked.resolution)),
        "not_numbers": unread,
        "guarantees": {
            mechanism: found.guarantee
            for mechanism, found in zip(asked.mechanism, results, strict=True)
        },
        "notes": _noted(results),
        **versions(jax=asked.resolution is None),
    }
    return report(asked, results, facts, lambda: _text(asked, columns, results, unread)), 0


def _text(
    asked: argparse.Namespace,
    columns: list[str],
    results: list[FrameResult],
    unread: dict[str, int],
) -> str:
    """Return the tables of all mechanisms, their legend, notes and guarantees.

    A line says that this is a simulation.
    """
    step = (
        "No resolution"
        if asked.resolution is None
        else f"Resolution {', '.join(map(str, asked.resolution))}"
    )
    grouped = f" by {', '.join(asked.by)}" if asked.by else ""
    head = [
        f"{name_of(asked.quantile)} (definition {asked.definition}) of "
        f"{', '.join(columns)}{grouped}; neighbors {asked.neighbors}.",
        f"{step}; seed {asked.seed}; {asked.draws} draw{'s' if asked.draws > 1 else ''} of each "
        "row.",
    ]
    legend = [
        "value: the statistic. mean_abs_error: the expected distance of a draw from it. lower95, "
        "upper95: the central interval of 95 % of the draws."
    ]
    legend += [
        f"{count} cells of {name} are not numbers, and count as missing."
        for name, count in unread.items()
        if count
    ]
    legend += _noted(results)
    tables = []
    for mechanism, found in zip(asked.mechanism, results, strict=True):
        title = [f"{mechanism}:"] if len(results) > 1 else []
        tables.append(
            "\n".join(
                [
                    *title,
                    found.table(),
                    wrapped(f"All draws together are {cost_of_all(asked, found.guarantee)}"),
                ]
            )
        )
    said = [*tables, wrapped(*head), wrapped(*legend, _to_release(asked)), wrapped(SIMULATION)]
    return "\n\n".join(said)


def _noted(results: list[FrameResult]) -> list[str]:
    """Return the notes of all mechanisms, without what :func:`_to_release` says.

    They are in terms of options.
    """
    notes = (in_options(found.note.partition("A release needs")[0].strip()) for found in results)
    return [note for note in dict.fromkeys(notes) if note]


def _to_release(asked: argparse.Namespace) -> str:
    """Return how the options of dpjax release for the same distribution differ."""
    if asked.resolution is None:
        return (
            "dpjax release needs a --resolution, and draws from other distributions: give it here, "
            "too, to plan a release."
        )
    others = ["no --seed"]
    others += ["one --mechanism"] * (len(asked.mechanism) > 1) + ["no laplace"] * (
        "laplace" in asked.mechanism
    )
    others += ["one --epsilon"] * (len(asked.epsilon) > 1)
    if asked.by and asked.groups is None:
        others.append("--groups, or --group-epsilon and --group-delta")
    return (
        "dpjax release draws from such a distribution by the same options, with these "
        f"differences: {'; '.join(others)}."
    )
