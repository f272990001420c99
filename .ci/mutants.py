"""Faults that are put into a copy of the library one at a time; the tests named beside must fail.

python .ci/mutants.py            all of them, about seven minutes
python .ci/mutants.py ledger     those with this word in what is wrong, or in the file

By hand, before tests of a promise go or a room is rebuilt. It ends with 1 if a fault survives, or
if its text is not in its file any more: then it is written anew for the code that is there. The
faults are in ``faults.toml``.
"""

import pathlib
import shutil
import subprocess
import sys
import tempfile
import tomllib

ROOT = pathlib.Path(__file__).resolve().parent.parent
LEFT_OUT = shutil.ignore_patterns(".git", ".venv*", "__pycache__", ".*_cache", "notebooks")


def verdict(copy: pathlib.Path, fault: dict[str, str]) -> str:
    """Put one fault into the copy, run its tests, and take it out again."""
    file = copy / fault["file"]
    text = file.read_text()
    if text.count(fault["right"]) != 1:
        return "NOT FOUND"
    file.write_text(text.replace(fault["right"], fault["wrong"]))
    try:
        command = [sys.executable, "-m", "pytest", "-n", "0", "-x", *fault["tests"].split()]
        status = subprocess.run(command, cwd=copy, capture_output=True).returncode
    finally:
        file.write_text(text)
    return {0: "SURVIVED", 1: "caught"}.get(status, f"NOT RUN ({status})")


def main() -> int:
    """Run the faults that were asked for, and say how many are caught."""
    word = sys.argv[1] if len(sys.argv) > 1 else ""
    faults = tomllib.loads((ROOT / ".ci/faults.toml").read_text())["fault"]
    asked = [fault for fault in faults if word in fault["what"] or word in fault["file"]]
    found = []
    with tempfile.TemporaryDirectory() as folder:
        copy = pathlib.Path(folder) / "copy"
        shutil.copytree(ROOT, copy, ignore=LEFT_OUT)
        for fault in asked:
            found.append(verdict(copy, fault))
            print(f"{found[-1]:10} {fault['what']}  ({fault['tests']})", flush=True)
    print(f"{found.count('caught')} of {len(found)} are caught")
    return int(found.count("caught") < len(found))


if __name__ == "__main__":
    sys.exit(main())
