"""Every mistake of the user ends in one line that names it, with the exit code 2 and nothing on
standard output.
"""

import gzip
import importlib.util
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
ADDED = {"--neighbors": ["add_remove"]}
BY = ADDED | {"--by": ["g"]}


def options(changes):
    return [
        word
        for name, values in (CHOICE | changes).items()
        if values is not None
        for word in (name, *values)
    ]


FILES = [
    ("", "empty"),
    ("g,x,x\na,1,2\n", "twice"),
    ("g,x,y\na,1,2\nb,3\n", "CSV"),
    (b"g,x,y\na,1,2\n\xe9,3,4\n", "encoding"),
    ("g;x;y\na;1;2\n", "--delimiter semicolon"),
    (GOOD.encode("utf-16"), "--encoding utf-16"),
    (b"PAR1" + bytes(100), ".parquet"),
    (gzip.compress(GOOD.encode(), mtime=0)[:-9], "gzip"),
]


@pytest.mark.parametrize(("content", "word"), FILES)
@pytest.mark.parametrize("command", ["median", "release"])
def test_a_file_that_cannot_be_read_is_one_line(run, write, command, content, word):
    assert word in run(command, write(content), *options({})).mistake


MISTAKES = [
    ({"--encoding": ["klingon"]}, "--encoding"),
    ({"--column": ["z"]}, "no column 'z'"),
    ({"--column": ["x", "y", "x"]}, "twice"),
    (ADDED | {"--by": ["x"], "--groups": ["1"]}, "both numbers and labels"),
    ({"--unit": ["x"]}, "both numbers and labels"),
    ({"--by": ["g"], "--groups": ["a"]}, "--neighbors add_remove"),
    ({"--groups": ["a"]}, "--by"),
    ({"--max-groups": [2]}, "--unit"),
    ({"--unit": ["g"], "--max-groups": [2]}, "--by"),
    ({"--lower": [10], "--upper": [0]}, "--lower"),
    ({"--lower": [0, 1]}, "--lower"),
    ({"--lower": ["low"]}, "--lower"),
    ({"--lower": ["0.5"]}, "resolution"),
    ({"--epsilon": [0]}, "--epsilon"),
    ({"--epsilon": ["1e-60"]}, "epsilon"),
    ({"--draws": [30_000_000], "--column": ["x", "y"]}, "draws"),
    ({"--neighbors": None}, "--neighbors"),
    ({"--mechanism": ["gauss"]}, "--mechanism"),
    ({"--no-header": []}, "--no-header"),
]


@pytest.mark.parametrize(("changes", "word"), MISTAKES)
def test_a_mistake_is_one_line(run, write, changes, word):
    assert word in run("release", write(GOOD), *options(changes)).mistake


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"--column": None}, "--column"),
        ({"--seed": [-1]}, "--seed"),
        ({"--quantile": [0.5]}, "--quantile"),
        ({"--draws": [9_000_000], "--epsilon": range(1, 9)}, "draws"),
        ({"--resolution": None, "--lower": ["-3e38"], "--upper": ["3e38"]}, "float32"),
        ({"--resolution": None, "--unit": ["g"]}, "--unit"),
    ],
)
def test_a_mistake_in_a_simulation(run, write, changes, word):
    assert word in run("median", write(GOOD), *options(changes)).mistake


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"--resolution": None}, "--resolution"),
        ({"--epsilon": [0.5, 1]}, "one --epsilon"),
        ({"--mechanism": ["laplace"]}, "--mechanism"),
        (BY, "--groups"),  # which are not read from the file
        (BY | {"--groups": ["a"], "--group-epsilon": [1], "--group-delta": [0.1]}, "--groups"),
        (BY | {"--group-epsilon": [1]}, "--group-delta"),
        (BY | {"--by": ["g", "y"], "--groups": ["a"]}, "--groups"),
        ({"--quantile": [0.1, 0.2]}, "must not depend on the number of records"),
        ({"--quantile": ["0.1234567891"]}, "denominator"),
        ({"--total-epsilon": [1]}, "--ledger"),
    ],
)
@pytest.mark.parametrize("dry", [(), ("--dry-run",)])
def test_a_mistake_in_a_release(run, write, changes, word, dry):
    assert word in run("release", write(GOOD), *options(ADDED | changes), *dry).mistake


@pytest.mark.parametrize("command", ["median", "release"])
def test_files_that_cannot_be_opened(run, tmp_path, command):
    for missing in (tmp_path / "nowhere.csv", tmp_path, "bad\0name"):
        assert run(command, missing, *options({}), "--output", tmp_path / "x").mistake


@pytest.fixture
def installed(monkeypatch):
    """Let these packages be the only ones that read Parquet files."""
    find = importlib.util.find_spec

    def installed(*names):
        gone = {"polars", "duckdb", "pyarrow"} - set(names)
        hiding = lambda name, *more: None if name in gone else find(name, *more)  # noqa: E731
        monkeypatch.setattr("importlib.util.find_spec", hiding)

    return installed


@pytest.mark.parametrize("engine", ["polars", "duckdb", "pyarrow"])
@pytest.mark.parametrize("command", ["median", "release"])
def test_parquet_files_that_cannot_be_read(run, tmp_path, installed, command, engine):
    polars = pytest.importorskip("polars")
    for module in ("narwhals", engine):
        pytest.importorskip(module)
    installed(engine)
    path, days = (
        tmp_path / "people[1].parquet",
        polars.date_range(polars.date(2020, 1, 1), polars.date(2020, 1, 3), eager=True),
    )
    polars.DataFrame({"g": ["a", "b", None], "x": [1, 2, 3], "day": days}).write_parquet(path)
    good = path.read_bytes()
    assert run(command, path, *options({})).code == 0
    for words, changes in {
        "no column 'z'": {"--column": ["z"]},
        "dtype of numbers": {"--column": ["g"]},
        "dates or times": {"--column": ["day"]},
        "both numbers and labels": {"--unit": ["x"]},
        "--missing": {"--missing": ["-999"]},
        "--no-header": {"--no-header": []},
        "--records": {"--records": ["lines"]},
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
        # Nothing of what an engine says, which may show a record
        assert run(command, path, *options({})).mistake in (
            f"{path} is not a Parquet file.",
            f"cannot read {path}: it is a broken Parquet file, or has unsupported contents.",
        )
    os.mkdir(tmp_path / "folder.parquet")
    assert run(command, tmp_path / "folder.parquet", *options({})).mistake
    assert run(command, tmp_path / "none.pq", *options({})).mistake


def test_parquet_without_an_engine(run, write, installed):
    installed()
    assert "Parquet needs" in run("median", write("PAR1", "x.parquet"), *options({})).mistake


def test_mistakes_in_standard_input_name_it(run, stdin):
    stdin(b"x\n1\ntwo,2\n")
    assert run("median", "-", *options({})).mistake.startswith("standard input")


@pytest.mark.parametrize(
    ("words", "named"),
    [
        ((), "COMMAND"),
        (("mean",), "mean"),
        (("ledger", "file", "--fast"), "--fast"),
        (("demo", "--datasets", 1), "--datasets"),
        (("demo", "--datasets", 10**5, "--points", 10**5), "too many"),
        (("demo", "--lower", 1, "--upper", -1), "--lower"),
    ],
)
def test_mistakes_in_other_commands(run, words, named):
    assert named in run(*words).mistake
