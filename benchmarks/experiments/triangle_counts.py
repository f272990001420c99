"""Triangle counts under edge neighbors: exact expected errors, with sensitivity at distance and
without.

python benchmarks/experiments/triangle_counts.py [--out FILE] [--png FILE]

Two graphs: Zachary's karate club (34 nodes) and a graph of Facebook pages (22,470 nodes). Columns
are mean absolute errors, closed forms and no draws:

    PLM exact         piecewise Laplace, radii R_l = A_{l-1} (Nissim, Raskhodnikova and Smith 2007),
                      restricted to the counts that n nodes can have
    PLM clamped       the same on the whole line, and its draws clamped to those counts
    PLM cheap         piecewise Laplace, radii R_l = LS(x) + l - 1 (Durfee 2025, Corollary 5.2)
    INV exact         inverse sensitivity, the radii of the first column
    Laplace           noise of scale (n-2)/epsilon, the global sensitivity
    Laplace clamped   its draws clamped to the possible counts
    smooth Laplace    noise of scale 2 S/epsilon on the smooth sensitivity S at
                      beta = epsilon / (2 log(2/delta)), clamped: only (epsilon, delta)-private, so
                      not a rival but a landmark

All but the last are epsilon-private when one edge is added or removed; the number of nodes is
public, the nodes are not hidden.
"""

import math
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import dpjax
import output
from dpjax.statistics import triangle_local_sensitivity_of_edges

GRAPHS = {
    "karate": ("graph_karate/karate_edges.csv", 34),
    "facebook pages": ("graph_musae_facebook_pages/facebook_edges.csv", 22470),
}
EPSILONS = (0.1, 0.2, 0.5, 1.0, 2.0, 4.0)
NUM_LEVELS = 2000  # at epsilon 0.1, what follows the last radius has a weight of e^-100
DELTA = 1e-6


def rows(folder: Any, epsilons: tuple[float, ...] = EPSILONS) -> list[dict[str, Any]]:
    """One row for each graph and epsilon."""
    found = []
    for graph, (path, num_nodes) in GRAPHS.items():
        edges = np.loadtxt(folder / path, delimiter=",", skiprows=1, usecols=(0, 1), dtype=np.int64)
        columns = errors(edges, num_nodes, np.array(epsilons))
        found += [
            {
                "graph": graph,
                "epsilon": epsilon,
                **{name: float(column[i]) for name, column in columns.items()},
            }
            for i, epsilon in enumerate(epsilons)
        ]
    return found


def errors(edges: np.ndarray, num_nodes: int, epsilon: np.ndarray) -> dict[str, np.ndarray]:
    """Expected absolute errors by mechanism, ``epsilon.shape`` each."""
    exact = dpjax.triangle_count_of_edges(
        edges, num_nodes=num_nodes, num_levels=NUM_LEVELS, neighbors="edge"
    )
    value, most = float(exact.value), float(math.comb(num_nodes, 3))
    radii = np.minimum(exact.upper[1] - value + np.arange(NUM_LEVELS), exact.step)
    cheap = dpjax.from_radii(value, radii, neighbors="edge", lower=0, upper=most, step=exact.step)
    rate = jnp.asarray(epsilon)
    laplace = dpjax.laplace(value, rate, sensitivity=exact.step)
    smooth = dpjax.laplace(
        value, rate, sensitivity=2 * smooth_sensitivity(edges, num_nodes, epsilon)
    )
    found = {
        "PLM exact": dpjax.piecewise_laplace(exact, rate).mean_abs_error(value),
        "PLM clamped": clamped_error(
            dpjax.piecewise_laplace(replace(exact, bounds=None), rate), value, most
        ),
        "PLM cheap": dpjax.piecewise_laplace(cheap, rate).mean_abs_error(value),
        "INV exact": dpjax.inverse_sensitivity(exact.truncate(NUM_LEVELS), rate).mean_abs_error(
            value
        ),
        "Laplace": laplace.mean_abs_error(value),
        "Laplace clamped": clamped_error(laplace, value, most),
        "smooth Laplace": clamped_error(smooth, value, most),
    }
    return {name: np.asarray(error) for name, error in found.items()}


def smooth_sensitivity(edges: np.ndarray, num_nodes: int, epsilon: np.ndarray) -> jax.Array:
    """The largest of exp(-beta k) A_k. From 2(n-2) edges on, A_k is n-2."""
    local = triangle_local_sensitivity_of_edges(
        edges, num_nodes=num_nodes, num_levels=2 * (num_nodes - 2) + 1, neighbors="edge"
    )
    return local.smooth(epsilon / (2 * math.log(2 / DELTA))).bound


def clamped_error(distribution: dpjax.PiecewiseExponential, value: float, most: float) -> jax.Array:
    """E|Y - value| for draws of the distribution clamped to [0, most]: those inside, those moved up
    to 0, those moved down.
    """
    below, above = distribution.cdf(0.0), distribution.survival(most)
    return (
        (1 - below - above) * distribution.restrict(0.0, most).mean_abs_error(value)
        + below * value
        + above * (most - value)
    )


PLOTTED = "PLM exact", "PLM clamped", "PLM cheap", "INV exact", "Laplace", "smooth Laplace"
PLOT = output.panels(("graph",), "epsilon", PLOTTED, "expected absolute error")

if __name__ == "__main__":
    output.run(lambda: rows(output.data_folder()), PLOT)
