"""From unsorted float32 records to one private median of each dataset, against sorting alone, NumPy
and other libraries.

python benchmarks/from_raw.py [--rows 4096] [--points 1001] [--peer-rows 200] [--tumult-python
PYTHON] [--quick] [--out FILE]

The same bounds are public to every contestant. The other libraries are timed on --peer-rows
datasets: seconds a median.
"""

import contestants
import harness
import peers
from contestants import NUMPY_SINGLE
from harness import Case, Contestant

PEER_BARS = {"OpenDP": (200, 1000), "diffprivlib": (100, 1000)}
NUMPY_BARS = {"cumulative sums": (2, 5), "Gumbel-max": (2, 5)}


def field(
    relation: str, chunk: int, peer_rows: int, check_draws: int, tumult: peers.Tumult | None
) -> list[Contestant]:
    distribution = harness.distribution_uniforms
    return [
        Contestant("dpjax", relation, contestants.library_from_raw, distribution),
        Contestant(
            "np.sort alone",
            harness.NO_RELATION,
            contestants.numpy_sort,
            None,
            bar=1 / 4,
            reach=1 / 3,
            note="sorted data, no median",
        ),
        *(
            Contestant(
                f"NumPy sort, {name}",
                relation,
                contestants.numpy_single(name, chunk, from_raw=True),
                distribution,
                *NUMPY_BARS.get(name, (None, None)),
                group="NumPy" if name in NUMPY_BARS else None,
                note=f"{chunk} rows "
                "at a time"
                + ("" if name in NUMPY_BARS else "; a stronger rival than the bar asks for"),
            )
            for name in NUMPY_SINGLE
        ),
        *peers.field(relation, peer_rows, tumult, PEER_BARS, check_draws),
        contestants.control(contestants.naive_draws(epsilon_factor=1.25), relation),
    ]


def main() -> None:
    parser = harness.parser(__doc__)
    parser.add_argument("--rows", type=int, default=4096)
    parser.add_argument("--points", type=int, default=1001)
    parser.add_argument("--chunk", type=int, default=256, help="rows that NumPy takes at a time")
    parser.add_argument("--peer-rows", type=int, default=200)
    parser.add_argument("--relations", nargs="+", default=["swap", "add_remove"])
    parser.add_argument("--tumult-python", help="a Python that has tmlt.core, if this one has not")
    args = parser.parse_args()
    check_draws = 20_000
    if args.quick:
        args.rows, args.points, args.peer_rows, check_draws = 16_384, 33, 4, 3000
    python = peers.tumult_python(args.tumult_python)
    tumult = peers.Tumult(python) if python else None
    rows, checks = [], []
    for relation in args.relations:
        small = Case(16_384, 33, relation, seed=1)
        case = small if args.quick else Case(args.rows, args.points, relation)
        contestants_here = field(relation, args.chunk, args.peer_rows, check_draws, tumult)
        done = harness.contest(
            "from raw records",
            contestants_here,
            case,
            small,
            args.repeats or (1 if args.quick else 9),
            "median",
        )
        rows, checks = rows + done[0], checks + done[1]
    for line in rows:
        line["bounds"] = [case.lower, case.upper]
    harness.finish("from_raw", args, rows, checks, tumult=tumult.versions if tumult else None)
    if tumult:
        tumult.worker.close()


if __name__ == "__main__":
    main()
