"""Exact draws of joint quantiles from counts: slots, choices by weight, and places within slots.

The distribution and its proof are in the docstring of ``dpjax/mechanisms/_joint_quantiles.py``. On
a grid, records matter only by the ranks of its numbers: slot 2 i has the numbers between record i
and the next one, slot 2 i - 1 the number of record i, or a part of it where records are equal. A
draw chooses the term N (or the flat one, a multiset of m numbers of the grid), the slot of the last
quantile, how many quantiles share it, the slot of the one before them, and so on. All multisets of
c of the w numbers of a slot are equally likely: Polya's urn. Weights are float64 with proven bounds
(``exact_chain.py``), which decide all but about one draw in 10^9 for a thousand records; the others
are repeated with the same random words, extended as needed, in decimals of as many digits as
needed.

Of many records only those near the quantiles have slots: the others weigh less than the error that
the bounds allow, unless the probability of the path is tiny. On such paths, more digits keep more
slots.
"""

from __future__ import annotations

from decimal import localcontext
from fractions import Fraction
from functools import cached_property
from math import comb, lgamma, log, log2
from typing import Any, NamedTuple

import numpy as np

from dpjax.release.counts import Counts
from dpjax.release.draw import place_in
from dpjax.release.entropy import Bits, More, further_word, system_words
from dpjax.release.exact_chain import (
    Arithmetic,
    Chain,
    Parameters,
    arrays_of,
    choose,
    decay,
    errors,
    forward,
    from_target,
    kernel,
)
from dpjax.release.exponentials import one_minus_exponential
from dpjax.several_quantiles.far_records import far_records, most_left, slots_left
from dpjax.several_quantiles.slots import slot_ends

_WORDS = 2**22  # random words drawn together
# float64 numbers in the chains of some rows, or in the weights of some draws: 128 MB
_NUMBERS = 2**24


class Slots(NamedTuple):
    """The numbers of a grid by rank, one row for each dataset.

    Attributes:
        left: the first number of each slot, int64 ``(R, J)``.
        width: the width of each slot in pieces of which ``parameters.cut`` make a number: a
            multiple of ``cut``, or less than ``cut``.
        records: the numbers of records, ``(R,)``.
    """

    left: np.ndarray
    width: np.ndarray
    records: np.ndarray


