"""Many quantiles: each drawn from the records between two that are drawn already, exactly, from counts."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np

from dpjax.release import profiles
from dpjax.release.counts import Counts
from dpjax.release.distribution import GridDistribution
from dpjax.release.entropy import More, further_word, system_words
from dpjax.release.exponentials import exact_epsilon
from dpjax.release.grid import Multiples
from dpjax.several_quantiles.halving import Part, depths_of
from dpjax.several_quantiles.ranks import ranks_of_quantile

_LANES = 2**22  # entries of counts at a time


def draw_recursively(
    levels: tuple[Fraction, ...],
    counts: Counts,
    size: int,
    epsilon: Fraction,
    neighbors: str,
    draws: int,
    words: Any = system_words,
    more: More = further_word,
) -> np.ndarray:
    """Draw all quantiles of all groups, int64 ``(draws, groups, m)``, on a grid of so many positions."""
    depths = depths_of(levels, neighbors)
    each = exact_epsilon(epsilon / len(depths))
    found = np.zeros((draws, counts.groups, len(levels)), np.int64)
    step = max(_LANES // max(len(counts.values), 1), 1)
    for start in range(0, draws, step):
        some = found[start : start + step]
        lanes = _Lanes(counts, size, len(levels), len(some))
        for parts in depths:
            for part in parts:
                lanes.draw(part, each * part.share, words, more)
        some[:] = lanes.points[:, 1:-1].reshape(some.shape)
    return found


class _Lanes:
    """What is drawn so far: for each draw, all groups.

    Attributes:
        points: int64 ``(lanes, m + 2)``, the draws between the bounds.
        cuts: int64 ``(lanes, m + 2)``, how many records are on the left of each.
    """

    def __init__(self, counts: Counts, size: int, m: int, draws: int) -> None:
        self._counts, self._size = counts, size
        self._sums = np.append(0, np.cumsum(counts.counts))
        self._keys = counts.group * size + counts.values  # ascending over all groups
        self._group = np.tile(np.arange(counts.groups), draws)
        self._offset = self._sums[counts.starts[:-1]][self._group]
        self.points, self.cuts = np.zeros((2, len(self._group), m + 2), np.int64)
        self.points[:, -1] = size - 1
        self.cuts[:, -1] = counts.totals[self._group]

    def draw(self, part: Part, epsilon: Fraction, words: Any, more: More) -> None:
        """Draw the middle of a part of each lane."""
        ranks = ranks_of_quantile(part.level, definition="lower", neighbors=part.neighbors)
        low, high = self.points[:, part.left], self.points[:, part.right]
        point = low.copy()
        wide = np.flatnonzero(high > low)
        if wide.size:
            first, last = self.cuts[wide, part.left], self.cuts[wide, part.right]
            records = self._between(wide, first, last, low[wide], high[wide])
            profile = profiles.quantile(records, ranks, high=high[wide] - low[wide], most=profiles.levels_needed(epsilon))
            distribution = GridDistribution.of(profile, epsilon, Multiples(Fraction(1), 0, self._size), batch_shape=wide.shape)
            point[wide] += distribution.positions(1, words, more)[0]
        self.points[:, part.middle] = point
        ends = self.cuts[:, part.left], self.cuts[:, part.right]  # its records are between
        key = self._group * self._size + point
        below, through = (
            np.clip(self._sums[np.searchsorted(self._keys, key, side)] - self._offset, *ends) for side in ("left", "right")
        )
        # Of the records that equal the draw, the share of its level goes to the left.
        self.cuts[:, part.middle] = below - (-(through - below) * ranks.per_record) // ranks.denominator

    def _between(self, lanes: np.ndarray, first: np.ndarray, last: np.ndarray, low: np.ndarray, high: np.ndarray) -> Counts:
        """The records of the ranks from ``first`` + 1 to ``last`` of each lane, counted from ``low``."""
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
