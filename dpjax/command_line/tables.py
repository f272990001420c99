"""``dpjax release`` and ``dpjax simulate``: statistics of the columns of a file, without JAX."""

from __future__ import annotations

import argparse
import csv
import json
import os
import re
from dataclasses import fields
from datetime import date, datetime, timedelta
from typing import Any

import polars as pl

from dpjax import frames
from dpjax.accounting import PrivacyFilter
from dpjax.accounting.ledger import left_text
from dpjax.command_line import files
from dpjax.command_line.ledger import NotedLedger
from dpjax.command_line.options import statistics
from dpjax.release import DistinctCount, Statistic
from dpjax.version import __version__

Answer = tuple[list[dict[str, Any]], dict[str, Any], str]
_SHARED = ("by", "unit", "per_unit", "max_groups", "neighbors", "epsilon", "draws", "mechanism")


def answer(asked: argparse.Namespace) -> Answer:
    """Return the rows, facts on all of them, and both as text."""
    chosen = statistics(asked)
    form = files.Format(**{each.name: getattr(asked, each.name) for each in fields(files.Format)})
    labels = [*asked.by, *([] if asked.unit is None else [asked.unit])]
    dtypes = dict.fromkeys(labels, pl.String()) | dict.fromkeys(asked.column, _dtype(chosen))
    releasing = asked.command == "release"
    known = dtypes
    # Not always, since a pipe can be opened only once
    if files.is_parquet(asked.file) or (releasing and asked.dry_run):
        known = files.schema_of(asked.file, dtypes, form)
    statistic = chosen if len(chosen) > 1 else chosen[0]
    options: dict[str, Any] = {
        "columns": dict.fromkeys(asked.column, statistic),
        "groups": _groups(asked, known),
        **{name: getattr(asked, name) for name in _SHARED},
    }
    if releasing:
        empty = pl.DataFrame({name: pl.Series([None], dtype=known[name]) for name in dtypes})
        planned = frames.release(empty, **options)  # raises for whatever is public
        if asked.dry_run:
            return _planned(asked, planned.guarantee)
        frame, _ = files.read(asked.file, dtypes, form)
        ledger = _ledger(asked)
        found = frames.release(frame, **options, budget=ledger)
        return _shown(found, [], {} if ledger is None else {"ledger": left_text(ledger)})
    frame, unread = files.read(asked.file, dtypes, form)
    found = frames.simulate(asked.seed, frame, **options)
    notes = [_unreadable(name, unread[name], dtypes[name]) for name in asked.column if name in unread]
    return _shown(found, notes, {"simulation": "Nothing of it is private."})


def _dtype(chosen: list[Statistic]) -> Any:
    """Return the dtype that the cells of a file of text are read as."""
    distinct = [isinstance(statistic, DistinctCount) for statistic in chosen]
    if any(distinct):
        if not all(distinct):
            raise ValueError("DistinctCount reads text: give it a command of its own.")
        return pl.String()
    for lower in (getattr(statistic, "lower", None) for statistic in chosen):
        if isinstance(lower, timedelta):
            return pl.Duration("us")
        if isinstance(lower, datetime):
            return pl.Datetime("us", "UTC" if lower.tzinfo else None)
        if isinstance(lower, date):
            return pl.Date()
    return pl.Float64()


def _groups(asked: argparse.Namespace, dtypes: dict[str, Any]) -> Any:
    """Return the public labels as values of their columns, or how private groups are found."""
    private = asked.group_epsilon, asked.group_delta
    if private != (None, None):
        if None in private or asked.groups is not None:
            raise ValueError(
                "--group-epsilon and --group-delta must be given together, and without --groups."
            )
        return frames.PrivateGroups(*private)
    if asked.groups is None:
        return None
    several = len(asked.by) > 1
    labels = list(csv.reader(asked.groups)) if several else [[text] for text in asked.groups]
    if any(len(label) != len(asked.by) for label in labels):
        raise ValueError("--groups must be a label of each column of --by, such as north,women.")
    parts = [
        tuple(files.label(text.strip(), dtypes[name]) for name, text in zip(asked.by, label, strict=True))
        for label in labels
    ]
    return parts if several else [part for (part,) in parts]


def _ledger(asked: argparse.Namespace) -> NotedLedger | None:
    """Return the ledger; one that does not exist is created."""
    if asked.ledger is None:
        return None
    noted = {"file": asked.file, **({} if asked.note is None else {"note": asked.note})}
    return NotedLedger(noted, asked.ledger, **_totals(asked))


def _totals(asked: argparse.Namespace) -> dict[str, Any]:
    if asked.total_epsilon is None:
        return {}
    return {
        "epsilon": asked.total_epsilon,
        "delta": asked.total_delta or 0.0,
        "neighbors": asked.neighbors,
    }


def _planned(asked: argparse.Namespace, guarantee: Any) -> Answer:
    """Return what a release would cost, and whether it fits the ledger."""
    facts = _cost(guarantee)
    if asked.ledger is not None:
        totals = _totals(asked)
        if os.path.exists(asked.ledger):
            ledger = NotedLedger({}, asked.ledger, **totals)
            fits, left = ledger.allows(guarantee, {"unit": asked.unit}), left_text(ledger)
        else:
            ...
    return [], facts, "\n".join(...)


def _shown(found: frames.FrameResult, notes: list[str], facts: dict[str, str]) -> Answer:
    ...
