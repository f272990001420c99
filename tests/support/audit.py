"""The exact audit: the supremum of the log-density ratio over all neighboring datasets, both
one-sided limits at every breakpoint.

Between two breakpoints for any dataset, every log-density is linear; two interior values fix the
line, and its limits at both ends are where a supremum can be.
"""

import math
from functools import cache
from typing import NamedTuple

import jax
import numpy as np

from tests.support import oracle
from tests.support.distributions import of_one_size


class Audit(NamedTuple):
    """The largest log-ratio (the pure-DP loss) and the largest sum of the two one-sided suprema
    (the bounded range).
    """

    loss: float | np.ndarray
    range: float | np.ndarray


def padded(datasets, n_max, fill=0.0):
    """Datasets as one padded array with their counts."""
    x = np.full((len(datasets), n_max), fill)
    for row, data in enumerate(datasets):
        x[row, : len(data)] = data
    return x, np.array([len(data) for data in datasets], np.int32)


# Shapes in which densities are evaluated: one program for many audits.
PIECES, ROWS, POINTS = 16, 128, 32


def breakpoints(distribution, edges):
    """Both ends of every interval between ascending edges, and which are no rounding of one point:
    between such a distribution is linear.

    Beyond the outermost edges tails go on with their slope; one further point on either side shows
    it.
    """
    if distribution.tails is not None:
        edges = np.concatenate([edges[..., :1] - 50.0, edges, edges[..., -1:] + 50.0], axis=-1)
    left, right = edges[..., :-1], edges[..., 1:]
    return left, right, right - left > 1e-9 * max(1.0, float(np.max(np.abs(edges))))


def limits_of(distribution, left, right):
    """Log-densities at both ends of intervals: float64 ``(..., intervals, 2)``."""
    points = np.concatenate([(3 * left + right) / 4, (left + 3 * right) / 4], axis=-1)
    at_a, at_b = np.split(log_densities(distribution, points.T), 2, axis=-1)
    # Both -inf outside a support: the distribution has no mass there, and no slope
    with np.errstate(invalid="ignore"):
        half_step = np.where(np.isneginf(at_a), 0.0, (at_b - at_a) / 2)
    return np.stack([at_a - half_step, at_b + half_step], axis=-1)


def one_sided_limits(distribution):
    """Log-densities of every row at both ends of every interval between breakpoints: float64
    ``(..., intervals, 2)``.
    """
    edges = np.unique(np.asarray(distribution.edges, np.float64))
    left, right, wide = breakpoints(distribution, edges)
    return limits_of(distribution, left[wide], right[wide])


def audit_pairs(distribution):
    """The audit of rows 2i against 2i+1, by one-sided limits at the breakpoints of the two."""
    rows = len(np.broadcast_to(0, distribution.batch_shape))
    edges = np.asarray(distribution.edges, np.float64)
    edges = np.broadcast_to(edges, (rows, edges.shape[-1]))
    edges = np.sort(edges.reshape(rows // 2, -1), axis=-1)
    left, right, wide = (np.repeat(a, 2, axis=0) for a in breakpoints(distribution, edges))
    limits = np.where(wide[..., None], limits_of(distribution, left, right), -np.inf)
    pairs = np.arange(rows).reshape(-1, 2).T
    return Audit(*(float(worst.max()) for worst in losses_of(limits.reshape(rows, -1), pairs)))


def log_densities(distribution, points):
    """``distribution.log_prob`` of every row at every point, or at its own of ``(points, rows)``:
    float64 ``(..., points)``.

    Each call has the same shape, so that those of different shapes share a program: rows and points
    repeat, and pieces without width are appended at the upper end.
    """
    batch = distribution.batch_shape
    number, count, own = math.prod(batch), len(points), points.ndim > 1

    def rows_of(leaf):
        leaf = np.asarray(leaf)
        leaf = leaf.reshape(number, *leaf.shape[len(batch) :])
        return np.pad(leaf, [(0, -number % ROWS)] + [(0, 0)] * (leaf.ndim - 1), mode="edge")

    pieces = -(-max(distribution.edges.shape[-1] - 1, 1) // PIECES) * PIECES
    whole = jax.tree.map(rows_of, of_one_size(distribution, pieces))
    points = points.reshape(count, -1)
    missing = [(0, -count % POINTS), (0, -number % ROWS if own else 0)]
    points = np.pad(points, missing, mode="edge").astype(distribution.dtype)
    found = np.empty((len(whole.rate), len(points)))
    for row in range(0, len(found), ROWS):
        some = jax.tree.map(lambda values, row=row: values[row : row + ROWS], whole)
        at_rows = points[:, row : row + ROWS] if own else points
        for at in range(0, len(points), POINTS):
            found[row : row + ROWS, at : at + POINTS] = np.asarray(
                _log_densities(some, at_rows[at : at + POINTS])
            ).T
    return found[:number, :count].reshape(*batch, count)


@jax.jit
def _log_densities(distribution, points):
    return distribution.log_prob(points)


@cache
def neighboring_rows(datasets, neighbors, grid):
    """Rows of all pairs of neighbors, each once: ``(2, pairs)``."""
    index = {data: row for row, data in enumerate(datasets)}
    pairs = [
        (row, index[other])
        for data, row in index.items()
        for other in oracle.neighbors_of(data, neighbors, grid)
        if other in index and index[other] > row
    ]
    return np.array(pairs).T


def losses_of(logs, pairs):
    """The largest log-ratio and the largest range over neighboring rows, for each leading index."""
    one, other = logs[..., pairs[0], :], logs[..., pairs[1], :]
    with np.errstate(invalid="ignore"):
        ratio = np.where(np.isneginf(one) & np.isneginf(other), 0.0, one - other)
    forward, backward = np.maximum(ratio.max(axis=-1), 0.0), np.maximum((-ratio).max(axis=-1), 0.0)
    return np.maximum(forward, backward).max(axis=-1), (forward + backward).max(axis=-1)


def audit(distribution, datasets, neighbors, grid):
    """Audit a distribution whose last axis is one row for each dataset; further axes in front are
    audited side by side.

    ``datasets`` are sorted tuples, closed under the relation apart from their size.
    """
    limits = one_sided_limits(distribution)
    limits = limits.reshape(*limits.shape[:-2], -1)
    return Audit(*losses_of(limits, neighboring_rows(tuple(datasets), neighbors, tuple(grid))))
