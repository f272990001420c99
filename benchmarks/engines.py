"""Tables of engines against the engines' own counts, and a large file: what counting where the data
are costs beside a GROUP BY.

python benchmarks/engines.py [--rows 10000000] [--repeats 5] [--quick] [--out FILE]

Each release is timed in turns with the engine's own query of the same counts. By person that query
keeps one row for each person and group, of at most two groups; the same without that bound stands
beside it. Memory is what the process grew by. Needs the extra frames and DuckDB. Persons have three
tenths of the rows, PySpark, where it is there with Java, half, and the file a tenth.
"""

import argparse
import importlib.util
import os
import resource
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from typing import Any

import numpy as np

import harness
from dpjax import frames, release
from harness import row
from report import SKIPPED

QUESTION = "tables of engines"
GROUPS, VALUES = 1000, 121
MEDIAN = {"x": release.Median(lower=0, upper=120, resolution=1)}
PUBLIC: dict[str, Any] = {
    "groups": range(GROUPS),
    "epsilon": 1.0,
    "neighbors": "add_remove",
    "by": "g",
}
PERSONS: dict[str, Any] = {"unit": "who", "per_unit": "max", "max_groups": 2}
ONE_A_PERSON = "select who, g, max(x) as x, count(*) as c from t group by who, g"
PLACES = (
    "select *, row_number() over (partition by who order by c desc, g) as place from "
    f"({ONE_A_PERSON}) as p"
)
COUNTS = "select g, x, count(*) from t group by g, x"
BY_PERSON = f"select g, x, count(*) from ({ONE_A_PERSON}) as p group by g, x"
IN_TWO_GROUPS = f"select g, x, count(*) from ({PLACES}) as p where place <= 2 group by g, x"


def megabytes() -> float:
    """The most memory that this process had so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (
        1e6 if sys.platform == "darwin" else 1e3
    )


def table_of(rows: int, seed: int) -> Any:
    import pyarrow

    generator = np.random.default_rng(seed)
    numbers = {
        "g": generator.integers(0, GROUPS, rows),
        "x": generator.integers(0, VALUES, rows).astype(float),
    }
    return pyarrow.table({**numbers, "who": generator.integers(0, max(rows // 10, 1), rows)})


def compared(
    name: str,
    own: dict[str, Callable[[], Any]],
    release: Callable[[], Any],
    rows: int,
    repeats: int,
    bar: float,
) -> list[dict[str, Any]]:
    """Time the engine's own queries and a release in turns; the bar is about the first one."""
    for query in own.values():
        query()
    before = megabytes()
    release()
    name = f"{name} ({megabytes() - before:.0f} MB more)"
    against = {name: (next(iter(own)), bar)}
    return harness.in_turns(QUESTION, {**own, name: release}, against, f"{rows} rows", repeats)


def with_duckdb(rows: int, repeats: int) -> list[dict[str, Any]]:
    import duckdb

    def opened(rows: int) -> tuple[Any, Callable[[str], Callable[[], Any]]]:
        database = duckdb.connect()
        database.from_arrow(table_of(rows, 0)).create("t")
        return database.table("t"), lambda query: lambda: database.sql(query).to_arrow_table()

    relation, asked = opened(rows)
    by_row = compared(
        "DuckDB, frames.release",
        {"DuckDB, GROUP BY group, value": asked(COUNTS)},
        lambda: frames.release(relation, MEDIAN, **PUBLIC),
        *(rows, repeats, 3),
    )
    rows = rows * 3 // 10
    relation, asked = opened(rows)
    own = {"DuckDB, one row a person and group, in two groups": asked(IN_TWO_GROUPS)}
    own |= {"DuckDB, one row a person and group": asked(BY_PERSON)}
    work = lambda: frames.release(relation, MEDIAN, **PUBLIC, **PERSONS)  # noqa: E731
    return by_row + compared("DuckDB, frames.release by person", own, work, rows, repeats, 3)


def with_polars(path: str, rows: int, repeats: int) -> list[dict[str, Any]]:
    import polars

    frame = polars.scan_parquet(path)
    own = {"Polars, group_by of a lazy scan": lambda: frame.group_by("g", "x").len().collect()}
    work = lambda: frames.release(frame, MEDIAN, **PUBLIC)  # noqa: E731
    return compared("Polars, frames.release of a lazy scan", own, work, rows, repeats, 3)


