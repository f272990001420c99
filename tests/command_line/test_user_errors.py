"""Every mistake of the user ends in one line that names it, with the exit code 2 and nothing on
standard output.
"""

import gzip
import io
import os

import pytest

GOOD = "g,x,y\na,1,2\nb,3,4\n"
CHOICE = {
    "--column": ["x"],
    "--lower": [0],
    "--upper": [10],
    "--resolution": [1],
    "--neighbors": ["swap"],
}


def options(changes):
    return [
        word
        for name, values in (CHOICE | changes).items()
        if values is not None
        for word in (name, *values)
    ]


@pytest.mark.parametrize(
    ("content", "changes", "words"),
    [
        ("", {}, "data.csv is empty."),
        ("\n\n", {}, "data.csv is empty."),
        ("g,x,x\na,1,2\n", {}, "names 'x' twice."),
        (
            "g,x,y\na,1,2\nb,3\n",
            {},
            "data.csv is not well-formed CSV (RFC 4180) in this encoding, with as many cells in "
            "each record",
        ),
        ("g,x,y\na,1,2\nb,3,4,5\n", {}, "is not well-formed CSV"),
        (b"g,x,y\na,1,2\n\xe9,3,4\n", {}, "is not well-formed CSV (RFC 4180) in this encoding"),
        (
            b"\xe9,x,y\na,1,2\n",
            {"--column": ["z"]},
            "data.csv is not UTF-8 text (in its first line): give its --encoding",
        ),
        (
            "g;x;y\na;1;2\n",
            {},
            "its columns are g;x;y. Its first line is 'g;x;y': is the --delimiter semicolon?",
        ),
        (
            GOOD.encode("utf-16"),
            {},
            "data.csv begins with a byte order mark of UTF-16: give --encoding utf-16.",
        ),
        (GOOD.encode("utf-16-le"), {}, "is not UTF-8 text (in its first line)"),
        (b"PAR1" + bytes(100), {}, "data.csv is a Parquet file: it must be named .parquet"),
        (b"\x7fELF\0\0\0\n", {}, "is not UTF-8 text (in its first line)"),
        (gzip.compress(GOOD.encode(), mtime=0)[:-9], {}, "it is not a complete gzip file."),
        (b"\x1f\x8bno gzip", {}, "it is not a complete gzip file."),
        (
            GOOD,
            {"--encoding": ["klingon"]},
            "--encoding must be one of utf-8, ascii",
        ),
        (
            GOOD,
            {"--encoding": ["unicode_escape"]},
            "got unicode_escape: or convert the file to UTF-8",
        ),
        (GOOD, {"--encoding": ["hex"]}, "got hex: or convert the file to UTF-8"),
        (GOOD, {"--column": ["z"]}, "has no column 'z'; its columns are g, x, y."),
        (GOOD, {"--column": ["x", "y", "x"]}, "--column names 'x' twice."),
        (
            GOOD,
            {"--by": ["z"], "--groups": ["a"], "--neighbors": ["add_remove"]},
            "has no column 'z'; its columns are g, x, y.",
        ),
        (
            GOOD,
            {"--by": ["x"], "--groups": ["1"], "--neighbors": ["add_remove"]},
            "'x' cannot hold both numbers and labels.",
        ),
        (GOOD, {"--unit": ["z"]}, "has no column 'z'; its columns are g, x, y."),
        (GOOD, {"--unit": ["x"]}, "the column 'x' cannot hold both numbers and labels."),
        (
            GOOD,
            {"--by": ["g"], "--groups": ["a"]},
            "--by needs --neighbors add_remove: a replaced record can move",
        ),
        (GOOD, {"--groups": ["a"]}, "--groups needs --by, the column of the group labels."),
        (
            GOOD,
            {"--per-unit": ["max"]},
            "--per-unit and --max-groups need --unit, the column that names the person.",
        ),
        (GOOD, {"--max-groups": [2]}, "--per-unit and --max-groups need --unit"),
        (
            GOOD,
            {"--unit": ["g"], "--max-groups": [2]},
            "--max-groups needs --by: without groups a person counts once.",
        ),
        (
            GOOD,
            {"--unit": ["g"], "--per-unit": ["sum"], "--lower": [2**31], "--upper": [2**31 + 9]},
            "--per-unit sum needs bounds within 2^31 multiples",
        ),
        (
            GOOD,
            {"--lower": [10], "--upper": [0]},
            "--lower must be below --upper: got 10 and 0 for x.",
        ),
        (
            GOOD,
            {"--lower": [5], "--upper": [5]},
            "--lower must be below --upper: got 5 and 5 for x.",
        ),
        (GOOD, {"--lower": [0, 1]}, "--lower has 2 values for 1 columns"),
        (
            GOOD,
            {"--column": ["x", "y"], "--upper": [9, 9, 9]},
            "--upper has 3 values for 2 columns",
        ),
        (GOOD, {"--resolution": [1, 2]}, "--resolution has 2 values for 1 columns"),
        (GOOD, {"--lower": ["nan"]}, "argument --lower: must be finite, got nan"),
        (GOOD, {"--lower": ["low"]}, "argument --lower: must be a number, got 'low'"),
        (GOOD, {"--upper": ["10.5"]}, "must be multiples of the resolution 1, got 10.5"),
        (GOOD, {"--lower": ["0.5"]}, "must be multiples of the resolution 1, got 0.5"),
        (GOOD, {"--resolution": [3]}, "must be multiples of the resolution 3"),
        (GOOD, {"--resolution": [-1]}, "argument --resolution: must be positive, got -1"),
        (
            GOOD,
            {"--resolution": ["inf"]},
            "argument --resolution: must be a number or a fraction, got 'inf'",
        ),
        (GOOD, {"--epsilon": [0]}, "argument --epsilon: must be finite and positive, got 0"),
        (GOOD, {"--epsilon": [-2]}, "argument --epsilon: must be finite and positive, got -2"),
        (GOOD, {"--epsilon": ["nan"]}, "argument --epsilon: must be finite and positive, got nan"),
        (GOOD, {"--epsilon": ["1e-60"]}, "epsilon must be from 2^-30 to 64, got 1e-60"),
        (GOOD, {"--epsilon": [100]}, "epsilon must be from 2^-30 to 64, got 100"),
        (GOOD, {"--draws": [0]}, "argument --draws: must be at least 1, got 0"),
        (GOOD, {"--draws": ["1.5"]}, "argument --draws: must be an integer, got '1.5'"),
        (
            GOOD,
            {"--draws": [30_000_000], "--column": ["x", "y"]},
            "30000000 draws of each row are too many: at most 50000000",
        ),
        (GOOD, {"--neighbors": ["both"]}, "argument --neighbors: invalid choice: 'both'"),
        (GOOD, {"--neighbors": None}, "the following arguments are required: --neighbors"),
        (GOOD, {"--lower": None}, "the following arguments are required: --lower"),
        (GOOD, {"--mechanism": ["gauss"]}, "argument --mechanism: invalid choice: 'gauss'"),
        (GOOD, {"--definition": ["upper"]}, "argument --definition: invalid choice: 'upper'"),
        (
            GOOD,
            {"--delimiter": ["::"]},
            "argument --delimiter: must be one character or one of comma, ",
        ),
        (GOOD, {"--no-header": []}, "with --no-header columns are named 1, 2, 3, ...; got 'x'."),
        (GOOD, {"--missing": None, "--json": ["more"]}, "unrecognized arguments: more (see dpjax "),
    ],
)
@pytest.mark.parametrize("command", ["median", "release"])
def test_a_mistake_is_one_line(run, write, command, content, changes, words):
    assert words in run(command, write(content), *options(changes)).mistake


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"--column": None}, "has 3 columns, choose some with --column: g, x, y."),
        ({"--epsilon": [1, -2]}, "argument --epsilon: must be finite and positive, got -2"),
        ({"--seed": [2**32]}, "argument --seed: must be from 0 to 4294967295, got 4294967296"),
        ({"--seed": [-1]}, "argument --seed: must be from 0 to 4294967295, got -1"),
        ({"--quantile": [0.5]}, "unrecognized arguments: --quantile 0.5"),
        (
            {"--draws": [9], "--epsilon": range(1, 9), "--mechanism": ["laplace"]},
            "9 draws of each row are too many: at most 50 in all.",
        ),
    ],
)
def test_a_mistake_in_a_simulation(run, write, monkeypatch, changes, words):
    monkeypatch.setattr("dpjax.command_line.arguments.LARGEST", 50)
    assert words in run("median", write(GOOD), *options(changes)).mistake


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"--lower": [1], "--upper": ["1.00000001"]}, "lower must be below upper"),
        ({"--lower": ["-3e38"], "--upper": ["3e38"]}, "to 2.03e+31 in float32"),
        ({"--epsilon": ["1e-60"]}, "epsilon must be finite and positive (in float32)"),
        ({"--unit": ["g"]}, "--unit needs a statistic with a resolution, as a release does."),
    ],
)
def test_a_mistake_without_a_resolution(run, write, changes, words):
    assert words in run("median", write(GOOD), *options(changes | {"--resolution": None})).mistake


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"--resolution": None}, "the following arguments are required: --resolution"),
        (
            {"--epsilon": [0.5, 1]},
            "a release takes one --epsilon; dpjax median and dpjax quantile, which simulate, take "
            "several.",
        ),
        ({"--epsilon": [0.5, 1], "--seed": [1]}, "a release takes one --epsilon; dpjax median"),
        (
            {"--mechanism": ["inverse_sensitivity", "permute_and_flip"]},
            "a release takes one --mechanism; dpjax median",
        ),
        ({"--mechanism": ["laplace"]}, "argument --mechanism: invalid choice: 'laplace'"),
        ({"--by": ["g"]}, "--by needs --groups, public labels that are not read from the file"),
        (
            {"--by": ["g"], "--groups": ["a"], "--group-epsilon": [1], "--group-delta": [0.1]},
            "--groups cannot be given with --group-epsilon",
        ),
        (
            {"--by": ["g"], "--group-epsilon": [1]},
            "--group-epsilon and --group-delta must be given together.",
        ),
        ({"--by": ["g"], "--group-epsilon": [1], "--group-delta": [2]}, "delta"),
        (
            {"--by": ["g", "y"], "--groups": ["a"]},
            "--groups must have 2 labels separated by commas for 2 columns, got a.",
        ),
        (
            {"--by": ["g"], "--groups": ["a,b"]},
            "--groups takes labels separated by blanks, and 'a,b' has a comma",
        ),
        (
            {"--quantile": [0.1, 0.2], "--mechanism": ["permute_and_flip"]},
            "which are drawn jointly",
        ),
        ({"--quantile": [0.1, 0.2]}, "must not depend on the number of records in the file"),
        (
            {"--max-records": [100]},
            "must be given for several quantiles with a resolution under add_remove",
        ),
        ({"--total-epsilon": [1]}, "--total-epsilon and --total-delta need --ledger."),
        (
            {"--total-delta": [0.1], "--ledger": ["people.ledger"]},
            "--total-delta needs --total-epsilon.",
        ),
    ],
)
@pytest.mark.parametrize("dry", [(), ("--dry-run",)])
def test_a_mistake_in_a_release(run, write, changes, words, dry):
    assert (
        words
        in run(
            "release", write(GOOD), *options({"--neighbors": ["add_remove"]} | changes), *dry
        ).mistake
    )


