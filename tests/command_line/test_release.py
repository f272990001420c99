"""``dpjax release``: one line is one record whatever it holds, nothing but the release is printed, and mistakes are named."""

import json
from collections import Counter
from fractions import Fraction

import numpy as np
import pytest

from dpjax.command_line.files import Source
from dpjax.command_line.main import main
from dpjax.command_line.table import read_records
from tests.command_line.conftest import whole

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


def records_of(tmp_path, lines, groups=None):
    path = tmp_path / "data.csv"
    path.write_bytes("\n".join(["age,region", *lines, ""]).encode("utf-8", "surrogateescape"))
    by = () if groups is None else ("region",)
    found = whole(read_records, Source(str(path)), columns=["age"], by=by, groups=groups)
    return [Counter("nan" if np.isnan(v) else v for v in part["age"]) for part in found.values()]


def only_column(source, column):
    return whole(read_records, source, columns=[column], by=(), groups=None)[()][column]


@pytest.mark.parametrize("line", [*NASTY, "\udcff,north"])
def test_a_line_adds_at_most_one_record_and_changes_no_other(tmp_path, line):
    for groups in (None, [("north",), ("south",)]):
        before = records_of(tmp_path, LINES, groups)
        for place in range(len(LINES) + 1):
            after = records_of(tmp_path, [*LINES[:place], line, *LINES[place:]], groups)
            more = [new - old for new, old in zip(after, before, strict=True)]
            gone = [old - new for new, old in zip(after, before, strict=True)]
            assert sum(count for part in more for count in part.values()) <= 1, line
            assert not any(gone), line


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
    table = [line.split(maxsplit=2) for line in out.split("\n\n")[0].splitlines()[1:]]
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
        *("simulation", "quantiles", "definition", "mechanism", "neighbors", "columns"),
        *("epsilon_of_each", "epsilon_of_all", "delta", "rows"),
        *("dpjax_version", "numpy_version"),
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
        (("--column", "height", *GRID), "no column 'height'; its columns are age, region."),
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
        np.testing.assert_array_equal(only_column(Source(str(path), header=False), "1"), [1.0, np.nan, 5.0])


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


@pytest.mark.parametrize("start", ["PAR1", "\x1f\x8b", "\0\0"])
def test_without_a_header_the_first_line_is_a_record_whatever_it_holds(tmp_path, start):
    path = tmp_path / "data.csv"
    path.write_bytes(f"{start}\n5\n".encode("latin-1"))
    np.testing.assert_array_equal(only_column(Source(str(path), header=False), "1"), [np.nan, 5.0])


def test_no_line_changes_how_long_fields_are_read(tmp_path):
    long = ['"a",5,' + "x" * 140_000] * 5
    for more in ('a,5,x"y', "a,5,\0"):
        path = tmp_path / "data.csv"
        path.write_text("\n".join([*long, more, ""]))
        assert only_column(Source(str(path), header=False), "2").tolist() == [5.0] * 6


@pytest.mark.parametrize("encoding", ["iso2022_jp", "hz", "utf-16-le", "utf-32", "utf-7"])
def test_encodings_whose_lines_depend_on_each_other(capsys, tmp_path, encoding):
    path = tmp_path / "data.csv"
    path.write_bytes("age\n34\n".encode(encoding))
    code, out, err = run(capsys, path, "--column", "age", *GRID, "--encoding", encoding)
    assert (code, out) == (2, "")
    assert "convert the file to UTF-8" in err


def test_no_group_is_large_enough(capsys, tmp_path):
    path, target = tmp_path / "data.csv", tmp_path / "found.csv"
    path.write_text("age,region\n34,a\n")
    private = ("--by", "region", "--group-epsilon", "1", "--group-delta", "1e-8", "--output", str(target))
    assert run(capsys, path, "--column", "age", *GRID, *private)[0] == 0
    assert target.read_text() == "column,group,noisy_size,quantile,epsilon,draw,drawn\n"


def test_decimal_commas(capsys, tmp_path):
    path = tmp_path / "data.csv"
    path.write_text("age\n" + "34,0\n" * 50 + '"51,5"\n1.000,5\n' * 10)
    arguments = ("--column", "age", *GRID, "--epsilon", "64", "--delimiter", "semicolon")
    code, out, _ = run(capsys, path, *arguments, "--decimal", "comma")
    assert (code, table_of(out)[0][-1]) == (0, "34")
    read = only_column(Source(str(path), delimiter=";", decimal=","), "age")
    assert Counter(read[~np.isnan(read)].tolist()) == {34.0: 50, 51.5: 10}  # and no thousands
    without = only_column(Source(str(path), delimiter=";"), "age")
    assert np.isnan(without).all()  # what it takes to read them


def table_of(out):
    return [line.split() for line in out.split("\n\n")[0].splitlines()[1:]]


PEOPLE = [f"{region},{sex},{age},{10 * age}" for region in "ns" for sex in "fm" for age in [34 if sex == "f" else 51] * 30]


