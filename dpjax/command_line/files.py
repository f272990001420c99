"""The bytes and the text of a file, a block at a time: plain or gzipped, in any encoding, from standard input or from disk."""

from __future__ import annotations

import codecs
import gzip
import io
import sys
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any, NamedTuple

from dpjax.command_line.errors import UserError

_BLOCK = 2**21  # bytes at a time
_ACROSS_LINES = ("utf-16", "utf-32", "utf-7", "iso2022", "hz")  # what one line does to the decoder may stay for the next
_MARKS = {b"\xff\xfe": "utf-16", b"\xfe\xff": "utf-16"}


class Source(NamedTuple):
    """A file of delimited text, and how to read it.

    Attributes:
        path: the file, or ``"-"`` for standard input.
        encoding: of its text.
        delimiter: one character; a blank stands for any run of blanks.
        header: whether the first line names the columns. Without it they are called 1, 2, 3, ...
        missing: words for a missing value, besides those that always are.
        decimal: the decimal mark, a point or a comma.
    """

    path: str
    encoding: str = "utf-8"
    delimiter: str = ","
    header: bool = True
    missing: tuple[str, ...] = ()
    decimal: str = "."

    @property
    def name(self) -> str:
        """What messages call it."""
        return "standard input" if self.path == "-" else self.path

    @property
    def is_parquet(self) -> bool:
        """Whether it is named as a Parquet file."""
        return self.path.endswith((".parquet", ".pq"))


@contextmanager
def opened(source: Source) -> Iterator[Any]:
    """Open the bytes of a file, which are decompressed if they are gzipped; a :class:`UserError` if that cannot be."""
    try:
        with nullcontext(sys.stdin.buffer) if source.path == "-" else Path(source.path).open("rb") as file:
            buffered: Any = file if hasattr(file, "peek") else io.BufferedReader(file)
            # Without a header the first bytes are those of a record.
            zipped = source.path.endswith(".gz") or (source.header and buffered.peek(2)[:2] == b"\x1f\x8b")
            yield gzip.GzipFile(fileobj=buffered) if zipped else buffered
    except (OSError, EOFError, ValueError, zlib.error) as error:  # a name with a NUL is a ValueError
        raise UserError(f"cannot read {source.name}: {getattr(error, 'strerror', None) or error}.") from error


def texts(source: Source, *, strict: bool) -> Iterator[str]:
    """Yield the text in blocks of whole lines, each ended by a newline, whatever ends them in the file.

    Args:
        source: what to read.
        strict: whether bytes that are no text are a :class:`UserError`; otherwise they become a sign that no number has.
    """
    rest = ""
    with opened(source) as file:
        inner = _decoder(source, strict)
        decoder = io.IncrementalNewlineDecoder(inner, translate=True)
        read = 0
        while True:
            block = file.read(_BLOCK)
            pending = len(inner.getstate()[0])
            if read == 0 and (strict or source.header):
                _check_start(block[:64] if strict else block[:64].splitlines()[0] if block else b"", source)
            try:
                text = rest + decoder.decode(block, final=not block)
            except UnicodeDecodeError as error:
                raise not_text(source, f"byte {read - pending + error.start + 1}") from error
            text = text.removeprefix("\N{ZERO WIDTH NO-BREAK SPACE}") if read == 0 else text
            read += len(block)
            end = text.rfind("\n") + 1 if block else len(text)
            rest = text[end:]
            if end:
                yield text[:end] if text[end - 1] == "\n" else text[:end] + "\n"
            if not block:
                return


def not_text(source: Source, where: str) -> UserError:
    """Return what to say of bytes that are no text."""
    message = f"{source.name} is not {source.encoding.upper()} text ({where})"
    return UserError(f"{message}: give its --encoding, such as latin-1 or utf-16.")


def _decoder(source: Source, strict: bool) -> codecs.IncrementalDecoder:
    try:
        b"".decode(source.encoding)  # not all of Python's codecs are of text
        if not strict and codecs.lookup(source.encoding).name.startswith(_ACROSS_LINES):
            raise UserError(
                f"in --encoding {source.encoding} a line can change how the next ones are read, so a release does not read it: "
                "convert the file to UTF-8."
            )
        return codecs.getincrementaldecoder(source.encoding)("strict" if strict else "replace")
    except LookupError as error:
        raise UserError(f"--encoding {source.encoding} is not known to Python.") from error


def _check_start(start: bytes, source: Source) -> None:
    """Say what a file is that is no text in this encoding, by its first bytes, or those of its header where only that is public."""
    if start[:4] == b"PAR1":
        raise UserError(f"{source.name} is a Parquet file: it must be named .parquet, and not be standard input.")
    if source.encoding.lower().replace("_", "-").startswith(("utf-16", "utf-32")):
        return
    if start[:2] in _MARKS:
        raise UserError(f"{source.name} begins as UTF-16 text does: give --encoding {_MARKS[start[:2]]}.")
    if b"\0" in start:
        raise UserError(f"{source.name} is binary, or text in UTF-16: give delimited text, gzipped or not, or Parquet.")
