"""The jumps of a statistic as records change, which are all that a draw on a grid needs of it.

Let V(s) be the position of the statistic after s changes, upwards for s > 0, downwards for s < 0;
it does not decrease in s, and neighbors satisfy V(s - 1) <= V'(s) <= V(s + 1). The cost of a
position y above V(0) is the least real s at which the linear interpolation of V reaches y, rounded
up to a multiple of 1/r, and likewise below. V(0) itself has the cost 1 - c, where c is the least
number of changes that moves the statistic.

**Sensitivity 1.** The interpolations of neighbors interleave at all real levels, so the level L(y)
changes by at most 1 on the same side of both values; and ceil(r (L + 1)) = ceil(r L) + r, so it
does after rounding. If both values are equal, c changes by at most 1. If not, c = c' = 1 for both:
each value costs 0 for its own dataset and at most 1 for the other one, and any y between them at
most 1 for both.

In units of 1/r, a change costs r, and the positions between V(s) and V(s + 1) are r runs of equal
cost. For r = 1 this is inverse sensitivity with depth; for large r it is the piecewise Laplace
mechanism on a grid (Durfee 2025), to which r = 2 up to epsilon 1, 4 up to 2, and 8 beyond add at
most 1.5 % of error.

V may jump to the ends of the grid after any public number of changes, as the neighbors do as well.
"""

from __future__ import annotations

from fractions import Fraction
from math import log
from typing import NamedTuple

import numpy as np

from dpjax.release.counts import Counts, running_sums, sums_of
from dpjax.release.distribution import How, Runs
from dpjax.release.grid import Multiples, Points

_FAR = 20.0  # beyond the levels that are looked at, the grid weighs at most e^-20


class Ranks(NamedTuple):
    """The rank after s changes, ceil((slope n + shift + step s) / denominator).

    Attributes:
        slope: as in the formula.
        shift: as in the formula.
        step: as in the formula.
        denominator: as in the formula.
        of_last: whether the statistic itself is the last record, and not V(0).
    """

    slope: int
    shift: int
    step: int
    denominator: int
    of_last: bool = False


def steps_of(epsilon: Fraction) -> int:
    """Return r, the number of runs of a change."""
    return 2 if epsilon <= 1 else 4 if epsilon <= 2 else 8


def far_of(epsilon: Fraction, size: int) -> int:
    """Return a public number of changes, beyond which no position of a grid is likely."""
    return int(2 * (log(size) + _FAR) / epsilon) + 1


