"""``dpjax ledger``: what was spent of the budget in a file, and what is left; and notes in it."""

from __future__ import annotations

import argparse
import json
from typing import Any

from dpjax.accounting import Ledger
from dpjax.accounting.ledger import guarantee_of, left_text
from dpjax.display import joined, padded


class NotedLedger(Ledger):
    """A ledger that says more of its charges.

    Attributes:
        noted: what is added to the description of each charge, such as the name of a file.
    """

    noted: dict[str, Any]

    def charge(self, guarantee: Any, what: Any = None) -> None:
        """Charge a mechanism, before it runs."""
        super().charge(guarantee, {**(what or {}), **self.noted})


def answer(asked: argparse.Namespace) -> str:
    """Return a line for each charge, and what is left. The file is only read."""
    ledger = Ledger(asked.file)
    rows = [
        (entry["time"], json.dumps(entry["what"]), guarantee_of(entry), entry["remaining"])
        for entry in ledger.entries
    ]
    columns = zip(("time", "what", "cost", "left"), *rows, strict=True)
    table = joined(padded(name, map(str, cells), True) for name, *cells in columns)
    return f"{table}\n{left_text(ledger)}"
