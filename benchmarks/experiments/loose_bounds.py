"""Looser bounds, after a remark of Gillenwater and Munoz Medina, Section 6.1: nothing to Duff, much
to noise on smooth sensitivity.

python benchmarks/experiments/loose_bounds.py [--json FILE] [--png FILE]

100 datasets of 500 records of N(0, 1), with bounds -B and B for B = 10, 100 and 1000: the exact
expected |estimate - median| under add/remove, averaged over the datasets. Cauchy noise is clamped
to the bounds, as in the paper; "published" has its alpha = beta = epsilon/6, "valid" the best
constants that can be used. No bound cuts a record off: all columns are of the same data.
"""

import sys
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import dpjax
import output
from dpjax import Clamped

EPSILONS, BOUNDS = (0.5, 2.0), (10.0, 100.0, 1000.0)
RECORDS, DATASETS, SEED = 500, 100, 2020


def rows(datasets: int = DATASETS, records: int = RECORDS) -> list[dict[str, Any]]:
    """One row for each epsilon and bound."""
    data = jnp.asarray(np.random.default_rng(SEED).normal(size=(datasets, records)))
    return [row(data, epsilon, bound) for epsilon in EPSILONS for bound in BOUNDS]


def row(data: jax.Array, epsilon: float, bound: float) -> dict[str, Any]:
    ends: dict[str, Any] = {"lower": -bound, "upper": bound}
    options = {**ends, "neighbors": "add_remove", "definition": "lower"}
    profile, local = dpjax.median(data, **options), dpjax.local_sensitivity(data, **options)
    valid = local.smooth(dpjax.optimal_beta(epsilon, noise="cauchy"))
    drawn = {
        "Duff": dpjax.duff(profile, epsilon),
        "PLM": dpjax.piecewise_laplace(profile, epsilon),
        "Cauchy published": Clamped.of(
            dpjax.smooth_cauchy(local.smooth(epsilon / 6), epsilon, calibration="published"), **ends
        ),
        "Cauchy valid": Clamped.of(dpjax.smooth_cauchy(valid, epsilon), **ends),
    }
    errors = {
        name: float(jnp.mean(one.mean_abs_error(profile.value))) for name, one in drawn.items()
    }
    return {"epsilon": epsilon, "bounds": bound, **errors}


def draw(found: list[dict[str, Any]], path: str) -> None:
    """Errors against the bounds."""
    plt = output.pyplot()
    figure, axes = plt.subplots(1, len(EPSILONS), figsize=(10, 4), layout="constrained")
    for axis, epsilon in zip(axes, EPSILONS, strict=True):
        here = [line for line in found if line["epsilon"] == epsilon]
        for name in list(here[0])[2:]:
            axis.loglog(
                [line["bounds"] for line in here], [line[name] for line in here], "-o", label=name
            )
        axis.set(
            title=f"epsilon {epsilon:g}", xlabel="bounds", ylabel="expected |estimate - median|"
        )
    axes[0].legend()
    figure.savefig(path, dpi=120)
    plt.close(figure)


def main(argv: list[str] | None = None) -> None:
    arguments = output.parse(__doc__, argv)
    jax.config.update("jax_enable_x64", True)
    found = rows()
    output.print_table(found)
    output.save(
        found,
        arguments,
        {"experiment": "loose_bounds", "records": RECORDS, "datasets": DATASETS, "seed": SEED},
    )
    if arguments.png:
        draw(found, arguments.png)


if __name__ == "__main__":
    main(sys.argv[1:])
