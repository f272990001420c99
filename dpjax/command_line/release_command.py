"""``dpjax release``: private medians and quantiles of a file's columns.

Nothing else about the data is printed.
"""

from __future__ import annotations

import argparse
import os
from functools import reduce
from operator import add
from typing import Any

from dpjax.accounting.ledger import Ledger, left_text
from dpjax.command_line.arguments import (
    check_draws,
    columns_asked,
    complete,
    labels_read,
    persons_asked,
    times_read,
)
from dpjax.command_line.csv_text import Source
from dpjax.command_line.errors import UserError
from dpjax.command_line.file_tables import empty_table, labels_of, mistakes, source_of, table_of
from dpjax.command_line.text import cost_of_all, name_of, report, versions, wrapped
from dpjax.frames import FrameResult, PrivateGroups, release
from dpjax.frames.column_options import Asked, asked_of
from dpjax.frames.persons import costs_of, persons_of
from dpjax.frames.tables import kinds_of, read_table


def run(asked: argparse.Namespace) -> tuple[str, int]:
    """Release the columns; return the report and the exit code. No record raises."""
    complete(asked)
    _check_options(asked)
    check_draws(asked, asked.column)
    source = source_of(asked)
    by_column, function = columns_asked(asked, asked.column)
    options = {"epsilon": asked.epsilon[0], "draws": asked.draws}
    options |= {} if asked.several else {"mechanism": asked.mechanism[0]}
    with mistakes(source):  # public numbers are checked before a record is read
        found_by = (
            None
            if asked.group_epsilon is None
            else PrivateGroups(asked.group_epsilon, asked.group_delta, asked.max_groups)
        )
        known = asked_of(by_column, function, options, asked.neighbors, simulated=False)
        if asked.dry_run:
            return _dry_run(asked, source, known, found_by), 0
        ledger = _ledger(asked)
        frame, _, _ = table_of(source, asked.column, labels_read(asked), times_read(asked))
        groups: Any = found_by or (
            labels_of(asked.groups, asked.by, kinds_of(frame)) if asked.by else None
        )
        shared: Any = {
            "by": asked.by or None,
            "groups": groups,
            "neighbors": asked.neighbors,
            "budget": ledger,
        }
        found = release(
            frame, by_column, statistic=function, **shared, **options, **persons_asked(asked)
        )
    facts = {
        "simulation": False,
        "quantiles": [float(q) for q in asked.quantile],
        **{
            "definition": asked.definition,
            "mechanism": asked.mechanism[0],
            "neighbors": asked.neighbors,
            "unit": asked.unit,
        },
        **({} if source.is_parquet else {"records": asked.records}),
        "columns": {
            column: setting.statistic.to_dict()
            for column, setting in known.items()
            if setting.statistic is not None
        },
        **({} if found_by is None else {"threshold": found_by.threshold}),
        "guarantee": found.guarantee,
        **({} if ledger is None else {"left": ledger.remaining}),
        **versions(),
    }
    return report(
        asked,
        [found],
        facts,
        lambda: f"{found.table()}\n\n{_notes(asked, found, found_by, ledger)}",
    ), 0


def _check_options(asked: argparse.Namespace) -> None:
    """Raise :class:`UserError` for options that cannot be combined."""
    if (asked.group_epsilon is None) != (asked.group_delta is None):
        raise UserError("--group-epsilon and --group-delta must be given together.")
    if bool(asked.by) != (asked.groups is not None or asked.group_epsilon is not None):
        raise UserError(
            "--by needs --groups, public labels that are not read from the file, or "
            "--group-epsilon and --group-delta to find the groups; and these need --by."
        )
    if asked.groups is not None and asked.group_epsilon is not None:
        raise UserError(
            "--groups cannot be given with --group-epsilon and --group-delta, which find the "
            "groups."
        )
    if asked.ledger is None and (asked.total_epsilon is not None or asked.total_delta is not None):
        raise UserError("--total-epsilon and --total-delta need --ledger.")
    if asked.total_delta is not None and asked.total_epsilon is None:
        raise UserError("--total-delta needs --total-epsilon.")


