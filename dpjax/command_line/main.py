"""The entry point: runs a command, and prints its report, or a mistake of the user as one line."""

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

    Returns:
        The exit code: 0; 2 for a mistake of the user; 1 if the output pipe was closed.
    """
    try:
        asked = parsed(
            [_negative(word) for word in (sys.argv[1:] if arguments is None else arguments)]
        )
        # Every command is a module with run(asked), imported on use.
        report, code = import_module(f"dpjax.command_line.{asked.module}").run(asked)
        _print(report)
        return code
    except UserError as error:
        print(f"dpjax: error: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    except BrokenPipeError:
        # Python flushes standard output once more at exit, which must not raise again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1


def _negative(word: str) -> str:
    """Add a blank to numbers such as -1e6 or -5., which argparse would read as options."""
    return f" {word}" if re.fullmatch(r"-((\d+\.?\d*|\.\d+)[eE][+-]?\d+|\d+\.)", word) else word


def _print(text: str) -> None:
    encoding = sys.stdout.encoding or "utf-8"
    sys.stdout.write(text.encode(encoding, "backslashreplace").decode(encoding) + "\n")
    sys.stdout.flush()
