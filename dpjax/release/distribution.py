"""The distributions of a release on a public grid: runs of adjacent positions of equal cost.

A position y throws a coin of probability q(y) = a^cost(y), where the least cost is 0, costs are
integers, and the rational number a, with 128 binary digits, is at least e^-rate.

* **Piecewise Laplace** takes y with a probability proportional to q(y).
* **Permute and flip** (McKenna and Sheldon 2020) takes one of the positions whose coin shows heads,
  uniformly.

**Privacy.** Let the costs of neighbors, up to a constant, differ by at most r, and let rate be at
most epsilon / (2 r): each a^cost changes by a factor of at most a^-r <= e^(epsilon / 2), and so
does their sum. Permute and flip takes the y with the largest E - log(1/a) cost(y), for independent
exponential E (Ding et al. 2021). So P(y) decreases in the cost of y, increases in the other costs,
and does not depend on a constant: at worst, the cost of y alone changes by 2 r, and the probability
that E exceeds a number changes by a factor of at most a^(-2 r) <= e^epsilon. Both hold exactly, as
a is one rational number, and none of its powers is rounded.

**The draw of permute and flip.** Let each position arrive at a time t with P(t > s) = e^-s, in
place of the order of a permutation; the first head wins. A position that has shown no head until t
has not arrived with probability e^-t / (e^-t + (1 - e^-t) (1 - q)), so that its head comes at the
rate q / (q + (1 - q) e^t) <= q. So propose positions at the rate L, the sum of all q, each with
probability q / L, as piecewise Laplace does, and accept one with probability
1 / (q + (1 - q) e^t): the first that is accepted has the distribution of the first head.

**Exactness.** Floats decide a draw where no rounding error can change it; the margin, 2^-40, is far
above the errors of the sums (exp is assumed to be accurate to 2^-45). Otherwise decimals of as many
digits as it takes decide, with further bits of the same uniforms.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from fractions import Fraction
from functools import cached_property, partial
from itertools import accumulate, count
from math import prod
from typing import Any, NamedTuple

import numpy as np

from dpjax import checks
from dpjax.display import Picture, Shown
from dpjax.release.counts import Grouped, sums_of
from dpjax.release.exact import Bits, Words, base_of, by_decimals, places, seeded, system_words
from dpjax.release.grid import Multiples, Points

MARGIN = 2.0**-40
_BEFORE_ONE = 1 - 2.0**-53
_LANES = 2**20  # draws that are made together
# Panels of the integral, in units of 1 / L, and their numbers of nodes: it is below e^-x at x / L
_PANELS = ((0, 2, 8), (2, 36, 16))


class How(NamedTuple):
    """How a draw is made.

    Attributes:
        epsilon: of one draw.
        neighbors: the relation.
        mechanism: the name of the mechanism; None where there is one only.
    """

    epsilon: Fraction
    neighbors: str
    mechanism: str | None


class Distribution(Shown):
    """The distribution of a release of each row, for planning: a function of the data, not private.

    Attributes:
        value: float64 of the batch shape, the statistic itself.
        grid: maps positions to values.
        positions: a method of subclasses, of the number of draws and of words: it draws exactly,
            int64 of shape ``(draws,)`` and that of the groups.
    """

    value: np.ndarray
    grid: Any
    positions: Any

    _repr_html_: Any = None  # what it would compute takes long for many rows

    @property
    def batch_shape(self) -> tuple[int, ...]:
        """The shape of ``value``."""
        return self.value.shape

    def _facts(self) -> dict[str, Any]:
        return {"batch_shape": self.batch_shape}

    def values_of(self, positions: np.ndarray) -> np.ndarray:
        """Return drawn positions as values, float64 of shape ``(draws,)`` and the batch shape."""
        shape = len(positions), *self.value.shape
        return np.reshape(self.grid.values_of(positions), shape)

    def reshaped(self, batch: tuple[int, ...]) -> Any:
        """Return the same distributions with another batch shape."""
        shape = batch + self.value.shape[1:]
        return replace(self, value=self.value.reshape(shape))  # type: ignore[type-var]

    def sample(
        self, seed: int | np.random.Generator, shape: int | Sequence[int] = ()
    ) -> np.ndarray:
        """Draw for a simulation, from a seed or a NumPy generator.

        The result is float64 of shape ``shape`` and the batch shape.
        """
        shape = (shape,) if isinstance(shape, int) else tuple(shape)
        drawn = self.values_of(self.positions(prod(shape), seeded(seed)))
        return drawn.reshape(shape + self.value.shape)


class GridDistribution(Distribution):
    """A distribution of one value of each row, on a public grid.

    Subclasses have ``pmf``, ``cdf``, ``quantile`` and ``mean_abs_error``, of arguments that
    broadcast against the batch shape.
    """

    pmf: Any
    quantile: Any

    def interval(self, level: float) -> tuple[np.ndarray, np.ndarray]:
        """Return the ends of the central interval of probability ``level``.

        Each side leaves out (1 - level) / 2.
        """
        level = checks.concrete_fraction("level", level)
        return self.quantile((1 - level) / 2), self.quantile((1 + level) / 2)

    def _looks(self, rows: int) -> tuple[dict[str, Any], Picture | None]:
        """Return the probabilities of at most 400 values, the quantiles from .001 to .999."""
        size, wide = self.value.size, (-1, *(1 for _ in self.value.shape))
        levels = np.linspace(0.001, 0.999, 400).reshape(wide)
        at = [np.unique(row) for row in self.quantile(levels).reshape(-1, size).T[:rows]]
        shares = [self.pmf(x.reshape(wide)).reshape(-1, size)[:, k] for k, x in enumerate(at)]
        return {}, Picture(at, shares, "released value", "probability", "stems")


@dataclass(frozen=True, eq=False, repr=False)
class Runs(Grouped, GridDistribution):
    """Runs of adjacent positions of equal cost, ascending, of all groups in flat arrays.

    Attributes:
        starts: int64 ``(groups + 1,)``: group g has the runs from ``starts[g]`` to
            ``starts[g + 1]``.
        first: int64 ``(runs,)``, the first position.
        length: int64 ``(runs,)``, positive.
        cost: int64 ``(runs,)``; the least of each group is 0.
        rate: the rate of one unit of cost.
        grid: maps positions to values.
        value: float64 of the batch shape, the statistic.
        mechanism: "permute_and_flip", or any other name for piecewise Laplace.
    """

    starts: np.ndarray
    first: np.ndarray
    length: np.ndarray
    cost: np.ndarray
    rate: Fraction
    grid: Multiples | Points
    value: np.ndarray
    mechanism: str | None

    @cached_property
    def _coin(self) -> np.ndarray:
        """The probability q of each run."""
        with np.errstate(under="ignore"):
            coin: np.ndarray = np.exp(-float(self.rate) * self.cost)
        return coin

    @cached_property
    def _total(self) -> np.ndarray:
        """L, the sum of q over all positions of each group."""
        return sums_of(self._coin * self.length, self.starts)

    def _fixed(self, shares: np.ndarray) -> np.ndarray:
        """Return cumulative sums of probabilities in units of 2^-bits, int64.

        They go on through all groups, and are exact sums of rounded numbers.
        """
        return np.cumsum(np.rint(shares * 2.0**self._bits).astype(np.int64))

    @property
    def _bits(self) -> int:
        return 61 - self.groups.bit_length()

    @cached_property
    def _proposed(self) -> np.ndarray:
        return self._fixed(self._coin * self.length / self._total[self.group])

    @cached_property
    def shares(self) -> np.ndarray:
        """The probability of each run, by quadrature for permute and flip, to about 1e-12."""
        coin, length, size = self._coin, self.length.astype(np.float64), np.diff(self.starts)
        if self.mechanism != "permute_and_flip":
            found: np.ndarray = coin * length / self._total[self.group]
            return found
        # The integral over v, the uniform time, of q / (1 - v q) times the product of 1 - v q
        found = np.zeros(len(coin))
        for *ends, nodes in _PANELS:
            first, last = (np.minimum(end / self._total, 1.0) for end in ends)
            half = (last - first) / 2
            for node, part in zip(*np.polynomial.legendre.leggauss(nodes), strict=True):
                time = np.minimum(first + half * (1 + node), _BEFORE_ONE)
                tails = np.repeat(-time, size) * coin
                rest = np.exp(sums_of(length * np.log1p(tails), self.starts))
                found += np.repeat(part * half * rest, size) / (1 + tails)
        found *= coin * length
        return found / sums_of(found, self.starts)[self.group]

    @cached_property
    def _sums(self) -> np.ndarray:
        return self._fixed(self.shares)

    def positions(
        self, draws: int, words: Words = system_words, margin: float = MARGIN
    ) -> np.ndarray:
        """Draw positions exactly, int64 ``(draws, groups)``; with margin 1, floats decide none."""
        most = max(_LANES // max(self.groups, 1), 1)
        return np.concatenate(
            [
                self._positions(min(most, draws - done), words, margin)
                for done in range(0, max(draws, 1), most)
            ]
        )

    def _positions(self, draws: int, words: Words, margin: float) -> np.ndarray:
        lanes = draws * self.groups
        found = np.zeros(lanes, np.int64)
        group = np.tile(np.arange(self.groups), draws)
        waiting, clock = np.arange(lanes), np.zeros(lanes)
        rounds = np.zeros((0, 4, lanes), np.uint64)  # the words of the lanes that wait
        while waiting.size:
            given = words((4, waiting.size))
            rounds = np.concatenate([rounds, given[None]])
            run, sure = self._choose(group[waiting], given[0], margin)
            place, certain = places(self.length[run], given[1])
            sure &= certain
            accepted = np.ones(len(run), bool)
            if self.mechanism == "permute_and_flip":
                clock[waiting] -= np.log((given[2] + 0.5) * 2.0**-64) / self._total[group[waiting]]
                coin, uniform = self._coin[run], given[3] * 2.0**-64
                with np.errstate(over="ignore", invalid="ignore"):
                    late = np.exp(clock[waiting])
                    odds = uniform * (coin + (1 - coin) * late)
                    # Unknown are: 2^-64 of the uniform, 2^-44 of the clock and of 1 - coin
                    room = margin * len(rounds) * (1 + (uniform + 2.0**-24) * late)
                    sure &= (np.abs(odds - 1) > room) & (given[2] > 2**44)
                accepted = odds < 1
            sure &= margin < 1
            found[waiting] = self.first[run] + place
            for at in np.flatnonzero(~sure):
                uniforms = [[Bits(word, words) for word in given] for given in rounds[..., at]]
                draw = partial(self._by_decimals, int(group[waiting[at]]), uniforms, words)
                found[waiting[at]] = by_decimals(draw)
            left = sure & ~accepted
            waiting, rounds = waiting[left], rounds[..., left]
        return found.reshape(draws, self.groups)

    def _choose(
        self, group: np.ndarray, word: np.ndarray, margin: float
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the run that a word proposes, and where rounding cannot change it."""
        target = (word >> np.uint64(64 - self._bits)).astype(np.int64)
        run, before, after = self._search(self._proposed, group, target + 1)
        room = int(margin * 2.0**self._bits) + int(np.diff(self.starts).max()) + 2
        return run, (target - before > room) & (after - target > room)

    def _search(
        self, sums: np.ndarray, group: np.ndarray, target: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the first run of each group through which the sum is at least the target.

        Also returned are the sums before and through it.
        """
        through = np.append(0, sums)
        base = through[self.starts[group]]
        run = np.searchsorted(sums, base + target)
        run = np.clip(run, self.starts[group], self.starts[group + 1] - 1)
        return run, through[run] - base, through[run + 1] - base

    def _by_decimals(
        self, group: int, uniforms: list[list[Bits]], words: Words, digits: int
    ) -> int | None:
        """Return the draw of the uniforms of each round, and of further words as needed.

        It is None if decimals of so many digits do not decide it.
        """
        margin, base = Decimal(10) ** -(digits // 2), base_of(self.rate)
        own = slice(self.starts[group], self.starts[group + 1])
        length, coins = self.length[own].tolist(), [base**k for k in self.cost[own].tolist()]
        weights = (coin * number for coin, number in zip(coins, length, strict=True))
        sums = list(accumulate(weights, initial=Decimal(0)))
        total, clock = sums[-1], Decimal(0)
        for turn in count():
            if turn == len(uniforms):
                uniforms.append([Bits(word, words) for word in words((4,))])
            choice, _, wait, uniform = (known.decimal(digits) for known in uniforms[turn])
            target = choice * total
            run = bisect_right(sums, target) - 1
            if min(target - sums[run], sums[run + 1] - target) < margin * total:
                return None
            if self.mechanism == "permute_and_flip":
                if min(wait, uniform) < margin:
                    return None
                clock -= wait.ln() / total
                ahead = uniform * (coins[run] + (1 - coins[run]) * clock.exp()) - 1
                if abs(ahead) < margin:
                    return None
                if ahead > 0:
                    continue
            return int(self.first[own][run]) + uniforms[turn][1].below(length[run])
        return None

    def pmf(self, values: Any) -> np.ndarray:
        """Return the probability of each value; 0 for a value that is not on the grid."""
        numbers, group = self._broadcast(values)
        position, on_grid = self._nearest(numbers)
        run = self._run_at(position, group)
        return np.where(on_grid, self.shares[run] / self.length[run], 0.0)

    def cdf(self, values: Any) -> np.ndarray:
        """Return P(Y <= value)."""
        numbers, group = self._broadcast(values)
        position, on_grid = self._nearest(numbers)
        position = position - (~on_grid & ~(self.grid.values_of(position) <= numbers))
        run = self._run_at(np.maximum(position, 0), group)
        through = np.append(0, self._sums)
        before = (through[run] - through[self.starts[group]]) * 2.0**-self._bits
        inside = (position + 1 - self.first[run]) / self.length[run] * self.shares[run]
        return np.where(position < 0, 0.0, np.minimum(before + inside, 1.0))

    def quantile(self, p: Any) -> np.ndarray:
        """Return the smallest value with ``cdf(value) >= p``, up to rounding; NaN for no p."""
        numbers, group = self._broadcast(p)
        valid = (numbers >= 0) & (numbers <= 1)
        target = np.rint(np.where(valid, numbers, 0.5) * 2.0**self._bits).astype(np.int64)
        run, before, after = self._search(self._sums, group, target)
        inside = (target - before) / np.maximum(after - before, 1) * self.length[run]
        place = np.clip(np.ceil(inside * (1 - 1e-12)) - 1, 0, self.length[run] - 1)
        found = self.grid.values_of(self.first[run] + place.astype(np.int64))
        return np.where(valid, found, np.nan)

    def mean_abs_error(self, center: Any) -> np.ndarray:
        """Return E|Y - center|, the mean absolute error of a draw."""
        centers, groups = self._broadcast(center)
        numbers, group = centers.ravel(), groups.ravel()
        density = self.shares / self.length
        used = np.flatnonzero(density > 0)
        found = np.zeros(numbers.size)
        # Every group has as many numbers
        for some in np.argsort(group, kind="stable").reshape(max(self.groups, 1), -1).T:
            runs = self.first[used], self.length[used], numbers[some][self.group[used]]
            weighted = density[used] * self.grid.distances(*runs)
            found[some] = np.bincount(self.group[used], weighted, self.groups)
        return found.reshape(centers.shape)

    def _broadcast(self, given: Any) -> tuple[np.ndarray, np.ndarray]:
        """Return numbers that broadcast against the batch, and their groups."""
        group = np.arange(self.groups).reshape(self.value.shape)
        numbers, group = np.broadcast_arrays(np.asarray(given, np.float64), group)
        return numbers, group

    def _nearest(self, numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the positions nearest to numbers, and whether these are on the grid."""
        position = self.grid.positions_of(numbers.ravel())[0].astype(np.int64)
        position = position.reshape(numbers.shape)
        return position, np.isclose(self.grid.values_of(position), numbers, rtol=1e-14, atol=0)

    def _run_at(self, position: np.ndarray, group: np.ndarray) -> np.ndarray:
        """Return the run that has each position."""
        last = self.group * self.grid.size + self.first + self.length - 1
        return np.searchsorted(last, group * self.grid.size + position)
