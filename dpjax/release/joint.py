"""Several quantiles of each row in one draw, exactly.

**Fine points.** The i-th of equal records is at the i-th point of the van der Corput sequence
within its value: one more record is one more point, and all points are distinct. They cut the fine
positions into the slots 0, ..., n: slot j has the positions at and above j of the points.

**The distribution.** Let N be a public, or a noisy, number of records. Fine positions
y_1 <= ... <= y_m in the slots j_1, ..., j_m have the deviations D_k = j_k - t_k from the targets
t_k = 1 + floor(q_k (N - 1)), with D_0 = 0 and D_(m+1) = n - N. Their probability is proportional
to a^min(cost, cap), where

    cost = sum over k = 1, ..., m + 1 of abs(D_k - D_(k-1)),

the cap is a public integer, and the rational number a, with 128 binary digits, is at least e^-rate.

**Privacy.** One more record adds 1 to exactly one of the numbers j_1, j_2 - j_1, ..., n - j_m of
points between the positions, whatever N is. So it changes one term of the cost by 1, hence
min(cost, cap) by at most 1, each weight and their sum by at most a factor of a^-1 <= e^rate: a draw
is (2 rate)-DP, with a range of 2 rate. If a record is swapped, both double. Nothing is rounded in
this argument.

**Windows.** Since abs(D_k) <= cost, only positions within ``cap`` ranks of all targets can cost
less than the cap, and slots further away are never looked at: a^min(cost, cap) is a^cap for all
positions, and a^cost - a^cap for those of less cost. So positions within the windows are proposed
with the weight a^cost, and rejected with probability a^(cap - cost), or 1 if that is more; and all
positions alike with the weight a^cap. (Clipping ranks to windows instead would not be private: one
more record then moves one end of every window.)

**Nesting.** Many levels are drawn in rounds: some of them, and then those between two draws from
the slots between these two. A record is in one of these parts, so that a round costs as much as one
draw; a swapped record may leave one part and enter another one, each for half of that.

**Exactness.** A draw goes forward over the levels and back; all sums are of positive numbers.
Floats decide where no rounding error can change the draw, otherwise decimals of as many digits as
it takes, by the same code, with further bits of the same uniforms. Weights of each level that are
tiny beside the largest are lost to floats; at most twice what was lost before, scaled as the other
weights are, is lost of the next level.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from itertools import count, pairwise
from math import ceil, log, prod
from typing import Any, NamedTuple

import numpy as np

from dpjax.release.counts import Counts
from dpjax.release.exact import Bits, Words, base_of, by_decimals, places, system_words

TOGETHER = 20  # levels that are drawn together; the weights of many more are beyond floats
_FAR = 45.0  # all positions alike weigh about e^-45 of the rest
_WIDEST = 2**24  # ranks in the windows of all levels
_CELLS = 2**22  # weights that are held together
_POINT_BITS = 40
_TINY = 2.0**-1000  # smaller floats may have lost digits


class FinePoints:
    """The fine points of all groups, found by rank.

    Attributes:
        size: the number of fine positions, at most 2^62.
        totals: int64 ``(groups,)``, the number of points of each group.
    """

    def __init__(self, counts: Counts, size: int) -> None:
        self._bits = min(_POINT_BITS, 62 - size.bit_length())
        self.size = size << self._bits
        # Clamping equal records keeps neighbors neighbors; the last entry belongs to no group
        self._equal = np.append(np.minimum(counts.counts, 2**self._bits - 1), 1)
        self._values = np.append(counts.values, 0)
        self._sums = np.cumsum(self._equal)
        self._before = np.append(0, self._sums)[counts.starts]
        self.totals = np.diff(self._before)

    def at(self, group: np.ndarray, rank: np.ndarray) -> np.ndarray:
        """Return the point of each rank: 0 below rank 1, and ``size`` above the last one."""
        number = self._before[group] + np.clip(rank, 1, self.totals[group])
        entry = np.searchsorted(self._sums, number)
        equal, value = self._equal[entry], self._values[entry]
        # The index of the point among those of the numbers 0, ..., equal: 0 is the point of 0
        index = number - self._sums[entry] + equal
        point, residue = np.zeros_like(index), np.zeros_like(index)
        for bit in range(int(equal.max(initial=0)).bit_length()):
            # Numbers with this residue modulo 2^bit: those with a further bit of 0 come first
            lower = (equal - residue >> bit + 1) + 1
            upper = index >= lower
            index -= lower * upper
            residue += upper * 2**bit
            point += upper * 2 ** (self._bits - 1 - bit)
        inside = (value << self._bits) + point
        return np.where(rank < 1, 0, np.where(rank > self.totals[group], self.size, inside))

    def values(self, position: np.ndarray) -> np.ndarray:
        """Return the value of each fine position."""
        return position >> self._bits

    def rank(self, group: np.ndarray, position: np.ndarray) -> np.ndarray:
        """Return the number of points up to each fine position, by bisection."""
        low, high = 0 * position, self.totals[group] + 0 * position
        while np.any(low < high):
            middle = (low + high + 1) // 2
            passed = self.at(group, middle) <= position
            low, high = np.where(passed, middle, low), np.where(passed, high, middle - 1)
        return low


class Parts(NamedTuple):
    """The parts of groups from which quantiles are drawn, int64 ``(parts,)`` each.

    Attributes:
        number: N, the public number of points.
        n: the number of points above ``low`` and below ``end``.
        group: the group.
        low: the first fine position.
        end: the fine position after the last one.
        before: the number of points of the group up to ``low``.
    """

    number: np.ndarray
    n: np.ndarray
    group: np.ndarray
    low: np.ndarray
    end: np.ndarray
    before: np.ndarray

    def at(self, index: Any) -> Parts:
        """Return some of the parts."""
        return Parts(*(array[index] for array in self))

    def edges(self, points: FinePoints, rank: np.ndarray) -> np.ndarray:
        """Return the first positions of the slots ``(parts, k)``; ``end`` above slot n."""
        group, low, end, before = (array[:, None] for array in self[2:])
        return np.clip(points.at(group, before + rank), low, end)


@dataclass(frozen=True)
class Joint:
    """Draws of several quantiles from parts of groups.

    Attributes:
        points: the fine points of all groups.
        rate: of one unit of cost, in each round.
        slack: how far a noisy N may be from n.
        words: where bits come from.
    """

    points: FinePoints
    rate: Fraction
    slack: int = 0
    words: Words = system_words

    def cap(self, m: int) -> int:
        """Return the largest cost of m levels drawn together; it is public."""
        away = ceil((m * log(self.points.size) + _FAR) / self.rate) + self.slack
        return min(away, _WIDEST // (2 * m))

    def draw(self, parts: Parts, levels: Sequence[Fraction], rounds: int) -> np.ndarray:
        """Draw the fine positions of ascending levels from each part, int64 ``(parts, m)``."""
        m = len(levels)
        pieces = next(k for k in count(2) if k**rounds > m)
        coarse = [i * (m + 1) // pieces - 1 for i in range(1, pieces)]
        found = np.zeros((len(parts.n), m), np.int64)
        found[:, coarse] = self._together(parts, [levels[k] for k in coarse])
        if rounds == 1:
            return found
        # The draws cut each part into pieces, with a share of N each
        share = [Fraction(0), *(levels[k] for k in coarse), Fraction(1)]
        ends = np.column_stack([parts.low, found[:, coarse], parts.end - 1])
        rank = self.points.rank(parts.group[:, None], ends)
        for i, (last, k) in enumerate(pairwise([-1, *coarse, m])):
            size, own = share[i + 1] - share[i], levels[last + 1 : k]
            if own:
                number = np.maximum(parts.number * float(size), 1).astype(np.int64)
                n, bounds = rank[:, i + 1] - rank[:, i], (ends[:, i], ends[:, i + 1] + 1)
                piece = Parts(number, n, parts.group, *bounds, rank[:, i])
                inside = [(level - share[i]) / size for level in own]
                found[:, last + 1 : k] = self.draw(piece, inside, rounds - 1)
        return found

    @np.errstate(all="ignore")
    def _together(self, parts: Parts, levels: Sequence[Fraction]) -> np.ndarray:
        """Draw all levels in one round; equal parts share their weights."""
        m, lanes, start = len(levels), len(parts.n), 0
        found = np.zeros((lanes, m), np.int64)
        keys = np.stack([parts.number, -parts.n, *parts[2:5]])
        order = np.lexsort(keys[::-1])
        keys = keys[:, order]
        while start < lanes:
            number, most = keys[:2, start]
            slots = min(2 * self.cap(m), -int(most)) + 1
            stop = min(
                start + max(_CELLS // (slots * m), 1), np.searchsorted(keys[0], number, "right")
            )
            own = order[start:stop]
            new = np.append(True, np.any(np.diff(keys[:, start:stop]), axis=0))
            chain = Chain(self, levels, parts.at(own[new]))
            found[own] = self._accepted(chain, np.cumsum(new) - 1)
            start = stop
        return found

    def _accepted(self, chain: Chain, row: np.ndarray) -> np.ndarray:
        """Draw fine positions ``(lanes, m)`` from the part of each lane, until all are accepted."""
        m = len(chain.targets)
        found, waiting = np.zeros((len(row), m), np.int64), np.arange(len(row))
        while waiting.size:
            given = self.words((3 * m + 1, waiting.size))
            choices, balls = given[: 2 * m + 1], given[2 * m + 1 :]
            drawn = chain.back(row[waiting], choices * 2.0**-64)
            for lane in np.flatnonzero(~drawn[-1]):
                exact = self._exactly(chain, int(row[waiting[lane]]), choices[:, lane])
                for array, one in zip(drawn, exact, strict=True):
                    array[lane] = one[0]
            low, width, first, accepted, _ = drawn
            # Those that are rejected are overwritten
            found[waiting] = _multisets(low, width, first, balls, self.words)
            waiting = waiting[~accepted]
        return found

    def _exactly(self, chain: Chain, row: int, given: np.ndarray) -> tuple[np.ndarray, ...]:
        """Return what one lane draws, by decimals."""
        uniforms, rows = [Bits(word, self.words) for word in given], np.zeros(1, np.int64)

        def draw(digits: int) -> tuple[np.ndarray, ...] | None:
            exact = Chain(self, chain.levels, chain.parts.at([row]), digits)
            reals = np.array([[uniform.decimal(digits)] for uniform in uniforms], object)
            drawn = exact.back(rows, reals)
            return drawn if drawn[-1].all() else None

        found: tuple[np.ndarray, ...] = by_decimals(draw)
        return found


class Chain:
    """The weights of all slots of parts with the same N: floats, or decimals of ``digits``.

    The lists have an array ``(parts, J)`` for each level, for the J slots of its window.

    Attributes:
        targets: the slot that each level aims at.
        before: the weights of the levels below in lower slots, with the step to this slot.
        after: the weights of the levels up to this one, if it is in this slot.
        alike: ``(parts, 1)``, the weight of all positions alike.
    """

    def __init__(
        self, joint: Joint, levels: Sequence[Fraction], parts: Parts, digits: int = 0
    ) -> None:
        self.points, self.levels, self.parts = joint.points, levels, parts
        number = int(parts.number[0])
        self.targets = [1 + int(level * (number - 1)) for level in levels]
        self._rate, self._digits, self._cap = joint.rate, digits, joint.cap(len(levels))
        self._first = [max(target - self._cap, 0) for target in self.targets]
        self._slot = np.arange(min(2 * self._cap, int(parts.n.max())) + 1)
        self._zero: Any = Decimal(0) if digits else 0.0
        self._unit = (2 + self._zero) ** -joint.points.size.bit_length()
        self._base = base_of(joint.rate)
        # A bound of the relative rounding errors of all sums
        error = Decimal(10) ** (12 - digits) if digits else 2.0**-50
        self.slack = error * (len(levels) + 1) * (len(self._slot) + 2**12)
        self._forward()

    def _forward(self) -> None:
        self.before, self.after, scales, self._stay = (list[Any]() for _ in range(4))
        tiny = self._zero if self._digits else _TINY * len(self._slot)
        self._lost = [np.full((len(self.parts.n), 1), self._zero)]
        rank = np.arange(len(self._slot) + 1)
        self._edges = [self.parts.edges(self.points, first + rank) for first in self._first]
        # Before all levels: all weight is in the slot -1
        after, place, aim = np.full((len(self.parts.n), 1), 1 + self._zero), -1, -1
        for k, (first, target) in enumerate(zip(self._first, self.targets, strict=True)):
            # The largest weight becomes 1, so that floats have them
            largest = np.max(after, axis=1, keepdims=True)
            scales.append(1 / np.where(largest > 0, largest, 1 + self._zero))
            self._lost.append(2 * self._lost[k] * scales[k] + tiny)
            self._stay.append(self._power(target - aim) * scales[k])
            self.before.append(self._next(after, target - aim, first - place) * scales[k])
            width, after = np.diff(self._edges[k], axis=1), self._zero
            for i in range(k + 1):  # the first level of a run in the slot
                shift = first - self._first[i]
                if shift < len(self._slot):
                    after = after * (self._grown(width, k + 1 - i) * self._stay[i])
                    after = after + self._moved(self.before[i], shift, len(self._slot))
            after = after * (width * self._unit)
            self.after.append(after)
            place, aim = first, target
        surplus = (self.parts.n - self.parts.number)[:, None]
        self._end = self._power(np.abs(surplus + aim - place - self._slot))
        whole = (self.parts.end - self.parts.low)[:, None]
        factors = scales + [self._grown(whole, i) for i in range(len(scales))]
        if self._digits:
            self.alike = prod(factors) * self._power(self._cap)
        else:
            self.alike = np.exp(np.sum(np.log(factors), axis=0) - float(self._rate) * self._cap)

    def _power(self, exponent: Any) -> Any:
        """Return a^exponent."""
        if self._digits:
            return np.frompyfunc(lambda k: self._base ** int(k), 1, 1)(exponent)
        return np.exp(-float(self._rate) * exponent)

    def _grown(self, width: Any, number: Any) -> Any:
        """Return the factor by which one more level makes the number of multisets grow, scaled."""
        return (width + number) * self._unit / (number + 1)

    def _moved(self, array: Any, offset: int, size: int) -> Any:
        """Return ``size`` columns from a column on, which may be negative; others are zero."""
        found = np.full((len(array), size), self._zero)
        kept = array[:, max(offset, 0) : max(offset + size, 0)]
        start = max(-offset, 0)
        found[:, start : start + kept.shape[1]] = kept
        return found

    def _next(self, after: Any, step: int, shift: int) -> Any:
        """Return the sums, over lower slots at the distance d, of the weights a^abs(d - step).

        ``shift`` is the distance of the two windows. The sums of slots beyond ``step`` double their
        ranges, with weights that fall downwards, and those of slots within it with weights that
        fall upwards.
        """
        gap, slots, offset = max(step, 1), len(self._slot), 0
        size = slots + gap - shift + 1
        below = self._moved(after, shift - gap, size)
        window, found = below.copy(), 0 * below
        for bit in range(size.bit_length()):
            half = 2**bit
            if min(gap - 1, size) & half:
                found += self._power(offset) * self._moved(window, offset, size)
                offset += half
            below[:, half:] += self._power(half) * below[:, :-half]
            window[:, :-half] += self._power(half) * window[:, half:]
        near = self._power(1) * found[:, 1 : slots + 1]
        return self._power(gap - step) * below[:, :slots] + near

    def back(self, row: np.ndarray, uniforms: Any) -> tuple[np.ndarray, ...]:
        """Draw slots from the part of each lane.

        Args:
            row: ``(lanes,)``, the parts.
            uniforms: ``(2 m + 1, lanes)``.

        Returns:
            The first position and the width of the slot of each level, ``(lanes, m)``; the first
            level in the same slot; and for each lane whether the draw is accepted, and whether
            rounding cannot have changed this.
        """
        m, lanes, own = len(self.targets), len(row), self.parts.at(row)
        rank, first, low = np.zeros((3, lanes, m), np.int64)
        low += own.low[:, None]
        width = low * 0 + (own.end - own.low)[:, None]
        last, sure, surplus = np.full(lanes, m - 1), np.ones(lanes, bool), own.n - own.number
        alike = np.abs(surplus) >= self._cap  # no position costs less than the cap
        for k in reversed(range(m)):
            on = np.flatnonzero((last == k) & ~alike)
            above = rank[on, min(k + 1, m - 1)]
            lost, slots = self._lost[k + 1][row[on], 0], self._slots(k, row[on], above)
            slot, certain = self._choose(slots, uniforms[2 * k, on], lost)
            sure[on] &= certain
            alike[on] = slot == 0
            on, slot, lost = on[slot > 0], slot[slot > 0] - 1, lost[slot > 0]
            left, right = (self._edges[k][row[on], slot + more] for more in (0, 1))
            runs = self._runs(k, row[on], slot, right - left)
            start, certain = self._choose(runs, uniforms[2 * k + 1, on], lost)
            sure[on] &= certain
            for i in range(k + 1):
                rank[on, i], first[on, i] = self._first[k] + slot, start
                low[on, i], width[on, i] = left, right - left
            last[on] = start - 1
        away = np.column_stack([0 * surplus, rank - self.targets, surplus])
        spare = self._cap - np.sum(np.abs(np.diff(away, axis=1)), axis=1)
        ahead = uniforms[2 * m] - self._power(np.maximum(spare, 0))
        sure &= alike | (spare <= 0) | (np.abs(ahead) > self.slack)
        return low, width, first, alike | (spare > 0) & (ahead >= 0), sure

    def _slots(self, k: int, row: np.ndarray, above: np.ndarray) -> Any:
        """Return the weights of all positions alike, and of the slots of level k below another."""
        after = self.after[k][row]
        if k == len(self.targets) - 1:
            return np.concatenate([self.alike[row], after * self._end[row]], axis=1)
        away = above[:, None] - self._first[k] - self._slot
        near = self._power(np.abs(away - self.targets[k + 1] + self.targets[k]))
        weights = np.where(away > 0, after * near, self._zero)
        return self._moved(weights, -1, len(self._slot) + 1)

    def _runs(self, k: int, row: np.ndarray, slot: np.ndarray, width: np.ndarray) -> Any:
        """Return the weights of the runs in a slot that end with level k, by their first level."""
        factor, found = 1 + self._zero, []
        for i in reversed(range(k + 1)):
            at = slot + self._first[k] - self._first[i]
            known = at < len(self._slot)
            weight = factor * self.before[i][row, np.where(known, at, 0)]
            found.append(np.where(known, weight, self._zero))
            if i:
                factor = factor * self._grown(width, k + 1 - i) * self._stay[i][row, 0]
        return np.stack(found[::-1], axis=1)

    def _choose(self, weights: Any, uniform: Any, lost: Any) -> tuple[np.ndarray, np.ndarray]:
        """Return what a uniform selects in each row, and whether rounding cannot change it."""
        sums, lane = np.cumsum(weights, axis=1), np.arange(len(weights))
        target = uniform * sums[:, -1]
        found = np.asarray(np.sum(sums[:, :-1] <= target[:, None], axis=1, dtype=np.int64))
        low = np.where(found > 0, sums[lane, found - 1], self._zero)
        room = self.slack * sums[:, -1] + lost
        return found, (target - low > room) & (sums[lane, found] - target > room)


def _multisets(
    low: np.ndarray, width: np.ndarray, first: np.ndarray, given: np.ndarray, words: Words
) -> np.ndarray:
    """Return positions: of levels in one slot, all multisets are equally likely (Polya's urn)."""
    found, lane = np.zeros_like(low), np.arange(len(low))
    for k in range(low.shape[1]):
        balls = width[:, k] + k - first[:, k]
        ball, sure = places(balls, given[k])
        for at in np.flatnonzero(~sure):
            ball[at] = Bits(given[k, at], words).below(int(balls[at]))
        again = found[lane, np.clip(first[:, k] + ball - width[:, k], 0, k)]
        found[:, k] = np.where(ball < width[:, k], low[:, k] + ball, again)
    return np.sort(found, axis=1)
