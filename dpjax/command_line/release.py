"""``dpjax release``: medians and quantiles of a file's columns. What is printed is private, so nothing else is said of the data."""

from __future__ import annotations

import argparse
from functools import reduce
from operator import add
from typing import Any

from dpjax.accounting.filters import BudgetExceeded
from dpjax.accounting.ledger import Ledger
from dpjax.command_line.asked import columns_asked, complete, labels_read, persons_asked
from dpjax.command_line.errors import UserError
from dpjax.command_line.tables import empty_table, labels_of, source_of, table_of
from dpjax.command_line.text import name_of, of_whom, report, versions, words_of, wrapped
from dpjax.frames import FrameResult, PrivateGroups, release
from dpjax.frames.asked import asked_of
from dpjax.frames.persons import costs_of, persons_of
from dpjax.frames.tables import kinds_of, read_table


def run(asked: argparse.Namespace) -> tuple[str, int]:
    """Return the report and the exit code; no record raises."""
    complete(asked)
    _check_options(asked)
    source = source_of(asked)
    given, function = columns_asked(asked, asked.column)
    options = {"epsilon": asked.epsilon[0], "draws": asked.draws}
    options |= {} if asked.several else {"mechanism": asked.mechanism[0]}
    try:
        groups: Any = (
            None if asked.group_epsilon is None else PrivateGroups(asked.group_epsilon, asked.group_delta, asked.max_groups)
        )
        known = asked_of(given, function, options, asked.neighbors, simulated=False)  # public numbers are checked before a record
        ledger = _ledger(asked)
        frame = empty_table(source, asked.column, labels_read(asked)) if asked.dry_run else None
        if asked.dry_run:
            persons = persons_of(**persons_asked(asked)) if asked.unit else None
            labels = labels_of(asked.groups or (), asked.by, kinds_of(frame))
            read_table(frame, known, asked.by or None, groups or (labels if asked.by else None), asked.neighbors, persons)
            costs = [*([groups.guarantee] if groups else []), *costs_of(known, asked.neighbors, persons).values()]
            return _plan(asked, labels, words_of(reduce(add, costs)), ledger), 0
        frame, _, _ = table_of(source, asked.column, labels_read(asked))
        groups = groups or (labels_of(asked.groups, asked.by, kinds_of(frame)) if asked.by else None)
        shared = {"by": asked.by or None, "groups": groups, "neighbors": asked.neighbors, "budget": ledger}
        found = release(frame, given, statistic=function, **shared, **options, **persons_asked(asked))
    except (ValueError, TypeError, BudgetExceeded) as error:  # about public parameters, names and dtypes only
        raise UserError(str(error)) from error
    facts = {
        "simulation": False,
        "quantiles": [float(q) for q in asked.quantile],
        **{"definition": asked.definition, "mechanism": asked.mechanism[0], "neighbors": asked.neighbors, "unit": asked.unit},
        "columns": {column: own.statistic.to_dict() for column, own in known.items() if own.statistic is not None},
        **({} if asked.group_epsilon is None else {"threshold": groups.threshold}),
        "guarantee": found.guarantee,
        **({} if ledger is None else {"left": ledger.remaining}),
        **versions(),
    }
    return report(asked, [found], facts, lambda: f"{found.table()}\n\n{_notes(asked, found, groups)}"), 0


def _check_options(asked: argparse.Namespace) -> None:
    """Refuse options that do not fit together."""
    if (asked.group_epsilon is None) != (asked.group_delta is None):
        raise UserError("--group-epsilon and --group-delta go together.")
    if bool(asked.by) != (asked.groups is not None or asked.group_epsilon is not None):
        raise UserError(
            "--by and --groups go together: the groups are public, and not read from the file. Or they are found, with "
            "--group-epsilon and --group-delta in the place of --groups."
        )
    if asked.groups is not None and asked.group_epsilon is not None:
        raise UserError("--groups are public, or found with --group-epsilon and --group-delta: not both.")
    if asked.ledger is None and (asked.total_epsilon is not None or asked.total_delta is not None):
        raise UserError("--total-epsilon and --total-delta are those of a --ledger.")


def _ledger(asked: argparse.Namespace) -> Ledger | None:
    if asked.ledger is None:
        return None
    return Ledger(asked.ledger, epsilon=asked.total_epsilon, delta=asked.total_delta or 0.0, neighbors=asked.neighbors)


def _plan(asked: argparse.Namespace, labels: list[Any], cost: str, ledger: Ledger | None) -> str:
    """What a dry run says: nothing of any record."""
    groups = "the groups that are found" if asked.group_epsilon else f"the groups {'; '.join(map(_name, labels))}"
    said = (
        f"Dry run: no record was read, and nothing is spent. {asked.file} has the columns, and the options fit. Released would be "
        f"a table for {', '.join(asked.column)}, of {groups if asked.by else 'all records'}, quantile "
        f"{', '.join(map(str, asked.quantile))}; draws of each: {asked.draws}. It would cost {cost}."
    )
    left = [] if ledger is None else [f"The ledger {asked.ledger} has {ledger.remaining:g} left."]
    return wrapped(said, *left)


def _name(label: Any) -> str:
    return ", ".join(map(str, label)) if isinstance(label, tuple) else str(label)


def _notes(asked: argparse.Namespace, found: FrameResult, groups: Any) -> str:
    steps = ", ".join(map(str, asked.resolution))
    lines = [
        f"{name_of(asked.quantile)} ({asked.definition}) of records that are multiples of {steps}, within the bounds.",
        f"All of it is {words_of(found.guarantee)}: {of_whom(asked)}",
    ]
    if asked.group_epsilon is not None:
        lines.append(f"Groups are those whose noisy size reaches {groups.threshold}; noisy_size is that number.")
    lines.append(
        "The values were drawn exactly, with entropy of the operating system. Records that are no numbers are left out, and a "
        "group without records gets a value, too: nothing here says so. Not covered: running time, memory, and options that were "
        "chosen by looking at the data (bounds, grid, groups, epsilon)."
    )
    return wrapped(*lines)
