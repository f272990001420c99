"""Releases and simulations of files, as a user calls them."""

import csv
import io

import polars as pl
import pytest

from dpjax import frames, release

PUBLIC = {"column": "x", "lower": 0, "upper": 9, "resolution": 1, "neighbors": "add_remove"}
ALL = PUBLIC | {"epsilon": 60}  # draws equal the statistic, but with a probability below 1e-6


@pytest.fixture
def rows(run):
    """The rows of a release or a simulation."""
    return lambda *words, **options: run(*words, **options, format="json").json["rows"]


@pytest.fixture
def data(write):
    groups = {"a": [1, 2, 2, 3], "b": [7, 8, 8], "c": [5]}
    lines = [f"w{k},{name},{x}\n" for name in groups for k, x in enumerate(groups[name])]
    return write("who,g,x\n" + "".join(lines[::-1]))


def test_a_release_is_that_of_the_library(rows, data):
    found = rows(
        "release", data, **ALL, by="g", groups=["b", "z", "a"], statistic=["Median", "Count"]
    )
    assert [(row["g"], row["statistic"]) for row in found] == [
        (g, kind) for kind in ("Median", "Count") for g in "bza"
    ]
    assert [row["released"] for row in found if row["g"] != "z"] == [8, 2, 3, 4]
    options = {"epsilon": 0.5, "neighbors": "add_remove", "by": "g", "draws": 3}
    asked = PUBLIC | options | {"statistic": ["Sum", "Quantiles"], "qs": [0.25, 0.5]}
    simulated = rows("simulate", data, **asked, seed=7)
    both = [release.Sum(0, 9, 1), release.Quantiles((0.25, 0.5), 0, 9, 1)]
    expected = frames.simulate(7, pl.read_csv(data), {"x": both}, **options)
    assert simulated == expected.rows.to_dicts() != rows("simulate", data, **asked, seed=8)


def test_statistics_and_their_options(rows, data):
    for options, value in (
        ({"statistic": "Quantile", "q": "3/4"}, 7),
        ({"unit": "who", "per_unit": "count"}, 2),
        ({"statistic": "Mode", "candidates": [2, 5, 7], "lower": None, "upper": None}, 2),
        ({"statistic": "DistinctCount", "column": "who", "tau": 1, "lower": None}, 3),
        ({"statistic": "Count", "column": "g", "upper": None, "lower": None}, 8),
        ({"definition": "linear", "upper": "1e1"}, 4),
    ):
        if "lower" in options:
            options["resolution"] = None
        assert [row["released"] for row in rows("release", data, **ALL | options)] == [value]


MISTAKES = [
    ({"epsilon": None}, "--epsilon"),
    ({"draws": 10**15}, ""),  # of which no memory can hold the values
    ({"statistic": "Quantile"}, "Quantile needs --q."),
    ({"tau": 3}, "--tau is no option of Median."),
    ({"by": ["g", "who"], "groups": ["a"]}, "--groups"),
    ({"by": "g", "groups": ["a"], "group_epsilon": 1}, "--groups"),
    ({"by": "g", "group_epsilon": 1}, "--group-delta"),
    ({"by": "g", "groups": ["a"], "neighbors": "swap"}, "by needs --neighbors 'add_remove'"),
    ({"seed": 1}, "--seed"),
    ({"decimal": "point", "thousands": "."}, "--thousands"),
    ({"date_format": "%Q"}, "directive"),
    ({"format": "xml"}, "--format"),
]


@pytest.mark.parametrize(("changes", "word"), MISTAKES)
def test_a_mistake_is_one_line(run, data, changes, word):
    assert word in run("release", data, **PUBLIC | {"epsilon": 1} | changes).mistake


