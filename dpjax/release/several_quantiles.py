"""Several quantiles under one epsilon."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from itertools import count
from typing import Any

import numpy as np

from dpjax import checks
from dpjax.release import joint
from dpjax.release.counts import Counts
from dpjax.release.distribution import Distribution, How
from dpjax.release.exact import Words, system_words
from dpjax.release.grid import Floats, Multiples
from dpjax.release.joint import FinePoints
from dpjax.release.noise import geometric
from dpjax.release.statistics import OnGrid

_DRAWS, _SEED = 1000, 0
_DRAWN = 2**20  # simulated numbers that are held together


@dataclass(frozen=True, eq=False, repr=False)
class JointDistribution(Distribution):
    """The distribution of several quantiles of each row, which can be drawn, but not computed.

    Attributes:
        counts: the records of each group.
        levels: as fractions.
        how: how to draw.
        value: float64, the quantiles themselves, of the batch shape and one axis of levels.
        grid: maps positions to values.
    """

    counts: Counts
    levels: tuple[Fraction, ...]
    how: How
    value: np.ndarray
    grid: Multiples | Floats

    def positions(self, draws: int, words: Words = system_words) -> np.ndarray:
        """Draw positions exactly, int64 ``(draws, groups, m)``.

        Under add/remove, the number of records is drawn with discrete Laplace noise first, for a
        share of epsilon. The rest is for the rounds of :class:`joint.Joint`.
        """
        points, m = FinePoints(self.counts, self.grid.size), len(self.levels)
        n, left, slack = np.tile(points.totals, draws), self.how.epsilon, 0
        # Under swap the number of records is public, but not that of the points of equal records
        number = np.tile(self.counts.totals, draws)
        if self.how.neighbors == "add_remove":
            share = left / (5 if m <= 4 else 8 if m <= 20 else 16)
            more, less = geometric(share, (2, len(n)), words)
            number, left, slack = n + more - less, left - share, int(20 / share)
        rounds = next(k for k in count(1) if (joint.TOGETHER + 1) ** k > m)
        rate = left / (rounds * (4 if self.how.neighbors == "swap" else 2))
        group, low = np.tile(np.arange(self.counts.groups), draws), np.zeros_like(n)
        end = np.full_like(n, points.size)
        parts = joint.Parts(np.maximum(number, 1), n, group, low, end, low)
        found = joint.Joint(points, rate, slack, words).draw(parts, self.levels, rounds)
        return points.values(found).reshape(draws, self.counts.groups, m)

    def mean_abs_error(self, center: Any) -> np.ndarray:
        """Return E|Y - center|, the mean of 1000 draws by a fixed seed.

        ``center`` broadcasts against ``value``.
        """
        centers = np.broadcast_to(center, self.value.shape)
        centers = centers.reshape(self.counts.groups, self.value.shape[-1])
        return self._simulated(lambda drawn, own: np.abs(drawn - centers[own]).mean(axis=0))

    def interval(self, level: float) -> tuple[np.ndarray, np.ndarray]:
        """Return the ends of the central interval of probability ``level`` of each quantile.

        They are those of 1000 draws by a fixed seed.
        """
        level = checks.concrete_fraction("level", level)
        ends = [(1 - level) / 2, (1 + level) / 2]
        low, high = self._simulated(
            lambda drawn, _: np.asarray(np.quantile(drawn, ends, axis=0, method="inverted_cdf"))
        )
        return low, high

    def _simulated(self, summary: Callable[[np.ndarray, slice], np.ndarray]) -> np.ndarray:
        """Return the summary of draws ``(1000, groups, m)``, some groups at a time."""
        groups, m = self.counts.groups, self.value.shape[-1]
        together, found = max(_DRAWN // (_DRAWS * m), 1), []
        for start in range(0, max(groups, 1), together):
            own = slice(start, min(start + together, groups))
            value = self.value.reshape(groups, m)[own]
            some = replace(self, counts=self.counts.some(own.start, own.stop), value=value)
            found.append(summary(some.sample(_SEED, _DRAWS), own))
        each = np.concatenate(found, axis=-2)
        return each.reshape(*each.shape[:-2], *self.value.shape)


@dataclass(frozen=True)
class Quantiles(OnGrid):
    """The records x[ceil(q n)] for several levels q, ascending, drawn together.

    Their errors are much smaller than those of a :class:`Quantile` for each level at a part of
    epsilon. Up to 20 levels are one draw, and up to 440 two, for half of epsilon each. Under
    add/remove, 1/5 of epsilon is spent on the number of records for up to 4 levels, 1/8 for up to
    20, and 1/16 for more.

    A draw is a joint exponential mechanism for each round, so that it is epsilon-DP; see
    :mod:`dpjax.release.joint` for the proof.

    Attributes:
        qs: the levels, ascending, strictly between 0 and 1, read as :class:`Quantile` does.
        lower: public, as are ``upper``, ``resolution`` and ``grid``: see :class:`Quantile`.
        upper: public.
        resolution: public.
        grid: instead of bounds and a resolution, :class:`Floats`.

    >>> quartiles = Quantiles([0.25, 0.5, 0.75], lower=0, upper=120, resolution=1)
    >>> ages = [20, 40, 60] * 1000
    >>> quartiles.release(ages, epsilon=4.0, neighbors="swap").values.tolist()
    [[20.0, 40.0, 60.0]]

    References:
        Gillenwater, Joseph and Kulesza (2021), JointExp; Kaplan, Schnapp and Stemmer (2022).
    """

    qs: Any
    lower: Any = None
    upper: Any = None
    resolution: checks.Resolution | None = None
    grid: Floats | None = None

    def __post_init__(self) -> None:
        """Raise for bad public parameters."""
        super().__post_init__()
        checks.levels(self.qs)
        object.__setattr__(self, "qs", tuple(self.qs))

    @cached_property
    def levels(self) -> tuple[Fraction, ...]:
        """The levels as fractions."""
        return checks.levels(self.qs)

    def _ranges(self, how: How) -> int:
        # Ranges of draws that depend on each other do not add up, but their ends do
        return 1 if how.neighbors == "swap" and len(self.levels) <= joint.TOGETHER else 2

    def _distribution(self, counts: Counts, how: How) -> Any:
        grid = self.records_grid
        points = FinePoints(counts, grid.size)
        n = points.totals.astype(object)  # products with numerators can have more than 64 bits
        ranks = [-(-level.numerator * n // level.denominator) for level in self.levels]
        fine = points.at(
            np.arange(counts.groups)[:, None], np.stack(ranks, axis=1).astype(np.int64)
        )
        value = grid.values_of(points.values(fine))
        return JointDistribution(counts, self.levels, how, value, grid)
