"""The values that a statistic can take after 0, 1, 2, ... individuals change, exactly, from counts.

Let V(s) be the value of the statistic after s changes upwards, and after -s downwards for s < 0:
V(0) is the statistic itself, and V does not decrease. It is linear between integer levels s, and
stored as its knots (level, position), of which there are at most a few for each distinct value of
the data, whatever the number of records. After ``most`` changes, a public number, V is taken to be
at the end of the range (``dpjax.SensitivityProfile.truncate``): what lies beyond weighs less than
e^-64 times the size of the grid.

The statistics are those of ``dpjax.statistics``, in integers: their values interleave between
neighbors (Durfee 2025, Corollary 3.1), and so do those of shifted inverse sensitivity (Steinke
2023).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import ceil
from typing import Any

import numpy as np

from dpjax.release.counts import Counts, running_sums, sums_of
from dpjax.several_quantiles.ranks import Ranks


@dataclass(frozen=True, eq=False)
class Profile:
    """Runs of adjacent positions with evenly rising levels, of all groups.

    They ascend within each group. A piece of ``length`` g that starts at ``level`` l has the
    positions ``near + sign j`` for j = 1, ..., g, and the j-th is reached at the level l + rise j /
    g. The value itself is a separate piece: one position, ``sign`` and ``rise`` 0, level 1 - depth.

    Attributes:
        starts: int64 ``(groups + 1,)``, where the pieces of each group start.
        near: int64 ``(pieces,)``, the position next to the piece on its inner side.
        length: int64, at least 1.
        level: int64.
        rise: int64.
        sign: int64, 1 above the value, -1 below it.
        value: int64 ``(groups,)``, the position of the statistic itself.
        depth: int64 ``(groups,)``, the least number of changes that move the value.
        size: the number of positions in the range.
    """

    starts: np.ndarray
    near: np.ndarray
    length: np.ndarray
    level: np.ndarray
    rise: np.ndarray
    sign: np.ndarray
    value: np.ndarray
    depth: np.ndarray
    size: int

    @staticmethod
    def of_knots(starts: np.ndarray, level: np.ndarray, position: np.ndarray, size: int) -> Profile:
        """Return the profile through the knots of each group, ascending in level and position.

        No piece may cross level 0. The first position of each group is 0 and the last one
        ``size - 1``.
        """
        knot = np.maximum(sums_of(level <= 0, starts) - 1, 0) + starts[:-1]
        length = np.diff(position, append=0)
        length[starts[1:] - 1] = 0
        inner = np.flatnonzero(length)
        up = level[inner] >= 0
        near, outer_level = (
            np.where(up, position[inner], position[inner + 1]),
            np.where(up, level[inner], -level[inner + 1]),
        )
        rise = level[inner + 1] - level[inner]
        return Profile._of_pieces(
            np.searchsorted(inner, starts),
            near,
            length[inner],
            outer_level,
            rise,
            up,
            position[knot],
            size,
        )

    @staticmethod
    def of_steps(
        starts: np.ndarray, last: np.ndarray, position: np.ndarray, high: np.ndarray
    ) -> Profile:
        """Return the profile whose groups have each position up to its last level.

        It is then the next position. After the last of these levels it is ``high``.
        """
        length = np.empty(len(position), np.int64)
        np.subtract(position[1:], position[:-1], out=length[:-1])
        length[starts[1:] - 1] = high - position[starts[1:] - 1]
        center = sums_of(last < 0, starts)
        inside = center < np.diff(starts)
        value = np.where(inside, position[np.minimum(center + starts[:-1], starts[1:] - 1)], high)
        inner = np.flatnonzero(length)
        at, length = last[inner], length[inner]
        up = at >= 0
        near = position[inner] + np.where(up, 0, length)
        level = np.where(up, at, -1 - at)
        size = int(np.max(high, initial=0)) + 1
        return Profile._of_pieces(
            np.searchsorted(inner, starts), near, length, level, None, up, value, size
        )

    @staticmethod
    def _of_pieces(
        starts: np.ndarray,
        near: np.ndarray,
        length: np.ndarray,
        level: np.ndarray,
        rise: np.ndarray | None,
        up: np.ndarray,
        value: np.ndarray,
        size: int,
    ) -> Profile:
        """Insert the value of each group between the pieces below and above it.

        ``rise=None`` means 1 everywhere.
        """
        groups = len(value)
        depth = np.minimum.reduceat(level, starts[:-1]) + 1 if groups else np.zeros(0, np.int64)
        # Indices of the values.
        value_index = starts[:-1] + sums_of(~up, starts) + np.arange(groups)
        piece_index = np.arange(len(near)) + np.repeat(np.arange(groups), np.diff(starts)) + up

        def whole(pieces: Any, itself: Any) -> np.ndarray:
            found = np.empty(len(piece_index) + groups, np.int64)
            found[piece_index], found[value_index] = pieces, itself
            return found

        depths = 1 - depth
        near, length, level = whole(near, value), whole(length, 1), whole(level, depths)
        rise, sign = whole(1 if rise is None else rise, 0), whole(2 * up.astype(np.int8) - 1, 0)
        return Profile(
            starts + np.arange(groups + 1), near, length, level, rise, sign, value, depth, size
        )

    @staticmethod
    def of_costs(costs: np.ndarray) -> Profile:
        """Return a profile of candidates with integer costs ``(groups, k)``.

        They are one-position pieces like values.
        """
        groups, k = costs.shape
        number, none = np.tile(np.arange(k), groups), np.zeros(costs.size, np.int64)
        best = np.argmin(costs, axis=-1) if k else np.zeros(groups, np.int64)
        one = np.ones(groups, np.int64)
        return Profile(
            np.arange(groups + 1) * k, number, none + 1, costs.ravel(), none, none, best, one, k
        )

    @property
    def groups(self) -> int:
        """The number of groups."""
        return len(self.value)

    def one(self, group: int) -> Profile:
        """Return the profile of one group."""
        pieces = slice(self.starts[group], self.starts[group + 1])
        near, length, level, rise, sign = (
            f[pieces] for f in (self.near, self.length, self.level, self.rise, self.sign)
        )
        starts, only = self.starts[group : group + 2] - self.starts[group], slice(group, group + 1)
        return Profile(
            starts, near, length, level, rise, sign, self.value[only], self.depth[only], self.size
        )

    def in_steps(self) -> Profile:
        """Return the same profile in pieces that rise by at most 1."""
        times = np.maximum(self.rise, 1)
        number = np.repeat(np.arange(len(times)), times)
        before = np.repeat(np.cumsum(times) - times, times)
        # Counted from the outer end in pieces below the value.
        step = np.arange(len(number)) - before
        sign, length = self.sign[number], self.length[number] // times[number]
        step = np.where(sign < 0, times[number] - 1 - step, step)
        near, level = self.near[number] + sign * step * length, self.level[number] + step
        starts = np.concatenate([[0], np.cumsum(times)])[self.starts]
        return Profile(
            starts,
            near,
            length,
            level,
            np.minimum(self.rise[number], 1),
            sign,
            self.value,
            self.depth,
            self.size,
        )


def levels_needed(epsilon: Fraction) -> int:
    """Return the number of changes after which a profile may be at the ends of the range.

    The positions beyond weigh less than e^-64 times the size of the grid.
    """
    return ceil(128 / epsilon)


def near_ranks(ranks: Ranks, n: Any, most: int) -> tuple[Any, Any]:
    """Return the first and the last rank that ``most`` levels read among n records."""
    whole, rest = _start(ranks, n)
    far = ranks.step * most
    return whole + (rest - far) // ranks.denominator, whole - (
        -(rest + far) // ranks.denominator
    ) + 1


def _start(ranks: Ranks, n: Any) -> tuple[Any, Any]:
    """Return the rank at level 0, W + R / v = (u n + constant) / v, as integers W and R.

    0 <= R < v. No intermediate result exceeds 64 bits unless n does; u n is not computed, since it
    might.
    """
    times, left = n // ranks.denominator, n % ranks.denominator
    rest = ranks.per_record * left + ranks.constant
    return ranks.per_record * times + rest // ranks.denominator, rest % ranks.denominator


def quantile(counts: Counts, ranks: Ranks, *, high: Any, most: int) -> Profile:
    """Return the profile of an order statistic or quantile of positions from 0 to ``high``.

    ``high`` is one number for all groups or one for each. V(s) is the record of rank (per_record
    n + constant + step s) / denominator, rounded up, or interpolated between two records (then
    positions count parts of a cell, ``ranks.refinement`` to a cell): 0 at rank 0 and ``high`` at
    rank n + 1.
    """
    v, step, totals = ranks.denominator, ranks.step, counts.totals
    whole, rest = _start(ranks, totals)
    counts, below = _near(counts, *near_ranks(ranks, totals, most), totals)
    group = counts.group
    # Ranks are relative to that of level 0 and clipped to a distance beyond which ``most`` levels
    # do not reach.
    far = step * (most + 4) // v + 2
    through = running_sums(counts.counts, counts.starts) + below[group]
    if ranks.definition == "lower":
        through = np.clip(through - whole[group], -far, far)
        lowest = (v * np.clip(-whole, -far, far) - rest) // step
        # If v divides step, no elementwise division is needed.
        last = (
            (v * through - rest[group]) // step
            if v % step
            else through * (v // step) + (-rest // step)[group]
        )
        return _of_runs(counts, group, last, counts.values, lowest, most, high)
    found = _framed(counts, through, totals, high)
    through, before = (
        np.clip(each - whole[found.group], -far, far) for each in (found.through, found.before)
    )
    remainder = rest[found.group]
    last = (v * through - remainder) // step
    first = -((remainder - v * (before + 1)) // step)
    knots = [(first, last, v * found.value)]
    after = np.append(found.value[1:], 0)  # the value for the last entry is not used
    for level in (last + 1, last + 2):  # between two records: levels are at least half a rank apart
        inside = (remainder + step * level < v * (through + 1)) & ~found.is_back
        numerator = np.where(inside, remainder + step * level - v * through, 0)
        knots.append(
            (
                level,
                np.where(inside, level, level - 1),
                v * found.value + numerator * (after - found.value),
            )
        )
    return _of_knots(found, knots, most, v * high + 1)


def sum_of_records(counts: Counts, n: int, *, high: int, most: int) -> Profile:
    """Return the profile of the sum of n records from 0 to ``high`` under swap.

    Each change upwards moves the smallest record to ``high``, and each change downwards the largest
    to 0: -s changes leave the sum of the n + s smallest records.
    """
    starts, length = 2 * counts.starts, np.diff(counts.starts)
    below = np.arange(len(counts.values)) + np.repeat(counts.starts[:-1], length)
    above = below + np.repeat(length, length)
    slope, times = np.zeros((2, 2 * len(counts.values)), np.int64)
    slope[below], slope[above] = counts.values, high - counts.values
    times[below] = times[above] = counts.counts
    level = np.full(counts.groups, -n, np.int64)
    return _of_slopes(starts, slope, times, level, n, most, n * high + 1)


def nonnegative_sum(counts: Counts, tau: int, *, high: int, most: int) -> Profile:
    """Return the profile around the sum without its tau largest records.

    This is shifted inverse sensitivity. Sums are capped at ``high``.
    """
    return _of_slopes(
        counts.starts, counts.values, counts.counts, tau - counts.totals, tau + 1, most, high + 1
    )


def distinct_count(counts: Counts, tau: int, *, high: int, most: int) -> Profile:
    """Return the profile around the number of distinct values that remain when tau people leave.

    The people with the rarest values leave first.
    """
    group = counts.group
    order = np.lexsort((-counts.counts, group))
    # The most frequent values, which remain longest, come first
    through = running_sums(counts.counts[order], counts.starts)
    remaining = np.arange(len(order)) - np.repeat(counts.starts[:-1], np.diff(counts.starts)) + 1
    last = tau - counts.totals[group] + through  # all people of rarer values have left
    return _of_runs(
        counts, group, last, np.minimum(remaining, high), tau - counts.totals, most, high
    )


@dataclass(frozen=True, eq=False)
class _Entries:
    """The entries of counts, framed by two more entries for each group.

    These are one before at position 0 and one after at the end of the range.

    Attributes:
        starts: int64 ``(groups + 1,)``, where each group starts, with its two added entries.
        group: int64 ``(entries,)``.
        value: int64 ``(entries,)``.
        before: the number of records of the group below the value.
        through: the number of records of the group up to the value.
    """

    starts: np.ndarray
    group: np.ndarray
    value: np.ndarray
    before: np.ndarray
    through: np.ndarray

    @property
    def is_back(self) -> np.ndarray:
        """A mask of the last entry of each group."""
        found = np.zeros(len(self.value), bool)
        found[self.starts[1:] - 1] = True
        return found


def _near(counts: Counts, low: Any, high: Any, totals: np.ndarray) -> tuple[Counts, np.ndarray]:
    """Return the entries with the records of ranks ``low`` to ``high``, and the count below."""
    if not (np.any(low > 1) or np.any(high < totals)):
        return counts, np.zeros(counts.groups, np.int64)
    sums = np.cumsum(counts.counts)
    offset = np.append(0, sums)[counts.starts[:-1]]
    first = np.searchsorted(sums, offset + np.clip(low, 1, totals + 1)).clip(
        counts.starts[:-1], counts.starts[1:]
    )
    stop = (np.searchsorted(sums, offset + np.clip(high, 0, totals)) + 1).clip(
        first, counts.starts[1:]
    )
    below = np.append(0, sums)[first] - offset
    if np.sum(stop - first) * 4 > len(sums) * 3:  # nearly all entries: copying them would not pay
        return counts, np.zeros(counts.groups, np.int64)
    starts = np.append(0, np.cumsum(stop - first))
    index = np.arange(starts[-1]) + np.repeat(first - starts[:-1], stop - first)
    return Counts(starts, counts.values[index], counts.counts[index]), below


def _framed(counts: Counts, through: np.ndarray, totals: np.ndarray, end: Any) -> _Entries:
    """Add an entry at position 0 before those of each group, and one at ``end`` after them."""
    length = np.diff(counts.starts) + 2
    starts = np.append(0, np.cumsum(length))
    group = np.repeat(np.arange(counts.groups), length)
    front, back = starts[:-1], starts[1:] - 1
    inside = np.ones(len(group), bool)
    inside[front] = inside[back] = False
    value, before, upto = np.zeros((3, len(group)), np.int64)
    value[inside], before[inside], upto[inside] = counts.values, through - counts.counts, through
    value[back], before[back], upto[back] = end, totals, totals
    return _Entries(starts, group, value, before, upto)


def _of_runs(
    counts: Counts,
    group: np.ndarray,
    last: np.ndarray,
    position: np.ndarray,
    lowest: np.ndarray,
    most: int,
    high: Any,
) -> Profile:
    """Return the profile in which each entry's position holds up to its last level.

    It starts one level after the last level of the entry before. The profile is 0 up to the level
    ``lowest``, ``high`` after the last entry, and at the ends of the range after ``most`` changes.
    """
    starts = counts.starts + np.arange(counts.groups + 1)
    front = starts[:-1]
    inside = np.arange(len(last)) + group + 1
    levels, places = np.empty((2, len(last) + counts.groups), np.int64)
    levels[front], levels[inside] = lowest, last
    top = np.broadcast_to(high, counts.groups)
    # An entry beyond ``most`` changes is not reached: it gets the position of that end of the
    # range, and no length.
    before = levels[inside - 1]
    places[inside] = np.where(last < -most, 0, position)
    far = np.flatnonzero(before >= most)
    places[inside[far]] = top[group[far]]
    places[front] = 0
    np.minimum(levels, most, out=levels)
    np.maximum(levels, -most - 1, out=levels)
    return Profile.of_steps(starts, levels, places, top)


def _of_knots(
    entries: _Entries,
    knots: Sequence[tuple[np.ndarray, np.ndarray, np.ndarray]],
    most: int,
    size: Any,
) -> Profile:
    """Return the profile with a position from its first to its last level.

    There are more knots after some entries.
    """
    front, back = entries.starts[:-1], entries.starts[1:] - 1
    level, place = np.zeros((2, len(entries.value), 1 + len(knots)), np.int64)
    valid = np.zeros(level.shape, bool)
    first, last, _ = knots[0]
    for column, (begin, end, at) in enumerate(knots):
        reached = (begin <= end) & (end >= -most) & (begin <= most)
        for side, knot in ((0, begin), (1, end)) if column == 0 else ((column + 1, begin),):
            level[:, side], place[:, side], valid[:, side] = np.clip(knot, -most, most), at, reached
    # The ends of the range are reached after at most ``most`` changes.
    valid[front, 0] = valid[back, 1] = False
    valid[front, 1] = valid[back, 0] = True
    level[front, 1], place[front, 1] = np.clip(last[front], -most - 1, most), 0
    level[back, 0], place[back, 0] = np.clip(first[back], -most, most + 1), size - 1
    starts = np.append(0, np.cumsum(np.sum(valid, axis=-1)))[entries.starts]
    return Profile.of_knots(starts, level[valid], place[valid], int(np.max(size)))


def _of_slopes(
    starts: np.ndarray,
    slope: np.ndarray,
    times: np.ndarray,
    level: np.ndarray,
    top: int,
    most: int,
    size: int,
) -> Profile:
    """Return the profile that rises from 0 at ``level`` by each slope ``times`` times.

    It rises at most to the end of the range. It is ``size - 1``, the end of the range, from the
    level ``top`` on.
    """
    high = size - 1
    gain = slope * np.minimum(times, high // np.maximum(slope, 1) + 1)
    group = np.repeat(np.arange(len(starts) - 1), np.diff(starts))
    start = running_sums(times, starts) - times + level[group]
    base = np.minimum(running_sums(gain, starts) - gain, high)
    stop, room = start + times, np.where(slope > 0, (high - base) // np.maximum(slope, 1), times)
    # A run has knots at its ends, at level 0, where it is cut, and around the end of the range.
    cuts = [
        start,
        stop,
        *(
            np.clip(levels, start, stop)
            for levels in (0, -most, most, start + room, start + room + 1)
        ),
    ]
    levels = np.sort(np.stack(cuts, axis=-1), axis=-1)
    positions = np.minimum(
        base[:, None] + np.minimum(levels - start[:, None], room[:, None] + 1) * slope[:, None],
        high,
    )
    valid = (levels >= -most) & (levels <= most)
    number = sums_of(np.sum(valid, axis=-1), starts) + 2  # including the ends of the range
    offsets = np.append(0, np.cumsum(number))
    inside = np.ones(offsets[-1], bool)
    inside[offsets[:-1]] = inside[offsets[1:] - 1] = False
    knots, places = np.zeros((2, offsets[-1]), np.int64)
    knots[inside], places[inside] = levels[valid], positions[valid]
    knots[offsets[:-1]] = np.clip(level, -most - 1, most)
    knots[offsets[1:] - 1], places[offsets[1:] - 1] = min(max(top, -most), most + 1), high
    return Profile.of_knots(offsets, knots, places, size)
