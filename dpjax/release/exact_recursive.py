"""Many quantiles, exactly, from counts.

Each is drawn from the records between two that are already drawn.
"""

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
from dpjax.release.integer_noise import draw_discrete_laplace
from dpjax.release.slices import Slices
from dpjax.several_quantiles.halving import Costs, Part, depths_of, equal_on_the_left, to_the_left
from dpjax.several_quantiles.ranks import ranks_of_quantile

_LANES = 2**22  # entries of counts processed together
_COUNTED = 2**38  # the cap on the records on one side of a draw, so that no product exceeds 64 bits


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
    """Draw all quantiles of all groups: int64 ``(draws, groups, m)``.

    The grid has ``size`` positions.
    """
    depths = depths_of(levels, neighbors)
    cost = Costs.of(len(depths), tied=True)
    each = exact_epsilon(epsilon * cost.draw)
    found = np.zeros((draws, counts.groups, len(levels)), np.int64)
    step = max(_LANES // max(len(counts.values), 1), 1)
    for start in range(0, draws, step):
        chunk = found[start : start + step]
        lanes = _Lanes(counts, size, len(levels), len(chunk))
        for depth, parts in enumerate(depths, 1):
            for part in parts:
                lanes.draw(part, each * part.share, words, more)
                if depth < len(depths):
                    lanes.split(part, epsilon * cost.split * part.share, words, more)
        chunk[:] = lanes.points[:, 1:-1].reshape(chunk.shape)
    return found


class _Lanes:
    """The quantiles drawn so far; a lane is one draw from one group.

    Attributes:
        points: int64 ``(lanes, m + 2)``, the drawn quantiles, with the bounds at both ends.
        cuts: int64 ``(lanes, m + 2)``, the number of records to the left of each point.
    """

    def __init__(self, counts: Counts, size: int, m: int, draws: int) -> None:
        group = np.tile(np.arange(counts.groups), draws)
        self._slices, self._size = Slices(counts, size, group), size
        self.points, self.cuts = np.zeros((2, len(group), m + 2), np.int64)
        self.points[:, -1] = size - 1
        self.cuts[:, -1] = counts.totals[group]

    def draw(self, part: Part, epsilon: Fraction, words: Any, more: More) -> None:
        """Draw the middle quantile of a part in each lane."""
        ranks = ranks_of_quantile(part.level, definition="lower", neighbors=part.neighbors)
        low, high = self.points[:, part.left], self.points[:, part.right]
        point = low.copy()
        wide = np.flatnonzero(high > low)
        if wide.size:
            first, last = self.cuts[wide, part.left], self.cuts[wide, part.right]
            records = self._slices.between(wide, first, last, low[wide], high[wide])
            profile = profiles.quantile(
                records, ranks, high=high[wide] - low[wide], most=profiles.levels_needed(epsilon)
            )
            distribution = GridDistribution.of(
                profile, epsilon, Multiples(Fraction(1), 0, self._size), batch_shape=wide.shape
            )
            point[wide] += distribution.positions(1, words, more)[0]
        self.points[:, part.middle] = point

    def split(self, part: Part, epsilon: Fraction, words: Any, more: More) -> None:
        """Split the records of a part in each lane at its middle.

        Those equal to the middle are split by a noisy number.
        """
        # The records of the part are between these
        ends = self.cuts[:, part.left], self.cuts[:, part.right]
        below, through = (
            np.clip(rank, *ends) for rank in self._slices.around(self.points[:, part.middle])
        )
        level = part.level.numerator, part.level.denominator
        noisy = draw_discrete_laplace([epsilon / part.sensitivity], len(below), 1, words, more)[
            0, :, 0
        ]
        noisy += to_the_left(
            *level,
            *(np.minimum(number, _COUNTED) for number in (below - ends[0], ends[1] - through)),
        )
        self.cuts[:, part.middle] = below + equal_on_the_left(*level, through - below, noisy, np)
