"""Files of delimited text against a plain reader, character by character, whatever they hold."""

import csv
import gzip
import io
import math
import random
import re

import polars as pl
import pytest

from dpjax.command_line import files
from dpjax.command_line.files import Format, opened

NUMBERS = (
    *("", "0", "7", "-0", "+5", " 5 ", "5.", ".5", "-.25", "inf", "-Infinity", "nan", "NA", "na "),
    *("1e5", "1E-3", "1e400", "12,5", "0.1234567890123456789", "9007199254740993", "1_000"),
    *("00000000000000000012", "1,200", "1.200,5", "1 200", "1\N{NO-BREAK SPACE}200", "--5", "+"),
    *(
        ".",
        "-.",
        "1.2.3",
        "x",
        "-999",
        "\u0661",
        "5\N{NO-BREAK SPACE}",
        "0x10",
        "1e",
        "$5",
        "-$1.5 %",
    ),
)
TEXTS = (
    *(
        "",
        "a",
        "b ",
        " b",
        "north",
        "é",
        "日本",
        "a,b",
        'q"q',
        '"',
        "two\nlines",
        "r\rr",
        ";",
        "\t",
    ),
    *("crlf\r\nx", "x" * 200_000, "  ", "1", "\x1c", '""', "\u2028", "\0", "\ufeff", "\x85"),
)
BOTH = {"n": pl.Float64(), "t": pl.String()}
SENTENCE = "is not well-formed CSV (RFC 4180) with as many cells in each record as in the first"


def read(path, dtypes=BOTH, **form):
    """The rows of a file; None where it is refused as a whole."""
    try:
        with opened(str(path), dtypes, Format(**form)) as (_, rest):
            return rest()[0].rows()
    except ValueError as error:
        if SENTENCE not in str(error):
            raise
        return None


def rows_of(text, delimiter):
    """The cells of well-formed CSV, None of any other text."""
    rows, row, i = [], [], 0
    mark = re.escape(delimiter)
    while i < len(text):
        if not row and (end := re.compile("\r\n?|\n").match(text, i)):  # a blank line
            i = end.end()
            continue
        cell = re.compile(rf'"((?:[^"]|"")*)"|([^"\r\n{mark}]*)').match(text, i)
        row.append(cell[2] if cell[1] is None else cell[1].replace('""', '"'))
        end = re.compile(rf"{mark}|\r\n?|\n|\Z").match(text, cell.end())
        if not end:
            return None
        i = end.end()
        if end[0] != delimiter or i == len(text):
            rows.append([*row, ""] if end[0] == delimiter else row)
            row = []
    return rows if len(set(map(len, rows))) < 2 else None


def rows_of_lines(text, delimiter):
    lines = re.split("\r\n?|\n", re.sub(r"(\r\n?|\n)\Z", "", text)) if text else []
    return [line.split() if delimiter == " " else line.split(delimiter) for line in lines]


def number_of(cell, decimal=".", thousands="", strip="", missing=()):
    """The number in a cell, NaN if it has none."""
    cell = cell.strip()
    dropped = strip + thousands + "\xa0\u202f\u2009" * (thousands == " ")
    kept = "".join(mark for mark in cell if mark not in dropped)
    point = re.escape(decimal)
    number = rf"[+-]?(\d+({point}\d*)?|{point}\d+)(e[+-]?\d+)?|[+-]?inf(inity)?"
    if cell in missing or not re.fullmatch(number, kept, re.ASCII | re.IGNORECASE):
        return math.nan
    return float(kept.replace(decimal, "."))


def expected(rows, **written):
    """What is read of rows, of which the first is the header."""
    names = [name.strip() for name in rows[0]]
    places = {name: names.index(name) for name in BOTH}
    cells = [[row[k] if k < len(row) else "" for k in places.values()] for row in rows[1:]]
    return [(number_of(n, **written), t.strip() or None) for n, t in cells]


def alike(found, wanted):
    """Whether rows are equal; NaN and null are both missing numbers, and -0 is not 0."""
    shown = [(None if n is None or math.isnan(n) else repr(n), t) for n, t in found]
    return shown == [(None if math.isnan(n) else repr(n), t) for n, t in wanted]


