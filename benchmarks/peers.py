"""Private medians by other libraries, each called as its documentation recommends, with its
relation and its distribution.

    OpenDP        make_private_quantile on a public grid of candidates; scale found by
                  binary_search_param. Without the number of records: add/remove; with it (a sized
                  domain and d_in = 2): swap.
    diffprivlib   tools.median with bounds. Its utility changes by at most 1 if a record is
                  replaced, and the number of records is taken as public: swap.
    Tumult Core   NoisyQuantile (its non-Spark measurement), under SymmetricDifference: add/remove.

All three release one median a call; a loop over datasets is how they are used.
"""

import functools
import importlib.util
import pathlib
import sys
from dataclasses import replace
from typing import Any

import numpy as np

import harness
from harness import Built, Case, Contestant, Worker

CANDIDATES = 1000
NODES, WEIGHTS = (np.polynomial.legendre.leggauss(400) + np.array([[1.0], [0.0]])) / 2
TUMULT_SCRIPT = pathlib.Path(__file__).with_name("tumult_core.py")


def missing(package: str) -> str | None:
    """Why a package cannot take part."""
    return None if importlib.util.find_spec(package) else "not installed"


# --- OpenDP ---


@functools.cache
def _measurement(case: Case):
    """The measurement for evenly spaced candidates; its scale is in units of ranks, and scores are
    twice that (records below minus records above).

    The search for the scale takes long, and asks only how many records a dataset has.
    """
    import opendp.prelude as dp

    dp.enable_features("contrib")
    size, distance = (case.points, 2) if case.relation == "swap" else (None, 1)
    domain = dp.vector_domain(dp.atom_domain(T=float, nan=False), size=size)

    def make(scale: float):
        return dp.m.make_private_quantile(
            domain,
            dp.symmetric_distance(),
            dp.max_divergence(),
            candidates=_grid(case, CANDIDATES).tolist(),
            alpha=0.5,
            scale=scale,
        )

    return make(dp.binary_search_param(make, d_in=distance, d_out=case.epsilon))


def _grid(case: Case, candidates: int) -> np.ndarray:
    return np.linspace(case.lower, case.upper, candidates)


def opendp(case: Case) -> Built:
    data, measurement = case.data.astype(np.float64), _measurement(replace(case, rows=1, seed=0))
    return Built(lambda turn: np.array([measurement(records) for records in data]), case.rows)


def opendp_probabilities(case: Case, ordered: np.ndarray, grid: np.ndarray) -> np.ndarray:
    """P(candidate) on one dataset: permute and flip on the difference of records below and above,
    which one record moves by 1, and a swap by 2.
    """
    below, up_to = (np.searchsorted(ordered, grid, side) for side in ("left", "right"))
    scores = np.abs(below - (len(ordered) - up_to))
    return permute_and_flip(scores, (2 if case.relation == "add_remove" else 4) / case.epsilon)


@harness.uniform
def by_opendp(case: Case, draws: np.ndarray) -> np.ndarray:
    """The cdf on the even grid: discrete, so that a step needs a random part."""
    grid, columns = _grid(case, CANDIDATES), []
    for records, values in zip(case.sorted_data.astype(np.float64), draws.T, strict=True):
        edges = np.append(0.0, np.cumsum(opendp_probabilities(case, records, grid)))
        index = np.searchsorted(grid, values)
        mixed = np.random.default_rng(3).random(len(values))
        columns.append(edges[index] + mixed * (edges[index + 1] - edges[index]))
    return np.stack(columns, axis=1)


