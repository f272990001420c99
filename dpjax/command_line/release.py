"""``dpjax release``: medians and quantiles of a file's columns. What is printed is private, so nothing else is said of the data."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np

from dpjax.command_line.errors import UserError
from dpjax.command_line.estimate import bounds_of, one_for_each
from dpjax.command_line.kept import Counted, Table
from dpjax.command_line.table import check_public, near_of, read_records, source_of
from dpjax.command_line.text import aligned, as_json, group_as_json, group_as_text, promised, report, rounded_up, versions, wrapped
from dpjax.frames.grouping import LEAST, shapes_of
from dpjax.frames.private_groups import PrivateGroups
from dpjax.release import exact_distribution, joint_quantiles, quantile
from dpjax.release.grid import Multiples
from dpjax.release.joint_quantiles import reach_for


class Row(NamedTuple):
    """One quantile of a column and a group, ``(draws,)``; the noisy size of a group that was found."""

    column: str
    group: tuple[str, ...] | None
    quantile: Fraction
    epsilon: float
    released: np.ndarray
    noisy_size: int | None


_HEADER = ("column", "group", "noisy_size", "quantile", "epsilon", "draw", "drawn")  # where no group was found


def run(asked: argparse.Namespace) -> tuple[str, int]:
    """Return the report and the exit code; no record raises."""
    _complete(asked)
    source, options = source_of(asked), _options_of(asked)
    try:
        private = None if asked.group_epsilon is None else PrivateGroups(asked.group_epsilon, asked.group_delta)
        asked.private, asked.options = private, options
        for column in asked.column:  # all that is public is checked before a record is read
            for epsilon in asked.epsilon:
                _draw(np.full((1, 1), np.nan), asked, options[column] | {"epsilon": epsilon}, check=True)
        if asked.dry_run:
            check_public(source, [*asked.column, *asked.by])
            return _plan(asked), 0
        groups = None if private else [tuple(group) for group in asked.groups] if asked.by else None
        keep = Counted([Multiples.between(**options[column]) for column in asked.column], asked.neighbors)
        table = read_records(source, columns=asked.column, by=asked.by, groups=groups, keep=lambda _: keep)
        sizes = None
        if private:
            kept, sizes = private.release(table.sizes)
            table = table.only(kept)
        if asked.neighbors == "swap" and not np.any(table.sizes):
            raise UserError("under swap neighbors the number of records is public, and there is none.")
        found: dict[tuple[str, float, int], np.ndarray] = {}
        for some, shape in _shapes(table):
            for k, column in enumerate(asked.column):
                records, count = table.padded(k, some, shape, near_of(asked), np.float64)
                records = records[:, : count[0]] if asked.neighbors == "swap" else records
                for epsilon in asked.epsilon:
                    values = _draw(records, asked, options[column] | {"epsilon": epsilon}).values
                    values = values.reshape(asked.draws, len(records), len(asked.quantile))
                    found |= {(column, epsilon, group): values[:, row] for row, group in enumerate(some.tolist())}
    except ValueError as error:  # about public parameters only
        raise UserError(str(error)) from error
    rows = [
        Row(column, label if asked.by else None, q, epsilon, found[column, epsilon, group][:, k], size)
        for column in asked.column
        for group, label in enumerate(table.labels)
        for size in [None if sizes is None else int(sizes[group])]
        for k, q in enumerate(asked.quantile)
        for epsilon in asked.epsilon
    ]
    return report(asked, rows, _json, _text, _record, _HEADER), 0


def _complete(asked: argparse.Namespace) -> None:
    """Fill in what was not asked, and refuse what does not fit."""
    asked.quantile, asked.epsilon = sorted(set(asked.quantile)), list(dict.fromkeys(asked.epsilon))
    if len(asked.quantile) > 1 and (asked.definition == "linear" or asked.mechanism == "permute_and_flip"):
        raise UserError("several quantiles are drawn together, by joint quantiles: without --mechanism and --definition.")
    joint = len(asked.quantile) > 1 and asked.neighbors == "add_remove"
    if joint != (asked.n_max is not None):
        raise UserError(
            "--n-max, a public guess of the most records of a group, goes with several quantiles under add_remove: what is drawn "
            "may not depend on how many records the file has."
        )
    asked.definition = asked.definition or "lower"
    if len(set(asked.column)) < len(asked.column):
        raise UserError("--column names a column twice.")
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
    labels = [[part.strip() for part in (group.split(",") if len(asked.by) > 1 else [group])] for group in asked.groups or ()]
    asked.groups = [list(label) for label in dict.fromkeys(map(tuple, labels))]
    for label in asked.groups:
        if len(label) != len(asked.by):
            raise UserError(
                f"a group by {len(asked.by)} columns is named by {len(asked.by)} labels with commas, got {','.join(label)}."
            )


def _options_of(asked: argparse.Namespace) -> dict[str, dict[str, Any]]:
    """The bounds and the resolution of each column."""
    steps = one_for_each("--resolution", asked.resolution, asked.column)
    bounds = bounds_of(asked.lower, asked.upper, asked.column)
    return {
        column: {"lower": low, "upper": high, "resolution": step}
        for column, (low, high), step in zip(asked.column, bounds, steps, strict=True)
    }


def _shapes(table: Table) -> Iterator[tuple[np.ndarray, tuple[int, int]]]:
    """Some groups at a time, the rows and the places that they are padded to; some where there is none, too."""
    if table.kept.neighbors == "swap":  # one group, as it is: the number of records is public
        yield np.zeros(1, np.int64), (1, int(table.sizes[0]))
        return
    for some, padded, places in shapes_of(table.sizes):
        yield some, (len(padded), places)
    if not table.sizes.size:
        yield np.zeros(0, np.int64), (1, LEAST)


def _draw(records: np.ndarray, asked: argparse.Namespace, options: dict[str, Any], *, check: bool = False) -> Any:
    """Draw; or only check what is public, on a dataset without a record."""
    options = options | {"neighbors": asked.neighbors}
    if len(asked.quantile) > 1:
        if asked.n_max is not None:
            options["reach"] = reach_for(asked.quantile, asked.n_max, **options)
        return joint_quantiles(records, asked.quantile, draws=1 if check else asked.draws, **options)
    options |= {"definition": asked.definition, "mechanism": asked.mechanism}
    if check:
        return exact_distribution(quantile, records[0], asked.quantile[0], **options)
    return quantile(records, asked.quantile[0], draws=asked.draws, **options)


def _record(row: Row) -> dict[str, Any]:
    """A line of a CSV file: one for each draw."""
    size = {} if row.noisy_size is None else {"noisy_size": row.noisy_size}
    known = {"column": row.column, "group": row.group} | size | {"quantile": float(row.quantile), "epsilon": row.epsilon}
    return known | {"draws": row.released}


def _costs(asked: argparse.Namespace) -> list[str]:
    times, ranges = len(asked.column) * asked.draws, 2 if asked.mechanism == "permute_and_flip" else 1
    total, spread = promised(*asked.epsilon, times=times), promised(*asked.epsilon, times=ranges * times)
    many = times * len(asked.epsilon) > 1
    each = f"Each {'draw of all quantiles' if len(asked.quantile) > 1 else 'value'} costs epsilon"
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
    groups = "the groups that are found" if asked.private else f"{len(asked.groups)} groups" if asked.by else "all records"
    said = (
        f"Dry run: no record was read, and nothing is spent. {asked.file} has the columns, and the options fit. Released would be "
        f"a table for {', '.join(asked.column)}, of {groups}, quantile {', '.join(map(str, asked.quantile))}, "
        f"epsilon {', '.join(map(promised, asked.epsilon))}; draws of each: {asked.draws}."
    )
    return wrapped(said, *_costs(asked))


def _text(rows: Sequence[Row], asked: argparse.Namespace) -> str:
    table = aligned(
        {
            "column": [row.column for row in rows],
            "group": [group_as_text(row.group) for row in rows] if asked.by else None,
            "noisy_size": [str(row.noisy_size) for row in rows] if asked.private else None,
            "quantile": [f"{float(row.quantile):g}" for row in rows] if len(asked.quantile) > 1 else None,
            "epsilon": [promised(row.epsilon) for row in rows] if len(asked.epsilon) > 1 else None,
            "released": [", ".join(f"{value:.15g}" for value in row.released) for row in rows],
        },
        left=("column", "group"),
    )
    levels = ", ".join(map(str, asked.quantile))
    what = "Median" if asked.quantile == [Fraction(1, 2)] else f"Quantile{'s' if len(asked.quantile) > 1 else ''} {levels}"
    ranges = {name: f"{o['resolution']}, from {o['lower']:.15g} to {o['upper']:.15g}" for name, o in asked.options.items()}
    said = f"multiples of {next(iter(ranges.values()))}"
    if len(set(ranges.values())) > 1:
        said = "multiples of a resolution: " + "; ".join(f"{name} {words}" for name, words in ranges.items())
    notes = wrapped(
        *_costs(asked),
        "The values were drawn exactly, with entropy of the operating system. Records that are no numbers are left out, and a "
        "group without records gets a value, too: nothing here says so. Not covered: running time, memory, and options that were "
        "chosen by looking at the data (bounds, grid, groups, epsilon).",
    )
    return "\n\n".join([wrapped(f"{what} ({asked.definition}) of records that are {said}."), table, notes])


def _json(rows: Sequence[Row], asked: argparse.Namespace) -> str:
    total = sum(map(Fraction, asked.epsilon)) * asked.draws * len(asked.column) + Fraction(asked.group_epsilon or 0)
    answer = {
        "simulation": False,
        "quantiles": [float(q) for q in asked.quantile],
        **{name: getattr(asked, name) for name in ("definition", "mechanism", "neighbors")},
        "columns": {name: options | {"resolution": str(options["resolution"])} for name, options in asked.options.items()},
        "epsilon_of_each": asked.epsilon,
        "epsilon_of_all": rounded_up(total),
        "delta": asked.private.guarantee.delta if asked.private else 0.0,
        **versions(),
        "rows": [
            {name: value for name, value in row._asdict().items() if name != "noisy_size" or value is not None}
            | {"group": group_as_json(row.group, asked.by), "quantile": float(row.quantile)}
            for row in rows
        ],
    }
    return as_json(answer)
