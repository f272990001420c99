"""What a person with a table waits for: first calls in new processes, exact releases as users call
them, millions of rows in many groups, tables in engines, and a large file.

python benchmarks/tables_of_people.py [--rows 3000000] [--groups 100000] [--quick] [--out FILE]

First calls are new processes with an empty home, and their figure is the processor time of the
whole process, against one that only imports what the bar names. "dpjax" under "releases" is
``Median(...).release`` itself: records to the grid, sorting, runs, entropy, doubtful draws; naive
Gumbel-max starts from pieces that are made already, and its floats are no release. Tables are timed
in turns with the engine's own query: medians by group in pandas, counts of the same groups and
values in DuckDB and Polars; by person, that query keeps one row for each person and group, of at
most two groups. All that is compared with a time on a clock depends on the machine. Needs the extra
frames, pandas, DuckDB and Polars.
"""

import argparse
import functools
import importlib.util
import os
import pathlib
import resource
import subprocess
import sys
import tempfile
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np

import contestants
import harness
import peers
from dpjax import frames, release
from first_calls import AGES, CALLS, PUBLIC
from harness import Built, Case, Contestant

HERE = pathlib.Path(__file__).parent
NEEDED = "narwhals", "pyarrow", "pandas", "duckdb", "polars"
GROUPS, VALUES = 1000, 121
OPTIONS = "--column age --lower 0 --upper 120 --resolution 1 --neighbors add_remove --epsilon 1"
ONE_A_PERSON = "select who, g, max(x) as x, count(*) as c from t group by who, g"
PLACES = (
    "select *, row_number() over (partition by who order by c desc, g) as place from "
    f"({ONE_A_PERSON}) as p"
)
COUNTS = "select g, x, count(*) from t group by g, x"
IN_TWO_GROUPS = f"select g, x, count(*) from ({PLACES}) as p where place <= 2 group by g, x"
Rows = list[dict[str, Any]]


# --- first calls ---


