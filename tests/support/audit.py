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

from dpjax import PiecewiseExponential
from tests.support import oracle


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


def one_sided_limits(distribution):
    """Log-densities of every row at both ends of every interval between breakpoints: float64
    ``(..., intervals, 2)``.

    Beyond the outermost breakpoints tails go on with their slope; one further point on either side
    shows it.
    """
    edges = np.unique(np.asarray(distribution.edges, np.float64))
    if distribution.tails is not None:
        edges = np.concatenate([[edges[0] - 50.0], edges, [edges[-1] + 50.0]])
    left, right = edges[:-1], edges[1:]
    # Breakpoints that differ only by rounding enclose no interval: a distribution is linear or
    # jumps there.
    wide = (right - left) > 1e-9 * max(1.0, float(np.max(np.abs(edges))))
    left, right = left[wide], right[wide]
    values = log_densities(
        distribution, np.concatenate([(3 * left + right) / 4, (left + 3 * right) / 4])
    )
    at_a, at_b = values[..., : left.size], values[..., left.size :]
    # Both -inf outside a support: the distribution has no mass there, and no slope
    with np.errstate(invalid="ignore"):
        half_step = np.where(np.isneginf(at_a), 0.0, (at_b - at_a) / 2)
    return np.stack([at_a - half_step, at_b + half_step], axis=-1)


def audit_pairs(distribution):
    """The audit of rows 2i against 2i+1, by one-sided limits at the breakpoints of the two."""
    rows = len(np.broadcast_to(0, distribution.batch_shape))
    edges = np.asarray(distribution.edges, np.float64)
    edges = np.broadcast_to(edges, (rows, edges.shape[-1]))
    edges = np.sort(edges.reshape(rows // 2, -1), axis=-1)
    if distribution.tails is not None:
        edges = np.concatenate([edges[:, :1] - 50.0, edges, edges[:, -1:] + 50.0], axis=-1)
    left, right = edges[:, :-1], edges[:, 1:]
    wide = (right - left) > 1e-9 * max(1.0, float(np.max(np.abs(edges))))
    points = np.concatenate([(3 * left + right) / 4, (left + 3 * right) / 4], axis=-1)
    values = log_densities(distribution, np.repeat(points, 2, axis=0).T)
    at_a, at_b = np.split(values.reshape(rows // 2, 2, -1), 2, axis=-1)
    with np.errstate(invalid="ignore"):
        half_step = np.where(np.isneginf(at_a), 0.0, (at_b - at_a) / 2)
        limits = np.stack([at_a - half_step, at_b + half_step], axis=-1)
        ratio = limits[:, 0] - limits[:, 1]
    ratio = np.where(np.isneginf(limits).all(axis=1) | ~wide[..., None], 0.0, ratio).reshape(
        rows // 2, -1
    )
    return Audit(float(np.abs(ratio).max()), float((ratio.max(axis=-1) - ratio.min(axis=-1)).max()))


def log_densities(distribution, points):
    """``distribution.log_prob`` of every row at every point, or at its own of ``(points, *batch)``:
    float64 ``(..., points)``.

    Each call has the same shape, so that those of different shapes share a program: rows and points
    repeat, and pieces without width are appended at the upper end.
    """
    batch = distribution.batch_shape
    rows, count = -(-math.prod(batch) // ROWS) * ROWS, len(points)

    def flat(values, size):
        values = np.asarray(values)
        missing = [(0, 0)] * (values.ndim - 1) + [(0, size - values.shape[-1])]
        values = np.pad(values, missing, mode="edge" if values.shape[-1] else "constant")
        values = np.broadcast_to(values, (*batch, size)).reshape(-1, size)
        return np.pad(values, [(0, rows - len(values)), (0, 0)], mode="edge")

    def one(values):
        return flat(np.asarray(values)[..., None], 1)[:, 0]

    pieces = -(-max(distribution.edges.shape[-1] - 1, 1) // PIECES) * PIECES
    whole = PiecewiseExponential(
        flat(distribution.edges, pieces + 1),
        flat(distribution.cost_left, pieces),
        flat(distribution.cost_right, pieces),
        one(distribution.rate),
        None if distribution.tails is None else jax.tree.map(one, distribution.tails),
    )
    own = points.ndim > 1
    points = points.reshape(count, -1)
    points = np.pad(
        points, [(0, -count % POINTS), (0, rows - points.shape[1] if own else 0)], mode="edge"
    ).astype(distribution.dtype)
    found = np.empty((rows, len(points)))
    for row in range(0, rows, ROWS):
        some = jax.tree.map(lambda values, row=row: values[row : row + ROWS], whole)
        at_rows = points[:, row : row + ROWS] if own else points
        for at in range(0, len(points), POINTS):
            found[row : row + ROWS, at : at + POINTS] = np.asarray(
                _log_densities(some, at_rows[at : at + POINTS])
            ).T
    return found[: math.prod(batch), :count].reshape(*batch, count)


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


def audit(distribution, datasets, neighbors, grid):
    """Audit a distribution whose last axis is one row for each dataset; further axes in front are
    audited side by side.

    ``datasets`` are sorted tuples, closed under the relation apart from their size.
    """
    limits = one_sided_limits(distribution)
    limits = limits.reshape(*limits.shape[:-2], -1)
    first, second = neighboring_rows(tuple(datasets), neighbors, tuple(grid))
    one, other = limits[..., first, :], limits[..., second, :]
    with np.errstate(invalid="ignore"):
        ratio = np.where(np.isneginf(one) & np.isneginf(other), 0.0, one - other)
    forward, backward = np.maximum(ratio.max(axis=-1), 0.0), np.maximum((-ratio).max(axis=-1), 0.0)
    return Audit(np.maximum(forward, backward).max(axis=-1), (forward + backward).max(axis=-1))