@pytest.mark.parametrize(
    ("quantile", "words"),
    [
        ("0", "argument --quantile: must be strictly between 0 and 1, got 0"),
        ("1", "argument --quantile: must be strictly between 0 and 1, got 1"),
        ("-0.5", "argument --quantile: must be strictly between 0 and 1, got -0.5"),
        ("1/0", "argument --quantile: must be a number or a fraction, got '1/0'"),
        ("nan", "argument --quantile: must be a number or a fraction, got 'nan'"),
        ("half", "argument --quantile: must be a number or a fraction, got 'half'"),
        ("0.1234567891", "q has the denominator 10000000000, too large for exact ranks"),
        (None, "the following arguments are required: --quantile"),
    ],
)
def test_a_bad_quantile(run, write, quantile, words):
    given = () if quantile is None else ("--quantile", quantile)
    assert words in run("quantile", write(GOOD), *given, *options({})).mistake


@pytest.mark.parametrize("command", ["median", "release"])
def test_files_that_cannot_be_read(run, tmp_path, command):
    missing = tmp_path / "nowhere.csv"
    assert (
        run(command, missing, *options({})).mistake
        == f"cannot read {missing}: No such file or directory."
    )
    assert run(command, missing, *options({}), "--output", tmp_path / "x").mistake.startswith(
        f"cannot read {missing}: No such"
    )
    assert (
        run(command, tmp_path, *options({})).mistake == f"cannot read {tmp_path}: Is a directory."
    )
    assert "no file can have this name" in run(command, "bad\0name", *options({})).mistake


