"""The entry point: runs a command and prints its answer, or a mistake of the user as one line."""

from __future__ import annotations

import argparse
import csv
import io
import json
import math
import os
import re
import sys
from collections.abc import Sequence
from datetime import date
from importlib import import_module
from typing import Any

_MISTAKES = (
    ValueError,
    TypeError,
    LookupError,
    ArithmeticError,
    RuntimeError,
    ImportError,
    OSError,
)


def main(words: Sequence[str] | None = None) -> int:
    """Run the command line, with ``sys.argv[1:]`` by default.

    Returns:
<<<<<<< HEAD
        The exit code: 0; 2 for a mistake of the user, with nothing spent; 1 if the answer could not
        be printed.
=======
        The exit code: 0; 2 for a mistake of the user; 1 if the output pipe was closed.
>>>>>>> d893ff32ee022d0449d62321f6d3ea9a5899b936
    """
    asked = argparse.Namespace()
    given = sys.argv[1:] if words is None else words
    # With a blank before it, argparse does not take a number such as -1e6 for an option
    blanks = [" " * bool(re.match(r"-[.\d]", word)) for word in given]
    try:
        parser = import_module("dpjax.command_line.options").parser()
        asked = parser.parse_args([blank + word for blank, word in zip(blanks, given, strict=True)])
        # Imported on use: the others need neither Polars nor JAX
        answer = import_module(f"dpjax.command_line.{asked.module}").answer(asked)
        text = _formatted(*answer, getattr(asked, "format", "table"))
    except _MISTAKES as error:
        print(f"dpjax: error: {_sentence(error, asked)}", file=sys.stderr)
        return 2
    return _printed(text, asked.command)


def _sentence(error: Exception, asked: argparse.Namespace) -> str:
    """Return what is wrong, with arguments of the library as options."""
    if isinstance(error, ModuleNotFoundError):
        return f"{asked.command} needs the package {error.name}: pip install 'dpjax[frames]'."
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename}: {error.strerror}."

    def option(found: re.Match[str]) -> str:
        known = found[1] in vars(asked)
        return f"--{found[1].replace('_', '-')} {found[3] or ''}" if known else found[0]

    return re.sub(r"\b([a-z_]+)=('(\w+)')?", option, " ".join(str(error).split()))


def _formatted(rows: list[dict[str, Any]], facts: dict[str, Any], table: str, kind: str) -> str:
    """Return an answer: rows, facts on all of them, and both as text for people."""
    if kind == "table":
        return table
    rows = [{name: _plain(cell) for name, cell in row.items()} for row in rows]
    if kind == "json":
        return json.dumps(facts | {"rows": rows}, indent=2, allow_nan=False)
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]) if rows else [], lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue().removesuffix("\n")


def _plain(value: Any) -> Any:
    """Return a number, text or None; dates and times are text of ISO 8601."""
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value if isinstance(value, int | float | str | None) else str(value)


def _printed(text: str, command: str) -> int:
    """Print the answer; where that fails, on standard error, so that no release is lost."""
    try:
        encoding = sys.stdout.encoding or "utf-8"
        sys.stdout.write(text.encode(encoding, "backslashreplace").decode(encoding) + "\n")
        sys.stdout.flush()
        return 0
    except (OSError, AttributeError) as error:  # without a standard output it is None
        reason = getattr(error, "strerror", None) or "it is closed"
        if sys.stdout is not None:  # which Python flushes once more at exit
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if not isinstance(error, BrokenPipeError):
            spent = "The budget was spent, and this is the release:\n" * (command == "release")
            print(f"dpjax: error: cannot print, {reason}.\n{spent}{text}", file=sys.stderr)
        return 1
