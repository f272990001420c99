"""Exact releases, from records and from counts as users call them, against naive float Gumbel-max,
OpenDP, and what a person may have to wait.

python benchmarks/releases.py [--rows 1024] [--points 1023] [--draws 1000000] [--quick] [--out FILE]

"dpjax" is ``Median(...).release`` itself: records to the grid, sorting, runs, entropy, doubtful
draws. Naive Gumbel-max starts from pieces that are made already, and its floats are no
release. From counts there are 1000 groups on 121 values, with ten thousand records each and with
ten million; all that is compared with a time on a clock depends on the machine.
"""

import argparse
import resource
import sys
import time
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np

import contestants
import harness
import peers
from dpjax import release
from harness import Built, Case, Contestant, row

RESOLUTION = Fraction(1, 2**20)
CANDIDATES = 1000
GROUPS, VALUES = 1000, 121
AGES: dict[str, Any] = {"lower": 0, "upper": VALUES - 1, "resolution": 1}
COUNTS, SEVERAL = "releases from counts", "several quantiles"


def median_of(case: Case) -> tuple[release.Median, dict[str, Any]]:
    """The statistic, and how to ask for it."""
    median = release.Median(lower=case.lower, upper=case.upper, resolution=RESOLUTION)
    return median, {"epsilon": case.epsilon, "neighbors": case.relation}


def as_called(draws: int | None = None):
    """One release of each row, or many of one."""

    def build(case: Case) -> Built:
        median, public = median_of(case)

        def run(turn: int) -> np.ndarray:
            values = median.release(case.data, **public, draws=draws or 1).values
            return values if draws else values[0]

        return Built(run, case.rows * (draws or 1))

    return build


def uniforms(case: Case, values: np.ndarray) -> np.ndarray:
    """The exact cdf: the grid is far finer than the records are apart."""
    median, public = median_of(case)
    return median.distribution(case.data, **public).cdf(values)


def field(relation: str, draws: int | None, naive_draws: int | None) -> list[Contestant]:
    """One release of each row against OpenDP, too; or many draws of one row."""
    naive = contestants.naive_draws
    many = {"note": f"timed on {naive_draws} draws, scaled to one"} if draws else {}
    found = [
        Contestant("dpjax", relation, as_called(draws), uniforms),
        Contestant(
            "naive jitted Gumbel-max",
            relation,
            naive(naive_draws),
            harness.distribution_uniforms,
            bar=1 / 0.03 if draws else 1,
            **many,
        ),
        contestants.control(naive(naive_draws, epsilon_factor=1.25), relation),
    ]
    if draws is None:
        found.append(
            Contestant(
                f"OpenDP, {CANDIDATES} candidates",
                relation,
                peers.opendp(CANDIDATES),
                peers.opendp_uniforms(CANDIDATES),
                missing=peers.missing("opendp"),
                timed_rows=8,
                check_draws=3000,
                note="from raw records; exact on the CPU, one dataset at a time",
            )
        )
    return found


def seconds(work: Callable[[], Any], repeats: int) -> float:
    """The median of some turns, after a first one."""
    taken = []
    for _ in range(repeats + 1):
        start = time.perf_counter()
        work()
        taken.append(time.perf_counter() - start)
    return float(np.median(taken[1:]))


def waited(question: str, name: str, relation: str, shape: str, found: float, most: float) -> dict:
    """A row whose bar is a time on a clock."""
    compared = {"ratio": found / most, "reference": f"{most:g} s", "bar": {"at_most": 1.0}}
    return row(question, name, relation, shape, value=found, unit="s", **compared)


def peak(name: str, relation: str) -> dict[str, Any]:
    """A row of the most memory that this process had so far."""
    size = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    value = size * (1 if sys.platform == "darwin" else 1024) / 1e9
    compared = {"ratio": value / 0.5, "reference": "0.5 GB", "bar": {"at_most": 1.0}}
    return row("memory of the process", name, relation, "", value=value, unit="GB", **compared)


