"""Files of delimited text against a plain reader, character by character, whatever they hold and
wherever blocks are cut.
"""

import csv
import gzip
import io
import itertools
import math
import random
import re

import numpy as np
import pytest

from dpjax.command_line.csv_files import Source, check_columns, header_of, read_columns
from dpjax.command_line.errors import UserError

SENTENCE = (
    "{} is not well-formed CSV (RFC 4180) in this encoding, with as many cells in each record as "
    "in the first: correct it, or give --records lines, which reads each line as a record."
)
NUMBERS = [
    *(
        "",
        "0",
        "7",
        "-0",
        "+5",
        " 5 ",
        "5.",
        ".5",
        "-.25",
        "inf",
        "-Infinity",
        "nan",
        "NA",
        "na ",
        "1e5",
        "1E-3",
        "1e400",
        "12,5",
    ),
    *(
        "0.1234567890123456789",
        "123456789012345678",
        "9007199254740993",
        "-9007199254740992.5",
        "00000000000000000012",
        "1_000",
    ),
    *(
        "99999999999999999999999",
        "0.30000000000000004",
        "1,200",
        "1,20",
        "1.200,5",
        "1 200",
        "--5",
        "+",
        ".",
        "-.",
        "1.2.3",
        "x",
    ),
    *(
        "-999",
        "-999.0",
        "1\N{NO-BREAK SPACE}200",
        "\u0661",
        "5\N{NO-BREAK SPACE}",
        "12345678.9",
        "0x10",
        "1e",
        "+1,234,567.25",
        "n/a",
    ),
]
TEXTS = [
    "",
    "a",
    "b ",
    " b",
    "north",
    "eight888",
    "nine99999",
    "sixteen_sixteen_",
    "é",
    "日本",
    "a,b",
    'q"q',
    '"',
    "two\nlines",
    "r\rr",
]
TEXTS += [
    "crlf\r\nx",
    "x" * 127,
    "x" * 128,
    "x" * 129,
    "ü" * 70,
    ";",
    "\t",
    "  ",
    "1",
    "\x1c",
    '""',
    "eight888 and more",
    "eight888x",
]


def rows_of(text, delimiter):
    """Return the cells of well-formed CSV, None of any other text."""
    rows, row, i = [], [], 0
    while i < len(text):
        if not row and (end := re.compile("\r?\n").match(text, i)):  # a blank line
            i = end.end()
            continue
        cell = re.compile(rf'"((?:[^"\0]|"")*)"|([^"\0\r\n{re.escape(delimiter)}]*)').match(text, i)
        row.append(cell[2] if cell[1] is None else cell[1].replace('""', '"'))
        end = re.compile(rf"{re.escape(delimiter)}|\r?\n|\Z").match(text, cell.end())
        if not end:
            return None
        i = end.end()
        if end[0] != delimiter or i == len(text):
            rows.append([*row, ""] if end[0] == delimiter else row)
            row = []
    return rows if len(set(map(len, rows))) < 2 else None


def rows_of_lines(text, delimiter):
    rows = []
    text = text.replace("\0", "\ufffd").replace("\r\n", "\n").replace("\r", "\n")
    for line in text.removesuffix("\n").split("\n") if text else []:
        try:
            quoted = '"' in line and delimiter != " "
            rows.append(
                next(csv.reader([line], delimiter=delimiter, skipinitialspace=True))
                if quoted
                else cut(line, delimiter)
            )
        except csv.Error:
            rows.append([])
    return rows


def cut(line, delimiter):
    return re.findall("[^ \t]+", line) if delimiter == " " else line.split(delimiter)


