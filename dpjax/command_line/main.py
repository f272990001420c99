"""The entry point: arguments to a command, its report to standard output, the user's mistakes to one line."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Sequence
from importlib import import_module

from dpjax.command_line.errors import UserError
from dpjax.command_line.parser import parsed


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line, with ``sys.argv[1:]`` by default.

    Returns the exit code: 0, or 2 for a mistake of the user, or 1 if the reader of the output went away or an audit found a loss
    above its claim.
    """
    try:
        asked = parsed([_negative(word) for word in (sys.argv[1:] if arguments is None else arguments)])
        # Every command is a module with run(asked), loaded when it is asked for.
        report, code = import_module(f"dpjax.command_line.{asked.module}").run(asked)
        _print(report)
        return code
    except UserError as error:
        print(f"dpjax: error: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    except BrokenPipeError:
        # Python flushes standard output once more at exit: give it somewhere to go.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1


def _negative(word: str) -> str:
    """Keep argparse from reading -1e6 or -5. as an option: it knows negative numbers with digits last and no exponent only."""
    return f" {word}" if re.fullmatch(r"-((\d+\.?\d*|\.\d+)[eE][+-]?\d+|\d+\.)", word) else word


def _print(text: str) -> None:
    encoding = sys.stdout.encoding or "utf-8"
    sys.stdout.write(text.encode(encoding, "backslashreplace").decode(encoding) + "\n")
    sys.stdout.flush()