def permute_and_flip(scores: np.ndarray, scale: float) -> np.ndarray:
    """P(index is the smallest score - Exponential(scale)) for each index, by quadrature.

    With t the noise of the winner of score a and v = exp(-(t + best - a) / scale), the others stay
    below with probability prod_b (1 - v exp(-(b - best) / scale)), and v is uniform up to exp(-(a -
    best) / scale).
    """
    levels, inverse, counts = np.unique(scores, return_inverse=True, return_counts=True)
    gaps = np.exp(-(levels - levels[0]) / scale)
    # Many nodes near 0, where many candidates share the best score
    v, dv = NODES**3, 3 * NODES**2 * WEIGHTS
    log_below = np.log1p(-np.outer(v, gaps))
    all_below = log_below @ counts
    wins = np.array(
        [
            gap * np.sum(dv * np.exp(all_below - own))
            for gap, own in zip(gaps, log_below.T, strict=True)
        ]
    )
    return wins[inverse] / np.sum(wins * counts)


# --- diffprivlib ---


def diffprivlib(case: Case) -> Built:
    from diffprivlib import tools

    data, bounds = case.data.astype(np.float64), (case.lower, case.upper)
    return Built(
        lambda turn: np.array(
            [tools.median(records, epsilon=case.epsilon, bounds=bounds) for records in data]
        ),
        case.rows,
    )


# --- Tumult Core ---


class Tumult:
    """Tumult Core in another Python."""

    def __init__(self, python: str):
        self.worker = Worker([python, str(TUMULT_SCRIPT)])
        self.versions: dict | None = None

    def draws(self, case: Case) -> Built:
        """One median of each dataset; an earlier case is forgotten."""
        data, seconds = case.data.astype(np.float64).tolist(), [0.0]
        self.versions = self.worker.ask(
            do="load", data=data, epsilon=case.epsilon, lower=case.lower, upper=case.upper
        )

        def run(turn: int) -> np.ndarray:
            answer = self.worker.ask(do="draw")
            seconds[0] = answer["seconds"]
            return np.array(answer["draws"])

        return Built(run, case.rows, own_clock=lambda: seconds[0])


def tumult_python(given: str | None) -> str | None:
    """The Python that has Tumult Core: the given one, or this one."""
    return given or (sys.executable if importlib.util.find_spec("tmlt") else None)


# --- the distribution that diffprivlib and Tumult Core share ---


def intervals(case: Case, records: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Edges and probabilities of the interval exponential mechanism on one dataset: intervals by
    width * exp(-slope |i - n/2|), uniform inside.

    The slope is epsilon/2 under swap (diffprivlib) and epsilon under add/remove, where n/2 moves as
    well (Tumult Core).
    """
    slope = case.epsilon / 2 * (2 if case.relation == "add_remove" else 1)
    edges = np.concatenate([[case.lower], np.sort(records), [case.upper]])
    away = np.abs(np.arange(case.points + 1) - case.points / 2)
    weights = np.diff(edges) * np.exp(-slope * away)
    return edges, weights / np.sum(weights)


@harness.uniform
def by_intervals(case: Case, draws: np.ndarray) -> np.ndarray:
    columns = []
    for records, values in zip(case.data.astype(np.float64), draws.T, strict=True):
        edges, probabilities = intervals(case, records)
        columns.append(np.interp(values, edges, np.append(0.0, np.cumsum(probabilities))))
    return np.stack(columns, axis=1)


def field(relation: str, rows: int, check_draws: int, tumult: Tumult | None) -> list[Contestant]:
    """The peers whose own relation this is."""
    common: dict[str, Any] = {"timed_rows": rows, "check_draws": check_draws}
    found = [
        Contestant(
            "loop over OpenDP",
            opendp,
            by_opendp,
            bar=200,
            reach=1000,
            missing=missing("opendp"),
            **common,
        )
    ]
    if relation == "swap":
        common |= {"bar": 100, "reach": 1000, "missing": missing("diffprivlib")}
        return [*found, Contestant("loop over diffprivlib", diffprivlib, by_intervals, **common)]
    draws, common["missing"] = (tumult.draws, None) if tumult else (diffprivlib, "not installed")
    return [*found, Contestant("loop over Tumult Core", draws, by_intervals, **common)]
