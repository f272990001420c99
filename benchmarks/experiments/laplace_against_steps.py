"""What the Laplace slopes are worth: piecewise Laplace against inverse sensitivity, on even spacing
and on real columns.

python benchmarks/experiments/laplace_against_steps.py [--out FILE] [--png FILE]

Mean absolute errors of a private median, closed forms and no draws, and the ratio inverse
sensitivity / piecewise Laplace. On evenly spaced records under swap it is (epsilon/4)
coth(epsilon/4), whatever their number: 1.0002 at epsilon 0.1, 1.02 at 1, 1.31 at 4. Columns with
ties come with rho = half their resolution, for both mechanisms; there the theorem (Durfee 2025,
Theorem 2) does not hold, and the steps can win. Under add/remove there are two medians: the lower
one (Duff's) and the midpoint, each measured against its own value; the last column is the gain of
another target and of slopes together.
"""

import math
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np

import dpjax
import output

EPSILONS = (0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0)
MEASUREMENTS = ("incidence", "tilt", "lordosis", "slope", "radius", "spondylolisthesis")


@dataclass(frozen=True)
class Column:
    """Records with public bounds, and half their resolution where they are rounded."""

    name: str
    records: np.ndarray
    lower: float
    upper: float
    rho: float = 0.0


def columns(folder: Any) -> list[Column]:
    """Even spacing, six measurements of 310 patients, ages and incomes of 1000 people."""
    vertebral = np.loadtxt(folder / "vertebral_column" / "column_2C.dat", usecols=range(6))
    census = np.loadtxt(
        folder / "pums_california_1000" / "pums_1000.csv", delimiter=",", skiprows=1
    )
    found = [Column("even spacing", np.arange(1.0, 1000.0), 0.0, 1000.0)]
    found += [
        Column(f"vertebral {name}", column, -20.0, 450.0)
        for name, column in zip(MEASUREMENTS, vertebral.T, strict=True)
    ]
    return [
        *found,
        Column("census age", census[:, 0], 0.0, 100.0, 0.5),
        Column("census income", census[:, 4], 0.0, 1e6, 50.0),
    ]


def rows(data: list[Column], epsilons: tuple[float, ...] = EPSILONS) -> list[dict[str, Any]]:
    """One row for each column of data and epsilon. The columns are one batch, of one length."""
    rate, sizes = jnp.asarray(epsilons)[:, None], np.array([column.records.size for column in data])
    records = np.stack(
        [np.pad(column.records, (0, sizes.max() - column.records.size)) for column in data]
    )
    lower, upper, rho = (
        np.array([getattr(column, name) for column in data]) for name in ("lower", "upper", "rho")
    )

    def errors(neighbors: Any, definition: Any) -> list[np.ndarray]:
        profile = dpjax.median(
            records,
            lower=lower,
            upper=upper,
            neighbors=neighbors,
            definition=definition,
            num_records=sizes,
        )
        distributions = [
            distribution(profile, rate, rho=rho)
            for distribution in (dpjax.piecewise_laplace, dpjax.inverse_sensitivity)
        ]
        return [
            np.asarray(distribution.mean_abs_error(profile.value)).T
            for distribution in distributions
        ]

    swap, duff, midpoint = (
        errors("swap", "linear"),
        errors("add_remove", "lower"),
        errors("add_remove", "linear"),
    )
    found = []
    for row, column in enumerate(data):
        for i, epsilon in enumerate(epsilons):
            found.append(
                {
                    "data": column.name,
                    "epsilon": epsilon,
                    "PLM swap": float(swap[0][row, i]),
                    "INV swap": float(swap[1][row, i]),
                    "ratio": float(swap[1][row, i] / swap[0][row, i]),
                    "even spacing": epsilon / 4 / math.tanh(epsilon / 4),
                    "PLM lower": float(duff[0][row, i]),
                    "Duff": float(duff[1][row, i]),
                    "Duff/PLM": float(duff[1][row, i] / duff[0][row, i]),
                    "PLM midpoint": float(midpoint[0][row, i]),
                    "Duff/PLM midpoint": float(duff[1][row, i] / midpoint[0][row, i]),
                }
            )
    return found


PLOTTED = "ratio", "even spacing", "Duff/PLM midpoint"
PLOT = output.panels(("data",), "epsilon", PLOTTED, "error over that of PLM")

if __name__ == "__main__":
    output.run(lambda: rows(columns(output.data_folder())), PLOT)
