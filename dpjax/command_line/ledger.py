"""``dpjax ledger``: what was spent of the budget in a file, and what is left."""

from __future__ import annotations

import argparse

from dpjax.accounting import Ledger
from dpjax.accounting.sums import promised
from dpjax.display import text_table


def answer(asked: argparse.Namespace) -> str:
    """Return a short line for each charge, and what is left. The file is only read."""
    ledger, rows = Ledger(asked.file), []
    costs = [{"rho": "zcdp"}.get(name, name) for name in ledger.left]
    for entry in ledger.entries:
        facts = [entry["part"], *reversed(entry["what"].values())]  # the note is said last
        rows.append(
            (
                entry["time"][:10],
                ", ".join(map(str, filter(None, facts))),
                *(promised(getattr(entry["guarantee"], name), 4) for name in costs),
                f"{entry['remaining']:g}",
            )
        )
    left = "left (rho)" if "rho" in ledger.left else "left (epsilon)"
    columns = zip(("date (UTC)", "for", *ledger.left, left), *rows, strict=True)
    table = text_table({name: cells for name, *cells in columns})
    return f"{table}\n{ledger!r}\n{ledger}"
