"""One private median of each of many datasets, from sorted records: against naive Gumbel-max,
NumPy, plain noise and a read.

python benchmarks/single_draws.py [--rows 4096] [--points 1001] [--relations swap add_remove]
[--quick] [--out FILE]

Every contestant holds its input (a distribution, edges, sorted records) before the clock starts. On
an accelerator, --rows 65536.
"""

import jax.numpy as jnp

import contestants
import harness
from contestants import NUMPY_SINGLE
from harness import Case, Contestant

READS = {
    "one read of the edges, jnp.max": contestants.read_with_jax(jnp.max),
    "one read of the edges, jnp.sum": contestants.read_with_jax(jnp.sum),
    "one read of the edges, np.max": contestants.read_with_numpy,
}


def field(relation: str, chunk: int) -> list[Contestant]:
    distribution = harness.distribution_uniforms
    return [
        Contestant("dpjax", relation, contestants.library_draws(), distribution),
        Contestant(
            "naive jitted Gumbel-max",
            relation,
            contestants.naive_draws(),
            distribution,
            bar=8,
            reach=20,
        ),
        *(
            Contestant(
                name, harness.NO_RELATION, build, None, bar=1 / 25, reach=1 / 5, group="read"
            )
            for name, build in READS.items()
        ),
        *(
            Contestant(
                f"NumPy, {name}",
                relation,
                contestants.numpy_single(name, chunk, from_raw=False),
                distribution,
                note=f"{chunk} rows at a time",
            )
            for name in NUMPY_SINGLE
        ),
        Contestant(
            "jax.random.laplace on given medians",
            harness.NO_RELATION,
            contestants.plain_laplace(),
            contestants.plain_laplace_uniforms,
            note="the price of plain noise, not a private median",
        ),
        contestants.control(contestants.naive_draws(epsilon_factor=1.25), relation),
    ]


def main() -> None:
    parser = harness.parser(__doc__)
    parser.add_argument("--rows", type=int, default=4096)
    parser.add_argument("--points", type=int, default=1001)
    parser.add_argument("--chunk", type=int, default=256, help="rows that NumPy takes at a time")
    parser.add_argument("--relations", nargs="+", default=["swap", "add_remove"])
    args = parser.parse_args()
    if args.quick:
        args.rows, args.points = 8192, 33
    rows, checks = [], []
    for relation in args.relations:
        small = Case(8192, 33, relation, seed=1)
        case = small if args.quick else Case(args.rows, args.points, relation)
        done = harness.contest(
            "single draws",
            field(relation, args.chunk),
            case,
            small,
            args.repeats or (1 if args.quick else 15),
            "median",
        )
        rows, checks = rows + done[0], checks + done[1]
    harness.finish("single_draws", args, rows, checks)


if __name__ == "__main__":
    main()
