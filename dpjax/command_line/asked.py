"""What the commands that read a file were asked for: filled in, and refused where options do not fit each other."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from importlib import import_module
from typing import Any, TypeVar

from dpjax.command_line.errors import UserError
from dpjax.command_line.kept import Keeper
from dpjax.command_line.parser import GRID_MECHANISMS
from dpjax.frames.asked import Asked, asked_of

T = TypeVar("T")


def complete(asked: argparse.Namespace) -> None:
    """Sort what was given twice or in any order, and refuse options that no command takes together."""
    for column in asked.column or ():
        if asked.column.count(column) > 1:
            raise UserError(f"--column names {column!r} twice.")
    asked.quantile = sorted(set(asked.quantile))
    asked.mechanism, asked.epsilon = list(dict.fromkeys(asked.mechanism)), list(dict.fromkeys(asked.epsilon))
    asked.several = len(asked.quantile) > 1
    if asked.several and (asked.definition == "linear" or asked.mechanism != [GRID_MECHANISMS[0]]):
        raise UserError("several quantiles are drawn together, by joint quantiles: without --mechanism and --definition.")
    asked.definition = asked.definition or ("linear" if asked.resolution is None else "lower")
    guessed = asked.several and asked.neighbors == "add_remove" and asked.resolution is not None
    if guessed != (asked.n_max is not None):
        raise UserError(
            "--n-max, a public guess of the most records of a group, goes with several quantiles under add_remove that have a "
            "resolution: what a release draws may not depend on how many records the file has."
        )


def bounds_of(lower: list[float], upper: list[float], columns: Sequence[str]) -> list[tuple[float, float]]:
    """Return one pair of bounds for each column."""
    bounds = list(zip(one_for_each("--lower", lower, columns), one_for_each("--upper", upper, columns), strict=True))
    for column, (low, high) in zip(columns, bounds, strict=True):
        if not low < high:
            raise UserError(f"--lower must be below --upper: got {low:g} and {high:g} for {column}.")
    return bounds


def one_for_each(name: str, given: list[T], columns: Sequence[str]) -> list[T]:
    """Return a value for each column, where one was given for all or one for each."""
    if len(given) not in (1, len(columns)):
        raise UserError(f"{name} has {len(given)} values for {len(columns)} columns: give one, or one for each.")
    return given * (len(columns) // len(given))


def statistics_of(asked: argparse.Namespace, columns: Sequence[str]) -> dict[str, Asked]:
    """Return what is asked of each column, by the first mechanism, once all public numbers are checked."""
    bounds = bounds_of(asked.lower, asked.upper, columns)
    steps = one_for_each("--resolution", asked.resolution or [None], columns)
    functions: Any = import_module("dpjax.statistics" if asked.resolution is None else "dpjax.release")
    if asked.several:
        function = functions.quantiles if asked.resolution is None else functions.joint_quantiles
        level = {"qs": tuple(asked.quantile), "n_max": asked.n_max}
    else:
        function, level = functions.quantile, {"q": asked.quantile[0], "definition": asked.definition}
    given = {
        column: level | {"lower": low, "upper": high, "resolution": step}
        for column, (low, high), step in zip(columns, bounds, steps, strict=True)
    }
    return asked_of(given, function, {"epsilon": asked.epsilon, "draws": asked.draws}, asked.neighbors, simulated=True)


def keeper_of(statistics: dict[str, Asked], neighbors: str) -> Keeper:
    """Return where the records of each column go: those on a grid are counted."""
    known: list[Any] = list(statistics.values())
    grids = [one.statistic.records_grid for one in known if one.statistic is not None]
    return Keeper(list(statistics), [one.bounds for one in known], grids or None, swap=neighbors == "swap")
