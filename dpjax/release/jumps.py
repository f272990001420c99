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

from dataclasses import dataclass
from fractions import Fraction
from math import log
from typing import NamedTuple

import numpy as np

from dpjax.release.counts import Counts, running_sums, sums_of
from dpjax.release.distribution import Runs
from dpjax.release.grid import Multiples, Points

_FAR = 20.0  # beyond the levels that are looked at, the grid weighs at most e^-20


@dataclass(frozen=True, eq=False)
class Jumps:
    """The jumps of V of all groups, ascending, in flat arrays; some may have no height.

    Attributes:
        starts: int64 ``(groups + 1,)``: group g has the jumps from ``starts[g]`` to
            ``starts[g + 1]``, of which the last is upwards.
        level: int64 ``(jumps,)``: s > 0 for the jump from V(s - 1) to V(s), and s < 0 for that from
            V(s + 1) to V(s).
        low: int64, the lower position.
        high: int64, the higher position.
    """

    starts: np.ndarray
    level: np.ndarray
    low: np.ndarray
    high: np.ndarray

    @staticmethod
    def at(
        far: int, starts: np.ndarray, first: np.ndarray, low: np.ndarray, high: np.ndarray
    ) -> Jumps:
        """Return the jumps from ``low`` to ``high``, where V(s) >= high from s = ``first`` on.

        Jumps beyond ``far`` changes, and those of the same level, become one.
        """
        level = np.clip(np.where(first > 0, first, first - 1), -far - 1, far + 1).astype(np.int64)
        new = np.ones(len(level) + 1, bool)
        new[1:-1] = level[1:] != level[:-1]
        new[starts] = True
        number = np.append(0, np.cumsum(new[:-1]))
        return Jumps(number[starts], level[new[:-1]], low[new[:-1]], high[new[1:]])

    @property
    def value(self) -> np.ndarray:
        """V(0) of each group."""
        return self.low[self._upwards]

    @property
    def _upwards(self) -> np.ndarray:
        """The first upward jump of each group."""
        return self.starts[:-1] + sums_of((self.level < 0).astype(np.int64), self.starts)

    def runs(
        self, epsilon: Fraction, grid: Multiples | Points, value: np.ndarray, mechanism: str
    ) -> Runs:
        """Return the distributions of a draw at this epsilon; ``value`` is the statistic."""
        steps = steps_of(epsilon)
        halvings = steps.bit_length() - 1
        at = self._upwards
        own = self.low[at]
        pairs = (self.level, 0), (self.low, own), (self.high, own)
        level, low, high = (np.insert(array, at, inner) for array, inner in pairs)
        starts = self.starts + np.arange(len(self.starts))
        height, changes = high - low, np.abs(level)
        moves = np.where(height > 0, changes, np.iinfo(np.int64).max)
        depth = np.minimum.reduceat(moves, starts[:-1]) if len(at) else moves
        base = steps * (changes + np.repeat(depth, np.diff(starts)) - 2)
        # The r parts of a jump, with the lower positions first: downwards, these cost most
        parts = np.arange(1, steps + 1)[:, None]
        part = np.where(level < 0, steps + 1 - parts, parts)
        through, before = height * part >> halvings, height * (part - 1) >> halvings
        first = np.where(level < 0, high - through, low + before + (level > 0))
        length = np.where(level == 0, parts == 1, through - before)
        cost = np.where(level == 0, 0, base + part)
        kept = length.T > 0
        ends = np.append(0, np.cumsum(kept.sum(axis=1)))[starts]
        first, length, cost = (array.T[kept] for array in (first, length, cost))
        rate = epsilon / (2 * steps)
        return Runs(ends, first, length, cost, rate, grid, value, mechanism)


def steps_of(epsilon: Fraction) -> int:
    """Return r, the number of runs of a change."""
    return 2 if epsilon <= 1 else 4 if epsilon <= 2 else 8


def far_of(epsilon: Fraction, size: int) -> int:
    """Return a public number of changes, beyond which no position of a grid is likely."""
    return int(2 * (log(size) + _FAR) / epsilon) + 1


