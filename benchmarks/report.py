"""Run the benchmarks and the experiments, each in a fresh process, and print their tables, how long
each took, and how it ended.

python benchmarks/report.py [NAME ...] [--quick] [--folder FOLDER] [--write] [--document FILE ...]
[--tumult-python PYTHON]

NAME is any of the scripts (default: all). Nothing stops the report: a script that fails is a row
that says so, with its last error, and then the report itself ends with status 1. An experiment
whose data are not there is skipped, and its row says why. --quick runs the
benchmarks, and the experiments that are long, at small sizes. --folder keeps the JSON document of
each script. --write puts the figures of the benchmarks that ran whole into measured.json and both
READMEs; --document does it, and runs nothing, with a document that a benchmark wrote elsewhere,
such as on a machine with a GPU.
"""

import argparse
import json
import pathlib
import re
import subprocess
import sys
import tempfile
import time

import figures
import harness
import tables

HERE = pathlib.Path(__file__).parent
BENCHMARKS = "draws", "accuracy", "tables_of_people", "metric_privacy", "counted"
EXPERIMENTS = (
    "laplace_against_steps",
    "many_quantiles",
    "metric_budgets",
    "optimality",
    "purchases",
    "selection",
    "several_quantiles",
    "subsampling",
    "synthetic_medians",
    "triangle_counts",
    "vertebral_columns",
)
# Experiments are short and run whole in a quick report too, all but these.
LONG = ("many_quantiles", "metric_budgets", "optimality", "selection", "several_quantiles")


def run(name: str, folder: pathlib.Path, args: argparse.Namespace) -> tuple[str, list[str]]:
    """Run one script in its own process; return what it printed, and its row of the summary."""
    place = HERE / "experiments" if name in EXPERIMENTS else HERE
    quick = args.quick and (name in BENCHMARKS or name in LONG)
    script, document = str(place / f"{name}.py"), str(folder / f"{name}.json")
    command = [sys.executable, script, "--out", document, *["--quick"] * quick]
    if args.tumult_python and name == "draws":
        command += ["--tumult-python", args.tumult_python]
    start = time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True)
    seconds = time.perf_counter() - start
    status = "ran"
    if done.returncode:
        word = (
            "skipped"
            if done.returncode == harness.SKIPPED
            else f"failed, exit status {done.returncode}"
        )
        status = f"{word}: {reason(done.stderr)}"
    print(done.stderr, end="", file=sys.stderr, flush=True)
    return done.stdout.rstrip(), [name, "quick" if quick else "whole", f"{seconds:.0f}", status]


def reason(text: str) -> str:
    """The last error in an error output, or else its last line, without this machine's folders and
    what would end a cell.
    """
    lines = text.strip().splitlines() or ["no message"]
    # JAX puts hints after it
    last = next(
        (line for line in reversed(lines) if re.match(r"[A-Za-z_][\w.]*: ", line)), lines[-1]
    )
    return re.sub(r"(?<![\w./])/(?:[^/\s'\"]+/)+", "", last).replace("|", "/")[:200]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help=", ".join(BENCHMARKS + EXPERIMENTS)
    )
    parser.add_argument(
        "--quick", action="store_true", help="small sizes: shows that everything runs, not how fast"
    )
    parser.add_argument("--folder", help="keep the JSON documents here")
    parser.add_argument("--tumult-python", help="a Python that has tmlt.core, if this one has not")
    parser.add_argument(
        "--write", action="store_true", help="put the figures into measured.json and both READMEs"
    )
    parser.add_argument(
        "--document", nargs="+", help="write the figures of these JSON documents, and run nothing"
    )
    args = parser.parse_args()
    if args.document:
        documents = (json.loads(pathlib.Path(name).read_text()) for name in args.document)
        figures.write(documents, BENCHMARKS)
        return 0
    lines = []
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(args.folder or temporary)
        folder.mkdir(parents=True, exist_ok=True)
        for name in args.names or BENCHMARKS + EXPERIMENTS:
            print(f"{name} ...", file=sys.stderr, flush=True)
            printed, line = run(name, folder, args)
            print(f"## {name}\n\n{printed}\n", flush=True)
            lines.append(line)
        if args.write:
            ran = [
                folder / f"{name}.json"
                for name, *_, status in lines
                if name in BENCHMARKS and status == "ran"
            ]
            figures.write((json.loads(path.read_text()) for path in ran), BENCHMARKS)
    print("## Summary\n\n" + tables.markdown(("script", "mode", "seconds", "status"), lines))
    return int(any(status.startswith("failed") for *_, status in lines))


if __name__ == "__main__":
    sys.exit(main())
