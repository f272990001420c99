"""Data with ties: private medians of real columns with few distinct values, against OpenDP,
diffprivlib and the smooth Cauchy.

python benchmarks/experiments/tied_data.py [--json FILE] [--png FILE] [--draws N]

Datasets of 401 records are sampled from each column. Columns of the table are mean absolute errors
around each sample's median, averaged over the datasets, all exact:

    piecewise Laplace   dpjax.release.median: the distribution at the points of the grid, which
                        dpjax.piecewise_laplace simulates
    steps               mechanism="inverse_sensitivity": flat pieces
    integrated          piecewise Laplace for the continuous distribution, integrated over cells,
                        which version 0.2 drew
    (of it)             piecewise Laplace as a part of that
    permute and flip    dpjax.release.median(..., mechanism="permute_and_flip"): epsilon-DP, twice
                        the bounded range
    OpenDP              make_private_quantile on the same grid: permute and flip on
                        |records below - records above|
    (se)                the standard error of the difference between permute and flip and OpenDP
    (1.3 se)            that of the difference between piecewise Laplace and 1.3 times OpenDP
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

import importlib.metadata
import importlib.util
from dataclasses import dataclass, fields
from fractions import Fraction
from functools import cached_property
from typing import Any

import jax
import numpy as np

import dpjax
import output
from dpjax import release
from dpjax.release import GridDistribution
from dpjax.release.exact_flip import probabilities

EPSILONS = (0.05, 0.1, 0.25, 0.5, 1.0, 2.0)
RECORDS, DATASETS, SEED = 401, 60, 2026
RELATIONS = ("add_remove", "swap")


@dataclass(frozen=True)
class Column:
    """Datasets ``(datasets, records)`` of one column, its public bounds and resolution."""

    name: str
    data: np.ndarray
    lower: int
    upper: int
    resolution: Fraction

    @property
    def grid(self) -> np.ndarray:
        """All multiples of the resolution between the bounds."""
        first, last = (int(bound / self.resolution) for bound in (self.lower, self.upper))
        return np.arange(first, last + 1) / float(1 / self.resolution)

    @property
    def options(self) -> dict[str, Any]:
        return {"lower": self.lower, "upper": self.upper}

    @cached_property
    def levels(self) -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        """Of each dataset: the different scores of OpenDP, which of them each candidate has, and
        how many have it.
        """
        return [
            np.unique(scores_of_opendp(records, self.grid), return_inverse=True, return_counts=True)
            for records in self.data
        ]


def columns(datasets: int = DATASETS) -> list[Column]:
    """Ages, hours and years of education of the census, simulated fares and ratings, and what
    purchases cost in cents.
    """
    folder = output.data_folder()
    adult = np.genfromtxt(
        folder / "uci_adult" / "adult_train_trimmed.csv",
        delimiter=",",
        names=True,
        usecols=("age", "hours_per_week", "education_num"),
    )
    purchases = np.genfromtxt(
        folder / "user_cdnow" / "cdnow_master.csv",
        delimiter=",",
        names=True,
        usecols=("dollar_value",),
    )
    generator = np.random.default_rng(SEED)

    def sampled(values: np.ndarray) -> np.ndarray:
        return np.stack([generator.choice(values, RECORDS, replace=False) for _ in range(datasets)])

    return [
        Column("ages", sampled(adult["age"]), 0, 120, Fraction(1)),
        Column("education", sampled(adult["education_num"]), 0, 16, Fraction(1)),
        Column("hours", sampled(adult["hours_per_week"]), 0, 120, Fraction(1)),
        Column(
            "fares",
            np.minimum(np.rint(2 * generator.lognormal(2.3, 0.6, (datasets, RECORDS))) / 2, 100),
            0,
            100,
            Fraction(1, 2),
        ),
        Column(
            "ratings",
            generator.binomial(10, 0.7, (datasets, RECORDS)).astype(float),
            0,
            10,
            Fraction(1),
        ),
        Column(
            "dollars", np.minimum(sampled(purchases["dollar_value"]), 200), 0, 200, Fraction(1, 100)
        ),
    ]


def scores_of_opendp(records: np.ndarray, grid: np.ndarray) -> np.ndarray:
    """|records below - records above| each candidate; it changes by at most 1 if a record comes or
    goes, and by 2 under swap.
    """
    below, up_to = (
        np.searchsorted(np.sort(records), grid, side=side) for side in ("left", "right")
    )
    return np.abs(below - (records.size - up_to))


def opendp(column: Column, epsilon: float, neighbors: str) -> list[np.ndarray]:
    """The probabilities of the grid for each dataset."""
    rate, found = epsilon / (2 if neighbors == "add_remove" else 4), []
    for costs, level, count in column.levels:
        found.append((probabilities(rate, costs, count) / count)[level])
    return found


def diffprivlib(column: Column, epsilon: float) -> np.ndarray:
    """Error on each dataset: an interval by width * exp(-epsilon/2 |i - n/2|), uniform inside."""
    errors = []
    for records in np.sort(column.data, axis=-1):
        edges = np.concatenate([[column.lower], records, [column.upper]])
        weights = np.diff(edges) * np.exp(
            -epsilon / 2 * np.abs(np.arange(RECORDS + 1) - RECORDS / 2)
        )
        errors.append(
            np.sum(weights * np.abs((edges[1:] + edges[:-1]) / 2 - np.median(records)))
            / np.sum(weights)
        )
    return np.array(errors)


class Integrated(GridDistribution):
    """The same pieces with the weights of the continuous distribution: those of cells are
    integrals.
    """

    @cached_property
    def shares(self) -> np.ndarray:
        """The probability of each piece."""
        profile = self.profile
        cells = np.where(profile.sign == 0, self.rate / -np.expm1(-self.rate), profile.length)
        weight = cells * np.exp(-self.rate * (self.costs - profile.rise))
        return weight / np.add.reduceat(weight, profile.starts[:-1])[self.group]


def integrated(found: GridDistribution) -> Integrated:
    """What version 0.2 drew."""
    return Integrated(*(getattr(found, field.name) for field in fields(found)))


def errors(column: Column, epsilon: float, neighbors: Any) -> dict[str, np.ndarray]:
    """The exact mean absolute error of every mechanism on each dataset, ``(datasets,)``."""
    value = np.median(column.data, axis=-1)
    plain = dpjax.median(column.data, neighbors=neighbors, **column.options)
    local = dpjax.local_sensitivity(
        column.data, neighbors=neighbors, definition="lower", **column.options
    )
    smooth = dpjax.smooth_cauchy(local.smooth(dpjax.optimal_beta(epsilon, noise="cauchy")), epsilon)

    median = release.Median(resolution=column.resolution, **column.options)
    options: Any = {"epsilon": epsilon, "neighbors": neighbors}

    def released(mechanism: str) -> GridDistribution:
        return release.exact_distribution(median, column.data, mechanism=mechanism, **options)

    pointwise = released("piecewise_laplace")
    distances = np.abs(column.grid - value[:, None])
    return {
        "piecewise Laplace": pointwise.mean_abs_error(value),
        "integrated": integrated(pointwise).mean_abs_error(value),
        "steps": released("inverse_sensitivity").mean_abs_error(value),
        "permute and flip": released("permute_and_flip").mean_abs_error(value),
        "OpenDP": np.array(
            [p @ d for p, d in zip(opendp(column, epsilon, neighbors), distances, strict=True)]
        ),
        **({"diffprivlib": diffprivlib(column, epsilon)} if neighbors == "swap" else {}),
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
                of_each = errors(column, epsilon, neighbors)
                means = {name: float(np.mean(each)) for name, each in of_each.items()}
                means["(of it)"] = means["piecewise Laplace"] / means["integrated"]
                spread = {
                    "(se)": standard_error(of_each["permute and flip"] - of_each["OpenDP"]),
                    "(1.3 se)": standard_error(
                        of_each["piecewise Laplace"] - 1.3 * of_each["OpenDP"]
                    ),
                }
                found.append(
                    {
                        "data": column.name,
                        "neighbors": neighbors,
                        "epsilon": epsilon,
                        **means,
                        **spread,
                    }
                )
    return found


def standard_error(of_each: np.ndarray) -> float:
    """Of the mean."""
    return float(np.std(of_each, ddof=1) / np.sqrt(of_each.size))


def check(some: list[Column], draws: int) -> None:
    """Compare the peers' own draws with the formulas; ends the program where they disagree."""
    for package in ("opendp", "diffprivlib"):
        if importlib.util.find_spec(package) is None:
            raise SystemExit(f"--draws needs {package}: pip install 'dpjax[benchmarks]'")
    import opendp.prelude as dp
    from diffprivlib import tools

    dp.enable_features("contrib")
    column, epsilon = some[0], 0.25
    records, value = column.data[0], np.median(column.data[0])
    for neighbors in RELATIONS:
        domain = dp.vector_domain(
            dp.atom_domain(T=float, nan=False), size=RECORDS if neighbors == "swap" else None
        )

        def make(scale: float, domain: Any = domain) -> Any:
            given = {"candidates": column.grid.tolist(), "alpha": 0.5, "scale": scale}
            return dp.m.make_private_quantile(
                domain, dp.symmetric_distance(), dp.max_divergence(), **given
            )

        measurement = make(
            dp.binary_search_param(make, d_in=2 if neighbors == "swap" else 1, d_out=epsilon)
        )
        expected = opendp(column, epsilon, neighbors)[0] @ np.abs(column.grid - value)
        agree(
            "OpenDP",
            np.array([measurement(records) for _ in range(draws)]) - value,
            float(expected),
        )
    drawn = [
        tools.median(records, epsilon=epsilon, bounds=(column.lower, column.upper))
        for _ in range(draws)
    ]
    agree("diffprivlib", np.array(drawn) - value, float(diffprivlib(column, epsilon)[0]))


def agree(name: str, differences: np.ndarray, expected: float) -> None:
    """End the program unless the mean distance is the expected one."""
    distance = np.abs(differences)
    error = np.std(distance) / np.sqrt(distance.size)
    if not abs(np.mean(distance) - expected) <= 5 * error:
        raise SystemExit(
            f"{name} {importlib.metadata.version(name.lower())} draws {np.mean(distance)}, "
            f"expected {expected}."
        )


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
                "piecewise Laplace",
                "permute and flip",
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
        check(some, arguments.draws)
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
