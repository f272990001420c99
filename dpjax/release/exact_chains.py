"""The same draw of joint quantiles in integers, for one row: it reads on in the same uniforms until every choice is decided.

Weights are enclosed between integers times 2^-bits, by the sums of ``rank_chains`` over the slots that are not empty. If a choice
is not decided, everything is computed anew, with twice as many bits and more of that uniform. One pass takes O(terms m J) products.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import factorial, prod
from typing import NamedTuple

from dpjax.release.draw import choose_between
from dpjax.release.entropy import Bits
from dpjax.release.exponentials import exponential
from dpjax.release.rank_chains import Parameters

_BITS = 256
_LEADING = 192  # of the weight of a term


class Run(NamedTuple):
    """The quantiles first <= k < last in one slot; the flat term is one run in slot -1, the whole grid."""

    slot: int
    first: int
    last: int


class _Undecided(Exception):
    """A choice that the bits at hand do not decide."""


Weights = list[tuple[int, int]]  # lower and upper ends


def exact_runs(
    parameters: Parameters, widths: Sequence[int], count: int, numbers: Sequence[int], uniforms: Sequence[Bits]
) -> list[Run]:
    """Draw the runs of all quantiles, from the last one down, from the widths of slots in pieces and the terms N, ascending.

    The uniforms are that of the term, and then in turn of a slot and of the run in it.
    """
    bits = _BITS
    middle = min(numbers, key=lambda number: abs(number - (count - 1)))
    while Row(parameters, widths, count, bits).total(middle)[0].bit_length() < _LEADING:
        bits *= 2
    while True:
        try:
            return _runs(Row(parameters, widths, count, bits), numbers, uniforms)
        except _Undecided:
            bits *= 2


def _runs(row: Row, numbers: Sequence[int], uniforms: Sequence[Bits]) -> list[Run]:
    m = row.parameters.quantiles
    term = _choose(row.terms(numbers), uniforms[0])
    if term == len(numbers):
        return [Run(-1, 0, m)]
    chain, found, last, above = _Chain(row, numbers[term]), list[Run](), m, len(row.slots)
    while last > 0:
        slot = _choose(chain.slots(last, above), uniforms[1 + 2 * len(found)])
        first = _choose(chain.firsts(last, slot), uniforms[2 + 2 * len(found)])
        found.append(Run(row.slots[slot], first, last))
        last, above = first, slot
    return found


def _choose(weights: Weights, uniform: Bits) -> int:
    """The weight that a uniform chooses, without a look at it where there is one only."""
    if len(weights) == 1:
        return 0
    low, high = zip(*weights, strict=True)
    found = choose_between(low, high, uniform)
    if found is None:
        uniform.read()
        raise _Undecided
    return found


class _Side:
    """Products of numbers below 1, times 2^bits, rounded down or up."""

    def __init__(self, parameters: Parameters, bits: int, up: bool) -> None:
        self.bits, self.up, self._known = bits, up, dict[int, int]()
        found = exponential(parameters.unit, bits + 16)
        self._powers = [self._rounded(found.high if up else found.low, found.scale - bits)]

    def _rounded(self, number: int, drop: int) -> int:
        return -(-number >> drop) if self.up else number >> drop

    def times(self, a: int, b: int) -> int:
        return self._rounded(a * b, self.bits)

    def decay(self, distance: int) -> int:
        """e^(-unit distance)."""
        found = self._known.get(distance)
        if found is None:
            found, rest, i = 1 << self.bits, distance, 0
            while rest:
                if i == len(self._powers):
                    self._powers.append(self.times(self._powers[-1], self._powers[-1]))
                if rest & 1:
                    found = self.times(found, self._powers[i])
                rest, i = rest >> 1, i + 1
            self._known[distance] = found
        return found


class Row:
    """The slots of one row that are not empty, and weights to so many bits."""

    def __init__(self, parameters: Parameters, widths: Sequence[int], count: int, bits: int) -> None:
        self.parameters, self.count, self.bits = parameters, count, bits
        self.slots = [j for j, width in enumerate(widths) if width > 0]
        self.places = [parameters.whole * j for j in self.slots]
        self.sides = _Side(parameters, bits, False), _Side(parameters, bits, True)
        # Of 1, ..., m quantiles in each slot, times (cut m!)^c: integers.
        self.volumes = [[self._volume(widths[j], c) for j in self.slots] for c in range(1, parameters.quantiles + 1)]

    def _volume(self, width: int, c: int) -> int:
        return (
            prod(range(width, width + c * self.parameters.cut, self.parameters.cut))
            * factorial(self.parameters.quantiles) ** c
            // factorial(c)
        )

    def total(self, number: int) -> tuple[int, int]:
        """The weight of the term N; of a term that is the only one, up to a factor."""
        chain = _Chain(self, number)
        moved = 0 if self.parameters.reach is None else chain.moved
        low, high = map(sum, zip(*chain.slots(self.parameters.quantiles, len(self.slots)), strict=True))
        down, up = self.sides
        return down.times(low, down.decay(moved)), up.times(high, up.decay(moved))

    def terms(self, numbers: Sequence[int]) -> Weights:
        """The weights of all terms and, last, of the flat one."""
        if self.parameters.reach is None:
            return [(1, 1)]
        return [*(self.total(number) for number in numbers), self._flat(self.parameters.reach)]

    def _flat(self, reach: int) -> tuple[int, int]:
        parameters, one, rank = self.parameters, 1 << self.bits, 2 * self.parameters.whole
        volume = 2 * self._volume(parameters.size * parameters.cut, parameters.quantiles) << self.bits
        (far_low, low), (far_high, high) = ((side.decay(rank * (reach + 1)), side.decay(rank)) for side in self.sides)
        return volume * far_low // (one - low), -(-volume * far_high // (one - high))


class _Chain:
    """The weights of one term, without a factor e^(-unit moved), lower and upper ends."""

    def __init__(self, row: Row, number: int) -> None:
        self.row, parameters, places = row, row.parameters, row.places
        first, last = parameters.targets(number, row.count)
        steps = parameters.steps(number)[1:-1]
        self.steps = [min(max(step, 0), places[-1] - places[0]) for step in steps]
        starts, ends = ([abs(place - target) for place in places] for target in (first, last))
        self.moved = min(starts) + min(ends) + sum(abs(step) - inner for step, inner in zip(steps, self.steps, strict=True))
        self._ends = [away - min(ends) for away in ends]
        starts = [away - min(starts) for away in starts]
        self._both = [_forward(row, side, starts, self.steps) for side in row.sides]

    def slots(self, last: int, above: int) -> Weights:
        """The weights of the slots of quantile ``last``, below that of the next one."""
        places, found = self.row.places, []
        for side, (_, after) in zip(self.row.sides, self._both, strict=True):
            if last == len(after):
                away = self._ends
            else:
                away = [abs(places[above] - place - self.steps[last - 1]) for place in places[:above]]
            found.append([side.times(a, side.decay(d)) for a, d in zip(after[last - 1], away, strict=False)])
        return list(zip(*found, strict=True))

    def firsts(self, last: int, slot: int) -> Weights:
        """The weights of the first quantiles 0, ..., last - 1 of a run that ends before ``last``."""
        both = zip(self.row.sides, self._both, strict=True)
        found = (_on_top(self.row, side, before, self.steps, last, slot) for side, (before, _) in both)
        return list(zip(*found, strict=True))


def _on_top(row: Row, side: _Side, before: list[list[int]], steps: Sequence[int], last: int, slot: int) -> list[int]:
    found, stays = [], 0
    for first in reversed(range(last)):
        found.append(side.times(before[first][slot], side.decay(stays)) * row.volumes[last - first - 1][slot])
        stays += steps[first - 1] if first else 0
    return found[::-1]


def _forward(row: Row, side: _Side, starts: list[int], steps: list[int]) -> tuple[list[list[int]], list[list[int]]]:
    """before[0], ..., before[m-1] and after[1], ..., after[m]."""
    before, after = [[side.decay(away) for away in starts]], list[list[int]]()
    for k in range(row.parameters.quantiles):
        after.append([sum(_on_top(row, side, before, steps, k + 1, slot)) for slot in range(len(row.places))])
        if k < len(steps):
            before.append(_advance(side, row.places, after[k], steps[k]))
    return before, after


def _advance(side: _Side, places: Sequence[int], after: list[int], step: int) -> list[int]:
    """before[k + 1]: a window of slots that are less than ``step`` below, and those further down."""
    times, decay = side.times, side.decay
    found: list[int] = []
    far, start = 0, 0  # the sum of all slots before the window, and where it starts
    # The window: slots up to ``middle`` by the sums from each of them to there, and those after it by one sum.
    front, middle, back = list[int](), 0, 0
    for j, place in enumerate(places):
        if j > 0:
            far = times(far, decay(place - places[j - 1]))
        while start < j and place - places[start] >= step:
            far += times(after[start], decay(place - places[start] - step))
            start += 1
        near = 0
        if start < j:
            if start >= middle:
                sums = 0
                front = [0] * (j - start)
                for i in reversed(range(start, j)):
                    sums = after[i] + (times(sums, decay(places[i + 1] - places[i])) if i < j - 1 else 0)
                    front[i - start] = sums
                offset, middle, back = start, j, 0
            inner = front[start - offset]
            if back:
                inner += times(back, decay(places[middle] - places[start]))
            near = times(inner, decay(step - (place - places[start])))
        elif start == j:
            middle, back = j, 0  # nothing is left in it
        found.append(far + near)
        back += times(after[j], decay(place - places[middle]))
    return found
