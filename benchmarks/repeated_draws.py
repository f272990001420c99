"""Many draws from each of a few distributions: time for one draw, and how it grows with the number
of points.

python benchmarks/repeated_draws.py [--rows 100] [--points 1001] [--draws 10000] [--quick] [--out
FILE]

The table of sums is built inside the clock. Naive Gumbel-max cannot make 10^4 draws in reasonable
time: it is timed on --naive-draws of them and reported for one draw. The growth is one dataset with
--growth-draws draws.
"""

import argparse
import statistics

import numpy as np

import contestants
import harness
from harness import Case, Contestant, row


def field(relation: str, draws: int, naive_draws: int) -> list[Contestant]:
    distribution = harness.distribution_uniforms
    return [
        Contestant("dpjax", relation, contestants.library_draws((draws,)), distribution),
        Contestant(
            "jax.random.laplace",
            harness.NO_RELATION,
            contestants.plain_laplace((draws,)),
            contestants.plain_laplace_uniforms,
            bar=1 / 5,
            reach=1 / 2,
            note="the price of plain noise, not a private median",
        ),
        Contestant(
            "naive jitted Gumbel-max",
            relation,
            contestants.naive_draws(naive_draws),
            distribution,
            bar=300,
            reach=700,
            note=f"timed on {naive_draws} draws a dataset, scaled to one draw",
        ),
        *(
            Contestant(
                f"NumPy inverse cdf, {dtype.__name__}",
                relation,
                contestants.numpy_repeated(draws, dtype),
                distribution,
                bar=2,
                reach=3,
                group="NumPy",
            )
            for dtype in (np.float64, np.float32)
        ),
        contestants.control(contestants.naive_draws(naive_draws, epsilon_factor=1.25), relation),
    ]


def growth(relation: str, sizes: list[int], draws: int, repeats: int) -> list[dict]:
    """Time for one draw from one dataset of each size; the ratio is against the smallest."""
    built = {}
    for points in sizes:
        case = Case(1, points, relation)
        built[f"dpjax, {points} points"] = contestants.library_draws((draws,))(case)
        built[f"NumPy inverse cdf, {points} points"] = contestants.numpy_repeated(
            draws, np.float64
        )(case)
    times = harness.interleave(built, repeats)
    rows = []
    for name in ("dpjax", "NumPy inverse cdf"):
        first = f"{name}, {sizes[0]} points"
        for points in sizes:
            mine = times[f"{name}, {points} points"]
            ratios = [a / b for a, b in zip(mine, times[first], strict=True)]
            compared = points != sizes[0]
            bars = compared and name == "dpjax" and points == sizes[-1]
            rows.append(
                row(
                    "growth of a draw with points",
                    f"{name}, {points} points",
                    relation,
                    f"1 x {points}, {draws} draws",
                    value=statistics.median(mine),
                    unit="s a draw",
                    seconds=harness.spread(mine),
                    repeats=repeats,
                    compile_seconds=built[f"{name}, {points} points"].compile_seconds,
                    bytes_touched=built[f"{name}, {points} points"].bytes_touched,
                    temporary_bytes=built[f"{name}, {points} points"].temporary_bytes,
                    ratio=statistics.median(ratios) if compared else None,
                    ratio_spread=harness.spread(ratios) if compared else None,
                    reference=first if compared else None,
                    bar={"at_most": 4} if bars else None,
                    reach={"at_most": 2} if bars else None,
                    note="" if bars or not compared else "own growth, no bar",
                )
            )
    return rows


def arguments() -> argparse.Namespace:
    parser = harness.parser(__doc__)
    parser.add_argument("--rows", type=int, default=100)
    parser.add_argument("--points", type=int, default=1001)
    parser.add_argument("--draws", type=int, default=10_000)
    parser.add_argument("--naive-draws", type=int, default=10)
    parser.add_argument(
        "--growth-points", type=int, nargs="+", default=[1001, 10_001, 100_001, 1_000_001]
    )
    parser.add_argument("--growth-draws", type=int, default=1_000_000)
    parser.add_argument("--relations", nargs="+", default=["swap", "add_remove"])
    args = parser.parse_args()
    if args.quick:
        args.rows, args.points, args.draws, args.naive_draws = 512, 33, 1000, 5
        args.growth_points, args.growth_draws = [101, 1001], 10_000
    return args


def main() -> None:
    args = arguments()
    repeats = args.repeats or (1 if args.quick else 9)
    rows, checks = [], []
    for relation in args.relations:
        small = Case(512, 33, relation, seed=1)
        case = small if args.quick else Case(args.rows, args.points, relation)
        done = harness.contest(
            "repeated draws",
            field(relation, args.draws, args.naive_draws),
            case,
            small,
            repeats,
            "draw",
        )
        rows, checks = rows + done[0], checks + done[1]
        if args.quick and relation != args.relations[0]:
            continue  # one growth shows that it runs
        rows += growth(relation, args.growth_points, args.growth_draws, repeats)
    harness.finish("repeated_draws", args, rows, checks)


if __name__ == "__main__":
    main()
