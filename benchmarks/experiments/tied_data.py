"""Data with ties: private medians of real columns with few distinct values, against OpenDP,
diffprivlib and the smooth Cauchy.

python benchmarks/experiments/tied_data.py [--json FILE] [--png FILE] [--draws N]

Datasets of 401 records are sampled from each column. Columns of the table are mean absolute errors
around each sample's median, averaged over the datasets, all exact:

    permute and flip    dpjax.release.Median, which is epsilon-DP, with twice the bounded range
    piecewise Laplace   dpjax.release.Median with mechanism="piecewise_laplace"
    OpenDP              make_private_quantile on the same grid: permute and flip on
                        |records below - records above|
    (se)                the standard error of the difference between permute and flip and OpenDP
    diffprivlib         tools.median: the exponential mechanism on the intervals between records
                        (swap only)
    smooth Cauchy       Cauchy noise on the smooth sensitivity, clamped to the bounds
    without resolution  piecewise Laplace for data without ties, which these are not

Ages, education and hours are of the census, dollars of purchases; fares (in halves) and ratings (0
to 10) are simulated.

With --draws N (and OpenDP and diffprivlib installed), as many draws of those two check their
columns at two rows; the program ends with an error if a mean is more than five standard errors
away.
"""

import pathlib
import sys
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import jax
import numpy as np

import dpjax
import output
from dpjax import release

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent))
import harness
import peers

EPSILONS = (0.05, 0.1, 0.25, 0.5, 1.0, 2.0)
RECORDS, DATASETS, SEED = 401, 60, 2026
RELATIONS = ("add_remove", "swap")


@dataclass(frozen=True, eq=False)
class Column(harness.Case):
    """Datasets of one column, with public bounds and a public resolution."""

    name: str = ""
    resolution: Fraction = Fraction(1)
    data: Any = None

    @property
    def grid(self) -> np.ndarray:
        """All multiples of the resolution between the bounds."""
        first, last = (int(bound / self.resolution) for bound in (self.lower, self.upper))
        return np.arange(first, last + 1) / float(1 / self.resolution)

    @property
    def options(self) -> dict[str, Any]:
        return {"lower": self.lower, "upper": self.upper}


def columns(datasets: int = DATASETS) -> list[Column]:
    """Ages, hours and years of education of the census, simulated fares and ratings, and what
    purchases cost in cents.
    """
    folder = output.data_folder()
    generator = np.random.default_rng(SEED)

    def read(path: str, name: str) -> np.ndarray:
        table = np.genfromtxt(folder / path, delimiter=",", names=True, usecols=(name,))
        chosen = [generator.choice(table[name], RECORDS, replace=False) for _ in range(datasets)]
        return np.stack(chosen)

    def column(name: str, data: np.ndarray, upper: int, per_unit: int = 1) -> Column:
        case = datasets, RECORDS, "swap", 1.0, 0, upper, SEED
        return Column(*case, name, Fraction(1, per_unit), np.minimum(data, upper))

    shape = datasets, RECORDS
    census, purchases = "uci_adult/adult_train_trimmed.csv", "user_cdnow/cdnow_master.csv"
    return [
        column("ages", read(census, "age"), 120),
        column("education", read(census, "education_num"), 16),
        column("hours", read(census, "hours_per_week"), 120),
        column("fares", np.rint(2 * generator.lognormal(2.3, 0.6, shape)) / 2, 100, 2),
        column("ratings", generator.binomial(10, 0.7, shape).astype(float), 10),
        column("dollars", read(purchases, "dollar_value"), 200, 100),
    ]


def opendp(column: Column) -> np.ndarray:
    """Error on each dataset."""
    return np.array(
        [
            peers.opendp_probabilities(column, np.sort(records), column.grid)
            @ np.abs(column.grid - np.median(records))
            for records in column.data
        ]
    )


def diffprivlib(column: Column) -> np.ndarray:
    """Error on each dataset: an interval by width * exp(-epsilon/2 |i - n/2|), uniform inside."""
    errors = []
    for records in np.sort(column.data, axis=-1):
        edges = np.concatenate([[column.lower], records, [column.upper]])
        weights = np.diff(edges) * np.exp(
            -column.epsilon / 2 * np.abs(np.arange(RECORDS + 1) - RECORDS / 2)
        )
        errors.append(
            np.sum(weights * np.abs((edges[1:] + edges[:-1]) / 2 - np.median(records)))
            / np.sum(weights)
        )
    return np.array(errors)


