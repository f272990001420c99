"""The exact delta at a given epsilon between rows of a distribution whose log-density is linear
between breakpoints.

delta = integral of max(p - e^epsilon q, 0). Between two breakpoints of any row both logarithms are
linear, so the part where p is above e^epsilon q is an interval with a closed-form mass; beyond the
outermost breakpoints tails go on with their slope.
"""

import numpy as np

from tests.support.audit import limits_of


def lines(distribution, log_weight=0.0):
    """Log-densities as lines: start, slope (going outwards in the tails) and length of each
    interval, ``(rows, intervals)``.
    """
    edges = np.unique(np.asarray(distribution.edges, np.float64))
    edges = np.concatenate([edges[:1] - 1.0, edges, edges[-1:] + 1.0])
    wide = np.diff(edges) > 1e-9 * max(1.0, float(np.max(np.abs(edges))))
    left, length = edges[:-1][wide], np.diff(edges)[wide]
    limits = limits_of(distribution, left, left + length)
    limits[:, 0] = limits[:, 0, ::-1]
    start, end = limits[..., 0], limits[..., 1]
    with np.errstate(invalid="ignore"):
        slope = np.where(np.isneginf(start), 0.0, (end - start) / length)
    length[[0, -1]] = np.inf
    weight = np.broadcast_to(np.asarray(log_weight, np.float64), distribution.batch_shape)[:, None]
    return start + weight, slope, length


def mass(start, slope, begin, end):
    """The integral of exp(start + slope t) over [begin, end], from its higher end so that nothing
    overflows.
    """
    with np.errstate(invalid="ignore", over="ignore"):
        there = (end > begin) & ~np.isneginf(start)
        width, steep = np.where(there, end - begin, 0.0), np.abs(slope)
        flat = steep * np.where(np.isfinite(width), width, 1.0) < 1e-12
        top = np.where(
            there, start + slope * np.where((slope > 0) & np.isfinite(end), end, begin), -np.inf
        )
        value = np.exp(top) * np.where(
            flat, width, -np.expm1(-steep * width) / np.where(flat, 1.0, steep)
        )
    return np.where(there, value, 0.0)


def hockey_stick(distribution, pairs, epsilon, log_weight=0.0):
    """delta of each pair (first row against second), for pairs ``(2, count)``; ``log_weight``
    scales each row's density.
    """
    start, slope, length = lines(distribution, log_weight)
    (a, b), (c, d) = ((start[rows], slope[rows]) for rows in pairs)
    with np.errstate(invalid="ignore", divide="ignore"):
        at_zero = np.where(np.isneginf(c), np.inf, a - c - epsilon)
        change = np.where(np.isneginf(c) | np.isneginf(a), 0.0, b - d)
        crossing = np.where(change == 0, np.inf, -at_zero / np.where(change == 0, 1.0, change))
    inside = (crossing > 0) & (crossing < length)
    above = at_zero > 0
    begin = np.where(above, 0.0, np.where(inside & (change > 0), crossing, length))
    end = np.where(above & inside & (change < 0), crossing, length)
    return np.sum(mass(a, b, begin, end) - np.exp(epsilon) * mass(c, d, begin, end), axis=-1)
