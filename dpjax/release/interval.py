"""A private confidence interval of a population's quantile: two independent draws of quantiles.

Let records be independent, xi the population's q-quantile on the grid, and N of its K values be
above xi. Of n records, B are at most xi, and B is stochastically at least binomial (n, q). The
lower end is a draw y of the a-quantile with epsilon / 2, and it is above xi with a probability of

    at most E[F(N, S)],   S = floor((B - a n) / step),   F(N, S) = 1 for S < 0,

where step is 1 under swap and max(a, 1 - a) under add/remove. For S changes upwards lead to at most
xi (``jumps.py``), so that every y > xi costs at least S + 1/r, and shows heads with a probability
of at most p = e^(-(epsilon / 4) (S + 1/r)) (``distribution.py``); V(0) <= xi always does. Permute
and flip takes a y > xi with a probability of at most E[H / (1 + H)], if H of them show heads.
1 / (1 + H) is the integral of v^H over (0, 1), so the worst of all such coins is H binomial (N, p):

    F(N, S) = 1 - (1 - (1 - p)^(N + 1)) / ((N + 1) p).

The upper end mirrors this, with the K - 1 - N values that are at most below xi. Nothing is known of
N: F is concave in N, and the sum of both ends is bounded for all N.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from fractions import Fraction
from math import ceil, floor, isqrt
from typing import Any

import numpy as np

from dpjax import checks
from dpjax.checks import Resolution
from dpjax.release.counts import Counts
from dpjax.release.distribution import Distribution, How, Runs
from dpjax.release.exact import Words, system_words
from dpjax.release.grid import Floats, Multiples
from dpjax.release.jumps import far_of, steps_of
from dpjax.release.statistics import OnGrid, Quantile

_UNITS = 2**20  # levels of the ends are multiples of 1 / _UNITS
_SPLITS = 33


@dataclass(frozen=True)
class ConfidenceInterval(OnGrid):
    """An interval that contains the population's q-quantile, for data and noise together.

    It is about that of the records, rounded to the grid, if they are drawn independently.

    Attributes:
        q: the level, strictly between 0 and 1, read by its decimal value.
        lower: public, a multiple of the resolution, as in :class:`Quantile`.
        upper: public, a multiple of the resolution.
        resolution: public.
        public_n: the public number of records of a row that the coverage is computed for. Privacy
            does not depend on it.
        coverage: the least probability that the interval contains the quantile.

    Raises:
        ValueError: the coverage cannot be reached with so few records and such an epsilon, or a
            parameter is out of range.

    Privacy:
        epsilon-DP: each end is drawn by permute and flip with half of it.

    >>> interval = ConfidenceInterval(0.5, 0, 120, 1, public_n=1000)
    >>> found = interval.release([30, 40, 40, 50] * 250, epsilon=4.0, neighbors="swap")
    >>> found.values.tolist()
    [[40.0, 40.0]]
    """

    q: float | Fraction | str
    lower: Any
    upper: Any
    resolution: Resolution
    public_n: int
    coverage: float = 0.95

    def __post_init__(self) -> None:
        """Raise for bad public parameters."""
        super().__post_init__()
        checks.level(self.q)
        checks.static_integer("public_n", self.public_n, 1, 2**32)
        checks.concrete_probability("coverage", self.coverage)

    def levels(self, epsilon: float | Fraction, neighbors: str) -> tuple[Fraction, Fraction]:
        """Return the levels of the two ends: the closest ones at equal distances from q."""
        half, q = self._how(epsilon, neighbors, None).epsilon / 2, checks.level(self.q)
        low, high = floor(q * _UNITS), _UNITS - ceil(q * _UNITS)

        def covers(distance: int) -> bool:
            above = self._missed(low - distance, q, half, neighbors)
            below = self._missed(high - distance, 1 - q, half, neighbors)[::-1]
            # From one N to the next, the larger one for the lower end, the smaller for the upper
            return bool(np.max(above[1:] + below[:-1]) <= (1 - self.coverage) * (1 - 1e-6))

        distance = bisect_left(range(min(low, high)), True, key=covers)
        if distance == min(low, high):
            raise ValueError(
                f"a coverage of {self.coverage} needs more than {self.public_n} records or a "
                "larger epsilon."
            )
        return Fraction(low - distance, _UNITS), 1 - Fraction(high - distance, _UNITS)

    def _missed(self, level: int, q: Fraction, epsilon: Fraction, neighbors: str) -> np.ndarray:
        """Return E[F(N, S)] of the lower end, for ``_SPLITS`` values N from 0 to K - 1."""
        n, size = self.public_n, self.records_grid.size
        # All other numbers of records have a binomial probability below 1e-21
        middle, reach = round(q * n), 5 * isqrt(n) + 6
        number = np.arange(max(middle - reach, 0), min(middle + reach, n) + 1)
        odds = (n - number[:-1]) / number[1:] * float(q / (1 - q))
        logs = np.cumsum(np.log(np.append(1, odds)))
        share = np.exp(logs - np.max(logs))
        step = _UNITS if neighbors == "swap" else max(level, _UNITS - level)
        # The largest integer below (B - a n) / step, as the upper end needs
        changes = (_UNITS * number - level * n - 1) // step
        near = (changes >= 0) & (changes <= far_of(epsilon, size))
        coin = np.exp(-float(epsilon) / 2 * (changes[near] + 1 / steps_of(epsilon)))
        most = np.multiply.outer(1 + np.linspace(0, size - 1, _SPLITS), coin)
        taken = 1 + np.expm1(most * np.log1p(-coin) / coin) / most
        return (share[changes < 0].sum() + taken @ share[near]) / share.sum()

    def _distribution(self, counts: Counts, how: How) -> Ends:
        each = How(how.epsilon / 2, how.neighbors, "permute_and_flip")
        levels = self.levels(how.epsilon, how.neighbors)
        public = self.lower, self.upper, self.resolution
        ends = [Quantile(level, *public)._distribution(counts, each) for level in levels]
        value = np.stack([end.value for end in ends], axis=-1)
        return Ends(ends, value, self.records_grid)


@dataclass(frozen=True, eq=False, repr=False)
class Ends(Distribution):
    """Both ends of a private interval, which are drawn independently and then sorted.

    Attributes:
        ends: the distributions of the lower and of the upper end of each group.
        value: float64 ``(..., 2)``, the two sample quantiles.
        grid: maps positions to values.
    """

    ends: list[Runs]
    value: np.ndarray
    grid: Multiples | Floats

    def positions(self, draws: int, words: Words = system_words) -> np.ndarray:
        """Draw positions exactly, ascending, int64 ``(draws, groups, 2)``."""
        each = [end.positions(draws, words) for end in self.ends]
        return np.sort(np.stack(each, axis=-1), axis=-1)