@pytest.mark.parametrize(
    ("name", "content", "word"),
    [
        ("year=2024.csv", "g,x\na,1\nb\n", "year=2024.csv is not well-formed CSV"),
        ("a.csv", "", "one column 'x'"),
        ("a.csv", "g;x\na;1\n", "--delimiter"),
        ("a.parquet", b"PAR1" + bytes(100) + b"PAR1", "complete"),
    ],
)
@pytest.mark.parametrize("command", ["release", "simulate"])
def test_a_file_that_cannot_be_read_is_one_line(run, write, command, name, content, word):
    assert word in run(command, write(content, name), **PUBLIC, epsilon=1).mistake
    assert "No such file" in run(command, "year=2024/no.csv", **PUBLIC, epsilon=1).mistake


HOSTILE = (
    *(",", "a,", ",1", "zz,1", "a,1e999", "a,-inf", "a,nan", "a,x", "a,1_0", "a,\u0661"),
    *('"a\nb",2', '"a",""""', f"{'y' * 300},{'9' * 400}", "a,2024-01-31", "a,\x00", "\ufeffa,1"),
    *("a,0001-01-01T00:00+14:00", "a,99999999d", "a,9999-12-31T23:59:59-14:00", "\ud800,1"),
)
TYPES = ({}, {"lower": "2024-01-01", "upper": "2024-01-09", "resolution": "1d"})
TYPES += ({"lower": "2024-01-01T00:00Z", "upper": "2024-01-02T00:00Z", "resolution": "1h"},)
TYPES += ({"lower": "0d", "upper": "2d", "resolution": "1h"},)
TYPES += ({"statistic": "Count", "lower": None, "upper": None, "resolution": None},)


def shape(done):
    """What is not drawn: the exit code, standard error, and the answer without values."""
    rows = list(csv.reader(io.StringIO(done.out)))
    return done.code, done.err, [rows[0], *(row[:-2] for row in rows[1:])]


@pytest.mark.parametrize("options", TYPES)
def test_a_line_more_changes_nothing_but_the_draws(run, write, options):
    header, two = ["who,g,x"], ["w,a,1", "v,b,2"]
    options = PUBLIC | {"epsilon": 1, "format": "csv"} | options
    by_person = {"by": "g", "groups": ["a", "b"], "unit": "who"}
    for more, others in (({}, []), (by_person, two), ({"lines": []}, two)):
        known = shape(run("release", write("\n".join([*header, *others])), **options, **more))
        assert known[:2] == (0, "")
        for line in HOSTILE:
            lines = [*header, *others[:1], f"u,{line}", *others[1:]]
            path = write("\n".join(lines).encode(errors="surrogatepass"))
            assert shape(run("release", path, **options, **more)) == known, line


@pytest.mark.parametrize("options", TYPES[:-1])
def test_another_line_changes_nothing_but_the_draws_under_swap(run, write, options):
    options = PUBLIC | {"epsilon": 1, "format": "csv", "neighbors": "swap"} | options
    for more in ({"unit": "who"}, {"lines": []}):
        found = []
        for line in ("a,1", *HOSTILE):
            path = write(f"who,g,x\nv,b,2\nu,{line}\nw,b,3".encode(errors="surrogatepass"))
            found.append(shape(run("release", path, **options, **more)))
        assert found == [(0, "", found[0][2])] * len(found)


def test_control_a_simulation_shows_that_no_cell_can_be_read(run, write):
    path = write('x,y\n00:12:30,1\n,2\n"1,234",3\n')
    options = PUBLIC | {"epsilon": 1, "upper": 2000}
    done = run("simulate", path, **options)
    assert done.code == 0
    first, header, row, *_ = done.out.splitlines()
    assert first.startswith("no cell of x is a number, such as '00:12:30': see --thousands")
    cells = dict(zip(header.split(), row.split(), strict=False))
    assert cells["records"] == "0"
    for more in ({}, {"ledger": path + ".ledger", "total_epsilon": 9}, {"format": "json"}):
        assert "no cell" not in "".join(run("release", path, **options, **more)[1:])
    assert run("simulate", path, **options | {"thousands": "comma"}).out.startswith("column")


