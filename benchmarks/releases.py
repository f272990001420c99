"""Exact releases, from records and from counts as users call them, against naive float Gumbel-max,
OpenDP, and plain arithmetic.

python benchmarks/releases.py [--rows 1024] [--points 1023] [--draws 1000000] [--quick] [--out FILE]

"dpjax" is ``dpjax.release.median`` itself: records to the grid, sorting, profiles, entropy,
doubtful draws. Naive Gumbel-max starts from pieces that are made already, and its floats are no
release. From counts there are 1000 groups on 121 values, with ten thousand records each and with
ten million; what is compared is the exponential function on as many numbers as there are counts.
"""

import argparse
import resource
import sys
import time
from fractions import Fraction
from typing import Any

import jax
import numpy as np

import contestants
import dpjax
import harness
import peers
from dpjax import release
from harness import Built, Case, Contestant, row

RESOLUTION = Fraction(1, 2**20)
CANDIDATES = 1000
GROUPS, VALUES = 1000, 121
COUNTS = "releases from counts"
BAR = 50  # times the exponential function


def as_called(draws: int | None = None):
    """One release of each row, or many of one."""

    def build(case: Case) -> Built:
        bounds: Any = {
            "lower": case.lower,
            "upper": case.upper,
            "resolution": RESOLUTION,
            "neighbors": case.relation,
        }

        def run(turn: int) -> np.ndarray:
            values = release.median(
                case.data, **bounds, epsilon=case.epsilon, draws=draws or 1
            ).values
            return values if draws else values[0]

        return Built(run, case.rows * (draws or 1))

    return build


def uniforms(case: Case, values: np.ndarray) -> np.ndarray:
    """The exact cdf of piecewise Laplace for the record x[ceil(n/2)]: the grid is far finer than
    the records are apart.
    """
    profile = dpjax.median(
        case.data, lower=case.lower, upper=case.upper, neighbors=case.relation, definition="lower"
    )
    exact = dpjax.piecewise_laplace(profile, case.epsilon)
    return np.asarray(harness.cdf(exact, jax.numpy.asarray(values)))


def single(relation: str) -> list[Contestant]:
    distribution = harness.distribution_uniforms
    return [
        Contestant("dpjax", relation, as_called(), uniforms),
        Contestant(
            "naive jitted Gumbel-max", relation, contestants.naive_draws(), distribution, bar=2
        ),
        Contestant(
            "dpjax, float sampler",
            relation,
            contestants.library_draws(),
            distribution,
            note="simulation, not a release",
        ),
        Contestant(
            f"OpenDP, {CANDIDATES} candidates",
            relation,
            peers.opendp(CANDIDATES),
            peers.opendp_uniforms(CANDIDATES),
            missing=peers.missing("opendp"),
            timed_rows=8,
            check_draws=3000,
            note="from raw records; exact on the CPU, one dataset at a time",
        ),
        contestants.control(contestants.naive_draws(epsilon_factor=1.25), relation),
    ]


def repeated(relation: str, draws: int, naive_draws: int) -> list[Contestant]:
    distribution = harness.distribution_uniforms
    return [
        Contestant("dpjax", relation, as_called(draws), uniforms),
        Contestant(
            "naive jitted Gumbel-max",
            relation,
            contestants.naive_draws(naive_draws),
            distribution,
            bar=1 / 0.03,
            note=f"timed on {naive_draws} draws, scaled to one",
        ),
        contestants.control(contestants.naive_draws(naive_draws, epsilon_factor=1.25), relation),
    ]


def from_counts(repeats: int) -> list[dict[str, Any]]:
    """Rows of a release of 1000 groups from counts, the first call apart, beside the exponential
    function.
    """
    options: Any = {
        "lower": 0,
        "upper": VALUES - 1,
        "resolution": 1,
        "epsilon": 1.0,
        "neighbors": "add_remove",
    }
    generator, rows = np.random.default_rng(0), []
    numbers = generator.normal(size=(GROUPS, VALUES))
    shape = f"{GROUPS} x {VALUES}"
    for size in (10**4, 10**7):
        counts = generator.multinomial(size, np.full(VALUES, 1 / VALUES), GROUPS)
        taken: dict[str, list[float]] = {"first": [], "later": [], "np.exp": []}
        for turn in range(repeats + 1):
            start = time.perf_counter()
            release.median(np.arange(VALUES), counts=counts, **options)
            middle = time.perf_counter()
            for _ in range(20):
                np.exp(numbers)
            taken["first" if turn == 0 else "later"].append(middle - start)
            taken["np.exp"].append((time.perf_counter() - middle) / 20)
        unit = float(np.median(taken["np.exp"]))
        for name in ("first", "later"):
            found = float(np.median(taken[name]))
            compared = {"ratio": found / unit, "reference": "np.exp", "bar": {"at_most": BAR}}
            name = f"dpjax, {name} call, 10^{len(str(size)) - 1} records each"
            rows.append(row(COUNTS, name, "add_remove", shape, value=found, unit="s", **compared))
        rows.append(row(COUNTS, "np.exp", harness.NO_RELATION, shape, value=unit, unit="s"))
    return rows


def mean_of_many(size: int) -> list[dict[str, Any]]:
    """The mean of very many records of int8: the time, and the peak memory of the process."""
    records = np.random.default_rng(0).integers(0, 101, size, dtype=np.int8)
    start = time.perf_counter()
    release.mean(records, lower=0, upper=100, resolution=1, epsilon=1.0, neighbors="swap")
    spent = time.perf_counter() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (
        1 if sys.platform == "darwin" else 1024
    )
    where = "release of a mean", "dpjax", "swap", f"2^{size.bit_length() - 1} of int8"
    found = row(*where, value=spent, unit="s", ratio=spent, reference="1 s", bar={"at_most": 1.0})
    return [found, row(*where, value=peak / 1e9, unit="GB at the peak of the process")]


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
    rows, checks = mean_of_many(2**20 if args.quick else 2**24), []
    rows += from_counts(repeats)
    for relation in args.relations:
        small = Case(4096, 33, relation, seed=1)
        case = small if args.quick else Case(args.rows, args.points, relation)
        done = harness.contest("releases", single(relation), case, small, repeats, "median")
        rows, checks = rows + done[0], checks + done[1]
        if args.quick and relation != args.relations[0]:
            continue  # a quick run has this question under one relation
        small = Case(16, 33, relation, seed=1)
        case = small if args.quick else Case(1, args.points, relation)
        done = harness.contest(
            "releases of one dataset",
            repeated(relation, args.draws, args.naive_draws),
            case,
            small,
            repeats,
            "draw",
        )
        rows, checks = rows + done[0], checks + done[1]
    harness.finish("releases", args, rows, checks)


if __name__ == "__main__":
    main()
