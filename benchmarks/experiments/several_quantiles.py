"""Several private quantiles of incomes under one epsilon: the joint draw against JointExp, the
recursion, and one draw for each.

python benchmarks/experiments/several_quantiles.py [--out FILE] [--png FILE] [--quick]

Datasets of 1000 records are drawn from each population; all mechanisms get the same. Columns of the
table are mean absolute errors, averaged over quantiles and datasets, with the standard error of
those that are drawn, 200 draws of each dataset:

    joint               dpjax.joint_quantiles under add/remove
    known n             the same, with the number of records as its public n
    JointExp            Gillenwater, Joseph and Kulesza (2021), written here in NumPy
    recursive           Kaplan, Schnapp and Stemmer (2022), written here in NumPy
    independent         piecewise Laplace for each quantile at its share of epsilon, exact

Hours worked have ties, half of them are 40, and a resolution of 1. JointExp and the recursion have
no ties: they get records that are spread evenly at random within half an hour, and their draws are
rounded.
"""

from functools import lru_cache
from typing import Any

import jax
import numpy as np

import dpjax
import output

RECORDS, DATASETS, DRAWS, SEED = 1000, 16, 200, 2026
QUICK_DATASETS = 3
DECILES, QUARTILES = [f"0.{k}" for k in range(1, 10)], ["0.25", "0.5", "0.75"]
BOUNDS = {"incomes": (0.0, 1e6), "normal": (-10.0, 10.0), "hours": (0.0, 100.0)}
CASES = [("incomes", DECILES, epsilon) for epsilon in (0.5, 1.0, 2.0)] + [
    ("incomes", QUARTILES, 1.0)
]
CASES += [(name, DECILES, 1.0) for name in ("normal", "hours")]


def population(name: str, datasets: int) -> np.ndarray:
    """Datasets ``(datasets, records)``."""
    normal = np.random.default_rng(SEED).normal(size=(datasets, RECORDS))
    if name == "hours":
        return np.where(
            np.random.default_rng(SEED + 1).random(normal.shape) < 0.5,
            40,
            np.clip(np.rint(38 + 14 * normal), 1, 99),
        )
    return np.exp(10.5 + 0.8 * normal) if name == "incomes" else normal


def joint_exp(
    x: np.ndarray,
    levels: list[float],
    epsilon: float,
    lower: float,
    upper: float,
    draws: int,
    seed: int,
) -> np.ndarray:
    """Draws ``(draws, m)`` of JointExp under add/remove: utility minus the sum of |n_k - n p_k|, of
    sensitivity 2 (1 - min p).
    """
    generator, n, m = np.random.default_rng(seed), len(x), len(levels)
    share = np.diff([0.0, *levels, 1.0]).round(12)  # equal ones are equal
    rate = epsilon / (4 * (1 - share.min()))
    edges = np.concatenate([[lower], np.sort(np.clip(x, lower, upper)), [upper]])
    width, number = np.diff(edges) / (upper - lower), np.arange(n + 1)
    # Weights of quantile k + 1, from an interval further down.
    steps = [_step(n, rate, float(one)) for one in share]
    end = np.exp(-rate * np.abs(n - number - n * share[m]))
    before, after, scale = [np.exp(-rate * np.abs(number - n * share[0]))], [], [0.0]
    for k in range(1, m + 1):
        # Weights of 1, 2, ... quantiles in one interval, the last of them quantile k.
        runs = [np.ones(n + 1)]
        for c in range(1, k + 1):
            stay = np.exp(-rate * n * share[k - c + 1]) if c > 1 else 1.0
            runs.append(runs[-1] * stay * width / c)
        parts = [
            before[k - c] * runs[c] * np.exp(scale[k - c] - scale[k - 1]) for c in range(1, k + 1)
        ]
        after.append(parts)
        if k < m:
            whole = steps[k] @ np.sum(parts, axis=0)
            before.append(whole / whole.max())
            scale.append(scale[k - 1] + np.log(whole.max()))

    def pick(weights: np.ndarray) -> int:
        return int(
            np.searchsorted(np.cumsum(weights), generator.random() * weights.sum(), side="right")
        )

    found = np.empty((draws, m))
    sums = [np.sum(parts, axis=0) for parts in after]
    for draw in found:
        k, interval = m, pick(sums[m - 1] * end)
        while True:
            size = pick(np.array([part[interval] for part in after[k - 1]])) + 1
            draw[k - size : k] = edges[interval] + width[interval] * (
                upper - lower
            ) * generator.random(size)
            k -= size
            if k == 0:
                break
            interval = pick(sums[k - 1] * steps[k][interval])
    return np.sort(found, axis=1)


