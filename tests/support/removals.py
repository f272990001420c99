"""Monotone statistics from their definitions: h(l) by trying every subset, and the same with the
library, for audits of both.
"""

import itertools
from functools import cache

import jax
import numpy as np

from tests.support import oracle
from tests.support.audit import losses_of, neighboring_rows  # noqa: F401

GRID = (0.0, 1.0, 4.0, 5.0)
TOP = 7.0  # the upper bound of every range: above some values of f and below others
N_MAX = 5
DATASETS = oracle.all_datasets(range(N_MAX + 1), GRID)

DEFINITIONS = {
    "max": lambda data: max(data, default=0.0),
    "sum": lambda data: min(TOP, sum(data)),
    "distinct": lambda data: float(len(set(data))),
    "sizesq": lambda data: min(TOP, len(data) ** 2 / 2),
}


def kept(data, statistic):
    """The smallest value of the statistic over all subsets with at most l people removed, for l =
    0..len(data).
    """
    by_size = [
        min(statistic(subset) for subset in itertools.combinations(data, k))
        for k in range(len(data), -1, -1)
    ]
    return np.minimum.accumulate(by_size)


@cache
def minima():
    """What is kept of all statistics and datasets, with the last value for more people than there
    are: ``(statistics, datasets, levels)``.
    """
    rows = [[kept(data, statistic) for data in DATASETS] for statistic in DEFINITIONS.values()]
    return np.array(
        [[np.pad(own, (0, N_MAX + 1 - len(own)), mode="edge") for own in row] for row in rows]
    )


def neighboring(datasets=None, neighbors="add_remove", grid=GRID):
    """Rows of all neighboring pairs."""
    return neighboring_rows(
        tuple(DATASETS if datasets is None else datasets), neighbors, tuple(grid)
    )


_log_probabilities = jax.jit(lambda distribution: distribution.log_probabilities())


def log_probabilities(distribution):
    """Of a distribution on candidates, compiled as one."""
    return np.asarray(_log_probabilities(distribution), np.float64)


def renyi(logs, pairs, order):
    """The largest Renyi divergence over neighboring rows, in both directions, for each leading
    index.
    """
    divergences = []
    for first, second in (pairs, pairs[::-1]):
        one, other = logs[..., first, :], logs[..., second, :]
        with np.errstate(invalid="ignore"):
            terms = np.where(np.isneginf(one), -np.inf, order * one + (1 - order) * other)
        top = terms.max(axis=-1, keepdims=True)
        sums = np.log(np.exp(terms - top).sum(axis=-1)) + top[..., 0]
        divergences.append(sums.max(axis=-1) / (order - 1))
    return np.maximum(*divergences)
