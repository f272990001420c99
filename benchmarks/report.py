"""Run the benchmarks, each in a fresh process, and print one table: contestant, relation, shape, time, ratio, bar, met or not.

python benchmarks/report.py [NAME ...] [--quick] [--folder FOLDER] [--read] [--tumult-python PYTHON] [--json]

NAME is any of the benchmarks (default: all). --folder keeps the JSON document of each; with --read nothing is run and the
documents that lie there are shown. A ratio is contestant / what stands
under "against": against dpjax, how many times faster dpjax is. Libraries that are not installed get a row that says so.
"""

import argparse
import json
import pathlib
import subprocess
import sys
import tempfile
from typing import Any

HERE = pathlib.Path(__file__).parent
BENCHMARKS = (
    "single_draws",
    "repeated_draws",
    "from_raw",
    "one_jit",
    "memory",
    "devices",
    "accuracy",
    "scaling",
    "joint_quantiles",
    "releases",
    "metric_privacy",
    "import_time",
)
WITH_TUMULT = ("from_raw", "accuracy")
UNITS = {"s": ((1, "s"), (1e-3, "ms"), (1e-6, "us"), (1e-9, "ns"))}


def run(name: str, out: pathlib.Path, args: argparse.Namespace) -> dict[str, Any]:
    """Run one benchmark in a process of its own and return its document."""
    if name == "import_time":
        command = [sys.executable, str(HERE / "import_time.py"), "--pairs", "1" if args.quick else "9"]
        found = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
        out.write_text(found.stdout)
        return import_time(json.loads(found.stdout))
    command = [sys.executable, str(HERE / f"{name}.py"), "--out", str(out)]
    if args.quick:
        command.append("--quick")
    if args.tumult_python and name in WITH_TUMULT:
        command += ["--tumult-python", args.tumult_python]
    if name == "scaling" and args.plot:
        command += ["--plot", args.plot]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return json.loads(out.read_text())


def import_time(found: dict[str, Any]) -> dict[str, Any]:
    """The document of import_time.py, which is older, in the shape of the others."""
    line = {
        "question": "import",
        "relation": "no privacy",
        "shape": f"{found['pairs']} fresh processes",
        "status": "measured",
        "unit": "s",
    }
    rows = [
        {**line, "contestant": "import jax", "value": found["jax_seconds_median"]},
        {
            **line,
            "contestant": "import dpjax",
            "value": found["dpjax_seconds_median"],
            "ratio": found["ratio_median"],
            "reference": "import jax",
        },
    ]
    return {**found, "checks": [], "rows": rows}


def read(name: str, path: pathlib.Path) -> dict[str, Any]:
    document = json.loads(path.read_text())
    return import_time(document) if name == "import_time" else document


def in_table(line: dict[str, Any]) -> bool:
    """The accuracy table is long: here only epsilon 1; ``accuracy.py --table`` prints all of it."""
    return line.get("epsilon", 1.0) == 1.0


def number(value: float | None, unit: str | None) -> str:
    if value is None:
        return ""
    if unit and unit.split(" ")[0] == "s":
        size, name = next(((size, name) for size, name in UNITS["s"] if value >= size), UNITS["s"][-1])
        return f"{value / size:.3g} {name}{unit[1:]}"
    return f"{value:.3g} {unit or ''}".strip()


def bar(line: dict[str, Any]) -> str:
    limit = line.get("bar")
    if not limit:
        return ""
    (kind, value), reach = next(iter(limit.items())), line.get("reach")
    sign = ">=" if kind == "at_least" else "<="
    return f"{sign} {value:.3g}" + (f" (reach {next(iter(reach.values())):.3g})" if reach else "")


def met(line: dict[str, Any]) -> str:
    if "verdict" in line:
        return line["verdict"]
    if "met" not in line:
        return ""
    if line.get("quick"):
        return "not judged"
    reach = line.get("reach") or {}
    ratio = line["ratio"]
    reached = ("at_least" in reach and ratio >= reach["at_least"]) or ("at_most" in reach and ratio <= reach["at_most"])
    return "reached" if reached else "met" if line["met"] else "NOT MET"


def cells(line: dict[str, Any]) -> list[str]:
    ratio, quartiles = line.get("ratio"), line.get("ratio_spread")
    shown = "" if ratio is None else f"{ratio:.3g}"
    if quartiles:
        shown += f" ({quartiles['first_quartile']:.3g}-{quartiles['third_quartile']:.3g})"
    value = number(line.get("value"), line.get("unit")) if line["status"] == "measured" else line["status"]
    if line.get("standard_error", 0.0) > 1e-9 * (line.get("value") or 0.0):
        value += f" +-{line['standard_error']:.1g}"
    compiled = number(line.get("compile_seconds"), "s")
    against, where = line.get("reference") or "", [line[name] for name in ("question", "contestant", "relation", "shape")]
    return [*where, value, compiled, shown, against, bar(line), met(line)]


