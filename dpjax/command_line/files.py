"""A file of delimited text, or of Parquet, as a frame of the columns that are asked for.

Text is what Python's ``csv`` module reads strictly, with two rules more: each record has as many
cells as the first, and a cell that has a quote is quoted. Any other file is refused, with one
message whatever is wrong, so that all readers agree on its records. With ``lines`` each line is a
record, whatever it contains, and quotes are ordinary characters. In both, a cell that cannot be
read is missing, and no record raises or changes how another is read: only the distinct texts of a
column are parsed, each by itself. Without a header, every line loses a byte order mark at its
start, since any record may be the first.
"""

from __future__ import annotations

import csv
import gzip
import re
import zlib
from array import array
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import numpy as np
import polars as pl

from dpjax.command_line.options import duration, value

csv.field_size_limit(2**31 - 1)  # so that no record is too long
_ENCODINGS = r"utf-8|ascii|latin-1|(iso-?8859-|(cp|windows-)125)\d\d?|koi8-[ru]"


@dataclass(frozen=True)
class Format:
    """How a file of text is written; the fields are options of the command line.

    Attributes:
        delimiter: one character; a blank stands for any run of blanks, and quotes are ordinary
            characters then.
        encoding: one in which no byte changes how later lines are decoded; bytes that it does not
            have become U+FFFD in their cell.
        no_header: whether columns are named 1, 2, 3, ... instead of by the first record.
        lines: whether each line is a record, whatever it contains.
        decimal: the decimal mark, a point or a comma.
        thousands: the mark between groups of digits, or ``""``; a blank includes thin and no-break
            spaces.
        strip: characters that are dropped from numbers.
        date_format: of dates and times, as for :meth:`datetime.datetime.strptime`; by default
            ISO 8601. Times without a zone are in UTC.
        missing: words for a missing cell.
    """

    delimiter: str = ","
    encoding: str = "utf-8"
    no_header: bool = False
    lines: bool = False
    decimal: str = "."
    thousands: str = ""
    strip: str = ""
    date_format: str | None = None
    missing: Collection[str] = ()

    def __post_init__(self) -> None:
        """Raise ``ValueError`` for a format that cannot be read."""
        if self.decimal not in {".", ","} - {self.thousands}:
            raise ValueError("--decimal must be point or comma, and not --thousands: change one.")
        if not re.fullmatch(_ENCODINGS, self.encoding):
            raise ValueError(
                "--encoding must be utf-8, ascii, latin-1, iso-8859-1 to -16, windows-1250 to "
                f"-1258, koi8-r or koi8-u, got {self.encoding!r}: convert the file to UTF-8."
            )
        if self.date_format is not None:
            self._moment(datetime.now(UTC).strftime(self.date_format))

    def parser(self, dtype: Any) -> Callable[[str], Any]:
        """Return the function that reads a cell of a column of this dtype, and does not raise.

        It returns a value of Python, or None for a cell that is missing or cannot be read.
        """
        # A blank is also a no-break space, a narrow one or a thin space
        dropped = self.strip + (" \xa0\u202f\u2009" if self.thousands == " " else self.thousands)
        # float() would skip an underscore
        table = str.maketrans({".": "_", self.decimal: "."} | dict.fromkeys(dropped, ""))
        missing = {"", *map(str.strip, self.missing)}

        def number(text: str) -> float | None:
            text = text.translate(table)
            return float(text) if text.isascii() and "_" not in text else None

        known: Any = {
            pl.Float64: number,
            pl.Date: lambda text: self._moment(text).date(),
            pl.Datetime: self._moment,
            pl.Duration: duration,
            pl.String: str,
        }
        read = known[dtype.base_type()]

        def parse(text: str) -> Any:
            text = text.strip()
            try:
                return None if text in missing else read(text)
            except (ValueError, OverflowError):  # such as a time before year 1 in UTC
                return None

        return parse

    def _moment(self, text: str) -> datetime:
        """Return a time in UTC, without a zone."""
        form = self.date_format
        found = datetime.strptime(text, form) if form else datetime.fromisoformat(text)
        return found if found.tzinfo is None else found.astimezone(UTC).replace(tzinfo=None)