@pytest.mark.parametrize("seed", range(60))
def test_well_formed_files(seed, tmp_path):
    rng = random.Random(seed)
    delimiter = rng.choice(",;\t|")
    encoding = rng.choice(["utf-8", "utf-8-sig", "windows-1252", "koi8-r"])
    decimal = rng.choice("..,")
    thousands = rng.choice(["", {".": ",", ",": "."}[decimal], " ", "'"])
    written = {"decimal": decimal, "thousands": thousands, "strip": rng.choice(["", "$ %"])}
    written["missing"] = ("-999",)[: rng.randrange(2)]
    rows = [["t", rng.choice(["", "é"]), " n "]]
    rows += [[rng.choice(TEXTS), "z", rng.choice(NUMBERS)] for _ in range(rng.randrange(40))]
    rows = [[cell.encode(encoding, "ignore").decode(encoding) for cell in row] for row in rows]
    text = ""
    for row in rows:
        needed = [rng.random() < 0.3 or set(cell) & {delimiter, *'"\r\n'} for cell in row]
        quoted = ['"' + cell.replace('"', '""') + '"' for cell in row]
        cells = zip(row, quoted, needed, strict=True)
        text += delimiter.join(whole if must else cell for cell, whole, must in cells)
        text += rng.choice(["\n", "\r\n", "\n\n"])
    path = tmp_path / "data.csv.gz"
    path.write_bytes(gzip.compress(text.encode(encoding)))
    assert rows_of(text, delimiter) == rows
    encoding = encoding.removesuffix("-sig")
    found = read(path, delimiter=delimiter, encoding=encoding, **written)
    assert alike(found, expected(rows, **written))


@pytest.mark.parametrize("seed", range(300))
def test_files_of_anything(seed, tmp_path):
    rng = random.Random(seed)
    pieces = rng.choice(
        [
            ['"', ",", "\n", "a", "12", "\r\n", " "],
            ['"a"', '""', ",", "\n", "12", "\r\n"],
            ["1", ",", "t\n", "2", "\n", "\r\n", '"q\n"'],
            ["\0", ",", "\r", "5", "x\n", '"', "\xa0", "\u2028"],
        ]
    )
    cells = ["a", '"b"', "12", '"x\ny"', '""', '"q""q"', "\u2028"]
    wrong = ['a"', 'q"q', ' "a"', '"a" ', "\r", "1,2", '"', "\0"]
    records = [",".join(rng.choice(cells) for _ in range(2)) for _ in range(rng.randrange(30))]
    text = "".join(rng.choice(pieces) for _ in range(rng.randrange(40)))
    if rng.random() < 0.7:  # well-formed but for one place
        place, one = rng.randrange(len(records) + 1), rng.choice([*cells, *wrong, text])
        records.insert(place, one + ",1" * rng.randrange(2))
        text = "\n".join(records) + rng.choice(["", "\n"])
    path = tmp_path / "data.csv"
    for delimiter in ", ":
        whole = ("t,n\n" + text).replace(",", delimiter)
        path.write_bytes(whole.encode())
        with opened(str(path), BOTH, Format(delimiter=delimiter)):  # a dry run looks at no record
            lines = rows_of_lines(whole, delimiter)
        assert alike(read(path, delimiter=delimiter, lines=True), expected(lines))
        rows = rows_of(whole, delimiter) if delimiter == "," else list(filter(None, lines))
        rows = rows if rows is None or len(set(map(len, rows))) == 1 else None
        found = read(path, delimiter=delimiter)
        assert found is None if rows is None else alike(found, expected(rows))


def changed(path, files):
    """The numbers of files that were refused, and of those in which a raw line among records of
    Python's own writer changed how another record is read.
    """
    rng, refused, wrong = random.Random(1), 0, 0
    cells = ["a", "b c", "1", "", "a,b", ',x"', '"', 'q"q', "two\nlines", '",', '"\n"', ", "]
    for _ in range(files):
        rows = [[str(k), rng.choice(cells)] for k in range(rng.randrange(1, 6))]
        place = rng.randrange(len(rows) + 1)
        text = io.StringIO(newline="")
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(["n", "t"])
        writer.writerows(rows[:place])
        line = "".join(
            rng.choice(['"', '"', ",", "a", " ", "1", "\r"]) for _ in range(rng.randrange(9))
        )
        text.write(line + "\n")
        writer.writerows(rows[place:])
        path.write_text(text.getvalue(), newline="")
        found = read(path)
        refused += found is None
        wanted = expected([["n", "t"], *rows])
        after = len(wanted) - place
        same = found is None or (
            alike(found[:place], wanted[:place])
            and alike(found[len(found) - after :], wanted[place:])
        )
        wrong += not same
    return refused, wrong


def test_a_hostile_line_changes_no_other_record(tmp_path):
    refused, wrong = changed(tmp_path / "data.csv", 2000)
    assert wrong == 0
    assert 1000 < refused < 1950


def test_control_python_s_strict_reader_alone_is_not_enough(tmp_path, monkeypatch):
    plain = lambda lines, mark: csv.reader(lines, delimiter=mark, strict=True)  # noqa: E731
    monkeypatch.setattr(files, "_well_formed", plain)
    assert changed(tmp_path / "data.csv", 2000)[1] > 0


def test_bytes_that_are_not_in_the_encoding_stay_in_their_cell(tmp_path):
    path = tmp_path / "data.csv"
    for encoding, bad in (("utf-8", b"\xe2\x82"), ("ascii", b"\xe9"), ("windows-1252", b"\x81")):
        path.write_bytes(b"t,n\n%b,1\n5,%b\n5,6\n" % (bad, bad))
        for lines in (False, True):
            found = read(path, encoding=encoding, lines=lines)
            assert found == [(1, "\ufffd"), (None, "5"), (6, "5")]
    for name in ("utf-16", "utf-7", "iso2022_jp", "a\0b", ""):
        with pytest.raises(ValueError, match="--encoding must be utf-8, ascii"):
            Format(encoding=name)


