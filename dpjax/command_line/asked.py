"""What the commands that read a file were asked for: filled in, and refused where options do not fit each other."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TypeVar

from dpjax.command_line.errors import UserError
from dpjax.command_line.parser import GRID_MECHANISMS
from dpjax.release import Quantile, Quantiles

T = TypeVar("T")


def complete(asked: argparse.Namespace) -> None:
    """Sort what was given twice or in any order, and refuse options that no command takes together."""
    for column in asked.column or ():
        if asked.column.count(column) > 1:
            raise UserError(f"--column names {column!r} twice.")
    asked.quantile = sorted(set(asked.quantile))
    asked.mechanism, asked.epsilon = list(dict.fromkeys(asked.mechanism)), list(dict.fromkeys(asked.epsilon))
    if len(asked.quantile) > 1 and (asked.definition == "linear" or asked.mechanism != [GRID_MECHANISMS[0]]):
        raise UserError("several quantiles are drawn together, by joint quantiles: without --mechanism and --definition.")
    asked.definition = asked.definition or ("linear" if asked.resolution is None else "lower")


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


def statistics_of(asked: argparse.Namespace, columns: Sequence[str], n_max: int | None = None) -> list[Quantile | Quantiles]:
    """Return what is asked of each column on a grid."""
    steps = one_for_each("--resolution", asked.resolution, columns)
    found: list[Quantile | Quantiles] = []
    for (low, high), step in zip(bounds_of(asked.lower, asked.upper, columns), steps, strict=True):
        if len(asked.quantile) > 1:
            found.append(Quantiles(tuple(asked.quantile), low, high, step, n_max=n_max))
        else:
            found.append(Quantile(asked.quantile[0], low, high, step, definition=asked.definition))
    return found
