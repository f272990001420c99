"""Mean absolute error of private medians, exactly: same data, same relation, epsilon from 0.05 to
4, with and without ties.

python benchmarks/accuracy.py [--datasets 60] [--quick] [--out FILE]

Numbers of two relations are never compared: each row's ratio is against the default release at the
first public candidates, and OpenDP's against the default release at the same candidates. A row
where that does not win says so and stays; what carries a bar is the worst epsilon. Errors are means
over --datasets datasets of one kind, of an odd number of records each, so that there is one middle
record: with an even number OpenDP aims between two, and an error below their distance depends on
which median is meant. Nothing is drawn: the probabilities of the other libraries are those that
their draws are tested against in draws.py. Real columns, of the census and of purchases, are left
out where DPJAX_DATA names no folder of tables.
"""

import os
import pathlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import dpjax
import harness
import peers
import tables
from dpjax import release
from harness import Case, row

EPSILONS = (0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0)
DEFAULT = "dpjax.release.Median"
NAMED = DEFAULT, "OpenDP", "diffprivlib", "Tumult Core", "Cauchy"  # for the README
CENSUS, PURCHASES = "uci_adult/adult_train_trimmed.csv", "user_cdnow/cdnow_master.csv"
# Real columns of 401 records, with public upper bounds and candidates.
COLUMNS = {
    "census ages": (CENSUS, "age", 120, 121),
    "years of education": (CENSUS, "education_num", 16, 17),
    "hours of work": (CENSUS, "hours_per_week", 120, 121),
    "cents of purchases": (PURCHASES, "dollar_value", 200, 20_001),
}
Rows = list[dict[str, Any]]


@dataclass(frozen=True, eq=False)
class Records(Case):
    """Datasets of one kind, and the public numbers of evenly spaced candidates."""

    name: str = ""
    candidates: tuple[int, ...] = (1000, 10_000)
    data: Any = None


def datasets(seed: int, count: int) -> Iterator[Records]:
    """Datasets with public bounds, seeded."""
    generator = np.random.default_rng(seed)

    def made(name: str, x: np.ndarray, lower: float, upper: float, *candidates: int) -> Records:
        case = count, x.shape[1], "swap", 1.0, lower, upper, seed, 1
        return Records(*case, name, candidates or (1000, 10_000), np.clip(x, lower, upper))

    yield made("1001 of N(0,1)", generator.standard_normal((count, 1001)), -10, 10)
    yield made("1001 of Cauchy", generator.standard_cauchy((count, 1001)), -1000, 1000)
    ages = np.round(generator.normal(38, 18, (count, 1001)))
    yield made("1001 ages with ties", ages, 0, 100, 101)
    yield made("51 of N(0,1)", generator.standard_normal((count, 51)), -10, 10)
    folder = pathlib.Path(os.environ.get("DPJAX_DATA", "/nowhere"))
    for name, (path, column, upper, candidates) in COLUMNS.items():
        if folder.is_dir():
            table = np.genfromtxt(folder / path, delimiter=",", names=True, usecols=(column,))
            values = [generator.choice(table[column], 401, replace=False) for _ in range(count)]
            yield made(f"401 {name}", np.stack(values), 0, upper, candidates)


def difference_of_ranks(case: Records) -> dpjax.PiecewiseExponential:
    """The classical private median: the utility -abs(records below - records above), which one
    change moves by 1, a swap by 2.
    """
    bounds = (0, 0), (case.lower, case.upper)
    edges = np.pad(case.sorted_data, ((0, 0), (1, 1)), constant_values=bounds)
    cost = jnp.abs(2 * jnp.arange(case.points + 1.0) - case.points)
    rate = case.epsilon / (2 if case.relation == "add_remove" else 4)
    return dpjax.PiecewiseExponential(jnp.asarray(edges), cost, cost, jnp.asarray(rate))


def at_candidates(case: Records, candidates: int) -> dict[str, np.ndarray]:
    """The exact error on each dataset, at so many candidates: both mechanisms of this library, and
    OpenDP. Records are moved to where the candidates are multiples of their distance.
    """
    distance, truth = Fraction(case.upper - case.lower), case.medians
    median = release.Median(lower=0, upper=distance, resolution=distance / (candidates - 1))
    public: Any = {"epsilon": case.epsilon, "neighbors": case.relation}
    errors = {}
    for mechanism in median.mechanisms:
        found = median.distribution(case.data - case.lower, mechanism=mechanism, **public)
        name = DEFAULT + ("" if mechanism == median.mechanisms[0] else f", {mechanism}")
        errors[name] = found.mean_abs_error(truth - case.lower)
    grid = np.linspace(case.lower, case.upper, candidates)
    errors["OpenDP"] = np.array(
        [
            peers.opendp_probabilities(case, records, grid) @ np.abs(grid - middle)
            for records, middle in zip(case.sorted_data, truth, strict=True)
        ]
    )
    return errors