def test_byte_order_marks(tmp_path):
    """That of a file with a header is dropped; without one, any line may be the first."""
    path = tmp_path / "data.csv"
    path.write_text('\ufeff"t",n\n\ufeffa,1\na,\ufeff2\n', "utf-8")
    assert read(path) == [(1, "\ufeffa"), (None, "a")]
    lines = ["\ufeffa,1", '\ufeff"b",2', "\ufeff\ufeffc,3", "d,\ufeff4", "d,5"]
    wanted = [("a", 1.0), ("b", 2.0), ("\ufeffc", 3.0), ("d", None), ("d", 5.0)]
    for first in range(len(lines)):  # each record is the first one once
        path.write_text("\n".join([*lines[first:], *lines[:first]]), "utf-8")
        dtypes = {"1": pl.String(), "2": pl.Float64()}
        assert read(path, dtypes, no_header=True) == [*wanted[first:], *wanted[:first]]


def test_without_a_header_no_name_depends_on_a_record(tmp_path):
    path = tmp_path / "data.csv"
    dtypes = {"2": pl.Float64(), "9": pl.String()}
    for lines, count in (("", 0), ("a,1", 1), ("a", 1), ("\n\na,1\n\nb,2\n", 2)):
        path.write_text(lines)
        assert len(read(path, dtypes, no_header=True)) == count
    for wrong in ("0", "x", "²", "-1"):
        with pytest.raises(ValueError, match="one column"):
            read(path, {wrong: pl.String()}, no_header=True)


def test_headers(tmp_path):
    path = tmp_path / "data.csv"
    path.write_text('\n"a\nb", Cost ,"c""d"\r\n1,2,3\n')
    for name in ("Cost", "Cost ", "a\nb", 'c"d'):  # as pandas names it, too
        assert len(read(path, {name: pl.Float64()})) == 1
    path.write_text("a\x9b,\x7f\n")
    with pytest.raises(ValueError, match=r"it has \['a\\x9b', '\\x7f'\]: is"):
        read(path, {"n": pl.Float64()})
    for content, name in (("n,n\n1,2\n", "n"), ("a;n\n1;2\n", "n"), ("", "n"), ("n\n", "x")):
        path.write_text(content)
        with pytest.raises(ValueError, match=f"one column '{name}'.* --delimiter or --encoding"):
            read(path, {name: pl.Float64()})


def test_broken_gzip(tmp_path):
    path = tmp_path / "data.csv.gz"
    data = gzip.compress(b"t,n\n" + b"".join(b"a,%d\n" % (k * k) for k in range(999)))
    for broken in (data[:-20], data[:-8] + bytes(8), b"t,n\n1,1\n", data + b"more"):
        path.write_bytes(broken)
        with pytest.raises(ValueError, match=re.escape(f"{path} is not a complete file")):
            read(path)


DAY = "2024-01-31 00:00:00"


@pytest.mark.parametrize(
    ("dtype", "form", "cells"),
    [
        (pl.Date(), {}, {"2024-01-31": DAY[:10], "2024-01-31 13:00": DAY[:10], "31.1.": "None"}),
        (pl.Date(), {"date_format": "%d/%m/%Y"}, {"31/01/2024": DAY[:10], "2024-01-31": "None"}),
        (
            pl.Datetime("us"),
            {},
            {"2024-01-31": DAY, "2024-01-31T02:00+02:00": DAY, "0001-01-01T00:00+14:00": "None"},
        ),
        (
            pl.Datetime("us", "UTC"),
            {"missing": ["-1"]},
            {"2024-01-31 00:00:00Z": DAY + "+00:00", "-1": "None", "5": "None"},
        ),
        (pl.Datetime("us"), {"date_format": "%m/%d/%Y %H:%M"}, {"1/31/2024 0:00": DAY}),
        (
            pl.Duration("us"),
            {},
            {
                "00:12:30": "0:12:30",
                "1d": "1 day, 0:00:00",
                "-90s": "-1 day, 23:58:30",
                "2 days 00:00:01.5": "2 days, 0:00:01.500000",
                "1.5h": "1:30:00",
            }
            | dict.fromkeys(["99999999d", "00:12", "", "-", "d"], "None"),
        ),
    ],
)
def test_dates_times_and_durations(dtype, form, cells, tmp_path):
    path = tmp_path / "data.csv"
    path.write_text("v,w\n" + "".join(f" {cell} ,x\n" for cell in cells))
    found = read(path, {"v": dtype}, **form)
    assert [str(cell) for (cell,) in found] == list(cells.values())
