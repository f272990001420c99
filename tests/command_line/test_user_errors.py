"""Every mistake of the user ends in one line that names it, with the exit code 2 and nothing on standard output."""

import gzip
import io

import pytest

GOOD = "g,x,y\na,1,2\nb,3,4\n"
CHOICE = {"--column": ["x"], "--lower": [0], "--upper": [10], "--neighbors": ["swap"]}


def options(changes):
    return [word for name, values in (CHOICE | changes).items() if values is not None for word in (name, *values)]


def assert_one_line(outcome, *parts):
    assert outcome.code == 2
    assert outcome.out == ""
    assert outcome.err.startswith("dpjax: error: ")
    assert outcome.err.endswith("\n")
    assert outcome.err.count("\n") == 1
    for part in parts:
        assert part in outcome.err


@pytest.mark.parametrize(
    ("content", "changes", "parts"),
    [
        ("", {}, ["data.csv is empty."]),
        ("\n\n", {}, ["data.csv is empty."]),
        ("g,x,y\n", {}, ["data.csv has a header and no records."]),
        ("g,x,x\na,1,2\n", {}, ["names the column 'x' twice in its header"]),
        ("g,x,y\na,1,2\nb,3\n", {}, ["data.csv, line 3: 2 fields where the first line has 3."]),
        ("g,x,y\na,1,2\nb,3,4,5\n", {}, ["data.csv, line 3: 4 fields where the first line has 3."]),
        ('g,x,y\n"a\nb",1,2\nc,3\n', {}, ["line 4: 2 fields"]),
        ("g,x,y\na,1,2\nb,three,4\n", {}, ["data.csv, line 3, column 'x': 'three' is not a number"]),
        ("g,x,y\na,1_000,2\n", {}, ["line 2, column 'x': '1_000' is not a number"]),
        (f"g,x,y\na,{'long' * 99},2\n", {}, [f"'{'long' * 10}' is not a number"]),
        (b"g,x,y\na,1,2\n\xe9,3,4\n", {}, ["data.csv is not UTF-8 text (byte 13): give its --encoding"]),
        (GOOD + 'c,"' + '1""' * 70_000 + '",2\n', {}, ["line 4, column 'x': '1\"1\"1"]),
        (
            "g;x;y\na;1;2\n",
            {},
            ["has no column 'x'; its columns are g;x;y. Its first line is 'g;x;y': is the --delimiter semicolon?"],
        ),
        (GOOD.encode("utf-16"), {}, ["data.csv begins as UTF-16 text does: give --encoding utf-16."]),
        (GOOD.encode("utf-16-le"), {}, ["data.csv is binary, or text in UTF-16"]),
        (b"PAR1" + bytes(100), {}, ["data.csv is a Parquet file: it must be named .parquet"]),
        (gzip.compress(GOOD.encode(), mtime=0)[:-9], {}, ["cannot read", "data.csv"]),
        (b"\x1f\x8bno gzip", {}, ["cannot read"]),
        (GOOD, {"--encoding": ["klingon"]}, ["--encoding klingon is not known"]),
        ("g;x;y\na;1,5;2\n", {"--delimiter": [";"]}, ["'1,5' is not a number; give --decimal comma."]),
        ("g,x,y\na,n/a,2\n", {}, ["'n/a' is not a number; if it means a missing value, give --missing."]),
        (GOOD, {"--column": ["z"]}, ["has no column 'z'; its columns are g, x, y."]),
        (GOOD, {"--column": ["x", "y", "x"]}, ["--column names 'x' twice."]),
        (GOOD, {"--by": ["z"]}, ["has no column 'z'; its columns are g, x, y."]),
        (GOOD, {"--column": None}, ["has 3 columns, choose some with --column: g, x, y."]),
        (GOOD, {"--lower": [10], "--upper": [0]}, ["--lower must be below --upper: got 10 and 0 for x."]),
        (GOOD, {"--lower": [5], "--upper": [5]}, ["--lower must be below --upper: got 5 and 5 for x."]),
        (GOOD, {"--lower": [0, 1]}, ["--lower has 2 values for 1 columns"]),
        (GOOD, {"--column": ["x", "y", "g"]}, ["column 'g': 'a' is not a number"]),
        (GOOD, {"--column": ["x", "y"], "--upper": [9, 9, 9]}, ["--upper has 3 values for 2 columns"]),
        (GOOD, {"--lower": ["nan"]}, ["argument --lower: must be finite, got nan"]),
        (GOOD, {"--lower": ["low"]}, ["argument --lower: must be a number, got 'low'"]),
        (GOOD, {"--lower": [1], "--upper": ["1.00000001"]}, ["lower must be below upper", "float32"]),
        (GOOD, {"--lower": ["-3e38"], "--upper": ["3e38"]}, ["to 2.03e+31 in float32"]),
        (GOOD, {"--epsilon": [0]}, ["argument --epsilon: must be finite and positive, got 0"]),
        (GOOD, {"--epsilon": [1, -2]}, ["argument --epsilon: must be finite and positive, got -2"]),
        (GOOD, {"--epsilon": ["nan"]}, ["argument --epsilon: must be finite and positive, got nan"]),
        (GOOD, {"--epsilon": ["1e-60"]}, ["epsilon must be finite and positive (in float32)"]),
        (GOOD, {"--resolution": [-1]}, ["argument --resolution: must be positive, got -1"]),
        (GOOD, {"--resolution": ["inf"]}, ["argument --resolution: must be a number or a fraction, got 'inf'"]),
        (GOOD, {"--resolution": [3]}, ["must be multiples of the resolution 3"]),
        (GOOD, {"--draws": [0]}, ["argument --draws: must be at least 1, got 0"]),
        (GOOD, {"--draws": ["1.5"]}, ["argument --draws: must be an integer, got '1.5'"]),
        (GOOD, {"--draws": [30_000_000], "--by": ["g"]}, ["30000000 draws for each of 2 rows are too many: at most 50000000"]),
        (GOOD, {"--seed": [2**32]}, ["argument --seed: must be from 0 to 4294967295, got 4294967296"]),
        (GOOD, {"--seed": [-1]}, ["argument --seed: must be from 0 to 4294967295, got -1"]),
        (GOOD, {"--neighbors": ["both"]}, ["argument --neighbors: invalid choice: 'both'"]),
        (GOOD, {"--neighbors": None}, ["the following arguments are required: --neighbors"]),
        (GOOD, {"--lower": None}, ["the following arguments are required: --lower"]),
        (GOOD, {"--mechanism": ["gauss"]}, ["argument --mechanism: invalid choice: 'gauss'", "piecewise_laplace"]),
        (GOOD, {"--definition": ["upper"]}, ["argument --definition: invalid choice: 'upper'"]),
        (GOOD, {"--delimiter": ["::"]}, ["argument --delimiter: must be one character or one of comma, "]),
        (GOOD, {"--quantile": [0.5]}, ["unrecognized arguments: --quantile 0.5"]),
        (GOOD, {"--no-header": []}, ["has no column 'x'; its columns are 1, 2, 3."]),
    ],
)
def test_a_mistake_is_one_line(run, write, content, changes, parts):
    assert_one_line(run("median", write(content), *options(changes)), *parts)


