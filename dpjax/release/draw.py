"""Exact draws: floating point decides beyond a proven error margin, and exact arithmetic otherwise.

A uniform selects the piece by the cumulative probabilities of the pieces, a second one the step
within it by inverse CDF, and where steps have several positions a third one selects among these.
The result is that of infinitely many bits (``distribution.py`` has the distribution), under two
assumptions: the operating system's entropy is uniform, and NumPy's exp, expm1 and log1p have a
relative error of at most 2^-45.

**The choice.** A weight is a product of three such functions and an integer; its exponent, at most
745, has a relative error of 2^-53 twice. Pieces with an exponent above 90 weigh less than 2^-70 of
the total, since there are at most 2^53 positions; so all sums are off by less than 2^-42 of the
total (2^-45 thrice, and 90 2^-52, twice for the quotient). NumPy sums pairwise, down to blocks of
128, so that the relative error of the total is bounded by the depth of the halving plus one block,
below 2^-45. Cumulative sums are integers in units of 2^-60, each rounded by one half. A uniform of
60 bits that is further than ``margin`` = 2^18 + pieces from both ends of a piece's interval lies in
that interval, whatever bits follow.

**The place.** t = ceil(-log1p(-u q) / h), q = 1 - e^(-h k), increases in u. It is computed for both
ends of the interval that 53 bits of u leave open, widened by 2^-43 before and after the logarithm.
If both ends give the same t, it is certain.

A draw that remains uncertain is repeated with the same bits, extended by as many as needed, in
integer interval arithmetic.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from fractions import Fraction
from functools import partial
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import numpy as np

from dpjax.release.entropy import Bits, More
from dpjax.release.exponentials import Enclosure, exponential, one_minus_exponential

if TYPE_CHECKING:
    from dpjax.release.distribution import GridDistribution

MARGIN = 2**18  # of the choice, in units of 2^-60
_WIDENED = 2.0**-43
_LANES = 2**20  # draws at a time


def positions(
    distribution: GridDistribution, draws: int, words: Any, more: More, margin: int = MARGIN
) -> np.ndarray:
    """Draw positions, int64 ``(draws, datasets)``.

    ``words(shape)`` returns random 64-bit words, and ``more`` the bits that extend them.
    """
    groups = distribution.profile.groups
    uniforms = 2 if distribution.mechanism == "piecewise_laplace" else 3
    found = np.zeros((draws, groups), np.int64)
    exactly: dict[int, Exactly] = {}
    chunk_size = max(_LANES // max(groups, 1), 1)
    for start in range(0, draws, chunk_size):
        chunk = found[start : start + chunk_size]
        drawn = words((uniforms, *chunk.shape))
        chunk[:], sure = decide(distribution, drawn, margin)
        for draw, group in zip(*np.nonzero(~sure), strict=True):
            known = exactly.setdefault(int(group), Exactly(distribution, int(group)))
            chunk[draw, group] = known.draw(drawn[:, draw, group].tolist(), more)
    return found


def decide(
    distribution: GridDistribution, words: np.ndarray, margin: int = MARGIN
) -> tuple[np.ndarray, np.ndarray]:
    """Return the positions that 64-bit words select, and which are certain.

    The words are ``(uniforms, draws, datasets)``.
    """
    profile, sums = distribution.profile, distribution.sums
    target = (words[0] >> np.uint64(4)).astype(np.int64)
    piece = first_above(sums, profile.starts, distribution.group, target)
    below = np.where(piece > profile.starts[:-1], sums[piece - 1], 0)
    slack = margin + np.diff(profile.starts)
    sure = (target - below >= slack) & (sums[piece] - target > slack)
    step, certain = _step(distribution, piece, words[1])
    sure &= certain
    if len(words) > 2:
        span = distribution.span[piece]
        offset, certain = place_in(span, words[2])
        step, sure = (step - 1) * span + offset + 1, sure & certain
    return profile.near[piece] + profile.sign[piece] * step, sure & (margin < 2**60)


def first_above(
    sums: np.ndarray, starts: np.ndarray, group: np.ndarray, target: np.ndarray
) -> np.ndarray:
    """Return the first entry of each dataset that exceeds its target, or the dataset's last entry.

    The result has the shape ``(draws, datasets)``. ``sums`` are integers that ascend within each
    dataset.
    """
    draws, datasets = target.shape
    found = np.zeros(target.shape, np.int64)
    if draws <= 8 and datasets > 1:
        for row, one in zip(found, target, strict=True):
            row[:] = starts[:-1] + np.add.reduceat(sums <= one[group], starts[:-1], dtype=np.int64)
    else:
        for dataset in range(datasets if draws else 0):
            ascending = sums[starts[dataset] : starts[dataset + 1]]
            found[:, dataset] = starts[dataset] + np.searchsorted(
                ascending, target[:, dataset], side="right"
            )
    return np.minimum(found, starts[1:] - 1)


def open_interval(words: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the ends of the interval in which a uniform lies, given its first 53 bits."""
    leading = words >> np.uint64(11)
    return leading.astype(np.float64) * 2.0**-53, (leading + np.uint64(1)).astype(
        np.float64
    ) * 2.0**-53


