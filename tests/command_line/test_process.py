"""The command line as its own process."""

import os
import subprocess
import sys

BOUNDS = ("--lower", "0", "--upper", "10", "--resolution", "1", "--neighbors", "add_remove")


def dpjax(*arguments, **options):
    return subprocess.run(
        [sys.executable, "-m", "dpjax", *arguments], capture_output=True, check=False, timeout=300, encoding="utf-8", **options
    )


def test_standard_input_and_a_label_that_the_terminal_cannot_show():
    ascii_only = os.environ | {"PYTHONIOENCODING": "ascii"}
    done = dpjax(
        "median", "-", "--column", "x", "--by", "g", *BOUNDS, input="g,x\n\N{GREEK SMALL LETTER ALPHA},1\n", env=ascii_only
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "\n\\u03b1" in done.stdout


def test_a_mistake_has_no_traceback():
    done = dpjax("median", "-", *BOUNDS, input="x\n1\ntwo\n")
    assert (done.returncode, done.stdout) == (2, "")
    assert (
        done.stderr
        == "dpjax: error: standard input, line 3, column 'x': 'two' is not a number; if it means a missing value, give --missing.\n"
    )
