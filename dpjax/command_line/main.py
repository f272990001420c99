"""The entry point: arguments to a command, its report to standard output, the user's mistakes to one line."""

from __future__ import annotations

import os
import re
import sys
import warnings
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

from dpjax.command_line.errors import UserError
from dpjax.command_line.parser import parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line, with ``sys.argv[1:]`` by default.

    Returns the exit code: 0, or 2 for a mistake of the user, or 1 if the reader of the output went away or an audit found a loss
    above its claim.
    """
    try:
        asked = parser().parse_args([_negative(word) for word in (sys.argv[1:] if arguments is None else arguments)])
        asked.programs = None if asked.no_compilation_cache else keep_compiled_programs()
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


def keep_compiled_programs() -> Path | None:
    """Let JAX keep compiled programs in the user's cache folder, unless it has a folder already or cannot have one; return it.

    Records are arguments of the programs and never a part of them.
    """
    import jax

    if jax.config.jax_compilation_cache_dir is not None:  # type: ignore[attr-defined]
        return None
    try:
        folder = cache_folder()
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        # What is loaded from it is run: nobody else may write there.
        private = not hasattr(os, "getuid") or (folder.stat().st_uid == os.getuid() and not folder.stat().st_mode & 0o022)
    except (OSError, RuntimeError):  # no home
        return None
    if not private or not os.access(folder, os.R_OK | os.W_OK | os.X_OK):
        return None
    warnings.filterwarnings("ignore", message=".*persistent compilation cache", category=UserWarning)  # such as: no space left
    jax.config.update("jax_compilation_cache_dir", str(folder))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
    return folder


def cache_folder() -> Path:
    """Return where this platform keeps the caches of a user, with a folder of our own."""
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local") / "dpjax" / "Cache"
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "dpjax"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "dpjax"


def _negative(word: str) -> str:
    """Keep argparse from reading -1e6 or -5. as an option: it knows negative numbers with digits last and no exponent only."""
    return f" {word}" if re.fullmatch(r"-((\d+\.?\d*|\.\d+)[eE][+-]?\d+|\d+\.)", word) else word


def _print(text: str) -> None:
    encoding = sys.stdout.encoding or "utf-8"
    sys.stdout.write(text.encode(encoding, "backslashreplace").decode(encoding) + "\n")
    sys.stdout.flush()
