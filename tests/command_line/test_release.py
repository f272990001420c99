"""``dpjax release``: nothing but the release is printed, no record changes what becomes of others,
and every promise is right.
"""

import csv
import datetime
import gzip
import io
import os
import random
from collections import Counter
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from dpjax.command_line import release_command as command
from dpjax.release import Median, exact_distribution

GRID = ("--lower", 0, "--upper", 127, "--resolution", 1, "--neighbors", "add_remove")
LINES = ["34,north", "28,north", "40,south", "61,south"]
PEOPLE = [
    f"{region},{sex},{age},{10 * age}"
    for region in "ns"
    for sex in "fm"
    for age in [34 if sex == "f" else 51] * 30
]
EXACT = ("--epsilon", 64)


@pytest.fixture
def people(write):
    return write("\n".join(["region,sex,age,pay", *PEOPLE, "n,f,n/a,340"]), "people.csv")


@pytest.fixture
def read(monkeypatch):
    """What a release was asked to count: a counter of the rows of each table, as they were read."""
    tables, release = [], command.release

    def kept(frame, *arguments, **options):
        parts = [
            [column.names[code] if code >= 0 else None for code in column.codes]
            if hasattr(column, "codes")
            else column.tolist()
            for column in frame.values()
        ]
        tables.append(
            Counter(
                tuple("nan" if cell != cell else cell for cell in row)
                for row in zip(*parts, strict=True)
            )
        )
        return release(frame, *arguments, **options)

    monkeypatch.setattr(command, "release", kept)
    return tables


def released(rows):
    return [row["released"] for row in rows]


def printed(out):
    return [line.split() for line in out.split("\n\n")[0].splitlines()]


def test_groups_are_those_that_the_user_names(run, write):
    path = write("\n".join(["age,region", *LINES, "7,nowhere", "x,", "99", ""]))
    outcome = run(
        "release",
        path,
        "--column",
        "age",
        *GRID,
        "--by",
        "region",
        "--groups",
        "south",
        "east",
        "--records",
        "lines",
    )
    assert (outcome.code, outcome.err) == (0, "")
    head, *table = printed(outcome.out)
    assert head == ["region", "released"]
    assert [row[0] for row in table[:2]] == ["south", "east"]
    assert all(0 <= float(row[1]) <= 127 and float(row[1]) % 0.5 == 0 for row in table[:2])
    assert table[2:] == [["column", "age,", "epsilon", "1"]]
    for word in ("north", "missing", "error", "interval", " tie"):
        assert word not in outcome.out


def test_json_has_the_release_and_nothing_of_the_data(answer, write):
    path = write("\n".join(["age,income", *(f"{20 + i},{1000 * i}" for i in range(9)), ""]))
    options = (
        "--lower",
        0,
        "--upper",
        65536,
        "--resolution",
        16,
        "--neighbors",
        "add_remove",
        "--draws",
        2,
    )
    found = answer("release", path, "--column", "age", "income", *options)
    assert found["simulation"] is False
    assert found["guarantee"]["epsilon"] == 4.0
    assert [(row["column"], row["draw"]) for row in found["rows"]] == [
        ("age", 1),
        ("age", 2),
        ("income", 1),
        ("income", 2),
    ]
    assert all(0 <= value <= 65536 and value % 16 == 0 for value in released(found["rows"]))
    assert set(found["rows"][0]) == {"column", "draw", "released", "epsilon"}
    assert set(found) == {
        *(
            "simulation",
            "quantiles",
            "definition",
            "mechanism",
            "neighbors",
            "unit",
            "records",
            "columns",
            "guarantee",
            "rows",
        ),
        *("dpjax_version", "numpy_version"),
    }