def test_columns_quantiles_groups_and_epsilons_in_one_call(capsys, tmp_path):
    path = tmp_path / "people.csv"
    path.write_text("\n".join(["region,sex,age,pay", *PEOPLE, "n,f,n/a,340"]))
    columns = ("--column", "age", "pay", "--lower", "0", "--upper", "100", "1000", "--resolution", "1", "10")
    several = (
        "--n-max",
        "100",
        "--quantile",
        "0.5",
        "1/4",
        "--epsilon",
        "64",
        "32",
        "--by",
        "region",
        "sex",
        "--groups",
        "s,m",
        "n,f",
    )
    code, out, err = run(capsys, path, *columns, *several)
    assert (code, err) == (0, "")
    rows = [row for group, age in (("s, m", 51), ("n, f", 34)) for row in [(group, age)] * 4]
    assert [(" ".join(row[1:3]), row[0], float(row[-1])) for row in table_of(out)] == [
        *((group, "age", age) for group, age in rows),
        *((group, "pay", 10 * age) for group, age in rows),
    ]
    assert [tuple(row[3:5]) for row in table_of(out)[:4]] == [("0.25", "64"), ("0.25", "32"), ("0.5", "64"), ("0.5", "32")]
    assert "all of it is 192-DP and 192-bounded-range" in " ".join(out.split())
    target = tmp_path / "found.csv"
    code, out, _ = run(capsys, path, *columns, *several, "--output", str(target))
    assert (code, out) == (0, f"Wrote {target}.\n")
    lines = target.read_text().splitlines()
    assert lines[:2] == ["column,region,sex,quantile,epsilon,draw,drawn", "age,s,m,0.25,64.0,1,51.0"]
    assert len(lines) == 17
    code, out, _ = run(capsys, path, *columns, *several, "--output", str(tmp_path / "found.json"))
    answer = json.loads((tmp_path / "found.json").read_text())
    assert (answer["epsilon_of_all"], answer["delta"], len(answer["rows"])) == (192.0, 0.0, 16)
    assert answer["rows"][0]["group"] == {"region": "s", "sex": "m"}
    assert run(capsys, path, *columns, *several, "--output", str(tmp_path / "no" / "found.csv"))[0] == 2


def test_groups_that_are_found(capsys, tmp_path):
    path = tmp_path / "people.csv"
    path.write_text("\n".join(["region,age", *["north,34"] * 60, "secret,9", ",9", *[",34"] * 60]))
    command = ("--column", "age", *GRID, "--epsilon", "64", "--by", "region", "--group-epsilon", "2", "--group-delta", "1e-12")
    code, out, err = run(capsys, path, *command)
    assert (code, err) == (0, "")
    ((column, group, size, released),) = table_of(out)
    assert (column, group, released) == ("age", "north", "34")
    assert abs(int(size) - 60) < 40
    assert "To find the groups costs (2, " in " ".join(out.split())
    answer = json.loads(run(capsys, path, *command, "--json")[1])
    assert answer["epsilon_of_all"] == 66.0
    assert 0 < answer["delta"] <= 1e-12


def test_a_dry_run_reads_what_is_public_only(capsys, tmp_path):
    path = tmp_path / "people.csv"
    outcomes = set()
    for records in (LINES, ["99,south"], [], ["\0" * 10, "1,2,3,4"]):
        path.write_text("\n".join(["age,region", *records]))
        outcomes.add(run(capsys, path, "--column", "age", *GRID, "--dry-run"))
    ((code, out, err),) = outcomes
    assert (code, err) == (0, "")
    assert "Dry run: no record was read, and nothing is spent." in out
    assert "is 1-DP and 1-bounded-range for one record" in " ".join(out.split())
    assert "released" not in out
    _, out, _ = run(capsys, path, "--column", "age", *GRID, "--dry-run", "--by", "region", "--groups", "north", "south,east")
    assert "of the groups north; south,east, quantile 1/2" in " ".join(out.split())
    for options in (("--column", "height", *GRID), ("--column", "age", *GRID, "--epsilon", "100")):
        assert run(capsys, path, *options, "--dry-run")[0] == 2


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty"),
        (b"age;region\n1;2\n", "is the --delimiter semicolon?"),
        ("age,region\n1,2\n".encode("utf-16"), "give --encoding utf-16"),
        (b"PAR1\0\0", "is a Parquet file"),
        (b"\x7fELF\0\0\0\n", "is binary"),
        (b"\x80\x91\xff\x07,region\n1,2\n", "data.csv is not UTF-8 text (in its first line): give its --encoding"),
    ],
)
def test_a_file_that_is_something_else(capsys, tmp_path, content, message):
    path = tmp_path / "data.csv"
    path.write_bytes(content)
    code, out, err = run(capsys, path, "--column", "age", *GRID)
    assert (code, out) == (2, "")
    assert message in err
    assert len(err.splitlines()) == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--by", "region", "--groups", "a", "--group-epsilon", "1", "--group-delta", "0.1"), "not both"),
        (("--by", "region", "--group-epsilon", "1"), "go together"),
        (("--by", "region", "age", "--groups", "a"), "named by 2 labels"),
        (("--by", "region", "--group-epsilon", "1", "--group-delta", "2"), "delta"),
        (("--quantile", "0.1", "0.2", "--mechanism", "permute_and_flip"), "by joint quantiles"),
        (("--quantile", "0.1", "0.2"), "may not depend on how many records the file has"),
        (("--n-max", "100"), "goes with several quantiles under add_remove"),
        (("--resolution", "1", "2"), "--resolution has 2 values for 1 columns"),
    ],
)
def test_options_that_do_not_fit(capsys, tmp_path, options, message):
    path = tmp_path / "data.csv"
    path.write_text("\n".join(["age,region", *LINES, ""]))
    code, out, err = run(capsys, path, "--column", "age", *GRID, *options)
    assert (code, out) == (2, "")
    assert message in err