def errors(column: Column) -> dict[str, np.ndarray]:
    """The exact mean absolute error of every mechanism on each dataset, ``(datasets,)``."""
    value, epsilon, neighbors = np.median(column.data, axis=-1), column.epsilon, column.relation
    plain = dpjax.median(column.data, neighbors=neighbors, **column.options)
    local = dpjax.local_sensitivity(
        column.data, neighbors=neighbors, definition="lower", **column.options
    )
    smooth = dpjax.smooth_cauchy(local.smooth(dpjax.optimal_beta(epsilon, noise="cauchy")), epsilon)
    median = release.Median(resolution=column.resolution, **column.options)
    public: Any = {"epsilon": epsilon, "neighbors": neighbors}
    released = {
        mechanism: median.distribution(column.data, mechanism=mechanism, **public)
        for mechanism in median.mechanisms
    }
    return {
        "permute and flip": released["permute_and_flip"].mean_abs_error(value),
        "piecewise Laplace": released["piecewise_laplace"].mean_abs_error(value),
        "OpenDP": opendp(column),
        **({"diffprivlib": diffprivlib(column)} if neighbors == "swap" else {}),
        "smooth Cauchy": np.asarray(
            dpjax.Clamped.of(smooth, **column.options).mean_abs_error(value)
        ),
        "without resolution": np.asarray(
            dpjax.piecewise_laplace(plain, epsilon).mean_abs_error(value)
        ),
    }


def rows(some: list[Column]) -> list[dict[str, Any]]:
    """One row for each column, relation and epsilon."""
    found = []
    for column in some:
        for neighbors in RELATIONS:
            for epsilon in EPSILONS:
                of_each = errors(replace(column, relation=neighbors, epsilon=epsilon))
                means = {name: float(np.mean(each)) for name, each in of_each.items()}
                means["(se)"] = standard_error(of_each["permute and flip"] - of_each["OpenDP"])
                where = {"data": column.name, "neighbors": neighbors, "epsilon": epsilon}
                found.append({**where, **means})
    return found


def standard_error(of_each: np.ndarray) -> float:
    """Of the mean."""
    return float(np.std(of_each, ddof=1) / np.sqrt(of_each.size))


def check(column: Column, draws: int) -> None:
    """Compare the peers' own draws with the formulas; ends the program where they disagree."""
    for package in ("opendp", "diffprivlib"):
        if peers.missing(package):
            raise SystemExit(f"--draws needs {package}: pip install 'dpjax[benchmarks]'")
    one = replace(column, rows=1, epsilon=0.25, data=column.data[:1])
    for neighbors in RELATIONS:
        case = replace(one, relation=neighbors)
        measurement = peers.opendp_measurement(case, column.grid)
        drawn = np.array([measurement(case.data[0]) for _ in range(draws)])
        agree("OpenDP", np.abs(drawn - np.median(case.data)), float(opendp(case)[0]))
    run = peers.diffprivlib(one).run
    drawn = np.array([run(turn)[0] for turn in range(draws)])
    agree("diffprivlib", np.abs(drawn - np.median(one.data)), float(diffprivlib(one)[0]))


def agree(name: str, distance: np.ndarray, expected: float) -> None:
    """End the program unless the mean distance is the expected one."""
    if not abs(np.mean(distance) - expected) <= 5 * standard_error(distance):
        version = harness.version(name.lower())
        raise SystemExit(f"{name} {version} draws {np.mean(distance)}, expected {expected}.")


def plot(found: list[dict[str, Any]], path: str) -> None:
    """Errors against epsilon, one panel for each column and relation."""
    plt = output.pyplot()
    names = list(dict.fromkeys(row["data"] for row in found))
    figure, panels = plt.subplots(
        2, len(names), figsize=(4 * len(names), 6), sharex=True, layout="constrained"
    )
    for panels_of_relation, neighbors in zip(panels, RELATIONS, strict=True):
        for panel, name in zip(panels_of_relation, names, strict=True):
            here = [row for row in found if row["data"] == name and row["neighbors"] == neighbors]
            for mechanism in (
                "permute and flip",
                "piecewise Laplace",
                "OpenDP",
                "diffprivlib",
                "smooth Cauchy",
                "without resolution",
            ):
                if mechanism in here[0]:
                    panel.plot(
                        EPSILONS,
                        [max(row[mechanism], 1e-12) for row in here],
                        marker="o",
                        ms=3,
                        label=mechanism,
                    )
            panel.set(
                xscale="log",
                yscale="log",
                title=f"{name}, {neighbors}",
                xlabel="epsilon",
                ylabel="mean absolute error",
            )
    handles, labels = panels[1][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=6)
    figure.savefig(path, dpi=120)


def main(argv: list[str] | None = None) -> None:
    flags = output.flags(__doc__)
    flags.add_argument(
        "--draws",
        type=int,
        default=0,
        metavar="N",
        help="check the peers' columns by so many draws",
    )
    arguments = flags.parse_args(argv)
    jax.config.update("jax_enable_x64", True)
    some = columns()
    if arguments.draws:
        check(some[0], arguments.draws)
    found = rows(some)
    output.print_table(found)
    output.save(
        found,
        arguments,
        {"experiment": "tied_data", "records": RECORDS, "datasets": DATASETS, "seed": SEED},
    )
    if arguments.png:
        plot(found, arguments.png)


if __name__ == "__main__":
    main()