def processor_seconds(arguments: list[str], home: str) -> float:
    """The processor time of a new process that must end well."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    variables = os.environ | {"HOME": home, "XDG_CACHE_HOME": os.path.join(home, "cache")}
    command = [sys.executable, *arguments]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=variables)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def first_calls(lines: int, repeats: int) -> Rows:
    """Calls and imports, and the command line on a small and on a large file."""
    script = str(HERE / "first_calls.py")
    imports = [f"import {name}" for name in ("numpy", "pandas", "jax", "dpjax")]
    compared: dict[str, tuple[str, float | None]] = {"import dpjax": ("import jax", None)}
    for name in CALLS:
        compared[name] = ("import pandas" if "frames" in name else "import numpy", 3)
    works = {name: [script, name] for name in (*imports, *CALLS)}
    with tempfile.TemporaryDirectory() as folder:
        for size, most in ((20_000, 0.6), (lines, 4)):
            path = os.path.join(folder, f"{size}.csv")
            ages = np.random.default_rng(0).integers(18, 90, size)
            np.savetxt(path, ages, "%d", header="age", comments="")
            for command in ("release", "simulate"):
                name = f"dpjax {command}, {size} lines"
                works[name] = ["-m", "dpjax", command, path, *OPTIONS.split()]
                compared[name] = ("one second", most)
        clock = functools.partial(processor_seconds, home=folder)
        shape, unit = f"{repeats} new processes", "s of processor time"
        return harness.in_turns("first call", works, compared, shape, repeats, clock, unit)


# --- releases ---


def median_of(case: Case) -> tuple[release.Median, dict[str, Any]]:
    """The statistic, on a grid far finer than the records are apart, and how to ask for it."""
    median = release.Median(lower=case.lower, upper=case.upper, resolution=Fraction(1, 2**20))
    return median, {"epsilon": case.epsilon, "neighbors": case.relation}


def as_called(case: Case) -> Built:
    """One release of each row, or many of one."""
    median, public = median_of(case)

    def run(turn: int) -> np.ndarray:
        return median.release(case.data, **public, draws=case.draws).values

    return Built(run, case.rows * case.draws)


@harness.uniform
def by_released(case: Case, values: np.ndarray) -> np.ndarray:
    median, public = median_of(case)
    return median.distribution(case.data, **public).cdf(values)


def releases(relation: str, args: argparse.Namespace) -> tuple[Rows, Rows]:
    """One release of each row, against OpenDP, too; and many draws of one row."""
    rows, checks = [], []
    points, draws = (33, 10_000) if args.quick else (1023, 10**6)
    opendp = Contestant(
        f"OpenDP, {peers.CANDIDATES} candidates",
        peers.opendp,
        peers.by_opendp,
        missing=peers.missing("opendp"),
        timed_rows=8,
        check_draws=3000,
    )
    for question, case, small, bar, others in (
        ("releases", Case(1024, points, relation), Case(4096, 33, relation, seed=1), 1, [opendp]),
        (
            "releases of one dataset",
            Case(1, points, relation, draws=draws),
            Case(16, 33, relation, seed=1, draws=10_000),
            1 / 0.03,
            [],
        ),
    ):
        asked = [
            Contestant(harness.REFERENCE, as_called, by_released),
            Contestant("naive jitted Gumbel-max", contestants.naive(), harness.by_cdf, bar),
            contestants.control(contestants.naive, harness.by_cdf),
            *others,
        ]
        case = small if args.quick else case
        done = harness.contest(question, asked, case, small, args.repeats, "draw")
        rows, checks = rows + done[0], checks + done[1]
    return rows, checks


def waited(
    question: str,
    shape: str,
    work: Callable[[], Any],
    most: float,
    repeats: int,
    relation: str = "add_remove",
) -> Rows:
    """A release whose bar is a time on a clock."""
    works, compared = {"dpjax": work}, {"dpjax": ("one second", most)}
    return harness.in_turns(question, works, compared, shape, repeats, relation=relation)


def large_releases(quick: bool, repeats: int) -> Rows:
    """1000 groups from counts, deciles and percentiles of millions, a mean of 2^24 records."""
    generator, rows = np.random.default_rng(0), []
    median, ages = release.Median(**AGES), np.arange(VALUES)
    even = np.full(VALUES, 1 / VALUES)
    for size in (4, 7):
        counts = generator.multinomial(10**size, even, GROUPS)
        for epsilon, most in ((1.0, 0.006), (0.1, 0.06), (0.01, 0.6)):
            public = PUBLIC | {"counts": counts, "epsilon": epsilon}
            work = functools.partial(median.release, ages, **public)
            shape = f"{GROUPS} x {VALUES}, 10^{size} records each, epsilon {epsilon:g}"
            rows += waited("releases from counts", shape, work, most, repeats)
    deciles = release.Quantiles([Fraction(k, 10) for k in range(1, 10)], **AGES)
    levels = [Fraction(k, 100) for k in range(1, 100)]
    percentiles = release.Quantiles(levels, lower=-10, upper=10, resolution=0.001)
    mean = release.Mean(lower=0, upper=100, resolution=1)
    size, power = (10**4, 20) if quick else (10**6, 24)
    small = generator.integers(0, 101, 2**power, dtype=np.int8)
    of_many = functools.partial(mean.release, small, epsilon=1.0, neighbors="swap")
    counts = generator.multinomial(10**7, even)
    for question, shape, work, most in (
        (
            "deciles from counts",
            f"10^7 on {VALUES} values",
            functools.partial(deciles.release, ages, counts=counts, **PUBLIC),
            1.0,
        ),
        (
            "99 percentiles",
            f"{size} records",
            functools.partial(percentiles.release, generator.normal(size=size), **PUBLIC),
            8.0,
        ),
    ):
        rows += waited(question, shape, work, most, 1)
    shape = f"2^{power} of int8"
    return rows + waited("release of a mean", shape, of_many, 1.0, 1, "swap")


# --- tables ---


def many_groups(size: int, groups: int, repeats: int) -> Rows:
    """Releases, private groups and simulations by group, each turn beside pandas' medians."""
    import pandas as pd

    generator = np.random.default_rng(1)
    columns = {
        "age": generator.integers(0, 100, size),
        "group": generator.integers(0, groups, size),
    }
    people, ages = pd.DataFrame(columns), {"age": release.Median(**AGES)}
    public = PUBLIC | {"by": "group"}
    tenth = public | {"epsilon": 0.1}
    unknown = frames.PrivateGroups(epsilon=1.0, delta=1e-6)
    known, private = {"groups": range(groups)}, {"groups": unknown}
    released = functools.partial(frames.release, people, ages)
    simulated = functools.partial(frames.simulate, 0, people, ages)
    works: dict[str, Callable[[], Any]] = {
        "pandas, groupby(...).median()": lambda: people.groupby("group")["age"].median(),
        "frames.release": functools.partial(released, **known, **public),
        "frames.release, private groups": functools.partial(released, **private, **public),
        "frames.simulate": functools.partial(simulated, **public),
        "frames.release, epsilon 0.1": functools.partial(released, **known, **tenth),
        "frames.simulate, epsilon 0.1": functools.partial(simulated, **tenth),
    }
    pandas, *ours = works
    compared = {name: (pandas, 15 if "0.1" in name else 10) for name in ours}
    shape = f"{size} rows, {groups} groups"
    return harness.in_turns("many groups", works, compared, shape, repeats)