def number_of(cell, source):
    """Return the number, and whether the cell is neither missing nor a number."""
    cell = cell.strip()
    if cell.lower() in {"", "na", "nan", *source.missing}:
        return math.nan, False
    marks = {" ": "[ \xa0\u202f\u2009]", "": "(?!)"}.get(
        source.thousands, re.escape(source.thousands)
    )
    decimal = re.escape(source.decimal)
    if found := re.fullmatch(
        rf"([+-]?\d{{1,3}}(?:{marks}\d{{3}})+)((?:{decimal}\d*)?(?:[eE][+-]?\d+)?)", cell, re.ASCII
    ):
        cell = re.sub(marks, "", found[1]) + found[2]
    if source.decimal == ",":
        cell = cell.replace(".", "x").replace(",", ".")
    try:
        return (float(cell), False) if cell.isascii() and "_" not in cell else (math.nan, True)
    except ValueError:
        return math.nan, True


def outcome(source, numbers, labels):
    try:
        return read_columns(source, numbers, labels)
    except UserError as error:
        return str(error)


def check_against(path, rows, **options):
    """Compare what is read of a file with rows, of which the first is the header; with None the
    file must be refused.
    """
    for size in (1, 17, 2**20):
        source = Source(str(path), block=size, **options)
        found = outcome(source, ["n"], ["n", "t"])
        if rows is None:
            assert found == SENTENCE.format(path)
            continue
        assert not isinstance(found, str), found
        names = [name.strip() for name in rows[0]]
        columns = {
            name: [row[k] if k < len(row) else "" for row in rows[1:]]
            for k, name in enumerate(names)
        }
        expected = [number_of(cell, source) for cell in columns["n"]]
        np.testing.assert_array_equal(
            found.numbers["n"], np.array([value for value, _ in expected], float)
        )
        np.testing.assert_array_equal(
            np.signbit(found.numbers["n"]), np.signbit(np.array([v for v, _ in expected], float))
        )
        assert found.not_numbers == {"n": sum(wrong for _, wrong in expected)}
        for name in ("n", "t"):
            codes, names = found.labels[name]
            assert codes.dtype == np.int32
            assert [names[code] if code >= 0 else "" for code in codes] == [
                cell.strip() for cell in columns[name]
            ]
            assert names == sorted({cell.strip() for cell in columns[name]} - {""})


def quoted(cell, rng, delimiter):
    needed = any(mark in cell for mark in (delimiter, "\n", "\r", '"'))
    return '"' + cell.replace('"', '""') + '"' if needed or rng.random() < 0.3 else cell


@pytest.mark.parametrize("seed", range(60))
def test_well_formed_files(seed, tmp_path):
    rng = random.Random(seed)
    delimiter, encoding = (
        rng.choice(",;\t|"),
        rng.choice(["utf-8", "utf-8", "utf-8-sig", "utf-16", "utf-16-be", "cp1252", "koi8-r"]),
    )
    decimal = rng.choice("..,")
    thousands = rng.choice(["", {".": ",", ",": "."}[decimal], " ", "'"])
    missing = ("-999",)[: rng.randrange(2)]
    records = rng.choice(["csv", "csv", "lines"])
    texts = [cell for cell in TEXTS if records == "csv" or not set(cell) & set("\r\n")]
    rows = [["t", rng.choice(["", "é", "other"]), "n"]]
    rows += [
        [rng.choice(texts), "z" * rng.randrange(3), rng.choice(NUMBERS)]
        for _ in range(rng.randrange(40))
    ]
    rows = [[cell.encode(encoding, "ignore").decode(encoding) for cell in row] for row in rows]
    text = "".join(
        delimiter.join(quoted(cell, rng, delimiter) for cell in row)
        + rng.choice(["\n", "\r\n"]) * (rng.choice([1, 1, 1, 2]) if records == "csv" else 1)
        for row in rows
    )
    text = text[: len(text) - rng.choice([0, 1 if not text.endswith("\r\n") else 2])]
    path = tmp_path / "data.csv"
    path.write_bytes(text.encode(encoding))
    if records == "csv":
        assert rows_of(text, delimiter) == rows
        assert [
            row
            for row in csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
            if row
        ] == rows
    check_against(
        path,
        rows,
        encoding=encoding,
        delimiter=delimiter,
        missing=missing,
        decimal=decimal,
        thousands=thousands,
        records=records,
    )