def continuous(case: Records) -> dict[str, np.ndarray]:
    """The exact error on each dataset, of mechanisms without candidates."""
    known: Any = {"lower": case.lower, "upper": case.upper, "neighbors": case.relation}
    profile = dpjax.median(jnp.asarray(case.data), **known)
    local = dpjax.local_sensitivity(case.data, definition="lower", **known)
    smooth = local.smooth(dpjax.optimal_beta(case.epsilon, noise="cauchy"))
    # One record moves a median by the whole range under swap; adding one can move the midpoint by
    # half of it.
    sensitivity = (case.upper - case.lower) / (1 if case.relation == "swap" else 2)
    noise = dpjax.laplace(profile.value, case.epsilon, sensitivity=sensitivity)
    bounds = case.lower, case.upper
    distributions = {
        "dpjax.piecewise_laplace": dpjax.piecewise_laplace(profile, case.epsilon),
        "dpjax.inverse_sensitivity": dpjax.inverse_sensitivity(profile, case.epsilon),
        "exponential mechanism, difference of ranks": difference_of_ranks(case),
        "Cauchy on smooth sensitivity": dpjax.Clamped(
            dpjax.smooth_cauchy(smooth, case.epsilon), *bounds
        ),
        "Laplace by global sensitivity, clamped": dpjax.Clamped(noise, *bounds),
        "Laplace by global sensitivity, bounded": dpjax.laplace(
            profile.value,
            case.epsilon,
            sensitivity=sensitivity,
            lower=case.lower,
            upper=case.upper,
        ),
    }
    errors = {
        name: np.asarray(distribution.mean_abs_error(profile.value))
        for name, distribution in distributions.items()
    }
    peer = "diffprivlib" if case.relation == "swap" else "Tumult Core"
    errors[peer] = np.array([by_intervals(case, records) for records in case.data])
    return errors


def by_intervals(case: Records, records: np.ndarray) -> float:
    """The error of a draw that is uniform inside an interval; the median is one of the edges."""
    edges, probabilities = peers.intervals(case, records)
    return float(probabilities @ np.abs((edges[1:] + edges[:-1]) / 2 - np.median(records)))


def compare(case: Records) -> Rows:
    """One row for each mechanism on datasets of one kind, under one relation and epsilon."""
    rows: Rows = []

    def add(name: str, errors: np.ndarray, best: np.ndarray) -> None:
        error, against = float(np.mean(errors)), float(np.mean(best))
        # What a mean over other datasets of this kind may differ by
        spread = float(np.std(errors - best, ddof=1) / np.sqrt(case.rows) / error)
        where = {"dataset": case.name, "epsilon": case.epsilon, "spread": spread}
        line = {"value": error, "unit": "error", "ratio": error / against, "reference": DEFAULT}
        question = f"error, {case.name}, epsilon {case.epsilon:g}"
        rows.append(row(question, name, case.relation, case.shape, **line, **where))

    at = {candidates: at_candidates(case, candidates) for candidates in case.candidates}
    for candidates, found in at.items():
        for name, errors in found.items():
            add(f"{name}, {candidates} candidates", errors, found[DEFAULT])
    for name, errors in continuous(case).items():
        add(name, errors, at[case.candidates[0]][DEFAULT])
    return rows


def worst(rows: Rows) -> Rows:
    """For each kind of data, candidates and relation, the epsilon at which the default release
    loses most against OpenDP; the bar is a ratio of 1, within two standard errors, but for real
    columns, whose ties make some errors so small that nobody would see them.
    """
    cells: dict[tuple[str, ...], Rows] = {}
    for line in rows:
        if line["contestant"].startswith("OpenDP"):
            key = line["dataset"], line["contestant"], line["relation"]
            cells.setdefault(key, []).append(line)
    found = []
    for (name, opendp, relation), lines in cells.items():
        most = max(lines, key=lambda line: 1 / line["ratio"])
        question = f"error against OpenDP, worst epsilon: {most['epsilon']:g}"
        at = question, DEFAULT, relation, name + opendp.removeprefix("OpenDP")
        line = {"value": most["value"] / most["ratio"], "unit": "error"}
        line |= {"ratio": 1 / most["ratio"], "reference": "OpenDP"}
        bar = {"at_most": 1 + max(2 * most["spread"], 1e-9)}
        real = name.removeprefix("401 ") in COLUMNS
        found.append(row(*at, **line, bar=None if real else bar))
    return found


def table(rows: Rows) -> str:
    """Errors by data, relation and mechanism, one column for each epsilon."""
    found: dict[tuple[str, str, str], list[str]] = {}
    for line in rows:
        better = "*" if line["ratio"] < 1 - 1e-9 else ""
        at = line["dataset"], line["relation"], line["contestant"]
        found.setdefault(at, []).append(f"{line['value']:.3g}{better}")
    epsilons = dict.fromkeys(f"epsilon {line['epsilon']:g}" for line in rows)
    lines = [(*names, *errors) for names, errors in found.items()]
    return tables.markdown(("data", "relation", "mechanism", *epsilons), lines)


def main() -> None:
    parser = harness.parser(__doc__)
    parser.add_argument("--datasets", type=int, default=60, help="of each kind")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    count, epsilons = (4, (1.0,)) if args.quick else (args.datasets, EPSILONS)
    jax.config.update("jax_enable_x64", True)
    rows = [
        line
        for records in datasets(args.seed, count)
        for relation in ("swap", "add_remove")
        for epsilon in epsilons
        for line in compare(replace(records, relation=relation, epsilon=epsilon))
    ]
    bars = worst(rows)
    note = "* marks a smaller error than that of the default release."
    judged = tables.of_rows(bars, not args.quick)
    real = [line for line in rows if line["dataset"].startswith("401")]
    ties = table([line for line in real if line["contestant"].startswith(NAMED)]) if real else ""
    shown = f"{judged}\n\nColumns with ties, 401 records each; {note}\n\n{ties}"
    whole = f"{table(rows)}\n\n{judged}"
    harness.finish("accuracy", args, rows + bars, [], [note], whole, shown=shown)


if __name__ == "__main__":
    main()
