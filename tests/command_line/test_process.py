"""The command line as its own process."""

import os
import subprocess
import sys

import pytest

from dpjax.accounting import Ledger

BOUNDS = ("--lower", "0", "--upper", "10", "--resolution", "1", "--neighbors", "add_remove")


def dpjax(*arguments, **options):
    return subprocess.run(
        [sys.executable, "-m", "dpjax", *arguments],
        capture_output=True,
        check=False,
        timeout=300,
        encoding="utf-8",
        **options,
    )


def test_standard_input_and_a_label_that_the_terminal_cannot_show():
    ascii_only = os.environ | {"PYTHONIOENCODING": "ascii"}
    done = dpjax(
        "median",
        "-",
        "--column",
        "x",
        "--by",
        "g",
        *BOUNDS,
        input="g,x\n\N{GREEK SMALL LETTER ALPHA},1\n",
        env=ascii_only,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "\n\\u03b1" in done.stdout


def test_a_mistake_has_no_traceback():
    done = dpjax("release", "-", "--column", "y", *BOUNDS, input="x\n1\ntwo\n")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "dpjax: error: standard input has no column 'y'; its columns are x.\n"


def test_a_reader_that_goes_away(ten):
    """Also a table that is longer than the buffer of a pipe."""
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "dpjax", "median", ten(), *BOUNDS, "--json", "--draws", "999"]
    with os.fdopen(writer, "w") as stdout:
        done = subprocess.run(
            command, stdout=stdout, stderr=subprocess.PIPE, check=False, timeout=300
        )
    assert (done.returncode, done.stderr) == (1, b"")


def imported(*commands):
    """The modules that a new process has after these commands."""
    program = (
        f"import sys; from dpjax.command_line.main import main; [main(c) for c in {commands}]; "
        "print(*sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=300, check=True
    )
    return set(done.stdout.splitlines()[-1].split()), done.stderr


def test_what_a_first_call_does_not_import(write, tmp_path):
    path = write("g,x\n" + "".join(f"{'ab'[i % 2]},{i}\n" for i in range(10)))
    words = [path, "--column", "x", *BOUNDS]
    several = [*words, "--quantile", "0.25", "0.75", "--max-records", "20"]
    Ledger(tmp_path / "people.ledger", epsilon=3.0)
    modules, said = imported(
        [
            "release",
            *words,
            "--by",
            "g",
            "--groups",
            "a",
            "b",
            "--ledger",
            str(tmp_path / "people.ledger"),
        ],
        ["release", *several, "--unit", "g"],
        [
            "release",
            *words,
            "--by",
            "g",
            "--group-epsilon",
            "1",
            "--group-delta",
            "1e-6",
            "--dry-run",
        ],
        ["median", *words, "--by", "g", "--mechanism", "piecewise_laplace", "laplace"],
        ["quantile", *several],
        ["ledger", str(tmp_path / "people.ledger")],
    )
    assert said == ""
    assert "numpy" in modules
    assert not modules & {"jax", "polars", "duckdb", "pandas", "narwhals", "pyarrow", "scipy"}


@pytest.mark.slow
def test_jax_is_imported_without_a_resolution(ten):
    """The control: to check an epsilon that float32 does not hold."""
    modules, said = imported(
        ["median", ten(), "--column", "x", *BOUNDS[:4], *BOUNDS[-2:], "--epsilon", "1e-60"]
    )
    assert "jax" in modules
    assert "in float32" in said