def test_a_release_draws_from_the_median_object(answer, write):
    """Chances of four thousand draws, with the distribution of twice the records as the control."""
    values = [3, 3, 4, 5, 5, 5, 8, 9]
    file, ten = (
        write("x\n" + "".join(f"{value}\n" for value in values)),
        ("--lower", 0, "--upper", 10, "--resolution", 1),
    )
    drawn = np.array(
        released(
            answer("release", file, "--column", "x", *ten, *GRID[-2:], "--draws", 4000)["rows"]
        )
    )
    grid = np.arange(11)
    counts = np.array([np.sum(drawn == value) for value in grid])

    def distance(records):
        expected = drawn.size * exact_distribution(
            Median(0, 10, 1), records, epsilon=1.0, neighbors="add_remove"
        ).pmf(grid)
        return np.sum((counts - expected) ** 2 / expected)

    # chi-square with 10 degrees of freedom, at 5e-9
    assert distance(values) < 59.4 < distance(values * 2)


def test_a_group_that_is_named_and_has_no_record(answer, ages):
    """It is drawn as if its column were empty; the others as ever."""
    column = (
        "--column",
        "age",
        "--neighbors",
        "add_remove",
        "--lower",
        0,
        "--upper",
        100,
        "--resolution",
        0.5,
        *EXACT,
    )
    rows = answer("release", ages, *column, "--by", "group", "--groups", "nowhere", "b", "a")[
        "rows"
    ]
    assert [row["group"] for row in rows] == ["nowhere", "b", "a"]
    assert released(rows[1:2]) == [51]
    assert abs(released(rows[2:])[0] - 35) < 20
    assert released(rows[:1])[0] in np.arange(201) / 2


def test_columns_quantiles_and_groups_in_one_call(run, answer, people, tmp_path):
    columns = (
        "--column",
        "age",
        "pay",
        "--lower",
        0,
        "--upper",
        100,
        1000,
        "--resolution",
        1,
        10,
        "--neighbors",
        "add_remove",
    )
    several = (
        "--max-records",
        100,
        "--quantile",
        0.5,
        "1/4",
        *EXACT,
        "--by",
        "region",
        "sex",
        "--groups",
        "s,m",
        "n,f",
    )
    expected = [
        {
            "region": region,
            "sex": sex,
            "column": column,
            "quantile": q,
            "released": times * age,
            "epsilon": 64,
        }
        for column, times in (("age", 1), ("pay", 10))
        for region, sex, age in (("s", "m", 51), ("n", "f", 34))
        for q in (0.25, 0.5)
    ]
    assert answer("release", people, *columns, *several)["rows"] == expected
    outcome = run("release", people, *columns, *several)
    assert [row[:5] for row in printed(outcome.out)[1:3]] == [
        ["s", "m", "age", "0.25", "51"],
        ["s", "m", "age", "0.5", "51"],
    ]
    assert "All values together are 128-DP and " in outcome.words
    target = tmp_path / "found.csv"
    assert run("release", people, *columns, *several, "--output", target)[:2] == (
        0,
        f"Wrote {target}.\n",
    )
    assert list(csv.reader(io.StringIO(target.read_text())))[:2] == [
        list(expected[0]),
        ["s", "m", "age", "0.25", "51.0", "64.0"],
    ]


def test_groups_that_are_found(run, answer, write, tmp_path):
    path = write("\n".join(["region,age", *["north,34"] * 60, "secret,9", ",9", *[",34"] * 60]))
    private = (
        "--column",
        "age",
        *GRID,
        *EXACT,
        "--by",
        "region",
        "--group-epsilon",
        2,
        "--group-delta",
        1e-12,
    )
    found = answer("release", path, *private)
    (row,) = found["rows"]
    assert (row["region"], row["released"]) == ("north", 34)
    assert abs(row["noisy_size"] - 60) < 40
    assert found["guarantee"]["epsilon"] == 66.0
    assert 0 < found["guarantee"]["delta"] <= 1e-12
    assert (
        "Groups are those whose noisy size reaches "
        f"{found['threshold']}; noisy_size is that number." in run("release", path, *private).words
    )
    target = tmp_path / "found.csv"
    assert run("release", write("age,region\n34,a\n"), *private, "--output", target).code == 0
    assert target.read_text() == "region,noisy_size,column,released,epsilon\n"
    assert run("release", write("age,region\n34,a\n"), *private).code == 0  # a table without rows