class Ranks(NamedTuple):
    """The rank after s changes, ceil((slope n + shift + step s) / denominator)."""

    slope: int
    shift: int
    step: int
    denominator: int

    def after(self, n: int, changes: int) -> int:
        """Return the rank among n records after some changes."""
        return -(-(self.slope * n + self.shift + self.step * changes) // self.denominator)


def of_ranks(counts: Counts, size: int, far: int, ranks: Ranks) -> Jumps:
    """Return the jumps where V(s) is the record of the rank after s changes.

    V is 0 below rank 1, and the end of the grid above rank n. It passes a value as soon as the
    rank exceeds C, the number of records up to that value.
    """
    passed, n, starts, low, high = _boundaries(counts, size)
    if ranks.denominator * int(n.max(initial=0)) >= 2**62:
        passed, n = passed.astype(object), n.astype(object)
    first = (ranks.denominator * passed - (ranks.slope * n + ranks.shift)) // ranks.step + 1
    return Jumps.at(far, starts, first, low, high)


def of_midpoints(counts: Counts, size: int, far: int, *, step: int) -> Jumps:
    """Return the jumps of twice the midpoint median, the sum of the records beside a rank.

    The rank is h = (n + 1 + step s) / 2, and the records are those of rank floor(h) and ceil(h).
    Between two adjacent values, V is their sum from h = C + 1/2 to h = C + 1.
    """
    passed, n, starts, low, high = _boundaries(counts, size)
    first = -((n - 2 * passed - np.arange(2)[:, None]) // step)
    middle = low + high
    pairs = first, (2 * low, middle), (middle, 2 * high)
    each = (np.stack(pair, axis=1).ravel() for pair in pairs)
    return Jumps.at(far, 2 * starts, *each)


def _boundaries(counts: Counts, size: int) -> tuple[np.ndarray, ...]:
    """Return all boundaries between adjacent values of each group, and the ends of the grid.

    These are C, the number of records below; n; the starts of the groups; and the values below and
    above.
    """
    starts, n = counts.starts, counts.totals
    passed = np.insert(running_sums(counts.counts, starts), starts[:-1], 0)
    low = np.insert(counts.values, starts[:-1], 0)
    high = np.insert(counts.values, starts[1:], size - 1)
    starts = starts + np.arange(len(starts))
    return passed, np.repeat(n, np.diff(starts)), starts, low, high


def of_sums(counts: Counts, size: int, far: int, *, tau: int) -> Jumps:
    """Return the jumps where V(s) is the sum of the n - tau + s smallest records, up to the end.

    Only the ranks that ``far`` changes reach have jumps of their own, if these have a height: at
    most ``size`` of them.
    """
    top, starts, group, values = size - 1, counts.starts, counts.group, counts.values
    n, through = counts.totals, running_sums(counts.counts, starts)
    # As many records of a value as can matter for a sum up to the end
    most = np.minimum(counts.counts, top // np.maximum(values, 1) + 1)
    below = running_sums(most * values, starts) - most * values
    out = counts.counts - np.clip(through - (n - tau - far)[group], 0, counts.counts)
    more = -(-np.maximum(top - below, 0) // np.maximum(values, 1))  # until the end is reached
    kept = np.maximum(np.where(values > 0, np.minimum(more, counts.counts), 0) - out, 0)
    entry, ends = np.repeat(np.arange(len(kept)), kept), np.append(0, np.cumsum(kept))
    number = np.arange(len(entry)) - ends[entry] + out[entry] + 1
    rank = through[entry] - counts.counts[entry] + number
    low, high = (
        np.minimum(below[entry] + values[entry] * smaller, top) for smaller in (number - 1, number)
    )
    starts, lowest, highest = (
        ends[starts],
        np.minimum(sums_of(np.minimum(most, out) * values, starts), top),
        np.minimum(sums_of(most * values, starts), top),
    )
    first = rank - n[group[entry]] + tau
    # A jump from 0 before the first rank that is reached, and one to the end of the grid
    ends_of = np.stack([starts[:-1], starts[1:]], axis=1).ravel()
    edges = (
        (first, tau - np.minimum(n, tau + far), np.full(len(n), tau + 1)),
        (low, np.zeros_like(n), highest),
        (high, lowest, np.full(len(n), top)),
    )
    each = (np.insert(inner, ends_of, np.stack(outer, axis=1).ravel()) for inner, *outer in edges)
    return Jumps.at(far, starts + 2 * np.arange(len(starts)), *each)