@contextmanager
def opened(path: str, dtypes: Mapping[str, Any], form: Format) -> Iterator[tuple[Any, Any]]:
    """Open a file, whose header or schema must have these columns; no record is read yet.

    It gives the dtypes of the columns, and the function that reads the file. That returns a frame,
    and a sentence on each column of which no cell can be read: these sentences show cells, and are
    for simulations only.

    Args:
        path: the file: Parquet if named .parquet or .pq, gzipped if named .gz; ``"-"`` is text from
            standard input.
        dtypes: Float64, Date, Datetime, Duration or String for each column of a file of text, in
            which Parquet has its own.
        form: how a file of text is written.

    Raises:
        ValueError: the file has no such column, or is not well-formed.
    """
    codec = form.encoding + "-sig" * (form.encoding == "utf-8" and not form.no_header)
    name = path.lower()
    open_text: Any = gzip.open if name.endswith(".gz") else open
    try:
        if name.endswith((".parquet", ".pq")):
            if form != Format():
                raise ValueError(f"{path} is Parquet: leave out all options of files of text.")
            frame = pl.scan_parquet(path, glob=False)
            names = frame.collect_schema().names()
            frame = frame.select(**{name: pl.nth(_place(name, names)) for name in dtypes})
            yield frame.collect_schema(), lambda: (frame, [])
            return
        with open_text(
            0 if path == "-" else path, "rt", encoding=codec, errors="replace", newline=""
        ) as lines:
            records = _records(lines, form)
            # Without a header, neither names nor places depend on a record
            header = map(str, range(1, 10_000)) if form.no_header else next(records, [])
            names = [name.strip() for name in header]
            places = [_place(name.strip(), names) for name in dtypes]
            width = 0 if form.no_header else len(names)
            yield dtypes, lambda: _frame(records, places, width, dtypes, form)
    # Their messages have checksums of the data, or may show a record
    except (EOFError, gzip.BadGzipFile, zlib.error, pl.exceptions.PolarsError):
        raise ValueError(f"{path} is not a complete file of its kind.") from None
    except csv.Error:
        raise ValueError(
            f"{path} is not well-formed CSV (RFC 4180) with as many cells in each record as in the "
            "first: correct it, name it .parquet or .gz if it is that, or give --lines, which reads"
            " each line as a record."
        ) from None


def _place(name: str, header: list[str]) -> int:
    if header.count(name) != 1:
        # If this is another kind of file, such as Parquet under another name, it shows records
        if re.search(r"[\0-\x08\x0e-\x1f]", "".join(header)):
            raise csv.Error
        raise ValueError(
            f"the file must have one column {name!r}; it has {header[:50]}: is its --delimiter or "
            "--encoding another one?"
        )
    return header.index(name)


def _records(file: Iterable[str], form: Format) -> Iterator[list[str]]:
    # The byte order mark, decoded
    lines = (line.removeprefix("\ufeff") for line in file) if form.no_header else file
    if form.delimiter == " ":
        records: Any = map(str.split, lines)
    elif form.lines:
        records = (line.rstrip("\r\n").split(form.delimiter) for line in lines)
    else:
        records = _well_formed(lines, form.delimiter)
    return records if form.lines else filter(None, records)


def _well_formed(file: Iterable[str], delimiter: str) -> Iterator[list[str]]:
    """Yield records, of blank lines too; refuse those with a quote in a cell that is not quoted."""
    mark = re.escape(delimiter)
    cell = rf'(?:"(?:[^"]++|"")*+"|[^"\r\n{mark}]*+)'
    well_formed = re.compile(rf"(?:{cell}{mark})*+{cell}\r?\n?")
    read: list[str] = []

    def lines() -> Iterator[str]:
        for line in file:
            read.append(line)
            yield line

    for record in csv.reader(lines(), delimiter=delimiter, strict=True):
        text = "".join(read)
        if '"' in text and not well_formed.fullmatch(text):
            raise csv.Error
        read.clear()
        yield record


def _frame(
    records: Iterator[list[str]],
    places: list[int],
    width: int,
    dtypes: Mapping[str, Any],
    form: Format,
) -> tuple[pl.DataFrame, list[str]]:
    """Return the rest of a file; ``width`` is the number of cells, 0 for that of the first."""
    columns: Any = [(place, {}, array("i")) for place in places]
    most = max(places) + 1
    for record in records:
        width = width or len(record)
        if len(record) != width and not form.lines:
            raise csv.Error
        if len(record) < most:
            record += [""] * most
        for place, texts, codes in columns:
            codes.append(texts.setdefault(record[place], len(texts)))
    frame, notes = {}, []
    for (name, dtype), (_, texts, codes) in zip(dtypes.items(), columns, strict=True):
        values = pl.Series(map(form.parser(dtype), texts), dtype=dtype)
        if dtype != pl.String and values.null_count() == len(values) > 0:
            kind = "number" if dtype == pl.Float64 else str(dtype.base_type()).lower()
            shown = next(filter(str.strip, texts), "")[:40]
            notes.append(
                f"no cell of {name} is a {kind}, such as {shown!r}: see --thousands, --decimal, "
                "--strip and --date-format."
            )
        frame[name] = values.gather(np.frombuffer(codes, np.int32))
    return pl.DataFrame(frame), notes


def label(text: str, dtype: Any) -> Any:
    """Return a label, given as text, as a value of a column of this dtype."""
    if dtype in (pl.String, pl.Categorical, pl.Enum):
        return text
    return {"true": True, "false": False}.get(text.lower(), value(text))
