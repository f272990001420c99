"""Mean absolute error of private medians: same data, same relation, epsilon from 0.1 to 4; ours
exactly, others by Monte Carlo.

python benchmarks/accuracy.py [--draws 400] [--tumult-python PYTHON] [--quick] [--out FILE]

Numbers of two relations are never compared: each row's ratio is against piecewise Laplace under the
same relation (on tied data with their resolution, as ``dpjax.statistics`` advises). A row where
that does not win says so and stays. Errors are means over --datasets datasets of one kind, so that
no single lucky grid of candidates decides. Those of the other libraries, called by the same code,
are checked in from_raw.py.
"""

import argparse
import math
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp
import numpy as np

import dpjax
import harness
import peers
import tables
from harness import Case, row

EPSILONS = (0.1, 0.25, 0.5, 1.0, 2.0, 4.0)


@dataclass(frozen=True)
class Records(Case):
    """Datasets of one kind; ``resolution`` is the public distance between possible records, 0 for
    none.
    """

    name: str = ""
    values: tuple[tuple[float, ...], ...] = ()
    resolution: float = 0.0

    def __post_init__(self) -> None:
        """Even numbers of points are welcome here: no NumPy contestant takes part."""

    @property
    def data(self) -> np.ndarray:
        return np.array(self.values)

    def grids(self) -> dict[str, np.ndarray]:
        """Public candidates for OpenDP: the possible records, or evenly spaced numbers."""
        if self.resolution:
            count = round((self.upper - self.lower) / self.resolution) + 1
            return {f"{count} candidates": np.linspace(self.lower, self.upper, count)}
        return {
            f"{count} candidates": np.linspace(self.lower, self.upper, count)
            for count in (1000, 10_000)
        }


