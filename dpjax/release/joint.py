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
it takes, by the same code, with further bits of the same uniforms.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal, localcontext
from fractions import Fraction
from functools import cached_property
from itertools import pairwise
from math import ceil, log, prod
from typing import Any, NamedTuple

import numpy as np

from dpjax.release.counts import Counts
from dpjax.release.exact import Bits, Words, decay, places, system_words

TOGETHER = 20  # levels that are drawn together
_FAR = 45.0  # all positions alike weigh about e^-45 of the rest
_WIDEST = 2**22  # ranks in the windows of all levels
_CELLS = 2**20  # slots that are worked on together
_POINT_BITS = 40
_BASE_BITS = 128
_TINY = 2.0**-900  # sums below it may have lost digits


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
        low, high = np.zeros_like(group), self.totals[group]
        for _ in range(int(high.max(initial=0)).bit_length()):
            middle = (low + high + 1) // 2
            passed = self.at(group, middle) <= position
            low, high = np.where(passed, middle, low), np.where(passed, high, middle - 1)
            high = np.maximum(high, low)
        return low


class Parts(NamedTuple):
    """The parts of groups from which quantiles are drawn, int64 ``(parts,)`` each.

    Attributes:
        whole: the N of the group; public, as is ``number``.
        number: the N of the part.
        n: the number of points above ``low`` and below ``end``.
        group: the group.
        low: the first fine position.
        end: the fine position after the last one.
        before: the number of points of the group up to ``low``.
    """

    whole: np.ndarray
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
        """Return the first position of the slots ``(parts, k)``; ``end`` above slot n."""
        own, before, low, end = (a[:, None] for a in (self.group, self.before, self.low, self.end))
        return np.clip(points.at(own, before + rank), low, end)