def test_what_a_release_costs_is_never_printed_too_small(run, answer, write):
    path = write("\n".join(["age,size", *(f"{i},{i}" for i in range(9)), ""]))
    outcome = run("release", path, "--column", "age", *GRID, "--epsilon", 0.12345649)
    assert (
        "All values together are 0.123457-DP and 0.123457-bounded-range under add_remove"
        in outcome.words
    )
    two = ("release", path, "--column", "age", "size", *GRID, "--draws", 5, "--epsilon", 0.1)
    assert "All values together are 1-DP and " in run(*two).words
    assert Fraction(answer(*two)["guarantee"]["epsilon"]) >= 10 * Fraction(0.1) > 1


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (
            GRID,
            "for one record of the file, more or less. A person with several records has a weaker "
            "guarantee: give --unit",
        ),
        (
            (*GRID[:-1], "swap"),
            "for one record of the file replaced. A person with several records has a weaker "
            "guarantee: give --unit",
        ),
        (
            (*GRID, "--records", "lines"),
            "for one line of the file, more or less. A person with several lines has a weaker "
            "guarantee",
        ),
        (
            (*GRID, "--unit", "name"),
            "one person with all records, more or less. A person is all records with one label in "
            "the column name, combined",
        ),
        (
            (*GRID[:-1], "swap", "--unit", "name"),
            "under swap neighbors, for one person with all records replaced.",
        ),
        (
            (*GRID, "--by", "g", "--groups", "a"),
            "A record is in one group, so that this is the cost of all groups together.",
        ),
        (
            (*GRID, "--unit", "name", "--by", "g", "--groups", "a"),
            "is that of the one group in which a person counts at most.",
        ),
        (
            (
                *GRID,
                "--unit",
                "name",
                "--by",
                "g",
                "--groups",
                "a",
                "b",
                "--max-groups",
                2,
                "--epsilon",
                1.5,
            ),
            "3-DP and 3-bounded-range under add_remove neighbors, for one person with all "
            "records, more or less. A person is all records with one label in the column name, "
            "combined by the mean. The cost is that of the 2 groups in which a person",
        ),
    ],
)
def test_whom_it_is_promised_to(run, write, options, words):
    path = write("name,g,age\n" + "Ann,a,31\nAnn,b,40\nBob,a,22\n")
    outcome = run("release", path, "--column", "age", *options)
    assert (outcome.code, outcome.err) == (0, "")
    assert words in outcome.words
    assert words in run("release", path, "--column", "age", *options, "--dry-run").words


def test_a_person_with_many_records(answer, write):
    """The median person has a 20, though most records are of one person with 90 or 91."""
    rows = [f"{p},20" for p in range(999)] + ["rich,90"] * 600 + ["rich,91"] * 600
    path = write("person,x\n" + "\n".join(random.Random(0).sample(rows, len(rows))))
    options = (
        "release",
        path,
        "--column",
        "x",
        "--lower",
        0,
        "--upper",
        100,
        "--resolution",
        1,
        *GRID[-2:],
        *EXACT,
    )
    (row,) = (found := answer(*options, "--unit", "person"))["rows"]
    assert (row["released"], found["guarantee"]["unit"], found["unit"]) == (20, "person", "person")
    (row,) = (found := answer(*options))["rows"]
    assert (row["released"] > 80, found["guarantee"]["unit"]) == (True, "row")  # control
    for rule, value in (("max", 91), ("min", 90), ("count", 100), ("sum", 100), ("mean", 91)):
        few = write(
            "person,x\n" + "\n".join(f"{p},{x}" for p in "abc" for x in [90] * 50 + [91] * 51),
            "few.csv",
        )
        found = answer(
            "release",
            few,
            *options[2:],
            "--unit",
            "person",
            "--per-unit",
            rule,
            "--definition",
            "lower",
            "--draws",
            9,
        )
        assert Counter(released(found["rows"])).most_common(1)[0][0] == value


