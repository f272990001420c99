"""One draw from each of many rows without missing records.

A table of levels by rows replaces counts. If every row has n records, the ranks of all levels are
the same in every row, and so are the exponentials of the costs. Each row is then read at these
ranks, and each piece needs only one difference and one more exponential. The distribution is the
one of ``distribution.py``, drawn from the same random words in the same order (``draw.py`` derives
the margin): a row whose draw is uncertain is counted and drawn exactly.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np

from dpjax.release import profiles
from dpjax.release.chunks import in_threads, ranges
from dpjax.release.counts import Counts
from dpjax.release.draw import MARGIN, Exactly, step_in
from dpjax.release.entropy import More, further_word, system_words
from dpjax.release.statistics import ByRank, Statistic

_NUMBERS = 2**19  # array elements in a chunk of rows


def apply_to(
    statistic: Statistic, neighbors: str, records: np.ndarray, present: np.ndarray
) -> bool:
    """Return whether this module can draw the rows.

    It can if there are several rows, all records are present and the statistic is one of the
    records.
    """
    reads_one_record = (
        isinstance(statistic, ByRank) and statistic.ranks(neighbors).definition == "lower"
    )
    return reads_one_record and len(records) > 1 and bool(present.all())


def positions(
    statistic: ByRank,
    records: np.ndarray,
    epsilon: Fraction,
    neighbors: str,
    words: Any = system_words,
    more: More = further_word,
    margin: float = MARGIN / 2.0**60,
) -> np.ndarray:
    """Draw one position from each row of positions ``(rows, n)``: int64 ``(rows,)``.

    The mechanism is piecewise Laplace. ``words(shape)`` returns random 64-bit words, and ``more``
    the bits that extend them; with a ``margin`` of 1 every row is treated as uncertain.
    """
    rows, n = records.shape
    found, drawn = np.zeros(rows, np.int64), words((2, rows))
    table = _Table(statistic, n, epsilon, neighbors)

    def some(first: int, last: int) -> None:
        here = slice(first, last)
        found[here], sure = table.decide(records[here], drawn[:, here], margin)
        for row in first + np.flatnonzero(~sure):
            one = Counts.of_records(records[row : row + 1])
            exactly = Exactly(statistic.distribution(one, epsilon, neighbors), 0)
            found[row] = exactly.draw(drawn[:, row].tolist(), more)

    in_threads(some, ranges(rows, max(_NUMBERS // max(n, table.levels.size), 1)))
    return found


class _Table:
    """The numbers that all rows of n records share.

    Attributes:
        levels: -W, ..., W, beyond which the profile is at the ends of the range.
        columns: the rank of each level; 0 and n + 1 denote the ends of the range.
        heights: the numerators of the pieces' weights in ascending order, relative to a value that
            one change moves.
    """

    def __init__(self, statistic: ByRank, n: int, epsilon: Fraction, neighbors: str) -> None:
        ranks, most = statistic.ranks(neighbors), profiles.levels_needed(epsilon)
        base = ranks.per_record * n + ranks.constant
        # Beyond these levels all ranks are those of an end of the range.
        down = min(most, max(-(-base // ranks.step), 0) + 1)
        up = min(most, max((ranks.denominator * (n + 1) - base) // ranks.step, 0) + 1)
        self.levels, self._down, self._n = np.arange(-down, up + 1), down, n
        self.columns = np.clip(-(-(base + ranks.step * self.levels) // ranks.denominator), 0, n + 1)
        self.high, self.rate = statistic.records_grid.size - 1, float(epsilon / 2)
        knots = np.arange(-down - 1, up + 1)  # the lower end of each piece
        with np.errstate(under="ignore"):
            self.heights = np.exp(-self.rate * np.where(knots < 0, -1 - knots, knots)) * -np.expm1(
                -self.rate
            )

    def decide(
        self, records: np.ndarray, words: np.ndarray, margin: float
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the positions that 64-bit words ``(2, rows)`` select, and which are certain."""
        rows, row = len(records), np.arange(len(records))
        ordered = np.sort(records, axis=-1)
        edges = np.empty((rows, len(self.columns) + 2), np.float64)
        edges[:, 0], edges[:, -1] = 0, self.high
        first, last = int(self.columns[0]), int(self.columns[-1])
        # If they are one after the other, and none is at an end.
        if first > 0 and last <= self._n and last - first + 1 == len(self.columns):
            edges[:, 1:-1] = ordered[:, first - 1 : last]
        else:
            edges[:, 1:-1] = np.pad(
                ordered, [(0, 0), (1, 1)], constant_values=[(0, 0), (0, self.high)]
            )[:, self.columns]
        lengths = np.diff(edges, axis=-1)
        with np.errstate(divide="ignore", over="ignore", under="ignore"):
            weights = np.divide(self.rate, lengths)
            np.expm1(weights, out=weights)
            np.divide(self.heights, weights, out=weights)
        center = self._down + 1  # the piece above the value
        depth = self._depths(lengths, center)
        if np.any(depth > 1):
            with np.errstate(under="ignore"):
                weights *= np.exp(-self.rate * (depth - 1))[:, None]
        sums = np.empty((rows, weights.shape[-1] + 1))
        np.cumsum(weights[:, :center], axis=-1, out=sums[:, :center])
        np.cumsum(weights[:, center:], axis=-1, out=sums[:, center + 1 :])
        sums[:, center] = sums[:, center - 1] + 1  # the value
        sums[:, center + 1 :] += sums[:, center, None]
        total = sums[:, -1]
        target = (words[0] >> np.uint64(11)).astype(np.float64) * 2.0**-53 * total
        chosen = np.minimum(np.count_nonzero(sums <= target[:, None], axis=-1), sums.shape[-1] - 1)
        slack = (margin + sums.shape[-1] * 2.0**-52) * total
        below = np.where(chosen > 0, sums[row, np.maximum(chosen - 1, 0)], 0.0)
        sure = (target - below >= slack) & (sums[row, chosen] - target > slack)
        itself, up = chosen == center, chosen > center
        piece = chosen - up - itself
        length = lengths[row, piece]
        number, certain = step_in(
            self.rate / np.maximum(length, 1), np.maximum(length, 1), self.rate, words[1]
        )
        near = edges[row, np.where(up, piece, piece + 1)]
        found = np.where(itself, edges[:, center], near + np.where(up, number, -number))
        return found.astype(np.int64), sure & (itself | certain)

    def _depths(self, lengths: np.ndarray, center: int) -> np.ndarray:
        """Return the least number of changes that move the value of each row."""
        depth = np.ones(len(lengths), np.int64)
        tied = np.flatnonzero((lengths[:, center - 1] == 0) & (lengths[:, center] == 0))
        if tied.size:
            moves = lengths[tied] > 0
            up, down = moves[:, center:], moves[:, center - 1 :: -1]
            far = lengths.shape[-1]
            steps = [
                np.where(np.any(side, axis=-1), np.argmax(side, axis=-1), far)
                for side in (up, down)
            ]
            depth[tied] = np.minimum(*steps) + 1
        return depth
