"""Exact releases on a grid, words included, against naive float Gumbel-max, and against OpenDP, which is exact too.

python benchmarks/releases.py [--rows 1024] [--points 1023] [--draws 1000000] [--quick] [--out FILE]

"dpjax" draws from integer profiles that are on the device, with ChaCha20 words made inside the clock, as a release makes them: by
NumPy where they are few. "median()" is the whole function as a user calls it: records to the grid, sorting, tables, entropy,
doubtful lanes. Many draws go in chunks of 65,536.
"""

import argparse
from fractions import Fraction
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import contestants
import harness
import peers
from dpjax.release import median
from dpjax.release.grid import Multiples
from dpjax.release.integer_profiles import order_statistic
from dpjax.release.sampler import WORDS, certified_draw
from dpjax.release.tables import public_tables
from dpjax.release.words import words_of
from dpjax.several_quantiles.ranks import ranks_of_quantile
from harness import Built, Case, Contestant

RESOLUTION = Fraction(1, 2**20)
CHUNK = 65_536
CANDIDATES = 1000


def grid_of(case: Case) -> Multiples:
    return Multiples.between(case.lower, case.upper, RESOLUTION)


def on_device(draws: int | None = None):
    """From knots: one draw of each row, or many, a chunk at a time, each with its words as a release makes them."""

    def build(case: Case) -> Built:
        grid = grid_of(case)
        cells, there = grid.numbers_of(case.data)
        ranks = ranks_of_quantile(0.5, definition="linear", neighbors=case.relation)
        profile = order_statistic(cells, there, ranks, high=grid.size - 1, count_is_public=case.relation == "swap")
        tables = public_tables(case.epsilon, levels=max(side.shape[-1] for side in profile))
        step = np.float32(RESOLUTION / ranks.denominator)
        chunks = 1 if draws is None else -(-draws * case.rows // CHUNK)
        number = 1 if draws is None else draws // chunks
        lanes = np.arange(chunks * number * case.rows, dtype=np.uint32).reshape(chunks, number, case.rows)

        def values(words: jax.Array, tables: Any, lower: jax.Array, upper: jax.Array) -> jax.Array:
            return certified_draw(tables, lower, upper, words).cell.astype(jnp.float32) * step + np.float32(case.lower)

        arguments = jax.tree.map(jnp.asarray, (tables, *profile))
        words = jax.ShapeDtypeStruct((WORDS, number, case.rows), jnp.uint32)
        executable, costs = harness.compiled(values, words, *arguments)

        def run(turn: int) -> np.ndarray:
            entropy = np.random.default_rng(turn).integers(2**32, size=8, dtype=np.uint32)
            found = [np.asarray(executable(jnp.asarray(words_of(entropy, lane, WORDS)), *arguments)) for lane in lanes]
            return found[0][0] if draws is None else np.concatenate(found)

        return Built(run, lanes.size, **costs)

    return build


def as_called(case: Case) -> Built:
    def run(turn: int) -> np.ndarray:
        bounds = {"lower": case.lower, "upper": case.upper, "resolution": RESOLUTION}
        return median(case.data, **bounds, definition="linear", epsilon=case.epsilon, neighbors=case.relation).values[0]

    return Built(run, case.rows)


def single(relation: str) -> list[Contestant]:
    distribution = harness.distribution_uniforms
    return [
        Contestant("dpjax", relation, on_device(), distribution),
        Contestant("naive jitted Gumbel-max", relation, contestants.naive_draws(), distribution, bar=1 / 0.35),
        Contestant("dpjax, float sampler", relation, contestants.library_draws(), distribution, note="simulation, not a release"),
        Contestant("median(), from raw records", relation, as_called, distribution, note="sorting on the host"),
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
        Contestant("dpjax", relation, on_device(draws), distribution),
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


def arguments() -> argparse.Namespace:
    parser = harness.parser(__doc__)
    parser.add_argument("--rows", type=int, default=1024)
    parser.add_argument("--points", type=int, default=1023)
    parser.add_argument("--draws", type=int, default=1_000_000)
    parser.add_argument("--naive-draws", type=int, default=4096)
    parser.add_argument("--relations", nargs="+", default=["swap", "add_remove"])
    args = parser.parse_args()
    if args.quick:
        args.points, args.draws, args.naive_draws = 33, 2 * CHUNK, 1000
    return args


def main() -> None:
    args = arguments()
    repeats = args.repeats or (3 if args.quick else 9)
    rows, checks = [], []
    for relation in args.relations:
        small = Case(1024, 33, relation, seed=1)
        case = small if args.quick else Case(args.rows, args.points, relation)
        done = harness.contest("releases", single(relation), case, small, repeats, "median")
        rows, checks = rows + done[0], checks + done[1]
        small = Case(1, 33, relation, seed=1)
        case = small if args.quick else Case(1, args.points, relation)
        done = harness.contest(
            "releases of one dataset", repeated(relation, args.draws, args.naive_draws), case, small, repeats, "draw"
        )
        rows, checks = rows + done[0], checks + done[1]
    harness.finish("releases", args, rows, checks)


if __name__ == "__main__":
    main()
