"""The exact audit: the supremum of the log-density ratio over all neighbouring datasets, both one-sided limits at every breakpoint.

Between two breakpoints of any dataset's law, every log-density is linear; two interior values fix the line, and its limits at both
ends are where a supremum can be.
"""

from typing import NamedTuple

import numpy as np

from tests.support import oracle


class Audit(NamedTuple):
    """The largest log-ratio (the pure-DP loss) and the largest sum of the two one-sided suprema (the bounded range)."""

    loss: float | np.ndarray
    range: float | np.ndarray


def padded(datasets, n_max, fill=0.0):
    """Datasets as one padded array with their counts."""
    x = np.full((len(datasets), n_max), fill)
    for row, data in enumerate(datasets):
        x[row, : len(data)] = data
    return x, np.array([len(data) for data in datasets], np.int32)


def one_sided_limits(law):
    """Log-densities of every row at both ends of every interval between breakpoints: float64 ``(..., intervals, 2)``.

    Beyond the outermost breakpoints tails go on with their slope; one further point on either side shows it.
    """
    edges = np.unique(np.asarray(law.edges, np.float64))
    if law.tails is not None:
        edges = np.concatenate([[edges[0] - 50.0], edges, [edges[-1] + 50.0]])
    left, right = edges[:-1], edges[1:]
    # Breakpoints that differ only by rounding enclose no interval: a law is linear or jumps there.
    wide = (right - left) > 1e-9 * max(1.0, float(np.max(np.abs(edges))))
    left, right = left[wide], right[wide]
    a, b = (3 * left + right) / 4, (left + 3 * right) / 4
    points, axes = np.concatenate([a, b]), tuple(range(1, 1 + len(law.batch_shape)))
    values = np.asarray(law.log_prob(np.broadcast_to(np.expand_dims(points, axes), (points.size, *law.batch_shape))), np.float64)
    at_a, at_b = np.moveaxis(values[: a.size], 0, -1), np.moveaxis(values[a.size :], 0, -1)
    with np.errstate(invalid="ignore"):  # both -inf outside a support: the law has no mass there, and no slope
        half_step = np.where(np.isneginf(at_a), 0.0, (at_b - at_a) / 2)
    return np.stack([at_a - half_step, at_b + half_step], axis=-1)


def audit(law, datasets, neighbors, grid):
    """Audit a distribution whose last axis is one row for each dataset; further axes in front are audited side by side.

    ``datasets`` are sorted tuples, closed under the relation apart from their size.
    """
    limits = one_sided_limits(law)
    limits = limits.reshape(*limits.shape[:-2], -1)
    index = {data: row for row, data in enumerate(datasets)}
    pairs = [
        (row, index[other])
        for data, row in index.items()
        for other in oracle.neighbours_of(data, neighbors, grid)
        if other in index and index[other] > row
    ]
    first, second = np.array(pairs).T
    one, other = limits[..., first, :], limits[..., second, :]
    with np.errstate(invalid="ignore"):
        ratio = np.where(np.isneginf(one) & np.isneginf(other), 0.0, one - other)
    forward, backward = np.maximum(ratio.max(axis=-1), 0.0), np.maximum((-ratio).max(axis=-1), 0.0)
    return Audit(np.maximum(forward, backward).max(axis=-1), (forward + backward).max(axis=-1))
