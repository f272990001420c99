"""``dpjax ledger``: what was spent of the budget in a file, and what is left."""

from __future__ import annotations

import argparse
import json

from dpjax.accounting import Ledger
from dpjax.display import joined, padded


def answer(asked: argparse.Namespace) -> str:
    """Return a line for each charge, and what is left. The file is only read."""
    ledger = Ledger(asked.file)
    left = "left (rho)" if "rho" in ledger.left else "left (epsilon)"
    rows = [
        (
            entry["time"],
            entry["part"],
            json.dumps(entry["what"]),
            *(entry["guarantee"], entry["remaining"]),
        )
        for entry in ledger.entries
    ]
    columns = zip(("time", "part", "what", "cost", left), *rows, strict=True)
    table = joined(padded(name, map(str, cells), True) for name, *cells in columns)
    return f"{table}\n{ledger}"
