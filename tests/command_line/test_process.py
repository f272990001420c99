"""The command line as its own process."""

import gzip
import os
import subprocess
import sys
import time

import polars as pl
import pytest

from dpjax.accounting import Ledger

WORDS = ("--column", "x", "--lower", "0", "--upper", "9", "--resolution", "1", "--epsilon", "1")
WORDS += ("--neighbors", "add_remove")
COMMAND = (sys.executable, "-m", "dpjax")


def dpjax(*words, command=COMMAND, **options):
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | options
    return subprocess.run([*command, *words], check=False, timeout=300, encoding="utf-8", **options)


@pytest.fixture
def ten(write):
    return write("g,x\n" + "".join(f"{'ab'[k % 2]},{k}\n" for k in range(10)))


@pytest.fixture
def budget(tmp_path):
    """The path of a ledger, and what is left in it."""
    path = tmp_path / "people.ledger"
    Ledger(path, epsilon=2000.0)
    return str(path), lambda: Ledger(path).remaining


def test_standard_input_and_a_label_that_the_terminal_cannot_show():
    ascii_only = os.environ | {"PYTHONIOENCODING": "ascii"}
    text = "g,x\n\N{GREEK SMALL LETTER ALPHA}\x1b[2J,1\n"
    words = ("simulate", "-", "--by", "g", *WORDS)
    done = dpjax(*words, input=text, env=ascii_only)
    assert (done.returncode, done.stderr) == (0, "")
    assert "\\u03b1\\x1b[2J" in done.stdout
    assert "\x1b" not in done.stdout


def test_no_byte_of_a_file_that_is_not_text_is_shown(run, write, tmp_path):
    frame = pl.DataFrame({"x": [5], "name": ["Alice Secret"]})
    frame.write_parquet(tmp_path / "a.PQ", compression="uncompressed")
    (tmp_path / "a.GZ").write_bytes(gzip.compress(b"x,Alice Secret\n5,1\n", 0, mtime=0))
    for path in (tmp_path / "a.PQ", tmp_path / "a.GZ"):
        assert run("release", path, *WORDS).code == 0
        content = path.read_bytes()
        assert b"Alice Secret" in content.split(b"\n")[0]
        with open(path) as stdin:
            done = dpjax("release", "-", *WORDS, stdin=stdin)
        other = write(content, "other.csv")
        forms = ([], ["--lines"], ["--delimiter", "space"])
        said = [run("release", other, *WORDS, *form).mistake for form in forms]
        for text in (done.stderr[:-1], *said):
            assert "name it .parquet or .gz" in text
            assert "Alice" not in text
            assert text.isprintable()


def test_a_reader_that_goes_away(ten):
    """Also a table that is longer than the buffer of a pipe."""
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w") as stdout:
        done = dpjax("simulate", ten, *WORDS, "--draws", "999", stdout=stdout)
    assert (done.returncode, done.stderr) == (1, "")


@pytest.mark.parametrize("how", ["full", "closed"])
def test_a_release_that_cannot_be_printed_is_not_lost(how, ten, budget):
    path, left = budget
    words = ("release", ten, *WORDS, "--ledger", path, "--format", "csv")
    if how == "full":
        with open("/dev/full", "w") as stdout:
            done = dpjax(*words, stdout=stdout)
    else:
        done = dpjax(*words, command=("sh", "-c", 'exec "$@" >&-', "sh", *COMMAND))
    said, header, row = done.stderr.splitlines()
    assert done.returncode == 1
    assert said.startswith("dpjax: error: cannot print (")
    assert "spent" in said
    assert (header, row[:2]) == ("column,released,epsilon", "x,")
    assert left() == 1999


def test_a_release_is_charged_before_anything_is_printed(ten, budget):
    """Killed while it prints to a full pipe, it has printed nothing and is charged in full."""
    path, left = budget
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    filled = 0
    while True:
        try:
            filled += os.write(writer, b"x" * 4096)
        except BlockingIOError:
            break
    os.set_blocking(writer, True)
    words = ("release", ten, *WORDS, "--ledger", path, "--draws", "500")
    process = subprocess.Popen([*COMMAND, *words], stdout=writer, stderr=subprocess.DEVNULL)
    os.close(writer)
    for _ in range(3000):  # at most: it is killed at once when it is charged
        if left() < 2000 or process.poll() is not None:
            break
        time.sleep(0.01)
    time.sleep(0.1)  # it may go on, as far as it can
    assert process.poll() is None
    process.kill()
    process.wait()
    with os.fdopen(reader, "rb") as pipe:
        assert len(pipe.read()) == filled
    assert left() == 1500


def test_without_polars(ten):
    program = (
        "import sys; sys.modules['polars'] = None\n"
        "from dpjax.command_line.main import main; sys.exit(main(sys.argv[1:]))"
    )
    done = dpjax("release", ten, *WORDS, command=(sys.executable, "-c", program))
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.endswith("pip install 'dpjax[frames]'.\n")
