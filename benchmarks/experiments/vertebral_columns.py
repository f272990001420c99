"""Private medians of two classes of patients, after Figures 2 and 3 of Gillenwater and Munoz
Medina: can they be told apart?

python benchmarks/experiments/vertebral_columns.py [--json FILE] [--png FILE]

Six measurements of 100 normal and 210 abnormal vertebral columns; epsilon = 0.5 for each median,
1000 trials. As in the paper, the bounds are the range of the two classes together. Read off the
data, they would not be public, and they flatter the baseline, whose estimates are clamped to them.
The sizes of the classes are taken as public too, as there: Laplace-log-normal noise has delta =
1/n, the tight conversion to concentrated privacy, and beta and sigma from public numbers. "wrong
side": the probability that an estimate lies nearer to the other class's median. Beside every exact
number stands the one of the draws.
"""

import sys
from typing import Any

import jax
import numpy as np

import dpjax
import output
from dpjax import Clamped

EPSILON, TRIALS, SEED, BINS = 0.5, 1000, 2020, 40
MEASUREMENTS = ("incidence", "tilt", "lordosis", "slope", "radius", "spondylolisthesis")
CLASSES = ("NO", "AB")


def patients(folder: Any) -> dict[str, np.ndarray]:
    """The measurements ``(patients, 6)`` of each class."""
    path = folder / "vertebral_column" / "column_2C.dat"
    values, labels = np.loadtxt(path, usecols=range(6)), np.loadtxt(path, usecols=6, dtype=str)
    return {name: values[labels == name] for name in CLASSES}


def distributions(records: np.ndarray, lower: float, upper: float, slots: int) -> dict[str, Any]:
    """The distributions of one private median; padded to so many slots, all classes share their
    programs.
    """
    bounds: dict[str, Any] = {"lower": lower, "upper": upper, "neighbors": "add_remove"}
    delta = 1 / len(records)
    records = np.pad(records, (0, slots - len(records)), constant_values=np.nan)  # absent
    median, midpoint = (
        dpjax.median(records, definition="lower", **bounds),
        dpjax.median(records, **bounds),
    )
    zcdp = dpjax.accounting.zcdp_of(EPSILON, delta=delta)
    beta = dpjax.optimal_beta(EPSILON, noise="laplace_log_normal", delta=delta)
    smooth = dpjax.smooth_sensitivity(records, beta, definition="lower", **bounds)
    noisy = dpjax.smooth_laplace_log_normal(
        smooth, zcdp, sigma=dpjax.optimal_sigma(zcdp, beta=beta)
    )
    return {
        "LLN": Clamped.of(noisy, lower=lower, upper=upper),
        "Duff": dpjax.duff(median, EPSILON),
        "PLM midpoint": dpjax.piecewise_laplace(midpoint, EPSILON),
    }


def rows(classes: dict[str, np.ndarray]) -> list[dict[str, Any]]:
    """One row for each measurement, class and mechanism, with the histogram of its draws."""
    found, keys = [], iter(jax.random.split(jax.random.key(SEED), 100))
    slots = max(len(table) for table in classes.values())
    for column, measurement in enumerate(MEASUREMENTS):
        records = {name: table[:, column] for name, table in classes.items()}
        everyone = np.concatenate(list(records.values()))
        lower, upper = everyone.min(), everyone.max()
        edges = np.linspace(lower, upper, BINS + 1)
        medians = {name: float(np.median(values)) for name, values in records.items()}
        halfway = sum(medians.values()) / 2
        for name, values in records.items():
            for mechanism, distribution in distributions(values, lower, upper, slots).items():
                draws = np.asarray(distribution.sample(next(keys), (TRIALS,)))
                below, drawn = float(distribution.cdf(halfway)), float(np.mean(draws <= halfway))
                low = medians[name] < halfway
                found.append(
                    {
                        "measurement": measurement,
                        "class": name,
                        "median": medians[name],
                        "mechanism": mechanism,
                        "error": float(distribution.mean_abs_error(medians[name])),
                        "error of draws": float(np.abs(draws - medians[name]).mean()),
                        "wrong side": 1 - below if low else below,
                        "of draws": 1 - drawn if low else drawn,
                        "edges": edges.tolist(),
                        "histogram": np.histogram(draws, edges)[0].tolist(),
                        "data": np.histogram(values, edges)[0].tolist(),
                    }
                )
    return found


def draw(found: list[dict[str, Any]], path: str) -> None:
    plt = output.pyplot()
    mechanisms = list(dict.fromkeys(row["mechanism"] for row in found))
    figure, axes = plt.subplots(
        len(MEASUREMENTS), 1 + len(mechanisms), figsize=(13, 14), constrained_layout=True
    )
    for line, measurement in zip(axes, MEASUREMENTS, strict=True):
        here = [row for row in found if row["measurement"] == measurement]
        for name, color in zip(CLASSES, ("tab:blue", "tab:orange"), strict=True):
            of_class = [row for row in here if row["class"] == name]
            panels = [(row["mechanism"], row["histogram"]) for row in of_class]
            for axis, (title, counts) in zip(
                line, [("data", of_class[0]["data"]), *panels], strict=True
            ):
                axis.stairs(
                    np.asarray(counts) / sum(counts),
                    of_class[0]["edges"],
                    fill=True,
                    alpha=0.5,
                    color=color,
                    label=name,
                )
                axis.axvline(of_class[0]["median"], color=color)
                axis.set_title(f"{measurement}: {title}", fontsize=9)
    axes[0, 0].legend()
    figure.savefig(path, dpi=110)
    plt.close(figure)


def main(argv: list[str] | None = None) -> None:
    arguments = output.parse(__doc__, argv)
    jax.config.update("jax_enable_x64", True)
    found = rows(patients(output.data_folder()))
    output.print_table(
        [{name: cell for name, cell in row.items() if not isinstance(cell, list)} for row in found]
    )
    settings = {"epsilon": EPSILON, "trials": TRIALS, "seed": SEED}
    output.save(
        found, arguments, {"experiment": "vertebral_columns", "statistic": "median", **settings}
    )
    if arguments.png:
        draw(found, arguments.png)


if __name__ == "__main__":
    main(sys.argv[1:])
