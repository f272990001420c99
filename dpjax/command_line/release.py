"""``dpjax release``: medians and quantiles of a file's columns. What is printed is private, so nothing else is said of the data."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np

from dpjax.command_line.asked import complete, keeper_of, statistics_of
from dpjax.command_line.errors import UserError
from dpjax.command_line.table import check_public, read_records, source_of
from dpjax.command_line.text import aligned, group_as_text, name_of, promised, report, rounded_up, versions, wrapped
from dpjax.frames import PrivateGroups
from dpjax.release import Counts, Statistic

_HEADER = ("column", "group", "noisy_size", "quantile", "epsilon", "draw", "drawn")  # where no group was found


def run(asked: argparse.Namespace) -> tuple[str, int]:
    """Return the report and the exit code; no record raises."""
    complete(asked)
    _check_options(asked)
    source, sizes = source_of(asked), None
    try:
        asked.private = None if asked.group_epsilon is None else PrivateGroups(asked.group_epsilon, asked.group_delta)
        known = statistics_of(asked, asked.column)
        asked.statistics = {column: one.statistic for column, one in known.items()}
        one_record = Counts.of_rows([0], [0], [1], groups=1)
        for statistic, epsilon in product(asked.statistics.values(), asked.epsilon):  # public numbers are checked before a record
            _draw(statistic, one_record, epsilon, asked)
        if asked.dry_run:
            check_public(source, [*asked.column, *asked.by])
            return _plan(asked), 0
        labels = asked.groups if asked.by and not asked.private else None
        keeper = keeper_of(known, asked.neighbors)
        table = read_records(source, columns=asked.column, by=asked.by, groups=labels, keep=lambda _: keeper)
        if asked.private:
            kept, sizes = asked.private.release(table.sizes)
            table = table.only(kept)
        if asked.neighbors == "swap" and not np.any(table.sizes):
            raise UserError("under swap neighbors the number of records is public, and there is none.")
        found = {
            (column, epsilon): _draw(asked.statistics[column], table.kept[place], epsilon, asked)
            for (place, column), epsilon in product(enumerate(asked.column if table.labels else ()), asked.epsilon)
        }
    except ValueError as error:  # about public parameters only
        raise UserError(str(error)) from error
    rows = [
        {"column": column, "group": label if asked.by else None}
        | ({} if sizes is None else {"noisy_size": int(sizes[group])})
        | {"quantile": float(q), "epsilon": epsilon, "released": found[column, epsilon][:, group, k]}
        for column in asked.column
        for group, label in enumerate(table.labels)
        for k, q in enumerate(asked.quantile)
        for epsilon in asked.epsilon
    ]
    return report(asked, rows, _facts(asked), lambda: _text(rows, asked), _HEADER), 0


def _check_options(asked: argparse.Namespace) -> None:
    """Refuse what does not fit, and cut the labels of groups."""
    if (asked.group_epsilon is None) != (asked.group_delta is None):
        raise UserError("--group-epsilon and --group-delta go together.")
    if bool(asked.by) != (asked.groups is not None or asked.group_epsilon is not None):
        raise UserError(
            "--by and --groups go together: the groups are public, and not read from the file. Or they are found, with "
            "--group-epsilon and --group-delta in the place of --groups."
        )
    if asked.groups is not None and asked.group_epsilon is not None:
        raise UserError("--groups are public, or found with --group-epsilon and --group-delta: not both.")
    if asked.by and asked.neighbors == "swap":
        raise UserError("--by needs --neighbors add_remove: a replaced record can move from one group to another.")
    # As the cells are: without blanks around them.
    labels = [tuple(part.strip() for part in (group.split(",") if len(asked.by) > 1 else [group])) for group in asked.groups or ()]
    asked.groups = list(dict.fromkeys(labels))
    for label in asked.groups:
        if len(label) != len(asked.by):
            raise UserError(
                f"a group by {len(asked.by)} columns is named by {len(asked.by)} labels with commas, got {','.join(label)}."
            )


def _draw(statistic: Statistic, counts: Counts, epsilon: float, asked: argparse.Namespace) -> np.ndarray:
    """Draw from all groups, float64 ``(draws, groups, quantiles)``."""
    mechanism = None if asked.several else asked.mechanism[0]
    values = statistic.release(counts, epsilon, asked.neighbors, mechanism=mechanism, draws=asked.draws).values
    return values.reshape(asked.draws, counts.groups, len(asked.quantile))


def _costs(asked: argparse.Namespace) -> list[str]:
    times, ranges = len(asked.column) * asked.draws, 2 if asked.mechanism == ["permute_and_flip"] else 1
    total, spread = promised(*asked.epsilon, times=times), promised(*asked.epsilon, times=ranges * times)
    many = times * len(asked.epsilon) > 1
    each = f"Each {'draw of all quantiles' if asked.several else 'value'} costs epsilon"
    each += f" = {promised(asked.epsilon[0])}" if len(asked.epsilon) == 1 else ""
    groups = " Groups share it: one record is in one of them." if asked.by else ""
    promise = f"is {total}-DP and {spread}-bounded-range for one record under {asked.neighbors} neighbors.{groups}"
    lines = [f"{each}; all of it {promise}" if many else f"This {promise}"]
    if asked.private:
        delta = promised(asked.private.guarantee.delta)
        lines.append(
            f"To find the groups costs ({promised(asked.private.epsilon)}, {delta})-DP more. Groups are those whose noisy size "
            f"reaches {asked.private.threshold}; noisy_size is that number."
        )
    return lines


def _plan(asked: argparse.Namespace) -> str:
    """What a dry run says: nothing of any record."""
    groups = f"the groups {'; '.join(map(group_as_text, asked.groups))}" if asked.by else "all records"
    groups = "the groups that are found" if asked.private else groups
    said = (
        f"Dry run: no record was read, and nothing is spent. {asked.file} has the columns, and the options fit. Released would be "
        f"a table for {', '.join(asked.column)}, of {groups}, quantile {', '.join(map(str, asked.quantile))}, "
        f"epsilon {', '.join(map(promised, asked.epsilon))}; draws of each: {asked.draws}."
    )
    return wrapped(said, *_costs(asked))


def _text(rows: Sequence[dict[str, Any]], asked: argparse.Namespace) -> str:
    table = aligned(
        {
            "column": [row["column"] for row in rows],
            "group": [group_as_text(row["group"]) for row in rows] if asked.by else None,
            "noisy_size": [str(row["noisy_size"]) for row in rows] if asked.private else None,
            "quantile": [f"{row['quantile']:g}" for row in rows] if asked.several else None,
            "epsilon": [promised(row["epsilon"]) for row in rows] if len(asked.epsilon) > 1 else None,
            "released": [", ".join(f"{value:.15g}" for value in row["released"]) for row in rows],
        },
        left=("column", "group"),
    )
    ranges = [f"{one.resolution}, from {one.lower:.15g} to {one.upper:.15g}" for one in asked.statistics.values()]
    said = f"multiples of {ranges[0]}"
    if len(set(ranges)) > 1:
        said = "multiples of a resolution: " + "; ".join(map(" ".join, zip(asked.column, ranges, strict=True)))
    notes = wrapped(
        f"{name_of(asked.quantile)} ({asked.definition}) of records that are {said}.",
        *_costs(asked),
        "The values were drawn exactly, with entropy of the operating system. Records that are no numbers are left out, and a "
        "group without records gets a value, too: nothing here says so. Not covered: running time, memory, and options that were "
        "chosen by looking at the data (bounds, grid, groups, epsilon).",
    )
    return f"{table}\n\n{notes}"


def _facts(asked: argparse.Namespace) -> dict[str, Any]:
    total = sum(map(Fraction, asked.epsilon)) * asked.draws * len(asked.column) + Fraction(asked.group_epsilon or 0)
    return {
        "simulation": False,
        "quantiles": [float(q) for q in asked.quantile],
        **{"definition": asked.definition, "mechanism": asked.mechanism[0], "neighbors": asked.neighbors},
        "columns": {
            column: {"lower": one.lower, "upper": one.upper, "resolution": str(one.resolution)}
            for column, one in asked.statistics.items()
        },
        "epsilon_of_each": asked.epsilon,
        "epsilon_of_all": rounded_up(total),
        "delta": asked.private.guarantee.delta if asked.private else 0.0,
        **versions(),
    }