def test_the_same_release_from_every_kind_of_file(run, answer, people, tmp_path, stdin):
    polars = pytest.importorskip("polars")
    pytest.importorskip("narwhals")
    zipped, parquet = tmp_path / "people.csv.gz", tmp_path / "people.PARQUET"
    zipped.write_bytes(gzip.compress(Path(people).read_bytes()))
    polars.read_csv(people, null_values=["n/a"]).write_parquet(parquet)
    asked = (
        "--column",
        "age",
        "pay",
        "--lower",
        0,
        "--upper",
        100,
        1000,
        "--resolution",
        1,
        10,
        "--neighbors",
        "add_remove",
    )
    lower = ("--quantile", "1/4")
    grouped = ("--by", "region", "sex", "--groups", "s,m", "n,f")
    for more in (
        (),
        grouped,
        ("--unit", "sex", "--by", "region", "--groups", "n", "--max-groups", 2),
    ):
        found, plans = [], []
        for path in (people, zipped, parquet, "-"):
            stdin(Path(people).read_bytes())
            answered = answer("release", path, *asked, *EXACT, *lower, *more)
            found.append(
                answered["guarantee"]
                if "--unit" in more
                else (answered["guarantee"], answered["rows"])
            )
            stdin(Path(people).read_bytes())
            plans.append(answer("quantile", path, *asked, *lower, *more, "--seed", 1)["rows"])
        assert found == found[:1] * 4
        assert plans == plans[:1] * 4
    assert (
        "for one row of the file, more or less. A person with several rows"
        in run("release", parquet, *asked).words
    )


def test_a_ledger_outlives_a_command(run, answer, people, tmp_path):
    ledger, target = tmp_path / "people.ledger", tmp_path / "found.csv"
    asked = ("release", people, "--column", "age", *GRID, "--ledger", ledger)
    assert run(*asked).mistake == f"there is no ledger {ledger}: give --total-epsilon to create it."
    planned = run(*asked, "--total-epsilon", 2, "--dry-run")
    assert f"The ledger {ledger} would be created, with the total epsilon 2." in planned.words
    assert not ledger.exists()
    assert (
        f"Ledger {ledger}: remaining epsilon 0.5 of 2."
        in run(*asked, "--total-epsilon", 2, "--epsilon", 1.5).words
    )
    before = ledger.read_bytes()
    assert "remaining epsilon 0.5 of 2; the release does not fit." in run(*asked, "--dry-run").words
    assert (
        "remaining epsilon 0.5 of 2; the release fits."
        in run(*asked, "--dry-run", "--epsilon", 0.5).words
    )
    for options, words in (
        ((), "a cost of epsilon 1 exceeds the remaining epsilon 0.5 of 2."),
        (("--output", target), "a cost of epsilon 1 exceeds the remaining epsilon 0.5 of 2."),
        (
            ("--total-epsilon", 3),
            f"the ledger {ledger} has the total epsilon 2 and delta 0: give these, or none.",
        ),
        (
            ("--unit", "sex", "--epsilon", 0.1),
            "guarantees for a row and for a person do not compose",
        ),
        (("--neighbors", "swap"), f"--neighbors must be add_remove, as in the ledger {ledger}."),
        (("--output", ledger), f"--output {ledger} is the ledger, whose charges would be lost."),
        (("--column", "sex", "height"), "has no column 'height'"),
    ):
        assert words in run(*asked, *options).mistake
    assert not target.exists()
    assert ledger.read_bytes() == before
    assert answer(*asked, "--epsilon", 0.5, "--total-epsilon", 2)["left"] == 0
    shown = run("ledger", ledger)
    assert [line.split()[1:] for line in shown.out.splitlines()[:3]] == [
        ["columns", "statistic", "draws", "epsilon", "delta", "left"],
        ["age", "Median,", "0..127", "by", "1", "1", "1.5", "0", "0.5"],
        ["age", "Median,", "0..127", "by", "1", "1", "0.5", "0", "0"],
    ]
    assert "is not a dpjax ledger" in run(*asked[:-1], people).mistake
    assert "is not a dpjax ledger: it is not a regular file" in run(*asked[:-1], tmp_path).mistake
    assert (
        "cannot open"
        in run(*asked[:-1], tmp_path / "no" / "people.ledger", "--total-epsilon", 2).mistake
    )


# Labels and numbers as people write them.


