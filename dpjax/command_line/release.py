"""The release of medians and quantiles of a file's columns: what is printed is private, so nothing else is said of the data."""

from __future__ import annotations

import argparse
import csv
import io
import json
import math
import sys
from collections.abc import Iterator, Sequence
from fractions import Fraction
from pathlib import Path

import numpy as np

from dpjax.command_line.errors import UserError
from dpjax.command_line.report import aligned, promised, versions, wrapped
from dpjax.release import Grid, quantile
from dpjax.release.api import cost_of

_LEAST = 16  # places for records: their number shows, roughly, in the running time


def run(asked: argparse.Namespace) -> str:
    """Return the report of ``dpjax release``.

    Raises:
        UserError: a mistake in the arguments, or a file that cannot be opened. No record raises.
    """
    grid = grid_of(asked.grid_step, asked.lower, asked.upper)
    if (asked.by is None) != (asked.groups is None):
        raise UserError("--by and --groups go together: the groups are public, and not read from the file.")
    if asked.by is not None and asked.neighbors == "swap":
        raise UserError("--by needs --neighbors add_remove: a replaced record can move from one group to another.")
    groups = [None] if asked.groups is None else list(dict.fromkeys(label.strip() for label in asked.groups))  # as the cells are
    records = read(asked.file, asked.column, asked.by, groups, asked.delimiter, not asked.no_header)
    if asked.neighbors == "swap" and records.shape[-1] == 0:
        raise UserError("under swap neighbors the number of records is public, and there is none.")
    if asked.neighbors == "add_remove":
        places = max(_LEAST, 2 ** max(records.shape[-1] - 1, 0).bit_length())
        records = np.pad(records, [(0, 0), (0, 0), (0, places - records.shape[-1])], constant_values=np.nan)
    try:
        found = quantile(
            records,
            asked.quantile,
            grid=grid,
            epsilon=asked.epsilon,
            neighbors=asked.neighbors,
            definition=asked.definition,
            variant=asked.law,
            draws=asked.draws,
        )
    except ValueError as error:  # about public parameters only
        raise UserError(str(error)) from error
    return _as_json(asked, found.values, groups) if asked.json else _as_text(asked, found.values, groups)


def grid_of(step: float, lower: float, upper: float) -> Grid:
    """Return the grid of cells from ``lower`` to ``upper``.

    Raises:
        UserError: a step that is no power of two, or bounds that are no multiples of it.
    """
    mantissa, exponent = math.frexp(step)
    if mantissa != 0.5:
        raise UserError(f"--grid-step must be a power of two, such as 1, 0.5 or 16, got {step:g}.")
    size = (Fraction(upper) - Fraction(lower)) / Fraction(step)
    if size.denominator != 1 or size < 1:
        raise UserError(f"--upper must be above --lower by a multiple of the step {step:g}, got {lower:g} and {upper:g}.")
    try:
        return Grid(log2_step=exponent - 1, lower=lower, size=int(size))
    except ValueError as error:
        raise UserError(str(error)) from error


def read(
    path: str, columns: Sequence[str], by: str | None, groups: Sequence[str | None], delimiter: str, header: bool
) -> np.ndarray:
    """Return the records of the groups that are asked for, float64 ``(columns, groups, n)`` padded with NaN.

    Every line is a record of its own, blank or not, so that none can change how another is read: a quoted cell cannot go on in the
    next line. What is no number, or not there, is NaN; a record of no group that is asked for counts nowhere.

    Raises:
        UserError: a file that cannot be opened, or a column that its first line does not name.
    """
    name = "standard input" if path == "-" else path
    try:
        content = sys.stdin.buffer.read() if path == "-" else Path(path).read_bytes()
    except (OSError, ValueError) as error:
        raise UserError(f"cannot read {name}: {getattr(error, 'strerror', None) or error}.") from error
    lines = _cells(content.decode("utf-8-sig", errors="replace"), delimiter)
    if header:
        names = next(lines, [])
        for column in [*columns, *([] if by is None else [by])]:
            if names.count(column) != 1:
                raise UserError(f"the first line of {name} does not name {column!r} once.")
        places = [names.index(column) for column in columns]
        place_by = None if by is None else names.index(by)
    else:
        numbers = [_place(column) for column in [*columns, *([] if by is None else [by])]]
        places, place_by = numbers[: len(columns)], None if by is None else numbers[-1]
    found: list[list[list[float]]] = [[] for _ in groups]
    index = {label: i for i, label in enumerate(groups)}
    for cells in lines:
        label = None if place_by is None else cells[place_by] if place_by < len(cells) else ""
        if label in index:
            found[index[label]].append([_number(cells[place]) if place < len(cells) else math.nan for place in places])
    most = max(map(len, found))
    records = np.full((len(columns), len(groups), most), np.nan)
    for i, rows in enumerate(found):
        if rows:
            records[:, i, : len(rows)] = np.array(rows).T
    return records