class Law(NamedTuple):
    """What is public of the draws from parts with the same N."""

    targets: tuple[int, ...]
    number: int
    cap: int
    rate: Fraction

    @staticmethod
    def of(
        levels: Sequence[Fraction], whole: int, number: int, rate: Fraction, size: int, slack: int
    ) -> Law:
        """Return the distribution of levels within a part.

        A slot has at least 1 / (2 n) of the fine positions of one of ``size`` values, so that this
        cap, with ``slack`` for abs(n - N), makes all positions alike weigh little.
        """
        targets = tuple(1 + int(level * (number - 1)) for level in levels)
        away = len(levels) * log(2 * size * whole) + _FAR
        cap = min(ceil(away / rate) + slack, _WIDEST // (2 * len(levels)))
        return Law(targets, number, cap, rate)

    def slots(self, most: int) -> int:
        """Return the number of slots of each window, if no part has more than ``most`` points."""
        return min(2 * self.cap, most) + 1


class Drawn(NamedTuple):
    """Draws in slots, for each lane.

    Attributes:
        rank: ``(lanes, m)``, the slot of each level.
        first: ``(lanes, m)``, the first level in the same slot.
        alike: whether all positions of the part are equally likely instead.
        accepted: whether this is a draw; otherwise it is repeated.
        sure: whether rounding cannot have changed this.
    """

    rank: np.ndarray
    first: np.ndarray
    alike: np.ndarray
    accepted: np.ndarray
    sure: np.ndarray


class Chain:
    """The weights of all slots of some parts: floats, or decimals if there are ``digits``.

    Attributes:
        before: for each level ``(parts, J)``, the weight of the levels below it in slots below each
            slot of its window, with the step to this slot.
        after: for each level ``(parts, J)``, the weight of the levels up to it, if it is in the
            slot.
        alike: ``(parts,)``, the weight of all positions alike.
    """

    def __init__(self, law: Law, points: FinePoints, parts: Parts, digits: int = 0) -> None:
        self.law, self.points, self.parts, self._digits = law, points, parts, digits
        self._first = [max(target - law.cap, 0) for target in law.targets]
        self._steps = [0, *(high - low for low, high in pairwise(law.targets))]
        self.context = Context(prec=max(digits, 1), Emin=MIN_EMIN, Emax=MAX_EMAX)
        self._slot = np.arange(law.slots(int(parts.n.max())))
        with localcontext(self.context), np.errstate(all="ignore"):
            self._zero: Any = Decimal(0) if digits else 0.0
            self._unit = (2 + self._zero) ** -points.size.bit_length()
            self._base = Decimal(decay(law.rate, _BASE_BITS)) / 2**_BASE_BITS
            self._forward()

    @cached_property
    def slack(self) -> Any:
        """A bound of the relative rounding errors of all sums."""
        operations = (len(self.before) + 1) * (len(self._slot) + 2**12)
        return operations * (Decimal(10) ** (12 - self._digits) if self._digits else 2.0**-50)

    def _forward(self) -> None:
        self.before, self.after, self._stay = list[Any](), list[Any](), list[Any]()
        self._edges, scales = list[np.ndarray](), list[Any]()
        for k, first in enumerate(self._first):
            if k and first == self._first[k - 1]:
                self._edges.append(self._edges[-1])
            else:
                rank = first + np.arange(len(self._slot) + 1)
                self._edges.append(self.parts.edges(self.points, rank))
            width = np.diff(self._edges[k], axis=1)
            if k:
                # The weights of every level are scaled, so that floats have them
                largest = np.max(self.after[-1], axis=1, keepdims=True)
                scales.append(1 / np.where(largest > 0, largest, 1 + self._zero))
                self._stay.append(self._power(self._steps[k]) * scales[-1])
                shift = first - self._first[k - 1]
                self.before.append(self._next(self.after[-1], self._steps[k], shift) * scales[-1])
            else:
                start = self._power(np.abs(first + self._slot - self.law.targets[0]))
                self.before.append(np.broadcast_to(start, width.shape))
                self._stay.append(self._zero)
            # Runs of levels in one slot, the first of which is level i
            found: Any = self._zero
            for i in range(k + 1):
                if first - self._first[i] < len(self._slot):
                    longer = found * (self._grown(width, k + 1 - i) * self._stay[i])
                    found = longer + _shifted(self.before[i], first - self._first[i], self._zero)
            self.after.append(found * (width * self._unit))
        beyond = self.parts.n - self.law.number + self.law.targets[-1]
        self._end = self._power(np.abs(beyond[:, None] - self._first[-1] - self._slot))
        whole = (self.parts.end - self.parts.low)[:, None]
        factors = [self._grown(whole, i) for i in range(len(self.before))] + scales
        if self._digits:
            self.alike = prod(factors) * self._power(self.law.cap)
        else:
            logs: Any = sum(map(np.log, factors))
            self.alike = np.exp(logs - float(self.law.rate) * self.law.cap)

    def _power(self, exponent: Any) -> Any:
        """Return a^exponent."""
        if self._digits:
            return np.frompyfunc(lambda k: self._base ** int(k), 1, 1)(exponent)
        return np.exp(-float(self.law.rate) * exponent)

    def _grown(self, width: Any, number: Any) -> Any:
        """Return the factor by which one more level makes the number of multisets grow, scaled."""
        return (width + number) * self._unit / (number + 1)

    def _next(self, after: Any, step: int, shift: int) -> Any:
        """Return, for each slot, the sum over lower slots of the weight there times a^abs(d - step).

        d is the distance of the slots; the windows are ``shift`` ranks apart. Sums over ranges of
        lower slots double, those beyond ``step`` by geometric weights that fall downwards, and
        those within by weights that fall upwards.
        """
        gap = max(step, 1)
        room = [(0, 0), (gap - shift, 1)]
        below = np.pad(after, room, constant_values=self._zero)
        window, found, offset = below.copy(), below * 0, 0
        size = below.shape[1]
        for bit in range(size.bit_length()):
            half = 2**bit
            decayed = self._power(half)
            if not decayed:
                break
            if (gap - 1 & half) and offset < size:
                found += self._power(offset) * _shifted(window, offset, self._zero)
                offset += half
            below[:, half:] += decayed * below[:, :-half]
            window[:, :-half] += decayed * window[:, half:]
        slots = len(self._slot)
        near = self._power(1) * found[:, 1 : slots + 1]
        return self._power(gap - step) * below[:, :slots] + near

    def back(self, row: np.ndarray, uniforms: Any, margin: float = 0.0) -> Drawn:
        """Draw from the part of each lane; ``uniforms`` is ``(2 m + 1, lanes)``."""
        with localcontext(self.context), np.errstate(all="ignore"):
            return self._back(row, uniforms, self.slack + margin if margin else self.slack)

    def _back(self, row: np.ndarray, uniforms: Any, slack: Any) -> Drawn:
        m, lanes, level = len(self.before), len(row), np.arange(len(self.before))
        rank, first = np.zeros((2, lanes, m), np.int64)
        sure, above, last = np.ones(lanes, bool), np.zeros(lanes, np.int64), np.full(lanes, m - 1)
        surplus = (self.parts.n - self.law.number)[row]
        alike = np.abs(surplus) >= self.law.cap  # all positions cost at least the cap
        for k in reversed(range(m)):
            on = np.flatnonzero((last == k) & ~alike)
            if not on.size:
                continue
            slot, certain = choose(self._slot_weights(k, row[on], above[on]), uniforms[2 * k, on])
            sure[on] &= certain(slack)
            alike[on] = slot == 0
            on, slot = on[slot > 0], slot[slot > 0] - 1
            start, certain = choose(self._run_weights(k, row[on], slot), uniforms[2 * k + 1, on])
            sure[on] &= certain(slack)
            inside = (start[:, None] <= level) & (level <= k)
            above[on] = self._first[k] + slot
            rank[on] = np.where(inside, above[on, None], rank[on])
            first[on] = np.where(inside, start[:, None], first[on])
            last[on] = start - 1
        away = np.column_stack([np.zeros_like(surplus), rank - self.law.targets, surplus])
        spare = self.law.cap - np.sum(np.abs(np.diff(away, axis=1)), axis=1)
        rejected = self._power(np.maximum(spare, 0))
        certain = np.abs(uniforms[2 * m] - rejected) > slack
        sure &= alike | (spare <= 0) | certain.astype(bool)
        return Drawn(rank, first, alike, alike | (spare > 0) & (uniforms[2 * m] >= rejected), sure)

    def _slot_weights(self, k: int, row: np.ndarray, above: np.ndarray) -> Any:
        """Return the weights of all positions alike, and of the slots of level k below ``above``."""
        if k == len(self.before) - 1:
            return np.concatenate([self.alike[row], self.after[k][row] * self._end[row]], axis=1)
        away = above[:, None] - self._first[k] - self._slot
        near = self._power(np.abs(away - self._steps[k + 1]))
        weights = np.where(away > 0, self.after[k][row] * near, self._zero)
        return np.pad(weights, [(0, 0), (1, 0)], constant_values=self._zero)

    def _run_weights(self, k: int, row: np.ndarray, slot: np.ndarray) -> Any:
        """Return the weights of the runs in a slot that end with level k, by their first level."""
        width = self._edges[k][row, slot + 1] - self._edges[k][row, slot]
        factor, found = 1 + self._zero, []
        for i in reversed(range(k + 1)):
            at = slot + self._first[k] - self._first[i]
            known = at < len(self._slot)
            weight = factor * self.before[i][row, np.where(known, at, 0)]
            found.append(np.where(known, weight, self._zero))
            if i:
                factor = factor * self._grown(width, k + 1 - i) * self._stay[i][row, 0]
        return np.stack(found[::-1], axis=1)


def _shifted(array: Any, offset: int, zero: Any) -> Any:
    """Return the columns from ``offset`` on, and zeros in place of the others."""
    kept = array[:, offset:]
    return np.pad(kept, [(0, 0), (0, array.shape[1] - kept.shape[1])], constant_values=zero)


def choose(weights: Any, uniform: Any) -> tuple[np.ndarray, Any]:
    """Return the index that a uniform selects in each row.

    Also returned is a function of the errors of all sums, relative to the total, that says where
    they cannot change the index.
    """
    sums = np.cumsum(weights, axis=1)
    lane, total = np.arange(len(sums)), sums[:, -1]
    target = uniform * total
    found = np.sum(sums <= target[:, None], axis=1).clip(0, sums.shape[1] - 1).astype(np.int64)
    low = np.where(found > 0, sums[lane, found - 1], total * 0)
    high = sums[lane, found]

    def certain(slack: Any) -> np.ndarray:
        room = slack * total
        sure = (target - low > room) & (high - target > room)
        if total.dtype != object:
            sure &= (total > _TINY) & (total < 1 / _TINY)
        return np.asarray(sure, bool)

    return found, certain


def draw(
    points: FinePoints,
    parts: Parts,
    levels: Sequence[Fraction],
    rate: Fraction,
    *,
    size: int,
    slack: int,
    rounds: int,
    words: Words = system_words,
    margin: float = 0.0,
) -> np.ndarray:
    """Draw the fine positions of all levels from each part, int64 ``(parts, m)``.

    Args:
        points: of all groups.
        parts: which may be equal: each has its own draw.
        levels: ascending.
        rate: of one unit of cost, in each round.
        size: the number of values of the grid.
        slack: how far a noisy N may be from n.
        rounds: TOGETHER + 1 to the power of this number is more than the number of levels.
        words: where bits come from.
        margin: with 1, floats decide nothing.
    """
    how: Any = {"size": size, "slack": slack, "words": words, "margin": margin}
    if rounds == 1:
        return _together(points, parts, levels, rate, **how)
    m, each = len(levels), 2
    while each**rounds <= m:
        each += 1
    coarse = [i * (m + 1) // each - 1 for i in range(1, each)]
    found = np.zeros((len(parts.n), m), np.int64)
    found[:, coarse] = _together(points, parts, [levels[k] for k in coarse], rate, **how)
    low, before, share = parts.low, parts.before, Fraction(0)
    for last, k in pairwise([-1, *coarse, m]):
        high, end, through, top = found[:, k % m], parts.end, parts.before + parts.n, Fraction(1)
        if k < m:
            end, through, top = high + 1, points.rank(parts.group, high), levels[k]
        part = (top - share).numerator * parts.number // (top - share).denominator
        number, n = np.maximum(part, 1), through - before
        inner = Parts(parts.whole, number, n, parts.group, low, end, before)
        inside = [(level - share) / (top - share) for level in levels[last + 1 : k]]
        if inside:
            drawn = draw(points, inner, inside, rate, rounds=rounds - 1, **how)
            found[:, last + 1 : k] = drawn
        low, before, share = high, through, top
    return found


def _together(
    points: FinePoints,
    parts: Parts,
    levels: Sequence[Fraction],
    rate: Fraction,
    *,
    size: int,
    slack: int,
    words: Words,
    margin: float,
) -> np.ndarray:
    """Draw all levels of each part together; equal parts share their weights."""
    m = len(levels)
    found = np.zeros((len(parts.n), m), np.int64)
    order = np.lexsort((*parts[:2:-1], -parts.n, parts.number, parts.whole))
    ordered = np.stack(parts)[:, order]
    new = np.append(True, np.any(ordered[:, 1:] != ordered[:, :-1], axis=0))
    lanes = np.append(np.flatnonzero(new[: ordered.shape[1]]), ordered.shape[1])
    rows = Parts(*ordered[:, lanes[:-1]])
    start = 0
    while start < len(rows.n):
        whole, number, most = (int(array[start]) for array in rows[:3])
        law = Law.of(levels, whole, number, rate, size, slack)
        slots = law.slots(most)
        stop = min(start + max(_CELLS // (slots * m), 1), len(rows.n))
        same = (rows.whole[start:stop] == whole) & (rows.number[start:stop] == number)
        stop = start + int(np.sum(same))
        chain = Chain(law, points, rows.at(slice(start, stop)))
        row = np.repeat(np.arange(stop - start), np.diff(lanes[start : stop + 1]))
        for some in range(0, len(row), max(_CELLS // slots, 1)):
            part = row[some : some + max(_CELLS // slots, 1)]
            at = order[lanes[start] + some : lanes[start] + some + len(part)]
            found[at] = _of_chain(chain, part, words, margin)
        start = stop
    return found


def _of_chain(chain: Chain, row: np.ndarray, words: Words, margin: float) -> np.ndarray:
    """Draw fine positions ``(lanes, m)`` from the parts ``row``, until all are accepted."""
    m, parts = len(chain.before), chain.parts
    found, waiting = np.zeros((len(row), m), np.int64), np.arange(len(row))
    while waiting.size:
        given = words((3 * m + 1, waiting.size))
        drawn = chain.back(row[waiting], given[: 2 * m + 1] * 2.0**-64, margin)
        for lane in np.flatnonzero(~drawn.sure):
            exact = _exactly(chain, int(row[waiting[lane]]), given[: 2 * m + 1, lane], words)
            for array, one in zip(drawn, exact, strict=True):
                array[lane] = one[0]
        own = parts.at(row[waiting])
        low, end = (own.edges(chain.points, drawn.rank + more) for more in (0, 1))
        low = np.where(drawn.alike[:, None], own.low[:, None], low)
        end = np.where(drawn.alike[:, None], own.end[:, None], end)
        positions = _multisets(low, end - low, drawn.first, given[2 * m + 1 :], words)
        found[waiting] = positions  # Those that are rejected are overwritten
        waiting = waiting[~drawn.accepted]
    return found


def _exactly(chain: Chain, row: int, given: np.ndarray, words: Words) -> Drawn:
    """Return the draw of one lane, by decimals."""
    uniforms, digits, drawn = [Bits(word, words) for word in given], 20, None
    while drawn is None or not drawn.sure.all():
        digits *= 2
        exact = Chain(chain.law, chain.points, chain.parts.at(slice(row, row + 1)), digits)
        reals = [[uniform.decimal(exact.context)] for uniform in uniforms]
        drawn = exact.back(np.zeros(1, np.int64), np.array(reals, object))
    return drawn


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
