"""Mean absolute error of private medians: same data, same relation, epsilon from 0.1 to 4; ours
and OpenDP's exactly, others by Monte Carlo.

python benchmarks/accuracy.py [--draws 400] [--tumult-python PYTHON] [--quick] [--out FILE]

Numbers of two relations are never compared: each row's ratio is against the default release at the
first public candidates, and OpenDP's against the default release at the same candidates. A row
where that does not win says so and stays; what carries a bar is the worst epsilon. Errors are means
over --datasets datasets of one kind, of an odd number of records each, so that there is one middle
record: with an even number OpenDP aims between two, and an error below their distance depends on
which median is meant. OpenDP's probabilities are those that its draws are tested against in
from_raw.py and releases.py.
"""

import argparse
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np

import dpjax
import harness
import peers
import tables
from dpjax import release
from harness import Case, row

EPSILONS = (0.1, 0.25, 0.5, 1.0, 2.0, 4.0)
DEFAULT = "dpjax.release.Median"


@dataclass(frozen=True)
class Records(Case):
    """Datasets of one kind, and the public numbers of evenly spaced candidates."""

    name: str = ""
    values: tuple[tuple[float, ...], ...] = ()
    candidates: tuple[int, ...] = (1000, 10_000)

    @property
    def data(self) -> np.ndarray:
        return np.array(self.values)


def datasets(seed: int, count: int) -> list[Records]:
    """Synthetic, seeded, with public bounds."""
    generator = np.random.default_rng(seed)

    def make(
        name: str, values: np.ndarray, lower: float, upper: float, *candidates: int
    ) -> Records:
        clipped = tuple(map(tuple, np.clip(values, lower, upper).tolist()))
        made = Records(count, values.shape[1], "", 1.0, lower, upper, seed, name, clipped)
        return replace(made, candidates=candidates) if candidates else made

    return [
        make("1001 of N(0,1)", generator.standard_normal((count, 1001)), -10, 10),
        make("1001 of Cauchy", generator.standard_cauchy((count, 1001)), -1000, 1000),
        make("1001 ages with ties", np.round(generator.normal(38, 18, (count, 1001))), 0, 100, 101),
        make("51 of N(0,1)", generator.standard_normal((count, 51)), -10, 10),
    ]


def difference_of_ranks(case: Records) -> dpjax.PiecewiseExponential:
    """The classical private median: the utility -abs(records below - records above), which one
    change moves by 1, a swap by 2.
    """
    ends = np.broadcast_to([case.lower, case.upper], (len(case.values), 2))
    edges = np.concatenate([ends[:, :1], np.sort(case.data), ends[:, 1:]], axis=-1)
    cost = jnp.abs(2 * jnp.arange(case.points + 1.0) - case.points)
    rate = case.epsilon / (2 if case.relation == "add_remove" else 4)
    return dpjax.PiecewiseExponential(jnp.asarray(edges), cost, cost, jnp.asarray(rate))


def at_candidates(case: Records, candidates: int) -> dict[str, np.ndarray]:
    """The exact error on each dataset, at so many candidates: both mechanisms of this library, and
    OpenDP. Records are moved to where the candidates are multiples of their distance.
    """
    distance, truth = Fraction(case.upper - case.lower), np.median(case.data, axis=1)
    median = release.Median(lower=0, upper=distance, resolution=distance / (candidates - 1))
    errors = {}
    for mechanism in median.mechanisms:
        found = median.distribution(
            case.data - case.lower,
            epsilon=case.epsilon,
            neighbors=case.relation,
            mechanism=mechanism,
        )
        name = DEFAULT + ("" if mechanism == median.mechanisms[0] else f", {mechanism}")
        errors[name] = found.mean_abs_error(truth - case.lower)
    grid = np.linspace(case.lower, case.upper, candidates)
    away = np.abs(grid - truth[:, None])
    errors["OpenDP"] = np.array(
        [
            peers.opendp_probabilities(case, records, grid) @ distances
            for records, distances in zip(np.sort(case.data), away, strict=True)
        ]
    )
    return errors