@pytest.mark.parametrize("seed", range(120))
def test_files_of_anything(seed, tmp_path):
    rng = random.Random(seed)
    path = tmp_path / "data.csv"
    pieces = rng.choice(
        [
            ['"', ",", "\n", "a", "12", "\r\n", " "],
            ['"a"', '""', ",", "\n", "12", "\r\n"],
            ["1", ",", "t\n", "2", "\n", "\r\n", '"q\n"'],
            ["\0", ",", "\r", "5", "x\n", '"', "\xa0"],
        ]
    )
    cells = [
        "a",
        '"b"',
        "12",
        '"x\ny"',
        '""',
        '"q""q"',
        *([rng.choice(['a"', 'q"q', ' "a"', '"a" ', "\r", "1,2", '"', "\0"])]),
    ]
    records = [",".join(rng.choice(cells[:6]) for _ in range(2)) for _ in range(rng.randrange(30))]
    text = "".join(rng.choice(pieces) for _ in range(rng.randrange(40)))
    if rng.random() < 0.7:  # well-formed but for one place
        records.insert(
            rng.randrange(len(records) + 1), rng.choice([*cells, text]) + ",1" * rng.randrange(2)
        )
        text = "\n".join(records) + rng.choice(["", "\n"])
    text = "t,n\n" + text
    path.write_bytes(text.encode())
    check_against(path, rows_of(text, ","))
    check_against(path, rows_of_lines(text, ","), records="lines")
    blank = text.replace(",", " ").replace("\0", "\t")
    path.write_bytes(blank.encode())
    lone = re.search("\r(?!\n)", blank)
    rows = [row for line in re.split("\r?\n", blank) if (row := cut(line, " "))]
    rows = None if lone or len(set(map(len, rows))) > 1 else rows
    check_against(path, rows, delimiter=" ")
    check_against(path, rows_of_lines(blank, " "), delimiter=" ", records="lines")


WRONG = [
    b'a,"1',
    b'a,1"2',
    b'a,"1"2',
    b'a, "1"',
    b"a,1,2",
    b"a",
    b"a\r,1",
    b"a,1\r",
    b"\xff,1",
    b"a\0,1",
    b'"a""",1"',
    b" ",
    b"a,\xc3",
]


@pytest.mark.parametrize("wrong", WRONG)
@pytest.mark.parametrize("place", ["first", "middle", "last"])
def test_malformed_records_are_refused_alike(wrong, place, tmp_path):
    path = tmp_path / "data.csv"
    records = [b"b,2"] * 9
    records.insert({"first": 0, "middle": 5, "last": 9}[place], wrong)
    for end in (b"", b"\n") if wrong != b"a,1\r" else (b"",):
        path.write_bytes(b"\n".join([b"t,n", *records]).replace(b"1\r\n", b"1\r") + end)
        check_against(path, None)
        assert len(read_columns(Source(str(path), records="lines"), ["n"]).numbers["n"]) >= 9
        assert header_of(Source(str(path))) == ["t", "n"]  # a dry run looks at no record
        check_columns(Source(str(path)), ["n"])


@pytest.mark.parametrize("size", [1, 2, 3, 2**20])
def test_undecodable_bytes_stay_in_their_line(size, tmp_path):
    path = tmp_path / "data.csv"
    for encoding, bad in (
        ("utf-8", b"\xe2\x82"),
        ("ascii", b"\xe9"),
        ("cp1252", b"\x81"),
        ("utf-16-le", b"\x00\xd8"),
    ):
        path.write_bytes(
            b"".join(
                [
                    "t,n\n".encode(encoding),
                    bad,
                    "\n5,".encode(encoding),
                    bad,
                    "\n5,6\n".encode(encoding),
                ]
            )
        )
        found = read_columns(
            Source(str(path), encoding, records="lines", block=size), ["n", "t"], ["t", "n"]
        )
        np.testing.assert_array_equal(found.numbers["n"], [np.nan, np.nan, 6])
        np.testing.assert_array_equal(found.numbers["t"], [np.nan, 5, 5])
        assert found.labels["t"].names == ["5", "\ufffd"]
        assert outcome(Source(str(path), encoding, block=size), ["n"], []) == SENTENCE.format(path)