def test_marks_times_and_durations(rows, write):
    path = write('x;y;z\n"$32,458";31/01/2024 1:20;00:12:30\n12.3 %;31/01/2024 1:20;00:12:30\n')
    shared = {"epsilon": 60, "neighbors": "swap", "delimiter": "semicolon"}
    number = {"column": "x", "strip": "$ %", "thousands": "comma", "resolution": 0.1}
    number |= {"lower": "-1e6", "upper": "1e6"}
    time = {"column": "y", "date_format": "%d/%m/%Y %H:%M", "resolution": "10min"}
    time |= {"lower": "2024-01-31 00:00Z", "upper": "2024-02-01 00:00Z"}
    length = {"column": "z", "lower": "00:00:00", "upper": "1d", "resolution": "30s"}
    found = [
        row["value"]
        for options in (number, time, length)
        for row in rows("simulate", path, **shared, **options)
    ]
    assert found == [12.3, "2024-01-31 01:20:00+00:00", "0:12:30"]


@pytest.mark.parametrize(
    ("options", "content"),
    [
        ({"delimiter": "space"}, "y   x\n0  3.25\n"),
        ({"decimal": "comma"}, 'x\n"3,25"\n'),
        ({"missing": ["no", "-1"]}, "x\n-1\n3.25\n no\n-1\n"),
        ({"encoding": "latin-1", "column": "\xe9"}, "\xe9\n3.25\n"),
        ({"no_header": [], "column": 2}, "0,3.25\n"),
        ({"lines": []}, 'y,x\n",3.25\n'),
    ],
)
def test_options_of_files_of_text(run, rows, write, options, content):
    path = write(content.encode("latin-1"))
    shared = PUBLIC | {"resolution": 0.25, "epsilon": 60}
    assert [row["value"] for row in rows("simulate", path, **shared | options)] == [3.25]
    assert "3.25" not in run("simulate", path, **shared, format="csv").out  # the control


def test_lists_may_be_given_in_parts_and_labels_may_begin_with_a_dash(rows, write):
    path = write("g,x,y\n-low,2,na\n-high,,7\n-high,7,-\n-high,8,8\n")
    words = ["--column=y", "--groups=-low", "--groups=-high", "--missing=na", "--missing=-"]
    words += ["--candidates", 2, "--candidates", 7, 8, "--statistic=Mode", "--statistic=Count"]
    absent = {"lower": None, "upper": None, "resolution": None}
    found = rows("release", path, *words, **ALL | absent, by="g")
    assert [row["released"] for row in found if row["statistic"] == "Count"] == [0, 2, 1, 2]
    assert len(found) == 8


def test_parquet(rows, run, tmp_path):
    """Labels are texts in a command, and values of their column; names are no patterns."""
    path = tmp_path / "a[1].parquet"
    labels = {"i": [1, 2], "t": [True, False], "d": [20, 30], "s": ["1", "2"], "f": [0.5, 1.5]}
    frame = pl.DataFrame(labels | {"x ": [3, 4]}).with_columns(pl.col("d").cast(pl.Date))
    frame = frame.with_columns(c=pl.col("s").cast(pl.Categorical))
    pl.concat([frame] * 9).write_parquet(path)
    options = ALL | {"column": "x "}
    one = {"i": "2", "t": "false", "d": "1970-01-31", "s": "2", "f": "1.5", "c": "2"}
    for name, text in one.items():
        found = rows("release", path, **options, by=name, groups=[text])
        assert [row["released"] for row in found] == [4]
    assert "no group is 'x'" in run("release", path, **options, by="i", groups=["x"]).mistake
    assert "one column 'z'" in run("release", path, **options | {"column": "z"}).mistake
    for option in ("--missing=3", "--no-header", "--decimal=comma"):
        assert "is Parquet" in run("release", path, option, **options).mistake