def continuous(case: Records) -> Iterator[tuple[str, np.ndarray]]:
    """Name and exact error on each dataset, of mechanisms without candidates."""
    profile = dpjax.median(
        jnp.asarray(case.data), lower=case.lower, upper=case.upper, neighbors=case.relation
    )
    distributions = {
        "dpjax.piecewise_laplace": dpjax.piecewise_laplace(profile, case.epsilon),
        "dpjax.inverse_sensitivity": dpjax.inverse_sensitivity(profile, case.epsilon),
        "exponential mechanism, difference of ranks": difference_of_ranks(case),
    }
    # One record moves a median by the whole range under swap; adding one can move the midpoint by
    # half of it.
    sensitivity = (case.upper - case.lower) / (1 if case.relation == "swap" else 2)
    distributions["Laplace by global sensitivity, bounded"] = dpjax.laplace(
        profile.value, case.epsilon, sensitivity=sensitivity, lower=case.lower, upper=case.upper
    )
    for name, distribution in distributions.items():
        yield name, np.asarray(distribution.mean_abs_error(profile.value))
    scale, values = sensitivity / case.epsilon, np.asarray(profile.value)
    cut = sum(
        -np.expm1(-distance / scale) for distance in (values - case.lower, case.upper - values)
    )
    yield "Laplace by global sensitivity, clamped", scale * cut / 2