def test_labels_that_begin_with_a_dash(run, answer, write):
    path = write("level,x\n" + "-low,50\n-high,60\n" * 60)
    asked = ("release", path, "--column", "x", *GRID, *EXACT, "--by", "level")
    for groups in (
        ("--groups=-low", "--groups=-high"),
        ("--groups", "other", "--groups=-low", "--groups=-high"),
    ):
        rows = answer(*asked, *groups)["rows"]
        assert [(row["level"], row["released"]) for row in rows[-2:]] == [
            ("-low", 50),
            ("-high", 60),
        ]
    assert "expected at least one argument" in run(*asked, "--groups", "-low", "-high").mistake


def test_a_label_with_a_comma_is_meant_only_where_it_is_quoted(run, answer, write):
    path = write('region,x\n"north,south",50\n' + '"north,south",50\n' * 60)
    asked = ("release", path, "--column", "x", *GRID, *EXACT, "--by", "region", "--groups")
    assert (
        "--groups takes labels separated by blanks, and 'north,south' has a comma"
        in run(*asked, "north,south").mistake
    )
    (row,) = answer(*asked, '"north,south"')["rows"]
    assert (row["region"], row["released"]) == ("north,south", 50)
    assert "missing labels are in no group" in run(*asked, "").mistake


@pytest.mark.parametrize("groups", [("-5.", "-1e6"), ("-5.", "-1e6", "-7")])
def test_negative_numbers_as_people_write_them(run, answer, write, groups):
    path = write("\n".join(["age,region", *["0,-5.", "1,-1e6", "2,-7"] * 3, ""]))
    for lower in ("-5", "-5.", "-5.0", "-5e0", "-.5e1", "-5.e0"):
        options = ("--lower", lower, "--upper", 5, "--resolution", 1, "--neighbors", "add_remove")
        assert answer("release", path, "--column", "age", *options)["columns"]["age"]["lower"] == -5
    rows = answer("release", path, "--column", "age", *GRID, "--by", "region", "--groups", *groups)[
        "rows"
    ]
    # Without blanks around them, like the cells
    assert [row["region"] for row in rows] == list(groups)


def test_years_that_a_parquet_file_has_as_floats(run, answer, tmp_path):
    polars = pytest.importorskip("polars")
    pytest.importorskip("narwhals")
    path = tmp_path / "years.parquet"
    years = {
        "year": [2019.0, 2020.0, None] * 60,
        "x": [50, 60, 70] * 60,
        "on": [True, False, None] * 60,
        "n": [1, 2, None] * 60,
    }
    polars.DataFrame(years).write_parquet(path)
    asked = ("release", path, "--column", "x", *GRID, *EXACT, "--by")
    for by, groups in (
        ("year", ("2019", "2020.0")),
        ("on", ("true", "False")),
        ("n", ("1", "2.0")),
    ):
        assert released(answer(*asked, by, "--groups", *groups)["rows"]) == [50, 60]
    outcome = run(*asked, "year", "--groups", "2019", "2020", "--dry-run")
    assert "of 2 groups, quantile 1/2" in outcome.words
    assert "The groups: 2019; 2020." in outcome.words
    for by, group in (("year", "north"), ("on", "1"), ("n", "one")):
        assert "so no group is" in run(*asked, by, "--groups", group).mistake
    for beyond in ("1e300", "99999999999999999999", "2.5"):
        assert (
            "column 'n' holds number labels, so no group is"
            in run(*asked, "n", "--groups", beyond, "1").mistake
        )
        assert [row["year"] for row in answer(*asked, "year", "--groups", beyond, "1")["rows"]] == [
            float(beyond),
            1,
        ]


def test_a_record_without_a_label_is_in_no_group_of_any_file(answer, write, tmp_path):
    polars = pytest.importorskip("polars")
    pytest.importorskip("narwhals")
    polars.DataFrame({"g": ["a", None] * 100, "x": [50, 60] * 100}).write_parquet(
        tmp_path / "g.parquet"
    )
    for path in (write("g,x\n" + "a,50\n,60\n" * 100), tmp_path / "g.parquet"):
        (row,) = answer("median", path, "--column", "x", *GRID, "--by", "g")["rows"]
        assert (row["g"], row["records"], row["value"]) == ("a", 100, 50)