@pytest.mark.parametrize("records", ["csv", "lines"])
@pytest.mark.parametrize("header", [True, False])
def test_well_formed_records_never_change_an_error(records, header, tmp_path):
    """Neighbors are read alike: one record is another one, or none."""
    path = tmp_path / "data.csv"
    some = [
        "x,1",
        '"a\nb",2',
        ",",
        "é,1e999",
        '"""",x',
        f"{'y' * 300},{'9' * 300}",
        "PAR1,\x01",
        "\x1f,1",
        "\ufeff,1",
        "1_0,1 0",
    ]
    start = ["t,n"] if header else []
    columns = (["n"], ["t"]) if header else (["2", "3"], ["1", "9"])
    for others in (["b,2"] * 5, []):
        for record in [None, *some]:
            path.write_text(
                "\n".join([*start, *others[:2], *([] if record is None else [record]), *others[2:]])
            )
            for size in (1, 2**20):
                source = Source(str(path), header=header, records=records, block=size)
                found = read_columns(source, *columns)
                count = (
                    len(others) + (record is not None) + (records == "lines" and record == some[1])
                )
                assert {len(column) for column in found.numbers.values()} == {count}


def test_blank_lines(tmp_path):
    path = tmp_path / "data.csv"
    path.write_text('\n\r\nn\n\n1\n\r\n""\n\n2\n\n')
    np.testing.assert_array_equal(
        read_columns(Source(str(path)), ["n"]).numbers["n"], [1, np.nan, 2]
    )
    path.write_text("n\n\n1\n\r\n\n")
    np.testing.assert_array_equal(
        read_columns(Source(str(path), records="lines"), ["n"]).numbers["n"],
        [np.nan, 1, np.nan, np.nan],
    )
    path.write_text("1\n\t\n5\n")
    np.testing.assert_array_equal(
        read_columns(Source(str(path), header=False), ["1"]).numbers["1"], [1, np.nan, 5]
    )


def test_long_records_and_many_labels(tmp_path):
    path = tmp_path / "data.csv"
    names = [f"name {k * k}" for k in range(3000)]
    long = "\n".join(["y" * 99] * 2000)
    path.write_text(
        "t,n\n"
        + "".join(f"{name},{k}\n" for k, name in enumerate(names))
        + f'"{long}",5\n'
        + f"{names[7]},{' ' * 99}6\n"
    )
    found = read_columns(Source(str(path), block=2**12), ["n"], ["t"])
    assert [found.labels["t"].names[code] for code in found.labels["t"].codes] == [
        *names,
        long,
        names[7],
    ]
    np.testing.assert_array_equal(found.numbers["n"], [*range(3000), 5, 6])


def test_random_decimals_are_those_of_float(tmp_path):
    rng = np.random.default_rng(0)
    texts = [
        f"{x:.{k}f}"
        for k in (0, 1, 5, 15)
        for x in rng.normal(size=300) * 10.0 ** rng.integers(-5, 12, 300)
    ]
    texts += [repr(float(x)) for x in rng.normal(size=300)] + [
        str(x) for x in 2**53 + np.arange(-5, 6)
    ]
    path = tmp_path / "data.csv"
    path.write_text("\n".join(["n", *texts]))
    np.testing.assert_array_equal(
        read_columns(Source(str(path)), ["n"]).numbers["n"], list(map(float, texts))
    )


def test_words_for_missing_values(tmp_path):
    path = tmp_path / "data.csv"
    path.write_text('n\nN/A\n-9\n-9.0\n" n/a"\n"a""b"\n"-1.000,5"\nx\n-8\n')
    source = Source(
        str(path), missing=("n/a", "-9", 'A"B ', "-1.000,5"), decimal=",", thousands="."
    )
    found = read_columns(source, ["n"])
    np.testing.assert_array_equal(found.numbers["n"], [*[np.nan] * 7, -8])
    assert found.not_numbers == {"n": 2}  # -9.0, which needs three digits behind the mark, and x


