"""Reading of delimited text as blocks of UTF-8, in one pass.

The text comes from a file or from standard input, gzipped or not, in one of a fixed list of
encodings.
"""

from __future__ import annotations

import codecs
import gzip
import io
import re
import sys
import zlib
from collections.abc import Generator, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any, NamedTuple

from dpjax.command_line.errors import UserError

# In these encodings no byte changes how later lines are decoded, and all but UTF-16 contain ASCII.
_ENCODINGS = re.compile(r"utf-8(-sig)?|utf-16(-[lb]e)?|ascii|iso8859-\d+|cp125\d|koi8-[ru]")
_LISTED = (
    "utf-8, ascii, latin-1, iso-8859-1 to -16, windows-1250 to -1258, koi8-r, koi8-u, utf-16, "
    "utf-16-le and utf-16-be"
)
_MARK = "\N{ZERO WIDTH NO-BREAK SPACE}"  # the byte order mark, decoded
_MARKS = {b"\xff\xfe", b"\xfe\xff"}  # the byte order marks of UTF-16


def _nul(error: UnicodeError) -> tuple[str, int]:
    return "\0", error.end if isinstance(error, UnicodeDecodeError) else 0


codecs.register_error("dpjax-nul", _nul)


class Source(NamedTuple):
    """A file of delimited text, and its format.

    Attributes:
        path: the file, or ``"-"`` for standard input.
        encoding: the encoding of the text. A byte order mark is dropped; without a header at the
            start of every line.
        delimiter: one ASCII character; a blank stands for any run of blanks and tabs, and then
            quotes are ordinary characters.
        header: whether the first record names the columns. Otherwise they are named 1, 2, 3, ...
        missing: words for a missing value, in any case, in addition to the empty cell, ``NA`` and
            ``nan``.
        decimal: the decimal mark, a point or a comma.
        thousands: the mark between groups of three digits, or ``""`` for none; a blank includes
            no-break and thin spaces.
        records: ``"csv"`` for well-formed CSV, or ``"lines"`` if each line is a record, whatever it
            contains.
        block: the number of bytes read at a time; results do not depend on it.
    """

    path: str
    encoding: str = "utf-8"
    delimiter: str = ","
    header: bool = True
    missing: tuple[str, ...] = ()
    decimal: str = "."
    thousands: str = ""
    records: str = "csv"
    block: int = 2**20

    @property
    def name(self) -> str:
        """The name of the file in messages."""
        return "standard input" if self.path == "-" else self.path

    @property
    def is_parquet(self) -> bool:
        """True if the file has the name of a Parquet file."""
        return is_parquet(self.path)


def is_parquet(path: str) -> bool:
    """Return whether the name of a file is that of a Parquet file."""
    return path.lower().endswith((".parquet", ".pq"))


def check(source: Source) -> None:
    """Raise :class:`UserError` for a format that cannot be read, before the file is opened."""
    if "\0" in source.path:
        raise UserError(f"cannot read {source.path!r}: no file can have this name.")
    if (
        len(source.delimiter) != 1
        or not source.delimiter.isascii()
        or source.delimiter in '"\r\n\0'
    ):
        raise UserError(
            "--delimiter must be one ASCII character, no quote and no line break; got "
            f"{source.delimiter!r}."
        )
    if source.thousands == source.decimal:
        raise UserError(f"--decimal and --thousands must differ, and are both {source.decimal!r}.")
    if _codec(source) == "utf-16" and not source.header:
        raise UserError(
            "without a header the first characters belong to a record: give --encoding utf-16-le "
            "or utf-16-be."
        )


def utf8_blocks(source: Source) -> Generator[bytes, None, None]:
    """Yield the text as UTF-8, split between any two characters.

    A NUL stands for bytes that are invalid in the encoding, or for itself. A byte order mark is
    dropped if the file has a header, and otherwise kept, as it is a record's then.

    Raises:
        UserError: the file cannot be read or, if it has a header, begins like another format.
    """
    codec, first = _codec(source), True
    try:
        with _opened(source) as file:
            block = file.read(max(source.block, 4))
            if source.header:
                _check_start(block[:4], codec, source)
            if codec == "utf-8-sig":  # its decoder drops the first mark that it is given
                codec = "utf-8"
            if codec == "utf-16":
                codec = "utf-16-be" if block[:2] == b"\xfe\xff" else "utf-16-le"
            decoder = codecs.getincrementaldecoder(codec)("dpjax-nul")
            while block:
                if block.isascii() and not codec.startswith("utf-16") and not decoder.getstate()[0]:
                    yield block
                else:
                    text = decoder.decode(block)
                    yield (text.removeprefix(_MARK) if first and source.header else text).encode()
                block, first = file.read(source.block), False
            yield decoder.decode(b"", final=True).encode()
    except (OSError, EOFError, zlib.error) as error:  # gzip's message has a checksum of the data
        reason = getattr(error, "strerror", None) or "it is not a complete gzip file"
        raise UserError(f"cannot read {source.name}: {reason}.") from error


@contextmanager
def _opened(source: Source) -> Iterator[Any]:
    """Open a file as bytes, decompressed if it is gzipped."""
    with nullcontext(sys.stdin.buffer) if source.path == "-" else open(source.path, "rb") as file:
        buffered: Any = file if hasattr(file, "peek") else io.BufferedReader(file)
        # Without a header the first bytes belong to a record, which must not change how the file is
        # read.
        zipped = source.path.endswith(".gz") or (
            source.header and buffered.peek(2)[:2] == b"\x1f\x8b"
        )
        yield gzip.GzipFile(fileobj=buffered) if zipped else buffered


def _codec(source: Source) -> str:
    """Return Python's name of the encoding; raise :class:`UserError` if it is not supported."""
    try:
        name = codecs.lookup(source.encoding).name
    except (LookupError, ValueError):
        name = ""
    if not _ENCODINGS.fullmatch(name):
        raise UserError(
            f"--encoding must be one of {_LISTED}, got {source.encoding}: or convert the file to "
            "UTF-8."
        )
    return name


def _check_start(start: bytes, codec: str, source: Source) -> None:
    """Raise :class:`UserError` if the first bytes of the header are those of another format."""
    if start == b"PAR1":
        raise UserError(
            f"{source.name} is a Parquet file: it must be named .parquet, and not be standard "
            "input."
        )
    if start[:2] in _MARKS and not codec.startswith("utf-16"):
        raise UserError(
            f"{source.name} begins with a byte order mark of UTF-16: give --encoding utf-16."
        )
