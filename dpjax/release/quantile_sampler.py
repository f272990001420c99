"""Draws of joint quantiles from counts: slots, choices by weights in float64 or in integers, and places in slots."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from functools import cached_property
from math import comb, lgamma, log, log2
from typing import NamedTuple

import numpy as np

from dpjax.release.counts import Counts
from dpjax.release.draw import place_in
from dpjax.release.entropy import Bits, More
from dpjax.release.exact_chains import exact_runs
from dpjax.release.exponentials import one_minus_exponential
from dpjax.release.rank_chains import Chain, Parameters, arrays_of, choose, errors, forward, from_target, kernel, scaled_exponential
from dpjax.several_quantiles.far_records import far_records

# Draws of paths that have less than 2^-_RARE of all weight together are left to integers: without far records, their weights may be
# off. All others are off by 2^-_FAR of themselves at most.
_RARE, _FAR = 40, 64
_NUMBERS = 2**24  # that the chains of some rows take, or the weights of some draws: 128 MB


class Slots(NamedTuple):
    """The numbers of a grid by rank; one row each.

    Attributes:
        left: the first number of each slot, int64 ``(R, J)``.
        width: how many numbers it has, in pieces of ``parameters.cut``: of whole numbers, or fewer.
        records: how many there are, ``(R,)``.
    """

    left: np.ndarray
    width: np.ndarray
    records: np.ndarray


def slots_of(counts: Counts, parameters: Parameters, index: np.ndarray | None = None) -> Slots:
    """The slots of some indices ``(R, J)``, by default all: 2 i is between record i and the next one, 2 i - 1 is that of record i.

    "Ties" at the head of ``dpjax/mechanisms/joint_quantiles.py`` says what each record has of a number.
    """
    n = counts.totals[:, None]
    if index is None:
        index = np.broadcast_to(np.arange(2 * int(np.max(n, initial=0)) + 1), (len(n), 2 * int(np.max(n, initial=0)) + 1))
    sums = np.cumsum(counts.counts)
    offset = np.append(0, sums)[counts.starts[:-1], None]
    values, number, through = np.append(counts.values, 0), np.append(counts.counts, 1), np.append(sums, 0)

    def entry(record: np.ndarray) -> np.ndarray:
        return np.searchsorted(sums, offset + np.clip(record, 1, np.maximum(n, 1)))

    record = (index + 1) // 2
    inner, outer = entry(record), entry(record + 1)
    value = np.where(record < 1, -1, values[inner])
    gap = np.where(record >= n, parameters.size, values[outer]) - value - 1
    equal = number[inner]
    place = record - (through[inner] - equal - offset) - 1  # among the records that are equal
    whole = 2 ** (np.frexp(equal.astype(float))[1] - 1).astype(np.int64)
    part = parameters.cut // np.where(place < 2 * (equal - whole), 2 * whole, whole)
    between = index % 2 == 0
    left, width = np.where(between, value + 1, value), np.where(between, np.maximum(gap, 0) * parameters.cut, part)
    return Slots(left, np.where(index <= 2 * n, width, 0), n[:, 0])


def near_slots(parameters: Parameters, n: np.ndarray, middle: np.ndarray) -> tuple[np.ndarray | None, np.ndarray, float]:
    """The slots near the quantiles, ``(R, J)``, ``middle`` without the far records, and log2 of the least probability to trust.

    They are None where no records are far. ``several_quantiles/far_records.py`` says which are. All tuples have the volume
    (size cut / scale)^m at most. Those that are far weigh exp(-rate (near - 1)) of it in each term, or
    exp(-rate (2 near - 2 - |D|)) where there is one. The parts of the records at the quantiles weigh at least
    exp(-rate (2 m + 2 + |D|)) / (scale^m m!), in the nearest term or the only one. A path chooses a term, and for each quantile a
    slot and whether it is in the run of the next one.
    """
    m, rate = parameters.quantiles, float(2 * parameters.whole * parameters.unit)
    terms, spacing = (1, 1) if parameters.reach is None else (2 * parameters.reach // parameters.spacing + 1, parameters.spacing)
    least = -(_RARE + log2(terms) + m * log2(4 * int(np.max(n, initial=0)) + 2))
    volume = m * log(parameters.size * parameters.cut) + lgamma(m + 1) + log(terms) + (_FAR - least) * log(2)
    off = np.abs(middle - (n - 1)) if parameters.reach is None else spacing
    far = far_records(parameters.levels, n, int(min(volume / rate, 2.0**40)) + 2 * m + 4 + off, spacing, np)
    removed = np.sum([number for _, number in far], axis=0)
    if not np.any(removed):
        return None, middle, -np.inf
    records = n - removed
    here = np.arange(2 * int(np.max(records)) + 1)
    slot, gone = np.tile(here, (len(records), 1)), np.zeros_like(records)
    for after, number in far:
        slot += np.where(here >= (2 * (after - gone) + 1)[:, None], 2 * number[:, None], 0)
        gone = gone + number
    return np.where(here <= 2 * records[:, None], slot, 2 * n[:, None] + 1), middle - removed, least


class Sampler:
    """Draws from some rows.

    Args:
        parameters: what is public.
        counts: of the rows.
        public: how many records each row has for the terms, int64 ``(R,)``; by default as many as it has.
        bits: of each uniform that are looked at before it is left to integers, at most 53.
    """

    def __init__(self, parameters: Parameters, counts: Counts, public: np.ndarray | None = None, bits: int = 53) -> None:
        self.parameters, self.bits, self._counts = parameters, bits, counts
        n = counts.totals
        self._middle = (n if public is None else public) - 1
        index, self.middle, self._least = near_slots(parameters, n, self._middle)
        self.slots = slots_of(counts, parameters, index)
        if index is not None:  # as if there were no others
            self.slots = self.slots._replace(records=n - (self._middle - self.middle))
        self.numbers = sorted({number for each in set(self.middle.tolist()) for number in parameters.numbers(each)})
        self._size = self.slots.width.shape[-1]
        relative, self._lost = errors(parameters, self._size)
        self._error = relative + 2.0**-bits + 2.0 ** (1 - _FAR)
        self._memory = np.empty(0)

    def draw(self, words: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Draw from every row by 64-bit words ``(3 m + 1, draws, R)``: numbers ``(draws, R, m)``, and which draws are certain."""
        (draws, rows), m = words.shape[1:], self.parameters.quantiles
        lanes = words.reshape(len(words), -1)
        leading = lanes >> np.uint64(64 - self.bits)
        uniforms, row = leading.astype(np.float64) * 2.0**-self.bits, np.tile(np.arange(rows), draws)
        slot, first = np.full((len(row), m), -1), np.zeros((len(row), m), np.int64)
        with np.errstate(all="ignore"):
            term, sure, path = self._draw_terms(row, uniforms[0])
            for i, number in enumerate(self.numbers):
                lane = np.flatnonzero(term == i)
                some = np.unique(row[lane])
                for part in _parts(some, self._size * arrays_of(self.parameters)):
                    mine = lane[np.isin(row[lane], part)]
                    slot[mine], first[mine], certain, rest = self._draw_runs(number, part, row[mine], uniforms[1:, mine])
                    sure[mine] &= certain & (path[mine] + rest >= self._least)
        left = np.where(slot < 0, 0, self.slots.left[row[:, None], slot])
        cut = self.parameters.cut
        width = np.where(slot < 0, self.parameters.size * cut, self.slots.width[row[:, None], slot])
        # Places are of whole numbers where a slot has them: the parts of one have less weight than an earlier quantile.
        each = np.where(width < cut, 1, cut)
        width, weight = width // each, cut // each
        cells = np.zeros_like(left)
        for k in range(m):  # Polya's urn: a number anew, or that of an earlier quantile of the run
            ball, certain = place_in(width[:, k] + (k - first[:, k]) * weight[:, k], lanes[2 * m + 1 + k])
            earlier = np.where(ball < width[:, k], 0, first[:, k] + (ball - width[:, k]) // weight[:, k])
            anew = np.where(weight[:, k] > 1, 0, ball)
            cells[:, k] = np.where(ball < width[:, k], anew, cells[np.arange(len(row)), np.minimum(earlier, m - 1)])
            sure &= certain
        return np.sort(left + cells, axis=-1).reshape(draws, rows, m), sure.reshape(draws, rows)

    def exactly(self, row: int, words: list[int], more: More) -> list[int]:
        """The same draw from one row in integers, from all of its slots."""
        slots = slots_of(self._counts.some(row, row + 1), self.parameters)
        m, cut, width = self.parameters.quantiles, self.parameters.cut, slots.width[0].tolist()
        uniforms = [Bits(word, 64, role, more) for role, word in enumerate(words)]
        numbers = list(self.parameters.numbers(int(self._middle[row])))
        cells = [0] * m
        for run in exact_runs(self.parameters, width, int(slots.records[0]), numbers, uniforms):
            left, size = (0, self.parameters.size * cut) if run.slot < 0 else (int(slots.left[0, run.slot]), width[run.slot])
            each = cut if size >= cut else 1
            size, weight = size // each, cut // each
            for k in range(run.first, run.last):
                ball = uniforms[2 * m + 1 + k].times(size + (k - run.first) * weight)
                anew = left + (ball if weight == 1 else 0)
                cells[k] = anew if ball < size else cells[run.first + (ball - size) // weight]
        return sorted(cells)

    def _widths(self, part: np.ndarray) -> np.ndarray:
        """The widths of some rows, ``(J, rows)``, as parts of the scale."""
        return self.slots.width[part].T / self.parameters.scale

    def _chain(self, number: int, part: np.ndarray) -> Chain:
        """The chains of one term and some rows, until the next ones are computed."""
        needed = arrays_of(self.parameters) * self._size * len(part)
        if self._memory.size < needed:
            self._memory = np.empty(needed)
        return forward(self.parameters, number, self._widths(part), self._memory)

    def _draw_terms(self, row: np.ndarray, uniform: np.ndarray) -> tuple[np.ndarray, ...]:
        """Numbers of terms, of which the last is the flat one; which are certain; and log2 of their probabilities."""
        if self.parameters.reach is None:
            return np.searchsorted(self.numbers, self.middle)[row], np.ones(len(row), bool), np.zeros(len(row))
        weights, lost = self._terms
        found, sure, share = np.zeros(len(row), np.int64), np.zeros(len(row), bool), np.zeros(len(row))
        for part in _parts(np.arange(len(row)), weights.shape[-1]):
            found[part], sure[part], share[part] = choose(weights, row[part], uniform[part], self._error, lost[row[part]])
        return found, sure, share

    @cached_property
    def _terms(self) -> tuple[np.ndarray, np.ndarray]:
        """The weights of all terms and the flat one, ``(R, T + 1)``, and how much of them can be lost, ``(R,)``."""
        parameters, reach, shape = self.parameters, self.parameters.reach or 0, (len(self.middle), len(self.numbers) + 1)
        mantissa, scale, lost = np.zeros(shape), np.zeros(shape, np.int64), np.zeros(shape)
        for i, number in enumerate(self.numbers):
            for part in _parts(np.flatnonzero(np.abs(self.middle - number) <= reach), self._size * arrays_of(parameters)):
                chain = self._chain(number, part)
                ends, moved = self._ends(number, part)
                factor, power = np.array([scaled_exponential(parameters.unit * (chain.moved + away)) for away in moved]).T
                mantissa[part, i], scale[part, i] = np.einsum("jr,jr->r", chain.after[-1], ends) * factor, power
                lost[part, i] = self._lost
        rate = 2 * parameters.whole * parameters.unit
        far, power = scaled_exponential(rate * (reach + 1))
        rest = one_minus_exponential(rate, 80)
        volume = Fraction(
            comb(parameters.size + parameters.quantiles - 1, parameters.quantiles) * parameters.cut**parameters.quantiles,
            parameters.scale**parameters.quantiles,
        )
        flat = 2 * Fraction(far) * Fraction(2**rest.scale, rest.high) * volume
        shift = flat.numerator.bit_length() - flat.denominator.bit_length()
        mantissa[:, -1], scale[:, -1] = float(flat / Fraction(2) ** shift), power + shift
        small, exponent = np.frexp(mantissa)
        top = np.max(np.where(small > 0, scale + exponent, -(2**60)), axis=-1, keepdims=True)
        weights = np.ldexp(small, np.clip(scale + exponent - top, -2000, 2000))
        return weights, np.sum(np.ldexp(lost, np.clip(scale - top, -4000, 4000)), axis=-1)

    def _ends(self, number: int, part: np.ndarray) -> tuple[np.ndarray, list[int]]:
        """The weights of the last quantile of some rows by its slot, ``(J, rows)``, without factors e^(-unit moved)."""
        counts, own = np.unique(self.slots.records[part], return_inverse=True)
        ends = [from_target(self.parameters, self.parameters.targets(number, count)[1], self._size) for count in counts.tolist()]
        return np.stack([end for end, _ in ends], axis=-1)[:, own], [ends[i][1] for i in own]

    def _draw_runs(self, number: int, part: np.ndarray, row: np.ndarray, uniforms: np.ndarray) -> tuple[np.ndarray, ...]:
        """The slot of each quantile and the first one of its run, ``(L, m)``, by uniforms ``(2 m, L)``.

        Also which draws are certain, and log2 of the probability of their path.
        """
        parameters, m, slots = self.parameters, self.parameters.quantiles, self._size
        chain, ends, width = self._chain(number, part), self._ends(number, part)[0], self._widths(part)
        near = np.array([kernel(parameters, number, k + 1, slots) for k in range(m - 1)])
        found, firsts = np.zeros((2, len(row), m), np.int64)
        sure, path, column = np.ones(len(row), bool), np.zeros(len(row)), np.arange(m)
        for lane in _parts(np.arange(len(row)), slots):
            last, above = np.full(len(lane), m), np.full(len(lane), slots)
            for run in range(m):
                going = np.flatnonzero(last > 0)
                mine, k = lane[going], last[going] - 1
                own = np.searchsorted(part, row[mine])
                alike, shared = np.unique((own * m + k) * (slots + 1) + above[going], return_inverse=True)
                (of, level), over = np.divmod(alike // (slots + 1), m), alike % (slots + 1)
                weights = chain.after[level, :, of]
                weights *= ends.T[of] if run == 0 else near[level[:, None], over[:, None] - np.arange(slots) + slots]
                j, sure_slot, share_slot = choose(weights, shared, uniforms[2 * run, mine], self._error, self._lost)
                on_top, coefficient = np.zeros((len(mine), m)), np.zeros(len(mine))
                here = width[j, own]
                for i in reversed(range(m)):
                    c = k - i
                    grown = (
                        coefficient * ((here + c * parameters.cut / parameters.scale) / (c + 1)) * chain.stays[i]
                        if i < m - 1
                        else 0.0
                    )
                    coefficient = np.where(c == 0, here, np.where(c > 0, grown, 0.0))
                    on_top[:, i] = coefficient * chain.before[i, j, own]
                lanes = np.arange(len(mine))
                first, sure_first, share_first = choose(on_top, lanes, uniforms[2 * run + 1, mine], self._error, self._lost)
                run_of = (column >= first[:, None]) & (column <= k[:, None])
                found[mine] = np.where(run_of, j[:, None], found[mine])
                firsts[mine] = np.where(run_of, first[:, None], firsts[mine])
                sure[mine] &= sure_slot & sure_first
                path[mine] += share_slot + share_first
                last[going], above[going] = first, j
        return found, firsts, sure, path


def _parts(numbers: np.ndarray, each: int) -> Iterator[np.ndarray]:
    """The numbers, some at a time: each of them takes so much memory."""
    size = max(_NUMBERS // each, 1)
    return (numbers[start : start + size] for start in range(0, len(numbers), size))
