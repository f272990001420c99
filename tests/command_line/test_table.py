"""The shapes a file can have: delimiters, headers, quotes, byte order marks, standard input, the order of groups."""

import io

import numpy as np
import pytest

from dpjax.command_line.table import read_table

PLAIN = np.array([[[1, 3.5], [20, np.nan]]])


def assert_plain(table):
    assert table.groups == ("a", "b")
    np.testing.assert_array_equal(table.records, PLAIN)
    np.testing.assert_array_equal(table.count, [2, 1])
    np.testing.assert_array_equal(table.missing, [[0, 0]])


@pytest.mark.parametrize(
    ("content", "delimiter"),
    [
        ("g,x\na,1\nb,20\na,3.5\n", ","),
        ("g;x\na;1\nb;20\na;3.5\n", ";"),
        ("g\tx\na\t1\nb\t20\na\t3.5\n", "\t"),
        ("  g   x\n a 1 \n\nb\t 20\na 3.5", " "),
        ("g x\r\na  1\r\nb 20\r\na 3.5\r\n", " "),
        ("g, x\r\na, 1\r\n\r\nb, 20 \r\na, 3.5\r\n", ","),
        (b"\xef\xbb\xbfg,x\na,1\nb,20\na,3.5", ","),
        ('"g","x","note"\n"a","1","one, two"\nb,20,"a ""quoted""\nword"\na,3.5,\n', ","),
        ("x,unused,g\n1,text,a\n2e1,,b\n+3.5,NA,a\n", ","),
    ],
)
def test_all_these_files_are_the_same(write, content, delimiter):
    table = read_table(write(content), columns=["x"], by="g", delimiter=delimiter)
    assert_plain(table)
    assert table.columns == ("x",)


def test_columns_without_a_header_are_numbered(write):
    table = read_table(write("a  1\nb 20\na 3.5\n"), columns=["2"], by="1", delimiter=" ", header=False)
    assert_plain(table)
    assert table.columns == ("2",)


def test_standard_input(monkeypatch):
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"g,x\na,1\nb,20\na,3.5\n")))
    assert_plain(read_table("-", columns=["x"], by="g"))


def test_the_only_column_needs_no_name(write):
    table = read_table(write("height\n1\n2\n"), columns=None, by=None)
    assert (table.columns, table.groups, table.records.tolist()) == (("height",), (None,), [[[1, 2]]])


def test_numeric_groups_come_in_the_order_of_numbers(write):
    table = read_table(write("g,x\n10,1\n9,1\nz,1\nnan,1\n-2.5,1\n"), columns=["x"], by="g")
    assert table.groups == ("-2.5", "9", "10", "nan", "z")


def test_missing_cells_in_several_columns(write):
    table = read_table(write("g,x,y\na,1,\na,NA,2\nb,nan, NaN \n"), columns=["y", "x"], by="g")
    np.testing.assert_array_equal(table.records, [[[np.nan, 2], [np.nan, np.nan]], [[1, np.nan], [np.nan, np.nan]]])
    np.testing.assert_array_equal(table.count, [2, 1])
    np.testing.assert_array_equal(table.missing, [[1, 1], [1, 1]])