def from_counts(repeats: int) -> list[dict[str, Any]]:
    """A release of 1000 groups from counts."""
    generator, rows = np.random.default_rng(0), []
    median, ages = release.Median(**AGES), np.arange(VALUES)
    for size in (4, 7):
        counts = generator.multinomial(10**size, np.full(VALUES, 1 / VALUES), GROUPS)
        for epsilon, most in ((1.0, 0.006), (0.1, 0.06), (0.01, 0.6)):
            public: Any = {"counts": counts, "epsilon": epsilon, "neighbors": "add_remove"}
            found = seconds(lambda public=public: median.release(ages, **public), repeats)
            name = f"dpjax, 10^{size} records each, epsilon {epsilon:g}"
            shape = f"{GROUPS} x {VALUES}"
            rows.append(waited(COUNTS, name, "add_remove", shape, found, most))
    return [*rows, peak("dpjax, groups from counts", "add_remove")]


def several(quick: bool) -> list[dict[str, Any]]:
    """Deciles from counts, and percentiles of many records."""
    generator = np.random.default_rng(0)
    deciles = release.Quantiles([Fraction(k, 10) for k in range(1, 10)], **AGES)
    percentiles = release.Quantiles(
        [Fraction(k, 100) for k in range(1, 100)], lower=-10, upper=10, resolution=0.001
    )
    counts = generator.multinomial(10**7, np.full(VALUES, 1 / VALUES))
    size = 4 if quick else 6
    records = generator.normal(size=10**size)
    public: Any = {"epsilon": 1.0, "neighbors": "add_remove"}
    of_counts = seconds(lambda: deciles.release(np.arange(VALUES), counts=counts, **public), 1)
    of_records = seconds(lambda: percentiles.release(records, **public), 1)
    shape = f"10^7 on {VALUES} values"
    return [
        waited(SEVERAL, "dpjax, deciles from counts", "add_remove", shape, of_counts, 1.0),
        waited(SEVERAL, "dpjax, 99 percentiles", "add_remove", f"10^{size}", of_records, 8.0),
    ]


def mean_of_many(size: int) -> dict[str, Any]:
    """The mean of very many records of int8."""
    records = np.random.default_rng(0).integers(0, 101, size, dtype=np.int8)
    mean = release.Mean(lower=0, upper=100, resolution=1)
    spent = seconds(lambda: mean.release(records, epsilon=1.0, neighbors="swap"), 1)
    shape = f"2^{size.bit_length() - 1} of int8"
    return waited("release of a mean", "dpjax", "swap", shape, spent, 1.0)


def arguments() -> argparse.Namespace:
    parser = harness.parser(__doc__)
    parser.add_argument("--rows", type=int, default=1024)
    parser.add_argument("--points", type=int, default=1023)
    parser.add_argument("--draws", type=int, default=1_000_000)
    parser.add_argument("--naive-draws", type=int, default=4096)
    parser.add_argument("--relations", nargs="+", default=["swap", "add_remove"])
    args = parser.parse_args()
    if args.quick:
        args.points, args.draws, args.naive_draws = 33, 10_000, 1000
    return args


def main() -> None:
    args = arguments()
    repeats = args.repeats or (1 if args.quick else 9)
    # First: the peak is that of the process
    rows: list[dict[str, Any]] = from_counts(repeats)
    rows += several(args.quick)
    rows.append(mean_of_many(2**20 if args.quick else 2**24))
    checks: list[dict[str, Any]] = []
    for relation in args.relations:
        for question, draws, naive, unit in (
            ("releases", None, None, "median"),
            ("releases of one dataset", args.draws, args.naive_draws, "draw"),
        ):
            if draws and args.quick and relation != args.relations[0]:
                continue  # a quick run has this question under one relation
            small = Case(16 if draws else 4096, 33, relation, seed=1)
            case = small if args.quick else Case(1 if draws else args.rows, args.points, relation)
            asked = field(relation, draws, naive)
            done = harness.contest(question, asked, case, small, repeats, unit)
            rows, checks = rows + done[0], checks + done[1]
    harness.finish("releases", args, rows, checks)


if __name__ == "__main__":
    main()