def test_thousands(tmp_path):
    path = tmp_path / "data.csv"
    path.write_text("n\n" + '"1,200"\n' * 600 + "900\n" * 400)
    found = read_columns(Source(str(path), thousands=","), ["n"])
    assert np.median(found.numbers["n"]) == 1200
    assert found.not_numbers == {"n": 0}
    assert read_columns(Source(str(path)), ["n"]).not_numbers == {"n": 600}
    assert "both" in outcome(Source(str(path), thousands="."), ["n"], [])


@pytest.mark.parametrize(
    "name",
    [
        "hex",
        "unicode_escape",
        "idna",
        "utf-7",
        "iso2022_jp",
        "rot13",
        "utf-32",
        "gbk",
        "none",
        "a\0b",
        "",
    ],
)
def test_other_encodings_are_refused(name, tmp_path):
    path = tmp_path / "data.csv"
    path.write_text("n\n1\n")
    assert "--encoding must be one of utf-8, ascii" in outcome(Source(str(path), name), ["n"], [])


def test_what_cannot_be_opened(tmp_path):
    assert "directory" in outcome(Source(str(tmp_path)), ["n"], []).lower()
    assert "No such file" in outcome(Source(str(tmp_path / "none")), ["n"], [])
    assert "no file can have this name" in outcome(Source("a\0b"), ["n"], [])
    path = tmp_path / "data.csv.gz"
    data = gzip.compress(b"n\n" + b"".join(b"%d\n" % (k * k) for k in range(999)))
    for broken in (data[:-20], data[:-8] + bytes(8), b"n\n1\n", data + b"more"):
        path.write_bytes(broken)
        assert (
            outcome(Source(str(path)), ["n"], [])
            == f"cannot read {path}: it is not a complete gzip file."
        )


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("age,region\n1,a\n", "no column 'n'"),
        ("age;n\n1;2\n", "--delimiter semicolon"),
        ("n,n\n1,2\n", "twice"),
        ("\n\r\n", "empty"),
        (b"PAR1....", "Parquet"),
        ("n\n1\n".encode("utf-16"), "--encoding utf-16"),
        (b"\xe9,n\n1,2\n", "UTF-8"),
        ('"n\n1\n', "CSV"),
    ],
)
def test_what_is_said_of_a_header(content, message, tmp_path):
    path = tmp_path / "data.csv"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    assert message in outcome(Source(str(path)), ["n"], [])
    with pytest.raises(UserError, match=re.escape(message)):
        check_columns(Source(str(path)), ["n"])


def test_headers(tmp_path):
    path = tmp_path / "data.csv"
    path.write_bytes('\ufeff" a\nb", n ,"c""d"\r\n1,2,3\n'.encode())
    assert header_of(Source(str(path))) == ["a\nb", "n", 'c"d']
    path.write_text("1 2\t3 \n")
    source = Source(str(path), delimiter=" ", header=False)
    assert header_of(source) == ["1", "2", "3"]
    assert read_columns(source, ["3"], ["1"]).numbers["3"] == [3]
    for wrong in ("0", "x", "²"):
        assert "1, 2, 3, ..." in outcome(source, [wrong], [])
    assert "has 3 columns, choose some" in outcome(source, None, [])
    blanks = {"delimiter": " ", "header": False}
    assert "utf-16-le" in outcome(Source(str(path), "utf-16", **blanks), ["1"], [])
    assert "ASCII" in outcome(Source(str(path), **blanks | {"delimiter": "¦"}), ["1"], [])
    path.write_text("x\n1\n")
    assert read_columns(Source(str(path)), None).numbers["x"] == [1]
    assert len(read_columns(Source(str(path)), ["x", "x"], ["x", "x"]).labels["x"].codes) == 1
    path.write_text("")
    assert read_columns(Source(str(path), header=False), ["4"], ["2"]).labels["2"].names == []