def sampled(case: Records, draws: int, tumult: peers.Tumult | None) -> tuple[str, np.ndarray | str]:
    """Name and errors (turns, datasets) of the other library whose own relation this is, or why
    there are none.
    """
    run: Callable[[int], np.ndarray] | str
    if case.relation == "swap":
        name = "diffprivlib"
        run = peers.missing(name) or peers.diffprivlib(case).run
    else:
        name, run = "Tumult Core", tumult.draws(case).run if tumult else "not installed"
    if isinstance(run, str):
        return name, run
    drawn = np.stack([run(turn) for turn in range(-(-draws // case.rows))])
    return name, np.abs(drawn - np.median(case.data, axis=1))


def compare(case: Records, draws: int, tumult: peers.Tumult | None) -> list[dict]:
    """One row for each mechanism on datasets of one kind, under one relation and epsilon."""
    where = f"error, {case.name}, epsilon {case.epsilon:g}"
    common = {"dataset": case.name, "epsilon": case.epsilon, "unit": "error"}
    rows = []

    def line(name: str, errors: np.ndarray | str, best: np.ndarray) -> dict:
        """A row; ``standard_error`` is that of Monte Carlo, for these datasets."""
        if isinstance(errors, str):
            return row(where, name, case.relation, case.shape, status=errors, **common)
        spread = 0.0
        if errors.ndim == 2:  # only the spread within each dataset counts
            spread = float(np.sqrt(np.mean(np.var(errors, axis=0, ddof=1)) / errors.size))
        error, against = float(np.mean(errors)), float(np.mean(best))
        return row(
            where,
            name,
            case.relation,
            case.shape,
            value=error,
            standard_error=spread,
            ratio=error / against,
            reference=DEFAULT,
            verdict=verdict(error, spread, against),
            **common,
        )

    first = None
    for candidates in case.candidates:
        found = at_candidates(case, candidates)
        best = found[DEFAULT]
        first = best if first is None else first
        for name, errors in found.items():
            rows.append(line(f"{name}, {candidates} candidates", errors, best))
        # What a mean over other datasets of this kind may differ by
        spread = np.std(found["OpenDP"] - best, ddof=1) / np.sqrt(case.rows)
        rows[-1]["spread"] = float(spread / np.mean(found["OpenDP"]))
    for name, errors in (*continuous(case), sampled(case, draws, tumult)):
        rows.append(line(name, errors, first))
    return rows


def worst(rows: list[dict]) -> list[dict]:
    """For each kind of data, candidates and relation, the epsilon at which the default release
    loses most against OpenDP; the bar is a ratio of 1, within two standard errors.
    """
    cells: dict[tuple[str, ...], list[dict]] = {}
    for line in rows:
        if "spread" in line:
            key = line["dataset"], line["contestant"], line["relation"]
            cells.setdefault(key, []).append(line)
    found = []
    for (name, opendp, relation), lines in cells.items():
        most = max(lines, key=lambda line: 1 / line["ratio"])
        found.append(
            row(
                f"error against OpenDP, worst epsilon: {most['epsilon']:g}",
                DEFAULT,
                relation,
                name + opendp.removeprefix("OpenDP"),
                value=most["value"] / most["ratio"],
                unit="error",
                ratio=1 / most["ratio"],
                reference="OpenDP",
                bar={"at_most": 1 + max(2 * most["spread"], 1e-9)},
            )
        )
    return found


def verdict(error: float, standard_error: float, best: float) -> str:
    """Who has the smaller error: by two standard errors where it was sampled, by 1e-9 where both
    are exact.
    """
    margin = max(2 * standard_error, 1e-9 * best)
    return (
        "reference is better"
        if error > best + margin
        else "reference is worse"
        if error < best - margin
        else "not told apart"
    )


def table(rows: list[dict]) -> str:
    """Errors by data, relation and mechanism, one column for each epsilon; +- is one standard
    error.
    """
    found: dict[tuple[str, str, str], dict[float, dict]] = {}
    for line in rows:
        found.setdefault((line["dataset"], line["relation"], line["contestant"]), {})[
            line["epsilon"]
        ] = line
    epsilons = sorted({line["epsilon"] for line in rows})
    head = ("data", "relation", "mechanism", *(f"epsilon {epsilon:g}" for epsilon in epsilons))
    return tables.markdown(
        head,
        [
            (*names, *(_entry(errors.get(epsilon)) for epsilon in epsilons))
            for names, errors in found.items()
        ],
    )


def _entry(line: dict | None) -> str:
    if line is None or line["status"] != "measured":
        return "-" if line is None else line["status"]
    spread = (
        f" +-{line['standard_error']:.1g}" if line["standard_error"] > 1e-9 * line["value"] else ""
    )
    return f"{line['value']:.3g}{spread}" + {"reference is worse": "*", "not told apart": "~"}.get(
        line.get("verdict"), ""
    )


def main() -> None:
    parser = harness.parser(__doc__)
    parser.add_argument(
        "--draws",
        type=int,
        default=400,
        help="of each other library, for each kind of data, relation and epsilon",
    )
    parser.add_argument("--datasets", type=int, default=100, help="of each kind")
    parser.add_argument("--epsilons", type=float, nargs="+", default=list(EPSILONS))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--tumult-python", help="a Python that has tmlt.core, if this one has not")
    args: argparse.Namespace = parser.parse_args()
    if args.quick:
        args.draws, args.datasets, args.epsilons = 20, 4, [1.0]
    jax.config.update("jax_enable_x64", True)
    python = peers.tumult_python(args.tumult_python)
    tumult = peers.Tumult(python) if python else None
    rows = []
    for records in datasets(args.seed, args.datasets):
        for relation in ("swap", "add_remove"):
            for epsilon in args.epsilons:
                rows += compare(
                    replace(records, relation=relation, epsilon=epsilon), args.draws, tumult
                )
    bars = worst(rows)
    counts = Counter(line["verdict"] for line in rows if "verdict" in line)
    notes = [
        "Errors against the default release, OpenDP's at the same candidates: "
        + ", ".join(f"{verdict} {count}" for verdict, count in counts.items()),
        "* marks a smaller error than the reference's, ~ one that is not told apart from it; +- "
        "is one standard error.",
    ]
    harness.finish(
        "accuracy",
        args,
        rows + bars,
        [],
        notes,
        f"{table(rows)}\n\n{tables.of_rows(bars, not args.quick)}",
        tumult=tumult.versions if tumult else None,
    )
    if tumult:
        tumult.worker.close()


if __name__ == "__main__":
    main()
