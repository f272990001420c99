"""The entry point: runs a command and prints its answer, or a mistake of the user as one line."""

from __future__ import annotations

import argparse
import os
import re
import sys
from importlib import import_module


def main(words: list[str] | None = None) -> int:
    """Run the command line, with ``sys.argv[1:]`` by default.

    Returns:
        The exit code: 0; 2 for a mistake of the user, with nothing spent; 1 if the answer could not
        be printed.
    """
    asked = argparse.Namespace()
    try:
        from dpjax.command_line.options import parser  # NumPy and statistics

        # With a blank before it, argparse does not take a number such as -1e6 for an option
        given = sys.argv[1:] if words is None else words
        asked = parser().parse_args([re.sub(r"^(?=-[.\d])", " ", word) for word in given])
        # Imported on use: only tables need Polars, and only the demo JAX
        module = asked.command if asked.command in ("ledger", "demo") else "tables"
        text = import_module(f"dpjax.command_line.{module}").answer(asked)
    except Exception as error:  # whatever is wrong is said in one line, such as no memory
        print(f"dpjax: error: {_sentence(error, asked)}", file=sys.stderr)
        return 2
    return _printed(text)


def _sentence(error: Exception, asked: argparse.Namespace) -> str:
    """Return what is wrong, with the arguments of the library as options."""
    if isinstance(error, ModuleNotFoundError):
        return f"{asked.command} needs {error.name}: pip install 'dpjax[frames]'."
    if isinstance(error, OSError) and error.filename:
        return f"{error.filename}: {error.strerror}."

    def option(found: re.Match[str]) -> str:
        name = found[1] if found[1] in vars(asked) else f"total_{found[1]}"  # such as delta
        if name not in vars(asked):
            return found[0]
        return f"--{name.replace('_', '-')}" + " " * bool(found[2])

    return re.sub(
        r"\b([a-z_]+)=(?=([\w'(\[])?)", option, " ".join((str(error) or repr(error)).split())
    )


def _printed(text: str) -> int:
    """Print the answer; where that fails, on standard error, so that no release is lost."""
    try:
        encoding = sys.stdout.encoding or "utf-8"
        print(text.encode(encoding, "backslashreplace").decode(encoding), flush=True)
        return 0
    except (OSError, AttributeError) as error:  # without a standard output it is None
        if sys.stdout is not None:  # which Python flushes once more at exit
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if not isinstance(error, BrokenPipeError):
            said = f"cannot print ({error.args[-1]}). What a release cost was spent:\n{text}"
            print("dpjax: error:", said, file=sys.stderr)
        return 1
