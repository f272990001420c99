"""The laws of releases of small datasets, from their definitions: positions after s changes, costs
as integers, coins, and the integral of permute and flip as a polynomial.
"""

from fractions import Fraction
from functools import cache
from itertools import product
from math import ceil, floor

import numpy as np

from dpjax.release import (
    Counts,
    DistinctCount,
    Maximum,
    Median,
    NonnegativeSum,
    Quantile,
    jumps,
)
from tests.support.oracle import all_datasets, neighbors_of

TOP = 4
GRID = range(TOP + 1)
PUBLIC = {"lower": 0, "upper": TOP, "resolution": 1}
STATISTICS = {
    "median": Median(**PUBLIC),
    "midpoint": Median(**PUBLIC, definition="linear"),
    "3/4": Quantile(Fraction(3, 4), **PUBLIC),
    "1/3": Quantile("1/3", **PUBLIC),
    ".9": Quantile(0.9, **PUBLIC),
    "maximum": Maximum(1, **PUBLIC),
    "maximum of 3": Maximum(3, **PUBLIC),
    "sum": NonnegativeSum(2, upper=TOP, resolution=1),
    "distinct": DistinctCount(1, upper=TOP),
}
MECHANISMS = ("permute_and_flip", "piecewise_laplace")
CASES = list(product(STATISTICS, ("add_remove", "swap")))
SMALL = all_datasets(range(5), GRID)
ALL = 14  # changes, after which each dataset of at most 5 records has lost or gained all


def counts_of(datasets):
    """Each dataset is a group."""
    rows = [(group, value) for group, data in enumerate(datasets) for value in data]
    group, value = np.array(rows).T
    return Counts.of_rows(group, value, np.ones_like(group), groups=len(datasets))


@cache
def size_of(statistic):
    """The number of values that are released."""
    return statistic.distribution([0], epsilon=1.0, neighbors="swap").grid.size


def pmf(statistic, datasets, epsilon, neighbors, mechanism=None):
    """What the library says: ``(datasets, positions)``."""
    options = {"epsilon": epsilon, "neighbors": neighbors, "mechanism": mechanism}
    law = statistic.distribution(counts_of(datasets), **options)
    grid = law.grid
    return law.pmf(grid.values_of(np.arange(grid.size))[:, None]).T


def after(statistic, data, neighbors, changes):
    """The position of the statistic after so many changes, upwards or downwards."""
    x, n = sorted(data), len(data)

    def record(rank):
        return 0 if rank < 1 else TOP if rank > n else x[rank - 1]

    if isinstance(statistic, Median) and statistic.definition == "linear":
        rank = Fraction(n + 1 + (2 if neighbors == "swap" else 1) * changes, 2)
        return record(floor(rank)) + record(ceil(rank))
    if isinstance(statistic, Quantile):
        q = statistic.level
        return record(ceil(q * n + (1 if neighbors == "swap" else max(q, 1 - q)) * changes))
    rank = n - statistic.tau + changes
    if isinstance(statistic, Maximum) or rank > n:
        return record(rank)
    kept = x[: max(rank, 0)]
    if isinstance(statistic, NonnegativeSum):
        return min(sum(kept), TOP)
    frequent = sorted(data, key=lambda value: (-data.count(value), value))
    return min(len(set(frequent[: max(rank, 0)])), TOP)


def costs(statistic, data, neighbors, steps, far=ALL, changed=after, depths=1):
    """The cost of each position in units of 1/steps, the least one 0.

    Beyond ``far`` changes, all datasets reach the ends.
    """
    size = size_of(statistic)
    at = {s: changed(statistic, data, neighbors, s) for s in range(-far, far + 1)}
    at |= {-far - 1: 0, far + 1: size - 1}
    value, levels = at[0], range(1, far + 2)
    depth = next(s for s in levels if at[s] > value or at[-s] < value)

    def cost(y):
        if y == value:
            return steps * depths * (1 - depth)
        sign = 1 if y > value else -1
        level = next(s for s in levels if sign * (at[sign * s] - y) >= 0)
        near, far = at[sign * (level - 1)], at[sign * level]
        return ceil(steps * (level - 1 + Fraction(y - near, far - near)))

    found = np.array([cost(y) for y in range(size)])
    return found - found.min()


def probabilities(cost, rate, mechanism):
    """Those of rows of costs ``(rows, positions)``."""
    coin = np.exp(-rate * cost)
    if mechanism != "permute_and_flip":
        return coin / coin.sum(axis=1, keepdims=True)
    found = []
    for own in range(cost.shape[1]):
        powers = np.zeros((len(cost), cost.shape[1] + 1))  # of the time, in the product of 1 - v q
        powers[:, 0] = 1
        for other in np.delete(coin, own, axis=1).T:
            powers[:, 1:] -= other[:, None] * powers[:, :-1]
        found.append(coin[:, own] * (powers / np.arange(1, powers.shape[1] + 1)).sum(axis=1))
    return np.stack(found, axis=1)


def law_of(statistic, datasets, epsilon, neighbors, mechanism, **variant):
    """What the definition says: ``(datasets, positions)``."""
    steps = 2 if epsilon <= 1 else 4 if epsilon <= 2 else 8
    far = min(jumps.far_of(epsilon, size_of(statistic)), ALL)
    rows = np.array([costs(statistic, data, neighbors, steps, far, **variant) for data in datasets])
    return probabilities(rows, epsilon / (2 * steps), mechanism)


def pairs_of(datasets, neighbors):
    """Indices of all neighbors, in both orders."""
    row = {data: number for number, data in enumerate(datasets)}
    found = [
        (row[data], row[other])
        for data in datasets
        for other in neighbors_of(data, neighbors, GRID)
        if other in row
    ]
    return np.array(found).T


def loss_and_range(shares, pairs):
    """The largest of all neighbors."""
    first, second = np.log(shares)[pairs]
    loss = first - second
    return loss.max(), (loss.max(axis=1) - loss.min(axis=1)).max()
