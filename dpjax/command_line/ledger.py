"""``dpjax ledger``: what was spent of the budget in a file, and what is left; and notes in it."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from typing import Any

from dpjax.accounting import Composition, Guarantee, Ledger
from dpjax.accounting.ledger import guarantee_of, left_text
from dpjax.display import joined, padded


class NotedLedger(Ledger):
    """A ledger that adds facts to what its entries say, such as the name of a file.

    Args:
        noted: what is added.
        path: the file, as the other arguments for :class:`Ledger`.
    """

    def __init__(self, noted: Mapping[str, Any], path: str, **totals: Any) -> None:
        super().__init__(path, **totals)
        self._noted = noted

    def charge(
        self, guarantee: Guarantee | Composition, what: Mapping[str, Any] | None = None
    ) -> None:
        """Charge a mechanism, before it runs."""
        super().charge(guarantee, {**(what or {}), **self._noted})


def answer(asked: argparse.Namespace) -> tuple[list[dict[str, Any]], dict[str, Any], str]:
    """Return a row for each charge, the totals, and both as text. The file is only read."""
    ledger = Ledger(asked.file)
    rows = [
        {
            "time": entry["time"],
            "what": json.dumps(entry["what"]),
            "cost": str(guarantee_of(entry)),
            "left": entry["remaining"],
        }
        for entry in ledger.entries
    ]
    left = left_text(ledger)
    columns = [padded(name, [str(row[name]) for row in rows], True) for name in rows[0]] if rows else []
    table = joined(columns)
    return rows, {**ledger.totals, "left": left}, f"{table}\n{left}".strip()
