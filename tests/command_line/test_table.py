"""The shapes a file can have: delimiters, headers, quotes, byte order marks, standard input, the order of groups."""

import csv
import gzip
import importlib
import io

import numpy as np
import pytest

from dpjax.command_line import cells
from dpjax.command_line.errors import UserError
from dpjax.command_line.files import Source
from dpjax.command_line.table import read_records, read_table
from tests.command_line.conftest import whole


def read(path, columns=("x",), by=("g",), **options):
    """The records of each group, in the order of the file."""
    found = whole(read_table, Source(path, **options), columns=columns, by=by)
    assert columns is None or all(list(group) == list(columns) for group in found.values())
    return {label: [values.tolist() for values in group.values()] for label, group in found.items()}


PLAIN = {("a",): [[1, 3.5]], ("b",): [[20]]}


@pytest.mark.parametrize(
    ("content", "delimiter"),
    [
        ("g,x\na,1\nb,20\na,3.5\n", ","),
        ("g;x\na;1\nb;20\na;3.5\n", ";"),
        ("g\tx\na\t1\nb\t20\na\t3.5\n", "\t"),
        ("  g   x\n a 1 \n\nb\t 20\na 3.5", " "),
        ("g x\r\na  1\r\nb 20\r\na 3.5\r\n", " "),
        ("g, x\r\na, 1\r\n\r\nb, 20 \r\na, 3.5\r\n", ","),
        ("\n\ng,x\ra,1\rb,20\ra,3.5", ","),
        (b"\xef\xbb\xbfg,x\na,1\nb,20\na,3.5", ","),
        (gzip.compress(b"g,x\na,1\nb,20\na,3.5\n", mtime=0), ","),
        ('"g","x","note"\n"a","1","one"\nb,"20",""\n"a",3.5,\n', ","),
        ('"g","x","note"\n"a","1","one, two"\nb,20,"a ""quoted""\nword"\na,3.5,\n', ","),
        ("x,unused,g\n1,text,a\n2e1,,b\n+3.5,NA,a\n", ","),
    ],
)
def test_all_these_files_are_the_same(write, content, delimiter):
    assert read(write(content), delimiter=delimiter) == PLAIN


@pytest.mark.parametrize("encoding", ["latin-1", "utf-16", "utf-16-le", "cp1252", "utf-8"])
def test_encodings(write, encoding):
    found = read(write("g,x\ncaf\N{LATIN SMALL LETTER E WITH ACUTE},1\n".encode(encoding)), encoding=encoding)
    assert found == {("caf\N{LATIN SMALL LETTER E WITH ACUTE}",): [[1]]}


def test_columns_without_a_header_are_numbered(write):
    path = write("a  1\nb 20\na 3.5\n")
    assert read(path, columns=["2"], by=["1"], delimiter=" ", header=False) == PLAIN


def test_standard_input(monkeypatch):
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"g,x\na,1\nb,20\na,3.5\n")))
    assert read("-") == PLAIN


def test_the_only_column_needs_no_name(write):
    assert read(write("height\n1\n2\n"), columns=None, by=()) == {(): [[1, 2]]}


def test_numeric_groups_come_in_the_order_of_numbers_and_several_columns_are_one_label(write):
    path = write("g,x,h\n10,1,b\n9,1,a\nz,1,a\nnan,1,a\n-2.5,1,a\n10,2,a\n")
    assert [label for (label,) in read(path)] == ["-2.5", "9", "10", "nan", "z"]
    assert list(read(path, by=("h", "g")))[:3] == [("a", "-2.5"), ("a", "9"), ("a", "10")]


def test_missing_cells_in_several_columns(write):
    path = write("g,x,y\na,1,\na,NA,2\nb,nan, NaN \nb,N/A,-99\nb,4,null\n")
    found = read(path, columns=["y", "x"], missing=("n/a", "NULL", "-99"))
    np.testing.assert_equal(found, {("a",): [[np.nan, 2], [1, np.nan]], ("b",): [[np.nan] * 3, [np.nan, np.nan, 4]]})


@pytest.mark.parametrize("quoted", [False, True])
def test_blocks_are_joined_wherever_they_end(write, monkeypatch, quoted):
    rng = np.random.default_rng(0)
    quote, values, groups = chr(34) + "q" + chr(34), rng.integers(0, 10**6, 300) / 100, rng.integers(0, 3, 300)
    lines = [f"{quote if quoted and i == 150 else 'q'},{g},{x}\r\n" for i, (g, x) in enumerate(zip(groups, values, strict=True))]
    expected = {(str(g),): [values[groups == g].tolist()] for g in range(3)}
    path = write("q,g,x\r\n" + "".join(lines))
    for size in (1, 7, 100, 10**6):
        monkeypatch.setattr("dpjax.command_line.files._BLOCK", size)
        assert read(path) == expected
    bad = write("q,g,x\r\n" + "".join(lines) + "q,1\r\n")
    monkeypatch.setattr("dpjax.command_line.files._BLOCK", 100)
    with pytest.raises(UserError, match="line 302: 2 fields where the first line has 3"):
        read(bad)


@pytest.mark.parametrize("delimiter", [",", ";"])
def test_cells_are_those_of_the_csv_module(delimiter):
    """Of random lines, whether they have quotes or not."""
    rng = np.random.default_rng(1)
    lines = ["".join(rng.choice(list('ab" \t;,;,'), rng.integers(1, 9))) + "\n" for _ in range(3000)]
    lines += [f'"{a}"{delimiter}"{b}"\n' for a in ("", "x", "1,5") for b in ("", "y")] + ['""\n']
    for text in lines:
        if text.count('"') % 2:
            continue
        ((*expected,),) = csv.reader([text.rstrip("\n")], delimiter=delimiter, skipinitialspace=True)
        expected = [[cell.strip()] for cell in expected]
        places = range(len(expected))
        (strict,) = cells.split_strictly([text], delimiter, places, len(expected), 1, "")
        (by_line,) = cells.split_by_line([text], delimiter, places)
        for block in (strict, by_line):
            assert block.columns == expected, text


@pytest.mark.parametrize("library", ["polars", "pyarrow"])
def test_parquet(tmp_path, monkeypatch, library):
    frame = pytest.importorskip("polars").DataFrame({"g": ["a", "b", "a", None], "x": [1, 20, None, 4], "t": ["u"] * 4})
    path = str(tmp_path / "people.parquet")
    frame.write_parquet(path)
    if library == "pyarrow":
        pytest.importorskip("pyarrow")
        find = importlib.util.find_spec
        monkeypatch.setattr("importlib.util.find_spec", lambda name: None if name == "polars" else find(name))
    np.testing.assert_equal(read(path), {("a",): [[1, np.nan]], ("b",): [[20]]})
    found = whole(read_records, Source(path), columns=["x"], by=["g"], groups=[("b",), ("c",), ("a",)])
    assert [group["x"].size for group in found.values()] == [1, 0, 2]
    for columns, message in (
        (["z"], "no column 'z'; its columns are g, x, t"),
        (["t"], "dtype of numbers"),
        (None, "has 3 columns"),
    ):
        with pytest.raises(UserError, match=message):
            read(path, columns=columns)
    broken = tmp_path / "broken.parquet"
    broken.write_bytes(b"PAR1 no more")
    with pytest.raises(UserError, match="cannot read"):
        read(str(broken))
