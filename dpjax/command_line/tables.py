"""``dpjax release`` and ``dpjax simulate``: statistics of the columns of a file, without JAX."""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
from dataclasses import fields
from typing import Any

import polars as pl

from dpjax import frames
from dpjax.accounting import Ledger, PrivacyFilter
from dpjax.command_line import files
from dpjax.command_line.options import given, statistics
from dpjax.release.grid import kind_of

_SHARED = ("by", "unit", "per_unit", "max_groups", "neighbors", "epsilon", "draws", "mechanism")


def answer(asked: argparse.Namespace) -> str:
    """Release or simulate what is asked for, or plan it, and return the result as text."""
    columns = dict.fromkeys(asked.column, statistics(asked))
    form = files.Format(**given(asked, [field.name for field in fields(files.Format)]))
    options = given(asked, _SHARED)
    labels = filter(None, [*(asked.by or []), asked.unit])
    dtypes = dict.fromkeys(labels, pl.String()) | dict.fromkeys(columns, _dtype(asked))
    with files.opened(asked.file, dtypes, form) as (known, read):
        options |= {"columns": columns, "groups": _groups(asked, known)}
        if asked.command == "simulate":
            frame, notes = read()
            found = frames.simulate(asked.seed, frame, **options)
            facts = {"simulation": "nothing of it is private"}
            return _text(asked, found, facts, "\n".join(filter(None, [*notes, found.note])))
        # All that is public is checked before a record is read, or a ledger is made
        empty = pl.DataFrame([dict.fromkeys(known)], dict(known))
        planned = frames.release(empty, **options).guarantee
        frame = None if asked.dry_run else read()[0]
    budget = _budget(asked, planned)
    if asked.dry_run:
        lines = ["dry run: no record was read, and nothing was spent", f"cost: {planned}"]
        if budget is not None:
            fits = "fits" if budget.fits(planned, {"unit": asked.unit}) else "does not fit"
            lines.append(f"ledger: {budget}; this {fits}")
        return "\n".join(lines)
    found = frames.release(frame, **options, budget=budget)
    return _text(asked, found, {} if budget is None else {"ledger": str(budget)})


def _dtype(asked: argparse.Namespace) -> Any:
    """Return the dtype that the cells of columns of a file of text are read as."""
    if {"Count", "DistinctCount"}.issuperset(asked.statistic):
        return pl.String()
    return pl.Series([asked.lower]).dtype if kind_of(asked.lower) else pl.Float64()


def _groups(asked: argparse.Namespace, dtypes: Any) -> Any:
    """Return the public labels as values of their columns, or how private groups are found."""
    if private := given(asked, ["group_epsilon", "group_delta"]):
        if asked.groups is not None or len(private) < 2:
            raise ValueError("give --groups, or both --group-epsilon and --group-delta.")
        return frames.PrivateGroups(asked.group_epsilon, asked.group_delta)
    if asked.groups is None or asked.by is None:
        return asked.groups
    labels = []
    for text in asked.groups:
        # Tables refuse a label of too few parts
        pairs = zip(text.split(",", len(asked.by) - 1), asked.by, strict=False)
        labels.append(tuple(files.label(part.strip(), dtypes[name]) for part, name in pairs))
    return labels


def _budget(asked: argparse.Namespace, planned: Any) -> PrivacyFilter | None:
    """Return the ledger; for a dry run of one that does not exist, the same budget in memory."""
    if asked.ledger is None:
        if given(asked, ["total_epsilon", "total_delta", "note"]):
            raise ValueError("--total-epsilon, --total-delta and --note need --ledger.")
        return None
    try:
        totals: Any = {}
        if asked.total_epsilon is not None:
            delta = asked.total_delta or 0.0
            budget = PrivacyFilter(asked.total_epsilon, delta, asked.neighbors, delta / 2)
            totals = budget.totals
            if not os.path.exists(asked.ledger):
                if asked.dry_run:
                    return budget
                budget.charge(planned)  # A refusal by a new budget makes no ledger
        return Ledger(asked.ledger, **totals).noted(asked.note, file=asked.file)
    except ValueError as error:  # such as one on epsilon, which is not that of the release
        wrong = re.sub(r"\b(epsilon|delta)(=| (?=must))", r"total_\1=", str(error))
        raise ValueError(wrong) from None


def _text(
    asked: argparse.Namespace, found: frames.FrameResult, facts: dict[str, Any], note: str = ""
) -> str:
    """Return a result, and facts on all of it, in the format that is asked for."""
    if asked.format == "csv":
        sys.stderr.write(f"{note}\n" * bool(note))
        # Durations are texts, as in JSON
        rows = found.rows.with_columns(pl.col(pl.Duration).map_elements(str, pl.String))
        return rows.write_csv().rstrip("\n")
    facts["promise"] = str(found.guarantee)
    if asked.format == "json":
        facts |= {"guarantee": found.guarantee.to_dict(), "rows": found.rows.to_dicts()}
        return json.dumps({"note": note} | facts, default=str, indent=2)
    lines = [note, found.table(rows=None), *(f"{name}: {fact}" for name, fact in facts.items())]
    return "\n".join(filter(None, lines))