def test_marks_of_thousands_and_of_decimals(run, answer, write):
    path = write("x\n" + '"1,200"\n' * 600 + "900\n" * 400)
    wide = (
        "--column",
        "x",
        "--lower",
        0,
        "--upper",
        4000,
        "--resolution",
        1,
        "--neighbors",
        "add_remove",
    )
    assert released(answer("release", path, *wide, *EXACT, "--thousands", "comma")["rows"]) == [
        1200
    ]
    assert released(answer("release", path, *wide, *EXACT)["rows"]) == [900]
    assert answer("median", path, *wide)["not_numbers"] == {"x": 600}
    assert "--decimal" not in run("median", path, *wide).out
    assert (
        "both ','"
        in run("release", path, *wide, "--thousands", "comma", "--decimal", "comma").mistake
    )
    path = write("age\n" + "34,0\n" * 50 + '"51,5"\n1.000,5\n' * 10)
    options = ("--column", "age", *GRID, *EXACT, "--delimiter", "semicolon")
    assert released(answer("release", path, *options, "--decimal", "comma")["rows"]) == [34]


# No record changes what becomes of others, what is said, or whether there is an answer.

CELLS = [
    *(
        "51",
        "",
        "x",
        "1e999",
        "-inf",
        "nan",
        "NA",
        "1_000",
        "1,200",
        "9" * 400,
        "0x1",
        "1e-400",
        "-0",
        "\x1c5",
        " 7 ",
        "+5",
        "٣",
    ),
    *(
        "north",
        "south",
        "a\nb",
        "51,south\n51,south",
        '"',
        'say "so"',
        "\r\n",
        "x" * 3000,
        "\ufeff",
        "\u2028",
        "é",
        "-999",
        "n/a",
    ),
]
BROKEN = [
    '"51,south',
    'a"b,"north',
    "99",
    "99,north,7,8",
    "\0,north",
    ",",
    '"5"",north',
    "'5',south",
    '"a" b,1',
    "\x0b5,north",
    " ",
]
ASKED = [
    (),
    ("--by", "region", "--groups", "north", "south"),
    ("--by", "region", "who", "--groups", "north,51", "south,x", "--unit", "who"),
    ("--unit", "who"),
    (
        "--unit",
        "who",
        "--per-unit",
        "sum",
        "--by",
        "region",
        "--groups",
        "north",
        "--max-groups",
        3,
    ),
    ("--unit", "who", "--per-unit", "count"),
    ("--unit", "region", "--per-unit", "max"),
    ("--quantile", "1/4", "0.9", "--max-records", 50),
    ("--quantile", "1/3", "--definition", "linear", "--mechanism", "permute_and_flip"),
    ("--by", "region", "--group-epsilon", 1, "--group-delta", 1e-9),
    ("--missing", "-999", "n/a", "--thousands", "comma"),
]
SWAP = [
    ("--neighbors", "swap"),
    ("--neighbors", "swap", "--quantile", "1/4", "0.9"),
    ("--neighbors", "swap", "--draws", 3),
]


def file_of(records, mode, rng):
    if mode == "lines":
        lines = ["age,region,who", *records]
        return ("\n".join(lines) + "\n").encode("utf-8", "surrogateescape")
    text = io.StringIO(newline="")
    csv.writer(text, lineterminator=rng.choice(["\n", "\r\n"])).writerows(
        [["age", "region", "who"], *records]
    )
    return text.getvalue().encode()


