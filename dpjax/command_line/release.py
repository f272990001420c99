"""``dpjax release``: medians and quantiles of a file's columns. What is printed is private, so nothing else is said of the data."""

from __future__ import annotations

import argparse
import csv
import io
import math
from collections.abc import Iterator, Sequence
from fractions import Fraction

import numpy as np

from dpjax.command_line.table import content_of, name_of, number, padded
from dpjax.command_line.text import UserError, aligned, as_json, promised, total_epsilon, versions, wrapped
from dpjax.release import quantile

_LEAST = 16  # places for records: their number shows, roughly, in the running time


def run(asked: argparse.Namespace) -> tuple[str, int]:
    """Return the report and the exit code.

    Raises:
        UserError: a mistake in the arguments, or a file that cannot be opened. No record raises.
    """
    asked.definition = asked.definition or "lower"
    if (asked.by is None) != (asked.groups is None):
        raise UserError("--by and --groups go together: the groups are public, and not read from the file.")
    if asked.by is not None and asked.neighbors == "swap":
        raise UserError("--by needs --neighbors add_remove: a replaced record can move from one group to another.")
    groups = [None] if asked.groups is None else list(dict.fromkeys(label.strip() for label in asked.groups))  # as the cells are
    records = read(asked.file, asked.column, asked.by, groups, asked.delimiter, not asked.no_header)
    if asked.neighbors == "swap" and records.shape[-1] == 0:
        raise UserError("under swap neighbors the number of records is public, and there is none.")
    if asked.neighbors == "add_remove":
        size = max(_LEAST, 2 ** max(records.shape[-1] - 1, 0).bit_length())
        records = np.pad(records, [(0, 0), (0, 0), (0, size - records.shape[-1])], constant_values=np.nan)
    try:
        found = quantile(
            records,
            asked.quantile,
            lower=asked.lower,
            upper=asked.upper,
            resolution=asked.resolution,
            epsilon=asked.epsilon,
            neighbors=asked.neighbors,
            definition=asked.definition,
            mechanism=asked.mechanism,
            draws=asked.draws,
        )
    except ValueError as error:  # about public parameters only
        raise UserError(str(error)) from error
    values = found.values.reshape(asked.draws, len(asked.column) * len(groups)).T
    places = [(column, group) for column in asked.column for group in groups]
    rows = [(column, group, released) for (column, group), released in zip(places, values, strict=True)]
    return (_json if asked.json else _text)(asked, rows), 0


def read(
    path: str, columns: Sequence[str], by: str | None, groups: Sequence[str | None], delimiter: str, header: bool
) -> np.ndarray:
    """Return the records of the groups that are asked for, float64 ``(columns, groups, n)`` padded with NaN.

    Every line is a record of its own, blank or not, so that none can change how another is read: a quoted cell cannot go on in the
    next line. What is no number, or not there, is NaN; a record of no group that is asked for counts nowhere.

    Raises:
        UserError: a file that cannot be opened, or a column that its first line does not name.
    """
    lines = _cells(content_of(path).decode("utf-8-sig", errors="replace"), delimiter)
    asked = [*columns, *([] if by is None else [by])]
    names = next(lines, []) if header else None
    places = [_place(column, names, path) for column in asked]
    place_by = None if by is None else places.pop()
    found: dict[str | None, list[list[float]]] = {label: [] for label in groups}
    for cells in lines:
        label = None if place_by is None else cells[place_by] if place_by < len(cells) else ""
        if label in found:
            found[label].append([_number(cells[place]) if place < len(cells) else math.nan for place in places])
    return padded([found[label] for label in groups], len(columns))


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


def _place(column: str, names: list[str] | None, path: str) -> int:
    if names is None:
        if not column.isdecimal() or int(column) < 1:
            raise UserError(f"with --no-header columns are called 1, 2, 3, ...; got {column!r}.")
        return int(column) - 1
    if names.count(column) != 1:
        raise UserError(f"the first line of {name_of(path)} does not name {column!r} once.")
    return names.index(column)


def _number(cell: str) -> float:
    try:
        return number(cell)
    except ValueError:
        return math.nan


def _text(asked: argparse.Namespace, rows: list[tuple[str, str | None, np.ndarray]]) -> str:
    table = aligned(
        {
            "column": [column for column, _, _ in rows],
            "group": [group or "(empty)" for _, group, _ in rows] if asked.by is not None else None,
            "released": [", ".join(f"{value:.15g}" for value in values) for _, _, values in rows],
        },
        left=("column", "group"),
    )
    what = "Median" if asked.quantile == Fraction(1, 2) else f"Quantile {asked.quantile}"
    times, ranges = len(asked.column) * asked.draws, 2 if asked.mechanism == "permute_and_flip" else 1
    total, spread = promised(asked.epsilon, times), promised(asked.epsilon, ranges * times)
    all_of_it = f"Each value costs epsilon = {promised(asked.epsilon)}; all of it" if times > 1 else "This"
    groups = " Groups share it: one record is in one of them." if asked.by else ""
    promise = wrapped(
        f"{all_of_it} is {total}-DP and {spread}-bounded-range for one record under {asked.neighbors} neighbors.{groups}",
        "The values were drawn exactly, with entropy of the operating system. Not covered: running time, memory, and options that "
        "were chosen by looking at the data (bounds, grid, groups, epsilon).",
    )
    bounds = f"from {asked.lower:.15g} to {asked.upper:.15g}"
    head = f"{what} ({asked.definition}) of records that are multiples of {asked.resolution}, {bounds}."
    return "\n\n".join([wrapped(head), table, promise])


def _json(asked: argparse.Namespace, rows: list[tuple[str, str | None, np.ndarray]]) -> str:
    answer = {
        "simulation": False,
        "quantile": float(asked.quantile),
        **{name: getattr(asked, name) for name in ("definition", "mechanism", "neighbors", "lower", "upper")},
        "resolution": str(asked.resolution),
        "epsilon_of_each": asked.epsilon,
        "epsilon_of_all": total_epsilon(asked.epsilon, asked.draws * len(asked.column)),
        **versions(),
        "rows": [{"column": column, "group": group, "released": values} for column, group, values in rows],
    }
    return as_json(answer)
