"""Slices of the records of groups, as counts.

A slice has the records of consecutive ranks, clamped to an interval.
"""

from __future__ import annotations

import numpy as np

from dpjax.release.counts import Counts


class Slices:
    """The counts of groups, from which each lane takes slices; a lane is one draw from one group.

    Args:
        counts: the counts of all groups, on a grid of ``size`` positions.
        size: the number of positions on the grid.
        group: the group of each lane, int64 ``(lanes,)``.
    """

    def __init__(self, counts: Counts, size: int, group: np.ndarray) -> None:
        self._counts, self._size, self._group = counts, size, group
        self._sums = np.append(0, np.cumsum(counts.counts))
        self._keys = counts.group * size + counts.values  # ascending over all groups
        self._offset = self._sums[counts.starts[:-1]][group]

    def around(self, points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return how many records of each lane are below each point, and at most each point.

        The points are ``(lanes, ...)``.
        """
        shape = (len(points),) + (1,) * (points.ndim - 1)
        key, offset = self._group.reshape(shape) * self._size + points, self._offset.reshape(shape)
        left, right = (
            self._sums[np.searchsorted(self._keys, key, side)] - offset
            for side in ("left", "right")
        )
        return left, right

    def between(
        self,
        lanes: np.ndarray,
        first: np.ndarray,
        last: np.ndarray,
        low: np.ndarray,
        high: np.ndarray,
    ) -> Counts:
        """Return the records of the ranks ``first`` + 1 to ``last`` of some lanes.

        They are clamped to [``low``, ``high``] and counted from ``low``.
        """
        offset = self._offset[lanes]
        begin = np.searchsorted(self._sums[1:], offset + first, "right")
        end = np.maximum(np.searchsorted(self._sums[1:], offset + last, "left") + 1, begin)
        end = np.where(last > first, end, begin)
        starts = np.append(0, np.cumsum(end - begin))
        lane = np.repeat(np.arange(len(lanes)), end - begin)
        entry = np.arange(starts[-1]) - starts[lane] + begin[lane]
        through = np.minimum(self._sums[entry + 1] - offset[lane], last[lane])
        before = np.maximum(self._sums[entry] - offset[lane], first[lane])
        values = np.clip(self._counts.values[entry], low[lane], high[lane]) - low[lane]
        return Counts(starts, values, through - before)