@pytest.mark.parametrize(
    "seed", [*range(4), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(4, 24))]
)
@pytest.mark.parametrize("mode", ["csv", "lines"])
def test_files_that_differ_in_one_record_differ_in_nothing_that_is_said(
    run, write, read, mode, seed
):
    """Warnings are errors here. Of each pair the tables that are counted differ in one record at
    most.
    """
    rng = random.Random(f"{mode} {seed}")

    def record():
        cells = [
            rng.choice(CELLS) if rng.random() < 0.6 else rng.choice(["51", "34", "north", "south"])
            for _ in range(3)
        ]
        if mode == "csv":
            return cells
        return (
            rng.choice(BROKEN)
            if rng.random() < 0.4
            else ",".join(cells).replace("\n", " ").replace("\r", " ")
        )

    for number in range(24):
        swap = number % 4 == 3
        some = [record() for _ in range(rng.randrange(6) + swap)]
        place = rng.randrange(len(some) + (not swap))
        other = [*some[:place], record(), *some[place + swap :]]
        options = (*GRID, *rng.choice(SWAP)) if swap else (*GRID, *rng.choice(ASKED))
        shape = rng.choice(["--json", "--output"])
        said = []
        for records in (some, other):
            path, target = (
                write(file_of(records, mode, random.Random(seed))),
                write("", "found.csv"),
            )
            show = ("--json",) if shape == "--json" else ("--output", target)
            outcome = run("release", path, "--column", "age", "--records", mode, *options, *show)
            assert (outcome.code, outcome.err) == (0, ""), (records, options)
            if "--group-epsilon" in options:  # which groups there are is a draw
                said.append(None)
            elif shape == "--json":
                rows = [
                    {name: cell for name, cell in row.items() if name != "released"}
                    for row in outcome.json["rows"]
                ]
                said.append(
                    (outcome.json | {"rows": rows}, [list(row) for row in outcome.json["rows"]])
                )
            else:
                rows = list(csv.DictReader(io.StringIO(Path(target).read_text(), newline="")))
                said.append(
                    [
                        {name: cell for name, cell in row.items() if name != "released"}
                        for row in rows
                    ]
                )
        assert said[0] == said[1], (some, other, options)
        one, two = read[-2:]
        assert ((two - one).total() <= 1, (one - two).total() <= swap) == (True, True), (
            some,
            other,
        )


def test_a_cell_with_line_breaks_is_in_one_record(answer, run, write, read):
    records = ["34,north", "28,north"]
    note = '"7","51,south\n51,south\n51,south"'
    path = write("\n".join(["age,note", *records, note]))
    asked = ("--column", "age", *GRID)
    assert answer("median", path, *asked)["rows"][0]["records"] == 3
    assert run("release", path, *asked).code == 0
    assert read[-1] == Counter({(34.0,): 1, (28.0,): 1, (7.0,): 1})
    outcome = run("release", path, *asked, "--records", "lines")
    assert read[-1].total() == 5  # control
    assert "for one line of the file, more or less." in outcome.words
    broken = run(
        "release",
        write(f'age,note\n{records[0]}\n51,"secret\n'),
        *asked,
        "--ledger",
        path + ".ledger",
        "--total-epsilon",
        1,
    )
    assert "is not well-formed CSV (RFC 4180)" in broken.mistake
    assert "secret" not in broken.mistake
    assert "nothing was charged so far" in run("ledger", path + ".ledger").out


@pytest.mark.parametrize("start", [b"PAR1", b"\x1f\x8b", b"\0\0", b"\xff\xfe"])
def test_without_a_header_the_first_line_is_a_record_whatever_it_holds(run, write, read, start):
    path = write(start + b"\n5\n")
    assert run("release", path, "--column", 1, *GRID, "--no-header", "--records", "lines").code == 0
    assert read == [Counter({("nan",): 1, (5.0,): 1})]


def test_a_dry_run_reads_what_is_public_only(run, write, read):
    outcomes = set()
    asked = ("--column", "age", *GRID, "--dry-run")
    for records in (LINES, ["99,south"], [], ["\0" * 10, "1,2,3,4", '"'] * 9):
        path = write("\n".join(["age,region", *records]))
        outcomes.add(
            run("release", path, *asked, "--by", "region", "--groups", "north", '"south,east"')
        )
    ((code, out, err),) = outcomes
    assert (code, err, read) == (0, "", [])
    words = " ".join(out.split())
    assert "Dry run: no record was read, and nothing was spent." in words
    assert (
        "It would cost 1-DP and 1-bounded-range under add_remove neighbors, for one "
        "record of the file, more or less." in words
    )
    assert "of 2 groups, quantile 1/2; draws of each: 1." in words
    assert words.endswith("The groups: 'north'; 'south,east'.")
    assert "released" not in out
    found = run(
        "release", path, *asked, "--by", "region", "--group-epsilon", 1, "--group-delta", 1e-8
    )
    assert "of the groups that are found, quantile 1/2" in found.words
    assert "It would cost (2, " in found.words
    for options in (("--column", "height", *GRID), ("--column", "age", *GRID, "--epsilon", 100)):
        assert run("release", path, *options, "--dry-run").mistake