def table_of(rows: int) -> Any:
    """Persons have ten rows each."""
    import pyarrow

    generator = np.random.default_rng(0)
    groups, values = generator.integers(0, GROUPS, rows), generator.integers(0, VALUES, rows)
    who = generator.integers(0, max(rows // 10, 1), rows)
    return pyarrow.table({"g": groups, "x": values.astype(float), "who": who})


def engines(rows: int, repeats: int) -> Rows:
    """Releases beside the engine's own counts of the same groups and values."""
    import duckdb
    import polars
    import pyarrow.parquet

    public = PUBLIC | {"groups": range(GROUPS), "by": "g"}
    persons = public | {"unit": "who", "per_unit": "max", "max_groups": 2}
    median = {"x": release.Median(**AGES)}
    found = []

    def compared(name: str, own: Callable, table: Any, asked: dict[str, Any], size: int) -> None:
        ours, work = f"frames.release, {name}", lambda: frames.release(table, median, **asked)
        works, bar = {name: own, ours: work}, {ours: (name, 3)}
        found.extend(harness.in_turns("tables of engines", works, bar, f"{size} rows", repeats))

    for name, query, asked, size in (
        ("DuckDB by row", COUNTS, public, rows),
        ("DuckDB by person", IN_TWO_GROUPS, persons, rows * 3 // 10),
    ):
        database = duckdb.connect()
        database.from_arrow(table_of(size)).create("t")
        own = lambda query=query, database=database: database.sql(query).to_arrow_table()  # noqa: E731
        compared(name, own, database.table("t"), asked, size)
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "t.parquet")
        pyarrow.parquet.write_table(table_of(rows), path)
        lazy = polars.scan_parquet(path)
        own = lambda: lazy.group_by("g", "x").len().collect()  # noqa: E731
        compared("Polars, a lazy scan", own, lazy, public, rows)
    return found


def main() -> None:
    parser = harness.parser(__doc__)
    parser.add_argument("--rows", type=int, default=3_000_000)
    parser.add_argument("--groups", type=int, default=100_000)
    args = parser.parse_args()
    if missing := [name for name in NEEDED if not importlib.util.find_spec(name)]:
        print(f"not run without {', '.join(missing)}", file=sys.stderr)
        sys.exit(harness.SKIPPED)
    if args.quick:
        args.rows, args.groups = 30_000, 1000
    args.repeats = args.repeats or (1 if args.quick else 9)
    few = max(args.repeats // 3, 1)
    rows = first_calls(args.rows // 3, few)
    rows += large_releases(args.quick, args.repeats)
    checks: Rows = []
    for relation in ("swap", "add_remove"):
        done = releases(relation, args)
        rows, checks = rows + done[0], checks + done[1]
    rows += many_groups(args.rows, args.groups, few)
    rows += engines(3 * args.rows, few)
    harness.finish("tables_of_people", args, rows, checks)


if __name__ == "__main__":
    main()
