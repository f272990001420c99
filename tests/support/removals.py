"""Monotone statistics from their definitions: h(l) by trying every subset, and the same with the
library, for audits of both.
"""

import itertools

import jax
import jax.numpy as jnp
import numpy as np

from dpjax.sensitivity.down import DownSensitivity
from dpjax.statistics.monotone import distinct_count, maximum, nonnegative_sum
from tests.support import oracle
from tests.support.audit import neighboring_rows, padded

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


def down_sensitivity_of(name, datasets=None, n_max=N_MAX):
    """The library's answer for a batch of datasets; |x|^2 / 2 comes as a function of one's own,
    from the counts.
    """
    x, count = padded(DATASETS if datasets is None else datasets, n_max)
    if name == "max":
        return maximum(jnp.asarray(x), lower=0.0, upper=TOP, num_records=count)
    if name == "sum":
        return nonnegative_sum(jnp.asarray(x), upper=TOP, num_records=count)
    if name == "distinct":
        return distinct_count(jnp.asarray(x).astype(jnp.int32), upper=TOP, num_records=count)
    left = np.maximum(count[:, None] - np.arange(n_max + 1), 0)
    return DownSensitivity(jnp.minimum(jnp.asarray(left**2 / 2.0), TOP), jnp.asarray(TOP))


def neighboring(datasets=None, neighbors="add_remove", grid=GRID):
    """Rows of all neighboring pairs."""
    return neighboring_rows(
        tuple(DATASETS if datasets is None else datasets), neighbors, tuple(grid)
    )


_log_probabilities = jax.jit(lambda distribution: distribution.log_probabilities())


def log_probabilities(distribution):
    """Of a distribution on candidates, compiled as one."""
    return np.asarray(_log_probabilities(distribution), np.float64)


def finite_losses(distribution, pairs):
    """The largest log-ratio and the largest range over neighboring rows of a distribution on
    candidates, exactly.
    """
    logs = log_probabilities(distribution)
    with np.errstate(invalid="ignore"):
        ratio = logs[pairs[0]] - logs[pairs[1]]
    ratio = np.where(np.isneginf(logs[pairs[0]]) & np.isneginf(logs[pairs[1]]), 0.0, ratio)
    forward, backward = np.maximum(ratio.max(axis=-1), 0.0), np.maximum((-ratio).max(axis=-1), 0.0)
    return float(max(forward.max(), backward.max())), float((forward + backward).max())
