"""Faults that are put into a copy of the library one at a time; the tests named beside must fail.

python .ci/mutants.py            all of them, about fifteen minutes
python .ci/mutants.py ledger     those with this word in what is wrong, or in the file

By hand, before tests of a promise go or a room is rebuilt. It ends with 1 if a fault survives, or
if its text is not in its file any more: then it is written anew for the new code.
"""

import pathlib
import shutil
import subprocess
import sys
import tempfile

from faults import FAULTS

ROOT = pathlib.Path(__file__).parent.parent
LEFT_OUT = shutil.ignore_patterns(".git", ".venv*", "__pycache__", ".*_cache", "notebooks")


def caught(copy: pathlib.Path, path: str, right: str, wrong: str, tests: str) -> str:
    """Put one fault into the copy, run its tests, and take it out again; the verdict in a word."""
    file = copy / path
    text = file.read_text()
    if text.count(right) != 1:
        return "NOT FOUND"
    file.write_text(text.replace(right, wrong))
    try:
        command = [sys.executable, "-m", "pytest", "-n", "0", "-q", "-x", *tests.split()]
        status = subprocess.run(command, cwd=copy, capture_output=True).returncode
    finally:
        file.write_text(text)
    return {0: "SURVIVED", 1: "caught", 2: "caught"}.get(status, f"NO TESTS ({status})")


def main() -> int:
    """Run the faults that were asked for, and say how many are caught."""
    word = sys.argv[1] if len(sys.argv) > 1 else ""
    asked = [fault for fault in FAULTS if word in fault[0] or word in fault[1]]
    ends = []
    with tempfile.TemporaryDirectory() as folder:
        copy = pathlib.Path(folder) / "copy"
        shutil.copytree(ROOT, copy, ignore=LEFT_OUT)
        for what, path, right, wrong, tests in asked:
            ends.append(caught(copy, path, right, wrong, tests))
            print(f"{ends[-1]:10} {what}  ({path}; {tests})", flush=True)
    print(f"{ends.count('caught')} of {len(ends)} are caught")
    return int(ends.count("caught") < len(ends))


if __name__ == "__main__":
    sys.exit(main())