def recursive(
    x: np.ndarray,
    levels: list[float],
    epsilon: float,
    lower: float,
    upper: float,
    draws: int,
    seed: int,
) -> np.ndarray:
    """Draws ``(draws, m)``: the middle level first, then the others from the records on its sides.

    Each record is in one part of each depth, and each depth has the same share of epsilon.
    """
    generator, ordered = np.random.default_rng(seed), np.sort(np.clip(x, lower, upper))
    bounded = [0.0, *levels, 1.0]
    found = np.empty((draws, len(bounded)))
    found[:, 0], found[:, -1] = lower, upper

    def between(draw: np.ndarray, first: int, last: int) -> None:
        if last - first < 2:
            return
        middle = (first + last) // 2
        q = (bounded[middle] - bounded[first]) / (bounded[last] - bounded[first])
        start, stop = np.searchsorted(ordered, draw[[first, last]])
        edges = np.concatenate([draw[[first]], ordered[start:stop], draw[[last]]])
        away = np.abs(np.arange(stop - start + 1) - q * (stop - start)) / max(q, 1 - q)
        rate = epsilon / len(levels).bit_length() / 2
        sums = np.cumsum(np.diff(edges) * np.exp(-rate * (away - away.min())))
        slot = min(np.searchsorted(sums, generator.random() * sums[-1]), len(sums) - 1)
        draw[middle] = generator.uniform(edges[slot], edges[slot + 1])
        between(draw, first, middle)
        between(draw, middle, last)

    for draw in found:
        between(draw, 0, len(bounded) - 1)
    return found[:, 1:-1]


@lru_cache(maxsize=2)  # a matrix has a million numbers
def _step(n: int, rate: float, share: float) -> np.ndarray:
    """The weights of a quantile in one interval and the next in another, ``[to, from]``."""
    distance = np.arange(n + 1)[:, None] - np.arange(n + 1)
    return np.where(distance > 0, np.exp(-rate * np.abs(distance - n * share)), 0.0)


def row(name: str, qs: list[str], epsilon: float, datasets: int) -> dict[str, Any]:
    """One row of the table."""
    x, (lower, upper) = population(name, datasets), BOUNDS[name]
    options: dict[str, Any] = {"lower": lower, "upper": upper, "neighbors": "add_remove"}
    spread, nearest = x, np.asarray
    if name == "hours":
        options["resolution"], nearest = 1, np.rint
        spread = x + np.random.default_rng(SEED + 2).uniform(-0.5, 0.5, x.shape)
    asked = dpjax.quantiles(x, qs, **options)
    truth, levels = np.asarray(asked.value), [float(q) for q in qs]
    drawn = {
        mechanism: [
            np.abs(nearest(peer(spread[i], levels, epsilon, lower, upper, DRAWS, i)) - truth[i])
            for i in range(datasets)
        ]
        for mechanism, peer in (("JointExp", joint_exp), ("recursive", recursive))
    }
    for mechanism, known in (("joint", {}), ("known n", {"public_n": RECORDS})):
        distribution = dpjax.joint_quantiles(asked, epsilon, **known)
        draws = np.asarray(distribution.sample(jax.random.key(1), DRAWS))
        drawn[mechanism] = list(np.abs(draws - truth).swapaxes(0, 1))
    singles = [
        dpjax.piecewise_laplace(dpjax.quantile(x, q, **options), epsilon / len(qs)) for q in qs
    ]
    found = {
        "population": name,
        "quantiles": len(qs),
        "epsilon": epsilon,
        "independent": float(
            np.mean([single.mean_abs_error(truth[:, k]) for k, single in enumerate(singles)])
        ),
    }
    for mechanism, errors in drawn.items():
        each = np.mean(errors, axis=-1)
        found |= {
            mechanism: float(np.mean(each)),
            f"({mechanism} se)": float(np.std(each, axis=1).mean() / each.size**0.5),
        }
    return found


def rows(datasets: int = DATASETS) -> list[dict[str, Any]]:
    return [row(*case, datasets) for case in CASES]


PLOTTED = "independent", "recursive", "JointExp", "joint", "known n"
PLOT = output.panels(("population", "quantiles"), "epsilon", PLOTTED, "mean absolute error")

if __name__ == "__main__":
    output.run(rows, PLOT, quick={"datasets": QUICK_DATASETS})
