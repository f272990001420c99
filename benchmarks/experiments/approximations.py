"""What the approximations of Durfee (2025), Section 5, cost on a median: fewer levels, and radii
from the local sensitivity.

python benchmarks/experiments/approximations.py [--json FILE] [--png FILE]

Exact mean absolute errors of piecewise Laplace on 1001 quantiles of N(0, 1) (no seed is needed),
relative to the whole profile:

    levels          the smallest k for which profile.truncate(k) has an error at most 1 % larger
    k eps / log     that k in units of log(range / gap) / epsilon, where the gap is the one next to
                    the median
    at 1/eps        the error at k = 1/epsilon, rounded up, and at ten times that
    R = A           of radii R_l = A_{l-1}, the largest local sensitivity within l-1 changes
                    (``from_local_sensitivity``)
    as printed      of radii R_l = A_l, Corollary 5.1

Beyond level k there is one piece, from there to the bound: its weight is about range * exp(-epsilon
k / 2), and a draw from it is off by about the range. That is nothing beside a gap only from k = 4
log(range/gap) / epsilon on. The paper's k = O(1/epsilon) hides the logarithm.
"""

import math
import statistics
import sys
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import dpjax
import output

EPSILONS = (0.5, 1.0, 2.0)
BOUNDS = (10.0, 1e6)
RELATIONS: tuple[Any, ...] = ("swap", "add_remove")
RECORDS, MOST = 1001, 1.01


def rows(num_records: int = RECORDS) -> list[dict[str, Any]]:
    """One row for each relation, bound and epsilon."""
    records = np.array(
        [statistics.NormalDist().inv_cdf((i + 0.5) / num_records) for i in range(num_records)]
    )
    gap = records[num_records // 2 + 1] - records[num_records // 2]
    rate, found = jnp.asarray(EPSILONS), []
    for neighbors in RELATIONS:
        for bound in BOUNDS:
            options: Any = {
                "lower": -bound,
                "upper": bound,
                "neighbors": neighbors,
                "definition": "lower",
            }
            profile = dpjax.median(records, **options)
            exact = error(profile, rate)
            # (epsilon, k)
            cut = np.stack([error(of_levels(profile, bound), one) for one in rate]) / exact[:, None]
            near = dpjax.local_sensitivity(records, **options).at_distance
            radii = [
                error(of_radii(profile.value, each, neighbors, bound), rate) / exact
                for each in (near, near[1:])
            ]
            log = math.log(2 * bound / gap)
            for i, epsilon in enumerate(EPSILONS):
                levels = int(np.argmax(cut[i] <= MOST))
                found.append(
                    {
                        "neighbors": neighbors,
                        "bounds": bound,
                        "epsilon": epsilon,
                        "levels": levels,
                        "k eps / log": levels * epsilon / log,
                        "at 1/eps": float(cut[i, math.ceil(1 / epsilon)]),
                        "at 10/eps": float(cut[i, math.ceil(10 / epsilon)]),
                        "R = A": float(radii[0][i]),
                        "as printed": float(radii[1][i]),
                    }
                )
    return found


def error(profile: dpjax.SensitivityProfile, epsilon: jax.Array) -> np.ndarray:
    return np.asarray(dpjax.piecewise_laplace(profile, epsilon).mean_abs_error(profile.value))


def of_levels(profile: dpjax.SensitivityProfile, bound: float) -> dpjax.SensitivityProfile:
    """The profile cut at k = 0, 1, 2, ... levels, a batch: what lies further out is at the bound,
    as ``truncate`` puts it.
    """
    kept = jnp.arange(profile.upper.size)[:, None] >= jnp.arange(profile.upper.size)
    below = kept[: profile.lower.size, : profile.lower.size]
    size = min(len(kept), len(below))
    return replace(
        profile,
        upper=jnp.where(kept, profile.upper, bound)[:size],
        lower=jnp.where(below, profile.lower, -bound)[:size],
    )


def of_radii(
    value: jax.Array, at_distance: jax.Array, neighbors: Any, bound: float
) -> dpjax.SensitivityProfile:
    return dpjax.from_local_sensitivity(
        value, at_distance, neighbors=neighbors, lower=-bound, upper=bound
    )


def draw(found: list[dict[str, Any]], path: str) -> None:
    """Levels needed against epsilon, and what radii cost."""
    plt = output.pyplot()
    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.5), layout="constrained")
    for neighbors in RELATIONS:
        for bound in BOUNDS:
            here = [row for row in found if (row["neighbors"], row["bounds"]) == (neighbors, bound)]
            style, label = (
                {"swap": "-o", "add_remove": "--s"}[neighbors],
                f"{neighbors}, bounds {bound:g}",
            )
            epsilon = [row["epsilon"] for row in here]
            left.loglog(epsilon, [row["levels"] for row in here], style, label=label)
            right.loglog(epsilon, [row["R = A"] for row in here], style)
    left.loglog(EPSILONS, [1 / epsilon for epsilon in EPSILONS], "k:", label="1/epsilon")
    left.set(xlabel="epsilon", ylabel="levels needed for 1 % more error")
    right.set(xlabel="epsilon", ylabel="error of radii / error of the exact profile")
    figure.legend(loc="outside lower center", ncols=4)
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
        {"experiment": "approximations", "records": RECORDS, "most": MOST, "seed": None},
    )
    if arguments.png:
        draw(found, arguments.png)


if __name__ == "__main__":
    main(sys.argv[1:])