def _step(
    distribution: GridDistribution, piece: np.ndarray, words: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return the step of a piece that a uniform selects, and whether it is certain."""
    decay = distribution.rate * distribution.profile.rise[piece]
    return step_in(distribution.step_rate[piece], distribution.steps[piece], decay, words)


def step_in(
    rate: np.ndarray, steps: np.ndarray, decay: Any, words: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return the truncated geometric number that a uniform selects, and whether it is certain.

    The number is int64. It is certain if no further bits of the uniform can change it.
    """
    mass, ends = -np.expm1(-decay), []
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        for uniform, away in zip(open_interval(words), (-_WIDENED, _WIDENED), strict=True):
            noise = -np.log1p(-np.minimum(uniform * mass * (1 + away), 1.0))
            ends.append(np.clip(np.ceil(noise * (1 + away) / rate), 1, steps))
    single = steps == 1
    low, high = (np.where(single, 1, end).astype(np.int64) for end in ends)
    return low, low == high


def place_in(width: np.ndarray, words: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the integer floor(width U), and whether further bits of U cannot change it."""
    ends = zip(open_interval(words), (-(2.0**-50), 2.0**-50), strict=True)
    low, high = (
        np.clip(np.floor(width * end * (1 + away)), 0, width - 1).astype(np.int64)
        for end, away in ends
    )
    return low, low == high


class Exactly:
    """The same draws from one dataset in exact arithmetic."""

    def __init__(self, distribution: GridDistribution, group: int) -> None:
        profile = distribution.profile.one(group)
        pieces = slice(distribution.profile.starts[group], distribution.profile.starts[group + 1])
        self._rate, self._near, self._sign = (
            distribution.exact_rate,
            profile.near.tolist(),
            profile.sign.tolist(),
        )
        self._steps, self._span = (
            distribution.steps[pieces].tolist(),
            distribution.span[pieces].tolist(),
        )
        self._rise, self._cost = profile.rise.tolist(), (profile.level + profile.depth - 1).tolist()
        self._known: dict[int, tuple[list[int], list[int]]] = {}

    def draw(self, words: Sequence[int], more: More) -> int:
        """Return the position that 64-bit words select, extended by ``more`` as needed."""
        piece = self._choose(Bits(words[0], 64, 0, more))
        number = self._step(piece, Bits(words[1], 64, 1, more))
        if len(words) > 2:
            number = (
                (number - 1) * self._span[piece]
                + Bits(words[2], 64, 2, more).times(self._span[piece])
                + 1
            )
        return int(self._near[piece] + self._sign[piece] * number)

    def _choose(self, uniform: Bits) -> int:
        bits = 128
        while (found := choose_between(*self.weights(bits), uniform)) is None:
            uniform.read()
            bits += 64
        return found

    def weights(self, bits: int) -> tuple[list[int], list[int]]:
        """Enclose the weight of each piece relative to that of the value, in units of 2^-bits."""
        if bits not in self._known:
            pieces = zip(self._cost, self._rise, self._steps, self._span, strict=True)
            ends = [self._weight(*piece, bits) for piece in pieces]
            self._known = {bits: ([low for low, _ in ends], [high for _, high in ends])}
        return self._known[bits]

    def _weight(self, cost: int, rise: int, steps: int, span: int, bits: int) -> tuple[int, int]:
        depth = self._rate * cost
        halvings = depth * 1442695 // 10**6  # e^-depth is at most 2^-halvings
        if halvings > bits + 64:
            return 0, (span * steps << bits >> halvings) + 1
        work = bits + (span * steps).bit_length() + 32
        found = exponential(depth, work)
        if rise:
            h = self._rate * Fraction(rise, steps)
            decay = one_minus_exponential(self._rate * rise, work).times(exponential(h, work), work)
            found = found.times(decay.over(one_minus_exponential(h, work), work), work)
        low, high = found.scaled(bits + 32)
        return low * span >> 32, -(-high * span >> 32)

    def _step(self, piece: int, uniform: Bits) -> int:
        """Return the least t with P(T <= t) above the uniform.

        It is found by bisection, which reads bits as needed.
        """
        low, high = 1, self._steps[piece]
        while low < high:
            middle = (low + high) // 2
            if uniform.below(partial(self._share, piece, middle)):
                high = middle
            else:
                low = middle + 1
        return low

    def _share(self, piece: int, number: int, bits: int) -> Enclosure:
        """Enclose P(T <= number)."""
        decay = self._rate * self._rise[piece]
        first = one_minus_exponential(decay * Fraction(number, self._steps[piece]), bits + 8)
        return first.over(one_minus_exponential(decay, bits + 8), bits + 8)


def choose_between(low: Sequence[int], high: Sequence[int], uniform: Bits) -> int | None:
    """Return the index that a uniform selects, or None if more precision is needed.

    ``low`` and ``high`` bound the weights. An index with an upper bound of 0 is never selected.
    """
    present = [number for number, end in enumerate(high) if end > 0]
    lows, highs = ([0, *accumulate(ends[number] for number in present)] for ends in (low, high))
    least, most = lows[-1] * uniform.value, highs[-1] * (uniform.value + 1)  # of Z U, times 2^count
    # The last one that begins at or below Z U, whatever its bits
    i = bisect_right(highs, least >> uniform.count) - 1
    # And the next one begins above it
    decided = i == len(present) - 1 or most <= lows[i + 1] << uniform.count
    return present[i] if decided else None
