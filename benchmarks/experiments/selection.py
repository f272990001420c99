"""Selection with queries of low sensitivity and without: exact expected excess losses against the
number of candidates.

python benchmarks/experiments/selection.py [--out FILE] [--png FILE]

Four mechanisms draw one of k candidates whose losses have sensitivity 1. A number is the expected
loss of the candidate drawn above the smallest loss, from exact probabilities and no draws, at the
worst scale c of a family of losses (on a grid of 96 scales a mechanism and k, which is refined once
around its maximum):

    one good      0 for one candidate, c for all others
    linear        0 to c, evenly spaced
    halves        c times the number of ones in the candidate's index: at each node of the tree the
                  other half is worse by c, which is the worst case of the tree

Two comparisons, which are not to be mixed:

    epsilon 1     pure differential privacy: exponential mechanism, permute and flip, tree with
                  Laplace noise of scale R
    zcdp 1/8      zero-concentrated: the exponential mechanism at epsilon 1 (its bounded range of 1
                  is 1/8-zCDP), permute and flip at 0.51 (its range is no better than that of any
                  pure privacy: epsilon tanh(epsilon/2) = 1/8), tree with Gaussian noise of
                  variance 4 R, tree with Laplace noise at epsilon = sqrt(R/4) (epsilon^2/2 a query)

The last columns are the bounds that hold for every vector of losses. Permute and flip takes k times
3.5 sqrt(k) steps for exact probabilities and stops at 2^13 candidates.
"""

import math
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import dpjax.bounds.selection as promised
import output
from dpjax.mechanisms import exponential, noisy_tree, permute_and_flip, tree_rounds

EPSILON, ZCDP = 1.0, 1 / 8
SIZES = tuple(2**power for power in range(1, 17))
QUICK_SIZES = (2, 2**4, 2**10, 2**13, 2**14)
LARGEST_PERMUTATION = 2**13
SCALES = 96
COMPARISONS = ("epsilon 1", "zcdp 1/8")
DISTRIBUTIONS = {
    "exponential": lambda scores, budget: exponential(scores, budget, sensitivity=1.0),
    "permute and flip": lambda scores, budget: permute_and_flip(scores, budget, sensitivity=1.0),
    "tree Laplace": lambda scores, budget: noisy_tree(scores, epsilon=budget, sensitivity=1.0),
    "tree Gaussian": lambda scores, budget: noisy_tree(scores, zcdp=budget, sensitivity=1.0),
}
FAMILIES = {
    "one good": lambda size: np.minimum(np.arange(size), 1.0),
    "linear": lambda size: np.arange(size) / (size - 1),
    "halves": lambda size: np.array([index.bit_count() for index in range(size)], float),
}


def rows(sizes: tuple[int, ...] = SIZES) -> list[dict[str, Any]]:
    """One row for each comparison, family and number of candidates."""
    found = []
    for size in sizes:
        for comparison in COMPARISONS:
            budgets = budgets_of(comparison, tree_rounds(size))
            for family, losses in FAMILIES.items():
                row: dict[str, Any] = {"comparison": comparison, "family": family, "k": size}
                for name, budget in budgets.items():
                    too_large = name == "permute and flip" and size > LARGEST_PERMUTATION
                    row[name] = None if too_large else worst_excess(name, losses(size), budget)
                found.append(row | bounds(comparison, size))
    return sorted(
        found,
        key=lambda row: (COMPARISONS.index(row["comparison"]), list(FAMILIES).index(row["family"])),
    )


def budgets_of(comparison: str, rounds: int) -> dict[str, float]:
    """What each mechanism takes for the same privacy."""
    if comparison == "epsilon 1":
        return {"exponential": EPSILON, "permute and flip": EPSILON, "tree Laplace": EPSILON}
    return {
        "exponential": math.sqrt(8 * ZCDP),
        "permute and flip": pure_epsilon(ZCDP),
        "tree Laplace": math.sqrt(2 * rounds * ZCDP),
        "tree Gaussian": ZCDP,
    }


def bounds(comparison: str, size: int) -> dict[str, float]:
    """What holds for every vector of losses."""
    found = {"bound exponential": promised.exponential_excess(size, EPSILON)}
    if comparison == "epsilon 1":
        return found | {"bound tree Laplace": promised.noisy_tree_excess(size, epsilon=EPSILON)}
    laplace = promised.noisy_tree_excess(size, epsilon=math.sqrt(2 * tree_rounds(size) * ZCDP))
    return found | {
        "bound tree Laplace": laplace,
        "bound tree Gaussian": promised.noisy_tree_excess(size, zcdp=ZCDP),
    }


def pure_epsilon(zcdp: float) -> float:
    """The epsilon of pure privacy with epsilon tanh(epsilon/2) = zcdp, by bisection."""
    low, high = 0.0, zcdp + 2.0
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if middle * math.tanh(middle / 2) < zcdp else (low, middle)
    return low


def worst_excess(name: str, losses: np.ndarray, budget: float) -> float:
    """The largest expected excess loss over all multiples of the losses, whose smallest is 0."""
    scales = np.geomspace(1e-2, 1e5, SCALES)
    for _ in range(2):
        found = np.asarray(
            excesses(jnp.asarray(scales), jnp.asarray(losses), jnp.asarray(budget), name)
        )
        best = int(np.argmax(found))
        scales = np.geomspace(scales[max(best - 1, 0)], scales[min(best + 1, SCALES - 1)], SCALES)
    return float(found[best])


@partial(jax.jit, static_argnames=("name",))
def excesses(scales: jax.Array, losses: jax.Array, budget: jax.Array, name: str) -> jax.Array:
    def excess(scale: jax.Array) -> jax.Array:
        scaled = scale * losses
        return DISTRIBUTIONS[name](-scaled, budget).expectation(scaled)

    return jax.lax.map(excess, scales, batch_size=min(SCALES, max(1, 2**16 // losses.size)))


PLOT = output.panels(("comparison", "family"), "k", DISTRIBUTIONS, "expected excess loss")

if __name__ == "__main__":
    output.run(rows, PLOT, quick={"sizes": QUICK_SIZES})