@pytest.mark.parametrize(
    ("quantile", "part"),
    [
        ("0", "argument --quantile: must be strictly between 0 and 1, got 0"),
        ("1", "argument --quantile: must be strictly between 0 and 1, got 1"),
        ("-0.5", "argument --quantile: must be strictly between 0 and 1, got -0.5"),
        ("1/0", "argument --quantile: must be a number or a fraction, got '1/0'"),
        ("nan", "argument --quantile: must be a number or a fraction, got 'nan'"),
        ("half", "argument --quantile: must be a number or a fraction, got 'half'"),
        ("0.1234567891", "q has the denominator 10000000000, too large for exact ranks"),
    ],
)
def test_a_bad_quantile(run, write, quantile, part):
    assert_one_line(run("quantile", write(GOOD), "--quantile", quantile, *options({})), part)


def test_a_quantile_must_be_given(run, write):
    assert_one_line(run("quantile", write(GOOD), *options({})), "the following arguments are required: --quantile")


def test_no_such_file(run, tmp_path):
    missing = tmp_path / "nowhere.csv"
    assert_one_line(run("median", missing, *options({})), f"cannot read {missing}: No such file or directory.")
    assert_one_line(run("median", tmp_path, *options({})), f"cannot read {tmp_path}: ")
    assert_one_line(run("median", "bad\0name", *options({})), "cannot read ")


def test_mistakes_in_standard_input_name_it(run, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"x\n1\ntwo\n")))
    assert_one_line(run("median", "-", *options({})), "standard input, line 3, column 'x': 'two' is not a number")


def test_no_command_or_an_unknown_one(run):
    assert_one_line(run(), "the following arguments are required: COMMAND")
    assert_one_line(run("mean"), "invalid choice: 'mean'", "median")


def test_a_sweep_that_would_not_fit(run, write, monkeypatch):
    monkeypatch.setattr("dpjax.command_line.estimate.LARGEST", 5)
    assert_one_line(
        run("median", write(GOOD), *options({"--epsilon": [1, 2, 3]})), "3 epsilons are too many for a table of this size"
    )


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (("--datasets", 1), "argument --datasets: must be at least 2, got 1"),
        (("--points", 0), "argument --points: must be at least 1, got 0"),
        (("--datasets", 10**5, "--points", 10**5), "100000 datasets of 100000 points are too many"),
        (("--lower", 1, "--upper", -1), "--lower must be below --upper: got 1 and -1"),
        (("--lower", 1, "--upper", 1.00000001, "--datasets", 2, "--points", 3), "lower must be below upper"),
        (("--epsilon", 0), "argument --epsilon: must be finite and positive, got 0"),
    ],
)
def test_mistakes_in_the_demo(run, arguments, part):
    assert_one_line(run("demo", *arguments), part)
