"""Private medians of two classes of patients, after Figures 2 and 3 of Gillenwater and Munoz
Medina: can they be told apart?

python benchmarks/experiments/vertebral_columns.py [--out FILE] [--png FILE]

Six measurements of 100 normal and 210 abnormal vertebral columns; epsilon = 0.5 for each median,
1000 trials. As in the paper, the bounds are the range of the two classes together. Read off the
data, they would not be public, and they flatter the baseline, whose estimates are clamped to them.
The sizes of the classes are taken as public too, as there: Laplace-log-normal noise has delta =
1/n, the tight conversion to concentrated privacy, and beta and sigma from public numbers. "wrong
side": the probability that an estimate lies nearer to the other class's median. Beside every exact
number stands the one of the draws.
"""

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
                    }
                )
    return found


def plot(figure: Any, found: list[dict[str, Any]]) -> None:
    """A panel for each measurement and mechanism, with the draws of both classes."""
    panels: dict[tuple[str, str], Any] = {}
    figure.set_size_inches(11, 15)
    for row in found:
        place = row["measurement"], row["mechanism"]
        if place not in panels:
            panels[place] = figure.add_subplot(len(MEASUREMENTS), 3, len(panels) + 1)
            panels[place].set_title(", ".join(place), fontsize=9)
        counts = np.asarray(row["histogram"]) / TRIALS
        panels[place].stairs(counts, row["edges"], fill=True, alpha=0.5, label=row["class"])
        panels[place].axvline(row["median"])


if __name__ == "__main__":
    output.run(lambda: rows(patients(output.data_folder())), plot)