def _cells(text: str, delimiter: str) -> Iterator[list[str]]:
    """The cells of each line; none of a line that cannot be split."""
    for line in io.StringIO(text, newline=None):
        if delimiter == " ":
            yield line.split()
            continue
        try:
            yield [cell.strip() for cell in next(csv.reader([line.rstrip("\n")], delimiter=delimiter, skipinitialspace=True), [])]
        except csv.Error:
            yield []


def _place(column: str) -> int:
    if not column.isdecimal() or int(column) < 1:
        raise UserError(f"with --no-header columns are called 1, 2, 3, ...; got {column!r}.")
    return int(column) - 1


def _number(cell: str) -> float:
    try:
        return math.nan if "_" in cell else float(cell)
    except ValueError:
        return math.nan


def _promise(asked: argparse.Namespace) -> list[str]:
    times = len(asked.column) * asked.draws
    each = f"Each value costs epsilon = {promised(asked.epsilon)}; all of it" if times > 1 else "This"
    total = promised(asked.epsilon, times)
    groups = " Groups share it: one record is in one of them." if asked.by else ""
    return [
        f"{each} is {total}-DP and {total}-bounded-range for one record under {asked.neighbors} neighbors.{groups}",
        "The values were drawn exactly, with entropy of the operating system. Not covered: running time, memory, and options that "
        "were chosen by looking at the data (bounds, grid, groups, epsilon).",
    ]


def _as_text(asked: argparse.Namespace, values: np.ndarray, groups: Sequence[str | None]) -> str:
    rows = [(column, group) for column in asked.column for group in groups]
    shown = values.reshape(asked.draws, -1).T
    fields = {
        "column": [column for column, _ in rows],
        "group": asked.by is not None and [group or "(empty)" for _, group in rows],
        "released": [", ".join(f"{value:.15g}" for value in draws) for draws in shown],
    }
    table = aligned({name: cells for name, cells in fields.items() if cells}, left=("column", "group"))
    what = "Median" if asked.quantile == Fraction(1, 2) else f"Quantile {asked.quantile}"
    head = f"{what} ({asked.definition}) on a grid of step {asked.grid_step:.15g} from {asked.lower:.15g} to {asked.upper:.15g}."
    return "\n\n".join([wrapped(head), "\n".join(table), "\n".join(map(wrapped, _promise(asked)))])


def _as_json(asked: argparse.Namespace, values: np.ndarray, groups: Sequence[str | None]) -> str:
    shown = values.reshape(asked.draws, len(asked.column), len(groups))
    answer = {
        "simulation": False,
        "quantile": float(asked.quantile),
        "definition": asked.definition,
        "neighbors": asked.neighbors,
        "law": asked.law,
        "grid": {"step": asked.grid_step, "lower": asked.lower, "upper": asked.upper},
        "epsilon_of_each": asked.epsilon,
        "epsilon_of_all": cost_of(asked.epsilon, asked.draws * len(asked.column), asked.neighbors).epsilon,
        **versions(),
        "rows": [
            {"column": column, "group": group, "released": shown[:, i, j].tolist()}
            for i, column in enumerate(asked.column)
            for j, group in enumerate(groups)
        ],
    }
    return json.dumps(answer, indent=2)