@pytest.mark.parametrize("zipped", [False, True])
def test_standard_input_is_read_in_one_pass(zipped, stdin):
    class Pipe(io.RawIOBase):
        def __init__(self, data):
            self.rest = data

        def readable(self):
            return True

        def readinto(self, buffer):
            part, self.rest = (
                self.rest[: min(len(buffer), 7)],
                self.rest[7:] if len(buffer) >= 7 else self.rest[len(buffer) :],
            )
            buffer[: len(part)] = part
            return len(part)

    data = b"t,n\n" + b"a,1\nb,2\n" * 50
    stdin(io.BufferedReader(Pipe(gzip.compress(data) if zipped else data)))
    found = read_columns(Source("-"), ["n"], ["t"])
    assert found.numbers["n"].tolist() == [1, 2] * 50
    assert found.labels["t"].codes.tolist() == [0, 1] * 50


@pytest.mark.parametrize("records", ["csv", "lines"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16-le", "utf-16-be"])
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_a_byte_order_mark_is_no_part_of_any_record_without_a_header(
    records, encoding, end, tmp_path
):
    path = tmp_path / "data.csv"
    codec = encoding.removesuffix("-sig")
    lines = ["\ufeffa,1", '\ufeff"b",2', "\ufeff\ufeffc,3", "a,\ufeff4", "d,5", "\ufeffd,6"]
    expected = [("a", 1.0), ("b", 2.0), ("\ufeffc", 3.0), ("a", math.nan), ("d", 5.0), ("d", 6.0)]
    if end == "\r" and records == "csv":
        return  # refused, whatever the records are
    for size in (1, 2, 3, 7, 2**20):
        for first in range(len(lines)):  # each record is the first one once
            turned = [*lines[first:], *lines[:first]]
            for rows in (turned, turned[1:]):
                path.write_bytes("".join(line + end for line in rows).encode(codec))
                source = Source(str(path), encoding, header=False, records=records, block=size)
                found = read_columns(source, ["2"], ["1"])
                labels = [found.labels["1"].names[code] for code in found.labels["1"].codes]
                pairs = list(zip(labels, found.numbers["2"].tolist(), strict=True))
                known = [*expected[first:], *expected[:first]][-len(rows) :]
                assert list(map(repr, pairs)) == list(map(repr, known))


@pytest.mark.parametrize("records", ["csv", "lines"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig"])
def test_a_mark_inside_of_the_text_is_no_byte_order_mark(records, encoding, tmp_path):
    """Wherever the blocks begin in which the text is read."""
    path = tmp_path / "data.csv"
    lines = ["100", "\ufeff0", "0", "\ufeff1"]
    for start, size in itertools.product(("", "\ufeff"), range(4, 30)):
        for first in range(len(lines)):
            path.write_text("\n".join([start + "x", *lines[first:]]) + "\n", "utf-8")
            source = Source(str(path), encoding, records=records, block=size)
            found = read_columns(source, ["x"]).numbers["x"]
            expected = [math.nan if "\ufeff" in line else float(line) for line in lines[first:]]
            np.testing.assert_array_equal(found, expected)


def test_a_byte_order_mark_is_dropped_where_blanks_separate_cells(tmp_path):
    path = tmp_path / "data.txt"
    for lines in (["\ufeffa 1", "a 2", "\ufeffa 3"], ["a 2", "\ufeffa 3"], ["\ufeffa 3"]):
        path.write_text("\n".join(lines), "utf-8")
        found = read_columns(Source(str(path), delimiter=" ", header=False), ["2"], ["1"])
        assert found.labels["1"].names == ["a"]
        assert found.numbers["2"].tolist() == [float(line[-1]) for line in lines]


def test_the_byte_order_mark_before_a_header_is_that_of_the_file(tmp_path):
    path = tmp_path / "data.csv"
    for encoding in ("utf-8", "utf-8-sig", "utf-16-be", "utf-16-le"):
        path.write_bytes("\ufefft,n\n\ufeffa,1\na,2\n".encode(encoding.removesuffix("-sig")))
        found = read_columns(Source(str(path), encoding), ["n"], ["t"])
        assert found.labels["t"].names == ["a", "\ufeffa"]
        assert found.numbers["n"].tolist() == [1.0, 2.0]