def runs_of(counts: Counts, ranks: Ranks, how: How, grid: Multiples | Points) -> Runs:
    """Return the distributions of a draw, where V(s) is the record of the rank after s changes.

    V is 0 below rank 1, and the end of the grid above rank n. It jumps at the boundaries between
    adjacent values and at the ends of the grid, as soon as the rank exceeds C, the number of
    records up to the lower value.
    """
    far, steps = far_of(how.epsilon, grid.size), steps_of(how.epsilon)
    starts = counts.starts
    passed = np.insert(running_sums(counts.counts, starts), starts[:-1], 0)
    low = np.insert(counts.values, starts[:-1], 0)
    high = np.insert(counts.values, starts[1:], grid.size - 1)
    starts = starts + np.arange(len(starts))
    n, last = np.repeat(counts.totals, np.diff(starts)), low[starts[1:] - 1]
    if ranks.denominator * int(n.max(initial=0)) >= 2**62:
        passed, n = passed.astype(object), n.astype(object)
    # V(s) is above the boundary from s = first on: s > 0 is the level of the jump from V(s - 1) to
    # V(s), and s < 0 that of the jump from V(s + 1) to V(s)
    first = (ranks.denominator * passed - (ranks.slope * n + ranks.shift)) // ranks.step + 1
    level = np.clip(np.where(first > 0, first, first - 1), -far - 1, far + 1).astype(np.int64)
    # Jumps of the same level, and those beyond ``far`` changes, become one
    new = np.ones(len(level) + 1, bool)
    new[1:-1] = level[1:] != level[:-1]
    new[starts] = True
    starts = np.append(0, np.cumsum(new[:-1]))[starts]
    level, low, high = level[new[:-1]], low[new[:-1]], high[new[1:]]
    # V(0) itself is a run between the jumps of both directions
    at = starts[:-1] + sums_of(level < 0, starts)
    own = low[at]
    pairs = (level, 0), (low, own), (high, own)
    level, low, high = (np.insert(array, at, inner) for array, inner in pairs)
    starts = starts + np.arange(len(starts))
    height, changes = high - low, np.abs(level)
    moves = np.where(height > 0, changes, np.iinfo(np.int64).max)
    depth = np.minimum.reduceat(moves, starts[:-1]) if len(at) else moves
    base = steps * (changes + np.repeat(depth, np.diff(starts)) - 2)
    # The r parts of a jump, with the lower positions first: downwards, these cost most
    parts = np.arange(1, steps + 1)[:, None]
    part = np.where(level < 0, steps + 1 - parts, parts)
    through, before = height * part // steps, height * (part - 1) // steps
    first = np.where(level < 0, high - through, low + before + (level > 0))
    length = np.where(level == 0, parts == 1, through - before)
    cost = np.where(level == 0, 0, base + part)
    kept = length.T > 0
    ends = np.append(0, np.cumsum(kept.sum(axis=1)))[starts]
    first, length, cost = (array.T[kept] for array in (first, length, cost))
    value = grid.values_of(last if ranks.of_last else own)
    rate = how.epsilon / (2 * steps)
    return Runs(ends, first, length, cost, rate, grid, value, how.mechanism)


def midpoints(counts: Counts, size: int) -> Counts:
    """Return records of which the one of rank n + 1 + s is twice the midpoint median.

    It is the sum of the records of rank floor(h) and ceil(h), h = (n + 1 + s) / 2: between two
    adjacent values for one h, and twice a value for 2 c - 1 of them, if c records are equal. The
    last number of each group is for no record.
    """
    starts = counts.starts
    low = np.insert(counts.values, starts[:-1], 0)
    high = np.insert(counts.values, starts[1:], size - 1)
    equal = np.insert(2 * counts.counts - 1, starts[1:], 0)
    pairs = (low + high, 2 * high), (np.ones_like(equal), equal)
    return Counts(
        2 * (starts + np.arange(len(starts))),
        *(np.stack(pair, axis=1).ravel() for pair in pairs),
    )


def sums_of_smallest(counts: Counts, top: int, far: int, tau: int) -> Counts:
    """Return records of which the one of rank k is the sum of the k smallest, up to ``top``.

    Those that ``far`` changes from the rank n - tau do not reach are equal to the first one that
    they do; so there are at most tau + far different ones, or ``top``.
    """
    starts, group, values, n = counts.starts, counts.group, counts.values, counts.totals
    before = running_sums(counts.counts, starts) - counts.counts
    # As many records of a value as are below the end; with one more, larger values are beyond it
    most = np.minimum(counts.counts, top // np.maximum(values, 1))
    below = running_sums(most * values, starts) - most * values
    out = np.clip((n - tau - far)[group] - before, 0, counts.counts)
    more = -(-np.maximum(top - below, 0) // np.maximum(values, 1)) * (values > 0)  # until the end
    each = np.maximum(np.minimum(more, counts.counts) - out, 0) + 2
    entry, ends = np.repeat(np.arange(len(each)), each), np.append(0, np.cumsum(each))
    place = np.arange(len(entry)) - ends[entry]
    number = np.where(place + 1 < each[entry], out[entry] + place, counts.counts[entry])
    sums = below[entry] + values[entry] * np.minimum(number, more[entry])
    equal = np.where(place > 0, np.diff(number, prepend=0), number)
    return Counts(ends[starts], np.minimum(sums, top), equal)