def slots_of(
    counts: Counts,
    parameters: Parameters,
    index: np.ndarray,
    sizes: np.ndarray | None = None,
) -> Slots:
    """Return the slots with some indices ``(R, J)``.

    ``sizes`` ``(R,)`` are the sizes of the grids, by default ``parameters.size``.
    """
    n = counts.totals[:, None]
    sums = np.cumsum(counts.counts)
    offset = np.append(0, sums)[counts.starts[:-1], None]
    values, number, through = (
        np.append(counts.values, 0),
        np.append(counts.counts, 1),
        np.append(sums, 0),
    )

    def entry(record: np.ndarray) -> np.ndarray:
        return np.searchsorted(sums, offset + np.clip(record, 1, np.maximum(n, 1)))

    record = (index + 1) // 2
    inner = entry(record)
    value = np.where(record < 1, -1, values[inner])
    above = parameters.size if sizes is None else sizes[:, None]
    following = np.where(record >= n, above, values[entry(record + 1)])
    equal = number[inner]
    offset_in_ties = record - (through[inner] - equal - offset) - 1
    power = 2 ** (np.frexp(equal.astype(float))[1] - 1).astype(np.int64)
    left, numbers, parts = slot_ends(index, value, following, offset_in_ties, equal, power, np)
    return Slots(left, np.where(index <= 2 * n, numbers * parameters.cut // parts, 0), n[:, 0])


def near_slots(
    parameters: Parameters, n: np.ndarray, middle: np.ndarray, bits: int, kept: int | None = None
) -> tuple[np.ndarray, np.ndarray, float]:
    """Return the slots near the quantiles, ``middle`` without far records, and a log2 bound.

    The slots are ``(R, J)``. A path of at least that probability, and so every choice on it, has a
    relative error of at most 2^-(bits + 11). ``several_quantiles/far_records.py`` defines which
    records are far. All tuples have at most the volume (size cut / scale)^m. Those that are far
    weigh exp(-rate (near - 1)) of it in each term, or exp(-rate (2 near - 2 - |D|)) where there is
    one term. The parts of the records at the quantiles weigh at least exp(-rate (2 m + 2 + |D|)) /
    (scale^m m!), in the nearest term or the only one. A path chooses a term, and for each quantile
    a slot and whether it is in the run of the next one.
    """
    near, spacing, least = _near(parameters, int(np.max(n, initial=0)), bits)
    off = np.abs(middle - (n - 1)) if parameters.reach is None else spacing
    kept = near + off if kept is None else kept
    far = far_records(parameters.levels, n, kept, spacing, np)
    records = n - np.sum([number for _, number in far], axis=0)
    slot, gone = slots_left(far, 2, 2 * int(np.max(records, initial=0)) + 1, np)
    slot = np.where(np.arange(slot.shape[-1]) <= 2 * records[:, None], slot, 2 * n[:, None] + 1)
    return slot, middle - gone, least if np.any(gone) else -np.inf


def _near(parameters: Parameters, most: int, bits: int) -> tuple[int, int, float]:
    """Return how many records are near a quantile in the nearest term, the spacing, and the bound.

    They are for rows of at most ``most`` records; see :func:`near_slots`.
    """
    m, rate = parameters.quantiles, float(2 * parameters.whole * parameters.unit)
    terms, spacing = (
        (1, 1)
        if parameters.reach is None
        else (2 * parameters.reach // parameters.spacing + 1, parameters.spacing)
    )
    least = -(bits - 13 + log2(terms) + m * log2(4 * most + 2))
    volume = (
        m * log(parameters.size * parameters.cut)
        + lgamma(m + 1)
        + log(terms)
        + (bits + 11 - least) * log(2)
    )
    return int(min(volume / rate, 2.0**40)) + 2 * m + 4, spacing, least


def memory_for(parameters: Parameters, most: int) -> int:
    """Return how many numbers the chains of any row of at most ``most`` records need in float64.

    This is for private sizes: that of the terms is then at most a spacing off.
    """
    near, spacing, _ = _near(parameters, most, Arithmetic().bits)
    records = min(most, most_left(parameters.levels, near + spacing, spacing))
    return arrays_of(parameters) * (2 * records + 1)


class Sampler:
    """Draws of quantiles from some rows.

    Args:
        parameters: the public parameters.
        counts: the counts of the rows.
        public: the number of records that the terms use for each row, int64 ``(R,)``; by default
            the number of its records.
        sizes: the size of the grid of each row, int64 ``(R,)``, where there is one term; at most
            ``parameters.size``, the default.
        ranked: whether draws have m more numbers, for one term: how many records are up to the
            place of each quantile. These are private.
        digits: the digits of decimals; 0 for float64.
        bits: the bits of each uniform that are used, by default the precision of the arithmetic.
        kept: how many records on either side of a quantile have slots, by default as many as the
            bounds need.

    Attributes:
        index: the numbers of the slots that are kept, ``(R, J)``.
        least: log2 of the least probability of a path that floats decide.
    """

    def __init__(
        self,
        parameters: Parameters,
        counts: Counts,
        public: np.ndarray | None = None,
        sizes: np.ndarray | None = None,
        *,
        ranked: bool = False,
        digits: int = 0,
        bits: int | None = None,
        kept: int | None = None,
    ) -> None:
        self.parameters, self.arithmetic, self._counts = parameters, Arithmetic(digits), counts
        self._public, self._sizes, self._ranked = public, sizes, ranked
        self.bits = self.arithmetic.bits if bits is None else bits
        n = counts.totals
        middle = (n if public is None else public) - 1
        self.index, self.middle, self.least = near_slots(
            parameters, n, middle, self.arithmetic.bits, kept
        )
        self.slots = slots_of(counts, parameters, self.index, sizes)
        # As if the far records did not exist.
        self.slots = self.slots._replace(records=n - (middle - self.middle))
        self.numbers = sorted(
            {number for each in set(self.middle.tolist()) for number in parameters.numbers(each)}
        )
        self._size = self.slots.width.shape[-1]
        relative, self._lost = errors(parameters, self._size, self.arithmetic)
        self._error = (
            relative + self._part(1, 2**self.bits) + self._part(1, 2 ** (self.arithmetic.bits + 10))
        )
        self._memory = np.empty(0)

    def draw(self, words: np.ndarray, count: int = 64) -> tuple[np.ndarray, np.ndarray]:
        """Draw ``(draws, R, m)`` from words ``(3 m + 1, draws, R)``, and which draws are certain.

        The words have ``count`` bits.
        """
        with localcontext(self.arithmetic.context), np.errstate(all="ignore"):
            return self._draw(words, count)

    def exactly(self, row: int, words: list[int], more: More) -> list[int]:
        """Return the same draw from one row, with as many digits and bits as needed."""
        uniforms, digits = [Bits(word, 64, role, more) for role, word in enumerate(words)], 20
        public, sizes = (
            None if a is None else a[row : row + 1] for a in (self._public, self._sizes)
        )
        while True:
            digits *= 2
            finer = Sampler(
                self.parameters,
                self._counts.some(row, row + 1),
                public,
                sizes,
                ranked=self._ranked,
                digits=digits,
            )
            for uniform in uniforms:
                while uniform.count < finer.bits:
                    uniform.read()
            values = np.array([uniform.value for uniform in uniforms], object)[:, None, None]
            found, sure = finer.draw(values, uniforms[0].count)
            if sure.all():
                return found[0, 0].tolist()

    def _part(self, number: Any, scale: int) -> Any:
        """Return numbers divided by a scale."""
        return number * self.arithmetic.of(Fraction(1, scale))

    def _draw(self, words: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
        (draws, rows), m, cut = words.shape[1:], self.parameters.quantiles, self.parameters.cut
        lanes, row = words.reshape(len(words), -1), np.tile(np.arange(rows), draws)
        uniforms = self._part(lanes >> lanes.dtype.type(count - self.bits), 2**self.bits)
        slot, first = np.full((len(row), m), -1), np.zeros((len(row), m), np.int64)
        term, sure, path = self._draw_terms(row, uniforms[0])
        for i, number in enumerate(self.numbers):
            lane = np.flatnonzero(term == i)
            if lane.size:
                slot[lane], first[lane], certain, rest = self._draw_runs(
                    number, row[lane], uniforms[1:, lane]
                )
                sure[lane] &= certain & (path[lane] + rest >= self.least)
        left = np.where(slot < 0, 0, self.slots.left[row[:, None], slot])
        width = np.where(slot < 0, self.parameters.size * cut, self.slots.width[row[:, None], slot])
        # Places count numbers if a slot has at least one, else pieces, which weigh less than an
        # earlier quantile.
        each = np.where(width < cut, 1, cut)
        width, weight = width // each, cut // each
        cells = np.zeros_like(left)
        for k in range(m):  # Polya's urn: a new number, or that of an earlier quantile of the run
            ball, certain = _place(
                width[:, k] + (k - first[:, k]) * weight[:, k], lanes[2 * m + 1 + k], count
            )
            earlier = np.where(
                ball < width[:, k], 0, first[:, k] + (ball - width[:, k]) // weight[:, k]
            )
            anew = np.where(weight[:, k] > 1, 0, ball)
            cells[:, k] = np.where(
                ball < width[:, k], anew, cells[np.arange(len(row)), np.minimum(earlier, m - 1)]
            )
            sure &= certain
        found = np.sort(left + cells, axis=-1)
        if self._ranked:
            found = np.concatenate([found, (self.index[row[:, None], slot] + 1) // 2], axis=-1)
        return found.reshape(draws, rows, -1), sure.reshape(draws, rows)

    def _widths(self, part: np.ndarray) -> np.ndarray:
        """Return the widths of the slots of some rows, ``(J, rows)``, divided by the scale."""
        return self._part(self.slots.width[part].T, self.parameters.scale)

    def _chain(self, number: int, part: np.ndarray) -> Chain:
        """Return the chains of one term for some rows; the next call overwrites them."""
        needed = arrays_of(self.parameters) * self._size * len(part)
        if self._memory.size < needed:
            self._memory = np.empty(needed, self.arithmetic.dtype)
        return forward(self.parameters, number, self._widths(part), self._memory, self.arithmetic)

    def _draw_terms(self, row: np.ndarray, uniform: np.ndarray) -> tuple[np.ndarray, ...]:
        """Return the indices of the drawn terms, a mask of certain ones, and log2 probabilities.

        The last index is that of the flat term.
        """
        if self.parameters.reach is None:
            return (
                np.searchsorted(self.numbers, self.middle)[row],
                np.ones(len(row), bool),
                np.zeros(len(row)),
            )
        return choose(self.terms, row, uniform, self._error, self._lost * self.terms.shape[-1])

    @cached_property
    def terms(self) -> np.ndarray:
        """The weights of all terms and, last, the flat one, ``(R, T + 1)``, up to a factor."""
        parameters, arithmetic, reach = self.parameters, self.arithmetic, self.parameters.reach or 0
        m, unit, rate = (
            parameters.quantiles,
            parameters.unit,
            2 * parameters.whole * parameters.unit,
        )
        moved = np.full(
            (len(self.middle), len(self.numbers) + 1), 2 * parameters.whole * (reach + 1)
        )
        weights: np.ndarray = np.zeros(moved.shape, arithmetic.dtype)
        for i, number in enumerate(self.numbers):
            part = np.flatnonzero(np.abs(self.middle - number) <= reach)
            chain, (ends, more) = self._chain(number, part), self._ends(number, part)
            weights[part, i], moved[part, i] = (
                np.einsum("jr,jr->r", chain.after[-1], ends),
                chain.moved + more,
            )
        volume = Fraction(comb(parameters.size + m - 1, m) * parameters.cut**m, parameters.scale**m)
        rest = one_minus_exponential(rate, arithmetic.bits + 27)
        weights[:, -1] = arithmetic.of(2 * Fraction(2**rest.scale, rest.high) * volume)
        moved -= np.min(moved, axis=-1, keepdims=True)
        return weights * np.array(
            [[decay(unit * away, arithmetic) for away in row] for row in moved.tolist()]
        )

    def _ends(self, number: int, part: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the weights of the last quantile by its slot, and ``moved``.

        The weights of the rows are ``(J, rows)``. The weights lack factors e^(-unit moved).
        """
        counts, index = np.unique(self.slots.records[part], return_inverse=True)
        targets = [self.parameters.targets(number, count)[1] for count in counts.tolist()]
        ends, moved = zip(
            *(
                from_target(self.parameters, target, self._size, self.arithmetic)
                for target in targets
            ),
            strict=True,
        )
        return np.stack(ends, axis=-1)[:, index], np.array(moved)[index]

    def _draw_runs(
        self, number: int, row: np.ndarray, uniforms: np.ndarray
    ) -> tuple[np.ndarray, ...]:
        """Return the slot of each quantile and the first quantile of its run, both ``(L, m)``.

        The uniforms are ``(2 m, L)``. Also returned are which draws are certain, and log2 of the
        probability of their paths.
        """
        m, slots, column = (
            self.parameters.quantiles,
            self._size,
            np.arange(self.parameters.quantiles),
        )
        part, row = np.unique(row, return_inverse=True)
        weights = Weights(self, number, part)
        found, firsts = np.zeros((2, len(row), m), np.int64)
        sure, path = np.ones(len(row), bool), np.zeros(len(row))
        for start in range(0, len(row), step := max(_NUMBERS // slots, 1)):
            lane = np.arange(start, min(start + step, len(row)))
            last, above = np.full(len(lane), m), np.full(len(lane), slots)
            for run in range(m):
                going = np.flatnonzero(last > 0)
                mine, k = lane[going], last[going] - 1
                row_index = row[mine]
                states, shared = np.unique(
                    (row_index * m + k) * (slots + 1) + above[going], return_inverse=True
                )
                (of, level), over = np.divmod(states // (slots + 1), m), states % (slots + 1)
                below = weights.of_slots(of, level, over)
                j, sure_slot, share_slot = choose(
                    below, shared, uniforms[2 * run, mine], self._error, self._lost
                )
                on_top = weights.of_firsts(row_index, k, j)
                lanes = np.arange(len(mine))
                first, sure_first, share_first = choose(
                    on_top, lanes, uniforms[2 * run + 1, mine], self._error, self._lost
                )
                run_of = (column >= first[:, None]) & (column <= k[:, None])
                found[mine] = np.where(run_of, j[:, None], found[mine])
                firsts[mine] = np.where(run_of, first[:, None], firsts[mine])
                sure[mine] &= sure_slot & sure_first
                path[mine] += share_slot + share_first
                last[going], above[going] = first, j
        return found, firsts, sure, path


class Weights:
    """The weights of all choices on the chains of one term and some rows.

    They are valid until other chains are computed.
    """

    def __init__(self, sampler: Sampler, number: int, part: np.ndarray) -> None:
        parameters, slots, arithmetic = (
            sampler.parameters,
            sampler.slots.width.shape[-1],
            sampler.arithmetic,
        )
        self._chain, self._ends, self._widths = (
            sampler._chain(number, part),
            sampler._ends(number, part)[0],
            sampler._widths(part),
        )
        self._near = np.array(
            [
                kernel(parameters, number, k + 1, slots, arithmetic)
                for k in range(parameters.quantiles - 1)
            ]
        )
        self._piece = sampler._part(parameters.cut, parameters.scale)

    def of_slots(self, row: np.ndarray, k: np.ndarray, above: np.ndarray) -> np.ndarray:
        """Return the weights of the slots of quantile k + 1, ``(L, J)``.

        They are below the slot ``above`` of the next quantile. J as ``above`` means that there is
        no next quantile.
        """
        m, slots, _ = self._chain.after.shape
        weights = self._chain.after[k, :, row]
        weights *= (
            self._ends.T[row]
            if np.all(k == m - 1)
            else self._near[k[:, None], above[:, None] - np.arange(slots) + slots]
        )
        return weights

    def of_firsts(self, row: np.ndarray, k: np.ndarray, slot: np.ndarray) -> np.ndarray:
        """Return the weights of runs in this slot that end with quantile k + 1.

        They are indexed by their first quantile. The first quantiles are 1, ..., m, so the weights
        are ``(L, m)``.
        """
        m, here = len(self._chain.before), self._widths[slot, row]
        found = np.zeros((len(row), m), here.dtype)
        coefficient = found[:, 0]
        for i in reversed(range(m)):
            c = k - i
            grown = (
                coefficient * ((here + c * self._piece) / (c + 1)) * self._chain.stays[i]
                if i < m - 1
                else 0
            )
            coefficient = np.where(c == 0, here, np.where(c > 0, grown, 0))
            found[:, i] = coefficient * self._chain.before[i, slot, row]
        return found


def _place(width: np.ndarray, words: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the integer floor(width U) for words with ``count`` bits, and whether it is certain.

    It is certain if further bits cannot change it.
    """
    if words.dtype != object:
        return place_in(width, words)
    low, high = words * width >> count, (words + 1) * width - 1 >> count
    return low.astype(np.int64), low == high


def draw_quantiles(
    parameters: Parameters,
    counts: Counts,
    draws: int,
    public: np.ndarray | None = None,
    words_of: Any = system_words,
    more: More = further_word,
    sizes: np.ndarray | None = None,
    ranked: bool = False,
) -> np.ndarray:
    """Draw all quantiles of all groups: int64 ``(draws, groups, m)``.

    ``public`` are numbers of records, int64 ``(groups,)``, and ``sizes`` the sizes of grids; with
    ``ranked`` the last axis has ``2 m`` numbers: see :class:`Sampler`.
    """
    m, uniforms = parameters.quantiles, 3 * parameters.quantiles + 1
    found = np.zeros((draws, counts.groups, 2 * m if ranked else m), np.int64)
    rows = max(
        _NUMBERS // (arrays_of(parameters) * (2 * int(np.max(counts.totals, initial=0)) + 1)), 1
    )
    for first in range(0, counts.groups, rows):
        last = min(first + rows, counts.groups)
        known, grids = (None if a is None else a[first:last] for a in (public, sizes))
        sampler = Sampler(parameters, counts.some(first, last), known, grids, ranked=ranked)
        step = max(_WORDS // (uniforms * (last - first)), 1)
        for start in range(0, draws, step):
            chunk = found[start : start + step, first:last]
            words = words_of((uniforms, *chunk.shape[:2]))
            chunk[:], sure = sampler.draw(words)
            for draw, row in zip(*np.nonzero(~sure), strict=True):
                chunk[draw, row] = sampler.exactly(int(row), words[:, draw, row].tolist(), more)
    return found