def datasets(seed: int, count: int) -> list[Records]:
    """Synthetic, seeded, with public bounds."""
    generator = np.random.default_rng(seed)

    def make(
        name: str, values: np.ndarray, lower: float, upper: float, resolution: float = 0.0
    ) -> Records:
        clipped = tuple(map(tuple, np.clip(values, lower, upper).tolist()))
        return Records(
            count, values.shape[1], "", 1.0, lower, upper, seed, name, clipped, resolution
        )

    return [
        make("1000 of N(0,1)", generator.standard_normal((count, 1000)), -10, 10),
        make("1000 of Cauchy", generator.standard_cauchy((count, 1000)), -1000, 1000),
        make("1000 ages with ties", np.round(generator.normal(38, 18, (count, 1000))), 0, 100, 1.0),
        make("50 of N(0,1)", generator.standard_normal((count, 50)), -10, 10),
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


def exact(case: Records) -> Iterator[tuple[str, float, bool]]:
    """Name, exact error, and whether this is the reference, for the mechanisms of this library."""
    resolutions = (case.resolution, None) if case.resolution else (None,)
    for resolution in resolutions:
        suffix = f", resolution={resolution or 'none'}" if case.resolution else ""
        options = {
            "lower": case.lower,
            "upper": case.upper,
            "neighbors": case.relation,
            "resolution": resolution,
        }
        profile = dpjax.median(jnp.asarray(case.data), **options)
        for name, mechanism in (
            ("piecewise Laplace", dpjax.piecewise_laplace),
            ("inverse sensitivity", dpjax.inverse_sensitivity),
        ):
            distribution = mechanism(profile, case.epsilon)
            reference = mechanism is dpjax.piecewise_laplace and resolution == resolutions[0]
            yield (
                f"dpjax {name}{suffix}",
                float(jnp.mean(distribution.mean_abs_error(profile.value))),
                reference,
            )
    ranks = difference_of_ranks(case)
    yield (
        "exponential mechanism, difference of ranks",
        float(jnp.mean(ranks.mean_abs_error(profile.value))),
        False,
    )
    # One record moves a median by the whole range under swap; adding one can move the midpoint by
    # half of it.
    sensitivity = (case.upper - case.lower) / (1 if case.relation == "swap" else 2)
    bounded = dpjax.laplace(
        profile.value, case.epsilon, sensitivity=sensitivity, lower=case.lower, upper=case.upper
    )
    yield (
        "Laplace by global sensitivity, bounded",
        float(jnp.mean(bounded.mean_abs_error(profile.value))),
        False,
    )
    scale, values = sensitivity / case.epsilon, np.asarray(profile.value)
    cut = sum(
        -np.expm1(-distance / scale) for distance in (values - case.lower, case.upper - values)
    )
    yield "Laplace by global sensitivity, clamped", float(np.mean(scale * cut / 2)), False


def sampled(
    case: Records, draws: int, tumult: peers.Tumult | None
) -> Iterator[tuple[str, np.ndarray | str]]:
    """Name and draws (turns, datasets) of the other libraries whose own relation this is, or why
    there are none.
    """
    runs: dict[str, Callable[[int], np.ndarray] | str] = {}
    for name, grid in case.grids().items():
        runs[f"OpenDP, {name}"] = peers.missing("opendp") or peers.opendp_on(case, grid).run
    if case.relation == "swap":
        runs["diffprivlib"] = peers.missing("diffprivlib") or peers.diffprivlib(case).run
    else:
        runs["Tumult Core"] = tumult.draws(case).run if tumult else "not installed"
    for name, run in runs.items():
        yield (
            name,
            run
            if isinstance(run, str)
            else np.stack([run(turn) for turn in range(-(-draws // case.rows))]),
        )


def compare(case: Records, draws: int, tumult: peers.Tumult | None) -> list[dict]:
    """One row for each mechanism on one dataset, under one relation and epsilon."""
    question, shape = f"error, {case.name}, epsilon {case.epsilon:g}", case.shape
    common = {
        "dataset": case.name,
        "epsilon": case.epsilon,
        "bounds": [case.lower, case.upper],
        "unit": "error",
    }
    found = list(exact(case))
    best = next(error for _, error, reference in found if reference)
    name_of_best = next(name for name, _, reference in found if reference)
    rows = []
    for name, error, reference in found:
        compared = (
            {}
            if reference
            else {
                "ratio": error / best,
                "reference": name_of_best,
                "verdict": verdict(error, 0.0, best),
            }
        )
        rows.append(
            row(
                question,
                name,
                case.relation,
                shape,
                value=error,
                standard_error=0.0,
                note="exact",
                **compared,
                **common,
            )
        )
    truth = np.median(case.data, axis=1)
    for name, values in sampled(case, draws, tumult):
        if isinstance(values, str):
            rows.append(row(question, name, case.relation, shape, status=values, **common))
            continue
        errors = np.abs(values - truth)
        # The datasets are fixed, so only the spread within each counts
        error = float(np.mean(errors))
        spread = math.sqrt(float(np.mean(np.var(errors, axis=0, ddof=1))) / errors.size)
        rows.append(
            row(
                question,
                name,
                case.relation,
                shape,
                value=error,
                standard_error=spread,
                ratio=error / best,
                reference=name_of_best,
                verdict=verdict(error, spread, best),
                note=f"Monte Carlo, {errors.size} draws",
                **common,
            )
        )
    return rows


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
    parser.add_argument("--datasets", type=int, default=20, help="of each kind")
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
    counts = Counter(line["verdict"] for line in rows if "verdict" in line)
    notes = [
        "Errors against the reference, the first mechanism of each data and relation: "
        + ", ".join(f"{verdict} {count}" for verdict, count in counts.items()),
        "* marks a smaller error than the reference's, ~ one that is not told apart from it; +- "
        "is one standard error.",
    ]
    harness.finish(
        "accuracy", args, rows, [], notes, table(rows), tumult=tumult.versions if tumult else None
    )
    if tumult:
        tumult.worker.close()


if __name__ == "__main__":
    main()
