"""``dpjax release``: one line is one record whatever it holds, nothing but the release is printed, and mistakes are named."""

import json
from collections import Counter
from fractions import Fraction

import numpy as np
import pytest

from dpjax.command_line import release
from dpjax.command_line.main import main

NASTY = [
    '"51,south',
    'a"b,"north',
    "99",
    "99,north,7",
    "\0,north",
    "1_000,south",
    "1e999,north",
    "nan,south",
    ",",
    "7,nowhere",
    "\u2028 5,north",
    "'5',south",
    '"5"",north',
    "5,north\r",
    "x" * 200_000 + ",north",
    "\x1c5,south",
    "\x0b5,north",
]
LINES = ["34,north", "28,north", "40,south", "61,south"]


def records_of(tmp_path, lines, **options):
    path = tmp_path / "data.csv"
    path.write_bytes("\n".join(["age,region", *lines, ""]).encode("utf-8", "surrogateescape"))
    found = release.read(str(path), ["age"], options.get("by"), options.get("groups", [None]), ",", True)
    return [Counter("nan" if np.isnan(v) else v for v in row) for row in found[0]], found.shape


@pytest.mark.parametrize("line", [*NASTY, "\udcff,north"])
def test_a_line_adds_at_most_one_record_and_changes_no_other(tmp_path, line):
    for grouping in ({}, {"by": "region", "groups": ["north", "south"]}):
        before, _ = records_of(tmp_path, LINES, **grouping)
        for place in range(len(LINES) + 1):
            after, _ = records_of(tmp_path, [*LINES[:place], line, *LINES[place:]], **grouping)
            more = [new - old for new, old in zip(after, before, strict=True)]
            gone = [old - new for new, old in zip(after, before, strict=True)]
            # Padding is NaN too, and may be more or less of it.
            assert sum(count for part in more for value, count in part.items() if value != "nan") <= 1, line
            assert all(value == "nan" for part in gone for value in part), line


def run(capsys, path, *options):
    code = main(["release", str(path), "--neighbors", "add_remove", *options])
    out = capsys.readouterr()
    return code, out.out, out.err


GRID = ("--lower", "0", "--upper", "127", "--resolution", "1")


def test_groups_are_those_that_the_user_names(capsys, tmp_path):
    path = tmp_path / "data.csv"
    path.write_text("\n".join(["age,region", *LINES, *NASTY[:5], ""]))
    code, out, err = run(capsys, path, "--column", "age", *GRID, "--by", "region", "--groups", "south", "east", "--draws", "5")
    assert (code, err) == (0, "")
    table = [line.split(maxsplit=2) for line in out.split("\n\n")[1].splitlines()[1:]]
    assert [(row[0], row[1]) for row in table] == [("age", "south"), ("age", "east")]
    assert all(0 <= float(value) <= 127 and float(value) % 0.5 == 0 for row in table for value in row[2].split(","))
    assert "north" not in out
    assert "all of it is 5-DP" in out.replace("\n  ", " ")
    for word in ("missing", "error", "interval", "tie"):
        assert word not in out


def test_json_has_the_release_and_nothing_of_the_data(capsys, tmp_path):
    path = tmp_path / "data.csv"
    path.write_text("\n".join(["age,income", *(f"{20 + i},{1000 * i}" for i in range(9)), ""]))
    options = ("--lower", "0", "--upper", "65536", "--resolution", "16", "--json")
    code, out, _ = run(capsys, path, "--column", "age", "income", *options)
    answer = json.loads(out)
    assert code == 0
    assert answer["simulation"] is False
    assert answer["epsilon_of_all"] == 2.0
    assert [row["column"] for row in answer["rows"]] == ["age", "income"]
    assert all(0 <= v <= 65536 and v % 16 == 0 for row in answer["rows"] for v in row["released"])
    assert set(answer) == {
        *("simulation", "quantile", "definition", "mechanism", "neighbors", "lower", "upper", "resolution"),
        *("epsilon_of_each", "epsilon_of_all", "rows"),
        *("dpjax_version", "jax_version", "device"),
    }


