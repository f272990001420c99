"""``dpjax ledger``: the charges to the budget in a file, and what is left.

It does not change the file.
"""

from __future__ import annotations

import argparse
import datetime
from math import inf
from typing import Any

from dpjax.accounting import Guarantee, Ledger
from dpjax.accounting.ledger import guarantee_of, left_text
from dpjax.command_line.errors import UserError
from dpjax.command_line.text import aligned, as_json, promised, wrapped

_LEVELS = ("q", "qs", "rank", "tau")  # fields that distinguish statistics of one name


def run(asked: argparse.Namespace) -> tuple[str, int]:
    """Return the report on a ledger, and the exit code."""
    try:
        ledger = Ledger(asked.file)
        return (as_json(_facts(ledger)) if asked.json else _text(ledger)), 0
    except ValueError as error:
        raise UserError(str(error)) from error
    except FileNotFoundError as error:
        raise UserError(f"cannot read {asked.file}: there is no such file.") from error
    except OSError as error:
        raise UserError(f"cannot read {asked.file}: {error.strerror}.") from error


def _facts(ledger: Ledger) -> dict[str, Any]:
    spent = {
        "unit": ledger.unit,
        "budget": ledger.budget,
        "spent": ledger.spent,
        "remaining": ledger.remaining,
    }
    return {"ledger": ledger.path, **ledger.totals, **spent, "entries": ledger.entries}


def _text(ledger: Ledger) -> str:
    entries, totals = ledger.entries, ledger.totals
    whole = Guarantee(
        totals["epsilon"], inf, totals["neighbors"], totals["delta"], unit=ledger.unit
    )
    reserved = (
        f" A delta of {promised(totals['mechanism_delta'])} is reserved for mechanisms with a "
        "delta."
        if totals["delta"]
        else ""
    )
    number = {0: "nothing was charged so far", 1: "one charge"}.get(
        len(entries), f"{len(entries)} charges"
    )
    said = (
        f"{ledger.path}: {number}; {left_text(ledger)}. All that is charged to it is {whole} "
        f"together.{reserved}"
    )
    return f"{_table(entries)}\n\n{wrapped(said)}" if entries else wrapped(said)


def _table(entries: list[dict[str, Any]]) -> str:
    """Return a table with a line for each charge, without columns that are empty in all of them."""
    costs = [guarantee_of(entry) for entry in entries]
    what = [entry["what"] for entry in entries]
    named = {
        "columns": [_listed(each.get("columns", "")) for each in what],
        "statistic": [_statistic(each.get("statistic", each.get("columns", ""))) for each in what],
        "by": [_listed(each.get("by", "")) for each in what],
        "groups": [_groups(each.get("groups", "")) for each in what],
        "unit": [_unit(each) for each in what],
        "draws": [_draws(each.get("draws", "")) for each in what],
    }
    without_epsilon = any(min(cost.epsilon, cost.bounded_range) == inf for cost in costs)
    return aligned(
        {
            "time": [entry["time"] for entry in entries],
            **{name: cells if any(cells) else None for name, cells in named.items()},
            "epsilon": [promised(min(cost.epsilon, cost.bounded_range)) for cost in costs],
            "delta": [promised(cost.delta) if cost.delta else "0" for cost in costs],
            "rho": [promised(cost.rho) for cost in costs] if without_epsilon else None,
            "left": [f"{entry['remaining']:g}" for entry in entries],
        },
        left=("time", "columns", "statistic", "by", "unit"),
    )


def _listed(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list | dict) else str(value)


def _groups(groups: Any) -> str:
    """Return the number of groups as text; "found" for groups that a release finds."""
    return (
        str(len(groups))
        if isinstance(groups, list)
        else "found"
        if isinstance(groups, dict)
        else str(groups)
    )


def _unit(what: dict[str, Any]) -> str:
    """Return the column of the person, with the number of groups if it is above one."""
    most = what.get("max_groups", 1)
    return str(what.get("unit", "")) + ("" if most == 1 else f", in {most} groups")


def _draws(draws: Any) -> str:
    """Return the number of draws as text, one number if it is equal for all columns."""
    if not isinstance(draws, dict):
        return _listed(draws)
    return (
        str(next(iter(draws.values())))
        if len(set(map(str, draws.values()))) == 1
        else _listed(list(draws.values()))
    )


def _statistic(given: Any) -> str:
    """Return a statistic as text, by its name, level and grid; several of them by their columns.

    >>> _statistic(
    ...     {"statistic": "Quantile", "q": "1/3", "lower": 0.0, "upper": 9.0, "resolution": "1"}
    ... )
    'Quantile 1/3, 0..9 by 1'
    >>> quantiles = {"statistic": "Quantiles", "qs": [0.1, 0.9]}
    >>> _statistic({"age": {"statistic": "Quantile", "q": "1/2"}, "income": quantiles})
    'age: Median; income: Quantiles 0.1, 0.9'
    >>> _statistic({"age": {"statistic": "Median"}})
    'Median'
    """
    if isinstance(given, list):
        return "; ".join(_statistic(each) for each in given if isinstance(each, dict))
    if not isinstance(given, dict):
        return str(given)
    if "statistic" not in given:
        named = {column: _statistic(each) for column, each in given.items()}
        return (
            "; ".join(f"{column}: {text}" for column, text in named.items())
            if len(named) > 1
            else "".join(named.values())
        )
    name = (
        "Median"
        if (given["statistic"], given.get("q")) == ("Quantile", "1/2")
        else str(given["statistic"])
    )
    levels = [_listed(given[level]) for level in _LEVELS if level in given and name != "Median"]
    grid = (
        ""
        if {"lower", "upper"} - set(given)
        else f", {_short(given['lower'])}..{_short(given['upper'])}"
    )
    grid += f" by {_short(given['resolution'])}" if grid and "resolution" in given else ""
    return " ".join([name, *levels]) + grid


def _short(value: Any) -> str:
    """Return a number, a date or a duration as people write it.

    >>> _short(0.5), _short({"date": "2024-01-31"}), _short({"microseconds": 86_400_000_000})
    ('0.5', '2024-01-31', '1 day')
    """
    if isinstance(value, dict):
        (kind, number), *_ = value.items()
        return (
            str(datetime.timedelta(microseconds=number)).removesuffix(", 0:00:00")
            if kind == "microseconds"
            else str(number)
        )
    return f"{value:g}" if isinstance(value, float) else str(value)