@pytest.mark.parametrize("engine", ["polars", "duckdb", "pyarrow"])
@pytest.mark.parametrize("command", ["median", "release"])
def test_parquet_files_that_cannot_be_read(run, tmp_path, monkeypatch, command, engine):
    polars = pytest.importorskip("polars")
    for module in ("narwhals", engine):
        pytest.importorskip(module)
    import importlib.util

    find = importlib.util.find_spec
    later = ["polars", "duckdb", "pyarrow"][: ["polars", "duckdb", "pyarrow"].index(engine)]
    monkeypatch.setattr(
        "importlib.util.find_spec", lambda name, *more: None if name in later else find(name, *more)
    )
    path, days = (
        tmp_path / "people[1].parquet",
        polars.date_range(polars.date(2020, 1, 1), polars.date(2020, 1, 3), eager=True),
    )
    polars.DataFrame({"g": ["a", "b", None], "x": [1, 2, 3], "day": days}).write_parquet(path)
    good = path.read_bytes()
    assert run(command, path, *options({})).code == 0
    for words, changes in {
        "has no column 'z'; its columns are g, x, day.": {"--column": ["z"]},
        "people[1].parquet has no column 'z'; its columns are": {
            "--by": ["z"],
            "--groups": ["a"],
            "--neighbors": ["add_remove"],
        },
        "column 'g' must have a dtype of numbers": {"--column": ["g"]},
        "column 'day' has dates or times: --lower and --upper must be "
        "such, and --resolution a duration such as 1d.": {"--column": ["day"]},
        "column 'x' cannot hold both numbers and labels.": {"--unit": ["x"]},
        "--missing is for delimited text, and ": {"--missing": ["-999"]},
        "--no-header is for delimited text, and ": {"--no-header": []},
        "--records is for delimited text, and ": {"--records": ["lines"]},
    }.items():
        for dry in [(), ("--dry-run",)][: 1 + (command == "release")]:
            assert words in run(command, path, *options(changes), *dry).mistake
    for content in (
        b"",
        b"x\n1\n",
        good[:20],
        good[: len(good) // 2],
        b"PAR1" + bytes(99) + b"PAR1",
        good[:-30] + b"\xff" * 22 + good[-8:],
    ):
        path.write_bytes(content)
        mistake = run(command, path, *options({})).mistake
        assert mistake in (
            f"{path} is not a Parquet file.",
            f"cannot read {path}: it is a broken Parquet file, or has unsupported contents.",
        )
    os.mkdir(tmp_path / "folder.parquet")
    assert "Is a directory." in run(command, tmp_path / "folder.parquet", *options({})).mistake
    assert "No such file" in run(command, tmp_path / "none.pq", *options({})).mistake


def test_parquet_without_an_engine(run, write, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert run("median", write("PAR1", "x.parquet"), *options({})).mistake == (
        "Parquet needs Polars, DuckDB or PyArrow: pip install polars."
    )


def test_mistakes_in_standard_input_name_it(run, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"x\n1\ntwo,2\n")))
    assert run("median", "-", *options({})).mistake.startswith(
        "standard input is not well-formed CSV"
    )


def test_no_command_or_an_unknown_one(run):
    assert "the following arguments are required: COMMAND" in run().mistake
    assert "invalid choice: 'mean'" in run("mean").mistake
    assert (
        "unrecognized arguments: --fast (see dpjax ledger --help)"
        in run("ledger", "file", "--fast").mistake
    )


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--datasets", 1), "argument --datasets: must be at least 2, got 1"),
        (("--points", 0), "argument --points: must be at least 1, got 0"),
        (("--datasets", 10**5, "--points", 10**5), "100000 datasets of 100000 points are too many"),
        (("--lower", 1, "--upper", -1), "--lower must be below --upper: got 1 and -1"),
        (
            ("--lower", 1, "--upper", 1.00000001, "--datasets", 2, "--points", 3),
            "lower must be below upper",
        ),
        (("--epsilon", 0), "argument --epsilon: must be finite and positive, got 0"),
    ],
)
def test_mistakes_in_the_demo(run, arguments, words):
    assert words in run("demo", *arguments).mistake