@pytest.mark.parametrize(("records", "epsilon"), [(9, "64"), pytest.param(999, "5", marks=pytest.mark.slow)])
def test_accurate_where_epsilon_is_large(capsys, tmp_path, records, epsilon):
    path = tmp_path / "data.csv"
    path.write_text("\n".join(["age", *(str(30 + i % 3) for i in range(records)), ""]))
    _, out, _ = run(capsys, path, "--column", "age", *GRID, "--epsilon", epsilon, "--json")
    assert json.loads(out)["rows"][0]["released"] == [31.0]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--column", "age", "--lower", "0", "--upper", "100", "--resolution", "3"), "multiple"),
        (("--column", "age", "--lower", "0", "--upper", "100.5", "--resolution", "1"), "multiple"),
        (("--column", "age", "--lower", "0.5", "--upper", "100.5", "--resolution", "1"), "multiple"),
        (("--column", "age", "--lower", "9", "--upper", "9", "--resolution", "1"), "below"),
        (("--column", "height", *GRID), "height"),
        (("--column", "age", *GRID, "--by", "region"), "--groups"),
        (("--column", "age", *GRID, "--groups", "north"), "--by"),
        (("--column", "age", *GRID, "--epsilon", "100"), "epsilon"),
        (("--column", "age", *GRID, "--by", "region", "--groups", "north", "--neighbors", "swap"), "add_remove"),
        (("--column", "age", *GRID, "--no-header"), "1, 2, 3"),
    ],
)
def test_mistakes_are_one_line(capsys, tmp_path, options, message):
    path = tmp_path / "data.csv"
    path.write_text("\n".join(["age,region", *LINES, ""]))
    code, out, err = run(capsys, path, *options)
    assert (code, out) == (2, "")
    assert message in err
    assert len(err.splitlines()) == 1


def test_blank_lines_are_records_too(tmp_path):
    """Under swap the number of records is public: replacing one by blanks must not change it."""
    path = tmp_path / "data.csv"
    for blank in ("", " ", "\t"):
        path.write_text(f"1\n{blank}\n5\n")
        found = release.read(str(path), ["1"], None, [None], ",", False)
        np.testing.assert_array_equal(found, [[[1.0, np.nan, 5.0]]])


def test_what_a_release_costs_is_never_printed_too_small(capsys, tmp_path):
    path = tmp_path / "data.csv"
    path.write_text("\n".join(["age,size", *(f"{i},{i}" for i in range(9)), ""]))
    _, out, _ = run(capsys, path, "--column", "age", *GRID, "--epsilon", "0.12345649")
    assert "This is 0.123457-DP and 0.123457-bounded-range for one record" in " ".join(out.split())
    two = ("--column", "age", "size", *GRID, "--draws", "5", "--epsilon", "0.1")
    _, out, _ = run(capsys, path, *two)
    assert "Each value costs epsilon = 0.1; all of it is 1-DP and 1-bounded-range" in " ".join(out.split())
    _, out, _ = run(capsys, path, *two, "--json")
    assert Fraction(json.loads(out)["epsilon_of_all"]) >= 10 * Fraction(0.1) > 1


@pytest.mark.parametrize("groups", [("-5.", "-1e6"), pytest.param(("-5.", "-1e6", "-7"), marks=pytest.mark.slow)])
def test_negative_numbers_as_people_write_them(capsys, tmp_path, groups):
    path = tmp_path / "data.csv"
    path.write_text("\n".join(["age,region", *["0,-5.", "1,-1e6", "2,-7"] * 3, ""]))
    for lower in ("-5", "-5.", "-5.0", "-5e0", "-.5e1", "-5.e0"):
        code, out, err = run(capsys, path, "--column", "age", "--lower", lower, "--upper", "5", "--resolution", "1")
        assert (code, err) == (0, "")
        assert "from -5 to 5" in out
    # Labels are compared without blanks around them, like the cells.
    _, out, _ = run(capsys, path, "--column", "age", *GRID, "--by", "region", "--groups", *groups, "--json")
    assert [row["group"] for row in json.loads(out)["rows"]] == list(groups)