def test_the_output_is_never_the_file_that_is_read(run, people, tmp_path, stdin):
    before = Path(people).read_bytes()
    os.symlink(people, tmp_path / "link.csv")
    os.link(people, tmp_path / "hard.csv")
    os.symlink(tmp_path, tmp_path / "folder")
    for name in ("release", "median"):
        asked = ("--column", "age", *GRID, "--output")
        for target in (
            people,
            tmp_path / "link.csv",
            tmp_path / "hard.csv",
            tmp_path / "folder" / "people.csv",
        ):
            assert (
                "is the input file, whose records would be lost."
                in run(name, people, *asked, target).mistake
            )
        assert "is the input file" in run(name, tmp_path / "link.csv", *asked, people).mistake
        with open(people, "rb") as file:
            stdin(file)
            assert "is the input file" in run(name, "-", *asked, people).mistake
        assert (
            f"cannot write {tmp_path}: it is a folder."
            == run(name, people, *asked, tmp_path).mistake
        )
        assert (
            "there is no such folder."
            in run(name, people, *asked, tmp_path / "no" / "found.csv").mistake
        )
    assert Path(people).read_bytes() == before


def test_dates_and_times_are_values_of_a_file(tmp_path, run):
    path = tmp_path / "days.csv"
    days = [datetime.date(2013, 1, 1) + datetime.timedelta(days=k) for k in range(101)]
    path.write_text(
        "day,when,age\n"
        + "".join(f"{day},{day}T12:30:00,{k}\n" for k, day in enumerate(days))
        + "no day,,5\n"
    )
    asked = [
        "release",
        str(path),
        "--neighbors",
        "add_remove",
        "--epsilon",
        "60",
        "--json",
        "--lower",
        "2013-01-01",
    ]
    for column, upper, resolution, value in (
        ("day", "2014-01-01", "1d", "2013-02-20"),
        ("when", "2014-01-01T00:00", "1d", "2013-02-21 00:00:00"),
    ):
        lower = [upper.replace("2014", "2013")]
        more = ["--column", column, "--upper", upper, "--resolution", resolution]
        assert released(run(*asked[:-1], *lower, *more).json["rows"]) == [value]
    path.write_text(path.read_text() + "NA,n/a,5\n")
    plan = [
        "median",
        *asked[1:],
        "--column",
        "day",
        "--upper",
        "2014-01-01",
        "--resolution",
        "1d",
        "--seed",
        "0",
    ]
    found = run(*plan).json
    assert found["not_numbers"] == {"day": 1}  # "no day": NA is missing
    assert [(row["records"], row["missing"], row["value"]) for row in found["rows"]] == [
        (103, 2, "2013-02-20")
    ]
    for wrong in (
        ["--upper", "9", "--resolution", "1d"],
        ["--upper", "2014-01-01", "--resolution", "1"],
    ):
        assert run(*asked, "--column", "day", *wrong).code == 2


def test_bytes_are_labels_that_are_written(tmp_path, run):
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    pytest.importorskip("narwhals")
    path = tmp_path / "bytes.parquet"
    table = {"g": pyarrow.array([b"a", b"\xff"] * 100, pyarrow.binary()), "x": range(200)}
    parquet.write_table(pyarrow.table(table), path)
    asked = ["release", str(path), "--column", "x", "--by", "g", "--lower", "0", "--upper", "255"]
    asked += ["--resolution", "1", "--epsilon", "1", "--neighbors", "add_remove"]
    asked += ["--group-epsilon", "60", "--group-delta", "1e-3"]
    rows = run(*asked, "--json").json["rows"]
    assert {row["g"] for row in rows} == {"b'a'", r"b'\xff'"}
    assert run(*asked, "--output", tmp_path / "out.csv").code == 0
    assert r"b'\xff'" in (tmp_path / "out.csv").read_text()