def table(rows: list[dict[str, Any]]) -> str:
    """All rows as one Markdown table."""
    head = ["question", "contestant", "relation", "shape", "median", "compile", "ratio (quartiles)", "against", "bar", "met"]
    lines = [head, *(cells(line) for line in rows if in_table(line))]
    widths = [max(len(line[i]) for line in lines) for i in range(len(head))]
    lines.insert(1, ["-" * width for width in widths])
    return "\n".join(
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) + " |" for line in lines
    )


def summary(documents: dict[str, dict[str, Any]]) -> str:
    """Where it was measured, which checks failed, and how the bars stand."""
    lines = []
    where = next((document["environment"] for document in documents.values() if "environment" in document), None)
    if where:
        versions = {package: found or "not installed" for package, found in where["versions"].items()}
        tumult = next((document["tumult"]["versions"] for document in documents.values() if document.get("tumult")), {})
        shown = ", ".join(
            f"{package} {found}" for package, found in {**versions, "tmlt.core": tumult.get("tmlt.core", "not installed")}.items()
        )
        lines += [f"{where['device']} ({where['processor']}), {where['cores']} cores, Python {where['python']}; {shown}"]
    checks = [check for document in documents.values() for check in document["checks"]]
    controls = [check for check in checks if check.get("control")]
    failed = [f"{check['contestant']} ({check['relation']})" for check in checks if not check["passed"] and check not in controls]
    rows = [line for document in documents.values() for line in document["rows"]]
    judged = [line for line in rows if "met" in line and not line.get("quick")]
    rejected = sum(not check["passed"] for check in controls)
    lines.append(f"distributions and bits checked: {len(checks) - len(controls)}, wrong: {', '.join(failed) or 'none'}")
    lines.append(f"controls with a wrong distribution: {len(controls)}, rejected: {rejected}")
    lines.append(
        f"bars judged: {len(judged)}, met: {sum(line['met'] for line in judged)}"
        + ("" if judged else " (a quick run judges none, and not every question has one)")
    )
    verdicts = [line["verdict"] for line in rows if "verdict" in line]
    if verdicts:
        counts = {verdict: verdicts.count(verdict) for verdict in dict.fromkeys(verdicts)}
        lines.append(
            "errors of all contestants at all epsilons: " + ", ".join(f"{verdict} {count}" for verdict, count in counts.items())
        )
    if "scaling" in documents:
        found = documents["scaling"]["summary"]
        lines.append(
            f"scaling model: median relative residual {found['median_relative_residual']:.0%}, largest "
            f"{found['largest_relative_residual']:.0%}; fails at: {'; '.join(found['failures']) or 'no point'}"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(BENCHMARKS))
    parser.add_argument("--quick", action="store_true", help="small sizes: shows that everything runs, not how fast")
    parser.add_argument("--folder", help="keep the JSON documents here")
    parser.add_argument("--read", action="store_true", help="run nothing, show the documents in --folder")
    parser.add_argument("--tumult-python", help="a Python that has tmlt.core, if this one has not")
    parser.add_argument("--plot", help="write the scaling plot to this PNG file")
    parser.add_argument("--json", action="store_true", help="print all documents as JSON instead of the table")
    args = parser.parse_args()
    unknown = [name for name in args.names if name not in BENCHMARKS]
    if unknown or (args.read and not args.folder):
        parser.error(f"no such benchmark: {', '.join(unknown)}" if unknown else "--read needs --folder")
    documents: dict[str, dict[str, Any]] = {}
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(args.folder or temporary)
        folder.mkdir(parents=True, exist_ok=True)
        for name in args.names or BENCHMARKS:
            path = folder / f"{name}.json"
            if args.read and not path.exists():
                continue
            print(f"{name} ...", file=sys.stderr, flush=True)
            documents[name] = read(name, path) if args.read else run(name, path, args)
            for line in documents[name]["rows"]:
                line["quick"] = documents[name].get("settings", {}).get("quick", False)
    if args.json:
        print(json.dumps(documents, indent=1))
        return
    rows = [line for document in documents.values() for line in document["rows"]]
    print(table(rows))
    print()
    print(summary(documents))


if __name__ == "__main__":
    main()