def with_spark(folder: str, rows: int, repeats: int) -> list[dict[str, Any]]:
    import pyarrow.parquet
    from pyspark.sql import SparkSession

    parts = 8 if rows > 10**6 else 2
    for part in range(parts):
        pyarrow.parquet.write_table(
            table_of(rows // parts, part), os.path.join(folder, f"{part}.parquet")
        )
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    session = (
        builder.config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.shuffle.partitions", str(parts))
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("ERROR")
    frame = session.read.parquet(folder)
    frame.createOrReplaceTempView("t")
    own = {
        "Spark, one row a person and group, in two groups": lambda: session.sql(
            IN_TWO_GROUPS
        ).toArrow()
    }
    work = lambda: frames.release(frame, MEDIAN, **PUBLIC, **PERSONS)  # noqa: E731
    found = compared("Spark, frames.release by person", own, work, rows, repeats, 3)
    session.stop()
    return found


# The most memory of the program itself: what getrusage says after a fork is that of the parent.
PROGRAM = """
import pathlib, sys, time
start = time.perf_counter()
from dpjax.command_line.main import main
main(sys.argv[1:])
status = pathlib.Path("/proc/self/status")
memory = status.read_text().partition("VmHWM:")[2].split()[0] if status.exists() else "nan"
print(time.perf_counter() - start, memory, file=sys.stderr)
"""


def of_a_file(folder: str, rows: int) -> list[dict[str, Any]]:
    """A release of a large CSV by the command line, in a new process."""
    path = os.path.join(folder, "people.csv")
    generator = np.random.default_rng(0)
    with open(path, "w") as file:
        file.write("region,age,income\n")
        for start in range(0, rows, 10**6):
            part = min(10**6, rows - start)
            columns = (
                generator.integers(0, 20, part),
                generator.integers(0, 121, part),
                generator.integers(0, 10**5, part),
            )
            file.write(
                "".join(
                    f"region{g},{age},{income}\n"
                    for g, age, income in zip(*(c.tolist() for c in columns), strict=True)
                )
            )
    options = (
        "--column age --by region --lower 0 --upper 120 --resolution 1 --neighbors add_remove "
        "--epsilon 1 --groups region1 region2"
    )
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, "release", path, *options.split()],
        capture_output=True,
        text=True,
        check=True,
    )
    seconds, memory = done.stderr.split()
    name = f"dpjax release FILE ({float(memory) / 1e3:.0f} MB in all)"
    compared = {"ratio": float(seconds), "reference": "one second", "bar": {"at_most": 4}}
    return [
        row(
            QUESTION,
            name,
            "add_remove",
            f"{rows} lines",
            value=float(seconds),
            unit="s",
            **compared,
        )
    ]


def arguments() -> argparse.Namespace:
    parser = harness.parser(__doc__)
    parser.add_argument("--rows", type=int, default=10_000_000)
    args = parser.parse_args()
    if args.quick:
        args.rows = 40_000
    return args


def main() -> None:
    args = arguments()
    repeats = args.repeats or (1 if args.quick else 5)
    if missing := [
        name
        for name in ("narwhals", "pyarrow", "duckdb", "polars")
        if not importlib.util.find_spec(name)
    ]:
        print(f"not run without {', '.join(missing)}", file=sys.stderr)
        sys.exit(SKIPPED)
    import pyarrow.parquet

    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "t.parquet")
        pyarrow.parquet.write_table(table_of(args.rows, 0), path)
        rows = (
            with_duckdb(args.rows, repeats)
            + with_polars(path, args.rows, repeats)
            + of_a_file(folder, args.rows // 10)
        )
        if importlib.util.find_spec("pyspark") and shutil.which("java"):
            parts = os.path.join(folder, "parts")
            os.mkdir(parts)
            rows += with_spark(parts, args.rows // 2, repeats)
        else:
            print("Spark was left out: it needs PySpark and Java.", file=sys.stderr)
    harness.finish("engines", args, rows, [])


if __name__ == "__main__":
    main()