def _ledger(asked: argparse.Namespace) -> Ledger | None:
    if asked.ledger is None:
        return None
    if asked.total_epsilon is None and not os.path.exists(asked.ledger):
        raise UserError(f"there is no ledger {asked.ledger}: give --total-epsilon to create it.")
    totals = {
        "epsilon": asked.total_epsilon,
        "delta": asked.total_delta or 0.0,
        "neighbors": asked.neighbors,
    }
    if not os.path.exists(asked.ledger):
        return Ledger(asked.ledger, **totals)
    ledger = Ledger(asked.ledger)
    recorded = {name: ledger.totals[name] for name in totals}
    if recorded["neighbors"] != asked.neighbors:
        raise UserError(
            f"--neighbors must be {recorded['neighbors']}, as in the ledger {asked.ledger}."
        )
    if asked.total_epsilon is not None and recorded != totals:
        raise UserError(
            f"the ledger {asked.ledger} has the total epsilon {recorded['epsilon']:g} and delta "
            f"{recorded['delta']:g}: give these, or none."
        )
    return ledger


def _dry_run(
    asked: argparse.Namespace,
    source: Source,
    known: dict[str, Asked],
    found_by: PrivateGroups | None,
) -> str:
    """Check all public properties, and return a text of what would be released."""
    frame = empty_table(source, asked.column, labels_read(asked), times_read(asked))
    persons = persons_of(**persons_asked(asked)) if asked.unit else None
    labels = labels_of(asked.groups or (), asked.by, kinds_of(frame))
    read_table(
        frame,
        known,
        asked.by or None,
        found_by or (labels if asked.by else None),
        asked.neighbors,
        persons,
    )
    cost = reduce(
        add,
        [
            *([found_by.guarantee] if found_by else []),
            *costs_of(known, asked.neighbors, persons).values(),
        ],
    )
    groups = (
        "the groups that are found" if found_by else f"{len(labels)} group{'s' * (len(labels) > 1)}"
    )
    said = (
        f"Dry run: no record was read, and nothing was spent. {asked.file} has the columns, and "
        f"the options are valid. The release would be a table for {', '.join(asked.column)}, of "
        f"{groups if asked.by else 'all records'}, quantile {', '.join(map(str, asked.quantile))}; "
        f"draws of each: {asked.draws}. It would cost {cost_of_all(asked, cost)}"
    )
    lines = [said, *([f"The groups: {'; '.join(map(repr, labels))}."] if labels else [])]
    if asked.ledger is None:
        return wrapped(*lines)
    if asked.total_epsilon is not None and not os.path.exists(asked.ledger):
        return wrapped(
            *lines,
            f"The ledger {asked.ledger} would be created, with the total epsilon "
            f"{asked.total_epsilon:g}.",
        )
    ledger: Any = _ledger(asked)
    fits = "fits" if ledger.allows(cost, {"unit": asked.unit}) else "does not fit"
    return wrapped(*lines, f"Ledger {asked.ledger}: {left_text(ledger)}; the release {fits}.")


def _notes(
    asked: argparse.Namespace,
    found: FrameResult,
    found_by: PrivateGroups | None,
    ledger: Ledger | None,
) -> str:
    steps = ", ".join(map(str, asked.resolution))
    left_out = "are left out, and a group without records also gets a value"
    read_as = "count as the lower bound" if asked.neighbors == "swap" else left_out
    lines = [
        f"{name_of(asked.quantile)} (definition {asked.definition}) of records that are clamped "
        f"to the bounds and rounded to multiples of {steps}.",
        f"All values together are {cost_of_all(asked, found.guarantee)}",
    ]
    if found_by is not None:
        lines.append(
            f"Groups are those whose noisy size reaches {found_by.threshold}; noisy_size is that "
            "number."
        )
    if ledger is not None:
        lines.append(f"Ledger {asked.ledger}: {left_text(ledger)}.")
    lines.append(
        "The values were drawn exactly, with the operating system's entropy. Records that are not "
        f"numbers {read_as}; their number is not reported. Not covered by the guarantee: running "
        "time, memory, and options that were chosen by looking at the data (bounds, grid, groups, "
        "epsilon)."
    )
    return wrapped(*lines)
