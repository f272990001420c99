"""Validation of the options of a command, and their conversion for ``dpjax.frames``."""

from __future__ import annotations

import argparse
import datetime
from collections.abc import Sequence
from importlib import import_module
from typing import Any, TypeVar

from dpjax.command_line.errors import UserError
from dpjax.command_line.parser import GRID_MECHANISMS, LARGEST

T = TypeVar("T")


def complete(asked: argparse.Namespace) -> None:
    """Sort repeated options, set defaults, and refuse options that cannot be combined."""
    for column in asked.column or ():
        if asked.column.count(column) > 1:
            raise UserError(f"--column names {column!r} twice.")
    asked.quantile = sorted(set(asked.quantile))
    asked.mechanism, asked.epsilon = (
        list(dict.fromkeys(asked.mechanism)),
        list(dict.fromkeys(asked.epsilon)),
    )
    asked.several = len(asked.quantile) > 1
    if asked.several and (asked.definition == "linear" or asked.mechanism != [GRID_MECHANISMS[0]]):
        raise UserError(
            "--mechanism and --definition cannot be given with several quantiles, which are drawn "
            "jointly."
        )
    asked.definition = asked.definition or ("linear" if asked.resolution is None else "lower")
    guessed = asked.several and asked.neighbors == "add_remove" and asked.resolution is not None
    if guessed != (asked.max_records is not None):
        raise UserError(
            "--max-records, a public guess of the size of the largest group, must be given for "
            "several quantiles with a resolution under add_remove, and only then: a release must "
            "not depend on the number of records in the file."
        )
    if asked.by and asked.neighbors == "swap":
        raise UserError(
            "--by needs --neighbors add_remove: a replaced record can move from one group to "
            "another."
        )
    if asked.groups is not None and not asked.by:
        raise UserError("--groups needs --by, the column of the group labels.")
    if asked.unit is None and (asked.per_unit is not None or asked.max_groups != 1):
        raise UserError(
            "--per-unit and --max-groups need --unit, the column that names the person."
        )
    if asked.max_groups != 1 and not asked.by:
        raise UserError("--max-groups needs --by: without groups a person counts once.")


def check_draws(asked: argparse.Namespace, columns: Sequence[str]) -> None:
    """Raise :class:`UserError` if the draws do not fit into memory."""
    rows = (
        len(columns)
        * len(asked.quantile)
        * len(asked.mechanism)
        * len(asked.epsilon)
        * max(len(asked.groups or ()), 1)
    )
    if asked.draws * rows > LARGEST:
        raise UserError(f"{asked.draws} draws of each row are too many: at most {LARGEST} in all.")


def labels_read(asked: argparse.Namespace) -> list[str]:
    """Return the columns that are read as labels: those of the groups and of the person."""
    return [*asked.by, *([] if asked.unit is None else [asked.unit])]


def persons_asked(asked: argparse.Namespace) -> dict[str, Any]:
    """Return the arguments of ``dpjax.frames`` about persons."""
    return (
        {}
        if asked.unit is None
        else {"unit": asked.unit, "per_unit": asked.per_unit, "max_groups": asked.max_groups}
    )


def times_read(asked: argparse.Namespace) -> dict[str, bool]:
    """Return the columns whose bounds are dates or times, with True for dates.

    Such columns must be named by ``--column``.
    """
    if asked.column is None:
        if not all(isinstance(end, float) for end in asked.lower):
            raise UserError("--column must name the columns of dates or times.")
        return {}
    bounds = zip(asked.column, bounds_of(asked.lower, asked.upper, asked.column), strict=True)
    return {
        column: not isinstance(low, datetime.datetime)
        for column, (low, _) in bounds
        if not isinstance(low, float)
    }


def bounds_of(lower: list[Any], upper: list[Any], columns: Sequence[str]) -> list[tuple[Any, Any]]:
    """Return a pair of bounds for each column: numbers, dates or times."""
    bounds = list(
        zip(_for_each("--lower", lower, columns), _for_each("--upper", upper, columns), strict=True)
    )
    for column, (low, high) in zip(columns, bounds, strict=True):
        shown = " and ".join(
            f"{end:g}" if isinstance(end, float) else str(end) for end in (low, high)
        )
        if type(low) is not type(high):
            raise UserError(
                f"--lower and --upper must both be numbers, or dates, or times: got {shown} for "
                f"{column}."
            )
        if not low < high:
            raise UserError(f"--lower must be below --upper: got {shown} for {column}.")
    return bounds


def _for_each(name: str, given: list[T], columns: Sequence[str]) -> list[T]:
    """Return one value per column, from a single value for all or one for each."""
    if len(given) not in (1, len(columns)):
        raise UserError(
            f"{name} has {len(given)} values for {len(columns)} columns: give one, or one for each."
        )
    return given * (len(columns) // len(given))


def columns_asked(
    asked: argparse.Namespace, columns: Sequence[str]
) -> tuple[dict[str, dict[str, Any]], Any]:
    """Return the arguments for each column, and the function that takes them."""
    bounds = bounds_of(asked.lower, asked.upper, columns)
    steps = _for_each("--resolution", asked.resolution or [None], columns)
    functions: Any = import_module(
        "dpjax.statistics" if asked.resolution is None else "dpjax.release"
    )
    if asked.several:
        function = functions.quantiles if asked.resolution is None else functions.joint_quantiles
        level = {"qs": tuple(asked.quantile), "max_records": asked.max_records}
    else:
        function, level = (
            functions.quantile,
            {"q": asked.quantile[0], "definition": asked.definition},
        )
    for column, (low, _), step in zip(columns, bounds, steps, strict=True):
        if isinstance(low, float) == isinstance(step, datetime.timedelta) or (
            step is None and not isinstance(low, float)
        ):
            raise UserError(
                "--resolution must be a duration such as 1d for dates and times, and a number for "
                f"numbers, for column {column}."
            )
    arguments = {
        column: level | {"lower": low, "upper": high, "resolution": step}
        for column, (low, high), step in zip(columns, bounds, steps, strict=True)
    }
    return arguments, function
